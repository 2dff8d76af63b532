"""What index files say, held against the messages of a stretch of the log."""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import Dispatched
from rmqstore_spark.store.indexfile import IndexReader, item_at, key_hash
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.segments import Damage
from rmqstore_spark.store.units import BatchBuilder
from rmqstore_spark.tables.check.log_view import LogView
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.queue_units import is_in, stretches

_MOST_SECONDS = (1 << 31) - 1
_AT_ONCE = 256 * 1024  # items

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class IndexSpan:
    """The items of an index file, as they stand there, whatever its header says.

    Attributes:
        slots: how many it has.
        stop: the number after that of the last item.
        first, last: the physical offsets of the first and the last item's message.
    """

    path: str
    slots: int
    stop: int
    first: int
    last: int


def number_at(reader: IndexReader, span: IndexSpan, position: int) -> int:
    """The number of the first item from a physical offset on. One that is wrong does not lead astray."""

    def position_of(number: int) -> int:
        first, after = max(1, number - 1), min(number + 2, span.stop)
        near = reader.item_array(span.slots, first, after - first)
        return int(np.sort(near["position"])[len(near) // 2 if len(near) == 3 else (0 if number == 1 else -1)])

    return 1 + bisect.bisect_left(range(1, span.stop), position, key=position_of)


@dataclass(frozen=True)
class _Items:
    """Items of several files, side by side; `file`: which one they are of, by its number among the spans."""

    key_hash: _Longs
    position: _Longs
    seconds: _Longs
    number: _Longs
    file: _Longs


class IndexStretch:
    """Holds the index against stretches of the log, one after the other. Arguments as of log.LogPart."""

    def __init__(
        self,
        store: OpenStore,
        view: LogView,
        spans: tuple[IndexSpan, ...],
        covered: tuple[int, int] | None,
        index_tags: bool,
    ) -> None:
        self._store = store
        self._view = view
        self._spans = spans
        self._covered = covered
        self._index_tags = index_tags
        self._begins: dict[str, int] = {}

    def check(self, found: Dispatched, start: int, stop: int, damages: list[Damage]) -> Iterator[Finding]:
        """What is wrong with the items of a stretch's messages.

        Args:
            found: what follows from its units.
            start, stop: its physical offsets.
            damages: what is damaged in it.
        """
        items = self._items(start, stop)
        hashes, positions = found.key_hash.astype(np.int64), found.key_position
        if np.array_equal(items.position, positions) and np.array_equal(items.key_hash, hashes):
            yield from self._times(items, positions, found.key_timestamp)
            return
        yield from self._differences(items, hashes, positions, start, stop, damages)
        if len(positions):
            at = np.minimum(np.searchsorted(positions, items.position), len(positions) - 1)
            yield from self._times(items, positions[at], found.key_timestamp[at])

    def _items(self, start: int, stop: int) -> _Items:
        parts: list[list[_Longs]] = [[np.empty(0, np.int64)] * 5]
        for index, span in enumerate(self._spans):
            if span.last < start or span.first >= stop:
                continue
            with IndexReader(span.path, self._store.files) as reader:
                self._begins[span.path] = reader.header.begin_timestamp
                first, after = number_at(reader, span, start), number_at(reader, span, stop)
                for number in range(first, after, _AT_ONCE):
                    some = reader.item_array(span.slots, number, min(_AT_ONCE, after - number))
                    fields = [some[name].astype(np.int64) for name in ("key_hash", "position", "seconds")]
                    parts.append([*fields, np.arange(number, number + len(some)), np.full(len(some), index)])
        return _Items(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _differences(
        self, items: _Items, hashes: _Longs, positions: _Longs, start: int, stop: int, damages: list[Damage]
    ) -> Iterator[Finding]:
        """Items that are missing, and those of no message. The last message before a crash may be there twice."""
        is_here = (items.position >= start) & (items.position < stop) & (items.key_hash >= 0)
        said = np.where(is_here, ((items.position - start) << 31) | items.key_hash, -1)
        wanted = ((positions - start) << 31) | hashes
        missing, extra = ~np.isin(wanted, said), ~np.isin(said, wanted)
        if self._covered is None:
            missing[:] = False
        else:
            outside = (positions <= self._covered[0]) | (positions >= self._covered[1])
            beyond = int(np.count_nonzero(missing & outside))
            if beyond:
                at = int(positions[np.argmax(missing & outside)])
                yield Finding("notIndexed", position=at, expected="an item for each key", found="none", count=beyond)
            missing &= ~outside
        if self._index_tags:
            self._leave_out_tags(missing, hashes, positions)
        else:
            self._leave_out_tags(extra, items.key_hash, items.position)
        for first, after in stretches(missing):
            yield Finding(
                "missingIndexItem",
                position=int(positions[first]),
                expected=f"keyHash {hashes[first]}",
                found="none",
                count=after - first,
            )
        for at in np.flatnonzero(extra).tolist():
            position = int(items.position[at])
            if not is_in(damages, position) and not self._view.is_lost(position):
                yield Finding(
                    "extraIndexItem",
                    *self._place(items, at),
                    position,
                    expected="none",
                    found=f"item {items.number[at]}, keyHash {items.key_hash[at]}",
                )

    def _leave_out_tags(self, differing: npt.NDArray[np.bool_], hashes: _Longs, positions: _Longs) -> None:
        """Tags are in the index since 5.4.0, and brokers of several versions may have written it."""
        which = np.flatnonzero(differing)
        if len(which) == 0:
            return
        tags = self._tag_hashes(np.unique(positions[which]).tolist())
        for at in which.tolist():
            differing[at] = tags.get(int(positions[at])) != hashes[at]

    def _tag_hashes(self, positions: list[int]) -> dict[int, int]:
        builder, found = BatchBuilder(["topic", "tags"]), {}
        log = self._view.store.log
        for position in positions:
            extent = log.extent_at(position)
            if extent is None:
                continue
            with self._store.reader(extent.segment) as reader:
                run = reader.run_at(position, extent.segment.end)
            if run is not None:
                run.only(slice(1)).add_to(builder)
                (row,) = builder.finish().to_pylist()
                if row["tags"] is not None:
                    found[position] = key_hash(row["topic"], f"T#{row['tags']}")
        return found

    def _times(self, items: _Items, positions: _Longs, timestamps: _Longs) -> Iterator[Finding]:
        """Whether the seconds are right: cut to whole ones, after the time that the file begins with. The first item of
        a file counts from the end of the file before.

        Args:
            positions, timestamps: of a message for each item; where it is another one's, nothing is said.
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
