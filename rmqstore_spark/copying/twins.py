"""Are two stores copies of one, so that what became of them together would have messages twice?"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from rmqstore_spark.errors import OptionError
from rmqstore_spark.read.stored import StoredUnits
from rmqstore_spark.store.message import Header
from rmqstore_spark.store.opened import OpenStore

_AT_PHYSICAL_OFFSET = 28  # in a unit; docs/format.md


def refuse_twins(stores: list[OpenStore]) -> None:
    """See that no store has the first or the last message of another one: the same bytes, in the same place of its
    queue or of the log.

    Raises:
        OptionError: naming two that do.
    """
    ends = [_ends(store) for store in stores]
    for (one, its), (other, others) in combinations(zip(stores, ends, strict=True), 2):
        found = [_has(other, one, each) for each in its] + [_has(one, other, each) for each in others]
        if any(found):
            raise OptionError(
                f"{one.root} and {other.root}: expected stores of different brokers, found two copies of one (master "
                "and slave, or a backup): their messages would come twice; name one of them"
            )


def _ends(store: OpenStore) -> list[Header]:
    """The first and the last message of a store, as far as they are whole."""
    found = [] if store.last_message is None else [store.last_message]
    if store.log.extents:
        first = store.log.extents[0]
        with store.reader(first.segment) as reader:
            header = reader.header(first.start)
        if header is not None:
            found.append(header)
    return found


def _has(store: OpenStore, other: OpenStore, header: Header) -> bool:
    """Does its log have this message of the other's, where its queue or the physical offset says?"""
    queue = store.queues.queue(header.topic, header.queue_id)
    unit = None if queue is None else queue.unit(header.queue_offset)
    return any(
        (there := store.log.header(position)) is not None
        and there == replace(header, position=position)
        and _bytes(store, there) == _bytes(other, header)
        for position in {header.position, *([] if unit is None else [unit.position])}
    )


def _bytes(store: OpenStore, header: Header) -> bytes:
    """A unit, but for its physical offset."""
    memory = bytearray(header.size)
    with StoredUnits(store) as units:
        units.read_into(memoryview(memory), np.array([header.position]), np.array([header.size]))
    return bytes(memory[:_AT_PHYSICAL_OFFSET] + memory[_AT_PHYSICAL_OFFSET + 8 :])
