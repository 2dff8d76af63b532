"""What the tests of selections share: stores with everything in them that an accelerator can trip over, what can happen
to accelerators, and selections with a predicate beside them that says the same in plain Python."""

from __future__ import annotations

import json
import random
import re
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from oracle import reference, stores

from rmqstore_spark.read.clock import CLOCK_SLACK
from rmqstore_spark.selection import Numbers, Selection, Texts

Row = dict[str, Any]
Predicate = Callable[[Row], bool]

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


# ---- stores


def random_store(root: Path, rng: random.Random) -> tuple[stores.StoreBuilder, bool]:
    """A closed store with sound accelerators, of a few hundred messages in a few segments; and whether its log was cut.

    Its messages are never more than CLOCK_SLACK older than one before them. ROLLBACK messages, which brokers do not
    index, have neither KEYS nor UNIQ_KEY.
    """
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
        newest = max(newest, _append(store, rng, number, newest))
    if is_cut and len(store.messages) > 30:
        store.forget_last(rng.randrange(1, 25))
        store.append(HALF, body=b"x" * rng.randrange(700, 900), store_timestamp=newest)
        for number in range(rng.choice((0, 5, 20))):
            newest = max(newest, _append(store, rng, 1000 + number, newest))
    if rng.random() < 0.3:
        segments = len(reference.segment_files(root))
        if segments > 3:
            store.expire(rng.randrange(1, segments - 2))
    store.close(clean=rng.random() < 0.8)
    _make_batches(store)
    if rng.random() < 0.5:
        _make_light_queue(store, rng)
    if rng.random() < 0.3:
        _use_extension(store, rng)
    return store, is_cut


def _append(store: stores.StoreBuilder, rng: random.Random, number: int, newest: int) -> int:
    time = newest + rng.choice((0, 0, 0, 1, 1, 7, 1000, 20_000))
    if rng.random() < 0.1:
        time = newest - rng.choice((1, 1000, rng.randrange(CLOCK_SLACK), CLOCK_SLACK))
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
    hosts = rng.choice(({}, {}, {"store_host": "[fe80::1]:10911"}, {"born_host": "[::1]:1"}))
    store.append(
        topic,
        rng.randbytes(rng.choice((0, 10, 10, 60, 200))),
        rng.randrange(2),
        properties=b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs),
        store_timestamp=time,
        sys_flag=sys_flag,
        **hosts,
    )
    return time


def _text(rng: random.Random, texts: tuple[str, ...]) -> bytes:
    return BAD if rng.random() < 0.05 else rng.choice(texts).encode()


def _make_batches(store: stores.StoreBuilder) -> None:
    """Moves the queues of one topic to where a broker has those of topics with queue.type=BatchCQ."""
    for directory in sorted((store.root / "consumequeue" / BATCHES).glob("*")):
        times = {message.position: message.store_timestamp for message in store.messages}
        units = [BATCH_UNIT.pack(*u, times.get(u[0], 0), number, 1, -1, 0) for number, u in _units(directory)]
        first = min((number for number, _ in _units(directory)), default=0)
        target = store.root / "batchconsumequeue" / BATCHES / directory.name
        target.mkdir(parents=True)
        for at in range(0, len(units), 25):
            data = b"".join(units[at : at + 25])
            (target / f"{(first + at) * BATCH_UNIT.size:020d}").write_bytes(data.ljust(25 * BATCH_UNIT.size, b"\0"))
    shutil.rmtree(store.root / "consumequeue" / BATCHES, ignore_errors=True)


def _units(directory: Path) -> list[tuple[int, reference.QueueUnit]]:
    topic, queue_id = directory.parent.name, int(directory.name)
    found = reference.read_queues(directory.parents[2])
    return [(number, unit) for t, q, number, unit in found if (t, q) == (topic, queue_id)]


def _make_light_queue(store: stores.StoreBuilder, rng: random.Random) -> None:
    """Some messages of other queues also in a light message queue."""
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


# ---- what happens to accelerators


def _files(root: Path, rng: random.Random, *patterns: str) -> Path | None:
    found = sorted(
        path for pattern in patterns for path in root.glob(pattern) if path.is_file() and path.stat().st_size
    )
    return rng.choice(found) if found else None


_QUEUE_FILES = ("consumequeue/*/*/*", "batchconsumequeue/*/*/*")
_INDEX_FILES = ("index/*",)
_ANY = _QUEUE_FILES + _INDEX_FILES


def _without(name: str) -> Callable[[Path, random.Random], None]:
    return lambda root, rng: shutil.rmtree(root / name, ignore_errors=True)


def _lose_queue(root: Path, rng: random.Random) -> None:
    if path := _files(root, rng, *_QUEUE_FILES):
        shutil.rmtree(path.parent)


def _lose_file(root: Path, rng: random.Random) -> None:
    if path := _files(root, rng, *_ANY):
        path.unlink()


def _cut_file(root: Path, rng: random.Random) -> None:
    if path := _files(root, rng, *_ANY):
        path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def _zero_tail(root: Path, rng: random.Random) -> None:
    """Of a queue file from any byte on, of an index file's items from any item on."""
    if path := _files(root, rng, *_ANY):
        data = path.read_bytes()
        at = rng.randrange(len(data))
        if path.parent.name == "index":
            at = reference.index_item_at(SLOTS, rng.randrange(1, _items(data) + 1))
        path.write_bytes(data[:at].ljust(len(data), b"\0"))


def _items(data: bytes | bytearray) -> int:
    """The number of items, and one more, as the header says, unless that is noise."""
    room = (len(data) - reference.index_item_at(SLOTS, 0)) // reference.INDEX_ITEM_SIZE
    said = reference.decode_index_header(data).index_count if len(data) >= reference.INDEX_HEADER_SIZE else 0
    return max(1, min(said, room))


def _old_units(root: Path, rng: random.Random) -> None:
    """Units behind a queue's end that point to older messages, as after a truncation."""
    if path := _files(root, rng, *_QUEUE_FILES[:1]):
        data = path.read_bytes()
        used = data.rstrip(b"\0")
        used = data[: -(-len(used) // 20) * 20]
        again = used[rng.randrange(0, len(used) + 1, 20) :]
        path.write_bytes((used + again)[: len(data)].ljust(len(data), b"\0"))


def _noise(root: Path, rng: random.Random) -> None:
    if path := _files(root, rng, *_ANY):
        path.write_bytes(rng.randbytes(path.stat().st_size))


def _wrong_units(root: Path, rng: random.Random) -> None:
    """A position or a size that is not right, somewhere in a queue."""
    if path := _files(root, rng, *_QUEUE_FILES[:1]):
        data = bytearray(path.read_bytes().ljust(20, b"\0"))
        at = rng.randrange(0, len(data) - 19, 20)
        position, size = struct.unpack_from(">qi", data, at)
        position = rng.choice((position, position + 1, position - 100, position + (1 << 32), (1 << 63) - 1))
        size = rng.choice((size, size + 1, size - 1, size + 100, (1 << 31) - 1))
        struct.pack_into(
            ">qi", data, at, min(max(-(1 << 63), position), (1 << 63) - 1), min(max(0, size), (1 << 31) - 1)
        )
        path.write_bytes(data)


def _cycle(root: Path, rng: random.Random) -> None:
    if path := _files(root, rng, *_INDEX_FILES):
        data = bytearray(path.read_bytes())
        items = _items(data)
        if items > 1:
            number = rng.randrange(1, items)
            at = reference.index_item_at(SLOTS, number) + 16
            struct.pack_into(">i", data, at, rng.randrange(number, items + 2))
            path.write_bytes(data)


def _two_queues(root: Path, rng: random.Random) -> tuple[Path, Path] | None:
    queues = sorted(path for path in root.glob("consumequeue/*/*") if path.parent.name != LMQ)
    return tuple(rng.sample(queues, 2)) if len(queues) > 1 else None  # type: ignore[return-value]


def _swap_queues(root: Path, rng: random.Random) -> None:
    if pair := _two_queues(root, rng):
        one, other = pair
        one.rename(root / "aside")
        other.rename(one)
        (root / "aside").rename(other)


def _copy_queue(root: Path, rng: random.Random) -> None:
    if pair := _two_queues(root, rng):
        shutil.rmtree(pair[1])
        shutil.copytree(*pair)


def _foreign(root: Path, rng: random.Random) -> None:
    """The accelerators of another store."""
    other, _ = random_store(root / "other", random.Random(rng.random()))
    for name in rng.choice((["index"], ["consumequeue", "batchconsumequeue"])):
        shutil.rmtree(root / name, ignore_errors=True)
        if (other.root / name).exists():
            (other.root / name).rename(root / name)
    shutil.rmtree(other.root)


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "no ConsumeQueue": _without("consumequeue"),
    "no BatchCQ": _without("batchconsumequeue"),
    "no index": _without("index"),
    "a queue lost": _lose_queue,
    "a file lost": _lose_file,
    "a file cut": _cut_file,
    "a zeroed tail": _zero_tail,
    "old units": _old_units,
    "noise": _noise,
    "wrong units": _wrong_units,
    "a cycle": _cycle,
    "queues swapped": _swap_queues,
    "a queue copied": _copy_queue,
    "of another store": _foreign,
}


# ---- selections


class Wanted(NamedTuple):
    """A part of a selection: options or what a filter pushes, and what it says of a row of the full scan."""

    options: Mapping[str, str]
    pushed: Selection | None
    predicate: Predicate


def by_options(rng: random.Random, rows: list[Row], store: stores.StoreBuilder, names: list[str]) -> list[Wanted]:
    """Options that go together, of these kinds."""
    wanted = []
    queues = {(m.topic, m.queue_id) for m in store.messages if m.topic != HALF}
    if "topic" in names:
        part, queues = _topic_option(rng, queues)
        wanted.append(part)
    if "offsets" in names and queues:
        wanted.append(_offsets_option(rng, rows, queues))
    makers = {"tags": _tags_option, "key": _key_option, "msgId": _id_option, "time": _time_option}
    return wanted + [make(rng, rows) for name, make in makers.items() if name in names]


OPTION_KINDS = ("topic", "offsets", "tags", "key", "msgId", "time")
Queues = set[tuple[str, int]]


def _topic_option(rng: random.Random, queues: Queues) -> tuple[Wanted, Queues]:
    kind = rng.choice(("subscribe", "subscribePattern", "assign"))
    if kind == "assign" and queues:
        chosen = set(rng.sample(sorted(queues), min(len(queues), rng.choice((1, 2, 5)))))
        table: dict[str, list[int]] = {}
        for topic, queue_id in sorted(chosen):
            table.setdefault(topic, []).append(queue_id)
        return Wanted({"assign": json.dumps(table)}, None, lambda row: (row["topic"], row["queueId"]) in chosen), chosen
    if kind == "subscribePattern":
        text = rng.choice(("Topic.", "Topic[B-Z]", "%.*", ".*", "nothing", "RMQ.*"))
        pattern = re.compile(text)
        left = {(t, q) for t, q in queues if pattern.fullmatch(t)}
        return Wanted({kind: text}, None, lambda row: pattern.fullmatch(row["topic"]) is not None), left
    topics = rng.sample((*TOPICS, HALF, LMQ, "Nowhere"), rng.choice((1, 1, 2, 4)))
    return (
        Wanted({"subscribe": ",".join(topics)}, None, lambda row: row["topic"] in topics),
        {(t, q) for t, q in queues if t in topics},
    )


def _offsets_option(rng: random.Random, rows: list[Row], queues: Queues) -> Wanted:
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    bounds: dict[tuple[str, int], tuple[int, int]] = {}
    for topic, queue_id in rng.sample(sorted(queues), rng.randrange(1, len(queues) + 1)):
        there = [row["queueOffset"] for row in rows if (row["topic"], row["queueId"]) == (topic, queue_id)] or [0]
        near = [rng.choice(there) + rng.choice((0, 0, 1)), rng.randrange(max(there) + 3), 1 << 40, (1 << 63) - 1]
        start, end = sorted((rng.choice(near), rng.choice(near)))
        low, high = -(1 << 63), 1 << 63
        if rng.random() < 0.7:
            starts.setdefault(topic, {})[str(queue_id)] = low = start
        if rng.random() < 0.7:
            ends.setdefault(topic, {})[str(queue_id)] = high = end
        bounds[topic, queue_id] = low, high
    texts = {"startingOffsets": starts, "endingOffsets": ends}
    options = {name: json.dumps(table) for name, table in texts.items() if table}

    def predicate(row: Row) -> bool:
        low, high = bounds.get((row["topic"], row["queueId"]), (-(1 << 63), 1 << 63))
        return bool(low <= row["queueOffset"] < high)

    return Wanted(options, None, predicate)


def _tags_option(rng: random.Random, rows: list[Row]) -> Wanted:
    tags = rng.sample((*TAGS, "none"), rng.choice((1, 1, 2)))
    return Wanted({"tags": rng.choice(("||", " || ")).join(tags)}, None, lambda row: row["tags"] in tags)


def _a_name(rng: random.Random, rows: list[Row]) -> str:
    ids = [row["msgId"] for row in rows if row["msgId"]]
    name: str = rng.choice((*WORDS, "nowhere", "twice", *([rng.choice(ids)] * 5 if ids else [])))
    return name


def _key_option(rng: random.Random, rows: list[Row]) -> Wanted:
    name = _a_name(rng, rows)
    return Wanted({"key": name}, None, lambda row: name == row["msgId"] or name in (row["keys"] or "").split(" "))


def _id_option(rng: random.Random, rows: list[Row]) -> Wanted:
    ids = [row["offsetMsgId"] for row in rows]
    name = rng.choice((_a_name(rng, rows), rng.choice(ids))) if ids else "nowhere"
    text = rng.choice((name, name.lower())) if name in ids else name
    return Wanted({"msgId": text}, None, lambda row: text == row["msgId"] or text.upper() == row["offsetMsgId"])


def _time_option(rng: random.Random, rows: list[Row]) -> Wanted:
    start, end = sorted(_a_time(rng, rows) for _ in range(2))
    options, low, high = {}, -(1 << 63), 1 << 63
    if rng.random() < 0.8:
        options["startingTimestamp"], low = str(start), start
    if rng.random() < 0.8 or not options:
        options["endingTimestamp"], high = str(end), end
    return Wanted(options, None, lambda row: low <= row["storeTimestamp"] // 1000 < high)


def _a_time(rng: random.Random, rows: list[Row]) -> int:
    if not rows:
        return stores.FIRST_TIMESTAMP
    milliseconds: int = rng.choice(rows)["storeTimestamp"] // 1000
    return milliseconds + rng.choice((0, 0, 0, 1, -1, CLOCK_SLACK, -CLOCK_SLACK, 10**9, -(10**9)))


_TEXT_COLUMNS = {"tags": "tags", "keys": "keys", "msgId": "msg_id", "offsetMsgId": "offset_msg_id"}
_NUMBER_COLUMNS = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "commitLogOffset": "commit_log_offset",
    "storeTimestamp": "store_timestamp",
}
PUSHED_KINDS = ("topic", "prefix", *_TEXT_COLUMNS, *_NUMBER_COLUMNS)


def by_filter(rng: random.Random, rows: list[Row], column: str) -> Wanted:
    """What a pushed filter on this column makes; `prefix`: on topic."""
    if column == "prefix":
        prefix = rng.choice(("Topic", "TopicB", "%", "", "X"))
        return Wanted({}, Selection(topic=Texts(prefixes=(prefix,))), lambda row: row["topic"].startswith(prefix))
    if column == "topic":
        topics = frozenset(rng.sample((*TOPICS, LMQ, "Nowhere"), rng.choice((1, 2, 4))))
        return Wanted({}, Selection(topic=Texts(topics)), lambda row: row["topic"] in topics)
    if column in _TEXT_COLUMNS:
        there = [row[column] for row in rows if row[column] is not None] or ["nowhere"]
        texts = frozenset(rng.choice((*[rng.choice(there)] * 4, "nowhere")) for _ in range(rng.choice((1, 1, 3))))
        chosen: dict[str, Any] = {_TEXT_COLUMNS[column]: texts}
        return Wanted({}, Selection(**chosen), lambda row: row[column] in texts)
    scale = 1000 if column == "storeTimestamp" else 1
    there = [row[column] // scale for row in rows] or [0]

    def number() -> int:
        found: int = rng.choice(there)
        return found + rng.choice((0, 0, 0, 1, -1, 1000))

    if rng.random() < 0.5:
        numbers = Numbers.of(*(number() for _ in range(rng.choice((1, 1, 2, 5)))))
    else:
        least, most = sorted((number(), number()))
        numbers = rng.choice((Numbers(least, most), Numbers(least=least), Numbers(most=most)))
    low, high, among = numbers.least, numbers.most, numbers.among

    def predicate(row: Row) -> bool:
        value = row[column] // scale
        return low <= value <= high and (among is None or value in among)

    within: dict[str, Any] = {_NUMBER_COLUMNS[column]: numbers}
    return Wanted({}, Selection(**within), predicate)
