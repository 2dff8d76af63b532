"""What look-ups in index files read, asked for before they need it, where a request takes long.

They go from file to file, and in each from the header to an item, a slot, a chain and the log, as the one tells of the
next. Here all files go those ways beside each other, so that look-ups find the bytes in memory, and know already what
of the log is live. What goes wrong here goes wrong there again.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.read.index_ends import IndexEnds
from rmqstore_spark.read.prune import physical_offset_of
from rmqstore_spark.selection import ALL, Selection
from rmqstore_spark.store.clock import may_hold
from rmqstore_spark.store.indexfile import (
    Hashes,
    Header,
    IndexReader,
    index_paths,
    item_at,
    key_hash,
    likely_slots,
    look_up_price,
)
from rmqstore_spark.store.live_log import LiveLog
from rmqstore_spark.store.snapshot import Snapshot

_FEW = 64  # hashes, and messages of each in a file, that are gone after at the most


class IndexedNames:
    """What is looked up in a store's index files.

    Attributes:
        names: keys or ids.
        topics: in which selected messages can be. A topic of which nothing but messages is left is not known.
        offsets: of the units that ids name as well: a text may be one of two ids.
        hashes: of all names in all topics.

    Args:
        selection: what is selected; it has names or ids.
    """

    def __init__(self, store: Snapshot, selection: Selection) -> None:
        self.names = selection.names or frozenset([min(selection.ids)])
        offsets = [] if selection.names else [physical_offset_of(name) for name in self.names]
        self.offsets = [offset for offset in offsets if offset is not None]
        if selection.topic.among is not None:
            topics = set(selection.topic.among)
        elif selection.assigned is not None:
            topics = set(selection.assigned)
        else:
            topics = store.queues.topics | set(store.topics) | store.consumed_topics
            selection.topic.learn(topics)
        self.topics = [topic for topic in sorted(topics) if selection.wants_topic(topic)]
        hashes = {key_hash(topic, name) for topic in self.topics for name in self.names}
        self.hashes: Hashes = np.fromiter(hashes, np.int32)


def may_be_selected(header: Header, selection: Selection) -> bool:
    """May a file have a selected message, by the times of its first and last one? It is a broker's rule (LogTimes has
    the right one), for what is only read ahead."""
    times = selection.store_timestamp
    begin, end = header.begin_timestamp, header.end_timestamp
    return times == ALL or may_hold(begin, end, times.least, times.most)


def begin_look_up(store: Snapshot, selection: Selection) -> None:
    """Have another thread ask for what the look-ups of a plan are going to read, as far as is known before it is known
    where the log ends. Where a request takes no time, nothing is done."""
    if selection.names or selection.ids:
        store.files.schedule.in_background(functools.partial(_look_up, store, selection))


def _look_up(store: Snapshot, selection: Selection) -> None:
    with contextlib.suppress(RmqStoreError):
        paths = index_paths(store.layout.index, store.files)
        hashes = IndexedNames(store, selection).hashes
        price = sum(look_up_price(size, len(hashes), store.files) for size in paths.values())
        if price < sum(segment.size for segment in store.segments):
            ahead = IndexAhead(store, hashes, {}, lambda header: may_be_selected(header, selection))
            ahead.read(list(paths)[: store.files.prices.concurrency + 1], {}, store.whole_log())


def _places(log: LiveLog, positions: Iterable[int]) -> set[tuple[str, int]]:
    extents = ((log.extent_at(position), position) for position in positions)
    return {(e.segment.path, at - e.segment.start) for e, at in extents if e is not None}


def _done(work: Callable[[], LiveLog]) -> LiveLog:
    return work()


class IndexAhead:
    """Asks for what look-ups in some of a store's index files read.

    Args:
        hashes: what is looked up.
        slots: how many files of a size have, as far as that is known.
        is_asked: whether a file of that header is.
    """

    def __init__(
        self, store: Snapshot, hashes: Hashes, slots: Mapping[int, int], is_asked: Callable[[Header], bool]
    ) -> None:
        self._store = store
        self._files = store.files
        self._hashes = hashes.tolist() if len(hashes) <= _FEW else []
        self._slots = slots
        self._is_asked = is_asked

    def read(self, paths: Sequence[str], headers: Mapping[str, Header], log: LiveLog) -> None:
        """Ask for what is read of files that follow each other.

        Args:
            headers: of files that were opened before.
            log: gets to know what of it is live.
        """
        asked: list[tuple[str, int, Header]] = []  # path, slots, header
        self._files.prefetch((path, 0) for path in paths if path not in headers)
        for path in paths:
            with contextlib.suppress(RmqStoreError), IndexReader(path, self._files, headers.get(path)) as reader:
                if not reader.is_empty and self._is_asked(reader.header):
                    asked.append((path, self._slots.get(reader.size) or likely_slots(reader.size)[0], reader.header))
        ends = {position for *_, header in asked for position in (header.begin_position, header.end_position)}
        self._files.prefetch(_places(log, ends))
        self._files.prefetch((path, item_at(slots, header.index_count - 1)) for path, slots, header in asked)
        led: set[str] = set()  # files in which a chain is
        works = list(IndexEnds(log).studies([header for *_, header in asked]))
        works += [functools.partial(self._walk, log, led, *each, number) for each in asked for number in self._hashes]
        self._files.schedule.mapped(_done, works)
        # Of the first file, and where there is no chain, it is to be seen besides that they have so many slots.
        sure = [each for number, each in enumerate(asked) if number == 0 or each[0] not in led]
        self._files.schedule.mapped(self._see_slots, sure)

    def _walk(self, log: LiveLog, led: set[str], path: str, slots: int, header: Header, number: int) -> LiveLog:
        """Along the chain of a hash, and to the messages that are found."""
        own = log
        with contextlib.suppress(RmqStoreError, ValueError), IndexReader(path, self._files, header) as reader:
            chain = reader.walk(slots, number)
            led |= {path} if chain else set()
            positions = [item.position for item in chain if item.key_hash == number][:_FEW]
            self._files.prefetch(_places(log, positions))
            for position in positions:
                own.liveness(position)
        return own

    def _see_slots(self, file: tuple[str, int, Header]) -> None:
        path, slots, header = file
        with contextlib.suppress(RmqStoreError, ValueError), IndexReader(path, self._files, header) as reader:
            reader.walk(slots, None)
