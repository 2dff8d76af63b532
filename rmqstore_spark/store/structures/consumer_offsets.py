"""The consumers' offsets in config/consumerOffset.json, of any size: read in pieces, and kept in arrays.

The kernel takes what a broker writes. A file of another form is parsed like the rest of config/ (config.py), up to the
size that is parsed there.
"""

import contextlib
import itertools
import json
import os
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import EntriesStatus, take_entries
from rmqstore_spark.errors import one_line
from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.stretches import numbers_in
from rmqstore_spark.store.io.files import Files, ignore_unreadable
from rmqstore_spark.store.structures.config import (
    MEMBERS,
    OFFSETS,
    Table,
    in_rocksdb,
    is_too_large,
    offsets_by_number,
    parse,
    read_text,
    say_of_backup,
    with_backup,
)

_AT_ONCE = 1024 * 1024  # bytes of the file
_ENTRIES_AT_ONCE = 4096  # of a parsed object
_ROWS_AT_ONCE = 64 * 1024  # of which there are arrays besides those that are kept
_MOST_OF_ENTRY = 64 * 1024 * 1024  # bytes of one entry
_MOST_AROUND = 64 * 1024  # bytes before the entries, and after them
_SHORTEST_ENTRY, _SHORTEST_QUEUE = 6, 4  # bytes: "":{}, and 0:0,
_BEGIN = re.compile(rb'"offsetTable"[ \t\r\n]*:[ \t\r\n]*\{')
_WITHOUT = b'"offsetTable":{}'

_Longs = npt.NDArray[np.int64]
_Ints = npt.NDArray[np.int32]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ConsumerOffsets(Mapping[tuple[str, str], dict[int, int]]):
    """The offset of the next message for each group in each queue that it consumes: by (group, topic), then by queueId.

    Attributes:
        names: group and topic of each stretch of rows, in order.
        bounds: where each stretch begins, and the number of rows.
        queue_ids, offsets: the rows; queueIds ascend within a stretch.
    """

    names: list[tuple[str, str]]
    bounds: _Longs
    queue_ids: _Ints
    offsets: _Longs

    @classmethod
    def of(cls, table: Mapping[tuple[str, str], Mapping[int, int]]) -> "ConsumerOffsets":
        """The same offsets, from an ordinary mapping."""
        found = _Found()
        for (group, topic), queues in table.items():
            found.add([(group, topic)], _longs([len(queues)]), _longs(queues), _longs(queues.values()))
        return found.offsets()

    def __getitem__(self, name: tuple[str, str]) -> dict[int, int]:
        at = self._index[name]
        rows = slice(self.bounds[at], self.bounds[at + 1])
        return dict(zip(self.queue_ids[rows].tolist(), self.offsets[rows].tolist(), strict=True))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @kept
    def _index(self) -> dict[tuple[str, str], int]:
        return {name: at for at, name in enumerate(self.names)}

    def only(self, topics: Collection[str]) -> "ConsumerOffsets":
        """Those in some topics."""
        which = [at for at, (_, topic) in enumerate(self.names) if topic in topics]
        sizes = np.diff(self.bounds)[which]
        rows = numbers_in(self.bounds[which], sizes)
        names = [self.names[at] for at in which]
        return ConsumerOffsets(names, np.append(0, np.cumsum(sizes)), self.queue_ids[rows], self.offsets[rows])

    def where(self, are_some: _Flags) -> "ConsumerOffsets":
        """Those of some rows."""
        if are_some.all():
            return self
        stops = np.append(0, np.cumsum(are_some))[self.bounds]
        names = [name for name, count in zip(self.names, np.diff(stops).tolist(), strict=True) if count]
        return ConsumerOffsets(names, np.unique(stops), self.queue_ids[are_some], self.offsets[are_some])

    def stretches(self) -> Iterator[tuple[str, str, slice]]:
        """Group, topic, and the rows of both."""
        bounds = self.bounds.tolist()
        for (group, topic), start, stop in zip(self.names, bounds[:-1], bounds[1:], strict=True):
            yield group, topic, slice(start, stop)

    def names_of(self, rows: slice) -> _Longs:
        """For each of some rows the index of its group and topic."""
        return np.searchsorted(self.bounds, np.arange(rows.start, rows.stop), side="right") - 1

    def pieces(self) -> Iterator[slice]:
        """All rows, some at a time: what is worked out for each then takes no more memory where there are many."""
        for start in range(0, len(self.offsets), _ROWS_AT_ONCE):
            yield slice(start, min(start + _ROWS_AT_ONCE, len(self.offsets)))

    @kept
    def _stretches_of(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for at, (_, topic) in enumerate(self.names):
            found.setdefault(topic, []).append(at)
        return found

    def of_queue(self, topic: str, queue_id: int) -> set[int]:
        """All groups' offsets in a queue."""
        found = set()
        for at in self._stretches_of.get(topic, ()):
            start, stop = self.bounds[at : at + 2].tolist()
            row = start + int(np.searchsorted(self.queue_ids[start:stop], queue_id))
            if row < stop and self.queue_ids[row] == queue_id:
                found.add(int(self.offsets[row]))
        return found

    def index_in(self, queues: Sequence[tuple[str, int]]) -> _Ints:
        """For each row the index of its queue among these, the last one where there are several; -1 where it is none of
        them."""
        of_queues, queue_ids = zip(*queues, strict=True) if queues else ((), ())
        topics = {topic: number for number, topic in enumerate(dict.fromkeys(of_queues))}  # near each other in memory
        keys = _keys(_longs(map(topics.__getitem__, of_queues)), _longs(queue_ids))
        number_of = topics.get
        of_names = _longs([number_of(topic, -1) for _, topic in self.names])
        order = np.append(np.argsort(keys, kind="stable"), -1)
        ordered = keys[order[:-1]]
        index = np.empty(len(self.offsets), np.int32)
        for piece in self.pieces():
            rows = _keys(of_names[self.names_of(piece)], self.queue_ids[piece])
            found = order[np.searchsorted(ordered, rows, side="right") - 1]
            index[piece] = np.where((found >= 0) & (np.append(keys, -1)[found] == rows), found, -1)
        return index


def _keys(topics: _Longs, queue_ids: _Longs | _Ints) -> _Longs:
    """One number for each queue, given the number of its topic: in the order of both. Below 0 for a topic below 0."""
    return (topics << 32) | queue_ids


class Consumed(NamedTuple):
    """What consumer groups have consumed.

    Attributes:
        topics: the topics that some group has consumed, from config/consumerOffset.json.
        offsets: from that file, or with light queues (enableLmq) from lmqConsumerOffset.json, which then has all of
            them.
        refused: why a file was not taken that is too large to be parsed whatever its form is; None where none was.
        is_in_rocksdb: whether a RocksDB has the offsets, and they were read.
        sound: the names of the files, not their backups, that are surely as a broker writes them.
    """

    topics: set[str]
    offsets: ConsumerOffsets
    refused: str | None
    is_in_rocksdb: bool
    sound: frozenset[str]


def consumed(root: str, files: Files) -> Consumed:
    """What config/ says of the consumer groups' progress.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    found = [_of_file(root, OFFSETS[0], files)]
    for name in OFFSETS[1:]:
        if found[-1].is_any or found[-1].refused is not None:
            break
        found.append(_of_file(root, name, files))
    sound = frozenset(name for name, each in zip(OFFSETS, found, strict=False) if each.is_sound)
    return Consumed(found[0].topics, found[-1].offsets(), found[-1].refused, found[0].is_in_rocksdb, sound)


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

    Large because arrays of many pieces wait side by side until all entries are known.

    Args:
        are_all: whether offsets below 0, and those of no group or topic, are wanted, too. They say nothing.

    Attributes:
        topics: all that have a group, also without an offset.
        is_any: whether there is an entry, of whatever form.
        refused: why the file was not taken; None where it was, or there is none.
        is_in_rocksdb: whether they are of a RocksDB.
        is_sound: whether the file itself is surely as a broker writes it.
    """

    def __init__(self, are_all: bool = False) -> None:
        self._are_all = are_all
        self.is_sound = self.is_in_rocksdb = False
        self.topics: set[str] = set()
        self.is_any = False
        self.refused: str | None = None
        self._names: dict[tuple[str, str], int] = {}  # each with the number of its last entry
        self._texts: dict[str, str] = {}  # each text once
        # In the order of the file. An array.array grows in its place, so that nothing is there twice.
        self._counts, self._queue_ids, self._offsets = array("q"), array("i"), array("q")

    def add_texts(self, texts: Iterable[str], counts: _Longs, queue_ids: _Longs, offsets: _Longs) -> None:
        """Add entries with names as in the file, topic@group."""
        parts, once = [text.partition("@") for text in texts], self._texts.setdefault
        names = [(once(group, group), once(topic, topic)) for topic, _, group in parts]
        self.is_any = self.is_any or bool(parts)
        self.topics.update(topic for (_, topic), (_, at, _) in zip(names, parts, strict=True) if topic and at)
        self.add(names, counts, queue_ids, offsets)

    def add(self, names: list[tuple[str, str]], counts: _Longs, queue_ids: _Longs, offsets: _Longs) -> None:
        """Add entries, which replace those of the same names.

        Args:
            counts: queues of each entry.
        """
        numbers = range(len(self._counts), len(self._counts) + len(names))
        if counts.all() and (self._are_all or all(map(all, names))):
            self._names.update(zip(names, numbers, strict=True))
        else:
            for number, name, count in zip(numbers, names, counts.tolist(), strict=True):
                if count and (self._are_all or all(name)):
                    self._names[name] = number
                else:
                    self._names.pop(name, None)
        self._counts.frombytes(counts.tobytes())
        self._queue_ids.frombytes(queue_ids.astype(np.int32).tobytes())
        self._offsets.frombytes(offsets.tobytes())

    def offsets(self) -> ConsumerOffsets:
        """All of them, in order."""
        names = sorted(self._names)
        entries = _longs(map(self._names.__getitem__, names))
        counts, all_ids, all_offsets = (np.asarray(each) for each in (self._counts, self._queue_ids, self._offsets))
        starts, sizes = (np.cumsum(counts) - counts)[entries], counts[entries]
        queue_ids, offsets = np.empty(sizes.sum(), np.int32), np.empty(sizes.sum(), np.int64)
        found_names: list[tuple[str, str]] = []
        bounds, end = [_longs([0])], 0
        for some in _pieces(sizes):
            rows = numbers_in(starts[some], sizes[some])
            piece = _in_order(names[some], sizes[some], all_ids[rows], all_offsets[rows])
            if not self._are_all:
                piece = piece.where(piece.offsets >= 0)
            found_names += piece.names
            bounds.append(end + piece.bounds[1:])
            here = slice(end, end := end + len(piece.offsets))
            queue_ids[here], offsets[here] = piece.queue_ids, piece.offsets
        return ConsumerOffsets(found_names, np.concatenate(bounds), queue_ids[:end], offsets[:end])


def _pieces(sizes: _Longs) -> Iterator[slice]:
    """Entries, some at a time, given the rows of each."""
    stops = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        most = stops[start] - sizes[start] + _ROWS_AT_ONCE
        stop = max(start + 1, int(np.searchsorted(stops, most, side="right")))
        yield slice(start, stop)
        start = stop


def _in_order(names: list[tuple[str, str]], sizes: _Longs, queue_ids: _Ints, offsets: _Longs) -> ConsumerOffsets:
    """Offsets with queueIds that ascend; of several offsets for one queue the last one counts.

    Args:
        sizes: rows of each name.
    """
    keys = _keys(np.repeat(np.arange(len(names)), sizes), queue_ids)
    if (np.diff(keys) > 0).all():
        return ConsumerOffsets(names, np.append(0, np.cumsum(sizes)), queue_ids, offsets)
    order = np.argsort(keys, kind="stable")
    order = order[np.append(np.diff(keys[order]) != 0, True)]
    stops = np.searchsorted(keys[order] >> 32, np.arange(len(names)), side="right")
    return ConsumerOffsets(names, np.append(0, stops), queue_ids[order], offsets[order])


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
        entries = table.get(MEMBERS[OFFSETS[0]])
        return table, _of_table(entries if isinstance(entries, dict) else {})
    return None, _Found()


def _of_table(table: Table) -> _Found:
    found, remaining = _Found(), iter(table.items())
    while some := list(itertools.islice(remaining, _ENTRIES_AT_ONCE)):
        parts = [offsets_by_number(queues) if isinstance(queues, dict) else {} for _, queues in some]
        queue_ids, offsets = itertools.chain(*parts), itertools.chain.from_iterable(part.values() for part in parts)
        found.add_texts([text for text, _ in some], _longs(map(len, parts)), _longs(queue_ids), _longs(offsets))
    return found


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
    try:
        texts = _texts(text, names[:entries].tolist())
    except ValueError:
        return EntriesStatus.ODD, 0
    found.add_texts(texts, counts[:entries], queues[0, :rows], queues[1, :rows])
    return status, at


def _texts(text: bytes, bounds: list[list[int]]) -> list[str]:
    """Strings of JSON, given where what is between their quotes begins and ends.

    Raises:
        ValueError: one has an unknown escape.
    """
    if text.isascii() and b"\\" not in text:  # almost always: each byte is a character
        plain = text.decode("ascii")
        return [plain[start:stop] for start, stop in bounds]
    return [_text(text[start:stop]) for start, stop in bounds]


def _text(stored: bytes) -> str:
    """A string of JSON, given what is between its quotes.

    Raises:
        ValueError: it has an unknown escape.
    """
    text = stored.decode(errors="replace")
    return text if "\\" not in text else str(json.loads(f'"{text}"'))


def _longs(values: Iterable[int]) -> _Longs:
    return np.fromiter(values, np.int64)
