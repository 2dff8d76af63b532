"""Small appends, written behind the end of the log where it is: all or nothing, and nothing else changes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from support import writing
from support.killing import STOPS, Killed, Stopper, ids, ours, rows, state, stopped_at_every_change, stopped_writes
from support.writing import write

import rmqstore_spark
from rmqstore_spark.errors import DamagedStoreError, RmqStoreError
from rmqstore_spark.query.option_values import WriteId
from rmqstore_spark.read.follow.edge import Edge
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.log_end import LogEnd
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures import checkpoint
from rmqstore_spark.write.build import checked, patch
from rmqstore_spark.write.build.stretch import Laying
from rmqstore_spark.write.build.target import inspect
from rmqstore_spark.write.commit import Settings, commit
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.publish.publication import AppendInPlace

SIZES = Sizes(segment=8192, queue_file=400, slots=10, items=100)


def old_store(root: Path, count: int = 40) -> list[str]:
    write(root, rows(count, "Old"), sizes=SIZES)
    return ids(root)


def last_used(root: Path) -> Path:
    return [path for path in reference.segment_files(root) if any(path.read_bytes())][-1]


def inode(root: Path) -> int:
    return last_used(root).stat().st_ino


def test_the_segment_stays(tmp_path: Path) -> None:
    old = old_store(tmp_path)
    before = inode(tmp_path)
    for number in range(3):
        write(tmp_path, rows(2, "New", 1000 + 10 * number), sizes=SIZES)
    assert inode(tmp_path) == before
    new = [f"New-{number}" for number in (1000, 1001, 1010, 1011, 1020, 1021)]
    assert [row["msgId"] for row in writing.assert_whole(tmp_path, SIZES)] == [*old, *new]


def test_else_it_is_copied(tmp_path: Path) -> None:
    """Where its file has another name, a snapshot's for example; where something is left behind its end; where the next
    one is in use or a blank would be in two sectors; and where the messages do not fit."""
    root, snapshot = tmp_path / "store", tmp_path / "snapshot"
    expected = old_store(root)
    firsts = itertools.count(10_000, 1000)  # not random: where the log ends would be, too, at times between two sectors

    def is_copied(count: int = 1) -> bool:
        before = inode(root)
        first = next(firsts)
        write(root, rows(count, "New", first), sizes=SIZES)
        expected.extend(f"New-{first + i}" for i in range(count))
        assert [row["msgId"] for row in writing.assert_whole(root, SIZES)] == expected
        return inode(root) != before

    assert not is_copied()
    shutil.copytree(root / "commitlog", snapshot, copy_function=os.link)
    taken = writing.files(snapshot, "*")
    assert is_copied()
    assert writing.files(snapshot, "*") == taken
    assert not is_copied()
    assert is_copied(60)
    assert not is_copied()
    end = len(last_used(root).read_bytes().rstrip(b"\0"))
    with last_used(root).open("r+b") as file:
        file.seek(end + 100)
        file.write(b"left over")
    assert is_copied()


def test_what_a_broker_has_cut_off_stays_so(tmp_path: Path) -> None:
    """A whole message far behind the end of the log, older than the last one, but not than one that is appended."""
    old = old_store(tmp_path)
    position, unit = list(reference.read_units(tmp_path))[-1]
    left = position + 1000
    data = bytearray(unit)
    data[20:36] = struct.pack(">qq", 500, left)  # its queue offset, as no message has it now
    data[56:64] = struct.pack(">q", 1_700_000_000_020)
    with last_used(tmp_path).open("r+b") as file:
        file.seek(left % 8192)
        file.write(data)
    write(tmp_path, rows(1, "New", 10), sizes=SIZES)
    found = rmqstore_spark.Store(tmp_path).messages(["msgId"]).read_all().column(0).to_pylist()
    assert found == [*old, "New-10"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("error", STOPS)
def test_stopped_at_every_change(home: Path, stop: Stopper, error: type[BaseException]) -> None:
    before = home / "before"
    old_store(before)
    end = Snapshot.find(str(before), Files()).end
    for root, all_there in stopped_writes(home, stop, error, rows(3, "New", 1000), SIZES):
        if not all_there:  # who follows the log must not be told that it goes on after the blank
            assert Snapshot.find(str(root), Files()).end == end
        if error is not Killed and not all_there:
            spare = {name: data for name, data in state(root).items() if "commitlog" not in name or any(data)}
            assert spare == state(before)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["_walk", "find"])
def test_a_reader_beside_a_write(
    home: Path, stop: Stopper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """It has walked to the end of the log, and has yet to look behind that for what proves that the log goes on; or it
    has found the end. Then the write makes none of its changes, the first one, the first two, and so on."""
    before, root = home / "before", home / "store"
    none, take = old_store(before), getattr(LogEnd, step)
    all_ = none + [f"New-{number}" for number in range(1000, 1003)]
    acts: list[Callable[[], object]] = []

    def taken(finder: LogEnd, *given: Any) -> Any:
        found = take(finder, *given)
        if acts:
            with contextlib.suppress(Killed):
                acts.pop()()
        return found

    monkeypatch.setattr(LogEnd, step, taken)
    found: list[list[str]] = []
    for allowed in itertools.count():
        shutil.copytree(before, root)
        _, staged = writing.stage_rows(root, [rows(3, "New", 1000)])
        stop.at(allowed)
        acts.append(partial(commit, str(root), staged, Settings(SIZES)))
        found.append(ours(root))
        made = stop.calls
        stop.at(None)
        assert ours(root) in (none, all_)
        shutil.rmtree(root)
        if made <= allowed:
            break
    assert all(each in (none, all_) for each in found)
    assert (all_ in found) == (step == "_walk")
    assert caplog.messages == []


def go_on_as_a_broker(root: Path, unit: bytes) -> None:
    """A message where one that recovers the store sees the end of its log: after the last unit; or at the beginning of
    the next segment, where a blank closes the one before."""
    units = list(reference.read_units(root))
    end = units[-1][0] + len(units[-1][1]) if units else 0
    for path in reference.segment_files(root):
        start, data = int(path.name), path.read_bytes()
        if start <= end < start + len(data) and reference.is_blank(data[end - start :][:8], start + len(data) - end):
            end = start + len(data)
    path = next(path for path in reference.segment_files(root) if 0 <= end - int(path.name) < path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(end - int(path.name))
        file.write(unit[:28] + struct.pack(">q", end) + unit[36:])


@pytest.mark.slow
def test_a_broker_goes_on_after_a_kill(home: Path, stop: Stopper) -> None:
    """With a message as long as the first of ours: what we had not published must not follow it, whatever recovers the
    store then. And the next write leaves nothing of it."""
    before, root = home / "before", home / "store"
    none = old_store(before)
    new = rows(3, "New", 1000)
    all_ = none + [row["msgId"] for row in new]
    shutil.copytree(before, root)
    write(root, new, sizes=SIZES)
    units = dict(reference.read_units(root))
    unit = units[sorted(units)[len(none)]]
    assert reference.decode_unit(unit, 0)["msgId"] == all_[len(none)]

    def begin() -> Callable[[], object]:
        shutil.rmtree(root)
        shutil.copytree(before, root)
        _, staged = writing.stage_rows(root, [new])
        return lambda: commit(str(root), staged, Settings(SIZES))

    outcomes = set()
    for _ in itertools.islice(stopped_at_every_change(stop, begin, backwards=True), 50):
        found = ids(root)
        outcomes.add(found == all_)
        if found == all_:
            continue
        go_on_as_a_broker(root, unit)
        assert ids(root) == [*none, "New-1000"]
        (root / "checkpoint").write_bytes(checkpoint.encode(0, 0, 0))
        (root / "abort").unlink(missing_ok=True)
        rmqstore_spark.rebuild(root)
        write(root, rows(1, "Next"), sizes=SIZES)
        assert [row["msgId"] for row in reference.read_store(root)] == [*none, "New-1000", "Next-0"]
    assert outcomes == {False, True}


def test_a_message_as_long_as_ours_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer is killed before any of its messages is there, and a broker writes one of the same size in their place:
    the write that is tried again must not be taken for done."""
    root, other = tmp_path / "store", tmp_path / "other"
    old = old_store(root)
    shutil.copytree(root, other)
    new = rows(1, "New", 1000)
    write(other, new, sizes=SIZES)
    unit = list(reference.read_units(other))[-1][1]
    settings = Settings(SIZES, write_id=WriteId("application", 1))

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Laying, "lay", kill)
        with pytest.raises(Killed):
            commit(str(root), writing.stage_rows(root, [new])[1], settings)
    go_on_as_a_broker(root, unit[:-1] + b"\0")  # its last property ends otherwise
    (root / "checkpoint").write_bytes(checkpoint.encode(0, 0, 0))
    (root / "abort").unlink()
    rmqstore_spark.rebuild(root)
    commit(str(root), writing.stage_rows(root, [new])[1], settings)
    assert len(ids(root)) == len(old) + 2


def trap(root: Path, start: int, size: int, segment: int) -> None:
    """What a killed writer may have left, but for the place that it names."""
    home = root / ".rmqstore-spark" / "commit"
    (home / "new").mkdir(parents=True)
    (home / "old").mkdir()
    stretch = {"segment": segment, "segment_size": 8192, "start": start, "size": size, "head": "00" * 8}
    stretch["digest"] = "00" * 32
    text = {"version": 1, "made": {}, "had_topics": True, "has_topics": False, "stretch": stretch}
    (home / "journal").write_text(json.dumps(text))
    (root / "checkpoint").unlink()
    (root / "abort").write_bytes(b"rmqstore-spark")


@pytest.mark.parametrize("broker", [False, True])
def test_no_journal_takes_a_message(home: Path, rng: random.Random, broker: bool) -> None:
    """Whatever place it names: in a message, at a message, at a closing blank, at the end."""
    before, root = home / "before", home / "store"
    old = old_store(before, 90)
    starts = [at for at, _ in reference.read_units(before)]
    segments = reference.segment_files(before)
    ends = [int(path.name) + len(path.read_bytes().rstrip(b"\0")) for path in segments]
    ends += [end - 8 for end in ends]
    places = [*rng.sample(starts, 5), *(at + rng.randrange(150) for at in rng.sample(starts, 10)), *ends]
    for start in places:
        shutil.copytree(before, root)
        segment = start - start % 8192
        trap(root, start, rng.randrange(9, max(10, segment + 8192 - 8 - start)), segment)
        if broker:
            (root / "checkpoint").write_bytes(checkpoint.encode(0, 0, 0))
            (root / "abort").unlink()
        rmqstore_spark.rebuild(root)
        assert ids(root) == old
        shutil.rmtree(root)


def test_no_journal_takes_for_ever(tmp_path: Path) -> None:
    """A stretch of a terabyte no writer makes."""
    old = old_store(tmp_path)
    end = Snapshot.find(str(tmp_path), Files()).end
    trap(tmp_path, end, 1 << 40, end - end % 8192)
    journal = tmp_path / ".rmqstore-spark" / "commit" / "journal"
    journal.write_text(journal.read_text().replace('"segment_size": 8192', '"segment_size": 2199023255552'))
    rmqstore_spark.rebuild(tmp_path)
    assert ids(tmp_path) == old
    assert list((tmp_path / ".rmqstore-spark").glob("aside-*/journal"))


@pytest.mark.parametrize("version", ["true", "1.0", '"1"', "null", "0"])
def test_a_journal_has_a_whole_number_as_its_version(tmp_path: Path, version: str) -> None:
    old = old_store(tmp_path)
    trap(tmp_path, 4096, 100, 0)
    journal = tmp_path / ".rmqstore-spark" / "commit" / "journal"
    journal.write_text(journal.read_text().replace('"version": 1', f'"version": {version}'))
    rmqstore_spark.rebuild(tmp_path)
    assert ids(tmp_path) == old
    assert list((tmp_path / ".rmqstore-spark").glob("aside-*/journal"))


def test_a_segment_is_read_again_only_if_it_was_touched(tmp_path: Path) -> None:
    """What flips a bit and leaves the file's times alone, is a disk: no append can tell, only `check`."""

    def bytes_read() -> int:
        with Tree(str(tmp_path)) as tree:
            inspect(tree, SIZES, {"New": 1})
            return tree.files.bytes

    old_store(tmp_path)
    before = bytes_read()
    write(tmp_path, rows(1, "New"), sizes=SIZES)
    assert before - bytes_read() > 4000  # of a segment of 8192
    data = bytearray(last_used(tmp_path).read_bytes())
    data[95] ^= 1  # in a body
    last_used(tmp_path).write_bytes(data)
    with pytest.raises(DamagedStoreError, match="a damaged store is not written to"):
        write(tmp_path, rows(1, "New", 1), sizes=SIZES)


@pytest.mark.parametrize("wrong", ["true", "1.5", '"7"', "-1", "null"])
def test_what_was_checked_is_data(tmp_path: Path, wrong: str) -> None:
    """A number of ours is a whole one; what else stands there is not believed, and the segment is read."""
    old_store(tmp_path)
    write(tmp_path, rows(1, "New"), sizes=SIZES)
    noted = tmp_path / ".rmqstore-spark" / "checked.json"
    store = Snapshot.find(str(tmp_path), Files())
    sound = json.loads(noted.read_bytes())
    with Tree(str(tmp_path)) as tree:
        segment = store.log.extents[-1].segment
        assert checked.recall(tree, segment, store.end) == {
            topic: {int(queue_id): end for queue_id, end in of.items()} for topic, of in sound["queues"].items()
        }
        for found in ({**sound, "queues": {"New": {"0": json.loads(wrong)}}}, {**sound, "size": json.loads(wrong)}):
            noted.write_text(json.dumps(found))
            assert checked.recall(tree, segment, store.end) is None


def test_the_index_file_stays(tmp_path: Path) -> None:
    root, other = tmp_path / "store", tmp_path / "snapshot"
    old_store(root, 20)
    (index,) = (root / "index").iterdir()
    before = index.stat().st_ino
    write(root, rows(2, "New"), sizes=SIZES)
    assert index.stat().st_ino == before
    other.hardlink_to(index)
    taken = other.read_bytes()
    write(root, rows(2, "New", 2), sizes=SIZES)
    assert other.read_bytes() == taken
    assert index.read_bytes() != taken
    writing.assert_whole(root, SIZES)


def test_no_index_lacks_entries_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = old_store(tmp_path, 20)
    monkeypatch.setattr(patch, "_MOST_BYTES", 100)
    with pytest.raises(RmqStoreError, match="expected at most 100 bytes, found"):
        write(tmp_path, rows(2, "New"), sizes=SIZES)
    assert ids(tmp_path) == old


@pytest.mark.parametrize("wrong", ["cut", "beyond", "linked", "noise"])
def test_changes_of_an_index_file_are_data(home: Path, wrong: str) -> None:
    """Between the commit point and the index somebody meddles: the messages are there all the same, once."""
    root = home / "store"
    expected = [*old_store(root, 20), "New-0", "New-1"]
    _, staged = writing.stage_rows(root, [rows(2, "New")])

    def kill(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AppendInPlace, "complete", kill)
        with pytest.raises(Killed):
            commit(str(root), staged, Settings(SIZES))
    (changes,) = (root / ".rmqstore-spark" / "commit" / "new" / "patches").iterdir()
    data = changes.read_bytes()
    (index,) = (root / "index").iterdir()
    if wrong == "cut":
        changes.write_bytes(data[:-1])
    elif wrong == "beyond":
        changes.write_bytes(data + struct.pack("=qi", 1 << 40, 1) + b"x")
    elif wrong == "noise":
        changes.write_bytes(b"noise")
    else:
        (home / "link").hardlink_to(index)
    taken = index.read_bytes()
    rmqstore_spark.rebuild(root)
    assert [row["msgId"] for row in reference.read_store(root)] == expected
    if wrong == "linked":
        assert (home / "link").read_bytes() == taken
    write(root, rows(1, "Next"), sizes=SIZES)
    assert ids(root) == [*expected, "Next-0"]


def test_who_follows_the_log_misses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also who looks while the messages are hidden behind a blank: the log has not gone on in the next segment."""
    old_store(tmp_path)
    edge = Edge(str(tmp_path), Files())
    places = [edge.look().position]

    def look_and_publish(laying: Laying, publish: Callable[[Laying], None] = Laying.publish) -> None:
        places.extend([edge.look().position, Edge(str(tmp_path), Files()).look().position])
        publish(laying)

    monkeypatch.setattr(Laying, "publish", look_and_publish)
    write(tmp_path, rows(2, "New"), sizes=SIZES)
    assert places == [places[0]] * 3
    assert edge.look().position == Snapshot.find(str(tmp_path), Files()).end > places[0]
