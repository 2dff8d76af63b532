"""What the parts of the kernel share. Reading is in _read.pyi, writing in _write.pyi, files are in _io.pyi.

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
    CONTRADICTED = ...  # a unit, but not the one that was claimed to be there (Filter.pick only)

class Wrapping:
    """What stands before each unit of a log whose entries wrap it.

    Args:
        header: bytes before a unit, 16 or more; an entry without a unit has no more than them.
        at_size: where in them the size of the whole entry is (int32).
        at_position: where in them the physical offset of the entry's first byte is (int64).

    Raises:
        ValueError: these do not fit into the header.
    """

    def __init__(self, header: int, at_size: int, at_position: int) -> None: ...
    @property
    def header(self) -> int: ...
    def entry_size(self, header: Buffer, position: int) -> int | None:
        """The bytes of the entry at a physical offset that begins with this header; None where no entry does."""

class Walked(NamedTuple):
    """Where a walk along units stopped, and why.

    Attributes:
        units: how many it gave.
        at: the physical offset of the first byte not passed; of Filter.pick() the first claim not looked at.
        status: why it stopped there.
        expected, found: of the check that failed. MORE: `expected` bytes from there on are needed.
    """

    units: int
    at: int
    status: Status
    expected: int
    found: int

def crc32(data: Buffer, *, before: int = 0, portable: bool = False) -> int:
    """zlib.crc32 as the kernel computes it, `before` being that of the bytes before; `portable` takes the way without
    carry-less multiplication."""

def crc32_between(before: int, all_: int, size: int) -> int:
    """The CRC-32 of the last `size` bytes of some, by that of those before them and that of all; size < 2**32."""

class ArrowArrayExporter(Protocol):
    """What can hand over an array by Arrow's C data interface: a pyarrow RecordBatch or StructArray."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

def java_hash(text: str) -> int:
    """java.lang.String.hashCode: a signed 32-bit number."""

def java_hashes(texts: ArrowArrayExporter) -> npt.NDArray[np.int32]:
    """java_hash of each text of an Arrow array of utf8, and 0 of a null. Bytes that are not UTF-8 count as Java decodes
    them.

    Raises:
        TypeError: the array is of another type.
        ValueError: it is not sound.
    """
