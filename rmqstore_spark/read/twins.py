"""Are two stores copies of one, so that their messages would come twice: master and slave, a store and its backup, or a
copy that `rmqstore copy` has made?

A log only grows at its end, or is cut there and goes on with other messages. So copies that have one message in the
same place have all in common that comes before it in both of them, whatever became of their ends and beginnings since.
Stores of brokers that have nothing to do with each other have different messages in each place.
"""

import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from rmqstore_spark.errors import OptionError
from rmqstore_spark.store.message import FIXED_SIZE, Fixed
from rmqstore_spark.store.opened import OpenStore

_PLACES = 8  # to compare two logs at, where damage hides whether they agree
_MOST_DIFFERENT = 2  # places in which logs differ; one could be a damaged message


def refuse_twins(stores: list[OpenStore], advice: str) -> None:
    """See that no two stores are copies of one. One store: this costs nothing. Several: the first and the last message
    of each is looked at, and some more of those alone that have a storeHost in common, or messages of several
    storeHosts, as a broker leaves that was moved.

    Args:
        advice: what to do instead.

    Raises:
        OptionError: naming two that are.
    """
    for one, other, _ in twins(stores):
        raise OptionError(
            f"{one.root} and {other.root}: expected stores of different brokers, found two copies of one (master and "
            f"slave, or a backup): their messages would come twice; {advice}"
        )


class Twins(NamedTuple):
    """Two stores that are copies of one.

    Attributes:
        is_in_place: whether messages have the same physical offsets in both.
    """

    one: OpenStore
    other: OpenStore
    is_in_place: bool


def twins(stores: list[OpenStore]) -> Iterator[Twins]:
    """Each two of the stores that are copies of one."""
    if len(stores) < 2:
        return
    seen = [Seen(store) for store in stores]
    list(stores[0].files.each(lambda each: each.hosts, seen))
    for one, other in itertools.combinations(seen, 2):
        if one.hosts is None or other.hosts is None or one.hosts & other.hosts:
            is_in_place = _are_in_place(one, other)
            if is_in_place or _are_elsewhere(one, other):
                yield Twins(one.store, other.store, is_in_place)


class Seen:
    """A store, with the messages that were looked at in it."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store
        self._found: dict[int, tuple[str, Fixed] | None] = {}

    def at(self, position: int) -> tuple[str, Fixed] | None:
        """The message at a physical offset: its topic and its fixed fields; None where there is none, or it is damaged,
        as far as checksums tell."""
        if position not in self._found:
            self._found[position] = self._look(position)
        return self._found[position]

    def _look(self, position: int) -> tuple[str, Fixed] | None:
        extent = self.store.log.extent_at(position)
        if extent is None:
            return None
        with self.store.reader(extent.segment, verify_crc=True) as reader:
            header = reader.header(position)
            if header is None or position + header.size > extent.stop:
                return None
            return header.topic, Fixed.of(reader.window.read(position, FIXED_SIZE))

    @cached_property
    def ends(self) -> list[int]:
        """Where its first and its last message are."""
        last, extents = self.store.last_message, self.store.log.extents
        return [*(extent.start for extent in extents[:1]), *([] if last is None else [last.position])]

    @cached_property
    def hosts(self) -> frozenset[bytes] | None:
        """Its storeHost; empty where there are no messages, None where there may be several."""
        found = [self.at(position) for position in self.ends]
        hosts = frozenset(each[1].store_host for each in found if each is not None)
        return hosts if None not in found and len(hosts) < 2 else None

    def has_moved(self, other: "Seen", position: int) -> bool:
        """Does its queue have the message that another store has at a physical offset, if in another place?"""
        message = other.at(position)
        header = None if message is None else other.store.log.header(position)
        queue = None if header is None else self.store.queues.queue(header.topic, header.queue_id)
        unit = None if queue is None or header is None else queue.unit(header.queue_offset)
        return unit is not None and self.at(unit.position) == message


def _are_in_place(one: Seen, other: Seen) -> bool:
    different = 0
    for position in _common_places(one, other):
        here, there = one.at(position), other.at(position)
        if here is not None and here == there:
            return True
        different += here is not None and there is not None
        if different == _MOST_DIFFERENT:
            return False
    return False


def _are_elsewhere(one: Seen, other: Seen) -> bool:
    """Has one the first or the last message of the other, by its queue?"""
    return any(one.has_moved(other, at) for at in other.ends) or any(other.has_moved(one, at) for at in one.ends)


def _common_places(one: Seen, other: Seen) -> Iterator[int]:
    """Physical offsets in both logs at which units begin: where what they have in common begins, where it ends, and
    some in between."""
    logs = one.store.log, other.store.log
    starts, others = ({extent.start for extent in log.extents} for log in logs)
    common = sorted(starts & others)
    ends = sorted({position for seen in (one, other) for position in seen.ends[1:]})
    in_both = [at for at in ends if all(log.extent_at(at) is not None for log in logs)]
    yield from dict.fromkeys([*common[:1], *in_both[:1], *common[:: -(-len(common) // _PLACES) or 1]])
