"""Random selections with a predicate beside them that says the same in plain Python."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from oracle import stores
from oracle.aged_stores import CLOCK_STEP, HALF, LMQ, TAGS, TOPICS, WORDS

from rmqstore_spark.query.selection import Numbers, Selection, Texts
from rmqstore_spark.store.format.clock import CLOCK_SLACK

assert CLOCK_STEP == CLOCK_SLACK  # so that stores reach the limit of what is promised

Row = dict[str, Any]
Predicate = Callable[[Row], bool]


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
        part, queues = _topic_option(rng, queues, store)
        wanted.append(part)
    if "offsets" in names and queues:
        wanted.append(_offsets_option(rng, rows, queues))
    makers = {
        "tags": _tags_option,
        "key": _key_option,
        "msgId": _id_option,
        "offsetMsgId": _offset_msg_id_option,
        "time": _time_option,
    }
    return wanted + [make(rng, rows) for name, make in makers.items() if name in names]


OPTION_KINDS = ("topic", "offsets", "tags", "key", "msgId", "offsetMsgId", "time")
Queues = set[tuple[str, int]]


def _topic_option(rng: random.Random, queues: Queues, store: stores.StoreBuilder) -> tuple[Wanted, Queues]:
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
    if rng.random() < 0.1:  # a light queue, whose messages have other topics
        light = {message.position for message in store.light}
        return Wanted({"subscribe": LMQ}, None, lambda row: row["commitLogOffset"] in light), set()
    topics = rng.sample((*TOPICS, HALF, "Nowhere"), rng.choice((1, 1, 2, 4)))
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
    ids = [row["offsetMsgId"] for row in rows if row["offsetMsgId"] is not None]
    name = rng.choice((_a_name(rng, rows), rng.choice(ids))) if ids else "nowhere"
    text = rng.choice((name, name.lower())) if name in ids else name
    return Wanted({"msgId": text}, None, lambda row: text == row["msgId"] or text.upper() == row["offsetMsgId"])


def _offset_msg_id_option(rng: random.Random, rows: list[Row]) -> Wanted:
    given = [row["offsetMsgId"] for row in rows if row["offsetMsgId"] is not None] + [
        "7F" * 4 + "00002A9F" + "00000000000000FF"
    ]
    text = rng.choice(given)
    return Wanted({"offsetMsgId": rng.choice((text, text.lower()))}, None, lambda row: text == row["offsetMsgId"])


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
    return milliseconds + rng.choice((0, 0, 0, 1, -1, CLOCK_STEP, -CLOCK_STEP, 10**9, -(10**9)))


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
