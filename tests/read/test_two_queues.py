"""Queues that claim the same message: it comes once, with its own queue and offset."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from oracle import reference, stores

from rmqstore_spark import Store

COLUMNS = ["topic", "queueId", "queueOffset", "commitLogOffset", "body"]


WAYS: list[dict[str, str]] = [{}, {"subscribe": "T"}, {"subscribe": "T", "startingOffsets": '{"T": {"0": 0, "1": 1}}'}]


@pytest.mark.parametrize("given", WAYS)
def test_a_message_comes_once(tmp_path: Path, given: dict[str, str]) -> None:
    store = stores.StoreBuilder(tmp_path / "store", 1 << 16, 100)
    for number in range(40):
        store.append(("T", "U")[number % 2], b"b" * number, queue_id=number // 2 % 2)
    store.close()
    queues = tmp_path / "store" / "consumequeue" / "T"
    shutil.rmtree(queues / "1")
    shutil.copytree(queues / "0", queues / "1")
    found = Store(tmp_path / "store").messages(COLUMNS, **given).read_all().to_pylist()  # type: ignore[arg-type]
    rows = [row for row in reference.read_store(tmp_path / "store") if row["topic"] == "T" or not given]
    if "startingOffsets" in given:
        rows = [row for row in rows if (row["queueId"], row["queueOffset"]) != (1, 0)]
    assert found == [{name: row[name] for name in COLUMNS} for row in rows]
