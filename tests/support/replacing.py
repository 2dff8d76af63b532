"""A store, and what stands under its path on another machine, or a moment later."""

from __future__ import annotations

import shutil
from pathlib import Path

from oracle import stores

SEGMENT = 1 << 16


def built(root: Path, count: int = 600, since: int = 0, letter: bytes = b"a", rewritten: int | None = None) -> Path:
    """A store of messages that take as many bytes in each such store.

    Args:
        since: how much later its messages were stored (ms), than those of others.
        letter: what is in their bodies.
        rewritten: from this message on it is another history.
    """
    store = stores.StoreBuilder(root, segment_size=SEGMENT, queue_file_size=2000, index=True, index_items=150)
    store.now += since
    for number in range(count):
        if number == rewritten:
            store.now += 5_000_000
        store.append(
            f"T{number % 3}", letter * 300, queue_id=number % 2, tags=f"g{number % 5}", keys=f"k{number}", msg_id="u"
        )
    store.close()
    return root


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
