"""Reads and writes of a small store, each as often as its kernel asks for memory, while one request is refused
(scarce_memory.c, preloaded): what came of it, a line for each that was not as it should be, and at last the counts."""

from __future__ import annotations

import ctypes
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import rmqstore_spark
from rmqstore_spark import NotAStoreError, Store
from rmqstore_spark.columns import COLUMNS

_LIBRARY = ctypes.CDLL(None)
_MOST = 3000  # requests of one operation


def _operations(root: Path, scratch: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    def rows(**options: Any) -> Callable[[], Any]:
        return lambda: Store(root).messages(list(COLUMNS), **options).read_all().to_pylist()

    yield "all", rows()
    yield "a tag", rows(tags="TagA")
    yield "a key", rows(key="key")
    yield "a body", rows(bodyContains="o")
    yield "an expression", rows(sql92="TAGS = 'TagA' OR KEYS IS NOT NULL")
    yield "kept as they are", rows(decompress=False)
    for table in ("queues", "topics", "check", "usage"):
        yield table, partial(_table, root, table)
    source, new = Store(root).messages(["topic", "body", "keys", "tags", "properties"]).read_all(), scratch / "new"
    source = source.filter(pc.not_equal(source.column("body"), b"lights"))  # only a broker numbers them
    before = _bodies(root)

    def write() -> list[bytes]:
        return _changed(new, lambda: rmqstore_spark.write_store(new, source), [])

    def rebuild() -> list[bytes]:
        shutil.copytree(root, new)
        return _changed(new, lambda: rmqstore_spark.rebuild(new), before)

    yield "write", write
    yield "rebuild", rebuild


def _table(root: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = getattr(Store(root), name)().to_pylist()
    return rows


def _bodies(root: Path) -> list[bytes]:
    try:
        bodies: list[bytes] = Store(root).messages(["body"]).read_all().column("body").to_pylist()
    except NotAStoreError:
        return []
    return bodies


def _changed(root: Path, act: Callable[[], Any], before: list[bytes]) -> list[bytes]:
    """What a store has after it. Without memory it has what it had."""
    try:
        try:
            act()
        except MemoryError:
            if _bodies(root) != before:
                raise AssertionError("a part of it was done") from None
            raise
        return _bodies(root)
    finally:
        if root.exists():
            shutil.rmtree(root)


def _tried(act: Callable[[], Any]) -> tuple[int, int, list[str]]:
    """How often it was done, how often it said that there was no memory, and what was wrong."""
    expected, told, wrong = act(), 0, []
    for number in range(_MOST):
        _LIBRARY.scarce_refuse(ctypes.c_long(number))
        try:
            found = act()
        except MemoryError:
            told += 1
        except Exception as error:
            wrong.append(f"request {number}: {error!r}")
        else:
            if found != expected:
                wrong.append(f"request {number}: another answer")
        finally:
            was_refused = _LIBRARY.scarce_has_refused()
            _LIBRARY.scarce_refuse(ctypes.c_long(-1))
        if not was_refused:
            return number, told, wrong
    return _MOST, told, wrong


def main() -> None:
    tried = told = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, act in _operations(Path(sys.argv[1]), Path(scratch)):
            count, memory_errors, wrong = _tried(act)
            print(*(f"{name}: {each}" for each in wrong), sep="\n", end="\n" if wrong else "")
            print(name, count, memory_errors, file=sys.stderr)
            tried, told = tried + count, told + memory_errors
    print(f"{tried} requests refused, {told} told")


if __name__ == "__main__":
    main()
