"""Reading the units of a segment: one after the other, or single ones. Reading stops at bytes that are no unit.

Reading on after such bytes is another module's work (store/structures/past_damage.py), and so is the question whether a
unit belongs to the live log (store/live_log.py).
Source: org.apache.rocketmq.store.CommitLog.
"""

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from typing import Protocol, TypeVar

import numpy as np

from native_io import FORMAT, Filter, Status, Walked, Wrapping, find_unit, scan
from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.message import HEAD_SIZE, Header, body_crc, body_in, header_in, is_batch
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.format.units import BatchBuilder, Claims, Positions, Run
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.body_sums import BodySums
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.entries import Entry, EntryOrder, entry_in
from rmqstore_spark.store.structures.segments import Segment
from rmqstore_spark.store.structures.window import FIRST_WINDOW, WINDOW_SIZE, Window

WINDOW_UNITS = 8192
_FEW_CLAIMS = 128
BIG_UNIT = 16 * 1024 * 1024  # bytes: the far end of a larger unit is read before the rest
_FAR = WINDOW_SIZE // 2  # bytes: the same limit for a search, which passes most of the bytes that it reads
_PEEK_SIZE = 2048  # bytes read first where one unit is asked for: enough for a message of a kilobyte
_NEAR = 4096  # bytes between two units that are cheaper to read than to ask for twice (Prices.gap)
_MOST = (1 << 63) - 1
_ALL_UNITS = 1 << 30

_Given = TypeVar("_Given")
Step = Callable[..., Walked]


def is_in_own(header: Header, queue: Queue, queue_offset: int) -> bool:
    """Was a message sent to a queue, and is it there at an offset?"""
    return (header.topic, header.queue_id, header.queue_offset) == (queue.topic, queue.queue_id, queue_offset)


class UnitSink(Protocol):
    """A receiver of units, window by window, such as native_io.Dispatcher."""

    def dispatch(
        self,
        window: memoryview,
        *,
        base: int,
        position: int,
        stop: int,
        segment_end: int,
        verify_crc: bool,
        most: int,
        wrapping: Wrapping | None = None,
    ) -> Walked:
        """Take units from `position` on; see native_io.Dispatcher.dispatch."""


class SegmentReader:
    """Reads units of one segment. A context manager.

    Large because each way to read units (a walk, one, many, their headers only, a search) is a method over the same
    window.

    Args:
        segment: the segment.
        files: how to reach files, and where requests and bytes are counted.
        verify_crc: whether a unit's bodyCRC must be right.

    Raises:
        RmqStoreError: the file cannot be opened; the text says why.
    """

    def __init__(self, segment: Segment, files: Files, verify_crc: bool = False) -> None:
        self.segment = segment
        self._window = Window(segment, files)
        self._wrapping = segment.wrapping
        self._verify_crc = verify_crc
        self._outline, self._outlined = memoryview(b""), (0, 0)  # the last outline; its unit's position and size
        self._claims_at_once = _FEW_CLAIMS  # about as many as fit into a window

    # A plan opens many readers for a look or two: what a look does not need is made when first used.

    @kept
    def _sums(self) -> BodySums:
        return BodySums(self._window)

    @kept
    def _positions(self) -> Positions:
        return np.empty(WINDOW_UNITS, np.int64)

    @kept
    def _scan_many(self) -> "functools.partial[Walked]":
        return functools.partial(scan, positions=self._positions)

    @kept
    def _scan_one(self) -> "functools.partial[Walked]":
        return functools.partial(scan, positions=np.empty(1, np.int64))

    def __enter__(self) -> "SegmentReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Runs that were read become invalid."""
        self._window.close()

    def begin_anew(self) -> None:
        """What is read next need not go on from what was read: no more is read ahead than at first."""
        self._window.begin_anew()

    # ---- bytes

    @property
    def file_end(self) -> int:
        """The physical offset where the segment's file ends, or the segment does if that is earlier."""
        return self._window.file_end

    def read(self, at: int, size: int) -> bytes:
        """The bytes at a physical offset, fewer where the file ends."""
        return self._window.read(at, size)

    def seen(self, at: int, size: int) -> bytes | memoryview:
        """read(), but from memory where the bytes are in the window."""
        return self._window.seen(at, size)

    def load(self, at: int, size: int) -> None:
        """Have bytes in memory, as many as the file has, so that the steps over their units take one request."""
        self._window.load(at, size)

    def expect(self, start: int, stop: int) -> None:
        """Announce that the bytes [start, stop) are read next, from start to end, if nothing in them stops the
        reading."""
        self._window.expect(start, stop)

    def data_extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, stop) that are not holes in the file."""
        return self._window.data_extents(start, stop)

    def data_end(self) -> int:
        """The physical offset after the last data of the file; only zeros follow."""
        return self._window.data_end()

    @contextlib.contextmanager
    def unchecked(self) -> Iterator[None]:
        """A context in which a unit's bodyCRC need not be right."""
        verify_crc, self._verify_crc = self._verify_crc, False
        try:
            yield
        finally:
            self._verify_crc = verify_crc

    # ---- units one after the other

    def decode(
        self, start: int, stop: int, builder: BatchBuilder, chosen: Filter | None = None
    ) -> Generator[int, None, Walked]:
        """Decode the units that begin in [start, stop), step by step, up to the first bytes that are no unit.

        Args:
            start: a unit's start.
            stop: the log's end, another unit's start, or the segment's end, where there must be a blank.
            builder: takes the units: in each step no more than its budget.
            chosen: which units are decoded; None: all.

        Yields:
            the number of units of each step, so that the builder can be emptied in between.
        """

        def step(at: int) -> Walked:
            return self._decoded(at, stop, builder, chosen)

        return self._steps(start, stop, step, lambda count: count)

    def feed(self, start: int, stop: int, sink: UnitSink) -> Generator[int, None, Walked]:
        """Pass the units that begin in [start, stop) to a sink, window by window, without decoding; like decode()
        otherwise."""
        step = functools.partial(sink.dispatch, most=_ALL_UNITS)
        return self._steps(start, stop, lambda at: self._scan(at, stop, step), lambda count: count)

    def select(self, start: int, stop: int, chosen: Filter, last: int = _MOST) -> Generator[Run, None, Walked]:
        """The units that a filter chooses among those that begin in [start, stop), run by run; bounds as in decode().
        At most `last` units are chosen, and reading stops after them."""
        step = functools.partial(chosen.scan, positions=self._positions)
        return self._steps(start, stop, lambda at: self._scan(at, stop, step), self._run_of, last)

    def walk(self, start: int, stop: int, order: EntryOrder | None = None) -> tuple[int | None, Walked]:
        """Step over the units from `start` on, up to `stop`.

        Args:
            order: where units are wrapped, follows their entries. The first one that does not go on from the one before
                it ends the walk with NO_ENTRY.

        Returns:
            the start of the last unit, or None; and where and why the walk stopped (`units` counts the last window's
            units).
        """
        last, at = None, start
        while True:
            run, walked = self._run(at, stop)
            count = 0 if run is None else self._in_order(run, order)
            if run is not None and count > 0:
                last = int(run.positions[count - 1])
            if run is not None and count < len(run.positions) and self._wrapping is not None and order is not None:
                # The last entry may lie on the header of one that is left over, and end where that one's unit begins.
                left = max(int(run.positions[count]) - self._wrapping.header, order.end)
                return last, Walked(count, left, Status.NO_ENTRY, left, left)
            if walked.status is not Status.FULL:
                return last, walked
            at = walked.at

    def _in_order(self, run: Run, order: EntryOrder | None) -> int:
        """The number of units of a run whose entries are in order."""
        if order is None or self._wrapping is None:
            return len(run.positions)
        return order.take(run, self._wrapping, lambda at, size: self.seen(max(at, self.segment.start), size))

    def entry(self, unit: Header) -> Entry | None:
        """The place of a unit's entry in the order of its log; None where units are not wrapped, or it has no entry."""
        if self._wrapping is None or unit.position - self._wrapping.header < self.segment.start:
            return None
        begin = unit.position - self._wrapping.header
        return entry_in(bytes(self.seen(begin, self._wrapping.header)), self._wrapping, begin, unit.size)

    def run_at(self, start: int, stop: int, size: int = 0) -> Run | None:
        """The units from `start` on, as many as a window shows; None when there is none.

        Args:
            size: the least bytes to show, if the file has them.
        """
        if size:
            self._window.show(start, 0, start + size)
        return self._run(start, stop)[0]

    def feed_one(self, position: int, sink: UnitSink) -> None:
        """Pass the unit at a physical offset, where there is one, to a sink."""
        end = self.segment.end
        run = self.run_at(position, end)
        if run is not None:
            sink.dispatch(
                run.window, base=run.base, position=position, stop=end, segment_end=end, verify_crc=False, most=1
            )

    def first_headers(self, start: int, size: int = FIRST_WINDOW) -> list[Header]:
        """The headers of the units from `start` on that one read of `size` bytes shows; that of the first unit in any
        case."""
        self._window.show(start, 0, start + size)
        run = self._run(start, self.segment.end, may_load=False)[0]
        if run is not None:
            return run.headers()
        first = self.header(start)
        return [] if first is None else [first]

    def headers(self, start: int, stop: int) -> Iterator[Header]:
        """The headers of the units that begin in [start, stop), up to the first bytes that are no unit."""
        at = start
        while at < stop and (run := self.run_at(at, stop)) is not None:
            found = run.headers()
            yield from found
            at = found[-1].position + found[-1].size

    # ---- single units

    def pick(self, claims: Claims, first: int, chosen: Filter) -> tuple[Run | None, Walked]:
        """Check claims from index `first` on, as many as fit into a window.

        Returns:
            the units that the filter chooses, or None; and `at`: the first claim not checked. A status other than
            LIMIT: the log has no such unit where that claim's unit should be.
        """
        some = claims.part(first, first + self._claims_at_once).up_to_other_kind()
        offsets, lengths = np.empty((2, len(some)), np.int64)
        sizes = np.full(len(some), _PEEK_SIZE, np.int32) if some.sizes is None else some.sizes
        count = self._window.gather(some.positions, sizes, offsets, lengths)
        self._claims_at_once = min(max(_FEW_CLAIMS, 2 * count), WINDOW_UNITS)
        run, walked = self._picked(some.part(0, count), offsets, lengths, chosen)
        if walked.at > 0 and walked.status is Status.MORE:
            walked = walked._replace(status=Status.LIMIT)  # the next claim comes with the next window
        elif count == 0 or walked.status is Status.MORE:
            need, at = int(sizes[0]) if count == 0 else walked.expected, int(some.positions[0])
            if not 0 < need <= self._window.file_end - at or (need > BIG_UNIT and not self._outline_fits(at, need)):
                return None, Walked(0, first, Status.MORE, need, self._window.file_end - at)
            self._window.load(at, need)
            one = np.array([0]), np.array([len(self._window.data)])
            run, walked = self._picked(some.part(0, 1), *one, chosen)
        return run, walked._replace(at=first + walked.at)

    def header(self, position: int, after: int = 0) -> Header | None:
        """The unit at a physical offset, or None when there is none. Without verify_crc the body is not read: a unit
        takes one request, a large unit another one for its end.

        Args:
            after: bytes after a large unit that are read along with its end.
        """
        status, header = self.look(position, after)
        return header if status is Status.FULL else None

    def look(self, position: int, after: int = 0) -> tuple[Status, Header | None]:
        """Check a physical offset: FULL and the unit, BAD_BODY_CRC and the unit, or the reason why there is no unit.

        Args:
            after: see header().
        """
        position = self._past_header(position, self.segment.end)
        walked = self._scan(position, self.segment.end, self._scan_one, peek=True)
        status, size = walked.status, walked.expected
        data, at = self._window.data, position - self._window.base
        if status is Status.MORE and position + size <= self._window.file_end:
            if after or self._outlined != (position, size):
                self._outline, self._outlined = self._window.outline(position, size, after), (position, size)
            data, at = self._outline, 0
            status = self._check_outline(data, position, self.segment.end).status
        if status is not Status.FULL:
            return status, None
        header = header_in(data, at, position)
        return (Status.FULL if self._is_right(data[at:], position) else Status.BAD_BODY_CRC), header

    def _is_right(self, unit: memoryview, position: int) -> bool:
        """Does the body of a unit agree with its bodyCRC?"""
        begin, end = body_in(unit)
        if not self._verify_crc or begin == end:
            return True
        return self._sums.of(position + begin, position + end) & 0x7FFFFFFF == body_crc(unit)

    def headers_at(self, position: int) -> list[Header]:
        """The headers of the unit at a physical offset and of the next units that the same read shows; none where there
        is no unit."""
        header = self.header(position)
        if header is None:
            return []
        run = self._run(position, self.segment.end, may_load=False)[0] if header.size <= _PEEK_SIZE else None
        return [header] if run is None else run.headers()

    def two_headers(self, first: int, second: int) -> tuple[list[Header], list[Header]]:
        """The header of the first unit, and headers_at() of the second one, for the price of one request where the
        second unit comes soon after the first."""
        near = second + _PEEK_SIZE - first
        if _PEEK_SIZE < near <= _PEEK_SIZE + _NEAR:
            self._window.show(first, near, first + near)
        header = self.header(first, after=_PEEK_SIZE)
        return [] if header is None else [header], self.headers_at(second)

    def has_message(self, queue: Queue, queue_offset: int, unit: QueueUnit) -> bool:
        """Does the log hold the message that a ConsumeQueue has this unit for?"""
        self._window.expect_ends(unit.position, unit.size)
        self._window.show(unit.position, 0, unit.position + min(max(unit.size, HEAD_SIZE), _PEEK_SIZE))
        there = self.header(unit.position)
        return there is not None and there.size == unit.size and self.is_in(there, queue, queue_offset)

    def is_in(self, header: Header, queue: Queue, queue_offset: int) -> bool:
        """Is a message of this segment in a queue at an offset? Its properties tell which light queues it is in."""
        if not queue.is_additional:
            return is_in_own(header, queue, queue_offset)
        here = Filter(conditions=[{"lightQueue": {queue.topic: (queue_offset, queue_offset)}}])
        return self.pick(Claims(np.array([header.position], np.int64)), 0, here)[0] is not None

    def is_closed_at(self, at: int) -> bool:
        """Is the segment's closing blank at a physical offset? Nothing but the blank is read."""
        self._window.show(at, FORMAT["BLANK_SIZE"], at + FORMAT["BLANK_SIZE"])
        return self.status_at(at, self.segment.end) is Status.BLANK

    def status_at(self, at: int, stop: int) -> Status:
        """The status of a physical offset: FULL or LIMIT for a unit, else the reason why there is no unit."""
        if at >= stop:
            return Status.LIMIT
        status, header = self.look(at)
        is_over = status is Status.FULL and header is not None and header.position + header.size > stop
        return Status.CROSSES_STOP if is_over else status

    def find(self, start: int, stop: int) -> int | None:
        """The first physical offset in [start, stop) with a unit that is whole in every check, or None. The time is
        linear in the bytes, whatever they are."""
        at, need = start, 0
        while at < stop:
            self._window.show(at, need, stop)
            _, at, status, need, _ = find_unit(
                self._window.data,
                base=self._window.base,
                position=at,
                stop=stop,
                segment_end=self.segment.end,
                verify_crc=self._verify_crc,
            )
            if status is Status.OK:
                return at
            if status is Status.LIMIT:
                return None
            if at + need > self._window.file_end:
                if need <= FORMAT["BLANK_SIZE"]:
                    return None
                at, need = at + 1, 0  # bytes that name a size beyond the file's end are no unit
            elif need > _FAR:
                if self.look(at)[0] is Status.FULL:
                    return at
                at, need = at + 1, 0
        return None

    # ---- one step

    def _steps(
        self, start: int, stop: int, step: Callable[[int], Walked], given: Callable[[int], _Given], last: int = _MOST
    ) -> Generator[_Given, None, Walked]:
        """Let the kernel walk from `start` to `stop`, or over `last` units. Yields what `given` makes of each step's
        number of units, where a step had any."""
        at = start
        self._window.expect(start, min(stop, last + 1))
        while at < stop and at <= last:
            walked = step(at)
            if walked.units > 0:
                yield given(walked.units)
            if walked.status not in (Status.FULL, Status.LIMIT):
                return walked
            at = walked.at
        return Walked(0, at, Status.LIMIT, 0, 0)

    def _decoded(self, at: int, stop: int, builder: BatchBuilder, chosen: Filter | None) -> Walked:
        """Decode units from `at` on: of one window, or of more where the kernel may read the file itself."""
        budget, decoder = builder.budget, builder.decoder
        walked = self._window.decode(decoder, at, stop, self._verify_crc, budget, chosen)
        if walked is not None and walked.status is not Status.MORE:
            return walked
        if chosen is None:
            return self._scan(at, stop, functools.partial(decoder.scan, most=budget.rows))
        copies_after = chosen.copies_after
        walked = self._scan(at, stop, functools.partial(chosen.scan, positions=self._positions[: budget.rows]))
        done = self._run_of(walked.units).add_to(builder, chosen)
        if done == walked.units:
            return walked
        # The budget ended inside a batch.
        if copies_after is not None:  # go back to the units before it, else it would be a copy of itself
            chosen.leave_out_copies(copies_after)
            return self._scan(at, stop, functools.partial(chosen.scan, positions=self._positions[:done]))
        return walked._replace(at=int(self._positions[done]), status=Status.FULL)

    def _run_of(self, count: int) -> Run:
        return Run(self._window.data, self._window.base, self._positions[:count])

    def _run(self, at: int, stop: int, may_load: bool = True) -> tuple[Run | None, Walked]:
        """_scan, with the units as a run, or None."""
        walked = self._scan(at, stop, self._scan_many, may_load=may_load)
        return self._run_of(walked.units) if walked.units else None, walked

    def _scan(self, at: int, stop: int, step: Step, peek: bool = False, may_load: bool = True) -> Walked:
        """Let the kernel step over units from `at` on as far as one window shows them.

        Args:
            step: the kernel's scan, or a decoder's.
            peek: only the first unit is wanted, and of it only the bytes that are near; its bodyCRC is not checked.
            may_load: if false, only bytes in the window or near it are used.

        Returns:
            The kernel's result; FULL means that the kernel only has to be called again.
        """
        need, window = 0, self._window
        may_load, verify_crc = may_load and not peek, self._verify_crc and not peek
        while True:
            window.show(at, need, at + _PEEK_SIZE if peek else stop)
            walked = step(
                window.data,
                base=window.base,
                position=at,
                stop=stop,
                segment_end=self.segment.end,
                verify_crc=verify_crc,
                wrapping=self._wrapping,
            )
            if walked.status is not Status.MORE:
                return walked
            if walked.at > at:
                return walked._replace(status=Status.FULL)
            expected = walked.expected
            is_beyond = at + expected > window.file_end or (expected > _PEEK_SIZE and not may_load)
            is_told_here = is_beyond or expected <= need or expected > BIG_UNIT
            if is_told_here and not peek and (unit := self._past_header(at, stop)) != at:
                at, need = unit, 0  # what is told or outlined is the unit, not the header before it
                continue
            if is_beyond:
                return Walked(0, at, Status.MORE, expected, window.file_end - at)
            if expected <= need:  # the file has become shorter since it was opened
                return Walked(0, at, Status.MORE, expected, len(window.data))
            need = expected
            if need > BIG_UNIT:
                outlined = self._check_outline(window.outline(at, need), at, stop)
                if outlined.status is not Status.FULL:
                    return outlined._replace(units=0, at=at)

    def _past_header(self, at: int, stop: int) -> int:
        """The start of the unit whose entry begins at a physical offset, or behind entries without a unit there; the
        place of the first that is no entry, or whose unit does not begin before `stop`."""
        wrapping = self._wrapping
        while wrapping is not None:
            self._window.show(at, wrapping.header, min(at + _PEEK_SIZE, self.segment.end))
            size = wrapping.entry_size(bytes(self._window.seen(at, wrapping.header)), at)
            after = at + wrapping.header
            if size is None or after >= stop:
                return at
            at = after
            if size > wrapping.header:
                return at
        return at

    def _picked(
        self, claims: Claims, offsets: Positions, lengths: Positions, chosen: Filter
    ) -> tuple[Run | None, Walked]:
        """Filter.pick() on the window, and the chosen units."""
        answers = np.empty(len(claims), np.int64)
        walked = chosen.pick(
            self._window.data,
            segment_end=self.segment.end,
            verify_crc=self._verify_crc,
            positions=claims.positions,
            window_offsets=offsets,
            lengths=lengths,
            sizes=claims.sizes,
            queue_offsets=claims.queue_offsets,
            chosen=answers,
        )
        which = answers[: walked.units]
        return Run(self._window.data, 0, claims.positions[which], offsets[which]) if walked.units else None, walked

    def _check_outline(self, outline: memoryview, at: int, stop: int) -> Walked:
        """Do the lengths in a unit's outline fit together? Status FULL if they do."""
        return scan(
            outline,
            base=at,
            position=at,
            stop=stop,
            segment_end=self.segment.end,
            verify_crc=False,
            positions=np.empty(1, np.int64),
        )

    def _outline_fits(self, at: int, size: int) -> bool:
        return self._check_outline(self._window.outline(at, size), at, self.segment.end).status is Status.FULL


def numbers_of(reader: SegmentReader, header: Header) -> range:
    """The queue offsets of a message, or of all in a batch; of a batch whose body is none, its own."""
    if not is_batch(header.sys_flag):
        return range(header.queue_offset, header.queue_offset + 1)
    builder = BatchBuilder(["queueOffset"], explodes=True)
    for _ in reader.decode(header.position, header.position + header.size, builder):
        pass
    return range(header.queue_offset, header.queue_offset + max(1, builder.finish().num_rows))
