"""The writer below Spark, as tests use it: rows in, a store out."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from oracle import random_stores, reference, stores

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.query.options import parse_write_options
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.build.staging import Staged
from rmqstore_spark.write.job import WriteJob
from rmqstore_spark.write.stage.job_directory import prepare

Row = dict[str, Any]
SMALL = Sizes(segment=8192, queue_file=200, slots=20, items=50)

# For write_store(): a store of small files, and rows for it.
SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 10,
    "maxIndexNum": 100,
}
ROWS = pa.record_batch({"topic": ["T"] * 10, "body": ["x"] * 10})


def batch_of(rows: Sequence[Row], **types: pa.DataType) -> pa.RecordBatch:
    """Rows with the same columns each; times are microseconds."""
    arrays = []
    names = list(rows[0]) if rows else []
    for name in names:
        values = [list(row[name].items()) if isinstance(row[name], dict) else row[name] for row in rows]
        arrays.append(pa.array(values, types.get(name, COLUMNS[name].arrow)))
    return pa.record_batch(arrays, names)


def job_of(root: Path, sizes: Sizes = SMALL, index: bool = True, overwrite: bool = False, **options: Any) -> WriteJob:
    """A write with these options; sizes may be smaller than options say them."""
    understood = parse_write_options({"path": str(root), **{name: str(value) for name, value in options.items()}})
    return WriteJob(replace(understood, sizes=sizes, message_index_enable=index), overwrite)


def stage_rows(root: Path, parts: Sequence[Sequence[Row]], **options: Any) -> tuple[WriteJob, list[Staged]]:
    """What the tasks of a job do, one for each part, whatever its begin() would say of the store. What they tell."""
    job = job_of(root, **options)
    prepare(job.root, job.name)
    return job, [job.stage([batch_of(part)] if part else [], number) for number, part in enumerate(parts)]


def write(
    root: Path,
    *parts: Sequence[Row],
    sizes: Sizes = SMALL,
    index: bool = True,
    overwrite: bool = False,
    **options: Any,
) -> None:
    """Write rows, each part by a task of its own."""
    job, staged = stage_rows(root, parts, sizes=sizes, index=index, overwrite=overwrite, **options)
    try:
        job.commit(staged)
    finally:
        job.abandon()


# ---- rows to write, and what becomes of them

# What a copy keeps of a message. Its places are new, and a broker's own checksum is gone.
KEPT: tuple[str, ...] = (
    "topic",
    "queueId",
    "tags",
    "keys",
    "msgId",
    "body",
    "flag",
    "bornTimestamp",
    "bornHost",
    "storeTimestamp",
)
KEPT += ("storeHost", "reconsumeTimes", "preparedTransactionOffset")
COMPRESSION = 0x701


def kept(rows: list[Row]) -> list[Row]:
    copies = []
    for row in rows:
        properties = {name: value for name, value in row["properties"].items() if name != "__CRC32#"}
        copies.append({**{name: row[name] for name in KEPT}, "properties": properties, "sysFlag": row["sysFlag"]})
    return copies


def plain(rows: list[Row]) -> list[Row]:
    """As rows are once their bodies are not compressed any more."""
    return [{**row, "sysFlag": row["sysFlag"] & ~COMPRESSION} for row in rows]


def some_rows(rng: random.Random, count: int, first: int = 0) -> list[Row]:
    return [
        {
            "topic": rng.choice(("TopicA", "Topic_B", "%RETRY%group")),
            "queueId": rng.randrange(3),
            "tags": rng.choice((None, *random_stores.TAGS)),
            "keys": rng.choice((None, "", " ".join(rng.choices(random_stores.WORDS[:8], k=3)))),
            "msgId": rng.choice((None, f"id{first + i}")),
            "body": rng.randbytes(rng.choice((0, 1, 100, 1000))),
            "properties": {f"p{j}": rng.choice(random_stores.WORDS[:6]) for j in range(rng.randrange(4))},
            "sysFlag": rng.choice((0, 0, 0, reference.PREPARED, reference.COMMIT, reference.ROLLBACK)),
            "storeTimestamp": (stores.FIRST_TIMESTAMP + (first + i) * 700) * 1000,
            "bornHost": rng.choice((None, "10.1.2.3:99", "[fd00::7]:1")),
            "storeHost": rng.choice((None, "10.1.2.4:10911", "[fd00::8]:10911")),
        }
        for i in range(count)
    ]


# ---- is a store whole, by the reference alone?


def assert_whole(root: Path, sizes: Sizes = SMALL, index: bool = True) -> list[Row]:
    """Everything in a store follows from its commitlog, byte for byte, as from a broker; its messages."""
    units = [(at, reference.parse_unit(data, at)) for at, data in reference.read_units(root)]
    assert files(root / "consumequeue", "*/*/*") == reference.expected_queues(units, sizes.queue_file or 0)
    if index:
        entries = [
            (reference.index_hash(*key), at, unit.store_timestamp)
            for at, unit in units
            for key in reference.unit_index_keys(unit)
        ]
        expected = reference.build_index(entries, sizes.slots or 0, sizes.items or 0)
        found = files(root / "index", "*")
        assert all(len(name) == 17 and name.isdigit() for name in found)
        assert [found[name] for name in sorted(found)] == [file.encode() for file in expected]
    last = units[-1][1].store_timestamp if units else 0
    assert struct.unpack_from(">qq", (root / "checkpoint").read_bytes()) == (last, last)
    assert (root / "checkpoint").stat().st_size == 4096
    table = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]
    for _, unit in units:
        config = table[unit.topic.decode()]
        assert unit.queue_id < config["readQueueNums"]
        assert config["perm"] == 6
    names = {path.name for path in root.iterdir()}
    assert names <= {"commitlog", "consumequeue", "index", "checkpoint", "config", "lock", ".rmqstore-spark"}
    assert {path.name for path in root.glob(".rmqstore-spark/*")} <= {"checked.json", "checked.json.part", "times.json"}
    assert all(len(path.name) == 20 for path in (root / "commitlog").iterdir())
    assert {path.stat().st_size for path in (root / "commitlog").iterdir()} <= {sizes.segment}
    return reference.read_store(root)


def files(top: Path, pattern: str) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.glob(pattern) if path.is_file()}
