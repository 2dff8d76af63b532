"""A store of a kind that there is in tests only: each unit of its log is inside an entry, as in a log of DLedger.

    i32 magic, i32 size of the entry, i64 physical offset of its first byte, and the unit (none in some entries)

The log lies in wrapped/, in place of commitlog/. Physical offsets count the headers: a unit's is its entry's and 16. A
file ends with i32 -1, i32 bytes left.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, ClassVar

from oracle.stores import StoreBuilder

HEADER = struct.Struct(">iiq")
DIRECTORY = "wrapped"
_MAGIC = 7


class EntryStoreBuilder(StoreBuilder):
    """Ends the files of a log whose units are inside entries. `end` is where the next unit goes: behind its header.

    Attributes:
        header: what an entry begins with.
    """

    header: ClassVar[struct.Struct]

    def _left(self) -> int:
        return self.segment_size - (self.end - self.header.size) % self.segment_size - self.header.size

    def _roll(self, size: int) -> None:
        left = self._left() + self.header.size
        self._pending += struct.pack(">ii", -1, left)
        begin = self.end - self.header.size
        self.flush()
        self._flushed = begin + left
        self.end = self._flushed + self.header.size


class WrappedStoreBuilder(EntryStoreBuilder):
    """Builds such a store."""

    header = HEADER

    def __init__(self, root: str | Path, segment_size: int = 8192, **options: Any) -> None:
        super().__init__(root, segment_size, commitlogs=[Path(root) / DIRECTORY], **options)
        self._flushed = self.start
        self.end = self.start + HEADER.size

    def _write(self, data: bytes) -> None:
        entry = self.end - HEADER.size
        self._pending += HEADER.pack(_MAGIC, HEADER.size + len(data), entry) + data
        self.end = entry + HEADER.size + len(data) + HEADER.size

    def append_empty(self) -> None:
        """An entry without a unit."""
        if self._left() < 8:
            self._roll(0)
        self._write(b"")
