"""What the queues prove of the log is so, and the proof costs what it says."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest
from oracle import stores
from support import reading

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_coverage import coverage
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
