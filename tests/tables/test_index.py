"""Tables indexfiles and index have what a plain reader finds in the index files."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pytest
from oracle import golden, reference
from oracle.stores import StoreBuilder
from support.tables import rows_of

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.tables import index
from rmqstore_spark.tables.index import INDEX
from rmqstore_spark.tables.indexfiles import INDEXFILES

ROOT = Path(__file__).resolve().parents[2]
SMALL = sorted(path for path in (ROOT / "tests" / "data").glob("rocketmq-*"))
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def milliseconds(time: dt.datetime) -> int:
    return (time - EPOCH) // dt.timedelta(milliseconds=1)


def check_store(root: Path, slots: int) -> None:
    files = {row["file"]: row for row in rows_of(INDEXFILES, root)}
    items = rows_of(INDEX, root)
    paths = sorted((root / "index").iterdir())
    assert list(files) == [str(path) for path in paths]
    for path in paths:
        data = path.read_bytes()
        header, row = reference.decode_index_header(data), files[str(path)]
        assert tuple(header) == (
            milliseconds(row["beginTimestamp"]),
            milliseconds(row["endTimestamp"]),
            row["beginOffset"],
            row["endOffset"],
            row["usedSlots"],
            row["items"] + 1,
        )
        assert row["capacity"] == (len(data) - 40 - 4 * slots) // 20 - 1
        here = [item for item in items if item["file"] == str(path)]
        assert [item["item"] for item in here] == list(range(1, header.index_count))
        assert reference.read_index(data, slots) == [
            (
                item["keyHash"],
                item["commitLogOffset"],
                (milliseconds(item["storeTimestamp"]) - header.begin_timestamp) // 1000,
                item["previousItem"],
            )
            for item in here
        ]


SLOTS = {1040: 100, 22040: 500}  # of the small stores, by the size of a file


@pytest.mark.parametrize("root", SMALL, ids=lambda path: path.name)
def test_small_stores(root: Path) -> None:
    check_store(root, SLOTS[next((root / "index").iterdir()).stat().st_size])


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_golden_stores(version: str, tmp_path: Path) -> None:
    root = golden.unpack(version, tmp_path)
    slots = {row["capacity"]: 0 for row in rows_of(INDEXFILES, root)}
    assert len(slots) == 1
    (capacity,) = slots
    size = next((root / "index").iterdir()).stat().st_size
    check_store(root, (size - 40 - 20 * (capacity + 1)) // 4)


def test_many_items(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StoreBuilder(tmp_path, segment_size=65536, index=True, index_slots=16, index_items=100)
    for number in range(200):
        builder.append(keys=f"k{number % 7} x{number}", msg_id=f"id{number}")
    builder.close()
    for batch in (1, 7, 1 << 20):
        monkeypatch.setattr(index, "_BATCH_ITEMS", batch)
        check_store(tmp_path, 16)


def test_file_that_contradicts_itself(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, index=True)
    for number in range(40):
        builder.append(keys=f"k{number}")
    builder.close()
    first, second = sorted((tmp_path / "index").iterdir())
    data = bytearray(first.read_bytes())
    data[39] -= 1  # indexCount
    first.write_bytes(data)
    with pytest.raises(DamagedStoreError, match=rf"{first}: expected the first and the last of 28 items"):
        rows_of(INDEX, tmp_path)
    assert {row["file"] for row in rows_of(INDEX, tmp_path, mode="DROPMALFORMED")} == {str(second)}
    assert [row["capacity"] for row in rows_of(INDEXFILES, tmp_path)] == [None, 29]


def test_no_index(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append()
    builder.close()
    assert rows_of(INDEXFILES, tmp_path) == rows_of(INDEX, tmp_path) == []
