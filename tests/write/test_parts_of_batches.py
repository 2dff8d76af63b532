"""Large record batches are encoded in parts: a task's memory has room for one, and not for all of its units besides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqstore_spark import BadRowError, Store, write_store
from rmqstore_spark.write.stage.rows import RowEncoder

SIZE = 1_000_000


def table(bodies: list[bytes]) -> pa.Table:
    return pa.table({"topic": ["T"] * len(bodies), "keys": [str(n) for n in range(len(bodies))], "body": bodies})


def test_each_part_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    encode = RowEncoder.encode

    def noted(self: RowEncoder, batch: pa.RecordBatch) -> Any:
        found = encode(self, batch)
        encoded.append(len(found.units))
        return found

    monkeypatch.setattr(RowEncoder, "encode", noted)
    bodies = [bytes([number]) * (SIZE + number) for number in range(60)]
    write_store(tmp_path / "store", table(bodies))
    assert sum(encoded) > 60 * SIZE
    assert max(encoded) < 10 * SIZE
    found = Store(tmp_path / "store").messages(["keys", "body", "queueId", "queueOffset"]).read_all().to_pylist()
    assert [row["body"] for row in found] == bodies
    assert [row["keys"] for row in found] == [str(number) for number in range(60)]


def test_a_bad_row_in_a_later_part_is_named(tmp_path: Path) -> None:
    bodies = [b"x" * SIZE] * 60
    rows = table(bodies).append_column("queueId", pa.array([0] * 47 + [-1] + [0] * 12, pa.int32()))
    with pytest.raises(BadRowError, match=re.escape("row 47: column 'queueId'")):
        write_store(tmp_path / "store", rows)
