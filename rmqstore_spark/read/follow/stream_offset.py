"""How far a stream has read: the JSON that Spark keeps in a checkpoint.

    {"version": 1,
     "startingTimestamp": 1700000000000,                           milliseconds; only where the query began with one
     "stores": {"/data/broker-a/store": {
        "commitLogOffset": 4711,                                   all messages before this offset were read
        "last": {"commitLogOffset": 4600, "storeTimestamp": 1700000000123, "bodyCRC": 99},   the message before, or null
        "startingOffsets": {"Orders": {"0": 17}},                  the starts of queues that are not that far yet
        "topics": ["Orders"]}},                                    the only ones that are read; absent: any
     "tiers": {"/data/tiered": {                                   tiered stores, if any: for each queue's log
        "30781641_Cluster/broker-a/Orders/0": [4711,                  all messages before this flat offset were read,
                                               17,                    and before this queueOffset, or none is wanted
                                               4600, 1700000000123, 99]}}}    the message before, as `last`; or absent

A version that this package does not know is refused. Version 1 stays readable: tests/data has some files of it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.message import Mark
from rmqstore_spark.store.structures.config import is_exactly

VERSION = 1
_MOST = (1 << 63) - 1

Queue = tuple[str, int]  # topic and queueId


@dataclass(frozen=True)
class StoreOffset:
    """How far a store was read.

    Attributes:
        position: the physical offset before which everything was read: a unit's start, or the log's end at that time.
        last: the last message before the position; None where nothing was read before it, or it is not known.
        starts: the first queue offset that is read of a queue, until the log has passed it.
        topics: the topics that are read; None: any.
        tier: the tiered store in which this is the log of one queue, whose first queue offset is always among the
            starts. Its positions are flat offsets.
    """

    position: int
    last: Mark | None = None
    starts: Mapping[Queue, int] = field(default_factory=dict)
    topics: frozenset[str] | None = None
    tier: str | None = None


@dataclass(frozen=True)
class StreamOffset:
    """How far a stream has read.

    Attributes:
        stores: by directory; in a tiered store by that of each queue.
        since: the least store time (ms) that is read, None for any.
    """

    stores: Mapping[str, StoreOffset] = field(default_factory=dict)
    since: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The JSON that Spark keeps; equal offsets always give equal texts."""
        since = {} if self.since is None else {"startingTimestamp": self.since}
        tiers: dict[str, dict[str, list[int]]] = {}
        for directory, place in sorted(self.stores.items()):
            if place.tier is not None:
                tiers.setdefault(place.tier, {})[directory.removeprefix(place.tier).lstrip("/")] = _list_of(place)
        stores = {root: _json_of(place) for root, place in sorted(self.stores.items()) if place.tier is None}
        return {"version": VERSION, **since, "stores": stores, **({"tiers": tiers} if tiers else {})}


def stream_offset(found: object) -> StreamOffset:
    """The offset in a checkpoint.

    Raises:
        RmqStoreError: the JSON is of another version, or not of this package at all.
    """
    whole = _object(found, "offset")
    version = whole.get("version")
    if not is_exactly(version, VERSION):
        raise RmqStoreError(
            f"the checkpoint's offset: expected version {VERSION}, found {version!r}; go on with the release of "
            "rmqstore-spark that wrote it or a later one, or begin with a new checkpoint"
        )
    since = _number(whole, "startingTimestamp", -_MOST) if "startingTimestamp" in whole else None
    stores = _object(whole.get("stores"), "stores")
    places = {root: _store_offset(_object(each, root)) for root, each in stores.items()}
    for tier, logs in _object(whole.get("tiers", {}), "tiers").items():
        for name, each in _object(logs, tier).items():
            places[os.path.join(tier, name)] = _log_offset(tier, name, each)
    return StreamOffset(places, since)


def queue_of(directory: str) -> Queue:
    """The queue whose directory in a tiered store this is."""
    above, _, queue_id = directory.rpartition("/")
    return above.rpartition("/")[2], int(queue_id)


def _list_of(place: StoreOffset) -> list[int]:
    (first,) = place.starts.values()
    return [place.position, first, *(place.last or ())]


def _log_offset(tier: str, name: str, found: object) -> StoreOffset:
    is_place = isinstance(found, list) and all(type(each) is int and abs(each) <= _MOST for each in found)
    topic, _, queue_id = name.rpartition("/")
    if not isinstance(found, list) or not is_place or len(found) not in (2, 5) or min(found[:3]) < 0:
        raise _wrong(name, "the place in a queue's log", found)
    if not topic or not _is_id(queue_id):
        raise _wrong("tiers", "directories of queues", name)
    position, first, *last = found
    return StoreOffset(position, Mark(*last) if last else None, {queue_of(name): first}, tier=tier)


def _json_of(store: StoreOffset) -> dict[str, Any]:
    last = store.last
    found: dict[str, Any] = {
        "commitLogOffset": store.position,
        "last": None
        if last is None
        else {"commitLogOffset": last.position, "storeTimestamp": last.store_timestamp, "bodyCRC": last.body_crc},
    }
    if store.starts:
        starts: dict[str, dict[str, int]] = {}
        for topic, queue_id in sorted(store.starts):
            starts.setdefault(topic, {})[str(queue_id)] = store.starts[topic, queue_id]
        found["startingOffsets"] = starts
    if store.topics is not None:
        found["topics"] = sorted(store.topics)
    return found


def _store_offset(found: dict[str, Any]) -> StoreOffset:
    last = None if found.get("last") is None else _object(found["last"], "last")
    starts = {
        (topic, _queue_id(queue_id)): _number(queues, queue_id)
        for topic, queues in _object(found.get("startingOffsets", {}), "startingOffsets").items()
        for queue_id in _object(queues, topic)
    }
    topics = found.get("topics")
    if topics is not None and not (isinstance(topics, list) and all(isinstance(topic, str) for topic in topics)):
        raise _wrong("topics", "a list of names", topics)
    return StoreOffset(
        position=_number(found, "commitLogOffset"),
        last=None
        if last is None
        else Mark(
            _number(last, "commitLogOffset"),
            _number(last, "storeTimestamp", -_MOST),
            _number(last, "bodyCRC", -_MOST),
        ),
        starts=starts,
        topics=None if topics is None else frozenset(topics),
    )


def _object(found: object, name: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise _wrong(name, "an object", found)
    return found


def _number(found: dict[str, Any], name: str, least: int = 0) -> int:
    value = found.get(name)
    if type(value) is not int or not least <= value <= _MOST:
        raise _wrong(name, "a whole number", value)
    return value


def _queue_id(text: str) -> int:
    if not _is_id(text):
        raise _wrong("startingOffsets", "queueIds", text)
    return int(text)


def _is_id(text: str) -> bool:
    return text.isdecimal() and len(text) <= 10


def _wrong(name: str, expected: str, found: object) -> RmqStoreError:
    return RmqStoreError(
        f"the checkpoint's offset, {name!r}: expected {expected}, found {found!r:.80}; it is not one of this source, "
        "or damaged: begin with a new checkpoint"
    )
