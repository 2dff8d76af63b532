"""Pages of objects, for scattered reads. The most recently used pages are kept."""

import functools
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass

from rmqstore_spark.store.io.files import Pin
from rmqstore_spark.store.io.remote.ranges import Ranges, in_background

PAGE_BYTES = 64 * 1024  # a request for a page takes no longer than one for a byte
MOST_PAGES = 2048


@dataclass(frozen=True)
class _Page:
    """A page in a range that is fetched, or under way: the bytes [start, stop) of that range."""

    coming: "Future[memoryview]"
    start: int
    stop: int

    @property
    def data(self) -> memoryview:
        return self.coming.result()[self.start : self.stop]


_Key = tuple[str, Pin, int, object]  # path, object, number of the page, and the cache that alone may use it


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
        self._most = MOST_PAGES
        self._ranges = ranges
        self._lock: threading.Lock = threading.Lock() if beside is None else beside._lock
        self._pages: OrderedDict[_Key, _Page] = OrderedDict() if beside is None else beside._pages

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
        with self._lock:
            pages = [self._pages.get(self._key(path, pin, n)) for n in range(first, min(last, first + 2) + 1)]
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
        with self._lock:
            missing = [key[2] for key in keys if key not in self._pages]
            if missing:
                begin = missing[0] * self.page_bytes
                end = min((missing[-1] + 1) * self.page_bytes, pin.size)
                coming: Future[memoryview] = Future()
                for number in missing:
                    at = number * self.page_bytes - begin
                    self._pages[self._key(path, pin, number)] = _Page(coming, at, at + self.page_bytes)
            found = [self._pages[key] for key in keys]  # before one of them is forgotten
            for key in keys:
                self._pages.move_to_end(key)
            while len(self._pages) > self._most:
                self._pages.popitem(last=False)
        if missing:
            bring = functools.partial(self._bring, path, pin, begin, end, coming)
            if is_later:
                in_background(bring)
            else:
                bring()
        return found

    def _bring(self, path: str, pin: Pin, start: int, stop: int, coming: "Future[memoryview]") -> None:
        try:
            coming.set_result(self._ranges.fetch(path, pin, start, stop))
        except BaseException as why:
            with self._lock:  # the next caller tries again
                for key in [key for key, page in self._pages.items() if page.coming is coming]:
                    del self._pages[key]
            coming.set_exception(why)
