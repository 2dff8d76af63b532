"""A real broker that compacts a topic, several times: option `compacted` gives what a consumer knows in the end, while
the broker runs, once it is killed, and when it has deleted the commitlog's oldest messages."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from oracle import truth
from support.reading import read

from interop import rocketmq
from interop.expiring import ExpiringBroker
from interop.rocketmq import Client, Record, Sizes
from rmqstore_spark import Store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC, QUEUES, KEYS = "Prices", 2, 12
PATIENCE = 120.0  # seconds
SETTINGS = {"compactionMappedFileSize": 23_000, "compactionCqMappedFileSize": 4600, "compactionScheduleInternal": 1500}
COLUMNS = ["queueId", "queueOffset", "keys", "body", "commitLogOffset", "msgId"]
NOTHING = truth.sha256(b"")

Value = tuple[int, str, int, str]  # queueId, key, queueOffset, hash of the body


def rows_of(root: Path) -> list[Record]:
    return read(root, subscribe=TOPIC, compacted=True, columns=COLUMNS)


def values(rows: list[Record]) -> list[Value]:
    return sorted((r["queueId"], r["keys"], r["queueOffset"], truth.sha256(r["body"])) for r in rows)


def consumed(client: Client) -> list[Record]:
    """All that a consumer of the topic gets that begins at offset 0."""
    found: list[Record] = []
    for queue_id in range(QUEUES):
        records = client.run("pull", TOPIC, queue_id, 0, 1 << 40)
        found += [record for record in records if record["kind"] == "message"]
    return found


def known(messages: list[Record]) -> list[Value]:
    """What a consumer knows after these messages: the last value of each key."""
    newest: dict[tuple[int, str], Value] = {}
    for message in messages:  # of a queue in order
        key = message["properties"]["KEYS"]
        newest[message["queueId"], key] = (message["queueId"], key, message["queueOffset"], message["body"])
    return sorted(value for value in newest.values() if value[3] != NOTHING)


def passes(root: Path) -> dict[str, int]:
    """The last queueOffset that a pass has seen, by queue. For a moment there is no such file while the broker replaces
    it."""
    for _ in range(20):
        with contextlib.suppress(FileNotFoundError, ValueError):
            table: dict[str, int] = json.loads((root / "compaction" / "position-checkpoint").read_text())[
                "queueOffsetMap"
            ]
            return table
        time.sleep(0.05)
    return {}


def wait_for_passes(root: Path, before: dict[str, int]) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        now = passes(root)
        if len(now) == QUEUES and all(now[queue] > before.get(queue, -1) for queue in now):
            return
        time.sleep(0.1)
    raise AssertionError(f"no pass: {passes(root)}")


def wait_for_rest(root: Path) -> None:
    """Until no pass runs: what a broker leaves that is killed in the midst of one check tells, and no broker starts on
    (tests/read/test_compacted.py has each such state)."""
    end = time.monotonic() + PATIENCE
    while any(path.is_file() for path in root.glob("compaction/*/*/*/compacting/*")) and time.monotonic() < end:
        time.sleep(0.02)


@pytest.mark.usefixtures("real")
def test_what_a_consumer_knows(tmp_path: Path) -> None:
    root = tmp_path / "store"
    # An index file is named by the millisecond in which it begins. A broker that fills one within a millisecond begins
    # the next one under the same name, on what the first one has: so they are not as small here as elsewhere.
    sizes = Sizes(segment=16 * 1024, queue_file=400, index_slots=500, index_items=1200)
    acknowledged: list[Record] = []
    with ExpiringBroker(rocketmq.NEWEST, root, tmp_path / "home", sizes, SETTINGS) as broker:
        client = broker.client()
        client.run("compacted", TOPIC, QUEUES)
        for turn in range(3):
            before = passes(root)
            for queue_id in range(QUEUES):
                keys = KEYS if turn else 4 * KEYS  # some keys have no later value: the commitlog loses these
                acknowledged += client.run("values", TOPIC, queue_id, 300, keys, 10 * turn + queue_id)
            wait_for_passes(root, before)
        # While values come and passes run, each key has a value that is not older than the last one known before.
        during, start = 0, len(client.seen)
        client.begin("values", TOPIC, 0, 3000, KEYS, 100)
        while not any(record["kind"] in ("done", "error") for record in client.seen[start:]):
            least = newest_of(client.seen)
            for row in rows_of(root):
                assert row["queueOffset"] >= least.get((row["queueId"], row["keys"]), -1)
            during += 1
        acknowledged += client.wait()
        got = consumed(client)
        assert during >= 1
        assert len(got) < len(acknowledged) - 1000, "nothing was compacted"
        broker.expire()
        end = time.monotonic() + PATIENCE
        while broker.is_expiring() and time.monotonic() < end:
            time.sleep(0.05)
        assert min(broker.segments()) > 0
        late = client.run("values", TOPIC, 1, 20, KEYS, 200)
        assert len(late) == 20
        got = consumed(client)
        while_running = values(rows_of(root))
        wait_for_rest(root)
        broker.kill_alone()
    assert known(got) == while_running
    rows = rows_of(root)
    assert values(rows) == known(got)
    assert {message["properties"]["UNIQ_KEY"] for message in got} >= {row["msgId"] for row in rows}
    assert any(row["commitLogOffset"] is None for row in rows), "all last values are still in the commitlog"
    assert errors_of(root) == []
    # A broker that starts on what the kill left, and stops; and one that starts on a copy of it.
    with ExpiringBroker(rocketmq.NEWEST, root, tmp_path / "home", sizes, SETTINGS) as broker:
        assert known(consumed(broker.client())) == known(got)
    copy = tmp_path / "copy"
    Store(root).copy(copy)
    assert errors_of(copy) == []
    assert values(rows_of(copy)) == known(got)
    with ExpiringBroker(rocketmq.NEWEST, copy, tmp_path / "home", sizes, SETTINGS) as broker:
        client = broker.client()
        assert known(consumed(client)) == known(got)
        before = passes(copy)
        for queue_id in range(QUEUES):
            client.run("values", TOPIC, queue_id, 300, KEYS, 300 + queue_id)
        wait_for_passes(copy, before)
        got = consumed(client)
    assert values(rows_of(copy)) == known(got)


def errors_of(root: Path) -> list[Record]:
    return [row for row in Store(root).check().to_pylist() if row["severity"] == "error"]


def newest_of(seen: list[Record]) -> dict[tuple[int, str], int]:
    """The queueOffset of the newest acknowledged message of each key."""
    found: dict[tuple[int, str], Any] = {}
    for record in list(seen):
        if record["kind"] == "ack":
            found[record["queueId"], record["keys"]] = record["queueOffset"]
    return found
