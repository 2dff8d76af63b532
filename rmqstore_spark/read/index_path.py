"""What index files say of the keys and ids that are selected, as far as the log bears them out."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rmqstore_spark.read.prune import around, physical_offset_of
from rmqstore_spark.read.split import Splitter
from rmqstore_spark.read.task import Indexed, Range
from rmqstore_spark.selection import REPLACEMENT, Selection
from rmqstore_spark.store.indexfile import IndexFile, index_files, key_hash
from rmqstore_spark.store.opened import OpenStore


class NoIndexError(Exception):
    """Index files do not help.

    Attributes:
        reasons: why not, in words.
    """

    def __init__(self, *reasons: str) -> None:
        super().__init__(*reasons)
        self.reasons = reasons


@dataclass(frozen=True)
class Found:
    """What index files say of some ranges.

    Attributes:
        pieces: where messages have to be looked at.
        count: how many.
        rest: the parts of the ranges that no index file knows.
        price: of the look-ups.
        why: in words.
        unused: files that could not be used, and why.
    """

    pieces: list[Indexed]
    count: int
    rest: list[Range]
    price: int
    why: str
    unused: list[str]


@dataclass(frozen=True)
class _Known:
    """The messages from `start` to `stop`, where units begin, have selected names at `positions` only."""

    start: int
    stop: int
    positions: np.ndarray[tuple[int], np.dtype[np.int64]]


class IndexPath:
    """Looks names up in a store's index files.

    Args:
        selection: what is selected; it has names or ids.
        splitter: cuts ranges where units begin.
    """

    def __init__(self, store: OpenStore, selection: Selection, splitter: Splitter) -> None:
        self._store = store
        self._selection = selection
        self._splitter = splitter
        # Of a text that may be one of two ids, the unit that an offsetMsgId names is looked at as well.
        self._names = selection.names or frozenset([min(selection.ids)])
        offsets = [] if selection.names else [physical_offset_of(name) for name in self._names]
        self._named_offsets = [offset for offset in offsets if offset is not None]

    def look_up(self, ranges: list[Range], limit: int) -> Found:
        """What the index files say.

        Args:
            ranges: the parts of the log that can hold selected messages.
            limit: what the look-ups may cost.

        Raises:
            NoIndexError: there are none that help, or they cost `limit` or more.
        """
        topics = self._topics()
        files, unused = self._files(topics)
        files = [file for file in files if _meets(file, ranges)]
        look_ups = len(files) * len(topics) * len(self._names)
        price = 2 * self._store.files.prices.request * look_ups
        if price >= limit:
            raise NoIndexError(*unused, f"index: {look_ups:,} look-ups cost more than what they could save")
        hashes = sorted({key_hash(topic, name) for topic in topics for name in self._names})
        known: list[_Known] = []
        for file in files:
            try:
                known += self._known(file, hashes)
            except NoIndexError as error:
                unused += error.reasons
        for hole in around(self._store, [(offset, offset) for offset in self._named_offsets], self._splitter):
            known = [part for each in known for part in _without(each, hole)]
        pieces, rest = self._cut(ranges, known)
        count = sum(len(piece.positions) for piece in pieces)
        why = (
            f"{_counted(len(self._names), 'name')} in {_counted(len(topics), 'topic')}, looked up in "
            f"{_counted(len(files), 'index file')}: {_counted(count, 'message')} to look at; "
            f"{_counted(sum(piece.stop - piece.start for piece in rest), 'byte')} of the log are not covered"
        )
        return Found(pieces, count, rest, price, why, unused)

    def _topics(self) -> list[str]:
        """The topics in which selected messages can be. A topic of which nothing but messages is left is not known."""
        selection, store = self._selection, self._store
        if selection.topic.among is not None:
            topics = set(selection.topic.among)
        elif selection.assigned is not None:
            topics = set(selection.assigned)
        else:
            topics = {queue.topic for queue in store.queues.with_batch if not queue.is_lmq}
            topics |= set(store.topics) | store.consumed_topics
            selection.topic.learn(topics)
        return [topic for topic in sorted(topics) if selection.wants_topic(topic)]

    def _files(self, topics: list[str]) -> tuple[list[IndexFile], list[str]]:
        """The index files, and why others cannot be used.

        Raises:
            NoIndexError: there is none, or what is looked for cannot be in one.
        """
        files, unusable = index_files(self._store.layout.index, self._store.files)
        unused = [f"index: {reason}" for reason in unusable]
        if not files:
            raise NoIndexError(*unused, "index: there is none with a message in it")
        if any(REPLACEMENT in text for text in (*self._names, *topics)):
            raise NoIndexError(*unused, "index: no text in it has U+FFFD")
        return files, unused

    def _known(self, file: IndexFile, hashes: list[int]) -> list[_Known]:
        """What an index file says: nothing where a broker has yet to delete it.

        Raises:
            NoIndexError: the log does not agree with its ends, or it is broken.
        """
        log_start = self._store.log.extents[0].start
        begin, end = file.covered()
        if end < log_start:
            return []
        start = self._end_of(begin, file.header.begin_timestamp) if begin >= log_start else log_start
        # The last message may have keys that are in no file yet. If it is not there any more the log was cut since, and
        # what was written instead need not be in an index.
        if start is None or self._end_of(end, file.header.end_timestamp) is None:
            raise NoIndexError(f"index: {file.path}: the log has other messages where it begins or ends")
        positions: set[int] = set()
        for each in hashes:
            found = file.lookup(each)
            if found is None:
                raise NoIndexError(f"index: {file.path}: a chain in it is broken")
            positions.update(found)
        return [_Known(start, end, np.array(sorted(positions), np.int64))]

    def _end_of(self, position: int, timestamp: int) -> int | None:
        """Where the live message at a physical offset ends, if there is one of this store time (ms)."""
        log = self._store.log
        if log.timestamp(position) != timestamp or not log.is_live(position):
            return None
        header = log.header(position)
        return None if header is None else header.position + header.size

    def _cut(self, ranges: list[Range], known: list[_Known]) -> tuple[list[Indexed], list[Range]]:
        """The ranges cut into what is known and what is not."""
        pieces: list[Indexed] = []
        rest: list[Range] = []
        in_order = sorted(known, key=lambda each: each.start)
        for r in ranges:
            at = r.start
            for each in in_order:
                start, stop = max(each.start, at), min(each.stop, r.stop)
                if start >= stop:
                    continue
                if at < start:
                    rest.append(replace(r, start=at, stop=start))
                positions = each.positions[(start <= each.positions) & (each.positions < stop)]
                if len(positions):
                    live_end = min(max(self._store.log.live_end(r), start), stop)
                    pieces.append(Indexed(r.segment, start, stop, r.store, live_end, positions))
                at = stop
            if at < r.stop:
                rest.append(replace(r, start=at))
        return pieces, rest


def _meets(file: IndexFile, ranges: list[Range]) -> bool:
    begin, end = file.covered()
    return any(begin < r.stop and r.start <= end for r in ranges)


def _without(known: _Known, hole: Range) -> Iterator[_Known]:
    for start, stop in ((known.start, min(known.stop, hole.start)), (max(known.start, hole.stop), known.stop)):
        if start < stop:
            yield replace(known, start=start, stop=stop)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
