"""Random filter expressions of Arrow's over rows that are given: half of their literals are values of the rows."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_TIME = pa.timestamp("us", "UTC")
_COMPARED: list[Callable[[Any, Any], pc.Expression]] = [
    *(operator.eq, operator.eq, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
]


def random_expression(rng: random.Random, table: pa.Table, depth: int = 3) -> pc.Expression:
    """An expression that fits a table.

    Args:
        table: its rows; columns of other types than texts, numbers and times are tried for nulls alone.
        depth: of `and`, `or`, `not` and their like.
    """
    if depth and rng.random() < 0.7:
        parts = [random_expression(rng, table, depth - 1) for _ in range(rng.choice((2, 2, 3)))]
        match rng.choice(("and", "and", "or", "not", "if", "coalesce", "in if", "true")):
            case "and":
                return parts[0] & parts[1] & parts[-1]
            case "or":
                return parts[0] | parts[1] | parts[-1]
            case "not":
                return ~parts[0]
            case "if":
                return pc.if_else(*parts[:2], parts[-1])
            case "coalesce":
                return pc.coalesce(parts[0], pc.scalar(rng.random() < 0.3))
            case "in if":  # as DuckDB writes IN
                return pc.if_else(parts[0].is_valid(), parts[0], pa.scalar(None, pa.bool_()))
            case "true":
                return parts[0] & pc.scalar(rng.choice((True, True, False)))
    field = table.schema.field(rng.randrange(table.num_columns))
    column = pc.field(field.name)
    if rng.random() < 0.06 or not _is_compared(field.type):
        return rng.choice((column.is_null(), column.is_valid()))
    if pa.types.is_string(field.type) and rng.random() < 0.15:
        return pc.starts_with(column, _some_text(rng, table, field)[: rng.randrange(5)], ignore_case=rng.random() < 0.3)
    if rng.random() < 0.25:
        some = [_value(rng, table, field) for _ in range(rng.choice((0, 1, 2, 5, 30)))]
        some += [None] * (rng.random() < 0.2)
        type_ = pa.int64() if pa.types.is_integer(field.type) else field.type
        return column.isin(pa.array(some, type_))
    literal = pc.scalar(_literal(rng, _value(rng, table, field), field.type))
    compare = rng.choice(_COMPARED)
    return compare(column, literal) if rng.random() < 0.8 else compare(literal, column)


def _is_compared(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_integer(type_) or type_ == _TIME)


def _value(rng: random.Random, table: pa.Table, field: pa.Field) -> Any:
    value = table.column(field.name)[rng.randrange(len(table))].as_py() if len(table) else None
    if pa.types.is_string(field.type):
        return value if value is not None and rng.random() < 0.8 else rng.choice(("", "no such", 'a"b\\', "a\nb", "ä"))
    if pa.types.is_integer(field.type):
        return rng.randrange(-3, 10) if value is None else value + rng.choice((0, 0, 0, 1, -1))
    return value and value + timedelta(microseconds=rng.choice((0, 0, 0, 1, -1, 999, 1000, -1000, 5_000_000)))


def _some_text(rng: random.Random, table: pa.Table, field: pa.Field) -> str:
    return str(_value(rng, table, field))


def _literal(rng: random.Random, value: Any, type_: pa.DataType) -> pa.Scalar:
    """A value as one of the types that can be compared with a column's."""
    if value is None or rng.random() < 0.03:
        return pa.scalar(None, type_)
    if pa.types.is_string(type_):
        return pa.scalar(value, rng.choice((pa.string(), pa.string(), pa.large_string())))
    if pa.types.is_integer(type_):
        small = [pa.int8(), pa.uint8(), pa.float64()] if 0 <= value < 128 else []
        return pa.scalar(value, rng.choice((pa.int64(), pa.int64(), *small)))
    unit = rng.choice(("us", "us", "us", "ms", "s", "ns"))
    return pa.scalar(value, _TIME).cast(pa.timestamp(unit, "UTC"), safe=False)
