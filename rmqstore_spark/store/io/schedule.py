"""The order of requests: one after the other where each takes little time, else many at a time.

Functions that run side by side take values and return values: none may change what another one reads.
"""

import bisect
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

REQUESTS_AT_ONCE = 256
_POOLS = 2  # maps inside each other that have threads
_PROBES = 32  # probes of one search at a time

_share: contextvars.ContextVar["_Share | None"] = contextvars.ContextVar("_share", default=None)  # of a mapped function
_depth = contextvars.ContextVar("_depth", default=0)  # of mapped functions that are around this one
_maps = contextvars.ContextVar("_maps", default="mapped")  # whose threads they have


class Serial:
    """Requests one after the other, in the calling thread: for files on a disk."""

    def mapped(self, function: Callable[[_Item], _Answer], items: Iterable[_Item]) -> list[_Answer]:
        """The function's answers to all items, in their order. No answer may depend on another one.

        Raises:
            Exception: the error of the first item, in order, for which the function raised one.
        """
        return [function(item) for item in items]

    def partition_point(self, least: int, most: int, holds: Callable[[int], bool], probes: int = _PROBES) -> int:
        """The first number in [least, most) for which `holds` is false, else `most`. `holds` is true before that
        number, and false from there on.

        Args:
            holds: makes one request at most.
            probes: how many numbers are tried at a time, where many requests can be under way.
        """
        return bisect.bisect_left(range(most), True, lo=least, key=lambda number: not holds(number))

    def in_background(self, work: Callable[[], _Answer]) -> "Future[_Answer] | None":
        """Let another thread begin work whose answer is needed later. None, and nothing begins, where a request takes
        little time."""
        return None


class Concurrent(Serial):
    """Many requests at a time, by threads that all of the process share: for remote files. A map inside a mapped
    function makes as many as its neighbours leave; inside that one, requests come one after the other."""

    def mapped(self, function: Callable[[_Item], _Answer], items: Iterable[_Item]) -> list[_Answer]:
        """See Serial. When an item fails, items that no thread has begun are dropped."""
        waiting = list(items)
        if len(waiting) < 2 or _at_once() < 2:
            return [function(item) for item in waiting]
        pool, share = _pool(os.getpid(), _depth.get(), _maps.get()), _Share(_at_once(), len(waiting))
        futures = [pool.submit(contextvars.copy_context().run, _inside, share, function, item) for item in waiting]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def partition_point(self, least: int, most: int, holds: Callable[[int], bool], probes: int = _PROBES) -> int:
        """See Serial. Many numbers are tried at a time."""
        while most - least > 1:
            at_once = max(min(_at_once(), probes), 1)
            step = -(-(most - least) // (at_once + 1))
            tried = range(least + step - 1, most, step)
            held = self.mapped(holds, tried)
            count = next((index for index, each in enumerate(held) if not each), len(held))
            most = tried[count] if count < len(held) else most
            least = tried[count - 1] + 1 if count else least
        return most if least == most or holds(least) else least

    def in_background(self, work: Callable[[], _Answer]) -> "Future[_Answer] | None":
        """See Serial. Its maps do not take the threads of the caller's, which would have to wait for them."""
        return _pool(os.getpid(), 0, "background").submit(contextvars.copy_context().run, _behind, work)


@functools.lru_cache(2 * _POOLS + 1)
def _pool(process: int, depth: int, of: str) -> ThreadPoolExecutor:
    """The threads of a process: after a fork there are none. Functions that wait for others have threads of their own,
    or all threads might wait."""
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, f"rmqstore-{of}-{depth}")


class _Share:
    """What mapped functions that run side by side may ask for at a time: each as much as the others leave. Those that
    are done leave theirs to the last ones, which mostly have more to ask than the others had.

    Args:
        requests: of all of them together.
        left: how many functions are not done.
    """

    def __init__(self, requests: int, left: int) -> None:
        self._requests = requests
        self._left = left
        self._lock = threading.Lock()

    @property
    def requests(self) -> int:
        """How many requests one of them may make at a time, as of now."""
        return self._requests // max(self._left, 1)

    def leave(self) -> None:
        """One of them is done."""
        with self._lock:
            self._left -= 1


def _at_once() -> int:
    """How many requests the function that calls may make at a time."""
    share = _share.get()
    if share is None:
        return REQUESTS_AT_ONCE
    return share.requests if _depth.get() < _POOLS else 1


def _behind(work: Callable[[], _Answer]) -> _Answer:
    """Work in the background, with what the caller has set, but for where the caller is."""
    _share.set(None)
    _depth.set(0)
    _maps.set("behind")
    return work()


def _inside(share: _Share, function: Callable[[_Item], _Answer], item: _Item) -> _Answer:
    tokens = _share.set(share), _depth.set(_depth.get() + 1)
    try:
        return function(item)
    finally:
        share.leave()
        _share.reset(tokens[0])
        _depth.reset(tokens[1])
