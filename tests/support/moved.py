"""Tables below Spark, as tests read them; and what the bench's scenario leaves in those that are made of messages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.delayed import DELAYED
from rmqstore_spark.tables.inflight import INFLIGHT
from rmqstore_spark.tables.table import Table
from rmqstore_spark.tables.transactions import TRANSACTIONS
from support import reading

Row = dict[str, Any]

SECOND = 1_000_000  # as times are read
STATES = {"COMMIT_MESSAGE": "committed", "ROLLBACK_MESSAGE": "rolledBack", "UNKNOW": "open"}


def rows_of(table: Table, root: Path, **options: Any) -> list[Row]:
    """The rows of a table; times are microseconds."""
    understood = reading.options_of(root, **options)
    store = Snapshot.find(str(root), Files())
    found: list[Row] = []
    for part in table.parts(store, understood):
        for batch in table.rows(store, understood, part):
            assert batch.schema.equals(table.schema)
            batch.validate(full=True)
            columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns]
            values = zip(*(column.to_pylist() for column in columns), strict=True)
            found += [dict(zip(table.schema.names, row, strict=True)) for row in values]
    return found


def assert_scenario(root: Path, version: str) -> None:
    """A store that the bench's scenario made (tests/interop/java, Scenario) has what it did, no more and no less."""
    five = not version.startswith("4.")
    rows = {row["commitLogOffset"]: row for row in reading.read(root)}
    delayed = rows_of(DELAYED, root)
    assert delayed == sorted(delayed, key=lambda row: row["commitLogOffset"])
    for row in delayed:
        parked = rows[row["commitLogOffset"]]
        assert (row["msgId"], row["keys"]) == (parked["msgId"], parked["keys"])
        assert row["storeTimestamp"] == parked["storeTimestamp"]
    assert Counter((row["realTopic"], row["kind"], row["keys"], row["state"]) for row in delayed) == Counter(
        [("Delayed", "level", "level-1", "delivered")] * 2
        + [("Delayed", "level", "level-2", "delivered"), ("Delayed", "level", "level-18", "pending")]
        + [("Retried", "level", f"retried-{n}", "delivered") for n in (0, 0, 3, 3)]
        + [("Timers", "timer", f"timer-{n}", "delivered") for n in (2, 3) if five]
        + [("Timers", "timer", "timer-86400", "pending")] * five
    )
    seconds = {1: 1, 2: 5, 18: 7200}
    for row in delayed:
        waits = row["deliverTimestamp"] - row["storeTimestamp"]
        if row["kind"] == "level":
            assert waits == seconds[row["delayLevel"]] * SECOND
        else:
            assert abs(waits - int(row["keys"].removeprefix("timer-")) * SECOND) < 10 * SECOND

    transactions = rows_of(TRANSACTIONS, root)
    assert [row["keys"] for row in transactions] == [f"{state}-{n}" for state in STATES for n in range(3)]
    for row in transactions:
        half = rows[row["commitLogOffset"]]
        assert row["state"] == STATES[row["keys"].rpartition("-")[0]]
        assert (row["realTopic"], row["producerGroup"]) == ("Transactions", "transaction-producer")
        assert row["msgId"] == row["transactionId"] == half["msgId"]
        same = [each for each in rows.values() if each["msgId"] == row["msgId"] and each["topic"] == half["topic"]]
        assert row["commitLogOffset"] == min(each["commitLogOffset"] for each in same)
        assert row["checkTimes"] == max(int(each["properties"].get("TRANSACTION_CHECK_TIMES", 0)) for each in same)

    # Messages that fail are popped again and again; the others are acknowledged.
    places = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in rows.values()}
    for row in rows_of(INFLIGHT, root):
        popped = places[row["topic"], row["queueId"], row["queueOffset"]]
        assert (popped["tags"], popped["reconsumeTimes"]) == ("Bad", row["retries"])
        assert row["group"].startswith("pop-group")
        assert row["visibleTimestamp"] > max(each["storeTimestamp"] for each in rows.values())
