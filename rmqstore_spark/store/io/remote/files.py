"""Files of stores in object storage or HDFS.

A request takes tens of milliseconds, however little it brings, and many can be under way at a time. So sequential reads
use large blocks, several ahead; scattered reads are merged where they lie close together, and requested all at once.
There are no holes: the end of a file's data is guessed for hints, and otherwise everything up to the file's end is
read.
"""

import contextlib
import functools
import itertools
import os
import stat
from collections.abc import Iterable
from typing import NoReturn

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.io.files import Files, OpenFile, Pin, Prices, cannot_read
from rmqstore_spark.store.io.guest import Manners
from rmqstore_spark.store.io.read_ahead import ReadAhead
from rmqstore_spark.store.io.remote.buckets import Buckets, FindBucket, bucket_of
from rmqstore_spark.store.io.remote.file import PROBE_BYTES, RemoteFile
from rmqstore_spark.store.io.remote.listing import Listing
from rmqstore_spark.store.io.remote.pages import PAGE_BYTES, PageCache
from rmqstore_spark.store.io.remote.ranges import Ranges
from rmqstore_spark.store.io.schedule import Concurrent
from rmqstore_spark.store.io.storage import Storage

_MIB = 1024 * 1024
_NEAR = 2 * PAGE_BYTES  # bytes between places that one request brings

# At 30 ms a request and 80 MB/s a connection, a request costs as much as 2.4 MB more in another one.
PRICES = Prices(
    request=2 * _MIB,
    gap=_MIB,
    search=4 * 2 * _MIB,
    linear_below=PAGE_BYTES // 20,  # units of a ConsumeQueue: a search has read the pages in which it ends
    concurrency=64,
)


class RemoteFiles(Files):
    """Files whose paths are URIs. Listings are kept.

    Pickled RemoteFiles, as a task gets them, lose the listings and the way to reach storage; `set_credentials` gives
    the latter again.

    Args:
        storage: how the storage is reached.
        bucket: gives the objects of a path's bucket, and the path's key in it.
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
        bucket: FindBucket | None = None,
    ) -> None:
        super().__init__(prices or PRICES, manners)
        self._buckets = Buckets(storage or Storage(), bucket or bucket_of)
        self._listing = Listing(self._buckets, self.count)
        self._ranges = Ranges(self._buckets, self.count, self._pace)
        self._pages = PageCache(self._ranges)
        self._ahead = ReadAhead()

    def __reduce__(self) -> tuple[type["RemoteFiles"], tuple[object, ...]]:  # type: ignore[override]
        return type(self), (self.prices, self.manners, None, self._buckets.find)

    def fresh(self) -> "RemoteFiles":
        found = type(self)(self.prices, self.manners, self._buckets.storage, self._buckets.find)
        found._pages = PageCache(found._ranges, self._pages)
        return found

    def set_credentials(self, storage: Storage) -> None:
        self._buckets.storage = storage

    def share(self, other: Files) -> None:
        if isinstance(other, RemoteFiles):
            self._listing, self._ranges, self._pages = other._listing, other._ranges, other._pages

    # ---- looking

    def list_tree(self, path: str) -> None:
        self._listing.list_tree(path)

    def names(self, path: str) -> list[str]:
        return self._listing.names(path)

    def status(self, path: str) -> os.stat_result:
        pin = self._listing.look(path)
        if pin is None:
            return os.stat_result((stat.S_IFDIR | 0o555, 0, 0, 1, 0, 0, 0, 0, 0, 0), {"st_blocks": 0})
        mode = stat.S_IFREG | 0o444
        return os.stat_result((mode, 0, 0, 1, 0, 0, pin.size, 0, 0, 0), {"st_blocks": -(-pin.size // 512)})

    def unlinked(self) -> Files:
        return self  # there are no links

    def lstat(self, path: str) -> os.stat_result:
        return self.status(path)

    def matching(self, pattern: str) -> list[str]:
        return self._listing.matching(pattern)

    def is_locked(self, path: str) -> bool:
        """False: remote storage has no locks."""
        return False

    def pin(self, path: str) -> Pin | None:
        return self._listing.look(path)

    def hold(self, path: str, pin: Pin) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._listing.look(path) == pin:
                return
        offset, expected = pin.proof or (0, b"0")
        self._ranges.fetch(path, pin, offset, offset + len(expected))

    # ---- reading

    def file(self, path: str, is_log: bool = False, pin: Pin | None = None) -> OpenFile:
        if pin is None:
            try:
                pin = self._listing.look(path)
            except OSError as why:
                raise cannot_read(path, why) from None
            if pin is None:
                raise DamagedStoreError(f"{path}: expected an object, found a directory; move it away")
        return RemoteFile(path, pin, self._ranges, self._pages, self._ahead, self.prices.gap)

    def open(self, path: str) -> NoReturn:
        """Refuse: an object has no descriptor."""
        raise NotImplementedError(f"{path}: an object has no descriptor")

    def read_from(self, ahead: ReadAhead) -> None:
        self._ahead = ahead

    def prefetch_range(self, ahead: ReadAhead, path: str, pin: Pin | None, start: int, stop: int) -> None:
        if pin is not None and min(stop, pin.size) - start > self._pages.page_bytes:
            fetch = functools.partial(self._ranges.fetch_block, path, pin)
            ahead.add(path, start, min(stop, pin.size), fetch)

    def prefetch(self, places: Iterable[tuple[str, int]]) -> None:
        for path, some in itertools.groupby(places, key=lambda place: place[0]):
            try:
                pin = self._listing.look(path)
            except OSError:
                continue
            if pin is None:
                continue
            start = stop = 0  # of what is asked for with one request
            for _, offset in some:
                if not 0 <= offset < pin.size:
                    continue
                end = min(offset + PROBE_BYTES, pin.size)
                if stop and not (stop - PROBE_BYTES <= offset <= stop + _NEAR and end - start <= _MIB):
                    self._pages.prefetch(path, pin, start, stop)
                    stop = 0
                start, stop = (start, max(stop, end)) if stop else (offset, end)
            if stop:
                self._pages.prefetch(path, pin, start, stop)
