"""From Spark's pushed filters to a Selection. Spark evaluates all filters again, so a Selection may be less strict."""

import functools
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from rmqstore_spark.query.selection import ALL, EVERYTHING, Numbers, Selection, Texts

# Attributes of Selection, by column. Some columns are texts, others numbers.
_TEXTS = {"topic": "topic", "tags": "tags", "keys": "keys", "msgId": "msg_id", "offsetMsgId": "offset_msg_id"}
_NUMBERS = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "commitLogOffset": "commit_log_offset",
    "storeTimestamp": "store_timestamp",
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def selection_of(filters: Iterable[Filter]) -> Selection:
    """A selection that has all messages for which all these filters are true, and maybe more."""
    return functools.reduce(Selection.narrowed, map(_selected, filters), EVERYTHING)


def _selected(given: Filter) -> Selection:
    """The messages for which this filter is true; all messages when a Selection cannot express the filter."""
    match given:
        case EqualTo((column,), value):
            return _among(column, [value])
        case EqualNullSafe((column,), value) if value is not None:  # <=> NULL is true of nulls, which no set contains
            return _among(column, [value])
        case In((column,), values):
            return _among(column, values)
        case GreaterThan((column,), value) if whole := _whole(column, value):
            return _selection(_NUMBERS[column], Numbers(least=whole[0] + 1))
        case GreaterThanOrEqual((column,), value) if whole := _whole(column, value):
            return _selection(_NUMBERS[column], Numbers(least=whole[1]))
        case LessThan((column,), value) if whole := _whole(column, value):
            return _selection(_NUMBERS[column], Numbers(most=whole[1] - 1))
        case LessThanOrEqual((column,), value) if whole := _whole(column, value):
            return _selection(_NUMBERS[column], Numbers(most=whole[0]))
        case StringStartsWith(("topic",), str(prefix)):
            return _selection("topic", Texts(prefixes=(prefix,)))
    return EVERYTHING


def _among(column: str, values: Iterable[Any]) -> Selection:
    """The messages whose column has one of these values. NULL among the values equals nothing, not even a null."""
    values = [value for value in values if value is not None]
    if column in _TEXTS and all(type(value) is str for value in values):
        texts = frozenset(values)
        return _selection(_TEXTS[column], Texts(texts) if column == "topic" else texts)
    whole = [_whole(column, value) for value in values]
    if column in _NUMBERS and None not in whole:
        return _selection(_NUMBERS[column], Numbers.of(*(pair[0] for pair in whole if pair and pair[0] == pair[1])))
    return EVERYTHING


def _selection(attribute: str, value: Any) -> Selection:
    return replace(EVERYTHING, **{attribute: value})


def _whole(column: str, value: Any) -> tuple[int, int] | None:
    """The value rounded down and up to whole numbers of Selection's unit; None if the value cannot be compared.

    Spark's timestamps are in microseconds, Selection's in milliseconds.
    """
    if column == "storeTimestamp":
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        microseconds = (value - _EPOCH) // timedelta(microseconds=1)
        return microseconds // 1000, -(-microseconds // 1000)
    if column in _NUMBERS and type(value) is int and value in ALL:
        return value, value
    return None
