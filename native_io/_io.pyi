"""Files, by descriptors that the caller has opened. For words see _common.pyi."""

import numpy as np
import numpy.typing as npt

from native_io._common import Buffer, Walked, Wrapping
from native_io._read import Decoder, Filter

class Slide:
    """A window that slides along a file of the log while a decoder takes what it shows. For one thread at a time.

    Args:
        window: is overwritten with what is read.
        base: the physical offset of the window's first byte.
        shown: how many of its bytes are of the file.
        ahead: how many bytes are read next; after that as many as the window has.

    Attributes:
        base, shown, ahead: as of now.
        bytes, requests: what the last decode() has read.

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
    ) -> Walked:
        """Decoder.scan() over as many windows as it takes, each read from a file: one call makes a batch.

        Args:
            fd: a file of the log.
            start, end: the physical offsets of the file's first byte, and where it ends or is not to be read on.
            most: the most units to decode.
            enough: bytes of Arrow data; where there are so many after a window, it ends.
            chosen: which units are decoded; None: all. It ends after 32 MiB of the log in any case.

        Returns:
            Walked, as of the function scan. FULL: decode() only has to be called again. MORE: the unit at the position
            is longer than the window, or than the file shows; nothing was passed.

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
) -> tuple[int, int, int]:
    """Read from many offsets of a file into one buffer.

    Args:
        offsets: where, ascending.
        sizes: how many bytes from each.
        buffer: what is read goes here, as much as fits.
        window_offsets, lengths: filled: where in the buffer each offset's bytes begin, and how many are there (fewer
            than asked for where the file ends, more where neighbours were read with them).
        slack: offsets no further apart than so many bytes are read in one request.

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
        paths: their directories, a NUL byte after each.
        numbers: filled: of the unit that the queue's file begins with.
        sizes: filled: how many bytes of units stand in the queue's share, up to one that is not used at least; -1 where
            the queue is another one, or cannot be read: nothing is said of it then.
        buffer: the units.

    Returns:
        (bytes, requests): what was read.

    Raises:
        ValueError: the arguments do not fit each other.
    """

def resident(fd: int, offset: int, pages: Buffer) -> None:
    """Which pages of a file are in memory. Nothing is read.

    Whoever neither owns the file nor may write to it is told that all are. Source: mincore(2).

    Args:
        offset: where the first page begins.
        pages: filled: for each page from there on 1 where it is in memory, else 0.

    Raises:
        OSError: the system's; `offset` is none where a page begins, or the file can't be mapped.
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
        start: as many of the file's first bytes as are in memory; of the rest, what is needed is read.
        hashes: not negative; those that share a slot are side by side.
        slots, items: how many the file can hold.
        count, begin_offset, end_offset: indexCount, beginPhyOffset and endPhyOffset of its header.

    Returns:
        (offsets, bytes, requests): the physical offsets of the items with one of the hashes, slot by slot and newest
            first, or None where a chain is broken; and what was read.

    Raises:
        OSError: the system's.
        ValueError: a hash is negative, or no file has so many slots or items.
    """

def exchange(above: int, name: bytes, other_above: int, other: bytes) -> None:
    """Swap two names in one step, each below the descriptor of a directory (renameat2 with RENAME_EXCHANGE).

    Raises:
        OSError: as the call says; ENOSYS where Linux is older than 3.15, EINVAL where the file system cannot.
    """

def mount_of(fd: int) -> int | None:
    """The id of the mount that an open file is on (statx); None where Linux does not tell, before 5.8."""
