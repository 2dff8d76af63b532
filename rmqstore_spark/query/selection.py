"""Which messages are selected. A Selection is made from options or pushed filters; the planner and the tasks use it.

A Selection is a conjunction: each attribute narrows, and the default of each leaves everything. A Selection knows
nothing of stores; its answer for a message is that of a filter on the columns of a full scan.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from rmqstore_spark.query.pattern import Pattern
from rmqstore_spark.query.sql92 import Sql92
from rmqstore_spark.store.format.light_queues import is_light

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Numbers:
    """The whole numbers from `least` to `most`, both included; if `among` is given, only those that are also in it."""

    least: int = _LEAST
    most: int = _MOST
    among: frozenset[int] | None = None

    def __and__(self, other: "Numbers") -> "Numbers":
        """The numbers that are in both."""
        sets = [numbers.among for numbers in (self, other) if numbers.among is not None]
        least, most = max(self.least, other.least), min(self.most, other.most)
        if not sets:
            return Numbers(least, most)
        among = frozenset(n for n in frozenset.intersection(*sets) if least <= n <= most)
        return Numbers(min(among), max(among), among) if among else Numbers(0, -1, among)

    def __contains__(self, number: int) -> bool:
        return self.least <= number <= self.most and (self.among is None or number in self.among)

    @property
    def is_empty(self) -> bool:
        """True when no number is left."""
        return self.least > self.most

    @classmethod
    def of(cls, *numbers: int) -> Self:
        """Only these numbers."""
        return cls(min(numbers, default=0), max(numbers, default=-1), frozenset(numbers))


ALL = Numbers()


@dataclass(frozen=True)
class Texts:
    """Texts that pass every test: one of `among`, beginning with all `prefixes`, matching all `patterns` in full."""

    among: frozenset[str] | None = None
    prefixes: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()

    def __and__(self, other: "Texts") -> "Texts":
        """The texts that are in both."""
        sets = [texts.among for texts in (self, other) if texts.among is not None]
        prefixes, patterns = self.prefixes + other.prefixes, self.patterns + other.patterns
        if not sets:
            return Texts(None, prefixes, patterns)
        rest, both = Texts(None, prefixes, patterns), frozenset.intersection(*sets)
        rest.learn(both)
        return Texts(frozenset(text for text in both if text in rest))

    def __contains__(self, text: str) -> bool:
        return (
            (self.among is None or text in self.among)
            and all(map(text.startswith, self.prefixes))
            and all(pattern.matches(text) for pattern in self.patterns)
        )

    def learn(self, texts: Collection[str]) -> None:
        """Match the patterns with texts that will be asked for one by one: many texts at once are much faster."""
        for pattern in self.patterns:
            pattern.learn(texts)


ANY = Texts()

# The values that a column may have; None: any value.
OneOf = frozenset[str] | None


@dataclass(frozen=True)
class Selection:
    """Which messages are selected.

    Large because each column that can be selected by has its own condition, and a message must meet all of them.

    Attributes:
        topic, queue_id, queue_offset, tags, keys, msg_id, offset_msg_id, commit_log_offset: the values that these
            columns may have.
        store_timestamp: the values that storeTimestamp may have, in milliseconds.
        assigned: the queues selected of each topic; other topics are not selected.
        offsets: the values that queueOffset may have in some queues, by (topic, queueId); other queues are not limited.
        light: the light queues (LMQ) selected, each with the values that a message's offset there may have: a message
            must be in one of them. None: any message.
        words: each must be a word of KEYS, or the UNIQ_KEY.
        ids: each must be the UNIQ_KEY or the offsetMsgId.
        properties: pairs of a name, in which the case of ASCII letters does not count, and the value that the last
            property of that name must have.
        sql92: what an expression of RocketMQ's filter language must say of the properties; None: anything.
        body: bytes that the body must contain, as its producer sent it; None: any body.
        explodes: whether each message of a batch counts as one; else the whole batch does, with what its unit says.
    """

    topic: Texts = ANY
    assigned: Mapping[str, frozenset[int]] | None = None
    queue_id: Numbers = ALL
    queue_offset: Numbers = ALL
    offsets: Mapping[tuple[str, int], Numbers] = field(default_factory=dict)
    light: Mapping[str, Numbers] | None = None
    tags: OneOf = None
    keys: OneOf = None
    words: frozenset[str] = frozenset()
    msg_id: OneOf = None
    offset_msg_id: OneOf = None
    ids: frozenset[str] = frozenset()
    properties: frozenset[tuple[str, str]] = frozenset()
    sql92: Sql92 | None = None
    body: bytes | None = None
    commit_log_offset: Numbers = ALL
    store_timestamp: Numbers = ALL
    explodes: bool = True

    def narrowed(self, other: "Selection") -> "Selection":
        """The messages that both select; `other` has no `assigned`, `offsets`, `light`, `properties`, `sql92` and
        `body`, which only options give."""
        return replace(
            self,
            topic=self.topic & other.topic,
            queue_id=self.queue_id & other.queue_id,
            queue_offset=self.queue_offset & other.queue_offset,
            tags=_both(self.tags, other.tags),
            keys=_both(self.keys, other.keys),
            words=self.words | other.words,
            msg_id=_both(self.msg_id, other.msg_id),
            offset_msg_id=_both(self.offset_msg_id, other.offset_msg_id),
            ids=self.ids | other.ids,
            commit_log_offset=self.commit_log_offset & other.commit_log_offset,
            store_timestamp=self.store_timestamp & other.store_timestamp,
        )

    def without_offsets(self) -> "Selection":
        """The same selection of messages whose commitLogOffset and offsetMsgId are null."""
        chosen = self.msg_id
        for message_id in self.ids:
            chosen = _both(chosen, frozenset([message_id]))
        if self.commit_log_offset != ALL or self.offset_msg_id is not None:
            chosen = frozenset()
        return replace(self, msg_id=chosen, ids=frozenset(), offset_msg_id=None, commit_log_offset=ALL)

    @property
    def is_everything(self) -> bool:
        """True when no message is left out."""
        return replace(self, explodes=True) == EVERYTHING

    @property
    def is_nothing(self) -> bool:
        """True when no message can be selected, whatever the store has."""
        numbers = (self.queue_id, self.queue_offset, self.commit_log_offset, self.store_timestamp)
        sets = (self.topic.among, self.assigned, self.tags, self.keys, self.msg_id, self.offset_msg_id)
        if self.light is not None and all(offsets.is_empty for offsets in self.light.values()):
            return True
        return any(n.is_empty for n in numbers) or any(s is not None and not s for s in sets)

    def wants_topic(self, topic: str) -> bool:
        """May messages of this topic be selected?"""
        return topic in self.topic and (self.assigned is None or topic in self.assigned)

    def queue(self, topic: str, queue_id: int) -> Numbers | None:
        """The selected queue offsets of a queue, or None when the queue is not selected at all."""
        if not self.wants_topic(topic) or queue_id not in self.queue_id:
            return None
        if self.assigned is not None and queue_id not in self.assigned[topic]:
            return None
        offsets = self.queue_offset
        if (topic, queue_id) in self.offsets:
            offsets &= self.offsets[topic, queue_id]
        return None if offsets.is_empty else offsets

    def offsets_in(self, topic: str, queue_id: int) -> Numbers | None:
        """The offsets that selected messages may have in a queue, light or not; None where none is selected. Where
        light queues are selected, a queue of batches is asked for too, beside an index: its messages may be in them."""
        of_light = None if self.light is None else self.light.get(topic)
        return self.queue(topic, queue_id) if of_light is None else of_light

    @property
    def given(self) -> Mapping[tuple[str, int], Numbers]:
        """The queues, light or not, in which some offsets alone are selected, with these."""
        return self.offsets if self.light is None else {(name, 0): numbers for name, numbers in self.light.items()}

    @property
    def only_in(self) -> frozenset[str] | None:
        """The topics, or light queues, whose messages alone are selected; None for any."""
        return self.topic.among if self.light is None else frozenset(self.light)

    @property
    def has_each_once(self) -> bool:
        """Is each selected message in one of the selected queues, and do all queues of a store together prove that none
        is missing? A message can be in several light queues, and what one lacks is in no other queue."""
        return self.light is None

    def from_places(self, starts: Mapping[tuple[str, int], Numbers]) -> tuple["Selection", list[str]]:
        """The same selection in the topics of some places alone, and there from an offset on; and the light queues
        among them that it leaves out. Where nothing is selected, places of light queues alone select these."""
        topics = frozenset(topic for topic, _ in starts)
        light = frozenset(filter(is_light, topics))
        if self.light is None and light and light == topics and self.wants_all_queues:
            return replace(self, light={topic: offsets for (topic, _), offsets in starts.items()}), []
        chosen = self.in_topics(topics).in_queues({**self.offsets, **starts})
        return chosen, sorted(light) if self.light is None else []

    def in_queues(self, offsets: Mapping[tuple[str, int], Numbers]) -> "Selection":
        """The same selection with other values that the offset in some queues may have; light queues have queueId 0."""
        if self.light is None:
            return replace(self, offsets=offsets)
        return replace(self, light={name: offsets.get((name, 0), ALL) for name in self.light})

    def in_topics(self, topics: frozenset[str]) -> "Selection":
        """The same selection in some topics, or light queues, alone."""
        if self.light is None:
            return replace(self, topic=self.topic & Texts(among=topics))
        return replace(self, light={name: offsets for name, offsets in self.light.items() if name in topics})

    @property
    def named_topics(self) -> frozenset[str] | None:
        """The names of which topics are selected; None where any may be."""
        return self.topic.among if self.assigned is None else frozenset(self.assigned)

    @property
    def wants_all_queues(self) -> bool:
        """True when topic, queueId and queueOffset may be anything."""
        return (
            self.topic == ANY
            and self.assigned is None
            and not self.offsets
            and self.queue_offset == self.queue_id == ALL
        )

    @property
    def names(self) -> frozenset[str]:
        """Names to look up in an index: every selected message has one of these texts as a KEYS word or its UNIQ_KEY.
        Empty when there are no such texts."""
        choices = [frozenset([word]) for word in self.words]
        if self.msg_id is not None:
            choices.append(self.msg_id)
        if self.keys is not None and all(map(words_of, self.keys)):  # one word finds a text's messages
            choices.append(frozenset(words_of(text)[0] for text in self.keys))
        # Bytes that are not UTF-8 read as U+FFFD, but the broker indexed the text that Java makes of them.
        choices = [names for names in choices if not any(REPLACEMENT in name for name in names)]
        return min(choices, key=len, default=frozenset())


EVERYTHING = Selection()


def words_of(keys: str) -> list[str]:
    """The words of KEYS, separated by spaces and nothing else (MessageConst.KEY_SEPARATOR)."""
    return [word for word in keys.split(" ") if word]


def _both(one: OneOf, other: OneOf) -> OneOf:
    if one is None or other is None:
        return other if one is None else one
    return one & other
