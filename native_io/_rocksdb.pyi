"""RocksDB's files: records of its logs, entries of its tables, and the newest entry of each key.

Bytes may be arbitrary: unsound ones raise NotSoundError, and memory stays in proportion to their number.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from native_io._common import Buffer

BLOCK_TRAILER: int  # bytes after each block of a table: its compression type, and a checksum
SEQUENCE_SIZE: int  # bytes that end an internal key: sequence number << 8 | type
NOT_IN_ORDER: int  # from take_newest(), instead of a type: a key that should have come earlier
CRC32C_CHECKSUM: int  # kinds of checksums of a table, as its footer has them
XXH3_CHECKSUM: int
UNKNOWN_RECORD: str  # expected by a NotSoundError of Batches, where a record has an unknown type
LOG_ENDS: tuple[str, ...]

class NotSoundError(ValueError):
    """Bytes that do not have the expected form.

    Attributes:
        expected: the expected form, as text.
        position: the position of the bytes.
        part: the index among several blocks or batches.
    """

    expected: str
    position: int
    part: int
    def __init__(self, expected: str, position: int, part: int = 0) -> None: ...

def crc32c(data: Buffer, *, portable: bool = False) -> int:
    """CRC-32C; `portable` selects the code without the processor's own instruction."""

def masked_crc32c(data: Buffer) -> int:
    """CRC-32C as RocksDB stores it."""

def xxh3(data: Buffer) -> int:
    """XXH3 of 64 bits, without a seed."""

def table_checksum(data: Buffer, *, kind: int, offset: int, context: int) -> int:
    """The checksum of some bytes of a table; further arguments are those of check_blocks()."""

def lz4_size(data: Buffer) -> int:
    """The decompressed size in bytes of an LZ4 block; -1: no LZ4 block. Only the lengths of matches are checked."""

def expand_lz4(
    data: Buffer,
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    are_packed: npt.NDArray[np.bool_] | npt.NDArray[np.uint8],
    *,
    room: int,
    most: int,
    gain: int,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Decompress blocks that begin with their size, the rest of which is an LZ4 block; others are copied.

    Args:
        starts, ends: the start and end of each block in data.
        are_packed: which of them are compressed.
        room: bytes after which no further block is begun.
        most: the most bytes of a block.
        gain: the most times that a block is larger than its compressed form.

    Returns:
        the first of the blocks, up to one that is surely no such block or may be none, one after the other; and where
        each begins, and the last one ends.
    """

def take_records(data: Buffer, *, number: int = 0) -> tuple[npt.NDArray[np.int64], str, int]:
    """Take the records of a log out of their frame, to the beginning of `data`, which is overwritten.

    Args:
        data: all bytes of the log.
        number: the log's number: pieces in a recycled log that name another number are not its own.

    Returns:
        (ends, status, position): the end of each record in `data`; and why there are no more: 'end'; 'torn': the record
        from `position` on was not written to its end; 'damaged'; 'unknown': a kind of record that must not be passed
        over.
    """

def check_blocks(
    data: Buffer, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], *, kind: int, offset: int, context: int
) -> tuple[npt.NDArray[np.uint8], int]:
    """Check the checksums of blocks.

    Args:
        starts, ends: the start and end of each block in data; its trailer follows.
        kind: CRC32C_CHECKSUM or XXH3_CHECKSUM.
        offset: the offset of data in the file.
        context: the file's context checksum, which is in each checksum; 0: none.

    Returns:
        (kinds, bad): the compression type of each block, and the index of the first block that contradicts its
        checksum; -1: none does.
    """

class Run:
    """Entries in the order of internal keys. Only the functions of this module make a Run, and take entries from it."""

    def __len__(self) -> int:
        """The number of entries not yet taken."""

    def begin_at(self, key: Buffer) -> None:
        """Leave out entries with users' keys below this one."""

    def first_key(self) -> bytes:
        """The internal key of the first entry that is left.

        Raises:
            ValueError: none is left.
        """

    def last_key(self) -> bytes:
        """The internal key of the last entry. Errors as of first_key()."""

    def take_versions(self, key: bytes) -> list[tuple[int, int, bytes]]:
        """Take the first entries, as long as they have this user's key: (sequence number, type, value), the newest
        first."""

    def stop_at(self, key: Buffer) -> bool:
        """Leave out entries from this user's key on. Were there any?"""

def read_blocks(data: Buffer, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Run:
    """The entries of blocks with internal keys, one block after the other.

    Args:
        data: the uncompressed blocks.
        starts, ends: the start and end of each block in data.

    Raises:
        NotSoundError: a block is not sound, or an entry does not come after the one before it; the position is that in
            the block.
    """

Pairs = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]

def read_pairs(data: Buffer, *, internal: bool) -> Pairs:
    """The entries of one block.

    Args:
        internal: whether keys are internal ones: each is then checked to be long enough.

    Returns:
        (keys, key_starts, value_starts, value_ends): all keys one after the other; where each key begins, and where the
        last one ends; where each value begins and ends in data.

    Raises:
        NotSoundError: it is no block.
    """

def read_index(data: Buffer, *, internal: bool, delta: bool) -> Pairs:
    """The entries of an index block: in place of a value's bounds, the start and end in the file of the block that the
    entry leads to.

    Args:
        internal: see read_pairs().
        delta: whether most entries hold only the difference of the block's size to that of the block before.

    Raises:
        NotSoundError: the data is no index block.
    """

class Tombstones:
    """Ranges of users' keys that are deleted, for one walk in the order of keys.

    Args:
        ranges: (start, stop, sequence number), disjoint and in order: older entries in a range are deleted.
    """

    def __init__(self, ranges: Iterable[tuple[bytes, bytes, int]] = ()) -> None: ...

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]

def take_newest(runs: list[Run], tombstones: Tombstones, last: bytes | None) -> tuple[Arrays, bytes | None, int, int]:
    """Take the newest entry of each user's key from runs, in the order of keys, until a run has no more entries.

    Args:
        runs: none of them empty.
        tombstones: the deleted ranges.
        last: the user's key that was taken last; None: none yet.

    Returns:
        ((keys, key_starts, values, value_starts), last, stopped, unknown): users' keys with a value, and the values;
        the key that was taken last, even without a value; the index of the run that has no more entries, which has to
        be replaced by its next entries, or left out; -1, or the type of an entry in that run that is neither value nor
        deletion, or NOT_IN_ORDER.
    """

class Batches:
    """Write batches, as records of a write-ahead log.

    Args:
        data: all batches, one after the other.
        ends: the end of each batch in data.

    Raises:
        NotSoundError: a batch is not sound; the position is that in data.
    """

    def __init__(self, data: Buffer, ends: npt.NDArray[np.int64]) -> None: ...
    def __len__(self) -> int:
        """The number of puts and deletions."""

    def run(self, family: int) -> Run:
        """The puts and deletions of a column family, except deletions of ranges, in the order of internal keys."""

    def range_deletions(self, family: int) -> list[tuple[bytes, bytes, int]]:
        """The ranges that are deleted in a column family: (start, stop, sequence number)."""
