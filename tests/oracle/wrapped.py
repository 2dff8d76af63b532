"""A store of a kind that there is in tests only: each unit of its log is inside an entry, as in a log of DLedger.

    i32 magic, i32 size of the entry, i64 physical offset of its first byte, and the unit (none in some entries)

The log lies in wrapped/, in place of commitlog/. Physical offsets count the headers: a unit's is its entry's and 16. A
file ends with i32 -1, i32 bytes left.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from oracle.stores import StoreBuilder

HEADER = struct.Struct(">iiq")
DIRECTORY = "wrapped"
_MAGIC = 7


class WrappedStoreBuilder(StoreBuilder):
    """Builds such a store. `end` is where the next unit goes: behind its header."""

    def __init__(self, root: str | Path, segment_size: int = 8192, **options: Any) -> None:
        super().__init__(root, segment_size, commitlogs=[Path(root) / DIRECTORY], **options)
        self._flushed = self.start
        self.end = self.start + HEADER.size

    def _left(self) -> int:
        return self.segment_size - (self.end - HEADER.size) % self.segment_size - HEADER.size

    def _roll(self, size: int) -> None:
        left = self._left() + HEADER.size
        self._pending += struct.pack(">ii", -1, left)
        begin = self.end - HEADER.size
        self.flush()
        self._flushed = begin + left
        self.end = self._flushed + HEADER.size

    def _write(self, data: bytes) -> None:
        entry = self.end - HEADER.size
        self._pending += HEADER.pack(_MAGIC, HEADER.size + len(data), entry) + data
        self.end = entry + HEADER.size + len(data) + HEADER.size

    def append_empty(self) -> None:
        """An entry without a unit."""
        if self._left() < 8:
            self._roll(0)
        self._write(b"")
