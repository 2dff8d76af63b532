"""ConsumeQueue: the files of one topic and queue, whose units point into the commitlog (store/format/queue_block.py).

A truncated queue keeps its old units after the new end, so no unit is believed before the commitlog confirms it.
Source: org.apache.rocketmq.store.ConsumeQueue.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from native_io import last_used_unit
from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.light_queues import is_light
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.queue_block import UNIT_SIZE, QueueBlock, QueueUnit
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.store.io.files import Files, allocated, file_status, ignore_unreadable, say_if_denied
from rmqstore_spark.store.structures.layout import queue_id_of, queue_path, start_in
from rmqstore_spark.store.structures.proofs import Proof, proof_of

UNITS_AT_ONCE = 16 * 1024  # units per read, where all units are read
FEW_UNITS = 128  # units that are read in one request rather than searched
_NEAR = 32  # units that are read for nothing rather than a file opened once more
_PAGE = 4096  # bytes: a disk has so many at a time of a file after a loss of power, each as old as it may be
_CODE_SIZE = 8  # bytes of a tagsCode, a simple unit's last field
_PROVED = 12  # bytes: position and size. A broker that is writing the unit may not have written what follows.
_RECOVERED_FILES = 3  # of a queue
_LEAST_AT_ONCE, _MOST_AT_ONCE = 2048, 64 * 1024  # units per read in a walk along a queue: from small to large


class QueueName(NamedTuple):
    """What a queue is known by in its store: tasks find it again by this name.

    Attributes:
        form: that of its units (Queue.form).
    """

    topic: str
    queue_id: int
    form: str


class QueueFile(NamedTuple):
    """A file of a queue."""

    path: str
    first: int  # the number of its first unit
    capacity: int  # units
    size: int  # bytes
    allocated: int  # bytes that it takes on the disk: files are made at their full size, as a hole
    has_positions: bool = True  # whether units have a place in a file; else `path` is a database's directory

    @property
    def end(self) -> int:
        """The number after that of its last unit."""
        return self.first + self.capacity


class OnlyFile(NamedTuple):
    """The one file of a queue that has no other.

    Attributes:
        start: the offset that it begins with, which its name tells.
        size, allocated: as of QueueFile.
    """

    start: int
    size: int
    allocated: int


class Units(Protocol):
    """A file of a queue, open: a context manager with some methods of io.files.OpenFile."""

    def __enter__(self) -> "Units": ...

    def __exit__(self, *_: object) -> None: ...

    def expect(self, start: int, stop: int) -> None: ...

    def load(self, offset: int, size: int, buffer: Callable[[int], memoryview]) -> memoryview: ...

    def read(self, offset: int, size: int) -> bytes: ...

    def read_into(self, buffer: memoryview, offset: int) -> int: ...

    def data_end(self) -> int: ...

    def used_end(self) -> int: ...

    def likely_data_end(self) -> int: ...


class Queue:
    """The ConsumeQueue of one topic and queue: a simple one, in files. A hint: missing and unreadable files count as
    unused units. Other queues are subclasses, and nobody asks which one a queue is: its attributes and methods tell
    what can be relied on.

    Units are numbered from the queue's beginning. Its files are listed when they are first needed.

    Large because units are asked for in many ways, and a queue that is not in files answers all of them as well.

    Attributes:
        form: what its units look like; a store may have queues of several forms with one topic and queueId.
        unit_size: bytes of a unit.
        is_in_files: whether its units are in files.
        is_plain: whether the kernel finds and reads its files by itself.
        is_by_offset: whether each unit is of one message, and its number is the message's queue offset.
        directory_name: that of the directory in a store that has all queues of the form; it ends in "consumequeue".
        is_indexed: whether a broker's index has messages of such queues by their keys.
        has_ext: whether a tagsCode may be an address in consumequeue_ext/.
        directory: the directory of its files.
        files: how to reach files, and where requests and bytes are counted.
    """

    form: ClassVar[str] = "simple"
    unit_size: ClassVar[int] = UNIT_SIZE
    is_in_files: ClassVar[bool] = True
    is_plain: ClassVar[bool] = True
    is_by_offset: ClassVar[bool] = True
    directory_name: ClassVar[str] = "consumequeue"
    is_indexed: ClassVar[bool] = True
    has_ext: ClassVar[bool] = True

    def __init__(self, directory: str, topic: str, queue_id: int, files: Files) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.files = files
        self._only: tuple[int, int, int] | None = None  # the numbers of only_file: of many queues nobody asks for it

    @property
    def name(self) -> QueueName:
        """What it is known by."""
        return QueueName(self.topic, self.queue_id, self.form)

    @kept
    def in_files(self) -> list[QueueFile]:
        """The queue's files, in order."""
        found: list[QueueFile] = []
        size = self.unit_size
        if self._only is not None:
            begin, length, taken = self._only
            path = path_of_file(self.directory, begin)
            return [QueueFile(path, begin // size, length // size, length, taken)]
        for start, name in self._named_files():
            path = os.path.join(self.directory, name)
            status = file_status(path, self.files)
            if status is None:
                continue
            nbytes = status.st_size
            if found:  # a file that is too long is not to give the next file's units twice
                last = found[-1]
                found[-1] = last._replace(capacity=min(last.capacity, start // size - last.first))
            found.append(QueueFile(path, start // size, nbytes // size, nbytes, allocated(status)))
        return found

    def _named_files(self) -> list[tuple[int, str]]:
        """The names in its directory that files of a queue have, each with the offset that it tells, in order."""
        names = names_in(self.directory, self.files)
        return [(start, name) for name in names if (start := start_in(name)) is not None]

    @property
    def only_file(self) -> OnlyFile | None:
        """The queue's only file, where somebody has found it before its files were listed."""
        return None if self._only is None else OnlyFile(*self._only)

    def know_file(self, start: int, size: int, allocated: int) -> None:
        """Take note of the queue's only file (OnlyFile), if its files were not listed before, and no file was known."""
        if self._only is None:
            self._only = start, size, allocated

    @property
    def on_disk(self) -> list[QueueFile]:
        """Those of in_files that are files."""
        return self.in_files

    def opened(self, file: QueueFile) -> Units:
        """One of in_files, open."""
        return self.files.file(file.path)

    @property
    def first(self) -> int:
        """The number of the unit that its first file begins with."""
        return self.in_files[0].first if self.in_files else 0

    @property
    def stop(self) -> int:
        """The number after the last unit that its files have space for."""
        return self.in_files[-1].end if self.in_files else 0

    @kept
    def is_additional(self) -> bool:
        """Are its messages in their own topics' queues as well? As those of a light message queue (MixAll). Who counts
        messages leaves it out."""
        return is_light(self.topic)

    @property
    def units_vouch(self) -> bool:
        """Does a unit that the log confirms vouch for those before it? Not in a light queue, where each is by itself:
        neither bounds nor ends are proved by one unit."""
        return not self.is_additional

    @property
    def is_expected(self) -> bool:
        """Should it have a unit of each of its messages in the log? A broker deletes a light queue that nobody uses."""
        return not self.is_additional or bool(self.in_files)

    def may_be_of(self, unit: QueueUnit, header: Header) -> bool:
        """Can a unit that points to a message be its unit? In a queue whose units vouch for others, a wrong size is a
        fault of the unit; elsewhere it is all that tells."""
        return self.units_vouch or header.size == unit.size

    @property
    def kind(self) -> str:
        """What kind of queue it is, as table `queues` shows it."""
        return "lmq" if is_light(self.topic) else self.form

    @property
    def sizes(self) -> list[tuple[str, int]]:
        """The queue's files, in order, with their sizes in bytes."""
        return [(file.path, file.size) for file in self.on_disk]

    # ---- units

    def parsed(self, data: bytes | bytearray | memoryview, number: int = 0) -> QueueBlock:
        """Units as they stand in the queue's files.

        Args:
            number: the number of the first unit.
        """
        return QueueBlock.of(data, number)

    def text_of(self, units: QueueBlock, index: int) -> str:
        """What one of some units says, in words."""
        return units[index].text

    def unit(self, number: int) -> QueueUnit | None:
        """The unit with this number, or None where there is none or the unit stands for no message."""
        unit = self.any_unit(number)
        return unit if unit is not None and unit.is_message else None

    def any_unit(self, number: int) -> QueueUnit | None:
        """The unit with this number, whatever the unit stands for; None where the files have no space for it."""
        for file in self.in_files:
            if file.first <= number < file.end:
                with ignore_unreadable(), self.opened(file) as opened:
                    data = opened.read((number - file.first) * self.unit_size, self.unit_size)
                    return QueueUnit.of(data, number, self.unit_size)
        return None

    def at_once(self) -> tuple[int, memoryview] | None:
        """The number of the first unit and all units, where these are at hand without holes; else None."""
        return None

    def block(self, number: int, count: int) -> QueueBlock:
        """At most `count` units from a number on, up to the first gap between files."""
        data = b"".join(data for _, data in self.chunks(number, number + count, at_once=count))
        return self.parsed(data, number)

    def blocks(self, number: int, stop: int | None = None, over_gaps: bool = False) -> Iterator[QueueBlock]:
        """The units from a number on, in blocks. Arguments as in chunks()."""
        for first, data in self.chunks(number, stop, _LEAST_AT_ONCE, _MOST_AT_ONCE, over_gaps):
            yield self.parsed(data, first)

    def units(self, start: int, position: int) -> tuple[QueueBlock, int]:
        """The units of messages from number `start` up to the first unit that points to `position` or after it, or is
        unused; and the number of this first unit."""
        found, number = [], start
        for block in self.blocks(start, self.stop):
            end = block.first_from(position)
            found.append(block.only(slice(end)))
            number += end
            if end < len(block):
                break
        units = QueueBlock.joined(found)
        return (units if units.are_messages.all() else units.only(units.are_messages)), number

    def chunks(
        self,
        number: int,
        stop: int | None = None,
        at_once: int = UNITS_AT_ONCE,
        most: int = UNITS_AT_ONCE,
        over_gaps: bool = False,
        buffer: memoryview | None = None,
    ) -> Iterator[tuple[int, bytes | memoryview]]:
        """The units from a number on as they stand in the files, up to where a file is missing or ends early: in
        chunks, each with the number of its first unit and the bytes. Unused units are included.

        Args:
            stop: the number after the last unit; None: all units that are not in the hole at a file's end.
            at_once: units in the first chunk; each next chunk has twice as many, up to `most`.
            over_gaps: go on with the next file where one is missing or ends early.
            buffer: memory for the bytes of a chunk, valid until the next chunk.
        """
        for file in self.in_files:
            if file.end <= number:
                continue
            if file.first > number and not over_gaps:
                return
            number = max(number, file.first)
            if stop is not None and number >= stop:
                return
            with ignore_unreadable(), self.opened(file) as opened:
                end = file.end if stop is None else min(file.end, stop)
                if stop is None:
                    end = min(end, file.first - (-opened.used_end() // self.unit_size))
                while number < end:
                    data = self._read(opened, number - file.first, min(at_once, end - number), buffer)
                    if not data:
                        break
                    yield number, data
                    number += len(data) // self.unit_size
                    at_once = min(2 * at_once, max(most, at_once))
            if number < file.end and not over_gaps:
                return

    def _read(self, file: Units, index: int, count: int, buffer: memoryview | None) -> bytes | memoryview:
        """Whole units of one of the queue's files."""
        size = self.unit_size
        if buffer is None:
            data = file.read(index * size, count * size)
            return data[: len(data) // size * size]
        part = buffer[: min(count, len(buffer) // size) * size]
        return part[: file.read_into(part, index * size) // size * size]

    # ---- units that follow from the log

    def unit_of(self, header: Header) -> QueueUnit | None:
        """The unit in the place of a message's unit; None where there is none."""
        return self.unit(header.queue_offset)

    def in_places_of(self, expected: Iterable[QueueBlock]) -> Iterator[tuple[QueueBlock, QueueBlock]]:
        """Units that follow from the log, in parts; and in the place of each the queue's own unit, which is not in use
        where the queue has none. Both have one length.

        Args:
            expected: units, numbered by their queue offsets.
        """
        for units in expected:
            yield units, self.numbered(units.numbers)

    def numbered(self, numbers: npt.NDArray[np.int64]) -> QueueBlock:
        """The units with some numbers, not in use where the queue has none. Those that are near each other are read
        together."""
        data = np.zeros((len(numbers), self.unit_size), np.uint8)
        edges = np.flatnonzero(are_far(numbers[:-1], numbers[1:])) + 1
        for begin, end in itertools.pairwise([0, *edges.tolist(), len(numbers)] if len(numbers) else ()):
            some = numbers[begin:end]
            first, stop = int(some[0]), int(some[-1]) + 1
            for number, part in self.chunks(first, stop, at_once=stop - first, over_gaps=True):
                rows = np.frombuffer(part, np.uint8).reshape(-1, self.unit_size)
                here = slice(*np.searchsorted(some, [number, number + len(rows)]).tolist())
                data[begin:end][here] = rows[some[here] - number]
        units = self.parsed(data.reshape(-1).data)
        units.number(numbers, are_offsets=self.is_by_offset)
        return units

    def are_after_end(self, units: QueueBlock, is_left: bool) -> npt.NDArray[np.bool_]:
        """Which of these units, which follow from the log, come after those that a broker takes for the queue's.

        Args:
            is_left: whether the broker finds `abort` when it starts.
        """
        return units.numbers >= (self._recovered_end() if is_left else self._after_last_taken())

    def _after_last_taken(self) -> int:
        """The number after the last unit that a broker counts when it starts, even with unused units before it. To a
        broker, the units before a queue's first message and those of lost messages are units like others
        (ConsumeQueue.recover): no new unit comes before them."""
        for file in reversed(self.in_files):
            taken = np.flatnonzero(self.block(file.first, file.capacity).are_used)
            if len(taken):
                return file.first + int(taken[-1]) + 1
        return 0

    def _recovered_end(self) -> int:
        """The number from which a broker that finds `abort` drops the units, to make them anew from the log: the first
        unit in the last three files that does not count (ConsumeQueue.recover)."""
        end = 0
        for file in self.in_files[-_RECOVERED_FILES:]:
            lacking = np.flatnonzero(~self.block(file.first, file.capacity).are_used)
            if len(lacking):
                return file.first + int(lacking[0])
            end = file.end
        return end

    # ---- queue offsets

    def number_with(self, queue_offset: int) -> int:
        """The number of the last unit that begins at a queue offset or before it, as far as units are right."""
        return queue_offset

    def units_from(self, queue_offset: int) -> tuple[int, QueueBlock]:
        """number_with(), and some units from there on, or from the queue's first one."""
        number = self.number_with(queue_offset)
        return number, self.block(max(number, self.first), FEW_UNITS)

    def numbers_of(self, least: int, most: int) -> tuple[int, int]:
        """The numbers [begin, end) among which all units with these queue offsets are, whatever else units say."""
        return least, most + 1

    def count_of(self, least: int, most: int) -> int:
        """The number of units with these queue offsets, as far as units are right."""
        return max(0, min(most + 1, self.end) - max(least, self.first))

    def offset_at(self, number: int) -> int | None:
        """The queue offset of a unit, as far as its number alone tells it."""
        return number

    def offsets_from(self, number: int) -> tuple[int, int]:
        """The queue offset of a unit, and the one after the last unit."""
        return number, self.end

    def offsets_of_rows(
        self, units: QueueBlock, explodes: bool, asked: tuple[int, int], header: Callable[[int], Header | None]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """The first and the last queue offset of the rows that each unit's message gives; None where units and log
        contradict each other.

        Args:
            explodes: whether messages in a batch are rows.
            asked: a queue offset up to which no unit's last one may be too small (it may be too large), and the
                greatest one that is of interest.
            header: tells the message at a physical offset.
        """
        return units.queue_offsets, units.queue_offsets

    def has_hashes_of_rows(self, explodes: bool) -> bool:
        """Is a unit's tagsCode that of each row that its message gives? See offsets_of_rows()."""
        return self.topic != SCHEDULE_TOPIC

    def may_lack_hashes(self, units: QueueBlock) -> npt.NDArray[np.bool_]:
        """For each of some units that follow each other, whether its tagsCode may not have been written to its end.

        That of the last one may not: a broker writes it last, and may be doing so, or was killed just then. And that of
        a unit which goes on in another page of the file, with zeros: after a loss of power a disk has some pages as
        they were before, and such a unit is sound but for that."""
        found = np.zeros(len(units), np.bool_)
        some = np.flatnonzero(units.tags_codes & 0xFFFF == 0) if self.is_in_files else ()
        if len(some):
            numbers, firsts = units.numbers[some], np.array([file.first for file in self.in_files], np.int64)
            begins = firsts[np.maximum(np.searchsorted(firsts, numbers, side="right") - 1, 0)]
            here = _PAGE - (numbers - begins) * self.unit_size % _PAGE  # bytes up to the page's end
            lost = UNIT_SIZE - here
            codes = units.tags_codes[some].view(np.uint64) << (64 - 8 * np.clip(lost, 1, 8)).astype(np.uint64)
            found[some] = (lost > 0) & (lost <= _CODE_SIZE) & (codes == 0)
            found[-1:] |= units.tags_codes[-1:] & 0xFFFF == 0
        return found

    # ---- the end

    @kept
    def end(self) -> int:
        """The number after the last unit that is not all zeros, as of the first call. That unit may be left over from a
        truncated log."""
        # Where holes cannot be seen, a look at the apparent end of the data costs little. Zeros in the middle can fool
        # the look, so its answer is not believed where the last file has no unit.
        hint = (self._end_in(file, likely=True) for file in self.in_files[-1:])
        ends = (self._end_in(file) for file in reversed(self.in_files))
        return next((end for end in itertools.chain(hint, ends) if end is not None), self.first)

    def _end_in(self, file: QueueFile, likely: bool = False) -> int | None:
        """The number after the last unit of a file that is not all zeros; None where all are.

        Args:
            likely: believe the apparent end of the file's data.
        """
        with ignore_unreadable(), self.opened(file) as opened:
            if likely and (end := self.end_in_head) is not None:
                return end
            data_end = opened.likely_data_end() if likely else opened.used_end()
            stop, count = min(file.capacity, -(-data_end // self.unit_size)), FEW_UNITS
            while stop > 0:
                start = max(0, stop - count)
                data = opened.read(start * self.unit_size, (stop - start) * self.unit_size)
                last = last_used_unit(data, unit_size=self.unit_size)
                if last >= 0:
                    return file.first + start + last + 1
                stop, count = start, min(2 * count, UNITS_AT_ONCE)
        return None

    @kept
    def end_in_head(self) -> int | None:
        """The number after the last unit, where a request takes long and the first one for the last file shows it: most
        callers make that request anyway. None where the file may have more units, or has none."""
        if not self.files.is_slow or not self.in_files:
            return None
        file, count = self.in_files[-1], self.files.prices.linear_below
        with ignore_unreadable(), self.opened(file) as opened:
            data = opened.read(0, min(count, file.capacity) * self.unit_size)
            last = last_used_unit(data, unit_size=self.unit_size)
            return file.first + last + 1 if 0 <= last < len(data) // self.unit_size - 1 else None
        return None

    def last(self) -> QueueUnit | None:
        """The last used unit, or None."""
        return self.unit(self.end - 1) if self.end > self.first else None

    def last_place(self) -> tuple[str, int] | None:
        """The file of last(), and the position in it (bytes); None where there is no last unit."""
        return self.place_of(self.end - 1)

    def last_proof(self, root: str) -> Proof | None:
        """The proof of the last unit, for tasks; None where there is none.

        Args:
            root: the store directory.
        """
        place = self.last_place()
        return None if place is None else proof_of(root, *place, _PROVED, self.files, pin=self.files.pin(place[0]))

    def place_of(self, number: int) -> tuple[str, int] | None:
        """The file of the unit with a number, and the position in it (bytes); None where there is no file for the
        unit."""
        inside = (file for file in reversed(self.in_files) if file.first <= number < file.end)
        return next(((file.path, (number - file.first) * self.unit_size) for file in inside), None)


def are_far(numbers: npt.NDArray[np.int64], following: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which numbers of units are followed by one that is less, or too far off for both units to be read at once?"""
    are_far: npt.NDArray[np.bool_] = (following - numbers).astype(np.uint64) > _NEAR
    return are_far


def path_of_file(directory: str, start: int) -> str:
    """The path of a queue's file, by the queue's directory and the offset that the file begins with."""
    return f"{directory}{os.sep}{start:020d}"  # join() would take as long as all the rest


def names_in(directory: str, files: Files) -> list[str]:
    """The names in a directory, sorted; none where it cannot be listed."""
    try:
        return sorted(files.names(directory))
    except OSError as why:
        say_if_denied(directory, why)
        return []


def queue_directories(
    above: str, files: Files, names: Callable[[str, Files], list[str]] = names_in
) -> Iterator[tuple[str, int, str]]:
    """The queues that have a directory <topic>/<queueId> in another one, by topic and queueId: each with its path.

    Args:
        names: how directories are listed; by default one that cannot be listed is as good as empty.
    """
    for topic in names(above, files):
        if queue_path(topic, 0) is None:
            continue
        directory = os.path.join(above, topic)
        for queue_id in sorted(n for n in map(queue_id_of, names(directory, files)) if n is not None):
            yield topic, queue_id, os.path.join(directory, str(queue_id))
