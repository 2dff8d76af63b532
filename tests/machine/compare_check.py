"""Table `check`: silent on what is sound, tells all that is known to be lost, and the same in pieces of any size."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from support import reading

from machine.expected import Truth
from machine.findings import Row, check, findings
from machine.past import Difference, Past

_UNITS = ("missingQueueUnit", "wrongQueueUnit", "queueAheadOfLog", "extraQueueUnit")
_PIECES = (1, 300, 1500, 6000)


def sound(past: Past, truth: Truth, rng: random.Random) -> None:
    """What a broker wrote, and nothing was lost of."""
    if not (past.damages or past.had_cut) and past.queues_are_whole and (told := findings(past.root)):
        raise Difference("check: finds something in a sound store", told)


def lost(past: Past, truth: Truth, rng: random.Random) -> None:
    """Each damage is told, and each message whose unit is not there; no unit is missed that is there."""
    if not truth.is_decided:
        return
    rows = check(past.root)
    names = {row["problem"] for row in rows}
    damaged = [
        range(r["commitLogOffset"], r["commitLogOffset"] + r["count"]) for r in rows if r["problem"] == "damagedUnit"
    ]
    for stretch in truth.stretches:
        if not any(stretch.start < told.stop and told.start < stretch.stop for told in damaged):
            raise Difference("check: damage is not told", f"{stretch.start} to {stretch.stop}, told {damaged}")
    told = _units(rows, ("missingQueueUnit", "wrongQueueUnit"))
    lacking = {(m.topic, m.queue_id, m.queue_offset) for m in truth.whole if m.queued and not truth.has_unit(m)}
    # The last ones of a broker that was killed are not there yet.
    late = sum(row["count"] for row in rows if row["problem"] == "notDispatched")
    if "noQueues" not in names and len(lacking - told) > late:
        raise Difference("check: a missing unit is not told", sorted(lacking - told)[:5])
    wrong = _units(rows, ("missingQueueUnit",)) & {
        (m.topic, m.queue_id, m.queue_offset) for m in truth.whole if truth.has_unit(m)
    }
    if wrong:
        raise Difference("check: misses a unit that is there", sorted(wrong)[:5])


def _units(rows: list[Row], problems: tuple[str, ...]) -> set[tuple[str, int, int]]:
    return {
        (row["topic"], row["queueId"], row["queueOffset"] + number)
        for row in rows
        if row["problem"] in problems and row["queueOffset"] is not None
        for number in range(row["count"])
    }


def pieces(past: Past, truth: Truth, rng: random.Random) -> None:
    """The same things are found, however the log is cut, and wherever it lies."""
    piece = rng.choice(_PIECES)
    # In objects there are no empty directories, so a store whose queues are gone is another one there.
    reading.STORAGE = rng.choice(("disk", "objects"))
    try:
        whole = _things(check(past.root))
        cut = _things(check(past.root, maxPartitionBytes=piece))
    finally:
        where, reading.STORAGE = reading.STORAGE, "disk"
    for problem in sorted({*whole, *cut}):
        one, other = whole.get(problem), cut.get(problem)
        if one != other:
            text = f"maxPartitionBytes={piece}, {where}: in one {_brief(one, other)}, in pieces {_brief(other, one)}"
            raise Difference(f"check: {problem} depends on the size of pieces", text)


def _brief(one: Any, other: Any) -> object:
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: one[name] for name in one if one[name] != other.get(name)}
    return one


def _things(rows: list[Row]) -> dict[str, Any]:
    """How many of which problem where: rows of neighbours may be one or several."""
    found: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        problem = row["problem"]
        if problem in _UNITS and row["queueOffset"] is not None:
            for number in range(row["count"]):
                found[problem][row["topic"], row["queueId"], row["queueOffset"] + number] += 1
        elif problem == "damagedUnit":
            found[problem]["bytes"] += row["count"]
        elif row["area"] == "index":
            found[problem][row["file"]] += row["count"]
        else:
            found[problem][row["file"], row["filePosition"], row["topic"], row["queueId"]] += row["count"]
    return {problem: dict(things) for problem, things in found.items()}


STEPS = (sound, lost, pieces)
