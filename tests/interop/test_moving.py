"""docs/moving.md, walked with real brokers: by its own commands, with other names in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.command import run
from support.pages import PAGES

from interop.ours import SMALL
from interop.rocketmq import NEWEST, OLDEST, Broker, Client, free_ports
from rmqstore_spark import Store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC, GROUP, QUEUES = "Orders", "billing", 2
CONSUMED, SENT = 7, 12  # of each queue


def walk(heading: str, names: dict[str, str]) -> None:
    """Run the commands of a section."""
    section = PAGES["moving.md"].partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```shell\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    commands = [[names.get(word, word) for word in shlex.split(line)] for line in block.splitlines()]
    assert {word for words in commands for word in words} >= {*names.values()}
    for words in commands:
        ran = run(*words[1:])
        assert ran.code == 0, (words, ran)


def send(client: Client, count: int, marker: str) -> list[dict[str, Any]]:
    return [ack for queue_id in range(QUEUES) for ack in client.run("send", TOPIC, queue_id, count, marker)]


@pytest.fixture(scope="module")
def olds(real: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By version a store that its broker had stopped on, after a group had consumed some messages of all."""
    roots = {}
    for version in (OLDEST, NEWEST):
        home = tmp_path_factory.mktemp("old")
        roots[version] = home / "store"
        with Broker(version, home / "store", home, SMALL) as broker:
            client = broker.client()
            client.run("create", TOPIC, QUEUES)
            send(client, CONSUMED, "before")
            assert len(client.run("consume", TOPIC, GROUP, CONSUMED * QUEUES, 2000)) == CONSUMED * QUEUES
            send(client, SENT - CONSUMED, f"after-{version}")
    return roots


@contextmanager
def moved(version: str, root: Path, home: Path, port: int) -> Iterator[Client]:
    with Broker(version, root, home, SMALL, settings={"listenPort": port}) as broker:
        yield broker.client()


def rest_of(client: Client, stores: int) -> None:
    """The group gets each message that it had not, once, then new ones, whose offsets follow."""
    expected = sorted(
        (n * QUEUES + q, at) for n in range(stores) for q in range(QUEUES) for at in range(CONSUMED, SENT)
    )
    found = client.run("consume", TOPIC, GROUP, len(expected), 3000)
    assert sorted((each["queueId"], each["queueOffset"]) for each in found) == expected
    for queue_id in range(QUEUES * stores):
        (ack,) = client.run("send", TOPIC, queue_id, 1, "new")
        assert ack["queueOffset"] == SENT
    again = client.run("consume", TOPIC, GROUP, QUEUES * stores, 3000)
    assert sorted((each["queueId"], each["queueOffset"]) for each in again) == [
        (queue_id, SENT) for queue_id in range(QUEUES * stores)
    ]


def ids_lead_to(client: Client, root: Path) -> None:
    """The broker with the address in them has each message that the store knows by its offsetMsgId."""
    columns = ["offsetMsgId", "queueId", "queueOffset", "keys"]
    rows = Store(root).messages(columns, subscribe=TOPIC).read_all().to_pylist()
    assert rows
    for row in rows:
        (found,) = client.run("view", TOPIC, row["offsetMsgId"])
        assert [found[name] for name in columns[1:]] == [row[name] for name in columns[1:]]


def test_to_a_new_disk(olds: dict[str, Path], tmp_path: Path) -> None:
    root, (port,) = tmp_path / "new", free_ports(1)
    walk("To a new disk", {"sample_store": str(olds[NEWEST]), "new_disk_store": str(root)})
    with moved(NEWEST, root, tmp_path / "home", port) as client:
        rest_of(client, 1)


@pytest.mark.parametrize(
    ("heading", "version", "name"),
    [
        pytest.param("To a new host", NEWEST, "new_host_store", marks=pytest.mark.nightly),
        ("From 4.9 to 5.5", OLDEST, "store_for_5"),
    ],
)
def test_to_another_host(heading: str, version: str, name: str, olds: dict[str, Path], tmp_path: Path) -> None:
    root, (port,) = tmp_path / "new", free_ports(1)
    walk(heading, {"sample_store": str(olds[version]), name: str(root), "10.1.2.3:10911": f"127.0.0.1:{port}"})
    with moved(NEWEST, root, tmp_path / "home", port) as client:
        ids_lead_to(client, root)
        rest_of(client, 1)


def test_several_into_one(olds: dict[str, Path], tmp_path: Path) -> None:
    root, (port,) = tmp_path / "new", free_ports(1)
    names = {"json_store": str(olds[NEWEST]), "other_store": str(olds[OLDEST]), "one_store": str(root)}
    walk("Several into one", {**names, "10.1.2.3:10911": f"127.0.0.1:{port}"})
    with moved(NEWEST, root, tmp_path / "home", port) as client:
        ids_lead_to(client, root)
        rest_of(client, 2)
