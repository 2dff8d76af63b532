"""A broker that deletes what has expired just when a call looks at it, or all the time."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, stores

from rmqstore_spark.read.plan import again
from rmqstore_spark.store import queue_coverage
from rmqstore_spark.store.io.files import Files

SEGMENT = 2048
LOOKS: list[tuple[Any, str]] = [
    (Files, name) for name in ("names", "status", "lstat", "exists", "open")
]  # how a file is reached
LOOKS += [(queue_coverage, "read_short_queues"), (queue_coverage, "tile_queues")]


def built(root: Path) -> Path:
    store = stores.StoreBuilder(root, SEGMENT, 100, index=True, index_slots=10, index_items=12)
    for number in range(60):
        topic = ("Orders", "Bills", "%RETRY%G")[number % 3]
        store.append(topic, b"b" * (number * 37 % 300), queue_id=number % 2, keys=f"order-{number // 10} n{number}")
    store.close()
    offsets = {f"{topic}@G": {0: 1, 1: 4} for topic in ("Orders", "Bills")}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    (root / "config" / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{"G":{}}}')
    return root


def expire(root: Path, segments: int = 2) -> None:
    """As a broker: the first segments, then the files of queues and index that lead only there."""
    paths = sorted((root / "commitlog").iterdir())
    for path in paths[:segments]:
        path.unlink(missing_ok=True)
    begin = int(paths[segments].name)
    for queue in (root / "consumequeue").glob("*/*"):
        for path in sorted(queue.iterdir())[:-1]:
            last = path.read_bytes()[-20:]
            if struct.unpack(">qiq", last)[0] < begin:
                path.unlink()
    for path in sorted((root / "index").iterdir())[:-1]:
        if reference.decode_index_header(path.read_bytes()).end_physical_offset < begin:
            path.unlink()


class Deleting:
    """Has a broker delete what has expired just before the n-th look at a file; `often`: and once more some looks after
    that, and so on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
        self.rng = rng
        self.root: Path | None = None
        self.left = -1
        self.often: int | None = None
        monkeypatch.setattr(again, "_PAUSES", tuple(0.0 for _ in again._PAUSES))
        for owner, name in LOOKS:
            monkeypatch.setattr(owner, name, self._watched(getattr(owner, name)))

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def look(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.root is not None and self.left == -1:
                expire(self.root, 2 if self.often is None else 1)
                has_more = len(list((self.root / "commitlog").iterdir())) > 5
                self.left = self.often if self.often is not None and has_more else -1
            return real(*arguments, **named)

        return look


def moments(tmp_path: Path, deleting: Deleting, step: int = 1) -> Iterator[Path]:
    """A store of which something is deleted at the first look, at the second (or some later one), and so on to none;
    of many looks, which are like each other, at some random ones."""
    whole = built(tmp_path / "whole")
    root = tmp_path / "store"
    number = -step
    while True:
        number += step * deleting.rng.randint(1, 1 + max(number, 0) // 20)
        shutil.copytree(whole, root, copy_function=os.link)  # whose names are deleted, and nothing is written
        deleting.root, deleting.left = root, number
        yield root
        left, deleting.root = deleting.left, None
        shutil.rmtree(root)
        if left >= 0:
            assert number > 5
            break
