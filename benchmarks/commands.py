"""What the command line takes from a fresh process to its answer: on a store of the usual size, and on one with many
queues. Several consumer groups have consumed all of its topics."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
from measure import HERE, Row, Stores, batches_of
from wide import Shape, wide_store

GROUPS = 3
QUEUES = 20_000
SEGMENTS = 4
_PARTS = ("commitlog", "consumequeue", "index", "checkpoint")


def command_rows(stores: Stores, repeat: int, directory: Path, scratch: Path) -> Iterator[Row]:
    """Seconds, the best of `repeat` runs, and the CPU seconds of the run that took least of them."""
    large = stores.large
    keys = next(batches_of(large, names=["keys"])).column("keys")
    key = str(keys.filter(pc.is_valid(keys))[0].as_py()).split(" ")[0]
    shape = Shape(QUEUES, SEGMENTS)
    wide = wide_store(directory / f"wide-queues{QUEUES}-segments{SEGMENTS}", shape)
    sizes = {f"{large.end / 1e9:.1f} GB": (large.root, key), f"{QUEUES:,} queues": (wide.root, wide.message.key)}
    for size, (root, wanted) in sizes.items():
        store = _with_groups(root, scratch / size.replace(" ", ""))
        for words in (["show"], ["offsets", "--format", "json"], ["get", "--key", wanted]):
            command = [words[0], str(store), *words[1:]]
            _run(command)
            best, least = zip(*(_run(command) for _ in range(repeat)), strict=True)
            yield Row(f"rmqstore {' '.join(words[:2])}, {size}", min(best), "s", costs={"CPU s": min(least)})


def _with_groups(root: Path, store: Path) -> Path:
    """The same store, with what groups have consumed: half of each queue."""
    store.mkdir()
    for name in _PARTS:
        (store / name).symlink_to(root / name)
    (store / "config").mkdir()
    queues = sorted((root / "consumequeue").glob("*/*"))
    offsets: dict[str, dict[str, int]] = {}
    for queue in queues:
        units = sum(file.stat().st_blocks * 512 // 20 for file in queue.iterdir())
        for group in range(GROUPS):
            offsets.setdefault(f"{queue.parent.name}@Group{group}", {})[queue.name] = units // 2
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return store


def _run(arguments: list[str]) -> tuple[float, float]:
    """Seconds, and CPU seconds, of a process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
    before, begin = _cpu(), time.perf_counter()
    command = [sys.executable, "-m", "rmqstore_spark", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begin, _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
