"""Light queues (LMQ) of real brokers, killed and started again: rows are what their consumers get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from oracle import light, reference, truth
from support import reading

import rmqstore_spark
from interop import rocketmq
from interop.rocketmq import Broker, Client, Record, Sizes

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC = "Lights"
NAMES = ("%LMQ%a", "%LMQ%b", f"%LMQ%${TOPIC}$c")
DIVISORS = (2, 3, 5)
COUNT = 60
SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("version", rocketmq.usually(rocketmq.OLDEST, rocketmq.NEWEST))
def test_rows_are_what_consumers_get(version: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Broker(version, root, tmp_path / "home", Sizes(), SETTINGS) as broker:
        client = broker.client()
        client.run("create", TOPIC, 2)
        client.run("light", TOPIC, 2, 0, COUNT)
        broker.kill_alone()
        _hold(root, COUNT)
        broker.start()
        client = broker.client()
        client.run("light", TOPIC, 2, COUNT, COUNT)
        client.run("pull", TOPIC, 0, 0, 1)  # so that the client knows the broker, of which light queues do not tell
        pulled = {name: list(_pulled(client, name)) for name in NAMES}
        broker.stop()
    _hold(root, 2 * COUNT)
    for name, messages in pulled.items():
        rows = reading.read(root, subscribe=name, columns=[*reading.DEFAULT_COLUMNS, "multiDispatch"])
        own = [(row["queueId"], row["queueOffset"]) for row in rows]
        # A client of today shows the queueId that it has asked for.
        shown = own if version == rocketmq.OLDEST else [(0, row["queueOffset"]) for row in rows]
        assert [(message["queueId"], message["queueOffset"]) for message in messages] == shown
        assert [(r["topic"], r["commitLogOffset"], r["keys"]) for r in rows] == [
            (m["topic"], m["commitLogOffset"], m["properties"]["KEYS"]) for m in messages
        ]
        assert [truth.sha256(row["body"]) for row in rows] == [message["body"] for message in messages]
    found = rmqstore_spark.Store(root).check().to_pylist()
    assert [row for row in found if row["severity"] != "info"] == []
    before = _units(root)
    assert rmqstore_spark.rebuild(root) == len(reading.read(root, columns=["topic"]))
    assert _units(root) == before


def _hold(root: Path, count: int) -> None:
    """Every message is in the queues that its number names, at the next offset of each."""
    rows = reading.read(root, subscribe=TOPIC, columns=["keys", "multiDispatch"])
    expected = light.offsets_of(
        (f"key-{n}", [name for name, by in zip(NAMES, DIVISORS, strict=True) if n % by == 0]) for n in range(count)
    )
    assert {row["keys"]: dict(row["multiDispatch"] or ()) for row in rows} == expected
    for name in NAMES:
        wanted = [key for key, found in expected.items() if name in found]
        assert [row["keys"] for row in reading.read(root, subscribe=name)] == wanted
        assert [row["keys"] for row in reading.read(root, subscribe=name, trust="queues")] == wanted


def _pulled(client: Client, name: str) -> Iterator[Record]:
    (bounds,) = client.run("bounds", name, 0)
    return (record for record in client.run("pull", name, 0, bounds["min"], 1 << 40) if record["kind"] == "message")


def _units(root: Path) -> list[object]:
    return [each for each in reference.read_queues(root) if each[3].physical_offset or each[3].size]
