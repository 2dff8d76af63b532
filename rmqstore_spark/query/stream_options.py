"""The options of a stream: the options of a read that make sense without an end, and a few more."""

from collections.abc import Mapping
from dataclasses import dataclass

from rmqstore_spark.errors import OptionError
from rmqstore_spark.query.option_values import GroupOffsets, Offsets, Word, check_offsets
from rmqstore_spark.query.options import (
    MESSAGES,
    OPTIONS,
    STREAM_OPTIONS,
    ReadOptions,
    Use,
    going_with,
    parse_options,
    refuse,
    understand,
)
from rmqstore_spark.query.selection import ALL
from rmqstore_spark.store.io.storage import location, scheme_of, taken_out

# Parsed here, not as options of a read.
_OWN = {name.lower() for name in STREAM_OPTIONS}


@dataclass(frozen=True)
class StreamOptions:
    """A stream's parsed options.

    Attributes:
        read: the options of each batch; their selection does not say where the stream starts.
        start: startingOffsets.
        since: startingTimestamp: the least store time in milliseconds, None for any.
        max_bytes, max_messages: maxBytesPerTrigger and maxOffsetsPerTrigger.
        fail_on_data_loss: whether messages that are gone are an error.
    """

    read: ReadOptions
    start: Offsets | GroupOffsets | Word
    since: int | None
    max_bytes: int | None
    max_messages: int | None
    fail_on_data_loss: bool


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Parse a stream's options. Names are compared in any case.

    Raises:
        OptionError: an option is unknown, has no meaning for a stream, or has a wrong value.
    """
    refuse(given, Use.STREAMS)
    own, named = understand({name: text for name, text in given.items() if name.lower() in _OWN}, STREAM_OPTIONS)
    others = {name: text for name, text in given.items() if name.lower() not in _OWN}
    known = going_with(Use.STREAMS, {**OPTIONS, **STREAM_OPTIONS})
    understand(taken_out(others)[1], known)  # so that the error for an unknown option names a stream's options
    read = parse_options(others)
    for path in read.paths:
        if scheme_of(path) is not None:
            location(path)  # a URI with a secret in it is refused without being shown
    if read.table != MESSAGES:
        raise OptionError(f"option 'table': only messages can be read as a stream, not {read.table!r}; use spark.read")
    start, since = own["startingOffsets"], read.selection.store_timestamp
    if since != ALL and "startingOffsets" not in named:
        start = "earliest"
    if isinstance(start, dict):
        _check_start(start, read)
    return StreamOptions(
        read=read,
        start=start,
        since=None if since == ALL else since.least,
        max_bytes=own["maxBytesPerTrigger"],
        max_messages=own["maxOffsetsPerTrigger"],
        fail_on_data_loss=own["failOnDataLoss"],
    )


def _check_start(start: Offsets, read: ReadOptions) -> None:
    given = [name for name in OPTIONS if name in read.given and name in ("subscribe", "subscribePattern", "assign")]
    for topic, queues in start.items():
        check_offsets("startingOffsets", topic, queues, read.selection, given)
