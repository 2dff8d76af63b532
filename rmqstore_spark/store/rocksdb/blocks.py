"""Blocks of a table: checked and decompressed.

Source: RocksDB's table/format.h, table/format.cc, util/compression.h.
"""

import bz2
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from native_io import (
    BLOCK_TRAILER,
    CRC32C_CHECKSUM,
    XXH3_CHECKSUM,
    NotSoundError,
    Run,
    check_blocks,
    expand_lz4,
    lz4_size,
    read_blocks,
)
from rmqstore_spark.store.rocksdb.faults import damaged, not_read
from rmqstore_spark.store.rocksdb.fields import Fields

_MOST_BYTES = 64 * 1024 * 1024  # bytes of one block; a broker's have 32 KiB, and more only for one large value
_RUN_BYTES = 4 * 1024 * 1024  # bytes of blocks that are given at a time, about
_NONE, _SNAPPY, _ZLIB, _BZIP2, _LZ4, _LZ4HC, _ZSTD = 0, 1, 2, 3, 4, 5, 7
_TOGETHER = (_NONE, _LZ4, _LZ4HC)  # the kinds that the kernel decompresses, many blocks at a time
_WINDOW_BITS = -14  # of zlib, without header
# The kinds of checksums, as a footer has them.
NO_CHECKSUM = 0
CHECKSUMS = {CRC32C_CHECKSUM: "CRC-32C", XXH3_CHECKSUM: "XXH3"}
# The most times that a block can be larger than its compressed form: a block that claims more is damaged.
_MOST_GAIN = {_SNAPPY: 64, _ZLIB: 1100, _LZ4: 256, _LZ4HC: 256}


@dataclass(frozen=True)
class BlockFile:
    """The facts about a table that reading its blocks needs.

    Attributes:
        path: the file.
        size: bytes of the file.
        checksum: the kind of the blocks' checksums.
        context: makes each checksum valid only in its place in this file (since format version 6); 0: none.
    """

    path: str
    size: int
    checksum: int
    context: int

    def one(self, raw: bytes, offset: int) -> bytes:
        """A block, decompressed.

        Args:
            raw: the block and its trailer.
            offset: the block's offset in the file.

        Raises:
            DamagedStoreError: the block is not sound.
        """
        starts, ends = np.zeros(1, np.int64), np.array([len(raw) - BLOCK_TRAILER], np.int64)
        kind = self._kinds(raw, starts, ends, offset)[0]
        return self._expanded(raw[:-BLOCK_TRAILER], int(kind), offset)

    def runs(
        self, raw: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], offset: int
    ) -> Iterator[tuple[Run, int]]:
        """The entries of blocks that follow each other, many blocks at a time; and the number of these blocks.

        Args:
            raw: bytes of the file.
            starts, ends: of blocks in raw, without their trailers.
            offset: of raw in the file.

        Raises:
            DamagedStoreError: a block is not sound.
        """
        kinds = self._kinds(raw, starts, ends, offset)
        if not kinds.any():
            yield self._entries(raw, starts, ends, starts + offset), len(kinds)
            return
        number = 0
        while number < len(kinds):
            here = slice(number, number + _among(kinds[number:], _TOGETHER))
            are_packed = kinds[here] != _NONE
            data: bytes | npt.NDArray[np.uint8]
            data, bounds = expand_lz4(
                raw, starts[here], ends[here], are_packed, room=_RUN_BYTES, most=_MOST_BYTES, gain=_MOST_GAIN[_LZ4]
            )
            if len(bounds) == 1:
                data, bounds = self._one_by_one(raw, starts[number:], ends[number:], kinds[number:], offset)
            after = number + len(bounds) - 1
            yield self._entries(data, bounds[:-1], bounds[1:], starts[number:after] + offset), after - number
            number = after

    def _one_by_one(
        self,
        raw: bytes,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        kinds: npt.NDArray[np.uint8],
        offset: int,
    ) -> tuple[bytes, npt.NDArray[np.int64]]:
        """The first of some blocks, decompressed, one after the other; and where each begins, and the last one ends."""
        parts: list[bytes] = []
        size = 0
        for start, end, kind in zip(starts.tolist(), ends.tolist(), kinds.tolist(), strict=True):
            parts.append(self._expanded(raw[start:end], kind, offset + start))
            size += len(parts[-1])
            if size >= _RUN_BYTES:
                break
        return b"".join(parts), np.cumsum([0, *map(len, parts)], dtype=np.int64)

    def _kinds(
        self, raw: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], offset: int
    ) -> npt.NDArray[np.uint8]:
        """The compression type of each block."""
        if self.checksum == NO_CHECKSUM:
            return np.frombuffer(raw, np.uint8)[ends]
        kinds, bad = check_blocks(raw, starts, ends, kind=self.checksum, offset=offset, context=self.context)
        if bad >= 0:
            expected = f"a block with its {CHECKSUMS[self.checksum]}"
            raise damaged(self.path, offset + int(starts[bad]), expected, "another one")
        return kinds

    def _entries(
        self,
        data: bytes | npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
    ) -> Run:
        try:
            return read_blocks(data, starts, ends)
        except NotSoundError as why:
            found = f"none at byte {why.position} of it"
            raise damaged(self.path, int(offsets[why.part]), f"a block with {why.expected}", found) from None

    def _expanded(self, block: bytes, kind: int, offset: int) -> bytes:
        if kind == _NONE:
            return block
        try:
            return _expand(block, kind)
        except KeyError:
            raise not_read(self.path, f"compression {kind} of the block at position {offset}") from None
        except (NotSoundError, pa.ArrowException, OSError, ValueError, EOFError, zlib.error) as why:
            raise damaged(self.path, offset, "a compressed block", str(why)) from None


def _among(kinds: npt.NDArray[np.uint8], some: tuple[int, ...]) -> int:
    """How many of the first kinds are some of these."""
    others = np.flatnonzero(~np.isin(kinds, some))
    return int(others[0]) if len(others) else len(kinds)


def _expand(block: bytes, kind: int) -> bytes:
    fields = Fields(block)
    size = fields.varint()
    if size > min(_MOST_BYTES, _MOST_GAIN.get(kind, _MOST_BYTES) * (len(block) + 1)):
        raise NotSoundError(f"at most {_MOST_BYTES} bytes, or as many as its compression can save, but {size}", 0)
    packed = block[fields.position :]
    found = _EXPANDERS[kind](block if kind == _SNAPPY else packed, size)
    if len(found) != size:
        raise NotSoundError(f"{size} bytes, but {len(found)}", 0)
    return found


def _with(codec: str, packed: bytes, size: int) -> bytes:
    expanded: bytes = pa.Codec(codec).decompress(packed, decompressed_size=size, asbytes=True)
    return expanded


def _lz4(packed: bytes, size: int) -> bytes:
    if lz4_size(packed) != size:
        raise NotSoundError(f"{size} bytes, but another number", 0)
    return _with("lz4_raw", packed, size)


_EXPANDERS: dict[int, Callable[[bytes, int], bytes]] = {
    _SNAPPY: lambda packed, size: _with("snappy", packed, size),
    _ZLIB: lambda packed, size: zlib.decompressobj(_WINDOW_BITS).decompress(packed, size + 1),
    _BZIP2: lambda packed, size: bz2.BZ2Decompressor().decompress(packed, size + 1),
    _LZ4: _lz4,
    _LZ4HC: _lz4,
    _ZSTD: lambda packed, size: _with("zstd", packed, size),
}
