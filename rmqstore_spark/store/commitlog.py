"""The commitlog: its segments, and walking the units in them, also past damage."""

import functools
import mmap
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from native_io import FORMAT, Filter, Status, find_unit, scan
from rmqstore_spark.errors import DamagedStoreError, one_line
from rmqstore_spark.store.consumequeue import ConsumeQueues, Queue, QueueUnit
from rmqstore_spark.store.decode import BatchBuilder
from rmqstore_spark.store.files import Files, ReadFile
from rmqstore_spark.store.layout import Layout, SegmentFile
from rmqstore_spark.store.message import (
    Header,
    behind_body,
    explain,
    header_in,
)

WINDOW_SIZE = 512 * 1024  # stays in the second-level cache between reading, checking and decoding
WINDOW_UNITS = 8192
BIG_UNIT = 16 * 1024 * 1024  # above it a unit's far end is looked at before the rest is read
_UNKNOWN_UNITS = 256  # so many units in a row that no ConsumeQueue knows: the queues are behind, or gone
_FIRST_WINDOW = 16 * 1024
_PEEK_SIZE = 1024  # read first where one unit is wanted
_HEAD_SIZE = 72 + 2 * 20  # all that can stand before a body
_TAIL_SIZE = 2 * (32767 + 2)  # the most that can stand behind a body
_MOST = (1 << 63) - 1

Positions = npt.NDArray[np.int64]
Step = Callable[..., tuple[int, int, Status, int, int]]


@dataclass(frozen=True)
class Segment:
    """A commitlog file, holding the physical offsets [start, end).

    `end` is where it should end: `size` differs from `end - start` where the file was cut or padded.
    """

    path: str
    start: int
    end: int
    size: int


@dataclass(frozen=True)
class Damage:
    """The physical offsets [start, stop) of a file are not what the format demands."""

    path: str
    start: int
    stop: int
    position: int  # of start, in the file
    reason: str

    def __str__(self) -> str:
        return one_line(
            f"{self.path}: position {self.position} (commitLogOffset {self.start}): {self.reason}; "
            f"{self.stop - self.start} bytes cannot be read: "
            "mode=DROPMALFORMED reads the rest, mode=PERMISSIVE shows the place in column 'corrupt'"
        )


@dataclass(frozen=True)
class Run:
    """Whole units in a window. Valid until the next one is asked for.

    Attributes:
        window: their bytes.
        base: the physical offset that the window begins with.
        positions: their physical offsets.
        places: where in the window they are, when that is not their distance from `base`.
    """

    window: memoryview
    base: int
    positions: Positions
    places: Positions | None = None

    def only(self, which: "npt.NDArray[np.bool_] | slice") -> "Run":
        """Some of the units."""
        return Run(self.window, self.base, self.positions[which], None if self.places is None else self.places[which])

    def add_to(self, builder: BatchBuilder) -> None:
        """Decode the units."""
        builder.append(self.window, self.positions, base=self.base, places=self.places)


@dataclass(frozen=True)
class Claims:
    """Where an accelerator says that units of one segment are.

    Attributes:
        positions: physical offsets, growing.
        sizes, queue_offsets: what it says of each; None where it says nothing.
    """

    positions: Positions
    sizes: npt.NDArray[np.int32] | None = None
    queue_offsets: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, start: int, stop: int) -> "Claims":
        """The claims [start, stop)."""
        sizes = None if self.sizes is None else self.sizes[start:stop]
        return Claims(
            self.positions[start:stop], sizes, None if self.queue_offsets is None else self.queue_offsets[start:stop]
        )


def segments_of(layout: Layout) -> tuple[list[Segment], list[Damage]]:
    """The segments of a store, and what is wrong with their names and sizes.

    Raises:
        DamagedStoreError: two files claim the same physical offsets.
    """
    files = list(layout.segments)
    while files and files[-1].size == 0:  # a crash between creating and mapping a file; brokers delete it
        files.pop()
    sizes = Counter(file.size for file in files)
    # A segment begins at a multiple of its size.
    fits = {size: size > 0 and all(file.start % size == 0 for file in files) for size in sizes}
    usual = max(sizes, key=lambda size: (fits[size], sizes[size], size), default=0)
    segments: list[Segment] = []
    faults: list[Damage] = []
    for file in files:
        if segments:
            faults += _gap(segments[-1], file)
        segments.append(Segment(file.path, file.start, file.start + usual, file.size))
        if file.size != usual:
            faults.append(
                Damage(
                    file.path,
                    file.start + min(file.size, usual),
                    file.start + max(file.size, usual),
                    min(file.size, usual),
                    f"expected a file of {usual} bytes like its neighbours, found {file.size}: it was cut or padded, "
                    "perhaps by a copy that did not finish",
                )
            )
    return segments, faults


def _gap(before: Segment, file: SegmentFile) -> list[Damage]:
    if file.start < before.end:
        raise DamagedStoreError(
            f"{file.path}: begins at physical offset {file.start}, but {before.path} reaches to {before.end}: "
            "these files are not of one commitlog; put each store into a directory of its own"
        )
    if file.start == before.end:
        return []
    return [
        Damage(
            file.path,
            before.end,
            file.start,
            0,
            f"a gap in the commitlog: expected a file {before.end:020d} behind {before.path}, found {file.start:020d}; "
            "bring the missing segments back (those of a commitlog in several directories: option storePathCommitLog)",
        )
    ]


class Scans(Protocol):
    """What takes units from a window, as a native_io.Decoder does."""

    def scan(
        self,
        window: memoryview,
        *,
        base: int,
        position: int,
        stop: int,
        segment_end: int,
        verify_crc: bool,
        most: int,
    ) -> tuple[int, int, Status, int, int]:
        """Take units from `position` on; see native_io.Decoder.scan."""


class SegmentReader:
    """Reads units of one segment through a window that slides over it. A context manager.

    Args:
        segment: the segment.
        verify_crc: whether a unit's bodyCRC must be right.
        queues: asked, before reading goes on behind a damage, whether it knows the unit found there.
        files: how to reach files, and where requests and bytes are counted.
    """

    def __init__(self, segment: Segment, verify_crc: bool, queues: ConsumeQueues, files: Files) -> None:
        self.segment = segment
        self._verify_crc = verify_crc
        self._queues = queues
        self._file = ReadFile(segment.path, files)
        self._file_end = segment.start + min(self._file.size, segment.end - segment.start)
        self._buffer = memoryview(bytearray())
        self._positions: Positions = np.empty(WINDOW_UNITS, np.int64)
        self._window = self._buffer[:0]
        self._base = segment.start
        self._ahead = min(_FIRST_WINDOW, WINDOW_SIZE)

    def __enter__(self) -> "SegmentReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()

    def decode(self, start: int, stop: int, decoder: "Scans", room: Callable[[], int]) -> Iterator[Damage | None]:
        """Decode all units that begin in [start, stop), step by step.

        Args:
            start: a unit's start.
            stop: the log's end, another unit's start, or the segment's end, where there must be a blank.
            decoder: where the units go.
            room: says before each step how many units may be added.

        Yields:
            None after a step, so that the decoder can be emptied; what is damaged between two units.
        """
        for outcome in self._steps(start, stop, lambda: functools.partial(decoder.scan, most=room())):
            yield outcome if isinstance(outcome, Damage) else None

    def select(self, start: int, stop: int, wanted: Filter, last: int = _MOST) -> "Iterator[Run | Damage]":
        """The wanted units that begin in [start, stop), run by run, and what is damaged between units; bounds as of
        decode(). No unit behind `last` is wanted, so that it need not go on there."""
        step = functools.partial(wanted.scan, positions=self._positions)
        for outcome in self._steps(start, stop, lambda: step, last):
            if isinstance(outcome, Damage):
                yield outcome
            elif outcome > 0:
                yield Run(self._window, self._base, self._positions[:outcome])

    def pick(self, claims: "Claims", first: int, wanted: Filter) -> "tuple[Run | None, int, bool]":
        """Look at claims from `first` on, as many as go into a window.

        Returns:
            (run, next, hold): the wanted units among them; the first claim not looked at; and False when the log has
            something else where that one should be.
        """
        some = claims.part(first, first + WINDOW_UNITS)
        places, lengths = np.empty((2, len(some)), np.int64)
        sizes = np.full(len(some), _PEEK_SIZE, np.int32) if some.sizes is None else some.sizes
        self._window = self._room(WINDOW_SIZE)
        count = self._file.gather(some.positions - self.segment.start, sizes, self._window, places, lengths)
        run, taken, status, need = self._picked(some.part(0, count), places, lengths, wanted)
        if taken == 0 and (count == 0 or status is Status.MORE):
            need, at = (int(sizes[0]) if count == 0 else need), int(some.positions[0])
            if not 0 < need <= self._file_end - at or (need > BIG_UNIT and not self._outline_fits(at, need)):
                return None, first, False
            self._load(at, need)
            one = np.array([0]), np.array([len(self._window)])
            run, taken, status, need = self._picked(some.part(0, 1), *one, wanted)
            return run, first + taken, status is Status.LIMIT
        return run, first + taken, status in (Status.LIMIT, Status.MORE)

    def _picked(
        self, claims: "Claims", places: Positions, lengths: Positions, wanted: Filter
    ) -> "tuple[Run | None, int, Status, int]":
        """Filter.pick() on the window: wanted units, how many claims were looked at, why it stopped, what it needs."""
        answers = np.empty(len(claims), np.int64)
        count, taken, status, expected, _ = wanted.pick(
            self._window,
            segment_end=self.segment.end,
            verify_crc=self._verify_crc,
            positions=claims.positions,
            places=places,
            lengths=lengths,
            sizes=claims.sizes,
            queue_offsets=claims.queue_offsets,
            wanted=answers,
        )
        which = answers[:count]
        run = Run(self._window, 0, claims.positions[which], places[which]) if count else None
        return run, taken, status, expected

    def _steps(
        self, start: int, stop: int, next_step: Callable[[], Step], last: int = _MOST
    ) -> "Iterator[int | Damage]":
        """Let the kernel walk from `start` to `stop`, or over `last`: how many units each step gave, and what is
        damaged between two."""
        at = start
        while at < stop and at <= last:
            count, at, status, expected, found = self._scan(at, stop, next_step())
            yield count
            if status in (Status.FULL, Status.LIMIT):
                continue
            if status is Status.BLANK and stop >= self._file_end:
                return
            behind = self._behind_damage(at, status, stop)
            yield self.damage(at, behind, explain(status, expected, found))
            at = behind
        if stop == self._file_end < self.segment.end and start < stop and at <= last:
            missing = self.segment.end - stop
            yield self.damage(stop, self.segment.end, f"the file ends without a blank: {missing} bytes are missing")

    def walk(self, start: int, stop: int) -> tuple[int | None, int, Status]:
        """Step over the units from `start` on, up to `stop`.

        Returns:
            (last, at, status): the start of the last unit, or None; the first byte not passed; and why.
        """
        last, at = None, start
        while True:
            run, at, status, _, _ = self._run(at, stop)
            if run is not None:
                last = int(run.positions[-1])
            if status is not Status.FULL:
                return last, at, status

    def run_at(self, start: int, stop: int) -> Run | None:
        """The units from `start` on, as many as a window shows; None when there is none."""
        return self._run(start, stop)[0]

    def header(self, position: int) -> Header | None:
        """The unit at a physical offset, or None when there is none. Without verify_crc its body is not read."""
        run, _, status, size, _ = self._run(position, self.segment.end, most=1, may_load=self._verify_crc)
        if status is Status.MORE and position + size <= self._file_end:
            window = self._outline(position, size)
            if self._check_outline(window, position, self.segment.end)[0] is Status.FULL:
                run = Run(window, position, np.array([position]))
        return None if run is None else headers(run)[0]

    def find(self, start: int, stop: int) -> int | None:
        """The first place in [start, stop) where a unit stands that is whole in every check, or None."""
        at, need = start, 0
        while at < stop:
            self._show(at, need, stop)
            at, status, need = find_unit(
                self._window,
                base=self._base,
                position=at,
                stop=stop,
                segment_end=self.segment.end,
                verify_crc=self._verify_crc,
            )
            if status is Status.OK:
                return at
            if status is Status.LIMIT:
                return None
            if at + need > self._file_end:
                if need <= FORMAT["BLANK_SIZE"]:
                    return None
                at, need = at + 1, 0  # something that names more bytes than the file has is no unit
            elif need > BIG_UNIT and not self._outline_fits(at, need):
                at, need = at + 1, 0
        return None

    def read(self, start: int, size: int) -> bytes:
        """The bytes at a physical offset; fewer where the file ends."""
        return self._file.read(start - self.segment.start, size)

    def data_extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, stop) that are not holes in the file."""
        base = self.segment.start
        for begin, end in self._file.extents(start - base, min(stop, self._file_end) - base):
            yield begin + base, end + base

    def damage(self, start: int, stop: int, reason: str) -> Damage:
        """A damage in this segment."""
        return Damage(self.segment.path, start, stop, start - self.segment.start, reason)

    def _run(
        self, at: int, stop: int, most: int = WINDOW_UNITS, may_load: bool = True
    ) -> tuple[Run | None, int, Status, int, int]:
        """_scan, with the units as a run, or None."""
        step = functools.partial(scan, positions=self._positions[:most])
        count, at, status, expected, found = self._scan(at, stop, step, peek=most == 1, may_load=may_load)
        run = Run(self._window, self._base, self._positions[:count]) if count else None
        return run, at, status, expected, found

    def _scan(
        self, at: int, stop: int, step: Step, peek: bool = False, may_load: bool = True
    ) -> tuple[int, int, Status, int, int]:
        """Let the kernel step over units from `at` on as far as one window shows them.

        Args:
            step: the kernel's scan, or a decoder's.
            peek: only the first unit is wanted.
            may_load: if not, only what is in the window or near is looked at.

        Returns:
            What the kernel returns; FULL means that it only has to be called again.
        """
        need = 0
        while True:
            self._show(at, need, at + _PEEK_SIZE if peek else stop)
            count, reached, status, expected, found = step(
                self._window,
                base=self._base,
                position=at,
                stop=stop,
                segment_end=self.segment.end,
                verify_crc=self._verify_crc,
            )
            if status is not Status.MORE:
                return count, reached, status, expected, found
            if reached > at:
                return count, reached, Status.FULL, expected, found
            if at + expected > self._file_end or (expected > _PEEK_SIZE and not may_load):
                return 0, at, status, expected, self._file_end - at
            if expected <= need:  # the file has become shorter since it was opened
                return 0, at, status, expected, len(self._window)
            need = expected
            if need > BIG_UNIT:
                status, expected, found = self._check_outline(self._outline(at, need), at, stop)
                if status is not Status.FULL:
                    return 0, at, status, expected, found

    def _show(self, at: int, need: int, stop: int) -> None:
        """Let the window hold `need` bytes from `at` on, or what the file has of them."""
        shown = self._base + len(self._window) - at
        if self._base <= at and shown >= max(need, FORMAT["BLANK_SIZE"]):
            return
        size = max(need, min(self._ahead, stop - at))
        self._ahead = min(2 * self._ahead, WINDOW_SIZE)  # who has read on will go on reading
        self._load(at, size)

    def _load(self, at: int, size: int) -> None:
        """Let the window hold `size` bytes from `at` on, or what the file has of them."""
        room = self._room(size)
        self._window = room[: self._file.read_into(room, at - self.segment.start)]
        self._base = at

    def _room(self, size: int) -> memoryview:
        """A buffer of that size; what is in the window is lost."""
        buffer = self._buffer if size <= len(self._buffer) else memoryview(bytearray(size))
        if size <= WINDOW_SIZE:  # what a huge unit takes is given back
            self._buffer = buffer
        self._base = self._file_end  # so that nobody takes the window for a part of the log
        return buffer[:size]

    def _outline(self, at: int, size: int) -> memoryview:
        """A unit of `size` bytes without its body, in memory that takes no room before it is written to.

        A size is only a claim until the unit's far end agrees; and the body is not wanted where only the rest is.
        """
        window = memoryview(mmap.mmap(-1, size))
        offset = at - self.segment.start
        self._file.read_into(window[:_HEAD_SIZE], offset)
        behind = max(behind_body(window[:_HEAD_SIZE]), size - _TAIL_SIZE, _HEAD_SIZE)
        self._file.read_into(window[behind:], offset + behind)
        return window

    def _check_outline(self, window: memoryview, at: int, stop: int) -> tuple[Status, int, int]:
        """Do its lengths fit together? Status FULL says so."""
        _, _, status, expected, found = scan(
            window,
            base=at,
            position=at,
            stop=stop,
            segment_end=self.segment.end,
            verify_crc=False,
            positions=np.empty(1, np.int64),
        )
        return status, expected, found

    def _outline_fits(self, at: int, size: int) -> bool:
        return self._check_outline(self._outline(at, size), at, self.segment.end)[0] is Status.FULL

    def _behind_damage(self, at: int, status: Status, stop: int) -> int:
        """Where to read on: the next unit that can be proved, or `stop`.

        What looks like a unit may stand in a message's body. So the ConsumeQueues are asked where there are some.
        """
        if status is Status.BAD_BLANK or (status is Status.BAD_MAGIC and self._total(at) == self.segment.end - at):
            return stop  # a blank it was; what lies behind one is not part of the log
        # With only the CRC wrong all lengths fit.
        known = [self._total(at)] if status is Status.BAD_BODY_CRC else self._queues.sizes_at(at)
        for size in known:
            if size >= FORMAT["SMALLEST_UNIT"] and self._continues(at + size, stop):
                return at + size
        place = self._next_proved(at + 1, stop)
        if place is None or self._has_blank(at, place):
            return stop
        return place

    def _next_proved(self, start: int, stop: int) -> int | None:
        """The first unit that a ConsumeQueue knows; where they seem to be behind, the first that none contradicts."""
        patience = _UNKNOWN_UNITS if self._queues.in_use else 1
        not_denied = None
        place = self.find(start, stop)
        while place is not None:
            known = self.vouched(place)
            if known:
                return place
            if known is None:
                not_denied = place if not_denied is None else not_denied
                patience -= 1
                if patience == 0:
                    break
            place = self.find(place + 1, stop)
        return not_denied

    def _total(self, at: int) -> int:
        return int.from_bytes(self.read(at, 4), "big", signed=True)

    def _continues(self, at: int, stop: int) -> bool:
        """Does the log go on at a place: with a unit, whole or with a wrong CRC, a blank, or the end?"""
        return at == stop or (
            at < stop
            and self._run(at, stop, most=1)[2] in (Status.FULL, Status.LIMIT, Status.BLANK, Status.BAD_BODY_CRC)
        )

    def _has_blank(self, start: int, stop: int) -> bool:
        """Does a blank that reaches exactly to the segment's end begin in [start, stop)?"""
        magic = struct.pack(">i", FORMAT["MAGIC_BLANK"])
        for base in range(start, stop, WINDOW_SIZE):
            data = self.read(base, min(WINDOW_SIZE, stop - base) + FORMAT["BLANK_SIZE"] - 1)
            hit = data.find(magic, 4)
            while hit >= 0:
                if struct.unpack_from(">i", data, hit - 4)[0] == self.segment.end - (base + hit - 4):
                    return True
                hit = data.find(magic, hit + 1)
        return False

    def holds(self, queue: Queue, queue_offset: int, unit: QueueUnit) -> bool:
        """Does the log have the message that a ConsumeQueue has this unit for?"""
        there = self.header(unit.position)
        return there is not None and (there.topic, there.queue_id, there.queue_offset, there.size) == (
            queue.topic,
            queue.queue_id,
            queue_offset,
            unit.size,
        )

    def vouched(self, position: int) -> bool | None:
        """Does the ConsumeQueue know the unit at `position`? None when it has nothing to say."""
        unit = self.header(position)
        if unit is None:
            return False
        return self._queues.vouches(unit.topic, unit.queue_id, unit.queue_offset, position, unit.size)


def headers(run: Run) -> list[Header]:
    """The headers of a run's units."""
    places = run.positions - run.base if run.places is None else run.places
    return [
        header_in(run.window, at, position)
        for at, position in zip(places.tolist(), run.positions.tolist(), strict=True)
    ]
