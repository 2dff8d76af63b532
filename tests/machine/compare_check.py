"""Table `check`: silent on what is sound, tells all that is known to be lost, and the same in pieces of any size."""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

from oracle import reference
from support import reading

from machine.expected import Truth
from machine.findings import Row, check, findings
from machine.past import Difference, Message, Past

_UNITS = ("lostMessages", "missingQueueUnit", "wrongQueueUnit", "queueAheadOfLog", "extraQueueUnit")
_DAMAGE = ("damagedUnit", "unwrittenPages", "unwrittenEnd")
Unit = tuple[str, int, int]  # topic, queueId, queueOffset
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
    damaged = [range(r["commitLogOffset"], r["commitLogOffset"] + r["count"]) for r in rows if r["problem"] in _DAMAGE]
    for stretch in truth.stretches:
        if not any(stretch.start < told.stop and told.start < stretch.stop for told in damaged):
            raise Difference("check: damage is not told", f"{stretch.start} to {stretch.stop}, told {damaged}")
    _named(truth, rows, damaged)
    told = _units(rows, ("missingQueueUnit", "wrongQueueUnit"))
    lacking = {(m.topic, m.queue_id, m.queue_offset): m.position for m in truth.whole if _lacks_unit(truth, m)}
    late = _late(truth, lacking)
    if "noQueues" not in names and (missing := set(lacking) - late - told):
        raise Difference("check: a missing unit is not told", sorted(missing)[:5])
    told_late = sum(row["count"] for row in rows if row["problem"] == "notDispatched")
    if "noQueues" not in names and told_late < len(late - told):
        raise Difference("check: what a broker makes yet is not told", f"{told_late} of {sorted(late - told)[:5]}")
    wrong = _units(rows, ("missingQueueUnit",)) & {
        (m.topic, m.queue_id, m.queue_offset) for m in truth.whole if truth.has_unit(m)
    }
    if wrong:
        raise Difference("check: misses a unit that is there", sorted(wrong)[:5])


def _named(truth: Truth, rows: list[Row], damaged: list[range]) -> None:
    """Of the messages in damage, those that their queues know, and no others."""
    if any(position in each for position in _left_over(truth) for each in damaged):
        return  # which of two messages at one place was there last, nothing tells any more
    ended = {row["commitLogOffset"] for row in rows if row["problem"] == "unwrittenEnd"}
    known = {
        (message.topic, message.queue_id, message.queue_offset)
        for message in truth.past.messages
        if message.queued and truth.has_unit(message) and message.position not in ended
        if any(message.position in each for each in damaged)
    }
    if (named := _units(rows, ("lostMessages",))) != known:
        text = f"told {sorted(named - known)[:5]}, not told {sorted(known - named)[:5]}"
        raise Difference("check: names other messages than are lost", text)


def _left_over(truth: Truth) -> set[int]:
    """Where queues have messages that a truncation cut off."""
    units = [
        struct.unpack_from(">qi", data, at)
        for path in (truth.past.root / "consumequeue").rglob("*")
        if path.is_file()
        for data in [path.read_bytes()]
        for at in range(0, len(data) - reference.QUEUE_UNIT_SIZE + 1, reference.QUEUE_UNIT_SIZE)
    ]
    return {position for position, size in units if size > 0} - {message.position for message in truth.past.messages}


def _lacks_unit(truth: Truth, message: Message) -> bool:
    return message.queued and not truth.has_unit(message)


def _late(truth: Truth, lacking: dict[Unit, int]) -> set[Unit]:
    """Of the messages that lack a unit those that a broker that starts puts where their queues end for it: it begins
    with the last segment whose first message is older by 3 seconds than its checkpoint, or ten segments from the end
    (CommitLog.recoverAbnormally)."""
    past = truth.past
    if not past.abort:
        return set()
    physic, logics = struct.unpack_from(">qq", (past.root / "checkpoint").read_bytes())
    firsts: dict[int, Message] = {}
    for m in past.messages:
        firsts.setdefault(past.segment_of(m.position), m)
    begin = 0
    for start, first in list(firsts.items())[:-11:-1]:
        begin = start
        if first in truth.whole and 0 < first.store_timestamp <= min(physic, logics) - 3000:
            break
    return {unit for unit, at in lacking.items() if at >= begin and unit[2] >= _recovered_end(past.root, *unit[:2])}


def _recovered_end(root: Path, topic: str, queue_id: int) -> int:
    """The number of the unit from which on a broker that starts makes a queue anew: of the first one in the last three
    files that is none (ConsumeQueue.recover)."""
    end = 0
    for path in sorted((root / "consumequeue" / topic / str(queue_id)).glob("*"))[-3:]:
        end = int(path.name) // reference.QUEUE_UNIT_SIZE
        data = path.read_bytes()
        for at in range(0, len(data) - reference.QUEUE_UNIT_SIZE + 1, reference.QUEUE_UNIT_SIZE):
            position, size = struct.unpack_from(">qi", data, at)
            if position < 0 or size <= 0:
                return end
            end += 1
    return end


def _units(rows: list[Row], problems: tuple[str, ...]) -> set[Unit]:
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
        elif problem in _DAMAGE:
            found["damage"]["bytes"] += row["count"]
        elif row["area"] == "index":
            found[problem][row["file"]] += row["count"]
        else:
            found[problem][row["file"], row["filePosition"], row["topic"], row["queueId"]] += row["count"]
    return {problem: dict(things) for problem, things in found.items()}


STEPS = (sound, lost, pieces)
