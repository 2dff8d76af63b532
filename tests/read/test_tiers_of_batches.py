"""Topics of batches in a tiered store: a broker brings a batch once for each of its messages."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, tiered
from oracle.aged_stores import BATCHES, make_batches
from oracle.stores import StoreBuilder
from oracle.tiered import TierWriter
from support.following import Query

from rmqstore_spark import DamagedStoreError, Store
from rmqstore_spark.cli.following import followed

COLUMNS = ["topic", "queueId", "queueOffset", "keys", "body"]
Row = dict[str, Any]


def rows_of(path: Path, columns: list[str] = COLUMNS, **options: Any) -> list[Row]:
    rows: list[Row] = Store(path).messages(columns, **options).read_all().to_pylist()
    return rows


def sorted_rows(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((*(row[name] for name in COLUMNS[:3]), row["keys"] or "", row["body"]) for row in rows)


def _copies_of_batches(root: Path, counts: Sequence[int]) -> list[bytes]:
    """Makes a store with batches of so many messages, every other one of one message no batch; answers what a broker
    brings of it to a tier."""
    store = StoreBuilder(root, segment_size=64 * 1024)
    for number, count in enumerate(counts):
        base = store.next_offset(BATCHES, 0)
        inner = [
            reference.Inner(
                f"body-{base + at}".encode(), f"KEYS\x01k{base + at}\x02UNIQ_KEY\x01ID{base + at}".encode(), at
            )
            for at in range(count)
        ]
        if count == 1 and number % 2:
            store.append(BATCHES, b"one", keys=f"k{base}", msg_id=f"ID{base}")
            continue
        properties = b"INNER_BASE\x01%d\x02INNER_NUM\x01%d\x02" % (base, count)
        body = reference.encode_batch(inner)
        store.append(BATCHES, body, properties=properties, sys_flag=reference.BATCH, messages=count)
    store.close()
    make_batches(store)
    units = tiered.queue_units(root)[BATCHES, 0]
    return [unit for unit, count in zip(units, counts, strict=True) for _ in range(count)]


def _claims(at: int, units: Sequence[bytes]) -> bytes:
    """The queue's units for messages from a flat offset on."""
    starts = itertools.accumulate(map(len, units), initial=at)
    return b"".join(struct.pack(">qiq", start, len(unit), 0) for start, unit in zip(starts, units, strict=False))


def test_a_tier_of_batches(tmp_path: Path, rng: random.Random) -> None:
    """A broker brings a batch once for each of its messages, each copy with a unit of its own: the messages come once,
    wherever files and tasks begin."""
    counts = [rng.choice((1, 1, 2, 3, 7)) for _ in range(25)]
    copies = _copies_of_batches(tmp_path / "store", counts)
    writer = TierWriter(tmp_path / "tier", BATCHES, 0)
    claims, at = b"", 0
    while at < len(copies):
        some = copies[at : at + rng.randint(1, 12)]
        claims += _claims(writer.next, some)
        writer.write_segment(some, lag=len(some))
        at += len(some)
    (writer.queue / tiered.name_of(0)).write_bytes(claims)
    names = ["queueOffset", "keys", "msgId", "body", "batchIndex"]
    expected = rows_of(tmp_path / "store", names)
    assert len(expected) == len(copies)
    for options in ({}, {"maxPartitionBytes": "1"}, {"maxPartitionBytes": str(rng.randint(200, 3000))}):
        assert rows_of(tmp_path / "tier", names, **options) == expected
        whole = rows_of(tmp_path / "tier", ["queueOffset"], explodeBatches="false", **options)
        assert [row["queueOffset"] for row in whole] == [sum(counts[:number]) for number in range(len(counts))]
    assert rows_of(tmp_path / "store", names, tiered=str(tmp_path / "tier")) == expected
    shutil.copytree(tmp_path / "store", tmp_path / "unproved")
    shutil.rmtree(tmp_path / "unproved" / "batchconsumequeue")
    assert rows_of(tmp_path / "unproved", names, tiered=str(tmp_path / "tier")) == expected
    query = Query(tmp_path / "tier", columns=names, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    query.run()
    assert query.rows == expected
    (queue,) = Store(tmp_path / "tier").queues(["messages", "minOffset", "maxOffset"]).to_pylist()
    assert [*queue.values()] == [len(copies), 0, len(copies)]
    for number in rng.sample(range(len(copies)), 5):
        spans = {
            "startingOffsets": {BATCHES: {"0": number}},
            "endingOffsets": {BATCHES: {"0": number + rng.randint(0, 9)}},
        }
        given = {name: json.dumps(value) for name, value in spans.items()}
        end = spans["endingOffsets"][BATCHES]["0"]
        rows = rows_of(tmp_path / "tier", names, subscribe=BATCHES, **given)
        assert rows == expected[number:end], (number, end)
        for option, value in (("key", f"k{number}"), ("msgId", f"ID{number}")):
            assert rows_of(tmp_path / "tier", names, **{option: value}) == [expected[number]]
    assert Store(tmp_path / "tier").check().num_rows == 0


def test_a_stream_reads_copies_together(tmp_path: Path, rng: random.Random) -> None:
    """The copies of a batch are no micro-batches of their own, wherever files begin, also where a broker has brought
    some again; and a batch that is planned again has the same rows."""
    copies = _copies_of_batches(tmp_path / "store", [rng.choice((1, 2, 3, 7)) for _ in range(12)])
    expected = rows_of(tmp_path / "store")
    for kill in (None, rng.randrange(1, len(copies))):
        tier = tmp_path / f"tier-{kill}"
        writer = TierWriter(tier, BATCHES, 0)
        for at in range(len(copies)):
            writer.write_segment(copies[at : at + 1], lag=1)
            if at == kill:
                again = copies[at - 1 : at + 1]
                writer.write_segment(again, lag=len(again))
        for size in ("1", "1g"):
            query = Query(tier, columns=COLUMNS, startingOffsets="earliest", maxPartitionBytes=size)
            query.run()
            assert query.rows == expected
            assert query.rows_between(0, 1) == expected[: len(query.rows_between(0, 1))]
            assert len(query.offsets) <= (2 if kill is None else 4)


def test_the_last_messages_before_new_ones(tmp_path: Path) -> None:
    """`tail -f` shows each message of a batch once, also one that a killed broker has brought again."""
    copies = _copies_of_batches(tmp_path / "store", [1, 3, 1, 4, 2])
    expected = rows_of(tmp_path / "store", ["queueOffset", "body"])
    writer = TierWriter(tmp_path / "tier", BATCHES, 0)
    claims = _claims(0, copies[:5]) + _claims(sum(map(len, copies[:8])), copies[5:])
    writer.write_segment(copies[:8], lag=8)
    writer.write_segment(copies[5:], lag=6)
    (writer.queue / tiered.name_of(0)).write_bytes(claims)
    for count in (1, 4, 9, 100):
        last, _ = followed(str(tmp_path / "tier"), {"columns": "queueOffset,body"}, count, False)
        assert last.to_pylist() == expected[-count:]


def test_brokers_killed_among_copies_of_batches(tmp_path: Path, rng: random.Random) -> None:
    """What a broker had brought without units when it was killed it brings again, from any message of a batch on:
    nothing is missing, and each message comes once."""
    copies = _copies_of_batches(tmp_path / "store", [rng.choice((1, 2, 3, 7)) for _ in range(20)])
    writer = TierWriter(tmp_path / "tier", BATCHES, 0)
    claims, at = b"", 0
    for _ in range(4):
        known, brought = sorted(rng.randint(at, len(copies)) for _ in range(2))
        claims += _claims(writer.next, copies[at:known])
        writer.write_segment(copies[at:brought], lag=brought - at)
        at = known
    claims += _claims(writer.next, copies[at:])
    writer.write_segment(copies[at:], lag=len(copies) - at)
    (writer.queue / tiered.name_of(0)).write_bytes(claims)
    expected = sorted_rows(rows_of(tmp_path / "store"))
    for size in ("128m", "1", str(rng.randint(200, 3000))):
        assert sorted_rows(rows_of(tmp_path / "tier", maxPartitionBytes=size)) == expected


@pytest.mark.slow
def test_damage_among_copies_of_batches(tmp_path: Path, rng: random.Random) -> None:
    """A unit that is lost, or a copy that is damaged, where files and tasks begin: each message of a batch comes once,
    from another copy."""
    copies = _copies_of_batches(tmp_path / "store", [rng.choice((2, 3, 5)) for _ in range(4)])
    expected = sorted_rows(rows_of(tmp_path / "store"))
    writer = TierWriter(tmp_path / "tier", BATCHES, 0)
    claims, segments = b"", []
    for copy in copies:
        claims += _claims(writer.next, [copy])
        segments.append(writer.write_segment([copy], lag=1))
    units = writer.queue / tiered.name_of(0)
    sizes = ("128m", "1", str(rng.randint(200, 3000)))
    for number in range(len(copies)):
        units.write_bytes(claims[: number * 20] + bytes(20) + claims[number * 20 + 20 :])
        for size in sizes[:1] if number % 3 else sizes:
            assert sorted_rows(rows_of(tmp_path / "tier", maxPartitionBytes=size)) == expected, (number, size)
    units.write_bytes(claims)
    for number, path in enumerate(segments):
        sound = path.read_bytes()
        at = sound.index(b"body-")
        path.write_bytes(sound[:at] + b"B" + sound[at + 1 :])
        for size in sizes[:1] if number % 3 else sizes:
            rows = rows_of(tmp_path / "tier", mode="DROPMALFORMED", maxPartitionBytes=size)
            assert sorted_rows(rows) == expected, (number, size)
        path.write_bytes(sound)


def _tier(path: Path, copies: Sequence[bytes]) -> Path:
    """A tier with these units; answers its log."""
    writer = TierWriter(path, BATCHES, 0)
    (writer.queue / tiered.name_of(0)).write_bytes(_claims(0, copies))
    return writer.write_segment(copies, lag=len(copies))


def _selections(count: int, rng: random.Random) -> list[dict[str, Any]]:
    start = rng.randrange(count)
    return [
        {"startingOffsets": json.dumps({BATCHES: {"0": start}}), "subscribe": BATCHES},
        {
            "startingOffsets": json.dumps({BATCHES: {"0": start}}),
            "endingOffsets": json.dumps({BATCHES: {"0": start + 2}}),
            "subscribe": BATCHES,
        },
        {"key": f"k{start}"},
        {"bodyContains": f"body-{start}"},
        {"startingTimestamp": "1970-01-01"},
        {"assign": json.dumps({BATCHES: [0]})},
    ]


def _holds(selection: dict[str, Any], row: Row) -> bool:
    """The selections of _selections(), of a row."""
    first = json.loads(selection.get("startingOffsets", "{}")).get(BATCHES, {}).get("0", 0)
    stop = json.loads(selection.get("endingOffsets", "{}")).get(BATCHES, {}).get("0", 1 << 62)
    is_in = first <= row["queueOffset"] < stop
    has_key = selection.get("key", row["keys"]) == row["keys"]
    return is_in and has_key and selection.get("bodyContains", "").encode() in row["body"]


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(1, 2, 3, 2), (1, 1, 1, 1, 2)])
def test_flipped_heads_of_copies(counts: tuple[int, ...], tmp_path: Path, rng: random.Random) -> None:
    """A copy whose queueOffset or sysFlag is damaged is told, and each message comes once, from another copy. Where the
    first copy no longer says that it is a batch it is a row of its own. A scan and every selection give the same."""
    copies = _copies_of_batches(tmp_path / "store", counts)
    expected = sorted_rows(rows_of(tmp_path / "store"))
    log = _tier(tmp_path / "tier", copies)
    sound = log.read_bytes()
    starts = list(itertools.accumulate(map(len, copies), initial=0))
    for number, copy in enumerate(copies):
        if copy[39] & 0xC0 == 0:
            continue
        is_first, others = number == 0 or copies[number - 1] is not copy, copies.count(copy) - 1
        for at, bit in [(27, 0x01), (27, 0x40), (26, 0x10), (20, 0x80), (39, 0x80), (39, 0x40), (39, 0x01)]:
            damaged = bytearray(sound)
            damaged[starts[number] + at] ^= bit
            log.write_bytes(damaged)
            options: dict[str, Any] = {"decompress": "false", "maxPartitionBytes": rng.choice(("128m", "1"))}
            rows = rows_of(tmp_path / "tier", [*COLUMNS, "corrupt"], mode="PERMISSIVE", **options)
            given = [row for row in rows if row["corrupt"] is None]
            case = number, at, bit, options
            if at == 39 and is_first:
                assert others == 0 or set(sorted_rows(given)) > set(expected), case
                assert len(given) == len(rows) == len(expected) + (others > 0), case
            else:
                assert set(sorted_rows(given)) <= set(expected), case
                assert len(given) == len(expected) - (others == 0) < len(rows), case
                with pytest.raises(DamagedStoreError, match="sysFlag" if at == 39 else "INNER_BASE"):
                    rows_of(tmp_path / "tier", **options)
            for selection in _selections(len(expected), rng):
                some = rows_of(tmp_path / "tier", mode="DROPMALFORMED", **options, **selection)
                chosen = [row for row in given if _holds(selection, row)]
                if "bodyContains" not in selection or at != 39:
                    assert sorted_rows(some) == sorted_rows(chosen), (case, selection)


@pytest.mark.parametrize("size", ["128m", "1"])
def test_a_wrong_body_of_a_copy_that_is_left_out(size: str, tmp_path: Path, rng: random.Random) -> None:
    """It is no row, so it stops no read, with or without a selection; `check` tells of it. Of a first copy it is told,
    and the next one counts."""
    copies = _copies_of_batches(tmp_path / "store", [1, 3, 2, 3])
    expected = sorted_rows(rows_of(tmp_path / "store"))
    log = _tier(tmp_path / "tier", copies)
    sound = log.read_bytes()
    starts = list(itertools.accumulate(map(len, copies), initial=0))
    for number in range(1, len(copies)):
        at = sound.index(b"body-", starts[number])
        log.write_bytes(sound[:at] + b"B" + sound[at + 1 :])
        assert "damagedQueueLog" in {row["problem"] for row in Store(tmp_path / "tier").check().to_pylist()}
        if copies[number - 1] is copies[number]:
            assert sorted_rows(rows_of(tmp_path / "tier", maxPartitionBytes=size)) == expected
            for selection in _selections(len(expected), rng):
                some = rows_of(tmp_path / "tier", maxPartitionBytes=size, **selection)
                chosen = [row for row in rows_of(tmp_path / "store") if _holds(selection, row)]
                assert sorted_rows(some) == sorted_rows(chosen), (number, selection)
        else:
            with pytest.raises(DamagedStoreError, match="CRC"):
                rows_of(tmp_path / "tier", maxPartitionBytes=size)
            assert sorted_rows(rows_of(tmp_path / "tier", mode="DROPMALFORMED", maxPartitionBytes=size)) == expected


def test_batches_that_are_compressed(tmp_path: Path, rng: random.Random) -> None:
    """No client compresses a batch. One that says so is a row as it is stored, once, for a scan and every selection."""
    whole = _copies_of_batches(tmp_path / "store", [2, 3, 1, 2])
    copies = [unit[:39] + bytes([unit[39] | 1]) + unit[40:] for unit in whole]
    _tier(tmp_path / "tier", copies)
    for size in ("128m", "1", "700"):
        rows = rows_of(tmp_path / "tier", maxPartitionBytes=size, decompress="false")
        assert [row["queueOffset"] for row in rows] == [0, 2, 5, 6]
        for selection in _selections(len(rows), rng):
            if "bodyContains" in selection:
                continue
            some = rows_of(tmp_path / "tier", maxPartitionBytes=size, decompress="false", **selection)
            assert some == [row for row in rows if _holds(selection, row)], (size, selection)
