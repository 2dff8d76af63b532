"""Builds store directories the way a broker does, deterministically, for any test that needs one."""

from __future__ import annotations

import json
import random
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

    @property
    def end(self) -> int:
        return self.position + self.size


@dataclass
class _Queue:
    """What the broker has in memory of one ConsumeQueue; `pending` are its units from `flushed` on, not on disk yet."""

    next_offset: int = 0
    flushed: int = 0
    pending: bytearray = field(default_factory=bytearray)


class Index:
    """The index files of a store, in memory; each file is its bytes.

    Args:
        slots, items: what each file has room for; item 0 takes room and is never used.
    """

    def __init__(self, slots: int, items: int) -> None:
        self.slots = slots
        self.items = items
        self.files: list[tuple[int, bytearray]] = []  # each with its number
        self._started = 0
        self._full = 0  # the files before this number are full and on disk

    def unflushed(self) -> list[tuple[int, bytearray]]:
        """The files that are to be written to disk, which is then the caller's to do."""
        files = [file for file in self.files if file[0] >= self._full]
        self._full = max(self._started - 1, 0)
        return files

    def put(self, message: Stored, keys: Sequence[str]) -> None:
        """As IndexService.buildIndex: what is older than the last item is not put in, what is as old is, once more."""
        if self.files and message.position < reference.decode_index_header(self.files[-1][1]).end_physical_offset:
            return
        for key in keys:
            if not self.files or reference.decode_index_header(self.files[-1][1]).index_count >= self.items:
                self._start()
            self._put(self.files[-1][1], message, reference.index_hash(message.topic, key))

    def _start(self) -> None:
        """A new file begins with the times and offsets that the one before ends with."""
        last = reference.decode_index_header(self.files[-1][1]) if self.files else None
        time, offset = (last.end_timestamp, last.end_physical_offset) if last else (0, 0)
        header = reference.IndexHeader(time, time, offset, offset, 0, 1)
        data = bytearray(reference.index_item_at(self.slots, self.items))
        data[: reference.INDEX_HEADER_SIZE] = reference.encode_index_header(header)
        self.files.append((self._started, data))
        self._started += 1

    def _put(self, data: bytearray, message: Stored, key_hash: int) -> None:
        header = reference.decode_index_header(data)
        seconds = (message.store_timestamp - header.begin_timestamp) // 1000 if header.begin_timestamp > 0 else 0
        slot_at = reference.INDEX_HEADER_SIZE + key_hash % self.slots * reference.INDEX_SLOT_SIZE
        item_at = reference.index_item_at(self.slots, header.index_count)
        previous = int.from_bytes(data[slot_at : slot_at + reference.INDEX_SLOT_SIZE], "big")
        item = reference.IndexItem(key_hash, message.position, min(max(seconds, 0), 0x7FFFFFFF), previous)
        data[item_at : item_at + reference.INDEX_ITEM_SIZE] = reference.encode_index_item(item)
        data[slot_at : slot_at + reference.INDEX_SLOT_SIZE] = header.index_count.to_bytes(4, "big")
        if header.index_count == 1:
            header = header._replace(begin_timestamp=message.store_timestamp, begin_physical_offset=message.position)
        header = header._replace(
            end_timestamp=message.store_timestamp,
            end_physical_offset=message.position,
            hash_slot_count=header.hash_slot_count + (previous == 0),
            index_count=header.index_count + 1,
        )
        data[: reference.INDEX_HEADER_SIZE] = reference.encode_index_header(header)

    def expire(self, start: int) -> list[int]:
        """Forgets the files that end before this position, but not the last; their numbers."""
        gone = [
            number
            for number, data in self.files[:-1]
            if reference.decode_index_header(data).end_physical_offset < start
        ]
        self.files = [file for file in self.files if file[0] not in gone]
        return gone


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
        self._index = Index(index_slots, index_items) if index else None
        self.messages: list[Stored] = []
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
        **fields: Any,
    ) -> int:
        """Its position. `fields`: any other argument of reference.encode_unit, lies included.

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
        stored = Stored(self.end, len(unit), topic, queue_id, fields["queue_offset"], self.now, queued)
        self._write(unit)
        self.messages.append(stored)
        if queued:
            queue.next_offset += 1
        parsed = reference.parse_properties(properties)
        if queued and self.consume_queue:
            code = reference.tags_code(topic, reference.java_properties(properties), self.now)
            queue.pending += reference.encode_queue_unit(stored.position, stored.size, code)
        rolled_back = sys_flag & reference.TRANSACTION_BITS == reference.ROLLBACK
        self._last_keys = [] if rolled_back else reference.index_keys(parsed)
        self.index_last()
        return stored.position

    def index_last(self) -> None:
        """Indexes the last message again: a broker does so after a crash."""
        if self._index:
            self._index.put(self.messages[-1], self._last_keys)

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
        for number, data in self._index.unflushed() if self._index else ():
            self.index_file(number).parent.mkdir(exist_ok=True)
            self.index_file(number).write_bytes(data)

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
                self._queues[forgotten.topic, forgotten.queue_id].next_offset -= 1
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


# ---- random stores

# Not UTF-8: no start byte, sequences of 2, 3 and 4 cut short, a surrogate, an overlong '/', a code beyond U+10FFFF.
BAD_UTF8 = (b"\x80\xff", b"\xc3(", b"\xe2\x82", b"\xf0\x9f\x98x", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80")
WORDS = ("a", "order", "Zürich", "中文", "\U0001f600", "x y", " ", "null", "e\u0301", "\0", "=", "\t\n", "long" * 20)
TAGS = ("TagA", "TagB", "a||b", "中文", "\U0001f600", "polygenelubricants")
TOPICS = ("TopicA", "Topic_B", "%RETRY%group", "RMQ_SYS_TRANS_HALF_TOPIC", "L" * 128, "long-topic_" * 18)
HOSTS_V6 = (
    *("[::]:0", "[::1]:10911", "[::ffff:10.1.2.3]:1", "[::10.1.2.3]:65535", "[::1:2]:2", "[fe80::1]:-1"),
    *("[2001:db8::1:0:0:1]:3", "[1:0:2:0:3:0:4:0]:4", "[1:2:3:4:5:6:7:8]:5", "[1:2:3:4:5:6:7::]:6"),
)
COMPRESSED_FLAGS = (0x1, 0x301, 0x101, 0x201)  # zlib as of old and of today, LZ4, zstd
LATEST = (1 << 63) // 1000  # the last millisecond that an i64 of microseconds can hold
UNUSUAL_TIMES = (0, -1, LATEST, LATEST + 1, -LATEST, -LATEST - 1, (1 << 63) - 1, -(1 << 63))


def random_store(
    root: str | Path,
    rng: random.Random,
    messages: int = 200,
    clean: bool = True,
    unusual_times: bool = True,
    **builder: Any,
) -> StoreBuilder:
    """A closed store of everything the format allows; `builder`: more arguments of StoreBuilder.

    With `unusual_times` a few bornTimestamps are in no year that Python's datetime knows.
    """
    store = StoreBuilder(root, **builder)
    for _ in range(messages):
        append_random(store, rng, unusual_times)
    store.close(clean)
    return store


def append_random(store: StoreBuilder, rng: random.Random, unusual_times: bool = True) -> int:
    sys_flag = rng.choice((0, 0, 0, 0, 0, 0, reference.PREPARED, reference.COMMIT, reference.ROLLBACK, 0x2))
    body = rng.choice((b"", rng.randbytes(rng.randrange(300)), b"hello " * rng.randrange(100)))
    if rng.random() < 0.3:
        compressed = rng.choice(COMPRESSED_FLAGS)
        sys_flag |= compressed
        body = reference.compress_body(body, compressed)
        if reference.COMPRESSION_TYPES[compressed >> 8] == "zlib" and rng.random() < 0.2:
            body += b"what follows the stream is ignored"
    elif rng.random() < 0.05:
        sys_flag |= rng.choice((0x300, 0x700))  # the type bits mean nothing without bit 0
    born_timestamp = store.now - rng.randrange(1000)
    if unusual_times and rng.random() < 0.05:
        born_timestamp = rng.choice(UNUSUAL_TIMES)
    return store.append(
        topic=rng.choice(TOPICS),
        body=body,
        queue_id=rng.randrange(3),
        properties=random_properties(rng),
        store_timestamp=store.now + rng.choice((0, 0, 1, 1, 7, 1000)),
        sys_flag=sys_flag,
        flag=rng.choice((0, 0, rng.randint(-(1 << 31), (1 << 31) - 1))),
        born_timestamp=born_timestamp,
        born_host=_random_host(rng),
        store_host=_random_host(rng),
        reconsume_times=rng.choice((0, 0, 1, 16)),
        prepared_transaction_offset=rng.choice((0, 0, rng.randrange(store.end + 1))),
        version=rng.choice((None, None, None, 2)),
        property_crc=rng.random() < 0.05,
    )


def _random_host(rng: random.Random) -> str:
    if rng.random() < 0.7:
        return f"10.{rng.randrange(256)}.0.{rng.randrange(256)}:{rng.choice((10911, 0, 65535, -1))}"
    return rng.choice(HOSTS_V6)


def random_properties(rng: random.Random) -> bytes:
    """The stored bytes: anything from none at all to duplicates, empty names and values, and text that is not UTF-8."""
    if rng.random() < 0.1:
        return b""
    pairs = [(b"UNIQ_KEY", rng.randbytes(16).hex().upper().encode())] if rng.random() < 0.8 else []
    if rng.random() < 0.6:
        pairs.append((b"TAGS", rng.choice(TAGS).encode()))
    if rng.random() < 0.6:
        pairs.append((b"KEYS", " ".join(rng.choices(WORDS, k=rng.randrange(4))).encode()))
    pairs += [(_random_text(rng), _random_text(rng)) for _ in range(rng.randrange(6))]
    if pairs and rng.random() < 0.2:
        pairs.append((rng.choice(pairs)[0], _random_text(rng)))  # a name twice
    rng.shuffle(pairs)
    segments = [name + b"\x01" + value for name, value in pairs]
    if rng.random() < 0.1:
        segments.insert(rng.randrange(len(segments) + 1), rng.choice((b"", b"no separator", b"\x01nameless\x01x")))
    return b"\x02".join(segments) + rng.choice((b"\x02", b""))


def _random_text(rng: random.Random) -> bytes:
    parts = [rng.choice(WORDS).encode() for _ in range(rng.randrange(4))]
    if rng.random() < 0.2:
        parts.append(rng.choice(BAD_UTF8))
    if rng.random() < 0.1:
        parts.append(b"\x01")
    rng.shuffle(parts)
    return b"".join(parts)
