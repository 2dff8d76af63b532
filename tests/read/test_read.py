"""Of healthy stores the reader below Spark gives the rows of the plain-Python reference, column by column."""

from __future__ import annotations

import logging
import random
import shutil
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import random_stores, reference, stores
from oracle.stores import StoreBuilder
from support import reading
from support.reading import new_files, options_of, read

from rmqstore_spark.columns import DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.errors import DamagedStoreError, NotAStoreError, OptionError
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.run.batch_maker import _cut
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.store.format import bodies

DATA = Path(__file__).parents[1] / "data"
REAL_STORES = sorted(path.name for path in DATA.iterdir() if (path / "commitlog").is_dir())
SIZES = (1, 100, 700, 2000, 5000, 8192, 20000, 1 << 30)


# ---- stores that RocketMQ wrote


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("name", REAL_STORES)
def test_real_store(tmp_path: Path, name: str, with_queues: bool) -> None:
    root = DATA / name
    if not with_queues:
        root = tmp_path / name
        shutil.copytree(DATA / name, root, ignore=shutil.ignore_patterns("consumequeue"))
    expected = reference.read_store(root)
    assert read(root) == expected
    assert read(root, decompress=False) == reference.read_store(root, decompress=False)
    for size in SIZES:
        assert read(root, maxPartitionBytes=size) == expected, size
    for count in (1, 2, 3, 7, 1000):
        assert read(root, minPartitions=count) == expected, count


# ---- stores of everything that the format allows


@pytest.mark.parametrize("decompress", [True, False])
@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_random_store(tmp_path: Path, rng: random.Random, clean: bool, with_queues: bool, decompress: bool) -> None:
    start = rng.choice((0, 8192, 8192 * 12345))
    store = random_stores.random_store(tmp_path, rng, messages=150, clean=clean, start=start)
    if not with_queues:
        store.drop_queues()
    expected = reference.read_store(tmp_path, decompress=decompress)
    assert len(expected) == 150
    for mode in reading.MODES:
        rows = read(tmp_path, columns=DEFAULT_COLUMNS, mode=mode, decompress=decompress)
        assert rows == expected
    for size in SIZES:
        assert read(tmp_path, maxPartitionBytes=size, decompress=decompress) == expected, size
    assert read(tmp_path, minPartitions=rng.randrange(1, 40), decompress=decompress) == expected


def test_decompressed_batches_are_as_large_as_asked_for(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, segment_size=64 * 1024)
    for number in range(40):
        body = zlib.compress(bytes([number]) * 100_000)
        builder.append(body=body, sys_flag=reference.COMPRESSED)
    builder.close()
    (task,) = plan(options_of(tmp_path), new_files(), ["body"]).tasks
    for asked, least in ((4_000_000, 3_000_000), (0, 900_000), (300_000, 290_000)):
        settings = ReadSettings.of(options_of(tmp_path), arrow_schema(["body"]), asked)
        sizes = [batch.nbytes for batch in read_task(task, settings)]
        assert sum(sizes) > 40 * 100_000
        assert least < max(sizes) < max(asked, 1024 * 1024) + 200_000


def test_batches_of_any_size_hold_the_same_rows(tmp_path: Path, rng: random.Random, monkeypatch: Any) -> None:
    random_stores.random_store(tmp_path, rng, messages=300)
    expected = reference.read_store(tmp_path)
    for size in (1, 300, 5000):
        monkeypatch.setattr("rmqstore_spark.read.run.batch_maker.BATCH_BYTES", size)
        assert read(tmp_path) == expected
    for size in (128, 1000, 3000):
        monkeypatch.setattr("rmqstore_spark.store.structures.window.WINDOW_SIZE", size)
        monkeypatch.setattr("rmqstore_spark.store.structures.window._spares", [])  # they are of another size
        assert read(tmp_path) == expected


def test_any_columns_in_any_order(tmp_path: Path, rng: random.Random) -> None:
    random_stores.random_store(tmp_path, rng, messages=60)
    expected = reference.read_store(tmp_path)
    for row in expected:
        segment = f"{row['commitLogOffset'] // 8192 * 8192:020d}"
        row |= {"file": str(tmp_path / "commitlog" / segment), "store": str(tmp_path), "corrupt": None}
    choices = [[name] for name in reading.ALL_COLUMNS]
    choices += [rng.sample(reading.ALL_COLUMNS, rng.randrange(1, len(reading.ALL_COLUMNS) + 1)) for _ in range(40)]
    for names in choices:
        rows = read(tmp_path, columns=names)
        assert rows == [{name: row[name] for name in names} for row in expected]
        assert list(rows[0]) == names
    assert list(reading.read(tmp_path, columns=[])) == []  # no columns, no values; but the count is right:
    settings = reading.ReadSettings(pa.schema([]))
    batches = [b for task in reading.make_plan(tmp_path).tasks for b in reading.read_task(task, settings)]
    assert sum(batch.num_rows for batch in batches) == 60


def test_first_segment_is_not_the_first(tmp_path: Path) -> None:
    store = _small_store(tmp_path)
    store.expire(2)
    store.close()
    expected = reference.read_store(tmp_path)
    assert 0 < len(expected) < 200
    for size in SIZES:
        assert read(tmp_path, maxPartitionBytes=size) == expected


@pytest.mark.parametrize("clean", [True, False])
def test_several_commitlog_directories(tmp_path: Path, rng: random.Random, clean: bool) -> None:
    disks = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    random_stores.random_store(tmp_path / "store", rng, commitlogs=disks, clean=clean)
    expected = reference.read_store(tmp_path / "store", commitlogs=disks)
    for order in (disks, disks[::-1]):
        option = ", ".join(map(str, order))
        assert read(tmp_path / "store", storePathCommitLog=option) == expected
        assert read(tmp_path / "store", storePathCommitLog=option, maxPartitionBytes=1000) == expected
    with pytest.raises(DamagedStoreError, match=r"a gap in the commitlog: .*storePathCommitLog"):
        read(tmp_path / "store", storePathCommitLog=f"{disks[0]},{disks[1]}")
    with pytest.raises(OptionError, match="belongs to one store"):
        read(tmp_path / "store", tmp_path / "other", storePathCommitLog=disks[0])
    with pytest.raises(OptionError, match="belongs to one store"):
        read(tmp_path / "*", storePathCommitLog=disks[0])


def test_several_stores(tmp_path: Path, rng: random.Random) -> None:
    roots = [tmp_path / "broker-b", tmp_path / "broker-a", tmp_path / "broker-c"]
    rows = {}
    for root in roots:
        random_stores.random_store(root, rng, messages=30)
        rows[root] = [{**row, "store": str(root)} for row in reference.read_store(root)]
    names = [*DEFAULT_COLUMNS, "store"]
    a, b, c = (rows[root] for root in sorted(roots))
    assert read(*roots, columns=names) == b + a + c
    assert read(tmp_path / "broker-*", columns=names) == a + b + c
    assert read(tmp_path / "broker-[ac]", roots[0], columns=names, maxPartitionBytes=3000) == a + c + b
    assert read(f"file://{roots[0]}", columns=names) == b
    assert read(f"{roots[0]}/", columns=names) == b
    with pytest.raises(NotAStoreError, match=r"none-\*: nothing matches"):
        read(tmp_path / "none-*")


def test_a_store_named_twice_is_one_store(tmp_path: Path) -> None:
    _small_store(tmp_path / "store").close()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    expected = reference.read_store(tmp_path / "store")
    assert read(tmp_path / "store", tmp_path / "store") == expected
    assert read(tmp_path / "*", tmp_path / "store", f"{tmp_path}/store/../store/") == expected


# ---- nothing there, or nothing more


@pytest.mark.parametrize("mode", reading.MODES)
def test_empty_stores(tmp_path: Path, mode: str) -> None:
    stores.StoreBuilder(tmp_path).close()
    assert read(tmp_path, mode=mode) == []
    for number in range(2):  # a broker that never got a message has these two
        segment = tmp_path / "commitlog" / f"{8192 * number:020d}"
        segment.write_bytes(bytes(8192))
        assert read(tmp_path, mode=mode) == []
    segment.write_bytes(b"")
    assert read(tmp_path, mode=mode) == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("spare", [b"", bytes(8192)])
def test_spare_last_segment(tmp_path: Path, spare: bytes, clean: bool) -> None:
    store = _small_store(tmp_path)
    store.close(clean)
    expected = reference.read_store(tmp_path)
    store.segment(store.end + store.segment_size).write_bytes(spare)
    for size in SIZES:
        assert read(tmp_path, maxPartitionBytes=size) == expected
    store.drop_queues()
    assert read(tmp_path) == expected


def test_log_that_ends_with_a_blank(tmp_path: Path) -> None:
    """A broker that stops just after it has closed a segment."""
    store = _small_store(tmp_path, 60)
    store.close()
    last = reference.segment_files(tmp_path)[-1]
    begin = int(last.name)
    expected = [row for row in reference.read_store(tmp_path) if row["commitLogOffset"] < begin]
    last.write_bytes(bytes(8192))
    for with_queues in (True, False):
        assert read(tmp_path) == expected
        if with_queues:
            store.drop_queues()
    last.unlink()
    assert read(tmp_path) == expected


# ---- bodies


BAD_BODIES = (
    (b"not compressed", 0x1, "zlib"),
    (b"not compressed", 0x301, "zlib"),
    (b"not compressed", 0x101, "lz4"),
    (b"not compressed", 0x201, "zstd"),
    (reference.compress_body(b"cut" * 100, 0x1)[:-1], 0x1, "zlib"),
    (reference.compress_body(b"cut" * 100, 0x101)[:-6], 0x101, "lz4"),
    (reference.compress_body(b"cut" * 100, 0x201)[:-3], 0x201, "zstd"),
    (b"whatever", 0x501, "type 5"),
)


@pytest.mark.parametrize(("body", "flag", "reason"), BAD_BODIES)
def test_body_that_says_it_is_compressed(
    tmp_path: Path, body: bytes, flag: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = stores.StoreBuilder(tmp_path)
    for i in range(5):
        store.append(body=reference.compress_body(b"good %d" % i, 0x1), sys_flag=0x1)
    bad = store.append(body=body, sys_flag=flag, topic="Bad")
    for i in range(5):
        store.append(body=b"plain %d" % i)
    store.close()
    stored = reference.read_store(tmp_path, decompress=False)
    expected = [dict(row) for row in stored]
    for row in expected[:5]:
        row["body"] = reference.decompress_body(row["body"], row["sysFlag"])
    segment = tmp_path / "commitlog" / ("0" * 20)

    with pytest.raises(DamagedStoreError) as error:
        read(tmp_path)
    assert str(error.value).startswith(f"{segment}: position {bad} (commitLogOffset {bad}): ")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)

    with caplog.at_level(logging.WARNING):
        assert read(tmp_path, mode="DROPMALFORMED") == expected[:5] + expected[6:]
    assert f"position {bad}" in caplog.text

    sound, corrupt = reading.sound_and_corrupt(read(tmp_path, mode="PERMISSIVE"))
    assert sound == expected[:5] + expected[6:]
    assert len(corrupt) == 1
    assert reason in corrupt[0].pop("corrupt")
    assert corrupt[0] == {**expected[5], "body": None}

    assert read(tmp_path, decompress=False) == stored
    names = [name for name in DEFAULT_COLUMNS if name != "body"]  # a body nobody asked for cannot be wrong
    assert read(tmp_path, columns=names) == [{name: row[name] for name in names} for row in stored]


@pytest.mark.parametrize("flag", [0x1, 0x101, 0x201])
def test_large_bodies_among_small_ones(tmp_path: Path, flag: int) -> None:
    """The kernel leaves them to Python."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 20)
    for size in (10, 17 << 20, 1000, 3 << 20, 20, 0):
        body = b"%09d." % size * (size // 10)
        packed = reference.compress_body(body, flag) if flag != 0x101 else pa.compress(body, codec="lz4", asbytes=True)
        store.append(body=packed, sys_flag=flag)
        store.append(body=b"plain %d" % size)
    store.close()
    assert read(tmp_path) == reference.read_store(tmp_path)
    assert read(tmp_path, columns=["body"]) == [{"body": row["body"]} for row in reference.read_store(tmp_path)]


def test_zstd_bodies_where_the_system_has_no_libzstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.StoreBuilder(tmp_path)
    for number in range(20):
        flag = (0x1, 0x101, 0x201, 0)[number % 4]
        body = b"text %d, " % number * 20
        store.append(body=reference.compress_body(body, flag) if flag else body, sys_flag=flag)
    store.close()
    expected = reference.read_store(tmp_path)
    assert read(tmp_path) == expected
    for name, value in (("_LIBZSTD", "libnone.so.1"), ("_OLDEST_LIBZSTD", 1 << 40)):
        with monkeypatch.context() as patch:
            patch.setattr(bodies, name, value)
            bodies.zstd_functions.cache_clear()
            assert bodies.zstd_functions() == (0, 0, 0)
            assert read(tmp_path) == expected
        bodies.zstd_functions.cache_clear()


def test_wrong_crc_is_an_error_only_if_verified(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)
    for i in range(10):
        store.append(body=b"body %d" % i, body_crc=1 if i == 4 else None)
    store.close()
    with pytest.raises(DamagedStoreError, match=r"bodyCRC differs from the body: expected 1, computed \d+"):
        read(tmp_path)
    rows = read(tmp_path, verifyCrc=False)
    assert [row["body"] for row in rows] == [b"body %d" % i for i in range(10)]
    assert rows[4]["bodyCRC"] == 1
    dropped = read(tmp_path, mode="DROPMALFORMED")
    assert dropped == rows[:4] + rows[5:]


@pytest.mark.parametrize("size", [WINDOW - 200 for WINDOW in (1 << 19,)] + [1 << 19, (1 << 20) + 7, 17 << 20])
def test_units_as_large_as_a_window_and_larger(tmp_path: Path, size: int, rng: random.Random) -> None:
    store = stores.StoreBuilder(tmp_path, segment_size=40 << 20)
    for i in range(3):
        store.append(body=b"small %d" % i)
        store.append(body=rng.randbytes(size))
    store.append(body=b"end")
    store.close()
    expected = reference.read_store(tmp_path)
    assert len(expected) == 7
    assert read(tmp_path) == expected
    assert read(tmp_path, maxPartitionBytes=size) == expected


def _small_store(root: Path, count: int = 200) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root)
    for i in range(count):
        store.append(topic=f"Topic{i % 3}", body=b"x" * (i * 7 % 300), queue_id=i % 2, keys=f"k{i}", tags="TagA")
    return store


def test_rows_are_cut_behind_the_body_that_is_enough(rng: random.Random) -> None:
    for _ in range(50):
        bodies = [rng.choice((b"", b"x" * rng.randrange(30))) for _ in range(rng.randrange(1, 40))]
        nbytes = rng.choice((1, 5, 29, 100, 2000))
        expected: list[list[bytes]] = [[]]
        for body in bodies:
            if sum(map(len, expected[-1])) >= nbytes:
                expected.append([])
            expected[-1].append(body)
        batch = pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], names=["body"])
        assert [part.column("body").to_pylist() for part in _cut(batch, nbytes)] == expected
