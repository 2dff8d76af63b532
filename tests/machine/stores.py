"""Draws stores with a past: truncations, clocks set back, expired segments, lost queues, deleted topics, damage."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from oracle import aged_stores, reference
from oracle.stores import FIRST_TIMESTAMP, StoreBuilder

from machine import damages, queues
from machine.past import Message, Past, read_messages

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
TOPICS = ("TopicA", "TopicB", "Orders", "%RETRY%g", "Z")
TAGS = ("Aa", "BB", "TagC", "中文")  # the first two hash alike
WORDS = ("Aa", "BB", "AaAa", "BBBB", "order", "中文")
LARGE = 1 << 20  # bytes of a segment whose messages are longer than a page of objects
SLACK = 60_000  # milliseconds that any clock may go back


class Clock:
    """Store times of one kind of a past, in milliseconds."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.kind = rng.choice(("even", "even", "equal", "slack", "set back"))
        self._newest = self._now = self._floor = FIRST_TIMESTAMP

    def tick(self) -> int:
        rng = self._rng
        if self.kind == "equal":
            step = rng.choice((0, 0, 0, 1))
        elif self.kind == "slack" and rng.random() < 0.2:
            step = -rng.randrange(1, SLACK)
        elif self.kind == "set back" and rng.random() < 0.03:
            step = -rng.randrange(SLACK, 10**8)
        else:
            step = rng.choice((0, 1, 1, 7, 1000, 20_000))
        self._now = max(self._now + step, self._newest - SLACK) if self.kind != "set back" else self._now + step
        self._now = max(self._now, self._floor)
        self._newest = max(self._newest, self._now)
        return self._now

    def after_cut(self) -> None:
        """What comes now is newer than all that was there before: only so the remains can be told from what is live."""
        self._now = self._newest = self._floor = self._newest + 1 + self._rng.randrange(1000)


class Kinds(NamedTuple):
    """What the messages of a store are like."""

    topics: tuple[str, ...]
    queues: int
    bodies: tuple[int, ...]
    half: float  # the share of messages in no queue


def make(root: Path, seed: int, batches: bool = False) -> Past:
    """The store of a seed, with its truth.

    Args:
        batches: whether one of its topics has batches, in BatchCQs.
    """
    rng = random.Random(seed)
    past = grown(root, rng, batches)
    if batches:
        assert past.builder is not None
        aged_stores.make_batches(past.builder)
    aged(past, rng)
    return past


def grown(root: Path, rng: random.Random, batches: bool = False) -> Past:
    """A store as a broker's that was stopped or killed, after truncations perhaps; nothing is lost or damaged."""
    segment_size = rng.choice((4096, 4096, 4100, 8192, 20_000, 65536)) if rng.random() < 0.97 else LARGE
    kinds = _kinds(rng, segment_size)
    if batches and not {"Many", "Wide"} & {*kinds.topics}:
        kinds = kinds._replace(topics=(*kinds.topics, aged_stores.BATCHES))
    queue_file_size = rng.choice((20, 100, 200, 400, 20_000)) if kinds.topics != ("Many",) else 100_000
    has_index = rng.random() < 0.6
    slots = rng.choice((1, 7, 100))
    builder = StoreBuilder(
        root,
        segment_size,
        queue_file_size,
        rng.choice((0, 0, 1, 5)) * segment_size,
        index=has_index,
        index_slots=slots,
        index_items=rng.choice((2, 10, 50, 1000)),
    )
    past = Past(root, segment_size, queue_file_size, builder.start, has_index=has_index, builder=builder)
    past.index_slots = slots
    past.events.append(f"segments of {segment_size} from {builder.start}, queue files of {queue_file_size}")
    clock = Clock(rng)
    if rng.random() < 0.2:
        first = rng.randrange(1, 40)
        builder.start_queue(kinds.topics[0], 0, first)
        past.events.append(f"{kinds.topics[0]}/0 begins at {first}")
    _append(past, rng, kinds, clock, _count(rng, kinds))
    forgotten: list[Message] = []
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        forgotten += _cut(past, rng, kinds, clock)
    _leave_no_remains_at_the_end(past, forgotten, clock)
    if rng.random() < 0.2:
        _expire(past, rng)
    is_clean = rng.random() < 0.75
    builder.close(clean=is_clean)
    past.abort = not is_clean
    past.events.append(f"clock {clock.kind}, {'stopped' if is_clean else 'killed'}")
    past.messages = read_messages(root)
    assert [m.position for m in past.messages] == [m.position for m in builder.messages], past.told()
    live = {m.position for m in past.messages}
    past.stale = [m for m in forgotten if m.position not in live and _is_intact(past, m)]
    return past


def aged(past: Past, rng: random.Random) -> None:
    """What happens to a store afterwards."""
    _consume(past, rng)
    if rng.random() < 0.1:
        _lag(past, rng)
    queues.lose(past, rng)
    damages.damage(past, rng, rng.choice((0, 0, 0, 1, 1, 2, 2, 3)))


def _kinds(rng: random.Random, segment_size: int) -> Kinds:
    if rng.random() < 0.02:
        return Kinds(("Wide", "TopicA"), 600, (0, 10), 0.02)
    if segment_size == LARGE:
        return Kinds(("TopicA", "TopicB"), 2, (10, 200, 70_000, 140_000), 0.1)
    if rng.random() < 0.01:
        return Kinds(("Many",), 1, (0,), 0)
    topics = tuple(rng.sample(TOPICS, rng.choice((1, 1, 2, 3))))
    bodies = rng.choice(((0, 10, 10, 60, 200), (10, 60, 700), (100,)))
    return Kinds(topics, rng.choice((1, 2, 3)), bodies, rng.choice((0, 0.1, 0.1, 0.5)))


def _count(rng: random.Random, kinds: Kinds) -> int:
    if kinds.topics == ("Many",):
        return 4000  # more units of one queue than a page of 64 KiB has
    return rng.choice((1, 5, 20, 40, 80, 150)) if kinds.queues < 600 else 700


def _append(past: Past, rng: random.Random, kinds: Kinds, clock: Clock, count: int) -> None:
    assert past.builder is not None
    for _ in range(count):
        append_one(past.builder, rng, kinds, clock.tick())
    past.events.append(f"{count} messages")


def append_one(builder: StoreBuilder, rng: random.Random, kinds: Kinds, time: int, **fields: Any) -> None:
    """A message of any kind."""
    topic, sys_flag = rng.choice(kinds.topics), rng.choice((0, 0, 0, reference.COMMIT))
    if rng.random() < kinds.half:
        topic, sys_flag = HALF, rng.choice((reference.PREPARED, reference.ROLLBACK))
    properties = {"n": str(len(builder.messages))}
    if sys_flag != reference.ROLLBACK:
        if rng.random() < 0.8:
            properties["UNIQ_KEY"] = rng.choice((f"ID{rng.randrange(10**6):06d}", "twice"))
        if rng.random() < 0.6:
            properties["KEYS"] = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 4)))
    if rng.random() < 0.7:
        properties["TAGS"] = rng.choice(TAGS)
    hosts: dict[str, Any] = rng.choice(({}, {}, {}, {"born_host": "[::1]:1"}))
    if topic == aged_stores.BATCHES and rng.random() < 0.8:
        _append_batch(builder, rng, kinds, properties, store_timestamp=time, **hosts, **fields)
        return
    builder.append(
        topic,
        rng.randbytes(rng.choice(kinds.bodies)),
        rng.randrange(kinds.queues if topic == "Wide" else min(kinds.queues, 3)),
        properties=properties,
        store_timestamp=time,
        sys_flag=sys_flag,
        **hosts,
        **fields,
    )


def _append_batch(
    builder: StoreBuilder, rng: random.Random, kinds: Kinds, properties: dict[str, str], **fields: Any
) -> None:
    """A batch, whose messages have ids, keys and tags of their own."""
    inner = []
    for number in range(rng.choice((1, 2, 3, 5))):
        own = {"n": str(number), "UNIQ_KEY": f"{properties.get('UNIQ_KEY', 'none')}-{number}", "TAGS": rng.choice(TAGS)}
        if rng.random() < 0.6:
            own["KEYS"] = rng.choice(WORDS)
        inner.append(
            reference.Inner(rng.randbytes(rng.choice(kinds.bodies[:2])), reference.encode_properties(own), number)
        )
    queue_id = rng.randrange(kinds.queues)
    base = builder.next_offset(aged_stores.BATCHES, queue_id)
    builder.append(
        aged_stores.BATCHES,
        reference.encode_batch(inner),
        queue_id,
        properties={**properties, "INNER_BASE": str(base), "INNER_NUM": str(len(inner))},
        sys_flag=reference.BATCH,
        messages=len(inner),
        **fields,
    )


def _cut(past: Past, rng: random.Random, kinds: Kinds, clock: Clock) -> list[Message]:
    """A truncation, as a broker does it that has found damage at its start; and what is written after it."""
    builder = past.builder
    assert builder is not None
    count = rng.randrange(1, 15)
    if len(builder.messages) <= count:
        return []
    builder.flush()
    forgotten = [m for m in read_messages(past.root) if m.position >= builder.messages[-count].position]
    past.first_after_cut.append(builder.forget_last(count))
    past.had_cut = True
    past.events.append(f"the last {count} cut off at {past.first_after_cut[-1]}")
    clock.after_cut()
    # Another size than the message that was here, else what is left begins where this one ends.
    builder.append(HALF, b"x" * rng.randrange(300, 900), sys_flag=reference.PREPARED, store_timestamp=clock.tick())
    _append(past, rng, kinds, clock, rng.choice((0, 1, 3, 10, 40)))
    _leave_no_remains_at_the_end(past, forgotten, clock)
    return forgotten


def _leave_no_remains_at_the_end(past: Past, forgotten: list[Message], clock: Clock) -> None:
    """Remains that begin just where the log ends nobody can tell from live messages, nor can a broker."""
    assert past.builder is not None
    while past.builder.end in {m.position for m in forgotten}:
        past.builder.append(HALF, b"y" * 13, sys_flag=reference.PREPARED, store_timestamp=clock.tick())


def _expire(past: Past, rng: random.Random) -> None:
    assert past.builder is not None
    past.builder.flush()
    segments = len(reference.segment_files(past.root))
    if segments > 3:
        count = rng.randrange(1, segments - 2)
        past.builder.expire(count)
        past.start = past.builder.start
        past.events.append(f"{count} segments expired")


def _lag(past: Past, rng: random.Random) -> None:
    """The log is older than queues and index, as in a copy that was taken while a broker wrote: its end is zeros."""
    count = rng.randrange(1, 12)
    if past.stale or len(past.messages) <= count:
        return
    lost = past.messages[-count:]
    for path in reference.segment_files(past.root):
        start = max(int(path.name), lost[0].position)
        if start < int(path.name) + past.segment_size:
            data = path.read_bytes()[: start - int(path.name)]
            path.write_bytes(data.ljust(past.segment_size, b"\0"))
    past.messages = past.messages[:-count]
    past.had_cut = True
    past.events.append(f"the log lacks the last {count} messages, from {lost[0].position} on")


def _is_intact(past: Past, message: Message) -> bool:
    path = past.path_of(message.position)
    if not path.exists():
        return False
    try:
        return reference.decode_unit(past.stored(message), message.position) == message.row
    except reference.Corrupt:
        return False


def _consume(past: Past, rng: random.Random) -> None:
    """Consumer groups, anywhere in the queues, and beyond them."""
    ends: dict[tuple[str, int], int] = {}
    for message in past.messages:
        if message.queued:
            ends[message.queue] = message.queue_offset + len(message.rows)
    if not ends or rng.random() < 0.5:
        return
    for group in ("G1", "G2"):
        for (topic, queue_id), end in rng.sample(sorted(ends.items()), min(len(ends), rng.choice((1, 3)))):
            offset = rng.choice((0, end, end, rng.randrange(end + 1), end + 2))
            past.groups.setdefault((group, topic), {})[queue_id] = offset
    table = {f"{topic}@{group}": places for (group, topic), places in past.groups.items()}
    (past.root / "config").mkdir(exist_ok=True)
    (past.root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def remove(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
