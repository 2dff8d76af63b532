"""A walk over units inside entries: the same units in windows of any size, with any stop, whatever is wrong."""

from __future__ import annotations

import random
import struct
from typing import Any, NamedTuple

import numpy as np
import pytest
from oracle import reference
from support.kernels import rows_of

from native_io import COLUMNS, Decoder, Dispatcher, Filter, Status, Walked, Wrapping, scan
from rmqstore_spark.store.format.units import BatchBuilder

WRAPPING = Wrapping(48, 4, 24)
BASE = 1 << 20


def entry(position: int, body: bytes | None, index: int = 3, term: int = 1) -> bytes:
    """An entry of DLedger's: magic, size, index, term, pos, channel, chainCrc, bodyCrc, bodyLength."""
    unit = b"" if body is None else reference.encode_unit(topic="T", body=body, physical_offset=position + 48)
    magic = 1 if unit else 2
    return struct.pack(">iiqqqiiii", magic, 48 + len(unit), index, term, position, 0, 0, 0, len(unit)) + unit


@pytest.fixture
def log(rng: random.Random) -> tuple[bytes, list[int], list[int]]:
    """(log, where units begin, where entries end); the segment's end is closed."""
    data, starts, ends = bytearray(), [], []
    for _ in range(60):
        body = None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 5, 300)))
        if body is not None:
            starts.append(BASE + len(data) + 48)
        data += entry(BASE + len(data), body)
        ends.append(BASE + len(data))
    left = rng.choice((8, 20, 48, 500))
    return bytes(data + struct.pack(">ii", -1, left)).ljust(len(data) + left, b"\0"), starts, ends


def walked(log: bytes, at: int, size: int, **where: Any) -> tuple[Walked, list[int]]:
    shown = {"base": at, "position": at, "stop": BASE + len(log), "segment_end": BASE + len(log), "verify_crc": True}
    found = np.empty(1000, np.int64)
    answer = scan(log[at - BASE :][:size], **(shown | where), positions=found, wrapping=WRAPPING)
    return answer, found[: answer.units].tolist()


def test_any_window(log: tuple[bytes, list[int], list[int]], rng: random.Random) -> None:
    """From window to window as SegmentReader goes: where it got to, or with as many bytes as are needed."""
    data, starts, ends = log
    for _ in range(40):
        at, found, need = BASE, [], 0
        for _ in range(5000):
            answer, some = walked(data, at, max(need, rng.choice((0, 1, 8, 47, 48, 49, 100, 400, 4000))))
            found += some
            need = answer.expected if answer.at == at else 0
            at = answer.at
            if answer.status is not Status.MORE:
                break
        assert found == starts
        assert (at, answer.status) == (ends[-1], Status.BLANK)


def test_any_stop(log: tuple[bytes, list[int], list[int]]) -> None:
    """Up to a unit's start, or the end of an entry, it is LIMIT; within one it says that the stop is none."""
    data, starts, ends = log
    boundaries = {BASE, *starts, *ends}
    for stop in range(BASE, ends[-1] + 1):
        answer, found = walked(data, BASE, len(data), stop=stop)
        assert found == [start for start, end in zip(starts, _unit_ends(starts, ends), strict=True) if end <= stop]
        if stop in boundaries:
            assert (answer.at, answer.status) == (stop, Status.LIMIT)
        else:
            assert answer.status is Status.CROSSES_STOP
            assert answer.at < stop


def _unit_ends(starts: list[int], ends: list[int]) -> list[int]:
    return [min(end for end in ends if end > start) for start in starts]


def test_all_that_walk(log: tuple[bytes, list[int], list[int]]) -> None:
    """Filter, decoder and dispatcher pass the same units; without the wrapping there is none."""
    data, starts, ends = log
    where: dict[str, Any] = {"base": BASE, "position": BASE, "stop": ends[-1], "segment_end": BASE + len(data)}
    found = np.empty(1000, np.int64)
    answer = Filter().scan(data, **where, verify_crc=True, positions=found, wrapping=WRAPPING)
    assert found[: answer.units].tolist() == starts
    builder = BatchBuilder(list(COLUMNS))
    assert builder.decoder.scan(data, **where, verify_crc=True, most=1000, wrapping=WRAPPING).units == len(starts)
    assert [row["commitLogOffset"] for row in rows_of(builder.finish())] == starts
    dispatcher = Dispatcher()
    assert dispatcher.dispatch(data, **where, verify_crc=True, most=1000, wrapping=WRAPPING).units == len(starts)
    assert dispatcher.finish().last_position == starts[-1]
    plain = Decoder(["topic"]).scan(data, **where, verify_crc=True, most=1000)
    assert (plain.units, plain.status) == (0, Status.BAD_MAGIC)


def test_headers_that_lie(log: tuple[bytes, list[int], list[int]], rng: random.Random) -> None:
    """Any byte of any header: nothing is passed that is not an entry here, and never anything outside of the window."""
    data, starts, ends = log
    for _ in range(2000):
        number = rng.randrange(len(ends))
        begin = BASE if number == 0 else ends[number - 1]
        at = begin - BASE + rng.randrange(48)
        changed = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        answer, found = walked(changed, BASE, rng.choice((len(data), rng.randrange(len(data)))))
        assert found == starts[: len(found)]
        assert BASE <= answer.at <= BASE + len(data)
    for size in (-(1 << 31), -1, 0, 47, 49, (1 << 31) - 1):
        lie = data[:4] + struct.pack(">i", size) + data[8:]
        answer, found = walked(lie, BASE, len(data))
        assert found == starts[: len(found)]


@pytest.mark.parametrize("left", range(60))
def test_the_end_of_a_segment(left: int) -> None:
    data = entry(BASE, b"x")
    for said in (left, 0):  # 0: of a node that was killed before it wrote the size
        closed = (struct.pack(">ii", -1, said) + bytes(60))[:left]
        answer, found = walked(data + closed, BASE, 1000)
        assert found == ([BASE + 48] if left >= 8 else [])
        assert answer.status is (Status.BLANK if left >= 8 else Status.BAD_TOTAL_SIZE)


ORDERED = Wrapping(48, 4, 24, 44, (8, 16))


class Told(NamedTuple):
    """A unit, and what its entry says."""

    position: int
    end: int
    number: int
    term: int


def ordered(rng: random.Random) -> tuple[bytes, list[Told]]:
    """A log, and its units. Some index or term may not go on from the one before."""
    data, units = bytearray(), []
    index, term = rng.randrange(1 << 40), rng.randrange(5)
    for number in range(rng.randrange(1, 40)):
        begin = BASE + len(data)
        body = b"x" * rng.randrange(40) if number == 0 or rng.random() < 0.8 else None
        data += entry(begin, body, index, term)
        if body is not None:
            units.append(Told(begin + 48, BASE + len(data), index, term))
        index += 1 if rng.random() < 0.98 else rng.choice((0, 2, 1 << 60, -index))
        term += rng.choice((0, 0, 0, 1)) if rng.random() < 0.98 else -1
    return bytes(data), units


def goes_on(before: Told, unit: Told) -> bool:
    """By the length of what is between them."""
    empty = (unit.position - 48 - before.end) // 48
    return unit.number == before.number + 1 + empty and unit.term >= before.term


def test_the_order_of_entries(rng: random.Random) -> None:
    """Up to the first that does not go on, whatever its window, and whether the first entry is known or not."""
    some_do_not = 0
    for _ in range(200):
        data, units = ordered(rng)
        count = next((n for n in range(1, len(units)) if not goes_on(units[n - 1], units[n])), len(units))
        some_do_not += count < len(units)
        positions = np.array([unit.position for unit in units], np.int64)
        last = units[count - 1]
        first = (units[0].number, units[0].term)
        answer = ORDERED.in_order(data, base=BASE, positions=positions, first=first)
        assert answer == (count, (last.number, last.term), last.end)
        cut = units[0].position - BASE  # the window of a walk begins behind the first header
        assert ORDERED.in_order(data[cut:], base=BASE + cut, positions=positions, first=first) == answer
        unknown = ORDERED.in_order(data, base=BASE, positions=positions, first=None)
        if count > 1:
            assert unknown == answer
        elif len(units) == 1:
            assert unknown == (1, None, last.end)
        assert ORDERED.in_order(data, base=BASE, positions=positions[:0], first=first) == (0, first, 0)
        behind = rng.randrange(1, count + 1)  # a window that goes on from an earlier one
        before = units[behind - 1]
        known, end = (before.number, before.term), before.end
        answer = ORDERED.in_order(data[end - BASE :], base=end, positions=positions[behind:], first=known, end=end)
        assert answer == (count - behind, (last.number, last.term), last.end)
    assert some_do_not > 0


def test_positions_that_lie(rng: random.Random) -> None:
    """Nothing outside of the window is read, and no number is too large."""
    for _ in range(300):
        data, units = ordered(rng)
        changed = bytearray(data)
        for _ in range(rng.randrange(4)):
            changed[rng.randrange(len(data))] = rng.choice((0, 0x7F, 0x80, 0xFF))
        size = rng.randrange(len(data) + 1)
        anywhere = (BASE - 1, 0, -1, -(1 << 63), (1 << 63) - 1, BASE + size - 4, BASE + size - 3, BASE + 47, BASE)
        positions = [rng.choice(anywhere) if rng.random() < 0.1 else unit.position for unit in units]
        first = rng.choice((None, ((1 << 63) - 1, (1 << 63) - 1), (-(1 << 63), 0)))
        end = None if first is None else rng.choice((None, BASE, -(1 << 63), (1 << 63) - 1))
        asked = np.array(positions, np.int64)
        count, *_ = ORDERED.in_order(changed[:size], base=BASE, positions=asked, first=first, end=end)
        assert 0 <= count <= len(units)
    with pytest.raises(ValueError, match="lies before"):
        ORDERED.in_order(b"", base=-1, positions=np.empty(0, np.int64), first=None)
