"""Random selections by options, with the same said in plain Python."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import NamedTuple

from oracle import reference
from oracle.aged_stores import BATCHES

from machine.past import Past, Row, known_topics
from machine.stores import HALF, SLACK, TAGS, TOPICS, WORDS


class Wanted(NamedTuple):
    """Options, and what they say of a row of the full scan.

    Attributes:
        may_miss: whether docs/find.md says that a look-up may not see this row.
    """

    kind: str
    options: dict[str, str]
    has: Callable[[Row], bool]
    may_miss: Callable[[Row], bool] = lambda row: False


def wanted(past: Past, rng: random.Random) -> Wanted:
    """One or two kinds of options that go together."""
    names = rng.sample(sorted(KINDS), rng.choice((1, 1, 2)))
    if "offsets" in names and "topic" in names:  # offsets of other topics are refused
        names.remove("topic")
    if "group" in names:  # it is an option that others set, too
        names = ["group"]
    parts = [part for name in names if (part := KINDS[name](past, rng)) is not None]
    if not parts:
        return Wanted("nothing", {}, lambda row: True)
    options = {name: text for part in parts for name, text in part.options.items()}

    def may_miss(row: Row) -> bool:
        return any(part.may_miss(row) for part in parts)

    return Wanted(
        " and ".join(p.kind for p in parts), options, lambda row: all(part.has(row) for part in parts), may_miss
    )


def _rows(past: Past) -> list[Row]:
    return [row for m in past.messages for row in m.rows]


def _topic(past: Past, rng: random.Random) -> Wanted:
    queues = sorted({(m.topic, m.queue_id) for m in past.messages})
    kind = rng.choice(("subscribe", "subscribePattern", "assign"))
    if kind == "assign":
        chosen = rng.sample(queues, min(len(queues), rng.choice((1, 2))))
        table: dict[str, list[int]] = {}
        for topic, queue_id in chosen:
            table.setdefault(topic, []).append(queue_id)
        return Wanted("topic", {kind: json.dumps(table)}, lambda row: (row["topic"], row["queueId"]) in chosen)
    if kind == "subscribePattern":
        pattern = re.compile(rng.choice(("Topic.*", ".*", "%.*", "Topic[B-Z]", "[A-Z].*")))
        return Wanted("topic", {kind: pattern.pattern}, lambda row: pattern.fullmatch(row["topic"]) is not None)
    topics = rng.sample(sorted({topic for topic, _ in queues}), 1)
    if rng.random() < 0.3:
        topics.append(rng.choice((*TOPICS, HALF)))
    return Wanted("topic", {kind: ",".join(dict.fromkeys(topics))}, lambda row: row["topic"] in topics)


def _offsets(past: Past, rng: random.Random) -> Wanted | None:
    queues = sorted({m.queue for m in past.messages if m.queued})
    if not queues:
        return None
    bounds: dict[tuple[str, int], tuple[int, int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for topic, queue_id in rng.sample(queues, min(len(queues), rng.choice((1, 2)))):
        there = [row["queueOffset"] for m in past.messages if m.queue == (topic, queue_id) for row in m.rows]
        low, high = sorted((rng.choice(there), rng.choice(there) + rng.choice((0, 1, 5))))
        starts.setdefault(topic, {})[str(queue_id)] = low
        ends.setdefault(topic, {})[str(queue_id)] = high
        bounds[topic, queue_id] = low, high
    options = {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}

    def has(row: Row) -> bool:
        low, high = bounds.get((row["topic"], row["queueId"]), (-(1 << 63), 1 << 63))
        # What is in no queue has queueOffset 0, which says nothing.
        return bool(low <= row["queueOffset"] < high)

    if any(topic == HALF for topic, _ in bounds):
        return None
    return Wanted("offsets", options, has)


def _group(past: Past, rng: random.Random) -> Wanted | None:
    """What a group has not consumed yet of the topics that it consumes."""
    if not past.groups:
        return None
    group = rng.choice(sorted(past.groups))[0]
    places = {topic: queues for (name, topic), queues in past.groups.items() if name == group}

    def has(row: Row) -> bool:
        return row["topic"] in places and row["queueOffset"] >= places[row["topic"]].get(row["queueId"], 0)

    return Wanted("group", {"startingOffsets": f"group:{group}"}, has)


def _tags(past: Past, rng: random.Random) -> Wanted:
    tags = rng.sample((*TAGS, "none"), rng.choice((1, 2)))
    return Wanted("tags", {"tags": "||".join(tags)}, lambda row: row["tags"] in tags)


def _key(past: Past, rng: random.Random) -> Wanted:
    ids = [row["msgId"] for row in _rows(past) if row["msgId"]] or ["none"]
    name = rng.choice((rng.choice(ids), rng.choice(ids), rng.choice(WORDS), "twice"))

    def has(row: Row) -> bool:
        return name == row["msgId"] or name in (row["keys"] or "").split(" ")

    return Wanted("key", {"key": name}, has, _is_not_seen(past, name))


def _id(past: Past, rng: random.Random) -> Wanted:
    row = rng.choice(_rows(past))
    name = rng.choice((row["msgId"] or "none", row["offsetMsgId"], "twice"))
    is_not_seen = _is_not_seen(past, name)
    return Wanted("msgId", {"msgId": name}, lambda row: name in (row["msgId"], row["offsetMsgId"]), is_not_seen)


def _is_not_seen(past: Past, name: str) -> Callable[[Row], bool]:
    """What a look-up of a name need not see: where of a topic only messages are left, as it was deleted; and what a
    broker has put into no index after a truncation, inside of what one index file has of the log."""
    known = {path.name for path in past.root.glob("*consumequeue/*")} | {topic for _, topic in past.groups}
    known |= known_topics(past.root)
    items, stretches = _indexed(past)

    def is_not_indexed(row: Row) -> bool:
        at, of_name = row["commitLogOffset"], reference.index_hash(row["topic"], name)
        return (of_name, at) not in items and any(begin < at < end for begin, end in stretches)

    has_batches = (past.root / "batchconsumequeue" / BATCHES).exists() or BATCHES in known_topics(past.root)

    def is_not_seen(row: Row) -> bool:
        if row.get("batchIndex") is not None:  # no index has it, so it is looked up beside the index
            return not has_batches
        return row["topic"] not in known or is_not_indexed(row)

    return is_not_seen


def _indexed(past: Past) -> tuple[set[tuple[int, int]], list[tuple[int, int]]]:
    """The items of all index files as (keyHash, physical offset); and of each file the first and the last physical
    offset of a message that the log has."""
    live = {
        (reference.index_hash(m.topic, key), m.position)
        for m in past.messages
        for key in (m.row["msgId"], *(m.row["keys"] or "").split(" "), f"T#{m.row['tags']}")
        if key
    }
    items: set[tuple[int, int]] = set()
    stretches = []
    for path in past.root.glob("index/*"):
        found = {(i.key_hash, i.physical_offset) for i in reference.read_index(path.read_bytes(), past.index_slots)}
        items |= found
        if places := [position for of_key, position in found & live]:
            stretches.append((min(places), max(places)))
    return items, stretches


def _time(past: Past, rng: random.Random) -> Wanted | None:
    """Of what a broker wrote only where its clock was never set back by more than is allowed for."""
    times = [m.store_timestamp for m in past.messages]
    newest = -(1 << 62)
    for m in past.messages:
        if m.position not in past.ours:
            newest = max(newest, m.store_timestamp)
            if newest - m.store_timestamp > SLACK:
                return None
    low, high = sorted(rng.choice(times) + rng.choice((0, 0, 1, -1, SLACK, -SLACK)) for _ in range(2))
    options: dict[str, str] = {}
    if rng.random() < 0.7:
        options["startingTimestamp"] = str(low)
    else:
        low = -(1 << 62)
    if rng.random() < 0.7 or not options:
        options["endingTimestamp"] = str(high)
    else:
        high = 1 << 62
    return Wanted("time", options, lambda row: low <= row["storeTimestamp"] // 1000 < high)


KINDS: dict[str, Callable[[Past, random.Random], Wanted | None]] = {
    "topic": _topic,
    "offsets": _offsets,
    "group": _group,
    "tags": _tags,
    "key": _key,
    "id": _id,
    "time": _time,
}
