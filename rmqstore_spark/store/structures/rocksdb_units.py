"""ConsumeQueue units as a broker keeps them in RocksDB: keys and values, and pages of them.

Column family `default` has a record for each message of a queue:

    key    i32 bytes of the topic, 01, topic, 01, i32 queueId, 01, i64 queue offset
    value  the 20 bytes of a unit in a queue's file (store/format/queue_block.py), then i64 storeTimestamp

So the records of a queue are one range of keys, in the order of queue offsets, and so are those of a topic. Records of
another form are passed over: units are hints.
Source: org.apache.rocketmq.store.queue.RocksDBConsumeQueueTable.
"""

import bisect
import functools
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from rmqstore_spark.errors import RmqStoreError, StorageError, one_line
from rmqstore_spark.store.format.queue_block import MOST_OFFSETS, UNIT_SIZE
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.rocksdb.changing import ChangingDatabase
from rmqstore_spark.store.rocksdb.database import Database
from rmqstore_spark.store.rocksdb.entries import Entries
from rmqstore_spark.store.structures.layout import queue_path

log = logging.getLogger(__name__)

OFFSETS = "offset"  # the column family with each queue's bounds
_UNITS = "default"
_VALUE_SIZE = 28
_NUMBER_SIZE = 8
_LEAST_KEY = 4 + 1 + 1 + 1 + 4 + 1 + _NUMBER_SIZE
_PAGE_RECORDS = 16 * 1024
_PAGES = 16  # kept: walks along queues with names of different lengths go on in different places
_NEWEST = 4  # of these, the pages that are compared with what is asked for next
_NEAR_BLOCKS = 2  # blocks of tables from one key to another that follows closely
_LAST = 0xFF

_Answer = TypeVar("_Answer")
_Longs = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]


class QueueKey(NamedTuple):
    """The queue that a key's first bytes name."""

    topic: str
    queue_id: int


class Records(NamedTuple):
    """Records of one queue.

    Attributes:
        numbers: queue offsets, ascending.
        units: a row of 20 bytes for each.
    """

    numbers: _Longs
    units: _Bytes

    def within(self, start: int, stop: int) -> "Records":
        """Those with the numbers [start, stop)."""
        first, after = np.searchsorted(self.numbers, [start, stop]).tolist()
        return Records(self.numbers[first:after], self.units[first:after])


@functools.lru_cache(maxsize=1024)
def topic_prefix(topic: str) -> bytes:
    """The bytes that all keys of a topic begin with, and no others."""
    name = os.fsencode(topic)
    return len(name).to_bytes(4, "big") + b"\1" + name + b"\1"


def queue_prefix(topic: str, queue_id: int) -> bytes:
    """The bytes that all keys of a queue begin with, and no others."""
    return topic_prefix(topic) + queue_id.to_bytes(4, "big") + b"\1"


def after(prefix: bytes) -> bytes | None:
    """The first key after all that begin with these bytes; None where there is no such key."""
    kept = prefix.rstrip(bytes([_LAST]))
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def key_of(prefix: bytes, number: int) -> bytes:
    """The key of a queue's record."""
    return prefix + min(number, (1 << 63) - 1).to_bytes(_NUMBER_SIZE, "big")


@functools.lru_cache(maxsize=1024)
def queue_of(prefix: bytes) -> QueueKey | None:
    """The queue that a key begins with; None where no broker can have such a queue."""
    topic, queue_id = _topic_of(prefix[:-5]), int.from_bytes(prefix[-5:-1], "big", signed=True)
    return None if topic is None or prefix[-1] != 1 or queue_id < 0 else QueueKey(topic, queue_id)


@functools.lru_cache(maxsize=1024)
def _topic_of(prefix: bytes) -> str | None:
    """The topic of topic_prefix(); None where no broker can have such a topic."""
    size = int.from_bytes(prefix[:4], "big")
    if len(prefix) != 6 + size or prefix[4] != 1 or prefix[5 + size] != 1:
        return None
    topic = os.fsdecode(prefix[5 : 5 + size])
    return None if queue_path(topic, 0) is None else topic


class _Part(NamedTuple):
    """Records of some queues, in the order of keys.

    Attributes:
        prefixes: of the queues, ascending.
        starts, ends: of each queue's records among all.
        numbers, units: as of Records.
    """

    prefixes: list[bytes]
    starts: _Longs
    ends: _Longs
    numbers: _Longs
    units: _Bytes

    def only(self, first: int, stop: int) -> "_Part":
        """Those of queues [first, stop), of which there is at least one, in memory of their own."""
        begin, end = int(self.starts[first]), int(self.ends[stop - 1])
        starts, ends = self.starts[first:stop] - begin, self.ends[first:stop] - begin
        numbers, units = self.numbers[begin:end].copy(), self.units[begin:end].copy()
        return _Part(self.prefixes[first:stop], starts, ends, numbers, units)


_NO_NUMBERS = np.zeros(0, np.int64)
_NOTHING = _Part([], _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, np.zeros((0, UNIT_SIZE), np.uint8))


class Page(NamedTuple):
    """All records with keys in [start, stop), or up to the end of the database where `stop` is None.

    Attributes:
        prefixes: of the queues, ascending.
        starts, ends: of each queue's records among all.
        numbers, units: as of Records.
    """

    start: bytes
    stop: bytes | None
    prefixes: list[bytes]
    starts: _Longs
    ends: _Longs
    numbers: _Longs
    units: _Bytes

    def has(self, key: bytes) -> bool:
        """Is a key in the page's range?"""
        return self.start <= key and (self.stop is None or key < self.stop)

    def of(self, prefix: bytes) -> Records | None:
        """The page's records of a queue; None where there are none."""
        at = bisect.bisect_left(self.prefixes, prefix)
        return self.records(at) if at < len(self.prefixes) and self.prefixes[at] == prefix else None

    def records(self, at: int) -> Records:
        """The page's records of a queue, by its index."""
        rows = slice(int(self.starts[at]), int(self.ends[at]))
        return Records(self.numbers[rows], self.units[rows])

    def has_all(self, prefix: bytes) -> bool:
        """Are all records of a queue in the page's range?"""
        if not self.has(prefix) or self.stop is None or (self.prefixes and prefix < self.prefixes[-1]):
            return self.has(prefix)
        end = after(prefix)
        return end is not None and end <= self.stop


class _Walk(NamedTuple):
    """A scan to the end of a database, of which the pages up to the key `at` were read; `held` is read already, and of
    the next page."""

    database: Database
    at: bytes
    rest: Iterator[Entries]
    held: _Part | None = None


class UnitPages:
    """The records of a database, a page at a time; the last pages are kept. Several threads may ask at once.

    A database that cannot be read, or not to its end, has no records there: one message says so. Its files may come and
    go, as with a running broker: then the database is opened anew.

    Args:
        directory: the database's directory.
        files: how to reach files, and where requests and bytes are counted.
    """

    def __init__(self, directory: str, files: Files) -> None:
        self.directory = directory
        self._database = ChangingDatabase(directory, files)
        self._lock = threading.RLock()
        self._pages: list[Page] = []
        self._walk: _Walk | None = None
        self._why_not: str | None = None

    def page(self, key: bytes, limit: bytes | None, is_small: bool = False) -> Page:
        """A page with a key in its range.

        Args:
            limit: the page need not go beyond this key.
            is_small: the page is hardly asked again: it goes to `limit`, and is not kept.
        """
        with self._lock:
            for page in reversed(self._pages):
                if page.has(key):
                    return page
            if is_small:
                return self._read(key, limit)
            page = self._next(key) if limit is None or self._goes_on(key) else self._read(key, limit)
            while not page.has(key):  # hardly ever: the walk was a page behind
                page = self._next(key)
            self._pages = [*self._pages[1 - _PAGES :], page]
            return page

    def last(self, prefix: bytes) -> int | None:
        """The last queue offset of a queue; None where it has no record."""
        with self._lock:
            found = self._tried(lambda database: database.last(_UNITS, prefix, after(prefix) or prefix))
        return None if found is None else int.from_bytes(found[0][len(prefix) :][:_NUMBER_SIZE], "big")

    def value(self, key: bytes) -> bytes | None:
        """The value of one key, looked up by itself; None where there is none."""
        with self._lock:
            return self._tried(lambda database: database.get(key))

    def blocks_in(self, start: bytes, stop: bytes | None, enough: int | None = None) -> int:
        """A bound of the blocks that keys in [start, stop) are in. Arguments as of Database.blocks_in()."""
        with self._lock:
            return self._tried(lambda database: database.blocks_in(_UNITS, start, stop, enough)) or 0

    @property
    def why_not(self) -> str | None:
        """Why the database cannot be read; None where it could until now."""
        self._tried(lambda database: database.families)
        return self._why_not

    def of_offset_keys(self, look: Callable[[Iterator[bytes]], _Answer]) -> _Answer | None:
        """An answer from the keys that name the queues that have bounds; None where they cannot be read.

        Args:
            look: takes as many of the keys as it needs; it begins anew where a file of the database went away.
        """
        with self._lock:
            return self._tried(
                lambda database: look(key for entries in database.scan(OFFSETS) for key, _ in entries.pairs())
            )

    def _read(self, key: bytes, limit: bytes | None) -> Page:
        def read(database: Database) -> Page:
            found, stop = _read_part(database.scan(_UNITS, key, limit), limit)
            return Page(key, stop, *found)

        return self._tried(read) or Page(key, limit, *_NOTHING)

    def _goes_on(self, key: bytes) -> bool:
        """Does a key follow one of the last pages so closely that the keys are asked for in order? Then what comes
        after the key is asked for soon, too."""
        ends = {page.stop for page in self._pages[-_NEWEST:] if page.stop is not None}
        return any(self._are_near(end, key) for end in ends)

    def _are_near(self, start: bytes, stop: bytes) -> bool:
        return start <= stop and self.blocks_in(start, stop, _NEAR_BLOCKS) <= _NEAR_BLOCKS

    def _next(self, key: bytes) -> Page:
        """The next page of the walk through the database if that is near a key; else the first one of a walk that
        begins with the key."""

        def read(database: Database) -> Page:
            walk = self._walk
            self._walk = None  # an error ends a walk
            if walk is None or walk.database is not database or not self._are_near(walk.at, key):
                walk = _Walk(database, key, database.scan(_UNITS, key, None))
            found, stop = _read_part(walk.rest, None, walk.held)
            held = None
            if stop is not None and len(found.prefixes) > 1:  # the last queue begins the next page, which has all of it
                found, held, stop = found.only(0, -1), found.only(-1, len(found.prefixes)), found.prefixes[-1]
            page = Page(walk.at, stop, *found)
            self._walk = None if stop is None else walk._replace(at=stop, held=held)
            return page

        return self._tried(read) or Page(key, None, *_NOTHING)

    def _tried(self, look: Callable[[Database], _Answer]) -> _Answer | None:
        """An answer of the database; None where it cannot be read."""
        try:
            return self._database.ask(look)
        except KeyError:  # no such column family
            return None
        except StorageError:
            raise
        except RmqStoreError as why:
            if self._why_not is None:
                log.warning("%s; queues have no units where it cannot be read, so the log is", one_line(str(why)))
            self._why_not = str(why)
            return None


def _read_part(some: Iterator[Entries], limit: bytes | None, held: _Part | None = None) -> tuple[_Part, bytes | None]:
    """As many records as a page has, those that were held back first; and the key that they end before."""
    parts = [] if held is None else [held]
    count = 0 if held is None else len(held.numbers)
    for entries in some:
        parts += _by_queue(entries)
        count += len(entries)
        if count >= _PAGE_RECORDS:
            return _joined(parts), entries.pair(len(entries) - 1)[0] + b"\0"
    return _joined(parts), limit


def _joined(parts: list[_Part]) -> _Part:
    """Parts that follow each other; a queue may go on from one to the next."""
    if len(parts) < 2:
        return parts[0] if parts else _NOTHING
    before = np.cumsum([0, *(len(part.numbers) for part in parts)]).tolist()
    prefixes = [prefix for part in parts for prefix in part.prefixes]
    starts, ends = (
        np.concatenate([bounds + start for bounds, start in zip(some, before, strict=False)])
        for some in ([part.starts for part in parts], [part.ends for part in parts])
    )
    edges = np.cumsum([len(part.prefixes) for part in parts])[:-1].tolist()
    go_on = {at for at in edges if 0 < at < len(prefixes) and prefixes[at] == prefixes[at - 1]}
    if go_on:
        are_new = np.array([at not in go_on for at in range(len(prefixes))], np.bool_)
        prefixes = [prefix for at, prefix in enumerate(prefixes) if at not in go_on]
        starts, ends = starts[are_new], ends[np.append(are_new[1:], True)]
    numbers, units = (np.concatenate(arrays) for arrays in zip(*(part[3:] for part in parts), strict=True))
    return _Part(prefixes, starts, ends, numbers, units)


def _by_queue(entries: Entries) -> Iterator[_Part]:
    """The records of queues, a part for those whose keys are equally long."""
    sizes = np.diff(entries.key_starts)
    edges = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(sizes)]
    are_right = np.diff(entries.value_starts) == _VALUE_SIZE
    for first, end in itertools.pairwise(edges):
        size = int(sizes[first]) if end > first else 0
        if size >= _LEAST_KEY:
            which = slice(first, end) if are_right[first:end].all() else first + np.flatnonzero(are_right[first:end])
            yield _of_one_size(entries, size, first, end, which)


def _of_one_size(entries: Entries, size: int, first: int, end: int, which: slice | _Longs) -> _Part:
    """_by_queue() for entries [first, end), whose keys are equally long, as far as they are among `which`."""
    starts = entries.value_starts
    if isinstance(which, slice):
        keys = entries.keys[entries.key_starts[first] : entries.key_starts[end]].reshape(-1, size)
        units = entries.values[starts[first] : starts[end]].reshape(-1, _VALUE_SIZE)[:, :UNIT_SIZE]
    else:
        keys = entries.keys[entries.key_starts[which][:, None] + np.arange(size)]
        units = entries.values[starts[which][:, None] + np.arange(UNIT_SIZE)]
    if not len(keys):
        return _NOTHING
    rows = keys.view([("prefix", f"V{size - _NUMBER_SIZE}"), ("number", ">i8")])[:, 0]
    prefixes, numbers = rows["prefix"], rows["number"].astype(np.int64)
    fit = (numbers >= 0) & (numbers < MOST_OFFSETS)
    if not fit.all():
        prefixes, numbers, units = prefixes[fit], numbers[fit], units[fit]
    edges = _edges(prefixes, numbers)
    names, starts, ends = prefixes[edges[:-1]].tolist(), edges[:-1], edges[1:]
    are_queues = [queue_of(name) is not None for name in names]
    if not all(are_queues):
        names, starts, ends = [*itertools.compress(names, are_queues)], starts[are_queues], ends[are_queues]
    return _Part(names, starts, ends, numbers, units)


def _edges(prefixes: npt.NDArray[np.void], numbers: _Longs) -> _Longs:
    """Where the records of each queue begin, and where the last ones end.

    Args:
        prefixes, numbers: of keys that are in order: if the first and the last of some have the same prefix, all have.
    """
    if not len(numbers):
        return np.zeros(1, np.int64)
    starts = np.flatnonzero(np.diff(numbers) != 1) + 1
    firsts, lasts = np.append(0, starts), np.append(starts, len(numbers)) - 1
    if (prefixes[firsts] == prefixes[lasts]).all():
        starts = starts[prefixes[starts] != prefixes[starts - 1]]
    else:  # numbers of a queue begin where those of the one before end
        starts = np.flatnonzero(prefixes[1:] != prefixes[:-1]) + 1
    return np.concatenate([[0], starts, [len(numbers)]])
