"""Two brokers in controller mode beside a real controller: the master ends while its producer runs, the other one takes
over, the old one comes back and cuts what the other does not have, and once more the other way round. Each one's store,
as our reader sees it, is what the last master serves."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from read.test_index_evidence import assert_nothing_is_hidden, looked_up
from support.reading import read

from interop.ours import SMALL
from interop.rocketmq import NEWEST, Broker, Client, Record, Sizes, free_ports
from interop.test_dledger import (
    COLUMNS,
    PATIENCE,
    TOPIC,
    acknowledged,
    assert_each_once,
    assert_no_more,
    killed_while_sending,
    sent,
)
from rmqstore_spark import Store
from rmqstore_spark.store.io.files import Files

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long, pytest.mark.nightly]

REPLICA_INFO, EPOCHS = 1004, 1007  # RequestCode


def asked(address: str, code: int, **fields: str) -> tuple[dict[str, str], Any]:
    """The fields and the body of the answer to a request of RocketMQ's protocol."""
    header = json.dumps({"code": code, "language": "JAVA", "version": 0, "opaque": 1, "flag": 0, "extFields": fields})
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header.encode())
        size, length = struct.unpack(">ii", answer.read(8))
        found = json.loads(answer.read(length & 0xFFFFFF))
        body = answer.read(size - 4 - (length & 0xFFFFFF))
    assert found["code"] == 0, found
    return found.get("extFields", {}), json.loads(body) if body else None


class Pair:
    """Two brokers of one name, and the controller."""

    def __init__(self, directory: Path, version: str, sizes: Sizes) -> None:
        (port,) = free_ports(1)
        self.controller = f"127.0.0.1:{port}"
        naming = {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self.controller}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": directory / "controller",
            "mappedFileSize": 1024 * 1024,
            "scanNotActiveBrokerInterval": 500,
        }
        settings: dict[str, Any] = {
            "enableControllerMode": "true",
            "controllerAddr": self.controller,
            "brokerId": -1,
            "brokerRole": "SLAVE",
            "controllerHeartBeatTimeoutMills": 5000,
            "syncBrokerMetadataPeriod": 1000,
            "checkSyncStateSetPeriod": 1000,
        }
        self.one = Broker(
            version, directory / "one" / "store", directory / "one" / "home", sizes, settings, naming=naming
        )
        self.two = Broker(
            version, directory / "two" / "store", directory / "two" / "home", sizes, settings, beside=self.one
        )

    def wait_for_master(self, broker: Broker) -> None:
        """Until it is the master that the controller names, and knows of it."""
        self._wait(lambda: self._info()[0].get("masterAddress") == broker.address, f"{broker.address} is no master")
        epoch = int(self._info()[0]["masterEpoch"])
        self._wait(lambda: epochs(broker)[-1:] and epochs(broker)[-1]["epoch"] == epoch, "the master has no epoch")

    def wait_until_equal(self) -> None:
        """Until both are in the controller's set, and have logs of one length."""
        self._wait(lambda: len(self._info()[1]["syncStateSet"]) == 2, "one is not in sync")
        self._wait(lambda: log_end(self.one) == log_end(self.two), "the logs differ")

    def _info(self) -> tuple[dict[str, str], Any]:
        return asked(self.controller, REPLICA_INFO, brokerName="bench")

    def _wait(self, is_so: Callable[[], Any], why: str) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with suppress(OSError, AssertionError, struct.error):  # it starts, or there is no master yet
                if is_so():
                    return
            time.sleep(0.2)
        raise AssertionError(f"{why}: {self._info()}")


def epochs(broker: Broker) -> list[Record]:
    found: list[Record] = asked(broker.address, EPOCHS)[1]["epochList"]
    return found


def log_end(broker: Broker) -> int:
    return int(asked(broker.address, EPOCHS)[1]["maxOffset"])


@contextmanager
def running(pair: Pair) -> Iterator[None]:
    try:
        pair.one.start()
        pair.wait_for_master(pair.one)
        pair.two.start()
        pair.wait_until_equal()
        yield
    finally:
        pair.two.kill()
        pair.one.kill()


def pulled(client: Client) -> list[Record]:
    records = [record for queue_id in range(2) for record in client.run("pull", TOPIC, queue_id, 0, 1 << 40)]
    return [record for record in records if record["kind"] == "message"]


@pytest.mark.parametrize("is_killed", [True, False])
def test_masters_come_back(real: None, tmp_path: Path, is_killed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was killed deletes the index file that was growing; one that was stopped goes on in it, and has
    nothing in it of what is written in the place of what was cut."""
    pair = Pair(tmp_path, NEWEST, SMALL if is_killed else replace(SMALL, index_slots=500, index_items=10_000))
    with running(pair):
        client = pair.one.client()
        client.run("create", TOPIC, 2)
        kept = sent(client, 100, "before")
        pair.wait_until_equal()
        # What the other one does not get is cut when this one comes back, although it was acknowledged: a master waits
        # for nobody by default.
        with pair.two.frozen():
            client.begin("send", TOPIC, 0, 100_000, "alone")
            end = time.monotonic() + PATIENCE
            while len(acknowledged(client)) < len(kept) + 300 and time.monotonic() < end:
                time.sleep(0.01)
            (pair.one.kill_alone if is_killed else pair.one.stop)()
        everything = acknowledged(client)
        assert len(everything) >= len(kept) + 300
        alone = read(pair.one.root, subscribe=TOPIC, columns=COLUMNS)
        assert_all(alone, everything, "of the master that was alone")
        pair.wait_for_master(pair.two)
        kept += sent(pair.two.client(), 100, "two")
        pair.one.start()
        pair.wait_until_equal()
        killed_while_sending(pair.two, "both")
        pair.wait_for_master(pair.one)
        client = pair.one.client()
        kept += sent(client, 30, "end")
        pair.two.start()
        pair.wait_until_equal()
        served = pulled(client)
        known = {broker.root: epochs(broker) for broker in (pair.one, pair.two)}
        ends = {broker.root: log_end(broker) for broker in (pair.one, pair.two)}
        pair.two.stop()
        pair.one.stop()
    assert len(known[pair.one.root]) >= 3
    assert {record["msgId"] for record in everything} - {record["properties"]["UNIQ_KEY"] for record in served}
    for root, of_broker in known.items():
        rows = read(root, subscribe=TOPIC, columns=COLUMNS)
        assert sorted(map(of_row, rows)) == sorted(map(of_message, served)), root
        assert_all(rows, kept, f"of {root}")
        table = Store(root).epochs(["epoch", "startOffset", "endOffset"]).to_pylist()
        assert [tuple(row.values())[:2] for row in table] == [(one["epoch"], one["startOffset"]) for one in of_broker]
        assert [row["endOffset"] for row in table] == [*(one["startOffset"] for one in of_broker[1:]), ends[root]]
        wrong = [row for row in Store(root).check().to_pylist() if row["severity"] != "info"]
        assert {row["area"] for row in wrong} <= {"index"}
        assert_found_by_key(root, rows, monkeypatch)
    together = read(pair.one.root, pair.two.root, subscribe=TOPIC, columns=["msgId"], deduplicate=True)
    assert Counter(row["msgId"] for row in together) == Counter(record["properties"]["UNIQ_KEY"] for record in served)


def assert_found_by_key(root: Path, rows: list[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    """Index files say where each message is, or leave it to a scan."""
    count = 0
    for row in rows[::9]:
        (word, *_) = reversed(row["keys"].split())  # there may be more of the word
        found = looked_up(root, Files(), 1, monkeypatch, key=word)
        if found is not None:
            count += assert_nothing_is_hidden(found, {row["commitLogOffset"]})
    assert count


def assert_all(rows: list[Record], acks: list[Record], whose: str) -> None:
    found = Counter(row["msgId"] for row in rows)
    assert_each_once(found, f"rows {whose}")
    assert_no_more({record["msgId"] for record in acks} - found.keys(), f"{whose}: acknowledged, but no row")


def of_row(row: Record) -> tuple[Any, ...]:
    return row["queueId"], row["queueOffset"], row["msgId"], row["commitLogOffset"], row["keys"]


def of_message(record: Record) -> tuple[Any, ...]:
    properties = record["properties"]
    places = record["queueId"], record["queueOffset"], properties["UNIQ_KEY"], record["commitLogOffset"]
    return *places, properties["KEYS"]
