"""The consumers' offsets in config/consumerOffset.json, of any size: read in pieces, and kept in columns that wait in
temporary files where they are long.

The kernel takes what a broker writes. A file of another form is parsed like the rest of config/ (config.py), up to the
size that is parsed there.
"""

import bisect
import contextlib
import itertools
import json
import os
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from native_io import EntriesStatus, NameNumbers, take_entries
from rmqstore_spark.errors import one_line
from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.stretches import numbers_in
from rmqstore_spark.store.io.files import Files, ignore_unreadable
from rmqstore_spark.store.structures.config import (
    MEMBERS,
    OFFSETS,
    OffsetsFiles,
    Table,
    in_rocksdb,
    is_too_large,
    offset_entries,
    offsets_by_number,
    offsets_files,
    parse,
    read_text,
    say_of_backup,
    with_backup,
)
from rmqstore_spark.temporary import Column

_AT_ONCE = 1024 * 1024  # bytes of the file
_ENTRIES_AT_ONCE = 4096  # of a parsed object
ROWS_AT_ONCE = 64 * 1024  # of which there are arrays besides those that are kept
_MOST_OF_ENTRY = 64 * 1024 * 1024  # bytes of one entry
_MOST_AROUND = 64 * 1024  # bytes before the entries, and after them
_SHORTEST_ENTRY, _SHORTEST_QUEUE = 6, 4  # bytes: "":{}, and 0:0,
_MOST_NUMBERED = 64 * 1024  # texts that the kernel knows at a time
_BEGIN = re.compile(rb'"offsetTable"[ \t\r\n]*:[ \t\r\n]*\{')
_WITHOUT = b'"offsetTable":{}'

_Longs = npt.NDArray[np.int64]
_Ints = npt.NDArray[np.int32]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Names(Sequence[tuple[str, str]]):
    """Group and topic of each stretch of rows, in their order, with the text of each group and topic once.

    Attributes:
        groups, topics: texts, ascending; not each of them has rows.
        group_of, topic_of: the index of each name's group and topic there.
    """

    groups: list[str]
    topics: list[str]
    group_of: _Ints
    topic_of: _Ints

    def __len__(self) -> int:
        return len(self.group_of)

    @overload
    def __getitem__(self, at: int) -> tuple[str, str]: ...

    @overload
    def __getitem__(self, at: slice) -> "Names": ...

    def __getitem__(self, at: int | slice) -> "tuple[str, str] | Names":
        if isinstance(at, slice):
            return Names(self.groups, self.topics, self.group_of[at], self.topic_of[at])
        return self.groups[self.group_of[at]], self.topics[self.topic_of[at]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for start in range(0, len(self), _ENTRIES_AT_ONCE):
            some = slice(start, start + _ENTRIES_AT_ONCE)
            groups, topics = (of[some].tolist() for of in (self.group_of, self.topic_of))
            yield from zip(map(self.groups.__getitem__, groups), map(self.topics.__getitem__, topics), strict=True)

    def of_groups(self) -> Iterator[tuple[str, slice]]:
        """Each group that has names, and where these are."""
        bounds = self._bounds.tolist()
        for group, start, stop in zip(self.groups, bounds[:-1], bounds[1:], strict=True):
            if start < stop:
                yield group, slice(start, stop)

    def topics_at(self, names: slice) -> list[str]:
        """The topics of some names."""
        return list(map(self.topics.__getitem__, self.topic_of[names].tolist()))

    def find(self, name: tuple[str, str]) -> int | None:
        """The index of a name; None where it is none of these."""
        group, topic = (each.get(text) for each, text in zip(self._numbers, name, strict=True))
        if group is None or topic is None:
            return None
        start, stop = self._bounds[group : group + 2].tolist()
        at = start + int(np.searchsorted(self.topic_of[start:stop], topic))
        return at if at < stop and self.topic_of[at] == topic else None

    @kept
    def _bounds(self) -> _Longs:
        return np.searchsorted(self.group_of, np.arange(len(self.groups) + 1))

    @kept
    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        groups, topics = ({text: at for at, text in enumerate(texts)} for texts in (self.groups, self.topics))
        return groups, topics


@dataclass(frozen=True, eq=False)
class ConsumerOffsets(Mapping[tuple[str, str], dict[int, int]]):
    """The offset of the next message for each group in each queue that it consumes: by (group, topic), then by queueId.

    Attributes:
        names: group and topic of each stretch of rows.
        bounds: where each stretch begins, and the number of rows.
        queue_ids, offsets: the rows, in temporary files where they are many; queueIds ascend within a stretch.
    """

    names: Names
    bounds: _Longs
    queue_ids: Column
    offsets: Column

    @classmethod
    def of(cls, table: Mapping[tuple[str, str], Mapping[int, int]]) -> "ConsumerOffsets":
        """The same offsets, from an ordinary mapping."""
        found = _Found()
        for name, queues in table.items():
            found.add([name], _longs([len(queues)]), _longs(queues), _longs(queues.values()))
        return found.offsets()

    def __getitem__(self, name: tuple[str, str]) -> dict[int, int]:
        at = self.names.find(name)
        if at is None:
            raise KeyError(name)
        rows = slice(*self.bounds[at : at + 2].tolist())
        return dict(zip(self.queue_ids[rows].tolist(), self.offsets[rows].tolist(), strict=True))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def only(self, topics: Collection[str]) -> "ConsumerOffsets":
        """Those in some topics."""
        are_some = np.array([topic in topics for topic in self.names.topics], np.bool_)
        which = np.flatnonzero(are_some[self.names.topic_of])
        starts, sizes = self.bounds[which], np.diff(self.bounds)[which]
        made = _Made(self.names)
        for some in _pieces(sizes):
            queue_ids, offsets = (_rows_of(of, starts[some], sizes[some]) for of in (self.queue_ids, self.offsets))
            made.add(which[some], sizes[some], queue_ids, offsets)
        return made.offsets()

    def where(self, are_some: Callable[[slice], _Flags]) -> "ConsumerOffsets":
        """Those of some rows.

        Args:
            are_some: tells which of some rows, side by side, are among them.
        """
        made = _Made(self.names)
        for piece in self.pieces():
            flags = are_some(piece)
            names, counts = np.unique(self.names_of(piece)[flags], return_counts=True)
            made.add(names, counts, self.queue_ids[piece][flags], self.offsets[piece][flags])
        return made.offsets()

    def stretches(self) -> Iterator[tuple[str, str, slice]]:
        """Group, topic, and the rows of both."""
        bounds = map(int, self.bounds)
        for (group, topic), (start, stop) in zip(self.names, itertools.pairwise(bounds), strict=True):
            yield group, topic, slice(start, stop)

    def names_of(self, rows: slice) -> _Longs:
        """For each of some rows the index of its group and topic."""
        first, stop = np.searchsorted(self.bounds, (rows.start + 1, rows.stop)).tolist()
        bounds: _Longs = np.clip(self.bounds[first - 1 : stop + 1], rows.start, rows.stop)
        return np.repeat(np.arange(first - 1, stop), np.diff(bounds))

    def pieces(self, rows: slice | None = None, at_once: int | None = None) -> Iterator[slice]:
        """All rows, or some, a piece at a time: what is worked out for each then takes no more memory where there are
        many."""
        start, stop = (0, len(self.offsets)) if rows is None else (rows.start, rows.stop)
        at_once = at_once or ROWS_AT_ONCE
        for begin in range(start, stop, at_once):
            yield slice(begin, min(begin + at_once, stop))

    @kept
    def _stretches_of(self) -> tuple[_Longs, _Longs]:
        """The indices of names by their topic, and where those of each topic begin."""
        order = np.argsort(self.names.topic_of, kind="stable")
        return order, np.searchsorted(self.names.topic_of[order], np.arange(len(self.names.topics) + 1))

    def of_queue(self, topic: str, queue_id: int) -> set[int]:
        """All groups' offsets in a queue."""
        found = set[int]()
        number = bisect.bisect_left(self.names.topics, topic)
        if self.names.topics[number : number + 1] != [topic]:
            return found
        order, starts = self._stretches_of
        for at in order[starts[number] : starts[number + 1]].tolist():
            rows = slice(*self.bounds[at : at + 2].tolist())
            queue_ids = self.queue_ids[rows]
            row = int(np.searchsorted(queue_ids, queue_id))
            if row < len(queue_ids) and queue_ids[row] == queue_id:
                found.add(int(self.offsets[rows][row]))
        return found

    def index_in(self, queues: Sequence[tuple[str, int]]) -> Callable[[slice], _Ints]:
        """What tells for each of some rows the index of its queue among these, the last one where there are several; -1
        where it is none of them."""
        of_queues, queue_ids = zip(*queues, strict=True) if queues else ((), ())
        topics = {topic: number for number, topic in enumerate(dict.fromkeys(of_queues))}  # near each other in memory
        keys = _keys(_longs(map(topics.__getitem__, of_queues)), _longs(queue_ids))
        numbers = _longs(topics.get(topic, -1) for topic in self.names.topics)
        order = np.append(np.argsort(keys, kind="stable"), -1)
        ordered, keys = keys[order[:-1]], np.append(keys, -1)

        def index(rows: slice) -> _Ints:
            wanted = _keys(numbers[self.names.topic_of[self.names_of(rows)]], self.queue_ids[rows])
            found = order[np.searchsorted(ordered, wanted, side="right") - 1]
            return np.where((found >= 0) & (keys[found] == wanted), found, -1).astype(np.int32)

        return index


class _Made:
    """Offsets that are put together in order.

    Args:
        names: of which they have some.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._which, self._counts = array("i"), array("i")
        self._queue_ids, self._offsets = Column(np.int32), Column(np.int64)

    def add(self, which: _Longs, counts: _Longs, queue_ids: _Ints, offsets: _Longs) -> None:
        """Add rows.

        Args:
            which: the indices of their names, ascending; only the first one may have been added before.
            counts: rows of each name.
        """
        for some, values in ((self._which, which), (self._counts, counts)):
            some.frombytes(values[counts > 0].astype(np.int32).tobytes())
        self._queue_ids.add(queue_ids)
        self._offsets.add(offsets)

    def offsets(self) -> ConsumerOffsets:
        """All of them."""
        which, ends = np.asarray(self._which), np.cumsum(np.asarray(self._counts), dtype=np.int64)
        is_last = np.diff(which, append=-1) != 0
        which, bounds = which[is_last], np.append(0, ends[is_last])
        of, known = self._names, (self._names.group_of[which], self._names.topic_of[which])
        return ConsumerOffsets(Names(of.groups, of.topics, *known), bounds, self._queue_ids, self._offsets)


def _keys(firsts: _Longs | _Ints, seconds: _Longs | _Ints) -> _Longs:
    """One number for each pair, in the order of both. Below 0 where the first one is."""
    keys = firsts.astype(np.int64)
    keys <<= 32
    keys |= seconds
    return keys


class Consumed(NamedTuple):
    """What consumer groups have consumed.

    Attributes:
        topics: the topics that some group has consumed.
        offsets: where each group stands.
        refused: why a file was not taken that is too large to be parsed whatever its form is; None where none was.
        is_in_rocksdb: whether a RocksDB has the offsets, and they were read.
        file: which file in config/ the offsets are from, and which other has some.
        sound: the name of that file, if it itself, not its backup, is surely as a broker writes it.
    """

    topics: set[str]
    offsets: ConsumerOffsets
    refused: str | None
    is_in_rocksdb: bool
    file: OffsetsFiles
    sound: frozenset[str]


def consumed(root: str, files: Files) -> Consumed:
    """What config/ says of the consumer groups' progress.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    file = offsets_files(root, files)
    found = _of_file(root, file.name, files)
    sound = frozenset([file.name] if found.is_sound else [])
    return Consumed(found.topics, found.offsets(), found.refused, found.is_in_rocksdb, file, sound)


def consumed_in_rocksdb(root: str, files: Files, topics: Collection[str]) -> ConsumerOffsets | None:
    """The consumer groups' offsets in some topics, read without those in others; None where no RocksDB has offsets that
    can be read. Further arguments are those of consumed()."""
    stored = in_rocksdb(root, OFFSETS[0], files, topics)
    if stored is None:
        return None
    found = _of_table(stored.table or {}).offsets()
    return found.only(topics)


def sound_offsets(path: str, files: Files, are_all: bool = False) -> ConsumerOffsets | None:
    """The offsets in one file, whatever its size; None where it is not surely as a broker writes it.

    Args:
        are_all: whether offsets below 0, and those of no group or topic, are wanted, too.
    """
    with ignore_unreadable():
        around, found, _ = _streamed(path, files, are_all)
        if around is not None and found.is_sound:
            return found.offsets()
    return None


class _Found:
    """Offsets as they are found.

    Large because the columns of entries and of rows wait side by side until all entries are known.

    Args:
        are_all: whether offsets below 0, and those of no group or topic, are wanted, too. They say nothing.

    Attributes:
        topics: all that have a group, also without an offset.
        refused: why the file was not taken; None where it was, or there is none.
        is_in_rocksdb: whether they are of a RocksDB.
        is_sound: whether the file itself is surely as a broker writes it.
    """

    def __init__(self, are_all: bool = False) -> None:
        self._are_all = are_all
        self.is_sound = self.is_in_rocksdb = False
        self.topics: set[str] = set()
        self.refused: str | None = None
        # The number of each text, in the order of the file; and of each entry its group, its topic, and its rows.
        self._groups: dict[str, int] = {}
        self._topics: dict[str, int] = {}
        self._plain = _PlainNames(self._topics, self._groups)
        self._group_of, self._topic_of, self._counts = array("i"), array("i"), array("i")
        self._queue_ids, self._offsets = Column(np.int32), Column(np.int64)

    def add_texts(self, texts: Iterable[str], counts: _Longs, queue_ids: _Longs, offsets: _Longs) -> None:
        """Add entries with names as in the file, topic@group."""
        parts = [text.partition("@") for text in texts]
        self.topics.update(topic for topic, at, _ in parts if topic and at)
        self.add([(group, topic) for topic, _, group in parts], counts, queue_ids, offsets)

    def add(self, names: list[tuple[str, str]], counts: _Longs, queue_ids: _Longs, offsets: _Longs) -> None:
        """Add entries, which replace those of the same names.

        Args:
            counts: queues of each entry.
        """
        groups, topics = self._groups, self._topics
        group_of = _ints([groups.setdefault(group, len(groups)) for group, _ in names])
        topic_of = _ints([topics.setdefault(topic, len(topics)) for _, topic in names])
        self._add(topic_of, group_of, counts, queue_ids, offsets)

    def add_plain(self, text: bytes, names: _Longs, counts: _Longs, queue_ids: _Longs, offsets: _Longs) -> None:
        """Add entries with names that stand in a text without escapes.

        Args:
            text: ASCII.
            names: where each name begins and ends.
        """
        topic_of, group_of, with_group = self._plain.numbers(text, names)
        self.topics.update(with_group)
        self._add(topic_of, group_of, counts, queue_ids, offsets)

    def _add(self, topic_of: _Ints, group_of: _Ints, counts: _Longs, queue_ids: _Longs, offsets: _Longs) -> None:
        self._group_of.frombytes(group_of.tobytes())
        self._topic_of.frombytes(topic_of.tobytes())
        self._counts.frombytes(counts.astype(np.int32).tobytes())
        self._queue_ids.add(queue_ids)
        self._offsets.add(offsets)

    def offsets(self) -> ConsumerOffsets:
        """All of them, in order."""
        counts = np.asarray(self._counts)
        groups, group_of = _ordered(self._groups, self._group_of)
        topics, topic_of = _ordered(self._topics, self._topic_of)
        entries = _order(_keys(group_of, topic_of))  # the last one of each name
        are_some = counts[entries] > 0
        if not self._are_all:
            have_names = (np.array([bool(text) for text in texts], np.bool_) for texts in (groups, topics))
            for have_name, of in zip(have_names, (group_of, topic_of), strict=True):
                are_some &= have_name[of[entries]]
        entries = entries[are_some]
        starts, sizes = (np.cumsum(counts, dtype=np.int64) - counts)[entries], counts[entries]
        made = _Made(Names(groups, topics, group_of[entries], topic_of[entries]))
        del group_of, topic_of, entries, are_some
        for some in _pieces(sizes):
            queue_ids, offsets = (_rows_of(of, starts[some], sizes[some]) for of in (self._queue_ids, self._offsets))
            which = np.repeat(np.arange(some.start, some.stop), sizes[some])
            rows = _order(_keys(which, queue_ids))
            if not self._are_all:
                rows = rows[offsets[rows] >= 0]
            left = np.bincount(which[rows] - some.start, minlength=some.stop - some.start)
            made.add(np.arange(some.start, some.stop), left, queue_ids[rows], offsets[rows])
        return made.offsets()


class _PlainNames:
    """The numbers of topics and groups whose names have no escapes: the kernel tells them apart, and each new one is
    given its number here.

    Args:
        topics, groups: the number of each text; new ones are added.
    """

    def __init__(self, topics: dict[str, int], groups: dict[str, int]) -> None:
        self._every = topics, groups
        self._forget()

    def _forget(self) -> None:
        self._kernel = NameNumbers()
        self._texts: list[str] = []  # topics, by the kernel's numbers
        self._numbers = array("i"), array("i")  # ours, by the kernel's

    def numbers(self, text: bytes, names: _Longs) -> tuple[_Ints, _Ints, Iterator[str]]:
        """The numbers of each name's topic and group, and the topics that have a group."""
        if max(map(len, self._numbers)) > _MOST_NUMBERED:
            self._forget()
        found = np.empty((3, len(names)), np.int32)
        new = self._kernel.number(text, names, found)
        self._texts.extend(new[0])
        for known, every, some in zip(self._numbers, self._every, new, strict=True):
            known.extend([every.setdefault(each, len(every)) for each in some])
        topic_of, group_of = (np.array(known, np.int32)[of] for known, of in zip(self._numbers, found[:2], strict=True))
        have_group = np.unique(found[0][found[2] == 1]).tolist()
        return topic_of, group_of, filter(None, map(self._texts.__getitem__, have_group))


def _ordered(numbers: Mapping[str, int], of: "array[int]") -> tuple[list[str], _Ints]:
    """Texts that have numbers, ascending; and for numbers of such texts, where each one's text is."""
    texts = sorted(numbers)
    places = np.empty(len(texts), np.int32)
    places[_longs(map(numbers.__getitem__, texts))] = np.arange(len(texts))
    return texts, places[np.asarray(of)]


def _rows_of(column: Column, starts: _Longs, sizes: _Longs) -> npt.NDArray[Any]:
    """The rows of some entries, one entry after the other."""
    if column.is_in_memory or not len(starts):
        return column[:][numbers_in(starts, sizes)]
    stops = starts + sizes
    begins = np.flatnonzero(np.append(True, starts[1:] != stops[:-1]))  # others follow those before them
    ends = np.append(begins[1:], len(starts)) - 1
    return np.concatenate([column[start:stop] for start, stop in zip(starts[begins], stops[ends], strict=True)])


def _pieces(sizes: _Longs) -> Iterator[slice]:
    """Entries, some at a time, given the rows of each."""
    stops = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        most = stops[start] - sizes[start] + ROWS_AT_ONCE
        stop = max(start + 1, int(np.searchsorted(stops, most, side="right")))
        yield slice(start, stop)
        start = stop


def _order(keys: _Longs) -> _Longs:
    """The indices of keys in their order; of several that are alike, that of the last one."""
    if (keys[1:] > keys[:-1]).all():
        return np.arange(len(keys))
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    last: _Longs = order[np.append(ordered[1:] != ordered[:-1], True)]
    return last


def _of_file(root: str, name: str, files: Files) -> _Found:
    """The offsets in a file of config/, in its backup, or in the RocksDB that a broker has instead."""
    stored = in_rocksdb(root, name, files)
    if stored is not None:
        in_table = _of_table(stored.table or {})
        in_table.is_in_rocksdb = True
        return in_table
    path, refused = os.path.join(root, "config", name), None
    for candidate in with_backup(path):
        with ignore_unreadable():
            around, found = _whole(candidate, files)
            if found.refused is not None:
                refused = refused or found.refused
            elif around is not None:
                if candidate != path:
                    say_of_backup(path, around, files)
                    found.is_sound = False
                return found
    nothing = _Found()
    nothing.refused = refused
    return nothing


def _whole(path: str, files: Files) -> tuple[Table | None, _Found]:
    """What one file has besides the entries, and the entries; None for a file that is no JSON of a broker."""
    around, found, at = _streamed(path, files)
    if around is not None:
        return around, found
    if is_too_large(path, files):
        found = _Found()
        found.refused = f"{one_line(path)}, position {at}: expected consumers' offsets as a broker writes them"
        return None, found
    with contextlib.suppress(ValueError):
        table = parse(read_text(path, files, "replace"))
        return table, _of_table(offset_entries(table))
    return None, _Found()


def _of_table(table: Table) -> _Found:
    found = _Found()
    _add(table, found)
    return found


def _add(table: Table, found: _Found) -> None:
    remaining = iter(table.items())
    while some := list(itertools.islice(remaining, _ENTRIES_AT_ONCE)):
        parts = [offsets_by_number(queues) if isinstance(queues, dict) else {} for _, queues in some]
        queue_ids, offsets = itertools.chain(*parts), itertools.chain.from_iterable(part.values() for part in parts)
        found.add_texts([text for text, _ in some], _longs(map(len, parts)), _longs(queue_ids), _longs(offsets))


def _streamed(path: str, files: Files, are_all: bool = False) -> tuple[Table | None, _Found, int]:
    """What a file has besides the entries, the entries, and the position up to which the file was understood. None
    where it is not as a broker writes it."""
    found, rest, is_begun, is_utf8 = _Found(are_all), b"", False, True
    with files.file(path) as file:
        head = file.read(0, min(file.size, _MOST_AROUND))
        begin = _BEGIN.search(head)
        if begin is None:
            return None, found, 0
        position = begin.end()
        while True:
            data = file.read(position, min(max(_AT_ONCE, len(rest)), file.size - position))
            text, position = rest + data, position + len(data)
            status, at = _take(text, is_begun, found)
            rest, is_begun, is_utf8 = text[at:], is_begun or at > 0, is_utf8 and _is_utf8(text[:at])
            if status is not EntriesStatus.MORE:
                break
            if not data or len(rest) > _MOST_OF_ENTRY:
                return None, found, position - len(rest)
        stop = position - len(rest)
        if status is EntriesStatus.ODD or file.size - stop > _MOST_AROUND:
            return None, found, stop
        around = [head[: begin.start()], file.read(stop, file.size - stop)]
        if any(_WITHOUT[:13] in part for part in around):
            return None, found, stop
    with contextlib.suppress(ValueError):
        whole = _WITHOUT.join(around)
        table = parse(whole.decode(errors="replace"))
        if table.get(MEMBERS[OFFSETS[0]]) == {}:
            _add(offset_entries(table), found)
            # Others are parsed for what is wrong with them, but not where they are too large for that.
            found.is_sound = (is_utf8 and _is_utf8(whole)) or is_too_large(path, files)
            return table, found, stop
    return None, found, stop


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    with contextlib.suppress(UnicodeDecodeError):
        text.decode()
        return True
    return False


def _take(text: bytes, is_begun: bool, found: _Found) -> tuple[EntriesStatus, int]:
    """Add the whole entries of some text; how they ended, and the bytes that they take."""
    room = len(text) // _SHORTEST_ENTRY + 1
    names, counts = np.empty((room, 2), np.int64), np.empty(room, np.int64)
    queues = np.empty((2, len(text) // _SHORTEST_QUEUE + 1), np.int64)
    status, at, entries, rows = take_entries(text, is_begun=is_begun, names=names, counts=counts, queues=queues)
    taken = counts[:entries], queues[0, :rows], queues[1, :rows]
    if text.isascii() and b"\\" not in text:  # almost always: each byte is a character
        found.add_plain(text, names[:entries], *taken)
        return status, at
    try:
        texts = [_text(text[start:stop]) for start, stop in names[:entries].tolist()]
    except ValueError:
        return EntriesStatus.ODD, 0
    found.add_texts(texts, *taken)
    return status, at


def _text(stored: bytes) -> str:
    """A string of JSON, given what is between its quotes.

    Raises:
        ValueError: it has an unknown escape.
    """
    text = stored.decode(errors="replace")
    return text if "\\" not in text else str(json.loads(f'"{text}"'))


def _longs(values: Iterable[int]) -> _Longs:
    return np.fromiter(values, np.int64)


def _ints(values: Sequence[int]) -> _Ints:
    return np.array(values, np.int32)
