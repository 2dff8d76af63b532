"""Ranges of pinned objects, each fetched with one request, in the calling thread or another."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from rmqstore_spark.errors import StorageError
from rmqstore_spark.store.io.files import Pin
from rmqstore_spark.store.io.guest import Pace
from rmqstore_spark.store.io.read_ahead import AT_ONCE
from rmqstore_spark.store.io.remote.buckets import Buckets
from rmqstore_spark.store.io.remote.objects import Objects

_Answer = TypeVar("_Answer")

_THREADS = 256  # that wait for small answers


class Ranges:
    """Bytes of objects that agree with their pins (If-Match), or have grown since.

    Args:
        count: called with the requests and bytes.
        pace: the throttle of all requests together; None: no limit.
    """

    def __init__(self, buckets: Buckets, count: Callable[[int, int], None], pace: Pace | None) -> None:
        self._buckets = buckets
        self._count = count
        self._pace = pace
        self._gone_on: dict[tuple[str, str | None], Pin] = {}  # newer pins of objects that have grown

    def fetch(self, path: str, pin: Pin, start: int, stop: int) -> memoryview:
        """The bytes [start, stop) of an object, all within the object.

        Raises:
            StorageError: another object is there, or none; or the storage refuses or does not answer.
        """
        if self._pace is not None:
            self._pace.wait(stop - start)
        objects, key = self._buckets.of(path)
        there = self._gone_on.get((path, pin.tag), pin)
        try:
            data = objects.get(key, start, stop, there)
        except StorageError:
            newer = self._newer(objects, key, pin)
            if newer is None or newer == there:
                raise
            self._gone_on[path, pin.tag] = newer
            data = objects.get(key, start, stop, newer)
        self._count(1, stop - start)
        return data

    def fetch_in_background(self, path: str, pin: Pin, start: int, stop: int) -> "Future[memoryview]":
        """fetch() in another thread."""
        return in_background(functools.partial(self.fetch, path, pin, start, stop))

    def fetch_block(self, path: str, pin: Pin, start: int, stop: int) -> "Future[memoryview]":
        """fetch() of a large block, in another thread. Few threads do this, as the C library keeps the memory of a
        block for each thread."""
        return _pools(os.getpid())[1].submit(self.fetch, path, pin, start, stop)

    def _newer(self, objects: Objects, key: str, pin: Pin) -> Pin | None:
        """The pin of the object at the key now, if it is the same object, grown."""
        if pin.proof is None:
            return None
        offset, expected = pin.proof
        found = objects.look(key)
        self._count(2, len(expected))
        if found is None or found.size < pin.size:
            return None
        return found if objects.get(key, offset, offset + len(expected), found) == expected else None


def in_background(fetch: Callable[[], _Answer]) -> "Future[_Answer]":
    """Let another thread make a request."""
    return _pools(os.getpid())[0].submit(fetch)


@functools.lru_cache(1)
def _pools(process: int) -> tuple[ThreadPoolExecutor, ThreadPoolExecutor]:
    """The threads of a process that fetch, and those that fetch large blocks. After a fork there are none."""
    return ThreadPoolExecutor(_THREADS, "rmqstore-fetch"), ThreadPoolExecutor(AT_ONCE, "rmqstore-block")
