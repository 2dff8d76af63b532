"""Copies and salvages: what is whole comes along with its queue offsets, once; the new store is sound; and copies of
one store are recognized."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

from oracle import reference
from support import reading

import rmqstore_spark
from machine import damages
from machine.expected import Truth, queue_ends, truth_of
from machine.findings import findings
from machine.past import Difference, Past, QueueName, Row, queue_units, read_messages
from machine.selections import wanted
from machine.stores import grown
from rmqstore_spark.errors import OptionError, RmqStoreError

_NEW = {"commitLogOffset", "offsetMsgId", "preparedTransactionOffset"}  # what a copy gives anew
KEPT = [name for name in reference.COLUMNS if name not in _NEW]


def copy(past: Past, truth: Truth, rng: random.Random) -> None:
    """All of it, or an error and nothing."""
    target = past.root.with_name("copied")
    try:
        rmqstore_spark.Store(past.root).copy(target)
    except RmqStoreError as why:
        if target.exists():
            raise Difference("copy: an error, and yet a store", why) from None
        if not truth.may_fail:
            raise Difference("copy: a sound store is refused", why) from None
        return
    if truth.must_fail:
        raise Difference("copy: is silent about damage", [s.start for s in truth.stretches if s.must_be_told])
    _compare("copy", target, truth, [m.row for m in truth.must])


def salvage(past: Past, truth: Truth, rng: random.Random) -> None:
    """What is whole; what is lost is told."""
    target = past.root.with_name("salvaged")
    try:
        done = rmqstore_spark.Store(past.root).salvage(target)
    except RmqStoreError as why:
        raise Difference("salvage: ends with an error", why) from None
    _compare("salvage", target, truth, [m.row for m in truth.must])
    if truth.must_fail and not done.lost.num_rows:
        raise Difference("salvage: loses without a word")
    if truth.is_decided and past.queues_are_whole and not past.had_cut:
        _compare_ends(target, truth)


def _compare_ends(target: Path, truth: Truth) -> None:
    """Queues go on after messages that are lost; but for the queue of the last whole one of all."""
    expected = queue_ends(truth)
    whole = [m for m in truth.whole if m.queued]
    if whole:
        expected[whole[-1].queue] = whole[-1].queue_offset + 1
    found: dict[QueueName, int] = {}
    for topic, queue_id, offset, *_ in queue_units(target):
        found[topic, queue_id] = max(found.get((topic, queue_id), 0), offset + 1)
    wrong = {name: (found.get(name), end) for name, end in expected.items() if found.get(name) != end}
    if wrong:
        raise Difference("salvage: queues go on elsewhere", wrong)


def salvage_of_other_fields(past: Past, truth: Truth, rng: random.Random) -> None:
    """No checksum covers the head: a flipped bit there makes another row, or a message in another place. It must not
    end a salvage, nor cost another message."""
    if truth.may_fail or not truth.must:
        return
    root = past.root.with_name("flipped")
    shutil.copytree(past.root, root)
    flipped = replace(past, root=root)
    message = rng.choice(truth.must)
    name = rng.choice(("queueId", "queueOffset", "sysFlag", "storeTimestamp", "flag", "topic"))
    place = rng.choice(range(*_FIELDS[name]))
    data = past.stored(message)
    if name == "topic":
        place = data.index(message.topic.encode(), 80)
    bit = 1 << rng.randrange(8)
    damages.overwrite(flipped, message.position + place, bytes([data[place] ^ bit]))
    text = f"bit {bit} of byte {place} ({name}) of {message.queue} {message.queue_offset} at {message.position}"
    target = past.root.with_name("salvaged again")
    try:
        rmqstore_spark.Store(root).salvage(target)
    except RmqStoreError as why:
        raise Difference(f"salvage: a flipped bit of {name} ends it", f"{text}: {why}") from None
    found = {_kept(m.row) for m in read_messages(target)}
    others = {_kept(m.row) for m in truth.must if m != message}
    if others - found:
        raise Difference(f"salvage: a flipped bit of {name} costs other messages", f"{text}: {len(others - found)}")


_FIELDS = {"queueId": (12, 16), "flag": (16, 20), "queueOffset": (20, 28), "sysFlag": (36, 40)}
_FIELDS |= {"storeTimestamp": (56, 64), "topic": (0, 1)}


def _kept(row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in KEPT)


def broken_config(past: Past, truth: Truth, rng: random.Random) -> None:
    """What consumers' offsets or topics are cannot be read: an error that names the file, and no store."""
    name = rng.choice(("topics.json", "consumerOffset.json", "subscriptionGroup.json"))
    path = past.root / "config" / name
    if truth.may_fail:
        return
    before = path.read_bytes() if path.exists() else None
    text = before or b'{"offsetTable":{},"subscriptionGroupTable":{}}'
    path.write_bytes(rng.choice((b"", text[: len(text) // 2], rng.randbytes(20))))
    target = past.root.with_name("copied without config")
    try:
        rmqstore_spark.Store(past.root).copy(target)
    except RmqStoreError:
        return
    finally:
        path.write_bytes(before) if before is not None else path.unlink()
    raise Difference("copy: config that cannot be read is left out without a word", name)


def selected(past: Past, truth: Truth, rng: random.Random) -> None:
    """Some of it."""
    wish = wanted(past, rng)
    if truth.may_fail or any(wish.may_miss(m.row) for m in truth.must):
        return
    rows = [m.row for m in truth.must if wish.has(m.row)]
    target = past.root.with_name("selected")
    try:
        rmqstore_spark.Store(past.root).copy(target, **wish.options)  # type: ignore[arg-type]
    except OptionError as why:
        if rows and "unknown topic" not in str(why):
            raise Difference("copy of a part: is refused", f"{wish.options}: {why}") from None
        return
    except RmqStoreError as why:
        raise Difference("copy of a part: ends with an error", f"{wish.options}: {why}") from None
    _compare(f"copy by {wish.kind}", target, truth, rows)


def _compare(what: str, target: Path, truth: Truth, rows: list[Row]) -> None:
    """The new store by the plain reference: these rows in their order, each once, and sound."""
    try:
        found = [m.row for m in read_messages(target)]
    except reference.Corrupt as why:
        raise Difference(f"{what}: the new store is damaged", why) from None
    if truth.may:
        if not {_kept(row) for row in rows} <= {_kept(row) for row in found}:
            raise Difference(f"{what}: whole messages are missing")
        return
    kept = [{name: row[name] for name in KEPT} for row in found]
    expected = [{name: row[name] for name in KEPT} for row in rows]
    if kept != expected:
        missing = [row["commitLogOffset"] for row in rows if {name: row[name] for name in KEPT} not in kept]
        raise Difference(f"{what}: other messages", f"{len(kept)} for {len(expected)}; missing: {missing[:8]}")
    # Left-out queue offsets are what a salvage or a part of a store has to have.
    if told := [each for each in findings(target) if each[0] != "queueGap" or what == "copy"]:
        raise Difference(f"{what}: check finds something in the new store", told)


def twins(past: Past, truth: Truth, rng: random.Random) -> None:
    """Two copies of one store, each damaged elsewhere: an error that says so; and with deduplicate each message once
    that one of them has whole."""
    home = past.root.with_name("twins")
    one = grown(home / "one", rng)
    shutil.copytree(one.root, home / "other")
    other = replace(one, root=home / "other", damages=[], events=one.events)
    for each in (one, other):
        damages.damage(each, rng, rng.choice((0, 1, 2, 3)))
    truths = truth_of(one), truth_of(other)
    if not all(each.is_decided for each in truths) or not all(each.whole for each in truths):
        return
    text = f"{len(one.messages)} messages; {one.told()}"
    roots = one.root, other.root
    whole = {m.position: m.row for each in truths for m in each.whole}
    try:
        found = reading.read(*roots, mode="DROPMALFORMED")
    except OptionError:
        pass
    else:  # where one has nothing of what the other has, no message comes twice
        if sorted(row["commitLogOffset"] for row in found) != sorted(whole):
            raise Difference(
                "twins: two copies are taken for two stores", f"{len(found)} rows of {len(one.messages)}; {text}"
            )
    if not {m.position for m in truths[0].whole} & {m.position for m in truths[1].whole}:
        return  # nothing tells that they are copies, which is an error of its own
    try:
        found = reading.read(*roots, mode="DROPMALFORMED", deduplicate=True)
    except RmqStoreError as why:
        raise Difference("twins: deduplicate ends with an error", f"{why}; {text}") from None
    if [row["commitLogOffset"] for row in found] != sorted(whole):
        raise Difference("twins: deduplicate gives other messages", f"{len(found)} for {len(whole)}; {text}")
    target = home / "salvaged"
    rmqstore_spark.Store(roots).salvage(target, deduplicate=True)
    if len(read_messages(target)) != len(whole):
        raise Difference("twins: salvage has other messages", f"{len(read_messages(target))} for {len(whole)}; {text}")


STEPS = (copy, salvage, salvage_of_other_fields, broken_config, selected, twins)
