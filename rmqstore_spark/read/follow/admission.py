"""How much of a log a micro-batch reads: about so many bytes of it, and at most so many messages."""

from dataclasses import replace

from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.follow.edge import Reached, place_after
from rmqstore_spark.read.pieces.kernel_filter import kernel_filter
from rmqstore_spark.read.pieces.task import Range
from rmqstore_spark.read.plan.split import Splitter
from rmqstore_spark.store.structures.segments import Damage

_MOST_WALKED = 8 * 1024 * 1024  # bytes: for a unit's start farther off, the queues are asked
_MOST_COUNTED = 256 * 1024 * 1024  # bytes of log in which messages are counted for one batch


def cut_bytes(ranges: list[Range], most: int) -> Reached | None:
    """The end of a message about `most` bytes after the start of a part of a log; None where the part is no larger.

    Args:
        ranges: the part, in order.
        most: bytes; at least one message is read in any case.
    """
    left = most
    for whole in ranges:
        size = whole.stop - whole.start
        if left < size and (found := _cut_near(whole, max(1, left))) is not None:
            return None if whole is ranges[-1] and found.position >= whole.stop else found
        left -= size
    return None


def cut_messages(ranges: list[Range], selection: Selection, most: int) -> Reached | None:
    """The end of the last of `most` selected messages in a part of a log; None where the part has no more than that.
    Where selected messages are far between, there may be fewer before the end.

    Args:
        ranges: the part, in order.
        most: messages, at least 1.
    """
    chosen = kernel_filter(selection)
    left, counted = most, 0
    for whole in ranges:
        size = whole.stop - whole.start
        if counted and counted + size > _MOST_COUNTED:
            return _cut_near(whole, 1)
        counted += size
        with whole.store.reader(whole.segment) as reader:
            for found in whole.store.past_damage(reader).select(whole.start, whole.stop, chosen):
                if isinstance(found, Damage):
                    continue
                if len(found.positions) >= left:
                    end = place_after(reader, int(found.positions[left - 1]))
                    return None if whole is ranges[-1] and end.position >= whole.stop else end
                left -= len(found.positions)
    return None


def _cut_near(whole: Range, size: int) -> Reached | None:
    """The end of a message about `size` bytes after a range's start; None where no such end can be found."""
    if size > _MOST_WALKED:
        parts = Splitter(size, may_walk=False).split(replace(whole, stop=min(whole.stop, whole.start + 3 * size)))
        if len(parts) > 1:
            with whole.store.reader(whole.segment) as reader:
                return place_after(reader, parts[1].start)
    with whole.store.reader(whole.segment) as reader:
        last, _ = reader.walk(whole.start, min(whole.stop, whole.start + size))
        if last is None and reader.header(whole.start) is None:
            return None
        return place_after(reader, whole.start if last is None else last)
