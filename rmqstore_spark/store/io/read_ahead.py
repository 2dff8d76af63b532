"""Prefetch for sequential reads: large blocks are fetched ahead of the reader, across the borders of files and of
tasks, so that connections are never idle while anything is left to read.

A request takes a round trip and the time of its bytes, so a rate needs so many bytes under way: at 30 ms and 80 MB/s a
connection, 16 blocks of 4 MiB for 800 MB/s; larger blocks need fewer connections, but more memory. The amount ahead
follows from the reader: little, until the reader has to wait for more than the first block.
"""

import bisect
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

_MIB = 1024 * 1024
BLOCK = 4 * _MIB
_FIRST_BLOCK = _MIB  # bytes; arrives soon, and is enough for a look at the first rows
_SMALL_BLOCK = _MIB  # bytes; smaller blocks count as much, as each takes a request, too
AT_ONCE = 16  # concurrent requests for blocks in a process
_AT_FIRST = 8  # blocks at hand, under way, or soon to be asked for
_MOST = AT_ONCE + 4

Fetch = Callable[[int, int], "Future[memoryview]"]  # begins to fetch the bytes [start, stop) of a file


class ReadAhead:
    """Ranges of files, in the order in which they are read. Several threads may each read one range."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[PrefetchRange] = deque()  # ranges with blocks still to be fetched, in order
        self._unclaimed: dict[tuple[str, int, int], PrefetchRange] = {}
        self._held = 0  # bytes of all blocks that are at hand or under way
        self._most = _AT_FIRST * BLOCK

    def add(self, path: str, start: int, stop: int, fetch: Fetch, whole: bool = False) -> "PrefetchRange":
        """Announce that the bytes [start, stop) of a file are read after the ranges added before.

        Args:
            whole: whether to fetch them in one block.
        """
        is_first = not self._waiting
        first = stop if whole else start + min(_FIRST_BLOCK if is_first else BLOCK, stop - start)
        bounds = [start, *range(first, stop, BLOCK), stop]
        if len(bounds) > (3 if is_first else 2) and stop - bounds[-2] < BLOCK // 2:
            del bounds[-2]  # a request for a small rest takes as long as one for half a block
        blocks = PrefetchRange(self, bounds, fetch, is_first)
        self._waiting.append(blocks)
        self._unclaimed[path, start, stop] = blocks
        return blocks

    def claim(self, path: str, start: int, stop: int) -> "PrefetchRange | None":
        """Claim a range that was added, for the thread that reads it now; None where it was not added, or is claimed
        already."""
        return self._unclaimed.pop((path, start, stop), None)

    def _fetch_ahead(self) -> None:
        """With the lock held: fetch as many blocks as the limit allows, in order."""
        while self._waiting:
            blocks = self._waiting[0]
            if blocks._is_fetched_whole:
                self._waiting.popleft()
            elif self._held + blocks._cost(blocks._next_block) <= self._most:
                blocks._fetch_next()
            else:
                return


class PrefetchRange:
    """The blocks of a part of a file. One thread reads the part, from its start to its end."""

    def __init__(self, ahead: ReadAhead, bounds: list[int], fetch: Fetch, is_first: bool) -> None:
        self._ahead = ahead
        self._bounds = bounds  # bounds of the blocks: each begins where another ends
        self._fetch = fetch
        self._first = 0  # the number of the first block still at hand
        self._blocks: deque[Future[memoryview]] = deque()  # the fetched blocks, from that one on
        self._asked = 0 if is_first else -1  # the number of the last block that was asked for

    @property
    def stop(self) -> int:
        """The offset where the range ends."""
        return self._bounds[-1]

    def clear(self) -> None:
        """Forget all blocks of the range. No other range is fetched in its place, as perhaps all reading ends."""
        with self._ahead._lock:
            self._drop(len(self._bounds) - 1)

    def has(self, at: int) -> bool:
        """Is a byte in a block that is at hand or still to come?"""
        return self._first < len(self._bounds) - 1 and self._bounds[self._first] <= at < self._bounds[-1]

    def view(self, start: int, stop: int) -> memoryview | None:
        """The bytes [start, stop), which the range has, if they are in one block; else None, after requesting all
        blocks that have some of them. Earlier blocks are forgotten."""
        ahead = self._ahead
        with ahead._lock:
            self._drop(bisect.bisect_right(self._bounds, start) - 1)
            while not self._is_fetched_whole and self._bounds[self._next_block] < stop:
                self._fetch_next()  # whatever the limit is
            self._ask(min(bisect.bisect_left(self._bounds, stop), self._next_block) - 1)
            ahead._fetch_ahead()
        return self.part(start, stop) if stop <= self._bounds[self._first + 1] else None

    def is_fetched(self, at: int) -> bool:
        """Is a byte in a block that is fetched or under way?"""
        return bool(self._blocks) and self._bounds[self._first] <= at < self._bounds[self._next_block]

    def part(self, start: int, stop: int) -> memoryview:
        """The bytes from `start` on that a fetched block has, up to `stop`."""
        number = bisect.bisect_right(self._bounds, start) - 1
        begin, block = self._bounds[number], self._blocks[number - self._first]
        return block.result()[start - begin : stop - begin]

    # ---- with the lock

    @property
    def _is_fetched_whole(self) -> bool:
        return self._next_block == len(self._bounds) - 1

    @property
    def _next_block(self) -> int:
        """The number of the next block to be fetched."""
        return self._first + len(self._blocks)

    def _cost(self, number: int) -> int:
        return max(self._bounds[number + 1] - self._bounds[number], _SMALL_BLOCK)

    def _fetch_next(self) -> None:
        number = self._next_block
        self._ahead._held += self._cost(number)
        self._blocks.append(self._fetch(self._bounds[number], self._bounds[number + 1]))

    def _ask(self, number: int) -> None:
        """Record that a block was asked for. A reader that has to wait for a block needs more under way, except for the
        very first block, for which all readers wait."""
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
