"""The table of options says everything once; what is spelled beside it, for type checkers, is held to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

import pytest
from click.testing import CliRunner

from rmqstore_spark import OptionError, Store
from rmqstore_spark.cli.commands import Rmqstore
from rmqstore_spark.query import option_texts as python
from rmqstore_spark.query import option_types as types
from rmqstore_spark.query.copy_options import parse_copy_options
from rmqstore_spark.query.option_types import Type
from rmqstore_spark.query.options import (
    CALL_OPTIONS,
    COPY_OPTIONS,
    OPTIONS,
    REBUILD_OPTIONS,
    STORE_OPTIONS,
    STREAM_OPTIONS,
    WRITE_CALL_OPTIONS,
    WRITE_OPTIONS,
    Option,
    Use,
    going_with,
    parse_options,
    parse_write_options,
    refused_for,
)
from rmqstore_spark.query.stream_options import parse_stream_options
from rmqstore_spark.store.io.storage import STORAGE_OPTIONS
from rmqstore_spark.tables.registry import OF_ALL_TABLES, TABLES, table

SAMPLE = Path(__file__).parents[2] / "sample_store"

# A text of each type that no option has by default.
TEXTS: dict[Type, str] = {
    types.NAME: "topics",
    types.COUNT: "3",
    types.VERSION: "3",
    types.SIZE: "17m",
    types.PARTITION_SIZE: "17m",
    types.HOST: "1.2.3.4:5",
    types.DIRECTORY: "/store",
    types.DIRECTORIES: '["/store"]',
    types.COMMITLOGS: "/a,/b",
    types.OTHER_STORE: "/other",
    types.BODY: "a",
    types.SQL92: "a = 1",
    types.PROPERTIES: '{"A": "a"}',
    types.BY: "topic,hour",
    types.COLUMNS: "topic,keys",
    types.TOPICS: "A",
    types.PATTERN: "A.*",
    types.QUEUES: '{"A": [0]}',
    types.TAGS: "A || B",
    types.WORD: "a",
    types.OFFSET_ID: "0" * 32,
    types.INSTANT: "17",
    types.STARTS: '{"A": {"0": 17}}',
    types.ENDS: '{"A": {"0": 17}}',
    types.STREAM_START: "earliest",
    types.GROUP_STARTS: "a=earliest",
    types.TEXTS: "a",
    types.PAIRS: "a=b",
}


def text_of(option: Option) -> str:
    """A text that says something else than the default."""
    if option.type is types.FLAG:
        return {"true": "false", "false": "true"}[option.default]
    if option.type.words:
        return next(word for word in option.type.words if word != option.default)
    return TEXTS.get(option.type, "1000")


# ---- for type checkers


def own(spelled: type) -> dict[str, object]:
    """What a class for type checkers says, without the options of remote stores."""
    return {name: kind for name, kind in get_type_hints(spelled).items() if name not in STORAGE_OPTIONS}


def said(table: dict[str, Option]) -> dict[str, object]:
    return {name: option.type.annotation for name, option in table.items()}


def test_type_checkers_know_all_options() -> None:
    assert own(python.MessageOptions) == said({n: o for n, o in CALL_OPTIONS.items() if n != "columns"})
    assert own(python.StoreOptions) == said(STORE_OPTIONS)
    assert own(python.SelectOptions) == said(going_with(Use.SELECT))
    assert own(python.WriteOptions) == said(WRITE_CALL_OPTIONS)
    assert own(python.RebuildOptions) == said(REBUILD_OPTIONS)
    assert own(python.CopyOptions) == said({n: o for n, o in CALL_OPTIONS.items() if n != "columns"} | COPY_OPTIONS)
    for spelled in (python.MessageOptions, python.StoreOptions):
        assert set(get_type_hints(spelled)) >= set(STORAGE_OPTIONS)


@pytest.mark.parametrize("name", TABLES)
def test_type_checkers_know_the_options_of_tables(name: str) -> None:
    """What goes with all tables is said of the option, and not by each table again."""
    found = table(name)
    assert not found.options & OF_ALL_TABLES
    assert found.options | going_with(Use.TABLE | Use.CALL).keys() <= {*own(python.TableOptions), "columns"}


# ---- what is said is understood


@pytest.mark.parametrize("name", OPTIONS)
def test_a_read_option_says_something(name: str) -> None:
    """One that is in the table, but that nobody understands, would be taken and forgotten."""
    path = {} if name in ("path", "paths") else {"path": "/x"}
    found = parse_options({**path, name: text_of(OPTIONS[name])})
    assert found.given == {*path, name}
    assert replace(found, given=frozenset()) != replace(parse_options({"path": "/x"}), given=frozenset())


@pytest.mark.parametrize("name", WRITE_OPTIONS)
def test_a_write_option_says_something(name: str) -> None:
    both = {"txnAppId": "a", "txnVersion": "1"} if name.startswith("txn") else {}
    given = {"path": "/x", **both}
    assert parse_write_options({**given, name: text_of(WRITE_OPTIONS[name])}) != parse_write_options(given)


@pytest.mark.parametrize("name", COPY_OPTIONS)
def test_an_option_of_copies_says_something(name: str) -> None:
    assert parse_copy_options({name: text_of(COPY_OPTIONS[name])}) != parse_copy_options({})


@pytest.mark.parametrize("name", STREAM_OPTIONS)
def test_an_option_of_streams_says_something(name: str) -> None:
    given = {"path": "/x"}
    assert parse_stream_options({**given, name: text_of(STREAM_OPTIONS[name])}) != parse_stream_options(given)


# ---- where it is of use


@pytest.mark.parametrize("name", OPTIONS)
def test_streams_take_it_or_say_why_not(name: str) -> None:
    given = {"path": "/x", name: text_of(OPTIONS[name])}
    if name in ("path", "paths", "table", "startingOffsets"):
        return  # read as something else
    if OPTIONS[name].goes_with(Use.STREAMS):
        assert name in parse_stream_options(given).read.given
    else:
        why = refused_for(Use.STREAMS)[name]
        with pytest.raises(OptionError, match=f"^option '{name}' is not for streams: {why}; remove it$"):
            parse_stream_options(given)


@pytest.mark.parametrize("name", CALL_OPTIONS)
def test_copies_take_it_or_say_why_not(name: str, tmp_path: Path) -> None:
    why = refused_for(Use.COPIES).get(name)
    assert (why is None) == OPTIONS[name].goes_with(Use.COPIES)
    if why is not None:
        with pytest.raises(OptionError, match=f"^option '{name}' is not for copies: {why}; remove it$"):
            Store(SAMPLE).copy(tmp_path / "new", **{name: text_of(OPTIONS[name])})  # type: ignore[arg-type]


def test_a_use_that_is_refused_is_none() -> None:
    trust = OPTIONS["trust"]
    assert trust.goes_with(Use.CALL | Use.STORE)
    assert not trust.goes_with(Use.STREAMS)
    assert not trust.goes_with(Use.CALL | Use.COPIES)
    assert not trust.goes_with(Use.TABLE)


# ---- at a terminal


def test_help_says_what_a_value_is() -> None:
    told = " ".join(CliRunner().invoke(Rmqstore(), ["messages", "--help"]).output.split())
    for expected in ("--mode [FAILFAST|DROPMALFORMED|PERMISSIVE]", "--from TIME", "--assign JSON", "--topic TOPICS"):
        assert expected in told
    assert "--no-deduplicate" in told


def test_words_are_completed() -> None:
    environment = {"_RMQSTORE_COMPLETE": "bash_complete", "COMP_WORDS": "rmqstore messages --mode D", "COMP_CWORD": "3"}
    told = CliRunner().invoke(Rmqstore(), env=environment, prog_name="rmqstore").output
    assert told == "plain,DROPMALFORMED\n"
