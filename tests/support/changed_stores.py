"""Stores, and what others do to them: a broker that appends, deletes what has expired, or cuts its log; damage."""

from __future__ import annotations

import functools
import itertools
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oracle import reference, stores

SEGMENT = 2048
Operation = Callable[[Path], None]

_CONFIG = {
    "config/consumerOffset.json": b'{"offsetTable":{"Orders@G":{0:1,1:4},"Bills@G":{0:1,1:4}}}',
    "config/subscriptionGroup.json": b'{"subscriptionGroupTable":{"G":{"groupName":"G"}}}',
}


class Content(dict[str, bytes]):
    """The files of a store: their paths below it, and their bytes."""

    @classmethod
    def of(cls, root: Path) -> Content:
        files = (path for path in sorted(root.rglob("*")) if path.is_file())
        return cls({str(path.relative_to(root)): path.read_bytes() for path in files})

    def below(self, directory: str) -> list[str]:
        return [name for name in self if name.startswith(f"{directory}/")]

    def with_(self, changed: Mapping[str, bytes | None]) -> Content:
        return Content({name: data for name, data in {**self, **changed}.items() if data is not None})


@dataclass(frozen=True)
class Change:
    """What happens to a store while it is read.

    Attributes:
        states: what it is at first, and what it becomes.
        in_place: whether files keep their inodes, as those that a broker writes to do.
        every: calls between two steps; 0: all happens at once.
        torn: whether each stretch of bytes comes in two steps.
        between: states that a reader of the last one may take it for, as a log is read from its beginning.
        kind: "grows", "expires", or another one.
        fault: how a server answers instead, for a store in a bucket.
        stalls: how many seconds a call takes, and nothing changes.
    """

    name: str
    states: list[Content]
    in_place: bool = True
    every: int = 0
    torn: bool = False
    between: list[Content] = field(default_factory=list)
    kind: str = ""
    fault: tuple[str, int] | None = None
    stalls: float = 0

    @property
    def possible(self) -> list[Content]:
        return [self.states[0], *self.between, *self.states[1:]]

    def touched(self) -> set[str]:
        first = self.states[0]
        return {name for each in self.states[1:] for name in {**first, **each} if first.get(name) != each.get(name)}

    def steps(self) -> list[Operation]:
        return [step for before, after in itertools.pairwise(self.states) for step in self._steps(before, after)]

    def _steps(self, before: Content, after: Content) -> Iterator[Operation]:
        for name in sorted({**before, **after}, key=_rank):
            old, new = before.get(name), after.get(name)
            if old == new:
                continue
            if new is None:
                yield functools.partial(_delete, name)
            elif self.in_place:
                yield from _written(name, old or b"", new, self.torn)
            else:
                yield functools.partial(_put, name, new)


class Place:
    """A directory in which a store becomes another one, and that one again."""

    def __init__(self, root: Path, change: Change) -> None:
        self._root = root
        self._touched = change.touched()
        shutil.rmtree(root, ignore_errors=True)
        for name, data in change.states[0].items():
            _put(name, data, root)

    def set(self, content: Content) -> None:
        for name in self._touched:
            data = content.get(name)
            if data is None:
                _delete(name, self._root)
            elif not (self._root / name).exists() or (self._root / name).read_bytes() != data:
                _put(name, data, self._root)


def _rank(name: str) -> tuple[int, str]:
    """A broker writes the log first, then queues, then the index."""
    order = ("commitlog/", "consumequeue/", "index/")
    return next((i for i, each in enumerate(order) if name.startswith(each)), len(order)), name


def _put(name: str, data: bytes, root: Path) -> None:
    """Another file under that name."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(data)
    new.rename(path)


def _delete(name: str, root: Path) -> None:
    (root / name).unlink(missing_ok=True)


def _resize(name: str, size: int, root: Path) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, size)


def _write(name: str, at: int, data: bytes, root: Path) -> None:
    with (root / name).open("r+b") as file:
        file.seek(at)
        file.write(data)


def _written(name: str, old: bytes, new: bytes, torn: bool) -> Iterator[Operation]:
    if len(old) != len(new) or not new:
        yield functools.partial(_resize, name, len(new))
    same = old[: len(new)].ljust(len(new), b"\0")
    differ = [at for at, (one, other) in enumerate(zip(same, new, strict=True)) if one != other]
    if not differ:
        return
    first, stop = differ[0], differ[-1] + 1
    cuts = [first, (first + stop) // 2, stop] if torn and stop - first > 1 else [first, stop]
    for start, end in itertools.pairwise(cuts):
        yield functools.partial(_write, name, start, new[start:end])


# ---- what happens


def faults(scratch: Path, count: int) -> Iterator[Change]:
    """A server's, at one request, or from one on."""
    closed = _closed(scratch, count)
    for every, often in ((0, "once"), (1, "for ever")):
        for name, status in [("status", each) for each in (403, 404, 412, 416, 500, 503)] + [("reset", 0)]:
            yield Change(f"{name} {status} {often}", [closed, closed], every=every, fault=(name, status))


def changes(scratch: Path, rng: random.Random, count: int) -> Iterator[Change]:
    """All that may happen to a store of so many messages."""
    running = _made(scratch, count, more=8)
    yield Change("grows by one", running[:2], kind="grows")
    yield Change("grows", [running[0], running[-1]], between=running[1:-1], kind="grows")
    for every in (1, 7):
        yield Change(f"grows in steps, {every}", running, every=every, kind="grows")
        yield Change(f"grows in torn steps, {every}", running[:4], every=every, torn=True, kind="grows")
    closed = _closed(scratch, count)
    for name, state in (("closed", closed), ("running", running[0])):
        yield Change(f"stalls, {name}", [state, state], stalls=0.5, kind="stalls")
        yield Change(f"expires, {name}", [state, expired(state, 2)], kind="expires")
        states = [state, *(expired(state, segments) for segments in (1, 2, 4))]
        yield Change(f"expires in steps, {name}", states, every=5, kind="expires")
    later = _cut_and_gone_on(scratch, count, forgotten=5, more=9)
    yield Change("cut and gone on", [running[0], later])
    yield Change("cut and gone on in steps", [running[0], later], every=1)
    (another,) = _made(scratch, count, letter=b"z")
    yield Change("another store", [running[0], another], in_place=False)
    yield Change("another store in place", [running[0], another])
    yield from _damaged(closed, rng)
    for part in ("commitlog", "consumequeue", "index", "config"):
        yield Change(f"{part} gone", [closed, closed.with_(dict.fromkeys(closed.below(part)))])
    yield Change("all gone", [closed, Content()])


def _damaged(closed: Content, rng: random.Random) -> Iterator[Change]:
    logs, queues, index = (closed.below(part) for part in ("commitlog", "consumequeue", "index"))
    some = {logs[0], logs[len(logs) // 2], logs[-1], queues[0], rng.choice(queues), queues[-1], rng.choice(index)}
    for name in sorted({*some, index[-1], *closed.below("config")}):
        data = closed[name]
        for size in {0, rng.randrange(min(100, len(data))), rng.randrange(len(data))}:
            yield Change(f"{name} cut to {size}", [closed, closed.with_({name: data[:size]})])
        for what, found in (("gone", None), ("zeroed", bytes(len(data))), ("garbage", rng.randbytes(len(data)))):
            yield Change(f"{name} {what}", [closed, closed.with_({name: found})])


# ---- stores


def _builder(scratch: Path) -> stores.StoreBuilder:
    shutil.rmtree(scratch / "making", ignore_errors=True)
    return stores.StoreBuilder(scratch / "making", SEGMENT, 100, index=True, index_slots=10, index_items=12)


def _append(store: stores.StoreBuilder, numbers: Iterable[int], letter: bytes = b"b") -> None:
    for number in numbers:
        store.append(
            ("Orders", "Bills", "%RETRY%G")[number % 3],
            letter * (number * 37 % 300),
            queue_id=number % 2,
            keys=f"order-{number // 10} n{number}",
            tags=f"g{number % 4}",
            msg_id=f"{number:032X}",
            store_host="10.0.0.1:10911",
        )


def _content(store: stores.StoreBuilder) -> Content:
    store.flush()
    return Content.of(store.root).with_(_CONFIG)


def _closed(scratch: Path, count: int) -> Content:
    store = _builder(scratch)
    _append(store, range(count))
    store.close()
    return _content(store)


def _made(scratch: Path, count: int, more: int = 0, letter: bytes = b"b") -> list[Content]:
    """That of a running broker with so many messages, and after each of some more."""
    store = _builder(scratch)
    _append(store, range(count), letter)
    store.close(clean=False)
    states = [_content(store)]
    for number in range(count, count + more):
        _append(store, [number], letter)
        states.append(_content(store))
    return states


def expired(state: Content, segments: int) -> Content:
    """As a broker leaves it: without the first segments, and the files of queues and index that lead only there."""
    logs = state.below("commitlog")
    gone: dict[str, bytes | None] = dict.fromkeys(logs[:segments])
    begin = int(logs[segments].rpartition("/")[2])
    for _, names in itertools.groupby(state.below("consumequeue"), lambda name: name.rpartition("/")[0]):
        lasts = ((name, struct.unpack(">q", state[name][-20:-12])[0]) for name in list(names)[:-1])
        gone |= dict.fromkeys(name for name, last in lasts if last < begin)
    for name in state.below("index")[:-1]:
        if reference.decode_index_header(state[name]).end_physical_offset < begin:
            gone[name] = None
    return state.with_(gone)


def _cut_and_gone_on(scratch: Path, count: int, forgotten: int, more: int) -> Content:
    """Its broker was killed, has lost the last messages, and has others in their place."""
    store = _builder(scratch)
    _append(store, range(count))
    store.close(clean=False)
    store.forget_last(forgotten)
    store.now += 10_000
    _append(store, range(count + 5, count + 5 + more), b"c")
    return _content(store)
