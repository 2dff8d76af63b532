"""From Arrow's filter expressions to a Selection. Who uses one evaluates the whole expression again, so a Selection may
be less strict; where it says the same of every message, that can be spared.

pyarrow shows an expression as a text, as Substrait, and as what is pickled of it; docs/decisions.md says why it is
taken from the last.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.query.conditions import (
    NOTHING,
    NUMBERS,
    TEXTS,
    Whole,
    compared,
    either,
    of_topics_with,
    one_of_numbers,
    one_of_texts,
)
from rmqstore_spark.query.selection import ALL, EVERYTHING, REPLACEMENT, Selection

_OPERATORS = {"equal": "=", "not_equal": "!=", "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<="}
_OPPOSITE = {"=": "!=", "!=": "=", ">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_TURNED = {"=": "=", "!=": "!=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_PER_MILLISECOND = 10**6
_AS_NULL_OR_VALUE = 0  # SetLookupOptions.NullMatchingBehavior.MATCH: a null is in a set that has one


@dataclass(frozen=True)
class _Field:
    name: str


@dataclass(frozen=True)
class _Literal:
    value: pa.Scalar


@dataclass(frozen=True)
class _Call:
    name: str
    arguments: tuple["_Node", ...]
    options: pa.Scalar | None = None


_Node = _Field | _Literal | _Call


@dataclass(frozen=True)
class Understood:
    """What is understood of an expression.

    Attributes:
        selection: has all messages for which the expression is true, and maybe more.
        columns: the columns that the expression needs; None where that is not understood.
        is_exact: whether the selection has no other messages than those for which the expression is true.
    """

    selection: Selection
    columns: frozenset[str] | None
    is_exact: bool


def understood(expression: pc.Expression) -> Understood:
    """What is understood of an expression: all rows and no columns where pyarrow writes it down in a way that is not
    known here, as another version may."""
    try:
        node = _parsed(expression)
    except (_UnknownError, pa.ArrowException, ValueError, LookupError, TypeError, AttributeError):
        return Understood(EVERYTHING, None, False)
    return Understood(_selected(node, True), frozenset(_columns(node)), _is_exact(node))


# ---- from what is pickled of an expression to a tree


class _UnknownError(Exception):
    """An expression is written down in a way that is not known."""


def _parsed(expression: pc.Expression) -> _Node:
    """The tree of an expression. What is pickled of it is an Arrow file with one row: the schema's metadata has the
    tree (`call`, then its arguments and options, then `end`), the columns the literals and options."""
    _, (written,) = expression.__reduce__()
    table = pa.ipc.open_file(written).read_all()
    steps = iter(_metadata(table.schema))
    node = _node(*next(steps), steps, table)
    if next(steps, None) is not None:
        raise _UnknownError
    return node


def _node(key: str, value: str, steps: Iterator[tuple[str, str]], values: pa.Table) -> _Node:
    if key == "field_ref":
        return _Field(value)
    if key == "nested_field_ref":
        names = [next(steps) for _ in range(int(value))]
        return _Call("struct_field", (_node(*names[0], steps, values),))
    if key == "literal":
        return _Literal(values.column(int(value))[0])
    if key != "call":
        raise _UnknownError
    arguments: list[_Node] = []
    options = None
    for inner, text in steps:
        if inner == "end":
            return _Call(value, tuple(arguments), options)
        if inner == "options":
            options = values.column(int(text))[0]
        else:
            arguments.append(_node(inner, text, steps, values))
    raise _UnknownError


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """The metadata of a schema in order, with keys that occur several times, of which pyarrow gives the first alone:
    from Arrow's C data interface (ArrowSchema: format, name, metadata, ...; the metadata is a number of pairs, and of
    each key and value the length and the bytes)."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = schema.__arrow_c_schema__()  # owns the bytes
    at = ctypes.cast(get(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))[2]
    if at is None:
        raise _UnknownError
    count, at = ctypes.c_int32.from_address(at).value, at + 4
    texts = []
    for _ in range(2 * count):
        length = ctypes.c_int32.from_address(at).value
        texts.append(ctypes.string_at(at + 4, length).decode())
        at += 4 + length
    return list(zip(texts[::2], texts[1::2], strict=True))


def _columns(node: _Node) -> Iterator[str]:
    if isinstance(node, _Field):
        yield node.name
    elif isinstance(node, _Call):
        for argument in node.arguments:
            yield from _columns(argument)


# ---- from the tree to a Selection


def _selected(node: _Node, asked: bool) -> Selection:
    """A selection with all messages for which an expression is true, or false; all messages where a Selection cannot
    say it. A null is neither."""
    match node:
        case _Literal(value):
            return EVERYTHING if value.as_py() is asked else NOTHING
        case _Call("invert", (inner,)):
            return _selected(inner, not asked)
        case _Call("and_kleene" | "and" | "or_kleene" | "or" as name, arguments):
            join = Selection.narrowed if name.startswith("and") == asked else either
            return reduce(join, [_selected(argument, asked) for argument in arguments])
        case _Call("if_else", (condition, yes, no)):
            return either(
                _selected(condition, True).narrowed(_selected(yes, asked)),
                _selected(condition, False).narrowed(_selected(no, asked)),
            )
        case _Call("coalesce", arguments) if arguments:
            return reduce(either, [_selected(argument, asked) for argument in arguments])
        case _Call(name, (_Field(column), _Literal(value))) if name in _OPERATORS:
            return _compared(column, _OPERATORS[name], value, asked)
        case _Call(name, (_Literal(value), _Field(column))) if name in _OPERATORS:
            return _compared(column, _TURNED[_OPERATORS[name]], value, asked)
        case _Call("is_in", (_Field(column),), options) if asked and options is not None:
            return _in_set(column, options)
        case _Call("starts_with", (_Field("topic"),), options) if asked and options is not None:
            if not options["ignore_case"].as_py():
                return of_topics_with(options["pattern"].as_py())
    return EVERYTHING


def _is_exact(node: _Node) -> bool:
    """Does _selected() say the same as an expression? Known of a topic's name alone, which engines ask for most; not of
    one with U+FFFD, which rows also have in the place of bytes that are no UTF-8."""
    match node:
        case _Call("and_kleene", arguments):
            return all(map(_is_exact, arguments))
        case _Call("equal", (_Field("topic"), _Literal(value)) | (_Literal(value), _Field("topic"))):
            return value.is_valid and _is_text(value.type) and REPLACEMENT not in value.as_py()
    return False


def _compared(column: str, operator: str, value: pa.Scalar, asked: bool) -> Selection:
    operator = operator if asked else _OPPOSITE[operator]
    if not value.is_valid:
        return NOTHING  # a comparison with null is null
    if column in TEXTS and operator == "=" and _is_text(value.type):
        return one_of_texts(column, [value.as_py()])
    whole = _whole(column, value)
    if whole is None or operator == "!=":
        return EVERYTHING
    return one_of_numbers(column, [whole]) if operator == "=" else compared(column, operator, whole)


def _in_set(column: str, options: pa.Scalar) -> Selection:
    """The messages whose column is in the set that the options of `is_in` have."""
    values = options["value_set"].values
    if values.null_count and options["null_matching_behavior"].as_py() == _AS_NULL_OR_VALUE:
        return EVERYTHING
    values = values.drop_null()
    if column in TEXTS and _is_text(values.type):
        return one_of_texts(column, values.to_pylist())
    found = [_whole(column, value) for value in values] if column in NUMBERS else [None]
    whole = [each for each in found if each is not None]
    return one_of_numbers(column, whole) if len(whole) == len(found) else EVERYTHING


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _whole(column: str, value: Any) -> Whole | None:
    """The value rounded down and up to whole numbers of Selection's unit; None if it is not compared as such."""
    if column == "storeTimestamp":
        if not pa.types.is_timestamp(value.type) or value.type.tz is None:
            return None
        nanoseconds = value.value * _NANOSECONDS[value.type.unit]
        return nanoseconds // _PER_MILLISECOND, -(-nanoseconds // _PER_MILLISECOND)
    if column in NUMBERS and pa.types.is_integer(value.type) and (number := value.as_py()) in ALL:
        return number, number
    return None
