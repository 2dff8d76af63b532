"""check of a store that a broker writes to, and of copies that were made meanwhile: a healthy one has no fault."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from oracle.stores import StoreBuilder
from support.reading import options_of
from support.tables import rows_of

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.io.files import Files, OpenFile, Pin
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.tables.check.table import CHECK

SLOTS = 13
PARTS = ("commitlog", "consumequeue", "index")


class Growing(Files):
    """The store goes on between two looks."""

    def __init__(self, go_on: Callable[[], None]) -> None:
        super().__init__()
        self._go_on = go_on

    def file(self, path: str, is_log: bool = False, pin: Pin | None = None) -> OpenFile:
        self._go_on()
        return super().file(path, is_log, pin)

    def names(self, path: str) -> list[str]:
        self._go_on()
        return super().names(path)


def builder_of(root: Path, rng: random.Random) -> StoreBuilder:
    items = rng.choice((20, 60, 500))
    return StoreBuilder(root, rng.choice((4096, 16_384)), 200, index=True, index_slots=SLOTS, index_items=items)


def append(builder: StoreBuilder, rng: random.Random, count: int) -> None:
    for _ in range(count):
        body, keys = rng.randbytes(rng.choice((10, 200))), f"k{rng.randrange(50)} x"
        builder.append(rng.choice("AB"), body, rng.randrange(2), rng.choice((None, "t")), keys)


def faults(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["severity"] != "info" and row["problem"] != "abort"]


@pytest.mark.parametrize("number", range(6))
def test_a_store_that_grows_between_two_looks(number: int, tmp_path: Path, rng: random.Random) -> None:
    builder = builder_of(tmp_path, rng)
    append(builder, rng, rng.randrange(1, 120))
    builder.flush()
    is_planned = False

    def go_on() -> None:
        if rng.random() < 0.15:
            append(builder, rng, rng.choice((1, 1, 20)))
            builder.flush()
        if is_planned and rng.random() < 0.003 and len(reference.segment_files(tmp_path)) > 4:
            builder.expire(1)

    files = Growing(go_on)
    store, options = Snapshot.find(str(tmp_path), files), options_of(tmp_path)
    parts = CHECK.parts(store, options)
    is_planned = True
    rows = [row for part in parts for batch in CHECK.rows(store, options, part) for row in batch.to_pylist()]
    assert faults(rows) == []
    assert builder.end > store.end


def test_an_index_file_that_is_cut_between_two_looks(tmp_path: Path, rng: random.Random) -> None:
    """Its problems are told, or that it was cut."""
    builder = builder_of(tmp_path, rng)
    append(builder, rng, 150)
    builder.close()
    path = rng.choice(sorted((tmp_path / "index").iterdir()))
    data, looks, told = path.read_bytes(), 0, 0
    errors: list[str] = []

    def go_on() -> None:
        nonlocal looks
        looks += 1
        if looks == cut_at:
            os.truncate(path, rng.randrange(len(data)))

    for cut_at in itertools.count(1, 7):
        path.write_bytes(data)
        looks, files = 0, Growing(go_on)
        try:
            store, options = Snapshot.find(str(tmp_path), files), options_of(tmp_path)
            parts = CHECK.parts(store, options)
            rows = [row for part in parts for batch in CHECK.rows(store, options, part) for row in batch.to_pylist()]
            told += bool(faults(rows))
        except RmqStoreError as why:
            errors.append(str(why))
        if looks < cut_at:
            break
    assert told > 0
    assert all(f"{path}: " in error for error in errors)
    assert any("the file was cut meanwhile" in error for error in errors)


@pytest.mark.parametrize("number", range(12))
def test_a_copy_whose_parts_are_of_different_moments(number: int, tmp_path: Path, rng: random.Random) -> None:
    """Who copies a store copies one directory after the other, and of a file its beginning first."""
    builder = builder_of(tmp_path / "store", rng)
    moments: list[Path] = []
    for count in rng.randrange(1, 60), rng.choice((0, 1, 30)), rng.choice((0, 1, 30)):
        append(builder, rng, count)
        builder.flush()
        moments.append(shutil.copytree(builder.root, tmp_path / str(len(moments))))
    copy = shutil.copytree(moments[0], tmp_path / "copy")
    of_parts = {part: rng.choice(moments) for part in PARTS}
    for part, moment in of_parts.items():
        shutil.rmtree(copy / part)
        shutil.copytree(moment / part, copy / part)
    newest = max((copy / "index").iterdir())
    later = of_parts["index"].parent / "2" / "index" / newest.name
    if rng.random() < 0.5:
        cut = rng.choice((40, 40 + 4 * SLOTS))
        newest.write_bytes(newest.read_bytes()[:cut] + later.read_bytes()[cut:])
    rows = rows_of(CHECK, copy)
    assert faults(rows) == []
    said = {row["problem"]: row["count"] for row in rows}
    log, queues = (moments.index(of_parts[part]) for part in PARTS[:2])
    units = [len(list(reference.read_queues(moment))) for moment in moments]
    assert said.get("notDispatched", 0) == max(0, units[log] - units[queues])
    assert said.get("aheadOfEnd", 0) == max(0, units[queues] - units[log])
    assert faults(rows_of(CHECK, copy, maxPartitionBytes="1000")) == []
    (copy / "abort").unlink()
    problems = {row["problem"] for row in faults(rows_of(CHECK, copy))}
    assert ("missingQueueUnit" in problems) == (units[log] > units[queues])
    assert ("queueAheadOfLog" in problems) == (units[queues] > units[log])


PAGE = 4096


def torn(rng: random.Random, moments: list[Path], begun: int, name: Path) -> bytes:
    """A file of a copy: of one moment since the copy was begun; of an index file each page is of another one."""
    since = [(moment / name).read_bytes() for moment in moments[begun:]]
    if name.parts[0] != "index":
        return rng.choice(since)
    size = len(since[-1])
    pages = [rng.choice(since)[at : at + PAGE] for at in range(0, size, PAGE)]
    if rng.random() < 0.1:
        pages[rng.randrange(len(pages))] = bytes(PAGE)  # it was not looked at, being a hole a moment before
    return b"".join(pages)[:size]


@pytest.mark.parametrize("number", range(60))
def test_a_copy_whose_pages_are_of_different_moments(number: int, tmp_path: Path, rng: random.Random) -> None:
    """Each file as it was at another moment after the copy was begun, and so each page of an index file."""
    items = rng.choice((20, 500, 2000))
    slots = rng.choice((1, 13, 1500))
    builder = StoreBuilder(tmp_path / "store", 1 << 20, 200, index=True, index_slots=slots, index_items=items)
    moments: list[Path] = []
    for _ in range(rng.randrange(2, 6)):
        append(builder, rng, rng.choice((1, 1, 5, 100, 300)))
        builder.flush()
        moments.append(shutil.copytree(builder.root, tmp_path / str(len(moments))))
    begun = rng.randrange(len(moments))
    names = [path.relative_to(moments[begun]) for path in moments[begun].rglob("*") if path.is_file()]
    last = max((name for name in names if name.parts[0] == "index"), default=None)
    copy = tmp_path / "copy"
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        is_live = name.parts[0] != "index" or name == last
        data = torn(rng, moments, begun, name) if is_live else (moments[-1] / name).read_bytes()
        (copy / name).write_bytes(data)
    (copy / "abort").touch()
    assert faults(rows_of(CHECK, copy)) == []


def killed_broker(root: Path) -> list[Path]:
    """The index files of a store whose broker was killed: several, the last one with twelve items."""
    builder = StoreBuilder(root, 1 << 16, 200, index=True, index_slots=SLOTS, index_items=20)
    for number in range(50):
        builder.append("A", bytes(50), keys=f"k{number}")
    builder.close(clean=False)
    return sorted((root / "index").iterdir())


def problems(root: Path) -> list[tuple[str, str, int]]:
    return [(row["problem"], Path(row["file"]).name, row["count"]) for row in faults(rows_of(CHECK, root))]


def test_empty_index_files_of_a_broker_that_was_killed(tmp_path: Path) -> None:
    """Only the last one may have just been made."""
    files = killed_broker(tmp_path)
    (tmp_path / "index" / "20991231235959999").touch()
    assert problems(tmp_path) == []
    first = tmp_path / "index" / "20000101000000000"
    first.touch()
    assert problems(tmp_path) == [("brokenIndexFile", first.name, 1)]
    first.unlink()
    (tmp_path / "abort").unlink()
    assert problems(tmp_path) == [("brokenIndexFile", "20991231235959999", 1)]
    assert len(files) == 3


def test_an_index_header_of_another_moment_than_its_items(tmp_path: Path) -> None:
    """In the last file of a broker that was killed it is told, and no fault; the one before it, too, may have been
    written. Of a broker that was stopped each is a fault."""
    first, before, last = killed_broker(tmp_path)
    told: list[list[tuple[str, str]]] = []
    for path, more in (first, -3), (before, -3), (last, 3), (before, -3), (last, 3):
        if len(told) == 3:
            (tmp_path / "abort").unlink()
        data = path.read_bytes()
        (count,) = struct.unpack_from(">i", data, 36)
        path.write_bytes(data[:36] + struct.pack(">i", count + more) + data[40:])
        rows = [row for row in rows_of(CHECK, tmp_path) if row["file"] == str(path)]
        told.append([(row["problem"], row["severity"]) for row in rows])
        path.write_bytes(data)
    fault = [("wrongIndexCount", "error")]
    assert told == [fault, [], [("unsettledIndexFile", "info")], fault, fault]


def test_index_slots_of_another_moment(tmp_path: Path) -> None:
    """A slot of a page that is older than the items leads to an older item of its own chain, or to none; and to nothing
    else."""
    *_, last = killed_broker(tmp_path)
    data = last.read_bytes()
    items = reference.read_index(data, SLOTS)
    newest = {item.key_hash % SLOTS: number for number, item in enumerate(items, 1)}
    slot, number = next((slot, number) for slot, number in newest.items() if items[number - 1].previous)
    at, other = 40 + 4 * slot, next(number for shared, number in newest.items() if shared != slot)
    most = (len(data) - 40 - 4 * SLOTS) // 20  # one more is in no file
    for wrong, is_told in (items[number - 1].previous, 0), (0, 0), (other, 1), (most - 1, 0), (most, 1), (-1, 1):
        last.write_bytes(data[:at] + struct.pack(">i", wrong) + data[at + 4 :])
        assert problems(tmp_path) == [("brokenIndexChain", last.name, 1)] * is_told, wrong


def test_what_a_broker_does_not_make_by_itself(tmp_path: Path) -> None:
    """Units that are missing before others, or before where it begins to recover, are lost in spite of `abort`."""
    builder = StoreBuilder(tmp_path, 4096)
    for number in range(60):
        builder.append("A", bytes(150), number % 2, store_timestamp=1_700_000_000_000 + 1000 * number)
    builder.close(clean=False)
    path = builder.queue_directory("A", 0) / f"{0:020d}"
    units = path.read_bytes()
    path.write_bytes(units[:40] + bytes(20) + units[60:])
    assert [row["problem"] for row in faults(rows_of(CHECK, tmp_path))] == ["missingQueueUnit"]
    path.write_bytes(units)
    files = sorted(builder.queue_directory("A", 1).iterdir())
    for path in files[1:]:
        path.unlink()
    # The checkpoint is as new as the log: a broker begins with the last segment that is three seconds older.
    rows = faults(rows_of(CHECK, tmp_path))
    begin = max(
        message.position
        for message in builder.messages
        if message.position % 4096 == 0 and message.store_timestamp <= builder.now - 3000
    )
    lost = [m for m in builder.messages if m.queue_id == 1 and m.queue_offset >= 10 and m.position < begin]
    assert {row["problem"] for row in rows} == {"missingQueueUnit"}
    assert sum(row["count"] for row in rows) == len(lost) > 0
    last = max((m for m in builder.messages if m.position % 4096 == 0), key=lambda m: m.position)
    told = {}
    for late in (2999, 3000):  # milliseconds by which the checkpoint is newer than the last segment's first message
        times = last.store_timestamp + 9000, last.store_timestamp + late  # the older one counts
        (tmp_path / "checkpoint").write_bytes(struct.pack(">qqq", *times, 0))
        told[late] = sum(row["count"] for row in faults(rows_of(CHECK, tmp_path)))
    assert told[3000] - told[2999] == sum(
        m.queue_id == 1 and last.position - 4096 <= m.position < last.position for m in builder.messages
    )
    (tmp_path / "checkpoint").write_bytes(struct.pack(">qqq", 0, 0, 0))
    assert faults(rows_of(CHECK, tmp_path)) == []


def test_units_after_the_logs_end_are_one_row_for_each_stretch(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, index=True, index_items=100)
    for number in range(40):
        builder.append("A", bytes(50), number % 2, keys="k")
    builder.close()
    cut = builder.messages[20].position
    (path,) = reference.segment_files(tmp_path)
    path.write_bytes(path.read_bytes()[: cut % 8192].ljust(8192, b"\0"))
    rows = faults(rows_of(CHECK, tmp_path))
    found = [row for row in rows if row["problem"] == "queueAheadOfLog"]
    assert [(row["queueId"], row["queueOffset"], row["count"]) for row in found] == [(0, 10, 10), (1, 10, 10)]
    (of_index,) = (row for row in rows if row["problem"] == "extraIndexItem")
    assert (of_index["commitLogOffset"], of_index["count"]) == (builder.messages[-1].position, 20)
    assert (of_index["expected"], of_index["found"]) == (f"messages before the log's end at {cut}", "items from 21 on")


def test_units_after_the_logs_end_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose end is lost leaves as many of them as the broker wrote since: few reads find them, in every file."""
    builder = StoreBuilder(tmp_path, segment_size=1 << 20, queue_file_size=20_000)
    for _ in range(3_000):
        builder.append("A", bytes(50))
    builder.close()
    cut = builder.messages[20].position
    (path,) = reference.segment_files(tmp_path)
    path.write_bytes(path.read_bytes()[:cut].ljust(1 << 20, b"\0"))
    reads = 0
    chunks = Queue.chunks

    def counted(queue: Queue, *args: Any, **kwargs: Any) -> Iterator[Any]:
        nonlocal reads
        for chunk in chunks(queue, *args, **kwargs):
            reads += 1
            yield chunk

    monkeypatch.setattr(Queue, "chunks", counted)
    (found,) = (row for row in rows_of(CHECK, tmp_path) if row["problem"] == "queueAheadOfLog")
    assert (found["queueOffset"], found["count"]) == (20, 2_980)
    assert reads < 60
