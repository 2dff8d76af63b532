"""What a reader must say of a store, from what is known of it and from the bytes of its queues: no code of the package.

Where nothing can decide (docs/design.md, Where the log ends), it says nothing: such messages may come or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from machine.past import Damage, Message, Past, queue_units


@dataclass
class Stretch:
    """Damaged bytes of the log without a whole message between them.

    Attributes:
        must_be_told: whether it is sure that a live message is damaged there, and that this can be known.
    """

    start: int
    stop: int
    damages: list[Damage]
    messages: list[Message]
    must_be_told: bool = True


@dataclass
class Truth:
    """What must come of a store, and what may.

    Attributes:
        must: messages that a read has to give, each once, in the order of the log.
        may: physical offsets of messages that nothing decides about.
        stretches: of damage, in the order of the log.
        units: (physical offset, size) by topic, queueId and queueOffset, of all that stand in ConsumeQueues.
    """

    past: Past
    must: list[Message] = field(default_factory=list)
    may: set[int] = field(default_factory=set)
    stretches: list[Stretch] = field(default_factory=list)
    units: dict[tuple[str, int, int], tuple[int, int]] = field(default_factory=dict)
    whole: list[Message] = field(default_factory=list)

    @property
    def is_decided(self) -> bool:
        """Is there nothing that may come or not, and no damage that may be told or not?"""
        return not self.may and all(stretch.must_be_told for stretch in self.stretches)

    @property
    def must_fail(self) -> bool:
        """Has mode FAILFAST to raise an error?"""
        return any(stretch.must_be_told for stretch in self.stretches)

    @property
    def may_fail(self) -> bool:
        return bool(self.stretches)

    def has_unit(self, message: Message) -> bool:
        """Does its ConsumeQueue have it in its place?"""
        place = (message.topic, message.queue_id, message.queue_offset)
        return message.queued and self.units.get(place) == (message.position, message.size)


def truth_of(past: Past) -> Truth:
    truth = Truth(past)
    for topic, queue_id, offset, position, size in queue_units(past.root):
        truth.units[topic, queue_id, offset] = position, size
    truth.stretches = _stretches(past)
    truth.whole = [m for m in past.messages if not _stretch_at(truth.stretches, m.position)]
    undecided_from = _decide(truth)
    for stretch in truth.stretches:
        if stretch.start > undecided_from:
            stretch.must_be_told = False
    truth.may |= {m.position for m in truth.whole if m.position > undecided_from}
    truth.may |= _between_two_damages(truth)
    truth.may |= _stale_that_may_come(truth)
    truth.must = [m for m in truth.whole if m.position not in truth.may]
    return truth


def _stretches(past: Past) -> list[Stretch]:
    """Damages that touch are one; those in two segments are two."""
    found: list[Stretch] = []
    for damage in sorted(past.damages):
        last = found[-1] if found else None
        if last and damage.start <= last.stop and past.segment_of(damage.start) == past.segment_of(last.start):
            last.stop = max(last.stop, damage.stop)
            last.damages.append(damage)
        else:
            found.append(Stretch(damage.start, damage.stop, [damage], []))
    for stretch in found:
        stretch.messages = [m for m in past.messages if stretch.start <= m.position < stretch.stop]
    return found


def _stretch_at(stretches: list[Stretch], position: int) -> Stretch | None:
    return next((s for s in stretches if s.start <= position < s.stop), None)


def _last_started(truth: Truth) -> int:
    """Where the last segment begins that begins with a whole message: from there on the log's end is searched for."""
    past = truth.past
    begun = [m.position for m in truth.whole if m.position % past.segment_size == 0]
    return max(begun, default=past.start)


def _decide(truth: Truth) -> int:
    """The physical offset of the first damage that nothing proves the log to go on after; beyond all where there is
    none."""
    boundary = _last_started(truth)
    for stretch in truth.stretches:
        if stretch.start < boundary:
            continue
        proved = _proved_by_queues(truth, stretch)
        if not ((proved and proved == len(stretch.messages)) or _is_proved_by_later(truth, stretch)):
            stretch.must_be_told = proved > 0
            return stretch.start
    return 1 << 63


def _proved_by_queues(truth: Truth, stretch: Stretch) -> int:
    """How many messages of a stretch their queues prove to have been there, from the first one on. A unit points
    exactly there, and something else than zeros stands there. After a crash a torn message may stand where an old unit
    points to; so its head must tell that it is this one."""
    if not stretch.messages or stretch.messages[0].position != stretch.start:
        return 0
    for number, message in enumerate(stretch.messages):
        here = [d for d in stretch.damages if d.start <= message.position < d.stop]
        keeps_head = all(d.keeps_head and d.start == message.position for d in here)
        is_proved = truth.has_unit(message) and any(truth.past.stored(message))
        if not is_proved or (truth.past.abort and not keeps_head):
            return number
    return len(stretch.messages)


def _is_proved_by_later(truth: Truth, stretch: Stretch) -> bool:
    """A later message is whole, not older than the last one before nor than the damaged one as far as it can be read,
    and known to its queue, beyond what was seen of it, or in no queue."""
    past = truth.past
    before = [m for m in truth.whole if m.position < stretch.start]
    newest = before[-1].store_timestamp if before else -(1 << 62)
    if stretch.damages[0].keeps_head and stretch.messages:
        newest = max(newest, stretch.messages[0].store_timestamp)
    seen: dict[tuple[str, int], int] = {}
    for m in before:
        if m.queued and past.segment_of(m.position) == past.segment_of(stretch.start):
            seen[m.queue] = max(seen.get(m.queue, -1), m.queue_offset)
    return any(
        m.position > stretch.start
        and m.store_timestamp >= newest
        and (not m.queued or truth.has_unit(m) or m.queue_offset > seen.get(m.queue, -1))
        for m in truth.whole
    )


def _between_two_damages(truth: Truth) -> set[int]:
    """Whole messages after a damage that nothing proves: none up to the next damage is in a queue."""
    past = truth.past
    may: set[int] = set()
    if not truth.units:
        return may
    for stretch, following in zip(truth.stretches, truth.stretches[1:], strict=False):
        if past.segment_of(stretch.start) != past.segment_of(following.start):
            continue
        between = [m for m in truth.whole if stretch.stop <= m.position < following.start]
        if not any(truth.has_unit(m) for m in between):
            may |= {m.position for m in between}
    return may


def _stale_that_may_come(truth: Truth) -> set[int]:
    """What a truncation has left over, where the message that would tell it from live ones is lost."""
    past = truth.past
    may: set[int] = set()
    for stretch in truth.stretches:
        segment = past.segment_of(stretch.start)
        here = [m for m in past.stale if past.segment_of(m.position) == segment and m.position > stretch.start]
        if not here:
            continue
        live_after = [m for m in truth.whole if past.segment_of(m.position) == segment and m.position > stretch.start]
        # Nothing tells for sure whether a queue's unit is of the damaged message, or an old one of the same place.
        may_lead = any(position == stretch.start for position, _ in truth.units.values())
        if any(not may_lead or truth.has_unit(m) for m in live_after):
            continue  # the walk comes to the log's end, or to the blank
        before = [m for m in truth.whole if m.position < stretch.start]
        newest = before[-1].store_timestamp if before else -(1 << 62)
        is_last = segment == past.segment_of(past.messages[-1].position)
        heads = stretch.damages[0].keeps_head and stretch.messages
        if heads:
            newest = max(newest, stretch.messages[0].store_timestamp)
        if not is_last or may_lead or any(m.store_timestamp >= newest for m in here):
            may |= {m.position for m in here}
    return may


def queue_ends(truth: Truth) -> dict[tuple[str, int], int]:
    """The queue offset after the last live message of each queue, damaged ones too."""
    ends: dict[tuple[str, int], int] = {}
    for m in truth.past.messages:
        if m.queued:
            ends[m.queue] = max(ends.get(m.queue, 0), m.queue_offset + 1)
    return ends
