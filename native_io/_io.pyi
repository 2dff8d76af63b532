"""Files, by descriptors that the caller has opened. See _common.pyi for the terms."""

import numpy as np
import numpy.typing as npt

from native_io._common import Buffer, Walked, Wrapping
from native_io._read import Decoder, Filter, Tiling

class Slide:
    """A window that slides along a file of the log while a decoder takes the units in it. For one thread at a time.

    Args:
        window: the buffer, which is overwritten with the bytes read.
        base: the physical offset of the window's first byte.
        shown: the number of bytes in the window that are of the file.
        ahead: the number of bytes of the next read; later reads fill the window.

    Attributes:
        base, shown, ahead: the current values.
        bytes, requests: the bytes and requests of the last decode().

    Raises:
        ValueError: the window is too small, or an offset negative.
    """

    def __init__(self, window: Buffer, *, base: int, shown: int, ahead: int) -> None: ...
    @property
    def base(self) -> int: ...
    @property
    def shown(self) -> int: ...
    @property
    def ahead(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def requests(self) -> int: ...
    def decode(
        self,
        decoder: Decoder,
        fd: int,
        *,
        start: int,
        end: int,
        position: int,
        stop: int,
        segment_end: int,
        verify_crc: bool,
        most: int,
        enough: int,
        chosen: Filter | None = None,
        wrapping: Wrapping | None = None,
        flags: int = 0,
    ) -> Walked:
        """Decoder.scan() over as many windows as a batch needs, each read from a file: one call makes a batch.

        Args:
            fd: a file of the log.
            start, end: the physical offsets of the file's first byte, and of the end of the file or of the part to
                read.
            most: the most units to decode.
            enough: bytes of Arrow data; the call ends after the window that reaches them.
            chosen: selects the units to decode; None: all. The call ends after 32 MiB of the log in any case.
            flags: of preadv2().

        Returns:
            Walked, as from the function scan. FULL: decode() only has to be called again. MORE: the unit at the
            position is longer than the window, or than the rest of the file; no unit was passed.

        Raises:
            OSError: the file cannot be read at `base`.
            OverflowError: a column of one batch would pass 2 GiB.
            RuntimeError: the decoder or the filter is in use by another thread, or failed earlier.
            ValueError: offsets are negative or beyond 2**63, or the position lies before the file.
        """

def gather(
    fd: int,
    offsets: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int32],
    buffer: Buffer,
    window_offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    *,
    slack: int,
    flags: int = 0,
) -> tuple[int, int, int]:
    """Read from many offsets of a file into one buffer.

    Args:
        offsets: the offsets in the file, ascending.
        sizes: the number of bytes to read at each offset.
        buffer: takes the bytes read, as many as fit.
        window_offsets, lengths: filled with the position in the buffer where each offset's bytes begin, and their
            number (fewer than asked for where the file ends, more where neighbours were read with them).
        slack: stretches at most this many bytes apart are read in one request.
        flags: of preadv2().

    Returns:
        (count, bytes, requests): offsets[:count] were read.

    Raises:
        OSError: the system's.
    """

def read_short_queues(
    paths: bytes, numbers: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], buffer: Buffer
) -> tuple[int, int]:
    """Read the units of many queues of 20-byte units that have one short file each. All shares of the buffer are equal.

    Args:
        paths: the queues' directories, each followed by a NUL byte.
        numbers: filled with the number of the first unit in each queue's file.
        sizes: filled with the number of bytes of units in each queue's share, at least up to the first unused unit; -1
            where the queue is not of this form, or cannot be read.
        buffer: takes the units.

    Returns:
        (bytes, requests): the bytes and requests of the reads.

    Raises:
        ValueError: the arguments contradict each other.
    """

def tile_queues(
    tiling: Tiling,
    paths: bytes,
    asked: npt.NDArray[np.uint8],
    found: npt.NDArray[np.int64],
    buffer: Buffer,
    *,
    most: int,
) -> tuple[int, int]:
    """Begin many queues of 20-byte units that have one file each, and add their units to a tiling as far as they are
    needed (Tiling.add).

    Args:
        paths: the queues' directories, each followed by a NUL byte.
        asked: whether each queue's units are also summed up separately.
        found: filled with a row for each queue: 1, what Tiling.units gives, and physical offset, size and queue offset
            of the first and of the last unit in a stretch, the first at -1 where there is none; or 0 where the queue is
            not of this form, cannot be opened or read, or may have more bytes of units than `most`: then nothing was
            added. -errno instead of 1 where its file could be read in part only.
        buffer: for units on their way, at least 2,000 bytes.

    Returns:
        (bytes, requests): the bytes and requests of the reads.

    Raises:
        ValueError: the arguments contradict each other.
    """

def list_queue_ids(paths: bytes, counts: npt.NDArray[np.int64], ids: npt.NDArray[np.int32]) -> int:
    """List the directories of many topics, up to the first one whose queueIds there is no more room for.

    Args:
        paths: the topics' directories, each followed by a NUL byte.
        counts: filled with how many queueIds each directory has names of; -1 where it cannot be read.
        ids: filled with the queueIds, directory by directory, in each as they come.

    Returns:
        How many directories were listed.

    Raises:
        ValueError: the arguments contradict each other.
    """

def find_queue_files(paths: bytes, found: npt.NDArray[np.int64]) -> None:
    """Find the files of many queues that have one file each. No file is opened.

    Args:
        paths: the queues' directories, each followed by a NUL byte.
        found: filled with a row for each queue: the offset that its file begins with, the file's size, and the bytes
            that it takes on the disk; -1, 0 and 0 where the queue has not exactly one file, and that a regular one.

    Raises:
        ValueError: the arguments contradict each other.
    """

def read_queue_heads(
    paths: bytes, starts: npt.NDArray[np.int64], heads: npt.NDArray[np.int64], buffer: Buffer
) -> tuple[int, int]:
    """Read the first units of many queues that have one file each. All shares of the buffer are equal.

    Args:
        paths: the queues' directories, or the paths of their files, each followed by a NUL byte.
        starts: for each queue whose file's path is given, the offset that the file begins with; -1 where it is the
            directory's.
        heads: filled with a row for each queue: the offset that its file begins with, the file's size, the bytes that
            it takes on the disk, how many bytes of it are in the share (-1 where the queue has not exactly one file, or
            it cannot be read), how many of these come up to the last one that is not 0, and 1 where only a hole follows
            the share, else 0.
        buffer: takes the units; zeros follow them in each share.

    Returns:
        (bytes, requests): the bytes and requests of the reads.

    Raises:
        ValueError: the arguments contradict each other.
    """

def read_queue_ends(
    paths: bytes,
    ends: npt.NDArray[np.int64],
    units: Buffer,
    *,
    starts: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    begin: int,
    width: int,
) -> tuple[int, int]:
    """Find both ends of many queues of 20-byte units that have one file each, and units by number.

    Args:
        paths: the queues' directories, each followed by a NUL byte.
        ends: filled with a row for each queue: the offset that its file begins with (-1 where the queue has not exactly
            one file), the file's size, the bytes that it takes on the disk, the number of the first unit of a message
            at or after `begin` among the first `width`, that of the last unit in use (-1 where there is none), 1 where
            the first `width` units show all that are in use, else 0, and 1 where all of this is known. Where that is 0,
            the queue has to be read in another way.
        units: filled with both units of each queue; zeros where there is none.
        starts: number of the first unit asked for of each queue, and at last the number of all of them.
        numbers: of the units asked for.
        places: filled with rows: the physical offsets of their messages and their sizes; -1 for a unit that stands for
            no message, or is not there.
        begin: the physical offset that the log begins with.
        width: units, at most as many as a page of 4096 bytes has.

    Returns:
        (bytes, requests): the bytes and requests of the reads.

    Raises:
        ValueError: the arguments contradict each other.
    """

def read_queue_parts(
    paths: bytes,
    starts: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    buffer: Buffer,
) -> tuple[int, int]:
    """Read parts of many files of 20-byte units. All shares of the buffer are equal, and zeros follow what is read.

    Args:
        paths: the files, each followed by a NUL byte.
        starts: number of the first part of each file, and at last the number of all parts.
        positions: where the parts begin in their files, in bytes; a negative one is that of no part.
        sizes: filled with the bytes of each part, fewer than a share where the file ends; -1 where there is no part, or
            it cannot be read.
        buffer: takes the parts.

    Returns:
        (bytes, requests): the bytes and requests of the reads.

    Raises:
        ValueError: the arguments contradict each other.
    """

def resident(fd: int, offset: int, pages: Buffer) -> None:
    """Which pages of a file are in memory. Nothing is read.

    To a user who neither owns the file nor may write to it, the system reports all pages as in memory. Source:
    mincore(2).

    Args:
        offset: where the first page begins.
        pages: filled for each page from `offset` on: 1 where the page is in memory, else 0.

    Raises:
        OSError: the system's; `offset` is not the beginning of a page, or the file can't be mapped.
    """

def follow_chains(
    fd: int,
    start: Buffer,
    hashes: npt.NDArray[np.int32],
    *,
    slots: int,
    items: int,
    count: int,
    begin_offset: int,
    end_offset: int,
) -> tuple[npt.NDArray[np.int64] | None, int, int]:
    """Look many key hashes up in an index file.

    Args:
        start: the first bytes of the file that are in memory; needed bytes after them are read.
        hashes: not negative; hashes that share a slot are side by side.
        slots, items: the numbers of slots and items that the file can hold.
        count, begin_offset, end_offset: indexCount, beginPhyOffset and endPhyOffset of the file's header.

    Returns:
        (offsets, bytes, requests): the physical offsets of the items with one of the hashes, slot by slot and newest
            first, or None where a chain is broken; and the bytes and requests of the reads.

    Raises:
        OSError: the system's.
        ValueError: a hash is negative, or no file has so many slots or items.
    """

def exchange(above: int, name: bytes, other_above: int, other: bytes) -> None:
    """Swap two names in one step, each below the descriptor of a directory (renameat2 with RENAME_EXCHANGE).

    Raises:
        OSError: the system's; ENOSYS where Linux is older than 3.15, EINVAL where the file system cannot swap names.
    """

def mount_of(fd: int) -> int | None:
    """The id of the mount that an open file is on (statx); None on Linux before 5.8, which does not report it."""
