"""A store, and what stands under its path on another machine, or a moment later."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from oracle import stores

SEGMENT = 1 << 16


def built(root: Path, count: int = 600, since: int = 0, letter: bytes = b"a", rewritten: int | None = None) -> Path:
    """A store of messages that take as many bytes in each such store.

    Args:
        since: how much later its messages were stored (ms), than those of others.
        letter: what is in their bodies.
        rewritten: from this message on it is another history.
    """
    shutil.copytree(_made(count, since, letter, rewritten), root, dirs_exist_ok=True)
    return root


@functools.cache
def _made(count: int, since: int, letter: bytes, rewritten: int | None) -> Path:
    """Each such store is built only once in a process."""
    home = tempfile.TemporaryDirectory()
    atexit.register(home.cleanup)
    store = stores.StoreBuilder(
        Path(home.name) / "store", segment_size=SEGMENT, queue_file_size=2000, index=True, index_items=150
    )
    store.now += since
    for number in range(count):
        if number == rewritten:
            store.now += 5_000_000
        store.append(
            f"T{number % 3}", letter * 300, queue_id=number % 2, tags=f"g{number % 5}", keys=f"k{number}", msg_id="u"
        )
    store.close()
    return store.root


def another(root: Path) -> None:
    """The store of another broker: as many messages, as long as these."""
    shutil.rmtree(root)
    built(root, since=1)


def other_bodies(root: Path) -> None:
    """Only the messages' bodies differ."""
    shutil.rmtree(root)
    built(root, letter=b"b")


def older(root: Path) -> None:
    """A copy from before the last message."""
    shutil.rmtree(root)
    built(root, count=599)


def cut_and_gone_on(root: Path) -> None:
    """The same beginning, and another history."""
    shutil.rmtree(root)
    built(root, rewritten=500)


def unmounted(root: Path) -> None:
    """An empty directory."""
    shutil.rmtree(root)
    root.mkdir()


def gone(root: Path) -> None:
    """Nothing at all."""
    shutil.rmtree(root)


def with_other_segments(root: Path) -> None:
    """The same files under other names."""
    for path in sorted((root / "commitlog").iterdir(), reverse=True):
        path.rename(path.with_name(f"{int(path.name) + 100 * SEGMENT:020d}"))


def grown(root: Path) -> None:
    """Half as much again."""
    shutil.rmtree(root)
    built(root, count=900)


def expired(root: Path) -> None:
    """Its broker has deleted the first segment."""
    min((root / "commitlog").iterdir()).unlink()


# What the error says where the store has been replaced so.
REPLACED: dict[Callable[[Path], None], str] = {
    another: r"sees another store under {root} than the plan: .*expected a message \(storeSize \d+, .*storeTimestamp .*"
    r"found a message \(storeSize",
    other_bodies: r"sees another store under {root} than the plan: .*bodyCRC -?\d+\), found .*bodyCRC",
    older: r"sees another store under {root} than the plan \(it begins alike: an older copy, or one that was cut\): "
    r".*found zeros",
    cut_and_gone_on: r"sees another store under {root} than the plan \(it begins alike: an older copy, or one that was",
    unmounted: r"commitlog: it is gone since a read was planned",
    gone: r"commitlog: it is gone since a read was planned",
    with_other_segments: r"sees another store under {root} than the plan: .*found no such file",
}

_COVERED = ["topic", "queueId", "commitLogOffset"]
# Each way to read a store: what kind of pieces its tasks have, the columns and the options.
READS: dict[str, tuple[str, Sequence[str], dict[str, Any]]] = {
    "scan": ("Scanned", ["keys", "body"], {}),
    "endingTimestamp": ("Scanned", ["keys"], {"endingTimestamp": stores.FIRST_TIMESTAMP + 200}),
    "offsets": ("Queued", ["keys"], {"assign": '{"T1": [1]}', "startingOffsets": '{"T1": {"1": 10}}'}),
    "topic": ("Queued", ["keys"], {"subscribe": "T1"}),
    "tags": ("Queued", ["keys"], {"subscribe": "T2", "tags": "g1"}),
    "assign": ("Queued", ["keys"], {"assign": '{"T1": [1]}'}),
    "key": ("Indexed", ["keys"], {"key": "k77", "subscribe": "T2"}),
    "trust": ("Queued", ["keys"], {"subscribe": "T1", "trust": "queues"}),
    "covered": ("Covered", _COVERED, {"trust": "queues"}),
    "covered topic": ("Covered", _COVERED, {"trust": "queues", "subscribe": "T1"}),
}
