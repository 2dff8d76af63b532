"""No message hides from a time range: of logs with parts of a broker's clock and parts that were written with any store
times, cut, damaged, and with records that no longer fit."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.stores import StoreBuilder, Stored

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.log_times import LogTimes
from rmqstore_spark.store.snapshot import Snapshot

_SLACK = 60_000  # ms that a broker's clock may go back
_HOUR = 3_600_000


@dataclass
class _Timed:
    """A store whose log is a broker's and a writer's by turns.

    Attributes:
        written: what a writer notes down of its stretches, as times.json has it.
        damaged: positions of messages that cannot be read.
    """

    store: StoreBuilder
    written: list[dict[str, Any]] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)


def _timed_store(root: Path, rng: random.Random) -> _Timed:
    timed = _Timed(StoreBuilder(root, rng.choice((2048, 8192)), 2000))
    clock = rng.randrange(10, 20) * 100 * _HOUR
    _as_broker(timed, rng, clock) if rng.random() < 0.8 else None
    for _ in range(rng.randrange(3)):
        before = len(timed.store.messages)
        _as_writer(timed, rng)
        if rng.random() < 0.3 and before:
            # What is left over is told from what is live by its time, so the broker's clock is later.
            newest = max(message.store_timestamp for message in timed.store.messages)
            timed.store.forget_last(rng.randrange(1, len(timed.store.messages) - before + 1))
            _as_broker(timed, rng, newest + _HOUR)
            break
        clock += rng.randrange(-50, 50) * _HOUR  # at the border times may go back by any amount
        _as_broker(timed, rng, clock)
    timed.store.append("Last", b"b" * 133, store_timestamp=timed.store.now)
    timed.store.close()
    (root / ".rmqstore-spark").mkdir()
    said = json.dumps({"version": 1, "written": timed.written})
    if rng.random() < 0.1:
        said = rng.choice(("", said[:-9], "{}", said.replace("start", "begin")))
    (root / ".rmqstore-spark" / "times.json").write_text(said)
    _damage(timed, rng)
    return timed


def _as_broker(timed: _Timed, rng: random.Random, clock: int) -> None:
    """Its messages are never more than a minute older than one before them."""
    newest = clock
    for _ in range(rng.randrange(1, 25)):
        time = newest - rng.choice((0, 0, 0, 1, rng.randrange(_SLACK)))
        timed.store.append("T", b"b" * rng.randrange(100), rng.randrange(2), store_timestamp=time)
        newest = max(newest, time) + rng.choice((0, 1, 1000, _SLACK, _HOUR))


def _as_writer(timed: _Timed, rng: random.Random) -> None:
    """Any times, noted down as runs."""
    store = timed.store
    before = store.messages[-1].store_timestamp if store.messages else None
    start, runs, bodies = store.end, [], []
    for _ in range(rng.randrange(1, 4)):
        times = [rng.randrange(3000) * _HOUR for _ in range(rng.randrange(1, 8))]
        if rng.random() < 0.3:
            times.sort()
        for time in times:
            bodies.append(rng.randbytes(rng.randrange(1, 60)))
            store.append("T", bodies[-1], rng.randrange(2), store_timestamp=time)
        runs.append([store.end, min(times), max(times), _fall(times)])
    store.flush()
    last = store.messages[-1]
    crc = store.segment(last.position).read_bytes()[last.position % store.segment_size + 8 :][:4]
    mark = [last.position, last.store_timestamp, int.from_bytes(crc, "big", signed=True)]
    said = {"last": mark, "runs": runs} if rng.random() < 0.9 else {"last": None, "runs": []}
    timed.written.append({"start": start, "stop": store.end, "before": before, **said})


def _fall(times: list[int]) -> int:
    """By how much one is older than one before it, at the most."""
    return max((max(times[: at + 1]) - time for at, time in enumerate(times)), default=0)


def _damage(timed: _Timed, rng: random.Random) -> None:
    for message in rng.sample(timed.store.messages[:-1], min(rng.choice((0, 0, 1, 4)), len(timed.store.messages) - 1)):
        path = timed.store.segment(message.position)
        data = bytearray(path.read_bytes())
        at = message.position % timed.store.segment_size
        match rng.randrange(2):
            case 0:
                data[at + 4] ^= 0x10  # magic
            case 1:
                data[at : at + message.size] = rng.randbytes(message.size)
        path.write_bytes(data)
        timed.damaged.add(message.position)


def _ask(timed: _Timed, times: LogTimes, rng: random.Random) -> int:
    """How many of some questions are answered with no."""
    messages, no = timed.store.messages, 0
    bounds = [message.position for message in messages] + [timed.store.end]
    for _ in range(40):
        first = rng.randrange(len(messages))
        after = rng.randrange(first + 1, len(messages) + 1)
        here = [m for m in messages[first:after] if m.position not in timed.damaged]
        near = rng.choice(messages).store_timestamp + rng.choice((0, 0, 1, -1, _HOUR, -_SLACK))
        least, most = near, near + rng.choice((0, 0, 1000, 100 * _HOUR))
        may = times.may_hold(bounds[first], bounds[after], least, most)
        assert may or not [m for m in here if least <= m.store_timestamp <= most], (first, after, least, most)
        no += not may
        _assert_pieces(times, here, bounds[first], bounds[after])
    return no


def _assert_pieces(times: LogTimes, here: list[Stored], start: int, stop: int) -> None:
    """They are all of it, and none falls by more than it says (0: by a broker's minute)."""
    at = start
    for begin, end, fall in times.pieces(start, stop):
        assert begin == at < end
        at = end
        found = _fall([m.store_timestamp for m in here if begin <= m.position < end])
        assert fall is None or found <= max(fall, _SLACK)
    assert at == stop
    if times.ascends(start, stop):
        assert _fall([message.store_timestamp for message in here]) <= _SLACK


def test_no_message_hides_from_a_time_range(tmp_path: Path, rng: random.Random) -> None:
    no = 0
    for number in range(50):
        root = tmp_path / str(number)
        timed = _timed_store(root, rng)
        no += _ask(timed, Snapshot.find(str(root), Files()).times, rng)
        shutil.rmtree(root)
    assert no > 200  # the rest would be true of a log that is read as a whole as well
