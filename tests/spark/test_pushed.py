"""Pushed filters select what SQL selects, and a reader takes them only in the worker in which Spark pushes them."""

# mypy: disable-error-code="arg-type"
# PySpark's types say that In holds a tuple; what Spark makes, and so these tests, holds a list.

from __future__ import annotations

import pickle
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from operator import ge, gt, le, lt
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.selected import has_wanted_values
from pyspark.sql import datasource as spark_datasource
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.query.selection import EVERYTHING, Numbers, Selection, Texts
from rmqstore_spark.spark.datasource import RmqStoreDataSource
from rmqstore_spark.spark.pushdown import selection_of
from rmqstore_spark.spark.reader import PUSHDOWN_WORKER, PushdownReader, RmqStoreReader, SwitchedReader

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST = (1 << 63) - 1


def at(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def texts(*values: str) -> frozenset[str]:
    return frozenset(values)


# ---- one by one


@pytest.mark.parametrize(
    ("pushed", "wanted"),
    [
        (EqualTo(("topic",), "A"), Selection(topic=Texts(texts("A")))),
        (EqualNullSafe(("topic",), "A"), Selection(topic=Texts(texts("A")))),
        (In(("topic",), ["A", None, "B"]), Selection(topic=Texts(texts("A", "B")))),
        (StringStartsWith(("topic",), "%RETRY%"), Selection(topic=Texts(prefixes=("%RETRY%",)))),
        (EqualTo(("tags",), "x"), Selection(tags=texts("x"))),
        (In(("keys",), ("x", "y")), Selection(keys=texts("x", "y"))),
        (EqualNullSafe(("msgId",), "x"), Selection(msg_id=texts("x"))),
        (EqualTo(("offsetMsgId",), "AB"), Selection(offset_msg_id=texts("AB"))),
        (EqualTo(("offsetMsgId",), "ab"), Selection(offset_msg_id=texts("ab"))),  # no such id: they are upper-case
        (EqualTo(("queueId",), 3), Selection(queue_id=Numbers.of(3))),
        (In(("queueOffset",), [5, 1]), Selection(queue_offset=Numbers.of(1, 5))),
        (GreaterThan(("commitLogOffset",), 7), Selection(commit_log_offset=Numbers(least=8))),
        (GreaterThanOrEqual(("queueOffset",), 7), Selection(queue_offset=Numbers(least=7))),
        (LessThan(("queueId",), 7), Selection(queue_id=Numbers(most=6))),
        (LessThanOrEqual(("queueOffset",), -7), Selection(queue_offset=Numbers(most=-7))),
        (EqualTo(("storeTimestamp",), at(5000)), Selection(store_timestamp=Numbers.of(5))),
        (GreaterThan(("storeTimestamp",), at(5000)), Selection(store_timestamp=Numbers(least=6))),
        (GreaterThan(("storeTimestamp",), at(5001)), Selection(store_timestamp=Numbers(least=6))),
        (GreaterThanOrEqual(("storeTimestamp",), at(5000)), Selection(store_timestamp=Numbers(least=5))),
        (GreaterThanOrEqual(("storeTimestamp",), at(5001)), Selection(store_timestamp=Numbers(least=6))),
        (LessThan(("storeTimestamp",), at(5000)), Selection(store_timestamp=Numbers(most=4))),
        (LessThan(("storeTimestamp",), at(5001)), Selection(store_timestamp=Numbers(most=5))),
        (LessThanOrEqual(("storeTimestamp",), at(5999)), Selection(store_timestamp=Numbers(most=5))),
        (LessThanOrEqual(("storeTimestamp",), at(-1)), Selection(store_timestamp=Numbers(most=-1))),
        (
            GreaterThan(("storeTimestamp",), at(5000).astimezone(timezone(timedelta(hours=-5)))),
            Selection(store_timestamp=Numbers(least=6)),
        ),
    ],
)
def test_meaning(pushed: Filter, wanted: Selection) -> None:
    assert selection_of([pushed]) == wanted


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("topic",), None),
        In(("tags",), [None]),
        In(("queueId",), []),
        In(("storeTimestamp",), [at(1), at(5999), None]),  # between milliseconds
        EqualTo(("storeTimestamp",), at(5001)),
        LessThan(("queueOffset",), -MOST - 1),
        GreaterThan(("commitLogOffset",), MOST),
    ],
    ids=str,
)
def test_true_of_no_message(pushed: Filter) -> None:
    assert selection_of([pushed]).is_nothing


@pytest.mark.parametrize(
    "pushed",
    [
        EqualNullSafe(("tags",), None),  # true of messages without tags
        IsNull(("tags",)),
        IsNotNull(("topic",)),
        Not(EqualTo(("topic",), "A")),
        Not(In(("queueId",), [1])),
        StringEndsWith(("topic",), "A"),
        StringContains(("topic",), "A"),
        StringStartsWith(("tags",), "A"),
        GreaterThan(("topic",), "A"),
        LessThan(("tags",), "A"),
        EqualTo(("body",), b"x"),
        EqualTo(("flag",), 1),
        EqualTo(("bornTimestamp",), at(0)),
        EqualTo(("store",), "/x"),
        EqualTo(("Topic",), "A"),
        EqualTo(("topic", "x"), "A"),
        In(("file",), []),
        EqualTo(("topic",), 1),
        In(("topic",), ["A", 1]),
        EqualTo(("queueId",), "1"),
        EqualTo(("queueId",), True),
        EqualTo(("queueId",), 1.0),
        EqualTo(("queueOffset",), Decimal(1)),
        EqualTo(("queueOffset",), MOST + 1),
        In(("queueOffset",), [1, -MOST - 2]),
        In(("queueOffset",), [1, 2.0]),
        GreaterThan(("queueOffset",), 1.5),
        LessThan(("queueOffset",), None),
        GreaterThan(("storeTimestamp",), 5),
        GreaterThan(("storeTimestamp",), datetime(2024, 1, 1)),  # of no zone
        EqualTo(("storeTimestamp",), EPOCH.date()),
        StringStartsWith(("topic",), None),
    ],
    ids=str,
)
def test_left_to_spark(pushed: Filter) -> None:
    assert selection_of([pushed]) == EVERYTHING


def test_filters_narrow_each_other() -> None:
    pushed = [
        IsNotNull(("topic",)),
        In(("topic",), ["Ax", "Ay", "B"]),
        StringStartsWith(("topic",), "A"),
        GreaterThan(("queueOffset",), 3),
        LessThanOrEqual(("queueOffset",), 9),
        In(("tags",), ["x", "y"]),
        EqualTo(("tags",), "y"),
    ]
    assert selection_of(pushed) == Selection(
        topic=Texts(texts("Ax", "Ay")), queue_offset=Numbers(4, 9), tags=texts("y")
    )
    assert selection_of([]) == EVERYTHING


# ---- any filters, any rows

TEXTS = ["", "a", "ab", "b", "A", "ä", "a b", "\N{REPLACEMENT CHARACTER}", "\U0001f600"]
INTEGERS = [-MOST - 1, -1, 0, 1, 2, 3, MOST]
MILLISECONDS = [-2, -1, 0, 1, 2, 1_700_000_000_000]
NULLABLE = {"tags", "keys", "msgId"}
VALUES: dict[str, list[Any]] = {
    "topic": TEXTS,
    "tags": TEXTS,
    "keys": TEXTS,
    "msgId": TEXTS,
    "offsetMsgId": TEXTS,
    "queueId": [0, 1, 2, 3],
    "queueOffset": INTEGERS,
    "commitLogOffset": INTEGERS,
    "storeTimestamp": [at(1000 * n) for n in MILLISECONDS],
}
RANGES = {GreaterThan: gt, GreaterThanOrEqual: ge, LessThan: lt, LessThanOrEqual: le}

Row = dict[str, Any]


def literals(column: str) -> st.SearchStrategy[Any]:
    if column == "storeTimestamp":
        return st.builds(lambda ms, us: at(1000 * ms + us), st.sampled_from(MILLISECONDS), st.integers(-2, 2))
    return st.sampled_from(VALUES[column])


@st.composite
def filters(draw: st.DrawFn) -> tuple[Filter, bool]:
    """A filter, and whether a Selection says exactly what it does."""
    column = draw(st.sampled_from(list(VALUES)))
    value, is_text = literals(column), VALUES[column] is TEXTS
    kinds = [EqualTo, EqualNullSafe, In, IsNull, IsNotNull, Not, *([StringStartsWith] if is_text else RANGES)]
    kind: Any = draw(st.sampled_from(kinds))
    match kind:
        case spark_datasource.EqualTo:
            return EqualTo((column,), draw(value | st.none())), True
        case spark_datasource.EqualNullSafe:
            literal = draw(value | st.none())
            return EqualNullSafe((column,), literal), literal is not None
        case spark_datasource.In:
            return In((column,), draw(st.lists(value | st.none(), max_size=4))), True
        case spark_datasource.IsNull | spark_datasource.IsNotNull:
            return kind((column,)), False
        case spark_datasource.Not:
            return Not(EqualTo((column,), draw(value))), False
        case spark_datasource.StringStartsWith:
            return StringStartsWith((column,), draw(value)), column == "topic"
    return kind((column,), draw(value)), True


ROWS = st.fixed_dictionaries(
    {
        name: st.sampled_from(values) | (st.none() if name in NULLABLE else st.nothing())
        for name, values in VALUES.items()
    }
)


def sql(pushed: Filter, row: Row) -> bool | None:
    """What SQL says of a row: true, false or NULL."""
    match pushed:
        case Not(child):
            said = sql(child, row)
            return None if said is None else not said
        case IsNull((column,)):
            return row[column] is None
        case IsNotNull((column,)):
            return row[column] is not None
        case EqualNullSafe((column,), value):
            return bool(row[column] == value)
        case In((column,), values):
            each = [sql(EqualTo((column,), value), row) for value in values]
            return True if True in each else None if None in each else False
        case EqualTo((column,), value) | StringStartsWith((column,), value) if row[column] is None or value is None:
            return None
        case EqualTo((column,), value):
            return bool(row[column] == value)
        case StringStartsWith((column,), value):
            return bool(row[column].startswith(value))
        case GreaterThan((column,), value) | GreaterThanOrEqual((column,), value):
            return bool(RANGES[type(pushed)](row[column], value))
        case LessThan((column,), value) | LessThanOrEqual((column,), value):
            return bool(RANGES[type(pushed)](row[column], value))
    raise AssertionError(pushed)


def selects(selection: Selection, row: Row) -> bool:
    """What a Selection says of a row, bounds asked as the planner and the tasks ask."""
    offsets = selection.queue(row["topic"], row["queueId"])
    if offsets is None or row["queueOffset"] not in offsets:
        return False
    if row["commitLogOffset"] not in selection.commit_log_offset:
        return False
    microseconds = (row["storeTimestamp"] - EPOCH) // timedelta(microseconds=1)
    if microseconds // 1000 not in selection.store_timestamp:
        return False
    return has_wanted_values(selection, {**row, "storeTimestamp": microseconds})


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(filters(), max_size=4), st.lists(ROWS, min_size=1, max_size=8))
def test_selection_is_what_sql_selects(pushed: list[tuple[Filter, bool]], rows: list[Row]) -> None:
    exact = [one for one, is_exact in pushed if is_exact]
    selection = selection_of([one for one, _ in pushed])
    assert selection == selection_of(exact)  # the others are left to Spark
    for row in rows:
        assert selects(selection, row) == all(sql(one, row) is True for one in exact)


def test_every_column_of_a_selection_is_tried() -> None:
    assert {
        name for name in COLUMNS if selection_of([EqualTo((name,), VALUES.get(name, [0])[0])]) != EVERYTHING
    } == set(VALUES)


# ---- the reader


@pytest.fixture
def pushdown_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, ModuleType(PUSHDOWN_WORKER))


def reader(**options: str) -> RmqStoreReader:
    schema = StructType().add("topic", "string")
    made = RmqStoreDataSource({"path": "/store", **options}).reader(schema)
    assert isinstance(made, RmqStoreReader)
    return made


def takes_filters(made: RmqStoreReader) -> bool:
    (left,) = made.pushFilters([EqualTo(("topic",), "only this")])
    assert left == EqualTo(("topic",), "only this")
    return made._options.selection != EVERYTHING


@pytest.mark.parametrize("pushdown", ["auto", "on", "off"])
def test_no_worker_but_spark_s_pushdown_worker_gets_a_reader_for_filters(pushdown: str) -> None:
    assert PUSHDOWN_WORKER not in sys.modules
    assert not takes_filters(reader(pushdown=pushdown))


@pytest.mark.usefixtures("pushdown_worker")
@pytest.mark.parametrize("mended", [False, True])
def test_who_takes_filters(monkeypatch: pytest.MonkeyPatch, mended: bool) -> None:
    if mended:
        monkeypatch.setattr(DataSourceReader, "pushLimit", lambda self, limit: False, raising=False)
    elif hasattr(DataSourceReader, "pushLimit"):
        monkeypatch.delattr(DataSourceReader, "pushLimit")
    assert takes_filters(reader(pushdown="on"))
    assert not takes_filters(reader(pushdown="off"))
    assert takes_filters(reader(pushdown="auto")) == mended


def test_without_a_daemon_the_worker_is_main(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = type("Spec", (), {"name": PUSHDOWN_WORKER})()
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert takes_filters(reader(pushdown="on"))


@pytest.mark.usefixtures("pushdown_worker")
def test_the_reader_keeps_what_was_pushed_and_gives_all_filters_back() -> None:
    from_spark = reader(pushdown="on", subscribe="A,B", startingTimestamp="5")
    from_sail = PushdownReader(from_spark._options, from_spark._schema)
    pushed = [IsNotNull(("topic",)), In(("topic",), ["B", "C"]), GreaterThan(("storeTimestamp",), at(8000))]
    for made in (from_spark, from_sail):
        assert [id(one) for one in made.pushFilters(pushed)] == [id(one) for one in pushed]
    for one in (from_spark, from_sail, pickle.loads(pickle.dumps(from_spark))):
        assert one._options.selection == Selection(topic=Texts(texts("B")), store_timestamp=Numbers(least=9))
        assert one._options.paths == ["/store"]


# ---- Spark 5.0, which also pushes limits: as its development branch is in November 2026


def refused(made: DataSourceReader, **switches: bool) -> list[str]:
    """The methods for which Spark refuses this reader: its own ones whose switch is off."""
    base = vars(DataSourceReader)
    return [
        name
        for name, is_on in switches.items()
        if not is_on and getattr(getattr(made, name), "__func__", None) is not base[name]
    ]


@pytest.mark.usefixtures("pushdown_worker")
@pytest.mark.parametrize("pushdown", ["auto", "on", "off"])
@pytest.mark.parametrize("limits", [False, True])
@pytest.mark.parametrize("filters", [False, True])
def test_the_switches_of_spark_5(monkeypatch: pytest.MonkeyPatch, filters: bool, limits: bool, pushdown: str) -> None:
    """A query with a condition and a limit is planned twice: Spark replays the filters, and then offers the limit."""
    monkeypatch.setattr(DataSourceReader, "pushLimit", lambda self, limit: False, raising=False)
    condition: list[Filter] = [EqualTo(("topic",), "B")]
    for _ in range(2):
        made = reader(pushdown=pushdown)
        assert not refused(made, pushFilters=filters, pushLimit=limits)
        # What is offered to a reader without a method of its own is refused by the base class's.
        assert made.pushLimit(5) is False  # type: ignore[attr-defined]
        if filters:
            assert made.pushFilters(condition) == condition
        narrowed = Selection(topic=Texts(texts("B")))
        assert made._options.selection == (narrowed if filters and pushdown != "off" else EVERYTHING)


@pytest.mark.usefixtures("pushdown_worker")
def test_a_method_of_the_class_would_be_refused() -> None:
    """So the test above can see it."""
    made = reader(pushdown="on")
    assert isinstance(made, SwitchedReader)
    assert not refused(made, pushFilters=False)
    assert refused(PushdownReader(made._options, made._schema), pushFilters=False) == ["pushFilters"]
