"""What RocketMQ says is in a store, and how to hold our rows against it."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle import reference

Record = dict[str, Any]


@dataclass
class Truth:
    """The dump of a store, sorted by kind."""

    start: int = 0  # of the log
    end: int = 0
    units: list[Record] = field(default_factory=list)
    bounds: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # min and max offset of the queues
    queue_units: dict[tuple[str, int], list[Record]] = field(default_factory=lambda: defaultdict(list))
    keys: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # what the index says, with hash collisions
    times: dict[tuple[str, int, int], int] = field(default_factory=dict)


def parse(lines: Iterable[str]) -> Truth:
    truth = Truth()
    for line in lines:
        record = json.loads(line)
        match record.pop("kind"):
            case "log":
                truth.start, truth.end = record["start"], record["end"]
            case "unit":
                truth.units.append(record)
            case "queue":
                truth.bounds[record["topic"], record["queueId"]] = record["min"], record["max"]
            case "queueUnit":
                truth.queue_units[record.pop("topic"), record.pop("queueId")].append(record)
            case "key":
                truth.keys[record["topic"], record["key"]] = record["commitLogOffsets"]
            case "time":
                truth.times[record["topic"], record["queueId"], record["timestamp"]] = record["queueOffset"]
            case other:
                raise ValueError(other)
    return truth


def load(path: Path) -> Truth:
    with path.open() as lines:
        return parse(lines)


def units(path: Path) -> Iterator[Record]:
    """Those of a dump, one at a time."""
    with path.open() as lines:
        for line in lines:
            record = json.loads(line)
            if record.pop("kind") == "unit":
                yield record


def as_units(plain: list[Record], stored: list[Record]) -> list[Record]:
    """Our rows, read with and without decompression, in the dump's form."""
    return [_as_unit(row, as_stored) for row, as_stored in zip(plain, stored, strict=True)]


def _as_unit(row: Record, as_stored: Record) -> Record:
    body, stored = row["body"], as_stored["body"]
    assert {**row, "body": None} == {**as_stored, "body": None}
    return {
        **row,
        "body": sha256(body),
        "bodyLength": len(body),
        "storedBody": sha256(stored),
        "storedBodyLength": len(stored),
        "bornTimestamp": row["bornTimestamp"] // 1000,
        "storeTimestamp": row["storeTimestamp"] // 1000,
    }


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def assert_queues(store: Path, expected: Truth) -> None:
    """The ConsumeQueue units on disk, within the bounds that RocketMQ reports, are those that it reads."""
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for topic, queue_id, offset, unit in reference.read_queues(store):
        low, high = expected.bounds[topic, queue_id]
        if low <= offset < high:
            found[topic, queue_id].append(
                {
                    "queueOffset": offset,
                    "commitLogOffset": unit.physical_offset,
                    "storeSize": unit.size,
                    "tagsCode": unit.tags_code,
                }
            )
    assert found == expected.queue_units
