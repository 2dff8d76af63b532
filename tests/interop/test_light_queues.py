"""Light queues (LMQ) of real brokers, killed and started again: rows are what their consumers get."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from oracle import light, reference, truth
from support import reading
from support.command import run

import rmqstore_spark
from interop import each, rocketmq
from interop.rocketmq import Broker, Client, Record, Sizes
from rmqstore_spark import Store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC = "Lights"
NAMES = ("%LMQ%a", "%LMQ%b", f"%LMQ%${TOPIC}$c")
DIVISORS = (2, 3, 5)
COUNT = 60
SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("version", rocketmq.usually(rocketmq.NEWEST))
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


PLAIN, DEVICE = "billing", "%LMQ%device"  # consumer groups; the second is named as those of MQTT are
Queues = dict[tuple[str, int], int]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("version", each.EACH_AT_NIGHT)
def test_groups_go_on(version: str, tmp_path: Path) -> None:
    """Offsets are those that the broker tells itself; its groups go on there in a copy, and where set_offsets puts
    them. Then enableLmq is switched off and on: what counts is what the broker of the last start had."""
    root, home = tmp_path / "store", tmp_path / "home"
    with Broker(version, root, home, Sizes(), SETTINGS) as broker:
        client = broker.client()
        client.run("create", TOPIC, 2)
        client.run("light", TOPIC, 2, 0, COUNT)
        for group, queue, count in (
            (PLAIN, (TOPIC, 0), 7),
            (PLAIN, (TOPIC, 1), 5),
            (PLAIN, ("%LMQ%a", 0), 4),
            (DEVICE, ("%LMQ%a", 0), 3),
            (DEVICE, ("%LMQ%b", 0), 6),
            (DEVICE, (TOPIC, 0), 2),
        ):
            assert _goes_on(client, group, queue, count) == (0, count)
    reached = {
        PLAIN: {(TOPIC, 0): 7, (TOPIC, 1): 5, ("%LMQ%a", 0): 4},
        DEVICE: {("%LMQ%a", 0): 3, ("%LMQ%b", 0): 6, (TOPIC, 0): 2},
    }
    _hold_offsets(root, reached)
    assert not (root / "config" / "consumerOffset.json").exists()
    known = {(row["group"], topic) for row in Store(root).groups().to_pylist() for topic in row["topics"]}
    assert known == {(group, topic) for group, queues in reached.items() for topic, _ in queues}
    ends = {TOPIC: COUNT // 2, **dict(zip(NAMES, (COUNT // by for by in DIVISORS), strict=True))}
    lags = {group: sum(ends[topic] - at for (topic, _), at in queues.items()) for group, queues in reached.items()}
    shown = json.loads(run("show", root, "--format", "json").out)["groups"]
    assert {row["group"]: row["lag"] for row in shown} == lags
    told = map(json.loads, run("lag", root, "--format", "json").out.splitlines())
    assert {row["group"]: row["lag"] for row in told} == lags

    copied, elsewhere = tmp_path / "copied", tmp_path / "elsewhere"
    Store(root).copy(copied)
    _hold_offsets(copied, reached)
    places = {TOPIC: {0: 9}, "%LMQ%a": {0: 1}}
    Store(root).copy(elsewhere, groupOffset={DEVICE: places, PLAIN: "latest"})
    set_there = {
        PLAIN: {queue: ends[queue[0]] for queue in reached[PLAIN]},
        DEVICE: {**reached[DEVICE], (TOPIC, 0): 9, ("%LMQ%a", 0): 1},
    }
    _hold_offsets(elsewhere, set_there)
    Store(root).set_offsets({DEVICE: places, PLAIN: "latest"})
    _hold_offsets(root, set_there)
    for store, queues in ((copied, reached), (elsewhere, set_there), (root, set_there)):
        expected = {group: dict(of) for group, of in queues.items()}
        with Broker(version, store, home, Sizes(), SETTINGS) as broker:
            client = broker.client()
            for group, of in expected.items():
                for queue, at in of.items():
                    of[queue] = min(at + 2, ends[queue[0]])
                    assert _goes_on(client, group, queue, 2) == (at, of[queue] - at)
        _hold_offsets(store, expected)
    with Broker(version, root, home) as broker:
        assert _goes_on(broker.client(), PLAIN, (TOPIC, 0), 2) == (0, 2)
    _hold_offsets(root, {PLAIN: {(TOPIC, 0): 2}})
    with Broker(version, root, home, Sizes(), SETTINGS) as broker:
        client = broker.client()
        assert _goes_on(client, PLAIN, (TOPIC, 0), 2) == (ends[TOPIC], 0)
        assert _goes_on(client, DEVICE, ("%LMQ%a", 0), 4) == (3, 4)
        expected[DEVICE]["%LMQ%a", 0] = 7
    _hold_offsets(root, expected)
    (told,) = [row for row in Store(root).check().to_pylist() if row["problem"] == "otherOffsets"]
    assert told["file"] == str(root / "config" / "consumerOffset.json")


@pytest.mark.usefixtures("real")
def test_lite_topics(tmp_path: Path) -> None:
    """A topic of type LITE: rows and queues of its lite topics are those that the broker itself tells of, by the names
    that it makes of parent and lite topic; what we append besides leaves them as they are."""
    root, parent, count = tmp_path / "store", "Building", 31
    with Broker(rocketmq.NEWEST, root, tmp_path / "home", Sizes(), SETTINGS) as broker:
        client = broker.client()
        told = [record for record in client.run("lite", parent, 2, count) if record["kind"] == "lite"]
        client.run("pull", parent, 0, 0, 1)
        names = {f"%LMQ%${record['parent']}${record['lite']}": record for record in told}
        pulled = {name: [message["properties"]["KEYS"] for message in _pulled(client, name)] for name in names}
    assert sorted(names) == [f"%LMQ%$Building$room-{number}" for number in range(3)]
    rows = reading.read(root, subscribe=parent, columns=["keys", "properties", "multiDispatch"])
    assert len(rows) == count
    for row in rows:
        room = row["properties"].get("__LITE_TOPIC")
        assert set(row["multiDispatch"] or ()) == ({f"%LMQ%${parent}${room}"} if room else set())
    queues = {row["topic"]: row for row in rmqstore_spark.Store(root).queues().to_pylist()}
    for name, record in names.items():
        room = [row["keys"] for row in rows if row["properties"].get("__LITE_TOPIC") == record["lite"]]
        assert [row["keys"] for row in reading.read(root, subscribe=name)] == room == pulled[name]
        assert [row["keys"] for row in reading.read(root, subscribe=name, trust="queues")] == room
        assert (
            (queues[name]["minOffset"], queues[name]["maxOffset"]) == (record["min"], record["max"]) == (0, len(room))
        )
        assert (queues[name]["queueType"], queues[name]["queueId"]) == ("lmq", 0)
    topics = {row["topic"]: row for row in rmqstore_spark.Store(root).topics().to_pylist()}
    assert topics[parent]["messageType"] == "LITE"
    again = rmqstore_spark.Store(root).messages(["topic", "body", "properties"], subscribe=parent).read_all()
    with pytest.raises(rmqstore_spark.RmqStoreError, match="no light queue"):
        rmqstore_spark.write_store(root, again, mode="append")
    ours = pa.Table.from_pylist([{"topic": parent, "queueId": 0, "body": b"ours", "keys": "ours"}])
    rmqstore_spark.write_store(root, ours, mode="append")
    # The broker that goes on serves them as before, and numbers what comes from there on.
    with Broker(rocketmq.NEWEST, root, tmp_path / "home", Sizes(), SETTINGS) as broker:
        client = broker.client()
        more = [record for record in client.run("lite", parent, 2, count) if record["kind"] == "lite"]
        client.run("pull", parent, 0, 0, 1)
        assert [record["max"] for record in more] == [2 * record["max"] for record in told]
        for name, keys in pulled.items():
            assert [message["properties"]["KEYS"] for message in _pulled(client, name)] == 2 * keys
    assert [row for row in rmqstore_spark.Store(root).check().to_pylist() if row["severity"] != "info"] == []
    assert len(reading.read(root, subscribe=parent)) == 2 * count + 1


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


def _goes_on(client: Client, group: str, queue: tuple[str, int], count: int) -> tuple[int, int]:
    """Where the broker knows a group to stand in a queue, and how many messages it gets from there on, side by side."""
    known, *messages = client.run("goOn", *queue, group, count)
    at: int = known["queueOffset"]
    topic, queue_id = queue
    step = 2 if topic == TOPIC else DIVISORS[NAMES.index(topic)]
    keys = [f"key-{step * n + queue_id}" for n in range(at, at + len(messages))]
    assert [message["properties"]["KEYS"] for message in messages] == keys
    return at, len(messages)


def _hold_offsets(root: Path, expected: dict[str, Queues]) -> None:
    found: dict[str, Queues] = {}
    for row in Store(root).offsets().to_pylist():
        found.setdefault(row["group"], {})[row["topic"], row["queueId"]] = row["consumerOffset"]
    assert found == expected


def _pulled(client: Client, name: str) -> Iterator[Record]:
    (bounds,) = client.run("bounds", name, 0)
    return (record for record in client.run("pull", name, 0, bounds["min"], 1 << 40) if record["kind"] == "message")


def _units(root: Path) -> list[object]:
    return [each for each in reference.read_queues(root) if each[3].physical_offset or each[3].size]
