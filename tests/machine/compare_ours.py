"""Stores that the package itself has made: of rows in any order of time, of several stores, of rows that come later."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oracle.stores import FIRST_TIMESTAMP
from support import reading, writing

import rmqstore_spark
from machine import compare_check, compare_rows, compare_tables
from machine.expected import Truth, truth_of
from machine.past import Difference, Past, Row, read_messages
from machine.selections import Wanted
from machine.stores import TAGS
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.sizes import Sizes

_SIZES = Sizes(segment=4096, queue_file=400, slots=20, items=50)
_DAY = 86_400_000
Values = tuple[Any, ...]


def unsorted(past: Past, truth: Truth, rng: random.Random) -> None:
    """Rows of any times, by one or by many tasks, and then older or newer ones behind them."""
    root = past.root.with_name("unsorted")
    rows = drawn(rng, rng.choice((5, 40, 120)))
    _write(root, rows, rng)
    more = drawn(rng, rng.choice((0, 0, 1, 20)), shift=rng.choice((-10 * _DAY, 0, 10 * _DAY)))
    if more:
        _write(root, more, rng)
    _look(root, [_values(row) for row in rows + more], rng)


def merged(past: Past, truth: Truth, rng: random.Random) -> None:
    """Two brokers' stores become one: queues of the second one come after those of the first one."""
    home = past.root.with_name("merged")
    values: list[Values] = []
    for number in range(2):
        rows = sorted(drawn(rng, 40, host=f"10.0.0.{number + 2}:10911"), key=lambda row: row["storeTimestamp"])
        _write(home / str(number), rows, rng)
        values += [_values(row) for row in rows]
    target = home / "both"
    rmqstore_spark.Store([home / "0", home / "1"]).copy(target)
    _look(target, values, rng, is_ordered=False)


def parts(past: Past, truth: Truth, rng: random.Random) -> None:
    """A copy of what has certain times."""
    home = past.root.with_name("parts")
    rows = drawn(rng, 60)
    _write(home / "all", rows, rng)
    times = sorted(row["storeTimestamp"] // 1000 for row in rows)
    low, high = sorted(rng.sample(times, 2))
    wanted = [_values(row) for row in rows if low <= row["storeTimestamp"] // 1000 < high]
    target = home / "some"
    options = {"startingTimestamp": str(low), "endingTimestamp": str(high)}
    try:
        rmqstore_spark.Store(home / "all").copy(target, **options)  # type: ignore[arg-type]
    except RmqStoreError as why:
        if wanted:
            raise Difference("ours: a copy by time is refused", f"{options}: {why}") from None
        return
    _look(target, wanted, rng, is_whole=False)


def drawn(rng: random.Random, count: int, shift: int = 0, host: str = "10.0.0.2:10911") -> list[Row]:
    """Rows to write; times are microseconds: in order, in any order, two runs, or going down."""
    times = [FIRST_TIMESTAMP + shift + rng.randrange(_DAY) for _ in range(count)]
    kind = rng.choice(("any", "up", "down", "two runs", "equal"))
    if kind == "up":
        times.sort()
    elif kind == "down":
        times.sort(reverse=True)
    elif kind == "two runs":
        times = sorted(times[: count // 2]) + sorted(times[count // 2 :])
    elif kind == "equal":
        times = times[:1] * count
    return [
        {
            "topic": rng.choice(("TopicA", "TopicB")),
            "queueId": rng.randrange(2),
            "tags": rng.choice((None, *TAGS)),
            "keys": rng.choice((None, "order", f"k{number}")),
            "msgId": rng.choice((None, f"id{rng.randrange(10**9)}")),
            "body": rng.randbytes(rng.choice((0, 20, 300))),
            "storeTimestamp": time * 1000,
            "storeHost": host,
        }
        for number, time in enumerate(times)
    ]


def _values(row: Row) -> Values:
    return tuple(row[name] for name in ("topic", "tags", "keys", "msgId", "body", "storeTimestamp"))


def _write(root: Path, rows: list[Row], rng: random.Random) -> None:
    """By tasks of a few rows each."""
    size = rng.choice((len(rows), len(rows), len(rows), 17))
    writing.write(root, *[rows[at : at + size] for at in range(0, len(rows), size)], sizes=_SIZES)


def _look(
    root: Path, values: Sequence[Values], rng: random.Random, *, is_ordered: bool = True, is_whole: bool = True
) -> None:
    """What was written is there, any times are found, and check finds nothing."""
    messages = read_messages(root)
    found = [_values(m.row) for m in messages]
    if found != list(values) and (is_ordered or sorted(map(repr, found)) != sorted(map(repr, values))):
        raise Difference("ours: other messages than were written", f"{len(found)} for {len(values)}")
    if not messages:
        return
    made = Past(root, 4096, 400, messages[0].position, messages, index_slots=20, has_index=True)
    made.ours = {m.position for m in messages}
    truth = truth_of(made)
    for _ in range(3):
        _by_time(made, truth, rng)
    for step in (compare_rows.failing, compare_check.sound, compare_tables.STEPS[0], compare_tables.STEPS[6]):
        try:
            if is_whole or step is not compare_check.sound:  # a part has gaps in its queues
                step(made, truth, rng)
        except Difference as why:
            raise Difference(f"ours: {why.kind}", why.text) from None


def _by_time(made: Past, truth: Truth, rng: random.Random) -> None:
    times = [m.store_timestamp for m in made.messages]
    low, high = sorted((rng.choice(times), rng.choice(times) + rng.choice((0, 1, 1000))))
    which = rng.choice(("startingTimestamp", "endingTimestamp", "both"))
    options = {}
    if which != "endingTimestamp":
        options["startingTimestamp"] = str(low)
    if which != "startingTimestamp":
        options["endingTimestamp"] = str(high)

    def has(row: Row) -> bool:
        time = row["storeTimestamp"] // 1000
        return bool((which == "endingTimestamp" or low <= time) and (which == "startingTimestamp" or time < high))

    wish = Wanted("time", options, has)
    piece = rng.choice(compare_rows.PIECES)
    try:
        found = reading.read(made.root, maxPartitionBytes=piece, **options)
        compare_rows.compare_rows(truth, found, f"maxPartitionBytes={piece} {options}", wish)
    except Difference as why:
        raise Difference(f"ours: {why.kind}", why.text) from None


STEPS = (unsorted, merged, parts)
