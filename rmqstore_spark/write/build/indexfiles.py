"""Writes index files; rmqstore_spark.store.structures.indexfile describes their contents."""

import contextlib
import mmap
import os
import time

import numpy as np
import numpy.typing as npt

from native_io import put_index
from rmqstore_spark.errors import DamagedStoreError, RmqStoreError
from rmqstore_spark.store.format.clock import milliseconds_now
from rmqstore_spark.store.index_live import has_last, has_no_more, live_items
from rmqstore_spark.store.io.files import ReadFile
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import (
    FILE_NAME,
    HEADER,
    Header,
    IndexReader,
    file_names,
    file_size,
    item_at,
    read_header,
)
from rmqstore_spark.write.build.patch import PatchWriter
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.new_file import BLOCK, NewFile, closed_if_it_fails


class IndexWriter:
    """Puts entries into index files, going on with the last existing file. A context manager.

    A file grows in memory, not in a mapping of the file: on a full disk a mapping would end in a SIGBUS, which cannot
    be reported.

    Large because the fields are where files are made, the header of the file that grows, and the index that goes on.

    Args:
        tree: the tree that holds all of these files.
        directory: the directory of the store's index files.
        new: the directory in which changed and new files are made.
        patches: where changes of the last file are put down, which is then not copied (patch.py); None: it is copied.
        store: the store that goes on. If its log was cut off, index files that end with messages the log no longer has
            are cut off as well. A new file is begun in that case, and also where messages of the log are missing from
            the index: within one file, look-ups would not see that the messages in between are in no file.
    """

    def __init__(
        self,
        tree: disk.Tree,
        directory: str,
        new: str,
        slots: int,
        items: int,
        patches: str | None = None,
        store: Snapshot | None = None,
    ) -> None:
        if items < 2:
            raise RmqStoreError(f"an index file has to hold an entry: expected at least 2 items, found {items}")
        self._tree = tree
        self._new = new
        self._slots = slots
        self._items = items
        self._head = item_at(slots, 0)  # header and slots
        self._file: NewFile | PatchWriter | None = None
        self._patches = patches
        self._before: bytes | None = None  # the head that the file had before
        self._image = mmap.mmap(-1, file_size(slots, items), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a system without huge pages
            self._image.madvise(mmap.MADV_HUGEPAGE)  # slots lie all over it: each page costs as much as its entries
        self._last_name = ""
        self._going_on: str | None = None
        self._previous_end = (0, 0)
        self.end_timestamp = 0
        self._store_before = store
        self._existing = [os.path.join(directory, name) for name in file_names(directory, tree.files)]
        if self._existing:
            self._going_on = self._existing[-1]
            self._take_end(read_header(self._going_on, tree.files))
            self._last_name = os.path.basename(self._going_on)

    def close(self) -> None:
        with contextlib.suppress(BufferError):  # the frames of an error under way hold views of the image
            self._image.close()
        if self._file is not None:
            self._file.close()

    def put(
        self,
        key_hash: npt.NDArray[np.int32],
        key_position: npt.NDArray[np.int64],
        key_timestamp: npt.NDArray[np.int64],
    ) -> None:
        """Put entries, which come after all earlier ones; see native_io.Dispatched."""
        start = 0
        while start < len(key_hash):
            if self._file is None:
                self._open()
            first = self._next_item()
            start = put_index(
                self._image,
                slots=self._slots,
                items=self._items,
                key_hash=key_hash,
                key_position=key_position,
                key_timestamp=key_timestamp,
                start=start,
                previous_end=self._previous_end,
            )
            self._store_items(first, self._next_item())
            if start < len(key_hash):
                self._close()

    def finish(self) -> None:
        """Bring the last file to disk."""
        if self._file is not None:
            self._close()

    def _open(self) -> None:
        self._tree.make_directory(self._new)
        size = file_size(self._slots, self._items)
        if self._store_before is not None:
            self._compare(self._store_before, size)
            self._store_before = None
        if self._going_on is not None:
            self._file = self._go_on(self._going_on, size)
            with ReadFile(self._going_on, self._tree.files) as before:
                self._before = before.read(0, self._head).ljust(self._head, b"\0")
            self._image[: self._head] = self._before
            self._going_on = None
        else:
            self._last_name = _next_name(self._last_name)
            self._file = self._tree.new_file(os.path.join(self._new, self._last_name), size)

    def _compare(self, store: Snapshot, size: int) -> None:
        """Make the files anew that end with messages the log no longer has, and find out whether to go on with the last
        file."""
        worn: list[str] = []
        for path in reversed(self._existing):
            with IndexReader(path, self._tree.files) as reader:
                if reader.is_empty:
                    continue
                if has_last(store, reader, self._slots):
                    if worn or not has_no_more(store, reader.header.end_position):
                        self._going_on = None
                    break
                self._going_on = None
            worn.append(path)
        for path in reversed(worn):
            self._cut_off(store, path, size)

    def _cut_off(self, store: Snapshot, path: str, size: int) -> None:
        """Make a file anew without the items of messages that the log no longer has; it may then have no items."""
        with IndexReader(path, self._tree.files) as reader:
            header = reader.header
            kept, end_timestamp = live_items(store, reader, self._slots)
        self._file = self._tree.new_file(os.path.join(self._new, os.path.basename(path)), size)
        if len(kept):
            timestamps = header.begin_timestamp + 1000 * kept["seconds"].astype(np.int64)
            before = 2 * header.begin_timestamp - int(timestamps[0])  # the base of the first item's seconds
            timestamps[0], timestamps[-1] = header.begin_timestamp, max(end_timestamp, header.begin_timestamp)
            put_index(
                self._image,
                slots=self._slots,
                items=self._items,
                key_hash=kept["key_hash"].astype(np.int32),
                key_position=kept["position"].astype(np.int64),
                key_timestamp=timestamps,
                start=0,
                previous_end=(before, header.begin_position),
            )
            self._store_items(1, self._next_item())
        self._close()

    def _go_on(self, path: str, size: int) -> NewFile | PatchWriter:
        if self._patches is not None and self._tree.may_be_changed(path) and self._tree.status(path).st_size == size:
            self._tree.make_directory(self._patches)
            return PatchWriter(self._tree.new_file(os.path.join(self._patches, self._last_name)))
        file = self._tree.new_file(os.path.join(self._new, self._last_name), size)
        with closed_if_it_fails(file):
            file.copy_from(self._tree, path, size)
        return file

    def _header(self) -> Header:
        return Header(*HEADER.unpack(self._image[: HEADER.size]))

    def _next_item(self) -> int:
        """The header's count, which is 0 in a file without items, and otherwise also counts item 0, which is never
        used."""
        return max(1, self._header().index_count)

    def _store_items(self, first: int, end: int) -> None:
        """Store the items [first, end). They are never read again, so their memory is freed once they are in the
        file."""
        start, stop = (item_at(self._slots, item) for item in (first, end))
        self._store(start, stop)
        kept = -(-self._head // mmap.PAGESIZE) * mmap.PAGESIZE
        start, stop = max(kept, start - start % mmap.PAGESIZE), stop - stop % mmap.PAGESIZE
        if start < stop:
            self._image.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def _close(self) -> None:
        assert self._file is not None
        self._take_end(self._header())
        run = 0  # the start of the blocks that are not written yet
        before = self._before or bytes(self._head)
        for start in range(0, self._head, BLOCK):
            stop = min(start + BLOCK, self._head)
            if self._image[start:stop] == before[start:stop]:  # left out: the file stays sparse
                self._store(run, start)
                run = stop
        self._store(run, self._head)
        self._file.sync()
        self._file.close()
        self._file = self._before = None
        self._image.madvise(mmap.MADV_DONTNEED)

    def _store(self, start: int, stop: int) -> None:
        assert self._file is not None
        if start < stop:
            with memoryview(self._image) as image, image[start:stop] as part:
                self._file.write(part, start)

    def _take_end(self, header: Header) -> None:
        self._previous_end = (header.end_timestamp, header.end_position)
        self.end_timestamp = max(self.end_timestamp, header.end_timestamp)


def _next_name(last: str) -> str:
    """The local time as yyyyMMddHHmmssSSS, as in IndexService; always after the last name, whatever the clock says."""
    now = milliseconds_now()
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"
    name = name if name > last else f"{int(last) + 1:017d}"
    if not FILE_NAME.fullmatch(name):
        raise DamagedStoreError(f"index/{last}: expected a time as the name of an index file; delete it")
    return name
