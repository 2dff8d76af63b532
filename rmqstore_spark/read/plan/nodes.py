"""Nodes of one log of entries, read together: the log ends with the last entry that most of them have.

An entry that most nodes have, with its index and term, is committed: no later leader can take it back. Two logs that
have one entry in common have all before it in common (Raft's log matching), so their last common entry says it all.
What a node has after the common end is left out, and told.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmqstore_spark.errors import one_line
from rmqstore_spark.store.committed import has_order
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.entries import Entry
from rmqstore_spark.store.structures.segments import Extent

log = logging.getLogger(__name__)


class _Reach(NamedTuple):
    """How far two logs agree: the physical offset where their last common message ends, and the number of its entry;
    None where there is no entry in common."""

    end: int
    number: int | None


def agreed(stores: Sequence[Snapshot]) -> dict[Snapshot, Snapshot]:
    """The stores of one log's nodes, each with a log that ends where most of them agree; others stay as they are.

    Args:
        stores: copies of one store.
    """
    nodes = [store for store in stores if any(has_order(segment) for segment in store.segments)]
    if len(nodes) < 2 or len(nodes) < len(stores):
        return {store: store for store in stores}
    reach = {one: {other: _reach(one, other) for other in nodes} for one in nodes}
    needed = len(nodes) // 2  # others, beside the node itself
    best, end = nodes[0], -1
    for node in nodes:
        shared = sorted((reach[node][other].end for other in nodes if other is not node), reverse=True)[needed - 1]
        if shared > end:
            best, end = node, shared
    return {node: _ending(node, min(end, reach[best][node].end), reach[best][node]) for node in nodes}


def _ending(node: Snapshot, end: int, common: _Reach) -> Snapshot:
    """A node's store with a log that ends at a physical offset."""
    if end >= node.end:
        return node
    last = node.last_entry
    known = last is not None and common.number is not None and end == common.end
    count = f"{last.number - common.number:,} entries" if known and last and common.number is not None else "entries"
    log.warning(
        "%s: %s behind commitLogOffset %d are left out (%d bytes): fewer than half of the nodes that are read together "
        "have them, or others have other ones there",
        one_line(node.root),
        count,
        end,
        node.end - end,
    )
    return node.ending_at(end)


def _reach(one: Snapshot, other: Snapshot) -> _Reach:
    if one is other:
        return _Reach(one.end, None if one.last_entry is None else one.last_entry.number)
    shorter, longer = sorted((one, other), key=lambda store: store.end)
    last = shorter.last_message
    entry = None if last is None else shorter.last_entry
    if last is not None and entry is not None and _entry_at(longer, last.position, last.size) == entry:
        return _Reach(shorter.end, entry.number)
    theirs = {extent.start: extent for extent in other.log.extents}
    common = [(mine, theirs[mine.start]) for mine in one.log.extents if mine.start in theirs]
    ordered = [pair for pair in common if all(has_order(extent.segment) for extent in pair)]
    for mine, there in reversed(ordered):
        found = _common(one, other, mine, there)
        if found is not None:
            return found
    return _Reach(ordered[0][0].start if ordered else min(one.end, other.end), None)


def _entry_at(store: Snapshot, position: int, size: int) -> Entry | None:
    extent = store.log.extent_at(position)
    if extent is None:
        return None
    with store.reader(extent.segment) as reader:
        unit = reader.header(position)
        return reader.entry(unit) if unit is not None and (unit.position, unit.size) == (position, size) else None


def _common(one: Snapshot, other: Snapshot, mine: Extent, theirs: Extent) -> _Reach | None:
    """How far two copies of a segment agree from its start on; None if not even in their first entries."""
    found = None
    with one.reader(mine.segment) as a, other.reader(theirs.segment) as b:
        for here, there in zip(_entries(a, mine), _entries(b, theirs), strict=False):
            if here != there:
                break
            end, entry = here
            found = _Reach(end, entry.number)
    return found


def _entries(reader: SegmentReader, extent: Extent) -> Iterator[tuple[int, Entry]]:
    """Where the messages of a segment end, and their entries, up to the first damage."""
    at = extent.start
    while at < extent.stop and (run := reader.run_at(at, extent.stop)) is not None:
        for unit in run.headers():
            entry = reader.entry(unit)
            if entry is None:
                return
            at = unit.position + unit.size
            yield at, entry
