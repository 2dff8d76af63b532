"""Damage sweeps over small logs of single queues, in a tier and of a compaction topic: each file cut at every byte, and
a flipped bit in every byte. The rows are right, or it is told."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import compaction, tiered
from oracle.compaction import LogWriter
from oracle.stores import StoreBuilder
from oracle.tiered import TierWriter

from rmqstore_spark import DamagedStoreError, Store

COLUMNS = ["queueId", "queueOffset", "keys", "tags", "body"]
ALL_BITS = bool(os.environ.get("RMQ_ALL_BITS"))  # every bit, not one of each byte
STEP = 1 if ALL_BITS else 9

Row = dict[str, Any]


def small_tier(root: Path) -> tuple[Path, list[Path]]:
    """A tier of one queue: three files of two messages, the first with a coda."""
    builder = StoreBuilder(root / "store")
    for number in range(6):
        builder.append("A", f"body-{number}".encode(), keys=f"k{number}", tags="red")
    builder.close()
    units = tiered.queue_units(root / "store")["A", 0]
    writer = TierWriter(root / "tier", "A", 0)
    logs = [writer.write_segment(units[at : at + 2], coda=at == 0) for at in (0, 2, 4)]
    return root / "tier", [*logs, *sorted(writer.queue.iterdir())]


def small_compaction(root: Path) -> tuple[Path, list[Path]]:
    """A store whose commitlog has expired, with a compaction log that a pass has seen a part of."""
    builder = StoreBuilder(root, segment_size=2048)
    values = [compaction.append(builder, "A", 0, f"k{number % 3}", f"body-{number}".encode()) for number in range(7)]
    for _ in range(30):
        builder.append("Plain", b"plain" * 10)
    builder.close()
    compaction.configure(root, ["A"])
    writer = LogWriter(root, "A", 0, 512)
    start = writer.write_all(compaction.compact(values[:5]), 0)
    writer.write_all(values[5:], start + 512)
    builder.expire(len(list((root / "commitlog").iterdir())) - 1)
    return root, [*sorted(writer.log.iterdir()), *sorted(writer.queue.iterdir())]


KINDS: dict[str, tuple[Callable[[Path], tuple[Path, list[Path]]], dict[str, Any], str]] = {
    "tier": (small_tier, {}, "COMMIT_LOG"),
    "compaction": (small_compaction, {"compacted": True}, "compactionLog"),
}


def damages(sound: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    used = len(sound.rstrip(b"\0")) + 8
    for at in range(0, min(used, len(sound)), STEP):
        yield f"cut at {at}", sound[:at]
        for bit in range(8) if ALL_BITS else [rng.randrange(8)]:
            yield f"bit {bit} of byte {at}", sound[:at] + bytes([sound[at] ^ 1 << bit]) + sound[at + 1 :]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_right_or_it_is_told(tmp_path: Path, rng: random.Random, kind: str) -> None:
    make, options, log = KINDS[kind]
    root, paths = make(tmp_path)
    store = Store(root)

    def read(mode: Any) -> list[Row]:
        rows: list[Row] = store.messages(COLUMNS, mode=mode, **options).read_all().to_pylist()
        return rows

    def told() -> list[Row]:
        rows: list[Row] = store.check().to_pylist()
        return [row for row in rows if row["severity"] != "info"]

    everything = read("FAILFAST")
    sent = {(number, f"body-{number}".encode()) for number in range(7)}
    assert len(everything) == {"tier": 6, "compaction": 3}[kind]
    assert told() == []
    silent = 0
    for path in paths:
        sound = path.read_bytes()
        is_log = log in str(path)
        for what, data in damages(sound, rng):
            path.write_bytes(data)
            where = f"{path}: {what}"
            try:
                rows = read("FAILFAST")
            except DamagedStoreError as why:
                is_told = "compressed" in str(why)  # check does not decompress
                rows = read("DROPMALFORMED")
                assert is_log, where
                assert is_told or told(), where
                wrong = {(row["queueOffset"], row["body"]) for row in rows} - sent
                # A checksum covers a body alone: the number of the damaged message may be the wrong one that is told.
                assert {body for _, body in wrong} <= {body for _, body in sent}, where
                assert len(wrong) <= what.startswith("bit"), where
                continue
            if rows == everything:
                continue
            assert is_log, where  # queues are hints
            assert kind == "compaction" or not what.startswith("cut"), where
            if told():
                continue
            # A checksum covers a body alone: another key is another value.
            silent += 1
            assert what.startswith("bit"), where
            assert {(row["queueOffset"], row["body"]) for row in rows} <= sent, where
            assert kind == "compaction" or len(rows) == len(everything), where
        path.write_bytes(sound)
    assert read("FAILFAST") == everything
    assert told() == []
    assert silent < (400 if ALL_BITS else 60)
