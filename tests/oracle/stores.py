"""Builds store directories the way a broker does, deterministically, for any test that needs one."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from oracle import reference

FIRST_TIMESTAMP = 1_700_000_000_000
FLUSH_AT = 1 << 20  # bytes of commitlog held back in memory


class Stored(NamedTuple):
    """A message of the log as the builder knows it."""

    position: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    queued: bool  # PREPARED and ROLLBACK are in no queue
    messages: int = 1  # queue offsets that it takes

    @property
    def end(self) -> int:
        return self.position + self.size


@dataclass
class _Queue:
    """What the broker has in memory of one ConsumeQueue; `pending` are its units from `flushed` on, not on disk yet."""

    next_offset: int = 0
    flushed: int = 0
    pending: bytearray = field(default_factory=bytearray)


class StoreBuilder:
    """A broker's store: append messages, then close it cleanly or as a crash would leave it.

    Until `close` it is the store of a running broker: `abort`, a spare segment, no checkpoint. `flush` brings to disk
    what was appended. After `close` one may go on appending, and close again.

    With `index` there are IndexFiles: each with `index_slots` slots and room for `index_items` items, less one.
    """

    def __init__(
        self,
        root: str | Path,
        segment_size: int = 8192,
        queue_file_size: int = 200,
        start: int = 0,
        *,
        commitlogs: Sequence[str | Path] | None = None,
        consume_queue: bool = True,
        index: bool = False,
        index_slots: int = 100,
        index_items: int = 30,
    ) -> None:
        if start % segment_size or queue_file_size % reference.QUEUE_UNIT_SIZE:
            raise ValueError("start must be a multiple of segment_size, queue_file_size one of 20")
        self.root = Path(root)
        self.segment_size = segment_size
        self.queue_file_size = queue_file_size
        self.start = start
        self.commitlogs = sorted(Path(path) for path in commitlogs) if commitlogs else [self.root / "commitlog"]
        self.consume_queue = consume_queue
        self._index = reference.Index(index_slots, index_items) if index else None
        self.messages: list[Stored] = []
        self.light: list[Stored] = []  # the messages of light queues once more, as messages of these queues
        self.end = start  # where the next unit goes
        self.now = FIRST_TIMESTAMP
        self._last_keys: list[str] = []
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._flushed = start
        self._pending = bytearray()  # the log from _flushed on
        for directory in (self.root, *self.commitlogs):
            directory.mkdir(parents=True, exist_ok=True)
        (self.root / "lock").write_bytes(b"lock")
        (self.root / "abort").write_text("4711")

    # ---- appending

    def append(
        self,
        topic: str = "TopicA",
        body: bytes = b"",
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | None = None,
        msg_id: str | None = None,
        properties: reference.Properties | None = None,
        store_timestamp: int | None = None,
        sys_flag: int = 0,
        messages: int = 1,
        **fields: Any,
    ) -> int:
        """Its position. `fields`: any other argument of reference.encode_unit, lies included.

        A batch has several `messages`, and takes as many queue offsets, each with the same queue unit.

        Without a store time it is stored 1 ms after the last message. IPv6 hosts given as text set their sysFlag bit.
        """
        properties = _with_named(properties, {"KEYS": keys, "UNIQ_KEY": msg_id, "TAGS": tags})
        if not isinstance(properties, bytes):
            properties = reference.encode_properties(properties, fields.pop("trailing_separator", True))
        self.now = self.now + 1 if store_timestamp is None else store_timestamp
        sys_flag |= _host_bit(fields.get("born_host"), reference.BORN_HOST_V6)
        sys_flag |= _host_bit(fields.get("store_host"), reference.STORE_HOST_V6)
        queued = sys_flag & reference.TRANSACTION_BITS in (0, reference.COMMIT)
        queue = self._queue(topic, queue_id)
        fields.setdefault("queue_offset", queue.next_offset if queued else 0)
        fields.setdefault("born_timestamp", self.now - 1)
        encode = partial(
            reference.encode_unit,
            topic=topic,
            body=body,
            queue_id=queue_id,
            properties=properties,
            store_timestamp=self.now,
            sys_flag=sys_flag,
        )
        unit = encode(**{"physical_offset": self.end, **fields})
        if len(unit) + reference.BLANK_SIZE > self._left():
            self._roll(len(unit))
            unit = encode(**{"physical_offset": self.end, **fields})
        stored = Stored(self.end, len(unit), topic, queue_id, fields["queue_offset"], self.now, queued, messages)
        self._write(unit)
        self.messages.append(stored)
        if queued:
            queue.next_offset += messages
        parsed = reference.parse_properties(properties)
        if queued and self.consume_queue:
            code = reference.tags_code(topic, reference.java_properties(properties), self.now)
            queue.pending += reference.encode_queue_unit(stored.position, stored.size, code) * messages
        rolled_back = sys_flag & reference.TRANSACTION_BITS == reference.ROLLBACK
        self._last_keys = [] if rolled_back else reference.index_keys(parsed)
        self.index_last()
        return stored.position

    def index_last(self) -> None:
        """Indexes the last message again: a broker does so after a crash."""
        if self._index:
            last = self.messages[-1]
            self._index.put(last.topic, self._last_keys, last.position, last.store_timestamp)

    def start_queue(self, topic: str, queue_id: int, offset: int) -> None:
        """The first message of this queue gets queue offset `offset`, as in a queue whose beginning has expired."""
        if (topic, queue_id) in self._queues:
            raise ValueError(f"queue {queue_id} of {topic} has begun")
        # The broker fills the file of the first unit with pre-blank units up to it.
        before = offset % (self.queue_file_size // reference.QUEUE_UNIT_SIZE)
        pre_blank = bytearray(reference.encode_queue_unit(*reference.PRE_BLANK) * before)
        self._queues[topic, queue_id] = _Queue(
            offset, offset - before, pre_blank if self.consume_queue else bytearray()
        )

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the queue's next message."""
        return self._queue(topic, queue_id).next_offset

    def _queue(self, topic: str, queue_id: int) -> _Queue:
        return self._queues.setdefault((topic, queue_id), _Queue())

    def _left(self) -> int:
        return self.segment_size - self.end % self.segment_size

    def _roll(self, size: int) -> None:
        """Ends the segment with a blank: 8 bytes, whatever lies behind them stays."""
        if size + reference.BLANK_SIZE > self.segment_size:
            raise ValueError(f"a unit of {size} bytes does not fit into a segment of {self.segment_size}")
        left = self._left()
        self._write(reference.encode_blank(left))
        self.flush()
        self.end += left - reference.BLANK_SIZE
        self._flushed = self.end

    def _write(self, data: bytes) -> None:
        self._pending += data
        self.end += len(data)
        if len(self._pending) >= FLUSH_AT:
            self.flush()

    # ---- files

    def segment(self, position: int) -> Path:
        """The file that holds (or would hold) this position. Several directories take turns."""
        number = position // self.segment_size
        return self.commitlogs[number % len(self.commitlogs)] / f"{number * self.segment_size:020d}"

    def queue_directory(self, topic: str, queue_id: int) -> Path:
        return self.root / "consumequeue" / topic / str(queue_id)

    def flush(self) -> None:
        """Brings everything appended so far to disk."""
        if self._pending:
            path = self.segment(self._flushed)
            _overwrite(path, self._flushed % self.segment_size, self._pending, self.segment_size)
            _preallocate(self.segment(self._flushed + self.segment_size), self.segment_size)  # the spare
            self._flushed += len(self._pending)
            self._pending.clear()
        for (topic, queue_id), queue in self._queues.items():
            self._flush_queue(self.queue_directory(topic, queue_id), queue)
        for number, file in self._index.unflushed() if self._index else ():
            self.index_file(number).parent.mkdir(exist_ok=True)
            self.index_file(number).write_bytes(file.encode())

    def index_file(self, number: int) -> Path:
        """The index file started as number `number`, from 0. Its name is a time, for a broker's that of its start."""
        return self.root / "index" / f"{20231114221320000 + number}"

    def _flush_queue(self, directory: Path, queue: _Queue) -> None:
        at = queue.flushed * reference.QUEUE_UNIT_SIZE
        while queue.pending:
            inside = at % self.queue_file_size
            part = queue.pending[: self.queue_file_size - inside]
            _overwrite(directory / f"{at - inside:020d}", inside, part, self.queue_file_size)
            at += len(part)
            del queue.pending[: len(part)]
        queue.flushed = at // reference.QUEUE_UNIT_SIZE

    def close(self, clean: bool = True, abort: bool | None = None) -> None:
        """Shut down, or stop as a crash does: the all-zero spare segment stays, and `abort` (unless `abort=False`)."""
        self.flush()
        spare = self.segment(self.end + self.segment_size)
        if clean:
            spare.unlink(missing_ok=True)
        elif self.segment(self.end).exists():
            _preallocate(spare, self.segment_size)
        if abort if abort is not None else not clean:
            (self.root / "abort").write_text("4711")
        else:
            (self.root / "abort").unlink(missing_ok=True)
        self._write_checkpoint()
        self._write_topics()

    # | 8 store time of the last message flushed | 8 of the last in a queue | 8 of the last full IndexFile | zeros
    def _write_checkpoint(self) -> None:
        last = self.messages[-1].store_timestamp if self.messages else 0
        (self.root / "checkpoint").write_bytes(struct.pack(">qqq", last, last, 0).ljust(4096, b"\0"))

    def _write_topics(self) -> None:
        queues: dict[str, int] = {}
        for topic, queue_id in self._queues:
            queues[topic] = max(queues.get(topic, 0), queue_id + 1)
        table = {
            topic: {
                "attributes": {},
                "order": False,
                "perm": 6,
                "readQueueNums": count,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": count,
            }
            for topic, count in queues.items()
        }
        version = {"counter": 1, "stateVersion": 0, "timestamp": FIRST_TIMESTAMP}
        path = self.root / "config" / "topics.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}, indent="\t"))

    # ---- what happens to stores

    def forget_last(self, count: int) -> int:
        """Cuts off the last `count` messages as a broker does, and goes on at the position returned.

        Only positions in memory move: the messages and their queue units stay on disk until they are overwritten. Files
        that begin behind the cut are deleted. The index is left as it is, and nothing gets into it before the log is as
        long as it was. Mind that a stale unit that starts exactly at the new end is as good as a live one, to a broker
        as well: append something of another size.
        """
        self.flush()
        cut = self.messages[-count].position
        for forgotten in self.messages[-count:]:
            if forgotten.queued:
                self._queues[forgotten.topic, forgotten.queue_id].next_offset -= forgotten.messages
        del self.messages[-count:]
        for path in reference.segment_files(self.root, self.commitlogs):
            if int(path.name) > cut:
                path.unlink()
        for (topic, queue_id), queue in self._queues.items():
            queue.flushed = queue.next_offset
            self._delete_queue_files(self.queue_directory(topic, queue_id), cut)
        self.end = self._flushed = cut
        self.now = self.messages[-1].store_timestamp if self.messages else FIRST_TIMESTAMP
        return cut

    @staticmethod
    def _delete_queue_files(directory: Path, cut: int) -> None:
        for path in sorted(directory.glob("*")):
            if reference.decode_queue_unit(path.read_bytes()[: reference.QUEUE_UNIT_SIZE]).physical_offset >= cut:
                path.unlink()

    def expire(self, segments: int) -> None:
        """Deletes the oldest segments as retention does; the queues still hold units that point into them."""
        self.flush()
        first = reference.segment_files(self.root, self.commitlogs)[:segments]
        for path in first:
            path.unlink()
        self.start = int(first[-1].name) + self.segment_size
        self.messages = [message for message in self.messages if message.position >= self.start]
        self.light = [message for message in self.light if message.position >= self.start]
        for number in self._index.expire(self.start) if self._index else ():
            self.index_file(number).unlink()

    def drop_queues(self) -> None:
        """Deletes every ConsumeQueue from disk."""
        shutil.rmtree(self.root / "consumequeue", ignore_errors=True)

    def drop_index(self) -> None:
        """Deletes every IndexFile from disk."""
        shutil.rmtree(self.root / "index", ignore_errors=True)


def _with_named(properties: reference.Properties | None, named: Mapping[str, str | None]) -> reference.Properties:
    given = {name: value for name, value in named.items() if value is not None}
    if not isinstance(properties, bytes):
        return {**(properties or {}), **given}
    if given:
        raise ValueError("raw properties take no tags, keys or msg_id beside them")
    return properties


def _host_bit(host: str | bytes | None, bit: int) -> int:
    return bit if isinstance(host, str) and host.startswith("[") else 0


def _overwrite(path: Path, at: int, data: bytes | bytearray, size: int) -> None:
    _preallocate(path, size)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _preallocate(path: Path, size: int) -> None:
    """A file of full length, all zero and sparse, unless it is there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)
