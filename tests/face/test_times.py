"""Any time that a message claims can be shown and asked for, also beyond year 9999, where Python's datetime ends."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from oracle import stores
from support.command import run

from rmqstore_spark import Store
from rmqstore_spark.times import time_texts

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_10000 = 253402300800000  # milliseconds


def test_texts(rng: random.Random) -> None:
    known = [rng.randrange(-(10**15), 10**16) for _ in range(500)] + [0, -1, -999, -1000, -1001, 999]
    moments = [EPOCH + timedelta(microseconds=each) for each in known]
    expected = [f"{each:%Y-%m-%dT%H:%M:%S}.{each.microsecond // 1000:03d}" for each in moments]
    times = pa.array(known, pa.timestamp("us", "UTC"))
    assert time_texts(times) == expected
    assert time_texts(pa.chunked_array([times[:9], times[9:]])) == expected
    assert time_texts(pa.array([None, 0], pa.timestamp("ms"))) == [None, "1970-01-01T00:00:00.000"]
    assert time_texts(pa.array([], pa.timestamp("us"))) == []
    far = pa.array([YEAR_10000 - 1, YEAR_10000], pa.timestamp("ms", "UTC"))
    assert time_texts(far) == ["9999-12-31T23:59:59.999", "10000-01-01T00:00:00.000"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store whose last message was born and stored in year 10000."""
    builder = stores.StoreBuilder(tmp_path / "store")
    builder.append("Orders", keys="now")
    builder.append("Orders", keys="then", born_timestamp=YEAR_10000, store_timestamp=YEAR_10000)
    builder.append("Orders", keys="never", born_timestamp=(1 << 63) - 1)
    builder.close()
    return tmp_path / "store"


def test_commands(root: Path) -> None:
    """Each says it, and none ends in a traceback."""
    ran = run("messages", root, "--format", "json", "--columns", "keys,bornTimestamp,storeTimestamp")
    assert (ran.code, ran.err) == (0, "")
    rows = {row["keys"]: row for row in map(json.loads, ran.out.splitlines())}
    assert rows["then"]["bornTimestamp"] == rows["then"]["storeTimestamp"] == "10000-01-01T00:00:00.000Z"
    assert rows["never"]["bornTimestamp"] is None
    for command, shown in (
        (("messages", root, "--format", "csv"), "10000-01-01T00:00:00.000Z"),
        (("messages", root, "--columns", "keys,bornTimestamp"), "10000-01-01 00:00:00.000\n"),
        (("get", root, "--key", "then"), "10000-01-01 00:00:00.000 UTC at "),
        (("topics", root, "--columns", "topic,lastStoreTimestamp"), "10000-01-01 00:00:00.001\n"),
        (("show", root), " to 10000-01-01 00:00:00 UTC: "),
    ):
        ran = run(*command)
        assert (ran.code, ran.err) == (0, "")
        assert shown in ran.out, command
    for shown in (repr(Store(root)), Store(root)._repr_html_()):
        assert " to 10000-01-01 00:00:00 UTC" in shown
