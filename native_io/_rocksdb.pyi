"""RocksDB's files: records of its logs, entries of its tables, and the newest entry of each key.

Bytes may be any: what is not sound raises NotSoundError, and memory stays in proportion to them.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from native_io._common import Buffer

BLOCK_TRAILER: int  # bytes after each block of a table: how it is compressed, and a CRC
SEQUENCE_SIZE: int  # bytes that end an internal key: sequence number << 8 | type
NOT_IN_ORDER: int  # of take_newest(), instead of a type: a key that should have come before
LOG_ENDS: tuple[str, ...]

class NotSoundError(ValueError):
    """Bytes that are not what they should be.

    Attributes:
        expected: what they should be, in words.
        position: where.
        part: of several blocks or batches, which.
    """

    expected: str
    position: int
    part: int
    def __init__(self, expected: str, position: int, part: int = 0) -> None: ...

def crc32c(data: Buffer, *, portable: bool = False) -> int:
    """CRC-32C; `portable` takes the way without the processor's own instruction."""

def masked_crc32c(data: Buffer) -> int:
    """CRC-32C as RocksDB stores it."""

def lz4_size(data: Buffer) -> int:
    """How long the bytes of an LZ4 block are; -1: it is none. Matches are not looked at, but for their length."""

def take_records(data: Buffer, *, number: int = 0) -> tuple[npt.NDArray[np.int64], str, int]:
    """Take the records of a log out of their frame, to the beginning of `data`, which is written over.

    Args:
        data: all bytes of the log.
        number: of the log: pieces of a recycled one that name another are not its own.

    Returns:
        (ends, status, position): where in `data` each record ends; and why there are no more: 'end'; 'torn': from
        `position` on is a record that was not written to its end; 'damaged'; 'unknown': a kind of record that must
        not be passed over.
    """

def check_blocks(
    data: Buffer, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], *, offset: int, context: int
) -> tuple[npt.NDArray[np.uint8], int]:
    """Check the CRC-32C of blocks.

    Args:
        starts, ends: of each block in data; its trailer comes after it.
        offset: of data in the file.
        context: the file's, which is in each CRC; 0: there is none.

    Returns:
        (kinds, bad): how each block is compressed, and the first that is not as its CRC says; -1: all are.
    """

class Run:
    """Entries in the order of internal keys. Only the functions here make one, and only they take from it."""

    def __len__(self) -> int:
        """How many have not been taken."""

    def begin_at(self, key: Buffer) -> None:
        """Leave out entries of users' keys below this one."""

    def stop_at(self, key: Buffer) -> bool:
        """Leave out entries from this user's key on. Were there any?"""

def read_blocks(data: Buffer, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Run:
    """The entries of blocks with internal keys, one block after the other.

    Args:
        data: the blocks, without compression.
        starts, ends: of each in data.

    Raises:
        NotSoundError: a block is none; the position is that in the block.
    """

Pairs = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]

def read_pairs(data: Buffer, *, internal: bool) -> Pairs:
    """The entries of one block.

    Args:
        internal: whether keys are internal ones: then each is long enough.

    Returns:
        (keys, key_starts, value_starts, value_ends): all keys one after the other; where each begins, and the last one
        ends; where in data the values are.

    Raises:
        NotSoundError: it is no block.
    """

def read_index(data: Buffer, *, internal: bool, delta: bool) -> Pairs:
    """The entries of a block of an index: where the values would be are the start and end of the block in the file.

    Args:
        internal: as of read_pairs().
        delta: whether most of them have only how much larger a block is than the one before.

    Raises:
        NotSoundError: it is no block of an index.
    """

class Tombstones:
    """Ranges of users' keys that are deleted, for one walk in the order of keys.

    Args:
        ranges: (start, stop, sequence number), apart from each other and in order: what is older is deleted.
    """

    def __init__(self, ranges: Iterable[tuple[bytes, bytes, int]] = ()) -> None: ...

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]

def take_newest(runs: list[Run], tombstones: Tombstones, last: bytes | None) -> tuple[Arrays, bytes | None, int, int]:
    """Take entries from runs, of each user's key the newest, in the order of keys, until a run has no more.

    Args:
        runs: none of them empty.
        tombstones: what is deleted.
        last: the user's key that was taken last; None: none was.

    Returns:
        ((keys, key_starts, values, value_starts), last, stopped, unknown): users' keys that have a value; the key that
        was taken last, also where it has none; the run that has no more entries, and is to be replaced by its next
        ones, or left out. -1 for `unknown`; else that run has an entry of this type, which is neither value nor
        deletion, or NOT_IN_ORDER.
    """

class Batches:
    """Write batches, as records of a write-ahead log.

    Args:
        data: all of them, one after the other.
        ends: where in data each ends.

    Raises:
        NotSoundError: one is none; the position is that in data.
    """

    def __init__(self, data: Buffer, ends: npt.NDArray[np.int64]) -> None: ...
    def __len__(self) -> int:
        """How many puts and deletions there are."""

    def run(self, family: int) -> Run:
        """Those of a column family, but for ranges, in the order of internal keys."""

    def range_deletions(self, family: int) -> list[tuple[bytes, bytes, int]]:
        """The ranges that are deleted in a column family: (start, stop, sequence number)."""
