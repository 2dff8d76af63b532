"""The messages that no index knows: those of batches.

An index has what the properties of a unit name. Of a batch it has the batch's own id, but not the keys and ids of the
messages in it. So where topics with batches are asked for, all units of their BatchCQ queues are looked at beside
those that an index names, as far as the tiling of all queues proves these units; the gaps are read in the log.
Source: org.apache.rocketmq.store.index.IndexService.buildIndex.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmqstore_spark.query.option_types import Trust
from rmqstore_spark.query.selection import ALL, Selection
from rmqstore_spark.read.pieces.queue_claims import unindexed_queues
from rmqstore_spark.read.pieces.task import Indexed, Queued, Range
from rmqstore_spark.read.plan.pack import Pieces
from rmqstore_spark.store.queue_coverage import Coverage, claimed, coverage
from rmqstore_spark.store.snapshot import Snapshot


def may_lack_keys(store: Snapshot, selection: Selection) -> bool:
    """Can a selected message be in a batch, whose messages no index has by their keys? Yes, if a selected topic has
    batches by its queues or its configuration."""
    if not selection.explodes:
        return False
    return bool(unindexed_queues(store, selection)) or any(map(selection.wants_topic, store.unindexed_topics))


@dataclass(frozen=True)
class Beside:
    """The pieces of an index, and in them what the index does not know.

    Attributes:
        pieces: each with about how many of its bytes are to be read.
        rest: the parts that are read without the index, as the queues contradict each other there.
        units, nbytes: the units of BatchCQ queues that are looked at, and their size.
    """

    pieces: Pieces
    rest: list[Range]
    units: int
    nbytes: int


def beside(
    store: Snapshot, parts: Sequence[Range], indexed: Sequence[Indexed], selection: Selection, trust: Trust
) -> Beside:
    """What has to be looked at in parts of the log that an index covers.

    Args:
        parts: ascending; each begins with a unit, and ends where one does.
        indexed: what the index names in the parts.
    """
    queues = unindexed_queues(store, selection)
    if trust == "queues":
        known = claimed(store, parts, queues)
    else:
        names = {queue.name for queue in queues}
        known = coverage(store, parts, lambda queue: queue.name in names)
    pieces: Pieces = []
    rest: list[Range] = []
    units = nbytes = 0
    for part, found in zip(parts, known, strict=True):
        if found.gaps is None:
            rest.append(part)
            continue
        named = [piece for piece in indexed if piece.start < part.stop and part.start < piece.stop]
        piece = _joined(store, part, named, found, selection, trust)
        size = found.nbytes + sum(stop - start for start, stop in found.gaps)
        if len(piece.positions) or size:
            pieces.append((piece, size + len(piece.positions) * store.files.prices.request))
        units += found.count
        nbytes += size
    return Beside(pieces, rest, units, nbytes)


def _joined(
    store: Snapshot, part: Range, named: Sequence[Indexed], found: Coverage, selection: Selection, trust: Trust
) -> Indexed:
    """One piece of a part: what the index names, and the units of BatchCQ queues."""
    positions = np.concatenate([np.empty(0, np.int64), *(piece.positions for piece in named)])
    positions = positions[(part.start <= positions) & (positions < part.stop)]
    live_end = min((piece.live_end for piece in named if piece.live_end < piece.stop), default=part.stop)
    live_end = max(part.start, min(live_end, part.stop))
    mark = None if trust == "queues" else (found.count, found.print)
    is_any_time = selection.store_timestamp == ALL
    ascends = is_any_time or store.times.ascends(part.start, part.stop)
    place = part.segment, part.start, part.stop, part.store
    batches = Queued(*place, tuple(found.gaps or ()), mark, ascends)
    return Indexed(*place, live_end, positions, batches)
