"""From Spark's pushed filters to a Selection. Spark evaluates all filters again, so a Selection may be less strict."""

import functools
from collections.abc import Iterable
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

from rmqstore_spark.query.conditions import (
    NUMBERS,
    TEXTS,
    Whole,
    compared,
    of_topics_with,
    one_of_numbers,
    one_of_texts,
)
from rmqstore_spark.query.selection import ALL, EVERYTHING, Selection

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
            return compared(column, ">", whole)
        case GreaterThanOrEqual((column,), value) if whole := _whole(column, value):
            return compared(column, ">=", whole)
        case LessThan((column,), value) if whole := _whole(column, value):
            return compared(column, "<", whole)
        case LessThanOrEqual((column,), value) if whole := _whole(column, value):
            return compared(column, "<=", whole)
        case StringStartsWith(("topic",), str(prefix)):
            return of_topics_with(prefix)
    return EVERYTHING


def _among(column: str, values: Iterable[Any]) -> Selection:
    """The messages whose column has one of these values. NULL among the values equals nothing, not even a null."""
    values = [value for value in values if value is not None]
    if column in TEXTS and all(type(value) is str for value in values):
        return one_of_texts(column, values)
    found = [_whole(column, value) for value in values]
    whole = [each for each in found if each is not None]
    return one_of_numbers(column, whole) if column in NUMBERS and len(whole) == len(found) else EVERYTHING


def _whole(column: str, value: Any) -> Whole | None:
    """The value rounded down and up to whole numbers of Selection's unit; None if the value cannot be compared.

    Spark's timestamps are in microseconds, Selection's in milliseconds.
    """
    if column == "storeTimestamp":
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        microseconds = (value - _EPOCH) // timedelta(microseconds=1)
        return microseconds // 1000, -(-microseconds // 1000)
    if column in NUMBERS and type(value) is int and value in ALL:
        return value, value
    return None
