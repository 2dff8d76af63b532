"""A look-up finds every message that has the name, or leaves where it is to a scan, whatever index files say."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from oracle import reference
from oracle.aged_stores import aged_store
from oracle.damage import DAMAGES
from oracle.stores import StoreBuilder
from support import reading

from rmqstore_spark.read.plan.index_evidence import begin_look_up
from rmqstore_spark.read.plan.index_join import Known, NoIndexError, joined
from rmqstore_spark.read.plan.index_path import Found, IndexPath
from rmqstore_spark.read.plan.prune import ranges_of
from rmqstore_spark.read.plan.split import SplitPoints
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.schedule import Serial
from rmqstore_spark.store.snapshot import Snapshot

_Answer = TypeVar("_Answer")


class _AtOnce(Serial):
    """What is begun for later is done at once."""

    def in_background(self, work: Callable[[], _Answer]) -> Future[_Answer]:
        done: Future[_Answer] = Future()
        done.set_result(work())
        return done


class _Ahead(Files):
    schedule = _AtOnce()


def looked_up(root: Path, files: Files, batch: int, monkeypatch: pytest.MonkeyPatch, **selected: Any) -> Found | None:
    """What index files say of all of a store's log; None where they are not used."""
    monkeypatch.setattr("rmqstore_spark.read.plan.index_evidence._AT_ONCE", batch)
    selection = reading.options_of(root, **selected).selection
    store = Snapshot.find(str(root), files)
    if not store.log.extents or not (selection.names or selection.ids):
        return None
    path = IndexPath(store, selection, SplitPoints(), begin_look_up(store, selection))
    try:
        path.price()
        if batch % 2:
            path.price_of(ranges_of(store))
        return path.look_up(ranges_of(store))
    except NoIndexError:
        return None


def assert_nothing_is_hidden(found: Found, positions: set[int]) -> int:
    """How many messages were found in index files."""
    named = {int(position) for piece in found.pieces for position in piece.positions}
    assert all(piece.start <= at < piece.stop for piece in found.pieces for at in piece.positions.tolist())
    for position in positions - named:
        assert any(part.start <= position < part.stop for part in found.rest), position
    return len(positions & named)


@pytest.mark.parametrize("damage", [None, *DAMAGES])
def test_every_name_is_found_or_left_to_a_scan(
    damage: str | None, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With files examined alone, in batches, and before it is known where the log ends. Of some four stores and their
    first few names, index files tell nothing: then more are drawn."""
    found_in_all = 0
    for number in range(40):
        if number >= 4 and (damage is not None or found_in_all > 0):
            break
        root = tmp_path / str(number)
        aged_store(root, rng)
        if damage is not None:
            DAMAGES[damage](root, rng)
        rows = reference.read_store(root)
        names = {row["msgId"] for row in rows if row["msgId"]} | {word for row in rows for word in _words(row)}
        for name in [*rng.sample(sorted(names), min(8, len(names))), "none"]:
            option = rng.choice(("key", "msgId"))
            files = rng.choice((Files, _Ahead))()
            found = looked_up(root, files, rng.choice((1, 2, 3, 64)), monkeypatch, **{option: name})
            if found is not None:
                has = _words if option == "key" else _ids
                found_in_all += assert_nothing_is_hidden(
                    found, {row["commitLogOffset"] for row in rows if name in has(row)}
                )
        shutil.rmtree(root)
    else:
        pytest.fail("index files told of nothing")


def _words(row: dict[str, Any]) -> set[str]:
    return set((row["keys"] or "").split())


def _ids(row: dict[str, Any]) -> set[str]:
    return {row["msgId"]}


@pytest.mark.parametrize("cuts", [[], [(20, 10)], [(20, 25)], [(8, 12), (30, 12)], [(8, 30), (24, 12)]])
def test_a_master_that_came_back_has_cut_its_log(
    cuts: list[tuple[int, int]], tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its index has what was cut, and nothing else before the log is as long as it was. All within one file."""
    index, log = reference.Index(50, 400), tmp_path / "log"
    store = StoreBuilder(log, segment_size=64 * 1024)
    ends = [store.end]

    def grow(builder: StoreBuilder, name: str, count: int) -> None:
        for number in range(count):
            size = 40 if name == "kept" else 60  # so that what was cut ends where no message of the log does
            key = f"{name}-{number}"
            builder.append(keys=key, msg_id=f"id-{key}", body=rng.randbytes(size))
            last = builder.messages[-1]
            index.put(last.topic, [f"id-{key}", key], last.position, last.store_timestamp)

    for number, (before, lost) in enumerate([*cuts, (60, 0)]):
        grow(store, f"kept-{number}", before)
        ends.append(store.end)
        gone = StoreBuilder(tmp_path / f"gone-{number}", segment_size=64 * 1024)
        gone.end, gone.now = store.end, store.now + 5000
        grow(gone, "lost", lost)
        store.now += 60_000
    store.close()
    (log / "index").mkdir()
    ((number, file),) = index.files
    file.save(log / "index" / f"{20240101000000000 + number}")
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in enumerate(ends[:-1], 1))
    (log / "epochFileCheckpoint").write_text(f"{len(ends) - 1}\n0\n{lines}")
    found_in_all = 0
    for row in reference.read_store(log):
        found = looked_up(log, Files(), 1, monkeypatch, key=row["keys"])
        assert found is not None
        found_in_all += assert_nothing_is_hidden(found, {row["commitLogOffset"]})
    assert found_in_all >= 50 or len(cuts) > 1
    (log / "epochFileCheckpoint").rename(log / "epochFileCheckpoint.bak")  # which may lack the last term
    for junk in (None, b"", b"junk"):
        if junk is not None:
            (log / "epochFileCheckpoint").write_bytes(junk)
        for row in list(reference.read_store(log))[::4]:
            found = looked_up(log, Files(), 1, monkeypatch, key=row["keys"])
            assert found is None or assert_nothing_is_hidden(found, {row["commitLogOffset"]}) == 0
        assert reading.read(log, columns=["keys"], key=row["keys"]) == [{"keys": row["keys"]}]


def test_what_files_know_is_joined(rng: random.Random) -> None:
    """Of messages at 0, 10, 20 and so on: each is known once, and with every position that a file names there. What two
    files say together of the message between them is known only where the second surely comes next."""
    for _ in range(100):
        edges = [10 * each for each in sorted(rng.sample(range(40), 2 * rng.randint(1, 5)))]
        known: list[Known] = []
        selected = set(rng.sample(range(0, 400, 10), 15))
        together: list[range] = []
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            start -= rng.choice((0, 0, 10)) if start >= 10 else 0  # overlaps with the one before, where that is near
            if known and start > known[-1].stop and rng.random() < 0.7:
                known[-1] = replace(known[-1], followed_by=(known[-1].stop, start - 10))
                together.append(range(known[-1].stop, start, 10))
            # A file names the message before its start, too, which proves it, and the one at its end.
            positions = np.array(sorted(selected & set(range(start - 10, stop + 10, 10))), np.int64)
            known.append(Known("", start, stop, positions, start - 10, ()))
        found = joined(rng.sample(known, len(known)))
        covered = [at for each in found for at in range(each.start, each.stop, 10)]
        expected = {at for each in known for at in range(each.start, each.stop, 10)}.union(*together)
        assert covered == sorted(expected)
        for each in found:
            here = {at for at in each.positions.tolist() if each.start <= at < each.stop}
            if each.stop - each.start == 10:
                assert here == selected & {each.start}
