"""Real brokers start on stores that we write, append to or rebuild, and serve every message."""

from __future__ import annotations

import random
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from oracle import golden, reference
from support import reading, writing
from support.killing import Killed, Stopper

import rmqstore_spark
from interop import rocketmq
from interop.accept import assert_broker_accepts
from interop.each import EACH_AT_NIGHT
from interop.ours import BENCH, SIZES, SMALL, rows, small_store
from interop.rocketmq import ALL_VERSIONS, NEWEST, OLDEST, VERSIONS, Broker, usually
from interop.scenario import Written
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.commit import Settings, commit
from rmqstore_spark.write.fs import calls

pytestmark = pytest.mark.interop

StoreOf = Callable[[str], Written]
AcceptOurs = Callable[..., None]


@pytest.mark.parametrize("version", usually(NEWEST))
def test_a_new_store(accept_ours: AcceptOurs, rng: random.Random, version: str) -> None:
    accept_ours("new", version, lambda _, root: small_store(root, rng), sizes=SMALL)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("version", EACH_AT_NIGHT)
def test_one_that_its_broker_wrote_and_we_appended_to(
    store_of: StoreOf, tmp_path: Path, rng: random.Random, version: str
) -> None:
    """And then a broker appended to, and then we."""
    root = rocketmq.copy_store(store_of(version).root, tmp_path / "store")
    before = reference.read_store(root)
    writing.write(root, rows(rng, 200), sizes=Sizes())
    writing.write(root, rows(rng, 50, before[0]["topic"]), sizes=Sizes())
    assert reference.read_store(root)[: len(before)] == before
    with Broker(version, root, tmp_path / "broker", BENCH) as broker:
        acks = broker.client().run("send", "TopicA", 1, 5, secrets.token_hex(4))
        assert all(ack["status"] == "SEND_OK" for ack in acks)
    writing.write(root, rows(rng, 100), sizes=Sizes())
    found = reference.read_store(root)
    assert found[: len(before)] == before
    assert len(found) >= len(before) + 355
    assert reading.read(root) == found
    assert_broker_accepts(root, tmp_path / "home", [version])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("version", usually(NEWEST))
def test_times_go_back_where_a_broker_goes_on(
    store_of: StoreOf, tmp_path: Path, rng: random.Random, version: str
) -> None:
    """Old rows between what two runs of it wrote: a time range finds all, also in a copy without what we noted down."""
    root = rocketmq.copy_store(store_of(version).root, tmp_path / "store")
    first = reference.read_store(root)[0]["storeTimestamp"]
    times = [first + rng.randrange(-(10**12), 10**12) for _ in range(100)]
    old = rows(rng, 100)
    writing.write(root, [{**row, "storeTimestamp": time} for row, time in zip(old, times, strict=True)], sizes=Sizes())
    with Broker(version, root, tmp_path / "broker", BENCH) as broker:
        acks = broker.client().run("send", "TopicA", 1, 5, secrets.token_hex(4))
        assert all(ack["status"] == "SEND_OK" for ack in acks)
    found = reference.read_store(root)
    for is_whole in (True, False):
        if not is_whole:
            shutil.rmtree(root / ".rmqstore-spark")
        for _ in range(20):
            least, most = sorted(rng.choice(found)["storeTimestamp"] // 1000 for _ in range(2))
            some = reading.read(root, startingTimestamp=least, endingTimestamp=most + 1)
            assert some == [row for row in found if least <= row["storeTimestamp"] // 1000 <= most]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("version", usually(OLDEST))
def test_a_copy_of_a_golden_store(accept_ours: AcceptOurs, tmp_path: Path, version: str) -> None:
    def copy(version: str, root: Path) -> None:
        source = golden.unpack(version, tmp_path / version)
        writing.write(root, reading.read(source), sizes=SIZES, autoMessageVersionOnTopicLen="true")

    accept_ours("copied", version, copy, restart=False)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("version", usually(NEWEST))
def test_a_rebuilt_one(store_of: StoreOf, accept_ours: AcceptOurs, version: str) -> None:
    def rebuild(version: str, root: Path) -> None:
        rocketmq.copy_store(store_of(version).root, root)
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
        (root / "checkpoint").unlink()
        (root / "abort").touch()
        rmqstore_spark.rebuild(
            root,
            mappedFileSizeConsumeQueue=SIZES.queue_file,
            maxHashSlotNum=SIZES.slots,
            maxIndexNum=SIZES.items,
        )

    accept_ours("rebuilt", version, rebuild)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "small"),
    [(version, small) for version in VERSIONS for small in (False, True)]
    if ALL_VERSIONS
    else [(NEWEST, False), (OLDEST, True)],
    ids=lambda value: value if isinstance(value, str) else "stretch" if value else "copied",
)
def test_killed_writers(
    pool: ThreadPoolExecutor,
    tmp_path: Path,
    rng: random.Random,
    version: str,
    small: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever a write is killed, a broker has all of its messages, or none. (tests/write/test_kill.py and
    test_stretch.py try it at every place; here at some of those that leave something behind.) What the last segment has
    room for is written into it, and killed also right before it counts; but not where the segment has another name."""
    small_store(tmp_path / "before", rng, 60)
    none = reference.read_store(tmp_path / "before")
    stopper = Stopper()
    monkeypatch.setattr(calls, "do", stopper)
    new = rows(rng, 60)
    stores: list[Path] = []
    total = head = 0
    count = 1 if version == OLDEST else 2
    # Everything from the journal on stands at the end.
    for number in (None, *(sorted(rng.sample(range(1, 60), count)))):
        root = tmp_path / f"store-{number}"
        stopper.at(None)
        shutil.copytree(tmp_path / "before", root)
        segments = sorted((root / "commitlog").iterdir())
        if not small:
            (tmp_path / f"snapshot-{number}").hardlink_to(segments[-1])
        _, staged = writing.stage_rows(root, [new])
        if number is None:
            stopper.at(None)
        else:
            stopper.at(head - 1 if small and len(stores) == count - 1 else total - number)
        try:
            commit(str(root), staged, Settings(Sizes()))
            total = stopper.calls
            heads = [call for call, path in stopper.writes if path == str(segments[-1])]
            assert bool(heads) == small
            head = max(heads, default=0)
        except Killed:
            stores.append(root)
    stopper.at(None)
    tasks: list[Future[None]] = []
    for root in stores:
        found = reference.read_store(root)
        assert len(found) in (len(none), len(none) + 60)
        home = tmp_path / f"home-{root.name}"
        again = root is stores[0]
        accept = partial(assert_broker_accepts, sizes=SMALL, expected=found, restart=again)
        tasks.append(pool.submit(accept, root, home, [version]))
    assert len(tasks) == count
    for task in tasks:
        task.result()
