"""What can happen to the accelerators of a store: to its ConsumeQueues and index files."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from oracle import reference
from oracle.aged_stores import LMQ, SLOTS, aged_store


def _files(root: Path, rng: random.Random, *patterns: str) -> Path | None:
    found = sorted(
        path for pattern in patterns for path in root.glob(pattern) if path.is_file() and path.stat().st_size
    )
    return rng.choice(found) if found else None


_QUEUE_FILES = ("consumequeue/*/*/*", "batchconsumequeue/*/*/*")
_INDEX_FILES = ("index/*",)
_ANY = _QUEUE_FILES + _INDEX_FILES


def _without(name: str) -> Callable[[Path, random.Random], None]:
    return lambda root, rng: shutil.rmtree(root / name, ignore_errors=True)


def _lose_queue(root: Path, rng: random.Random) -> None:
    if path := _files(root, rng, *_QUEUE_FILES):
        shutil.rmtree(path.parent)


def _lose_file(root: Path, rng: random.Random) -> None:
    if path := _files(root, rng, *_ANY):
        path.unlink()


def _cut_file(root: Path, rng: random.Random) -> None:
    if path := _files(root, rng, *_ANY):
        path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def _zero_tail(root: Path, rng: random.Random) -> None:
    """Of a queue file from any byte on, of an index file's items from any item on."""
    if path := _files(root, rng, *_ANY):
        data = path.read_bytes()
        at = rng.randrange(len(data))
        if path.parent.name == "index":
            at = reference.index_item_at(SLOTS, rng.randrange(1, _items(data) + 1))
        path.write_bytes(data[:at].ljust(len(data), b"\0"))


def _items(data: bytes | bytearray) -> int:
    """The number of items, and one more, as the header says, unless that is noise."""
    room = (len(data) - reference.index_item_at(SLOTS, 0)) // reference.INDEX_ITEM_SIZE
    said = reference.decode_index_header(data).index_count if len(data) >= reference.INDEX_HEADER_SIZE else 0
    return max(1, min(said, room))


def _old_units(root: Path, rng: random.Random) -> None:
    """Units behind a queue's end that point to older messages, as after a truncation."""
    if path := _files(root, rng, *_QUEUE_FILES[:1]):
        data = path.read_bytes()
        used = data.rstrip(b"\0")
        used = data[: -(-len(used) // 20) * 20]
        again = used[rng.randrange(0, len(used) + 1, 20) :]
        path.write_bytes((used + again)[: len(data)].ljust(len(data), b"\0"))


def _noise(root: Path, rng: random.Random) -> None:
    if path := _files(root, rng, *_ANY):
        path.write_bytes(rng.randbytes(path.stat().st_size))


def _wrong_units(root: Path, rng: random.Random) -> None:
    """A position or a size that is not right, somewhere in a queue."""
    if path := _files(root, rng, *_QUEUE_FILES[:1]):
        data = bytearray(path.read_bytes().ljust(20, b"\0"))
        at = rng.randrange(0, len(data) - 19, 20)
        position, size = struct.unpack_from(">qi", data, at)
        position = rng.choice((position, position + 1, position - 100, position + (1 << 32), (1 << 63) - 1))
        size = rng.choice((size, size + 1, size - 1, size + 100, (1 << 31) - 1))
        struct.pack_into(
            ">qi", data, at, min(max(-(1 << 63), position), (1 << 63) - 1), min(max(0, size), (1 << 31) - 1)
        )
        path.write_bytes(data)


def _cycle(root: Path, rng: random.Random) -> None:
    if path := _files(root, rng, *_INDEX_FILES):
        data = bytearray(path.read_bytes())
        items = _items(data)
        if items > 1:
            number = rng.randrange(1, items)
            at = reference.index_item_at(SLOTS, number) + 16
            struct.pack_into(">i", data, at, rng.randrange(number, items + 2))
            path.write_bytes(data)


def _two_queues(root: Path, rng: random.Random) -> tuple[Path, Path] | None:
    queues = sorted(path for path in root.glob("consumequeue/*/*") if path.parent.name != LMQ)
    return tuple(rng.sample(queues, 2)) if len(queues) > 1 else None  # type: ignore[return-value]


def _swap_queues(root: Path, rng: random.Random) -> None:
    if pair := _two_queues(root, rng):
        one, other = pair
        one.rename(root / "aside")
        other.rename(one)
        (root / "aside").rename(other)


def _copy_queue(root: Path, rng: random.Random) -> None:
    if pair := _two_queues(root, rng):
        shutil.rmtree(pair[1])
        shutil.copytree(*pair)


def _foreign(root: Path, rng: random.Random) -> None:
    """The accelerators of another store."""
    other, _ = aged_store(root / "other", random.Random(rng.random()))
    for name in rng.choice((["index"], ["consumequeue", "batchconsumequeue"])):
        shutil.rmtree(root / name, ignore_errors=True)
        if (other.root / name).exists():
            (other.root / name).rename(root / name)
    shutil.rmtree(other.root)


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "no ConsumeQueue": _without("consumequeue"),
    "no BatchCQ": _without("batchconsumequeue"),
    "no index": _without("index"),
    "a queue lost": _lose_queue,
    "a file lost": _lose_file,
    "a file cut": _cut_file,
    "a zeroed tail": _zero_tail,
    "old units": _old_units,
    "noise": _noise,
    "wrong units": _wrong_units,
    "a cycle": _cycle,
    "queues swapped": _swap_queues,
    "a queue copied": _copy_queue,
    "of another store": _foreign,
}
