"""DLedger nodes of real brokers, two leaders killed while a producer sends: each node's store, all together, and a
plain broker on a copy of one. And the queues of a node of 5.2.0 that is started again."""

from __future__ import annotations

import re
import struct
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.reading import read

from interop.child import ChildError
from interop.ours import SMALL
from interop.rocketmq import NEWEST, OLDEST, Broker, Client, Record, free_ports, usually
from rmqstore_spark import Store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

LYING = "5.2.0"  # loses ranges of a node's queues
TOPIC, GROUP = "Orders", "billing"
PATIENCE = 120.0  # seconds


@contextmanager
def nodes_in(directory: Path, version: str, count: int = 3) -> Iterator[list[Broker]]:
    ports = [free_ports(1)[0] for _ in range(count)]
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    nodes: list[Broker] = []
    for number in range(count):
        settings: dict[str, Any] = {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "bench",
            "dLegerPeers": peers,
            "dLegerSelfId": f"n{number}",
        }
        where = directory / f"n{number}"
        beside = nodes[0] if nodes else None
        nodes.append(Broker(version, where / "store", where / "home", SMALL, settings, beside=beside))
    try:
        for node in nodes:
            node.start()
        yield nodes
    finally:
        for node in reversed(nodes):
            node.kill()


def leader_of(nodes: Sequence[Broker], but: Broker | None = None) -> Broker:
    """The node that most have voted for."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        votes = Counter[str]()
        for number, node in enumerate(nodes):
            path = node.root / f"dledger-n{number}" / "currterm"
            found = re.search(r"voteLeader=n([0-9])", path.read_text()) if path.exists() and node is not but else None
            votes.update(found.groups() if found else ())
        name, count = votes.most_common(1)[0] if votes else ("0", 0)
        if count >= len(nodes) // 2 + 1 and nodes[int(name)] is not but:
            return nodes[int(name)]
        time.sleep(0.2)
    raise AssertionError("no node became leader")


def acknowledged(client: Client) -> list[Record]:
    return [record for record in client.seen if record["kind"] == "ack" and record["status"] == "SEND_OK"]


def sent(client: Client, count: int, text: str) -> list[Record]:
    """The new leader may need some time until it serves."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            for queue_id in range(2):
                client.run("send", TOPIC, queue_id, count, text)
            return acknowledged(client)
        except ChildError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def received(client: Client, count: int) -> set[str]:
    """The ids of so many messages, and of what comes soon after, that the group has not consumed."""
    records = client.run("consume", TOPIC, GROUP, count, 500)
    return {record["properties"]["UNIQ_KEY"] for record in records if record["kind"] == "message"}


def killed_while_sending(leader: Broker, text: str) -> list[Record]:
    """What was acknowledged before."""
    client = leader.client()
    sent(client, 10, f"{text} serves")
    client.begin("send", TOPIC, 0, 100_000, text)
    end = time.monotonic() + PATIENCE
    while len(acknowledged(client)) < 300 and time.monotonic() < end:
        time.sleep(0.01)
    leader.kill_alone()
    return acknowledged(client)


@pytest.mark.parametrize("version", usually(OLDEST, NEWEST))
def test_leaders_are_killed(real: None, tmp_path: Path, version: str) -> None:
    with nodes_in(tmp_path, version) as nodes:
        zeroth = leader_of(nodes)
        zeroth.client().run("create", TOPIC, 2)
        known = killed_while_sending(zeroth, "before")
        first = leader_of(nodes, but=zeroth)
        zeroth.start()
        known += killed_while_sending(first, "between")
        second = leader_of(nodes, but=first)
        client = second.client()
        known += sent(client, 100, "after")
        consumed = received(client, len(known))
        late = sent(client, 50, "late")[len(acknowledged(client)) - 100 :]
        known += late
        for node in nodes:
            if node is not first:
                node.stop()
    ids = {record["msgId"] for record in known}
    assert len(ids) == len(known) >= 600
    for node in nodes:
        rows = read(node.root, subscribe=TOPIC, columns=["msgId", "queueId", "queueOffset"])
        found = Counter(row["msgId"] for row in rows)
        assert max(found.values()) == 1
        if node is not first:
            assert ids <= found.keys()
    together = read(*(node.root for node in nodes), subscribe=TOPIC, deduplicate=True)
    found = Counter(row["msgId"] for row in together)
    assert ids <= found.keys()
    assert max(found.values()) == 1
    errors = [row for row in Store(second.root).check().to_pylist() if row["severity"] == "error"]
    assert [row for row in errors if not is_left_of_a_truncation(row, second.root)] == []
    Store(second.root).copy(tmp_path / "copy")
    with Broker(version, tmp_path / "copy", tmp_path / "home", SMALL) as broker:
        client = broker.client()
        assert received(client, len(late)) == {record["msgId"] for record in late}
        assert sent(client, 1, "more")
    assert consumed >= ids - {record["msgId"] for record in late}


def is_left_of_a_truncation(error: Record, root: Path) -> bool:
    """Is it a unit that the broker itself has not written anew, when another message took the place of a truncated one?
    So one run in some ends."""
    if error["problem"] != "wrongQueueUnit":
        return False
    data = Path(error["file"]).read_bytes()[error["filePosition"] :]
    position, size = struct.unpack_from(">qi", data)
    columns = ["commitLogOffset", "storeSize", "queueId", "queueOffset"]
    (message,) = [
        row
        for row in read(root, subscribe=TOPIC, columns=columns)
        if (row["queueId"], row["queueOffset"]) == (error["queueId"], error["queueOffset"])
    ]
    return bool((message["commitLogOffset"], message["storeSize"]) != (position, size))


def test_queues_that_lie(real: None, tmp_path: Path) -> None:
    """The log of a node of 5.2.0 that was started again is right, whatever its queues say, and check tells of them."""
    known: list[Record] = []
    with nodes_in(tmp_path, LYING, count=1) as (node,):
        for number, end in enumerate((node.stop, node.kill_alone, node.stop)):
            client = node.client()
            if number == 0:
                client.run("create", TOPIC, 2)
            known += sent(client, 150, f"of run {number}")
            end()
            if number < 2:
                node.start()
    rows = read(node.root, subscribe=TOPIC, columns=["topic", "msgId", "queueId", "queueOffset"])
    assert Counter(row["msgId"] for row in rows) == Counter(record["msgId"] for record in known)
    for record in known[::50]:
        assert len(read(node.root, subscribe=TOPIC, msgId=record["msgId"])) == 1
    repeated = Counter((row["queueId"], row["queueOffset"]) for row in rows)
    problems = {row["problem"] for row in Store(node.root).check().to_pylist()}
    assert ("repeatedQueueOffset" in problems) == (max(repeated.values()) > 1)
