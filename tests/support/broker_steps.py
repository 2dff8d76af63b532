"""What a broker does to its store, piece by piece: a unit's bytes, then its queue unit, then its index item; the
checkpoint; segments that begin; and expiry."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from oracle import stores

from support.changed_stores import _CONFIG, Content, _append, _builder, _put, _resize, expired
from support.recorded import Step, lock


def _in_store(step: Callable[[Path], None]) -> Step:
    return lambda home: step(home / "store")


def all_of(steps: Iterable[Step], home: Path) -> None:
    for step in steps:
        step(home)


def _pwrite(name: str, at: int, data: bytes, root: Path) -> None:
    with (root / name).open("r+b") as file:
        file.seek(at)
        file.write(data)


def _pieces(rng: random.Random, start: int, stop: int, most: int) -> Iterator[tuple[int, int]]:
    """Ascending, as memory is copied."""
    cuts = sorted({start, stop, *(rng.randrange(start, stop) for _ in range(rng.randrange(most)))})
    yield from itertools.pairwise(cuts)


def _changed(old: bytes, new: bytes) -> Iterator[tuple[int, int]]:
    """The stretches that differ; a few equal bytes are part of one."""
    at = 0
    differ = [n for n, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
    while differ:
        at = differ[0]
        stop = at + 1
        rest = []
        for n in differ:
            if n < stop + 8:
                stop = n + 1
            else:
                rest.append(n)
        yield at, stop
        differ = rest


def steps_between(rng: random.Random, before: Content, after: Content) -> Iterator[Step]:
    """As a broker writes: log, queues, index (items, then the header, which is first in the file), the rest."""
    ranks = ("commitlog/", "consumequeue/", "index/")

    def rank(name: str) -> tuple[int, str]:
        return next((i for i, each in enumerate(ranks) if name.startswith(each)), len(ranks)), name

    for name in sorted({**before, **after}, key=rank):
        old, new = before.get(name), after.get(name)
        if old == new or new is None:
            continue
        if rank(name)[0] == len(ranks):
            yield _in_store(partial(_put, name, new))
            continue
        if old is None or len(old) != len(new):
            yield _in_store(partial(_resize, name, len(new)))
            old = (old or b"")[: len(new)].ljust(len(new), b"\0")
        stretches = list(_changed(old, new))
        if name.startswith("index/"):
            stretches.reverse()
        for start, stop in stretches:
            for begin, end in _pieces(rng, start, stop, 6 if name.startswith("commitlog/") else 3):
                yield _in_store(partial(_pwrite, name, begin, new[begin:end]))


def states(scratch: Path, count: int, more: int, late_queues: bool) -> list[Content]:
    """Of a running broker: after each message; where queues are late, the log alone goes on first."""
    store = _builder(scratch)
    _append(store, range(count))
    store.close(clean=False)
    found = [_content(store)]
    for number in range(count, count + more):
        _append(store, [number])
        found.append(_content(store))
    if late_queues:
        last = found[-1]
        log = last.below("commitlog")
        logs = [found[0].with_({name: state[name] for name in state.below("commitlog")}) for state in found]
        return [*logs, *(state.with_({name: last[name] for name in log}) for state in found[1:])]
    return found


def _content(store: stores.StoreBuilder) -> Content:
    store.flush()
    return Content.of(store.root).with_(_CONFIG)


def broker_states(scratch: Path, rng: random.Random, count: int) -> Iterator[tuple[str, list[Content], bool]]:
    yield "broker appends", states(scratch, count, 3, False), False
    yield "broker appends, more", states(scratch, count, 10, False), False
    yield "broker appends, queues come late", states(scratch, count, 5, True), False
    running = states(scratch, count, 2, False)
    yield "broker deletes", [running[0], expired(running[0], 1), expired(running[0], 2)], True
    yield "broker appends and deletes", [running[0], running[1], expired(running[1], 1), expired(running[2], 1)], True


def steps_of(rng: random.Random, some: list[Content]) -> list[Step]:
    steps: list[Step] = [partial(lock, "store/lock")]  # it runs
    for before, after in itertools.pairwise(some):
        gone = [name for name in sorted(before) if name not in after]
        steps += [_in_store(partial(_delete, name)) for name in gone]
        steps += steps_between(rng, before, after)
    return steps


def _delete(name: str, root: Path) -> None:
    (root / name).unlink(missing_ok=True)


def made(scratch: Path, name: str, state: Content) -> Path:
    home = scratch / f"before {name}"
    shutil.rmtree(home, ignore_errors=True)
    for each, data in state.items():
        _put(each, data, home / "store")
    return home
