"""Reading: where units are, which are selected, and their fields as Arrow columns. For words see _common.pyi."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from native_io._common import Buffer, Status

COLUMNS: tuple[str, ...]

def scan(
    window: Buffer,
    *,
    base: int,
    position: int,
    stop: int,
    segment_end: int,
    verify_crc: bool,
    positions: npt.NDArray[np.int64],
) -> tuple[int, int, Status, int, int]:
    """Walk the chain of units from `position` to `stop`, checking each one (CommitLog.checkMessageAndReturnSize, and
    physicalOffset against the position).

    Args:
        positions: where to put the starts; its length is the most units to return.

    Returns:
        (count, position, status, expected, found): positions[:count] are the starts of the units; `position` is the
        first byte not passed, and `status` with `expected` and `found` says why.

    Raises:
        ValueError: offsets are negative or beyond 2**63, or `position` lies before `base`.
    """

def find_unit(
    window: Buffer, *, base: int, position: int, stop: int, segment_end: int, verify_crc: bool
) -> tuple[int, Status, int]:
    """Search for the first whole unit that starts in [position, stop).

    Returns:
        (position, status, needed): status OK: there it is; LIMIT: there is none; MORE: go on from `position` with a
        window of at least `needed` bytes.

    Raises:
        ValueError: as scan().
    """

class Filter:
    """Selects units by their fixed fields and their topic, before anything is decoded. For one thread at a time.

    Args:
        store_timestamp: (least, most) in milliseconds, both included.
        commit_log_offset: (least, most) physical offset, both included.
        judge: called once for each topic (bytes) and queueId that is met: the (least, most) queueOffset selected of
            that queue, or None when nothing is. None instead of a function: all queues are selected.
    """

    def __init__(
        self,
        *,
        store_timestamp: tuple[int, int],
        commit_log_offset: tuple[int, int],
        judge: Callable[[bytes, int], tuple[int, int] | None] | None,
    ) -> None: ...
    def scan(
        self,
        window: Buffer,
        *,
        base: int,
        position: int,
        stop: int,
        segment_end: int,
        verify_crc: bool,
        positions: npt.NDArray[np.int64],
    ) -> tuple[int, int, Status, int, int]:
        """As the function scan, but only selected units are listed, and only their CRC is checked."""
    def pick(
        self,
        window: Buffer,
        *,
        segment_end: int,
        verify_crc: bool,
        positions: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32] | None,
        queue_offsets: npt.NDArray[np.int64] | None,
        wanted: npt.NDArray[np.int64],
    ) -> tuple[int, int, Status, int, int]:
        """Which of the units that are claimed to be at some physical offsets are selected. They are checked as by scan.

        Args:
            window: their bytes, as gather() reads them: `lengths[i]` from `places[i]` on.
            positions: the physical offsets.
            sizes, queue_offsets: what is claimed of these units, by queues that are selected.
            wanted: where to put the indices of selected ones; at least as long as `positions`.

        Returns:
            (count, taken, status, expected, found): positions[:taken] were looked at; wanted[:count] are the indices of
            those that are selected. Status LIMIT: that is all; MORE: unit `taken` has `expected` bytes, which are not
            all there; CONTRADICTED: another unit is there; else: none is.
        """

def gather(
    fd: int,
    offsets: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int32],
    buffer: Buffer,
    places: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    *,
    slack: int,
) -> tuple[int, int, int]:
    """Read from many offsets of a file into one buffer.

    Args:
        offsets: where, ascending.
        sizes: how many bytes from each.
        buffer: what is read goes here, as much as fits.
        places, lengths: filled: where in the buffer each offset's bytes begin, and how many are there (fewer than asked
            for where the file ends, more where neighbours were read with them).
        slack: offsets no further apart than so many bytes are read in one request.

    Returns:
        (count, bytes, requests): offsets[:count] were read.

    Raises:
        OSError: the system's.
    """

class Decoder:
    """Decodes units into Arrow columns, batch after batch; a column that is not asked for costs nothing.

    While one thread uses it, and for ever after append() or finish() failed, it answers others with RuntimeError.

    Args:
        columns: names out of COLUMNS, each once, in the order the batch shall have.
    """

    columns: tuple[str, ...]
    def __init__(self, columns: Sequence[str]) -> None: ...
    @property
    def rows(self) -> int:
        """Rows since the last finish()."""
    @property
    def nbytes(self) -> int:
        """Bytes of Arrow data since the last finish()."""
    @property
    def compressed(self) -> int:
        """Rows whose sysFlag says that the body is compressed, counted when `body` is wanted. Bodies come as stored."""
    @property
    def non_ascii(self) -> bool:
        """True when text may hold bytes that are not UTF-8 (something in it is not ASCII)."""
    def append(
        self,
        window: Buffer,
        positions: npt.NDArray[np.int64],
        *,
        base: int,
        places: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Decode the units at `positions`. Bounds are checked again; the CRC is not.

        Args:
            places: where they begin in the window, when that is not their distance from `base`.

        Raises:
            ValueError: there is no unit at one of the positions.
            OverflowError: a column of one batch would pass 2 GiB.
        """
    def scan(
        self,
        window: Buffer,
        *,
        base: int,
        position: int,
        stop: int,
        segment_end: int,
        verify_crc: bool,
        most: int,
    ) -> tuple[int, int, Status, int, int]:
        """The function scan and append in one, and faster than the two: walk from `position`, decode what is found.

        Args:
            most: the most units to decode.

        Returns:
            (count, position, status, expected, found), as of the function scan; the units are decoded, not listed.

        Raises:
            OverflowError: a column of one batch would pass 2 GiB.
        """
    def finish(self) -> Any:
        """All rows so far as a PyCapsule "arrow_array" (Arrow C data interface): a struct array with these columns:
        int32, int64, timestamp[us] (times that do not fit are null), utf8 / binary, map<utf8, utf8>."""
