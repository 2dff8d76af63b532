"""Tables segments and checkpoint have what the plain reader finds, and what the bytes say."""

from __future__ import annotations

import fcntl
import random
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from oracle import aged_stores, golden, reference, stores

from rmqstore_spark import Store

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time(milliseconds: int) -> datetime | None:
    return EPOCH + timedelta(milliseconds=milliseconds) if milliseconds else None


def assert_segments(root: Path) -> list[Row]:
    messages = reference.read_store(root)
    end = messages[-1]["commitLogOffset"] + messages[-1]["storeSize"] if messages else 0
    rows: list[Row] = Store(root).segments().to_pylist()
    files = reference.segment_files(root)
    assert [row["file"] for row in rows] == list(map(str, files))
    for row, file in zip(rows, files, strict=True):
        start, status = int(file.name), file.stat()
        assert (row["fileSize"], row["allocated"]) == (status.st_size, status.st_blocks * 512)
        inside = [m for m in messages if start <= m["commitLogOffset"] < start + status.st_size]
        state = "spare" if not inside else "last" if inside[-1] is messages[-1] else "used"
        assert row["state"] == state
        expected_end = {"spare": start, "last": end, "used": start + status.st_size}[state]
        assert (row["startOffset"], row["endOffset"]) == (start, expected_end)
        times = [time(m["storeTimestamp"] // 1000) for m in (inside[:1] + inside[-1:])] or [None, None]
        assert [row["firstStoreTimestamp"], row["lastStoreTimestamp"]] == times
    return rows


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_real_stores(version: str, tmp_path: Path) -> None:
    root = golden.unpack(version, tmp_path / "store")
    rows = assert_segments(root)
    assert [row["state"] for row in rows if row["state"] == "last"] == ["last"]
    data = (root / "checkpoint").read_bytes()
    (row,) = Store(root).checkpoint().to_pylist()
    times = [row[name] for name in ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")]
    assert times == list(map(time, struct.unpack_from(">qqq", data)))
    assert (row["masterFlushedOffset"], row["confirmPhyOffset"]) == struct.unpack_from(">qq", data, 24)
    assert (row["abort"], row["locked"]) == (False, False)


def test_random_stores(tmp_path: Path, rng: random.Random) -> None:
    states: set[str] = set()
    for number in range(8):
        store = stores.StoreBuilder(tmp_path / str(number), 4096, start=rng.choice((0, 3)) * 4096)
        for _ in range(rng.choice((0, 1, 60, 150))):
            store.append("T", rng.randbytes(rng.choice((0, 10, 300, 3000))), queue_id=rng.randrange(3))
        if rng.random() < 0.3:
            store.drop_queues()
        store.close(clean=rng.random() < 0.5)
        states |= {row["state"] for row in assert_segments(store.root)}
    assert states <= {"used", "last", "spare"}


def test_times_select_segments(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, 1024)
    for _ in range(30):
        store.append("T", b"x" * 100)
    store.close()
    found = Store(tmp_path)
    rows = found.segments().to_pylist()
    assert len(rows) > 3
    second = rows[1]
    some = found.segments(startingTimestamp=second["firstStoreTimestamp"], endingTimestamp=second["lastStoreTimestamp"])
    assert some.to_pylist() == [second]
    for end in (second["firstStoreTimestamp"], second["lastStoreTimestamp"]):  # this moment alone
        after = end + timedelta(milliseconds=1)
        assert second in found.segments(startingTimestamp=end, endingTimestamp=after).to_pylist()
    assert found.segments(startingTimestamp="2100-01-01").num_rows == 0


def test_missing_segments_in_a_row_are_one_finding(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, 1024)
    for _ in range(40):
        store.append("T", b"x" * 100)
    store.close()
    for start in (1024, 3072, 4096):
        store.segment(start).unlink()
    rows = [row for row in Store(tmp_path).check().to_pylist() if row["problem"] == "missingSegment"]
    assert [(row["commitLogOffset"], row["count"]) for row in rows] == [(1024, 1), (3072, 2)]


def test_checkpoint_of_a_store_in_use_or_without_one(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)
    store.append("T")
    store.close(abort=True)
    (tmp_path / "checkpoint").unlink()
    with (tmp_path / "lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1)
        (row,) = Store(tmp_path).checkpoint().to_pylist()
    assert row["physicMsgTimestamp"] is None
    assert row["confirmPhyOffset"] is None
    assert (row["abort"], row["locked"]) == (True, True)
    (tmp_path / "checkpoint").write_bytes(b"short")
    (row,) = Store(tmp_path).checkpoint().to_pylist()
    assert (row["physicMsgTimestamp"], row["locked"]) == (None, False)


def test_segments_of_aged_stores(tmp_path: Path, rng: random.Random) -> None:
    for number in range(6):
        _, is_cut = aged_stores.aged_store(tmp_path / str(number), rng)
        if not is_cut:
            assert_segments(tmp_path / str(number))
