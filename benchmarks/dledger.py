"""Section `dledger`: the store of a DLedger node against an ordinary one with the same messages.

CPU seconds of this process, with all its threads. What is read of the log is told by the byte, as entries have 48 more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from generate import Store
from measure import MIB, Row, Stores, Window, batches_of, in_turns, key_of, offsets_of, reader_of, scan_store

import rmqstore_spark

TIMES = 20  # short work, so many times


def dledger_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    """Scans, look-ups and plans."""
    for body, size in (("1 KiB", 1024), ("100 B", 100)):
        yield from _scans(body, stores.of(size), stores.of(size, dledger=True), repeat)
    for segment in (1 << 30, 32 * MIB):
        pair = stores.of(1024, segment=segment), stores.of(1024, segment=segment, dledger=True)
        yield from _short(*pair, repeat)
        yield from _of_killed(*pair, repeat)
    few = stores.total_bytes // 4
    plain = stores.of(1024, total_bytes=few, segment=MIB // 4)
    dledger = stores.of(1024, total_bytes=few, segment=MIB // 4, dledger=True)
    yield _compared("plan of a full scan", plain, dledger, repeat, _plans)
    yield _compared("key and topic", plain, dledger, repeat, partial(_selects, key_of))


def _scans(body: str, plain: Store, dledger: Store, repeat: int) -> Iterator[Row]:
    schema = next(batches_of(plain)).schema
    both = {"plain": plain, "dledger": dledger}
    windows = {name: Window(store, schema) for name, store in both.items()}
    kinds: dict[str, tuple[Callable[[str], Callable[[], object]], dict[str, int]]] = {
        "kernel, memory to Arrow": (
            lambda name: lambda: windows[name].decode(verify_crc=True),
            {name: window.end for name, window in windows.items()},
        ),
        "a task's loop": (
            lambda name: lambda: scan_store(both[name], verify_crc=True),
            {name: store.end for name, store in both.items()},
        ),
        "Store.messages()": (
            lambda name: lambda: _read(both[name]),
            {name: store.end for name, store in both.items()},
        ),
    }
    for what, (work, nbytes) in kinds.items():
        best = in_turns(repeat, {name: work(name) for name in both}, clock=time.process_time)
        speed = {name: nbytes[name] / best[name] / 1e9 for name in both}
        ratio = speed["dledger"] / speed["plain"]
        yield Row(f"{what}, {body} bodies, log of DLedger / ordinary", speed["dledger"], "GB/CPU s", ratio, ">= 0.8")


def _short(plain: Store, dledger: Store, repeat: int) -> Iterator[Row]:
    """A topic, look-ups and the plan alone."""
    looked_up: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "subscribe and tags": lambda message: {"subscribe": message["topic"], "tags": "TagA"},
        "key and topic": key_of,
        "msgId": lambda message: {"msgId": message["msgId"]},
        "offsets": offsets_of,
    }
    for what, options in looked_up.items():
        yield _compared(what, plain, dledger, repeat, partial(_selects, options))
    yield _compared("plan of a full scan", plain, dledger, repeat, _plans)


def _of_killed(plain: Store, dledger: Store, repeat: int) -> Iterator[Row]:
    """Where there is `abort`, the plan looks at all of the last segment."""
    signs = [store.root / "abort" for store in (plain, dledger)]
    try:
        for sign in signs:
            sign.touch()
        yield _compared("plan, node killed", plain, dledger, repeat, _plans, times=1, goal="")
    finally:
        for sign in signs:
            sign.unlink(missing_ok=True)


def _compared(
    what: str,
    plain: Store,
    dledger: Store,
    repeat: int,
    work: Callable[[Store], Callable[[], object]],
    times: int = TIMES,
    goal: str = "<= 1.2",
) -> Row:
    cases: dict[str, Callable[[], object]] = {}
    for name, store in (("plain", plain), ("dledger", dledger)):
        once = work(store)
        cases[name] = lambda once=once: [once() for _ in range(times)]  # type: ignore[misc]
    best = in_turns(repeat, cases, clock=time.process_time)
    segments = f"{dledger.segments} segment{'s' if dledger.segments > 1 else ''}"
    each = best["dledger"] / times * 1e3
    return Row(f"{what}, {segments}, log of DLedger / ordinary", each, "CPU ms", best["dledger"] / best["plain"], goal)


def _plans(store: Store) -> Callable[[], object]:
    return lambda: reader_of(store)[0].partitions()


def _selects(options: Callable[[dict[str, Any]], dict[str, Any]], store: Store) -> Callable[[], object]:
    chosen = options(_message(store))
    return lambda: _read(store, **chosen)


def _message(store: Store) -> dict[str, Any]:
    """Some message of the first half, with a key."""
    seen = 0
    for batch in batches_of(store, names=("topic", "queueId", "queueOffset", "keys", "msgId")):
        seen += batch.num_rows
        if seen > store.units // 3:
            return next(row for row in batch.to_pylist() if row["keys"])
    raise RuntimeError(f"{store.root}: no message has a key")


def _read(store: Store, **options: Any) -> int:
    found: int = sum(batch.num_rows for batch in rmqstore_spark.Store(store.root).messages(**options))
    if options:
        assert found
    else:
        assert found == store.units, f"{store.root}: {found} rows, {store.units} units were written"
    return found
