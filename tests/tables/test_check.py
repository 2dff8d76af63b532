"""check finds what was planted, and nothing else; and nothing in a store that is right."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import random
import re
import shutil
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import aged_stores, compaction, damage, golden, reference
from oracle.compaction import LogWriter, Value
from oracle.stores import StoreBuilder, Stored
from support import reading, writing
from support.reading import options_of
from support.tables import rows_of

import rmqstore_spark
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.check import index_files, log, table
from rmqstore_spark.tables.check.problems import CALL, COPY_CALL, PROBLEMS
from rmqstore_spark.tables.check.table import CHECK

ROOT = Path(__file__).resolve().parents[2]
SMALL = sorted((ROOT / "tests" / "data").glob("rocketmq-*"))
FLAVOURS = sorted((ROOT.parent / "shared" / "stores" / "flavours").glob("*.tar.xz"))

ORIGINAL = ROOT / "tests" / "data" / "rocketmq-5.3.3"

Row = dict[str, Any]


def check(root: Path, **options: str) -> list[Row]:
    rows = rows_of(CHECK, root, **options)
    for row in rows:
        problem, advice = PROBLEMS[row["problem"]], row["advice"]
        if "storePathCommitLog" in options and advice is not None:
            advice = advice.replace(COPY_CALL, CALL)  # rebuild takes a store that is in one directory
        assert (row["severity"], row["area"], advice) == problem[:3]
    return rows


def wrong(root: Path, **options: str) -> list[Row]:
    """All but what is only said."""
    return [row for row in check(root, **options) if row["severity"] != "info"]


def brief(rows: list[Row]) -> list[tuple[Any, ...]]:
    found = [(row["problem"], row["commitLogOffset"], row["queueId"], row["queueOffset"], row["count"]) for row in rows]
    return sorted(found, key=str)


def one_by_one(findings: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], int]:
    """How many things are wrong in which way: what is missing in a row is cut where a part of the log ends."""
    counts: dict[tuple[Any, ...], int] = {}
    for problem, position, queue_id, offset, count in findings:
        is_one_of_many = problem.startswith(("missing", "notIndexed"))
        key = (problem, queue_id) if is_one_of_many else (problem, position, queue_id, offset)
        counts[key] = counts.get(key, 0) + count
    return counts


# ---- stores that are right


@pytest.mark.parametrize("root", SMALL, ids=lambda path: path.name)
def test_small_stores(root: Path) -> None:
    assert wrong(root) == wrong(root, maxPartitionBytes="1000") == []


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_golden_stores(version: str, tmp_path: Path) -> None:
    root = golden.unpack(version, tmp_path)
    assert wrong(root) == wrong(root, maxPartitionBytes="10000") == []


@pytest.mark.parametrize("packed", FLAVOURS, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_flavours(packed: Path, tmp_path: Path) -> None:
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    for root in tmp_path.glob("*/store*"):
        if not (root / "commitlog").is_dir():
            continue
        found = brief(wrong(root))
        if "recover" in packed.name and root.name == "store":  # its broker made anew the last ten segments only
            assert found == [("missingQueueUnit", 0, 0, 0, 56)]
        else:
            assert found == []
        assert [row["count"] for row in check(root) if row["problem"] == "timerNotLookedAt"] in ([1], [2])


def test_progress() -> None:
    """In bytes of the log, up to all of it."""
    told: list[tuple[str, int, int, str | None]] = []
    store = rmqstore_spark.Store(SMALL[0])
    end = sum(row["endOffset"] - row["startOffset"] for row in store.segments().to_pylist())
    found = store.check(progress=lambda work: told.append((work.what, work.done, work.total, work.noun)))
    assert found.equals(store.check())
    assert told[-1] == ("table check", end, end, None)


# ---- what is planted in a real store

PAGE = 4096


class Planted:
    """A copy of a real store, and what is needed to change it: where messages, units and items are."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ORIGINAL, root)
        self.messages = [(at, reference.parse_unit(data, at)) for at, data in reference.read_units(root)]
        self.queues = {(queue_id, offset): unit for _, queue_id, offset, unit in reference.read_queues(root)}
        self.index = sorted((root / "index").iterdir())
        self.slots = 100

    def position(self, queue_id: int, offset: int) -> int:
        return self.queues[queue_id, offset].physical_offset

    def change(self, path: Path, at: int, data: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)

    def log(self, position: int, data: bytes) -> None:
        self.change(self.root / "commitlog" / f"{position // 8192 * 8192:020d}", position % 8192, data)

    def unit(self, queue_id: int, offset: int, unit: tuple[int, int, int]) -> None:
        at = offset * 20
        path = self.root / "consumequeue" / "TopicA" / str(queue_id) / f"{at // 200 * 200:020d}"
        self.change(path, at % 200, struct.pack(">qiq", *unit))

    def item_at(self, number: int) -> int:
        return reference.index_item_at(self.slots, number)


@pytest.fixture
def store(tmp_path: Path) -> Planted:
    planted = Planted(tmp_path / "store")
    assert wrong(planted.root) == []
    return planted


def planted_log(store: Planted) -> Iterator[tuple[Any, ...]]:
    """A flipped bit in a body, and one in a head. What queues and index say of these messages is right."""
    for queue_id, offset, field in ((0, 5, 100), (1, 20, 4)):
        position = store.position(queue_id, offset)
        (size,) = (unit.total_size for at, unit in store.messages if at == position)
        store.log(position + field, b"\xff")
        yield "damagedUnit", position, None, None, size
        yield "lostMessages", position, queue_id, offset, 1


def planted_compression(store: Planted) -> Iterator[tuple[Any, ...]]:
    """No checksum covers sysFlag: in a message with a body, the flag of a compressed one, with each type."""
    offsets = [unit.queue_offset for _, unit in store.messages if unit.queue_id == 0 and unit.body][:5]
    for type_of, offset in enumerate(offsets):
        position = store.position(0, offset)
        (flag,) = (unit.sys_flag for at, unit in store.messages if at == position)
        store.log(position + 36, struct.pack(">i", flag | 1 | type_of << 8))
        yield "wrongCompression", position, 0, offset, 1


def over_page(store: Planted) -> tuple[int, int, reference.Unit]:
    """A message whose body lies over the beginning of a page: where it begins, that page, and the message."""
    for position, unit in store.messages:
        page = position // PAGE * PAGE + PAGE
        if page % 8192 and 4 < page - position < min(84 + len(unit.body), unit.total_size):
            return position, page, unit
    raise AssertionError("there is none")


def planted_page_unwritten(store: Planted) -> Iterator[tuple[Any, ...]]:
    """A copier read the page before the one that has the message's end before that had come."""
    position, page, unit = over_page(store)
    store.log(position, bytes(page - position))
    yield "unwrittenPages", position, None, None, unit.total_size
    yield "lostMessages", position, unit.queue_id, unit.queue_offset, 1
    yield from planted_abort(store)


def planted_end_unwritten(store: Planted) -> Iterator[tuple[Any, ...]]:
    """And the page that has its end, when nothing of that had come; its queue was copied later."""
    position, page, unit = over_page(store)
    store.log(page, bytes(8192 - page % 8192))
    for path in reference.segment_files(store.root):
        if int(path.name) > page:
            path.unlink()
    yield "unwrittenEnd", position, unit.queue_id, unit.queue_offset, unit.total_size
    yield from planted_abort(store)


def planted_segment_gone(store: Planted) -> Iterator[tuple[Any, ...]]:
    (store.root / "commitlog" / f"{8192:020d}").unlink()
    yield "missingSegment", 8192, None, None, 1
    yield from lost_in(store, 8192, 16384)


def lost_in(store: Planted, start: int, stop: int) -> Iterator[tuple[Any, ...]]:
    """A row for each queue, as each has a run of messages there."""
    for queue_id in (0, 1):
        lost = sorted((at, unit.queue_offset) for at, unit in store.messages if unit.queue_id == queue_id)
        lost = [(at, offset) for at, offset in lost if start <= at < stop]
        yield "lostMessages", lost[0][0], queue_id, lost[0][1], len(lost)


def planted_noise_in_log(store: Planted) -> Iterator[tuple[Any, ...]]:
    """Nothing of some messages is left: what they were, only their queues know."""
    start, stop = store.messages[3][0], store.messages[12][0]
    store.log(start, b"\x55" * (stop - start))
    yield "damagedUnit", start, None, None, stop - start
    yield from lost_in(store, start, stop)


def planted_segment_padded(store: Planted) -> Iterator[tuple[Any, ...]]:
    with (store.root / "commitlog" / f"{8192:020d}").open("ab") as file:
        file.write(b"more")
    yield "wrongFileSize", 8192, None, None, 1


def planted_units_lost(store: Planted) -> Iterator[tuple[Any, ...]]:
    """In the middle, and at the end."""
    last = max(offset for queue_id, offset in store.queues if queue_id == 0)
    for offset in (7, 8, last):
        store.unit(0, offset, (0, 0, 0))
    yield "missingQueueUnit", store.position(0, 7), 0, 7, 2
    yield "missingQueueUnit", store.position(0, last), 0, last, 1


def planted_units_wrong(store: Planted) -> Iterator[tuple[Any, ...]]:
    """In each field, inside and at the end; one points to another queue's message, one to nowhere."""
    last = max(offset for queue_id, offset in store.queues if queue_id == 0)
    lies = {3: (0, 1, 0), 9: (0, 0, 5), 11: (1, 0, 0), last - 1: (1 << 40, 0, 0), last: (1, 0, 0)}
    for offset, lie in lies.items():
        unit = store.queues[0, offset]
        store.unit(0, offset, tuple(a + b for a, b in zip(unit, lie, strict=True)))  # type: ignore[arg-type]
        yield "wrongQueueUnit", unit.physical_offset, 0, offset, 1
    store.unit(1, 4, store.queues[0, 4])
    yield "wrongQueueUnit", store.position(1, 4), 1, 4, 1


def planted_units_extra(store: Planted) -> Iterator[tuple[Any, ...]]:
    """At a queue's end: one of another queue's message, and one that points into the middle of a message."""
    last = max(offset for queue_id, offset in store.queues if queue_id == 1)
    if (last + 1) % 10 == 0:
        shutil.copy(
            store.root / "consumequeue/TopicA/1" / f"{(last - 9) * 20:020d}",
            store.root / "consumequeue/TopicA/1" / f"{(last + 1) * 20:020d}",
        )
        store.change(store.root / "consumequeue/TopicA/1" / f"{(last + 1) * 20:020d}", 0, bytes(200))
    other = store.queues[0, 2]
    store.unit(1, last + 1, other)
    store.unit(1, last + 2, (other.physical_offset + 1, other.size, 0))
    yield "extraQueueUnit", other.physical_offset, 1, last + 1, 1
    yield "extraQueueUnit", other.physical_offset + 1, 1, last + 2, 1


def planted_message_of_no_queue(store: Planted) -> Iterator[tuple[Any, ...]]:
    """A message turned into a half one is in no queue: its unit is one too many, and the queue has a gap."""
    store.log(store.position(0, 6) + 36, struct.pack(">i", 4))
    yield "extraQueueUnit", store.position(0, 6), 0, 6, 1
    store.log(store.position(1, 6) + 36, struct.pack(">i", 4))
    store.unit(1, 6, (0, 0, 0))
    yield "queueGap", None, 1, 6, 1


def planted_offset_twice(store: Planted) -> Iterator[tuple[Any, ...]]:
    """The second of two messages with one queue offset is in no queue, and the unit that it had is too many."""
    store.log(store.position(0, 6) + 20, struct.pack(">q", 5))
    yield "repeatedQueueOffset", store.position(0, 6), 0, 5, 1
    yield "extraQueueUnit", store.position(0, 6), 0, 6, 1


def planted_queue_shifted(store: Planted) -> Iterator[tuple[Any, ...]]:
    """The log has no message 6, and a broker has made the queue anew: each later message has the unit before it."""
    store.log(store.position(0, 6) + 36, struct.pack(">i", 4))
    last = max(offset for queue_id, offset in store.queues if queue_id == 0)
    for offset in range(6, last):
        store.unit(0, offset, store.queues[0, offset + 1])
        if offset > 6:
            yield "shiftedQueueUnit", store.position(0, offset), 0, offset, 1
    store.unit(0, last, (0, 0, 0))
    yield "extraQueueUnit", store.position(0, 7), 0, 6, 1
    yield "missingQueueUnit", store.position(0, last), 0, last, 1


def planted_units_ahead(store: Planted) -> Iterator[tuple[Any, ...]]:
    """The log's end is lost: the last message is zeros."""
    position, unit = store.messages[-1]
    store.log(position, bytes(unit.total_size))
    yield "queueAheadOfLog", position, unit.queue_id, unit.queue_offset, 1
    items = reference.read_index(store.index[-1].read_bytes(), store.slots)
    of_it = [item for item in items if item.physical_offset == position]
    yield "extraIndexItem", position, None, None, len(of_it)


def planted_queue_file_gone(store: Planted) -> Iterator[tuple[Any, ...]]:
    (store.root / "consumequeue" / "TopicA" / "0" / f"{200:020d}").unlink()
    yield "queueFileGap", None, 0, 10, 1
    yield "missingQueueUnit", store.position(0, 10), 0, 10, 10


def planted_queue_file_padded(store: Planted) -> Iterator[tuple[Any, ...]]:
    with (store.root / "consumequeue" / "TopicA" / "0" / f"{200:020d}").open("ab") as file:
        file.write(bytes(20))
    yield "wrongQueueFileSize", None, 0, None, 1


def planted_no_queues(store: Planted) -> Iterator[tuple[Any, ...]]:
    shutil.rmtree(store.root / "consumequeue")
    yield "noQueues", None, None, None, 1


def planted_index_header(store: Planted) -> Iterator[tuple[Any, ...]]:
    header = reference.decode_index_header(store.index[2].read_bytes())
    store.change(store.index[2], 16, struct.pack(">q", header.begin_physical_offset - 1))
    yield "wrongIndexHeader", header.begin_physical_offset, None, None, 1


def planted_index_files_swapped(store: Planted) -> Iterator[tuple[Any, ...]]:
    """Two with each other's name, and three with the next one's; the first and the last one among them."""
    count = len(store.index)
    assert count > 5
    names = {0: count - 1, count - 1: 0, 1: 2, 2: 3, 3: 1}
    content = [path.read_bytes() for path in store.index]
    for to, of in names.items():
        store.index[to].write_bytes(content[of])
        first = reference.read_index(content[of], store.slots)[0].physical_offset
        yield "misplacedIndexFile", first, None, None, 1


def planted_index_counts(store: Planted) -> Iterator[tuple[Any, ...]]:
    for file, at in ((1, 36), (2, 32)):
        (count,) = struct.unpack(">i", store.index[file].read_bytes()[at : at + 4])
        store.change(store.index[file], at, struct.pack(">i", count - 1))
        yield "wrongIndexCount", None, None, None, 1


def planted_index_chains(store: Planted) -> Iterator[tuple[Any, ...]]:
    """An item that leads elsewhere, and a slot that is empty."""
    items = reference.read_index(store.index[1].read_bytes(), store.slots)
    store.change(store.index[1], store.item_at(9) + 16, struct.pack(">i", items[8].previous + 1))
    yield "brokenIndexChain", items[8].physical_offset, None, None, 1
    slot = reference.read_index(store.index[3].read_bytes(), store.slots)[-1].key_hash % store.slots
    store.change(store.index[3], 40 + 4 * slot, bytes(4))
    yield "brokenIndexChain", None, None, None, 1


def planted_index_item(store: Planted) -> Iterator[tuple[Any, ...]]:
    """An item that names another message, in the middle of a file."""
    items = reference.read_index(store.index[1].read_bytes(), store.slots)
    right = items[10].physical_offset
    other = next(item.physical_offset for item in items[10:] if item.physical_offset != right)
    store.change(store.index[1], store.item_at(11) + 4, struct.pack(">q", other))
    yield "missingIndexItem", right, None, None, 1
    yield "extraIndexItem", other, None, None, 1


def planted_index_time(store: Planted) -> Iterator[tuple[Any, ...]]:
    items = reference.read_index(store.index[1].read_bytes(), store.slots)
    store.change(store.index[1], store.item_at(11) + 12, struct.pack(">i", items[10].seconds + 7))
    yield "wrongIndexTime", items[10].physical_offset, None, None, 1


def planted_index_file_gone(store: Planted) -> Iterator[tuple[Any, ...]]:
    items = reference.read_index(store.index[3].read_bytes(), store.slots)
    store.index[3].unlink()
    yield "missingIndexItem", items[0].physical_offset, None, None, len(items)


def planted_index_noise(store: Planted) -> Iterator[tuple[Any, ...]]:
    """What was in a file of noise is missing."""
    items = reference.read_index(store.index[3].read_bytes(), store.slots)
    store.index[3].write_bytes(b"\x7f" * 1040)
    yield "brokenIndexFile", None, None, None, 1
    yield "missingIndexItem", items[0].physical_offset, None, None, len(items)


def planted_index_file_size(store: Planted) -> Iterator[tuple[Any, ...]]:
    items = reference.read_index(store.index[3].read_bytes(), store.slots)
    os.truncate(store.index[3], 1000)
    yield "wrongIndexFileSize", None, None, None, 1
    yield "missingIndexItem", items[0].physical_offset, None, None, len(items)


def planted_checkpoint(store: Planted) -> Iterator[tuple[Any, ...]]:
    newest = store.messages[-1][1].store_timestamp
    end = store.messages[-1][0] + store.messages[-1][1].total_size
    store.change(store.root / "checkpoint", 0, struct.pack(">qqqqq", newest + 1, newest + 1, newest + 1, 99, end + 1))
    for _ in range(4):
        yield "checkpointAhead", None, None, None, 1


def planted_abort(store: Planted) -> Iterator[tuple[Any, ...]]:
    (store.root / "abort").touch()
    yield "abort", None, None, None, 1


def planted_strays(store: Planted) -> Iterator[tuple[Any, ...]]:
    (store.root / "commitlog" / "_SUCCESS").touch()
    (store.root / "commitlog" / "old").mkdir()
    (store.root / "consumequeue" / "TopicA" / "1" / ".crc").touch()
    for _ in range(3):
        yield "strayFile", None, None, None, 1


def planted_links(store: Planted) -> Iterator[tuple[Any, ...]]:
    paths = store.root / "commitlog" / f"{8192:020d}", store.root / "consumequeue" / "TopicA" / "1", store.index[2]
    for number, path in enumerate(paths):
        aside = store.root.parent / f"aside{number}"
        path.rename(aside)
        path.symlink_to(aside)
        yield "link", None, None, None, 1


def config(store: Planted, name: str, content: str) -> None:
    (store.root / "config").mkdir(exist_ok=True)
    (store.root / "config" / name).write_text(content)


def planted_topics(store: Planted) -> Iterator[tuple[Any, ...]]:
    config(store, "topics.json", json.dumps({"topicConfigTable": {"Other": {"readQueueNums": 4}}}))
    yield "topicWithoutConfig", None, None, None, 1


def planted_queue_numbers(store: Planted) -> Iterator[tuple[Any, ...]]:
    config(store, "topics.json", json.dumps({"topicConfigTable": {"TopicA": {"readQueueNums": 1}}}))
    yield "queueBeyondConfig", None, 1, None, 1


def planted_config(store: Planted) -> Iterator[tuple[Any, ...]]:
    """Of topics only what can be read is held against the queues."""
    config(store, "topics.json", "{")
    config(store, "consumerOffset.json", "")
    config(store, "subscriptionGroup.json", "[]")
    config(store, "delayOffset.json", "{")
    config(store, "delayOffset.json.bak", "{}")
    config(store, "consumerFilter.json", "{")
    for _ in range(4):
        yield "brokenConfig", None, None, None, 1
    yield "oldConfig", None, None, None, 1


def planted_epochs(store: Planted) -> Iterator[tuple[Any, ...]]:
    """One of two numbers is gone; the backup has both."""
    (store.root / "epochFileCheckpoint").write_text("2\n0\n1-0\n2-\n")
    (store.root / "epochFileCheckpoint.bak").write_text("2\n0\n1-0\n2-100\n")
    yield "brokenEpochs", None, None, None, 1


def planted_backups(store: Planted) -> Iterator[tuple[Any, ...]]:
    """Of a file that is gone, of one that is cut, of one that is none."""
    config(store, "topics.json.bak", '{"topicConfigTable":{"TopicA":{"readQueueNums":2}}}')
    config(store, "topics.json", '{"topicConfigTable":{"TopicA"')
    config(store, "consumerOffset.json.bak", '{"offsetTable":{}}')
    config(store, "subscriptionGroup.json.bak", '{"subscriptionGroupTable":{}}')
    (store.root / "config" / "subscriptionGroup.json").mkdir()
    for _ in range(3):
        yield "oldConfig", None, None, None, 1


def planted_offsets(store: Planted) -> Iterator[tuple[Any, ...]]:
    """As fastjson writes them. One group is just at the end."""
    end = 1 + max(offset for queue_id, offset in store.queues if queue_id == 0)
    config(store, "consumerOffset.json", f'{{"offsetTable":{{"TopicA@Group":{{0:{end},1:{end + 9}}}}}}}')
    yield "offsetAheadOfQueue", None, 1, end + 9, 1


def test_index_items_out_of_order(store: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two right items in each other's place, of messages in two segments: the chains are broken, but each item is of a
    message, and each message has its items."""
    monkeypatch.setattr(log, "_AT_ONCE", 4096)  # bytes: an item is looked at with others of another stretch
    for file in store.index:
        items = reference.read_index(file.read_bytes(), store.slots)
        early = [number for number, item in enumerate(items, 1) if item.physical_offset < 8192]
        if early and len(early) < len(items):
            break
    assert 5 < len(early) < len(items) - 5
    places = store.item_at(early[1]), store.item_at(len(items) - 2)
    data = file.read_bytes()
    for at, other in (places, places[::-1]):
        store.change(file, at, data[other : other + 16])
    found = {row["problem"] for row in wrong(store.root, maxPartitionBytes="8192")}
    assert "brokenIndexChain" in found
    assert not found & {"extraIndexItem", "missingIndexItem"}


def compaction_log(root: Path) -> LogWriter:
    """The log of a compaction topic, in two files: sound where nothing else is written to it."""
    shutil.rmtree(root / "compaction", ignore_errors=True)
    writer = LogWriter(root, "TopicA", 0, 1024)
    values = [Value(0, 3 * number, f"key{number}", b"body", 1_700_000_000_000 + number) for number in range(4)]
    writer.write_all(values[2:], writer.write_all(values[:2], 0))
    return writer


def planted_compaction_log(store: Planted) -> Iterator[tuple[Any, ...]]:
    """A flipped bit in a body."""
    writer = compaction_log(store.root)
    (first, *_) = compaction.read_log(store.root, "TopicA", 0)
    store.change(writer.log / f"{0:020d}", 88, b"\xff")
    yield "damagedCompactionLog", None, 0, None, first["storeSize"]


def planted_compaction_queue(store: Planted) -> Iterator[tuple[Any, ...]]:
    writer = compaction_log(store.root)
    store.change(writer.queue / f"{1024:020d}", 20, b"\x01")
    yield "wrongCompactionQueue", None, 0, 6, 1


def planted_compaction_order(store: Planted) -> Iterator[tuple[Any, ...]]:
    compaction_log(store.root).write_all([Value(0, 5, "key", b"body", 1_700_000_000_009)], 2048)
    yield "unorderedQueueLog", None, 0, 5, 1


def planted_foreign_in_compaction_log(store: Planted) -> Iterator[tuple[Any, ...]]:
    compaction_log(store.root).write_all([Value(1, 50, "key", b"body", 1_700_000_000_009)], 2048)
    yield "foreignInQueueLog", None, 0, None, 1


PLANTED = [value for name, value in sorted(globals().items()) if name.startswith("planted_")]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.removeprefix("planted_"))
def test_planted_is_found(plant: Callable[[Planted], Iterator[tuple[Any, ...]]], store: Planted) -> None:
    expected = sorted(plant(store), key=str)
    rows = wrong(store.root)
    assert brief(rows) == expected
    without = [row for row in rows if not (row["expected"] and row["found"] and row["file"])]
    assert {row["problem"] for row in without} <= {"missingIndexItem", "missingQueueUnit", "lostMessages"}
    assert all(row["expected"] and row["found"] and row["file"] is None for row in without)
    assert brief(wrong(store.root, maxPartitionBytes="500")) == expected
    assert texts(rows, store.root) == TEXTS[plant.__name__.removeprefix("planted_")]


def texts(rows: list[Row], root: Path) -> list[str]:
    """What people read of findings: where each is, what is expected there, and what was found. Times of files, and what
    Python says of JSON, are not ours."""
    said = (
        f"{row['problem']}: {row['file'] and os.path.relpath(row['file'], root)}, {row['topic']}: "
        f"expected {row['expected']}, found {row['found']}".replace(str(root), "STORE")
        for row in rows
    )
    return sorted(re.sub(r" of 20[-0-9]{8} [:0-9]{8} UTC$|Expecting .* \(char \d+\)", "...", text) for text in said)


# Of what each planting puts into a store.
TEXTS: dict[str, list[str]] = json.loads((ROOT / "tests" / "data" / "planted_texts.json").read_text())


# ---- the advice, followed


def bring_back(row: Row, root: Path) -> None:
    """From a backup."""
    path = Path(row["file"] or root)
    if row["problem"] == "missingSegment":
        path = path.with_name(f"{row['commitLogOffset']:020d}")
    path.unlink(missing_ok=True)
    if path.parent.name == "commitlog":
        shutil.copyfile(ORIGINAL / "commitlog" / path.name, path)


def bring_back_compaction_log(row: Row, root: Path) -> None:
    compaction_log(root)


def salvage(row: Row, root: Path) -> None:
    aside = root.with_name("damaged")
    shutil.rmtree(aside, ignore_errors=True)
    root.rename(aside)
    rmqstore_spark.Store(str(aside)).salvage(str(root))


def rebuild(row: Row, root: Path) -> None:
    rmqstore_spark.rebuild(str(root))


def move_out(row: Row, root: Path) -> None:
    path = Path(row["file"])
    path.rename(root.with_name(f"stray-{path.name}"))


def put_there(row: Row, root: Path) -> None:
    path = Path(row["file"])
    target = path.readlink()
    path.unlink()
    target.rename(path)


def config_anew(row: Row, root: Path) -> None:
    rmqstore_spark.Store(root).rebuild_config()


def offset_back(row: Row, root: Path) -> None:
    Path(row["file"]).write_text("{}")


def epochs_back(row: Row, root: Path) -> None:
    shutil.copy(f"{row['file']}.bak", row["file"])


def drop_or_salvage(row: Row, root: Path) -> None:
    units = [reference.parse_unit(data, at) for at, data in reference.read_units(root)]
    has_later = any(unit.queue_id == row["queueId"] and unit.queue_offset > row["queueOffset"] for unit in units)
    (salvage if has_later else rebuild)(row, root)


# Which only a tiered store can have: tests/read/test_tiered.py plants them. Each needs what was there, from a backup.
OF_TIERS = {"damagedQueueLog", "holeInQueueLog", "wrongTieredQueue", "tieredQueueAhead", "noTieredQueue"}
ADVICE: dict[str, Callable[[Row, Path], None]] = {
    **{name: rebuild for name, problem in PROBLEMS.items() if "rmqstore_spark.rebuild(store)" in problem.advice},
    **{name: salvage for name, problem in PROBLEMS.items() if "rmqstore salvage" in problem.advice},
    **{name: config_anew for name, problem in PROBLEMS.items() if "rebuild_config()" in problem.advice},
    **dict.fromkeys(["missingSegment", "wrongFileSize", "wrongCompression"], bring_back),
    **dict.fromkeys(
        ["damagedCompactionLog", "wrongCompactionQueue", "unorderedQueueLog", "foreignInQueueLog"],
        bring_back_compaction_log,
    ),
    "extraQueueUnit": drop_or_salvage,
    "strayFile": move_out,
    "harmlessStray": move_out,
    "link": put_there,
    "offsetAheadOfQueue": offset_back,
    "brokenEpochs": epochs_back,
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.removeprefix("planted_"))
def test_nothing_is_wrong_after_the_advice_was_followed(
    plant: Callable[[Planted], Iterator[tuple[Any, ...]]], store: Planted
) -> None:
    """Where there are several problems, what is wrong in the log comes first."""
    planted = {finding[0] for finding in plant(store)}
    for _ in range(10):
        rows = wrong(store.root)
        if not rows:
            return
        row = min(rows, key=lambda row: ADVICE[row["problem"]] not in (salvage, drop_or_salvage))
        ADVICE[row["problem"]](row, store.root)
    pytest.fail(f"{planted}: {brief(wrong(store.root))}")


def test_every_problem_has_advice_that_can_be_followed() -> None:
    """Those that are only said need none."""
    advised = {name for name, problem in PROBLEMS.items() if problem.advice}  # the others only a salvage has
    assert {name for name in advised if PROBLEMS[name].severity != "info"} - set(ADVICE) == {"foreignOwner"} | OF_TIERS


def test_every_problem_is_planted(tmp_path: Path) -> None:
    """Those that are only said have tests of their own below."""
    found = set()
    for plant in PLANTED:
        found |= {finding[0] for finding in plant(Planted(tmp_path / plant.__name__))}
    only_said = {name for name, problem in PROBLEMS.items() if problem.severity == "info"}
    advised = {name for name, problem in PROBLEMS.items() if problem.advice}  # the others only a salvage has
    assert found == advised - only_said - OF_TIERS - {"foreignOwner"}  # which only root can plant


@pytest.mark.parametrize(
    "version", ['"dataVersion":{"timestamp":1700000000123},', "", '"dataVersion":{"timestamp":"x"},']
)
@pytest.mark.parametrize("file", [None, "", '{"topicConfigTable":{"TopicA"'])
def test_a_backup_says_of_when_it_is(
    store: Planted, version: str, file: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """By its last change, which a copy keeps, or by the file; and who reads it says so once."""
    config(store, "topics.json.bak", f'{{{version}"topicConfigTable":{{"TopicA":{{"readQueueNums":2}}}}}}')
    os.utime(store.root / "config" / "topics.json.bak", (1_600_000_000, 1_600_000_000))
    if file is not None:
        config(store, "topics.json", file)
    age = "of 2023-11-14 22:13:20 UTC" if "17" in version else "of 2020-09-13 12:26:40 UTC"
    if reading.STORAGE != "disk" and "17" not in version:
        age = "of an unknown time"
    (row,) = wrong(store.root)
    assert row["problem"] == "oldConfig"
    assert row["file"].endswith("config/topics.json")
    assert ("none; " in row["found"]) == (file is None)
    assert row["found"].endswith(f"; a broker takes topics.json.bak, {age}")
    said = [text for text in caplog.messages if "its backup is taken" in text]
    assert len(said) == 1
    assert age in said[0]


# ---- the rest


def test_foreign_owner(store: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = {str(store.index[1]), str(store.index[2]), str(store.root / "consumequeue" / "TopicA")}
    lstat = Files.lstat

    def lie(self: Files, path: str) -> os.stat_result:
        found = lstat(self, path)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:])) if path in foreign else found

    monkeypatch.setattr(Files, "lstat", lie)
    assert brief(wrong(store.root)) == [("foreignOwner", None, None, None, 1), ("foreignOwner", None, None, None, 2)]


@pytest.mark.parametrize("gone", ["0", "."])
def test_lost_messages_of_lost_queues_are_unknown(store: Planted, gone: str) -> None:
    lost = next(planted_noise_in_log(store))[-1]
    known = [unit.total_size for _, unit in store.messages[3:12] if unit.queue_id == 1]
    shutil.rmtree(store.root / "consumequeue" / "TopicA" / gone)
    rows = check(store.root)
    (damaged,) = (row for row in rows if row["problem"] == "damagedUnit")
    told = [(row["queueId"], row["count"]) for row in rows if row["problem"] == "lostMessages"]
    if gone == "0":
        assert told == [(1, len(known))]
        assert damaged["found"].endswith(f"; no queue has a unit for {lost - sum(known)} of these bytes")
    else:
        assert told == []
        assert damaged["found"].endswith("; which messages are lost is unknown, no queue has a unit for them")


def said(root: Path) -> list[tuple[str, int]]:
    return sorted((row["problem"], row["count"]) for row in check(root) if row["severity"] == "info")


def test_what_is_only_said(store: Planted) -> None:
    assert said(store.root) == [("noTopicConfig", 1)]
    items = reference.read_index(store.index[-1].read_bytes(), store.slots)
    before = reference.read_index(store.index[-2].read_bytes(), store.slots)
    again = sum(item.physical_offset == before[-1].physical_offset for item in items)
    store.index[-1].unlink()
    (store.root / "index" / "README").touch()
    (store.root / "consumequeue" / "README").touch()
    (store.root / "timerwheel").touch()
    (store.root / "timerlog").mkdir()
    config(store, "topics.json", json.dumps({"topicConfigTable": {"TopicA": {"readQueueNums": 4}, "Other": {}}}))
    config(store, "consumerOffset.json", '{"offsetTable":{"TopicA@G":{0:0,1:5},"Gone@G":{0:3}}}')
    assert said(store.root) == [
        ("harmlessStray", 1),
        ("harmlessStray", 1),
        ("notIndexed", len(items)),
        ("offsetWithoutQueue", 1),
        ("timerNotLookedAt", 2),
        ("topicWithoutQueue", 1),
    ]
    assert again == 0
    with (store.root / "lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
        # The lock is this process's own, which a process does not see; an open file's lock it does.
        fcntl.lockf(file, fcntl.LOCK_UN, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        assert ("brokerRuns", 1) in said(store.root)


def test_index_file_of_one_item(tmp_path: Path) -> None:
    """The last message's keys may be the last of a full file and the only one of the next."""
    builder = StoreBuilder(tmp_path, index=True, index_slots=3, index_items=5)
    for number in range(3):
        builder.append(msg_id=f"{number:032X}", keys="one two")
    builder.close()
    counts = [len(reference.read_index(path.read_bytes(), 3)) for path in sorted(tmp_path.glob("index/*"))]
    assert counts == [4, 4, 1]
    one_message = str(builder.messages[0].size)
    assert brief(check(tmp_path, maxPartitionBytes=one_message)) == brief(check(tmp_path))
    assert "notIndexed" not in {row["problem"] for row in check(tmp_path)}


def test_long_topic_and_long_recovery(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, segment_size=1024)
    for _ in range(12):
        builder.append("t" * 200, bytes(400))
    builder.close()
    names = dict(said(tmp_path))
    assert wrong(tmp_path) == []
    assert {"longTopic", "longRecovery"} <= set(names)


def test_topic_that_no_queue_can_have(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, consume_queue=False)
    builder.append("a/b")
    builder.close()
    (tmp_path / "consumequeue" / "A" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / "A" / "0" / f"{0:020d}").write_bytes(bytes(200))
    assert ("impossibleTopic", 1) in said(tmp_path)
    assert [row["problem"] for row in wrong(tmp_path)] == ["topicWithoutConfig"]  # of the queue of no messages


def test_expired_beginning(tmp_path: Path, rng: random.Random) -> None:
    """Queues and index still know what has expired, and consumers may stand there."""
    builder = StoreBuilder(tmp_path, index=True)
    for number in range(200):
        builder.append(rng.choice("AB"), rng.randbytes(200), rng.randrange(3), keys=f"k{number}")
    builder.expire(3)
    builder.close()
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"A@G":{0:1}}}')
    assert wrong(tmp_path) == wrong(tmp_path, maxPartitionBytes="2000") == []
    assert [name for name, _ in said(tmp_path) if name.startswith("offset")] == ["offsetBehindQueue"]


def test_several_directories(tmp_path: Path, rng: random.Random) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    builder = StoreBuilder(tmp_path / "store", commitlogs=directories)
    for _ in range(100):
        builder.append(rng.choice("AB"), rng.randbytes(200))
    builder.close()
    named = {"storePathCommitLog": ",".join(map(str, directories))}
    assert wrong(builder.root, **named) == []
    last = max(offset for topic, _, offset, _ in reference.read_queues(builder.root) if topic == "A")
    extra = (builder.root / "consumequeue" / "B" / "0" / f"{0:020d}").read_bytes()[:20]
    path = builder.queue_directory("A", 0) / f"{(last + 1) * 20 // 200 * 200:020d}"
    data = bytearray(path.read_bytes() if path.exists() else bytes(200))
    at = (last + 1) * 20 % 200
    path.write_bytes(data[:at] + extra + data[at + 20 :])
    assert [row["problem"] for row in wrong(builder.root, **named)] == ["extraQueueUnit"]


def test_log_is_read_once(tmp_path: Path, rng: random.Random) -> None:
    builder = StoreBuilder(tmp_path, 1 << 20, 20_000, index=True, index_slots=1000, index_items=4000)
    for number in range(6000):
        builder.append(rng.choice("ABC"), rng.randbytes(1000), rng.randrange(2), keys=f"k{number}")
    builder.close()
    files, options = Files(), options_of(tmp_path)
    opened = Snapshot.find(str(tmp_path), files)
    parts = CHECK.parts(opened, options)
    found = [batch for part in parts for batch in CHECK.rows(opened, options, part)]
    assert sum(batch.num_rows for batch in found) == 0
    beside = sum(path.stat().st_size for name in ("consumequeue", "index") for path in (tmp_path / name).rglob("*0*"))
    looks = 2 << 20  # for the log's end, and where to cut it, whatever its size
    assert builder.end <= files.bytes <= builder.end + 3 * beside + looks < 2 * builder.end


def test_checkpoint_where_the_clock_went_back(tmp_path: Path) -> None:
    """It is held against the greatest store time: that is what a broker, and our writer, may have put there."""
    builder = StoreBuilder(tmp_path)
    times = [1_700_000_000_000, 1_700_000_009_000, 1_700_000_001_000]
    for time in times:
        builder.append(store_timestamp=time)
    builder.close()
    for time, found in (max(times), []), (max(times) + 1, ["checkpointAhead"] * 2):
        (tmp_path / "checkpoint").write_bytes(struct.pack(">qqq", time, time, 0))
        assert [row["problem"] for row in wrong(tmp_path)] == found
    rmqstore_spark.rebuild(str(tmp_path))
    assert wrong(tmp_path) == []


def test_an_empty_directory_is_no_queue(tmp_path: Path) -> None:
    """So no topic without a configuration either, whatever queues there are beside it."""
    (tmp_path / "consumequeue" / "Empty" / "0").mkdir(parents=True)
    builder = StoreBuilder(tmp_path)
    builder.append("A")
    builder.close()
    config = {"topicConfigTable": {"A": {"readQueueNums": 1}}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps(config))
    assert wrong(tmp_path) == []
    rmqstore_spark.write_store(tmp_path, pa.table({"topic": ["A"], "queueId": [0], "body": [b"x"]}))
    assert wrong(tmp_path) == []


def test_messages_that_belong_into_no_queue_need_none(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for sys_flag in reference.PREPARED, reference.ROLLBACK, reference.PREPARED:
        builder.append(sys_flag=sys_flag)
    builder.close()
    assert not (tmp_path / "consumequeue").exists()
    assert wrong(tmp_path) == []
    builder.append()
    builder.close()
    shutil.rmtree(tmp_path / "consumequeue")
    assert [row["problem"] for row in wrong(tmp_path)] == ["noQueues"]
    (tmp_path / "consumequeue" / "Empty" / "0").mkdir(parents=True)
    (tmp_path / "abort").touch()
    rows = {row["problem"]: row for row in rows_of(CHECK, tmp_path)}
    assert "noQueues" not in rows  # a broker that starts now puts the message into a queue
    assert rows["notDispatched"]["commitLogOffset"] == builder.messages[-1].position


@pytest.mark.parametrize("seconds", [0, 5, 50, 99])
def test_a_lost_queue_of_a_broker_that_was_killed(seconds: int, tmp_path: Path) -> None:
    """Each message without a unit is told: as missing, or, from the segment with which a broker begins that starts now,
    as not dispatched. That is the last one whose first message has a store time that is older by 3 seconds than the
    checkpoint; 0 is none. Other queues are whole."""
    builder = StoreBuilder(tmp_path, 4096)
    for number in range(90):
        # A segment has 23 messages.
        time = 0 if number == 69 else 1_700_000_000_000 + 1000 * number
        builder.append("AB"[number % 2], b"x" * 80, store_timestamp=time)
    assert builder.messages[69].position % 4096 == 0
    builder.close(clean=False)
    checkpoint = 1_700_000_000_000 + 1000 * seconds
    (tmp_path / "checkpoint").write_bytes(struct.pack(">qqq", checkpoint, checkpoint + 7, 0))
    shutil.rmtree(tmp_path / "consumequeue" / "A")
    firsts = {m.position - m.position % 4096: m for m in reversed(builder.messages)}
    begin = max((at for at, m in firsts.items() if 0 < m.store_timestamp <= checkpoint - 3000), default=0)
    lost = [m for m in builder.messages if m.topic == "A"]
    late = [m for m in lost if m.position >= begin]
    told = {row["problem"]: row for row in check(tmp_path)}
    (row,) = [row for row in check(tmp_path) if row["problem"] == "notDispatched"]
    assert (row["queueOffset"], row["count"]) == (late[0].queue_offset, len(late))
    missing = told_units([row for row in check(tmp_path) if row["problem"] == "missingQueueUnit"])
    assert missing == {("A", 0, m.queue_offset) for m in lost if m not in late}
    assert ("missingQueueUnit" in told) == (seconds > 5)


def test_queue_files_that_are_all_empty(tmp_path: Path) -> None:
    """No file tells then which size is right."""
    builder = StoreBuilder(tmp_path, 8192, 200)
    for _ in range(25):
        builder.append("A")
    builder.close()
    first, between, last = sorted(builder.queue_directory("A", 0).iterdir())
    first.write_bytes(b"")
    between.unlink()
    last.write_bytes(b"")
    told = [row["problem"] for row in wrong(tmp_path) if row["problem"] != "missingQueueUnit"]
    assert sorted(told) == ["queueFileGap", "wrongQueueFileSize", "wrongQueueFileSize"]


@pytest.mark.parametrize("tagged", [1, 2, 300])
def test_tags_in_the_index_need_not_be_asked_for_one_by_one(tagged: int, tmp_path: Path) -> None:
    """Of all messages, or of those of some versions' brokers; and the index is ahead of the log, as in a copy."""
    builder = StoreBuilder(tmp_path, 1 << 20, index=True, index_slots=100, index_items=5000)
    assert builder._index is not None
    for number in range(600):
        position = builder.append(tags="t", keys=f"k{number}")
        if number % tagged == 0 or number > 590:
            builder._index.put("TopicA", ["T#t"], position, builder.now)
    builder.close(clean=False)
    cut = builder.messages[500].position
    (path, _) = reference.segment_files(tmp_path)
    path.write_bytes(path.read_bytes()[:cut].ljust(1 << 20, b"\0"))
    files, options = Files(), options_of(tmp_path)
    opened = Snapshot.find(str(tmp_path), files)
    parts = CHECK.parts(opened, options)
    rows = [row for part in parts for batch in CHECK.rows(opened, options, part) for row in batch.to_pylist()]
    assert {row["problem"] for row in rows if row["severity"] != "info"} == {"abort"}
    assert files.requests < 220  # one by one they would be 500 at least


# ---- random stores, against a plain comparison of log and queues


def lost_units(root: Path, messages: list[Stored]) -> set[tuple[str, int, int]]:
    """The messages of simple queues whose unit is not there, or points elsewhere."""
    units = {(topic, queue_id, offset): unit for topic, queue_id, offset, unit in units_of(root)}
    return {
        (message.topic, message.queue_id, message.queue_offset)
        for message in messages
        if message.queued
        and message.topic != aged_stores.BATCHES
        and units.get((message.topic, message.queue_id, message.queue_offset), ())[:2]
        != (message.position, message.size)
    }


def other_tags(root: Path, sound: Path) -> set[tuple[str, int, int]]:
    """Units with another tagsCode than in the sound store."""
    before = {each[:3]: each[3][2] for each in units_of(sound)}
    return {each[:3] for each in units_of(root) if before.get(each[:3]) != each[3][2]}


def units_of(root: Path) -> Iterator[tuple[str, int, int, tuple[int, int, int]]]:
    """As reference.read_queues(), but also those after one that is not used; physical offset, size and tagsCode. Where
    a file is too long, the next one counts."""
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        data, start = path.read_bytes(), int(path.name)
        for at in range(0, len(data) - 19, 20):
            unit = struct.unpack_from(">qiq", data, at)
            if unit[0] >= 0 and unit[1] > 0:
                yield path.parent.parent.name, int(path.parent.name), (start + at) // 20, unit


def test_a_broker_puts_nothing_before_pre_blank_units(tmp_path: Path) -> None:
    """They are units to it (ConsumeQueue.recover): a message before them stays without one even where it was
    killed."""
    builder = StoreBuilder(tmp_path)
    for _ in range(3):
        builder.append("A")
    builder.close(clean=False)
    path = builder.queue_directory("A", 0) / f"{0:020d}"
    path.write_bytes((struct.pack(">qiq", *reference.PRE_BLANK) * 2).ljust(path.stat().st_size, b"\0"))
    rows = check(tmp_path)
    told = {row["problem"]: (row["queueOffset"], row["count"]) for row in rows if row["area"] == "queue"}
    assert told["missingQueueUnit"] == (0, 2)


def told_units(rows: list[Row]) -> set[tuple[str, int, int]]:
    return {
        (row["topic"], row["queueId"], row["queueOffset"] + number)
        for row in rows
        if row["problem"] in ("missingQueueUnit", "wrongQueueUnit", "shiftedQueueUnit")
        and row["topic"] != aged_stores.BATCHES
        for number in range(row["count"])
    }


# Files of the wrong size are the random stores' own: their light queues have no other.
HARMLESS = {"abort", "wrongQueueFileSize"}


def late_units(root: Path, lost: set[tuple[str, int, int]], messages: list[Stored]) -> set[tuple[str, int, int]]:
    """Those of the lost ones that a broker makes when it starts: where it was killed, in the segments that it recovers,
    from where it ends a queue."""
    if not (root / "abort").exists():
        return set()
    times = struct.unpack(">qq", (root / "checkpoint").read_bytes()[:16])
    begins = [next(m for m in messages if m.position >= int(path.name)) for path in used_segments(root, messages)[-10:]]
    older = [message.position for message in begins if message.store_timestamp <= min(times) - 3000]
    start = older[-1] if older else begins[0].position
    ends = {(path.parent.name, int(path.name)): recovered_end(path) for path in root.glob("consumequeue/*/*")}
    positions = {(message.topic, message.queue_id, message.queue_offset): message.position for message in messages}
    return {unit for unit in lost if unit[2] >= ends.get(unit[:2], 0) and positions[unit] >= start}


def recovered_end(directory: Path) -> int:
    """Where ConsumeQueue.recover() ends a queue: it takes its last three files, up to the first unit without a message
    or, in truncateDirtyLogicFiles(), beyond any log."""
    end, paths = 0, sorted(directory.iterdir())
    for number, path in enumerate(paths[-3:], max(0, len(paths) - 3)):
        data, start = path.read_bytes(), int(path.name)
        room = min(len(data), int(paths[number + 1].name) - start) if number + 1 < len(paths) else len(data)
        for at in range(0, room - 19, 20):
            position, size = struct.unpack_from(">qi", data, at)
            if position < 0 or size <= 0 or position + size >= 1 << 63:
                return (start + at) // 20
        end = (start + room) // 20
    return end


def used_segments(root: Path, messages: list[Stored]) -> list[Path]:
    return [path for path in reference.segment_files(root) if int(path.name) <= messages[-1].position]


def indexed(root: Path) -> set[tuple[int, int]]:
    """keyHash and position of all that the index files' headers count."""
    found: set[tuple[int, int]] = set()
    for path in sorted((root / "index").glob("*")):
        with contextlib.suppress(struct.error, IndexError, ValueError, AssertionError):
            items = reference.read_index(path.read_bytes(), aged_stores.SLOTS)
            found |= {(item.key_hash, item.physical_offset) for item in items}
    return found


def is_left(root: Path) -> bool:
    """Was a broker killed, or its store copied?"""
    return (root / "abort").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(16))
def test_random_stores(number: int, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """One or two damages, of any kinds; and the same rows whatever the log is cut into. Blocks are small, too."""
    monkeypatch.setattr(table, "_BLOCK", rng.choice((600, 1500, 6000, 32 << 20)))
    builder, is_cut = aged_stores.aged_store(tmp_path / "store", rng)
    rows = check(builder.root)
    if not is_cut:
        # A broker has the directory of ConsumeQueues even where no message gets into one; random stores have not.
        harmless = HARMLESS if any(message.queued for message in builder.messages) else HARMLESS | {"noQueues"}
        assert {row["problem"] for row in rows if row["severity"] != "info"} <= harmless
    for _ in range(3):
        names = rng.sample(sorted(damage.DAMAGES), rng.choice((1, 2)))
        damaged = tmp_path / "damaged"
        shutil.copytree(builder.root, damaged, symlinks=True)
        for name in names:
            damage.DAMAGES[name](damaged, rng)
        rows = check(damaged)
        size = str(rng.choice((1, 400, 1500, 8192, 50_000)))
        assert brief(rows) == brief(check(damaged, maxPartitionBytes=size)), (names, size)
        files = [path for path in damaged.glob("*consumequeue/*/*/*") if path.is_file()]
        if not is_cut and not any(path.parents[1].name != aged_stores.LMQ for path in files):
            is_needed = any(message.queued for message in builder.messages)
            # With `abort`, a broker that starts puts the messages into queues, from one of the last segments on.
            # Where there is a light queue, it is each message that has no unit.
            wanted = {"noQueues", "missingQueueUnit" if files else "", "notDispatched" if is_left(damaged) else ""}
            assert bool(wanted & {row["problem"] for row in rows}) == is_needed, names
        elif not is_cut and (damaged / "consumequeue").exists():
            # Brokers delete light queues that are not used: that one is missing is no problem.
            light = builder.light if any((damaged / "consumequeue" / aged_stores.LMQ).glob("0/*")) else []
            messages = sorted([*builder.messages, *light], key=lambda message: message.position)
            lost = lost_units(damaged, messages)
            late = late_units(damaged, lost, messages) if lost else set()
            told = told_units([row for row in rows if row["problem"] == "missingQueueUnit"])
            assert lost - late <= told_units(rows) <= lost | other_tags(damaged, builder.root), names
            assert told <= lost - late, names
            assert sum(row["count"] for row in rows if row["problem"] == "notDispatched") >= len(late), names
        there = indexed(damaged)
        missing = [row for row in rows if row["problem"] == "missingIndexItem"]
        sure = {path.stat().st_size for path in (damaged / "index").glob("*")} if (damaged / "index").exists() else ()
        if len(sure) == 1:
            hashes = [(int(row["expected"].split()[1]), row["commitLogOffset"]) for row in missing]
            assert not set(hashes) & there, names
        shutil.rmtree(damaged)


@pytest.mark.parametrize("which", [0, 3, 20, 58, 59])
@pytest.mark.parametrize("bit", [1, 20, 42, 62, 63])
def test_what_is_advised_about_a_damaged_queue_offset_helps(
    tmp_path: Path, which: int, bit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No checksum covers it, and no rebuild mends it: that is not advised, and says that offsets are not the log's."""
    root = tmp_path / "store"
    builder = StoreBuilder(root, 8192, 200)
    for number in range(60):
        builder.append("AB"[number % 2], b"%060d" % number, number // 2 % 2)
    builder.close()
    path = builder.segment(builder.messages[which].position)
    data = bytearray(path.read_bytes())
    data[builder.messages[which].position % 8192 + 27 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    told = wrong(root)
    assert told
    assert not any("call rmqstore_spark.rebuild" in row["advice"] for row in told), told
    rmqstore_spark.Store(root).salvage(tmp_path / "new")
    assert {row["problem"] for row in wrong(tmp_path / "new")} <= {"queueGap"}
    rmqstore_spark.rebuild(root)
    assert "queueOffset" in caplog.text
    told = wrong(root)
    assert told
    if bit < 62:  # a message that no queue can have is missing before all that come after it
        assert not any("call rmqstore_spark.rebuild" in row["advice"] for row in told), told


@pytest.mark.parametrize("path", ["", "A", "A/x", "A/0", "A/0/x", f"A/0/{0:020d}"])
@pytest.mark.parametrize("data", [b"", bytes(460), b"hello"])
def test_what_is_advised_about_a_stray_batchconsumequeue_helps(tmp_path: Path, path: str, data: bytes) -> None:
    """Of a topic with simple queues: they are not called lost, and no rebuild is advised, which would be refused."""
    builder = StoreBuilder(tmp_path, 8192, 200)
    for number in range(60):
        builder.append("AB"[number % 2], b"%060d" % number)
    builder.close()
    stray = tmp_path / "batchconsumequeue" / path
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(data)
    told = [row for row in check(tmp_path) if row["file"] is not None and "batchconsumequeue" in row["file"]]
    assert told
    assert all("move it" in row["advice"] for row in wrong(tmp_path)), wrong(tmp_path)
    away = tmp_path / "batchconsumequeue"
    shutil.rmtree(away) if away.is_dir() else away.unlink()
    assert wrong(tmp_path) == []
    assert rmqstore_spark.rebuild(tmp_path) == 60


# ---- a store that changes meanwhile


def test_a_write_that_comes_meanwhile_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped store is judged without the allowances for one that is written to; where that begins during a check, it
    begins anew. Who cannot begin anew says why."""
    root, row = tmp_path / "store", pa.table({"topic": ["T"], "body": [b"1"], "keys": ["k"]})
    writing.write(root, writing.some_rows(random.Random(1), 20))
    looked, real, later = [], index_files.spans_of, list[Any]()

    def spans_of(*given: Any) -> Any:
        looked.append(real(*given))
        if len(looked) == 1:
            later.append(table.parts(given[0], options_of(root)))
            rmqstore_spark.write_store(root, row)
        return looked[-1]

    monkeypatch.setattr(table, "spans_of", spans_of)
    assert [each for each in rmqstore_spark.Store(root).check().to_pylist() if each["severity"] != "info"] == []
    assert len(looked) == 3
    store = Snapshot.find(str(root), Files())
    with pytest.raises(rmqstore_spark.DeletedMeanwhileError, match="has begun to change the store since the check"):
        list(itertools.chain(*(table.rows(store, options_of(root), part) for part in later[0])))
