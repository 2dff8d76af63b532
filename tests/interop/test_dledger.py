"""Three DLedger nodes of real brokers, a leader killed while a producer sends: each node's store, all together, and a
plain broker on a copy of one."""

from __future__ import annotations

import os
import re
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
from interop.rocketmq import NEWEST, Broker, Client, Record, free_ports
from rmqstore_spark import Store

pytestmark = pytest.mark.interop

VERSION = os.environ.get("RMQ_DLEDGER_VERSION", NEWEST)
TOPIC, GROUP = "Orders", "billing"
PATIENCE = 120.0  # seconds


@contextmanager
def nodes_in(directory: Path) -> Iterator[list[Broker]]:
    ports = [free_ports(1)[0] for _ in range(3)]
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    nodes: list[Broker] = []
    for number in range(3):
        settings: dict[str, Any] = {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "bench",
            "dLegerPeers": peers,
            "dLegerSelfId": f"n{number}",
        }
        where = directory / f"n{number}"
        beside = nodes[0] if nodes else None
        nodes.append(Broker(VERSION, where / "store", where / "home", SMALL, settings, beside=beside))
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
        if count >= 2 and nodes[int(name)] is not but:
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


def test_a_leader_is_killed(real: None, tmp_path: Path) -> None:
    with nodes_in(tmp_path) as nodes:
        first = leader_of(nodes)
        client = first.client()
        client.run("create", TOPIC, 2)
        client.begin("send", TOPIC, 0, 100_000, "before")
        end = time.monotonic() + PATIENCE
        while len(acknowledged(client)) < 300 and time.monotonic() < end:
            time.sleep(0.01)
        first.kill_alone()
        known = acknowledged(client)
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
    assert errors == []
    Store(second.root).copy(tmp_path / "copy")
    with Broker(VERSION, tmp_path / "copy", tmp_path / "home", SMALL) as broker:
        client = broker.client()
        assert received(client, len(late)) == {record["msgId"] for record in late}
        assert sent(client, 1, "more")
    assert consumed >= ids - {record["msgId"] for record in late}
