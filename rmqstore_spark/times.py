"""Times as text: all that a message may claim, also those that Python's datetime cannot hold."""

import numpy as np
import pyarrow as pa


def time_texts(times: "pa.Array | pa.ChunkedArray") -> list[str | None]:
    """A column of timestamps as ISO-8601 in UTC, without a zone and with the milliseconds that RocketMQ's clocks have;
    None where it is null. What a client or a flipped bit has made of a time may be of any year."""
    milliseconds = times.to_numpy(zero_copy_only=False).astype("datetime64[ms]")
    texts = np.datetime_as_string(milliseconds).tolist()
    return [None if text == "NaT" else text for text in texts]


def in_seconds(times: "pa.Array | pa.ChunkedArray") -> list[str]:
    """time_texts() for people, in whole seconds; "" where one is null."""
    return [(text or "").partition(".")[0].replace("T", " ") for text in time_texts(times)]
