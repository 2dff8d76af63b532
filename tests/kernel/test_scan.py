"""The kernel's scan and find_unit give every verdict with its numbers, and on damaged logs the oracle's."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import reference
from oracle.reference import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Corrupt, check_unit, encode_blank, encode_unit
from support.kernels import decode, encode_log, find, rows_of, scan_units

from native_io import COLUMNS, Decoder, Status, find_unit, scan
from rmqstore_spark.store.format.units import BatchBuilder

DATA = Path(__file__).parents[1] / "data"
BASE = 1 << 40  # no position fits into 32 bits
GOOD: dict[str, Any] = {"topic": "TopicA", "body": b"hello", "properties": {"a": "b"}}
SIZE = 106  # 91 and 6 + 5 + 4: what each length must leave to the two others
ROOM = 4096  # from the unit in question to the end of its segment
I16, I32, I64 = 1 << 15, 1 << 31, 1 << 63
V6 = reference.BORN_HOST_V6 | reference.STORE_HOST_V6

Lie = dict[str, Any]

# What is wrong, and the status, expected and found that it gives. BASE is the unit's position.
LIES: list[tuple[Lie, Status, int, int]] = [
    *(({"magic": magic}, Status.BAD_MAGIC, MAGIC_V1, magic) for magic in (0, -1, 1, I32 - 1, -I32)),
    *(({"magic": magic}, Status.BAD_MAGIC, MAGIC_V1, magic) for magic in (MAGIC_V1 + 1, MAGIC_V2 + 1, MAGIC_BLANK + 1)),
    *(({"total_size": size}, Status.BAD_TOTAL_SIZE, 91, size) for size in (-I32, -SIZE, -1, 0, 1, 8, 90)),
    # 8 bytes must be left for the blank
    *(({"total_size": size}, Status.BAD_TOTAL_SIZE, ROOM - 8, size) for size in (ROOM - 7, ROOM, ROOM + 1, I32 - 1)),
    ({"total_size": 91, "version": 2}, Status.BAD_TOTAL_SIZE, 92, 91),
    ({"total_size": 114, "sys_flag": V6}, Status.BAD_TOTAL_SIZE, 115, 114),
    ({"total_size": 102, "sys_flag": reference.STORE_HOST_V6}, Status.BAD_TOTAL_SIZE, 103, 102),
    # too small a unit runs out of room in the one or the other of its parts
    ({"total_size": 91}, Status.BAD_BODY_LENGTH, 0, 5),
    ({"total_size": 95}, Status.BAD_BODY_LENGTH, 4, 5),
    ({"total_size": 96}, Status.BAD_TOPIC_LENGTH, 0, 6),
    ({"total_size": 101}, Status.BAD_TOPIC_LENGTH, 5, 6),
    *(({"total_size": size}, Status.BAD_LENGTH_SUM, SIZE, size) for size in (102, SIZE - 1, SIZE + 1, ROOM - 8)),
    *(
        ({"physical_offset": at}, Status.BAD_PHYSICAL_OFFSET, BASE, at)
        for at in (0, -1, BASE - 1, BASE + 1, BASE & 0xFFFFFFFF, -BASE, I64 - 1, -I64)
    ),
    *(({"body_length": size}, Status.BAD_BODY_LENGTH, 15, size) for size in (-I32, -1, 16, 106, ROOM, I32 - 1)),
    # the topic length is then read out of the body: "h", "e"
    *(({"body_length": i}, Status.BAD_TOPIC_LENGTH, 15 - i, b"hello"[i]) for i in (0, 1, 4)),
    ({"body_length": 15}, Status.BAD_TOPIC_LENGTH, 0, 1),
    *(({"topic_length": size}, Status.BAD_TOPIC_LENGTH, 10, size) for size in (-128, -1, 11, 127)),
    *(
        ({"topic_length": size, "version": 2}, Status.BAD_TOPIC_LENGTH, 10, size)
        for size in (-I16, -1, 11, 128, I16 - 1)
    ),
    # the properties length is then read out of the topic or the properties: "To", 4 << 8 | "a", "b\2"
    ({"topic_length": 0}, Status.BAD_LENGTH_SUM, SIZE - 10 + 0x546F, SIZE),
    ({"topic_length": 7}, Status.BAD_LENGTH_SUM, SIZE - 3 + 0x461, SIZE),
    ({"topic_length": 10}, Status.BAD_LENGTH_SUM, SIZE - 0 + 0x6202, SIZE),
    *(({"properties_length": size}, Status.BAD_PROPERTIES_LENGTH, 4, size) for size in (-I16, -1)),
    *(
        ({"properties_length": size}, Status.BAD_LENGTH_SUM, SIZE - 4 + size, SIZE)
        for size in (0, 1, 3, 5, ROOM, I16 - 1)
    ),
    *(({"body_crc": crc}, Status.BAD_BODY_CRC, crc, 0x3610A686) for crc in (0, -1, 0x3610A687, 0x3610A686 - I32)),
]


def _name(value: object) -> str:
    return ",".join(f"{name}={found}" for name, found in value.items()) if isinstance(value, dict) else str(value)


def _lying_unit(lie: Lie) -> bytes:
    return encode_unit(**{**GOOD, "physical_offset": BASE, **lie})


@pytest.mark.parametrize(("lie", "status", "expected", "found"), LIES, ids=_name)
def test_a_wrong_unit_ends_the_scan(lie: Lie, status: Status, expected: int, found: int) -> None:
    before = encode_unit(**GOOD, physical_offset=BASE - SIZE)
    window = before + _lying_unit(lie).ljust(ROOM, b"\0")
    assert scan_units(window, BASE - SIZE) == ([BASE - SIZE], BASE, status, expected, found)


@pytest.mark.parametrize(("lie", "status", "expected", "found"), LIES, ids=_name)
def test_find_unit_passes_over_a_wrong_unit(lie: Lie, status: Status, expected: int, found: int) -> None:
    wrong = _lying_unit(lie)
    good = encode_unit(**GOOD, physical_offset=BASE + len(wrong))
    window = (wrong + good).ljust(ROOM, b"\0")
    assert find(window, BASE)[:2] == (BASE + len(wrong), Status.OK)
    assert find(window, BASE, stop=BASE + len(wrong))[1] is Status.LIMIT


@pytest.mark.parametrize(("lie", "status", "expected", "found"), LIES, ids=_name)
def test_a_wrong_unit_cut_anywhere_never_becomes_a_row(lie: Lie, status: Status, expected: int, found: int) -> None:
    unit = _lying_unit(lie).ljust(ROOM, b"\0")
    verdicts = [scan_units(unit[:cut], BASE, segment_end=BASE + ROOM) for cut in range(200)]
    judged = 0
    for cut, (positions, _, now, needed, _) in enumerate(verdicts):
        assert positions == []
        assert needed > cut if now is Status.MORE else now is status
        assert judged == 0 or now is status, "more bytes must not take a verdict back"
        judged += now is status
    if status is not Status.BAD_LENGTH_SUM or lie.get("total_size", 0) < 200:
        assert judged > 0


def test_every_status_is_returned_in_these_tests() -> None:
    others = {Status.BAD_BLANK, Status.BAD_ENTRY}  # of no unit
    others |= {Status.BAD_QUEUE_OFFSET, Status.BAD_SYSFLAG}  # of copies of batches
    assert {status for _, status, _, _ in LIES} == {each for each in Status if each.name.startswith("BAD")} - others


@pytest.mark.parametrize("crc", [0, -1, 0x3610A687])
def test_the_crc_is_not_looked_at_when_not_asked(crc: int) -> None:
    window = _lying_unit({"body_crc": crc}).ljust(ROOM, b"\0")
    assert scan_units(window, BASE, stop=BASE + SIZE, verify_crc=False).positions == [BASE]
    assert find(window, BASE, verify_crc=False) == (BASE, Status.OK, 0)
    assert find(window, BASE, verify_crc=True)[1] is not Status.OK


def test_an_empty_body_has_no_crc() -> None:
    window = encode_unit(body_crc=7).ljust(ROOM, b"\0")
    assert scan_units(window, capacity=1).positions == [0]


@pytest.mark.parametrize("room", [8, 9, 90, 91, 98, 99, 4096])
def test_blank(room: int) -> None:
    unit = encode_unit(**GOOD, physical_offset=BASE)
    window = unit + encode_blank(room).ljust(room, b"\xda")
    assert scan_units(window, BASE) == ([BASE], BASE + SIZE, Status.BLANK, room, room)
    for left in (room - 1, room + 1, 0, -1, -room, I32 - 1, -I32):
        window = unit + encode_blank(left).ljust(room, b"\0")
        assert scan_units(window, BASE) == ([BASE], BASE + SIZE, Status.BAD_BLANK, room, left)
    assert find(window, BASE, BASE + SIZE)[1] is Status.LIMIT


@pytest.mark.parametrize("room", range(8))
def test_no_room_for_a_blank(room: int) -> None:
    """Even the unit before is wrong then: a broker would not have put it there."""
    unit = encode_unit(**GOOD, physical_offset=BASE)
    window = unit + encode_blank(room)[:room]
    assert scan_units(window, BASE) == ([], BASE, Status.BAD_TOTAL_SIZE, SIZE + room - 8, SIZE)
    end = BASE + len(window)
    assert scan_units(window, BASE, end - room) == (
        [],
        end - room,
        Status.LIMIT if room == 0 else Status.NO_BLANK,
        0 if room == 0 else 8,
        room,
    )
    assert find(window, BASE, end - room)[1] is Status.LIMIT


def test_what_lies_behind_the_end_of_the_segment_is_not_looked_at() -> None:
    window, positions = encode_log([GOOD] * 3, BASE)
    for end in range(BASE, BASE + len(window) + 1):
        scanned = scan_units(window, BASE, stop=I64 - 1, segment_end=end)
        assert scanned.positions == [at for at in positions.tolist() if at + SIZE + 8 <= end]
        assert scanned.status in (Status.BAD_TOTAL_SIZE, Status.NO_BLANK)
        where = {"base": BASE, "position": BASE + 1, "stop": I64 - 1, "segment_end": end}
        status = find_unit(window, **where, verify_crc=True).status
        assert (status is Status.OK) == (end >= BASE + 2 * SIZE + 8)
        assert status in (Status.OK, Status.LIMIT)


# ---- where a scan shall stop


@pytest.mark.parametrize("capacity", range(5))
def test_full(capacity: int) -> None:
    window, positions = encode_log([GOOD] * 4, BASE)
    scanned = scan_units(window + bytes(8), BASE, stop=BASE + len(window), capacity=capacity)
    assert scanned == (positions[:capacity].tolist(), BASE + capacity * SIZE, Status.FULL, 0, 0)


def test_stop() -> None:
    window, positions = encode_log([GOOD] * 3, BASE)
    for stop in range(BASE, BASE + len(window) + 1):
        scanned = scan_units(window + bytes(8), BASE, stop=stop)
        whole = (stop - BASE) // SIZE
        assert scanned.positions == positions[:whole].tolist()
        assert scanned.position == BASE + whole * SIZE
        if scanned.position == stop:
            assert scanned.status is Status.LIMIT
        else:
            assert scanned[2:] == (Status.CROSSES_STOP, stop, scanned.position + SIZE)


def test_a_stop_before_the_position_is_no_unit() -> None:
    window, _ = encode_log([GOOD] * 3, BASE)
    for stop in (BASE + SIZE, BASE, BASE - 1, 0, -1, -I64):
        assert scan_units(window, BASE, BASE + SIZE, stop=stop)[:3] == ([], BASE + SIZE, Status.LIMIT)
        assert find(window, BASE, BASE + SIZE, stop=stop)[1] is Status.LIMIT


def test_find_unit_wants_the_start_before_the_stop() -> None:
    window = bytes(10) + encode_unit(**GOOD, physical_offset=BASE + 10) + bytes(8)
    assert find(window, BASE, stop=BASE + 11) == (BASE + 10, Status.OK, 0)
    assert find(window, BASE, stop=BASE + 10)[1] is Status.LIMIT


# ---- windows that end too early

SHAPES: dict[str, Lie] = {
    "empty": {"topic": ""},
    "v1": GOOD,
    "v2": {**GOOD, "version": 2},
    "v6": {**GOOD, "sys_flag": V6},
    "v4-v6": {**GOOD, "sys_flag": reference.STORE_HOST_V6},
    "v6-v4": {**GOOD, "sys_flag": reference.BORN_HOST_V6},
    "long": {"topic": "t" * 200, "body": b"\0" * 500, "properties": b"p\x01" * 300},
}


@pytest.mark.parametrize("name", SHAPES)
def test_cut_anywhere_more_is_asked_for(name: str) -> None:
    unit = encode_unit(**SHAPES[name], physical_offset=BASE)
    segment_end = BASE + len(unit) + 8
    for cut in range(len(unit)):
        positions, position, status, needed, available = scan_units(unit[:cut], BASE, segment_end=segment_end)
        assert (positions, position, status, available) == ([], BASE, Status.MORE, cut)
        assert cut < needed <= len(unit)
    assert scan_units(unit, BASE, segment_end=segment_end)[:3] == ([BASE], segment_end - 8, Status.MORE)


@pytest.mark.parametrize("name", SHAPES)
def test_windows_of_the_size_asked_for_lead_to_the_unit(name: str) -> None:
    unit = encode_unit(**SHAPES[name], physical_offset=BASE)
    size = 0
    for _ in range(5):
        scanned = scan_units(unit[:size], BASE, stop=BASE + len(unit), segment_end=BASE + len(unit) + 8)
        if scanned.status is not Status.MORE:
            break
        size = scanned.expected
    assert scanned[:3] == ([BASE], BASE + len(unit), Status.LIMIT)


@pytest.mark.parametrize("size", [*range(1, 130), 1000])
def test_find_unit_goes_on_from_window_to_window(size: int) -> None:
    """As SegmentReader does: from the position answered, with as many bytes as are needed, or `size`."""
    unit = encode_unit(**GOOD, physical_offset=BASE + 300)
    junk = b"".join((b"\xda", b"\xda\xa3\x20\xa7" * 9, bytes(50), encode_unit(**GOOD), b"\xda\xa3\x20"))
    log = (junk.ljust(300, b"\xda") + unit).ljust(700, b"\0")
    at, needed = BASE, 0
    for _ in range(2000):
        window = log[at - BASE :][: max(needed, size)]
        _, at, status, needed, _ = find_unit(
            window, base=at, position=at, stop=BASE + 600, segment_end=BASE + 700, verify_crc=True
        )
        if status is not Status.MORE:
            break
        assert needed > len(window) or at > BASE
    assert (at, status) == (BASE + 300, Status.OK)


@pytest.mark.parametrize("size", [0xDA, 0xDA80, 0xDADA])
def test_find_unit_looks_at_every_byte(size: int) -> None:
    """What looks like a magic's first byte may stand in totalSize, right before the magic."""
    for before in range(12):
        unit = encode_unit(topic="", body=bytes(size - 91), physical_offset=before)
        assert find(b"\xda" * before + unit + bytes(8)) == (before, Status.OK, 0)


def test_find_unit_makes_progress_or_asks_for_more() -> None:
    log = (b"\xda\xa3\x20\xa7" * 30).ljust(200, b"\0") + bytes(200)
    for start in range(200):
        for size in range(64):
            _, at, status, needed, _ = find_unit(
                log[start : start + size], base=start, position=start, stop=400, segment_end=400, verify_crc=True
            )
            assert status is Status.MORE
            assert start <= at <= start + size
            assert at > start or needed > size


def test_a_position_behind_the_window_wants_another_window() -> None:
    window, _ = encode_log([GOOD] * 2, BASE)
    for position in (BASE + len(window) + 1, BASE + (1 << 50)):
        assert scan_units(window, BASE, position, segment_end=BASE + (1 << 51)) == ([], position, Status.MORE, 8, 0)
        answer = find_unit(
            window, base=BASE, position=position, stop=I64 - 1, segment_end=BASE + (1 << 51), verify_crc=True
        )
        assert (answer.units, answer.at, answer.status, answer.expected) == (0, position, Status.MORE, 8)


# ---- arguments


@pytest.mark.parametrize(
    ("window", "base", "position"), [(b"", -1, -1), (b"", -1, 5), (bytes(200), 10, 9), (b"", 0, -I64), (b"", -I64, 0)]
)
def test_a_position_before_the_window_is_refused(window: bytes, base: int, position: int) -> None:
    with pytest.raises(ValueError, match=f"position {position} lies before the window, which begins at {base}"):
        scan_units(window, base, position)
    with pytest.raises(ValueError, match="before the window"):
        find(window, base, position)


def test_offsets_at_the_end_of_all_numbers() -> None:
    base = I64 - 1 - 200
    unit = encode_unit(**GOOD, physical_offset=base)
    for segment_end in (I64 - 1, base + SIZE + 8, base + 99, base, 0):
        for stop in (I64 - 1, base, 0, -1, -I64):
            for position in (base, base + 1, I64 - 100, I64 - 1):
                scanned = scan_units(unit, base, position, stop=stop, segment_end=segment_end)
                whole = position == base and stop == I64 - 1 and segment_end >= base + SIZE + 8
                assert scanned.positions == ([base] if whole else [])
                _, at, status, *_ = find_unit(
                    unit, base=base, position=position, stop=stop, segment_end=segment_end, verify_crc=True
                )
                assert (at, status) == (base, Status.OK) if whole else status is not Status.OK
                assert at >= position


@pytest.mark.parametrize(("base", "size", "segment_end"), [(I64 - 201, 201, I64 - 1), (0, 200, -1), (0, 200, -I64)])
def test_offsets_outside_of_all_numbers_are_refused(base: int, size: int, segment_end: int) -> None:
    with pytest.raises(ValueError, match="offsets reach from 0 to"):
        scan_units(bytes(size), base, stop=base, segment_end=segment_end)
    with pytest.raises(ValueError, match="offsets reach from 0 to"):
        find_unit(bytes(size), base=base, position=base, stop=base, segment_end=segment_end, verify_crc=True)
    with pytest.raises(OverflowError):
        scan_units(bytes(size), base, stop=base, segment_end=I64)


def test_arguments_of_the_wrong_kind() -> None:
    unit = encode_unit(**GOOD)
    where: dict[str, Any] = {"base": 0, "position": 0, "stop": 200, "segment_end": 200, "verify_crc": True}
    room = np.empty(3, np.int64)
    frozen = np.empty(3, np.int64)
    frozen.flags.writeable = False
    windows: tuple[Any, ...] = (None, "text", unit.hex(), [1, 2], np.zeros(10, np.int64), memoryview(unit)[::2])
    for window in windows:
        with pytest.raises((TypeError, ValueError, BufferError)):
            scan(window, **where, positions=room)
        with pytest.raises((TypeError, ValueError, BufferError)):
            find_unit(window, **where)
    rooms: tuple[Any, ...] = (
        None,
        [0],
        np.empty(3, np.int32),
        np.empty(3, np.float64),
        np.empty((3, 3), np.int64),
        frozen,
    )
    for positions in rooms:
        with pytest.raises((TypeError, ValueError, BufferError)):
            scan(unit, **where, positions=positions)
    with pytest.raises((TypeError, ValueError, BufferError)):
        scan(unit, **where, positions=np.empty(8, np.int64)[::2])


# ---- damaged logs: the kernel and the oracle agree

SEGMENTS = [
    (int(path.name), path.read_bytes())
    for store in sorted(DATA.glob("rocketmq-*"))
    for path in reference.segment_files(store)
]
MAGICS = re.compile(b"(?=" + re.escape((MAGIC_V1 & 0xFFFFFFFF).to_bytes(4, "big")) + b"|\xda\xa3\x20\xab)")
INTERESTING = (-I32, -1, 0, 1, 8, 90, 91, 92, 4096, 8192, I32 - 1, MAGIC_V1, MAGIC_V2, MAGIC_BLANK, 0x10, 0x20, 0x30)


def _mutate(data: bytes, rng: random.Random) -> bytearray:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(changed))
        unit = rng.choice([match.start() - 4 for match in MAGICS.finditer(data)] or [0])
        match rng.randrange(6):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:  # the head of a unit
                changed[unit + rng.randrange(80)] ^= 1 << rng.randrange(8)
            case 3:
                field = unit + rng.choice((0, 0, 4, 8, 28, 32, 36, 84))
                changed[field : field + 4] = rng.choice(INTERESTING).to_bytes(4, "big", signed=True)
            case 4:
                size = rng.randrange(1, 300)
                part = changed[at : at + size]
                to = rng.choice((rng.randrange(len(changed)), unit))
                changed[to : to + len(part)] = part
            case 5:
                size = rng.randrange(200)
                changed[at : at + size] = rng.randbytes(size)
    return changed[: len(data)].ljust(len(data), b"\0")


def _is_sound(log: memoryview, base: int, at: int, verify_crc: bool) -> bool:
    try:
        check_unit(log[at - base :], at, base + len(log) - at, verify_crc)
    except Corrupt:
        return False
    return True


def _walk_by_oracle(log: memoryview, base: int, verify_crc: bool) -> list[int]:
    """The chain of units from the segment's start; behind damage, from the next place on where a unit stands."""
    found: list[int] = []
    at = base
    while True:
        if reference.is_blank(log[at - base :][:8], base + len(log) - at):
            return found
        if not _is_sound(log, base, at, verify_crc):
            starts = (base + match.start() - 4 for match in MAGICS.finditer(log) if match.start() - 4 > at - base)
            following = next((start for start in starts if _is_sound(log, base, start, verify_crc)), None)
            if following is None:
                return found
            at = following
        found.append(at)
        at += int.from_bytes(log[at - base :][:4], "big")


def _walk_by_kernel(log: memoryview, base: int, verify_crc: bool) -> list[int]:
    found, at = [], base
    while True:
        positions, at, status, _, _ = scan_units(log, base, at, verify_crc=verify_crc)
        found += positions
        if status in (Status.BLANK, Status.LIMIT):
            return found
        assert not _is_sound(log, base, at, verify_crc)
        at, status, _ = find(log, base, at + 1, verify_crc=verify_crc)
        if status is not Status.OK:
            assert status is Status.LIMIT
            return found


@pytest.mark.parametrize("verify_crc", [True, False])
def test_damaged_segments_read_as_the_oracle_reads_them(verify_crc: bool, rng: random.Random) -> None:
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        base, data = rng.choice(SEGMENTS)
        log = memoryview(_mutate(data, rng))
        found = _walk_by_kernel(log, base, verify_crc)
        assert found == _walk_by_oracle(log, base, verify_crc)
        rows = decode(log, np.array(found, np.int64), COLUMNS, base)
        assert rows == [reference.decode_unit(log[at - base :], at, decompress=False) for at in found]


def test_a_segment_cut_anywhere() -> None:
    """A window that ends anywhere gives the units that are whole in it, and asks for more."""
    base, data = SEGMENTS[1]
    ends = [at + len(unit) for at, unit in reference.read_segment(data, base, last=False)]
    for size in range(len(data)):
        scanned = scan_units(data[:size], base, segment_end=base + len(data))
        assert len(scanned.positions) == sum(end <= base + size for end in ends)
        at_end = scanned.position == ends[-1] and base + size >= ends[-1] + 8
        assert scanned.status is (Status.BLANK if at_end else Status.MORE)


def test_a_decoders_scan_answers_as_scan_does(rng: random.Random) -> None:
    """In windows of any size, with room for any number of units, on damaged segments too."""
    decoder = Decoder(["commitLogOffset"])
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        base, data = rng.choice(SEGMENTS)
        log = memoryview(_mutate(data, rng) if rng.random() < 0.8 else data)
        first = rng.randrange(len(log))
        first = rng.choice((0, first))
        window = log[first : first + rng.choice((0, 100, 3000, 10000))]
        where: dict[str, Any] = {
            "base": base + first,
            "position": base + first + rng.choice((0, 0, 0, rng.randrange(200))),
            "stop": base + rng.choice((len(log), rng.randrange(len(log)))),
            "segment_end": base + len(log),
            "verify_crc": rng.random() < 0.5,
        }
        most = rng.choice((0, 1, 3, 1000))
        positions = np.empty(most, np.int64)
        assert decoder.scan(window, **where, most=most) == scan(window, **where, positions=positions)
        assert decoder.rows <= most
        decoder.finish()


def test_append_refuses_what_the_oracle_refuses(rng: random.Random) -> None:
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        base, data = rng.choice(SEGMENTS)
        log = memoryview(_mutate(data, rng))
        starts = [base + match.start() - 4 for match in MAGICS.finditer(log) if match.start() >= 4]
        for at in [*starts, rng.randrange(base, base + len(log))]:
            builder = BatchBuilder(list(COLUMNS))
            try:  # append knows of no segment's end
                check_unit(log[at - base :], at, 1 << 62, verify_crc=False)
            except Corrupt:
                with pytest.raises(ValueError, match=f"no message unit at {at}"):
                    builder.append(log, np.array([at]), base=base)
            else:
                builder.append(log, np.array([at]), base=base)
                assert rows_of(builder.finish()) == [reference.decode_unit(log[at - base :], at, decompress=False)]


def test_noise(rng: random.Random) -> None:
    """Bytes without any sense, rich in what looks like the start of a unit."""
    pieces = [(MAGIC_V1 & 0xFFFFFFFF).to_bytes(4, "big"), b"\xda", b"\0\0\0\x5b", bytes(28), encode_unit(**GOOD)]
    for _ in range(300):
        log = memoryview(b"".join(rng.choice((*pieces, rng.randbytes(rng.randrange(60)))) for _ in range(40)))
        assert _walk_by_kernel(log, 0, True) == _walk_by_oracle(log, 0, True)
