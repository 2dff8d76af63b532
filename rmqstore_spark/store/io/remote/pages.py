"""Pages of objects, for scattered reads. The most recently used pages are kept."""

import functools
import itertools
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass

from rmqstore_spark.store.io.files import Pin
from rmqstore_spark.store.io.remote.ranges import Ranges, in_background

PAGE_BYTES = 64 * 1024  # a request for a page takes no longer than one for a byte
MOST_PAGES = 2048  # bytes of so many pages are kept
_PARTS = 16  # of a page: as many of them are kept as have anything but zeros
_ZEROS = bytes(PAGE_BYTES)


@dataclass
class _Page:
    """A page that is fetched, or under way.

    Attributes:
        coming: the range that one request brings; if that is one page, without zeros at its end.
        start: where the page begins in that range.
        size: its bytes.
        held: the bytes of it that are in memory, or will be.
    """

    coming: "Future[memoryview]"
    start: int
    size: int
    held: int

    @property
    def data(self) -> memoryview:
        data = self.coming.result()[self.start : self.start + self.size]
        return data if len(data) == self.size else memoryview(bytes(data).ljust(self.size, b"\0"))


_Key = tuple[str, Pin, int, object]  # path, object, number of the page, and the cache that alone may use it


class _Kept:
    """Pages by their keys, the least recently used one first, and the bytes of all. Threads hold the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pages: OrderedDict[_Key, _Page] = OrderedDict()
        self.held = 0

    def add(self, key: _Key, page: _Page) -> None:
        """Keep a page."""
        self.pages[key] = page
        self.held += page.held

    def drop(self, key: _Key) -> None:
        """Forget a page."""
        self.held -= self.pages.pop(key).held

    def drop_beyond(self, most: int) -> None:
        """Forget pages until no more than so many bytes are kept."""
        while self.held > most:
            self.drop(next(iter(self.pages)))

    def shrink(self, key: _Key, coming: "Future[memoryview]", held: int) -> None:
        """Take note that fewer bytes of a page came than it has, if the page is still kept."""
        page = self.pages.get(key)
        if page is not None and page.coming is coming:
            self.held += held - page.held
            page.held = held


class PageCache:
    """An LRU cache of pages of objects, each fetched once as long as it is kept. Threads may share the cache.

    Attributes:
        page_bytes: bytes of each page except an object's last one.

    Args:
        ranges: fetches pages.
        beside: another cache, with which the pages of tagged objects are shared: what has changed has another tag.
    """

    def __init__(self, ranges: Ranges, beside: "PageCache | None" = None) -> None:
        self.page_bytes = PAGE_BYTES
        self._most = MOST_PAGES * PAGE_BYTES
        self._ranges = ranges
        self._kept: _Kept = _Kept() if beside is None else beside._kept

    def read_into(self, path: str, pin: Pin, buffer: memoryview, offset: int) -> None:
        """Fill a buffer with bytes that the object has."""
        stop = offset + len(buffer)
        for number, page in enumerate(self._pages_of(path, pin, offset, stop, False), offset // self.page_bytes):
            base = number * self.page_bytes
            begin, end = max(offset, base), min(stop, base + self.page_bytes)
            buffer[begin - offset : end - offset] = page.data[begin - base : end - base]

    def prefetch(self, path: str, pin: Pin, start: int, stop: int) -> None:
        """Let another thread fetch the pages of the bytes [start, stop), which the object has."""
        self._pages_of(path, pin, start, stop, True)

    def kept(self, path: str, pin: Pin, start: int, stop: int) -> memoryview | None:
        """The bytes [start, stop) of an object, if they are in one or two pages that are kept, or under way."""
        first, last = start // self.page_bytes, (stop - 1) // self.page_bytes
        with self._kept.lock:
            pages = [self._kept.pages.get(self._key(path, pin, n)) for n in range(first, min(last, first + 2) + 1)]
        found = [page.data for page in pages if page is not None]
        if not 0 < len(found) == last - first + 1 <= 2:
            return None
        whole = found[0] if len(found) == 1 else memoryview(b"".join(found))
        return whole[start - first * self.page_bytes : stop - first * self.page_bytes]

    def _key(self, path: str, pin: Pin, number: int) -> _Key:
        return path, pin, number, self if pin.tag is None else None

    def _pages_of(self, path: str, pin: Pin, start: int, stop: int, is_later: bool) -> list[_Page]:
        """The pages of the bytes [start, stop). One request fetches the pages from the first missing one to the last
        missing one; in another thread, if `is_later`."""
        numbers = range(start // self.page_bytes, (stop - 1) // self.page_bytes + 1)
        keys = [self._key(path, pin, number) for number in numbers]
        with self._kept.lock:
            pages = self._kept.pages
            missing = [key[2] for key in keys if key not in pages]
            if missing:
                begin = missing[0] * self.page_bytes
                end = min((missing[-1] + 1) * self.page_bytes, pin.size)
                coming: Future[memoryview] = Future()
                for number in missing:
                    at = number * self.page_bytes - begin
                    size = min(self.page_bytes, end - begin - at)
                    self._kept.add(self._key(path, pin, number), _Page(coming, at, size, size))
            found = [pages[key] for key in keys]  # before one of them is forgotten
            for key in keys:
                pages.move_to_end(key)
            self._kept.drop_beyond(self._most)
        if missing:
            bring = functools.partial(self._bring, path, pin, begin, end, coming)
            if is_later:
                in_background(bring)
            else:
                bring()
        return found

    def _bring(self, path: str, pin: Pin, start: int, stop: int, coming: "Future[memoryview]") -> None:
        try:
            data = self._ranges.fetch(path, pin, start, stop)
        except BaseException as why:
            with self._kept.lock:  # the next caller tries again
                for key in [key for key, page in self._kept.pages.items() if page.coming is coming]:
                    self._kept.drop(key)
            coming.set_exception(why)
            return
        used = _used(data) if stop - start <= self.page_bytes else len(data)
        if used < len(data):
            # As of most queues, of which a large store has very many: nearly all of their pages is zeros.
            with self._kept.lock:
                self._kept.shrink(self._key(path, pin, start // self.page_bytes), coming, used)
            data = memoryview(bytes(data[:used]))
        coming.set_result(data)


def _used(data: memoryview) -> int:
    """The number of bytes of a page, in whole parts of it and at least one, after which there are only zeros. Few looks
    tell: the memory that is saved counts, and not each byte."""
    whole, part = bytes(data), max(len(data) // _PARTS, 1)
    sizes = itertools.takewhile(lambda size: size < len(whole), (part << step for step in range(_PARTS)))
    return next((size for size in sizes if whole.endswith(_ZEROS[: len(whole) - size])), len(whole))
