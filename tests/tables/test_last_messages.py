"""The last messages of a store are the last ones, whatever selects them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from oracle import stores
from support import reading

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables import messages
from rmqstore_spark.tables.picked import of_topics, picked

COLUMNS = ["topic", "commitLogOffset"]


def test_they_are_the_last_of_a_full_scan(tmp_path: Path, rng: random.Random) -> None:
    builder = stores.StoreBuilder(tmp_path, segment_size=1 << 17, queue_file_size=2000)
    for _ in range(2000):
        builder.append(topic=f"T{rng.choice((0, 0, 0, 0, 1, 2))}", queue_id=0, body=bytes(rng.randrange(500)))
    builder.append(topic="Rare", queue_id=0, body=b"x")
    for _ in range(3000):
        builder.append(topic="T0", queue_id=0, body=bytes(rng.randrange(500)))
    builder.close()
    for options in ({}, {"subscribe": "T1"}, {"subscribe": "Rare"}, {"subscribe": "T2,Rare", "mode": "PERMISSIVE"}):
        understood = reading.options_of(tmp_path, **options)
        rows = reading.read(tmp_path, columns=COLUMNS, **options)
        store = Snapshot.find(str(tmp_path), Files())
        for count in (1, 5, 700, 1 << 40):
            found = messages.last_messages(store, understood, COLUMNS, count)
            assert found.to_pylist() == rows[-count:]


def test_of_several_logs_those_that_were_stored_last(tmp_path: Path) -> None:
    """As of the queues of a tier; without their times where nobody asked for them."""
    logs = []
    for name in ("a", "b"):
        builder = stores.StoreBuilder(tmp_path / name)
        for number in range(6):
            time = stores.FIRST_TIMESTAMP + 10 * number + (name == "b")
            builder.append(topic=f"{name}{number}", store_timestamp=time)
        builder.close()
        store = Snapshot.find(str(tmp_path / name), Files())
        logs.append((store, reading.options_of(tmp_path / name)))
    every = [{"topic": f"{name}{number}"} for number in range(6) for name in "ab"]
    for count in (0, 1, 3, 7, 100):
        assert messages.last_of_logs(logs, ["topic"], count).to_pylist() == every[len(every) - min(count, 12) :]
    assert messages.last_of_logs(logs[:1], ["topic"], 2).to_pylist() == every[8:11:2]
    assert messages.last_of_logs([], ["topic"], 2).to_pylist() == []


@pytest.mark.slow
def test_little_of_a_log_is_read(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path, segment_size=1 << 22)
    for number in range(20_000):
        builder.append(topic="T", queue_id=0, body=b"%d" % number + bytes(1000))
    builder.close()
    store = Snapshot.find(str(tmp_path), Files())
    found = messages.last_messages(store, reading.options_of(tmp_path), ["body"], 10)
    assert [int(body.as_py().rstrip(b"\0")) for body in found["body"]] == list(range(19_990, 20_000))
    assert store.files.bytes < 3 << 20


def test_of_an_empty_store_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    store = Snapshot.find(str(tmp_path), Files())
    assert messages.last_messages(store, reading.options_of(tmp_path), COLUMNS, 10).num_rows == 0


def test_what_is_picked_of_a_damaged_log(tmp_path: Path) -> None:
    """No rows of damage, of which nothing is known; an error where the mode asks for one."""
    builder = stores.StoreBuilder(tmp_path)
    for _ in range(3):
        builder.append(topic="T", body=b"abc")
    builder.close()
    (segment,) = (tmp_path / "commitlog").iterdir()
    data = bytearray(segment.read_bytes())
    data[builder.messages[1].position + 4] ^= 1  # the magic
    segment.write_bytes(data)
    store = Snapshot.find(str(tmp_path), Files())

    def found(mode: str) -> list[int]:
        options = reading.options_of(tmp_path, mode=mode)
        batches = picked(store, options, of_topics("T"), ["queueOffset"], [])
        return [number for batch in batches for number in batch.column("queueOffset").to_pylist()]

    assert found("PERMISSIVE") == found("DROPMALFORMED") == [0, 2]
    with pytest.raises(DamagedStoreError, match="commitLogOffset"):
        found("FAILFAST")
