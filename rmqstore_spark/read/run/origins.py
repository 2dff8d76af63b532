"""The application's view of a message that the broker has stored under another name, from its topic and properties.

In a batch only rows with a topic of the broker's own are looked at; the answer is worked out once for each topic and
each set of names in the properties.
Source: org.apache.rocketmq.common.KeyBuilder (parseNormalTopic, parseGroup), broker.processor: PopReviveService
(reviveRetry), AbstractSendMessageProcessor (consumerSendMsgBack).
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.store.format.system_topics import DEAD_PREFIX, RETRY_PREFIX, WAITING_TOPICS, is_moved

ORIGIN_COLUMNS = frozenset({"realTopic", "realQueueId", "originMsgId", "consumerGroup"})
ORIGIN_NEEDS = ["topic", "queueId", "properties"]

_POP_SEPARATORS = ("+", "_")  # between group and topic in a pop retry topic: V2's, which is in no name, and V1's
_MOST_TOPIC = 255  # bytes
_MOST_QUEUE_ID = (1 << 31) - 1


class Names(NamedTuple):
    """The names that tell where a message comes from: its topic, and some of its properties."""

    topic: str
    real_topic: str | None = None  # REAL_TOPIC
    retry_topic: str | None = None  # RETRY_TOPIC
    group: str | None = None  # ORIGIN_GROUP
    is_popped: bool = False  # has it 1ST_POP_TIME?


class _Origin(NamedTuple):
    topic: str
    group: str | None
    is_retried: bool  # or dead


def origin_of(names: Names, known_topics: Callable[[], Collection[str]]) -> _Origin:
    """The origin of a message.

    Args:
        known_topics: the topics of the store, for pop retry topics that nothing else tells apart.
    """
    topic = names.topic
    if topic in WAITING_TOPICS:
        if not names.real_topic:
            return _Origin(topic, None, False)
        return origin_of(names._replace(topic=names.real_topic, real_topic=None), known_topics)
    if topic.startswith(DEAD_PREFIX):
        group = topic.removeprefix(DEAD_PREFIX)
        return _Origin(_of_group(names.retry_topic or topic, group), group, True)
    if not topic.startswith(RETRY_PREFIX):
        return _Origin(topic, None, False)
    rest = topic.removeprefix(RETRY_PREFIX)
    if names.group and (popped := _of_group(topic, names.group)) != topic:
        return _Origin(popped, names.group, True)
    group, plus, popped = rest.partition("+")
    if plus and popped:
        return _Origin(popped, group, True)
    if names.retry_topic:
        return _Origin(_of_group(names.retry_topic, rest), rest, True)
    return _split(rest, known_topics()) if names.is_popped else _Origin(topic, rest, True)


def _of_group(topic: str, group: str) -> str:
    """The topic of a group's pop retry topic; any other topic unchanged."""
    for separator in _POP_SEPARATORS:
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix) and topic != prefix:
            return topic.removeprefix(prefix)
    return topic


def _split(rest: str, known_topics: Collection[str]) -> _Origin:
    """The group and topic of `group_topic`. Both may contain `_`, and messages of older brokers (5.1.4, 5.3.0) do not
    name their group: so the one split is taken that leaves a topic of the store, if there is exactly one."""
    separators = [at for at in range(max(1, len(rest) - _MOST_TOPIC - 1), len(rest)) if rest[at] == "_"]
    ways = [(rest[:at], rest[at + 1 :]) for at in separators if rest[at + 1 :] in known_topics]
    if len(ways) != 1:
        return _Origin(RETRY_PREFIX + rest, None, True)
    ((group, topic),) = ways
    return _Origin(topic, group, True)


class Origins:
    """The columns of ORIGIN_COLUMNS for a batch that has those of ORIGIN_NEEDS.

    Args:
        batch: rows of one store.
        known_topics: the topics of that store.

    Attributes:
        is_moved: of each row, whether its topic is one that messages of other topics are in.
    """

    def __init__(self, batch: pa.RecordBatch, known_topics: Callable[[], Collection[str]]) -> None:
        topics = batch.column("topic")
        nothing = pa.nulls(batch.num_rows, pa.string())
        self._columns: dict[str, pa.Array] = {
            "realTopic": topics,
            "realQueueId": batch.column("queueId"),
            "originMsgId": nothing,
            "consumerGroup": nothing,
        }
        encoded = topics.dictionary_encode()
        moved = np.array([is_moved(topic) for topic in encoded.dictionary.to_pylist()], bool)
        mask = pa.array(moved[encoded.indices.to_numpy()])
        self.is_moved = mask
        if moved.any():
            for name, column in _of_moved(batch.select(ORIGIN_NEEDS).filter(mask), known_topics).items():
                self._columns[name] = pc.replace_with_mask(self._columns[name], mask, column)

    def column(self, name: str) -> pa.Array:
        """One of the columns."""
        return self._columns[name]


def _of_moved(batch: pa.RecordBatch, known_topics: Callable[[], Collection[str]]) -> dict[str, pa.Array]:
    """The columns for rows whose topic is one of the broker's."""
    properties = batch.column("properties")
    texts = [_property(properties, name) for name in ("REAL_TOPIC", "RETRY_TOPIC", "ORIGIN_GROUP")]
    names, name_of = _distinct([batch.column("topic"), *texts, pc.is_valid(_property(properties, "1ST_POP_TIME"))])
    origins = [origin_of(Names._make(each), known_topics) for each in names]

    def spread(values: list[Any], arrow: pa.DataType) -> pa.Array:
        return pa.array(values, arrow).take(name_of)

    queue_ids, queue_id_of = _distinct([_property(properties, "REAL_QID")])
    real_queue_ids = pa.array([_number(text) for (text,) in queue_ids], pa.int32()).take(queue_id_of)
    stays = [origin.topic == each[0] for origin, each in zip(origins, names, strict=True)]
    queue_id = pc.if_else(spread(stays, pa.bool_()), batch.column("queueId"), real_queue_ids)
    is_retried = spread([origin.is_retried for origin in origins], pa.bool_())
    return {
        "realTopic": spread([origin.topic for origin in origins], pa.string()),
        "realQueueId": pc.if_else(is_retried, pa.scalar(None, pa.int32()), queue_id),
        "originMsgId": pc.if_else(is_retried, _property(properties, "ORIGIN_MESSAGE_ID"), pa.scalar(None, pa.string())),
        "consumerGroup": spread([origin.group for origin in origins], pa.string()),
    }


def _distinct(columns: list[pa.Array]) -> tuple[list[tuple[Any, ...]], pa.Array]:
    """The distinct rows of some columns, and for each row the number of its own."""
    kept = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes = column.dictionary_encode("encode").indices.to_numpy()
        _, kept = np.unique(kept * (int(codes.max()) + 1) + codes, return_inverse=True)
    _, first = np.unique(kept, return_index=True)
    rows = zip(*(column.take(pa.array(first)).to_pylist() for column in columns), strict=True)
    return list(rows), pa.array(kept)


def _property(properties: pa.MapArray, name: str) -> pa.Array:
    return pc.map_lookup(properties, name, "last")


def _number(text: str | None) -> int | None:
    """A queueId as a broker parses it; None where the text is no queueId."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > _MOST_QUEUE_ID:
        return None
    return int(text)
