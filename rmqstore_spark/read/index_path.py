"""What index files say of the keys and ids that are selected, as far as the log bears them out.

How far a file is believed: a broker puts messages into the index one after the other. So an item proves that, when it
was written, all messages before its own were in the index, in the history that the log had then; and where the log has
that very message, and it is live, the log has that history up to there. A file is believed between two messages that
are proved so: those at its ends (by the store times in the header), or else the first and the last of the others that
can be (by key hash and seconds). The two themselves may have keys in other files. What is left is scanned.

What that costs: where one file ends the next begins, and mostly one read of the log shows both messages. Then nothing
can be missing between the two, so that the header need not be held against the file's first item as well, unless files
overlap, as those of a broker do not. What is left is the header, the last item, a slot with its chain, one read of the
log and, of a message in a segment that is not the last, what proves that it is live (store/live_log.py).

What this cannot see: after a truncation a broker indexes nothing before the log is as long as it was. If it became so
within one file, the items on both sides prove that file, and messages between them are in no index. Nor a message that
was lost in the truncation and came again at the same place with a key and a second of the old one. Nor a lost file,
where the next one's header lies in its first position and its first time as if it came right after the one before.
"""

import bisect
import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np

from native_io import Filter
from rmqstore_spark.errors import RmqStoreError, counted
from rmqstore_spark.read.index_ahead import IndexAhead, IndexedNames
from rmqstore_spark.read.index_ends import IndexEnds
from rmqstore_spark.read.prune import around
from rmqstore_spark.read.split import SplitPoints
from rmqstore_spark.read.task import Indexed, Range
from rmqstore_spark.selection import ALL, REPLACEMENT, Selection, words_of
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.index_live import first_named
from rmqstore_spark.store.indexfile import (
    Hashes,
    Header,
    IndexFile,
    IndexReader,
    Item,
    Positions,
    by_slot,
    index_paths,
    key_hash,
    look_up_price,
)
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.units import BatchBuilder, Claims

_MOST_KEYS = 32 * 1024  # of one message: its properties have no space for more
_NAMES = ["topic", "tags", "keys", "msgId"]


class NoIndexError(Exception):
    """Index files do not help.

    Attributes:
        reasons: why not, in words.
    """

    def __init__(self, *reasons: str) -> None:
        super().__init__(*reasons)
        self.reasons = reasons


@dataclass(frozen=True)
class Found:
    """What index files say of some ranges.

    Attributes:
        pieces: where messages have to be looked at.
        count: how many.
        rest: the parts of the ranges that no index file knows.
        price: of the look-ups.
        why: in words.
        unused: files that could not be used, and why.
    """

    pieces: list[Indexed]
    count: int
    rest: list[Range]
    price: int
    why: str
    unused: list[str]


@dataclass(frozen=True)
class _Known:
    """The messages from `start` to `stop`, where units begin, have selected names at `positions` only.

    Attributes:
        first: the physical offset of the message before `start`, which proves it.
        followed_by: where a file begins that surely comes next, if there is one: with the message at `stop`, or the
            next one.
    """

    start: int
    stop: int
    positions: Positions
    first: int
    followed_by: tuple[int, ...]


class IndexPath:
    """Looks names up in a store's index files.

    Args:
        selection: what is selected; it has names or ids.
        points: where units begin in its log.
    """

    def __init__(self, store: Snapshot, selection: Selection, points: SplitPoints) -> None:
        self._store = store
        self._selection = selection
        self._points = points
        self._names = IndexedNames(store, selection)
        self._hashes_by_slot: dict[int, Hashes] = {}  # by number of slots
        self._paths: dict[str, int] = {}
        self._headers: dict[str, Header] = {}  # of files that were opened to price them
        # By size of the file: the files of one store have as many, unless the broker's settings were changed.
        self._slots: dict[int, int] = {}
        self._ends = IndexEnds(store.log)
        self._followed: set[int] = set()  # where a file begins that comes next after one whose end is proved
        self._are_in_order = True  # files, as far as is known: none has messages that another one has

    def price(self) -> int:
        """What the look-ups cost in all index files.

        Raises:
            NoIndexError: there are no files, or what is looked for cannot be in one.
        """
        if any(REPLACEMENT in text for text in (*self._names.names, *self._names.topics)):
            raise NoIndexError("index: no key in an index has U+FFFD")
        if not self._names.topics and not self._store.known_topics:
            raise NoIndexError(
                "index: its items are by topic, and no topic of the store is known (RocksDB has them, or none)"
            )
        try:
            self._paths = index_paths(self._store.layout.index, self._store.files)
        except RmqStoreError as why:
            raise NoIndexError(f"index: {why}") from None
        return self._price()

    def price_of(self, ranges: list[Range]) -> int:
        """What they cost in those that may have messages of some ranges: their headers are read for that. price() comes
        first."""
        self._paths = {path: size for path, size in self._paths.items() if self._is_worth_opening(path, ranges)}
        return self._price()

    def look_up(self, ranges: list[Range]) -> Found:
        """What the index files say of some ranges. price() comes first.

        Raises:
            NoIndexError: there are none that help.
        """
        known, there, asked, unused = self._ask(ranges)
        if _overlap(known):
            self._are_in_order = False
            known, there, asked, unused = self._ask(ranges)
        if not there:
            raise NoIndexError(*unused, "index: no index file has a message")
        known = _joined(known)
        for hole in around(self._store, [(offset, offset) for offset in self._names.offsets], self._points):
            known = [part for each in known for part in _without(each, hole)]
        pieces, rest = self._cut(ranges, known)
        count = sum(len(piece.positions) for piece in pieces)
        why = (
            f"{counted(len(self._names.names), 'name')} in {counted(len(self._names.topics), 'topic')}, looked up in "
            f"{counted(asked, 'index file')}: {counted(count, 'message')} to look at; "
            f"{counted(sum(piece.stop - piece.start for piece in rest), 'byte')} of the log are not covered"
        )
        return Found(pieces, count, rest, self._price(), why, unused)

    def _ask(self, ranges: list[Range]) -> tuple[list[_Known], int, int, list[str]]:
        """What each file says, how many have a message, how many were asked, and why others could not be used."""
        unused: list[str] = []
        known: list[_Known] = []
        there, asked = 0, 0
        with contextlib.closing(self._readers(ranges, unused)) as readers:
            for reader, following in readers:
                there += 1
                if not _meets(reader.header, ranges):
                    continue
                try:
                    known += self._known(reader, following)
                    asked += 1
                except RmqStoreError as error:
                    unused.append(f"index: {error}")
                except NoIndexError as error:
                    unused += error.reasons
        return known, there, asked, unused

    def _price(self) -> int:
        return sum(look_up_price(size, len(self._names.hashes), self._store.files) for size in self._paths.values())

    def _is_worth_opening(self, path: str, ranges: list[Range]) -> bool:
        """True also where it is not known: then look_up() says why not."""
        try:
            with IndexReader(path, self._store.files) as reader:
                self._headers[path] = reader.header
                return not reader.is_empty and _meets(reader.header, ranges)
        except RmqStoreError:
            return True

    def _readers(self, ranges: list[Range], unused: list[str]) -> Generator[tuple[IndexReader, Header | None]]:
        """Each file with items in it, open, and the header of the one after it.

        Args:
            ranges: what is going to be asked of them.
            unused: gets the reasons why others cannot be opened.
        """
        held: list[IndexReader] = []
        paths, at_once = list(self._paths), self._store.files.prices.concurrency
        ahead = IndexAhead(self._store, self._names.hashes, self._slots, lambda header: _meets(header, ranges))
        try:
            for number, path in enumerate(paths):
                if at_once > 1 and number % at_once == 0:
                    ahead.read(paths[number : number + at_once + 1], self._headers, self._store.log)
                try:
                    held.append(IndexReader(path, self._store.files, self._headers.get(path)))
                except RmqStoreError as error:
                    unused.append(f"index: {error}")
                    continue
                if held[-1].is_empty:
                    held.pop().close()
                elif len(held) > 1:
                    yield held[0], held[1].header
                    held.pop(0).close()
            if held:
                yield held[0], None
        finally:
            for reader in held:
                reader.close()

    def _known(self, reader: IndexReader, following: Header | None) -> list[_Known]:
        """What an index file says: nothing where a broker has yet to delete it.

        Args:
            following: the header of the file after it, which mostly begins where this one ends.

        Raises:
            NoIndexError: the log does not agree with it, or it is broken.
            RmqStoreError: it cannot be read, or is not to be believed.
        """
        log, header = self._store.log, reader.header
        log_start = log.extents[0].start
        if header.end_position < log_start:
            return []
        first, last = header.begin_position, header.end_position
        start = self._ends.end_of(first, header.begin_timestamp) if first >= log_start else log_start
        if following is not None:
            self._ends.look_at(last, following.begin_position)
        after = self._ends.end_of(last, header.end_timestamp)
        is_ended = after is not None
        is_next = self._are_in_order and start is not None and first in self._followed
        if after is not None:
            self._followed |= {last, after}
        begin = header.begin_timestamp if start is not None and first >= log_start else None
        is_asked = self._may_be_selected(header, begin, header.end_timestamp if is_ended else None)
        file = self._checked(reader, is_next and is_ended) if is_asked else None
        if file is not None and first < log_start and not self._has_first(reader, file):
            start = None
        if start is None or not is_ended:
            if file is None:
                file = self._checked(reader, is_next=False)
            proved = _Proof(self._store, reader, file).stretch(start is not None, is_ended)
            if proved is None:
                raise NoIndexError(f"index: {reader.path}: the log has other messages where it begins or ends")
            first, last = proved if start is None else (first, proved[1])
            start = self._ends.end_of(first) if start is None else start
        positions = self._positions(reader, file) if is_asked and file is not None else np.empty(0, np.int64)
        if start is None or start > last:
            return []
        followed_by: tuple[int, ...] = ()
        # No file of only one message can have been between two that are larger than any message.
        if is_ended and file is not None and header.index_count >= file.items > _MOST_KEYS:
            followed_by = last, after or last
        return [_Known(start, last, positions, first, followed_by)]

    def _has_first(self, reader: IndexReader, file: IndexFile) -> bool:
        """Has a file that begins before the log does the log's first message? Else the log was cut off before that, and
        the file has nothing of it before the place where it ended then."""
        named = first_named(self._store)
        if named is None:
            return False
        position, of_key = named
        found = reader.lookup(file, np.array([of_key], np.int32))
        return found is not None and position in found

    def _may_be_selected(self, header: Header, begin: int | None, end: int | None) -> bool:
        """May a file have a selected message, by store times?

        Args:
            begin, end: those (ms) of its first and last message, None where the log does not have it.
        """
        times, first, stop = self._selection.store_timestamp, header.begin_position, header.end_position + 1
        return times == ALL or self._store.times.may_hold(first, stop, times.least, times.most, (begin, end))

    def _checked(self, reader: IndexReader, is_next: bool) -> IndexFile:
        """An index file that is what its header says; errors as of IndexReader.check().

        Args:
            is_next: whether it ends and begins as the log has it, and begins where another one ends.
        """
        slots = self._slots.get(reader.size)
        file = reader.check_next(slots) if is_next and slots is not None else None
        if file is None:
            file = reader.check(self._slots.values() if slots is None else [slots])
            self._slots[reader.size] = file.slots
        return file

    def _positions(self, reader: IndexReader, file: IndexFile) -> Positions:
        if file.slots not in self._hashes_by_slot:
            self._hashes_by_slot[file.slots] = by_slot(self._names.hashes, file.slots)
        found = reader.lookup(file, self._hashes_by_slot[file.slots])
        if found is None:
            raise NoIndexError(f"index: {reader.path}: a hash chain is broken")
        return found

    def _cut(self, ranges: list[Range], known: list[_Known]) -> tuple[list[Indexed], list[Range]]:
        """The ranges cut into what is known and what is not.

        Args:
            ranges, known: both by start; none of `known` reaches into the next.
        """
        pieces: list[Indexed] = []
        rest: list[Range] = []
        starts = [each.start for each in known]
        for r in ranges:
            at = r.start
            for each in itertools.islice(known, max(0, bisect.bisect_right(starts, at) - 1), None):
                start, stop = max(each.start, at), min(each.stop, r.stop)
                if each.start >= r.stop:
                    break
                if start >= stop:
                    continue
                if at < start:
                    rest.append(replace(r, start=at, stop=start))
                positions = each.positions[(start <= each.positions) & (each.positions < stop)]
                if len(positions):
                    part = replace(r, start=start, stop=stop)
                    pieces.append(
                        Indexed(r.segment, start, stop, r.store, self._trusted_to(part, positions), positions)
                    )
                at = stop
            if at < r.stop:
                rest.append(replace(r, start=at))
        return pieces, rest

    def _trusted_to(self, part: Range, positions: Positions) -> int:
        """All of a part, where all that is to be looked at in it is live. Else an old message may stand there."""
        log = self._store.log
        is_live = log.liveness(int(positions[-1])) is Evidence.LIVE
        return part.stop if is_live else log.live_end(part)


class _Proof:
    """Finds out how far the log agrees with a file, where it does not at both of its ends."""

    def __init__(self, store: Snapshot, reader: IndexReader, file: IndexFile) -> None:
        self._store = store
        self._reader = reader
        self._file = file
        self._builder = BatchBuilder(_NAMES)
        self._all_units = Filter()
        self._items: dict[int, Item] = {}

    def stretch(self, is_begun: bool, is_ended: bool) -> tuple[int, int] | None:
        """The positions of the first and last message that are proved; None where there are none, or the items do not
        ascend by position.

        Args:
            is_begun, is_ended: whether the file's own first and last message are.
        """
        header = self._file.header
        first, last = 1, header.index_count - 1
        if not is_ended:
            last = self._last(first, last)
        if not is_begun and last:
            first = self._first(first, last)
        in_order = [self._items[number].position for number in sorted(self._items)]
        if not (first and last) or in_order != sorted(in_order):
            return None
        return self._item(first).position, self._item(last).position

    def _last(self, first: int, last: int) -> int:
        """The number of the last item that is proved, 0 where there is none. First the last one before the tail in
        which the file ends: mostly nothing but the tail is not sure."""
        extent = self._store.log.extent_at(self._file.header.end_position)
        if extent is not None:
            live_end = self._store.log.live_end(extent)
            number = self._search(first, last, lambda number: self._item(number).position >= live_end) - 1
            if number >= first and self._is_proved(number):
                return number
        return self._search(first, last, lambda number: not self._is_proved(number)) - 1

    def _first(self, first: int, last: int) -> int:
        """The number of the first item that is proved, 0 where there is none; as _last()."""
        extent = self._store.log.extent_at(self._file.header.begin_position)
        if extent is not None:
            number = self._search(first, last, lambda number: self._item(number).position >= extent.stop)
            if number <= last and self._is_proved(number):
                return number
        number = self._search(first, last, self._is_proved)
        return number if number <= last else 0

    @staticmethod
    def _search(first: int, last: int, is_after: Callable[[int], bool]) -> int:
        """The number of the first item for which it is true, one more than `last` where it is for none."""
        return first + bisect.bisect_left(range(first, last + 1), True, key=is_after)

    def _item(self, number: int) -> Item:
        if number not in self._items:
            item = self._reader.item(self._file, number)
            if item is None:
                raise NoIndexError(f"index: {self._reader.path}: it has become shorter")
            self._items[number] = item
        return self._items[number]

    def _is_proved(self, number: int) -> bool:
        """Is there the live message that an item is of?"""
        item, log, header = self._item(number), self._store.log, self._file.header
        there = log.header(item.position)
        if there is None or there.store_timestamp is None or log.liveness(item.position) is not Evidence.LIVE:
            return False
        seconds = (there.store_timestamp // 1000 - header.begin_timestamp) // 1000
        if number > 1 and min(max(seconds, 0), (1 << 31) - 1) != item.seconds:
            return False
        extent = log.extent_at(item.position)
        assert extent is not None
        with self._store.reader(extent.segment) as reader:
            sizes = np.array([there.size], np.int32)
            run, _ = reader.pick(Claims(np.array([item.position]), sizes), 0, self._all_units)
            if run is None:
                return False
            run.add_to(self._builder)
        (row,) = self._builder.finish().to_pylist()
        names = [row["msgId"], *words_of(row["keys"] or ""), f"T#{row['tags']}"]
        return item.key_hash in {key_hash(row["topic"], name) for name in names if name is not None}


def _joined(known: list[_Known]) -> list[_Known]:
    """By start, each message in one only. Where a file goes on with the message that another ends with, or with the
    next, the two know that message together."""
    found: list[_Known] = []
    for each in sorted(known, key=lambda each: each.start):
        if found:
            before = found[-1]
            if before.stop < each.start and each.first in before.followed_by:
                both = np.union1d(before.positions, each.positions)
                found.append(replace(each, start=before.stop, stop=each.start, positions=both))
            each = replace(each, start=max(each.start, found[-1].stop))
        if each.start < each.stop:
            found.append(each)
    return found


def _overlap(known: list[_Known]) -> bool:
    """Does one file claim messages that another one has? A broker's do not."""
    ascending = sorted(known, key=lambda each: each.start)
    return any(after.start < before.stop for before, after in itertools.pairwise(ascending))


def _meets(header: Header, ranges: list[Range]) -> bool:
    """Are there messages in a file that one of some ranges holds? The ranges are in order."""
    at = bisect.bisect_right(ranges, header.begin_position, key=lambda r: r.stop)
    return at < len(ranges) and ranges[at].start <= header.end_position


def _without(known: _Known, hole: Range) -> Iterator[_Known]:
    for start, stop in ((known.start, min(known.stop, hole.start)), (max(known.start, hole.stop), known.stop)):
        if start < stop:
            yield replace(known, start=start, stop=stop)
