"""Rows: every mode, any piece size, from a disk and from objects, with any selection."""

from __future__ import annotations

import random
from typing import Any

from support import reading
from support.remote import remote_files

from machine.expected import Truth
from machine.past import Difference, Past, Row
from machine.selections import Wanted, wanted
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.io.files import Files

PIECES = (1, 100, 700, 3000, 10_000, 1 << 30)


def _read(past: Past, **options: Any) -> list[Row]:
    columns = [*reading.DEFAULT_COLUMNS, "batchIndex", *(["corrupt"] if options.get("mode") == "PERMISSIVE" else [])]
    return reading.read(past.root, columns=columns, **options)


def _ways(rng: random.Random) -> tuple[dict[str, Any], str]:
    """How a read is done: by pieces of any size, from the disk or from objects, with any prices."""
    prices = rng.choice((None, reading.FREE))
    is_remote = rng.random() < 0.4
    files = remote_files(prices) if is_remote else Files(prices)
    piece = rng.choice(PIECES)
    text = f"{'objects' if is_remote else 'disk'}, maxPartitionBytes={piece}{', free' if prices else ''}"
    return {"files": files, "maxPartitionBytes": piece}, text


def permissive(past: Past, truth: Truth, rng: random.Random) -> None:
    way, text = _ways(rng)
    try:
        found = _read(past, mode="PERMISSIVE", **way)
    except RmqStoreError as why:
        raise Difference("rows: PERMISSIVE raises an error", f"{text}: {why}") from None
    sound, corrupt = reading.sound_and_corrupt(found)
    compare_rows(truth, sound, f"PERMISSIVE {text}")
    told = [row["commitLogOffset"] for row in corrupt]
    for stretch in truth.stretches:
        # What lies between two damages and may come or not may be told with them.
        begin = stretch.start
        while (before := _just_before(truth, begin)) is not None:
            begin = before
        if stretch.must_be_told and not any(begin <= at < stretch.stop for at in told):
            raise Difference("rows: damage has no row", f"{text}: {stretch.start}, told {told}")
    beyond = [at for at in told if not any(s.start <= at < s.stop for s in truth.stretches) and at not in truth.may]
    if beyond and truth.is_decided:
        raise Difference("rows: a row for damage that is none", f"{text}: {beyond}")


def _just_before(truth: Truth, position: int) -> int | None:
    """Where the damage begins before the messages that end there and may come or not."""
    sure = [m.position for m in truth.must if m.position < position]
    before = [s.start for s in truth.stretches if s.start < position]
    return before[-1] if before and (not sure or sure[-1] < before[-1]) else None


def dropping(past: Past, truth: Truth, rng: random.Random) -> None:
    way, text = _ways(rng)
    try:
        compare_rows(truth, _read(past, mode="DROPMALFORMED", **way), f"DROPMALFORMED {text}")
    except RmqStoreError as why:
        raise Difference("rows: DROPMALFORMED raises an error", f"{text}: {why}") from None


def failing(past: Past, truth: Truth, rng: random.Random) -> None:
    way, text = _ways(rng)
    try:
        found = _read(past, **way)
    except RmqStoreError as why:
        if not truth.may_fail:
            raise Difference("rows: FAILFAST raises an error without damage", f"{text}: {why}") from None
        return
    if truth.must_fail:
        places = [s.start for s in truth.stretches if s.must_be_told]
        raise Difference("rows: FAILFAST is silent", f"{text}: damage at {places}")
    compare_rows(truth, found, f"FAILFAST {text}")


def selected(past: Past, truth: Truth, rng: random.Random) -> None:
    """A selection gives what a filter of all rows gives."""
    wish = wanted(past, rng)
    way, text = _ways(rng)
    text = f"{text} {wish.options}"
    mode = "DROPMALFORMED" if truth.may_fail else "FAILFAST"
    try:
        found = _read(past, mode=mode, **way, **wish.options)
    except RmqStoreError as why:
        if _is_unknown_name(why):
            return
        raise Difference("rows: a selection raises an error", f"{text}: {why}") from None
    compare_rows(truth, found, text, wish)


def _is_unknown_name(why: RmqStoreError) -> bool:
    return "no topic" in str(why) or "nothing in" in str(why) or "unknown" in str(why) or "no store" in str(why)


def compare_rows(truth: Truth, found: list[Row], text: str, wish: Wanted | None = None) -> None:
    """Rows in the order of the log: all that must come, each once, and nothing else but what may. Where the log
    contradicts an index or a queue, what these did not name comes after what they did."""
    what = "rows" if wish is None else f"rows by {wish.kind}"
    positions = [(row["commitLogOffset"], row.get("batchIndex") or 0) for row in found]
    if len(set(positions)) != len(positions):
        twice = sorted({at for at in positions if positions.count(at) > 1})
        raise Difference(f"{what}: a message comes twice", f"{text}: {twice}")
    may_contradict = wish is not None and truth.past.damages
    if positions != sorted(positions) and not may_contradict:
        raise Difference(f"{what}: not in the order of the log", f"{text}: {positions}")
    known = {
        (m.position, number): row
        for m in (*truth.past.messages, *truth.past.stale)
        for number, row in enumerate(m.rows)
    }
    every = [((m.position, number), row) for m in truth.must for number, row in enumerate(m.rows)]
    must = [place for place, row in every if wish is None or wish.has(row)]
    may = {place for place in known if place[0] in truth.may}
    may |= {place for place, row in every if wish is not None and wish.may_miss(row)}
    missing = sorted(set(must) - set(positions) - may)
    if missing:
        raise Difference(f"{what}: whole messages are missing", f"{text}: {len(missing)} of {len(must)}: {missing[:8]}")
    beyond = sorted(set(positions) - set(must) - may)
    if beyond:
        kind = (
            "cut off" if beyond[0][0] in {m.position for m in truth.past.stale} else "not live or damaged or not wanted"
        )
        raise Difference(f"{what}: messages come that are {kind}", f"{text}: {beyond[:8]}")
    for row in found:
        expected = known.get((row["commitLogOffset"], row.get("batchIndex") or 0))
        wrong = [name for name in row if expected and name in expected and row[name] != expected[name]]
        if wrong:
            raise Difference(f"{what}: values differ", f"{text}: {row['commitLogOffset']}: {wrong}")


STEPS = (permissive, dropping, failing, selected, selected, selected)
