"""Real brokers serve copies and salvages: each message in its place, and each group where it was."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import writing
from support.killing import Killed, Stopper, stopped_at_every_change

from interop.ours import SMALL
from interop.rocketmq import ALL_VERSIONS, NEWEST, OLDEST, Broker, Client, runtime, usually
from interop.scenario import Written
from rmqstore_spark import Store, write_store
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.store.format.system_topics import HALF_TOPIC
from rmqstore_spark.write.fs import calls

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC = "Orders"
GROUP = "billing"
PRODUCERS = "payers"
# Often, and without an end: by default it gives up after 15 checks, whether anybody was there to be asked or not.
_CHECKS = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000, "transactionCheckMax": 100_000}
SIZES = Sizes(SMALL.segment, SMALL.queue_file, SMALL.index_slots, SMALL.index_items)
_SIZES = {
    "mappedFileSizeCommitLog": SIZES.segment,
    "mappedFileSizeConsumeQueue": SIZES.queue_file,
    "maxHashSlotNum": SIZES.slots,
    "maxIndexNum": SIZES.items,
}
QUEUES = 3
PARTS = "merged", "copied", "salvaged"  # what becomes of each of three stores before all become one
PATIENCE = 300.0  # seconds: a broker that is slower than that does not deliver

StoreOf = Callable[[str], Written]


def rows(rng: random.Random, count: int) -> list[writing.Row]:
    return [
        {
            "topic": TOPIC,
            "queueId": rng.randrange(QUEUES),
            "keys": f"key-{number}",
            "body": f"{number}".encode().ljust(rng.choice((50, 2000)), b"."),
            "storeHost": "127.0.0.1:10911",
        }
        for number in range(count)
    ]


def damage(root: Path, rng: random.Random, count: int, which: slice = slice(None)) -> None:
    """Some stretches in the middle of segments in the middle of the log, or of some of these."""
    segments = sorted((root / "commitlog").iterdir())[1:-1][which]
    for segment in rng.sample(segments, count):
        data = bytearray(segment.read_bytes())
        at = rng.randrange(5000, 20000)
        data[at : at + 9000] = rng.randbytes(9000)
        segment.write_bytes(data)


def pulled(client: Client, topic: str, queue_id: int, start: int, stop: int) -> list[int]:
    """The queue offsets that a consumer receives."""
    answers = client.run("pull", topic, queue_id, start, stop)
    return [answer["queueOffset"] for answer in answers if answer["kind"] != "missed"]


def left_in(root: Path) -> dict[int, list[int]]:
    """The queue offsets that can still be read, by queue."""
    left: dict[int, list[int]] = {queue_id: [] for queue_id in range(QUEUES)}
    rows = Store(root).messages(["queueId", "queueOffset"], mode="DROPMALFORMED", subscribe=TOPIC).read_all()
    for row in rows.to_pylist():
        left[row["queueId"]].append(row["queueOffset"])
    return left


@pytest.mark.parametrize("version", usually(NEWEST))
def test_salvaged(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """Consumers get all that is left in order, wherever they begin, and new messages after it; also after a crash. The
    last messages of two queues are lost, too: what comes after them gets offsets of its own."""
    damaged, root = tmp_path / "damaged", tmp_path / "salvaged"
    made = rows(rng, 600)
    for number in range(1, 4):
        made[-number]["queueId"] = QUEUES - number
    writing.write(damaged, made, sizes=SIZES)
    ends = {queue_id: sum(row["queueId"] == queue_id for row in made) for queue_id in range(QUEUES)}
    damage(damaged, rng, 4)
    for number in 598, 597:  # the last ones of queues 1 and 0
        spoil(damaged, made[number]["body"])
    assert Store(damaged).salvage(root).lost.num_rows > 4
    left = left_in(damaged)
    with Broker(version, root, tmp_path / "home", SMALL) as broker:
        client = broker.client()
        for queue_id, offsets in left.items():
            stop = ends[queue_id]
            assert (offsets[-1] + 1 == stop) == (queue_id == 2)
            (bounds,) = client.run("bounds", TOPIC, queue_id)
            assert (bounds["min"], bounds["max"]) == (0, stop)
            for start in [0, *rng.sample(range(stop), 8)]:
                found = pulled(client, TOPIC, queue_id, start, stop)
                assert found == [offset for offset in offsets if offset >= start]
            sent = client.run("send", TOPIC, queue_id, 3, "after")
            assert [ack["queueOffset"] for ack in sent] == [stop, stop + 1, stop + 2]
            offsets += [stop, stop + 1, stop + 2]
        broker.kill()
    with Broker(version, root, tmp_path / "home2", SMALL) as broker:
        client = broker.client()
        for queue_id, offsets in left.items():
            assert pulled(client, TOPIC, queue_id, 0, offsets[-1] + 1) == offsets


def consumed(root: Path, offsets: dict[int, int]) -> None:
    """A group that has come so far."""
    table = {f"{TOPIC}@{GROUP}": {str(queue_id): offset for queue_id, offset in offsets.items()}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def open_transaction(name: str) -> writing.Row:
    """A half message, of which its producer has not said yet what is to become of it."""
    properties = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
    names = {"topic": HALF_TOPIC, "queueId": 0, "msgId": name, "body": name.encode(), "storeHost": "127.0.0.1:10911"}
    return {**names, "properties": {**properties, "__transactionId__": name}}


@pytest.mark.parametrize("which", ["migrated", *PARTS, "written"] if ALL_VERSIONS else ["migrated"])
@pytest.mark.parametrize("version", usually(NEWEST))
def test_groups_go_on(real: None, tmp_path: Path, rng: random.Random, version: str, which: str) -> None:
    """A group that had consumed half of three stores consumes the other halves, each message once and in order, after
    one was made of two damaged copies, two were copied with what was expired or damaged in them, and all have become
    one; and before that in each of them; and in one of their rows that was written as any rows are. The broker asks for
    the transactions that were open in them, of which the last has none."""
    stores = []
    left = []
    done = []
    for number in range(3):
        root = tmp_path / f"store-{number}"
        made = rows(rng, 300)
        for row in made:
            row["body"] = f"{number}-".encode() + row["body"]
        writing.write(root, made, [open_transaction(f"half-{number}")], sizes=SIZES)
        at = {queue_id: rng.randrange(60, 80) for queue_id in range(QUEUES)}
        consumed(root, at)
        stores.append(root)
        if number == 1:  # what is expired was consumed
            for segment in sorted((root / "commitlog").iterdir())[:2]:
                segment.unlink()
        if number:
            other = tmp_path / f"copy-{number}"
            if number == 2:
                damage(root, rng, 2)
            (Store(root).salvage if number == 2 else Store(root).copy)(other)
            stores[-1] = other
        left.append(left_in(root))
        done.append(at)
        if number == 0:
            twin, whole = tmp_path / "twin", tmp_path / "whole"
            shutil.copytree(root, twin)
            damage(root, rng, 1, slice(0, None, 2))
            damage(twin, rng, 1, slice(1, None, 2))
            Store([root, twin]).copy(whole, deduplicate=True)
            stores[-1] = whole
    numbers = [PARTS.index(which)] if which in PARTS else [1] if which == "written" else [0, 1, 2]
    queues = [(number, queue_id) for number in numbers for queue_id in range(QUEUES)]
    expected = [[o for o in left[number][queue_id] if o >= done[number][queue_id]] for number, queue_id in queues]
    target = tmp_path / "target"
    if which == "migrated":
        Store(stores).copy(target)
    elif which == "written":
        source = tmp_path / "store-1"
        rows_of_it = Store(source).messages(subscribe=TOPIC)
        write_store(target, rows_of_it, "append", configFrom=source, **_SIZES)
        expected = [[left[1][queue_id].index(o) for o in offsets] for queue_id, offsets in enumerate(expected)]
    else:
        (number,) = numbers
        target = stores[number]
    with Broker(version, target, tmp_path / "home", SMALL, _CHECKS) as broker:
        client = broker.client()
        if which != "written":
            asked = client.run("checked", PRODUCERS, len(numbers), 1000 * int(PATIENCE))
            assert {(answer["topic"], answer["body"]) for answer in asked} == {(TOPIC, f"half-{n}") for n in numbers}
        answers = client.run("consume", TOPIC, GROUP, sum(map(len, expected)), 5000)
        broker.kill()  # quicker than to stop it
    found: dict[int, list[int]] = {queue_id: [] for queue_id in range(len(expected))}
    for answer in answers:
        found[answer["queueId"]].append(answer["queueOffset"])
    assert found == dict(enumerate(expected))


@pytest.mark.parametrize("version", usually(OLDEST))
def test_a_brokers_own_store(
    store_of: StoreOf,
    accept_ours: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
) -> None:
    """With all kinds of messages: retried, dead, delayed, half ones. The copy was killed as soon as it was there."""
    stop = Stopper()
    monkeypatch.setattr(calls, "do", stop)

    def copy(other: str, root: Path) -> None:
        source = Store(store_of(other).root)
        made: list[Path] = []

        def begin() -> Callable[[], object]:
            made.append(tmp_path / other / f"{len(made)}")
            return lambda: source.copy(made[-1])

        tries = stopped_at_every_change(stop, begin, backwards=True)
        too_early = next(each for each in tries if not (made[-1] / "commitlog").exists())
        stop.at(too_early.number + 1)
        with pytest.raises(Killed):
            source.copy(root)
        stop.at(None)

    accept_ours("copied whole", version, copy)


def timed(number: int, until: int, out: int) -> list[writing.Row]:
    """Messages that a timer is to deliver: three that are due when it has come so far, and two later."""
    return [
        {
            "topic": "rmq_sys_wheel_timer",
            "queueId": 0,
            "msgId": f"timed-{number}-{n}",
            "body": f"timed-{number}-{n}".encode(),
            "properties": {
                "REAL_TOPIC": TOPIC,
                "REAL_QID": "0",
                "TIMER_OUT_MS": str(until - 1000 * n if n < 3 else out),
            },
            "storeTimestamp": (until - 60_000 + n) * 1000,
            "storeHost": "127.0.0.1:10911",
        }
        for n in range(5)
    ]


def spoil(root: Path, body: bytes) -> None:
    """Damages the message with this body."""
    (segment,) = (path for path in (root / "commitlog").iterdir() if body in path.read_bytes())
    data = segment.read_bytes()
    assert data.count(body) == 1
    segment.write_bytes(data.replace(body, body[::-1]))


@pytest.mark.parametrize("version", usually(NEWEST))
def test_delayed_messages(real: None, tmp_path: Path, version: str) -> None:
    """What was delivered is not delivered again, and what waits is, at its time; also where two stores become one. The
    timer's own files do not come along: a broker begins its topic anew. Where all versions are run, also of a store
    that was salvaged, and of one that was made of two damaged copies."""
    now = time.time_ns() // 1_000_000
    until, out = now // 1000 * 1000 - 30_000, now // 1000 * 1000 + 12_000
    has_timer = runtime(version).five
    expected: list[list[bytes]] = []
    for number in range(2):
        made = [
            {
                "topic": "SCHEDULE_TOPIC_XXXX",
                "queueId": 2,  # level 3: ten seconds
                "body": f"{number}-{n}-delayed".encode(),
                "properties": {"REAL_TOPIC": TOPIC, "REAL_QID": "0", "DELAY": "3"},
                "storeTimestamp": (now + 10 * n + number) * 1000,
                "storeHost": "127.0.0.1:10911",
            }
            for n in range(20)
        ]
        for_timer = timed(number, until, out) if has_timer else []
        writing.write(tmp_path / f"{number}", for_timer, made, rows(random.Random(number), 1), sizes=SIZES)
        config = tmp_path / f"{number}" / "config"
        (config / "delayOffset.json").write_text(json.dumps({"offsetTable": {"3": 12}}))
        (config / "timercheck").write_bytes(struct.pack(">q", until).ljust(4096, b"\0"))
        expected.append([f"{number}-{n}-delayed".encode() for n in range(12, 20)])
    one, both = tmp_path / "one", tmp_path / "both"
    Store(tmp_path / "0").copy(one)
    Store([tmp_path / "0", tmp_path / "1"]).copy(both)
    wanted = {one: expected[0], both: [body for pair in zip(*expected, strict=True) for body in pair]}
    if ALL_VERSIONS:
        twin, salvaged, merged = tmp_path / "twin", tmp_path / "salvaged", tmp_path / "merged"
        shutil.copytree(tmp_path / "0", twin)
        spoil(tmp_path / "0", expected[0][3])
        spoil(twin, expected[0][5])
        Store(tmp_path / "0").salvage(salvaged)
        Store([tmp_path / "0", twin]).salvage(merged, deduplicate=True)
        wanted |= {salvaged: expected[0][:3] + expected[0][4:], merged: expected[0]}
    stores_in = {root: 2 if root == both else 1 for root in wanted}
    columns = ["body", "queueOffset", "storeTimestamp"]
    with contextlib.ExitStack() as running:
        brokers = [
            running.enter_context(Broker(version, root, tmp_path / f"home-{root.name}", SMALL)) for root in wanted
        ]
        end = time.monotonic() + PATIENCE
        for root, bodies in wanted.items():
            count = stores_in[root] * (3 if has_timer else 1) + len(bodies)
            while Store(root).messages(columns, subscribe=TOPIC).read_all().num_rows < count:
                assert time.monotonic() < end
                time.sleep(0.5)
        for broker in brokers:
            broker.kill()  # quicker than to stop it
    for root, bodies in wanted.items():
        found = Store(root).messages(columns, subscribe=TOPIC).read_all().to_pylist()
        delivered = found[stores_in[root] :]  # they were there before
        timers = [row for row in delivered if row["body"].startswith(b"timed-")]
        assert [row["body"] for row in delivered if row not in timers] == bodies
        assert sorted(row["body"] for row in timers) == [
            b"timed-%d-%d" % (n, i) for n in range(stores_in[root]) for i in (3, 4) if has_timer
        ]
        assert all(row["storeTimestamp"].timestamp() >= now / 1000 + 10 for row in delivered)
        assert all(row["storeTimestamp"].timestamp() >= out / 1000 for row in timers)


@pytest.mark.parametrize("version", usually(NEWEST))
def test_without_a_persons_messages(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """A consumer of a copy from which messages were left out gets exactly the rest: a group goes on where it was, and
    wherever one begins; new messages come after the queues' ends, and all that still holds after a crash."""
    source, root = tmp_path / "source", tmp_path / "copy"
    made = rows(rng, 400)
    for number in rng.sample(range(398), 40):  # of the last one of all the queue offset would be given out again
        made[number]["keys"] += " customer-4711"
    made[-2]["keys"] = "customer-4711"
    made[-2]["queueId"], made[-1]["queueId"] = 0, 1
    writing.write(source, made, sizes=SIZES)
    done = {queue_id: rng.randrange(40, 80) for queue_id in range(QUEUES)}
    consumed(source, done)
    left = {queue_id: [] for queue_id in range(QUEUES)}  # type: dict[int, list[int]]
    ends = dict.fromkeys(range(QUEUES), 0)
    for row in made:
        queue_id = row["queueId"]
        if "customer-4711" not in row["keys"].split(" "):
            left[queue_id].append(ends[queue_id])
        ends[queue_id] += 1
    told = Store(source).copy(root, excludeKey="customer-4711").excluded.to_pylist()
    assert [(row["messages"], row["found"], row["inBytes"]) for row in told] == [
        (400 - sum(map(len, left.values())), 0, 0)
    ]
    expected = {
        queue_id: [offset for offset in offsets if offset >= done[queue_id]] for queue_id, offsets in left.items()
    }
    with Broker(version, root, tmp_path / "home", SMALL) as broker:
        client = broker.client()
        found: dict[int, list[int]] = {queue_id: [] for queue_id in left}
        for answer in client.run("consume", TOPIC, GROUP, sum(map(len, expected.values())), 3000):
            found[answer["queueId"]].append(answer["queueOffset"])
        assert found == expected
        for queue_id, offsets in left.items():
            stop = ends[queue_id]
            for start in [0, *rng.sample(range(stop), 5)]:
                assert pulled(client, TOPIC, queue_id, start, stop) == [offset for offset in offsets if offset >= start]
            sent = client.run("send", TOPIC, queue_id, 2, "after")
            assert [ack["queueOffset"] for ack in sent] == [stop, stop + 1]
            offsets += [stop, stop + 1]
        (keyed,) = client.run("query", TOPIC, "customer-4711")
        assert keyed["commitLogOffsets"] == []
        broker.kill()
    with Broker(version, root, tmp_path / "home2", SMALL) as broker:
        client = broker.client()
        for queue_id, offsets in left.items():
            assert pulled(client, TOPIC, queue_id, 0, offsets[-1] + 1) == offsets
