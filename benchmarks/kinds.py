"""Section `kinds`: stores whose logs are not one plain commitlog, against an ordinary store with as many bytes.

CPU seconds of this process, with all its threads. What is read is told by the byte, as units differ in size. (Logs of
DLedger have a section of their own.)
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from generate import BATCH_CQ_UNIT, CQ_UNIT, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT, Store, kept
from measure import Row, Stores, batches_of, in_turns, key_of, offsets_of

import rmqstore_spark

BATCH = 10  # messages in a batch
SPARE = 1024  # bytes of a compaction log that are not in use yet
TIMES = 5  # short work, so many times
MESSAGES, UNITS = "COMMIT_LOG", "CONSUME_QUEUE"
TOPIC, OTHER = "BenchTopic00", "BenchTopic01"


def kinds_rows(stores: Stores, directory: Path, repeat: int) -> Iterator[Row]:
    """Scans by the byte, and look-ups."""
    for body, size in (("1 KiB", 1024), ("100 B", 100)):
        plain, batches = stores.of(size), stores.of(size, batch=BATCH, batch_topics=4)
        yield _scan(
            f"{body} bodies, batches of {BATCH} / ordinary", plain, batches.root, batches.end, batches.messages, repeat
        )
    small = stores.of(1024, total_bytes=stores.total_bytes // 4)
    yield from _look_ups(
        stores, small, stores.of(1024, total_bytes=small.spec.total_bytes, batch=BATCH, batch_topics=1), repeat
    )
    tier = directory / f"tier-of-{small.root.name}"
    count, nbytes = _written(tier, small, _write_tier)
    yield _scan("tiered store / ordinary", small, tier, nbytes, count, repeat)
    compaction = directory / f"compaction-of-{small.root.name}"
    count, nbytes = _written(compaction, small, _write_compaction)
    yield _scan("compacted=true / ordinary", small, compaction, nbytes, count, repeat, goal="", compacted="true")


def _scan(
    what: str, plain: Store, root: Path, nbytes: int, count: int, repeat: int, goal: str = ">= 0.8", **options: str
) -> Row:
    best = in_turns(
        repeat,
        {"plain": lambda: _read(plain.root, plain.units), "other": lambda: _read(root, count, **options)},
        clock=time.process_time,
    )
    speed = {"plain": plain.end / best["plain"] / 1e9, "other": nbytes / best["other"] / 1e9}
    return Row(f"Store.messages(), {what}", speed["other"], "GB/CPU s", speed["other"] / speed["plain"], goal)


def _look_ups(stores: Stores, plain: Store, batches: Store, repeat: int) -> Iterator[Row]:
    """One message, in a store with a topic of batches among others. No index has the keys of messages in batches, so
    all batches of the topics asked for are read: as costly as a scan of an ordinary store with as many bytes."""
    single, inner, other = _message(plain, TOPIC), _message(batches, TOPIC), _message(batches, OTHER)
    share = sum(row["storeSize"] for row in _units(batches, TOPIC))
    as_large = stores.of(1024, total_bytes=share)
    cases: dict[str, Callable[[], object]] = {}
    for name, store, message in (("plain", plain, single), ("batch", batches, inner), ("beside", batches, other)):
        for kind, options in (("key", key_of(message)), ("offsets", offsets_of(message))):
            cases[f"{kind}, {name}"] = _times(store.root, options)
    cases["scan"] = lambda: [_read(as_large.root, as_large.units) for _ in range(TIMES)]
    best = in_turns(repeat, cases, clock=time.process_time)
    for kind, what in (("key", "key and topic"), ("offsets", "offsets")):
        for name, where in (("beside", "another topic beside batches"), ("batch", "a topic of batches")):
            each, ratio = best[f"{kind}, {name}"] / TIMES * 1e3, best[f"{kind}, {name}"] / best[f"{kind}, plain"]
            if (kind, name) != ("key", "batch"):
                yield Row(f"{what}, {where} / ordinary", each, "CPU ms", ratio, "<= 1.2")
    speed, scan = share * TIMES / best["key, batch"] / 1e9, as_large.end * TIMES / best["scan"] / 1e9
    yield Row(
        "key and topic, a topic of batches / scan of an ordinary store of as many bytes",
        speed,
        "GB/CPU s",
        speed / scan,
        ">= 0.8",
    )


def _times(root: Path, options: dict[str, str]) -> Callable[[], object]:
    return lambda: [_read(root, None, **options) for _ in range(TIMES)]


def _message(store: Store, topic: str) -> dict[str, Any]:
    """Some message of a topic in the middle of the store, with a key."""
    names = ("topic", "queueId", "queueOffset", "keys", "commitLogOffset")
    for batch in batches_of(store, names=names, subscribe=topic):
        for row in batch.to_pylist():
            if row["keys"] and row["commitLogOffset"] > store.end // 3:
                return dict(row)
    raise RuntimeError(f"{store.root}: no message of {topic} has a key")


def _units(store: Store, topic: str) -> Iterator[dict[str, Any]]:
    for batch in batches_of(store, names=("storeSize",), subscribe=topic, explodeBatches="false"):
        yield from batch.to_pylist()


def _read(root: Path, count: int | None, **options: Any) -> int:
    found: int = sum(batch.num_rows for batch in rmqstore_spark.Store(root).messages(**options))
    assert found == count if count is not None else found, f"{root}: {found} rows, expected {count}"
    return found


# ---- the same messages in other logs


def _written(root: Path, plain: Store, write: Callable[[Path, Store], dict[str, int]]) -> tuple[int, int]:
    """The number of messages and of bytes in the logs of a store that is made of an ordinary one."""
    made = kept(root, {"of": plain.root.name, "kind": write.__name__}, lambda partial: write(partial, plain))
    return made["messages"], made["bytes"]


def _queues(plain: Store) -> Iterator[tuple[Path, Any, Any]]:
    """Each queue of an ordinary store of one segment: topic/queueId, its units, and its messages back to back."""
    log = np.memmap(next((plain.root / "commitlog").iterdir()), np.uint8, "r")
    above = plain.root / "consumequeue"
    for directory in sorted(above.glob("*/*")):
        units = np.concatenate([np.fromfile(file, CQ_UNIT) for file in sorted(directory.iterdir())])
        units = units[units["size"] > 0].astype(CQ_UNIT)
        places = zip(units["phy"].tolist(), units["size"].tolist(), strict=True)
        data = np.concatenate([log[at : at + size] for at, size in places])
        units["phy"] = np.cumsum(units["size"], dtype=np.int64) - units["size"]
        for at, start in enumerate(units["phy"].tolist()):
            data[start + PHYSICAL_OFFSET_AT : start + PHYSICAL_OFFSET_AT + 8] = units["phy"][at : at + 1].view(np.uint8)
        yield directory.relative_to(above), units, data


def _write_tier(root: Path, plain: Store) -> dict[str, int]:
    count = nbytes = 0
    for name, units, data in _queues(plain):
        for kind, what in ((MESSAGES, data), (UNITS, units)):
            path = root / "30781641_Cl" / "bk" / name / kind / (hashlib.md5(b"0").hexdigest()[:8] + f"{0:020d}")
            path.parent.mkdir(parents=True)
            what.tofile(path)
        count, nbytes = count + len(units), nbytes + len(data)
    return {"messages": count, "bytes": nbytes}


def _write_compaction(root: Path, plain: Store) -> dict[str, int]:
    """A store whose commitlog has only other messages, and compaction logs in which no key is twice."""
    table, count, nbytes = {}, 0, 0
    for name, units, data in _queues(plain):
        keyed = [b"KEYS\x01" in data[at : at + size].tobytes() for at, size in units[["phy", "size"]].tolist()]
        count += sum(keyed)
        nbytes += len(data)
        said = np.zeros(len(units), BATCH_CQ_UNIT)
        said["phy"], said["size"], said["messages"], said["rest"] = units["phy"], units["size"], 1, (-1, 0)
        said["base"] = [int.from_bytes(data[at + QUEUE_OFFSET_AT :][:8].tobytes()) for at in units["phy"].tolist()]
        log = np.concatenate([data, np.zeros(SPARE, np.uint8)])
        for kind, what in (("compactionLog", log), ("compactionCq", said)):
            path = root / "compaction" / kind / name / f"{0:020d}"
            path.parent.mkdir(parents=True)
            what.tofile(path)
        table[name.parent.name] = {"topicName": name.parent.name, "attributes": {"cleanup.policy": "COMPACTION"}}
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    (root / "commitlog").mkdir()
    with (root / "commitlog" / f"{0:020d}").open("wb") as file:
        file.truncate(1 << 20)
    return {"messages": count, "bytes": nbytes}
