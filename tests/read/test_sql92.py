"""Option sql92: what the broker's own SqlFilter says, of each message, before rows are made.

tests/data/sql92-5.5.0.json has random expressions, what rocketmq-filter 5.5.0 said of each of some messages (T, F, N
for null, E for an exception), and expressions that it refused.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from oracle.stores import StoreBuilder
from support.command import run

from rmqstore_spark import OptionError, Store
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.query.sql92 import MOST_NAMES, Sql92

JUDGED = json.loads((Path(__file__).parents[1] / "data" / "sql92-5.5.0.json").read_text())


def store_of(root: Path, messages: list[dict[str, str]]) -> Store:
    builder = StoreBuilder(root)
    for message in messages:
        text = "\x02".join(f"{name}\x01{value}" for name, value in message.items())
        builder.append("T", b"x", properties=text.encode())
    builder.close()
    return Store(root)


def numbers(store: Store, expression: str, **options: Any) -> list[int]:
    rows = store.messages(columns=["queueOffset"], sql92=expression, **options).read_all()
    return rows.column(0).to_pylist()  # type: ignore[no-any-return]


def test_the_broker_says_the_same() -> None:
    messages = JUDGED["messages"]
    for expression, answers in JUDGED["judged"]:
        parsed = Sql92(expression)
        judge = parsed.judge()
        values = [[message.get(name) for name in parsed.names] for message in messages]
        assert [judge(each) for each in values] == [answer == "T" for answer in answers], expression


def test_what_the_broker_refuses() -> None:
    for expression in JUDGED["refused"]:
        with pytest.raises(ValueError, match="an expression of SQL92"):
            Sql92(expression)


def test_of_a_store(tmp_path: Path) -> None:
    """Through the kernel, on every way to messages, and pickled to Spark's tasks."""
    store = store_of(tmp_path, JUDGED["messages"])
    for expression, answers in JUDGED["judged"][::10]:
        assert numbers(store, expression) == [at for at, answer in enumerate(answers) if answer == "T"], expression
    expression, answers = next(each for each in JUDGED["judged"] if each[1].count("T") > 5)
    found = [at for at, answer in enumerate(answers) if answer == "T"]
    assert numbers(store, expression, subscribe="T", trust="queues") == found
    assert store.usage(sql92=expression).column("messages").to_pylist() == [len(found)]
    assert pickle.loads(pickle.dumps(Sql92(expression))).names == Sql92(expression).names
    told = run("messages", str(tmp_path), "--sql92", expression, "--columns", "queueOffset", "--format", "json").out
    assert [json.loads(line)["queueOffset"] for line in told.splitlines()] == found


def test_properties_as_rows_have_them(tmp_path: Path) -> None:
    """The last of equal names counts, and names are told apart by case; a value may have the character 1."""
    builder = StoreBuilder(tmp_path)
    for properties in (b"a\x01x\x02a\x01y", b"A\x01y", b"a\x01", b"a\x01x\x01y", b"\x01a\x01y", b"a\x01y\xff", b""):
        builder.append("T", b"x", properties=properties)
    builder.close()
    assert numbers(Store(tmp_path), "a = 'y'") == [0]
    assert numbers(Store(tmp_path), "a CONTAINS 'y'") == [0, 3, 5]
    assert numbers(Store(tmp_path), "a IS NULL") == [1, 2, 4, 6]
    assert numbers(Store(tmp_path), "1 = 1") == [*range(7)]
    assert numbers(Store(tmp_path), "1 = 2") == []


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("a = 1 b = 2", "the end of the expression, AND or OR, and not 'b' at character 7"),
        ("", "and not its end"),
        ("a = ", "and not its end"),
        ("a & b", "no '&' at character 3"),
        ("a != 1", "no '!' at character 3 (unequal is <>)"),
        ('a = "b"', "no '\"' at character 5 (texts stand in single quotes)"),
        ("a = 'b", 'no "\'" at character 5 (a text that does not end)'),
        ("a like 'b'", "and not 'like' at character 3 (there are CONTAINS, STARTSWITH and ENDSWITH)"),
        ("a = NULL", "IS NULL or IS NOT NULL"),
        ("a > 'x'", "a number or a property on both sides of >"),
        ("a BETWEEN 5 AND 1", "the smaller number AND the larger one"),
        ("a BETWEEN 5 OR 6", "AND after BETWEEN and a number"),
        ("a IN 'x'", "( after IN"),
        ("a IN ('x' 'y')", ", or ) after a text in IN"),
        ("TRUE = 1", "two literals of one type"),
        ("a IN (1)", "a text in single quotes"),
        ("1 IN ('x')", "a property before IN"),
        ("5", "a comparison before it"),
        ("a = 0.0", "that is not 0"),
        ("a = 9223372036854775808", "a whole number of 64 bits"),
        ("a = " + "9" * 5000, "a whole number of 64 bits"),
        ("(" * 10_000, "at most 64 parentheses"),
        ("NOT " * 3_000 + "a", "at most 64 parentheses"),
        ("a = 1 OR " * 10_000 + "a", "at most 16384 characters"),
        (" AND ".join(f"p{n} = 1" for n in range(MOST_NAMES + 1)), "about at most 64 properties"),
        ("a = '\ufffd'", "without U+FFFD"),
    ],
)
def test_what_is_refused(expression: str, told: str) -> None:
    with pytest.raises(OptionError, match="option 'sql92': expected an expression of SQL92") as refused:
        parse_options({"path": "/x", "sql92": expression})
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_long_expressions_are_quick(tmp_path: Path) -> None:
    store = store_of(tmp_path, [{"a": "1"}, {"a": "2"}, {"b": "9" * 5_000}])
    assert numbers(store, " OR ".join(["a = 3"] * 1500 + ["a = 2"])) == [1]
    assert numbers(store, "(" * 60 + "a = 1" + ")" * 60) == [0]
    assert numbers(store, "b > 5") == []
    assert numbers(store, "/*" + "*" * 16_000 + "/ a = 1") == [0]
