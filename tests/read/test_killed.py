"""A broker of any kind of store is killed between any two of its writes, or within one: rows are those of the whole
messages in the log, in each mode and by each access path (support/killed.py says which states there are)."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import dledger, reference
from oracle.dledger import DLedgerStoreBuilder
from oracle.stores import StoreBuilder
from support import killed, reading
from support.changed_stores import Content
from support.killed import Killed
from support.reading import Row

import rmqstore_spark
from rmqstore_spark import DamagedStoreError

COLUMNS = ["topic", "queueId", "queueOffset", "tags", "keys", "commitLogOffset", "storeTimestamp"]
SIZES: dict[str, Any] = {"segment_size": 2048, "queue_file_size": 100, "index": True, "index_slots": 50}
MESSAGES = 12
STATES = 12  # of each kind, drawn
BATCHES = "TopicB"
Selected = tuple[dict[str, Any], list[Row]]  # options, and the rows that they select


def _append(builder: StoreBuilder, rng: random.Random) -> None:
    number = len(builder.messages)
    topic, names = rng.choice(("TopicA", "TopicB")), f"k{number} g{number % 5}"
    builder.append(topic, b"x" * rng.randrange(60, 90), rng.randrange(2), tags=f"t{number % 2}", keys=names)


def _append_batch(builder: StoreBuilder, rng: random.Random) -> None:
    number, queue_id, count = len(builder.messages), rng.randrange(2), rng.randrange(1, 4)
    names = b"KEYS\x01k%d g%d\x02TAGS\x01t%d\x02" % (number, number % 5, number % 2)
    inner = [reference.Inner(b"y" * 20, b"UNIQ_KEY\x01%d-%d\x02" % (number, i) + names) for i in range(count)]
    said = b"INNER_BASE\x01%d\x02INNER_NUM\x01%d\x02" % (builder.next_offset(BATCHES, queue_id), count)
    body = reference.encode_batch(inner)
    builder.append(BATCHES, body, queue_id, properties=said, sys_flag=reference.BATCH, messages=count)


def _history(kind: str, root: Path, rng: random.Random, messages: int = MESSAGES) -> list[Content]:
    builder = (DLedgerStoreBuilder if kind == "dledger" else StoreBuilder)(root, index_items=20, **SIZES)
    found = []
    for _ in range(messages):
        put = _append_batch if kind == "batches" and rng.random() < 0.5 else _append
        put(builder, rng)
        builder.flush()
        content = Content.of(root)
        if kind == "ext":
            content = killed.with_ext(content)
        if kind == "batches":
            content = killed.with_batches(content, BATCHES, {m.position: m.store_timestamp for m in builder.messages})
        found.append(content)
    return found


def _truth(root: Path) -> list[Row]:
    """What a broker takes for its log that starts there."""
    if not (root / dledger.NAME).exists():
        return reference.read_store(root)
    rows = []
    for entry in dledger.entries(root):
        at = entry.position + dledger.HEADER.size
        try:
            reference.check_unit(entry.unit, at, len(entry.unit) + reference.BLANK_SIZE)
        except reference.Corrupt:
            break
        rows.append(reference.decode_unit(entry.unit, at))
    return rows


def _keys(row: Row) -> list[str]:
    return str(row["keys"] or "").split()


def _selections(rows: list[Row]) -> Iterator[Selected]:
    for tag in ("t0", "t1"):
        for topic in sorted({row["topic"] for row in rows}):
            wanted = [row for row in rows if (row["topic"], row["tags"]) == (topic, tag)]
            yield {"subscribe": topic, "tags": tag}, wanted
    for row in rows[-3:]:
        for key in _keys(row):
            yield {"key": key}, [each for each in rows if key in _keys(each)]
        begin = row["storeTimestamp"]
        yield {"startingTimestamp": begin // 1000}, [each for each in rows if each["storeTimestamp"] >= begin]
        topic, queue_id, offset = row["topic"], row["queueId"], row["queueOffset"]
        options = {
            "assign": json.dumps({topic: [queue_id]}),
            "startingOffsets": json.dumps({topic: {str(queue_id): offset}}),
        }
        same = (each for each in rows if (each["topic"], each["queueId"]) == (topic, queue_id))
        yield options, [each for each in same if each["queueOffset"] >= offset]


def _places(rows: list[Row]) -> list[tuple[int, int]]:
    return sorted((row["commitLogOffset"], row["queueOffset"]) for row in rows)


def _check(root: Path, state: Killed, rng: random.Random) -> None:
    rows = _truth(root)
    for mode in reading.MODES:
        assert _places(reading.read(root, columns=COLUMNS, mode=mode)) == _places(rows), (state.what, mode)
    selections = list(_selections(rows))
    for options, wanted in rng.sample(selections, min(6, len(selections))):
        prices = rng.choice((None, reading.FREE))
        found = reading.read(root, columns=COLUMNS, prices=prices, **options)
        assert _places(found) == _places(wanted), (state.what, options)
    usage = rmqstore_spark.Store(root).usage().column("messages").to_pylist()
    assert sum(usage) == len(rows), state.what


@pytest.mark.parametrize("kind", ["plain", "dledger", "batches", "ext"])
def test_rows_are_those_of_the_log(tmp_path: Path, rng: random.Random, kind: str) -> None:
    states = list(killed.states(_history(kind, tmp_path / "made", rng)))
    before = None
    for state in rng.sample(states, STATES):
        killed.put(tmp_path / "store", state.content, before)
        before = state.content
        _check(tmp_path / "store", state, rng)


@pytest.mark.parametrize("kind", ["plain", "dledger"])
def test_a_unit_that_was_being_written_hides_no_tag(tmp_path: Path, kind: str) -> None:
    """A queue's last unit has its position and its size, but not yet all of its tagsCode."""
    rng = random.Random(1)
    history = _history(kind, tmp_path / "made", rng)
    before, seen = None, 0
    for state in killed.states(history, lags=[1]):
        if "consumequeue/" not in state.cut:
            continue
        killed.put(tmp_path / "store", state.content, before)
        before, seen = state.content, seen + 1
        rows = _truth(tmp_path / "store")
        for tag in ("t0", "t1"):
            found = reading.read(tmp_path / "store", columns=COLUMNS, prices=reading.FREE, tags=tag)
            assert _places(found) == _places([row for row in rows if row["tags"] == tag]), state.what
    assert seen > MESSAGES


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_file_of_dledger_that_was_being_closed(tmp_path: Path, goes_on: bool) -> None:
    """Of the blank at its end the size may never have been written; a node that starts begins the next file."""
    history = _history("dledger", tmp_path / "made", random.Random(1))
    first, second = sorted(name for name in history[-1] if "/data/" in name)[:2]
    whole = history[-1][first]
    end = max(at for at in range(len(whole)) if whole[at : at + 8] == _blank(whole, at))
    content = history[-1] if goes_on else [each for each in history if not any(each.get(second, b""))][-1]
    data = whole[:end] + b"\xff" * 4 + bytes(len(whole) - end - 4)
    killed.put(tmp_path / "store", content.with_({first: data}), None)
    rows = _truth(tmp_path / "store")
    assert len(rows) == (MESSAGES if goes_on else 8)
    assert _places(reading.read(tmp_path / "store", columns=COLUMNS)) == _places(rows)


def _blank(data: bytes, at: int) -> bytes:
    return struct.pack(">ii", -1, len(data) - at)


def _found(root: Path, **options: Any) -> list[Row] | None:
    """None: damage."""
    try:
        return reading.read(root, columns=[*COLUMNS, "corrupt"], **options)
    except DamagedStoreError:
        return None


def _live(root: Path) -> list[Row] | None:
    """What a broker takes for its log that starts there; None: a file is missing in it."""
    try:
        return _truth(root)
    except reference.Corrupt:
        return None


def _logs(content: Content) -> list[str]:
    return [*content.below("commitlog"), *content.below("dledger-n0/data")]


def _spoiled(content: Content, at: int) -> Content:
    """As after a loss of power: the beginning of a unit was never written."""
    name = max(name for name in _logs(content) if int(Path(name).name) <= at)
    data, inside = content[name], at - int(Path(name).name)
    return content.with_({name: data[:inside] + bytes(60) + data[inside + 60 :]})


def _check_recovery(root: Path, state: Killed, whole: list[Row], rng: random.Random) -> bool:
    """The rows are those that a broker takes for its log, or an error says that it leaves some out; the other modes
    give what is whole, and look-ups what a scan gives.

    Args:
        whole: the messages that are on the disk, before the cut or behind it.

    Returns:
        Whether there was no error.
    """
    live, failfast = _live(root), _found(root)
    drop, permissive = (_found(root, mode=mode) or [] for mode in ("DROPMALFORMED", "PERMISSIVE"))
    assert failfast is None or (live is not None and _places(failfast) == _places(live)), state.what
    places = _places(drop)
    assert len({*places}) == len(places), state.what
    assert {*_places(live or [])} <= {*places} <= {*_places(whole)}, state.what
    assert _places(reading.sound_and_corrupt(permissive)[0]) == places, state.what
    selections = list(_selections(drop))
    for options, wanted in rng.sample(selections, min(6, len(selections))):
        prices = rng.choice((None, reading.FREE))
        dropped = _found(root, mode="DROPMALFORMED", prices=prices, **options)
        assert _places(dropped or []) == _places(wanted), (state.what, options)
        found = _found(root, prices=prices, **options)
        is_right = failfast is None if found is None else _places(found) == _places(wanted)
        assert is_right, (state.what, options)
    return failfast is not None


@pytest.mark.parametrize("kind", ["plain", "dledger", "batches", "ext"])
@pytest.mark.parametrize("is_lost", [False, True], ids=["whole", "lost"])
def test_a_log_that_was_being_cut(tmp_path: Path, rng: random.Random, kind: str, is_lost: bool) -> None:
    """A broker that starts cuts its log where a loss of power took a message; a slave also where all are whole. It is
    killed between any two of the files that it deletes."""
    history = _history(kind, tmp_path / "made", rng, messages=30)
    killed.put(tmp_path / "store", history[-1], None)
    rows = _truth(tmp_path / "store")
    at = rng.choice(rows[3:-1])["commitLogOffset"]
    cut = at - (dledger.HEADER.size if kind == "dledger" else 0)
    kept = [row for row in rows if not is_lost or row["commitLogOffset"] != at]
    before, segment, logs = history[-1], SIZES["segment_size"], _logs(history[-1])
    states = list(killed.recoveries(_spoiled(before, cut) if is_lost else before, cut, rng))
    for state in rng.sample(states, min(STATES // 2, len(states))):
        killed.put(tmp_path / "store", state.content, before)
        before = state.content
        starts = {int(Path(name).name) for name in _logs(before)}
        whole = [row for row in kept if row["commitLogOffset"] // segment * segment in starts]
        is_quiet = _check_recovery(tmp_path / "store", state, whole, rng)
        assert is_quiet or is_lost or len(starts) < len(logs), state.what
