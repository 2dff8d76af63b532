"""The texts of the options that select rows, and the Selection that they make together. Options mean what they mean in
Spark's Kafka source and in RocketMQ.

The parse functions raise a ValueError that says what was expected.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from rmqstore_spark.errors import OptionError, nearest, quoted
from rmqstore_spark.query.instants import Instant
from rmqstore_spark.query.option_texts import HEX, refuse_no_text
from rmqstore_spark.query.pattern import Pattern, compiled
from rmqstore_spark.query.selection import ALL, ANY, Numbers, OneOf, Selection, Texts
from rmqstore_spark.store.format.light_queues import is_light

EARLIEST, LATEST = -2, -1  # as in the JSON of Spark's Kafka source
_MOST = (1 << 63) - 1
_MOST_QUEUE_ID = (1 << 31) - 1

# By topic and queueId: the first offset (of a start) or the first offset after (of an end), or EARLIEST or LATEST.
Offsets = dict[str, dict[int, int]]
Word = Literal["earliest", "latest"]

WORDS: dict[Word, int] = {"earliest": EARLIEST, "latest": LATEST}  # each with the number that means the same

_GROUP = "group:"
_BY = ("topic", "queueId", "tag", "bornHost", "storeHost", "hour", "day")  # columns of table usage
_STARTS = "earliest, group:NAME, in a stream also latest,"
_JAVA_WHITESPACE = "".join(map(chr, range(0x21)))  # the characters that Java's String.trim() removes
_SEPARATOR = re.compile("[\x01\x02]")
_PRINTED_LIST = re.compile(r"""\s*[\[({]\s*(?:['"].*['"]\s*,?\s*)?[\])}]\s*""", re.DOTALL)


@dataclass(frozen=True)
class WriteId:
    """The identity of a write that must happen only once, though it may be tried again.

    Attributes:
        application: the writing application (`txnAppId`).
        version: the number of the write (`txnVersion`), greater than that of the application's write before.
    """

    application: str
    version: int

    def __str__(self) -> str:
        return f"txnAppId {self.application}, txnVersion {self.version}"


@dataclass(frozen=True)
class GroupOffsets:
    """The offsets of a consumer group, which differ from store to store."""

    group: str


def refuse_list(text: str, expected: str) -> None:
    """Refuse the text that Spark makes of a Python list that is given as an option: what Python prints for the list.

    Raises:
        ValueError: the text is one.
    """
    if _PRINTED_LIST.fullmatch(text):
        raise ValueError(f"{expected} (one,two), not a list")


def parse_topics(text: str) -> frozenset[str]:
    """`subscribe`: topics with commas between them."""
    refuse_list(text, "comma-separated topics")
    topics = frozenset(topic.strip() for topic in text.split(",")) - {""}
    if not topics:
        raise ValueError("comma-separated topics")
    return topics


def parse_pattern(text: str) -> Pattern:
    """`subscribePattern`: a regular expression."""
    if not text.strip():
        raise ValueError("a regular expression")
    try:
        return compiled(text)
    except ValueError as why:
        raise ValueError(f"a regular expression as RE2 reads it ({why!s:.200})") from None


def parse_assign(text: str) -> dict[str, frozenset[int]]:
    """`assign`: JSON, the queues of each topic."""
    expected = 'JSON such as {"topic": [0, 1]}'
    topics = parse_object(text, expected)
    for topic, queue_ids in topics.items():
        if not isinstance(queue_ids, list) or not all(_is_whole(n, 0, _MOST_QUEUE_ID) for n in queue_ids):
            raise ValueError(f"{expected}: a list of queueIds for topic {quoted(topic)}")
    return {topic: frozenset(queue_ids) for topic, queue_ids in topics.items()}


def parse_by(text: str) -> tuple[str, ...]:
    """`by`: names of columns of table `usage`, with commas between them, each once."""
    refuse_list(text, "comma-separated names")
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in _BY]
    if unknown or len(set(names)) < len(names):
        near = nearest(unknown[0], list(_BY)) if unknown else ""
        raise ValueError(f"some of {', '.join(_BY)}, comma-separated, each once{near and f' ({near.strip()})'}")
    return names


def parse_starting_offsets(text: str) -> Offsets | GroupOffsets:
    """`startingOffsets`: `earliest`, which is {}, JSON, or the name of a consumer group."""
    if text.strip().startswith(_GROUP):
        group = text.strip().removeprefix(_GROUP)
        if not group:
            raise ValueError(f"the name of a consumer group after {_GROUP!r}")
        return GroupOffsets(group)
    return parse_offsets(text, {"earliest": EARLIEST}, _STARTS)


def parse_stream_start(text: str) -> "Offsets | GroupOffsets | Word":
    """`startingOffsets` of a stream: `latest`, `earliest`, JSON, or the name of a consumer group."""
    word = text.strip().lower()
    if word in ("latest", "earliest"):
        return word  # type: ignore[return-value]
    if text.strip().startswith(_GROUP):
        return parse_starting_offsets(text)
    return parse_offsets(text, WORDS, _STARTS)


def parse_ending_offsets(text: str) -> Offsets:
    """`endingOffsets`: `latest`, which is {}, or JSON."""
    return parse_offsets(text, {"latest": LATEST}, "latest")


def parse_offsets(text: str, words: Mapping[Word, int], others: str) -> Offsets:
    """Parse the offsets of queues.

    Args:
        words: the words that may stand for all queues, and the number that means the same of one queue.
        others: the texts besides JSON that are allowed, for errors.
    """
    if len(words) == 1 and text.strip().lower() in words:
        return {}
    expected = f'{others} or JSON such as {{"topic": {{"0": 17}}}}'
    found = parse_object(text, expected)
    for topic, queues in found.items():
        if not isinstance(queues, dict):
            raise ValueError(f'{expected}: for topic {quoted(topic)} an object such as {{"0": 17}}')
        for queue_id, offset in queues.items():
            if not _is_queue_id(queue_id):
                raise ValueError(f"{expected}: a queueId in the place of {quoted(queue_id)} in topic {quoted(topic)}")
            if not _is_whole(offset, 0, _MOST) and not (type(offset) is int and offset in words.values()):
                numbers = " or ".join(f"{number} ({word})" for word, number in words.items())
                raise ValueError(f"{expected}: for queue {queue_id} of topic {quoted(topic)} an offset, or {numbers}")
    return {topic: {int(queue_id): offset for queue_id, offset in queues.items()} for topic, queues in found.items()}


def parse_object(text: str, expected: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ValueError: the text is none, with `expected`.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Refuse repeated names, of which json would keep the last, and halves of characters, which json accepts."""
        refuse_no_text("".join(name for name, _ in pairs))
        if len(dict(pairs)) < len(pairs):
            raise _TwiceError
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except _TwiceError:
        raise ValueError(f"{expected}, each name once") from None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError(expected)
    return value


class _TwiceError(Exception):
    pass


def _is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most  # True is an int, too


def _is_queue_id(text: str) -> bool:
    """Is the text a queueId as JSON writes numbers? So no two texts mean the same queue."""
    return re.fullmatch(r"0|[1-9][0-9]{0,9}", text) is not None and int(text) <= _MOST_QUEUE_ID


def parse_tags(text: str) -> OneOf:
    """`tags`: a subscription expression. Source: org.apache.rocketmq.common.filter.FilterAPI, buildSubscriptionData."""
    if text in ("", "*"):
        return None
    tags = frozenset(tag.strip(_JAVA_WHITESPACE) for tag in text.split("||")) - {""}
    if not tags:
        raise ValueError("*, TagA or TagA || TagB")
    if any("&&" in tag for tag in tags):  # RocketMQ would look for a tag with that name
        raise ValueError("*, TagA or TagA || TagB, as a message has one tag and there is no &&")
    return tags


def parse_word(text: str) -> frozenset[str]:
    """`key` and `msgId`: one text, taken as it is."""
    if not text:
        raise ValueError("a text that is not empty")
    return frozenset([text])


def parse_body(text: str) -> bytes:
    """`bodyContains`: a text, or bytes in hex."""
    digits = text.removeprefix(HEX)
    if digits != text and re.fullmatch("([0-9A-Fa-f]{2})+", digits) is None:
        raise ValueError(f"pairs of hex digits after {HEX}")
    if not text:
        raise ValueError("a text that is not empty")
    return bytes.fromhex(digits) if digits != text else text.encode()


def parse_properties(text: str) -> frozenset[tuple[str, str]]:
    """`property`: JSON, names and values, or one of both as NAME=VALUE. No property is empty."""
    expected = 'JSON such as {"NAME": "VALUE"}, or NAME=VALUE'
    name, equals, value = text.partition("=")
    found = {name: value} if equals and not text.lstrip().startswith("{") else parse_object(text, expected)
    if not found or not all(isinstance(value, str) and value and name for name, value in found.items()):
        raise ValueError(f"{expected}, neither of them empty")
    if any(_SEPARATOR.search(name + value) for name, value in found.items()):
        raise ValueError(f"{expected}, without the characters 1 and 2, which separate properties")
    return frozenset(found.items())


def parse_offset_msg_id(text: str) -> frozenset[str]:
    """`offsetMsgId`: hex digits, as in the column in capitals.

    Source: org.apache.rocketmq.common.message.MessageDecoder.
    """
    if not re.fullmatch("[0-9A-Fa-f]{32}([0-9A-Fa-f]{24})?", text):
        raise ValueError("32 hex digits, or 56 with an IPv6 host")
    return frozenset([text.upper()])


def selection_of(values: Mapping[str, Any]) -> Selection:
    """The messages that all these options select.

    Args:
        values: the parsed values by option name; None for options that were not given.

    Raises:
        OptionError: two options contradict each other.
    """
    given = [name for name in ("subscribe", "subscribePattern", "assign") if values[name] is not None]
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(map(repr, given))} are given together; give one of them")
    topic = ANY
    if values["subscribe"] is not None:
        topic = Texts(among=values["subscribe"])
    elif values["subscribePattern"] is not None:
        topic = Texts(patterns=(values["subscribePattern"],))
    selection = Selection(
        topic=topic,
        assigned=values["assign"],
        tags=values["tags"],
        words=values["key"] or frozenset(),
        ids=values["msgId"] or frozenset(),
        offset_msg_id=values["offsetMsgId"],
        properties=values["property"] or frozenset(),
        sql92=values["sql92"],
        body=values["bodyContains"],
        store_timestamp=_times(values["startingTimestamp"], values["endingTimestamp"]),
        explodes=values["explodeBatches"],
    )
    starts = values["startingOffsets"]
    starts = {} if isinstance(starts, GroupOffsets) else starts
    ends = values["endingOffsets"]
    for option, offsets in (("startingOffsets", starts), ("endingOffsets", ends)):
        for name, queues in offsets.items():
            check_offsets(option, name, queues, selection, given)
    return replace(selection, offsets=_ranges(starts, ends))


def of_messages(selection: Selection) -> Selection:
    """A selection of queues, as one of their messages: those of light queues (LMQ) have the topic and the queue that
    they were sent to.

    Raises:
        OptionError: light queues and topics are named together, or a queueId that no light queue has.
    """
    named = selection.topic.among if selection.assigned is None else frozenset(selection.assigned)
    light = {name for name in named or () if is_light(name)}
    if not light:
        return selection
    option = "subscribe" if selection.assigned is None else "assign"
    if others := (named or frozenset()) - light:
        raise OptionError(
            f"option {option!r} names light queues such as {quoted(min(light))}, whose messages have other topics, and "
            f"topics such as {quoted(min(others))}; read them one after the other"
        )
    assigned = {(name, queue_id) for name, ids in (selection.assigned or {}).items() for queue_id in ids}
    for name, queue_id in sorted(assigned | selection.offsets.keys()):
        if queue_id != 0:
            raise OptionError(f"light queue {quoted(name)} has no queue {queue_id}; it has 0")
    asked = selection.assigned or dict.fromkeys(light, frozenset([0]))
    return replace(
        selection,
        topic=ANY,
        assigned=None,
        offsets={},
        light={name: selection.offsets.get((name, 0), ALL) for name in light if asked[name]},
    )


def _times(start: Instant | None, end: Instant | None) -> Numbers:
    """The store times in whole milliseconds: from the first that is not before the start to the last before the end."""
    if start and end and start.milliseconds > end.milliseconds:
        raise OptionError(
            f"option 'startingTimestamp' ({start.text:.60}) is later than 'endingTimestamp' ({end.text:.60})"
        )
    return Numbers(
        math.ceil(start.milliseconds) if start else ALL.least, math.ceil(end.milliseconds) - 1 if end else ALL.most
    )


def check_offsets(option: str, topic: str, queues: dict[int, int], selection: Selection, given: list[str]) -> None:
    """Refuse offsets of a topic or a queue that the options `given` leave out.

    Raises:
        OptionError: naming the topic or queue.
    """
    is_selected = selection.wants_topic(topic) if selection.light is None else topic in selection.light
    if not is_selected:
        topics = selection.assigned or selection.topic.among or selection.light or ()
        raise OptionError(
            f"option {option!r} names topic {quoted(topic)}, which option {given[0]!r} leaves out."
            f"{nearest(topic, [*topics])}"
        )
    for queue_id in queues:
        if selection.queue(topic, queue_id) is None:
            raise OptionError(
                f"option {option!r} names queue {queue_id} of topic {quoted(topic)}, which option {given[0]!r} leaves "
                "out"
            )


def _ranges(starts: Offsets, ends: Offsets) -> dict[tuple[str, int], Numbers]:
    """The queue offsets of each named queue. A queue is kept even with all of its offsets, so that the planner can
    check that the queue exists."""
    ranges = {}
    for topic in starts | ends:
        for queue_id in starts.get(topic, {}) | ends.get(topic, {}):
            start = starts.get(topic, {}).get(queue_id, EARLIEST)
            end = ends.get(topic, {}).get(queue_id, LATEST)
            if start > end != LATEST:
                raise OptionError(
                    f"options 'startingOffsets' and 'endingOffsets': queue {queue_id} of topic {quoted(topic)} "
                    f"starts at {start}, after its end {end}"
                )
            least = ALL.least if start == EARLIEST else start
            ranges[topic, queue_id] = Numbers(least, ALL.most if end == LATEST else end - 1)
    return ranges
