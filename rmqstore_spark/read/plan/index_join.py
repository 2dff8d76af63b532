"""How far index files are believed, judged by the evidence of each file and by the log where the file begins and ends.

How far a file is believed: a broker puts messages into the index one after the other. So an item proves that, when it
was written, all messages before its own were in the index, in the history that the log had then. If the log has that
very message, and it is live, the log has that history up to there. A file is believed between two messages that are
proved in this way: those at its ends (by the store times in the header), or else the first and the last of the others
that can be proved (by key hash and seconds). The two themselves may have keys in other files. The rest is scanned.

The cost: where one file ends the next begins, and mostly one read of the log shows both messages. Then nothing can be
missing between the two, so the header need not be checked against the file's first item as well, unless files overlap,
which those of a broker never do. The remaining reads are the header, the last item, a slot with its chain, one read of
the log and, for a message in a segment that is not the last, the proof that it is live (store/live_log.py).

After a truncation a broker indexes nothing before the log is as long as it was, and what it had indexed stays. If the
log became so within one file, the items on both sides prove that file, and the messages between them are in no index.
In controller mode the broker's files say where that may be: a master that comes back cuts its log where the next one's
term began. So an item is proved there, too, and where it is not, nothing is believed up to the next one that is.
Where these files cannot be read, no index is believed.

The limits of the proof: a truncation within one file that no term tells of is not noticed. Nor is a message noticed
that was lost in the truncation and came again at the same place with a key and a second of the old one.
Nor is a lost file, if the next one's header lies in its first position and its first time as if it came right after the
one before.
"""

import bisect
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from native_io import Filter
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.query.selection import ALL, Selection, words_of
from rmqstore_spark.read.plan.index_evidence import FileEvidence, LiveUnit, LookUp, units_at
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.units import BatchBuilder, Claims
from rmqstore_spark.store.index_live import first_named
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import (
    Hashes,
    Header,
    IndexFile,
    IndexReader,
    Item,
    Positions,
    by_slot,
    key_hash,
)

_MOST_KEYS = 32 * 1024  # of one message: its properties have no space for more
_NAMES = ["topic", "tags", "keys", "msgId"]


class NoIndexError(Exception):
    """Index files do not help.

    Attributes:
        reasons: the reasons in words.
    """

    def __init__(self, *reasons: str) -> None:
        super().__init__(*reasons)
        self.reasons = reasons


@dataclass(frozen=True)
class Known:
    """The knowledge that the messages from `start` to `stop`, where units begin, have selected names at `positions`
    only.

    Attributes:
        path: the file that says so; of two together, the later one.
        first: the physical offset of the message before `start`, which proves it.
        followed_by: where the file that surely comes next begins, if there is one: with the message at `stop`, or the
            next one.
    """

    path: str
    start: int
    stop: int
    positions: Positions
    first: int
    followed_by: tuple[int, ...]

    def within(self) -> "Known":
        """The same with positions from start to stop only."""
        return replace(self, positions=self.positions[(self.start <= self.positions) & (self.positions < self.stop)])


class Join:
    """Draws conclusions from one index file to the next.

    Args:
        selection: what is selected; it has names or ids.
        hashes: the hashes that were looked up.
        found: the evidence of the files; missing evidence is gathered.
    """

    def __init__(self, store: Snapshot, selection: Selection, hashes: Hashes, found: FileEvidence) -> None:
        self._store = store
        self._selection = selection
        self._hashes = hashes
        self._look_ups = dict(found.look_ups)
        self._units = dict(found.units)

    def follow(self, files: list[tuple[str, Header]], are_in_order: bool) -> tuple[list[Known], list[str]]:
        """The knowledge from some files, and the reasons why others cannot be used.

        Args:
            files: in order.
            are_in_order: whether no two files have messages in common, as far as is known.
        """
        if self._store.term_starts is None:
            return [], ["index: epochFileCheckpoint cannot be read, which says where this broker may have cut its log"]
        known: list[Known] = []
        unused: list[str] = []
        followed: set[int] = set()  # where the file after a proved end begins
        for path, header in files:
            try:
                if header.end_position < self._store.log.extents[0].start:
                    continue  # the broker has yet to delete this file
                ends = self._ends_of(header)
                is_next = are_in_order and None not in ends and header.begin_position in followed
                if ends[1] is not None:
                    followed |= {header.end_position, ends[1]}
                known += itertools.chain.from_iterable(
                    self._without_cut(header, each) for each in self._known(path, header, ends, is_next)
                )
            except RmqStoreError as error:
                unused.append(f"index: {error}")
            except NoIndexError as error:
                unused += error.reasons
        return known, unused

    def _ends_of(self, header: Header) -> tuple[int | None, int | None]:
        """The end of the live message at which a file begins, and the place of the message after the one at which it
        ends; None where the log has other messages there. For a file that begins before the log, the first value is the
        start of the log."""
        log_start = self._store.log.extents[0].start
        first, last = self._unit(header.begin_position), self._unit(header.end_position)
        is_first = first is not None and first.timestamp == header.begin_timestamp
        start = first.stop if first is not None and is_first else None
        after = last.following if last is not None and last.timestamp == header.end_timestamp else None
        return log_start if header.begin_position < log_start else start, after

    def _known(self, path: str, header: Header, ends: tuple[int | None, int | None], is_next: bool) -> list[Known]:
        """The knowledge from one index file.

        Args:
            ends: as of _ends_of().
            is_next: whether the file ends and begins as the log has it, and begins where another one ends.

        Raises:
            NoIndexError: the log does not agree with the file, or the file is broken.
            RmqStoreError: the file cannot be read, or is not to be believed.
        """
        log_start = self._store.log.extents[0].start
        first, last = header.begin_position, header.end_position
        start, after = ends
        is_ended = after is not None
        begin = header.begin_timestamp if start is not None and first >= log_start else None
        is_asked = self._may_be_selected(header, begin, header.end_timestamp if is_ended else None)
        file, positions = self._look_up(path, header, is_next) if is_asked else (None, np.empty(0, np.int64))
        if file is not None and first < log_start and not self._has_first(file):
            start = None
        if start is None or not is_ended:
            file = self._look_up(path, header, is_next=False)[0] if file is None else file
            with IndexReader(path, self._store.files, header) as reader:
                proved = _Proof(self._store, reader, file).stretch(start is not None, is_ended)
            if proved is None:
                raise NoIndexError(f"index: {path}: the log has other messages where it begins or ends")
            first, last = proved if start is None else (first, proved[1])
            unit = self._unit(first) if start is None else None
            start = start if unit is None else unit.stop
        if start is None or start > last:
            return []
        followed_by: tuple[int, ...] = ()
        # No file of only one message can lie between two files that are larger than any message.
        if is_ended and is_asked and file is not None and header.index_count >= file.items > _MOST_KEYS:
            followed_by = last, after or last
        return [Known(path, start, last, positions, first, followed_by)]

    def _without_cut(self, header: Header, known: Known) -> list[Known]:
        """What is known of a file, without what it may lack because the broker cut its log at the start of a term.

        Raises:
            NoIndexError: the file has become shorter.
            RmqStoreError: the file cannot be read.
        """
        terms = [start for start in self._store.term_starts or () if known.start <= start < known.stop]
        look_up = self._look_ups.get(known.path) if terms else None
        if not isinstance(look_up, LookUp):
            return [known]  # or it was not asked, as its times are not selected
        with IndexReader(known.path, self._store.files, header) as reader:
            proof = _Proof(self._store, reader, look_up.file)
            lacking = [proof.cut(start, stop) for start, stop in itertools.pairwise([*terms, known.stop])]
        found = [known]
        for start, stop in (each for each in lacking if each is not None):
            *found, last = found
            found += [replace(last, stop=start, followed_by=()), replace(last, start=stop, first=stop)]
        return [each.within() for each in found if each.start < each.stop]

    def _unit(self, position: int) -> LiveUnit | None:
        """The live message at a physical offset."""
        if position not in self._units:
            self._units |= units_at(self._store.log, (position,))
        return self._units[position]

    def _look_up(self, path: str, header: Header, is_next: bool) -> tuple[IndexFile, Positions]:
        """A file that is as its header says, and the positions that were found in it.

        Args:
            is_next: as of _known(). If false, the file is checked against its header.

        Raises:
            NoIndexError: a hash chain in the file is broken.
            RmqStoreError: the file cannot be read, or is not to be believed.
        """
        found = self._look_ups.get(path)
        if isinstance(found, RmqStoreError):
            raise found
        if found is None or not (is_next or found.file.is_sure):
            with IndexReader(path, self._store.files, header, self._store.may_have_old_pages) as reader:
                found = self._look_ups[path] = self._checked(reader, found)
        if found.positions is None:
            raise NoIndexError(f"index: {path}: a hash chain is broken")
        return found.file, found.positions

    def _checked(self, reader: IndexReader, found: LookUp | None) -> LookUp:
        """The result of a look-up in a file that is checked against its header.

        Args:
            found: the result of an earlier look-up without that check.
        """
        others = {each.file.slots for each in self._look_ups.values() if isinstance(each, LookUp)}
        file = reader.check(others if found is None else [found.file.slots])
        if found is not None and found.file.slots == file.slots:
            return replace(found, file=file)
        return LookUp(reader.size, file, reader.lookup(file, by_slot(self._hashes, file.slots)))

    def _has_first(self, file: IndexFile) -> bool:
        """Does a file that begins before the log have the log's first message? Else the log was cut off before that
        message, and the file has nothing of the log before the place where the log ended then."""
        named = first_named(self._store)
        if named is None:
            return False
        position, of_key = named
        with IndexReader(file.path, self._store.files, file.header) as reader:
            found = reader.lookup(file, np.array([of_key], np.int32))
        return found is not None and position in found

    def _may_be_selected(self, header: Header, begin: int | None, end: int | None) -> bool:
        """May a file have a selected message, by store times?

        Args:
            begin, end: the store times (ms) of the file's first and last message, None where the log does not have it.
        """
        times, first, stop = self._selection.store_timestamp, header.begin_position, header.end_position + 1
        return times == ALL or self._store.times.may_hold(first, stop, times.least, times.most, (begin, end))


class _Proof:
    """Finds out how far the log agrees with a file, where the two disagree at an end of the file."""

    def __init__(self, store: Snapshot, reader: IndexReader, file: IndexFile) -> None:
        self._store = store
        self._reader = reader
        self._file = file
        self._builder = BatchBuilder(_NAMES)
        self._all_units = Filter()
        self._items: dict[int, Item] = {}

    def stretch(self, is_begun: bool, is_ended: bool) -> tuple[int, int] | None:
        """The positions of the first and last proved message; None where no message is proved, or the items do not
        ascend by position.

        Args:
            is_begun, is_ended: whether the file's own first and last message are proved.
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

    def cut(self, start: int, stop: int) -> tuple[int, int] | None:
        """The part of the log, of that between two physical offsets, of which a broker that cut its log at `start` has
        indexed nothing: up to the first proved item. None where it has not cut it."""
        first, after = self._first_from(start), self._first_from(stop)
        if first < after and self._is_proved(first):
            return None
        number = self._search(first, after - 1, self._is_proved)
        return start, self._item(number).position if number < after else stop

    def _last(self, first: int, last: int) -> int:
        """The number of the last proved item, 0 where there is none. The last item before the tail in which the file
        ends is tried first: mostly nothing but the tail is unsure."""
        extent = self._store.log.extent_at(self._file.header.end_position)
        if extent is not None:
            live_end = self._store.log.live_end(extent)
            number = self._search(first, last, lambda number: self._item(number).position >= live_end) - 1
            if number >= first and self._is_proved(number):
                return number
        return self._search(first, last, lambda number: not self._is_proved(number)) - 1

    def _first(self, first: int, last: int) -> int:
        """The number of the first proved item, 0 where there is none; found as by _last()."""
        extent = self._store.log.extent_at(self._file.header.begin_position)
        if extent is not None:
            number = self._search(first, last, lambda number: self._item(number).position >= extent.stop)
            if number <= last and self._is_proved(number):
                return number
        number = self._search(first, last, self._is_proved)
        return number if number <= last else 0

    def _first_from(self, position: int) -> int:
        """The number of the first item at a physical offset or after it."""
        last = self._file.header.index_count - 1
        return self._search(1, last, lambda number: self._item(number).position >= position)

    @staticmethod
    def _search(first: int, last: int, is_after: Callable[[int], bool]) -> int:
        """The number of the first item for which `is_after` is true, `last` + 1 where there is none."""
        return first + bisect.bisect_left(range(first, last + 1), True, key=is_after)

    def _item(self, number: int) -> Item:
        if number not in self._items:
            item = self._reader.item(self._file, number)
            if item is None:
                raise NoIndexError(f"index: {self._reader.path}: it has become shorter")
            self._items[number] = item
        return self._items[number]

    def _is_proved(self, number: int) -> bool:
        """Is the message of an item in the log, and live?"""
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


def joined(known: list[Known]) -> list[Known]:
    """The knowledge by start, each message in one entry only. Where a file goes on with the message that another one
    ends with, or with the next one, that message is known from the two together."""
    found: list[Known] = []
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


def overlap(known: list[Known]) -> bool:
    """Do two files claim a message in common? Files of a broker never do."""
    ascending = sorted(known, key=lambda each: each.start)
    return any(after.start < before.stop for before, after in itertools.pairwise(ascending))
