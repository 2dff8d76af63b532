"""Batches: a row for each message in a unit, as RocketMQ's client takes them apart, whatever the body says."""

from __future__ import annotations

import random
import struct
from collections import Counter
from typing import Any

import numpy as np
import pytest
from oracle import reference
from oracle.random_stores import random_properties
from support.reading import rows_of

from native_io import BATCH_INDEX, COLUMNS, Decoder, Filter, Status
from rmqstore_spark.store.format.units import BatchBuilder, Run

Log = tuple[bytes, list[int]]


def _random_inner(rng: random.Random) -> reference.Inner:
    body = rng.choice((b"", b"x", rng.randbytes(rng.randrange(200))))
    properties = b"UNIQ_KEY\x01I%d\x02" % rng.randrange(5) if rng.random() < 0.5 else random_properties(rng)
    # What totalSize says does not count.
    return reference.Inner(body, properties, rng.randrange(-5, 5), rng.choice((None, None, 0, -1, 1 << 30)))


def _body(rng: random.Random) -> bytes:
    return reference.encode_batch(_random_inner(rng) for _ in range(rng.choice((0, 1, 2, 5, 40))))


def _log(rng: random.Random, units: int, lies: float = 0.0) -> Log:
    """Units in a row, many of them batches; some of these with a body that is none."""
    log, positions = b"", []
    for _ in range(units):
        sys_flag = rng.choice((0, 0x40, 0x80, 0xC1, *[0xC0] * 5, 0xF0))
        body = _body(rng)
        if rng.random() < lies and body:
            changed = bytearray(body)
            for _ in range(rng.choice((1, 2))):
                changed[rng.randrange(len(body))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            body = bytes(changed[: rng.choice((len(body), rng.randrange(len(body))))])
        host = "[::1]:1" if sys_flag & 0x30 else "10.0.0.1:1"
        positions.append(len(log))
        log += reference.encode_unit(
            topic=rng.choice(("A", "Bq", "Bq")),
            body=body,
            queue_id=rng.randrange(2),
            queue_offset=rng.choice((0, 7, 1000, (1 << 63) - 3)),
            physical_offset=len(log),
            sys_flag=sys_flag,
            properties=random_properties(rng),
            store_timestamp=1_700_000_000_000,
            born_host=host,
            store_host=host,
            reconsume_times=3,
            prepared_transaction_offset=9,
        )
    return log, positions


def _rows(log: bytes, at: int) -> list[dict[str, Any]] | None:
    try:
        return reference.rows_of_unit(log[at:], at, decompress=False)
    except reference.Corrupt:
        return None


_PASSED_OVER = (Status.NOT_A_BATCH, Status.BAD_SYSFLAG)


def _decoded(decoder: BatchBuilder, log: bytes, most: int, stops: list[Status]) -> list[dict[str, Any]]:
    """The rows of a log, some at a time; what is no batch, and a damaged copy, is passed over."""
    rows, at = [], 0
    while True:
        walked = decoder.decoder.scan(
            log, base=0, position=at, stop=len(log), segment_end=len(log) + 8, verify_crc=True, most=most
        )
        stops.append(walked.status)
        assert decoder.decoder.rows == walked.units <= most
        rows += rows_of(decoder.finish())
        if walked.status is Status.LIMIT:
            return rows
        at = walked.at
        if walked.status in _PASSED_OVER:
            at += struct.unpack_from(">i", log, at)[0]
        else:
            assert walked.status is Status.FULL


def _selected(chosen: Filter, log: bytes) -> list[int]:
    """Where the units begin that a filter chooses; as _decoded()."""
    found, positions, at = [], np.empty(3, np.int64), 0
    while True:
        walked = chosen.scan(
            log, base=0, position=at, stop=len(log), segment_end=len(log) + 8, verify_crc=True, positions=positions
        )
        found += positions[: walked.units].tolist()
        at = walked.at
        if walked.status is Status.LIMIT:
            return found
        if walked.status is not Status.FULL:
            at += struct.unpack_from(">i", log, at)[0]


def _builder(*columns: str) -> BatchBuilder:
    return BatchBuilder(list(columns or (*COLUMNS, BATCH_INDEX)), explodes=True)


def test_rows_are_those_of_the_reference(rng: random.Random) -> None:
    stops: list[Status] = []
    for _ in range(40):
        log, positions = _log(rng, rng.choice((1, 3, 20)), rng.choice((0.0, 0.5)))
        expected = [row for at in positions for row in _rows(log, at) or []]
        for most in (1, 2, 7, 1000):
            assert _decoded(_builder(), log, most, stops) == expected
        assert [len(_decoded(_builder("topic"), log, 3, stops))] == [len(expected)]
    seen = Counter(stops)
    assert min(seen[status] for status in (Status.LIMIT, Status.FULL, Status.NOT_A_BATCH)) > 20, seen


def test_without_exploding_a_batch_is_a_row(rng: random.Random) -> None:
    log, positions = _log(rng, 20, 0.5)
    builder = BatchBuilder([*COLUMNS, BATCH_INDEX])
    builder.append(log, np.array(positions), base=0)
    expected = [reference.decode_unit(log[at:], at, decompress=False) | {BATCH_INDEX: None} for at in positions]
    assert rows_of(builder.finish()) == expected


def _kind(log: bytes, at: int) -> int:
    flags: int = struct.unpack_from(">i", log, at + 36)[0]
    return flags & 0xC1 if flags & 0xC0 == 0xC0 else 0


@pytest.mark.parametrize("explodes", [False, True])
def test_copies_of_batches_are_left_out(explodes: bool, rng: random.Random) -> None:
    """A sound batch is all that makes a copy of the next one: for the decoder, and for a filter that reads runs. A
    message with the batch's queueOffset that is no batch is a damaged copy."""
    left_out = wrong = 0
    stops: list[Status] = []
    for _ in range(25):
        log, positions = _log(rng, rng.choice((1, 3, 20)), rng.choice((0.0, 0.5)))
        before = after = rng.choice(((0, 0), (7, 0xC0)))
        expected, counted = [], []
        for at in positions:
            rows = _rows(log, at) if explodes else [reference.decode_unit(log[at:], at, decompress=False)]
            kind, number = _kind(log, at), struct.unpack_from(">q", log, at + 20)[0]
            is_same = before[1] != 0 and number == before[0]
            if is_same and kind == before[1]:
                left_out += 1
            elif is_same and before[1] == 0xC0:
                wrong += 1
            elif rows is not None:
                expected += rows if explodes else [rows[0] | {BATCH_INDEX: None}]
                counted += [at] if rows else []
                before = number, kind
        for most in (1, 2, 7, 1000):
            builder = BatchBuilder([*COLUMNS, BATCH_INDEX], explodes=explodes)
            builder.decoder.leave_out_copies(after)
            assert _decoded(builder, log, most, stops) == expected
        chosen = Filter(explodes=explodes)
        chosen.leave_out_copies(after)
        assert _selected(chosen, log) == counted
        chosen.leave_out_copies(None)
        assert chosen.copies_after is None
        builder.decoder.leave_out_copies(None)
        assert len(_decoded(builder, log, 7, stops)) >= len(expected)
    assert left_out
    assert wrong


def test_units_that_a_filter_refuses_have_copies_too() -> None:
    """What a filter refuses makes a copy of the next unit if it is sound: so a selection leaves out what all messages
    do without."""
    body = reference.encode_batch([reference.Inner(b"one", b""), reference.Inner(b"two", b"")])
    log = b""
    for time in (1, 2, 2):  # the time of the first one is damaged
        log += reference.encode_unit(
            body=body, queue_offset=5, sys_flag=0xC0, physical_offset=len(log), store_timestamp=time
        )
    chosen = Filter(store_timestamp=(2, 2), explodes=True)
    chosen.leave_out_copies((0, 0))
    assert _selected(chosen, log) == []
    damaged = log.replace(b"one", b"One", 1)
    chosen.leave_out_copies((0, 0))
    assert _selected(chosen, damaged) == [len(log) // 3]


@pytest.mark.parametrize(
    ("base", "status"),
    [("5", Status.LIMIT), ("6", Status.BAD_QUEUE_OFFSET), ("", Status.LIMIT), ("5x", Status.LIMIT)],
)
def test_what_a_batch_says_of_its_queue_offset(base: str, status: Status) -> None:
    body = reference.encode_batch([reference.Inner(b"one", b"")])
    properties = {"XINNER_BASE": "4", "INNER_BASE": base, "INNER_NUM": "1"}
    log = reference.encode_unit(body=body, queue_offset=5, sys_flag=0xC0, properties=properties)
    for after in ((0, 0), None):
        chosen = Filter()
        chosen.leave_out_copies(after)
        positions = np.empty(2, np.int64)
        walked = chosen.scan(
            log, base=0, position=0, stop=len(log), segment_end=len(log) + 8, verify_crc=True, positions=positions
        )
        assert walked.status is (status if after else Status.LIMIT)
        if walked.status is Status.BAD_QUEUE_OFFSET:
            assert (walked.expected, walked.found) == (6, 5)


@pytest.mark.parametrize(
    ("properties", "is_wrong"),
    [
        (b"INNER_BASE\x016", True),
        (b"INNER_BASE\x016\x02", True),
        (b"INNER_BASE\x015", False),
        (b"INNER_BASE\x01/6", False),  # no number
        (b"INNER_BASE\x01", False),
        (b"INNER_BASE\x01" + b"6" * 30, False),
        (b"a\x01INNER_BASE\x016", False),  # a value
    ],
)
def test_where_a_batch_says_its_queue_offset(properties: bytes, is_wrong: bool) -> None:
    body = reference.encode_batch([reference.Inner(b"one", b"")])
    log = reference.encode_unit(body=body, queue_offset=5, sys_flag=0xC0, properties=properties)
    chosen = Filter()
    chosen.leave_out_copies((0, 0))
    walked = chosen.scan(
        log,
        base=0,
        position=0,
        stop=len(log),
        segment_end=len(log) + 8,
        verify_crc=True,
        positions=np.empty(2, np.int64),
    )
    assert walked.status is (Status.BAD_QUEUE_OFFSET if is_wrong else Status.LIMIT)


@pytest.mark.parametrize("explodes", [False, True])
def test_a_filter_looks_at_the_messages(explodes: bool, rng: random.Random) -> None:
    """Then the decoder has the same rows, however few it may take at once."""
    found = 0
    for number in range(100):
        log, positions = _log(rng, rng.choice((1, 10)))
        bounds = sorted(rng.choice((0, 1, 5, 8, 20, 1000, (1 << 63) - 2, -(1 << 63))) for _ in range(2))
        word = f"I{rng.randrange(5)}"
        has_queue, has_word = bool(number % 2), bool(number // 2 % 2)  # a quarter of the filters pass everything

        def judge(topic: bytes, queue_id: int, bounds: list[int] = bounds) -> tuple[int, int] | None:
            return (bounds[0], bounds[1]) if topic == b"Bq" and queue_id else None

        def in_queue(row: dict[str, Any], bounds: list[int] = bounds) -> bool:
            return row["topic"] == "Bq" and row["queueId"] == 1 and bool(bounds[0] <= row["queueOffset"] <= bounds[1])

        conditions = [{"msgId": [word]}] if has_word else []
        chosen = Filter(judge=judge if has_queue else None, conditions=conditions, explodes=explodes)
        rows = {
            at: [
                row
                for row in (
                    _rows(log, at) or [] if explodes else [reference.decode_unit(log[at:], at, decompress=False)]
                )
                if (not has_queue or in_queue(row)) and (not has_word or row["msgId"] == word)
            ]
            for at in positions
        }
        places = np.empty(len(positions) + 1, np.int64)
        walked = chosen.scan(
            log, base=0, position=0, stop=len(log), segment_end=len(log) + 8, verify_crc=True, positions=places
        )
        assert walked.status is Status.LIMIT
        run = Run(memoryview(log), 0, places[: walked.units].copy())
        assert run.positions.tolist() == [at for at in positions if rows[at]]
        if not explodes:
            continue
        for most in (1, 3, 1000):
            builder, done, got = _builder(), 0, []
            while done < len(run.positions):
                done += builder.decoder.append(log, run.positions[done:], base=0, chosen=chosen, most=most)
                assert builder.decoder.rows <= most
                got += rows_of(builder.finish())
            assert got == [row for at in positions for row in rows[at]]
        found += len(run.positions)
    assert found > 10 or not explodes


def test_memory_is_bounded_by_the_bytes() -> None:
    """A batch of very many messages, and a topic that each would repeat."""
    body = reference.encode_batch([reference.Inner(b"", b"")] * 5000)
    log = reference.encode_unit(
        topic="T" * 32_000, body=body, physical_offset=0, sys_flag=0xC0, properties=b"", store_timestamp=1
    )
    decoder, rows, at = Decoder(COLUMNS, explodes=True), 0, 0
    while at < len(log):
        walked = decoder.scan(
            log, base=0, position=at, stop=len(log), segment_end=len(log) + 8, verify_crc=True, most=1 << 20
        )
        assert walked.status in (Status.FULL, Status.LIMIT)
        assert decoder.nbytes < 5 * 1024 * 1024
        rows += decoder.rows
        decoder.finish()
        at = walked.at
    assert rows == 5000


def test_every_cut_and_lie_in_a_length() -> None:
    """A body that is no batch is told, as the reference says, and no row of it comes."""
    inner = [reference.Inner(b"", b""), reference.Inner(b"body", b"A\1b\2"), reference.Inner(b"x" * 20, b"")]
    whole = reference.encode_batch(inner)
    seen = Counter[bool]()
    bodies = [whole[:size] for size in range(len(whole) + 1)]
    bodies += [
        whole[:at] + bytes([value]) + whole[at + 1 :] for at in range(len(whole)) for value in (0x7F, 0x80, 0xFF)
    ]
    for body in bodies:
        log = reference.encode_unit(
            topic="T", body=body, physical_offset=0, sys_flag=0xC0, properties=b"", store_timestamp=1
        )
        stops: list[Status] = []
        rows = _decoded(_builder(), log, 100, stops)
        expected = _rows(log, 0)
        assert rows == (expected or [])
        assert (Status.NOT_A_BATCH in stops) == (expected is None)
        seen[expected is None] += 1
    assert seen[True] > 100
    assert seen[False] > 3
