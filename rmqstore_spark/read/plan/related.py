"""Are two stores copies of one, so that their messages would come twice? Copies are master and slave, a store and its
backup, or a copy made by `rmqstore copy`.

A log only grows at its end, or is cut there and goes on with other messages. So from the start of the copy that begins
later up to a cut, copies have all messages in common, whatever became of their ends and beginnings since. The first
place where both can be compared decides. Damage moves that place on. Stores of unrelated brokers have different
messages at each place.
"""

import enum
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from rmqstore_spark.errors import OptionError
from rmqstore_spark.kept import kept
from rmqstore_spark.read.plan.compared import Log, Region, Unit, are_one, is_proof, regions, verdicts
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.snapshot import Snapshot

_MOST_DIFFERENT = 4  # places in which logs differ; one could be a message with a flipped bit that no checksum covers
_SAMPLES = 8  # messages that are searched for elsewhere, where damage hides whether they are there


class Kinship(enum.Enum):
    """The relation of two stores."""

    APART = "different stores: no message comes twice"
    IN_PLACE = "copies, with messages in the same physical offsets"
    MOVED = "copies, with messages in other physical offsets"
    UNSURE = "both have messages of the same physical offsets, but where one has them the other is damaged"
    NOTHING = "the same, and one of them has no message at all there"


class Related(NamedTuple):
    """Two stores that are not unrelated."""

    one: Snapshot
    other: Snapshot
    kinship: Kinship


def refuse_copies(stores: list[Snapshot], advice: str) -> None:
    """See that no two stores are copies of one. For one store this costs nothing. For several, the first and the last
    message of each is read, and more messages only of stores that have a storeHost in common, or messages of several
    storeHosts, as in the store of a broker that was moved.

    Args:
        advice: what the user can do instead.

    Raises:
        OptionError: naming two stores that are copies, or may be, as far as damage hides it.
    """
    for pair in related_pairs(stores):
        if pair.kinship is Kinship.UNSURE:
            raise cannot_tell(pair, "read them apart")
        if pair.kinship is not Kinship.NOTHING:
            raise OptionError(
                f"{pair.one.root} and {pair.other.root}: expected stores of different brokers, found two copies of "
                f"one (master and slave, or a backup): their messages would come twice; {advice}"
            )


def cannot_tell(pair: Related, advice: str) -> OptionError:
    """The error for two stores whose relation is hidden by damage.

    Args:
        advice: what the user can do about it.
    """
    return OptionError(
        f"{pair.one.root} and {pair.other.root}: expected a message that is whole in both at the same "
        "commitLogOffset, to tell copies of one store from different stores, found none: where one has messages the "
        f"other is damaged; {advice}"
    )


def related_pairs(stores: list[Snapshot]) -> Iterator[Related]:
    """The pairs of stores that are not unrelated."""
    if len(stores) < 2:
        return
    if len({store.root for store in stores}) == 1:
        return  # queues' logs of one tiered store
    seen = [_Seen(store) for store in stores]
    stores[0].files.schedule.mapped(lambda each: each.hosts, seen)
    for one, other in itertools.combinations(seen, 2):
        if not one.store.may_be_copy_of(other.store):
            continue
        if one.hosts is None or other.hosts is None or one.hosts & other.hosts:
            kinship = _kinship(one, other)
            if kinship is not Kinship.APART:
                yield Related(one.store, other.store, kinship)


class _Seen(Log):
    """A store's log, with the messages that were looked at."""

    def __init__(self, store: Snapshot) -> None:
        super().__init__(store)
        self._headers: dict[int, Header | None] = {}
        self._units_asked: dict[tuple[str, int, int], list[QueueUnit]] = {}

    @kept
    def first(self) -> Unit | None:
        """The store's first whole message, None where its first segment has none."""
        extents = self.store.log.extents
        return self.first_in(extents[0]) if extents else None

    @kept
    def last(self) -> Unit | None:
        """The store's last message; where it is not known, the first one of its last segment; None where that has
        none."""
        last, extents = self.store.last_message, self.store.log.extents
        known = None if last is None else self.at(last.position)
        return known or (self.first_in(extents[-1]) if extents else None)

    @kept
    def hosts(self) -> frozenset[bytes] | None:
        """The store's storeHost; empty where there are no messages, None where there may be several."""
        if not self.store.log.extents:
            return frozenset()
        hosts = frozenset(unit.message.store_host for unit in (self.first, self.last) if unit is not None)
        return hosts if self.first is not None and self.last is not None and len(hosts) == 1 else None

    def samples(self) -> Iterator[Unit]:
        """Some of the store's messages: the first, the last, and some between them."""
        extents = self.store.log.extents
        few = [extents[0], *extents[1 :: -(-len(extents) // _SAMPLES) or 1]] if extents else []
        ends = (unit for unit in (self.first, self.last) if unit is not None)
        given = set()
        for unit in itertools.chain(ends, itertools.chain.from_iterable(map(self.some_in, few))):
            if unit.position not in given:
                given.add(unit.position)
                yield unit

    def header(self, position: int) -> Header | None:
        """The header of the message at a physical offset."""
        if position not in self._headers:
            self._headers[position] = self.store.log.header(position)
        return self._headers[position]

    def has_elsewhere(self, other: "_Seen", unit: Unit) -> bool | None:
        """Does the store have the message of another store, at any place? Its queue tells; where there are no queues,
        store times do. None: damage hides it."""
        header = other.header(unit.position)
        if header is None:
            return None
        if self.store.queues.is_empty:
            return self.has_of_time(unit, header.store_timestamp)
        there = self._queue_units((header.topic, header.queue_id, header.queue_offset))
        found = [self.at(each.position) for each in there if each.size == unit.size]
        if any(each is not None and are_one(each, unit) for each in found):
            return True
        return None if None in found else False

    def _queue_units(self, message: tuple[str, int, int]) -> list[QueueUnit]:
        if message not in self._units_asked:
            self._units_asked[message] = [unit for _, unit in self.store.queues.units_with(*message)]
        return self._units_asked[message]


def _kinship(one: _Seen, other: _Seen) -> Kinship:
    in_place = _in_place(one, other)
    if in_place is Kinship.IN_PLACE:
        return in_place
    return Kinship.MOVED if _has_some(one, other) or _has_some(other, one) else in_place


def _in_place(one: _Seen, other: _Seen) -> Kinship:
    different, common = 0, list[Region]()
    for region in regions(one.store, other.store):
        common.append(region)
        for verdict in verdicts(one, other, region):
            if verdict.is_same:
                return Kinship.IN_PLACE
            different += is_proof(one, other, verdict)
            if different == _MOST_DIFFERENT:
                return Kinship.APART
    if different or not common:
        return Kinship.APART
    have_both = all(any(log.first_of(region, n) for region in common) for n, log in enumerate((one, other)))
    return Kinship.UNSURE if have_both else Kinship.NOTHING


def _has_some(one: _Seen, other: _Seen) -> bool:
    """Does one store have a message of the other elsewhere? Two missing messages are enough for no; but a copy may have
    been made of some topics alone."""
    missing, topics = 0, one.store.queues.topics
    for unit in other.samples():
        if topics and unit.topic not in topics:
            continue
        found = one.has_elsewhere(other, unit)
        if found:
            return True
        missing += found is False
        if missing == 2:
            return False
    return False
