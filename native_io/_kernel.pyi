"""What the kernel offers.

A *window* is any contiguous bytes-like object that holds the bytes of a segment from physical offset `base` on.
Positions, stops and ends are physical offsets (int64), never indices into the window.
"""

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

FORMAT: dict[str, int]
COLUMNS: tuple[str, ...]

class Status(enum.IntEnum):
    """Why a scan stopped. See unit.h for what each check compares."""

    OK = ...  # a whole unit (find_unit only)
    LIMIT = ...  # exactly at the stop
    FULL = ...  # `positions` is full
    MORE = ...  # the window ends too early: `expected` bytes from the position on are needed
    BLANK = ...  # the blank that ends a segment
    NO_BLANK = ...  # the segment ends without one
    BAD_MAGIC = ...
    BAD_BLANK = ...
    BAD_TOTAL_SIZE = ...
    BAD_PHYSICAL_OFFSET = ...
    BAD_BODY_LENGTH = ...
    BAD_TOPIC_LENGTH = ...
    BAD_PROPERTIES_LENGTH = ...
    BAD_LENGTH_SUM = ...
    BAD_BODY_CRC = ...
    CROSSES_STOP = ...  # a unit reaches over the stop, so the stop is not a unit's start

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

def crc32(data: Buffer, *, portable: bool = False) -> int:
    """zlib.crc32 as the kernel computes it; `portable` takes the way without carry-less multiplication."""

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
    def append(self, window: Buffer, positions: npt.NDArray[np.int64], *, base: int) -> None:
        """Decode the units at `positions`. Bounds are checked again; the CRC is not.

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
