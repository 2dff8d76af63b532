"""Which way to the selected messages is the cheapest: an index, the ConsumeQueues, or the log from end to end.

Prices are in bytes: a request costs as much as reading some more would (store/files.Prices).
"""

from dataclasses import dataclass
from typing import ClassVar

from rmqstore_spark.read.index_path import IndexPath, NoIndexError
from rmqstore_spark.read.pack import Pieces
from rmqstore_spark.read.prune import in_time
from rmqstore_spark.read.split import Splitter
from rmqstore_spark.read.task import Queued, Range, Scan
from rmqstore_spark.selection import Selection
from rmqstore_spark.store.opened import OpenStore

_LARGE_PIECE = 512 * 1024 * 1024


@dataclass(frozen=True)
class Access:
    """How the selected messages of one store are found.

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


def choose(store: OpenStore, ranges: list[Range], selection: Selection, splitter: Splitter) -> Access:
    """The cheapest way to what is selected in a store.

    Args:
        ranges: the parts of the log that can hold selected messages.
        selection: what is selected.
        splitter: cuts ranges where units begin.
    """
    path, unused = _without_index(store, ranges, selection)
    if path.price > 0 and (selection.names or selection.ids):
        try:
            return _with_index(store, ranges, selection, splitter, path.price)
        except NoIndexError as why:
            unused += why.reasons
    return Access(path.name, path.why, path.pieces(selection, splitter), unused)


def _with_index(store: OpenStore, ranges: list[Range], selection: Selection, splitter: Splitter, limit: int) -> Access:
    """Through index files, and for what they do not cover without them.

    Raises:
        NoIndexError: that is not possible, or costs `limit` or more.
    """
    found = IndexPath(store, selection, splitter).look_up(ranges, limit)
    rest, _ = _without_index(store, found.rest, selection)
    request = store.files.prices.request
    price = found.price + 2 * request * found.count + rest.price
    if price >= limit:
        raise NoIndexError(*found.unused, f"index: it would cost as much as reading {price:,} bytes")
    pieces: Pieces = [(piece, len(piece.positions) * request) for piece in found.pieces]
    pieces += rest.pieces(selection, splitter)
    return Access("index", found.why, sorted(pieces, key=lambda piece: piece[0].start), found.unused)


@dataclass(frozen=True)
class _ScanPath:
    """The log from end to end."""

    name: ClassVar[str] = "scan"
    store: OpenStore
    ranges: list[Range]

    @property
    def why(self) -> str:
        return "nothing else is cheaper" if self.price else "nothing in the log can be selected"

    @property
    def price(self) -> int:
        return _size(self.ranges)

    def pieces(self, selection: Selection, splitter: Splitter) -> Pieces:
        """What to read, cut up."""
        cut = _cut(self.store, self.ranges, selection, splitter)
        return [(Scan(p.segment, p.start, p.stop, p.store), p.stop - p.start) for p in cut]


@dataclass(frozen=True)
class _QueuePath:
    """What the ConsumeQueues name.

    Attributes:
        share: of a piece's bytes, how many are read: in ConsumeQueues, and as they say in the log.
    """

    name: ClassVar[str] = "consumequeue"
    store: OpenStore
    ranges: list[Range]
    why: str
    price: int
    share: float

    def pieces(self, selection: Selection, splitter: Splitter) -> Pieces:
        """What to read, cut up."""
        # All queues are searched for where a piece begins, so pieces are large here.
        cut = _cut(self.store, self.ranges, selection, splitter, _LARGE_PIECE)
        return [(self._piece(p), int(self.share * (p.stop - p.start))) for p in cut]

    def _piece(self, p: Range) -> Queued:
        live_end = min(max(self.store.log.live_end(p), p.start), p.stop)
        return Queued(p.segment, p.start, p.stop, p.store, live_end)


def _without_index(
    store: OpenStore, ranges: list[Range], selection: Selection
) -> tuple[_ScanPath | _QueuePath, list[str]]:
    """Through the ConsumeQueues or the log itself, whichever is cheaper; and why not through the ConsumeQueues."""
    scan = _ScanPath(store, ranges)
    if scan.price == 0 or (selection.wants_all_queues and selection.tags is None):
        return scan, []
    queues = store.queues.with_batch
    total = sum(queue.end - queue.first for queue in queues)
    if total == 0:
        return scan, ["ConsumeQueues: there are none with a message in them"]
    selection.topic.learn({queue.topic for queue in queues if not queue.is_lmq})
    selected = 0
    for queue in queues:
        offsets = None if queue.is_lmq else selection.queue(queue.topic, queue.queue_id)
        if offsets is not None:
            selected += max(0, min(offsets.most + 1, queue.end) - max(offsets.least, queue.first))
    why = f"{selected:,} of {total:,} messages are in selected queues"
    prices, size = store.files.prices, store.log.size
    matching = selected / (prices.tagged if selection.tags is not None else 1)
    searches = len(queues) * sum(-(-(r.stop - r.start) // _LARGE_PIECE) for r in ranges)
    to_read = total * prices.queue_unit + min(size, matching * (size / total + prices.request))
    price = int(searches * prices.search + scan.price / size * to_read)
    if price >= scan.price:
        return scan, [f"ConsumeQueues: {why}; it would cost as much as reading {price:,} bytes"]
    share = min(1.0, total * prices.queue_unit / size + matching / total)
    return _QueuePath(store, ranges, why, price, share), []


def _cut(
    store: OpenStore, ranges: list[Range], selection: Selection, splitter: Splitter, least: int = 0
) -> list[Range]:
    pieces = [piece for r in ranges for piece in splitter.split(r, least)]
    return in_time(store, pieces, selection.store_timestamp)


def _size(ranges: list[Range]) -> int:
    return sum(r.stop - r.start for r in ranges)
