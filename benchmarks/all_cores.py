"""What `Store.messages()` gains by its threads, and whether one of them is as fast as a task of Spark's."""

from __future__ import annotations

import os
from collections.abc import Iterator

from generate import Store
from measure import Row, Stores, in_turns, scan_store

import rmqstore_spark


def all_cores_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    """All messages and columns, on all cores and on one, and by a task's loop, which has no threads."""
    cores = len(os.sched_getaffinity(0))
    for body, store in (("1 KiB", stores.large), ("100 B", stores.small)):
        best = in_turns(
            repeat,
            {
                "all": lambda store=store: read_on(store, cores),  # type: ignore[misc]
                "one": lambda store=store: read_on(store, 1),  # type: ignore[misc]
                "apart": lambda store=store: _read_apart(store, cores),  # type: ignore[misc]
                "task": lambda store=store: scan_store(store, verify_crc=True),  # type: ignore[misc]
            },
        )
        speed = {name: store.end / seconds / 1e9 for name, seconds in best.items()}
        what = f"Store.messages(), bodies of {body}"
        goal = ">= 1.7" if cores == 2 else ""
        yield Row(f"{what}: {cores} cores / one", speed["all"], "GB/s", best["one"] / best["all"], goal)
        # What these cores are worth to this work: some have a cache or more in common, or are none of their own.
        apart, limit = speed["apart"] * cores, best["one"] * cores / best["apart"]
        yield Row(f"{what}: {cores} processes of one core / one", apart, "GB/s", limit)
        yield Row(f"{what}: one core / a task's loop", speed["one"], "GB/s", best["task"] / best["one"], ">= 1")


def read_on(store: Store, cores: int) -> None:
    """Read it with as many threads as there are cores to run on."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(usual)[:cores])  # of this thread, and of those that it starts
    try:
        rows = sum(batch.num_rows for batch in rmqstore_spark.Store(store.root).messages())
    finally:
        os.sched_setaffinity(0, usual)
    assert rows == store.units, f"{store.root}: {rows} rows, {store.units} units were written"


def _read_apart(store: Store, cores: int) -> None:
    """Read all of it in as many processes at a time, each on a core of its own."""
    children = []
    for core in sorted(os.sched_getaffinity(0))[:cores]:
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                os.sched_setaffinity(0, {core})
                read_on(store, 1)
                failed = 0
            finally:
                os._exit(failed)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
