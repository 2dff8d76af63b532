"""However many damages are told at once, check says the same, and more of them need no more memory."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from oracle import damaged_logs, stores
from support.tables import rows_of

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.segments import Damage
from rmqstore_spark.tables.check import lost
from rmqstore_spark.tables.check.damaged import Damaged
from rmqstore_spark.tables.check.log_view import LogView
from rmqstore_spark.tables.check.lost import Hole, Holes
from rmqstore_spark.tables.check.moment import moment_of
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.queue_units import QueueStretch
from rmqstore_spark.tables.check.table import CHECK


@pytest.mark.parametrize("number", range(4))
def test_however_many_at_once(number: int, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    found = damaged_logs.damaged_log(tmp_path / "store", rng, least=6)
    rows = rows_of(CHECK, found.store.root)
    for most in (1, 2, 5):
        monkeypatch.setattr(lost, "_AT_ONCE", most)
        assert rows_of(CHECK, found.store.root) == rows, most


def holed(root: Path, messages: int) -> tuple[Snapshot, list[stores.Stored]]:
    """A store of one queue."""
    builder = stores.StoreBuilder(root, 1 << 20, 20 * messages)
    for _ in range(messages):
        builder.append()
    builder.close()
    return Snapshot.find(str(root), Files()), builder.messages


def test_which_places_are_damaged() -> None:
    damaged = Damaged()
    assert not damaged.have(np.array([0, 5])).any()
    for start, stop in ((10, 20), (20, 25), (40, 50)):
        damaged.add(start, stop)
    places = np.array([0, 9, 10, 20, 24, 25, 39, 40, 49, 50])
    expected = [False, False, True, True, True, False, False, True, True, False]
    assert damaged.have(places).tolist() == expected
    assert [place in damaged for place in places.tolist()] == expected


def hole(start: int, stop: int) -> Hole:
    return Hole(Damage("a", start, stop, start, "noise"), Finding("damagedUnit", found="noise"))


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_a_message_in_holes_that_follow_each_other(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that reaches over several holes is known to be lost, wherever the holes are told."""
    monkeypatch.setattr(lost, "_AT_ONCE", most)
    store, messages = holed(tmp_path, 6)
    cuts = [0, 1, 60, 90]  # bytes: the second message is torn into four
    second, holes = messages[1], Holes(store)
    edges = [messages[0].position, *(second.position + cut for cut in cuts), *(each.end for each in messages[1:4])]
    told = [each for start, stop in itertools.pairwise(edges) for each in holes.add(hole(start, stop))]
    told += holes.rest()
    assert [each.queue_offset for each in told if each.problem == "lostMessages"] == [0, 1, 2, 3]
    assert len(told) - 4 == len(edges) - 1


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight times the holes hold no more memory: what was told is forgotten, though all of them follow each other."""
    monkeypatch.setattr(lost, "_AT_ONCE", 64)
    store, messages = holed(tmp_path, 1200)

    def held(some: list[stores.Stored]) -> int:
        holes = Holes(store)
        for each in some[:100]:
            told(holes.add(hole(each.position, each.end)))
        tracemalloc.start()
        for each in some[100:]:
            told(holes.add(hole(each.position, each.end)))
        now = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return now

    assert held(messages) < held(messages[:228]) + 16 * 1024


def told(findings: Iterator[Finding]) -> int:
    return sum(1 for _ in findings)


def test_damaged(rng: random.Random) -> None:
    edges = sorted(rng.sample(range(1, 200), 40))
    some = [pair for pair in itertools.pairwise(edges) if rng.random() < 0.6]
    damaged = Damaged()
    for start, stop in some:
        damaged.add(start, stop)
    for position in range(202):
        assert (position in damaged) == any(start <= position < stop for start, stop in some)


def test_runs_take_no_memory_of_their_own(tmp_path: Path) -> None:
    """A damaged log has a run of units for each damage: a queue's units are compared as if they were one run."""

    def most(every: int) -> int:
        builder = stores.StoreBuilder(tmp_path / str(every), 1 << 20, 20 * 600)
        for _ in range(600):
            builder.append()
        builder.close()
        store = Snapshot.find(str(builder.root), Files())
        queues, damaged = QueueStretch(store, LogView(str(builder.root), [], Files(), moment_of(store))), Damaged()
        dispatcher = queues.expected.dispatcher(False)
        data = (builder.root / "commitlog" / f"{0:020}").read_bytes()
        for number, each in enumerate(builder.messages):
            if number % every == 1:
                damaged.add(each.position, each.end)
            else:
                dispatcher.dispatch(
                    data,
                    base=0,
                    position=each.position,
                    stop=each.end,
                    segment_end=1 << 20,
                    verify_crc=False,
                    most=1,
                )
        found = dispatcher.finish()
        assert len(found.run_queue) == max(2, 600 // every)
        tracemalloc.start()
        assert list(queues.check(found, dispatcher.queues, store.end, damaged)) == []
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert most(2) < most(600) + 64 * 1024
