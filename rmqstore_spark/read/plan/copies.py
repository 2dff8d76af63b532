"""Several copies of one broker's store, read as one log (option `deduplicate`).

Each segment is read in the copy that reaches furthest; among equals, in the store with most of the log. A task reads
damaged parts in another copy. This is right as long as copies have the same message at the same place, which is proved
at the last place where they can be compared: if two logs have one message in common, they have all before it in common.
"""

import itertools
from dataclasses import dataclass, replace

from rmqstore_spark.errors import OptionError
from rmqstore_spark.read.pieces.task import Range
from rmqstore_spark.read.plan.compared import Log, Region, are_one, is_proof, regions, unequal, verdicts_in
from rmqstore_spark.read.plan.nodes import agreed
from rmqstore_spark.read.plan.pack import Pieces
from rmqstore_spark.read.plan.prune import ranges_of
from rmqstore_spark.read.plan.related import Kinship, Related, cannot_tell, related_pairs
from rmqstore_spark.store.snapshot import Snapshot, as_snapshot
from rmqstore_spark.store.structures.segments import Damage, Segment, damage_in

_NOT_THERE = "the log of this copy ends, and what other copies have begins later: no copy has what is between"


@dataclass(frozen=True)
class Copies:
    """Copies of one store, or one store that has no copies.

    Attributes:
        stores: the one with most messages first.
        segments: for several stores: the copies of each segment, by its start, in order. The first of them is read.
    """

    stores: list[Snapshot]
    segments: dict[int, list[Range]]

    @property
    def newest(self) -> Snapshot:
        """The store whose log ends last."""
        return max(self.stores, key=lambda store: store.end)

    @property
    def size(self) -> int:
        """Bytes of the log."""
        if len(self.stores) == 1:
            return self.stores[0].log.size
        return sum(found[0].stop - found[0].start for found in self.segments.values())

    def is_read(self, store: Snapshot) -> bool:
        """Is any part of a store read even if no other one is damaged?"""
        return len(self.stores) == 1 or any(found[0].store is store for found in self.segments.values())

    def ranges(self, store: Snapshot, ranges: list[Range]) -> list[Range]:
        """The parts of a store's ranges that are read in this store."""
        if len(self.stores) == 1:
            return ranges
        return [r for r in ranges if self.segments[r.segment.start][0].store is store]

    def with_spares(self, piece: Range) -> Range:
        """A piece with the other copies of its segment as spares."""
        spares = self.segments.get(piece.segment.start, [])
        return replace(piece, spares=tuple(r for r in spares if r.store is not piece.store)) if spares else piece

    def faults(self) -> list[tuple[str, Damage]]:
        """The damage that no copy makes good for: between the ranges that are read, and after them; each with its
        store."""
        told = [(store.root, fault) for store in self.stores for fault in store.faults]
        read = [found[0] for found in self.segments.values()]
        if not read:
            return told
        holes = [_hole(one, after.start, told) for one, after in itertools.pairwise(read)]
        last = read[-1]
        after = [(last.store.root, fault) for fault in as_snapshot(last.store).faults if fault.start >= last.stop]
        return [hole for hole in holes if hole is not None] + after


def _hole(before: Range, stop: int, told: list[tuple[str, Damage]]) -> tuple[str, Damage] | None:
    """The hole between the end of a range and the next one's start; None where there is a closing blank at most."""
    start, segment = before.stop, before.segment
    if start < segment.end:
        with before.store.reader(segment) as reader:
            if reader.is_closed_at(start):
                start = segment.end
    if start >= stop:
        return None
    reason = next((fault.reason for _, fault in told if fault.start <= start < fault.stop), _NOT_THERE)
    return before.store.root, damage_in(segment, start, stop, reason)


def alone(stores: list[Snapshot]) -> list[Copies]:
    """Each of the stores by itself, for stores that are no copies of each other."""
    return [Copies([store], {}) for store in stores]


def copies_of(stores: list[Snapshot]) -> list[Copies]:
    """The stores, with copies of one store put together.

    Raises:
        OptionError: some of these have different messages at one place, or the same message at different places; or
            damage hides whether they are copies.
    """
    groups = {store: [store] for store in stores}
    pairs: list[Related] = []
    for pair in related_pairs(stores):
        if pair.kinship in (Kinship.UNSURE, Kinship.NOTHING):
            raise cannot_tell(pair, "leave one out, or read them separately")
        pairs.append(pair)
        one, other, _ = pair
        if groups[one] is not groups[other]:
            joined = groups[one] + groups[other]
            groups.update(dict.fromkeys(joined, joined))
    distinct = list({id(group): group for group in groups.values()}.values())
    read = {store: as_read for group in distinct for store, as_read in agreed(group).items()}
    for one, other, kinship in pairs:
        _compare(read[one], read[other], kinship is Kinship.IN_PLACE)
    return [_merged([read[store] for store in group]) for group in distinct]


def _merged(stores: list[Snapshot]) -> Copies:
    if len(stores) == 1:
        return Copies(stores, {})
    by_size = sorted(stores, key=lambda store: (-store.log.size, len(store.faults)))
    segments: dict[int, list[Range]] = {}
    for store in by_size:
        for r in ranges_of(store):
            segments.setdefault(r.segment.start, []).append(r)
    best_first = {
        start: sorted(found, key=lambda r: (-r.stop, _is_cut(r.segment))) for start, found in segments.items()
    }
    return Copies(by_size, dict(sorted(best_first.items())))


def _is_cut(segment: Segment) -> bool:
    """Is a segment cut off, or padded?"""
    return segment.size != segment.end - segment.start


def in_order(logs: list[Copies], pieces: dict[Snapshot, Pieces]) -> Pieces:
    """The pieces of stores in the order in which they are read, log by log, with their spares."""
    return [
        (log.with_spares(piece), nbytes)
        for log in logs
        for piece, nbytes in sorted((p for store in log.stores for p in pieces[store]), key=lambda p: p[0].start)
    ]


# ---- do copies agree?


def _compare(one: Snapshot, other: Snapshot, is_in_place: bool) -> None:
    """See that two copies have the same messages at the same places.

    Raises:
        OptionError: they do not.
    """
    both = (
        f"{one.root} and {other.root}: deduplicate=true takes messages for the same that have the same commitLogOffset"
    )
    if not is_in_place or any(_begins_inside(a, b) for a, b in ((one, other), (other, one))):
        raise OptionError(
            f"{both}, but these have the same messages in different places, as a copy by `rmqstore copy` has; name one"
        )
    shorter, longer = sorted((Log(one), Log(other)), key=lambda each: each.store.end)
    differs = _difference(shorter, longer)
    if differs is not None:
        raise OptionError(
            f"{both}, but from {differs} on these have different messages, as after a truncation after which each went "
            "on by itself; read them separately"
        )


def _begins_inside(one: Snapshot, other: Snapshot) -> bool:
    """Does a segment of one store begin inside a segment of the other?"""
    found = ((r.start, other.log.extent_at(r.start)) for r in ranges_of(one))
    return any(extent is not None and extent.start != start for start, extent in found)


def _difference(shorter: Log, longer: Log) -> int | None:
    """The physical offset from which on two copies have different messages; None where they agree. Where one of them is
    damaged there, the offset is the first place where the difference can be seen.

    Messages from before a log was cut can stand behind damage, or follow where new messages happen to end at an old
    one's start. So a common message at the end proves nothing about those before it in its segment; but it proves all
    messages before that segment, as a cut leaves no file that begins after it.
    """
    common = list(regions(shorter.store, longer.store))
    for number in reversed(range(len(common))):
        is_same, found = _turn(shorter, longer, common[number])
        if found is not None:
            return found if is_same else _first_difference(shorter, longer, common[:number], found)
        if is_same:
            return None
    return None


def _first_difference(shorter: Log, longer: Log, before: list[Region], found: int) -> int:
    """The first difference, where a difference was found behind some regions."""
    same = shorter.store.files.schedule.partition_point(
        0, len(before), lambda n: _is_same(shorter, longer, before[n].start)
    )
    for region in before[max(same - 1, 0) :]:
        _, first = _turn(shorter, longer, region)
        if first is not None:
            return first
    return found


def _turn(one: Log, other: Log, region: Region) -> tuple[bool, int | None]:
    """Whether logs have a message in common in a region before they differ, and where they differ first. One flipped
    bit is no difference."""
    differing = unequal(one, other, region)
    equal = differing[0].start if differing else region.stop
    unit = one.first_of(region, 0)
    is_same = unit is not None and unit.position + unit.size <= equal
    for verdict in verdicts_in(differing, one, other, region):
        if verdict.is_same:
            is_same = True
        elif is_proof(one, other, verdict):
            return is_same, verdict.position
    return is_same, None


def _is_same(one: Log, other: Log, position: int) -> bool:
    here, there = one.at(position), other.at(position)
    return here is not None and there is not None and are_one(here, there)
