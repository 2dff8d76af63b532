"""Times as text: every time that a message may claim, including those that Python's datetime cannot hold."""

import numpy as np
import pyarrow as pa


def time_texts(times: "pa.Array | pa.ChunkedArray") -> list[str | None]:
    """A column of timestamps as ISO-8601 in UTC, without a zone, in milliseconds as RocketMQ has them; None for null.
    A time that a client or a flipped bit has made may be of any year."""
    milliseconds = times.to_numpy(zero_copy_only=False).astype("datetime64[ms]")
    texts = np.datetime_as_string(milliseconds).tolist()
    return [None if text == "NaT" else text for text in texts]


def in_seconds(times: "pa.Array | pa.ChunkedArray") -> list[str]:
    """time_texts() for people, in whole seconds; "" for null."""
    return [(text or "").partition(".")[0].replace("T", " ") for text in time_texts(times)]


def span_text(first: int, last: int) -> str:
    """From one time (microseconds) to another one, for people: the day once, where it is the same."""
    begin, end = in_seconds(pa.array([first, last], pa.timestamp("us")))
    day, _, time = end.partition(" ")
    return f"{begin} to {time if begin.startswith(day) else end} UTC"
