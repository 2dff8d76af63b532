"""config/topicQueueMapping.json: static topics, whose queues keep their names and offsets when they move to another
broker.

A logic queue is a row of parts, one after the other, each in a queue of a broker. Consumers count in logic offsets:
logicOffset + (queueOffset - startOffset) in the part that a message is in.
Source: org.apache.rocketmq.remoting.protocol.statictopic (TopicQueueMappingDetail, LogicQueueMappingItem).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.config import LOGIC_QUEUES, STATIC_TOPICS, member_of

_MOST = (1 << 63) - 1
_MOST_QUEUE_ID = (1 << 31) - 1


class LogicPart(NamedTuple):
    """A part of a logic queue.

    Large because the fields are those of the mapping file.

    Attributes:
        logic_queue_id: the number of the logic queue (globalId).
        generation: the number of the part in its queue (gen).
        is_here: whether the part is in the broker whose mapping this is.
        queue_id: the queue in the broker that has the part.
        logic_offset: the logic offset of the part's first message; -1: not known yet.
        start, end: the queue offsets of the part; an end of -1: it goes on.
    """

    topic: str
    logic_queue_id: int
    generation: int
    broker: str
    is_here: bool
    queue_id: int
    logic_offset: int
    start: int
    end: int

    def logic(self, queue_offset: int) -> int | None:
        """The logic offset of a message of the part; None where it is not of the part, or not known."""
        is_inside = self.start <= queue_offset and (self.end < 0 or queue_offset < self.end)
        found = self.logic_offset + queue_offset - self.start
        return found if is_inside and self.logic_offset >= 0 and found <= _MOST else None


def static_parts(root: str, files: Files) -> list[LogicPart]:
    """The parts of all logic queues that a broker knows. A hint: what has another form is passed over."""
    mappings = member_of(root, STATIC_TOPICS, LOGIC_QUEUES, files)
    return sorted(part for topic, mapping in mappings.items() for part in _parts(topic, mapping))


def _parts(topic: str, mapping: Any) -> Iterator[LogicPart]:
    if not isinstance(mapping, dict) or not isinstance(mapping.get("hostedQueues"), dict):
        return
    own = mapping.get("bname")
    for name, items in mapping["hostedQueues"].items():
        logic_queue_id = int(name) if name.isascii() and name.isdigit() and len(name) < 10 else -1
        for item in items if isinstance(items, list) and logic_queue_id >= 0 else ():
            part = _part(topic, logic_queue_id, own, item)
            if part is not None:
                yield part


def _part(topic: str, logic_queue_id: int, own: Any, item: Any) -> LogicPart | None:
    if not isinstance(item, dict):
        return None
    names = ("gen", "queueId", "logicOffset", "startOffset", "endOffset")
    numbers = [item.get(name, -1 if name == "endOffset" else 0) for name in names]
    broker = item.get("bname")
    if not isinstance(broker, str) or not all(type(n) is int and -_MOST <= n <= _MOST for n in numbers):
        return None
    generation, queue_id, logic_offset, start, end = numbers
    if not (0 <= queue_id <= _MOST_QUEUE_ID and 0 <= generation <= _MOST_QUEUE_ID and start >= 0):
        return None
    return LogicPart(topic, logic_queue_id, generation, broker, broker == own, queue_id, logic_offset, start, end)
