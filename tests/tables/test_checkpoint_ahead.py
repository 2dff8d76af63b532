"""Each field of the checkpoint that is ahead of the log is told, with its own place in the file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from oracle import stores

from rmqstore_spark import Store

FIELDS = {0: "physicMsgTimestamp", 1: "logicsMsgTimestamp", 2: "indexMsgTimestamp", 4: "confirmPhyOffset"}


@pytest.mark.parametrize("field", FIELDS)
def test_its_place(tmp_path: Path, field: int) -> None:
    store = stores.StoreBuilder(tmp_path / "store", 4096, 100)
    for number in range(5):
        store.append("T", b"b" * number)
    store.close()
    path = tmp_path / "store" / "checkpoint"
    values = [0] * 512
    values[field] = 1 << 50
    path.write_bytes(struct.pack(">512q", *values))
    found = [row for row in Store(tmp_path / "store").check().to_pylist() if row["problem"] == "checkpointAhead"]
    assert [(row["filePosition"], row["found"]) for row in found] == [(8 * field, str(1 << 50))]
    assert found[0]["expected"].startswith(FIELDS[field])
    assert found[0]["file"] == str(path)
