"""Writes: some appends and rebuilds, one after the other, on a store with any past. What was whole stays, offsets are
unique and grow, what is refused changes nothing, and twice is once."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from oracle import reference

import rmqstore_spark
from machine import compare_rows, compare_tables
from machine.expected import Truth, truth_of
from machine.findings import findings
from machine.past import Difference, Message, Past, queue_units
from machine.stores import TAGS
from rmqstore_spark.errors import RmqStoreError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNTOUCHED = ("commitlog", "consumequeue", "index", "config", "checkpoint", "abort")


def actions(past: Past, truth: Truth, rng: random.Random) -> None:
    """Up to three changes of a copy, each looked at."""
    if not truth.is_decided:
        return
    with copied(past, "changed") as now:
        for _ in range(rng.choice((1, 2, 3))):
            act = rng.choice((append, append, rebuild))
            now.events.append(act.__name__)
            was_clean = not findings(now.root)
            act(now, rng)
            _look(now, was_clean, rng)


@contextmanager
def copied(past: Past, name: str) -> Iterator[Past]:
    """A copy of a store that may be changed."""
    root = past.root.with_name(name)
    shutil.copytree(past.root, root)
    try:
        # The same list of events, so that what is said of a failure has them all.
        yield replace(past, root=root, messages=list(past.messages), stale=list(past.stale), ours=set(past.ours))
    finally:
        shutil.rmtree(root)


def tree(root: Path) -> dict[str, bytes]:
    """Every file that is the store's own."""
    paths = [path for name in _UNTOUCHED for path in (root / name, *(root / name).rglob("*"))]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.is_file()}


def _same_but_index_names(files: dict[str, bytes]) -> list[tuple[str, bytes]]:
    """Index files are named by when they were made."""
    index = sorted(name for name in files if name.startswith("index/"))
    names = {name: f"index/{number}" for number, name in enumerate(index)}
    return sorted((names.get(name, name), data) for name, data in files.items() if any(data) or name in names)


def drawn(past: Past, rng: random.Random) -> list[dict[str, Any]]:
    """Rows to write, of the store's own topics and of a new one; older than the store's, or newer, or of no time."""
    topics = [*sorted({m.topic for m in past.messages if m.queued}), "New"]
    times = [m.store_timestamp for m in past.messages]
    when = rng.choice((None, None, min(times) - 10**6, max(times) + 1000, 4_102_444_800_000))
    rows = []
    for number in range(rng.choice((1, 1, 3, 12))):
        time = None if when is None else _EPOCH + timedelta(milliseconds=when + number)
        rows.append(
            {
                "topic": rng.choice(topics),
                "queueId": rng.randrange(3),
                "body": rng.randbytes(rng.choice((0, 10, 300))),
                "tags": rng.choice((None, *TAGS)),
                "keys": rng.choice((None, "order", f"new{number}")),
                "storeTimestamp": time,
            }
        )
    return rows


_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("body", pa.binary()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("storeTimestamp", pa.timestamp("us", "UTC")),
    ]
)


def _many_queues(past: Past, rng: random.Random) -> list[dict[str, Any]] | None:
    """Where there are many queues: sometimes a row for each of them."""
    if not any(m.topic == "Wide" for m in past.messages) or rng.random() < 0.5:
        return None
    fields = {"body": b"wide", "tags": None, "keys": None, "storeTimestamp": None}
    return [{"topic": "Wide", "queueId": number, **fields} for number in range(600)]


def append(now: Past, rng: random.Random) -> None:
    """Afterwards the store's past has what was written, as the plain reference finds it behind the old end."""
    rows = _many_queues(now, rng) or drawn(now, rng)
    before, units = tree(now.root), set(queue_units(now.root))
    try:
        rmqstore_spark.write_store(
            now.root, pa.Table.from_pylist(rows, _SCHEMA), messageIndexEnable=any(now.root.glob("index/*"))
        )
    except RmqStoreError as why:
        if tree(now.root) != before:
            raise Difference("append: what is refused has changed the store", why) from None
        if not (now.abort or now.damages or not now.queues_are_whole):
            raise Difference("append: a sound store is refused", why) from None
        return
    new = _read_on(now)
    found = [(m.topic, m.queue_id, m.row["body"], m.row["tags"], m.row["keys"]) for m in new]
    wanted = [(r["topic"], r["queueId"], r["body"], r["tags"], r["keys"]) for r in rows]
    if found != wanted:
        raise Difference("append: other messages than were written", f"{len(found)} for {len(wanted)} at {now.end}")
    _offsets_grow(now, new)
    last = now.messages[-1].store_timestamp  # before the write
    back = [m.store_timestamp for m in new if rows[0]["storeTimestamp"] is None and m.store_timestamp < last]
    if back:
        raise Difference("append: the time of the commit goes back", f"{back[0]} after {last}")
    after = set(queue_units(now.root))
    _units_stay(now, units, after)
    missing = [m for m in new if (m.topic, m.queue_id, m.queue_offset, m.position, m.size) not in after]
    if missing:
        raise Difference("append: a new message has no unit", [m.position for m in missing])
    now.messages += new
    now.stale = [m for m in now.stale if _stands(now, m)]
    now.ours |= {m.position for m in new}


def _read_on(now: Past) -> list[Message]:
    """The messages behind what was the end."""
    found, at = [], now.end
    while now.path_of(at).exists():
        data = now.path_of(at).read_bytes()[at % now.segment_size :]
        if reference.is_blank(data[:8], len(data)):
            at += len(data)
            continue
        try:
            size = reference.check_unit(data, at, len(data))
        except reference.Corrupt:
            break
        row, unit = reference.decode_unit(data[:size], at), reference.parse_unit(data[:size], at)
        place = (row["topic"], unit.queue_id, unit.queue_offset)
        found.append(Message(at, size, *place, unit.store_timestamp, True, row, (row,)))
        at += size
    return found


def _stands(now: Past, message: Message) -> bool:
    try:
        return reference.decode_unit(now.stored(message), message.position) == message.row
    except (OSError, reference.Corrupt):
        return False


def _offsets_grow(now: Past, new: list[Message]) -> None:
    """None is given twice, and each queue goes on after its last whole message."""
    damaged = {m.position for d in now.damages for m in now.messages if d.start <= m.position < d.stop}
    for m in new:
        before = [each for each in now.messages if each.queued and each.queue == m.queue]
        whole = [each.queue_offset for each in before if each.position not in damaged]
        text = f"{m.queue}: {m.queue_offset}"
        if m.queue_offset in whole:
            raise Difference("append: a queue offset is given twice", text)
        if whole and m.queue_offset < max(whole):
            raise Difference("append: a queue offset goes back", f"{text} after {max(whole)}")
        if before and m.queue_offset <= before[-1].queue_offset and now.queues_are_whole:
            raise Difference("append: the offset of a damaged message is given again", text)
    places = [(m.queue, m.queue_offset) for m in new]
    if len(set(places)) != len(places):
        raise Difference("append: a queue offset is given twice", places)


def _units_stay(now: Past, before: set[Any], after: set[Any]) -> None:
    """Units of whole messages."""
    live = {(m.topic, m.queue_id, m.queue_offset, m.position, m.size) for m in now.messages if m.queued}
    gone = sorted((live & before) - after)
    if gone:
        raise Difference("units of live messages are gone", f"{len(gone)}: {gone[:3]}")


def rebuild(now: Past, rng: random.Random) -> None:
    """Each whole message gets its unit, and to do it again changes nothing."""
    before = tree(now.root)
    options = {"mappedFileSizeConsumeQueue": now.queue_file_size, "maxHashSlotNum": now.index_slots, "maxIndexNum": 50}
    try:
        count = rmqstore_spark.rebuild(now.root, **options)
    except RmqStoreError as why:
        if tree(now.root) != before:
            raise Difference("rebuild: what is refused has changed the store", why) from None
        if not now.damages:
            raise Difference("rebuild: a sound log is refused", why) from None
        return
    now.abort = False
    after = tree(now.root)
    logs = [{name: data for name, data in each.items() if name.startswith("commitlog")} for each in (before, after)]
    if {n: d for n, d in logs[0].items() if any(d)} != {n: d for n, d in logs[1].items() if any(d)}:
        raise Difference("rebuild: the log is another one")
    truth = truth_of(now)
    lacking = [m for m in truth.must if m.queued and not truth.has_unit(m)]
    if lacking:
        raise Difference("rebuild: a message has no unit", [(m.queue, m.queue_offset, m.position) for m in lacking[:5]])
    queued = sum(m.queued for m in truth.must)
    if count != queued:
        raise Difference("rebuild: says another number of messages", f"{count} for {queued}")
    now.queues_are_whole, now.has_index = True, True
    now.had_cut = False
    rmqstore_spark.rebuild(now.root, **options)
    if _same_but_index_names(tree(now.root)) != _same_but_index_names(after):
        raise Difference("rebuild: a second one changes something")
    if not now.damages and (told := findings(now.root)):
        raise Difference("rebuild: check finds something afterwards", told)


def _look(now: Past, was_clean: bool, rng: random.Random) -> None:
    """What readers, tables and check say of it now."""
    if was_clean and (told := findings(now.root)):
        raise Difference("append: check finds something afterwards", told)
    truth = truth_of(now)
    steps = (compare_rows.permissive, compare_rows.failing, compare_rows.selected, *compare_tables.STEPS)
    for step in rng.sample(steps, 4):
        try:
            step(now, truth, rng)
        except Difference as why:
            raise Difference(f"after a write: {why.kind}", why.text) from None


STEPS = (actions,)
