"""Light queues (LMQ, and the lite topics of 5.5): a message of an ordinary topic can be in any number of them as well.

A light queue has a name that begins with %LMQ%, the queueId 0, and a ConsumeQueue of its own. Its units point to
messages of other topics: which queues a message is in, and at which offsets, stand in the message's properties. The
kernel has the same rules (native_io/light_queues.h).
Source: org.apache.rocketmq.common.MixAll (isLmq), common.lite.LiteUtil, store.ConsumeQueue (multiDispatchLmqQueue),
store.queue.MultiDispatchUtils.
"""

import itertools
from collections.abc import Mapping

from rmqstore_spark.store.format.message import is_queued
from rmqstore_spark.store.format.system_topics import RETRY_PREFIX, SCHEDULE_TOPIC

LIGHT_PREFIX = "%LMQ%"
DISPATCH, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"  # MessageConst
_WITHOUT = (RETRY_PREFIX, "rmq_sys_")  # topics whose messages are in no light queue
_SEPARATOR = ","
_MOST = (1 << 63) - 1


def is_light(topic: str) -> bool:
    """Is a topic's name that of a light queue?"""
    return topic.startswith(LIGHT_PREFIX)


def light_queues(topic: str, sys_flag: int, properties: Mapping[str, str]) -> dict[str, int]:
    """The light queues that a message is in, each with the message's offset there."""
    names, offsets = properties.get(DISPATCH), properties.get(OFFSETS)
    if names is None or offsets is None or not is_queued(sys_flag):
        return {}
    if topic.startswith(_WITHOUT) or topic == SCHEDULE_TOPIC:
        return {}
    pairs = list(itertools.zip_longest(_elements(names), _elements(offsets)))
    if any(None in pair for pair in pairs):
        return {}
    found = ((name, _offset(text)) for name, text in pairs if is_light(name) and "/" not in name)
    return {name: offset for name, offset in found if offset is not None}


def _elements(text: str) -> list[str]:
    """The elements of a list, as Java's split() gives them: without empty ones at the end."""
    return text.rstrip(_SEPARATOR).split(_SEPARATOR)


def _offset(text: str) -> int | None:
    """A queue offset; None where the text is none."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _MOST:
        return None
    return int(text)
