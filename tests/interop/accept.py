"""Does a real broker take a store for its own?"""

from __future__ import annotations

import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from oracle import reference, truth

from interop import rocketmq
from interop.child import ChildError, User
from interop.rocketmq import VERSIONS, Broker, Client, Sizes

Record = dict[str, Any]
Queue = tuple[str, int]

# What clients add to a message when they receive it.
_ADDED = {"MIN_OFFSET", "MAX_OFFSET"}
# No background service of the broker is to add messages while we look.
_QUIET = {"transactionCheckInterval": 3_600_000}
_SENT = 3
_PATIENCE = 60.0  # seconds until a queue has what was acknowledged; it mostly takes a millisecond


def assert_broker_accepts(
    store: Path,
    home: Path,
    versions: Iterable[str] = VERSIONS,
    *,
    sizes: Sizes | None = None,
    expected: list[Record] | None = None,
    keys: bool = True,
    queues: Iterable[Queue] | None = None,
    user: User | None = None,
    restart: bool = True,
) -> None:
    """Brokers of these versions start on (a copy of) the store and serve exactly the messages that are in it.

    Each reports the right bounds of all queues; a consumer receives the expected messages of every queue in order; key
    queries find each message by all of its keys; what is sent then lands at the next offsets, and after a restart all
    of that still holds.

    Args:
        home: an empty directory.
        sizes: those of the store's files. Without it they are taken from the files, and the index has the bench's.
        expected: rows; without it what the oracle reads from the store.
        keys: False where the index is allowed to be missing.
        queues: send to these only; without it to one queue of every topic that users write to.
        user: whom the brokers run as.
        restart: False where a broker's second start on such a store is checked elsewhere.
    """
    rows = reference.read_store(store) if expected is None else expected
    # Brokers wait more than they work, above all when they stop.
    with ThreadPoolExecutor(2) as pool:
        tasks = []
        for version in versions:
            copy = rocketmq.copy_store(store, home / version / "store")
            _make_readable(copy)
            broker = Broker(version, copy, home / version / "home", sizes or sizes_of(store), _QUIET, user)
            acceptance = _Acceptance(broker, rows, keys, queues, restart)
            tasks.append(pool.submit(acceptance.run))
        for task in tasks:
            task.result()


def sizes_of(store: Path) -> Sizes:
    """The bench's, with the file sizes of this store. Those of the index are not to be seen in it."""
    default = Sizes()
    segment = next(iter((store / "commitlog").glob("*")), None)
    queue_file = next(iter((store / "consumequeue").glob("*/*/*")), None)
    return Sizes(
        segment.stat().st_size if segment else default.segment,
        queue_file.stat().st_size if queue_file else default.queue_file,
        default.index_slots,
        default.index_items,
    )


def _make_readable(store: Path) -> None:
    """%DLQ% topics are write-only. That is right for a broker, but we want to see what is in them."""
    for path in (store / "config").glob("topics.json*"):
        path.write_text(re.sub(r'("perm"\s*:\s*)2\b', r"\g<1>6", path.read_text()))


class _Acceptance:
    def __init__(
        self,
        broker: Broker,
        rows: list[Record],
        keys: bool,
        queues: Iterable[Queue] | None,
        restart: bool,
    ) -> None:
        self.version = broker.version
        self.broker = broker
        self.keys = keys
        self.restart = restart
        self.sent: dict[Queue, dict[int, Record]] = {}
        self.denied: set[str] = set()  # topics
        self.expected: dict[Queue, list[Record]] = defaultdict(list)
        self.by_key: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.by_id: dict[tuple[str, str], set[int]] = defaultdict(set)
        for row in rows:
            self._expect(row)
        for messages in self.expected.values():
            messages.sort(key=lambda row: row["queueOffset"])
        if queues is None:
            first: dict[str, int] = {}
            for topic, queue_id in sorted(self.expected):
                if not is_system_topic(topic):
                    first.setdefault(topic, queue_id)
            queues = first.items()
        self.queues = list(queues)

    def _expect(self, row: Record) -> None:
        transaction = row["sysFlag"] & reference.TRANSACTION_BITS
        if transaction in (0, reference.COMMIT):
            self.expected[row["topic"], row["queueId"]].append(row)
        if transaction != reference.ROLLBACK:
            for key in filter(None, (row["keys"] or "").split(" ")):
                self.by_key[row["topic"], key].add(row["commitLogOffset"])
            if row["msgId"]:
                self.by_id[row["topic"], row["msgId"]].add(row["commitLogOffset"])

    def run(self) -> None:
        with self.broker as broker:
            client = broker.client()
            self._check(client, "after the start")
            self._send(client)
            self._check_sent(client, "after sending")
            if self.restart:
                broker.stop()
                broker.start()
                client = broker.client()
                self._check(client, "after the restart")
                self._check_sent(client, "after the restart")
            broker.kill()  # quicker than to stop it

    def _check(self, client: Client, when: str) -> None:
        for queue, messages in sorted(self.expected.items()):
            where = f"RocketMQ {self.version} {when}, queue {queue[1]} of {queue[0]}"
            self._check_bounds(client, queue, messages, where)
            self._check_messages(client, queue, messages, where)
        if self.keys:
            self._check_keys(client, when)

    def _check_bounds(self, client: Client, queue: Queue, messages: list[Record], where: str) -> None:
        (bounds,) = client.run("bounds", *queue)
        assert bounds["min"] == messages[0]["queueOffset"], f"{where}: min offset"
        end = messages[-1]["queueOffset"] + 1
        extra = bounds["max"] - end - self._sent_to(queue)
        assert extra >= 0, f"{where}: max offset {bounds['max']}, expected {end + self._sent_to(queue)}"
        if extra and not is_system_topic(queue[0]):
            # Only what was parked with the broker, and is due, may have come on top.
            for message in client.run("pull", *queue, end, bounds["max"]):
                parked = {"REAL_TOPIC", "DELAY", "TIMER_OUT_MS", "RETRY_TOPIC"} & message["properties"].keys()
                assert parked or message["queueOffset"] in self.sent.get(queue, {}), f"{where}: not expected: {message}"

    def _check_messages(self, client: Client, queue: Queue, messages: list[Record], where: str) -> None:
        first, last = messages[0]["queueOffset"], messages[-1]["queueOffset"]
        try:
            received = client.run("pull", *queue, first, last + 1)
        except ChildError as why:
            # Some of the topics that a broker keeps for itself it denies to have.
            if not is_system_topic(queue[0]) or "not exist, apply first" not in str(why):
                raise
            self.denied.add(queue[0])
            return
        missed = [record for record in received if record["kind"] == "missed"]
        assert not missed, f"{where}: {missed}"
        offsets = [message["queueOffset"] for message in received]
        assert offsets == [message["queueOffset"] for message in messages], f"{where}: offsets"
        for message, expected in zip(received, messages, strict=True):
            _assert_same(message, expected, f"{where}, offset {expected['queueOffset']}")

    def _check_keys(self, client: Client, when: str) -> None:
        for (topic, key), expected in self.by_key.items():
            if topic in self.denied:
                continue
            (found,) = client.run("query", topic, key)
            missing = expected - set(found["commitLogOffsets"])
            assert not missing, f"RocketMQ {self.version} {when}: {topic} has key {key!r} at {missing}, not found"
        for (topic, key), expected in self.by_id.items():
            if topic in self.denied:
                continue
            (found,) = client.run("unique", topic, key)
            assert found["commitLogOffset"] in expected, f"RocketMQ {self.version} {when}: {topic}, id {key}: {found}"

    # ---- new messages

    def _sent_to(self, queue: Queue) -> int:
        return len(self.sent.get(queue, {}))

    def _send(self, client: Client) -> None:
        marker = secrets.token_hex(4)
        for queue in self.queues:
            (bounds,) = client.run("bounds", *queue)
            acks = client.run("send", *queue, _SENT, marker)
            offsets = [ack["queueOffset"] for ack in acks]
            expected = list(range(bounds["max"], bounds["max"] + _SENT))
            assert offsets == expected, f"RocketMQ {self.version}: sent to {queue}, landed at {offsets}"
            assert all(ack["status"] == "SEND_OK" for ack in acks)
            self.sent[queue] = {ack["queueOffset"]: ack for ack in acks}

    def _await(self, client: Client, queue: Queue, end: int) -> None:
        """Wait until a queue has what was sent: a broker acknowledges it before. What comes never is found missing."""
        until = time.monotonic() + _PATIENCE
        while client.run("bounds", *queue)[0]["max"] < end and time.monotonic() < until:
            time.sleep(0.05)

    def _check_sent(self, client: Client, when: str) -> None:
        for queue, acks in self.sent.items():
            where = f"RocketMQ {self.version} {when}, queue {queue[1]} of {queue[0]}"
            self._await(client, queue, max(acks) + 1)
            received = client.run("pull", *queue, min(acks), max(acks) + 1)
            assert [(m["kind"], m.get("queueOffset"), m.get("body")) for m in received] == [
                ("message", offset, ack["body"]) for offset, ack in sorted(acks.items())
            ], f"{where}: what was sent"
            for ack in acks.values():
                (found,) = client.run("query", queue[0], ack["keys"])
                at = int(ack["offsetMsgId"][-16:], 16)
                assert at in found["commitLogOffsets"], f"{where}: key {ack['keys']} of a new message"


def is_system_topic(topic: str) -> bool:
    """Written to by the broker itself."""
    return topic.startswith(("%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_", "TRANS_CHECK_", "OFFSET_MOVED_EVENT"))


def _assert_same(message: Record, row: Record, where: str) -> None:
    expected = {
        "commitLogOffset": row["commitLogOffset"],
        "storeSize": row["storeSize"],
        "body": truth.sha256(row["body"]),
        "flag": row["flag"],
        "bornTimestamp": row["bornTimestamp"] // 1000,
        "bornHost": row["bornHost"],
        "storeTimestamp": row["storeTimestamp"] // 1000,
        "storeHost": row["storeHost"],
        "reconsumeTimes": row["reconsumeTimes"],
        "preparedTransactionOffset": row["preparedTransactionOffset"],
    }
    got = {name: message[name] for name in expected}
    assert got == expected, f"{where}: received {got}, expected {expected}"
    properties = {name: value for name, value in message["properties"].items() if name not in _ADDED}
    expected_properties = {name: value for name, value in row["properties"].items() if name not in _ADDED}
    assert properties == expected_properties, f"{where}: properties"
