"""Random stores with a past: cut, expired, with queues of every kind, and much that accelerators can trip over."""

from __future__ import annotations

import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

from oracle import light, reference, stores

PLAIN, OTHER, RETRY, BATCHES, LMQ = "TopicA", "TopicB", "%RETRY%g", "Batches", "%LMQ%light"
# A half message has queueOffset 0 whatever its queue has, so that no queue offset tells where it is: it stays in a
# topic whose queues no selection names one by one.
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
TOPICS = (PLAIN, OTHER, RETRY, BATCHES, reference.SCHEDULE_TOPIC)
SLOTS = 7
TAGS = (
    "Aa",
    "BB",
    "AaBB",
    "BBAa",
    "TagC",
    "\N{REPLACEMENT CHARACTER}",
    "中文",
)  # the first two hash alike, and the next
WORDS = ("Aa", "BB", "AaAa", "BBBB", "order", "中文", "\N{REPLACEMENT CHARACTER}", "\t")
BAD = b"\xff"  # reads as U+FFFD
BATCH_UNIT = struct.Struct(">qiqqqhii")
CLOCK_STEP = 60_000  # milliseconds, at most, that a broker's clock goes back


def aged_store(root: Path, rng: random.Random, batches: bool = False) -> tuple[stores.StoreBuilder, bool]:
    """A closed store with sound accelerators, of a few hundred messages in a few segments; and whether its log was cut.

    Its messages are never more than CLOCK_STEP older than one before them. ROLLBACK messages, which brokers do not
    index, have neither KEYS nor UNIQ_KEY. With `batches` many units of BATCHES hold several messages.
    """
    append = _append_batch if batches else _append
    segment_size = rng.choice((4096, 8192, 65536))
    # What is written after a cut is in no index before the log is as long as it was; an index does not tell.
    is_cut = rng.random() < 0.3
    store = stores.StoreBuilder(
        root,
        segment_size,
        rng.choice((200, 400, 20_000)),
        rng.choice((0, 1, 5)) * segment_size,
        index=not is_cut and rng.random() < 0.9,
        index_slots=SLOTS,
        index_items=rng.choice((10, 50, 1000)),
    )
    if rng.random() < 0.3:
        store.start_queue(PLAIN, 0, rng.randrange(40))
    newest = store.now
    for number in range(rng.choice((0, 1, 20, 150, 300))):
        newest = max(newest, append(store, rng, number, newest, has_light=not is_cut))
    if is_cut and len(store.messages) > 30:
        store.forget_last(rng.randrange(1, 25))
        store.append(HALF, body=b"x" * rng.randrange(700, 900), store_timestamp=newest)
        for number in range(rng.choice((0, 5, 20))):
            newest = max(newest, append(store, rng, 1000 + number, newest))
    if rng.random() < 0.3:
        segments = len(reference.segment_files(root))
        if segments > 3:
            store.expire(rng.randrange(1, segments - 2))
    store.close(clean=rng.random() < 0.8)
    make_batches(store)
    if rng.random() < 0.5:
        _make_light_queue(store, rng, is_cut)
    if rng.random() < 0.3:
        _use_extension(store, rng)
    return store, is_cut


def _append(store: stores.StoreBuilder, rng: random.Random, number: int, newest: int, has_light: bool = False) -> int:
    """With `has_light` the message may be in light queue LMQ, too, as its properties then say."""
    time = newest + rng.choice((0, 0, 0, 1, 1, 7, 1000, 20_000))
    if rng.random() < 0.1:
        time = newest - rng.choice((1, 1000, rng.randrange(CLOCK_STEP), CLOCK_STEP))
    topic = rng.choice(TOPICS)
    sys_flag = rng.choice((0, 0, 0, 0, reference.COMMIT))
    if rng.random() < 0.08:
        topic, sys_flag = HALF, rng.choice((reference.PREPARED, reference.ROLLBACK))
    pairs: list[tuple[bytes, bytes]] = []
    if sys_flag != reference.ROLLBACK:
        if rng.random() < 0.8:
            pairs.append((b"UNIQ_KEY", rng.choice((f"ID{number:04d}", "twice")).encode()))
        if rng.random() < 0.6:
            pairs.append((b"KEYS", rng.choice((b" ", b"  ")).join(_text(rng, WORDS) for _ in range(rng.randrange(4)))))
    if rng.random() < 0.7:
        pairs.append((b"TAGS", _text(rng, TAGS)))
    if topic == reference.SCHEDULE_TOPIC and rng.random() < 0.8:
        pairs.append((b"DELAY", b"3"))
    is_light = has_light and rng.random() < 0.15
    if is_light:
        pairs += [(light.DISPATCH.encode(), LMQ.encode()), (light.OFFSETS.encode(), b"%d" % len(store.light))]
    hosts: dict[str, Any] = rng.choice(({}, {}, {"store_host": "[fe80::1]:10911"}, {"born_host": "[::1]:1"}))
    store.append(
        topic,
        rng.randbytes(rng.choice((0, 10, 10, 60, 200))),
        rng.randrange(2),
        properties=b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs),
        store_timestamp=time,
        sys_flag=sys_flag,
        **hosts,
    )
    if is_light and light.is_dispatched(topic, sys_flag):
        store.light.append(store.messages[-1]._replace(topic=LMQ, queue_id=0, queue_offset=len(store.light)))
    return time


def _append_batch(
    store: stores.StoreBuilder, rng: random.Random, number: int, newest: int, has_light: bool = False
) -> int:
    """Often a batch: ids and keys that no index has, and tags that no queue has. Its properties say which messages it
    has, as those of a broker's always do."""
    if rng.random() < 0.75:
        return _append(store, rng, number, newest, has_light)
    time = newest + rng.choice((0, 1, 1000))
    if rng.random() < 0.1:
        time = newest - rng.randrange(CLOCK_STEP)
    inner = [
        reference.Inner(rng.randbytes(rng.choice((0, 10, 60))), _inner_properties(rng, f"ID{number:04d}-{i}"), i)
        for i in range(rng.choice((0, 1, 2, 3, 8)))
    ]
    properties = b"UNIQ_KEY\x01" + rng.choice((f"ID{number:04d}", "twice")).encode() + b"\x02"
    if rng.random() < 0.3:  # as autoBatch does
        properties += b"TAGS\x01" + _text(rng, TAGS) + b"\x02KEYS\x01" + _text(rng, WORDS) + b"\x02"
    queue_id = rng.randrange(2)
    properties += b"INNER_BASE\x01%d\x02INNER_NUM\x01%d\x02" % (store.next_offset(BATCHES, queue_id), len(inner))
    store.append(
        BATCHES,
        reference.encode_batch(inner),
        queue_id,
        properties=properties,
        store_timestamp=time,
        sys_flag=reference.BATCH,
        messages=len(inner),
    )
    return time


def _inner_properties(rng: random.Random, name: str) -> bytes:
    pairs = [(b"UNIQ_KEY", rng.choice((name, "twice")).encode())] if rng.random() < 0.9 else []
    if rng.random() < 0.6:
        pairs.append((b"KEYS", b" ".join(_text(rng, WORDS) for _ in range(rng.randrange(4)))))
    if rng.random() < 0.7:
        pairs.append((b"TAGS", _text(rng, TAGS)))
    return b"".join(key + b"\x01" + value + b"\x02" for key, value in pairs)


def _text(rng: random.Random, texts: tuple[str, ...]) -> bytes:
    return BAD if rng.random() < 0.05 else rng.choice(texts).encode()


def make_batches(store: stores.StoreBuilder) -> None:
    """Moves the queues of one topic to where a broker has those of topics with queue.type=BatchCQ."""
    for directory in sorted((store.root / "consumequeue" / BATCHES).glob("*")):
        times = {message.position: message.store_timestamp for message in store.messages}
        units = [
            BATCH_UNIT.pack(*u, times.get(u[0], 0), number, count, -1, 0)
            for number, u, count in _batches_of(_units(directory))
        ]
        first = min((number for number, _ in _units(directory)), default=0)
        target = store.root / "batchconsumequeue" / BATCHES / directory.name
        target.mkdir(parents=True)
        for at in range(0, len(units), 25):
            data = b"".join(units[at : at + 25])
            (target / f"{(first + at) * BATCH_UNIT.size:020d}").write_bytes(data.ljust(25 * BATCH_UNIT.size, b"\0"))
    shutil.rmtree(store.root / "consumequeue" / BATCHES, ignore_errors=True)
    config = store.root / "config" / "topics.json"
    table = json.loads(config.read_text())
    for entry in table["topicConfigTable"].values():
        if entry["topicName"] == BATCHES:
            entry["attributes"] = {"queue.type": "BatchCQ"}
    config.write_text(json.dumps(table))


def _units(directory: Path) -> list[tuple[int, reference.QueueUnit]]:
    topic, queue_id = directory.parent.name, int(directory.name)
    found = reference.read_queues(directory.parents[2])
    return [(number, unit) for t, q, number, unit in found if (t, q) == (topic, queue_id)]


def _batches_of(
    units: list[tuple[int, reference.QueueUnit]],
) -> list[tuple[int, reference.QueueUnit, int]]:
    """The first queue offset, the unit and the number of messages of each batch, whose units are all the same."""
    found: list[tuple[int, reference.QueueUnit, int]] = []
    for number, unit in units:
        if found and found[-1][1] == unit and 0 < unit.size < 1 << 30:  # a log's first one is at 0
            first, _, count = found.pop()
            found.append((first, unit, count + 1))
        else:
            found.append((number, unit, 1))
    return found


def _make_light_queue(store: stores.StoreBuilder, rng: random.Random, is_cut: bool) -> None:
    """Some messages of other queues also in a light message queue. In a log that was cut no message says so."""
    if not is_cut:
        if store.light:
            light.put_queues(store, reference.read_store(store.root))
        return
    chosen = [m for m in store.messages if m.queued and rng.random() < 0.2]
    path = store.queue_directory(LMQ, 0) / f"{0:020d}"
    path.parent.mkdir(parents=True)
    units = b"".join(reference.encode_queue_unit(m.position, m.size, 0) for m in chosen)
    path.write_bytes(units.ljust(max(len(units), 200), b"\0"))


def _use_extension(store: stores.StoreBuilder, rng: random.Random) -> None:
    """In some units an address in consumequeue_ext/ stands in the place of the hash."""
    for path in sorted((store.root / "consumequeue").glob("*/*/*")):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 20):
            if any(data[at : at + 12]) and rng.random() < 0.3 and LMQ not in str(path):
                data[at + 12 : at + 20] = struct.pack(">q", -(1 << 63) + rng.randrange(1 << 40))
        path.write_bytes(data)
