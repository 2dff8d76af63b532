"""Which way to the wanted messages is the cheapest: an index, the ConsumeQueues, or the log from end to end.

Prices are in bytes: a request costs as much as reading some more would.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rmqstore_spark.read.live_log import Log
from rmqstore_spark.read.prune import around, in_time, place_of
from rmqstore_spark.read.split import Splitter
from rmqstore_spark.read.task import Indexed, Queued, Range, Scan
from rmqstore_spark.selection import REPLACEMENT, Selection
from rmqstore_spark.store.config import offset_topics, topic_queues
from rmqstore_spark.store.consumequeue import UNIT_SIZE
from rmqstore_spark.store.indexfile import IndexFile, index_files, key_hash

_REQUEST = 16 * 1024
_SEARCH = 8 * _REQUEST  # for a place in one ConsumeQueue, and to read on there
_LARGE_PIECE = 512 * 1024 * 1024
_MATCHING = 4  # one message in so many is taken to have the wanted tag

Pieces = list[tuple[Range, int]]  # each with about how many bytes are to be read in it


@dataclass
class Access:
    """How the wanted messages of one store are found.

    Attributes:
        name: `index`, `consumequeue` or `scan`.
        why: in words.
        pieces: what to read.
        unused: what could have helped, and why it did not.
    """

    name: str
    why: str
    pieces: Pieces
    unused: list[str]


@dataclass(frozen=True)
class _Way:
    """Through the ConsumeQueues or the log itself.

    Attributes:
        price: of all that is to be read.
        queued: what share of a piece is read in ConsumeQueues and, as they say, in the log; None: it is scanned.
    """

    name: str
    why: str
    price: int
    queued: float | None
    unused: list[str]

    def pieces(
        self, log: Log, ranges: list[Range], selection: Selection, splitter: Splitter
    ) -> list[tuple[Range, int]]:
        """What to read, cut up."""
        # All queues are searched for where a piece begins, so pieces are large there.
        least = 0 if self.queued is None else _LARGE_PIECE
        cut = in_time(log, [piece for r in ranges for piece in splitter.split(r, least)], selection.store_timestamp)
        if self.queued is None:
            return [(_scan(piece), piece.stop - piece.start) for piece in cut]
        return [(_queued(log, piece), int(self.queued * (piece.stop - piece.start))) for piece in cut]


@dataclass(frozen=True)
class _Known:
    """The messages from `start` to `stop`, where units begin, have wanted names at `positions` only."""

    start: int
    stop: int
    positions: np.ndarray[tuple[int], np.dtype[np.int64]]


def choose(log: Log, index: str | None, ranges: list[Range], selection: Selection, splitter: Splitter) -> Access:
    """The cheapest way to what is wanted in a store.

    Args:
        log: the store's log.
        index: the directory of its index files, or None.
        ranges: the parts of the log that can hold wanted messages.
        selection: what is wanted.
        splitter: cuts ranges where units begin.
    """
    way = _by_log(log, ranges, selection)
    unused: list[str] = []
    if way.price > 0 and (selection.names or selection.ids):
        by_index = _by_index(log, index, ranges, selection, splitter, way.price, unused)
        if by_index is not None:
            return by_index
    return Access(way.name, way.why, way.pieces(log, ranges, selection, splitter), way.unused + unused)


def _by_log(log: Log, ranges: list[Range], selection: Selection) -> _Way:
    """Through the ConsumeQueues or the log itself, whichever is cheaper."""
    size = sum(r.stop - r.start for r in ranges)
    scan = _Way("scan", "nothing else is cheaper" if size else "nothing in the log can be wanted", size, None, [])
    if size == 0 or (selection.wants_all_queues and selection.tags is None):
        return scan
    queues = log.queues.with_batch
    total = sum(queue.end - queue.first for queue in queues)
    if total == 0:
        scan.unused.append("ConsumeQueues: there are none with a message in them")
        return scan
    wanted = 0
    selection.topic.learn({queue.topic for queue in queues if not queue.is_lmq})
    for queue in queues:
        offsets = None if queue.is_lmq else selection.queue(queue.topic, queue.queue_id)
        if offsets is not None:
            wanted += max(0, min(offsets.most + 1, queue.end) - max(offsets.least, queue.first))
    why = f"{wanted:,} of {total:,} messages are in wanted queues"
    matching = wanted / (_MATCHING if selection.tags is not None else 1)
    searches = len(queues) * sum(-(-(r.stop - r.start) // _LARGE_PIECE) for r in ranges)
    share = size / log.size
    price = int(
        searches * _SEARCH + share * (total * UNIT_SIZE + min(log.size, matching * (log.size / total + _REQUEST)))
    )
    if price < size:
        return _Way("consumequeue", why, price, min(1.0, total * UNIT_SIZE / log.size + matching / total), [])
    scan.unused.append(f"ConsumeQueues: {why}; it would cost as much as reading {price:,} bytes")
    return scan


def _by_index(
    log: Log,
    index: str | None,
    ranges: list[Range],
    selection: Selection,
    splitter: Splitter,
    limit: int,
    unused: list[str],
) -> Access | None:
    """Through index files, and for what they do not cover as _by_log() says. None when that is not possible, or costs
    more than `limit`."""
    # Of a text that may be one of two ids, the unit at its place is looked at as well.
    names = selection.names or frozenset([min(selection.ids)])
    places = [] if selection.names else [place for name in names if (place := place_of(name)) is not None]
    topics = _topics(log, selection)
    files, unusable = index_files(index, log.files)
    unused += [f"index: {reason}" for reason in unusable]
    if not files or any(REPLACEMENT in text for text in (*names, *topics)):
        unused.append("index: there is none with a message in it" if not files else "index: no text in it has U+FFFD")
        return None
    files = [file for file in files if any(file.covered()[0] < r.stop and r.start <= file.covered()[1] for r in ranges)]
    price = 2 * _REQUEST * len(files) * len(topics) * len(names)
    if price >= limit:
        unused.append(f"index: {len(files) * len(topics) * len(names):,} look-ups cost more than what they could save")
        return None
    hashes = sorted({key_hash(topic, name) for topic in topics for name in names})
    known = [k for file in files if (k := _look_up(log, file, hashes, unused)) is not None]
    for hole in around(log, [(place, place) for place in places], splitter):
        known = [part for k in known for part in _without(k, hole)]
    found, rest = _cut(log, ranges, known)
    rest_way = _by_log(log, rest, selection)
    count = sum(len(piece.positions) for piece in found)
    price += 2 * _REQUEST * count + rest_way.price
    if price >= limit:
        unused.append(f"index: it would cost as much as reading {price:,} bytes")
        return None
    pieces: Pieces = [(piece, len(piece.positions) * _REQUEST) for piece in found]
    pieces += rest_way.pieces(log, rest, selection, splitter)
    why = (
        f"{_counted(len(names), 'name')} in {_counted(len(topics), 'topic')}, looked up in "
        f"{_counted(len(files), 'index file')}: {_counted(count, 'place')} to look at; "
        f"{_counted(sum(piece.stop - piece.start for piece in rest), 'byte')} of the log are not covered"
    )
    return Access("index", why, sorted(pieces, key=lambda piece: piece[0].start), unused)


def _topics(log: Log, selection: Selection) -> list[str]:
    """The topics in which wanted messages can be. A topic of which nothing but messages is left is not known."""
    if selection.topic.among is not None:
        topics = set(selection.topic.among)
    elif selection.assigned is not None:
        topics = set(selection.assigned)
    else:
        root, files = log.home.root, log.files
        topics = {queue.topic for queue in log.queues.with_batch if not queue.is_lmq}
        topics |= set(topic_queues(root, files)) | offset_topics(root, files)
        selection.topic.learn(topics)
    return [topic for topic in sorted(topics) if selection.wants_topic(topic)]


def _look_up(log: Log, file: IndexFile, hashes: list[int], unused: list[str]) -> _Known | None:
    """What an index file says; None when the log does not agree with its ends, or it is broken."""
    begin, end = file.covered()
    if end < log.ranges[0].start:
        return None  # a broker has not deleted it yet
    start: int | None = log.ranges[0].start
    if begin >= log.ranges[0].start:
        start = _end_of(log, begin, file.header.begin_timestamp)
    # The last message may have keys that are in no file yet. If it is not there any more the log was cut since, and
    # what was written instead need not be in an index.
    if start is None or _end_of(log, end, file.header.end_timestamp) is None:
        unused.append(f"index: {file.path}: the log has other messages where it begins or ends")
        return None
    positions: set[int] = set()
    for each in hashes:
        found = file.lookup(each)
        if found is None:
            unused.append(f"index: {file.path}: a chain in it is broken")
            return None
        positions.update(found)
    return _Known(start, end, np.array(sorted(positions), np.int64))


def _end_of(log: Log, position: int, timestamp: int) -> int | None:
    """Where the live message at a physical offset ends, if there is one of this store time (ms)."""
    place = log.range_at(position)
    if place is None or log.timestamp(position) != timestamp or not log.is_live(position):
        return None
    with log.open(place) as reader:
        header = reader.header(position)
    return None if header is None else header.position + header.size


def _without(known: _Known, hole: Range) -> Iterator[_Known]:
    for start, stop in ((known.start, min(known.stop, hole.start)), (max(known.start, hole.stop), known.stop)):
        if start < stop:
            yield replace(known, start=start, stop=stop)


def _cut(log: Log, ranges: list[Range], known: list[_Known]) -> tuple[list[Indexed], list[Range]]:
    """The places to look at, with the parts of the ranges they stand for; and the parts that no index knows."""
    found: list[Indexed] = []
    rest: list[Range] = []
    for r in ranges:
        at = r.start
        for k in sorted(known, key=lambda k: k.start):
            start, stop = max(k.start, at), min(k.stop, r.stop)
            if start >= stop:
                continue
            if at < start:
                rest.append(replace(r, start=at, stop=start))
            positions = k.positions[(start <= k.positions) & (k.positions < stop)]
            if len(positions):
                found.append(Indexed(r.home, r.segment, start, stop, _live_end(log, r, start, stop), positions))
            at = stop
        if at < r.stop:
            rest.append(replace(r, start=at))
    return found, rest


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _scan(piece: Range) -> Scan:
    return Scan(piece.home, piece.segment, piece.start, piece.stop)


def _queued(log: Log, piece: Range) -> Queued:
    end = _live_end(log, piece, piece.start, piece.stop)
    return Queued(piece.home, piece.segment, piece.start, piece.stop, end)


def _live_end(log: Log, place: Range, start: int, stop: int) -> int:
    return min(max(log.live_end(place), start), stop)
