"""Writes that are killed, or fail, at the n-th change they make; and what they write."""

from __future__ import annotations

import os
from typing import Any

from rmqstore_spark.store.sizes import Sizes
from rmqstore_spark.write import disk
from support.writing import Row

SIZES = Sizes(segment=2048, queue_file=400, slots=10, items=100)


class Killed(BaseException):
    """No code handles it: what it leaves is what a kill leaves."""


class Stopper:
    """Lets the n-th change on disk fail: as a kill, and all after it as well; as an error, only that one, if not told
    otherwise."""

    def __init__(self) -> None:
        self._real = disk._do
        self._left: int | None = None
        self._error: type[BaseException] = Killed
        self._for_ever = True
        self.calls = 0
        self.written: set[str] = set()  # names of files

    def at(self, number: int | None, error: type[BaseException] = Killed, for_ever: bool = False) -> None:
        self._left, self._error, self.calls = number, error, 0
        self._for_ever = for_ever or error is Killed

    def __call__(self, call: Any, path: str, *arguments: Any) -> Any:
        self.calls += 1
        if call.__name__ == "_pwrite":
            self.written.add(os.path.basename(path))
        if self._left is not None and self.calls > self._left:
            if not self._for_ever:
                self._left = None
            raise self._error(path)
        return self._real(call, path, *arguments)


def rows(count: int, topic: str, first: int = 0) -> list[Row]:
    return [
        {
            "topic": topic if i % 3 else "Both",
            "queueId": i % 2,
            "keys": f"k{i}",
            "msgId": f"{topic}-{i}",
            "body": b"%d " % i * (10 + i % 7),
            "storeTimestamp": (1_700_000_000_000 + i) * 1000,
        }
        for i in range(first, first + count)
    ]
