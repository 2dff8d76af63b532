"""What a salvage could not bring along, as rows like those of table `check`."""

from __future__ import annotations

import os

import pyarrow as pa

from rmqstore_spark.errors import one_line
from rmqstore_spark.jobs.copying.config import Config
from rmqstore_spark.jobs.copying.rows import Source
from rmqstore_spark.tables.check.problems import SCHEMA, Finding, Problem
from rmqstore_spark.write.kept_offsets import Lost

# What a salvage can lose. The only such table.
LOST = {
    "damagedUnit": Problem("error", "log", "the new store has everything after it"),
    "lostEnd": Problem(
        "error",
        "log",
        "restore the log's end, and salvage again; consumers go on after the messages of the new store",
    ),
    "brokenConfig": Problem("error", "config", "the new store has nothing of this file: restore it from a backup"),
    "lostMessages": Problem("error", "queue", "consumers skip these messages; send them again if their producer can"),
}
_REUSED = (
    "these messages are the last of the log, so the new store's queue goes on with these queueOffsets: config/ was set "
    "accordingly, but consumers that keep offsets elsewhere have to go back to the first of them; send the messages "
    "again if their producer can"
)


def report(
    sources: list[Source], configs: list[Config], lost: list[Lost], after: list[tuple[Source, list[Finding]]]
) -> pa.Table:
    """Damage in the logs, by store; then a row for each log after whose end index files or the checkpoint know of
    messages; then files of config/ that were not understood; then the messages that queues lack because of damage (or
    because options left them out): a row for each gap, `count` of them."""
    rows = [_of_damage(*damage) for source in sources for damage in source.damages]
    rows += [_of_end(source, found) for source, found in after if found]
    rows += [_of_config(config, *unread) for config in configs for unread in config.unread.items()]
    rows += [_of_queue(gap) for gap in lost]
    return pa.Table.from_pylist(rows, SCHEMA)


def _kind(problem: str) -> dict[str, object]:
    return {"problem": problem, **LOST[problem]._asdict()}


def _of_damage(file: str, position: int, reason: str) -> dict[str, object]:
    return {
        **_kind("damagedUnit"),
        "file": file,
        "commitLogOffset": position,
        "expected": "messages",
        "found": reason,
    }


def _of_end(source: Source, found: list[Finding]) -> dict[str, object]:
    store = source.store
    known = (f"{each.file}: expected {each.expected}, found {each.found}" for each in found)
    return {
        **_kind("lostEnd"),
        "file": store.segments[-1].path if store.segments else None,
        "commitLogOffset": store.end,
        "expected": "a log that goes on here",
        "found": one_line("; ".join(known)),
    }


def _of_config(config: Config, name: str, why: str) -> dict[str, object]:
    return {
        **_kind("brokenConfig"),
        "file": os.path.join(config.root, "config", name),
        "expected": "what a broker writes",
        "found": why,
    }


def _of_queue(gap: Lost) -> dict[str, object]:
    topic, queue_id = gap.queue
    found = f"none from {gap.queue_offset} to {gap.queue_offset + gap.count - 1}"
    return {
        **_kind("lostMessages"),
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": gap.queue_offset,
        "expected": "a message for each queueOffset",
        "found": f"{found}; {one_line(gap.known)}" if gap.known else found,
        **({"advice": _REUSED} if gap.is_reused else {}),
        "count": gap.count,
    }
