"""A real broker starts on the configuration that was made anew, and serves its topics as it did."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from interop.child import ChildError
from interop.ours import SMALL
from interop.rocketmq import NEWEST, Broker, Client, Record, usually
from rmqstore_spark import Store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC, GROUP, QUEUES = "Orders", "billing", 3
EACH = 5  # messages in each queue


def topics_of(root: Path) -> list[Record]:
    """What the broker has written of the topics of its users."""
    rows = Store(root).topics().to_pylist()
    names = ("topic", "readQueueNums", "writeQueueNums", "perm", "order", "messageType", "queueType", "attributes")
    return [{name: row[name] for name in names} for row in rows if row["topic"] in (TOPIC, "Compacted")]


def send(client: Client, marker: str) -> None:
    for queue_id in range(QUEUES):
        client.run("send", TOPIC, queue_id, EACH, marker)


def served(client: Client, first: int) -> None:
    """A group gets the messages from an offset on in each queue, and no other."""
    found = client.run("consume", TOPIC, GROUP, QUEUES * EACH, 3000)
    expected = [(queue_id, first + n) for queue_id in range(QUEUES) for n in range(EACH)]
    assert sorted((each["queueId"], each["queueOffset"]) for each in found) == expected


@pytest.mark.parametrize("version", usually(NEWEST))
def test_a_broker_starts_on_it(real: None, tmp_path: Path, version: str) -> None:
    """From backups: topics with the attributes that they had, and the group where it was. Without backups: as many
    queues, and the attributes that files tell of; a group whose place is lost, where set_offsets puts it."""
    root = tmp_path / "store"
    with Broker(version, root, tmp_path / "home", SMALL) as broker:
        client = broker.client()
        client.run("create", TOPIC, QUEUES)
        client.run("compacted", "Compacted", 2)
        client.run("values", "Compacted", 0, 3, 100, 7)
        send(client, "first")
        served(client, 0)
        send(client, "second")
    before = topics_of(root)
    assert {each["topic"] for each in before} == {TOPIC, "Compacted"}
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        path = root / "config" / name
        shutil.copy(path, path.with_suffix(".json.bak"))  # as a broker has it that was stopped a moment later
        path.write_text("{")
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    for path in copy.glob("config/*.bak"):
        path.write_text("{")
    with pytest.raises(ChildError), Broker(version, copy, tmp_path / "home0", SMALL):
        pass

    assert "nowhere" not in Store(root).rebuild_config().column("source").to_pylist()
    assert topics_of(root) == before
    with Broker(version, root, tmp_path / "home1", SMALL) as broker:
        served(broker.client(), EACH)
    assert topics_of(root) == before

    told = Store(copy).rebuild_config().to_pylist()
    assert {(row["file"], row["entry"]) for row in told} >= {("topics.json", TOPIC), ("topics.json", "Compacted")}
    derived = {each["topic"]: each for each in topics_of(copy)}
    assert derived[TOPIC]["readQueueNums"] == QUEUES
    assert derived["Compacted"]["attributes"] == [("cleanup.policy", "COMPACTION")]
    Store(copy).set_offsets({GROUP: {TOPIC: dict.fromkeys(range(QUEUES), EACH)}})
    with Broker(version, copy, tmp_path / "home2", SMALL) as broker:
        served(broker.client(), EACH)
    assert {each["topic"]: each for each in topics_of(copy)} == derived
