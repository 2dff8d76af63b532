"""The parts of a log that can hold some queue offsets of a queue whose units have to be searched for them: a BatchCQ.

As in a simple queue (prune.py), physical offsets ascend with queue offsets. So the messages from one queue offset to
another are in the last unit that begins at the first of them or before, and in those after it up to the first unit that
begins after the second: what the log confirms of these two needs no belief in the number of messages that units name.
"""

import itertools

from rmqstore_spark.query.selection import Numbers
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue

_FEW = 64  # units that the log is asked for one by one
_MOST = (1 << 63) - 1


def parts_of_units(store: Snapshot, queue: Queue, offsets: Numbers) -> list[tuple[int, int]] | None:
    """The parts of the log that can hold these offsets of a queue, as physical offsets [start, stop) where units begin,
    in order; None where queue and log do not agree on them."""
    if offsets.is_empty:
        return []
    least, block = queue.units_from(offsets.least)
    first = max(least, queue.first)
    wanted = min(_FEW + 1, queue.end - first)  # mostly also the first unit after the offsets
    block = block.only(slice(wanted)) if len(block) >= wanted else queue.block(first, wanted)
    are_after = ~block.are_messages | (block.queue_offsets > offsets.most)
    is_few = bool(are_after.any())
    count = int(are_after.argmax()) if is_few else len(block)
    units = [block[at] for at in range(min(count + 1, len(block)))]
    after = first + count if is_few else queue.number_with(offsets.most) + 1
    start, stop = 0, _MOST
    if after < queue.end:
        unit = units[count] if is_few else queue.unit(after)
        if unit is None or unit.queue_offset <= offsets.most or not _is_live(store, queue, unit, is_few):
            return None
        stop = unit.position
    if least > queue.first:
        unit = units[0]
        if unit.queue_offset > offsets.least or not _is_live(store, queue, unit, is_few):
            return None
        start = unit.position
    if start == 0 or stop == _MOST or not is_few:
        return [(start, stop)]
    return _one_by_one(store, queue, units) or [(start, stop)]


def _is_live(store: Snapshot, queue: Queue, unit: QueueUnit, may_walk_far: bool) -> bool:
    if not unit.is_message:
        return False
    found = store.log.evidence(queue, unit.queue_offset, unit, may_walk_far=may_walk_far)
    return found is Evidence.LIVE


def _one_by_one(store: Snapshot, queue: Queue, units: list[QueueUnit]) -> list[tuple[int, int]] | None:
    """The parts with these units but the last, if each follows the other and is in the log; else None."""
    if not all(_follows(unit, following) for unit, following in itertools.pairwise(units)):
        return None
    *found, _ = units
    if not all(store.log.has_message(queue, unit.queue_offset, unit) for unit in found[1:]):
        return None
    start, stop = found[0].position, found[-1].position + found[-1].size
    if stop - start <= len(found) * store.files.prices.request:
        return [(start, stop)]
    return [(unit.position, unit.position + unit.size) for unit in found]


def _follows(unit: QueueUnit, following: QueueUnit) -> bool:
    is_behind = following.position >= unit.position + unit.size
    return following.is_message and following.queue_offset == unit.end and is_behind
