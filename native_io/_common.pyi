"""Definitions that the parts of the kernel share. Reading is in _read.pyi, writing in _write.pyi, files are in _io.pyi.

A *window* is any contiguous bytes-like object that holds the bytes of a segment from physical offset `base` on.
Positions, stops and ends are physical offsets (int64), never indices into the window.
"""

import enum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer as _Buffer

# NumPy's own types have the buffer protocol from Python 3.12 on only.
Buffer = _Buffer | npt.NDArray[Any]

FORMAT: dict[str, int]

class Status(enum.IntEnum):
    """Why a walk stopped. See unit.h for what each check compares."""

    OK = ...  # a whole unit (find_unit only)
    LIMIT = ...  # exactly at the stop
    FULL = ...  # `positions` is full
    MORE = ...  # the window ends too early: `expected` bytes from the position on are needed
    BLANK = ...  # the blank that ends a segment
    NO_BLANK = ...  # the segment ends without a blank
    BAD_MAGIC = ...
    BAD_BLANK = ...
    BAD_TOTAL_SIZE = ...
    BAD_PHYSICAL_OFFSET = ...
    BAD_BODY_LENGTH = ...
    BAD_TOPIC_LENGTH = ...
    BAD_PROPERTIES_LENGTH = ...
    BAD_LENGTH_SUM = ...
    BAD_BODY_CRC = ...
    NOT_A_BATCH = ...  # where batches are taken apart: messages do not fill the body
    BAD_QUEUE_OFFSET = ...  # where copies of batches are left out: the batch's properties say another queueOffset
    BAD_SYSFLAG = ...  # there: the copy before has the same queueOffset, and another sysFlag
    CROSSES_STOP = ...  # a unit reaches over the stop, so the stop is not a unit's start
    CONTRADICTED = ...  # a unit, but not the claimed one (Filter.pick only)
    NO_ENTRY = ...  # neither a unit nor an entry that wraps one; only with a Wrapping, as the next one
    BAD_ENTRY = ...  # an entry that is not as long as its unit and its header

class Wrapping:
    """The bytes before each unit of a log whose entries wrap units.

    Args:
        header: the number of bytes before a unit, 16 or more; an entry without a unit has no other bytes.
        at_size: the offset in the header of the whole entry's size (int32).
        at_position: the offset in the header of the physical offset of the entry's first byte (int64).
        at_body: the offset in the header of the unit's size (int32); -1: the header does not say it.
        at_order: the offsets in the header of the entry's index and term (int64), by which entries are ordered; None:
            they have no such order. The walk does not look at them.

    Raises:
        ValueError: the fields do not fit into the header.
    """

    def __init__(
        self, header: int, at_size: int, at_position: int, at_body: int = -1, at_order: tuple[int, int] | None = None
    ) -> None: ...
    @property
    def header(self) -> int: ...
    @property
    def at_order(self) -> tuple[int, int] | None: ...
    def entry_size(self, header: Buffer, position: int) -> int | None:
        """The size in bytes of the entry at a physical offset that begins with this header; None where no entry begins
        so."""

    def in_order(
        self,
        window: Buffer,
        *,
        base: int,
        positions: npt.NDArray[np.int64],
        first: tuple[int, int] | None,
        end: int | None = None,
    ) -> tuple[int, tuple[int, int] | None, int]:
        """The units, from the first on, whose entries go on from each other; the kind has an order (at_order).

        Args:
            window: the bytes of the log from the physical offset `base` on.
            positions: the physical offsets of units in the window, as a walk gave them.
            first: the index and term of the first one's entry; None: not known, and whatever follows goes on from it.
            end: not None: `first` is the entry before that one, and ends at this physical offset; the first unit, too,
                must go on.

        Returns:
            the number of units; the index and term of the last of them, None if not known; and where that one ends.
        """

class Walked(NamedTuple):
    """Where a walk along units stopped, and why.

    Attributes:
        units: the number of units that the walk gave.
        at: the physical offset of the first byte not passed; for Filter.pick() the index of the first claim not
            checked.
        status: why the walk stopped there.
        expected, found: the values of the check that failed. MORE: `expected` bytes from `at` on are needed.
    """

    units: int
    at: int
    status: Status
    expected: int
    found: int

def crc32(data: Buffer, *, before: int = 0, bits: int = 512) -> int:
    """zlib.crc32 as the kernel computes it, continuing the CRC `before` of the bytes before. It multiplies so many
    `bits` at once as the machine can, at most; 0: none, as on any machine."""

def crc32_between(before: int, all_: int, size: int) -> int:
    """The CRC-32 of the last `size` bytes, from the CRC of the bytes before them and the CRC `all_` of all bytes; size
    < 2**32."""

class ArrowArrayExporter(Protocol):
    """An object that hands over an array by Arrow's C data interface, such as a pyarrow RecordBatch or StructArray."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

def java_hash(text: str) -> int:
    """java.lang.String.hashCode: a signed 32-bit number."""

def java_hashes(texts: ArrowArrayExporter) -> npt.NDArray[np.int32]:
    """java_hash of each text of an Arrow array of utf8, and 0 of a null. Bytes that are not UTF-8 count as Java decodes
    them.

    Raises:
        TypeError: the array is of another type.
        ValueError: the array is not sound.
    """
