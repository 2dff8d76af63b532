"""Threads that work a little ahead of each other: the kernel and the file system both release Python's lock."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")

_WORKERS = 8  # a disk syncs about so many files in the time of one; with more it gets slower
_AT_ONCE = 32
_FEW = 512  # for fewer items, threads cost more processor time than they save in waiting


class Lane:
    """A thread that runs calls one after the other. A context manager.

    Args:
        ahead: how many calls may wait; submit() blocks when there are more.
    """

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead
        self._pool = ThreadPoolExecutor(1)
        self._waiting: deque[Future[Any]] = deque()

    def __enter__(self) -> "Lane":
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=failed is not None)

    def submit(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Run a call next. The error of an earlier call is raised here, or by wait()."""
        while len(self._waiting) >= self._ahead:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(work, *arguments))

    def wait(self) -> None:
        """Wait until all calls are done."""
        while self._waiting:
            self._waiting.popleft().result()


def threads_for(count: int) -> int:
    """The number of threads that for_each() starts for so many items by default."""
    return 0 if count <= _FEW else _WORKERS


def for_each(
    items: Iterable[_T],
    work: Callable[[_T], None],
    let_go: Callable[[], None] = lambda: None,
    few: int = _FEW,
    workers: int = _WORKERS,
) -> None:
    """Call a function with each item, in any order; in several threads where there are more than a few items.

    When a call fails, its error is raised, and no further call is begun.

    Args:
        let_go: called by each of our threads after some items and at the thread's end, to close the files it has
            opened.
        few: up to so many items are handled by the calling thread.
        workers: the most threads; the default is best where each call waits for the disk.
    """
    left = list(items)
    at_once = min(_AT_ONCE, len(left) // (4 * workers) + 1)
    lists = [left[i : i + at_once] for i in range(0, len(left), at_once)]
    failed = threading.Event()

    def work_on(some: list[_T]) -> None:
        for item in some:
            if failed.is_set():
                return
            try:
                work(item)
            except BaseException:
                failed.set()
                raise

    def help_with(some: list[_T]) -> None:
        try:
            work_on(some)
        finally:
            let_go()

    if len(left) <= few:
        work_on(left)
        return
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(help_with, some) for some in lists]:
            done.result()
