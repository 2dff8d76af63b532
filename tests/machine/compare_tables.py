"""Tables: queues, topics, offsets, segments, consumequeue and index against the truth, and against each other."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from oracle import reference
from support import reading

from machine.expected import Truth
from machine.past import Difference, Message, Past, QueueName, known_topics
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables import positions, registry

Row = dict[str, Any]
Step = Callable[[Past, Truth, random.Random], None]
_LOST_SIZE = 9  # in the unit of a message that a salvage has not found (native_io/queue_units.h)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Queue(NamedTuple):
    """What is known of a queue.

    Attributes:
        live: its messages, damaged ones too, in their order; `whole` those that are not.
        is_decided: whether none of its left-over units points into damage: then nothing tells whose message that was.
        is_complete: whether its ConsumeQueue has a unit of each of them, and nothing is undecided of those at its end.
    """

    live: list[Message]
    whole: list[Message]
    is_complete: bool
    is_decided: bool


def _table(past: Past, name: str, **options: Any) -> list[Row]:
    understood = reading.options_of(past.root, table=name, **options)
    store = Snapshot.find(str(past.root), reading.new_files())
    rows: list[Row] = registry.read_table(understood, [store]).to_pylist()
    return rows


def queues_of(truth: Truth) -> dict[QueueName, Queue]:
    live: dict[QueueName, list[Message]] = defaultdict(list)
    for m in truth.past.messages:
        if m.queued:
            live[m.queue].append(m)
    whole = {m.position for m in truth.whole}
    beyond = {
        (topic, queue_id)
        for (topic, queue_id, offset), (position, _) in truth.units.items()
        if not any(m.queue_offset == offset and m.position == position for m in live.get((topic, queue_id), ()))
        and any(stretch.start <= position < stretch.stop for stretch in truth.stretches)
    }
    return {
        name: Queue(
            some, [m for m in some if m.position in whole], all(has_unit(truth, m) for m in some), name not in beyond
        )
        for name, some in live.items()
    }


def has_unit(truth: Truth, message: Message) -> bool:
    """And is it sure whether the message is there?"""
    stretch = next((s for s in truth.stretches if s.start <= message.position < s.stop), None)
    if stretch is None or any(m.position > stretch.start for m in truth.whole):
        return truth.has_unit(message) and (stretch is None or stretch.must_be_told)
    # At the log's end only the first of several lost messages is sure to have been there.
    return truth.has_unit(message) and stretch.must_be_told and message.position == stretch.start


def milliseconds(time: datetime | None) -> int | None:
    return None if time is None else (time - _EPOCH) // timedelta(milliseconds=1)


def _expect(kind: str, found: object, among: list[Any], text: object) -> None:
    if found not in among:
        expected = among[0] if len(among) == 1 else f"one of {among}"
        raise Difference(kind, f"{text}: expected {expected}, found {found}")


def queues(past: Past, truth: Truth, rng: random.Random) -> None:
    """Where each queue begins and ends."""
    known, rows = queues_of(truth), _table(past, "queues")
    names = [(row["topic"], row["queueId"]) for row in rows]
    if len(set(names)) != len(names):
        raise Difference("queues: a queue comes twice", names)
    in_files = {path.parent.name: None for path in truth.past.root.glob("consumequeue/*/*/*")}
    if not in_files:  # then the log tells, but of topics that were deleted
        configured = known_topics(past.root)
        missing = {name for name, queue in known.items() if queue.whole and name[0] in configured} - set(names)
    else:
        missing = {(t, q) for t, q, *_ in truth.units if (t, q) in known} - set(names)
    if missing:
        raise Difference("queues: a queue is missing", sorted(missing))
    for row in rows:
        name = row["topic"], row["queueId"]
        queue = known.get(name)
        text = f"{name} {'complete' if queue and queue.is_complete else ''}"
        offsets = range(row["minOffset"], row["maxOffset"])
        lost = sum(truth.units.get((*name, offset), (0, 0))[1] == _LOST_SIZE for offset in offsets)
        _expect("queues: messages is not maxOffset - minOffset", row["messages"], [len(offsets) - lost], text)
        if queue is None:
            _expect("queues: messages where the log has none", row["messages"], [0], text)
        elif not queue.is_decided:
            continue
        elif queue.is_complete or not in_files:
            _bounds(queue, row, text)
        elif queue.live:
            _expect("queues: beyond the log", row["maxOffset"] <= queue.live[-1].queue_offset + 1, [True], text)


def _bounds(queue: Queue, row: Row, text: str) -> None:
    """Of a queue whose units are all there, or that the log alone tells of. A damaged message counts; whether one at
    an end has a place and a time, nothing says."""
    live, whole = queue.live, queue.whole
    if not whole:
        return
    ends = [live[-1].queue_offset + 1] if queue.is_complete else [m.queue_offset + 1 for m in live if m >= whole[-1]]
    _expect("queues: maxOffset", row["maxOffset"], ends, text)
    begin = [m for m in live if m <= whole[0]]
    _expect("queues: minOffset", row["minOffset"], [m.queue_offset for m in begin], text)
    _expect("queues: firstCommitLogOffset", row["firstCommitLogOffset"], [m.position for m in begin], text)
    _expect(
        "queues: firstStoreTimestamp",
        milliseconds(row["firstStoreTimestamp"]),
        [m.store_timestamp for m in begin],
        text,
    )
    last = [m for m in live if m >= whole[-1]]
    _expect("queues: lastCommitLogOffset", row["lastCommitLogOffset"], [m.position for m in last], text)
    _expect(
        "queues: lastStoreTimestamp", milliseconds(row["lastStoreTimestamp"]), [m.store_timestamp for m in last], text
    )


def topics(past: Past, truth: Truth, rng: random.Random) -> None:
    """Each says of its queues what table queues does."""
    queues = _table(past, "queues")
    by_topic: dict[str, list[Row]] = defaultdict(list)
    for row in queues:
        by_topic[row["topic"]].append(row)
    rows = {row["topic"]: row for row in _table(past, "topics")}
    for topic, some in by_topic.items():
        if topic not in rows:
            raise Difference("topics: a topic is missing", topic)
        row = rows[topic]
        _expect("topics: queues", row["queues"], [len(some)], topic)
        _expect("topics: messages", row["messages"], [sum(each["messages"] for each in some)], topic)
        times = [each["lastStoreTimestamp"] for each in some if each["lastStoreTimestamp"] is not None]
        _expect("topics: lastStoreTimestamp", row["lastStoreTimestamp"], [max(times, default=None)], topic)


def offsets(past: Past, truth: Truth, rng: random.Random) -> None:
    """How far each group is, by what table queues says."""
    known, queues = queues_of(truth), _table(past, "queues")
    rows = {(row["group"], row["topic"], row["queueId"]): row for row in _table(past, "offsets")}
    expected = {(g, t, q): at for (g, t), places in past.groups.items() for q, at in places.items()}
    found = {name: row["consumerOffset"] for name, row in rows.items()}
    if found != expected:
        raise Difference("offsets: other progress", f"expected {expected}, found {found}")
    by_queue = {(row["topic"], row["queueId"]): row for row in queues}
    for (group, topic, queue_id), row in rows.items():
        text = f"{group} in {topic}/{queue_id} at {row['consumerOffset']}"
        of_queue = by_queue.get((topic, queue_id))
        if of_queue is None:
            continue
        _expect("offsets: minOffset is not that of queues", row["minOffset"], [of_queue["minOffset"]], text)
        _expect("offsets: maxOffset is not that of queues", row["maxOffset"], [of_queue["maxOffset"]], text)
        lag = row["maxOffset"] - max(row["consumerOffset"], row["minOffset"])
        _expect("offsets: lag", row["lag"], [lag], text)
        if (topic, queue_id) in known:
            _consumed(truth, known[topic, queue_id], row, text)


def _consumed(truth: Truth, queue: Queue, row: Row, text: str) -> None:
    """Where the messages in question are whole, and in the queue if there are queues: their times."""
    whole = {m.queue_offset: m for m in queue.whole if not truth.units or truth.has_unit(m)}
    last = whole.get(row["maxOffset"] - 1)
    consumed = whole.get(row["consumerOffset"] - 1)
    if consumed and row["minOffset"] < row["consumerOffset"] <= row["maxOffset"]:
        found = milliseconds(row["lastConsumedTimestamp"])
        _expect("offsets: lastConsumedTimestamp", found, [consumed.store_timestamp], text)
        if last:
            millis = 0 if row["lag"] <= 0 else max(0, last.store_timestamp - consumed.store_timestamp)
            _expect("offsets: lagMillis", row["lagMillis"], [millis], text)


def segments(past: Past, truth: Truth, rng: random.Random) -> None:
    """Where all is whole: what is in each file of the log."""
    by_file: dict[int, list[Message]] = defaultdict(list)
    for m in past.messages:
        by_file[past.segment_of(m.position)].append(m)
    rows = _table(past, "segments")
    files = [int(path.name) for path in reference.segment_files(past.root)]
    _expect("segments: files", [int(row["file"][-20:]) for row in rows], [files], "")
    if truth.may_fail:
        return
    for row in rows:
        here = by_file.get(int(row["file"][-20:]), [])
        state = "spare" if not here else "last" if here[-1] == past.messages[-1] else "used"
        _expect("segments: state", row["state"], [state], row["file"])
        if here:
            start = here[0].position
            _expect("segments: startOffset", row["startOffset"], [start], row["file"])
            # In all but the last one the blank may count.
            ends = [here[-1].end] + ([past.segment_of(start) + past.segment_size] if state == "used" else [])
            _expect("segments: endOffset", row["endOffset"], ends, row["file"])
            times = [milliseconds(row[name]) for name in ("firstStoreTimestamp", "lastStoreTimestamp")]
            _expect("segments: times", times, [[here[0].store_timestamp, here[-1].store_timestamp]], row["file"])


def consumequeue(past: Past, truth: Truth, rng: random.Random) -> None:
    """All live units, and none that does not stand there; of a group those that it has not consumed."""
    rows = _table(past, "consumequeue")
    found = [(r["topic"], r["queueId"], r["queueOffset"], r["commitLogOffset"], r["size"]) for r in rows]
    on_disk = {(*place, *unit) for place, unit in truth.units.items()}
    if len(set(found)) != len(found) or not set(found) <= on_disk:
        raise Difference("consumequeue: units that do not stand there", sorted(set(found) - on_disk)[:5])
    live = {(m.topic, m.queue_id, m.queue_offset, m.position, m.size) for m in past.messages if truth.has_unit(m)}
    if live - set(found):
        raise Difference("consumequeue: live units are missing", sorted(live - set(found))[:5])
    if past.groups:
        group = rng.choice(sorted(past.groups))[0]
        places = {(t, q): at for (g, t), some in past.groups.items() if g == group for q, at in some.items()}
        topics = {topic for topic, _ in places}
        rows = _table(past, "consumequeue", startingOffsets=f"group:{group}")
        wanted = {unit for unit in found if unit[0] in topics and unit[2] >= places.get(unit[:2], 0)}
        some = {(r["topic"], r["queueId"], r["queueOffset"], r["commitLogOffset"], r["size"]) for r in rows}
        if some != wanted:
            raise Difference("consumequeue: another part of a group", f"{group}: {len(some)} units for {len(wanted)}")


def index(past: Past, truth: Truth, rng: random.Random) -> None:
    """The items of all files, as they stand there."""
    expected = []
    for path in sorted(past.root.glob("index/*")):
        items = reference.read_index(path.read_bytes(), past.index_slots)
        expected += [
            (path.name, n, item.key_hash, item.physical_offset, item.previous) for n, item in enumerate(items, 1)
        ]
    rows = _table(past, "index")
    names = ("item", "keyHash", "commitLogOffset", "previousItem")
    found = [(row["file"].rpartition("/")[2], *(row[name] for name in names)) for row in rows]
    if found != expected:
        raise Difference("index: other items", f"{len(found)} for {len(expected)}")


def offsets_at(past: Past, truth: Truth, rng: random.Random) -> None:
    """Where the clock was never set back: of each queue the first message from a time on, else its end."""
    known = queues_of(truth)
    times = [m.store_timestamp for m in past.messages]
    if times != sorted(times):
        return
    time = rng.choice(times) + rng.choice((0, 0, 1, -1, 10**6))
    store = Snapshot.find(str(past.root), reading.new_files())
    found = positions.positions_at(store, time * 1000)
    in_files = any(True for _ in past.root.glob("consumequeue/*/*/*"))
    for (topic, queue_id), queue in known.items():
        if not (queue.whole and queue.is_decided) or (in_files and not queue.is_complete):
            continue
        text = f"{topic}/{queue_id} from {time}"
        at = found.get(topic, {}).get(str(queue_id))
        if at is None and not in_files and topic not in known_topics(past.root):
            continue
        if at is None:
            raise Difference("offsets_at: a queue is missing", text)
        later = [m.queue_offset for m in queue.whole if m.store_timestamp >= time]
        earlier = [m.queue_offset for m in queue.whole if m.store_timestamp < time]
        end = queue.live[-1].queue_offset + 1
        least = earlier[-1] + 1 if earlier else min(queue.live[0].queue_offset, queue.whole[0].queue_offset)
        most = later[0] if later else end
        if not least <= at <= most:
            kind = "behind the first message of that time" if at > most else "before the first message of that time"
            raise Difference(f"offsets_at: {kind}", f"{text}: expected {least} to {most}, found {at}")


def groups(past: Past, truth: Truth, rng: random.Random) -> None:
    """Each group, with its topics."""
    expected: dict[str, set[str]] = defaultdict(set)
    for group, topic in past.groups:
        expected[group].add(topic)
    found = {row["group"]: set(row["topics"]) for row in _table(past, "groups")}
    if found != expected:
        raise Difference("groups: others", f"expected {dict(expected)}, found {found}")


def _step(step: Callable[[Past, Truth, random.Random], None]) -> Step:
    """From the disk or from objects; where the log ends, and its queues with it, must be decided."""

    def compare(past: Past, truth: Truth, rng: random.Random) -> None:
        if not truth.is_decided:
            return
        reading.STORAGE = rng.choice(("disk", "objects"))
        try:
            step(past, truth, rng)
        finally:
            reading.STORAGE = "disk"

    return compare


STEPS = tuple(map(_step, (queues, topics, offsets, segments, consumequeue, index, offsets_at, groups)))
