"""Section `many`: the history of a key that more and more messages have, and a consumerOffset.json with more and more
offsets. As in section `scale` each number is of a process of its own (probe.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from generate import kept
from measure import Row
from scale import exponent, probe

import rmqstore_spark

MESSAGES, OFFSETS = (1_000, 4_000, 16_000), (250_000, 1_000_000, 4_000_000)
KEY = "order-1"
QUEUES = 8  # of each group and topic


def many_rows(directory: Path, repeat: int) -> Iterator[Row]:
    """CPU seconds of each size, and how they and the memory grow."""
    yield from _growth(
        "history of a key", "messages with it", MESSAGES, directory, _write_messages, repeat, history=KEY
    )
    yield from _growth(
        "table offsets", "offsets in consumerOffset.json", OFFSETS, directory, _write_offsets, repeat, table="offsets"
    )


def _growth(
    what: str,
    axis: str,
    numbers: tuple[int, ...],
    directory: Path,
    write: Callable[[Path, int], None],
    repeat: int,
    **work: Any,
) -> Iterator[Row]:
    roots = [_written(directory / f"many-{next(iter(work))}-{number}", number, write) for number in numbers]
    cpu, peak = [], []
    for number, root in zip(numbers, roots, strict=True):
        given = [{"root": str(each), **work} for each in (roots[0], root)]
        costs = [probe(*given) for _ in range(repeat)]
        cpu.append(min(cost["planning"]["cpu"] for cost in costs))
        peak.append(min(cost["peak"] for cost in costs) / 1e6)
        yield Row(f"{what}, {number:,} {axis}", cpu[-1], "CPU s", costs={"MB peak": peak[-1]})
    for name, found in (("CPU s", cpu), ("MB peak", peak)):
        points = list(zip(numbers, found, strict=True))
        whole = {"over all": exponent(points)}
        yield Row(f"{what}, growth of {name}", exponent(points[-2:]), "exponent", None, "<= 1.05", whole)


def _written(root: Path, number: int, write: Callable[[Path, int], None]) -> Path:
    def written(partial: Path) -> dict[str, Any]:
        write(partial, number)
        return {}

    kept(root, {"number": number, "format": 1}, written)
    return root


def _write_messages(root: Path, number: int) -> None:
    """So many messages with one key, in one queue."""
    rows = {"topic": ["Orders"] * number, "keys": [KEY] * number, "body": [b"x" * 100] * number}
    rmqstore_spark.write_store(root, pa.table({**rows, "queueId": pa.array([0] * number, pa.int32())}))


def _write_offsets(root: Path, number: int) -> None:
    """A message, and so many offsets of groups with 100 topics each."""
    _write_messages(root, 1)
    names = (f"Topic{at % 2000:05d}@Group{at // 100:06d}" for at in range(number // QUEUES))
    table = {name: {str(queue): at + queue for queue in range(QUEUES)} for at, name in enumerate(names)}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}, separators=(",", ":")))
