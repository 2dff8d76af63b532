"""The cheapest way to the selected messages: an index, the ConsumeQueues, or the log from end to end.

Prices are in bytes: a request costs as much as reading a number of additional bytes would (store/files.Prices).
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from rmqstore_spark.errors import counted
from rmqstore_spark.kept import kept
from rmqstore_spark.query.option_types import Trust
from rmqstore_spark.query.selection import ALL, Selection
from rmqstore_spark.read.pieces.queue_claims import asked_queues, is_asked, unindexed_queues
from rmqstore_spark.read.pieces.queue_rows import can_answer
from rmqstore_spark.read.pieces.task import Covered, Queued, Range, Scanned
from rmqstore_spark.read.plan.beside_index import beside, may_lack_keys
from rmqstore_spark.read.plan.index_evidence import Begun
from rmqstore_spark.read.plan.index_join import NoIndexError
from rmqstore_spark.read.plan.index_path import IndexPath
from rmqstore_spark.read.plan.pack import Pieces
from rmqstore_spark.read.plan.prune import in_time
from rmqstore_spark.read.plan.split import Splitter
from rmqstore_spark.store.format.queue_block import UNIT_SIZE
from rmqstore_spark.store.queue_coverage import claimed, coverage
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.queue_heads import count_units

log = logging.getLogger(__name__)

_LARGE_PIECE = 512 * 1024 * 1024
_WHOLE = 1 << 62
_MUCH = 64 * 1024 * 1024  # bytes to read in a segment, above which several tasks share the segment
_NO_LIGHT = "ConsumeQueues: nothing proves that a light queue has all of its messages; trust=queues reads it"
_NO_BATCHES = "it does not have the messages of batches"
TAG_SELECTIVITY = 4  # one message in so many is assumed to have a selected tag
_PROOF_REQUESTS = 3  # for a queue: its units, and the first and the last of their messages in the log
_QUEUES_AT_ONCE = 256  # queues to ask before the price is looked at again; as many remote requests go side by side
# The samples from which the sizes of large stores are estimated:
_TOPICS_TO_LOOK_AT = 256
_QUEUES_TO_LOOK_AT = 256
_PLACES_TO_LOOK_AT = 8
_MESSAGES_TO_LOOK_AT = 8


@dataclass(frozen=True)
class Access:
    """The way to the selected messages of one store.

    Attributes:
        name: `index`, `consumequeue` or `scan`; `copy` where another copy is read instead.
        why: the reason, in words.
        pieces: the pieces to read.
        unused: accelerators that could have helped, and why they did not.
    """

    name: str
    why: str
    pieces: Pieces
    unused: list[str]


def choose(
    store: Snapshot,
    ranges: list[Range],
    selection: Selection,
    splitter: Splitter,
    trust: Trust = "log",
    columns: Collection[str] | None = None,
    begun: Begun = None,
) -> Access:
    """The cheapest way to the selected messages of a store.

    Args:
        ranges: the parts of the log that can hold selected messages.
        selection: the selected messages.
        splitter: cuts ranges where units begin.
        trust: the accelerators that are believed without a proof.
        columns: the requested columns of a message; None for all columns.
        begun: the look-up in the store's index files that was begun before (begin_look_up).
    """
    is_covered = trust == "queues" and columns is not None and can_answer(columns, selection)
    if is_covered and store.queues.in_use and not (selection.explodes and unindexed_queues(store, selection)):
        covering = _CoveringPath(store, ranges)
        return Access(covering.name, covering.why, covering.pieces(selection, splitter), [])
    unused: list[str] = []
    without = _Without(store, ranges, selection, trust)
    if ranges and (selection.names or selection.ids):
        try:
            return _with_index(store, ranges, selection, splitter, without, begun, trust)
        except NoIndexError as why:
            unused += why.reasons
    path, not_used = without.path_and_reasons
    return Access(path.name, path.why, path.pieces(selection, splitter), [*not_used, *unused])


def unread(copied: Snapshot) -> Access:
    """The access to a copy of a store, which is read only where the other copy is damaged."""
    return Access("copy", f"it is read where {copied.root} is damaged", [], [])


def scanned(store: Snapshot, ranges: list[Range], selection: Selection, splitter: Splitter) -> Pieces:
    """The way that needs nothing but the log: the pieces to read. Arguments as of choose()."""
    return _ScanPath(store, ranges).pieces(selection, splitter)


def _with_index(
    store: Snapshot,
    ranges: list[Range],
    selection: Selection,
    splitter: Splitter,
    without: "_Without",
    begun: Begun,
    trust: Trust,
) -> Access:
    """The way through index files, and past them for the ranges that they do not cover.

    Args:
        without: the cost of the ranges without index files.

    Raises:
        NoIndexError: index files cannot be used, or cost as much as the way without them.
    """
    index = IndexPath(store, selection, splitter.points, begun)
    price = index.price()
    if without.may_cost(price):
        price = index.price_of(ranges)
    if without.is_cheaper_than(price):
        raise NoIndexError("index: look-ups would cost more than they save")
    found = index.look_up(ranges)
    rest = without.of(found.rest).path
    request = store.files.prices.request
    price = found.price + 2 * request * found.count + rest.price
    if without.is_cheaper_than(price):
        raise NoIndexError(*found.unused, f"index: look-ups would cost as much as reading {price:,} bytes")
    pieces: Pieces = [(piece, len(piece.positions) * request) for piece in found.pieces]
    why = found.why
    if may_lack_keys(store, selection):
        known = _cut(store, _outside(ranges, found.rest), selection, splitter, _LARGE_PIECE)
        proof = _InQueues(known, *_in_queues(store)[:2]).proof_price(store, trust) if known else 0
        if without.is_cheaper_than(price + proof):
            raise NoIndexError(
                *found.unused, f"index: {_NO_BATCHES}; to find them would cost as much as {proof:,} bytes"
            )
        more = beside(store, known, found.pieces, selection, trust)
        rest, pieces = without.of(sorted([*found.rest, *more.rest], key=lambda r: r.start)).path, more.pieces
        if without.is_cheaper_than(price + proof + more.nbytes):
            raise NoIndexError(*found.unused, f"index: {_NO_BATCHES}, which are {more.nbytes:,} bytes")
        looked_at = f"{counted(more.units, 'unit')} of BatchCQ queues, {more.nbytes:,} bytes, are looked at"
        why = f"{why}; {_NO_BATCHES}: {looked_at}"
    pieces += rest.pieces(selection, splitter)
    return Access("index", why, sorted(pieces, key=lambda piece: piece[0].start), found.unused)


def _outside(ranges: list[Range], rest: list[Range]) -> list[Range]:
    """The parts of the ranges that are not in the rest; both are in order, and the rest is within the ranges."""
    outside: list[Range] = []
    for r in ranges:
        at = r.start
        for hole in rest:
            if r.start <= hole.start < r.stop:
                outside += [replace(r, start=at, stop=hole.start)] if at < hole.start else []
                at = hole.stop
        outside += [replace(r, start=at)] if at < r.stop else []
    return outside


@dataclass(frozen=True)
class _ScanPath:
    """The way through the log from end to end."""

    name: ClassVar[str] = "scan"
    store: Snapshot
    ranges: list[Range]

    @property
    def why(self) -> str:
        return "nothing else is cheaper" if self.price else "nothing in the log can be selected"

    @kept
    def price(self) -> int:
        return _size(self.ranges)

    def pieces(self, selection: Selection, splitter: Splitter) -> Pieces:
        """The pieces to read."""
        cut = _cut(self.store, self.ranges, selection, splitter)
        return [(Scanned(p.segment, p.start, p.stop, p.store), p.stop - p.start) for p in cut]


@dataclass(frozen=True)
class _QueuePath:
    """The way through the ConsumeQueues.

    Attributes:
        trust: whether the queues are believed without a proof.
        share: the fraction of the log's bytes that is likely to be read.
    """

    name: ClassVar[str] = "consumequeue"
    store: Snapshot
    ranges: list[Range]
    trust: Trust
    why: str
    price: int
    share: float

    def pieces(self, selection: Selection, splitter: Splitter) -> Pieces:
        """The pieces to read, without those that no selected message can be in."""
        # A segment of which little is read need not be cut.
        is_much = any(self.share * (r.stop - r.start) > _MUCH for r in self.ranges)
        parts = _cut(self.store, self.ranges, selection, splitter, _LARGE_PIECE if is_much else _WHOLE)
        if self.trust == "queues":
            known = claimed(self.store, parts, asked_queues(self.store, selection))
        else:
            known = coverage(self.store, parts, lambda queue: is_asked(queue, selection))
            if any(found.gaps is None for found in known) and self.store.is_being_written:
                # Units may have come between two walks along the queues.
                known = coverage(self.store, parts, lambda queue: is_asked(queue, selection))
        matching = _matching(self.store, selection)
        pieces: Pieces = []
        contradicted = 0
        is_any_time = selection.store_timestamp == ALL
        for part, found in zip(parts, known, strict=True):
            size = part.stop - part.start
            expected = found.count * UNIT_SIZE + found.nbytes // matching
            expected += sum(stop - start for start, stop in found.gaps or ())
            if found.gaps is None or (self.trust == "log" and expected >= size):
                contradicted += found.gaps is None
                pieces += _ScanPath(self.store, [part]).pieces(selection, splitter)
            elif found.count or found.gaps:
                mark = None if self.trust == "queues" else (found.count, found.print)
                ascends = is_any_time or self.store.times.ascends(part.start, part.stop)
                queued = Queued(part.segment, part.start, part.stop, part.store, tuple(found.gaps), mark, ascends)
                pieces.append((queued, min(expected, size)))
        if contradicted:
            say = log.info if self.store.is_being_written else log.warning
            say(
                "%s: units contradict each other or the log; reading %d of %d stretches from end to end",
                *(self.store.layout.queues, contradicted, len(parts)),
            )
        return pieces


@dataclass(frozen=True)
class _CoveringPath:
    """The way through the ConsumeQueues alone, where they have everything that is asked for."""

    name: ClassVar[str] = "consumequeue"
    why: ClassVar[str] = "covering: it has all columns that are asked for, and trust=queues"
    store: Snapshot
    ranges: list[Range]

    def pieces(self, selection: Selection, splitter: Splitter) -> Pieces:
        """The pieces to read; they can be cut anywhere, as that does not cut units of queues (Covered.cut)."""
        first, last = self.store.log.extents[0].start if self.ranges else 0, self.store.end
        queues, in_all = _asked(self.store, selection)
        pieces: Pieces = []
        for whole in _joined(self.ranges):
            units = in_all * (whole.stop - whole.start) // self.store.log.size
            covered = Covered(whole.segment, whole.start, whole.stop, whole.store, first, last, queues, units)
            pieces.append((covered, units * UNIT_SIZE))
        return pieces


def _joined(ranges: list[Range]) -> list[Range]:
    """The parts of the log, with adjacent ones joined."""
    joined: list[Range] = []
    for r in ranges:
        if joined and joined[-1].stop == r.start:
            joined[-1] = replace(joined[-1], stop=r.stop)
        else:
            joined.append(r)
    return joined


class _Without:
    """The cost of ranges without an index. The ConsumeQueues are looked at only when the answer depends on them, queues
    of topics that are not selected only when it depends on these, and all of them only once."""

    def __init__(self, store: Snapshot, ranges: list[Range], selection: Selection, trust: Trust) -> None:
        self._arguments = store, ranges, selection, trust
        self._scan = _ScanPath(store, ranges)

    def of(self, ranges: list[Range]) -> "_Without":
        """The cost of other ranges."""
        store, _, selection, trust = self._arguments
        return _Without(store, ranges, selection, trust)

    @kept
    def path_and_reasons(self) -> tuple[_ScanPath | _QueuePath, list[str]]:
        """The cheapest way, and the reasons against the ConsumeQueues."""
        return _without_index(*self._arguments)

    @property
    def path(self) -> _ScanPath | _QueuePath:
        """The cheapest way."""
        return self.path_and_reasons[0] if self._may_queues_cost(self._scan.price - 1) else self._scan

    def may_cost(self, price: int) -> bool:
        """Could the cheapest way cost at most `price`?"""
        return self._scan.price <= price or self._may_queues_cost(price)

    def is_cheaper_than(self, price: int) -> bool:
        """Does the cheapest way cost at most `price`?"""
        return self.may_cost(price) and self.path.price <= price

    def _may_queues_cost(self, price: int) -> bool:
        """Could the way through the ConsumeQueues cost at most `price`? False as soon as the known facts make it cost
        more; more and more facts are asked for."""
        store, ranges, selection, trust = self._arguments
        if not ranges or _needs_a_scan(selection, trust):
            return False
        known = _InQueues(ranges, queues=len(store.queues.topics))  # every topic has a queue
        if known.price(store, selection, trust) > price:
            return False
        if selection.topic.among is None and selection.assigned is None:
            return True
        asked = asked_queues(store, selection)
        known.queues, known.asked = max(known.queues, len(asked)), len(asked)
        if known.price(store, selection, trust) > price:
            return False
        for at in range(0, len(asked), _QUEUES_AT_ONCE):
            some = asked[at : at + _QUEUES_AT_ONCE]
            count = sum(store.files.schedule.mapped(lambda queue: _selected_in(queue, selection), some))
            known.messages += count
            known.selected += count
            if known.price(store, selection, trust) > price:
                return False
        return True


@dataclass
class _InQueues:
    """The contents of the ConsumeQueues, or a lower bound of them.

    Attributes:
        ranges: the parts of the log that are asked for.
        queues, messages: the numbers of all queues and of all messages in them.
        asked, selected: the numbers of selected queues and of the messages in them.
        size: bytes of a message.
    """

    ranges: list[Range]
    queues: int = 0
    messages: int = 0
    asked: int = 0
    selected: int = 0
    size: float = 0

    @kept
    def _bytes_and_parts(self) -> tuple[int, int]:
        """The bytes of the ranges, and the number of parts in which queues are searched for them."""
        return _size(self.ranges), sum(-(-(r.stop - r.start) // _LARGE_PIECE) for r in self.ranges)

    def price(self, store: Snapshot, selection: Selection, trust: Trust) -> int:
        """The price of the way through the ConsumeQueues."""
        prices = store.files.prices
        matching = self.selected / _matching(store, selection)
        nbytes, parts = self._bytes_and_parts
        proof = 0 if trust == "queues" else self.queues * _PROOF_REQUESTS * prices.request
        walked = self.selected if trust == "queues" else self.messages
        to_read = walked * UNIT_SIZE + min(store.log.size, matching * (self.size + prices.request))
        return int(proof + self.asked * parts * prices.search + nbytes / store.log.size * to_read)

    def proof_price(self, store: Snapshot, trust: Trust) -> int:
        """The price of the proof that the units of all queues are all messages of the ranges."""
        if trust == "queues":
            return 0
        share = self._bytes_and_parts[0] / store.log.size
        return int(self.queues * _PROOF_REQUESTS * store.files.prices.request + share * self.messages * UNIT_SIZE)


def _needs_a_scan(selection: Selection, trust: Trust) -> bool:
    """Do the ConsumeQueues tell nothing about the selected messages? What a light queue lacks is in no other queue
    either."""
    if not selection.has_each_once:
        return trust == "log"
    return selection.wants_all_queues and selection.tags is None


def _without_index(
    store: Snapshot, ranges: list[Range], selection: Selection, trust: Trust
) -> tuple[_ScanPath | _QueuePath, list[str]]:
    """The cheaper way of the ConsumeQueues and the log itself, and the reasons against the ConsumeQueues."""
    scan = _ScanPath(store, ranges)
    if scan.price == 0 or _needs_a_scan(selection, trust):
        return scan, [] if selection.has_each_once else [_NO_LIGHT]
    # At least one queue would be searched for each of the ranges: so few bytes are not worth a list of the queues.
    if scan.price <= len(ranges) * store.files.prices.search:
        return scan, []
    asked = asked_queues(store, selection)
    queues, total, is_exact = _in_queues(store)
    if total == 0:
        return scan, ["ConsumeQueues: there are none with a message in them"]
    selected = sum(store.files.schedule.mapped(lambda queue: _selected_in(queue, selection), asked))
    about = "" if is_exact else "about "
    why = f"{selected:,} of {about}{total:,} messages are in selected queues"
    found = _InQueues(ranges, queues, total, len(asked), selected, store.log.size / total)
    price = found.price(store, selection, trust)
    if price >= scan.price:
        return scan, [f"ConsumeQueues: {why}; it would cost as much as reading {price:,} bytes"]
    share = min(1.0, selected / _matching(store, selection) / total)
    return _QueuePath(store, ranges, trust, why, price, share), []


def _selected_in(queue: Queue, selection: Selection) -> int:
    """The number of units in a queue that are selected by queueOffset."""
    offsets = selection.offsets_in(queue.topic, queue.queue_id)
    if offsets is None or offsets.is_empty:
        return 0
    return queue.count_of(offsets.least, offsets.most)


def _matching(store: Snapshot, selection: Selection) -> int:
    """About how many messages selected queues have for each selected message."""
    return TAG_SELECTIVITY if selection.tags is not None else 1


def _in_queues(store: Snapshot) -> tuple[int, int, bool]:
    """The number of queues and of messages in them, and whether the messages are counted. Of many topics or queues, a
    sample is taken; but where a request takes long, all queues are asked at once."""
    if len(store.queues.topics) <= _TOPICS_TO_LOOK_AT:
        queues = store.queues.every
        if store.files.is_slow or len(queues) <= _QUEUES_TO_LOOK_AT:
            return len(queues), count_units(queues, store.files), True
        count = len(queues)
    else:
        count = store.queues.about(_TOPICS_TO_LOOK_AT)
    return count, int(store.log.size / (_mean_size(store) or store.log.size)), False


def _asked(store: Snapshot, selection: Selection) -> tuple[int, int]:
    """The number of queues that can have selected messages, and of their units: estimates, but exact where they are
    few."""
    total = int(store.log.size / (_mean_size(store) or store.log.size or 1))
    everywhere = store.queues.about(_TOPICS_TO_LOOK_AT)
    if selection.wants_all_queues:
        return max(1, everywhere), total
    asked = asked_queues(store, selection)
    if len(asked) > _QUEUES_TO_LOOK_AT:
        return len(asked), total * len(asked) // max(everywhere, len(asked))
    return max(1, len(asked)), min(total, count_units(asked, store.files))


def _mean_size(store: Snapshot) -> float | None:
    """The mean size of a message in bytes, from samples of the log; None where no message was found."""
    extents = store.log.extents
    sizes = []
    for extent in extents[:: -(-len(extents) // _PLACES_TO_LOOK_AT) or 1]:
        with store.reader(extent.segment) as reader:
            at = extent.start
            for _ in range(_MESSAGES_TO_LOOK_AT):
                header = reader.header(at) if at < extent.stop else None
                if header is None:
                    break
                sizes.append(header.size)
                at += header.size
    return sum(sizes) / len(sizes) if sizes else None


def _cut(store: Snapshot, ranges: list[Range], selection: Selection, splitter: Splitter, least: int = 0) -> list[Range]:
    return in_time(store, splitter.split_all(ranges, least), selection.store_timestamp)


def _size(ranges: list[Range]) -> int:
    return sum(r.stop - r.start for r in ranges)
