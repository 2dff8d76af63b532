"""What the queues prove of the log is so, and the proof costs what it says."""

from __future__ import annotations

import itertools
import random
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from oracle import damage, reference, stores
from oracle.worn_stores import LIGHT, worn_store
from support import reading

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_coverage import QueueEnd, coverage, liars
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.segments import Extent


def _opened(root: Path) -> Snapshot:
    return Snapshot.find(str(root), Files())


def _cut_store(root: Path, rng: random.Random) -> stores.StoreBuilder:
    """A store, some of whose last messages were forgotten, mostly so that old ones lie behind a segment's blank. Some
    queues end there and keep the units of these; one may be lost."""
    store = stores.StoreBuilder(root, segment_size=8192, queue_file_size=rng.choice((200, 2000)), index=False)

    def append(count: int, queues: int) -> None:
        for _ in range(count):
            store.append(topic=f"T{rng.randrange(queues)}", queue_id=0, body=b"b" * rng.randrange(100))

    append(rng.randrange(80, 200), queues=10)
    for _ in range(rng.randrange(3)):
        store.forget_last(rng.randrange(2, 20))
        store.append(topic="T0", queue_id=0, body=b"b" * 7000)  # it goes into a segment of its own
        append(rng.randrange(80), queues=rng.choice((2, 8)))
    store.close()
    if rng.random() < 0.3:
        shutil.rmtree(root / "consumequeue" / f"T{rng.randrange(10)}", ignore_errors=True)
    return store


def _pieces(store: Snapshot, positions: list[int], rng: random.Random) -> list[Extent]:
    """The log, cut here and there where a message begins; now and then a part of it only."""
    pieces = []
    for extent in store.log.extents:
        here = [position for position in positions if extent.start < position < extent.stop]
        cuts = [extent.start, *sorted(rng.sample(here, min(rng.randrange(3), len(here)))), extent.stop]
        pieces += [Extent(extent.segment, *ends) for ends in itertools.pairwise(cuts)]
    if rng.random() < 0.5:
        pieces = rng.sample(pieces, rng.randrange(1, len(pieces) + 1))
    return sorted(pieces, key=lambda piece: piece.start)


@pytest.mark.slow
def test_what_is_covered_is_what_a_full_scan_gives(tmp_path: Path, rng: random.Random) -> None:
    """Of logs that were cut: no message is missing where there is no gap, and none is there that is left over. Where
    queues go on in a later segment there are no gaps at all."""
    whole = with_old_units = 0
    for number in range(120):
        builder = _cut_store(tmp_path / str(number), rng)
        live = [row["commitLogOffset"] for row in reading.read(builder.root, columns=["commitLogOffset"])]
        assert live == sorted(message.position for message in builder.messages)
        store = _opened(builder.root)
        pieces = _pieces(store, live, rng)
        units = sorted(
            position for queue in store.queues for position in queue.units(0, store.end)[0].ascending().positions
        )
        for piece, known in zip(pieces, coverage(store, pieces, lambda queue: True), strict=True):
            if known.gaps is None:  # left-over units contradict the log: it is scanned
                continue
            expected = [position for position in live if piece.start <= position < piece.stop]

            def in_a_gap(position: int, gaps: list[tuple[int, int]] = known.gaps) -> bool:
                return any(start <= position < stop for start, stop in gaps)

            found = [unit for unit in units if piece.start <= unit < piece.stop]
            assert [unit for unit in found if not in_a_gap(unit)] == [unit for unit in expected if not in_a_gap(unit)]
            whole += not known.gaps
            with_old_units += found != expected
    assert whole > 150
    assert with_old_units > 10


def test_a_proof_costs_one_small_request_a_segment(tmp_path: Path) -> None:
    """Besides the queues: of each segment its closing blank, and nothing else."""
    costs = []
    for segments in (20, 40):
        root = tmp_path / str(segments)
        builder = stores.StoreBuilder(root, segment_size=1 << 14, queue_file_size=20_000, index=False)
        while builder.end < segments << 14:
            builder.append(topic=f"T{len(builder.messages) % 30}", body=b"b" * 400)
        builder.close()
        store = _opened(root)
        extents = store.log.extents
        requests, nbytes = store.files.requests, store.files.bytes
        assert all(known.gaps == [] for known in coverage(store, extents, lambda queue: True))
        costs.append((store.files.requests - requests, store.files.bytes - nbytes - 20 * len(builder.messages)))
    (requests, nbytes), (twice, more_bytes) = costs
    assert twice - requests <= 20
    assert more_bytes - nbytes <= 20 * 8


@pytest.mark.parametrize("count", [3, 90, 500, 3000])
def test_what_a_queue_costs(count: int, tmp_path: Path) -> None:
    """At most three requests, and 4 KiB besides its units: however many it has, and with messages of a kilobyte."""
    builder = stores.StoreBuilder(tmp_path, segment_size=1 << 22, queue_file_size=20 * count + 100, index=False)
    queues = max(2, 3000 // count)
    for number in range(queues * count):
        builder.append(topic=f"T{number % queues}", body=b"b" * 1000)
    builder.close()
    store = _opened(tmp_path)
    assert all(known.gaps == [] for known in coverage(store, store.log.extents, lambda queue: True))
    segments = len(store.log.extents)
    assert store.files.requests < 3 * queues + segments + 30  # and to open the store
    assert store.files.bytes < 1.2 * 20 * len(builder.messages) + 4096 * queues + 64 * 1024


_LOSSES = ("no ConsumeQueue", "a queue lost", "a file lost", "a zeroed tail", "old units")
_LIES = ("a file cut", "noise", "wrong units", "wrong units", "queues swapped", "a queue copied")


def _named(root: Path) -> set[tuple[int, int]]:
    """Position and size of all units in files of queues, light ones left out."""
    files = [path.read_bytes() for path in root.glob("consumequeue/*/*/*") if path.parts[-3] != LIGHT]
    units = [reference.decode_queue_unit(data[at : at + 20]) for data in files for at in range(0, len(data) - 19, 20)]
    return {(unit.physical_offset, unit.size) for unit in units if unit.size > 0}


def _without(parts: list[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    """Parts of the log, and of each what is not in [start, stop)."""
    cut = [((one, min(other, start)), (max(one, stop), other)) for one, other in parts]
    return [part for pair in cut for part in pair if part[0] < part[1]]


def test_no_message_is_covered_that_no_queue_names(tmp_path: Path, rng: random.Random) -> None:
    """Of logs that were cut and damaged, whose queues are robbed, cut, overwritten, mixed up and left over. Where a
    queue lies of a message's place or size, at least the bytes that no unit reaches are in a gap."""
    unnamed = covered = refused = 0
    for number in range(60):
        root = tmp_path / str(number)
        worn = worn_store(root, rng)
        harms = _LIES if number % 2 else _LOSSES
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            damage.DAMAGES[rng.choice(harms)](root, rng)
        named = _named(root)
        whole = [m for m in worn.store.messages if m in worn.whole or not m.queued]
        store = _opened(root)
        pieces = _pieces(store, [message.position for message in whole], rng)
        for piece, known in zip(pieces, coverage(store, pieces, lambda queue: True), strict=True):
            here = [message for message in whole if piece.start <= message.position < piece.stop]
            hidden = [message for message in here if message[:2] not in named]
            unnamed += len(hidden)
            if known.gaps is None:
                refused += 1
                continue
            assert all(piece.start <= start < stop <= piece.stop for start, stop in known.gaps)
            assert all(one[1] <= other[0] for one, other in itertools.pairwise(known.gaps))
            for message in hidden:
                left = [(message.position, message.end)]
                for at, size in named if harms is _LIES else ():
                    left = _without(left, at, at + size)
                for part in left:
                    assert all(any(start <= at < stop for start, stop in known.gaps) for at in range(*part)), message
            covered += sum(not any(start <= m.position < stop for start, stop in known.gaps) for m in here)
        shutil.rmtree(root)
    assert min(unnamed, covered, refused) > 8, (unnamed, covered, refused)


def test_which_queues_lie(tmp_path: Path, rng: random.Random) -> None:
    """Some units are changed in one of their fields, or point outside of the log: their queues are named, and no other,
    in whatever order they are asked for."""
    store = stores.StoreBuilder(tmp_path, segment_size=4096, queue_file_size=2000)
    for number in range(120):
        store.append(f"T{number % 7}", b"x" * rng.randrange(120), number % 2)
    store.close()
    opened = _opened(tmp_path)
    queues = list(opened.queues.every)
    by_name: dict[tuple[str, int], list[stores.Stored]] = defaultdict(list)
    for message in store.messages:
        by_name[message.topic, message.queue_id].append(message)
    for _ in range(20):
        ends: list[QueueEnd] = []
        expected = set()
        for queue in rng.sample(queues, rng.randint(1, len(queues))):
            for message in rng.sample(by_name[queue.topic, queue.queue_id], 2):
                place = [message.position, message.size, message.queue_offset]
                if rng.random() < 0.3:
                    place[rng.randrange(3)] += rng.choice((-1, 1, 4, 1 << 20))
                    expected.add(queue)
                ends.append((queue, (place[0], place[1], place[2])))
        if rng.random() < 0.2:  # before the log
            ends.append((queues[0], (-4, 91, 0)))
            expected.add(queues[0])
        rng.shuffle(ends)
        found = liars(opened, ends)
        assert set(found) == expected


def test_units_that_overlap_prove_nothing(tmp_path: Path) -> None:
    """A unit in the middle of a queue reaches over where the unit of another queue begins: no end of a queue tells."""
    builder = stores.StoreBuilder(tmp_path, segment_size=1 << 14, queue_file_size=2000)
    for number in range(12):
        builder.append("T", b"x" * 50, number % 2)
    builder.close()
    everywhere = _opened(tmp_path)
    (sound,) = coverage(everywhere, everywhere.log.extents, lambda queue: True)
    assert (sound.gaps, sound.count) == ([], 12)
    (file,) = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    data = bytearray(file.read_bytes())
    at = 20 * 3 + 8
    data[at : at + 4] = (builder.messages[6].size + 4).to_bytes(4, "big")
    file.write_bytes(data)
    other = _opened(tmp_path)
    (found,) = coverage(other, other.log.extents, lambda queue: True)
    assert (found.gaps, found.count) == (None, 12)
