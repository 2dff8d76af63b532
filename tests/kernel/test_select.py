"""The kernel's Filter, gather, and append with places select the units that the oracle wants, whatever the bytes
are."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from oracle import reference
from oracle.reference import Corrupt, check_unit, encode_blank, encode_unit, parse_unit
from support.kernels import Positions, Scanned, encode_log, rows_of, scan_units
from support.patience import HANG

from native_io import COLUMNS, Filter, Status, gather
from rmqstore_spark.store.format.units import BatchBuilder

BASE = 1 << 40  # no position fits into 32 bits
BLANK = 8
I32, I64 = 1 << 31, 1 << 63
MOST_JUDGED = 1 << 18  # select.h: so many queues are remembered

Bounds = tuple[int, int]
ALL: Bounds = (-I64, I64 - 1)
NOTHING: Bounds = (0, -1)
Queue = tuple[bytes, int]


@dataclass
class Wanted:
    """What is wanted, as Filter takes it and as the oracle tests it. `queues`, `tags` None: any."""

    times: Bounds = ALL
    places: Bounds = ALL
    queues: dict[Queue, Bounds] | None = None
    tags: set[str] | None = None
    asked: list[Queue] = field(default_factory=list)

    def judge(self, topic: bytes, queue_id: int) -> Bounds | None:
        assert type(topic) is bytes
        assert self.queues is not None
        self.asked.append((topic, queue_id))
        return self.queues.get((topic, queue_id))

    def filter(self) -> Filter:
        return Filter(
            store_timestamp=self.times,
            commit_log_offset=self.places,
            judge=None if self.queues is None else self.judge,
            conditions=[] if self.tags is None else [{"tags": self.tags}],
        )

    def offsets_of(self, unit: reference.Unit) -> Bounds:
        return ALL if self.queues is None else self.queues.get((unit.topic, unit.queue_id), NOTHING)

    def __contains__(self, unit: reference.Unit) -> bool:
        if self.tags is not None and reference.parse_properties(unit.properties).get("TAGS") not in self.tags:
            return False
        bounds = (self.times, self.places, self.offsets_of(unit))
        values = (unit.store_timestamp, unit.physical_offset, unit.queue_offset)
        return all(least <= value <= most for (least, most), value in zip(bounds, values, strict=True))


def select(
    wanted: Filter,
    window: Any,
    base: int = BASE,
    position: int | None = None,
    stop: int | None = None,
    segment_end: int | None = None,
    verify_crc: bool = True,
    capacity: int = 1000,
) -> Scanned:
    """Filter.scan(), by default of the whole window, behind which the segment has room for the blank."""
    end = base + memoryview(window).nbytes
    positions = np.full(capacity, -1, np.int64)
    count, reached, status, expected, found = wanted.scan(
        window,
        base=base,
        position=base if position is None else position,
        stop=end if stop is None else stop,
        segment_end=end + BLANK if segment_end is None else segment_end,
        verify_crc=verify_crc,
        positions=positions,
    )
    assert (positions[count:] == -1).all()
    return Scanned(positions[:count].tolist(), reached, status, expected, found)


class Picked(NamedTuple):
    wanted: list[int]
    taken: int
    status: Status
    expected: int
    found: int


def pick(
    wanted: Filter,
    window: Any,
    positions: list[int],
    places: list[int] | None = None,
    lengths: list[int] | None = None,
    sizes: list[int] | None = None,
    queue_offsets: list[int] | None = None,
    segment_end: int | None = None,
    verify_crc: bool = True,
) -> Picked:
    """Filter.pick(), by default of units in a window that begins at BASE and shows each of them to its own end."""
    size = memoryview(window).nbytes
    places = [at - BASE for at in positions] if places is None else places
    answers = np.full(len(positions) + 3, -1, np.int64)
    count, taken, status, expected, found = wanted.pick(
        window,
        segment_end=BASE + size + BLANK if segment_end is None else segment_end,
        verify_crc=verify_crc,
        positions=np.array(positions, np.int64),
        window_offsets=np.array(places, np.int64),
        lengths=np.array([size - place for place in places] if lengths is None else lengths, np.int64),
        sizes=None if sizes is None else np.array(sizes, np.int32),
        queue_offsets=None if queue_offsets is None else np.array(queue_offsets, np.int64),
        chosen=answers,
    )
    assert (answers[count:] == -1).all()
    return Picked(answers[:count].tolist(), taken, status, expected, found)


def both(wanted: Wanted, log: bytes, positions: Positions) -> list[int]:
    """The wanted units of a sound log, in both ways there are, which must agree."""
    scanned = select(wanted.filter(), log)
    assert scanned[1:] == (BASE + len(log), Status.LIMIT, 0, 0)
    picked = pick(wanted.filter(), log, positions.tolist())
    assert picked[1:] == (len(positions), Status.LIMIT, 0, 0)
    assert positions[picked.wanted].tolist() == scanned.positions
    return scanned.positions


# ---- bounds

VALUES = (-I64, -I64 + 1, -2, -1, 0, 1, 2, I32, I64 - 2, I64 - 1)


@pytest.mark.parametrize("name", ["times", "offsets"])
def test_bounds_are_in(name: str) -> None:
    stored = {"times": "store_timestamp", "offsets": "queue_offset"}[name]
    log, positions = encode_log(({stored: value} for value in VALUES), BASE)
    for least in VALUES:
        for most in VALUES:
            bounds = (least, most)
            wanted = Wanted(times=bounds) if name == "times" else Wanted(queues={(b"TopicA", 0): bounds})
            expected = [
                at for at, value in zip(positions.tolist(), VALUES, strict=True) if value in range(least, most + 1)
            ]
            assert both(wanted, log, positions) == expected


def test_bounds_of_the_place_are_in() -> None:
    log, positions = encode_log([{}] * 4, BASE)
    near = [at + step for at in positions.tolist() for step in (-1, 0, 1)]
    for least in (-I64, 0, *near, I64 - 1):
        for most in (-I64, 0, *near, I64 - 1):
            inside = [at for at in positions.tolist() if at in range(least, most + 1)]
            assert both(Wanted(places=(least, most)), log, positions) == inside


def test_all_bounds_must_hold() -> None:
    units: list[dict[str, Any]] = [{"store_timestamp": time, "queue_offset": at} for time in (1, 2) for at in (1, 2)]
    log, positions = encode_log(units * 2, BASE)
    wanted = Wanted((2, 2), (int(positions[1]), int(positions[6])), {(b"TopicA", 0): (2, 2)})
    assert both(wanted, log, positions) == [positions[3]]


@pytest.mark.parametrize("bounds", [(), (1,), (1, 2, 3), [1], 5, None, ("1", "2"), (None, 1), (0, I64)])
def test_bounds_of_the_wrong_kind(bounds: Any) -> None:
    for times, places in ((bounds, ALL), (ALL, bounds)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            Filter(store_timestamp=times, commit_log_offset=places, judge=None)


# ---- the judge


def _queues(rng: random.Random) -> list[Queue]:
    """Topics of all lengths around the 8 bytes that are hashed at once, in both versions of a unit, and no UTF-8."""
    topics = [b"t" * n for n in (*range(26), 127, 128, 300)] + [b"\xff\xfe", b"\0", b"\0\0", b"Topi\xc3", b"BB", b"Aa"]
    return [(topic, queue_id) for topic in topics for queue_id in (0, 1, -1, -I32, I32 - 1, rng.randrange(I32))]


def test_the_judge_is_called_once_for_a_queue(rng: random.Random) -> None:
    queues = _queues(rng)
    wanted = Wanted(queues={queue: (i, i) for i, queue in enumerate(queues) if i % 3})
    met = [rng.choice(list(enumerate(queues))) for _ in range(3 * len(queues))]
    log, positions = encode_log(
        ({"topic": topic, "queue_id": queue_id, "queue_offset": i} for i, (topic, queue_id) in met), BASE
    )
    expected = [at for at, (i, _) in zip(positions.tolist(), met, strict=True) if i % 3]
    wanted_filter = wanted.filter()
    for window in (log, memoryview(log)):
        assert select(wanted_filter, window).positions == expected
        assert wanted.asked == list(dict.fromkeys(queue for _, queue in met))
    assert positions[pick(wanted_filter, log, positions.tolist()).wanted].tolist() == expected
    assert len(wanted.asked) == len({queue for _, queue in met})


def test_a_queue_is_judged_in_the_middle_of_a_scan_with_little_room() -> None:
    """The call that asks loses nothing that was found before, and finds nothing twice."""
    log, positions = encode_log(({"queue_id": i // 3} for i in range(30)), BASE)
    wanted = Wanted(queues={(b"TopicA", i): ALL for i in range(10)})
    for capacity in range(8):
        scanned = select(wanted.filter(), log, capacity=capacity)
        assert scanned[:3] == (positions[:capacity].tolist(), positions[capacity], Status.FULL)


def _many_queues(queue_ids: npt.NDArray[np.int64]) -> tuple[bytes, Positions]:
    """A log of the smallest units, one for each id, whose queueOffset it is as well."""
    unit = np.frombuffer(encode_unit(topic=""), np.uint8)
    log = np.tile(unit, (len(queue_ids), 1))
    positions = BASE + len(unit) * np.arange(len(queue_ids))
    log[:, 12:16] = queue_ids.astype(">i4")[:, None].view(np.uint8)
    log[:, 20:28] = queue_ids.astype(">i8")[:, None].view(np.uint8)
    log[:, 28:36] = positions.astype(">i8")[:, None].view(np.uint8)
    return log.tobytes(), positions


def test_more_queues_than_are_remembered(rng: random.Random) -> None:
    """So many are known, the next one makes the filter forget them all; and each is judged by its own bounds."""
    ids = list(range(MOST_JUDGED))
    rng.shuffle(ids)
    again = rng.sample(ids, 1000)
    one_more = MOST_JUDGED
    order = [*ids, *again, one_more, again[0], one_more, again[0], again[1]]
    log, positions = _many_queues(np.array(order))
    asked: list[int] = []

    def judge(topic: bytes, queue_id: int) -> Bounds | None:
        asked.append(queue_id)
        return (queue_id, queue_id) if queue_id % 2 else None

    wanted = Filter(store_timestamp=ALL, commit_log_offset=ALL, judge=judge)
    scanned = select(wanted, log, capacity=len(order))
    assert asked == [*ids, one_more, again[0], again[1]]
    assert scanned.positions == [at for at, queue_id in zip(positions.tolist(), order, strict=True) if queue_id % 2]
    assert scanned.status is Status.LIMIT
    asked.clear()
    assert pick(wanted, log, positions[:3].tolist()).wanted == [i for i in range(3) if ids[i] % 2]
    assert asked == [queue_id for queue_id in ids[:3] if queue_id not in (one_more, *again[:2])]


class _Odd(Exception):
    pass


def _raise(error: BaseException) -> Callable[[], Any]:
    def judge() -> Any:
        raise error

    return judge


WRONG_ANSWERS: list[tuple[Callable[[], Any], type[BaseException]]] = [
    (_raise(_Odd("no")), _Odd),
    (_raise(KeyboardInterrupt()), KeyboardInterrupt),
    (_raise(StopIteration()), StopIteration),
    *((lambda answer=answer: answer, ValueError) for answer in ((), (1,), [], [1], "", (1, 2, 3))),
    *((lambda answer=answer: answer, TypeError) for answer in (5, "ab", (None, 1), (1, "2"), True)),
    *((lambda answer=answer: answer, OverflowError) for answer in ((0, I64), (-I64 - 1, 0))),
]


@pytest.mark.parametrize(("answer", "error"), WRONG_ANSWERS)
def test_a_judge_that_fails(answer: Callable[[], Any], error: type[BaseException]) -> None:
    """Its exception comes through, and the filter can be used again: it asks again then."""
    log, positions = encode_log([{"queue_id": 1}, {"queue_id": 2}, {"queue_id": 1}], BASE)
    fails = True
    asked = []

    def judge(topic: bytes, queue_id: int) -> Any:
        asked.append(queue_id)
        return answer() if fails and queue_id == 2 else (0, 0)

    wanted = Filter(store_timestamp=ALL, commit_log_offset=ALL, judge=judge)
    with pytest.raises(error):
        select(wanted, log)
    with pytest.raises(error):
        pick(wanted, log, positions.tolist())
    assert asked == [1, 2, 2]
    fails = False
    assert select(wanted, log).positions == positions.tolist()
    assert pick(wanted, log, positions.tolist()).wanted == [0, 1, 2]
    assert asked == [1, 2, 2, 2]


def test_a_judge_that_uses_its_own_filter() -> None:
    log, _ = encode_log([{}], BASE)
    uses: list[Callable[[], object]] = [lambda: select(wanted, log), lambda: pick(wanted, log, [BASE])]
    for outer in uses:
        for inner in uses:
            wanted = Filter(store_timestamp=ALL, commit_log_offset=ALL, judge=lambda *_, inner=inner: inner())
            with pytest.raises(RuntimeError, match="in use by another thread"):
                outer()


@pytest.mark.parametrize("picks", [False, True])
def test_another_thread_is_sent_away(picks: bool) -> None:
    log, positions = encode_log([{}, {"queue_id": 1}], BASE)
    inside, go_on = threading.Event(), threading.Event()

    def judge(topic: bytes, queue_id: int) -> Bounds:
        inside.set()
        assert go_on.wait(HANG)
        return ALL

    wanted = Filter(store_timestamp=ALL, commit_log_offset=ALL, judge=judge)
    answers: list[list[int]] = []

    def use() -> None:
        answers.append(
            positions[pick(wanted, log, positions.tolist()).wanted].tolist() if picks else select(wanted, log).positions
        )

    worker = threading.Thread(target=use)
    worker.start()
    try:
        assert inside.wait(HANG)
        with pytest.raises(RuntimeError, match="in use by another thread"):
            select(wanted, log)
        with pytest.raises(RuntimeError, match="in use by another thread"):
            pick(wanted, log, positions.tolist())
    finally:
        go_on.set()
        worker.join()
    assert answers == [positions.tolist()]
    assert select(wanted, log).positions == positions.tolist()


# ---- what is not wanted is not looked at

REFUSALS = [
    Wanted(times=(5, 5)),
    Wanted(places=(BASE + 1, I64 - 1)),
    Wanted(queues={}),
    Wanted(queues={(b"TopicA", 0): (1, I64 - 1)}),
    Wanted(queues={(b"TopicA", 1): ALL, (b"TopicB", 0): ALL, (b"Topic", 0): ALL}),
    Wanted(tags={"a"}),
]


@pytest.mark.parametrize("wanted", REFUSALS)
def test_the_crc_of_wanted_units_only(wanted: Wanted) -> None:
    crc = 0x3610A686
    log, positions = encode_log([{"body": b"hello", "body_crc": 7}, {"topic": "TopicB", "queue_offset": 3}], BASE)
    second = [positions[1]] if parse_unit(log[positions[1] - BASE :], int(positions[1])) in wanted else []
    assert both(wanted, log, positions) == second
    for everything in (Wanted(), Wanted(queues={(b"TopicA", 0): ALL, (b"TopicB", 0): ALL})):
        assert select(everything.filter(), log) == ([], BASE, Status.BAD_BODY_CRC, 7, crc)
        assert pick(everything.filter(), log, positions.tolist()) == ([], 0, Status.BAD_BODY_CRC, 7, crc)
        backwards = positions[::-1].tolist()
        assert pick(everything.filter(), log, backwards) == ([0], 1, Status.BAD_BODY_CRC, 7, crc)
        assert select(everything.filter(), log, verify_crc=False).positions == positions.tolist()
        assert pick(everything.filter(), log, positions.tolist(), verify_crc=False).wanted == [0, 1]


@pytest.mark.parametrize("wanted", REFUSALS)
def test_all_else_is_checked_of_all_units(wanted: Wanted) -> None:
    lies: list[dict[str, Any]] = [{"magic": 7}, {"physical_offset": 7}, {"body_length": -1}, {"total_size": 92}]
    for lie in lies:
        log, _ = encode_log([lie, {}], BASE)
        expected = scan_units(log, BASE)
        assert expected.status.name.startswith("BAD")
        assert select(wanted.filter(), log, segment_end=BASE + len(log)) == expected
        assert pick(wanted.filter(), log, [BASE], segment_end=BASE + len(log)) == ([], 0, *expected[2:])


# ---- claims


def test_pick_asks_for_the_bytes_it_needs() -> None:
    unit = encode_unit(topic="TopicA", body=b"b" * 50, properties={"a": "b"}, physical_offset=BASE)
    window = unit + bytes(100)
    everything = Wanted().filter()
    for length in range(len(unit)):
        wanted, taken, status, needed, found = pick(everything, window, [BASE], lengths=[length])
        assert (wanted, taken, status, found) == ([], 0, Status.MORE, length)
        assert length < needed <= len(unit)
    for length in (len(unit), len(unit) + 100):
        assert pick(everything, window, [BASE], lengths=[length])[:3] == ([0], 1, Status.LIMIT)


def test_claims_that_the_log_contradicts() -> None:
    log, positions = encode_log([{"queue_offset": 8}, {"queue_offset": 9}], BASE)
    everything, size = Wanted().filter(), len(log) // 2
    two = positions.tolist()
    assert pick(everything, log, two, sizes=[size, size], queue_offsets=[8, 9])[:3] == ([0, 1], 2, Status.LIMIT)
    for wrong in (size - 1, size + 1, 0, -1, -I32, I32 - 1):
        answer = pick(everything, log, two, sizes=[size, wrong])
        assert answer == ([0], 1, Status.CONTRADICTED, wrong, size)
    for wrong in (8, 10, -1, -I64, I64 - 1):
        answer = pick(everything, log, two, queue_offsets=[8, wrong])
        assert answer == ([0], 1, Status.CONTRADICTED, wrong, 9)


def test_a_claim_of_another_queue_is_contradicted_when_a_queue_made_it() -> None:
    log, positions = encode_log([{"queue_offset": 8}, {"queue_id": 1, "queue_offset": 9}, {"queue_offset": 9}], BASE)
    three, size = positions.tolist(), len(log) // 3
    for wanted in (
        Wanted(queues={(b"TopicA", 0): ALL}),
        Wanted(queues={(b"TopicA", 0): ALL, (b"TopicA", 1): (0, 8)}),
        Wanted(queues={(b"TopicA", 0): ALL, (b"TopicA", 1): (10, 11)}),
    ):
        assert pick(wanted.filter(), log, three)[:3] == ([0, 2], 3, Status.LIMIT)
        assert pick(wanted.filter(), log, three, sizes=[size] * 3)[:3] == ([0, 2], 3, Status.LIMIT)
        answer = pick(wanted.filter(), log, three, queue_offsets=[8, 9, 9])
        assert answer == ([0], 1, Status.CONTRADICTED, 9, 9)


def test_a_claim_at_the_wrong_time_or_place_is_passed_over() -> None:
    log, positions = encode_log(({"store_timestamp": i, "queue_offset": i} for i in range(5)), BASE)
    claims: dict[str, Any] = {"sizes": [len(log) // 5] * 5, "queue_offsets": list(range(5))}
    queues = {(b"TopicA", 0): ALL}
    for wanted in (Wanted(times=(1, 2), queues=queues), Wanted(places=(*positions[1:3].tolist(),), queues=queues)):
        assert pick(wanted.filter(), log, positions.tolist(), **claims)[:3] == ([1, 2], 5, Status.LIMIT)


@pytest.mark.parametrize("end", [500, 0, I64 - 1])
def test_claims_outside_of_the_window_or_the_segment(end: int) -> None:
    log, _ = encode_log([{}] * 4)
    size = len(log)
    everything = Wanted().filter()
    outside = [(0, -1, 200), (0, -I64, 200), (0, size + 1, 0), (0, size, 1), (0, I64 - 1, I64 - 1), (0, 0, size + 1)]
    outside += [(0, 0, -1), (0, 5, -I64), (0, 1, size), (0, 1, I64 - 1), (0, I64 - 1, 0)]
    outside += [(at, 0, size) for at in (-1, -I64, end, end + 1, I64 - 1) if at < I64]
    for at, place, length in outside:
        answer = pick(everything, log, [at], [place], [length], segment_end=end)
        assert answer == ([], 0, Status.CONTRADICTED, end, at)
    for at, place in ((0, size), (I64 - 2, 0), (I64 - 100, size)):
        if at < end:
            status = pick(everything, log, [at], [place], [0], segment_end=end).status
            assert status is (Status.MORE if end - at >= 8 else Status.NO_BLANK)


def test_a_claim_of_a_blank() -> None:
    log = encode_unit(physical_offset=BASE) + encode_blank(40).ljust(40, b"\0")
    end = BASE + len(log)
    for room, status in ((40, Status.BLANK), (41, Status.BAD_BLANK), (7, Status.NO_BLANK)):
        answer = pick(Wanted().filter(), log, [BASE, end - 40], segment_end=end - 40 + room)
        assert answer[:3] == (([], 0, Status.BAD_TOTAL_SIZE) if room == 7 else ([0], 1, status))


def test_no_claims() -> None:
    assert pick(Wanted().filter(), b"", []) == ([], 0, Status.LIMIT, 0, 0)
    assert pick(Wanted(queues={}).filter(), b"", [], sizes=[], queue_offsets=[]) == ([], 0, Status.LIMIT, 0, 0)


def test_arguments_of_the_wrong_kind() -> None:
    log, positions = encode_log([{}] * 3)
    everything = Wanted().filter()
    sound: dict[str, Any] = {
        "positions": positions,
        "window_offsets": positions,
        "lengths": np.full(3, len(log) // 3),
        "sizes": np.full(3, len(log) // 3, np.int32),
        "queue_offsets": np.zeros(3, np.int64),
        "chosen": np.empty(3, np.int64),
    }
    rest: dict[str, Any] = {"segment_end": len(log) + 8, "verify_crc": True}
    assert everything.pick(log, **sound, **rest)[:3] == (3, 3, Status.LIMIT)
    for name in ("window_offsets", "lengths", "sizes", "queue_offsets", "chosen"):
        for short in (sound[name][:2], sound[name][:0]):
            with pytest.raises(ValueError, match="3 positions need as many"):
                everything.pick(log, **{**sound, name: short}, **rest)
        longer = np.concatenate([sound[name], sound[name]])
        assert everything.pick(log, **{**sound, name: longer}, **rest)[:3] == (3, 3, Status.LIMIT)
    for name in sound:
        for wrong in (
            [0, 0, 0],
            sound[name].astype(np.float64),
            np.zeros((3, 3), np.int64),
            np.zeros(6, np.int64)[::2],
        ):
            with pytest.raises((TypeError, ValueError)):
                everything.pick(log, **{**sound, name: wrong}, **rest)
    for name in ("positions", "window_offsets", "lengths", "chosen"):
        with pytest.raises(TypeError):
            everything.pick(log, **{**sound, name: None}, **rest)
    frozen = np.zeros(3, np.int64)
    frozen.flags.writeable = False
    with pytest.raises((TypeError, ValueError, BufferError)):
        everything.pick(log, **{**sound, "chosen": frozen}, **rest)
    with pytest.raises(ValueError, match="segment end -1"):
        everything.pick(log, **sound, segment_end=-1, verify_crc=True)
    with pytest.raises(ValueError, match="lies before the window"):
        select(everything, log, 10, position=9)
    with pytest.raises(ValueError, match="segment end -1"):
        select(everything, log, segment_end=-1)
    assert select(everything, log, 0, position=len(log) + 1, stop=I64 - 1) == ([], len(log) + 1, Status.MORE, 8, 0)


# ---- any bytes: the kernel and the oracle agree

TOPICS = (b"", b"A", b"TopicA", b"TopicB", b"%RETRY%group", b"t" * 200)
NUMBERS = (-I64, -1, 0, 1, 2, 3, 4, I64 - 1)


def _random_log(rng: random.Random) -> tuple[bytearray, Positions]:
    log, positions = encode_log(
        (
            {
                "topic": rng.choice(TOPICS),
                "queue_id": rng.choice((0, 1, -1)),
                "queue_offset": rng.choice(NUMBERS),
                "store_timestamp": rng.choice(NUMBERS),
                "body": rng.randbytes(rng.choice((0, 3, 100))),
                "properties": rng.choice(({}, {"TAGS": "a"}, {"TAGS": "b", "KEYS": "a"})),
                "sys_flag": rng.choice((0, 0, 0x10, 0x20, 0x30)),
                "body_crc": rng.choice((None, None, None, 7)),
            }
            for _ in range(rng.randrange(1, 12))
        ),
        BASE,
    )
    return bytearray(log), positions


def _damage(log: bytearray, positions: Positions, rng: random.Random) -> None:
    for _ in range(rng.choice((0, 0, 1, 1, 3))):
        unit = int(rng.choice(positions)) - BASE
        match rng.randrange(4):
            case 0:
                log[rng.randrange(len(log))] = rng.randrange(256)
            case 1:  # totalSize, magic, physicalOffset, sysFlag, bodyLength
                at = unit + rng.choice((0, 4, 28, 32, 36, 84))
                log[at : at + 4] = rng.choice((0, -1, 91, 92, 300, I32 - 1, -I32)).to_bytes(4, "big", signed=True)
            case 2:
                at = rng.randrange(len(log))
                junk = rng.randbytes(min(rng.randrange(80), len(log) - at))
                log[at : at + len(junk)] = junk
            case 3:
                log[unit : unit + 8] = encode_blank(len(log) - unit + BLANK)


def _random_wanted(rng: random.Random) -> Wanted:
    def bounds() -> Bounds:
        return rng.choice((ALL, ALL, (rng.choice(NUMBERS), rng.choice(NUMBERS))))

    queues = None
    if rng.random() < 0.7:
        queues = {(topic, i): bounds() for topic in TOPICS for i in (0, 1, -1) if rng.random() < 0.6}
    places = rng.choice((ALL, ALL, (BASE + rng.randrange(-1, 600), BASE + rng.randrange(-1, 3000))))
    return Wanted(bounds(), places, queues, rng.choice((None, None, {"a"}, {"a", "b"})))


def _has_wrong_crc(unit: reference.Unit) -> bool:
    return bool(unit.body) and unit.body_crc != reference.body_crc(unit.body)


def _selected(wanted: Wanted, log: memoryview, stop: int, end: int, verify_crc: bool, room: int) -> Scanned:
    """What a filtered scan of the log should answer, by the oracle; the kernel's plain scan says why it stops there."""
    found: list[int] = []
    at = BASE
    while len(found) < room:
        try:
            size = check_unit(log[at - BASE :], at, end - at, verify_crc=False) if at < stop else 0
        except Corrupt:
            size = 0
        if size == 0 or at + size > stop:
            why = scan_units(log, BASE, at, stop, end, verify_crc=False, capacity=1)
            assert why.positions == []
            return Scanned(found, at, *why[2:])
        unit = parse_unit(log[at - BASE :], at)
        if unit in wanted:
            if verify_crc and _has_wrong_crc(unit):
                crc = reference.body_crc(unit.body)
                return Scanned(found, at, Status.BAD_BODY_CRC, unit.body_crc, crc)
            found.append(at)
        at += size
    return Scanned(found, at, Status.FULL, 0, 0)


def test_damaged_logs_scanned(rng: random.Random) -> None:
    deadline = time.monotonic() + 1.5
    seen = set()
    while time.monotonic() < deadline:
        log, positions = _random_log(rng)
        _damage(log, positions, rng)
        view = memoryview(log)[: rng.choice((len(log), len(log), rng.randrange(len(log) + 1)))]
        stop = BASE + rng.choice((len(log), len(log), rng.randrange(len(log)), len(log) + 500))
        end = BASE + rng.choice((len(log) + BLANK, len(log) + BLANK, len(log), rng.randrange(len(log)), 1 << 20))
        verify_crc, room = rng.random() < 0.5, rng.choice((0, 1, 3, 100, 100, 100))
        wanted = _random_wanted(rng)
        expected = _selected(wanted, view, stop, end, verify_crc, room)
        answer = select(wanted.filter(), view, stop=stop, segment_end=end, verify_crc=verify_crc, capacity=room)
        assert answer == expected
        assert len(wanted.asked) == len({*wanted.asked})
        seen.add(answer.status)
    assert seen >= {Status.LIMIT, Status.FULL, Status.MORE, Status.BLANK, Status.BAD_BODY_CRC, Status.CROSSES_STOP}


@dataclass
class _Claims:
    positions: list[int]
    places: list[int]
    lengths: list[int]
    sizes: list[int] | None
    queue_offsets: list[int] | None


def _random_claims(log: memoryview, positions: Positions, rng: random.Random) -> _Claims:
    """Of sound units mostly, in any order; with about one lie."""
    true = [int(rng.choice(positions)) for _ in range(rng.randrange(1, 10))]
    units = [log[at - BASE :] for at in true]
    claims = _Claims(
        list(true),
        [at - BASE for at in true],
        [rng.choice((len(unit), len(unit), min(len(unit), 400))) for unit in units],
        [int.from_bytes(unit[:4], "big", signed=True) for unit in units] if rng.random() < 0.5 else None,
        [int.from_bytes(unit[20:28], "big", signed=True) for unit in units] if rng.random() < 0.5 else None,
    )
    lies: list[tuple[list[int] | None, int]] = [
        (claims.positions, 64),
        (claims.places, 64),
        (claims.lengths, 64),
        (claims.sizes, 32),
        (claims.queue_offsets, 64),
    ]
    for _ in range(rng.choice((0, 0, 1, 2))):
        values, bits = rng.choice(lies)
        if values is not None:
            i, most = rng.randrange(len(values)), (1 << bits - 1) - 1
            lie = rng.choice((values[i] - 1, values[i] + 1, 0, 7, -1, most, -most - 1, rng.randrange(len(log) + 9)))
            values[i] = max(-most - 1, min(most, lie))
    return claims


def _picked(wanted: Wanted, log: memoryview, claims: _Claims, end: int, verify_crc: bool) -> Picked:
    found: list[int] = []

    def stopped(*why: Any) -> Picked:
        return Picked(found, taken, *why)

    for taken, (at, place, length) in enumerate(zip(claims.positions, claims.places, claims.lengths, strict=True)):
        if not 0 <= at < end or not 0 <= place <= len(log) or not 0 <= length <= len(log) - place:
            return stopped(Status.CONTRADICTED, end, at)
        shown = log[place : place + length]
        try:
            size = check_unit(shown, at, end - at, verify_crc=False)
        except Corrupt:
            why = scan_units(shown, at, stop=end, segment_end=end, verify_crc=False, capacity=1)
            assert why.positions == []
            return stopped(*why[2:])
        unit = parse_unit(shown, at)
        if claims.sizes is not None and claims.sizes[taken] != size:
            return stopped(Status.CONTRADICTED, claims.sizes[taken], size)
        if claims.queue_offsets is not None:
            least, most = wanted.offsets_of(unit)
            if claims.queue_offsets[taken] != unit.queue_offset or not least <= unit.queue_offset <= most:
                return stopped(Status.CONTRADICTED, claims.queue_offsets[taken], unit.queue_offset)
        if unit in wanted:
            if verify_crc and _has_wrong_crc(unit):
                return stopped(Status.BAD_BODY_CRC, unit.body_crc, reference.body_crc(unit.body))
            found.append(taken)
    return Picked(found, len(claims.positions), Status.LIMIT, 0, 0)


def test_damaged_logs_picked(rng: random.Random) -> None:
    deadline = time.monotonic() + 1.5
    seen = set()
    while time.monotonic() < deadline:
        log, positions = _random_log(rng)
        _damage(log, positions, rng)
        view = memoryview(log)
        claims = _random_claims(view, positions, rng)
        end = BASE + rng.choice((len(log) + BLANK, len(log) + BLANK, rng.randrange(len(log)), 1 << 20))
        verify_crc = rng.random() < 0.5
        wanted = _random_wanted(rng)
        answer = pick(wanted.filter(), view, **vars(claims), segment_end=end, verify_crc=verify_crc)
        assert answer == _picked(wanted, view, claims, end, verify_crc)
        assert len(wanted.asked) == len({*wanted.asked})
        seen.add(answer.status)
    assert seen >= {Status.LIMIT, Status.MORE, Status.CONTRADICTED, Status.BLANK, Status.BAD_BODY_CRC}
    assert seen >= {Status.BAD_MAGIC, Status.BAD_PHYSICAL_OFFSET, Status.BAD_TOTAL_SIZE}


def test_noise(rng: random.Random) -> None:
    """Bytes and numbers without any sense: no unit is found in them, but for those that are there."""
    unit = encode_unit(topic=rng.randbytes(5), body=b"b", physical_offset=BASE)
    pieces = [b"\xda\xa3\x20\xa7", b"\0\0\0\x5b", bytes(28), unit, unit[:50], BASE.to_bytes(8, "big")]
    numbers = (0, 1, -1, 91, BASE, I64 - 1, -I64)
    for _ in range(300):
        noise = b"".join(rng.choice((*pieces, rng.randbytes(rng.randrange(60)))) for _ in range(20))
        wanted = _random_wanted(rng)
        count = rng.randrange(1, 20)
        positions, places, lengths = (
            [rng.choice((*numbers, rng.randrange(len(noise)))) for _ in range(count)] for _ in range(3)
        )
        claims = _Claims(positions, places, lengths, None, None)
        end = rng.choice((0, len(noise), BASE + len(noise), I64 - 1))
        try:
            expected = _picked(wanted, memoryview(noise), claims, end, True)
        except ValueError:  # scan() has no such window
            expected = None
        answer = pick(wanted.filter(), noise, **vars(claims), segment_end=end)
        assert expected is None or answer == expected
        assert select(wanted.filter(), noise, segment_end=BASE + len(noise)) == _selected(
            wanted, memoryview(noise), BASE + len(noise), BASE + len(noise), True, 1000
        )


# ---- gather


class Gathered(NamedTuple):
    parts: list[bytes]  # of each offset, all that is said to belong to it
    bytes: int
    requests: int


@pytest.fixture
def content(rng: random.Random) -> bytes:
    return rng.randbytes(5000)


@pytest.fixture
def fd(tmp_path: Path, content: bytes) -> Iterator[int]:
    with _opened(tmp_path / "file", content) as fd:
        yield fd


@contextmanager
def _opened(path: Path, content: bytes) -> Iterator[int]:
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def gathered(fd: int, wants: list[tuple[int, int]], slack: int = 0, capacity: int = 10000) -> Gathered:
    """gather() of (offset, size); what it should not touch it must not have touched."""
    memory = bytearray(b"\xee" * (capacity + 64))
    places, lengths = np.full((2, len(wants) + 2), -7, np.int64)
    offsets, sizes = (np.array([want[i] for want in wants], dtype) for i, dtype in enumerate((np.int64, np.int32)))
    room = memoryview(memory)[32 : 32 + capacity]
    count, size, requests = gather(fd, offsets, sizes, room, places, lengths, slack=slack)
    assert memory[:32] == memory[32 + capacity :] == b"\xee" * 32
    assert (places[count:] == -7).all()
    assert (lengths[count:] == -7).all()
    assert memory[32 + size : 32 + capacity] == b"\xee" * (capacity - size)
    assert ((places[:count] >= 0) & (lengths[:count] >= 0) & (places[:count] + lengths[:count] <= size)).all()
    spans = zip(places[:count].tolist(), lengths[:count].tolist(), strict=True)
    return Gathered([bytes(room[place : place + length]) for place, length in spans], size, requests)


def test_neighbours_are_read_in_one_request(fd: int, content: bytes) -> None:
    wants = [(100, 50), (150, 10), (161, 20), (184, 6), (200, 100)]  # 0, 1, 3 and 10 bytes between them
    for slack, requests in ((-1, 5), (0, 4), (1, 3), (2, 3), (3, 2), (9, 2), (10, 1), (1 << 40, 1), (I64 - 1, 1)):
        found = gathered(fd, wants, slack)
        assert found.requests == requests
        between = sum(gap for gap in (0, 1, 3, 10) if gap <= slack)
        assert found.bytes == 186 + between
        for (offset, size), part in zip(wants, found.parts, strict=True):
            assert len(part) >= size
            assert content[offset:].startswith(part)


def test_what_lies_in_another_or_over_it_is_read_once(fd: int, content: bytes) -> None:
    wants = [(100, 500), (100, 20), (150, 50), (150, 600), (750, 10)]
    found = gathered(fd, wants)
    assert found[1:] == (660, 1)
    assert found.parts == [content[offset:760] for offset, _ in wants]


def test_offsets_that_do_not_grow(fd: int, content: bytes) -> None:
    """They cost requests, and come right all the same."""
    found = gathered(fd, [(4000, 10), (3000, 10), (3005, 10), (0, 1)], slack=100)
    assert found == ([content[4000:4010], content[3000:3015], content[3005:3015], content[:1]], 26, 3)


def test_where_the_file_ends(fd: int, content: bytes) -> None:
    found = gathered(fd, [(4980, 10), (4990, 30), (5000, 10), (5015, 5)], slack=10)
    assert found.parts == [content[4980:], content[4990:], b"", b""]
    assert found.bytes == 20
    # Each alone.
    assert gathered(fd, [(4990, 10)]) == ([content[4990:]], 10, 1)
    assert gathered(fd, [(4990, 11)]) == ([content[4990:]], 10, 2)  # the second request says that it is the end
    assert gathered(fd, [(5000, 10)]) == ([b""], 0, 1)
    assert gathered(fd, [(1 << 40, 10), (1 << 41, 10)]) == ([b"", b""], 0, 2)


def test_an_empty_file(tmp_path: Path) -> None:
    with _opened(tmp_path / "empty", b"") as fd:
        assert gathered(fd, [(0, 10), (5, 10)], slack=5) == ([b"", b""], 0, 1)


@pytest.mark.parametrize("size", [0, -1, -I32])
@pytest.mark.parametrize("slack", [0, 1000])
def test_a_size_that_is_none_is_the_end(fd: int, content: bytes, size: int, slack: int) -> None:
    assert gathered(fd, [(10, size), (20, 10)], slack) == ([], 0, 0)
    assert gathered(fd, [(0, 10), (10, size), (20, 10)], slack) == ([content[:10]], 10, 1)


@pytest.mark.parametrize("offset", [-1, -I64, I64 - 9])
def test_an_offset_that_is_none_is_the_end(fd: int, content: bytes, offset: int) -> None:
    """Of the last one the bytes would reach over all numbers."""
    for slack in (0, I64 - 1):
        assert gathered(fd, [(offset, 10), (20, 10)], slack) == ([], 0, 0)
        assert gathered(fd, [(0, 10), (offset, 10), (20, 10)], slack) == ([content[:10]], 10, 1)


def test_as_much_as_there_is_room_for(fd: int, content: bytes) -> None:
    """What lies between two is read as well where it fits in, and never keeps the second one out."""
    wants = [(0, 100), (110, 100), (220, 100)]
    whole = [content[offset:][:size] for offset, size in wants]
    apart = [(0, (0, 0, 0)), (100, (1, 100, 1)), (200, (2, 200, 2)), (300, (3, 300, 3))]
    together = [*apart[:3], (210, (2, 210, 1)), (310, (3, 310, 2)), (320, (3, 320, 1))]
    for slack, steps in ((9, apart), (10, together)):
        for capacity in range(400):
            found = gathered(fd, wants, slack, capacity)
            expected = [answer for least, answer in steps if least <= capacity][-1]
            assert (len(found.parts), found.bytes, found.requests) == expected
            assert [part[:100] for part in found.parts] == whole[: len(found.parts)]


def test_nothing_to_read(fd: int) -> None:
    assert gathered(fd, []) == ([], 0, 0)
    assert gathered(fd, [(0, 10)], capacity=0) == ([], 0, 0)


def test_far_behind_4_gib(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    far = 5 << 30
    with path.open("wb") as file:
        file.write(b"begin")
        file.seek(far)
        file.write(b"end")
    fd = os.open(path, os.O_RDONLY)
    try:
        assert gathered(fd, [(0, 5), (far, 3)], slack=1 << 20) == ([b"begin", b"end"], 8, 2)
        assert gathered(fd, [(0, 5), (far, 3)], slack=1 << 40) == ([b"begin", b"end"], 8, 2)  # there is no such room
    finally:
        os.close(fd)


def test_any_offsets(fd: int, content: bytes, rng: random.Random) -> None:
    for _ in range(2000):
        wants = [(rng.randrange(5100), rng.choice((1, 7, 50, 400))) for _ in range(rng.randrange(1, 25))]
        if rng.random() < 0.9:
            wants.sort()
        slack, capacity = rng.choice((0, 5, 100)), rng.choice((60, 500, 3000, 100000))
        found = gathered(fd, wants, slack, capacity)
        for (offset, size), part in zip(wants, found.parts, strict=False):
            assert len(part) >= min(size, max(0, 5000 - offset))
            assert content[offset:].startswith(part)
        if len(found.parts) < len(wants):
            assert wants[len(found.parts)][1] > capacity - found.bytes
        elif capacity == 100000:
            assert found.requests == _requests(wants, slack)


def _requests(wants: list[tuple[int, int]], slack: int) -> int:
    """How many there are, where there is room for everything: at the file's end one more says that it is there."""
    runs: list[tuple[int, int]] = []
    before = -1
    for offset, size in wants:
        if runs and before <= offset <= runs[-1][1] + slack:
            runs[-1] = (runs[-1][0], max(runs[-1][1], offset + size))
        else:
            runs.append((offset, offset + size))
        before = offset
    return sum(2 if start < 5000 < stop else 1 for start, stop in runs)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count requests")
def test_requests_and_bytes_are_those_that_the_system_sees(fd: int) -> None:
    def counters() -> tuple[int, int]:
        # Of this thread: pytest-xdist and others have threads that read, too.
        seen = dict(line.split(": ") for line in Path("/proc/thread-self/io").read_text().splitlines())
        return int(seen["rchar"]), int(seen["syscr"])

    def during(work: Callable[[], object]) -> tuple[int, int]:
        before = counters()
        work()
        after = counters()
        return after[0] - before[0], after[1] - before[1]

    wants = [(0, 10), (10, 10), (100, 10), (4000, 2000)]
    answers: list[Gathered] = []
    idle_bytes, idle_requests = during(lambda: None)
    read, requests = during(lambda: answers.append(gathered(fd, wants)))
    assert answers[0][1:] == (1030, 4)
    # The counters' own text may have grown by some digits.
    assert requests - idle_requests == 4
    assert 0 <= read - idle_bytes - 1030 < 20


def test_files_that_cannot_be_read(tmp_path: Path, fd: int) -> None:
    def fails(fd: int, error: type[OSError], text: str) -> None:
        with pytest.raises(error, match=text) as raised:
            gathered(fd, [(0, 10)])
        assert raised.value.strerror == os.strerror(raised.value.errno or 0)

    fails(-1, OSError, "Bad file descriptor")
    directory = os.open(tmp_path, os.O_RDONLY)
    writable = os.open(tmp_path / "new", os.O_WRONLY | os.O_CREAT)
    reads, writes = os.pipe()
    try:
        fails(directory, IsADirectoryError, "Is a directory")
        fails(writable, OSError, "Bad file descriptor")
        fails(reads, OSError, "Illegal seek")
    finally:
        for other in (directory, writable, reads, writes):
            os.close(other)
    fails(directory, OSError, "Bad file descriptor")


def test_gather_with_arguments_of_the_wrong_kind(fd: int) -> None:
    offsets, sizes = np.arange(3) * 10, np.full(3, 10, np.int32)
    places, lengths = np.empty((2, 3), np.int64)
    room = bytearray(100)
    sound: list[Any] = [offsets, sizes, room, places, lengths]
    assert gather(fd, *sound, slack=0) == (3, 30, 1)
    for i in (1, 3, 4):
        for short in (sound[i][:2], sound[i][:0]):
            changed = (*sound[:i], short, *sound[i + 1 :])
            with pytest.raises(ValueError, match="3 offsets need as many sizes, window_offsets and lengths"):
                gather(fd, *changed, slack=0)
    frozen = np.empty(3, np.int64)
    frozen.flags.writeable = False
    wrongs: tuple[tuple[int, Any], ...] = (
        *((i, None) for i in range(5)),
        *((i, np.zeros(3)) for i in range(5)),
        (0, np.zeros(3, np.int32)),
        (1, np.zeros(3, np.int64)),
        (2, bytes(100)),
        (2, memoryview(room)[::2]),
        *((i, frozen) for i in (3, 4)),
    )
    for i, wrong in wrongs:
        changed = (*sound[:i], wrong, *sound[i + 1 :])
        with pytest.raises((TypeError, ValueError, BufferError)):
            gather(fd, *changed, slack=0)


# ---- append with places


def _append(window: Any, positions: Any, **where: Any) -> list[dict[str, Any]]:
    builder = BatchBuilder(list(COLUMNS))
    builder.append(window, np.array(positions, np.int64), **where)
    return rows_of(builder.finish())


def test_append_takes_units_from_any_place(rng: random.Random) -> None:
    for _ in range(100):
        log, positions = _random_log(rng)
        order = [rng.randrange(len(positions)) for _ in range(20)]
        window, places = bytearray(rng.randbytes(rng.randrange(20))), []
        bounds = [*positions.tolist(), BASE + len(log)]
        for i in order:
            places.append(len(window))
            window += log[bounds[i] - BASE : bounds[i + 1] - BASE] + rng.randbytes(rng.choice((0, 0, 5)))
        rows = _append(window, positions[order], base=0, window_offsets=np.array([*places, 0]))
        assert rows == _append(log, positions[order], base=BASE)
        assert rows == [reference.decode_unit(log[bounds[i] - BASE :], bounds[i], decompress=False) for i in order]


def test_append_refuses_places_where_the_unit_is_not() -> None:
    log, positions = encode_log([{}, {}], BASE)
    size = len(log) // 2
    for place in (-1, 1, size, size - 1, 2 * size - 90, 2 * size, 2 * size + 1, I64 - 1, -I64):
        with pytest.raises(ValueError, match=f"no message unit at {BASE}"):
            _append(log, [BASE], base=0, window_offsets=np.array([place]))
    for window, at, place in ((memoryview(log)[:size], BASE + size, size), (memoryview(log)[size:], BASE, -size)):
        with pytest.raises(ValueError, match=f"no message unit at {at}"):  # it is there, right outside of the window
            _append(window, [at], base=0, window_offsets=np.array([place]))
    builder = BatchBuilder(["queueOffset"])
    with pytest.raises(ValueError, match="2 positions need as many window_offsets"):
        builder.append(log, positions, base=0, window_offsets=np.array([0]))
    builder.append(log, positions, base=0, window_offsets=np.array([0, size]))  # nothing had begun
    assert builder.finish().num_rows == 2


def test_from_a_file_to_rows(small_store: Path, rng: random.Random) -> None:
    """gather, pick and append, one behind the other, on what RocketMQ wrote."""
    path = min((small_store / "commitlog").iterdir())
    start, size = int(path.name), path.stat().st_size
    units = {at: parse_unit(unit, at) for at, unit in reference.read_segment(path.read_bytes(), start, last=False)}
    first = next(iter(units.values()))
    wanted = Wanted(queues={(first.topic, first.queue_id): (first.queue_offset + 1, first.queue_offset + 5)})
    assert sum(unit in wanted for unit in units.values()) == 5
    claimed = sorted(rng.sample(sorted(units), len(units) - 4))
    positions = np.array(claimed, np.int64)
    sizes = np.array([units[at].total_size for at in claimed], np.int32)
    places, lengths, which = np.empty((3, len(claimed)), np.int64)
    window = bytearray(int(sizes.sum()) + 1000)
    fd = os.open(path, os.O_RDONLY)
    try:
        count, _, requests = gather(fd, positions - start, sizes, window, places, lengths, slack=0)
    finally:
        os.close(fd)
    assert count == len(claimed)
    assert 1 <= requests <= 5  # there are 4 gaps at most
    found, taken, status, _, _ = wanted.filter().pick(
        window,
        segment_end=start + size,
        verify_crc=True,
        positions=positions,
        window_offsets=places,
        lengths=lengths,
        sizes=sizes,
        queue_offsets=None,
        chosen=which,
    )
    assert (taken, status) == (len(claimed), Status.LIMIT)
    chosen = which[:found]
    rows = _append(window, positions[chosen], base=0, window_offsets=places[chosen])
    assert [row["commitLogOffset"] for row in rows] == [at for at in claimed if units[at] in wanted]
    assert all(row["body"] == units[row["commitLogOffset"]].body for row in rows)
