"""A Spark cluster of two machines, neither of which has the store, reads it from a bucket: the deployment that users
have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle import golden
from support import alone
from support.patience import HANG

from interop import buckets
from interop.jars import Unavailable
from rmqstore_spark import Store

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

COLUMNS = ["topic", "queueId", "queueOffset", "commitLogOffset", "body"]


def test_a_store_that_only_the_bucket_has(tmp_path: Path) -> None:
    """Two workers and a driver, each with a disk of its own on which the store is not, and no network but loopback."""
    try:
        buckets.PROGRAMS["s3"]()
    except Unavailable as why:
        pytest.skip(str(why))
    here = Store(golden.unpack(golden.VERSIONS[-1], tmp_path / "store"))
    messages = here.messages(columns=[*COLUMNS, "keys"]).read_all()
    key = next(keys for keys in messages["keys"].to_pylist() if keys).split()[0]
    alone.run("-m", "interop.inside_cluster", tmp_path, key, *COLUMNS, seconds=HANG)
    found = json.loads((tmp_path / "seen" / "found.json").read_text())

    def as_found(table: Any) -> list[dict[str, Any]]:
        return [{**row, "body": row["body"].hex()} for row in table.select(COLUMNS).to_pylist()]

    def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda row: row["commitLogOffset"])

    assert len(found["scan"]) > 100
    assert in_order(found["scan"]) == as_found(messages)
    assert found["key"]
    assert in_order(found["key"]) == as_found(here.messages(key=key, columns=COLUMNS).read_all())
    queues = here.queues(["topic", "queueId", "minOffset", "maxOffset"]).to_pylist()
    assert found["table"] == queues
    for place in (*found["places"], found["driver"]):
        assert place["seen"] == []
        assert place["networks"] == ["lo"]
    assert len({place["disk"] for place in (*found["places"], found["driver"])}) == 3
