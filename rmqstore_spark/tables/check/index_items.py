"""The items of index files, compared with the messages of a stretch of the log."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from native_io import Dispatched
from rmqstore_spark.errors import RmqStoreError, StorageError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import IndexReader, item_at
from rmqstore_spark.tables.check.damaged import Damaged
from rmqstore_spark.tables.check.log_view import LogView
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.queue_units import stretches

_MOST_SECONDS = (1 << 31) - 1
_AT_ONCE = 256 * 1024  # items

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class IndexSpan:
    """The items of an index file as they stand there, whatever the header says.

    Attributes:
        slots: the number of slots.
        stop: the number after the last item.
        first, last: the physical offsets of the first and the last item's message.
        is_growing: whether a broker was adding items (Moment.is_unsettled): items that the header did not count yet
            are not checked.
    """

    path: str
    slots: int
    stop: int
    first: int
    last: int
    is_growing: bool = False

    def opened(self, files: Files) -> IndexReader:
        """The file, open.

        Raises:
            StorageError: it was cut since the span was found.
        """
        reader, least = IndexReader(self.path, files), item_at(self.slots, self.stop)
        if reader.size < least:
            reader.close()
            raise StorageError(
                f"{self.path}: expected at least {least:,} bytes, as when the check began, found {reader.size:,}: the "
                "file was cut meanwhile; check the store again"
            )
        return reader


def number_at(files: Files, reader: IndexReader, span: IndexSpan, position: int) -> int:
    """The number of the first item from a physical offset on. A single wrong item does not mislead the search."""

    def position_of(number: int) -> int:
        first, after = max(1, number - 1), min(number + 2, span.stop)
        near = reader.item_array(span.slots, first, after - first)
        return int(np.sort(near["position"])[len(near) // 2 if len(near) == 3 else (0 if number == 1 else -1)])

    return files.schedule.partition_point(1, span.stop, lambda number: position_of(number) < position)


@dataclass(frozen=True)
class _Items:
    """Items of several files as arrays; `file` is each item's file, as a number among the spans."""

    key_hash: _Longs
    position: _Longs
    seconds: _Longs
    number: _Longs
    file: _Longs


class IndexStretch:
    """Compares the index with stretches of the log, one after the other. Arguments are those of log.LogPart.

    Brokers since 5.4.0 put tags into the index, too, and brokers of several versions may have written a file. So the
    item for a message's tags may exist or be missing.

    Attributes:
        has_tags: whether the index seems to have items for tags.
    """

    def __init__(
        self, store: Snapshot, view: LogView, spans: tuple[IndexSpan, ...], covered: tuple[int, int] | None
    ) -> None:
        self.has_tags = False
        self._store = store
        self._view = view
        self._spans = spans
        self._covered = covered
        self._begins: dict[str, int] = {}

    def check(
        self, found: Dispatched, again: Callable[[bool], Dispatched], start: int, stop: int, damaged: Damaged
    ) -> Iterator[Finding]:
        """Problems of the items of a stretch's messages.

        Args:
            found: the expected items of its units, with tags if `has_tags`.
            again: computes them once more, with or without tags.
            start, stop: the stretch's physical offsets.
            damaged: the stretch's damage.
        """
        items = self._items(start, stop)
        if not _are_those(items, found):
            other = again(not self.has_tags)
            every, needed = (found, other) if self.has_tags else (other, found)
            if _are_those(items, other):
                self.has_tags, found = not self.has_tags, other
            else:
                yield from self._differences(items, every, needed, start, stop, damaged)
                found = every
        if len(found.key_position):
            positions = found.key_position
            at = np.minimum(np.searchsorted(positions, items.position), len(positions) - 1)
            yield from self._times(items, positions[at], found.key_timestamp[at])

    def _items(self, start: int, stop: int, is_everywhere: bool = False) -> _Items:
        """The items of messages in [start, stop): those in their place, or (`is_everywhere`) anywhere in a file."""
        parts: list[list[_Longs]] = [[np.empty(0, np.int64)] * 5]
        for index, span in enumerate(self._spans):
            if span.last < start or span.first >= stop:
                continue
            try:
                with span.opened(self._store.files) as reader:
                    self._begins[span.path] = reader.header.begin_timestamp
                    find = functools.partial(number_at, self._store.files, reader, span)
                    first, after = self._store.files.schedule.mapped(find, (start, stop))
                    for number, some in _read(reader, span, *((1, span.stop) if is_everywhere else (first, after))):
                        fields = [some[name].astype(np.int64) for name in ("key_hash", "position", "seconds")]
                        columns = [*fields, np.arange(number, number + len(some)), np.full(len(some), index)]
                        if is_everywhere:
                            here = (fields[1] >= start) & (fields[1] < stop)
                            columns = [column[here] for column in columns]
                        parts.append(columns)
            except RmqStoreError as why:
                if not self._view.moment.is_gone(why, span.path, self._store.files):
                    raise
        return _Items(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _differences(
        self, items: _Items, every: Dispatched, needed: Dispatched, start: int, stop: int, damaged: Damaged
    ) -> Iterator[Finding]:
        """Missing items, and items of no message. The last message before a crash may be in the index twice.

        Args:
            every, needed: the items that follow from the stretch's units, with tags and without.
        """

        def names(hashes: _Longs, positions: _Longs) -> _Longs:
            is_here = (positions >= start) & (positions < stop) & (hashes >= 0)
            return np.where(is_here, ((positions - start) << 31) | hashes, -1)

        said = names(items.key_hash, items.position)
        hashes, positions = needed.key_hash.astype(np.int64), needed.key_position
        missing = ~np.isin(names(hashes, positions), said)
        must_have = self._must_have(positions)
        yield from self._not_indexed(positions[missing & ~must_have])
        missing &= must_have
        if missing.any():  # an item that is out of order is not found in its place
            elsewhere = self._items(start, stop, is_everywhere=True)
            missing &= ~np.isin(names(hashes, positions), names(elsewhere.key_hash, elsewhere.position))
        for first, after in stretches(missing):
            yield Finding(
                "missingIndexItem",
                position=int(positions[first]),
                expected=f"keyHash {hashes[first]}",
                found="none",
                count=after - first,
            )
        extra = ~np.isin(said, names(every.key_hash.astype(np.int64), every.key_position))
        if extra.any() and self._view.moment.is_unsettled:
            extra &= items.position >= self._view.start_now()  # not what has expired since the check began
        for at in np.flatnonzero(extra).tolist():
            position = int(items.position[at])
            is_elsewhere = said[at] < 0 and self._view.has_key(position, int(items.key_hash[at]))
            if not (is_elsewhere or position in damaged or self._view.is_lost(position)):
                yield Finding(
                    "extraIndexItem",
                    *self._place(items, at),
                    position,
                    expected="none",
                    found=f"item {items.number[at]}, keyHash {items.key_hash[at]}",
                )

    def _must_have(self, positions: _Longs) -> npt.NDArray[np.bool_]:
        """True for messages that must be in the index, because messages before and after them are."""
        first, last = self._covered or (0, 0)
        must: npt.NDArray[np.bool_] = (positions > first) & (positions < last)
        return must

    def _not_indexed(self, positions: _Longs) -> Iterator[Finding]:
        """Messages before and after those in the index. A broker may still add the last ones."""
        if self._covered is not None and self._view.moment.is_unsettled:
            positions = positions[positions < max(self._view.moment.dispatched_from, self._covered[1])]
        if self._covered is not None and len(positions):
            at, count = int(positions[0]), len(positions)
            yield Finding("notIndexed", position=at, expected="an item for each key", found="none", count=count)

    def _times(self, items: _Items, positions: _Longs, timestamps: _Longs) -> Iterator[Finding]:
        """Wrong seconds. Seconds are whole ones, rounded down, since the file's begin time; those of a file's first
        item count from the end of the file before.

        Args:
            positions, timestamps: a message for each item; items of another message are not checked.
        """
        begins = np.array([self._begins.get(span.path, 0) for span in self._spans], np.int64)[items.file]
        past = (timestamps - begins) // 1000
        expected = np.where(begins > 0, np.clip(past, 0, _MOST_SECONDS), 0)
        is_wrong = (items.seconds != expected) & (positions == items.position) & (items.number > 1)
        for first, after in stretches(is_wrong):
            yield Finding(
                "wrongIndexTime",
                *self._place(items, first),
                int(items.position[first]),
                expected=f"{expected[first]} seconds after beginTimestamp",
                found=f"{items.seconds[first]}",
                count=after - first,
            )

    def _place(self, items: _Items, at: int) -> tuple[str, int]:
        span = self._spans[int(items.file[at])]
        return span.path, item_at(span.slots, int(items.number[at]))


def _are_those(items: _Items, found: Dispatched) -> bool:
    same_places = np.array_equal(items.position, found.key_position)
    return same_places and np.array_equal(items.key_hash, found.key_hash.astype(np.int64))


def _read(reader: IndexReader, span: IndexSpan, first: int, stop: int) -> Iterator[tuple[int, Any]]:
    """The items of the numbers [first, stop), some at a time, each time with the number of the first."""
    for number in range(first, stop, _AT_ONCE):
        yield number, reader.item_array(span.slots, number, min(_AT_ONCE, stop - number))
