"""Large blocks of what is read one byte after the other, fetched ahead of who reads it: over the borders of files and
of tasks, so that connections are never idle while there is something left to read.

A request takes a round trip and the time of its bytes, so a rate needs so many bytes under way: at 30 ms and 80 MB/s a
connection, 16 blocks of 4 MiB for 800 MB/s; the same with larger blocks takes fewer connections, but more memory. How
much is ahead follows from who reads: little, until it has to wait for more than the first block.
"""

import bisect
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

_MIB = 1024 * 1024
BLOCK = 4 * _MIB
_FIRST_BLOCK = _MIB  # comes soon, and is enough for who looks at the first rows
_SMALL_BLOCK = _MIB  # a smaller one counts as much: it takes a request as well
AT_ONCE = 16  # requests for blocks, of a process
_AT_FIRST = 8  # blocks at hand, under way, or soon to be asked for
_MOST = AT_ONCE + 4

Fetch = Callable[[int, int], "Future[memoryview]"]  # begins to fetch the bytes [start, stop) of a file


class ReadAhead:
    """Ranges of files, in the order in which they are read. Several threads may each read one of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[PrefetchRange] = deque()  # of which blocks are to be fetched still, the first one first
        self._unclaimed: dict[tuple[str, int, int], PrefetchRange] = {}
        self._held = 0  # bytes of all blocks that are at hand or under way
        self._most = _AT_FIRST * BLOCK

    def add(self, path: str, start: int, stop: int, fetch: Fetch, whole: bool = False) -> "PrefetchRange":
        """The bytes [start, stop) of a file are read after what was added before.

        Args:
            whole: in one block.
        """
        is_first = not self._waiting
        first = stop if whole else start + min(_FIRST_BLOCK if is_first else BLOCK, stop - start)
        blocks = PrefetchRange(self, [start, *range(first, stop, BLOCK), stop], fetch, is_first)
        self._waiting.append(blocks)
        self._unclaimed[path, start, stop] = blocks
        return blocks

    def claim(self, path: str, start: int, stop: int) -> "PrefetchRange | None":
        """A range that was added, for who reads it now; None where it was not, or is claimed already."""
        return self._unclaimed.pop((path, start, stop), None)

    def _fetch_ahead(self) -> None:
        """With the lock: as many blocks as may be, in their order."""
        while self._waiting:
            blocks = self._waiting[0]
            if blocks._is_fetched_whole:
                self._waiting.popleft()
            elif self._held + blocks._cost(blocks._next_block) <= self._most:
                blocks._fetch_next()
            else:
                return


class PrefetchRange:
    """The blocks of a part of a file. One thread reads it, from its start to its end."""

    def __init__(self, ahead: ReadAhead, bounds: list[int], fetch: Fetch, is_first: bool) -> None:
        self._ahead = ahead
        self._bounds = bounds  # of the blocks: each begins where another ends
        self._fetch = fetch
        self._first = 0  # the number of the first of them that is still at hand
        self._blocks: deque[Future[memoryview]] = deque()  # from that one on, those that are fetched
        self._asked = 0 if is_first else -1  # the number of the last one that was asked for

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self._bounds[-1]

    def clear(self) -> None:
        """Forget all that there is of it. No other range is fetched in its place, as perhaps all reading ends."""
        with self._ahead._lock:
            self._drop(len(self._bounds) - 1)

    def has(self, at: int) -> bool:
        """Is a byte in one of the blocks that is still to come or at hand?"""
        return self._first < len(self._bounds) - 1 and self._bounds[self._first] <= at < self._bounds[-1]

    def view(self, start: int, stop: int) -> memoryview | None:
        """The bytes [start, stop), which it has, where they are in one block; else None, and all of its blocks that
        have some of them are fetched. Blocks before are forgotten."""
        ahead = self._ahead
        with ahead._lock:
            self._drop(bisect.bisect_right(self._bounds, start) - 1)
            while not self._is_fetched_whole and self._bounds[self._next_block] < stop:
                self._fetch_next()  # whatever the limit is
            self._ask(min(bisect.bisect_left(self._bounds, stop), self._next_block) - 1)
            ahead._fetch_ahead()
        return self.part(start, stop) if stop <= self._bounds[self._first + 1] else None

    def is_fetched(self, at: int) -> bool:
        """Is or will be a byte in one of the blocks that are fetched?"""
        return bool(self._blocks) and self._bounds[self._first] <= at < self._bounds[self._next_block]

    def part(self, start: int, stop: int) -> memoryview:
        """The bytes from `start` on that one block has, which is fetched, up to `stop`."""
        number = bisect.bisect_right(self._bounds, start) - 1
        begin, block = self._bounds[number], self._blocks[number - self._first]
        return block.result()[start - begin : stop - begin]

    # ---- with the lock

    @property
    def _is_fetched_whole(self) -> bool:
        return self._next_block == len(self._bounds) - 1

    @property
    def _next_block(self) -> int:
        """The number of the next one to be fetched."""
        return self._first + len(self._blocks)

    def _cost(self, number: int) -> int:
        return max(self._bounds[number + 1] - self._bounds[number], _SMALL_BLOCK)

    def _fetch_next(self) -> None:
        number = self._next_block
        self._ahead._held += self._cost(number)
        self._blocks.append(self._fetch(self._bounds[number], self._bounds[number + 1]))

    def _ask(self, number: int) -> None:
        """Who has to wait for a block needs more under way; but for the very first one, everybody waits."""
        if number > self._asked and not self._blocks[number - self._first].done():
            self._ahead._most = _MOST * BLOCK
        self._asked = max(number, self._asked)

    def _drop(self, first: int) -> None:
        """Forget the blocks before a number."""
        while self._first < first:
            if self._blocks:
                self._ahead._held -= self._cost(self._first)
                self._blocks.popleft().cancel()
            self._first += 1
