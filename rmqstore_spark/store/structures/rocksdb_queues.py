"""ConsumeQueues in RocksDB, as a broker keeps them with storeType=defaultRocksDB or rocksdbCQDoubleWriteEnable.

A queue here has the form of a queue in files: each row of consecutive queue offsets is one file, or several if it is
long, and holds the same bytes. So whoever reads queues need not know where they are. The records are read when they are
needed, those of many short queues at once.

What is trusted does not differ either: records are hints. A broker's writes to this database have no write-ahead log,
so a killed broker's queues end early, and some versions leave holes for good.
"""

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.light_queues import is_light
from rmqstore_spark.store.format.queue_block import UNIT_SIZE, QueueBlock, QueueUnit
from rmqstore_spark.store.format.stretches import joined
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue, QueueFile
from rmqstore_spark.store.structures.layout import queue_path
from rmqstore_spark.store.structures.proofs import Proof, record_proof
from rmqstore_spark.store.structures.rocksdb_units import (
    Page,
    QueueKey,
    Records,
    UnitPages,
    after,
    key_of,
    queue_of,
    queue_prefix,
    topic_prefix,
)

_FILE_UNITS = 300_000  # units of what is shown as a file: a broker's files have as many
_MOST_RUNS = 256  # rows of consecutive queue offsets; shorter holes between them are filled with unused units
_UNITS_OF_A_BLOCK = 1024  # more than a block of 32 KiB has
_LEAST_SPAN, _MOST_SPAN = 4096, 4  # queue offsets of a queue; and times as many as there are records
_FEW_BLOCKS = 256  # of a database that is read rather than asked for its topics
_FEW_NEAR = 2  # units of which the others of their queue are not asked
_NO_RECORDS = Records(np.zeros(0, np.int64), np.zeros((0, UNIT_SIZE), np.uint8))
_KEY_OF_BOUNDS = len(b"\1max\1") + 4  # bytes after the topic, in column family `offset`


class RocksDBQueue(Queue):
    """The ConsumeQueue of one topic and queue in a RocksDB.

    Attributes:
        prefix: the bytes that its keys begin with.

    Args:
        limit: the key after those that are asked for soon; None: all are.
        bounds: the first queue offset and the one after the last, if the queue is known to have each between them.
    """

    def __init__(
        self,
        pages: UnitPages,
        name: QueueKey,
        files: Files,
        limit: bytes | None,
        bounds: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(pages.directory, name.topic, name.queue_id, files)
        self._pages = pages
        self.prefix = queue_prefix(*name)
        self._limit = limit
        self._bounds = bounds

    is_in_files = False
    is_plain = False

    @property
    def kind(self) -> str:
        """What kind of queue it is, as table `queues` shows it."""
        return "lmq" if self.is_additional else QueuesInRocksDB.kind

    @kept
    def in_files(self) -> list[QueueFile]:
        """The rows of consecutive queue offsets, in order."""
        return [
            QueueFile(self.directory, first, min(stop - first, _FILE_UNITS), size, size, has_positions=False)
            for begin, stop in self._runs
            for first in range(begin, stop, _FILE_UNITS)
            if (size := UNIT_SIZE * min(stop - first, _FILE_UNITS))
        ]

    @property
    def on_disk(self) -> list[QueueFile]:
        """The queue's files: none."""
        return []

    @kept
    def end(self) -> int:
        """The queue offset after the last record."""
        return self.stop

    def place_of(self, number: int) -> tuple[str, int] | None:
        """No file has a unit."""
        return None

    def last_proof(self, root: str) -> Proof | None:
        """The proof of the last record, if that is found as a task will look for it: a database may lie about where
        its keys are."""
        key = key_of(self.prefix, self.end - 1)
        data = (self._pages.value(key) or b"")[:UNIT_SIZE] if self.in_files else b""
        return record_proof(root, self.directory, key, data) if data else None

    def opened(self, file: QueueFile) -> "_Opened":
        """The units of one of in_files."""
        return _Opened(self, file)

    def any_unit(self, number: int) -> QueueUnit | None:
        """One unit, as of a queue in files."""
        found = self._near(number, 1)
        return super().any_unit(number) if found is None else found[0] if len(found) else None

    def block(self, number: int, count: int) -> QueueBlock:
        """Units from a number on, as of a queue in files."""
        found = self._near(number, count)
        return super().block(number, count) if found is None else found

    def _near(self, number: int, count: int) -> QueueBlock | None:
        """A few units from a number on, up to the first hole, where nothing else was asked of the queue: its other
        records are not read. None where something was, or more units are asked for."""
        if number < 0 or count > _FEW_NEAR or self._bounds is not None or "_runs" in vars(self):
            return None
        key, end = key_of(self.prefix, number), key_of(self.prefix, number + count)
        units = np.zeros((0, UNIT_SIZE), np.uint8)
        while key < end:
            page = self._pages.page(key, key_of(self.prefix, number + FEW_UNITS))
            found = (page.of(self.prefix) or _NO_RECORDS).within(number + len(units), number + count)
            are_next = found.numbers == number + len(units) + np.arange(len(found.numbers))
            units = np.concatenate([units, found.units[are_next]])
            if page.stop is None or not are_next.all() or not len(are_next):
                break
            key = page.stop
        return QueueBlock.of(units.tobytes(), number)

    def has_bounds(self, first: int, stop: int) -> bool:
        """Are these its bounds, as far as was known? They are from then on. A broker may add records."""
        self._bounds = self._bounds or (first, stop)
        return self._bounds == (first, stop)

    def at_once(self) -> tuple[int, memoryview] | None:
        """All units, where their records are on one page of the database, without holes."""
        page = self.first_page
        found = page.of(self.prefix)
        if found is None or not page.has_all(self.prefix):
            return None
        first, stop = int(found.numbers[0]), int(found.numbers[-1]) + 1
        if stop - first != len(found.numbers) or not self.has_bounds(first, stop):
            return None
        return first, memoryview(found.units.tobytes())

    def records(self, start: int, stop: int) -> Iterator[Records]:
        """The records with the queue offsets [start, stop), a part at a time."""
        key, end = key_of(self.prefix, start), key_of(self.prefix, stop)
        is_small = stop - start <= FEW_UNITS and self._is_long
        while key < end:
            page = self._pages.page(key, end if is_small else self._limit, is_small)
            found = page.of(self.prefix)
            if found is not None:
                yield found.within(start, stop)
            if page.stop is None:
                return
            key = page.stop

    @kept
    def _is_long(self) -> bool:
        """Are the records on several pages?"""
        return self._bounds is None and not self.first_page.has_all(self.prefix)

    @property
    def first_page(self) -> Page:
        """The page of the database with its first record."""
        return self._pages.page(self.prefix, self._limit)

    @kept
    def _runs(self) -> list[tuple[int, int]]:
        """The rows [first, stop) of queue offsets with few holes."""
        if self._bounds is not None:
            return [self._bounds]
        page = self.first_page
        found = page.of(self.prefix)
        if page.has_all(self.prefix):
            return [] if found is None else _filled(_rows(found.numbers), len(found.numbers))
        first, last = None if found is None else int(found.numbers[0]), self._pages.last(self.prefix)
        if first is not None and last is not None and found is not None and len(_rows(found.numbers)) == 1:
            blocks = self._pages.blocks_in(self.prefix, after(self.prefix))
            if 0 <= last - first <= _UNITS_OF_A_BLOCK * blocks:
                return [(first, last + 1)]  # what holes there are is read as unused units
        runs: list[tuple[int, int]] = []
        count = 0
        for records in self.records(0, 1 << 62):
            runs = _filled([*runs, *_rows(records.numbers)], count := count + len(records.numbers))
        return runs


def _rows(numbers: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """The rows [first, stop) of consecutive numbers, joined where there are very many."""
    holes = np.flatnonzero(np.diff(numbers) > 1)
    if len(holes) >= _MOST_RUNS:
        sizes = numbers[holes + 1] - numbers[holes]
        holes = np.sort(holes[np.argsort(sizes, kind="stable")[1 - _MOST_RUNS :]])
    firsts = [int(numbers[0]), *numbers[holes + 1].tolist()] if len(numbers) else []
    lasts = [*numbers[holes].tolist(), int(numbers[-1])] if len(numbers) else []
    return [(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]


def _filled(runs: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """So few rows that looking for one is no work, near each other: the shortest holes are filled.

    Args:
        count: the records in the rows.
    """
    holes = sorted((after[0] - before[1] for before, after in itertools.pairwise(runs)), reverse=True)
    least = holes[_MOST_RUNS - 1] + 1 if len(holes) >= _MOST_RUNS else 1
    return _near_each_other(list(joined(runs, least - 1)), max(_LEAST_SPAN, _MOST_SPAN * count))


def _near_each_other(runs: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Those consecutive rows with the most units that are within `most` queue offsets. No broker leaves records far
    from all others; looking for something between them would take long."""
    best, units, begin = slice(0), 0, 0
    here = 0
    for at, (first, stop) in enumerate(runs):
        here += stop - first
        while stop - runs[begin][0] > most and begin < at:
            here -= runs[begin][1] - runs[begin][0]
            begin += 1
        if here > units and stop - runs[begin][0] <= most:
            best, units = slice(begin, at + 1), here
    return runs[best]


class _Opened:
    """Units of a queue with the bytes and in the places that a file would have them."""

    def __init__(self, queue: RocksDBQueue, file: QueueFile) -> None:
        self._queue = queue
        self._file = file

    def __enter__(self) -> "_Opened":
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from an offset on, which is that of a unit; fewer only at the end."""
        start = self._file.first + offset // UNIT_SIZE
        count = max(0, min(self._file.end - start, size // UNIT_SIZE))
        found = np.zeros((count, UNIT_SIZE), np.uint8)
        for records in self._queue.records(start, start + count):
            found[records.numbers - start] = records.units
        return found.tobytes()

    def expect(self, start: int, stop: int) -> None:
        """See OpenFile. Blocks of a database are not read ahead."""

    def load(self, offset: int, size: int, buffer: Callable[[int], memoryview]) -> memoryview:
        """See OpenFile."""
        return memoryview(self.read(offset, size))

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill a buffer with read(); answers the number of bytes."""
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def data_end(self) -> int:
        """The offset after the last unit."""
        return self._file.size

    used_end = likely_data_end = data_end


@dataclass(frozen=True)
class QueuesInRocksDB:
    """The ConsumeQueues in a RocksDB.

    Attributes:
        directory: the database's directory.
        files: how to reach files, and where requests and bytes are counted.
        kind: as of Queue, of those that are not light.
    """

    directory: str
    files: Files
    kind: ClassVar[str] = "rocksdb"

    @kept
    def _pages(self) -> UnitPages:
        return UnitPages(self.directory, self.files)

    def __iter__(self) -> Iterator[RocksDBQueue]:
        """Every queue, in the order of keys: that of the lengths of topics, then by topic and queueId."""
        return self._between(b"", None)

    def of_topic(self, topic: str) -> list[RocksDBQueue]:
        """The queues of a topic, by queueId."""
        prefix = topic_prefix(topic)
        return [queue for queue in self._between(prefix, after(prefix)) if queue.topic == topic]

    def queue(self, topic: str, queue_id: int) -> RocksDBQueue | None:
        """A queue, whether it has records or not; None where there can be none (layout.queue_path)."""
        if queue_path(topic, queue_id) is None:
            return None
        return RocksDBQueue(self._pages, QueueKey(topic, queue_id), self.files, after(queue_prefix(topic, queue_id)))

    def assumed(self, names: Mapping[str, Collection[int]]) -> list[RocksDBQueue]:
        """The queues with these topics and queueIds, which a broker can have, in the order of keys, without a look at
        which have records."""
        found = []
        for topic, ids in names.items():
            if ids and all(queue_path(topic, queue_id) is not None for queue_id in (min(ids), max(ids))):
                limit = after(topic_prefix(topic))
                found += [RocksDBQueue(self._pages, QueueKey(topic, each), self.files, limit) for each in ids]
        return sorted(found, key=lambda queue: queue.prefix)

    @property
    def why_not(self) -> str | None:
        """Why the database cannot be read; None where it could until now."""
        return self._pages.why_not

    @kept
    def topics(self) -> set[str]:
        """The topics that have a queue. In a large database, those whose queues have bounds there, which a broker
        writes together with their units."""
        return self.some_topics(None)

    def some_topics(self, most: int | None) -> set[str]:
        """Topics as in `topics`; of a large database only so many, and one more, besides light queues."""
        found: set[str] | None = None
        if self._pages.blocks_in(b"", None, _FEW_BLOCKS) > _FEW_BLOCKS:
            found = self._pages.of_offset_keys(lambda keys: _topics_in(keys, most))
        return {queue.topic for queue in self} if found is None else found

    def _between(self, key: bytes, limit: bytes | None) -> Iterator[RocksDBQueue]:
        """The queues with keys in a range. Most of a long queue's records are passed over."""
        at: bytes | None = key
        while at is not None and (limit is None or at < limit):
            page = self._pages.page(at, limit)
            for number, prefix in enumerate(page.prefixes):
                name, records = queue_of(prefix), page.records(number)
                if name is None or prefix < at or (limit is not None and prefix >= limit):
                    continue
                first, stop = int(records.numbers[0]), int(records.numbers[-1]) + 1
                is_plain = page.has_all(prefix) and stop - first == len(records.numbers)
                # The next page begins after a queue that goes on, and is shared by the queues in it.
                own = limit if page.has_all(prefix) else after(prefix)
                yield RocksDBQueue(self._pages, name, self.files, own, (first, stop) if is_plain else None)
            at = page.stop
            if at is not None and page.prefixes and not page.has_all(page.prefixes[-1]):
                at = after(page.prefixes[-1])


def _topics_in(keys: Iterator[bytes], most: int | None) -> set[str]:
    """The topics in keys of column family `offset`; see some_topics()."""
    found: set[str] = set()
    last, count = b"", 0
    for key in keys:
        name = key[5:-_KEY_OF_BOUNDS]
        if name == last or not _names_a_queue(key):
            continue
        last, topic = name, os.fsdecode(name)
        if topic in found or queue_path(topic, 0) is None:
            continue
        found.add(topic)
        count += not is_light(topic)
        if most is not None and count > most:
            break
    return found


def _names_a_queue(key: bytes) -> bool:
    """Is a key one of column family `offset`, of a queue that was written to?"""
    size = int.from_bytes(key[:4], "big")
    return len(key) == 5 + size + _KEY_OF_BOUNDS and key[5 + size :].startswith(b"\1max\1")
