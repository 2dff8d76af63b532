"""The parts of a log that can hold some queue offsets of a queue, by what queue and log agree on.

Along a queue physical offsets ascend with queue offsets, and a broker gives each out once (docs/find.md): where the log
confirms a queue's unit, no other message has its queue offset. A unit is named by the offset, or has to be searched for
(Queue.is_by_offset): the two ways below.
"""

import itertools
from typing import Protocol

from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue

_MOST_OFFSETS = 1000  # for more offsets, one stretch with all of them is taken
_FEW = 64  # units that the log is asked for one by one
_MOST = (1 << 63) - 1


class Offsets(Protocol):
    """Queue offsets (query.selection.Numbers): from `least` to `most`, both included; of these, only some `among` them
    if it is not None."""

    @property
    def least(self) -> int: ...

    @property
    def most(self) -> int: ...

    @property
    def among(self) -> frozenset[int] | None: ...


def parts_of_offsets(store: Snapshot, queues: list[Queue], offsets: Offsets) -> list[tuple[int, int]] | None:
    """The parts of the log that can hold these offsets of a queue, as physical offsets [start, stop) where units begin,
    in order; None: all of it, as where queue and log do not agree.

    Args:
        queues: those with the queue's name (ConsumeQueues.all_of_queue). Where the queue is there twice, of messages
            and of batches, neither is believed.
    """
    if len(queues) != 1:
        return None
    (queue,) = queues
    if queue.is_by_offset:
        return _messages(store, queue, offsets) or _part(store, queue, offsets)
    return _searched(store, queue, offsets)


def _places(store: Snapshot, units: list[QueueUnit]) -> list[tuple[int, int]]:
    """The messages of some units, or the stretch with all of them where they are close to each other."""
    start, stop = units[0].position, units[-1].position + units[-1].size
    if stop - start <= len(units) * store.files.prices.request:
        return [(start, stop)]
    return [(unit.position, unit.position + unit.size) for unit in units]


# ---- units that are named by the offset


def _messages(store: Snapshot, queue: Queue, offsets: Offsets) -> list[tuple[int, int]] | None:
    """The messages at these offsets of a queue, or the stretch with all of them where they are close to each other;
    None where the offsets are many, or queue and log do not agree on each of them."""
    if offsets.among is None and offsets.most - offsets.least >= _MOST_OFFSETS:
        return None
    numbers = sorted(range(offsets.least, offsets.most + 1) if offsets.among is None else offsets.among)
    # Before a queue's first message, the log may have messages of a deleted topic of the same name, with its offsets.
    if not numbers or len(numbers) > _MOST_OFFSETS or numbers[0] <= queue.first:
        return None
    units = _units_of(store, queue, numbers)
    if not units:
        return None
    return _places(store, units)


def _units_of(store: Snapshot, queue: Queue, numbers: list[int]) -> list[QueueUnit] | None:
    """The units of some queue offsets, if the log agrees on all of them. If the last one is live, so are the others."""
    found: list[QueueUnit] = []
    for number in numbers[::-1]:
        unit = queue.unit(number)
        if unit is None or (found and unit.position + unit.size > found[-1].position):
            return None
        if found:
            agrees = store.log.has_message(queue, number, unit)
        else:
            agrees = store.log.evidence(queue, number, unit, may_walk_far=True) is Evidence.LIVE
        if not agrees:
            return None
        found.append(unit)
    return found[::-1]


def _part(store: Snapshot, queue: Queue, offsets: Offsets) -> list[tuple[int, int]] | None:
    """The part of the log that can hold these offsets of a queue; None where queue and log do not agree on it."""
    start, stop = 0, _MOST
    first = min(offsets.least, queue.end - 1)  # a message that is not in the queue yet comes after its last one
    if first > queue.first:
        unit = _unit_at(store, queue, first)
        if unit is None:
            return None
        start = unit.position
    if offsets.most < queue.end:
        unit = _unit_at(store, queue, offsets.most)
        if unit is None:
            return None
        stop = unit.position + unit.size
    return [(store.first_of(start, first, offsets.most), stop)]


def _unit_at(store: Snapshot, queue: Queue, queue_offset: int) -> QueueUnit | None:
    """The unit of a queue offset, when its message is live."""
    unit = queue.unit(queue_offset)
    is_live = unit is not None and store.log.evidence(queue, queue_offset, unit) is Evidence.LIVE
    return unit if is_live else None


# ---- units that have to be searched for


def _searched(store: Snapshot, queue: Queue, offsets: Offsets) -> list[tuple[int, int]] | None:
    """The parts of the log that can hold these offsets of a queue whose units have to be searched for them, as of a
    BatchCQ; None where queue and log do not agree on them.

    The messages from one queue offset to another are in the last unit that begins at the first of them or before, and
    in those after it up to the first unit that begins after the second: what the log confirms of these two needs no
    belief in the number of messages that units name.
    """
    if offsets.least > offsets.most:
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
    return _places(store, found)


def _follows(unit: QueueUnit, following: QueueUnit) -> bool:
    is_behind = following.position >= unit.position + unit.size
    return following.is_message and following.queue_offset == unit.end and is_behind
