"""Table consumequeue has what a plain reader finds in the queues' files."""

from __future__ import annotations

import datetime as dt
import pickle
import random
import shutil
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest
from oracle import golden, reference
from oracle.stores import StoreBuilder
from support.reading import new_files, options_of
from support.tables import rows_of

from rmqstore_spark import OptionError, Store
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables import consumequeue
from rmqstore_spark.tables.consumequeue import CONSUMEQUEUE

ROOT = Path(__file__).resolve().parents[2]
SMALL = sorted(path for path in (ROOT / "tests" / "data").glob("rocketmq-*"))
FLAVOURS = ROOT.parent / "shared" / "stores" / "flavours"
PLAIN = ("topic", "queueId", "queueOffset", "commitLogOffset", "size", "tagsCode")


def plain(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in PLAIN)


def oracle(root: Path) -> list[tuple[Any, ...]]:
    return [(topic, queue_id, offset, *unit) for topic, queue_id, offset, unit in reference.read_queues(root)]


def bytes_at(row: dict[str, Any], size: int) -> bytes:
    data = Path(row["file"]).read_bytes()
    return data[row["filePosition"] : row["filePosition"] + size]


def check_store(root: Path) -> None:
    expected = oracle(root)
    assert expected
    rows = rows_of(CONSUMEQUEUE, root)
    assert sorted(map(plain, rows)) == sorted(expected)
    for row in rows:
        assert bytes_at(row, 20) == struct.pack(">qiq", row["commitLogOffset"], row["size"], row["tagsCode"])
        assert (row["messages"], row["tagsHash"]) == (1, row["tagsCode"])
        assert row["storeTimestamp"] is row["filterBitMap"] is None


@pytest.mark.parametrize("root", SMALL, ids=lambda path: path.name)
def test_small_stores(root: Path) -> None:
    check_store(root)


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_golden_stores(version: str, tmp_path: Path) -> None:
    check_store(golden.unpack(version, tmp_path))


def build(root: Path, rng: random.Random, messages: int = 300, queues: int = 7) -> StoreBuilder:
    """Queues of different lengths, one of which begins late."""
    builder = StoreBuilder(root)
    builder.start_queue("Late", 1, 13)
    for _ in range(messages):
        topic = rng.choice(("A", "B", "Late"))
        builder.append(topic, rng.randbytes(rng.randrange(60)), rng.randrange(1, queues), tags=rng.choice((None, "t")))
    builder.close()
    return builder


def test_each_unit_once_however_it_is_cut(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, rng)
    expected = sorted(oracle(tmp_path))
    for part_bytes, batch_units in ((1, 1), (500, 3), (100_000, 64), (1 << 30, 1 << 20)):
        monkeypatch.setattr(consumequeue, "_PART_BYTES", part_bytes)
        monkeypatch.setattr(consumequeue, "_BATCH_UNITS", batch_units)
        assert sorted(map(plain, rows_of(CONSUMEQUEUE, tmp_path))) == expected


def test_parts_do_not_list_all_topics_again(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part opens the store anew. In a store of 20,000 topics, a list of them for each part took a second."""
    build(tmp_path, rng)
    listed, names = [], Files.names

    def noted(files: Files, path: str) -> list[str]:
        listed.append(Path(path).name)
        return names(files, path)

    monkeypatch.setattr(Files, "names", noted)
    counts = []
    for part_bytes in (1, 1 << 30):
        monkeypatch.setattr(consumequeue, "_PART_BYTES", part_bytes)
        listed.clear()
        Store(tmp_path).consumequeue()
        counts.append(listed.count("consumequeue"))
    assert 0 < counts[0] == counts[1] <= 2


def test_selections(tmp_path: Path, rng: random.Random) -> None:
    build(tmp_path, rng)
    every = oracle(tmp_path)

    def selected(**options: str) -> list[tuple[Any, ...]]:
        return sorted(map(plain, rows_of(CONSUMEQUEUE, tmp_path, **options)))

    assert selected(subscribe="A,Late") == sorted(row for row in every if row[0] in ("A", "Late"))
    assert selected(subscribePattern="[AB]") == sorted(row for row in every if row[0] in ("A", "B"))
    assert selected(assign='{"A": [1, 2]}') == sorted(row for row in every if row[0] == "A" and row[1] in (1, 2))
    offsets = {"subscribe": "A", "startingOffsets": '{"A": {"1": 3}}', "endingOffsets": '{"A": {"1": 5, "2": 2}}'}
    bounds = {1: (3, 5), 2: (0, 2)}
    assert selected(**offsets) == sorted(
        row
        for row in every
        if row[0] == "A" and bounds.get(row[1], (0, 1000))[0] <= row[2] < bounds.get(row[1], (0, 1000))[1]
    )


def test_what_a_group_has_not_consumed(tmp_path: Path, rng: random.Random) -> None:
    """In each store from where it stands there, as messages; and what no store has is refused as there."""
    for name, offset in (("a", 2), ("b", 5)):
        build(tmp_path / name, rng)
        (tmp_path / name / "config").mkdir(exist_ok=True)
        offsets = f'{{"offsetTable": {{"A@G": {{1: {offset}, 2: 0}}, "Late@H": {{1: 1}}}}}}'
        (tmp_path / name / "config" / "consumerOffset.json").write_text(offsets)
    store, columns = Store(tmp_path / "*"), ["store", "topic", "queueId", "queueOffset", "commitLogOffset"]

    def units(**options: Any) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in store.consumequeue(columns=columns, **options).to_pylist())

    given: list[dict[str, Any]] = [
        {"startingOffsets": "group:G"},
        {"startingOffsets": "group:G", "assign": {"A": [1], "B": [2]}},
        {"startingOffsets": "group:G", "endingOffsets": {"A": {"1": 4, "2": 1}}},
        {"startingOffsets": "group:H"},
        {"startingOffsets": {"A": {"1": 3}}},
    ]
    for options in given:
        rows = store.messages(columns, **options).read_all().to_pylist()
        assert units(**options) == sorted(tuple(row.values()) for row in rows) != units()
    wrong: list[dict[str, Any]] = [
        {"startingOffsets": "group:nosuch"},
        {"startingOffsets": {"A": {"9": 3}}},
        {"endingOffsets": {"Nosuch": {"1": 3}}},
    ]
    for options in wrong:
        with pytest.raises(OptionError) as of_messages:
            store.messages(columns, **options)
        with pytest.raises(OptionError) as of_table:
            units(**options)
        assert str(of_table.value) == str(of_messages.value)


def test_addresses_are_resolved(tmp_path: Path, rng: random.Random) -> None:
    """As ConsumeQueueExt writes them: two files, the first closed with -1, a unit with and one without a bitmap."""
    builder = StoreBuilder(tmp_path, queue_file_size=2000)
    for number in range(5):
        builder.append("Ext", tags=f"tag{number}")
    builder.close()
    parts = [struct.pack(">hqqh", 28, 1000 + n, 1_700_000_000_000 + n, 8) + bytes([n] * 8) for n in range(2)]
    second = struct.pack(">hqqh", 20, 1002, 1_700_000_000_002, 0)
    directory = tmp_path / "consumequeue_ext" / "Ext" / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes((b"".join(parts) + struct.pack(">h", -1)).ljust(100, b"\0"))
    (directory / f"{100:020d}").write_bytes(second.ljust(100, b"\0"))
    addresses = [0, 28, 100, 150, 5000]  # the last two: nothing is there
    path = tmp_path / "consumequeue" / "Ext" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for number, address in enumerate(addresses):
        struct.pack_into(">q", data, 20 * number + 12, address - (1 << 63))
    struct.pack_into(">q", data, 20 * 4 + 12, -(1 << 31))  # the least that is no address
    path.write_bytes(data)

    rows = rows_of(CONSUMEQUEUE, tmp_path)
    assert [row["tagsHash"] for row in rows] == [1000, 1001, 1002, None, -(1 << 31)]
    assert [row["filterBitMap"] for row in rows] == [b"\0" * 8, b"\1" * 8, b"", None, None]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    times = [row["storeTimestamp"] and (row["storeTimestamp"] - epoch) // dt.timedelta(milliseconds=1) for row in rows]
    assert times == [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002, None, None]
    assert [row["tagsCode"] for row in rows][:2] == [-(1 << 63), 28 - (1 << 63)]


def test_batch_queues(tmp_path: Path) -> None:
    """A unit of a BatchCQ is one row, with the offset of its first message."""
    packed = FLAVOURS / "batchcq-5.5.0.tar.xz"
    if not packed.exists():
        pytest.skip("the stores of flavours are not here")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.glob("*/store")
    rows = rows_of(CONSUMEQUEUE, root, assign='{"Bq": [0]}')
    assert [(row["queueOffset"], row["messages"]) for row in rows] == [(0, 1), (1, 1), (2, 4), (6, 6), (12, 1), (13, 1)]
    for row in rows:
        position, size, code, time, base, count = struct.unpack(">qiqqqh", bytes_at(row, 38))
        assert (position, size, code) == (row["commitLogOffset"], row["size"], row["tagsCode"])
        assert (base, count) == (row["queueOffset"], row["messages"])
        assert time == int(row["storeTimestamp"].timestamp() * 1000 + 0.5)
    # Selected is a unit that has a selected message.
    options = {"startingOffsets": '{"Bq": {"0": 5}}', "endingOffsets": '{"Bq": {"0": 12}}'}
    found = rows_of(CONSUMEQUEUE, root, assign='{"Bq": [0]}', **options)
    assert [row["queueOffset"] for row in found] == [2, 6]


def test_light_queues_are_there(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append("A")
    builder.close()
    light = tmp_path / "consumequeue" / "%LMQ%a" / "0"
    light.mkdir(parents=True)
    (light / f"{0:020d}").write_bytes((tmp_path / "consumequeue" / "A" / "0" / f"{0:020d}").read_bytes())
    assert [row["topic"] for row in rows_of(CONSUMEQUEUE, tmp_path)] == ["%LMQ%a", "A"]


def test_a_file_of_the_plan_that_is_gone(tmp_path: Path, rng: random.Random) -> None:
    """Its queue is listed again, and others are read as planned."""
    builder = StoreBuilder(tmp_path, queue_file_size=20_000)
    for number in range(60):
        builder.append("A", rng.randbytes(9), number % 4)
    builder.close()
    options, queues = options_of(tmp_path), tmp_path / "consumequeue"
    store = Snapshot.find(str(tmp_path), new_files(), None)
    parts = pickle.loads(pickle.dumps(CONSUMEQUEUE.parts(store, options)))
    before = oracle(tmp_path)
    gone, moved = queues / "A" / "1", queues / "A" / "2"
    shutil.rmtree(gone)
    (moved / f"{0:020d}").rename(moved / f"{2000:020d}")
    expected = [(*row[:2], row[2] + 100, *row[3:]) if row[:2] == ("A", 2) else row for row in before]
    store = Snapshot.find(str(tmp_path), new_files(), None)
    rows = [row for part in parts for batch in CONSUMEQUEUE.rows(store, options, part) for row in batch.to_pylist()]
    assert sorted(map(plain, rows)) == sorted(row for row in expected if row[:2] != ("A", 1))
