"""Every public call and every option with values of odd and wrong types: what the plain value gives, or one line that
names the argument. Never an error from inside, never silently something else."""

# mypy: disable-error-code="misc, var-annotated, no-any-return, no-untyped-call"
# Most of it is what type checkers are there to refuse.

from __future__ import annotations

import collections
import contextlib
import decimal
import enum
import fractions
import itertools
import json
import math
import pathlib
import random
import types
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from oracle import stores

import rmqstore_spark
from rmqstore_spark import OptionError, RmqStoreError
from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.query.options import (
    CALL_OPTIONS,
    REBUILD_OPTIONS,
    STORE_OPTIONS,
    STREAM_OPTIONS,
    WRITE_CALL_OPTIONS,
)
from rmqstore_spark.store.io.storage import STORAGE_OPTIONS
from rmqstore_spark.tables.registry import TABLES, table

ours: Any = rmqstore_spark
Store = ours.Store

NOW = datetime(2026, 5, 6, 7, 8, 9, 500_000, tzinfo=UTC)
START = int(NOW.timestamp() * 1000)  # the store time of the first message
SMALL = {"maxHashSlotNum": 10, "maxIndexNum": 20, "mappedFileSizeConsumeQueue": 2000}
ALSO = ("topic '", "column '", "the path of a directory")  # what else names the argument, by what was asked for
LIST_OPTIONS = {"subscribe": ",", "storePathCommitLog": ",", "columns": ",", "tags": "||"}


class Text(str):
    def __str__(self) -> str:
        return "another"

    __repr__ = __str__


class Word(str, enum.Enum):  # noqa: UP042
    A = "A"


class Plain(enum.StrEnum):
    A = "A"


class Whole(enum.IntEnum):
    ONE = 1


class Other(enum.Enum):
    A = "A"


class Hostile:
    """What cannot be shown, compared or counted."""

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __index__(self) -> int:
        raise ValueError("index")


def nested() -> list[Any]:
    inside: list[Any] = []
    inside.append(inside)
    return inside


# Each is made anew, as a generator can be read once.
ODD: tuple[Callable[[], Any], ...] = (
    *(lambda value=value: value for value in (True, False, np.True_, 0, 1, -1, 3, np.int8(1), np.uint64(1), Whole.ONE)),
    *(lambda value=value: value for value in (1.0, np.float64(1), math.nan, math.inf, 1j, decimal.Decimal(1))),
    *(lambda value=value: value for value in (fractions.Fraction(1), 10**5000, -(10**30), np.array(1), pa.scalar(1))),
    *(lambda value=value: value for value in ("", " ", "A", "A,B", "\0", "\ud800", "9" * 5000, "x" * 5000, "1,2")),
    *(lambda value=value: value for value in (np.str_("A"), Text("A"), Word.A, Plain.A, Other.A, pa.scalar("A"))),
    *(lambda value=value: value for value in (b"A", bytearray(b"A"), memoryview(b"A"), pathlib.Path("A"))),
    *(lambda value=value: value for value in ([], (), set(), frozenset(), {}, [None], [b"A"], [""], [" "], ["A,B"])),
    *(lambda value=value: value for value in (["A"], ("A",), {"A"}, ["A", "B"], ["A || B"], ["*"], ["A", 5], [["A"]])),
    *(lambda value=value: value for value in ([Text("A")], [Word.A, Plain.A], [pathlib.Path("A")], pd.Series(["A"]))),
    *(lambda value=value: value for value in (np.array(["A"]), np.array([1]), np.array([]), pd.DataFrame({"A": [1]}))),
    lambda: (name for name in ("A", "B")),
    lambda: iter(["A"]),
    lambda: map(str, "AB"),
    nested,
    *(lambda value=value: value for value in (NOW, NOW.replace(tzinfo=None), NOW.date(), NOW.time(), timedelta(1))),
    lambda: NOW.astimezone(timezone(timedelta(hours=8, minutes=30))),
    lambda: datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=8, seconds=7))),
    *(lambda value=value: value for value in (pd.Timestamp(NOW), pd.Timestamp(NOW).tz_localize(None), pd.NaT, pd.NA)),
    *(lambda value=value: value for value in (pd.Timestamp(NOW) + pd.Timedelta(1, "ns"), date.max, time.max)),
    *(lambda value=value: value for value in (np.datetime64("2026-05-06T07:08:09.5"), np.datetime64("2026"))),
    *(lambda value=value: value for value in (np.datetime64("NaT"), np.datetime64("2026-05-06T07"))),
    *(lambda value=value: value for value in (object(), int, len, Hostile(), [Hostile()], ..., slice(1))),
    *(lambda value=value: value for value in ({"A": [0]}, {"A": {0, 1}}, {"A": 0}, {"A": "0"}, {"A": [None]})),
    *(lambda value=value: value for value in ({"A": [True]}, {"A": [0.0]}, {"A": np.array([0])}, {"A": b"\0"})),
    *(lambda value=value: value for value in ({"A": [np.int64(0)]}, {b"A": [0]}, {5: [0]}, {Word.A: [Whole.ONE]})),
    *(lambda value=value: value for value in ({"A": [10**5000]}, {"A": ["0"]}, {"A": []}, {"A": {}}, {None: [0]})),
    *(lambda value=value: value for value in ({"A": {0: 1}}, {"A": {"0": 1}}, {"A": {0: 1, "0": 2}}, {"A": {True: 1}})),
    *(lambda value=value: value for value in ({"A": {np.int32(0): np.int64(1)}}, {"A": {0: 1.0}}, {"A": {0: None}})),
    *(lambda value=value: value for value in ({"A": {0.0: 1}}, {"A": {0: True}}, {"A": {0: -2}}, {5: {0: 1}})),
    *(lambda value=value: value for value in ({"A": {-1: 1}}, {"A": {0: 10**5000}}, {"A": {10**5000: 1}})),
    lambda: collections.OrderedDict({"A": {0: 1}}),
    lambda: types.MappingProxyType({"A": [0]}),
    lambda: {"A": (number for number in (0, 1))},
    lambda: {"A": range(2)},
)


def plain(value: Any) -> Any:
    """What a value is when one looks at it without knowing what it is for; itself where that is not clear."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, pathlib.Path):
        return str(value)
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[ms]").astype(int))
    if isinstance(value, pd.Timestamp):
        since = value.tz_localize(UTC) if value.tzinfo is None else value
        return since.isoformat()
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) if value.tzinfo is None else value).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return plain(value.item())
    if isinstance(value, Mapping):
        return {plain(name): plain(each) for name, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(each) for each in value]
    if isinstance(value, pa.Scalar):
        return plain(value.as_py())
    return value


def text_of(option: str, value: Any) -> str:
    """How a user would write it in Spark."""
    found = plain(value)
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, list):
        assert all(type(each) is str and each.strip() for each in found), "silently taken"
        separator = LIST_OPTIONS[option]
        assert all(separator not in each for each in found), "silently two"
        assert found, "silently taken"
        return separator.join(found)
    if isinstance(found, dict):
        return json.dumps(found)
    if option == "bodyContains" and isinstance(found, bytes | bytearray | memoryview):
        return f"hex:{bytes(found).hex()}"
    assert isinstance(found, str | int), "silently taken"
    return str(found)


def one_line(why: BaseException, *names: str) -> str:
    """The text of an error that tells a user which argument is wrong."""
    text = str(why)
    assert isinstance(why, RmqStoreError), f"{type(why)}: {text}"
    assert len(text.splitlines()) == 1, text
    assert len(text) < 2000, text
    assert any(name in text for name in names), text
    return text


def outcome(call: Callable[[], Any], *names: str) -> Any:
    """What a call gives; None if it says that something is wrong with one of these."""
    try:
        return call()
    except Exception as why:
        one_line(why, *names)
        return None


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    builder = stores.StoreBuilder(tmp_path_factory.mktemp("calls") / "store")
    for number in range(12):
        topic, queue_id = ("A", "B")[number % 2], number // 2 % 2
        builder.append(topic, f"{number}".encode(), queue_id=queue_id, keys="A", tags="A" if number % 3 else "B")
    builder.close()
    return builder.root


@pytest.fixture
def here(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    """In a directory of its own, so that a path that is made of some value does no harm."""
    monkeypatch.chdir(tmp_path)
    return root


def is_too_slow(option: str, value: Any) -> bool:
    """A few bytes in a second."""
    small = isinstance(value, np.ndarray | pa.Scalar) or (isinstance(value, int | np.integer) and 0 < value < 10)
    return option == "maxTaskBytesPerSecond" and bool(small)


def rows(store: Any, **options: Any) -> list[dict[str, Any]]:
    return store.messages(**{"columns": ["topic", "queueId", "body"], **options}).read_all().to_pylist()


# ---- options


@pytest.mark.parametrize("option", CALL_OPTIONS)
def test_read_options(here: pathlib.Path, option: str, rng: random.Random) -> None:
    store = Store(here)
    for make in rng.sample(ODD, 40):
        if is_too_slow(option, make()):
            continue
        found = outcome(lambda make=make: rows(store, **{option: make()}), f"'{option}'", *ALSO)
        if found is None or make() is None:
            continue
        assert found == rows(store, **{option: text_of(option, make())}), make()


@pytest.mark.parametrize("option", STORE_OPTIONS)
def test_store_options(here: pathlib.Path, option: str, rng: random.Random) -> None:
    for make in rng.sample(ODD, 40):
        if is_too_slow(option, make()):
            continue
        if is_too_slow(option, make()):
            continue
        found = outcome(
            lambda make=make: rows(Store(here, **{option: make()})),
            f"'{option}'",
            "commitlog",
            "the path of a directory",
        )
        if found is not None:
            assert found == rows(Store(here, **{option: text_of(option, make())})), make()


def test_storage_options_never_shown(here: pathlib.Path) -> None:
    for name in STORAGE_OPTIONS:
        for value in (b"secret", ["secret"], {"secret": 1}, 5, 1.5, object(), ("secret",)):
            with pytest.raises(OptionError, match=rf"^option '{name}': expected ") as why:
                Store(here, **{name: value})
            assert "secret'" not in str(why.value).replace(name, "")
            with pytest.raises(OptionError, match=rf"^option '{name}': expected "):
                Store(here).messages(**{name: value})
    assert rows(Store(here, aws_skip_signature=True, aws_web_identity_token_file=pathlib.Path("x")))


@pytest.mark.parametrize("option", WRITE_CALL_OPTIONS)
def test_write_options(here: pathlib.Path, tmp_path: pathlib.Path, option: str, rng: random.Random) -> None:
    """A store is of the option's text: the same files, the same messages."""
    data = pa.table({"topic": ["A", None], "body": ["1", "2"], "keys": ["k", "k"], "queueId": [None, 1]})
    small = {**SMALL, "mappedFileSizeCommitLog": 4096, "topic": "T"}
    number = itertools.count()

    def written(value: Any) -> Any:
        target = tmp_path / str(next(number))
        txn = {"txnAppId": "txnVersion", "txnVersion": "txnAppId"}
        more = {txn[option]: "7"} if option in txn else {}
        count = ours.write_store(target, data, **{**small, **more, option: value})
        # The name of an index file is the time at which it was made.
        files = sorted((f.relative_to(target).parts[0], f.stat().st_size) for f in target.rglob("*") if f.is_file())
        names = ["topic", "queueId", "body", "storeHost", "bornHost", "sysFlag"]
        return count, files, Store(target).messages(names).read_all().to_pylist()

    for make in rng.sample(ODD, 10):
        if type(make()) is int and make() == 3 and option.startswith("mapped"):
            continue
        found = outcome(lambda make=make: written(make()), option, "topic", "segment", "commitlog", "configFrom")
        if found is not None:
            assert found == written(text_of(option, make())), make()


@pytest.mark.parametrize("option", REBUILD_OPTIONS)
def test_rebuild_options(tmp_path: pathlib.Path, option: str, rng: random.Random) -> None:
    builder = stores.StoreBuilder(tmp_path)
    builder.append("A", b"1")
    builder.close()
    for make in rng.sample(ODD, 20):
        found = outcome(
            lambda make=make: Store(tmp_path).rebuild(**{**SMALL, option: make()}), option, "queue", "index"
        )
        if found is not None:
            text_of(option, make())
            assert found == 1


def test_what_is_taken(here: pathlib.Path) -> None:
    """What these tests would not notice if all were refused."""
    store = Store(here)
    every = rows(store)
    first = [row for row in every if row["topic"] == "A"]
    zero = [row for row in first if row["queueId"] == 0]
    for names in (
        ["A"],
        ("A",),
        {"A"},
        frozenset("A"),
        iter("A"),
        np.array(["A"]),
        pd.Series(["A"]),
        Text("A"),
        Word.A,
    ):
        assert rows(store, subscribe=names) == first, names
    assert rows(store, tags=["A", "B"]) == every
    for ids in ([0], (0,), {0}, range(1), iter([np.int64(0)]), np.array([0]), [Whole.ONE - 1]):
        assert rows(store, assign={"A": ids}) == zero, ids
    for offsets in ({0: 1}, {"0": 1}, {np.int64(0): np.int64(1)}, {0: Whole.ONE}, {np.str_("0"): 1}):
        assert rows(store, assign={"A": [0]}, startingOffsets={"A": offsets}) == zero[1:], offsets
    for value in (True, np.True_, "true", "TRUE"):
        assert rows(store, verifyCrc=value) == every
    for number in (1, np.int32(1), np.uint8(1), Whole.ONE, "1", np.array(1)):
        assert rows(store, minPartitions=number) == every
    assert rows(store, columns=(name for name in ("body", "topic"))) == [
        {"body": row["body"], "topic": row["topic"]} for row in every
    ]
    assert rows(store, subscribe=None, tags=None, key=None, verifyCrc=None) == every


def test_times_in_all_their_types(tmp_path: pathlib.Path) -> None:
    data = pa.table(
        {
            "topic": ["A"] * 4,
            "body": list("1234"),
            "storeTimestamp": pa.array([START + n for n in range(4)], pa.timestamp("ms", "UTC")),
        }
    )
    ours.write_store(tmp_path / "store", data, mappedFileSizeCommitLog=4096)
    store = Store(tmp_path / "store")
    moment = NOW + timedelta(milliseconds=2)
    for value in (
        moment,
        moment.replace(tzinfo=None),
        moment.astimezone(timezone(timedelta(hours=8))),
        pd.Timestamp(moment),
        pd.Timestamp(moment) - pd.Timedelta(1, "ns"),
        np.datetime64("2026-05-06T07:08:09.502"),
        np.datetime64("2026-05-06T07:08:09.502000000"),
        START + 2,
        np.int64(START + 2),
        str(START + 2),
    ):
        assert [row["body"] for row in rows(store, startingTimestamp=value)] == [b"3", b"4"], value
        assert json.loads(store.offsets_at(value)) == {"A": {str(n): int(n < 2) for n in range(4)}}, value
    for value in (date(2026, 5, 6), np.datetime64("2026"), np.datetime64("2026-05"), np.datetime64("2026-05-06T07")):
        assert len(rows(store, startingTimestamp=value)) == 4
        assert not rows(store, endingTimestamp=value)


# ---- names of options


def test_no_option_is_dropped(here: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Whatever the case, twice, or of another face."""
    store, data = Store(here), pa.table({"topic": ["A"], "body": ["1"]})
    odd = ["path", "paths", "table", "pushdown", "PATH", "Table", "location", "provider", "owner", "option.x", "queues"]
    odd += [name for name in STREAM_OPTIONS if name != "startingOffsets"]
    for name in odd:
        given: Any = {name: "1"}
        for call in (
            lambda given=given: store.messages(**given),
            lambda given=given: store.topics(**given),
            lambda given=given: store.get("A", **given),
            lambda given=given: store.explain(**given),
            lambda given=given: store.copy(tmp_path / "target", **given),
            lambda given=given: store.salvage(tmp_path / "target", **given),
            lambda given=given: Store(here, **given),
            lambda given=given: store.rebuild(**given),
        ):
            with pytest.raises((OptionError, TypeError), match=f"(?i){name}"):
                call()
    for name in ("Path", "mode_", "subscribe", "location", "option.topic"):
        with pytest.raises(OptionError, match=name):
            store.write(data, **{name: "1"})
    for name in ("Path", "Paths", "Table", "location"):
        with pytest.raises(OptionError, match=f"(?i){name}"):
            ours.explain(here, **{name: "1"})
    for name in ("subscribe", "key", "minPartitions", "columns", "decompress"):
        with pytest.raises(OptionError, match=f"option '{name}' is not for this call. The options are "):
            Store(here, **{name: "1"})
    with pytest.raises(OptionError, match="option 'subscribe' is given twice"):
        store.messages(subscribe="A", SUBSCRIBE="B")
    with pytest.raises(OptionError, match="option 'columns' is given twice"):
        store.messages(["topic"], COLUMNS="topic")
    with pytest.raises(OptionError, match="option 'topic' is given twice"):
        store.write(data, topic="A", Topic="B")
    for name in ("msgId", "MSGID"):
        with pytest.raises(OptionError, match="option 'msgId' is given beside the id"):
            store.get("A", **{name: "B"})
    # A call's own word counts, in whatever case it is.
    assert Store(here, mode="PERMISSIVE").messages("corrupt", MODE="FAILFAST").read_all().num_rows == 12
    assert not (tmp_path / "target").exists()


def test_of_two_wrong_options_it_is_always_the_same(here: pathlib.Path, rng: random.Random) -> None:
    wrong = {"tags": "||", "key": "", "mode": "x", "verifyCrc": "x", "startingTimestamp": "x", "minPartitions": "0"}
    for _ in range(50):
        some = rng.sample(sorted(wrong), 3)
        told = set()
        for names in itertools.permutations(some):
            with pytest.raises(OptionError) as why:
                Store(here).messages(**{name: wrong[name] for name in names})
            told.add(str(why.value))
        assert len(told) == 1
        first = min(some, key=list(CALL_OPTIONS).index)
        assert f"'{first}'" in told.pop()
        with pytest.raises(OptionError, match="unknown option 'nonsense'"):
            Store(here).messages(**{**{name: wrong[name] for name in some}, "nonsense": "1"})


def test_options_that_are_read_once_are_read_once(here: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A copy reads its sources several times."""
    Store(here).copy(tmp_path / "target", subscribe=(name for name in ("A",)))
    assert {row["topic"] for row in rows(Store(tmp_path / "target"))} == {"A"}
    store = Store(path for path in (here,))
    assert rows(store) == rows(store) != []


# ---- arguments


def test_arguments(here: pathlib.Path, tmp_path: pathlib.Path, rng: random.Random) -> None:
    store, data = Store(here), pa.table({"topic": ["A"], "body": ["1"]})
    texts: dict[str, Callable[[Any], Any]] = {
        "id": store.get,
        "name": store.history,
        "group": store.offsets_of,
        "table": store.table,
    }
    for make in rng.sample(ODD, 20):
        for name, call in texts.items():
            found = outcome(lambda make=make, call=call: call(make()), f"{name}: ", name, "name: ")
            if found is not None:
                assert isinstance(make(), str), make()
                assert isinstance(found, str) or found.equals(call("".join(make())))
        found = outcome(lambda make=make: store.offsets_at(make()), "time: ")
        if found is not None:
            assert found == store.offsets_at(text_of("startingTimestamp", make()))
        if not callable(make()) and make() is not None:
            outcome(lambda make=make: pytest.fail(str(store.check(progress=make()))), "progress: ")
        for path in (lambda make=make: Store(make()), lambda make=make: ours.explain(make())):
            found = outcome(
                path,
                "path",
                "nothing matches",
                "not a RocketMQ store",
                "A",
                "no home",
                str(tmp_path)[:5],
                "9999",
                "xxxx",
            )
            assert found is None, make()
        if not isinstance(make(), str | pathlib.Path):
            for target in (store.copy, store.salvage):
                outcome(lambda make=make, target=target: pytest.fail(str(target(make()))), "target: ")
            outcome(lambda make=make: pytest.fail(str(ours.rebuild(make()))), "store: ")
            outcome(lambda make=make: pytest.fail(str(ours.write_store(make(), data))), "path: ")
            outcome(
                lambda make=make: pytest.fail(str(ours.write_store(tmp_path / "s", make()))),
                "data: ",
                "column",
            )
            outcome(lambda make=make: pytest.fail(str(store.write(data, make()))), "mode: ")
        outcome(lambda make=make: pytest.fail(str(ours.register(make()))), "spark: ")
        outcome(lambda make=make: pytest.fail(str(ours.storage_options(make()))), "spark: ")
    for target in (store.copy, store.salvage):
        with pytest.raises(OptionError, match="expected the path of a directory, found ''"):
            target("")
    assert list(tmp_path.iterdir()) == []


def test_index_of_a_copy(here: pathlib.Path, tmp_path: pathlib.Path, rng: random.Random) -> None:
    """Any text that is not empty was true."""
    number = itertools.count()
    for make in rng.sample(ODD, 10):
        target = tmp_path / str(next(number))
        found = outcome(
            lambda make=make, target=target: Store(here).copy(target, messageIndexEnable=make()), "messageIndexEnable"
        )
        if found is not None:
            assert (target / "index").exists() == {"true": True, "false": False}[text_of("verifyCrc", make())]


@pytest.mark.parametrize("name", TABLES)
def test_columns_of_tables(here: pathlib.Path, name: str, rng: random.Random) -> None:
    store = Store(here)
    column = table(name).schema.names[0]
    for make in rng.sample(ODD, 15):
        outcome(lambda make=make: pytest.fail(str(store.table(name, make()))), "column")
    for given in (column, [column], (column,), iter([column]), Text(column)):
        assert store.table(name, given).schema.names == [column]
    with pytest.raises(OptionError, match="option 'columns': expected names in their order"):
        store.table(name, {column})


@pytest.mark.parametrize("name", COLUMNS)
def test_each_column_of_messages(here: pathlib.Path, name: str) -> None:
    (alone,) = Store(here).messages([name]).read_all().schema.names
    assert alone == name


def short(self: Exception, text: str) -> None:
    assert len(text) < 1500, text


def test_long_values_are_cut(here: pathlib.Path) -> None:
    store, long = Store(here), "9" * 5000
    calls: tuple[Callable[[], Any], ...] = (
        *(lambda name=name: store.messages(**{name: long}) for name in CALL_OPTIONS if name not in ("key", "msgId")),
        lambda: store.messages(**{long: "1"}),
        lambda: store.messages(startingOffsets={long: {0: 1}}),
        lambda: store.messages(assign={long: [0]}),
        lambda: store.messages(subscribe="A", startingOffsets={long: {0: 1}}),
        lambda: store.messages(startingTimestamp=f"2026-01-01T00:00:00.{long}", endingTimestamp="2025-01-01"),
        lambda: store.messages(startingOffsets=f"group:{long}"),
        lambda: store.messages(subscribePattern=f"({long}"),
        lambda: store.topics(long),
        lambda: store.table(long),
        lambda: store.offsets_of(long),
        lambda: store.offsets_at(long),
        lambda: store.write(pa.table({"body": ["1"]}), long),
        lambda: store.write(pa.table({"body": ["1"], long: ["1"]})),
        lambda: store.write(pa.table({"body": ["1"]}), storeHost=long, topic="A"),
    )
    for call in calls:
        with contextlib.suppress(RmqStoreError), pytest.MonkeyPatch.context() as patch:
            patch.setattr(RmqStoreError, "__init__", short)
            call()
