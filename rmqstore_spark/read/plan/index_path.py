"""The answers of index files on the selected keys and ids, as far as the log confirms them (index_join).

Each file is examined by itself, all files side by side (index_evidence); then one file is joined to the next.
"""

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rmqstore_spark.errors import RmqStoreError, counted
from rmqstore_spark.query.selection import ALL, REPLACEMENT, Selection
from rmqstore_spark.read.pieces.task import Indexed, Range
from rmqstore_spark.read.plan.index_evidence import Begun, FileEvidence, IndexedNames, examine, read_headers
from rmqstore_spark.read.plan.index_join import Join, Known, NoIndexError, joined, overlap
from rmqstore_spark.read.plan.prune import around
from rmqstore_spark.read.plan.split import SplitPoints
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import Header, Positions, index_paths, look_up_price


@dataclass(frozen=True)
class Found:
    """The answer of index files for some ranges.

    Attributes:
        pieces: the pieces in which messages are looked at.
        count: the number of these messages.
        rest: the parts of the ranges that no index file covers.
        price: the price of the look-ups.
        why: the reason, in words.
        unused: files that could not be used, and the reasons.
    """

    pieces: list[Indexed]
    count: int
    rest: list[Range]
    price: int
    why: str
    unused: list[str]


class IndexPath:
    """Looks names up in a store's index files.

    Args:
        selection: what is selected; it has names or ids.
        points: where units begin in the store's log.
        begun: a look-up that was begun before (begin_look_up).
    """

    def __init__(self, store: Snapshot, selection: Selection, points: SplitPoints, begun: Begun) -> None:
        self._store = store
        self._selection = selection
        self._points = points
        self._begun = begun
        self._names = IndexedNames(store, selection)
        self._paths: dict[str, int] = {}
        self._headers: dict[str, Header | RmqStoreError] = {}  # of files that were opened to price them

    def price(self) -> int:
        """The price of the look-ups in all index files.

        Raises:
            NoIndexError: there are no index files, or the names cannot be in one.
        """
        if any(REPLACEMENT in text for text in (*self._names.names, *self._names.topics)):
            raise NoIndexError("index: no key in an index has U+FFFD")
        if not self._names.are_sure:
            raise NoIndexError(
                f"index: its items are by topic, and some topics are not known: {self._store.queues.why_not}"
            )
        if not self._names.topics and not self._store.known_topics:
            raise NoIndexError(
                "index: its items are by topic, and no topic of the store is known (RocksDB has them, or none)"
            )
        try:
            self._paths = index_paths(self._store.layout.index, self._store.files)
        except RmqStoreError as why:
            raise NoIndexError(f"index: {why}") from None
        return self._price()

    def price_of(self, ranges: list[Range]) -> int:
        """The price of the look-ups in those files that may have messages of some ranges: their headers are read for
        that. price() must have been called before."""
        headers = read_headers(list(self._paths), self._store.files)
        self._headers = {path: header for path, header in headers.items() if _may_help(header, ranges)}
        self._paths = {path: self._paths[path] for path in self._headers}
        return self._price()

    def look_up(self, ranges: list[Range]) -> Found:
        """The answer of the index files for some ranges. price() must have been called before.

        Raises:
            NoIndexError: no index file helps.
        """
        store, times = self._store, self._selection.store_timestamp
        begun = FileEvidence() if self._begun is None else self._begun.result()
        for extent in store.log.extents:
            store.log.prove(extent, begun.proved.get(extent.start, 0))

        def is_asked(header: Header) -> bool:
            first, last = header.begin_position, header.end_position
            claimed = header.begin_timestamp, header.end_timestamp
            is_timely = times == ALL or store.times.may_hold(first, last + 1, times.least, times.most, claimed)
            return is_timely and _meets(header, ranges)

        known = replace(begun, headers=self._headers)
        hashes, may_be_old = self._names.hashes, store.may_have_old_pages
        found = examine(
            store.files, store.log, list(self._paths), is_asked, hashes, known, may_have_old_pages=may_be_old
        )
        unused = [f"index: {each}" for each in found.headers.values() if not isinstance(each, Header)]
        there = [(path, each) for path, each in found.headers.items() if isinstance(each, Header)]
        there = [(path, header) for path, header in there if header.index_count > 1]
        if not there:
            raise NoIndexError(*unused, "index: no index file has a message")
        asked = [(path, header) for path, header in there if _meets(header, ranges)]
        join = Join(store, self._selection, self._names.hashes, found)
        stretches, reasons = join.follow(asked, True)
        if overlap(stretches):
            stretches, reasons = join.follow(asked, False)
        stretches = joined(stretches)
        for hole in around(self._store, [(offset, offset) for offset in self._names.offsets], self._points):
            stretches = [part for each in stretches for part in _without(each, hole)]
        pieces, rest = self._cut(ranges, stretches)
        count = sum(len(piece.positions) for piece in pieces)
        why = (
            f"{counted(len(self._names.names), 'name')} in {counted(len(self._names.topics), 'topic')}, looked up in "
            f"{counted(len(asked) - len(reasons), 'index file')}: {counted(count, 'message')} to look at; "
            f"{counted(sum(piece.stop - piece.start for piece in rest), 'byte')} of the log are not covered"
        )
        return Found(pieces, count, rest, self._price(), why, [*unused, *reasons])

    def _price(self) -> int:
        return sum(look_up_price(size, len(self._names.hashes), self._store.files) for size in self._paths.values())

    def _cut(self, ranges: list[Range], known: list[Known]) -> tuple[list[Indexed], list[Range]]:
        """The ranges, cut into known parts and unknown parts.

        Args:
            ranges, known: both by start; no entry of `known` reaches into the next.
        """
        pieces: list[Indexed] = []
        rest: list[Range] = []
        starts = [each.start for each in known]
        for r in ranges:
            at = r.start
            for each in itertools.islice(known, max(0, bisect.bisect_right(starts, at) - 1), None):
                start, stop = max(each.start, at), min(each.stop, r.stop)
                if each.start >= r.stop:
                    break
                if start >= stop:
                    continue
                if at < start:
                    rest.append(replace(r, start=at, stop=start))
                positions = each.positions[(start <= each.positions) & (each.positions < stop)]
                if len(positions):
                    part = replace(r, start=start, stop=stop)
                    pieces.append(
                        Indexed(r.segment, start, stop, r.store, self._trusted_to(part, positions), positions)
                    )
                at = stop
            if at < r.stop:
                rest.append(replace(r, start=at))
        return pieces, rest

    def _trusted_to(self, part: Range, positions: Positions) -> int:
        """The physical offset up to which a part is trusted: its stop if all positions in it are live; else an old
        message may stand there."""
        log = self._store.log
        is_live = log.liveness(int(positions[-1])) is Evidence.LIVE
        return part.stop if is_live else log.live_end(part)


def _meets(header: Header, ranges: list[Range]) -> bool:
    """Does a file have messages in one of some ranges? The ranges are in order."""
    at = bisect.bisect_right(ranges, header.begin_position, key=lambda r: r.stop)
    return at < len(ranges) and ranges[at].start <= header.end_position


def _may_help(header: Header | RmqStoreError, ranges: list[Range]) -> bool:
    """May a file have messages of some ranges? True also where this is not known: then look_up() gives the reason."""
    return isinstance(header, RmqStoreError) or (header.index_count > 1 and _meets(header, ranges))


def _without(known: Known, hole: Range) -> Iterator[Known]:
    for start, stop in ((known.start, min(known.stop, hole.start)), (max(known.start, hole.stop), known.stop)):
        if start < stop:
            yield replace(known, start=start, stop=stop)
