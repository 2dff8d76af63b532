"""A log of DLedger: how a node writes it, and what a node that starts on it takes for its log. By
io.openmessaging.storage.dledger.entry.DLedgerEntryCoder and store.file.DLedgerMmapFileStore.

    i32 magic, i32 size of the entry, i64 index, i64 term, i64 physical offset of its first byte, i32 channel,
    i32 chainCrc, i32 bodyCrc, i32 bodyLength, and one unit (none in an entry of magic 2 or 3)

Physical offsets count the headers: a unit's is its entry's and 48. A file ends with i32 -1, i32 bytes left. At 32 times
its index, index/ has of each entry i32 magic, i64 physical offset, i32 size, i64 index, i64 term.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from oracle import reference
from oracle.stores import StoreBuilder, Stored
from oracle.wrapped import EntryStoreBuilder

HEADER = struct.Struct(">iiqqqiiii")
NOTE = struct.Struct(">iqiqq")
NAME = "dledger-n0"


class Entry(NamedTuple):
    """An entry, and the node's file that it is in."""

    position: int
    size: int
    number: int
    term: int
    unit: bytes
    path: Path

    @property
    def end(self) -> int:
        return self.position + self.size


class DLedgerStoreBuilder(EntryStoreBuilder):
    """Builds the store of a DLedger node. `end` is where the next unit goes: behind its header. `term` is that of the
    next entries.

    With `classic`, a store whose broker wrote that log before it was switched to DLedger: the log goes on behind it.
    """

    header = HEADER

    def __init__(
        self, root: str | Path, segment_size: int = 8192, *, classic: StoreBuilder | None = None, **options: Any
    ) -> None:
        start = 0 if classic is None else _closed(classic)
        data = Path(root) / NAME / "data"
        super().__init__(root, segment_size, start=start, commitlogs=[data], **options)
        if classic is not None:
            self.messages = list(classic.messages)
            self._queues, self.now, self._index = classic._queues, classic.now, classic._index
        self.term = self.index = 0
        self._to_index: list[tuple[Stored, list[str]]] = []
        self._notes: dict[int, bytes] = {}  # by index: not on disk yet
        self._units: dict[int, bytes] = {}  # by position of the message: its queue's unit
        self.holding = False  # whether new entries are not committed: a broker then puts their messages into no queue
        self.end = start + HEADER.size

    def _write(self, data: bytes, magic: int = 1) -> None:
        entry = self.end - HEADER.size
        self._pending += HEADER.pack(magic, HEADER.size + len(data), self.index, self.term, entry, 0, 0, 0, len(data))
        self._pending += data
        self._notes[self.index] = NOTE.pack(magic, entry, HEADER.size + len(data), self.index, self.term)
        self.index += 1
        self.end = entry + HEADER.size + len(data) + HEADER.size

    def _flush_queue(self, directory: Path, queue: Any) -> None:
        if not self.holding:
            super()._flush_queue(directory, queue)

    def index_last(self) -> None:
        """An entry that is not committed is in no index either."""
        last = self.messages[-1]
        self._units[last.position] = bytes(self._queue(last.topic, last.queue_id).pending[-reference.QUEUE_UNIT_SIZE :])
        self._to_index.append((last, self._last_keys))
        if not self.holding:
            self._index_all()

    def _index_all(self) -> None:
        """What came while the node was holding, and is still there."""
        there = {message.position for message in self.messages}
        for message, keys in self._to_index:
            if self._index and message.position in there:
                self._index.put(message.topic, keys, message.position, message.store_timestamp)
        self._to_index.clear()

    def flush(self) -> None:
        if not self.holding:
            self._index_all()
        super().flush()
        if self._notes:
            path = self.root / NAME / "index" / f"{0:020d}"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if path.exists() else "w+b") as file:
                for number, note in self._notes.items():
                    file.seek(number * NOTE.size)
                    file.write(note)
            self._notes.clear()

    def restart_of_5_2_0(self, committed: int) -> None:
        """A node of 5.2.0 stops and starts: it cuts each queue off before the messages of the log's last file, and
        dispatches again only from a physical offset on that it had noted as committed. What is between is in no queue.
        Later messages get the queue offsets from the queue's end on, some of which others have. Seen with one node."""
        self.flush()
        start = (self.end - HEADER.size) // self.segment_size * self.segment_size
        for (topic, queue_id), queue in self._queues.items():
            mine = [m for m in self.messages if m.queued and (m.topic, m.queue_id) == (topic, queue_id)]
            kept = sum(position < start for position in self._positions(topic, queue_id, queue.flushed))
            again = [m.position for m in mine if m.position >= max(start, committed)]
            queue.flushed, queue.pending = kept, bytearray().join(self._units[position] for position in again)
            queue.next_offset = kept + len(again)
            cut = kept * reference.QUEUE_UNIT_SIZE
            for path in self.queue_directory(topic, queue_id).iterdir():
                if int(path.name) > cut:
                    path.unlink()
        self.flush()

    def _positions(self, topic: str, queue_id: int, count: int) -> list[int]:
        """Where the messages of a queue's first units are."""
        files = sorted(self.queue_directory(topic, queue_id).iterdir()) if count else []
        data = b"".join(path.read_bytes() for path in files)
        return [struct.unpack_from(">q", data, n * reference.QUEUE_UNIT_SIZE)[0] for n in range(count)]

    def append_empty(self, magic: int = 2) -> None:
        """An entry without a unit."""
        if self._left() < 8:
            self._roll(0)
        self._write(b"", magic)

    def take(self, entry: Entry) -> None:
        """An entry of another node, as a follower gets it."""
        if entry.position < self.end - HEADER.size:  # cut where a file began: this entry fits into the one before
            self.flush()
            self.end, self._flushed = entry.position + HEADER.size, entry.position
        elif entry.position != self.end - HEADER.size:
            self._roll(0)
        assert (entry.position, entry.number) == (self.end - HEADER.size, self.index)
        self.term = entry.term
        at = self.end
        self._write(entry.unit)
        unit = reference.parse_unit(entry.unit, at)
        topic, place = unit.topic.decode(), (unit.queue_offset, unit.store_timestamp)
        self.messages.append(Stored(at, len(entry.unit), topic, unit.queue_id, *place, True))
        self._queue(topic, unit.queue_id).next_offset += 1

    def checkpoint(self, committed: int, end: int) -> None:
        """What the node had written down some time ago."""
        path = self.root / NAME / "checkpoint"
        path.write_text(f"committedIndex={committed}\nendIndex={end}\n")

    def cut(self, index: int) -> None:
        """Truncate the log, as a follower does that a new leader tells to: entries from this one on are no more. Their
        bytes stay in the file where the log then ends; later files are deleted. Where queues had them (a node that was
        started alone had put them there), these move their marks, too."""
        self.flush()
        cut = next(entry for entry in entries(self.root) if entry.number == index)
        for path in self.commitlogs[0].iterdir():
            if int(path.name) > cut.position:
                path.unlink()
        self.messages = [message for message in self.messages if message.position < cut.position]
        self.index, self.end, self._flushed = index, cut.position + HEADER.size, cut.position
        self._pending.clear()
        for (topic, queue_id), queue in self._queues.items():
            queue.next_offset = sum(m.queued and (m.topic, m.queue_id) == (topic, queue_id) for m in self.messages)
            queue.pending = queue.pending[: max(queue.next_offset - queue.flushed, 0) * reference.QUEUE_UNIT_SIZE]
            queue.flushed = min(queue.flushed, queue.next_offset)


def _closed(classic: StoreBuilder) -> int:
    """Close the last file of an ordinary log, and say where the next one would begin (DLedgerCommitLog
    .setRecoverPosition)."""
    classic.flush()
    size, at = classic.segment_size, classic.end
    end = -(-at // size) * size
    if at < end:
        with classic.segment(at).open("r+b") as file:
            file.seek(at % size)
            file.write(struct.pack(">iI", end - at, 0xCBD43194))
    shutil.rmtree(classic.root / "index", ignore_errors=True)
    for path in classic.commitlogs[0].iterdir():
        if int(path.name) >= end:
            path.unlink()
    return end


def entries(root: Path) -> Iterator[Entry]:
    """What DLedgerMmapFileStore.recover() takes for the log of a node, from the first file on: entries one after the
    other, that name their position, whose index ascends by one and whose term never descends."""
    last: Entry | None = None
    for path in sorted((root / NAME / "data").iterdir()):
        start, data, at = int(path.name), path.read_bytes(), 0
        while at + 8 <= len(data) and struct.unpack_from(">i", data, at)[0] != -1:
            if at + HEADER.size > len(data):
                return
            magic, size, index, term, position, *_, body = HEADER.unpack_from(data, at)
            if magic not in (1, 2, 3) or position != start + at or size != HEADER.size + body or body < 0:
                return
            if at + size > len(data) or (last is not None and (index != last.number + 1 or term < last.term)):
                return
            last = Entry(position, size, index, term, data[at + HEADER.size : at + size], path)
            yield last
            at += size
        if at + 8 > len(data) or struct.unpack_from(">i", data, at)[0] != -1:
            return
