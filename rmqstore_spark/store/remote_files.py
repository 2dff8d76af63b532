"""Files of stores in object storage or HDFS: listed in few requests, pinned, read in large blocks ahead or small ones
at once.

A request takes tens of milliseconds, however little it brings, and many can be under way at a time. So what is read one
byte after the other comes in large blocks, several ahead; what is read here and there is merged where it lies close
together, and asked for all at once. There are no holes: where a file's data ends is guessed for a hint,
and else all up to the file's end is read.
"""

import contextlib
import errno
import fnmatch
import functools
import itertools
import os
import re
import stat
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from rmqstore_spark.errors import DamagedStoreError, StorageError
from rmqstore_spark.store import hdfs, objects
from rmqstore_spark.store.files import Files, OpenFile, Pin, Prices, cannot_read
from rmqstore_spark.store.guest import Manners
from rmqstore_spark.store.objects import Objects
from rmqstore_spark.store.read_ahead import AT_ONCE, BLOCK, ReadAhead, Stretch
from rmqstore_spark.store.schedule import Concurrent
from rmqstore_spark.store.storage import HDFS, Storage, location, plain_uri

_MIB = 1024 * 1024
_LARGEST = 8 * _MIB  # request for what is merged, or guessed to be read on
_PAGE = 64 * 1024  # of what is read here and there: it takes a request no longer than a byte does
_PAGES = 1024  # that are kept
_SOON = 4 * 1024  # bytes are likely to be read from somewhere on
_BACKWARDS = 2 * _MIB  # a request for what may be zeros up to the end of a file: it takes twice as long as for a byte
_LOOK = 8 * _MIB  # after the log's end, so much is looked at whole
_PROBES = 64  # and of the rest, so many places
_SURVEYED = 100_000  # objects of a directory that are listed before it is known to be a store

# At 30 ms a request and 80 MB/s a connection, a request costs as much as 2.4 MB more of another one.
PRICES = Prices(
    request=2 * _MIB,
    gap=_MIB,
    search=4 * 2 * _MIB,
    linear_below=_PAGE // 20,  # units of a ConsumeQueue: a search has seen the pages in which it ends
    concurrency=64,
)
_GATHERED_AT_ONCE = 16  # requests of one task


@functools.lru_cache(1)
def _pools(process: int) -> tuple[ThreadPoolExecutor, ThreadPoolExecutor]:
    """Threads that fetch, and threads that fetch large blocks. After a fork there are none, so the process counts.

    The last ones are few, as the C library keeps for each thread what it has once taken for a block."""
    return (
        ThreadPoolExecutor(64, "rmqstore-fetch"),
        ThreadPoolExecutor(AT_ONCE, "rmqstore-block"),
    )


@dataclass
class _Directory:
    """What is in a directory: sub-directories by name with None, objects with what they are."""

    children: dict[str, Pin | None]


class RemoteFiles(Files):
    """Files whose paths are URIs. What it has listed it keeps.

    When it is pickled, for a task, it loses that, and how storage is reached: `set_credentials` says that again.

    Args:
        storage: how it is reached.
        bucket: what gives the objects of a path's bucket, and the key of the path in it.
    """

    is_snapshot = True
    has_holes = False
    schedule = Concurrent()
    are_paths_the_systems = False

    def __init__(
        self,
        prices: Prices | None = None,
        manners: Manners | None = None,
        storage: Storage | None = None,
        bucket: "Callable[[str, Storage], tuple[Objects, str]] | None" = None,
    ) -> None:
        super().__init__(prices or PRICES, manners)
        self._storage = storage or Storage()
        self._bucket = bucket or _bucket_of
        self._directories: dict[str, _Directory] = {}
        self._surveyed: set[str] = set()
        self._found: dict[str, Pin | None] = {}  # what was looked for alone
        self._pages: OrderedDict[tuple[str, str | None, int], _Page] = OrderedDict()
        self._gone_on: dict[tuple[str, str | None], Pin] = {}  # what has taken an object's place and is the same
        self._ahead = ReadAhead()

    def __reduce__(self) -> tuple[type["RemoteFiles"], tuple[object, ...]]:  # type: ignore[override]
        return type(self), (self.prices, self.manners, None, self._bucket)

    def fresh(self) -> "RemoteFiles":
        return type(self)(self.prices, self.manners, self._storage, self._bucket)

    def set_credentials(self, storage: Storage) -> None:
        self._storage = storage

    # ---- looking

    def list_tree(self, path: str) -> None:
        path = plain_uri(path)
        if self._is_surveyed(path):
            return
        objects, key = self._bucket(path, self._storage)
        entries = list(objects.below(key, _SURVEYED))
        self.count(1 + len(entries) // 1000, 0)
        if len(entries) == _SURVEYED:
            # Perhaps no store, but what has a million other things in it: a whole bucket, say.
            if "commitlog" not in self.names(path):
                return
            entries = list(objects.below(key))
            self.count(1 + len(entries) // 1000, 0)
        found: dict[str, _Directory] = {}
        for entry in entries:
            self._add(found, path, entry.key[len(key) :].strip("/") if key else entry.key, entry.pin)
        self._directories.update(found)
        if found:
            self._surveyed.add(path)

    @staticmethod
    def _add(found: dict[str, _Directory], root: str, below: str, pin: Pin | None) -> None:
        """Add an object, or without a pin a directory, and the directories above it."""
        if not below or _is_mark(below):
            return
        *above, name = below.split("/")
        path = root
        for directory in above:
            found.setdefault(path, _Directory({})).children[directory] = None
            path = f"{path}/{directory}"
        if pin is None:
            found.setdefault(f"{path}/{name}", _Directory({}))
        # Where tools mark a directory with an object of its name, it is one.
        found.setdefault(path, _Directory({})).children.setdefault(name, pin)

    def _is_surveyed(self, path: str) -> bool:
        return any(path == root or path.startswith(f"{root}/") for root in self._surveyed)

    def _listed(self, path: str) -> _Directory | None:
        """A directory; None where there is none."""
        path = plain_uri(path)
        if path not in self._directories and not self._is_surveyed(path):
            objects, key = self._bucket(path, self._storage)
            directories, entries = objects.inside(key)
            self.count(1, 0)
            children: dict[str, Pin | None] = {os.path.basename(each): None for each in directories}
            for entry in entries:
                name = os.path.basename(entry.key)
                if entry.key != key and not _is_mark(name):
                    children.setdefault(name, entry.pin)
            if children or not key:
                self._directories[path] = _Directory(children)
        return self._directories.get(path)

    def _look(self, path: str) -> Pin | None:
        """What a path is: a pin of an object, None for a directory.

        Raises:
            FileNotFoundError: there is nothing.
        """
        path = plain_uri(path)
        if path in self._directories:
            return None
        above, name = os.path.split(path)
        if any(path.startswith(f"{known}/") for known in self._directories):
            self._listed(above)  # what is asked for in a store, is asked for its neighbours next
        if self._is_surveyed(above) or above in self._directories:
            directory = self._listed(above)
            if directory is None or name not in directory.children:
                raise _nothing(path)
            return directory.children[name]
        if path not in self._found:
            objects, key = self._bucket(path, self._storage)
            self.count(1, 0)
            self._found[path] = objects.look(key) if key else None
        pin = self._found[path]
        if pin is None and self._listed(path) is None:
            raise _nothing(path)
        return pin

    def names(self, path: str) -> list[str]:
        directory = self._listed(path)
        if directory is not None:
            return list(directory.children)
        pin = self._look(path)
        if pin is not None and pin.size == 0:  # some tools mark an empty directory so
            return []
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)

    def status(self, path: str) -> os.stat_result:
        pin = self._look(path)
        if pin is None:
            return os.stat_result((stat.S_IFDIR | 0o555, 0, 0, 1, 0, 0, 0, 0, 0, 0), {"st_blocks": 0})
        mode = stat.S_IFREG | 0o444
        return os.stat_result((mode, 0, 0, 1, 0, 0, pin.size, 0, 0, 0), {"st_blocks": -(-pin.size // 512)})

    def unlinked(self) -> Files:
        return self  # there are none

    def lstat(self, path: str) -> os.stat_result:
        return self.status(path)

    def matching(self, pattern: str) -> list[str]:
        scheme, _, rest = plain_uri(pattern).partition("://")
        bucket, *parts = rest.split("/")
        paths = [f"{scheme}://{bucket}"]
        for part in parts:
            if not re.search(r"[*?\[]", part):
                paths = [f"{path}/{part}" for path in paths]
                continue
            directories = [(path, self._listed(path)) for path in paths]
            paths = [
                f"{path}/{name}"
                for path, directory in directories
                if directory is not None
                for name in directory.children
                if fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))
            ]
        return sorted(filter(self.exists, paths))

    def is_locked(self, path: str) -> bool:
        """False: nobody can hold a lock there."""
        return False

    def pin(self, path: str) -> Pin | None:
        return self._look(path)

    def hold(self, path: str, pin: Pin) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._look(path) == pin:
                return
        offset, expected = pin.proof or (0, b"0")
        self.fetch(path, pin, offset, offset + len(expected))

    # ---- reading

    def file(self, path: str, is_log: bool = False, pin: Pin | None = None) -> OpenFile:
        if pin is None:
            try:
                pin = self._look(path)
            except OSError as why:
                raise cannot_read(path, why) from None
            if pin is None:
                raise DamagedStoreError(f"{path}: expected an object, found a directory; move it away")
        return RemoteFile(path, pin, self)

    def open(self, path: str) -> NoReturn:
        """Refuses: there is no descriptor of an object."""
        raise NotImplementedError(f"{path}: an object has no descriptor")

    def fetch(self, path: str, pin: Pin, start: int, stop: int) -> memoryview:
        """The bytes [start, stop) of an object, which it has; in one request, and counted."""
        if self._pace is not None:
            self._pace.wait(stop - start)
        objects, key = self._bucket(path, self._storage)
        there = self._gone_on.get((path, pin.tag), pin)
        try:
            data = objects.get(key, start, stop, there)
        except StorageError:
            newer = self._newer(objects, key, pin)
            if newer is None or newer == there:
                raise
            self._gone_on[path, pin.tag] = newer
            data = objects.get(key, start, stop, newer)
        self.count(1, stop - start)
        return data

    def _newer(self, objects: Objects, key: str, pin: Pin) -> Pin | None:
        """The object that stands there now, if it is the same one, gone on."""
        if pin.proof is None:
            return None
        offset, expected = pin.proof
        found = objects.look(key)
        self.count(2, len(expected))
        if found is None or found.size < pin.size:
            return None
        return found if objects.get(key, offset, offset + len(expected), found) == expected else None

    def later(self, path: str, pin: Pin, start: int, stop: int) -> "Future[memoryview]":
        """fetch() by another thread."""
        return _pools(os.getpid())[0].submit(self.fetch, path, pin, start, stop)

    def block(self, path: str, pin: Pin, start: int, stop: int) -> "Future[memoryview]":
        """The same of a large block."""
        return _pools(os.getpid())[1].submit(self.fetch, path, pin, start, stop)

    def read_from(self, ahead: ReadAhead) -> None:
        self._ahead = ahead

    def prefetch_range(self, ahead: ReadAhead, path: str, pin: Pin | None, start: int, stop: int) -> None:
        if pin is not None and min(stop, pin.size) - start > _PAGE:
            ahead.add(path, start, min(stop, pin.size), functools.partial(self.block, path, pin))

    def stretch(self, path: str, start: int, stop: int) -> Stretch | None:
        """The bytes [start, stop) of an object, if it was said before that they are read."""
        return self._ahead.claim(path, start, stop)

    def pages(self, path: str, pin: Pin, first: int, last: int, soon: bool = False) -> list["_Page"]:
        """Pages of an object, of the numbers [first, last], of which some may be kept from before, or be under way;
        those between that are not come in one request.

        Args:
            soon: another thread fetches them.
        """
        keys = [(path, pin.tag, number) for number in range(first, last + 1)]
        with self._lock:
            missing = [key[2] for key in keys if key not in self._pages]
            if missing:
                start, stop = missing[0] * _PAGE, min((missing[-1] + 1) * _PAGE, pin.size)
                coming: Future[memoryview] = Future()
                for number in missing:
                    self._pages[path, pin.tag, number] = _Page(coming, number * _PAGE - start)
            found = [self._pages[key] for key in keys]  # before one of them is forgotten
            for key in keys:
                self._pages.move_to_end(key)  # what was not asked for longest goes first
            while len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        if missing:
            work = functools.partial(self._bring, path, pin, start, stop, coming)
            if soon:
                _pools(os.getpid())[0].submit(work)
            else:
                work()
        return found

    def kept(self, path: str, pin: Pin, start: int, stop: int) -> memoryview | None:
        """The bytes [start, stop) of an object, if they are in one or two pages that are kept, or under way."""
        first, last = start // _PAGE, (stop - 1) // _PAGE
        with self._lock:
            pages = [self._pages.get((path, pin.tag, number)) for number in range(first, min(last, first + 2) + 1)]
        found = [page.data for page in pages if page is not None]
        if not 0 < len(found) == last - first + 1 <= 2:
            return None
        whole = found[0] if len(found) == 1 else memoryview(b"".join(found))
        return whole[start - first * _PAGE : stop - first * _PAGE]

    def _bring(self, path: str, pin: Pin, start: int, stop: int, coming: "Future[memoryview]") -> None:
        try:
            coming.set_result(self.fetch(path, pin, start, stop))
        except BaseException as why:
            with self._lock:  # the next who asks tries again
                for key in [key for key, page in self._pages.items() if page.coming is coming]:
                    del self._pages[key]
            coming.set_exception(why)

    def prefetch(self, places: Iterable[tuple[str, int]]) -> None:
        for path, offset in places:
            try:
                pin = self._look(path)
            except OSError:
                continue
            if pin is not None and 0 <= offset < pin.size:
                last = min(offset + _SOON, pin.size) - 1
                self.pages(path, pin, offset // _PAGE, last // _PAGE, soon=True)


@dataclass(frozen=True)
class _Page:
    """Where a page is in what is fetched."""

    coming: "Future[memoryview]"
    offset: int

    @property
    def data(self) -> memoryview:
        return self.coming.result()[self.offset :][:_PAGE]


class RemoteFile:
    """One object: an OpenFile."""

    descriptor = None

    def __init__(self, path: str, pin: Pin, files: RemoteFiles) -> None:
        self.path = path
        self._pin = pin
        self._files = files
        self._blocks = self._stretch(0, 0)  # that is read one after the other
        self._next = -1  # where the last load ended
        self._grown = _PAGE

    def __enter__(self) -> "RemoteFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._blocks.clear()

    @property
    def size(self) -> int:
        return self._pin.size

    def _fetch(self, start: int, stop: int) -> memoryview:
        return self._files.fetch(self.path, self._pin, start, stop)

    def _later(self, start: int, stop: int) -> "Future[memoryview]":
        return self._files.later(self.path, self._pin, start, stop)

    def _stretch(self, start: int, stop: int, whole: bool = False) -> Stretch:
        fetch = functools.partial(self._files.block, self.path, self._pin)
        return ReadAhead().add(self.path, start, stop, fetch, whole)

    def _go_along(self, stretch: Stretch) -> None:
        self._blocks.clear()
        self._blocks = stretch

    def expect(self, start: int, stop: int) -> None:
        start, stop = max(start, 0), min(stop, self.size)
        goes_on = self._blocks.has(start) and self._blocks.stop == stop
        if stop - start > _PAGE and not goes_on:
            self._go_along(self._files.stretch(self.path, start, stop) or self._stretch(start, stop))

    def load(self, offset: int, size: int, buffer: Callable[[int], memoryview]) -> memoryview:
        stop = min(offset + size, self.size)
        if offset >= stop:
            return buffer(0)
        goes_on = offset <= self._next < stop and size > _PAGE // 8
        self._next = stop
        if not self._blocks.has(offset) and goes_on:
            # Who has read on twice will go on reading; how far, nobody has said.
            self._grown = min(4 * self._grown, _LARGEST)
            self._go_along(self._stretch(offset, min(offset + max(self._grown, size), self.size), whole=True))
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
        """Fill it, with bytes that the object has."""
        at, stop = offset, offset + len(buffer)
        while at < stop and self._blocks.is_fetched(at):
            part = self._blocks.part(at, stop)
            buffer[at - offset :][: len(part)] = part
            at += len(part)
        if at == stop:
            return
        if stop - at <= _PAGE:
            first, last = at // _PAGE, (stop - 1) // _PAGE
            for number, page in enumerate(self._files.pages(self.path, self._pin, first, last), first):
                begin, end = max(at, number * _PAGE), min(stop, (number + 1) * _PAGE)
                buffer[begin - offset : end - offset] = page.data[begin - number * _PAGE : end - number * _PAGE]
            return
        begin, *bounds = [*range(at, stop, BLOCK), stop]
        later = [(start, self._later(start, end)) for start, end in itertools.pairwise(bounds)]
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
        """See OpenFile: what is near comes in one request, and several requests are under way."""
        starts = np.minimum(offsets, self.size)
        counts = np.minimum(offsets + sizes, self.size) - starts
        wrong = np.flatnonzero((offsets < 0) | (sizes <= 0))
        fit = int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), len(buffer), "right"))
        fit = min(fit, int(wrong[0])) if len(wrong) else fit
        ends = np.cumsum(counts[:fit])
        window_offsets[:fit], lengths[:fit] = ends - counts[:fit], counts[:fit]
        spans: list[tuple[int, int]] = []  # the numbers of the offsets that come in one request
        for number, (start, count) in enumerate(zip(starts[:fit].tolist(), counts[:fit].tolist(), strict=True)):
            if not count:
                continue
            kept = self._files.kept(self.path, self._pin, start, start + count)
            if kept is not None:
                self._copy((number, number + 1), kept, starts, counts, buffer, window_offsets)
            elif spans and spans[-1][1] == number and self._is_near(starts, counts, spans[-1][0], number):
                spans[-1] = spans[-1][0], number + 1
            else:
                spans.append((number, number + 1))
        waiting: deque[tuple[tuple[int, int], Future[memoryview] | memoryview]] = deque()
        for span in spans:
            begin, end = int(starts[span[0]]), int(max(starts[slice(*span)] + counts[slice(*span)]))
            waiting.append((span, self._later(begin, end) if len(spans) > 1 else self._fetch(begin, end)))
            if len(waiting) >= _GATHERED_AT_ONCE:
                self._copy(*waiting.popleft(), starts, counts, buffer, window_offsets)
        while waiting:
            self._copy(*waiting.popleft(), starts, counts, buffer, window_offsets)
        return fit

    def _is_near(self, starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], first: int, number: int) -> bool:
        before = int(starts[number - 1] + counts[number - 1])
        gap, whole = int(starts[number]) - before, int(starts[number] + counts[number] - starts[first])
        return starts[number] >= starts[number - 1] and gap <= self._files.prices.gap and whole <= _LARGEST

    @staticmethod
    def _copy(
        span: tuple[int, int],
        fetched: "Future[memoryview] | memoryview",
        starts: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        buffer: memoryview,
        window_offsets: npt.NDArray[np.int64],
    ) -> None:
        data = fetched.result() if isinstance(fetched, Future) else fetched
        base = int(starts[span[0]])
        for number in range(*span):
            to, at, count = int(window_offsets[number]), int(starts[number]) - base, int(counts[number])
            buffer[to : to + count] = data[at : at + count]

    def extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """See OpenFile. What is behind the first megabytes counts as a hole where all places that are looked at have
        only zeros; there is no way to know it but to read all of it."""
        stop = min(stop, self.size)
        near = min(start + _LOOK, stop)
        step = max((stop - near) // _PROBES, _PAGE)
        places = [*range(near, stop, step), *([max(stop - _PAGE, near)] if near < stop else [])]
        self._files.prefetch((self.path, at) for at in places)
        if start < near:
            yield start, near
        if any(any(self.read(at, _SOON)) for at in places):
            yield near, stop

    def data_end(self) -> int:
        """See OpenFile: the file's end. No hole can be seen."""
        return self.size

    def used_end(self) -> int:
        """See OpenFile. Zeros may stand anywhere, so all that comes after it is read."""
        end = self.size
        while end > 0:
            start = max(end - _BACKWARDS, 0)
            data = self._fetch(start, end)
            for first in reversed(range(0, end - start, _PAGE)):
                if used := bytes(data[first : first + _PAGE]).rstrip(b"\0"):
                    return start + first + len(used)
            end = start
        return 0

    def likely_data_end(self) -> int:
        """See OpenFile: right where no page between others begins with zeros."""
        look = _PAGE // 16
        pages = -(-self.size // _PAGE)
        used = self._files.schedule.partition_point(0, pages, lambda number: any(self.read(number * _PAGE, look)))
        last = self.read(max(used - 1, 0) * _PAGE, _PAGE).rstrip(b"\0")
        return max(used - 1, 0) * _PAGE + len(last)


def _bucket_of(path: str, storage: Storage) -> tuple[Objects, str]:
    where = location(path)
    scheme, _, rest = path.partition("://")
    connect = hdfs.connect if where.kind == HDFS else objects.connect
    return connect(where, f"{scheme}://{rest.partition('/')[0]}", storage), where.key


def _is_mark(name: str) -> bool:
    """Hadoop's mark of a directory."""
    return name.endswith("_$folder$")


def _nothing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
