"""Several copies of one broker's store, read as one log (option `deduplicate`).

Of each segment the copy is read that reaches furthest; of those that reach as far, that of the store with most of the
log. What is damaged there a task reads in another copy. That is right as long as copies have the same message in the
same place, which is proved of their ends: if two logs have one message in common, they have all before it.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from native_io import Status
from rmqstore_spark.errors import OptionError
from rmqstore_spark.read.pack import Pieces
from rmqstore_spark.read.prune import ranges_of
from rmqstore_spark.read.task import Range
from rmqstore_spark.read.twins import Seen, twins
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.segments import Damage, Segment, damage_in
from rmqstore_spark.store.units import Positions

_MESSAGES_TO_COMPARE = 64
_NOT_THERE = "the log of this copy ends, and what other copies have begins later: no copy has what is between"


@dataclass(frozen=True)
class Copies:
    """Copies of one store, or one store that there are no copies of.

    Attributes:
        stores: the one with most messages first.
        segments: of several stores: what each has of a segment, by its start. Of these, the first is read. In order.
    """

    stores: list[OpenStore]
    segments: dict[int, list[Range]]

    @property
    def newest(self) -> OpenStore:
        """The one whose log ends last."""
        return max(self.stores, key=lambda store: store.end)

    @property
    def size(self) -> int:
        """Bytes of the log."""
        if len(self.stores) == 1:
            return self.stores[0].log.size
        return sum(found[0].stop - found[0].start for found in self.segments.values())

    def is_read(self, store: OpenStore) -> bool:
        """Is anything read of a store, unless another one is damaged?"""
        return len(self.stores) == 1 or any(found[0].store is store for found in self.segments.values())

    def ranges(self, store: OpenStore, ranges: list[Range]) -> list[Range]:
        """Those of a store's ranges that are read there."""
        if len(self.stores) == 1:
            return ranges
        return [r for r in ranges if self.segments[r.segment.start][0].store is store]

    def with_spares(self, piece: Range) -> Range:
        """The same piece with what other copies have of its segment."""
        spares = self.segments.get(piece.segment.start, [])
        return replace(piece, spares=tuple(r for r in spares if r.store is not piece.store)) if spares else piece

    def faults(self) -> list[tuple[str, Damage]]:
        """What no copy has: between what is read, and after it; each with its store."""
        told = [(store.root, fault) for store in self.stores for fault in store.faults]
        read = [found[0] for found in self.segments.values()]
        if not read:
            return told
        holes = [_hole(one, after.start, told) for one, after in itertools.pairwise(read)]
        last = read[-1]
        after = [(last.store.root, fault) for fault in last.store.faults if fault.start >= last.stop]
        return [hole for hole in holes if hole is not None] + after


def _hole(before: Range, stop: int, told: list[tuple[str, Damage]]) -> tuple[str, Damage] | None:
    """What is lost between the end of a range and the next one's start; None where that is a closing blank at most."""
    start, segment = before.stop, before.segment
    if start < segment.end:
        with before.store.reader(segment) as reader:
            if reader.status_at(start, segment.end) is Status.BLANK:
                start = segment.end
    if start >= stop:
        return None
    reason = next((fault.reason for _, fault in told if fault.start <= start < fault.stop), _NOT_THERE)
    return before.store.root, damage_in(segment, start, stop, reason)


def alone(stores: list[OpenStore]) -> list[Copies]:
    """Stores that are no copies of each other."""
    return [Copies([store], {}) for store in stores]


def copies_of(stores: list[OpenStore]) -> list[Copies]:
    """Stores, those that are copies of one put together.

    Raises:
        OptionError: some of these have different messages in one place, or the same in different places.
    """
    groups = {store: [store] for store in stores}
    for one, other, is_in_place in twins(stores):
        _compare(one, other, is_in_place)
        if groups[one] is not groups[other]:
            joined = groups[one] + groups[other]
            groups.update(dict.fromkeys(joined, joined))
    return [_merged(group) for group in {id(group): group for group in groups.values()}.values()]


def _merged(stores: list[OpenStore]) -> Copies:
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
    """Or padded."""
    return segment.size != segment.end - segment.start


def in_order(logs: list[Copies], pieces: dict[OpenStore, Pieces]) -> Pieces:
    """The pieces of stores in the order in which they are read, log by log, with their spares."""
    return [
        (log.with_spares(piece), nbytes)
        for log in logs
        for piece, nbytes in sorted((p for store in log.stores for p in pieces[store]), key=lambda p: p[0].start)
    ]


# ---- do copies agree?


def _compare(one: OpenStore, other: OpenStore, is_in_place: bool) -> None:
    """See that twins have the same messages in the same places.

    Raises:
        OptionError: they have not.
    """
    both = (
        f"{one.root} and {other.root}: deduplicate=true takes messages for the same that have the same commitLogOffset"
    )
    if not is_in_place or any(_begins_inside(a, b) for a, b in ((one, other), (other, one))):
        raise OptionError(
            f"{both}, but these have the same messages in different places, as a copy by `rmqstore copy` has; name one"
        )
    shorter, longer = sorted((Seen(one), Seen(other)), key=lambda seen: seen.store.end)
    differs = _difference(shorter, longer)
    if differs is not None:
        raise OptionError(
            f"{both}, but from {differs} on these have different messages, as after a cut of which each has gone on by "
            "itself; read them apart"
        )


def _begins_inside(one: OpenStore, other: OpenStore) -> bool:
    """Does a segment begin where the other store has the middle of one?"""
    found = ((r.start, other.log.extent_at(r.start)) for r in ranges_of(one))
    return any(extent is not None and extent.start != start for start, extent in found)


def _difference(shorter: Seen, longer: Seen) -> int | None:
    """From where on two copies have different messages; None where they have not. Where that is damaged in one of them,
    it is the first place where it can be seen."""
    starts = [{r.segment.start for r in ranges_of(seen.store)} for seen in (shorter, longer)]
    common = sorted(starts[0] & starts[1])
    found = _difference_in(shorter, longer, common[-1])
    if found is None:
        return None
    same = shorter.store.files.first_not(0, len(common), lambda n: _is_same(shorter, longer, common[n]))
    first = _difference_in(shorter, longer, common[same - 1]) if same else None
    return found if first is None else first


def _difference_in(shorter: Seen, longer: Seen, segment: int) -> int | None:
    """The same by one segment that both have."""
    last = shorter.store.last_message
    stop = min(_stop(shorter, segment), _stop(longer, segment))
    at_end = [] if last is None or not segment <= last.position < stop else [last.position]
    if any(_is_same(shorter, longer, at) for at in at_end):
        return None
    places = _units(shorter.store, segment, stop)
    found = shorter.store.files.first_not(0, len(places), lambda n: _is_same(shorter, longer, int(places[n])))
    after = [*places[found : found + _MESSAGES_TO_COMPARE].tolist(), *at_end]
    if any(_is_same(shorter, longer, at) for at in after):
        return None  # damage of one of them was in between
    whole = (at for at in after if shorter.at(at) is not None and longer.at(at) is not None)
    return next(whole, None)


def _stop(seen: Seen, segment: int) -> int:
    extent = seen.store.log.extent_at(segment)
    return segment if extent is None else extent.stop


def _is_same(one: Seen, other: Seen, position: int) -> bool:
    message = one.at(position)
    return message is not None and message == other.at(position)


def _units(store: OpenStore, start: int, stop: int) -> Positions:
    """Where the units of a segment begin, up to the first damage."""
    return np.concatenate([np.empty(0, np.int64), *_runs(store, start, stop)])


def _runs(store: OpenStore, start: int, stop: int) -> Iterator[Positions]:
    extent = store.log.extent_at(start)
    if extent is None:
        return
    with store.reader(extent.segment) as reader:
        at = start
        while at < stop and (run := reader.run_at(at, stop)) is not None:
            positions = run.positions.copy()
            yield positions
            last = reader.header(int(positions[-1]))
            if last is None:
                return
            at = last.position + last.size
