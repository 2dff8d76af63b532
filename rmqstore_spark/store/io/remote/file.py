"""One object, read as a file: sequential reads by large blocks fetched ahead, scattered reads by pages, and reads of
many places at once by few requests."""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.io.files import Pin
from rmqstore_spark.store.io.read_ahead import BLOCK, PrefetchRange, ReadAhead
from rmqstore_spark.store.io.remote.pages import PageCache
from rmqstore_spark.store.io.remote.ranges import Ranges
from rmqstore_spark.store.io.remote.spans import Span, how_many_fit, spans
from rmqstore_spark.store.io.schedule import Concurrent

_MIB = 1024 * 1024
_LARGEST = 8 * _MIB  # bytes of a request for merged reads, or for a guessed sequential read
_BACKWARDS = 2 * _MIB  # bytes of a request for possible zeros at the end of a file: takes twice as long as one byte
_LOOK = 8 * _MIB  # bytes after the log's end that are read as a whole
_PROBES = 64  # places that are sampled in the rest
# Pages that are looked at together in a search for the end of an object's data; and how many an object has that is
# searched in two steps, each with as many looks as the root of that: 128 for a segment.
_PAGES_PROBED, _MANY_PAGES = 32, 33 * 33
PROBE_BYTES = 4 * 1024  # bytes that are likely to be read at a place
_FEW_PAGES = 4  # that are not taken for a block
_PAGES_OF_SMALL = 16  # of a small object, of which all pages are kept: it is mostly read whole, and more than once
_GATHERED_AT_ONCE = 16  # concurrent requests of one task


class RemoteFile:
    """One object: an OpenFile.

    Large because an OpenFile is read in three ways (one byte after the other, here and there, many places at once),
    each with its own requests.

    Args:
        ahead: the ranges fetched ahead, used if a range of this file was added there.
        gap: bytes that are cheaper to read than one request more.
    """

    descriptor = None
    flags = 0

    def __init__(self, path: str, pin: Pin, ranges: Ranges, pages: PageCache, ahead: ReadAhead, gap: int) -> None:
        self.path = path
        self._pin = pin
        self._ranges = ranges
        self._pages = pages
        self._ahead = ahead
        self._gap = gap
        self._blocks = self._range_ahead(0, 0)  # the range that is read sequentially
        self._next = -1  # the offset where the last load ended
        self._grown = pages.page_bytes

    def __enter__(self) -> "RemoteFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._blocks.clear()

    @property
    def size(self) -> int:
        return self._pin.size

    @property
    def _is_small(self) -> bool:
        return self.size <= _PAGES_OF_SMALL * self._pages.page_bytes

    def _fetch(self, start: int, stop: int) -> memoryview:
        return self._ranges.fetch(self.path, self._pin, start, stop)

    def _fetch_in_background(self, start: int, stop: int) -> "Future[memoryview]":
        return self._ranges.fetch_in_background(self.path, self._pin, start, stop)

    def _fetch_block(self, start: int, stop: int) -> "Future[memoryview]":
        return self._ranges.fetch_block(self.path, self._pin, start, stop)

    def _range_ahead(self, start: int, stop: int, whole: bool = False) -> PrefetchRange:
        fetch = self._fetch_block if stop - start > _FEW_PAGES * self._pages.page_bytes else self._fetch_in_background
        return ReadAhead().add(self.path, start, stop, fetch, whole)

    def _go_along(self, blocks: PrefetchRange) -> None:
        self._blocks.clear()
        self._blocks = blocks

    def expect(self, start: int, stop: int) -> None:
        start, stop = max(start, 0), min(stop, self.size)
        goes_on = self._blocks.has(start) and self._blocks.stop == stop
        if stop - start > self._pages.page_bytes and not goes_on:
            self._go_along(self._ahead.claim(self.path, start, stop) or self._range_ahead(start, stop))

    def load(self, offset: int, size: int, buffer: Callable[[int], memoryview]) -> memoryview:
        stop = min(offset + size, self.size)
        if offset >= stop:
            return buffer(0)
        goes_on = offset <= self._next < stop and size > self._pages.page_bytes // 8
        self._next = stop
        if not self._blocks.has(offset) and goes_on:
            # A reader that has read on twice will mostly go on; how far is unknown.
            self._grown = min(4 * self._grown, _LARGEST)
            end = min(offset + max(self._grown, size), self.size)
            if self._is_small:
                self._pages.prefetch(self.path, self._pin, offset, end)
            else:
                self._go_along(self._range_ahead(offset, end, whole=True))
        if self._blocks.has(offset) and (view := self._blocks.view(offset, stop)) is not None:
            return view
        whole = buffer(stop - offset)
        self._fill(whole, offset)
        return whole

    def read_into(self, buffer: memoryview, offset: int) -> int:
        stop = min(offset + len(buffer), self.size)
        if offset < 0 or offset >= stop:
            return 0
        self._fill(buffer[: stop - offset], offset)
        return stop - offset

    def _fill(self, buffer: memoryview, offset: int) -> None:
        """Fill `buffer` with bytes that the object has."""
        at, stop = offset, offset + len(buffer)
        while at < stop and self._blocks.is_fetched(at):
            part = self._blocks.part(at, stop)
            buffer[at - offset :][: len(part)] = part
            at += len(part)
        if at == stop:
            return
        if stop - at <= self._pages.page_bytes or self._is_small:
            self._pages.read_into(self.path, self._pin, buffer[at - offset :], at)
            return
        begin, *bounds = [*range(at, stop, BLOCK), stop]
        later = [(start, self._fetch_in_background(start, end)) for start, end in itertools.pairwise(bounds)]
        buffer[begin - offset : bounds[0] - offset] = self._fetch(begin, bounds[0])
        for start, block in later:
            data = block.result()
            buffer[start - offset :][: len(data)] = data

    def read(self, offset: int, size: int) -> bytes:
        buffer = bytearray(max(0, min(size, self.size - offset)))
        return bytes(buffer[: self.read_into(memoryview(buffer), offset)])

    def gather(
        self,
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32],
        buffer: memoryview,
        window_offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
    ) -> int:
        """See OpenFile: neighbours come in one request, and several requests are under way at once."""
        fit = how_many_fit(offsets, sizes, len(buffer))
        starts = np.minimum(offsets[:fit], self.size)
        counts = np.minimum(offsets[:fit] + sizes[:fit], self.size) - starts
        ends = np.cumsum(counts)
        window_offsets[:fit], lengths[:fit] = ends - counts, counts

        def put(span: Span, data: memoryview) -> None:
            for number in range(span.first, span.last):
                to, at, count = int(window_offsets[number]), int(starts[number]) - span.start, int(counts[number])
                buffer[to : to + count] = data[at : at + count]

        needed: list[int] = []
        for number in np.flatnonzero(counts).tolist():
            start, stop = int(starts[number]), int(starts[number] + counts[number])
            kept = self._pages.kept(self.path, self._pin, start, stop)
            if kept is None:
                needed.append(number)
            else:
                put(Span(number, number + 1, start, stop), kept)
        self._bring(spans(starts, counts, needed, self._gap, _LARGEST), put)
        return fit

    def _bring(self, wanted: list[Span], put: Callable[[Span, memoryview], None]) -> None:
        """Fetch spans, several at a time; a single one in this thread."""
        if len(wanted) == 1:
            put(wanted[0], self._fetch(wanted[0].start, wanted[0].stop))
            return
        waiting: deque[tuple[Span, Future[memoryview]]] = deque()
        for span in wanted:
            waiting.append((span, self._fetch_in_background(span.start, span.stop)))
            if len(waiting) >= _GATHERED_AT_ONCE:
                first, coming = waiting.popleft()
                put(first, coming.result())
        for span, coming in waiting:
            put(span, coming.result())

    def extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """See OpenFile. The part after the first megabytes counts as a hole if all sampled places have only zeros; only
        reading all of it could prove that."""
        stop = min(stop, self.size)
        near, page = min(start + _LOOK, stop), self._pages.page_bytes
        step = max((stop - near) // _PROBES, page)
        places = [*range(near, stop, step), *([max(stop - page, near)] if near < stop else [])]
        for at in places:
            self._pages.prefetch(self.path, self._pin, at, min(at + PROBE_BYTES, self.size))
        if start < near:
            yield start, near
        if any(any(self.read(at, PROBE_BYTES)) for at in places):
            yield near, stop

    def data_end(self) -> int:
        """See OpenFile: the file's end, as holes cannot be seen."""
        return self.size

    def used_end(self) -> int:
        """See OpenFile. Zeros may stand anywhere, so all bytes after the used end are read."""
        end, page = self.size, self._pages.page_bytes
        while end > 0:
            start = max(end - _BACKWARDS, 0)
            data = self._fetch(start, end)
            for first in reversed(range(0, end - start, page)):
                if used := bytes(data[first : first + page]).rstrip(b"\0"):
                    return start + first + len(used)
            end = start
        return 0

    def likely_data_end(self) -> int:
        """See OpenFile: right where no page between others begins with zeros. Of a large file a look at some places far
        apart comes first, so that all pages between two of them can be looked at together. The first page with nothing
        is kept as well: whoever reads up to the end reads on."""
        page, search = self._pages.page_bytes, Concurrent().partition_point
        least, most = 0, -(-self.size // page)
        apart = math.isqrt(most)
        if most > _MANY_PAGES:
            block = search(0, -(-most // apart), lambda number: self._is_used(number * apart * page), apart)
            least, most = max(block - 1, 0) * apart, min(block * apart + 1, most)
        used = search(least, most, lambda number: any(self.read(number * page, page // 16)), max(apart, _PAGES_PROBED))
        last = self.read(max(used - 1, 0) * page, page).rstrip(b"\0")
        return max(used - 1, 0) * page + len(last)

    def _is_used(self, at: int) -> bool:
        """Does a place begin with anything but zeros? A page that is not kept is not fetched as a whole."""
        stop = min(at + self._pages.page_bytes // 16, self.size)
        kept = self._pages.kept(self.path, self._pin, at, stop)
        return any(self._fetch(at, stop) if kept is None else kept)
