"""What a truncation left behind goes on where the new messages end, if one of them is as long as the one that it was
written over: a broker that starts takes the old ones for its log, and so do we (docs/format.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle.stores import StoreBuilder

from interop.rocketmq import NEWEST, Broker, Sizes
from rmqstore_spark import Store
from rmqstore_spark.store.format.clock import milliseconds_now

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long, pytest.mark.nightly]

SIZES = Sizes(segment=1 << 16, queue_file=2000, index_slots=100, index_items=30)
LOG = Path("commitlog", f"{0:020d}")
LATER = 200_000  # milliseconds from the old messages to the new one


def built(root: Path, bodies: list[bytes], times: list[int]) -> int:
    """A store of these messages of one queue; where its log ends."""
    store = StoreBuilder(root, SIZES.segment, SIZES.queue_file)
    for body, time in zip(bodies, times, strict=True):
        store.append("Orders", body, store_timestamp=time)
    store.close()
    return store.messages[-1].end


def test_by_a_broker_that_was_killed_and_starts(real: None, tmp_path: Path) -> None:
    old, root = tmp_path / "old", tmp_path / "store"
    bodies, first = [b"%04d" % number for number in range(30)], milliseconds_now() - 600_000
    times = [first + 10 * number for number in range(30)]
    built(old, bodies, times)
    end = built(root, [*bodies[:10], b"new!"], [*times[:10], times[-1] + LATER])
    (root / LOG).write_bytes((root / LOG).read_bytes()[:end] + (old / LOG).read_bytes()[end:])
    (root / "abort").touch()
    ours = Store(root).messages(["commitLogOffset"]).read_all()["commitLogOffset"].to_pylist()
    assert len(ours) == 30
    with Broker(NEWEST, root, tmp_path / "home", SIZES) as broker:
        answers = broker.client().run("pull", "Orders", 0, 0, 100)
    assert {each["commitLogOffset"] for each in answers if each["kind"] == "message"} == set(ours)
