"""Partitions cover all of the log and each byte once, are cut at starts of messages only, of a good size, and found
with few reads."""

from __future__ import annotations

import itertools
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracle import random_stores, reference, stores
from support import reading
from support.reading import make_plan

from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import Numbers, Selection, Texts
from rmqstore_spark.read.pieces.task import Range, Scanned
from rmqstore_spark.read.plan import access_path, pack
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.segments import Segment

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def _ranges(root: Path, **options: Any) -> list[Range]:
    return [r for task in make_plan(root, **options).tasks for r in task.ranges]


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_partitions_cover_the_log(tmp_path: Path, rng: random.Random, with_queues: bool, clean: bool) -> None:
    store = random_stores.random_store(tmp_path, rng, messages=200, clean=clean, start=8192 * 3)
    if not with_queues:
        store.drop_queues()
    starts = {row["commitLogOffset"] for row in reference.read_store(tmp_path)}
    for size in (1, 200, 1000, 3000, 8192, 10_000, 30_000, 1 << 30):
        ranges = _ranges(tmp_path, maxPartitionBytes=size)
        assert ranges[0].start == 8192 * 3
        for before, after in itertools.pairwise(ranges):
            assert before.stop == after.start
        assert ranges[-1].stop == store.end
        assert {r.start for r in ranges} <= starts
        for r in ranges:
            assert r.start < r.stop
            assert r.segment.start <= r.start < r.stop <= r.segment.end


@pytest.mark.parametrize("with_queues", [True, False])
def test_sizes_are_near_the_target(tmp_path: Path, with_queues: bool) -> None:
    store = stores.StoreBuilder(tmp_path, segment_size=MIB, queue_file_size=20_000)
    for i in range(3000):
        store.append(topic=f"T{i % 5}", queue_id=i % 3, body=b"x" * 1000)
    store.close()
    if not with_queues:
        store.drop_queues()
    for target in (50 * KIB, 100 * KIB, 300 * KIB, 700 * KIB):
        sizes = [
            sum(r.stop - r.start for r in task.ranges) for task in make_plan(tmp_path, maxPartitionBytes=target).tasks
        ]
        assert sum(sizes) == store.end
        assert max(sizes) <= 1.5 * target + 20 * KIB
        assert len(sizes) <= 2.2 * store.end / target
    for count in (1, 5, 20, 60):
        tasks = make_plan(tmp_path, minPartitions=count).tasks
        assert 0.8 * count <= len(tasks) <= 2 * count + 4


def test_small_segments_are_packed(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, segment_size=8 * KIB)
    for _ in range(2000):
        store.append(body=b"x" * 900)
    store.close()
    assert len(list((tmp_path / "commitlog").iterdir())) == 250
    tasks = make_plan(tmp_path, maxPartitionBytes=512 * KIB).tasks
    assert len(tasks) < 25
    assert [r.start for task in tasks for r in task.ranges] == list(range(0, 250 * 8 * KIB, 8 * KIB))


@pytest.mark.parametrize(
    ("given", "count", "tasks"),
    [
        *[("1g", 40, 40), ("2g", 40, 20), ("8g", 40, 5), ("10g", 40, 4), ("3000m", 40, 20)],
        *[("auto", 5000, 5000), ("2g", 5000, 2500), ("8g", 5000, 625)],  # docs/options.md
    ],
)
def test_whole_segments_fill_a_partition(tmp_path: Path, given: str, count: int, tasks: int) -> None:
    """Two files of 1 GiB are no more than 2 GiB. None of them is there: nobody looks into them here."""
    store = Snapshot.find(str(random_stores.random_store(tmp_path, random.Random(0), messages=1).root), Files())
    segments = [Segment(f"/{n}", n * GIB, (n + 1) * GIB, GIB) for n in range(count)]
    pieces: pack.Pieces = [(Scanned(s, s.start, s.end, store), GIB) for s in segments]
    planned = pack.pack(pieces, reading.options_of("/store", maxPartitionBytes=given))
    assert len(planned) == tasks
    assert [r for task in planned for r in task.ranges] == [piece for piece, _ in pieces]


def test_small_stores_are_packed(tmp_path: Path) -> None:
    for name in "abcdefgh":
        random_stores.random_store(tmp_path / name, random.Random(name), messages=20)
    tasks = make_plan(tmp_path / "*").tasks
    assert len(tasks) == 1
    assert [Path(r.store.root).name for r in tasks[0].ranges if r.segment.start == 0] == list("abcdefgh")


def test_tiny_store_is_one_partition(tmp_path: Path) -> None:
    random_stores.random_store(tmp_path, random.Random(0), messages=200)
    assert len(make_plan(tmp_path).tasks) == 1


def _large_store(root: Path, segments: int, body: int) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, segment_size=64 * MIB, queue_file_size=60_000)
    while store.end < segments * 64 * MIB - 2 * body:
        store.append(topic=f"T{len(store.messages) % 3}", body=b"x" * body)
    store.close()
    return store


@pytest.mark.parametrize("body", [100_000, 3_000_000])
def test_planning_reads_little(tmp_path: Path, body: int) -> None:
    """With ConsumeQueue the cost does not depend on the size of the log, and of its messages only the last is read."""
    store = _large_store(tmp_path, 1, body)
    assert store.end > 60 * MIB
    planned = make_plan(tmp_path, maxPartitionBytes=8 * MIB)
    assert len(planned.tasks) >= 6
    assert planned.files.bytes < 256 * KIB + body
    assert planned.files.requests < 3000
    starts = {message.position for message in store.messages}
    assert {r.start for task in planned.tasks for r in task.ranges} <= starts


def test_pruned_columns_do_not_cost_planning(tmp_path: Path, rng: random.Random) -> None:
    """Reading reads each byte of the log about once."""
    store = stores.StoreBuilder(tmp_path, segment_size=4 * MIB, queue_file_size=20_000)
    while store.end < 7 * MIB:
        store.append(body=rng.randbytes(1000))
    store.close()
    for size in (256 * KIB, MIB, 1 << 30):
        options = reading.options_of(tmp_path, maxPartitionBytes=size)
        planned = reading.plan(options)
        planning = planned.files.bytes
        settings = reading.ReadSettings(reading.arrow_schema(["queueOffset"]))
        rows = sum(batch.num_rows for task in planned.tasks for batch in reading.read_task(task, settings))
        assert rows == len(store.messages)
        assert planned.files.bytes - planning < 1.05 * store.end


class CountingFiles(Files):
    """Counts directories that are listed, too."""

    listed = 0

    def names(self, path: str) -> list[str]:
        self.listed += 1
        return super().names(path)


def _grown_store(root: Path, queues: int, segments: int) -> stores.StoreBuilder:
    """Segments in which each message is of another queue than the ones before it."""
    store = stores.StoreBuilder(root, segment_size=32 * KIB, queue_file_size=2000)
    while store.end < (segments - 0.5) * 32 * KIB:
        number = len(store.messages)
        store.append(topic=f"T{number // 4 % (queues // 4)}", queue_id=number % 4, body=b"x" * 200)
    store.close()
    return store


def _cost(options: ReadOptions) -> tuple[int, int]:
    """What planning asks for: requests, and directories that are listed."""
    files = CountingFiles()
    plan(options, files)
    return files.requests, files.listed


def _look_ups(store: stores.StoreBuilder) -> dict[str, Selection]:
    """One message in the middle of the log, named in several ways."""
    message = store.messages[len(store.messages) // 2]
    position, queue, offset = message.position, message.queue_id, message.queue_offset
    return {
        "commitLogOffset": Selection(commit_log_offset=Numbers.of(position)),
        "offsetMsgId": Selection(offset_msg_id=frozenset([f"7F00000100002A9F{position:016X}"])),
        "assign": Selection(
            assigned={message.topic: frozenset([queue])}, offsets={(message.topic, queue): Numbers(offset, offset)}
        ),
        "topic, queueId, queueOffset": Selection(
            topic=Texts(frozenset([message.topic])), queue_id=Numbers.of(queue), queue_offset=Numbers.of(offset)
        ),
    }


@pytest.mark.parametrize(
    ("small", "large"), [((64, 8), (512, 8)), ((16, 4), (16, 64))], ids=["more queues", "more segments"]
)
def test_a_look_up_costs_the_same_in_a_larger_store(
    tmp_path: Path, small: tuple[int, int], large: tuple[int, int]
) -> None:
    found: dict[str, list[tuple[int, int]]] = {}
    for size in (small, large):
        store = _grown_store(tmp_path / str(size), *size)
        for name, selection in _look_ups(store).items():
            options = replace(reading.options_of(store.root), selection=selection)
            found.setdefault(name, []).append(_cost(options))
    for name, ((requests, listed), (more_requests, more_listed)) in found.items():
        # Binary searches in longer files; and what of a message's segment is live, a few of its neighbours' queues or
        # up to 16 others say: two directories each.
        assert more_requests <= requests + 64, name
        assert more_listed <= listed + 32, name


@pytest.mark.slow
def test_a_full_scan_costs_in_proportion_to_the_segments(tmp_path: Path) -> None:
    for partition in (6 * KIB, 20 * KIB):
        costs = []
        for queues, segments in ((16, 16), (16, 32), (512, 32)):
            root = tmp_path / f"{partition}-{queues}-{segments}"
            _grown_store(root, queues, segments)
            costs.append(_cost(reading.options_of(root, maxPartitionBytes=partition)))
        (requests, listed), (twice, listed_twice), (wide, listed_wide) = costs
        assert twice <= 2 * requests
        assert listed_twice <= listed + 12
        # Its queues name few units, so more of them are asked.
        assert wide <= 4 * twice
        assert listed_wide <= 300


@pytest.mark.slow
def test_thousands_of_tiny_queues(tmp_path: Path, rng: random.Random) -> None:
    """No more of them are listed than it takes, and where they name a unit is where the log is cut."""
    store = stores.StoreBuilder(tmp_path, segment_size=512 * KIB, queue_file_size=200)
    queues = [(f"T{n}", m) for n in range(500) for m in range(4)]
    for _ in range(3):
        rng.shuffle(queues)
        for topic, queue_id in queues:
            store.append(topic=topic, queue_id=queue_id, body=b"x" * 500)
    store.close()
    files = CountingFiles()
    planned = plan(reading.options_of(tmp_path, maxPartitionBytes=100 * KIB), files)
    ranges = [r for task in planned.tasks for r in task.ranges]
    assert files.listed < 200
    assert files.requests < 2000
    assert len(ranges) > len(list((tmp_path / "commitlog").iterdir())) + 5
    assert {r.start for r in ranges} <= {message.position for message in store.messages}
    assert sum(r.stop - r.start for r in ranges) == store.end


def test_many_queues_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of all of them are estimated, as the proof reads their units anyway."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 18, queue_file_size=20_000)
    for number in range(900):
        store.append(topic=f"T{number % 3}", queue_id=number % 300, body=b"b" * 500)
    store.close()
    planned = {}
    for most in (299, 300):
        monkeypatch.setattr(access_path, "_QUEUES_TO_LOOK_AT", most)
        planned[most] = plan(reading.options_of(tmp_path, subscribe="T1"), Files(reading.FREE), ["topic"])
    (_, estimated), (_, counted) = (each.accesses[0] for each in planned.values())
    assert estimated.why.startswith("300 of about 9")
    assert counted.why == "300 of 900 messages are in selected queues"
    assert [size for _, size in estimated.pieces] == [size for _, size in counted.pieces]
    assert planned[299].files.requests < planned[300].files.requests - 200


def test_queues_in_the_tail_only(tmp_path: Path) -> None:
    """Elsewhere segments stay whole, where there are too many to walk through."""
    store = _grown_store(tmp_path, 16, 40)
    late = [message for message in store.messages if message.position > 38 * 32 * KIB]
    for topic in sorted({message.topic for message in store.messages}):
        for queue_id in range(4):
            (directory,) = [store.queue_directory(topic, queue_id)]
            shutil.rmtree(directory)
            mine = [message for message in late if (message.topic, message.queue_id) == (topic, queue_id)]
            per_file = store.queue_file_size // reference.QUEUE_UNIT_SIZE
            directory.mkdir()
            for message in mine:
                start = message.queue_offset // per_file * per_file
                path = directory / f"{start * reference.QUEUE_UNIT_SIZE:020d}"
                before = reference.encode_queue_unit(*reference.PRE_BLANK) * (message.queue_offset - start)
                data = bytearray(path.read_bytes() if path.exists() else before.ljust(store.queue_file_size, b"\0"))
                at = (message.queue_offset - start) * reference.QUEUE_UNIT_SIZE
                data[at : at + 20] = reference.encode_queue_unit(message.position, message.size, 0)
                path.write_bytes(data)
    ranges = _ranges(tmp_path, maxPartitionBytes=6 * KIB)
    assert sum(r.stop - r.start for r in ranges) == store.end
    assert {r.start for r in ranges} <= {message.position for message in store.messages}
    assert len([r for r in ranges if r.segment.start == ranges[-1].segment.start]) >= 2


def test_partitions_grow_with_the_store() -> None:
    """`auto` is 128 MiB for as long as that makes no more than 2,000 partitions, and never more than 1 GiB."""
    options = reading.options_of("/store")
    sizes = [pack.target_size(total * GIB, options) for total in (10, 250, 251, 1000, 2000, 5000)]
    assert sizes[:2] == [128 * MIB] * 2
    assert 128 * MIB < sizes[2] < 129 * MIB
    assert sizes[3] == 1000 * GIB // 2000
    assert sizes[4:] == [GIB] * 2
    assert pack.target_size(5000 * GIB, reading.options_of("/store", maxPartitionBytes="64m")) == 64 * MIB
    assert pack.target_size(5000 * GIB, reading.options_of("/store", minPartitions=20_000)) == 5000 * GIB // 20_000


def test_long_planning_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _grown_store(tmp_path, 16, 4)
    make_plan(tmp_path, maxPartitionBytes=6 * KIB)
    assert not caplog.messages
    monkeypatch.setattr("rmqstore_spark.progress.REPORT_SECONDS", 0)
    make_plan(tmp_path, maxPartitionBytes=6 * KIB)
    assert any("planning: cutting the log into pieces: 2 of 4 " in message for message in caplog.messages)
