"""The last messages of a store, and then new ones as they come."""

import time
from collections.abc import Iterator, Mapping

import pyarrow as pa

from rmqstore_spark.columns import DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.errors import OptionError
from rmqstore_spark.query.stream_options import StreamOptions, parse_stream_options
from rmqstore_spark.read.follow.follow import Follower
from rmqstore_spark.read.follow.stream_offset import StreamOffset
from rmqstore_spark.read.follow.tier import follower_of
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.tables.messages import last_of_logs

_SECONDS = 0.05  # between looks while nothing new comes


def followed(
    path: str, given: Mapping[str, str], count: int, is_asked_for: bool
) -> tuple[pa.Table, Iterator[pa.RecordBatch]]:
    """The last messages that the options select, up to `count`, and all messages after them, for ever. Where the
    options give a start, all messages from the start on come in the second part, and the first part is empty.

    Args:
        path: the store.
        given: options of a stream as text.
        is_asked_for: whether the user gave the count.

    Raises:
        OptionError: the user gave both a count and a start, or the path is not exactly one store.
        RmqStoreError: the store cannot be read.
    """
    options = parse_stream_options({**given, "path": path})
    if is_asked_for and options.start != "latest":
        raise OptionError(
            "--limit: counts the last messages, but with startingOffsets or startingTimestamp all messages from there "
            "on are shown; give one of them"
        )
    columns = options.read.columns or DEFAULT_COLUMNS
    follower = follower_of(options)
    start = follower.initial()
    roots = {place.tier or root for root, place in start.stores.items()}
    if len(roots) > 1:
        raise OptionError(f"{path}: expected one store, found {len(roots)}")
    last = arrow_schema(columns).empty_table()
    if options.start == "latest":
        logs = [follower.before(root, place) for root, place in sorted(start.stores.items())]
        last = last_of_logs(logs, columns, count)
    return last, _coming(follower, start, options, columns)


def _coming(
    follower: Follower, start: StreamOffset, options: StreamOptions, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    settings = ReadSettings.of(options.read, arrow_schema(columns))
    while True:
        end = follower.latest(start, is_limited=False)
        if end == start:
            time.sleep(_SECONDS)
            continue
        for task in follower.plan(start, end, columns):
            yield from read_task(task, settings)
        start = end
