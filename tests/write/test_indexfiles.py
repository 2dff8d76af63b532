"""An append to a store whose log was cut off and is shorter than its index leaves an index that leads to its own
messages."""

import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from oracle import reference
from oracle.stores import StoreBuilder
from support import reading

from rmqstore_spark import DamagedStoreError, Store, rebuild, write_store
from rmqstore_spark.store import index_live
from rmqstore_spark.store.structures import indexfile

SLOTS, ITEMS = 100, 10
HEADER, SLOT, ITEM = 40, 4, 20


def _append(root: Path, keys: list[str]) -> None:
    times = pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * len(keys), pa.timestamp("us", "UTC"))
    columns = {"topic": ["T"] * len(keys), "body": [b"new"] * len(keys), "keys": keys, "storeTimestamp": times}
    write_store(str(root), pa.table(columns))


def _int(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big", signed=True)


def _items(data: bytes) -> list[int]:
    """Physical offsets of the items that the header counts; it says of the first and the last what they say."""
    first = HEADER + SLOTS * SLOT
    found = [_int(data, first + ITEM * number + 4, 8) for number in range(1, _int(data, 36, 4))]
    if found:
        assert [_int(data, at, 8) for at in (16, 24)] == [found[0], found[-1]]
        assert _int(data, 0, 8) > 0
    used = data[first + ITEM * (1 + len(found)) :]
    assert not any(used)  # nothing is left over after them
    return found


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(4))
def test_items_beyond_a_log_that_was_cut_off_go(tmp_path: Path, rng: random.Random, trial: int) -> None:
    """A broker indexes nothing while its last index file ends after the log; and one that we write ends with it."""
    builder = StoreBuilder(tmp_path, 4096, 100, index=True, index_slots=SLOTS, index_items=ITEMS)
    for each in range(40):
        builder.append("T", b"x" * 100, keys=f"k{each} j{each} i{each}")
    builder.forget_last(rng.choice((8, rng.randrange(1, 40))))
    builder.append("T", b"y" * rng.choice((10, 700)), keys="z", store_timestamp=builder.now + 100_000)
    builder.close()
    for each in range(2):
        _append(tmp_path, [f"new{each}", *(f"more{each}-{n}" for n in range(rng.choice((0, 20))))])
        files = [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())]
        found = [position for data in files for position in _items(data)]
        assert found == sorted(found)
        _whole(tmp_path)


@pytest.mark.parametrize("forgotten", [1, 2, 3])
def test_a_few_items_beyond_a_log_that_was_cut_off(tmp_path: Path, forgotten: int) -> None:
    builder = StoreBuilder(tmp_path, 4096, 100, index=True, index_slots=SLOTS, index_items=ITEMS)
    for each in range(5):
        builder.append("T", b"x" * 100, keys=f"k{each}")
    builder.close()
    begin = builder.messages[-forgotten].position
    with builder.segment(0).open("r+b") as log:
        log.seek(begin)
        log.write(bytes(builder.end - begin))
    _append(tmp_path, ["new"])
    found = [position for path in sorted((tmp_path / "index").iterdir()) for position in _items(path.read_bytes())]
    assert found == [row["commitLogOffset"] for row in reference.read_store(tmp_path)]
    assert len(found) == 5 - forgotten + 1
    _whole(tmp_path)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_item_of_the_last_index_file_is_left(tmp_path: Path, count: int) -> None:
    """A broker cut its whole log off, and went on with one large message."""
    builder = StoreBuilder(tmp_path, 8192, 100, index=True, index_slots=SLOTS, index_items=ITEMS)
    for each in range(count):
        builder.append("T", b"x" * 100, keys=f"k{each}")
    builder.forget_last(count)
    builder.append("T", b"y" * 2000)
    builder.close()
    _append(tmp_path, ["new"])
    found = [position for path in sorted((tmp_path / "index").iterdir()) for position in _items(path.read_bytes())]
    assert found == [reference.read_store(tmp_path)[-1]["commitLogOffset"]]
    _whole(tmp_path)


def _whole(root: Path) -> None:
    store = Store(str(root))
    store.index()
    assert "brokenIndexFile" not in store.check()["problem"].to_pylist()
    rows = store.messages(["keys", "commitLogOffset"]).read_all().to_pylist()
    for key in {word for row in rows for word in (row["keys"] or "").split()}:
        expected = [row["commitLogOffset"] for row in rows if key in (row["keys"] or "").split()]
        found = [row["commitLogOffset"] for row in reading.read(root, key=key, prices=reading.FREE)]
        assert found == expected, key


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_what_is_in_no_index_stands_between_two_files(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, is_cut: bool, count: int
) -> None:
    """A file is believed from its first to its last message. So an append begins another one where messages before it
    are in none, however many they are, and where its last ones are of a log that is no more."""
    monkeypatch.setattr(index_live, "_MOST_WALKED", 4000)
    builder = StoreBuilder(tmp_path, 8192, 100, index=True, index_slots=SLOTS, index_items=1000)
    for each in range(30):
        builder.append("T", b"x" * 100, keys=f"k{each} twice")
    if is_cut:  # a broker indexes nothing before the log is as long as it was
        builder.forget_last(rng.randrange(8, 20))
        builder.append("T", b"y" * rng.randrange(100), keys="twice", store_timestamp=builder.now + 100_000)
        builder.append("T", b"y" * 5000)
    builder.close()
    for _ in range(count):
        columns = {"topic": ["T"], "body": [b"y" * rng.choice((10, 1000))], "keys": ["twice"]}
        write_store(str(tmp_path), pa.table(columns), messageIndexEnable=False)
    for _ in range(2):
        _append(tmp_path, ["new", "twice"])
        _whole(tmp_path)
        assert len(list((tmp_path / "index").iterdir())) == (2 if is_cut or count else 1)


def test_messages_without_keys_begin_no_other_file(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, 8192, 100, index=True, index_slots=SLOTS, index_items=1000)
    builder.append("T", b"x", keys="k")
    for _ in range(20):
        builder.append("T", b"x" * 100, tags="A")
    builder.append("H", b"x", keys="rolled back", sys_flag=reference.ROLLBACK)
    builder.close()
    _append(tmp_path, ["new"])
    assert len(list((tmp_path / "index").iterdir())) == 1


def test_a_count_of_billions_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A last index file whose header counts more items than any file has."""
    builder = StoreBuilder(tmp_path, index=True, index_slots=SLOTS, index_items=ITEMS)
    for each in range(12):
        builder.append("T", keys=f"k{each}")
    builder.close()
    last = max((tmp_path / "index").iterdir())
    data = last.read_bytes()
    last.write_bytes(data[:36] + (1 << 30).to_bytes(4, "big") + data[40:])
    taken: list[int] = []

    def memory(size: int) -> memoryview:
        taken.append(size)
        return memoryview(bytearray(size))

    monkeypatch.setattr(indexfile, "_memory", memory)
    _append(tmp_path, ["new"])
    assert taken
    assert max(taken) <= len(data)
    _whole(tmp_path)


def test_index_files_of_different_sizes_are_refused_but_not_by_what_makes_them_anew(tmp_path: Path) -> None:
    """Nothing tells how large the next one would be."""
    builder = StoreBuilder(tmp_path, index=True, index_slots=SLOTS, index_items=ITEMS)
    for each in range(40):
        builder.append("T", b"x", keys=f"k{each}")
    builder.close()
    odd = sorted((tmp_path / "index").iterdir())[1]
    odd.write_bytes(odd.read_bytes() + bytes(ITEM))
    with pytest.raises(DamagedStoreError, match=f"{odd}: expected an index file of .* bytes like its neighbours"):
        _append(tmp_path, ["k"])
    rebuild(tmp_path)
    _append(tmp_path, ["new"])
    assert [row["body"] for row in reading.read(tmp_path, key="new")] == [b"new"]
