"""Past damage every whole message comes, and nothing that stands in a damaged one's body: of logs with damage in one
place or several, with queues and without."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from oracle.damaged_logs import damaged_log
from oracle.stores import StoreBuilder, Stored

from native_io import Filter
from rmqstore_spark.store.format.units import BatchBuilder
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.past_damage import PastDamage
from rmqstore_spark.store.structures.segments import Damage, Segment
from rmqstore_spark.store.structures.window import Window

_COVERED = (*range(8), *range(28, 36), *range(84, 88))  # bytes of a message that a check covers wherever they stand


def _pieces(segment: Segment, end: int, begins: list[int], rng: random.Random) -> list[tuple[int, int]]:
    """What of the log is in a segment, cut here and there where a whole message begins."""
    stop = min(segment.start + segment.size, end)
    here = [position for position in begins if segment.start < position < stop]
    cuts = [segment.start, *sorted(rng.sample(here, min(rng.randrange(3), len(here)))), stop]
    return list(itertools.pairwise(cuts))


def _select(past: PastDamage, start: int, stop: int) -> tuple[list[int], list[Damage]]:
    """Where units begin, and damages; each comes after what came before."""
    positions: list[int] = []
    damages: list[Damage] = []
    at = start
    for found in past.select(start, stop, Filter()):
        if isinstance(found, Damage):
            assert at <= found.start < found.stop
            at = found.stop
            damages.append(found)
            continue
        for header in found.headers():
            assert at <= header.position
            at = header.position + header.size
            positions.append(header.position)
    return positions, damages


def _decode(past: PastDamage, start: int, stop: int) -> tuple[list[int], list[Damage]]:
    builder = BatchBuilder(["commitLogOffset"])
    damages = [found for found in past.decode(start, stop, builder) if found is not None]
    return builder.finish().column(0).to_pylist(), damages


def _read(root: Path, end: int, begins: list[int], rng: random.Random) -> tuple[list[int], list[Damage]]:
    """All of a log that ends there, in pieces, in two ways that have to say the same."""
    store = Snapshot.find(str(root), Files())
    positions: list[int] = []
    damages: list[Damage] = []
    for segment in store.segments:
        for start, stop in _pieces(segment, end, begins, rng):
            with store.reader(segment, verify_crc=True) as reader:
                found = _select(store.past_damage(reader), start, stop)
                assert _decode(store.past_damage(reader), start, stop) == found
            positions += found[0]
            damages += found[1]
    return positions, damages


def test_every_whole_message_comes(tmp_path: Path, rng: random.Random) -> None:
    """And only those, and no damage reaches over one; where nothing can tell what is live, nothing is asked."""
    lost = 0
    for number in range(60):
        root = tmp_path / str(number)
        found = damaged_log(root, rng, least=1)
        begins = [row["commitLogOffset"] for row in found.rows]
        if found.is_unsure or not begins:
            continue
        last = found.store.messages[-1]
        end = last.end if begins[-1] == last.position else begins[-1]
        positions, damages = _read(root, end, begins, rng)
        expected = [position for position in begins if position < end]
        assert positions == expected, (found.story, sorted({*positions} ^ {*expected}))
        for damage in damages:
            assert not [position for position in expected if damage.start <= position < damage.stop], found.story
        assert bool(damages) >= any(message.position < end for message in found.lost)
        lost += sum(message.position < end for message in found.lost)
        shutil.rmtree(root)
    assert lost > 50


def _append_full(store: StoreBuilder, rng: random.Random) -> Stored:
    """A message with whole units in its body, that would be right where they stand."""
    at, body = store.end, rng.randbytes(rng.choice((0, 30)))
    for _ in range(rng.randrange(1, 4)):
        claim = rng.choice(({"topic": "Nope"}, {"topic": "T", "queue_offset": rng.randrange(90)}, {"topic": "Full"}))
        body += reference.encode_unit(physical_offset=at + 88 + len(body), body=b"crafted", **claim)
    assert store.append("Full", body + rng.randbytes(rng.choice((0, 30)))) == at
    return store.messages[-1]


def test_no_message_of_a_body_comes(tmp_path: Path, rng: random.Random) -> None:
    """One of a few messages is damaged that have whole units in their bodies, whether its queue has it or not."""
    for number in range(30):
        store = StoreBuilder(tmp_path / str(number), 1 << 14, 2000)
        full = []
        for _ in range(rng.randrange(1, 4)):
            for _ in range(rng.randrange(1, 4)):
                store.append("T", rng.randbytes(rng.randrange(40)))
            full.append(_append_full(store, rng))
        for _ in range(3):
            store.append("T", b"after")
        store.close()
        if rng.random() < 0.5:
            store.drop_queues()
        damaged = rng.choice(full)
        path = store.segment(damaged.position)
        good = path.read_bytes()
        expected = [message.position for message in store.messages if message is not damaged]
        for inside in rng.sample((*_COVERED, *range(88, 120)), 8):
            data = bytearray(good)
            data[damaged.position + inside] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            positions, damages = _read(store.root, store.end, expected, rng)
            assert positions == expected, inside
            assert [(each.start, each.stop) for each in damages] == [(damaged.position, damaged.end)]


def test_a_segment_that_is_cut_while_it_is_read(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there is damaged; the search for the next unit comes to an end."""
    builder = StoreBuilder(tmp_path / "store", segment_size=1 << 16)
    for number in range(200):
        builder.append(body=b"b" * number)
    builder.close()
    store = Snapshot.find(str(builder.root), Files())
    path = Path(store.segments[0].path)
    data, end, shows = path.read_bytes(), store.end, itertools.count()

    def show(window: Window, at: int, need: int, stop: int, real: Any = Window.show) -> None:
        assert next(shows) < 100_000, "it does not come to an end"
        real(window, at, need, stop)

    monkeypatch.setattr(Window, "show", show)
    for size in (0, 1, 8, 90, *(rng.randrange(end) for _ in range(10))):
        path.write_bytes(data)
        with store.reader(store.segments[0], verify_crc=True) as reader:
            os.truncate(path, size)
            begins, damages = _select(store.past_damage(reader), 0, end)
            assert damages[-1].stop == end
            assert begins == [each.position for each in builder.messages if each.end <= size]
