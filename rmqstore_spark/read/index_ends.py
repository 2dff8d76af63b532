"""What the log has where index files begin and end: whether a live message stands there, and where that ends.

Where one file ends the next mostly begins, so that one read of the log shows both messages.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.indexfile import Header
from rmqstore_spark.store.live_log import LiveLog
from rmqstore_spark.store.message import Header as UnitHeader


class IndexEnds:
    """The messages at the ends of a store's index files. Each is looked at once.

    Args:
        log: the store's.
    """

    def __init__(self, log: LiveLog) -> None:
        self._log = log
        self._ends: dict[int, tuple[int, int] | None] = {}  # of live messages: where they end, and store times (ms)

    def look_at(self, last: int, following: int) -> None:
        """Learn of the messages that one file ends with and the next begins with: mostly they stand side by side."""
        if last < following and not self._ends.keys() & {last, following}:
            headers = self._log.two_headers(last, following)
            self._learn(following, headers[1])  # where it is live, so is what comes before it
            self._learn(last, headers[0])

    def end_of(self, position: int, timestamp: int | None = None) -> int | None:
        """Where the live message at a physical offset ends, if there is one, and of this store time (ms)."""
        if position not in self._ends:
            self._learn(position, self._log.headers_at(position))
        found = self._ends[position]
        return None if found is None or timestamp not in (None, found[1]) else found[0]

    def _learn(self, position: int, headers: list[UnitHeader]) -> None:
        """Keep what the log has at a physical offset, if it is live.

        Args:
            headers: what LiveLog.headers_at() says.
        """
        self._ends[position] = None
        timestamp = headers[0].store_timestamp if headers else None
        if timestamp is not None and self._log.liveness(position, headers=headers) is Evidence.LIVE:
            self._ends[position] = position + headers[0].size, timestamp // 1000

    def studies(self, headers: Sequence[Header]) -> Iterator[Callable[[], LiveLog]]:
        """What finds out of the ends of these files by itself, in parts that do not wait for each other. Each answers
        with a log that knows of them (LiveLog.adopt); errors come when that is asked for again.

        Args:
            headers: of files that follow each other.
        """
        if headers:
            yield functools.partial(self._study, None, headers[0].begin_position)
        for header, following in itertools.pairwise([*headers, None]):
            assert header is not None
            begin = None if following is None else following.begin_position
            yield functools.partial(self._study, header.end_position, begin)

    def _study(self, last: int | None, following: int | None) -> LiveLog:
        log = self._log
        ends = IndexEnds(log)
        with contextlib.suppress(RmqStoreError):
            if last is not None and following is not None:
                ends.look_at(last, following)
            for position in (last, following):
                if position is not None:
                    ends.end_of(position)
        return log
