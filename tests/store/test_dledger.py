"""A log of DLedger, alone and behind an ordinary one: what is read is what a node that starts on it takes for its log,
whatever was rolled back; damage is told; queues, selections, tables, check and copies are as of an ordinary store."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracle import dledger, reference
from oracle.dledger import DLedgerStoreBuilder
from oracle.stores import StoreBuilder
from support import flavours
from support.following import Query, assert_followed, stream_options
from support.reading import FREE, forced_plan, make_plan, options_of, read

from rmqstore_spark import Store
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.read.explain import explanation
from rmqstore_spark.read.follow.edge import Edge
from rmqstore_spark.read.pieces.task import Queued
from rmqstore_spark.store.entry_evidence import _next_of
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.dledger import DLEDGER
from rmqstore_spark.store.structures.entries import Entry

TOPICS = ("Orders", "Payments", "Mails")


def message(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "topic": rng.choice(TOPICS),
        "body": rng.randbytes(rng.choice((0, 20, 20, 300, 1500))),
        "queue_id": rng.randrange(2),
        "tags": rng.choice((None, "a", "b")),
        "keys": f"k{number % 40}",
        "msg_id": f"{number:032X}",
    }


def grown(rng: random.Random, builder: DLedgerStoreBuilder, count: int) -> None:
    """Some more entries; a few of them without a message."""
    for _ in range(count):
        if rng.random() < 0.1:
            builder.append_empty(rng.choice((2, 3)))
        builder.append(**message(rng, builder.index))


def rolled_back(rng: random.Random, builder: DLedgerStoreBuilder) -> None:
    """A leader's last entries reach no other node; then it follows a leader of a later term."""
    builder.flush()
    builder.holding = True
    kept = builder.index
    grown(rng, builder, rng.randrange(1, 20))
    builder.cut(kept + rng.randrange(builder.index - kept))
    builder.holding = False
    builder.term += rng.randrange(1, 3)


def random_store(rng: random.Random, root: Path, ends_cut: bool = False) -> DLedgerStoreBuilder:
    """A node's store with a past."""
    size = rng.choice((8192, 16384, 65536))
    classic = None
    if rng.random() < 0.4:
        classic = StoreBuilder(root, size, index=True)
        for number in range(rng.randrange(1, 60)):
            classic.append(**message(rng, 10_000 + number))
    builder = DLedgerStoreBuilder(root, size, classic=classic, index=classic is None)
    for _ in range(rng.randrange(1, 4)):
        grown(rng, builder, rng.randrange(1, 60))
        if rng.random() < 0.7:
            rolled_back(rng, builder)
            if rng.random() < 0.7:
                grown(rng, builder, rng.randrange(1, 6))
    if ends_cut:
        rolled_back(rng, builder)
    builder.close(clean=rng.random() < 0.5)
    return builder


def positions(rows: list[dict[str, Any]]) -> list[int]:
    return [row["commitLogOffset"] for row in rows]


def recovered(root: Path) -> list[int]:
    """The messages that a node takes for its log, ordinary ones before included."""
    classic = [row["commitLogOffset"] for row in reference.read_store(root)] if (root / "commitlog").exists() else []
    return classic + [entry.position + dledger.HEADER.size for entry in dledger.entries(root) if entry.unit]


@pytest.mark.parametrize("queues", [True, False])
def test_what_a_node_takes_for_its_log(tmp_path: Path, rng: random.Random, queues: bool) -> None:
    more = 0
    for number in range(12):
        builder = random_store(rng, tmp_path / str(number), ends_cut=number % 3 == 0)
        if not queues:
            builder.drop_queues()
        found = recovered(builder.root)
        rows = read(builder.root)
        assert positions(rows) == found
        live = [m.position for m in builder.messages]
        assert found[: len(live)] == live  # and behind them perhaps what was rolled back last
        more += len(found) > len(live)
    assert more > 0


@pytest.mark.parametrize("size", [200, 512, 3000])
def test_windows_of_any_size(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """The order of entries goes on from window to window, and a damaged header is met wherever a window begins."""
    monkeypatch.setattr("rmqstore_spark.store.structures.window._spares", [])  # they are of another size
    monkeypatch.setattr("rmqstore_spark.store.structures.window.WINDOW_SIZE", size)
    builder = DLedgerStoreBuilder(tmp_path, 8192)
    grown(rng, builder, 20)
    builder.flush()
    entry = rng.choice([each for each in dledger.entries(tmp_path) if each.unit][:-1])
    at, whole = rng.randrange(4, 32), entry.path.read_bytes()  # its size, index, term or position
    changed = bytearray(whole)
    changed[entry.position % 8192 + at] ^= 1 << rng.randrange(8)
    entry.path.write_bytes(changed)
    (tmp_path / "abort").touch()
    assert positions(read(tmp_path, mode="DROPMALFORMED")) == [message.position for message in builder.messages]
    if not 8 <= at < 24:
        with pytest.raises(RmqStoreError, match="entry"):
            read(tmp_path)
    entry.path.write_bytes(whole)
    rolled_back(rng, builder)
    grown(rng, builder, rng.randrange(3))
    builder.close(clean=False)
    assert positions(read(tmp_path)) == recovered(tmp_path)


def test_check_finds_a_damaged_size_at_the_start_of_a_file(tmp_path: Path, rng: random.Random) -> None:
    builder = DLedgerStoreBuilder(tmp_path, 8192)
    builder.append(**message(rng, 0))
    grown(rng, builder, 5)
    builder.close()
    data = bytearray(builder.segment(0).read_bytes())
    data[6] ^= 1 << rng.randrange(8)
    builder.segment(0).write_bytes(data)
    (found,) = (row for row in Store(tmp_path).table("check").to_pylist() if row["problem"] == "damagedUnit")
    assert (found["commitLogOffset"], found["count"]) == (0, 48)


def test_a_left_over_unit_just_behind_the_end(tmp_path: Path) -> None:
    """New entries lie on the header of an old one, and end where its unit begins."""
    builder = DLedgerStoreBuilder(tmp_path)
    builder.append("A", b"kept")
    builder.holding = True
    for text in (b"one", b"two"):
        builder.append("A", text)
    builder.cut(1)
    builder.holding = False
    builder.term += 1
    builder.append_empty(3)
    builder.append("A", b"new")
    builder.close()
    assert [row["body"] for row in read(tmp_path)] == [b"kept", b"new"]


def test_left_over_units_of_queues_prove_no_left_over_entry(tmp_path: Path) -> None:
    builder = DLedgerStoreBuilder(tmp_path)
    for number in range(8):
        builder.append("A", b"old", msg_id=f"{number:032X}")
    builder.cut(1)
    builder.term += 1
    builder.append("A", b"new")
    builder.close()
    assert [row["body"] for row in read(tmp_path)] == [b"old", b"new"]


@pytest.mark.parametrize("new", [(b"last",), (b"new", b"last")])
def test_left_over_entries_behind_a_lost_one(new: tuple[bytes, ...], tmp_path: Path) -> None:
    """The last entry's size is damaged, and its queue tells where it ends: the order of entries goes on there, also if
    it is the only one of its term."""
    builder = DLedgerStoreBuilder(tmp_path)
    for number in range(8):
        builder.holding = number > 2
        builder.append("A", b"old" * (number + 1))
    builder.cut(3)
    builder.holding = False
    builder.term += 1
    for body in new:
        builder.append("A", body)
    builder.close()
    last = list(dledger.entries(tmp_path))[-1]
    with builder.segment(0).open("r+b") as file:
        file.seek(last.position + 6)
        file.write(b"\1")
    rows = read(tmp_path, mode="DROPMALFORMED")
    assert [row["body"] for row in rows] == [b"old", b"oldold", b"oldoldold", *new]


@pytest.mark.parametrize("is_queued", [True, False])
@pytest.mark.parametrize("is_noted", [True, False])
def test_a_lying_field_lets_nothing_come_back(
    is_noted: bool, is_queued: bool, tmp_path: Path, rng: random.Random
) -> None:
    """A bit of the last entry's header is flipped: what a later leader had taken back stays so, whatever the bit says.
    Nothing before is missed, nor is the last message where the node has noted its entry."""
    builder = DLedgerStoreBuilder(tmp_path)
    builder.term = 1
    *sizes, last = rng.sample(range(20, 200), 10)  # all differ: entries that go on exactly a node would keep, too
    for number, size in enumerate(sizes):
        if number == 3:
            builder.holding, builder.term = True, 1 + is_noted  # only notes tell these terms apart
        builder.append("A", rng.randbytes(size))
    builder.cut(3)
    builder.holding, builder.term = not is_queued, 2 + is_noted
    builder.append("A", rng.randbytes(last))
    builder.close(clean=False)
    if not is_noted:
        shutil.rmtree(tmp_path / dledger.NAME / "index")
    path, live = builder.segment(0), [message.position for message in builder.messages]
    data, begin = path.read_bytes(), live[-1] - dledger.HEADER.size
    order = [8 * at + bit for at in range(8, 24) for bit in range(8)]  # index and term: half of what is tried
    for bit in rng.sample(order, 10) + rng.sample(range(8 * dledger.HEADER.size), 10) + [8 * 15, 8 * 23, 8 * 23 + 1]:
        changed = bytearray(data)
        changed[begin + bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        rows = positions(read(tmp_path, mode="DROPMALFORMED"))
        assert rows[:3] == live[:3], bit
        assert rows[3:] == live[3:] or (not is_noted and not rows[3:]), bit


def test_a_real_one(tmp_path: Path) -> None:
    root = flavours.unpack_store("dledger", tmp_path)
    rows = read(root)
    assert positions(rows) == recovered(root)
    assert len(rows) == 19
    problems = {row["problem"] for row in Store(root).check().to_pylist() if row["severity"] != "info"}
    assert problems == set()


def test_the_queues_prove_the_log(tmp_path: Path, rng: random.Random) -> None:
    """As in an ordinary store: with queues that cover the log, nothing of it is read but what was asked for."""
    builders = DLedgerStoreBuilder(tmp_path / "dledger", 65536), StoreBuilder(tmp_path / "plain", 65536)
    for _ in range(400):
        topic, body = rng.choice(("A", *"B" * 20)), rng.randbytes(500)
        for builder in builders:
            builder.append(topic, body)
    plans: list[tuple[str, int]] = []
    for builder in builders:
        builder.close(clean=False)
        planned = make_plan(builder.root, prices=FREE, subscribe="A", maxPartitionBytes="100k")
        pieces = [piece for task in planned.tasks for piece in task.ranges]
        assert all(isinstance(piece, Queued) for piece in pieces)
        rows = read(builder.root, prices=FREE, subscribe="A")
        assert positions(rows) == [m.position for m in builder.messages if m.topic == "A"]
        plans += [(access.name, len(access.pieces)) for _, access in planned.accesses]
    (name, count), (plain_name, plain_count) = plans
    assert name == plain_name
    assert abs(count - plain_count) <= 1  # headers of entries move the places where the log is cut


@pytest.mark.parametrize("options", [{}, {"subscribe": "A"}, {"subscribe": "A", "key": "k7"}])
def test_a_plan_reads_as_little(tmp_path: Path, options: dict[str, Any]) -> None:
    """However many segments and index files there are, a plan makes hardly more requests than on an ordinary store.
    DLedger's own index is a file of 160 MiB, and is not opened."""
    for count in (40, 400):
        costs = []
        for kind in (StoreBuilder, DLedgerStoreBuilder):
            builder = kind(tmp_path / f"{kind.__name__}{count}", 4096, index=True)
            for number in range(count):
                builder.append("AB"[number % 2], b"x" * 600, keys=f"k{number}")  # as many in each segment
            builder.close()
            if isinstance(builder, DLedgerStoreBuilder):
                builder.checkpoint(count - 1, count - 1)
                index = builder.root / dledger.NAME / "index" / f"{0:020d}"
                index.unlink()
                index.symlink_to(tmp_path / "nothing")
            files = Files()
            forced_plan(options_of(builder.root, **options), files)
            costs.append((files.requests, files.bytes))
        plain, wrapped = costs
        assert wrapped[0] <= plain[0] * 1.15 + 8
        assert wrapped[1] <= plain[1] + 12_000


def test_what_a_node_had_noted(tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture) -> None:
    """All that a broker keeps is read, and what may be taken back is told; committed=true ends before it."""
    for number in range(12):
        builder = random_store(rng, tmp_path / str(number))
        entries = list(dledger.entries(builder.root))
        committed, end = sorted(rng.randrange(-1, entries[-1].number + 1) for _ in range(2))
        builder.checkpoint(committed, end)
        caplog.clear()
        everything = positions(read(builder.root))
        assert everything == recovered(builder.root)
        told = [text for text in caplog.messages if "behind committedIndex" in text]
        last = max(entry.number for entry in entries if entry.unit)
        (row,) = [row for row in Store(builder.root).check().to_pylist() if row["problem"] == "uncommitted"] or [None]
        if last == committed == end:
            assert (told, row) == ([], None)
        elif last > committed:
            assert f"{last - committed} behind committedIndex {committed}, {max(last - end, 0)} behind" in told[0]
            assert row is not None
            assert (row["severity"], row["count"]) == ("info", last - committed)
            assert row["expected"] == f"committedIndex {last}"
            assert "may be taken back" in str(explanation(str(builder.root), {}))
        kept = {e.position + dledger.HEADER.size for e in entries if e.unit and e.number <= committed}
        kept |= {position for position in everything if position < entries[0].position}
        assert positions(read(builder.root, committed=True)) == sorted(kept)


def test_notes_that_are_ahead(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An entry that is committed is never taken back: a log without it has lost its end."""
    builder = DLedgerStoreBuilder(tmp_path)
    for _ in range(3):
        builder.append()
    builder.close()
    builder.checkpoint(2, 2)
    assert (len(read(tmp_path)), caplog.messages) == (3, [])
    builder.checkpoint(5, 5)
    for committed in (False, True):
        caplog.clear()
        assert len(read(tmp_path, committed=committed)) == 3
        (text,) = caplog.messages
        assert "expected entries up to index 5, which the node had noted as committed, found index 2 last" in text


def test_notes_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only who asks for them gets an error."""
    builder = DLedgerStoreBuilder(tmp_path)
    builder.append()
    builder.close()
    (tmp_path / dledger.NAME / "checkpoint").mkdir()
    assert len(read(tmp_path)) == 1
    with pytest.raises(RmqStoreError, match="checkpoint: expected a regular file, found a directory"):
        read(tmp_path, committed=True)
    (tmp_path / dledger.NAME / "checkpoint").rmdir()
    assert caplog.messages == []
    assert len(read(tmp_path, committed=True)) == 1
    assert "expected committedIndex" in caplog.messages[0]


@pytest.mark.parametrize("text", ["", "committedIndex=x\nendIndex=3\n", "endIndex=3", "\xff" * 5000])
def test_notes_that_cannot_be_understood(tmp_path: Path, text: str) -> None:
    builder = DLedgerStoreBuilder(tmp_path)
    builder.append()
    builder.close()
    (tmp_path / dledger.NAME / "checkpoint").write_text(text, "latin-1")
    assert len(read(tmp_path)) == len(read(tmp_path, committed=True)) == 1


def nodes_of(rng: random.Random, root: Path, leaders: list[tuple[int, ...]] | None = None) -> list[DLedgerStoreBuilder]:
    """Three nodes of one log: entries that all have, then what the leaders of several terms brought to some of them. A
    node that comes to a later leader first gives up what this one does not have.

    Args:
        leaders: of each term the leader's number, and those of the nodes that follow it; None: any.
    """
    size = rng.choice((8192, 65536))
    seed = rng.random()
    nodes = []
    for number in range(3):
        builder, same = DLedgerStoreBuilder(root / f"n{number}", size), random.Random(seed)
        for count in range(same.randrange(1, 40)):
            builder.append(**message(same, count))
        builder.flush()
        builder.holding = True
        nodes.append(builder)
    if leaders is None:
        leaders = [tuple(rng.sample(range(3), rng.randint(1, 3))) for _ in range(rng.randrange(3))]
    for term, (first, *followers) in enumerate(leaders, 1):
        leader = nodes[first]
        leader.term = term
        for number in range(rng.randrange(1, 8)):
            leader.append(**message(rng, 100 * term + number))
        leader.flush()
        log = list(dledger.entries(leader.root))
        for follower in map(nodes.__getitem__, followers):
            follower.flush()
            their = list(dledger.entries(follower.root))
            differ = (n for n, entry in enumerate(their) if n >= len(log) or log[n][:4] != entry[:4])
            cut = next(differ, None)
            if cut is not None:
                follower.cut(cut)
            for entry in log[follower.index :]:
                follower.take(entry)
    for node in nodes:
        node.holding = False
        node.close(clean=rng.random() < 0.5)
    return nodes


def agree(nodes: list[DLedgerStoreBuilder], caplog: pytest.LogCaptureFixture) -> int:
    """What is read of nodes ends with the last entry that two of three have; each message comes once. How many nodes
    have more, or other ones."""
    logs = [{(e.number, e.term): e for e in dledger.entries(node.root)} for node in nodes]
    shared = {name for log in logs for name in log if sum(name in other for other in logs) >= 2}
    best = next(log for log in logs if max(shared) in log)
    expected = {e.position + dledger.HEADER.size: e.unit for name, e in best.items() if name <= max(shared)}
    caplog.clear()
    rows = read(*(node.root for node in nodes), deduplicate=True)
    assert positions(rows) == list(expected)
    bodies = [reference.decode_unit(unit, at)["body"] for at, unit in expected.items()]
    assert [row["body"] for row in rows] == bodies
    beyond = sum(not set(log) <= set(best) or max(log) > max(shared) for log in logs)
    assert sum("are left out" in text for text in caplog.messages) == beyond
    return beyond


def test_nodes_together(tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture) -> None:
    some_differ = 0
    for number in range(100):
        if number >= 15 and some_differ:
            break
        some_differ += agree(nodes_of(rng, tmp_path / str(number)), caplog) > 0
    assert some_differ > 0


@pytest.mark.parametrize(
    ("leaders", "beyond"),
    [
        ([(0, 1), (2,)], 1),  # the third one has other entries than two
        ([(0, 1), (1, 0), (2,)], 1),
        ([(0,), (1, 2)], 1),
        ([(0,), (1,), (2,)], 3),
        ([(0, 1, 2), (0,), (1,), (2, 1)], 1),
    ],
)
def test_nodes_that_went_apart(
    leaders: list[tuple[int, ...]], beyond: int, tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    """What they have in common is found in the middle of their logs."""
    assert agree(nodes_of(rng, tmp_path, leaders), caplog) == beyond


def test_both_logs_in_one_address_space(tmp_path: Path, rng: random.Random) -> None:
    """A store that began without DLedger: selections, tables, check, streams and a copy go over the border."""
    root = tmp_path / "store"
    classic = StoreBuilder(root, 8192, index=True)
    for number in range(40):
        classic.append(**message(rng, number))
    builder = DLedgerStoreBuilder(root, 8192, classic=classic)
    for number in range(40, 80):
        builder.append(**message(rng, number))
    builder.close()
    rows = read(root)
    assert positions(rows) == recovered(root) == [m.position for m in builder.messages]
    files = Store(root).segments().to_pylist()
    border = int(next(iter(sorted((root / "dledger-n0" / "data").iterdir()))).name)
    assert [row["startOffset"] for row in files] == [*range(0, 8192 * len(files), 8192)]
    assert len(list((root / "commitlog").iterdir())) * 8192 == border
    assert rows[39]["commitLogOffset"] < border <= rows[40]["commitLogOffset"]
    topic, queue_id = rows[39]["topic"], rows[39]["queueId"]
    of_queue = [row for row in rows if (row["topic"], row["queueId"]) == (topic, queue_id)]
    around = (
        [row["queueOffset"] for row in of_queue if row["commitLogOffset"] < border][-2],
        of_queue[-1]["queueOffset"],
    )
    for wanted, options in (
        ([row for row in rows if row["topic"] == topic], {"subscribe": topic}),
        ([row for row in rows if row["keys"] == "k7"], {"key": "k7"}),  # one in each log
        ([row for row in rows if row["tags"] == "a"], {"tags": "a"}),
        (
            [row for row in of_queue if around[0] <= row["queueOffset"] < around[1]],
            {
                "assign": json.dumps({topic: [queue_id]}),
                "startingOffsets": json.dumps({topic: {queue_id: around[0]}}),
                "endingOffsets": json.dumps({topic: {queue_id: around[1]}}),
            },
        ),
    ):
        assert wanted
        assert read(root, **options) == wanted, options
    assert {row["commitLogOffset"] < border for row in read(root, key="k7")} == {True, False}
    assert sum(row["messages"] for row in Store(root).queues().to_pylist()) == len(rows)
    assert [row for row in Store(root).check().to_pylist() if row["severity"] == "error"] == []
    query = Query(root, startingOffsets="earliest", maxOffsetsPerTrigger=9)
    query.run()
    assert positions(query.rows) == positions(rows)
    Store(root).copy(tmp_path / "copy")
    same = ("topic", "queueId", "queueOffset", "keys", "tags", "body", "storeTimestamp")
    assert [[row[name] for name in same] for row in read(tmp_path / "copy")] == [[row[n] for n in same] for row in rows]
    assert not list((tmp_path / "copy").glob("dledger*"))
    for lost in (rows[12], rows[55]):  # a damaged message in either log is told, and costs no other
        path = Path(
            next(row["file"] for row in files if row["startOffset"] <= lost["commitLogOffset"] < row["endOffset"])
        )
        data = bytearray(path.read_bytes())
        data[lost["commitLogOffset"] % 8192 + 4] ^= 1
        path.write_bytes(data)
        with pytest.raises(RmqStoreError, match=path.name):
            read(root)
        kept = positions(read(root, mode="DROPMALFORMED"))
        assert kept == [at for at in positions(rows) if at != lost["commitLogOffset"]]
        data[lost["commitLogOffset"] % 8192 + 4] ^= 1
        path.write_bytes(data)


def test_an_edge_follows(tmp_path: Path, rng: random.Random) -> None:
    """From entry to entry, over files."""
    builder = DLedgerStoreBuilder(tmp_path, 4096)
    edge, reached = Edge(str(tmp_path), Files()), []
    for _ in range(30):
        grown(rng, builder, rng.randrange(4))
        builder.flush()
        edge.look()
        reached.append(edge.look().position)  # behind the blank of a file, too
        assert reached[-1] == (builder.messages[-1].end if builder.messages else 0)
    assert len({at // 4096 for at in reached}) > 2
    builder.close(abort=True)
    assert edge.look().position == reached[-1]


def test_a_stream_has_each_message_once(tmp_path: Path) -> None:
    store = DLedgerStoreBuilder(tmp_path, 4096)
    store.append()
    store.flush()
    options = stream_options(store.root, startingOffsets="earliest")
    assert_followed(options, store, [30, 0, 40, 0])
    assert store.messages[-1].position > 2 * 4096


def test_cut_anywhere(tmp_path: Path, rng: random.Random) -> None:
    """All messages before the cut are rows; one that was cut is an error, or the log ends before it."""
    builder = DLedgerStoreBuilder(tmp_path / "whole", 4096)
    grown(rng, builder, 4)
    builder.close()
    path = builder.segment(0)
    data, messages = path.read_bytes(), builder.messages
    last = max(entry.end for entry in dledger.entries(builder.root) if entry.path == path)
    root = tmp_path / "cut"
    shutil.copytree(builder.root, root)
    for at in sorted(rng.sample(range(1, last + 20), 60)):
        (root / path.relative_to(builder.root)).write_bytes(data[:at])
        whole = [m.position for m in messages if m.end <= at and m.position < 4096]
        rows = [each for each in positions(read(root, mode="DROPMALFORMED")) if each < 4096]  # the next file is whole
        assert rows == whole[: len(rows)]
        assert len(rows) >= len(whole) - 1
        ends = {m.end for m in messages} | {entry.end for entry in dledger.entries(builder.root)}
        if at < last and at not in ends:
            with pytest.raises(RmqStoreError):
                read(root)


def test_flipped_bits(tmp_path: Path, rng: random.Random) -> None:
    """Rows are right, or the error says where; nothing is missed in silence. The queues know all messages."""
    builder = DLedgerStoreBuilder(tmp_path, 65536)
    for number in range(12):
        builder.append(**message(rng, number) | {"body": rng.randbytes(30)})
    builder.close()
    path, expected = builder.segment(0), read(tmp_path)
    data, entries = path.read_bytes(), list(dledger.entries(tmp_path))
    header = [entry.position + at for entry in entries for at in range(dledger.HEADER.size)]
    for at in rng.sample(header, 120):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        rows = read(tmp_path, mode="DROPMALFORMED")
        assert rows == expected, at  # the message behind a damaged header is whole
    for at in rng.sample(range(entries[-1].end), 120):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        kept = {row["commitLogOffset"] for row in read(tmp_path, mode="DROPMALFORMED")}
        missing = {row["commitLogOffset"] for row in expected} - kept
        assert len(missing) <= 1
        if missing:
            with pytest.raises(RmqStoreError):
                read(tmp_path)


@pytest.mark.parametrize(
    ("found", "following", "expected"),
    [
        ((7, 3), None, ((7, 3), True)),
        ((7, 4), (8, 4), ((7, 4), True)),
        ((9, 3), None, ((7, 3), True)),  # its index is damaged
        ((9, 3), (8, 3), ((7, 3), True)),
        ((9, 3), (10, 3), None),  # the log goes on from another one
        ((9, 4), (10, 3), ((7, 4), True)),  # but not to a lower term
        ((7, 2), None, ((7, 3), False)),  # its term is damaged, or it is an old one
        ((7, 2), (8, 3), ((7, 3), True)),
        ((7, 2), (8, 2), ((7, 3), False)),
        ((7, 2), (9, 3), ((7, 3), False)),
        ((6, 2), (7, 3), None),
    ],
)
def test_an_entry_with_one_damaged_number(
    found: tuple[int, int], following: tuple[int, int] | None, expected: tuple[tuple[int, int], bool] | None
) -> None:
    """After index 6 of term 3: what may be the next entry, and whether the one behind it says so."""
    after = None if following is None else Entry(*following)
    assert _next_of(Entry(6, 3), 7, Entry(*found), after) == expected


def test_what_is_noted_of_each_entry(tmp_path: Path, rng: random.Random) -> None:
    """Of the first one to the last; nothing of entries that there are not."""
    builder = DLedgerStoreBuilder(tmp_path, 4096)
    grown(rng, builder, 20)
    builder.close()
    every = list(dledger.entries(tmp_path))
    noted = {e.number: (Entry(e.number, e.term), e.position, e.position + e.size) for e in every}
    names = [path.name for path in tmp_path.iterdir()]
    for number in range(-2, len(every) + 2):
        assert DLEDGER.noted(str(tmp_path), names, number, Files()) == noted.get(number), number


def test_a_node_without_entries(tmp_path: Path) -> None:
    """One that has just begun, or whose last file is gone: there is nothing to read, and nothing wrong."""
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    (tmp_path / "consumequeue").mkdir()
    store = Store(tmp_path)
    assert store.messages().read_all().num_rows == 0
    for table in (store.check, store.queues, store.topics, store.usage):
        assert table().num_rows == 0
