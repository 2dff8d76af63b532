"""Threads that work a little ahead of each other: the kernel and the file system both let go of Python's lock."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")

_WORKERS = 8  # a disk brings about so many files to rest in the time of one; with more it gets slower
_AT_ONCE = 32
_FEW = 512  # below, threads cost more processor time than they save waiting


class Lane:
    """A thread that does one thing after the other. A context manager.

    Args:
        ahead: how many things may wait; then submit() does.
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
        """Do this next. What went wrong before is raised here, or by wait()."""
        while len(self._waiting) >= self._ahead:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(work, *arguments))

    def wait(self) -> None:
        """Until all is done."""
        while self._waiting:
            self._waiting.popleft().result()


def threads_for(count: int) -> int:
    """How many threads for_each() begins for so many items, if it is not told otherwise."""
    return 0 if count <= _FEW else _WORKERS


def for_each(
    items: Iterable[_T],
    work: Callable[[_T], None],
    let_go: Callable[[], None] = lambda: None,
    few: int = _FEW,
    workers: int = _WORKERS,
) -> None:
    """Do something with each of them, in any order; several at once where they are more than a few.

    When one goes wrong, its error is raised, and no other is begun.

    Args:
        let_go: a thread of ours calls it after some of them, and at its end: to close what it has opened for itself.
        few: so many are done by the calling thread.
        workers: how many at once, at most; by default as is best where each waits for the disk.
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
