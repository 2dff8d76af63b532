"""What is known of lost messages that waited in a broker's own topics: which of them were delivered already, and when
and to which topic the others were to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import java_hash
from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import delay_offsets
from rmqstore_spark.store.structures.timer import timed_at, timer_time
from rmqstore_spark.times import span_text

_MOST_TIME = 10**15  # milliseconds
_MOST_NAMED = 3  # topics

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Waited:
    """What is known of some messages of a queue, all in the order of their units.

    Attributes:
        due: when each was to be delivered (ms); 0 where that is unknown.
        is_done: whether the message was delivered, or put back for another turn of the wheel: then a later unit counts.
        is_later: whether it was to be put back then.
        topics: the topic to which it goes; "" where that is unknown.
    """

    due: npt.NDArray[np.int64]
    is_done: Bools
    is_later: Bools
    topics: npt.NDArray[np.str_]

    def only(self, rows: Bools | slice) -> Waited:
        """What is known of some of them."""
        return Waited(self.due[rows], self.is_done[rows], self.is_later[rows], self.topics[rows])

    @property
    def text(self) -> str:
        """In words; "" of no message."""
        return "; ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        is_one = len(self.due) == 1
        if done := int(self.is_done.sum()):
            yield "delivered or put back already" if is_one else f"{done:,} delivered or put back already"
        waiting = self.due[~self.is_done]
        if known := waiting[waiting > 0].tolist():
            topics = sorted({*self.topics[~self.is_done].tolist()} - {""})
            more = f" and {len(topics) - _MOST_NAMED:,} more" if len(topics) > _MOST_NAMED else ""
            named = f" to {', '.join(topics[:_MOST_NAMED])}{more}" if topics else ""
            when = f"from {span_text(min(known) * 1000, max(known) * 1000)}"
            when = f"at {when.split(' to ')[0].removeprefix('from ')} UTC" if len(known) == 1 else when
            when += " or later" if self.is_later[~self.is_done].any() else ""
            yield f"{'' if is_one else f'{len(known):,} '}to be delivered{named} {when}"
        if unknown := len(waiting) - len(known):
            yield f"nothing tells whether and when {'it was' if is_one else f'{unknown:,} were'} to be delivered"


def waited(store: Snapshot, topic: str, queue_id: int, units: QueueBlock) -> Waited | None:
    """What is known of the messages of some units; None for messages that do not wait for a time.

    Args:
        units: of one queue.
    """
    if topic == SCHEDULE_TOPIC:
        due = np.where((units.tags_codes > 0) & (units.tags_codes < _MOST_TIME), units.tags_codes, 0)
        delivered = delay_offsets(store.root, store.files).get(queue_id + 1, 0)
        return Waited(due, units.queue_offsets < delivered, np.zeros(len(units), bool), np.full(len(units), ""))
    if topic != TIMER_TOPIC:
        return None
    timed = timed_at(store.root, units.positions, store.files)
    some = [timed.get(position) for position in units.positions.tolist()]
    due = np.array([0 if each is None or not 0 < each.due < _MOST_TIME else each.due for each in some], np.int64)
    is_cancel = np.array([each is not None and each.is_cancel for each in some], bool)
    is_done = is_cancel | (due > 0) & (due <= timer_time(store.root, store.files))
    is_later = np.array([each is not None and each.is_put_back for each in some], bool)
    names = {java_hash(name): name for name in store.known_topics}
    topics = np.array(["" if each is None else names.get(each.topic_hash, "") for each in some], np.str_)
    return Waited(due, is_done, is_later, topics)
