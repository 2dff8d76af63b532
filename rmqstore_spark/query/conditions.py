"""Conditions on one column as Selections, for whoever is given filters: Spark's and Arrow's mean the same."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rmqstore_spark.query.selection import ALL, ANY, EVERYTHING, Numbers, OneOf, Selection, Texts

# Attributes of Selection, by column. Some columns are texts, others numbers.
TEXTS = {"topic": "topic", "tags": "tags", "keys": "keys", "msgId": "msg_id", "offsetMsgId": "offset_msg_id"}
NUMBERS = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "commitLogOffset": "commit_log_offset",
    "storeTimestamp": "store_timestamp",
}
NOTHING = replace(EVERYTHING, queue_id=Numbers.of())

# A value rounded down and up to whole numbers of Selection's unit: milliseconds for storeTimestamp.
Whole = tuple[int, int]


def one_of_texts(column: str, texts: Iterable[str]) -> Selection:
    """The messages whose column, one of TEXTS, has one of these values."""
    among = frozenset(texts)
    return _selection(TEXTS[column], Texts(among) if column == "topic" else among)


def one_of_numbers(column: str, numbers: Iterable[Whole]) -> Selection:
    """The messages whose column, one of NUMBERS, has one of these values."""
    return _selection(NUMBERS[column], Numbers.of(*(down for down, up in numbers if down == up)))


def compared(column: str, operator: str, number: Whole) -> Selection:
    """The messages whose column, one of NUMBERS, is `>`, `>=`, `<` or `<=` a value."""
    down, up = number
    ranges = {">": (down + 1, None), ">=": (up, None), "<": (None, up - 1), "<=": (None, down)}
    least, most = ranges[operator]
    return _selection(
        NUMBERS[column], Numbers(ALL.least if least is None else least, ALL.most if most is None else most) & ALL
    )


def of_topics_with(prefix: str) -> Selection:
    """The messages whose topic begins with a text."""
    return _selection("topic", Texts(prefixes=(prefix,)))


def either(one: Selection, other: Selection) -> Selection:
    """A selection with at least the messages that one of two selections has, each of them made here: column by column,
    as a Selection is a conjunction."""
    if one.is_nothing or other.is_nothing:
        return other if one.is_nothing else one
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in (*TEXTS.values(), *NUMBERS.values())}
    joined: dict[str, Any] = {name: _either_numbers(*pairs[name]) for name in NUMBERS.values()}
    joined |= {name: _either_sets(*pairs[name]) for name in TEXTS.values() if name != "topic"}
    joined["topic"] = _either_texts(*pairs["topic"])
    return replace(EVERYTHING, **joined)


def _either_numbers(one: Numbers, other: Numbers) -> Numbers:
    if one.among is not None and other.among is not None:
        return Numbers.of(*one.among, *other.among)
    return Numbers(min(one.least, other.least), max(one.most, other.most))


def _either_sets(one: OneOf, other: OneOf) -> OneOf:
    return None if one is None or other is None else one | other


def _either_texts(one: Texts, other: Texts) -> Texts:
    if one.among is None or other.among is None:
        return one if one == other else ANY
    return Texts(one.among | other.among)


def _selection(attribute: str, value: Any) -> Selection:
    return replace(EVERYTHING, **{attribute: value})
