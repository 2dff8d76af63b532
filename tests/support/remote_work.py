"""What is asked of a whole store: the same answers are expected wherever it is kept, and few rounds of requests."""

from __future__ import annotations

from collections.abc import Callable

from rmqstore_spark.errors import OptionError
from rmqstore_spark.jobs.summary import summarize
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.query.stream_options import parse_stream_options
from rmqstore_spark.read.follow.follow import Follower
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.plan.stores import files_of, open_stores
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.positions import positions_at
from rmqstore_spark.tables.registry import read_table

_MILLISECOND = 1000  # microseconds


def _table(name: str, columns: str = "") -> Callable[[str], object]:
    given = {"table": name} | ({"columns": columns} if columns else {})
    return lambda path: read_table(parse_options({"path": path, **given})).to_pylist()


def plan_of(**given: str) -> Callable[[str], list[int]]:
    """How many ranges each task of a plan has."""
    return lambda path: [len(task.ranges) for task in plan(parse_options({"path": path, **given})).tasks]


def _unknown_topic(path: str) -> object:
    try:
        return len(plan(parse_options({"path": path, "subscribe": "Nonexistent"})).tasks)
    except OptionError as why:
        return str(why)


def _summary(path: str) -> object:
    found = summarize(_opened(path))
    return [(topic.topic, topic.messages) for topic in found.topics], found.groups


def _half_time(path: str) -> object:
    known = _opened(path.removeprefix("s3:/"))  # whoever asks knows the time, without a request
    first = known.log.timestamp(known.log.extents[0].start)
    last = known.log.timestamp(known.end)
    assert first is not None
    assert last is not None
    return positions_at(_opened(path), (first + last) // 2 * _MILLISECOND)


def _opened(path: str) -> Snapshot:
    options = parse_options({"path": path})
    return open_stores(options, files_of(options))[0]


def _stream(**given: str) -> Callable[[str], object]:
    return lambda path: Follower(parse_stream_options({"path": path, **given})).initial().as_json()


# By what it is called: for the path of a store, the answer.
WORK: dict[str, Callable[[str], object]] = {
    "plan of a scan": plan_of(),
    "topics": _table("topics"),
    "offsets": _table("offsets"),
    "segments": _table("segments", "file,endOffset,firstStoreTimestamp,lastStoreTimestamp"),
    "consumequeue": _table("consumequeue"),
    "show": _summary,
    "an unknown topic's error": _unknown_topic,
    "offsets at a time": _half_time,
    "stream from a group": _stream(startingOffsets="group:group"),
    "stream from a time": _stream(startingTimestamp="2020-01-01T00:00:00"),
    "delayed": _table("delayed"),
    "check": _table("check"),
}
