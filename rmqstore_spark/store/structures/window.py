"""The part of a segment that is in memory: a window that slides along the log, and stays in the processor's cache."""

import bisect
import contextlib
import mmap
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from native_io import FORMAT, Decoder, Filter, Slide, Walked
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.message import LONGEST_HEAD, body_end
from rmqstore_spark.store.format.units import Budget, Positions
from rmqstore_spark.store.io.files import Files, cannot_read
from rmqstore_spark.store.structures.proofs import hold
from rmqstore_spark.store.structures.segments import Segment

WINDOW_SIZE = 512 * 1024  # bytes; they stay in the second-level cache between reading, checking and decoding
FIRST_WINDOW = 16 * 1024
_PASSING_WINDOW = 2 * 1024 * 1024 + 64 * 1024  # of reads that pass by: a page of slide.h, and some
_BLOCK = 4 * 1024
_TAIL_SIZE = 2 * (32767 + 2)  # the most bytes that can stand after a body
_NOTHING = memoryview(bytearray())

# Buffers of closed windows, for reuse: allocating a new one costs as much as decoding 100 KiB.
_spares: list[memoryview] = []
_MOST_SPARES = 8


class Window:
    """Bytes of one segment. All positions are physical offsets. The owner closes the window.

    Attributes:
        segment: the segment.
        file_end: the physical offset where its file ends as far as is known, or the segment does if that is earlier.
        data: the bytes in memory. Each call that reads changes them.
        base: the physical offset of the first byte of `data`; `file_end` when `data` is no single stretch of the log.

    Args:
        files: how to reach files, and where requests and bytes are counted.

    Raises:
        RmqStoreError: the file cannot be opened, or what a plan saw does not hold; the text says why.
    """

    def __init__(self, segment: Segment, files: Files) -> None:
        self.segment = segment
        self._files = files
        try:
            self._file = files.file(segment.path, is_log=True, pin=segment.pin)
        except RmqStoreError:
            hold(segment.proofs, files)  # which may know more of what is gone
            raise
        try:
            hold(segment.proofs, files)  # now: a write may put another store in the place of this one at any moment
            self.file_end = segment.start + min(self._file.size, segment.end - segment.start)
        except BaseException:
            self._file.close()
            raise
        self._buffer = self.data = _NOTHING
        self.base = segment.start
        self.begin_anew()

    def close(self) -> None:
        """Close the file. The bytes in memory are lost."""
        self._file.close()
        buffer, self._buffer, self.data = self._buffer, _NOTHING, _NOTHING
        if len(buffer) == WINDOW_SIZE and len(_spares) < _MOST_SPARES:
            _spares.append(buffer)

    @property
    def _most(self) -> int:
        """The most bytes that are shown at a time."""
        return _PASSING_WINDOW if self._file.flags else WINDOW_SIZE

    def begin_anew(self) -> None:
        """What is shown next need not go on from what was shown: no more is read ahead than at first."""
        self._ahead = min(FIRST_WINDOW, self._most)

    def expect(self, start: int, stop: int) -> None:
        """Announce that the bytes [start, stop) are shown next, from start to end, if nothing in them stops the
        reading."""
        self._file.expect(start - self.segment.start, min(stop, self.file_end) - self.segment.start)

    def show(self, at: int, need: int, stop: int) -> None:
        """Hold at least `need` bytes from `at` on, or as many as the file has; and more, but not beyond `stop`."""
        shown = self.base + len(self.data) - at
        if self.base <= at and shown >= max(need, FORMAT["BLANK_SIZE"]):
            return
        size = max(need, min(self._ahead, stop - at))
        self._ahead = min(2 * self._ahead, self._most)  # sequential reading mostly goes on
        self.load(at, size)

    def expect_ends(self, at: int, size: int) -> None:
        """Announce that the beginning and the end of a unit are needed next, where requests take long."""
        start = at - self.segment.start
        if self._files.is_slow and size > _BLOCK and 0 <= start <= self._file.size - size:
            self._files.prefetch([(self.segment.path, start), (self.segment.path, start + size - _BLOCK)])

    def load(self, at: int, size: int) -> None:
        """Hold `size` bytes from `at` on, or as many as the file has."""
        size = min(size, max(self.file_end - at, 0))  # finding the end of the file by a read would cost a request
        self.data = self._file.load(at - self.segment.start, size, self._of_size)
        self.base = at
        if len(self.data) < size:  # the file was cut since it was opened
            self.file_end = at + len(self.data)

    def decode(
        self, decoder: Decoder, at: int, stop: int, verify_crc: bool, budget: Budget, chosen: Filter | None
    ) -> Walked | None:
        """native_io.Slide.decode() from `at` on, with this window sliding along; None where the kernel cannot read the
        file."""
        if not self._files.is_slow:
            self.expect(at, stop)  # as far as it is now
        fd = self._file.descriptor
        if fd is None:
            return None
        if self.data.obj is not self._buffer.obj or len(self._buffer) < self._most:
            self.data = self._of_size(self._most)[:0]
        slide = Slide(self._buffer, base=self.base, shown=len(self.data), ahead=self._ahead)
        try:
            return slide.decode(
                decoder,
                fd,
                start=self.segment.start,
                end=self.file_end,
                position=at,
                stop=stop,
                segment_end=self.segment.end,
                verify_crc=verify_crc,
                most=budget.rows,
                enough=budget.nbytes,
                chosen=chosen,
                wrapping=self.segment.wrapping,
                flags=self._file.flags,
            )
        except OSError as why:
            raise cannot_read(self.segment.path, why, slide.base - self.segment.start) from None
        finally:
            self._files.count(slide.requests, slide.bytes)
            self.base, self._ahead = slide.base, slide.ahead
            self.data = self._buffer[: slide.shown]

    def gather(self, positions: Positions, sizes: npt.NDArray[np.int32], offsets: Positions, lengths: Positions) -> int:
        """Hold as many of these stretches as fit, one after the other.

        Args:
            positions, sizes: the physical offset and the size in bytes of each stretch.
            offsets, lengths: filled with the position of each stretch in `data`, and the number of its bytes that the
                file had.

        Returns:
            the number of stretches held.
        """
        self.data = self._of_size(WINDOW_SIZE)
        return self._file.gather(positions - self.segment.start, sizes, self.data, offsets, lengths)

    def read(self, at: int, size: int) -> bytes:
        """The bytes at a physical offset, fewer where the file ends; `data` stays as it is."""
        return self._file.read(at - self.segment.start, size)

    def seen(self, at: int, size: int) -> bytes | memoryview:
        """read(), but bytes in memory are not read again."""
        begin = at - self.base
        if 0 <= begin <= len(self.data) - size:
            return self.data[begin : begin + size]
        return self.read(at, size)

    def outline(self, at: int, size: int, after: int = 0) -> memoryview:
        """A unit of `size` bytes without its body, in sparse memory, which takes no space until written to. The unit's
        beginning is taken from `data` where possible.

        A size is only a claim until the unit's far end agrees; and sometimes the body is not needed at all.

        Args:
            after: bytes after the unit that `data` holds afterwards; 0: `data` stays as it is.
        """
        data = memoryview(_sparse(size))
        start = at - self.segment.start
        shown = self.data[at - self.base :][:LONGEST_HEAD] if at >= self.base else self.data[:0]
        if len(shown) == LONGEST_HEAD:
            data[:LONGEST_HEAD] = shown
        else:
            self._file.read_into(data[:LONGEST_HEAD], start)
        tail = max(body_end(data[:LONGEST_HEAD]), size - _TAIL_SIZE, LONGEST_HEAD)
        if after:
            self.load(at + tail, size - tail + after)
            found = self.data[: size - tail]
            data[tail : tail + len(found)] = found
        else:
            self._file.read_into(data[tail:], start + tail)
        return data

    def data_extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, stop) that are not holes in the file."""
        base = self.segment.start
        for begin, end in self._file.extents(start - base, min(stop, self.file_end) - base):
            yield begin + base, end + base

    def data_end(self) -> int:
        """The physical offset after the last data of the file; only zeros follow."""
        end = min(self.segment.start + self._file.likely_data_end(), self.file_end)
        if not any(self.read(max(end - _BLOCK, self.segment.start), _BLOCK)):  # zeros that take space on the disk
            blocks = range((end - self.segment.start) // _BLOCK)
            used = bisect.bisect_left(
                blocks, True, key=lambda n: not any(self.read(self.segment.start + n * _BLOCK, _BLOCK))
            )
            end = self.segment.start + used * _BLOCK
        return end

    def _of_size(self, size: int) -> memoryview:
        """A buffer of a size; the bytes in memory now are lost."""
        buffer = self._buffer if size <= len(self._buffer) else _new_buffer(size)
        if size <= self._most:  # the memory of a huge unit is given back
            self._buffer = buffer
        self.base = self.file_end  # so that `data` is not taken for a part of the log
        return buffer[:size]


def _new_buffer(size: int) -> memoryview:
    """Memory of a size; for a whole window mostly that of a closed window."""
    if size == WINDOW_SIZE:
        with contextlib.suppress(IndexError):
            return _spares.pop()
    return memoryview(bytearray(size))


def _sparse(size: int) -> mmap.mmap:
    """Memory in which only pages that are written to take space."""
    memory = mmap.mmap(-1, size)
    with contextlib.suppress(OSError):  # a system without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory
