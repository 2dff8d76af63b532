"""All batches of a stream, driven as Spark drives them, together are a batch read, whatever happens in between."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, stores
from support import flavours, reading
from support.following import Clock, Query, stream_options
from support.writing import some_rows, write

from rmqstore_spark.errors import DamagedStoreError, DataLossError, OptionError, RmqStoreError
from rmqstore_spark.read.follow.edge import Edge, Reached, place_after
from rmqstore_spark.read.follow.follow import Follower
from rmqstore_spark.read.follow.stream_offset import VERSION, StoreOffset, StreamOffset, stream_offset
from rmqstore_spark.store.io.files import FIRST_BYTE, Files
from rmqstore_spark.store.snapshot import Snapshot

Row = dict[str, Any]
DATA = Path(__file__).parents[1] / "data"


def builder(root: Path, count: int = 30, **arguments: Any) -> stores.StoreBuilder:
    """A running broker's store."""
    store = stores.StoreBuilder(root, **{"segment_size": 4096, **arguments})
    add(store, count)
    return store


def add(store: stores.StoreBuilder, count: int, **fields: Any) -> None:
    """Messages of a broker of its own for each directory."""
    fields = {"store_host": f"10.0.0.{zlib.crc32(store.root.name.encode()) % 256}:10911", "tags": "A", **fields}
    for _ in range(count):
        i = len(store.messages)
        store.append(**{"topic": f"T{i % 3}", "body": b"b%d " % i * (i % 50), "queue_id": i % 2, **fields})
    store.flush()


def positions(rows: list[Row]) -> list[int]:
    return [row["commitLogOffset"] for row in rows]


def consumed(root: Path, **offsets: dict[str, int]) -> None:
    """What a group G has consumed, by topic."""
    (root / "config").mkdir(exist_ok=True)
    table = {"offsetTable": {f"{topic}@G": queues for topic, queues in offsets.items()}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table))


# ---- rows


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_all_batches_are_a_batch_read(tmp_path: Path, rng: random.Random, clean: bool, count: int) -> None:
    """A store that grows, rolls and expires what was read, with restarts; each batch read twice is the same."""
    for number in range(count):
        root = tmp_path / str(number)
        store = builder(root, rng.randrange(40), segment_size=rng.choice((2048, 4096, 1 << 16)))
        limits: dict[str, Any] = rng.choice(
            ({}, {"maxBytesPerTrigger": rng.randrange(1, 5000)}, {"maxOffsetsPerTrigger": 7})
        )
        query = Query(root, startingOffsets="earliest", **limits)
        expected: dict[int, Row] = {}
        for _ in range(12):
            # What an earlier batch has read may have expired since.
            if query.trigger() is not None and rng.random() < 0.5:
                again = query.rows_between(-2, -1)
                assert query.rows[len(query.rows) - len(again) :] == again
            for _ in range(rng.randrange(12)):
                add(store, 1, body=b"x" * rng.choice((rng.randrange(50), rng.randrange(1500))))
            if rng.random() < 0.3:
                store.close(clean)
            if rng.random() < 0.4:
                query.restart()
            expected |= {row["commitLogOffset"]: row for row in reference.read_store(root)}
            behind = query.at.stores[str(root)].position if query.offsets and query.at.stores else 0
            if rng.random() < 0.3 and behind // store.segment_size > store.start // store.segment_size:
                store.expire(1)
        query.run()
        assert query.rows == [expected[position] for position in sorted(expected)]
        if "maxOffsetsPerTrigger" in limits:
            starts = [stream_offset(json.loads(text)).stores[str(root)].position for text in query.offsets[-8:]]
            assert max(sum(a <= p < b for p in expected) for a, b in itertools.pairwise(starts)) <= 7


@pytest.mark.slow
def test_our_own_writer_in_between(tmp_path: Path, rng: random.Random) -> None:
    write(tmp_path, some_rows(rng, 20))
    query = Query(tmp_path, startingOffsets="earliest")
    for number in range(1, 6):
        query.trigger()
        write(tmp_path, some_rows(rng, rng.randrange(1, 40), first=100 * number))
        if number % 2:
            query.restart()
    query.run()
    assert query.rows == reference.read_store(tmp_path)


def test_limits(tmp_path: Path) -> None:
    one, other = builder(tmp_path / "a", 100), builder(tmp_path / "b", 20)
    rows = Query(one.root, other.root, startingOffsets="earliest", maxOffsetsPerTrigger=9)
    sizes = []
    while (batch := rows.trigger()) is not None:
        sizes.append(len(batch))
    assert max(sizes) <= 9
    assert len(sizes) < 40
    assert len(rows.rows) == 120
    by_bytes = Query(one.root, startingOffsets="earliest", maxBytesPerTrigger=1000)
    while (batch := by_bytes.trigger()) is not None:
        assert sum(row["storeSize"] for row in batch[:-1]) <= 1000
    assert len(by_bytes.rows) == 100
    of_topic = Query(one.root, startingOffsets="earliest", maxOffsetsPerTrigger=5, subscribe="T1", tags="A")
    assert [len(of_topic.trigger() or []) for _ in range(3)] == [5, 5, 5]
    everything = Query(one.root, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    assert len(everything.trigger(is_limited=False) or []) == 100


def test_a_cut_far_inside_a_large_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the queues say where a message begins."""
    store = builder(tmp_path, 400, segment_size=1 << 20)
    monkeypatch.setattr("rmqstore_spark.read.follow.admission._MOST_WALKED", 1000)
    query = Query(tmp_path, startingOffsets="earliest", maxBytesPerTrigger=5000)
    sizes = []
    while (batch := query.trigger()) is not None:
        sizes.append(sum(row["storeSize"] for row in batch))
    assert positions(query.rows) == [message.position for message in store.messages]
    assert max(sizes) < 12_000
    assert len(sizes) > 8


def test_stops_at_what_was_there(tmp_path: Path) -> None:
    """availableNow."""
    store = builder(tmp_path / "a", 50)
    query = Query(tmp_path / "*", startingOffsets="earliest", maxOffsetsPerTrigger=8)
    query.follower.stop_here()
    query.trigger()
    add(store, 20)
    builder(tmp_path / "b", 5)
    query.clock.pass_(5)
    assert len(query.run()) == 42
    query.restart()
    query.follower.stop_here()
    query.run()
    assert len(query.rows) == 75


# ---- where it starts


def test_starts(tmp_path: Path) -> None:
    store = builder(tmp_path, 60)
    time = store.messages[30].store_timestamp
    queue = {m.position: (m.topic, m.queue_id, m.queue_offset) for m in store.messages}

    def read(**options: Any) -> list[int]:
        query = Query(tmp_path, **options)
        query.run()
        query.restart()
        add(store, 6)
        query.run()
        queue.update({m.position: (m.topic, m.queue_id, m.queue_offset) for m in store.messages})
        return positions(query.rows)

    def messages(wanted: Any) -> list[int]:
        return [position for position, (topic, queue_id, offset) in queue.items() if wanted(topic, queue_id, offset)]

    before = len(store.messages)
    assert read() == [m.position for m in store.messages[before:]]
    assert read(startingOffsets="earliest") == list(queue)
    assert read(startingTimestamp=time) == [m.position for m in store.messages if m.store_timestamp >= time]
    named = {"T0": {"0": 5, "1": -1}, "T1": {"1": -2}}
    ends = {name: 1 + max(o for t, q, o in queue.values() if (t, q) == name) for name in (("T0", 1),)}
    found = read(startingOffsets=json.dumps(named))
    assert found == messages(lambda t, q, o: o >= {("T0", 0): 5, ("T0", 1): ends["T0", 1]}.get((t, q), 0))
    assert read(assign='{"T0": [0]}', startingOffsets='{"T0": {"0": 7}}') == messages(
        lambda t, q, o: (t, q) == ("T0", 0) and o >= 7
    )


@pytest.mark.parametrize("lags", [False, True])
def test_a_group_is_asked_once(tmp_path: Path, lags: bool) -> None:
    """It moves on between kill and restart, and so do the queues that have no message yet where it stands."""
    store = builder(tmp_path, 60)
    if lags:
        store.drop_queues()
    consumed(tmp_path, T0={"0": 3, "1": 10}, T1={"0": 4})
    query = Query(tmp_path, startingOffsets="group:G", maxOffsetsPerTrigger=4)
    query.trigger()
    consumed(tmp_path, T0={"0": 10, "1": 10}, T1={"0": 10}, T2={"0": 0})
    query.restart()
    query.trigger()
    shutil.rmtree(tmp_path / "config")
    query.restart()
    query.run()
    add(store, 30)
    query.restart()
    query.run()
    starts = {("T0", 0): 3, ("T0", 1): 10, ("T1", 0): 4, ("T1", 1): 0}
    wanted = [m for m in store.messages if m.queue_offset >= starts.get((m.topic, m.queue_id), 1 << 60)]
    assert positions(query.rows) == [m.position for m in wanted]
    assert query.at.stores[str(tmp_path)].topics == frozenset({"T0", "T1"})
    if not lags:
        assert not query.at.stores[str(tmp_path)].starts
        assert min(query.at.stores[str(tmp_path)].position, *positions(query.rows)) > 0


@pytest.mark.parametrize("start", [12, 13, 17, -1])
def test_a_start_is_not_passed_by_what_a_cut_has_left_over(tmp_path: Path, start: int) -> None:
    """Behind a closing blank a queue's old units and their messages stay, until its new ones are as many."""
    store = stores.StoreBuilder(tmp_path, segment_size=4096, queue_file_size=20_000)
    add(store, 20, topic="T", queue_id=0, body=b"old" * 20)
    kept = 11
    store.forget_last(len(store.messages) - kept)
    add(store, 1, topic="Other", body=b"x" * 3000, store_timestamp=store.now + 60_000)
    assert store.messages[-1].position == store.segment_size
    query = Query(tmp_path, startingOffsets=json.dumps({"T": {"0": start}}))
    query.run()
    for _ in range(9):
        add(store, 1, topic="T", queue_id=0, body=b"new")
        query.clock.pass_(5)
        query.run()
    first = kept if start == -1 else start
    wanted = [m.position for m in store.messages if m.topic == "Other" or m.queue_offset >= first]
    assert positions(query.rows) == wanted
    assert not query.at.stores[str(tmp_path)].starts


def test_a_start_in_batches_is_passed(tmp_path: Path) -> None:
    """Or it would stay in the checkpoint, and be looked up after each batch, for ever."""
    root = flavours.unpack_store("batchcq", tmp_path)
    query = Query(root, startingOffsets=json.dumps({"Bq": {"0": 4, "1": 3}}), subscribe="Bq")
    query.run()
    expected = [*((0, at) for at in range(4, 14)), *((1, at) for at in range(3, 15))]
    assert sorted((row["queueId"], row["queueOffset"]) for row in query.rows) == expected
    assert not query.at.stores[str(root)].starts


def test_a_store_that_joins_what_a_group_reads(tmp_path: Path) -> None:
    """It is asked for the group's offsets, once; without any, its topics are those that the group has elsewhere."""
    one = builder(tmp_path / "a", 12)
    consumed(one.root, T0={"0": 1, "1": 0})
    query = Query(tmp_path / "*", startingOffsets="group:G", columns=["store", "commitLogOffset"])
    query.run()
    two, three = builder(tmp_path / "b", 12), builder(tmp_path / "c", 12)
    consumed(three.root, T1={"0": 1})
    query.clock.pass_(5)
    query.trigger()
    consumed(two.root, T2={"0": 0})
    consumed(three.root, T2={"0": 0})
    query.restart()
    query.run()
    wanted = [(str(one.root), m.position) for m in one.messages if m.topic == "T0" and m.queue_offset >= 1 - m.queue_id]
    wanted += [(str(two.root), m.position) for m in two.messages if m.topic == "T0"]
    wanted += [(str(three.root), m.position) for m in three.messages if m.topic == "T1" and m.queue_offset + m.queue_id]
    assert sorted((row["store"], row["commitLogOffset"]) for row in query.rows) == sorted(wanted)


def test_what_no_store_has_is_told_at_the_start(tmp_path: Path) -> None:
    builder(tmp_path, 10)
    wrong: list[dict[str, Any]] = [
        {"startingOffsets": "group:H"},
        {"subscribe": "T4"},
        {"assign": '{"T0": [0, 9]}'},
        {"startingOffsets": '{"T0": {"8": 1}}'},
    ]
    for options in wrong:
        with pytest.raises(OptionError):
            Query(tmp_path, **options).trigger()


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "msgId", "key", "trust", "pushdown"])
def test_options_that_make_no_sense(name: str) -> None:
    with pytest.raises(OptionError, match=rf"option '{name}' is not for streams: .*; remove it$"):
        stream_options("/x", **{name: "1"})


# ---- several stores


def test_a_copy_of_a_store_does_not_join(tmp_path: Path) -> None:
    """Neither at the start, nor when it appears under the glob, nor when a query goes on."""
    store = builder(tmp_path / "a", 20)
    query = Query(tmp_path / "*", startingOffsets="earliest")
    query.run()
    shutil.copytree(store.root, tmp_path / "b")
    add(store, 10)
    query.clock.pass_(5)
    why = r"a and .*b: expected stores of different brokers, .* twice; name one of them|b and .*a: expected stores of"
    with pytest.raises(OptionError, match=why):
        query.trigger()
    query.restart()
    with pytest.raises(OptionError, match=why):
        query.run()
    with pytest.raises(OptionError, match=why):
        Query(tmp_path / "*", startingOffsets="earliest").run()
    shutil.rmtree(tmp_path / "b")
    query.restart()
    query.run()
    assert positions(query.rows) == [m.position for m in store.messages]


def test_stores_join_and_leave(tmp_path: Path) -> None:
    one = builder(tmp_path / "a", 10)
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    query = Query(tmp_path / "*", columns=["store", "commitLogOffset"])
    assert query.trigger() is None
    add(one, 5)
    two = builder(tmp_path / "b", 7)
    (tmp_path / "no-store").mkdir()
    query.clock.pass_(5)
    query.run()
    query.restart()
    three = stores.StoreBuilder(tmp_path / "empty", segment_size=2048, start=4 * 2048)
    add(three, 3)
    query.clock.pass_(5)
    query.run()
    add(two, 4)
    query.run()
    expected = {(str(s.root), m.position) for s in (one, two, three) for m in s.messages}
    expected -= {(str(one.root), m.position) for m in one.messages[:10]}
    assert len(query.rows) == len(expected)
    assert {(row["store"], row["commitLogOffset"]) for row in query.rows} == expected
    shutil.rmtree(two.root)
    query.clock.pass_(5)
    with pytest.raises(DataLossError, match=r"b: this store was read so far"):
        query.trigger()
    query.restart(failOnDataLoss=False)
    add(one, 1)
    assert len(query.run()) == 1


# ---- loss


def lost(query: Query, match: str) -> list[str]:
    """It is an error, now and after a restart; the same with failOnDataLoss=false is a warning. A log is cut when its
    broker starts, which writes `lock` then."""
    for root in query.at.stores:
        (Path(root) / "lock").write_bytes(b"lock")
    query.clock.pass_(5)
    for _ in range(2):
        with pytest.raises(DataLossError, match=match):
            query.trigger()
        query.restart()
    query.restart(failOnDataLoss=False)
    return query.offsets


def test_deleted_before_it_was_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = builder(tmp_path, 30)
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    read = len(query.rows)
    add(store, 100)
    store.expire(3)
    lost(query, rf"commitLogOffsets {store.messages[0].position and query.at.stores[str(tmp_path)].position} to ")
    rows = query.run()
    assert positions(rows) == [m.position for m in store.messages]
    assert len(query.rows) == read + len(rows)
    assert "are gone: their segments were deleted" in caplog.text
    # What was read may be deleted.
    add(store, 40)
    query.restart(failOnDataLoss=True)
    query.run()
    store.expire((query.at.stores[str(tmp_path)].position - store.start) // store.segment_size)
    query.restart()
    assert query.run() == []
    add(store, 3)
    assert len(query.run()) == 3


def test_deleted_while_it_is_behind(tmp_path: Path) -> None:
    """The edge is where it was; the rest is gone."""
    store = builder(tmp_path, 200)
    query = Query(tmp_path, startingOffsets="earliest", maxBytesPerTrigger=1000)
    query.trigger()
    with pytest.raises(DataLossError, match="their segments were deleted"):
        query.trigger(before_reading=lambda: store.expire(3))
    query.restart(failOnDataLoss=False)
    assert query.rows_between(-2, -1) == []  # Spark asks for the same batch again
    assert positions(query.run()) == [m.position for m in store.messages]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("forget", [1, 5, 20])
@pytest.mark.parametrize("more", [0, 3, 40])
def test_cut_and_written_anew(tmp_path: Path, forget: int, more: int, restart: bool) -> None:
    store = builder(tmp_path, 50)
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    store.forget_last(forget)
    store.now += 60_000
    add(store, 1, body=b"another")
    add(store, more, body=b"anew")
    if restart:
        query.restart()
    lost(query, "the log is not the one that was read")
    where = query.at.stores[str(tmp_path)].position
    rows = query.run()
    end = store.messages[-1].end
    if end <= where:
        assert rows == []
        assert query.at.stores[str(tmp_path)].position == end
    else:
        assert positions(rows) == [m.position for m in store.messages if m.position >= where]
    add(store, 4)
    assert positions(query.run()) == [m.position for m in store.messages[-4:]]


def test_an_older_copy(tmp_path: Path) -> None:
    store = builder(tmp_path / "s", 30)
    shutil.copytree(store.root, tmp_path / "old")
    query = Query(store.root, startingOffsets="earliest")
    query.run()
    add(store, 30)
    query.run()
    shutil.rmtree(store.root)
    shutil.copytree(tmp_path / "old", store.root)
    lost(query, "the log is not the one that was read")
    assert query.run() == []
    assert len(query.rows) == 60


def test_an_emptied_store(tmp_path: Path) -> None:
    store = builder(tmp_path, 30)
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    lost(query, "the log is empty|are gone|is not the one|expected a directory commitlog")
    assert store.messages


# ---- the edge


def looked(root: Path, known: Reached | None = None) -> int:
    return Edge(str(root), Files(), known=known).look().position


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_no_torn_message(tmp_path: Path, known: bool) -> None:
    """Written byte by byte by a broker that holds the lock: nothing of it shows before its queue, or a later message,
    proves it. After a kill it shows when it is whole."""
    store = builder(tmp_path, 10)
    before = store.end
    store.append(topic="T0", body=b"torn " * 9, properties={"a": "b" * 20})
    store.append(topic="T0", body=b"next", tags="A")
    units = [(m.position, m.end) for m in store.messages[-2:]]
    store.flush()
    path = store.segment(before)
    whole = path.read_bytes()
    shutil.copytree(tmp_path / "consumequeue", tmp_path.parent / f"{tmp_path.name}-queues")
    shutil.rmtree(tmp_path / "consumequeue")
    place = Edge(str(tmp_path), Files(), known=None)
    path.write_bytes(whole[:before] + bytes(len(whole) - before))
    start = place.look()
    assert start.position == before if known else start.position <= before
    pid = os.fork()
    if pid == 0:  # the broker: a lock is not seen by the process that has it
        import fcntl

        with (tmp_path / "lock").open("r+b") as file:
            fcntl.fcntl(file, fcntl.F_SETLK, FIRST_BYTE)
            time.sleep(60)
        os._exit(0)
    try:
        while not Files().is_locked(str(tmp_path / "lock")):
            time.sleep(0.01)
        edge = Edge(str(tmp_path), Files(), known=start) if known else place
        cuts = range(before, units[1][1] + 1)
        for cut in cuts:
            path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
            found = edge.look().position
            assert found in (before, units[0][1])
            if cut < units[1][0] + 90:
                assert found == before, cut
        assert found == units[0][1]
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert edge.look().position == units[1][1]
    # What lacks only bytes of its properties is whole to a broker's recovery, too.
    for cut in range(units[1][0], units[1][1] - len("\7TAGS\1A\2")):
        path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        assert looked(tmp_path, start) == units[0][1], cut


def test_a_blank_is_no_end(tmp_path: Path) -> None:
    """A broker closes a segment and is killed before it writes the message that did not fit. It goes on in the place of
    the blank, when the next message is small."""
    two = [builder(tmp_path / name, 25) for name in ("real", "small")]
    for store in two:
        while store.segment_size - store.end % store.segment_size > 1000:
            add(store, 1, body=b"x" * 100)
    real, small = two
    before = real.end
    real.append(body=b"y" * 2000)
    real.flush()
    real.segment(real.end).write_bytes(bytes(real.segment_size))
    query = Query(real.root, startingOffsets="earliest")
    query.run()
    assert query.at.stores[str(real.root)].position == before
    query.restart()
    assert query.trigger() is None
    add(small, 1, body=b"small")
    shutil.copyfile(small.segment(before), real.segment(before))
    query.run()
    for _ in range(20):
        add(small, 1, body=b"z" * 100)
    shutil.copytree(small.root, real.root, dirs_exist_ok=True)
    query.run()
    assert positions(query.rows) == [m.position for m in small.messages]


def test_what_is_left_after_the_end_is_none(tmp_path: Path) -> None:
    """After a kill, the remains of a torn message stand there; the broker writes over them."""
    store = builder(tmp_path, 10)
    end = store.end
    path = store.segment(end)
    with path.open("r+b") as file:
        file.seek(end % store.segment_size)
        file.write(random.Random(1).randbytes(700))
    query = Query(tmp_path, startingOffsets="earliest")
    assert len(query.run()) == 10
    for _ in range(20):
        query.clock.pass_(1)
        assert query.trigger() is None
    add(store, 2, body=b"")
    assert len(query.run()) == 2
    query.clock.pass_(100)
    add(store, 8)
    assert len(query.run()) == 8


@pytest.mark.parametrize("what", ["garbage", "zeros"])
def test_damage_is_met(tmp_path: Path, what: str) -> None:
    """A message that was lost before it was read stops the stream in mode FAILFAST, as it does a batch read."""
    store = builder(tmp_path, 10)
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    add(store, 60)
    lost_one = store.messages[12]
    with store.segment(lost_one.position).open("r+b") as file:
        file.seek(lost_one.position % store.segment_size)
        file.write(bytes(lost_one.size) if what == "zeros" else b"\xa5" * lost_one.size)

    def until_error() -> None:
        for _ in range(100):
            query.clock.pass_(1)
            query.trigger()
            add(store, 1)  # in object storage, a segment may still come anew as long as nothing else does

    with pytest.raises(DamagedStoreError):
        until_error()
    query.restart(mode="DROPMALFORMED")
    query.offsets.pop()
    query.run()
    kept = [m.position for m in store.messages if m is not lost_one]
    assert set(positions(query.rows)) <= set(kept)
    assert positions(query.rows)[-1] == kept[-1]
    assert positions(reading.read(tmp_path, mode="DROPMALFORMED")) == positions(query.rows)


@pytest.mark.slow
def test_an_idle_look_costs_little(tmp_path: Path) -> None:
    """At most three requests, however many queues, segments and messages there are, and the processor hardly sees how
    many."""
    costs, seconds = [], []
    for queues, messages in ((2, 10), (300, 2000)):
        root = tmp_path / str(queues)
        store = stores.StoreBuilder(root, segment_size=8192)
        for i in range(messages):
            store.append(topic=f"T{i % queues}", body=b"x" * 100)
        store.flush()
        query = Query(root)
        assert query.trigger() is None
        rounds, looks = [], 100
        requests = query.files.requests
        for _ in range(5):
            began = time.process_time()
            for _ in range(looks):
                query.clock.pass_(0.5)
                assert query.trigger() is None
            rounds.append(time.process_time() - began)
        costs.append((query.files.requests - requests) / (5 * looks))
        seconds.append(min(rounds))
    assert max(costs) <= 3
    assert costs[0] == costs[1]
    assert seconds[1] < 5 * seconds[0]


def test_looks_are_few(tmp_path: Path) -> None:
    """Where a look takes long, the next one waits; else Spark's polls would be as many looks."""
    builder(tmp_path, 10)
    query = Query(tmp_path)
    query.trigger()
    start = query.at
    query.follower.latest(start, True)
    requests = query.files.requests
    for _ in range(100):
        query.follower.latest(start, True)
    assert query.files.requests == requests


# ---- offsets


def test_a_place_after_no_message_is_told(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path)
    builder.append(topic="T", queue_id=0)
    builder.close()
    store = Snapshot.find(str(tmp_path), Files())
    with store.reader(store.segments[0]) as reader:
        assert place_after(reader, 0).position == builder.messages[0].size
        with pytest.raises(DamagedStoreError, match="expected a message at commitLogOffset 1, found none"):
            place_after(reader, 1)


def test_an_older_checkpoint_still_starts() -> None:
    """Written by the first version; it must be read for ever."""
    kept = json.loads((DATA / "stream-offset-1.json").read_text())
    root = DATA / "rocketmq-5.3.3"
    text = json.dumps(kept).replace("{root}", str(root))
    query = Query(root, startingOffsets="group:nobody")
    query.offsets.append(text)
    query.run()
    starts = {("TopicA", 0): 20, ("TopicA", 1): 25}
    expected = [
        row
        for row in reference.read_store(root)
        if row["commitLogOffset"] >= kept["stores"]["{root}"]["commitLogOffset"]
        and row["queueOffset"] >= starts[row["topic"], row["queueId"]]
        and row["storeTimestamp"] >= 1000 * kept["startingTimestamp"]
    ]
    assert 5 < len(expected) < 30
    assert query.rows == expected


@pytest.mark.parametrize(
    ("found", "match"),
    [
        ({"version": VERSION + 1, "stores": {}}, f"expected version {VERSION}, found {VERSION + 1}"),
        ({"version": True, "stores": {}}, f"expected version {VERSION}, found True"),
        ({"partition": 1}, "expected version"),
        ([], "expected an object"),
        ({"version": 1, "stores": []}, "'stores'"),
        ({"version": 1, "stores": {"/a": 5}}, "'/a'"),
        ({"version": 1, "stores": {"/a": {"commitLogOffset": -1}}}, "'commitLogOffset': expected a whole number"),
        ({"version": 1, "stores": {"/a": {"commitLogOffset": True}}}, "'commitLogOffset'"),
        ({"version": 1, "stores": {"/a": {"commitLogOffset": 1, "last": {"commitLogOffset": 0}}}}, "'storeTimestamp'"),
        ({"version": 1, "stores": {"/a": {"commitLogOffset": 1, "topics": "T"}}}, "'topics'"),
        ({"version": 1, "stores": {"/a": {"commitLogOffset": 1, "startingOffsets": {"T": {"x": 1}}}}}, "queueIds"),
        (
            {"version": 1, "stores": {"/a": {"commitLogOffset": 1, "startingOffsets": {"T": {"21474836470": 1}}}}},
            "queueIds",
        ),
    ],
)
def test_wrong_offsets(found: Any, match: str) -> None:
    with pytest.raises(RmqStoreError, match=match) as error:
        stream_offset(found)
    assert "checkpoint" in str(error.value)


def test_offsets_with_large_queue_ids() -> None:
    largest = ("T", (1 << 31) - 1)
    of_store = StoreOffset(5, starts={largest: 7})
    of_log = StoreOffset(9, starts={largest: 8}, tier="/tier")
    offset = StreamOffset({"/a": of_store, f"/tier/T/{largest[1]}": of_log})
    assert stream_offset(json.loads(json.dumps(offset.as_json()))) == offset


# ---- Spark before 4.2, which tells neither where the stream is nor a limit


def test_where_nobody_tells_where_the_stream_is(tmp_path: Path) -> None:
    store = builder(tmp_path / "a", 30)
    options = stream_options(tmp_path / "*", startingOffsets="earliest")
    follower = Follower(options, gets_start=False)
    at, rows = follower.initial(), []
    for number in range(4):
        end = follower.latest(None, is_limited=False)
        for task in follower.plan(at, end):
            rows += reading.read_one(task, options.read, ["store", "commitLogOffset"])
        at = stream_offset(json.loads(json.dumps(end.as_json())))
        add(store, 10)
        if number == 1:
            other = builder(tmp_path / "b", 12)
        follower = Follower(options, gets_start=False)  # restarted, and asked for the latest offset before all else
    expected = [(str(store.root), m.position) for m in store.messages[:60]]
    expected += [(str(other.root), m.position) for m in other.messages]
    assert sorted((row["store"], row["commitLogOffset"]) for row in rows) == sorted(expected)
    with pytest.raises(OptionError, match=r"before Spark 4\.2 a stream can begin at latest or earliest only"):
        Follower(stream_options(tmp_path / "a", startingOffsets="group:G"), gets_start=False)


def test_a_store_that_is_away_for_a_while_is_not_read_twice(tmp_path: Path) -> None:
    """As above, where nobody tells: its place is kept, or it is an error."""
    followed = [builder(tmp_path / "stores" / name, 10) for name in "ab"]
    (tmp_path / "away").mkdir()
    clock, rows = Clock(), 0
    options = stream_options(tmp_path / "stores" / "*", startingOffsets="earliest", failOnDataLoss=False)
    follower = Follower(options, gets_start=False, clock=clock)
    at = follower.initial()
    for where, other in (("stores", "away"), ("away", "stores"), ("stores", "away")):
        end = follower.latest(None, is_limited=False)
        tasks = follower.plan(at, end)
        rows += sum(len(reading.read_one(task, options.read, ["commitLogOffset"])) for task in tasks)
        assert list(end.stores) == [str(store.root) for store in followed]
        at = end
        (tmp_path / where / "b").rename(tmp_path / other / "b")
        clock.pass_(100)
    assert rows == 20
    restarted = Follower(replace(options, fail_on_data_loss=True), gets_start=False)
    with pytest.raises(DataLossError, match="b: this store was read so far"):
        restarted.plan(at, restarted.latest(None, is_limited=False))


# ---- what comes next in a queue


@pytest.mark.parametrize("lost", [None, "queue", "all"])
def test_from_latest_of_one_queue(tmp_path: Path, lost: str | None) -> None:
    """Each message after the look, none before it: also where units are left over, or none are there."""
    store = builder(tmp_path / "a", 12)
    store.append("T0", b"old" * 50, queue_id=0)
    store.append("T0", b"old" * 50, queue_id=0)
    store.forget_last(2)
    store.append("T1", b"n" * 333, queue_id=1, store_timestamp=store.now + 100)
    store.flush()
    (tmp_path / "a" / "config").mkdir()
    topics = '{"topicConfigTable":{"T0":{"readQueueNums":2,"writeQueueNums":2}}}'
    (tmp_path / "a" / "config" / "topics.json").write_text(topics)
    if lost is not None:
        shutil.rmtree(tmp_path / "a" / "consumequeue" / ("T0/0" if lost == "queue" else ""))
    offsets = json.dumps({"T0": {"0": -1, "1": 0}})
    options = stream_options(tmp_path / "a", startingOffsets=offsets, assign='{"T0": [0, 1]}')
    clock = Clock()
    follower = Follower(options, clock=clock)
    place = follower.initial()
    for number in range(3):
        store.append("T0", b"new%d" % number, queue_id=0)
    store.flush()
    clock.pass_(60)
    end = follower.latest(place, is_limited=False)
    rows = [row for task in follower.plan(place, end) for row in reading.read_one(task, options.read)]
    found = [row["queueOffset"] for row in rows if row["queueId"] == 0]
    assert found == [m.queue_offset for m in store.messages if (m.topic, m.queue_id) == ("T0", 0)][-3:]
    assert sum(row["queueId"] == 1 for row in rows) == sum((m.topic, m.queue_id) == ("T0", 1) for m in store.messages)
