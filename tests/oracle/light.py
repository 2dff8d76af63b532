"""Light queues (LMQ) in plain Python: which of them a message is in, and their files."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from oracle import reference, stores

NAMES = ("%LMQ%a", "%LMQ%b", "%LMQ%$parent$lite", "%LMQ%x/y", "ordinary")
TOPICS = ("TopicA", "TopicB", "%RETRY%g", reference.SCHEDULE_TOPIC, "rmq_sys_own", "RMQ_SYS_TRANS_HALF_TOPIC")
DISPATCH, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"


def light_queues(row: Mapping[str, Any]) -> dict[str, int]:
    """The light queues of a row of the full scan, each with the message's offset, as ConsumeQueue's
    multiDispatchLmqQueue finds them in the properties."""
    properties = dict(row["properties"])
    if not is_dispatched(row["topic"], row["sysFlag"]):
        return {}
    names, offsets = (_split(properties.get(name, "")) for name in (DISPATCH, OFFSETS))
    if len(names) != len(offsets):
        return {}
    return {
        name: int(offset)
        for name, offset in zip(names, offsets, strict=True)
        if name.startswith("%LMQ%") and "/" not in name and offset.isascii() and offset.isdigit() and len(offset) < 20
    }


def is_dispatched(topic: str, sys_flag: int) -> bool:
    """Does a broker put messages of a topic into light queues?"""
    if topic.startswith(("%RETRY%", "rmq_sys_")) or topic == reference.SCHEDULE_TOPIC:
        return False
    return sys_flag & reference.TRANSACTION_BITS in (0, reference.COMMIT)


def _split(text: str) -> list[str]:
    """Java's String.split(","): no empty text at the end."""
    parts = text.split(",")
    while parts and not parts[-1]:
        parts.pop()
    return parts


def offsets_of(messages: Iterable[tuple[str, list[str]]]) -> dict[str, dict[str, int]]:
    """Each message's offsets in its light queues, where a broker gives them out one after the other."""
    nexts: dict[str, int] = {}
    found = {}
    for message, names in messages:
        found[message] = {name: nexts.get(name, 0) for name in names}
        nexts.update({name: offset + 1 for name, offset in found[message].items()})
    return found


def put_queues(store: stores.StoreBuilder, rows: Iterable[Mapping[str, Any]]) -> None:
    """The files of the light queues of all messages, as a broker writes them."""
    queues: dict[str, dict[int, bytes]] = {}
    for row in rows:
        code = reference.tags_code(row["topic"], dict(row["properties"]), 0)
        unit = reference.encode_queue_unit(row["commitLogOffset"], row["storeSize"], code)
        for name, offset in light_queues(row).items():
            queues.setdefault(name, {})[offset] = unit
    per_file = store.queue_file_size // reference.QUEUE_UNIT_SIZE
    for name, units in queues.items():
        missing = [reference.encode_queue_unit(*reference.PRE_BLANK), bytes(20)]
        for first in range(min(units) // per_file * per_file, max(units) + 1, per_file):
            path = store.queue_directory(name, 0) / f"{first * reference.QUEUE_UNIT_SIZE:020d}"
            path.parent.mkdir(parents=True, exist_ok=True)
            numbers = range(first, first + per_file)
            data = b"".join(units.get(number, missing[number > min(units)]) for number in numbers)
            path.write_bytes(data)


def made_store(
    root: Path, rng: random.Random, messages: int, odd: float = 0.1
) -> tuple[stores.StoreBuilder, list[dict[str, Any]]]:
    """A store with light queues, and its rows by the plain reference.

    Args:
        odd: how often properties are not as a broker writes them.
    """
    store = stores.StoreBuilder(root, segment_size=4096, queue_file_size=200)
    nexts = dict.fromkeys(NAMES, 0)
    for number in range(messages):
        chosen = rng.sample(NAMES, rng.choice((0, 0, 1, 2, 3)))
        offsets = [str(nexts[name]) for name in chosen]
        topic, flag = rng.choice(TOPICS), rng.choice((0, 0, 0, reference.COMMIT, reference.PREPARED))
        properties = {"KEYS": f"k{number}", "TAGS": rng.choice("xyz")}
        if chosen:
            if rng.random() < odd:
                offsets = rng.choice((offsets[1:], [*offsets, "0"], ["x"] * len(offsets), ["1" * 30] * len(offsets)))
                chosen = [*chosen, *rng.choice(([], ["", ""], ["%LMQ%"]))]
            properties |= {DISPATCH: ",".join(chosen), OFFSETS: ",".join(offsets)}
        body = rng.randbytes(rng.choice((0, 20, 300)))
        store.append(topic, body, rng.randrange(2), properties=properties, sys_flag=flag)
        fields = {"topic": topic, "sysFlag": flag, "properties": properties}
        for name, offset in light_queues(fields).items():
            nexts[name] = max(nexts.get(name, 0), offset + 1)
    store.close()
    rows = reference.read_store(root)
    put_queues(store, rows)
    return store, rows
