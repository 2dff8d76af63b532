"""Imports point down only, and docs/house.svg is the picture of them (tools/house.py)."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "house.py"

# What each room imports, and no other: the rule as it stands. A room that is to know more is a decision; write it here.
MAY_IMPORT = {
    "face": {"spark", "jobs", "tables", "read", "write", "query", "store", "words"},
    "spark": {"jobs", "tables", "read", "write", "query", "store", "words"},
    "jobs": {"tables", "read", "write", "query", "store", "words"},
    "tables": {"read", "query", "store", "words", "native_io"},
    "read": {"query", "store", "words", "native_io"},
    "write": {"query", "store", "words", "native_io"},
    "query": {"store", "words"},
    "store": {"words", "native_io"},
    "words": set(),
    "native_io": set(),
}
# Who may start a change of a store. The rest of the package cannot reach a call that writes.
WRITERS = {
    *("rmqstore_spark.api", "rmqstore_spark.writing"),
    "rmqstore_spark.spark.writer",
    *(f"rmqstore_spark.jobs.{name}" for name in ("copy", "rebuild_config", "set_offsets")),
    *(
        f"rmqstore_spark.jobs.copying.{name}"
        for name in ("chunks", "compaction", "config", "excluded", "lost", "report")
    ),
}
# Who knows Spark.
SPARKS = {
    "rmqstore_spark",
    *(f"rmqstore_spark.spark.{name}" for name in ("datasource", "functions", "hadoop", "pushdown", "reader")),
    *(
        f"rmqstore_spark.spark.{name}"
        for name in ("schema", "stream_reader", "stream_writer", "table_reader", "writer")
    ),
}

# The modules of which each knows one kind of store, queue or file, by the last part of their names.
KINDS = {
    *("batch_queue", "compaction", "dledger", "epochs", "light_queues", "static_topics", "tiered"),
    *("compaction_log", "tiered_log"),
    *("rocksdb_config", "rocksdb_ends", "rocksdb_popped", "rocksdb_queues", "rocksdb_units"),
}
# Who above store/ knows a kind, because it is about that kind (docs/design.md, Kinds of stores). For all others a store
# is a log and queues. What would be a new line here is a question that store/ should answer.
ABOUT_KINDS = {
    "jobs.copying.compaction": {"compaction", "compaction_log"},  # files that are copied as they are
    "jobs.copying.config": {"rocksdb_popped"},  # tells that popped messages of there are not copied
    "jobs.copying.tiered": {"tiered_log"},  # what a copy takes of a tier
    "jobs.rebuild_config": {"light_queues", "compaction"},  # what a broker's topics.json has of them
    "query.option_values": {"light_queues"},  # names in `subscribe` and `assign`
    "query.selection": {"light_queues"},  # names that a group has offsets of
    "read.follow.tier": {"tiered", "tiered_log"},  # a stream has a place in the log of each queue
    "read.plan.compacted": {"compaction", "compaction_log"},  # option `compacted`
    "read.plan.joined": {"tiered", "tiered_log"},  # option `tiered`
    "read.run.dispatched": {"light_queues"},  # column multiDispatch
    "read.run.logic_offsets": {"static_topics"},  # columns of logic queues
    "tables.check.config": {"epochs", "static_topics"},  # whether that file is as a broker writes it
    "tables.check.queue_logs": {
        "compaction",
        "compaction_log",
        "tiered",
        "tiered_log",
    },  # whether their units lead along their logs
    "tables.epochs": {"epochs"},
    "tables.logicqueues": {"static_topics"},
    "write.build.topics": {"light_queues"},  # topics that topics.json does not name
    "write.rebuild": {"light_queues"},  # queues that are made as a broker makes them
}


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module  # where its dataclasses look for themselves
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def graph(house: ModuleType) -> dict[str, set[str]]:
    """Who imports whom."""
    found: dict[str, set[str]] = house.read(ROOT)
    return found


def title(house: ModuleType, module: str) -> str:
    return str(house.ROOMS[house.room_of(module)].title)


def beyond_the_rule(house: ModuleType, graph: dict[str, set[str]]) -> list[str]:
    """The imports that MAY_IMPORT does not allow."""
    return [
        f"{module} ({here}) imports {other} ({there})"
        for module, others in sorted(graph.items())
        for other in sorted(others)
        if (here := title(house, module)) != (there := title(house, other)) and there not in MAY_IMPORT[here]
    ]


def test_picture_is_the_codes(house: ModuleType, graph: dict[str, set[str]]) -> None:
    assert (ROOT / house.PICTURE).read_text() == house.draw(graph), "call `make house`"


def test_imports_point_down(house: ModuleType, graph: dict[str, set[str]]) -> None:
    assert {"rmqstore_spark.write.fs.disk", "rmqstore_spark.read.plan.planner", "native_io._read"} <= set(graph)
    assert graph["native_io._read"] >= {"native_io._common", "native_io.select.h"}
    assert house.upward(graph) == []
    assert beyond_the_rule(house, graph) == []


def test_each_room_has_a_page_at_its_door(house: ModuleType) -> None:
    """The docstring of a room's package says what it answers, and names each of its modules."""
    for name, path in house.files(ROOT).items():
        room = path.parent / "__init__.py"
        if room.exists() and path != room and (ROOT / "rmqstore_spark") in room.parent.parents:
            page = ast.get_docstring(ast.parse(room.read_text())) or ""
            assert re.search(rf"\b{path.stem}\b", page), (
                f"{room.relative_to(ROOT)}: its docstring does not name {path.stem}: say what is in {name}"
            )


def test_few_reach_what_writes(graph: dict[str, set[str]]) -> None:
    inside = "rmqstore_spark.write"
    outside = {module for module in graph if module != inside and not module.startswith(f"{inside}.")}
    assert {m for m in outside if any(f"{other}.".startswith(f"{inside}.") for other in graph[m])} == WRITERS


def test_few_know_a_kind(graph: dict[str, set[str]]) -> None:
    of_kinds = {
        module.removeprefix("rmqstore_spark."): {
            other.rpartition(".")[2] for other in others if other.startswith("rmqstore_spark.store.")
        }
        & KINDS
        for module, others in graph.items()
        if not module.startswith(("rmqstore_spark.store", "native_io"))
    }
    assert {module: kinds for module, kinds in of_kinds.items() if kinds} == ABOUT_KINDS


def test_few_know_spark(house: ModuleType) -> None:
    assert {name for name, path in house.files(ROOT).items() if names_spark(house, name, path)} == SPARKS


def names_spark(house: ModuleType, name: str, path: Path) -> bool:
    return any(imported.partition(".")[0] == "pyspark" for imported in house.imported(name, path))


# ---- the test of the test: a house in which an import points up


@pytest.mark.parametrize(
    ("line", "module", "seen"),
    [
        ("from rmqstore_spark.read.planner import plan", "store/files.py", "read.planner"),
        ("from rmqstore_spark.read.planner import plan", "write/disk.py", "read.planner"),
        ("import rmqstore_spark.write.disk", "store/files.py", "write.disk"),
        ("from rmqstore_spark.write import disk", "store/files.py", "write.disk"),
        ("from ..write.disk import Tree", "store/files.py", "write.disk"),
        ("from . import disk", "write/commit.py", "write.disk"),
        ("from ..store import files", "write/disk.py", "store.files"),
        ("def f():\n    from rmqstore_spark.read import planner", "store/files.py", "read.planner"),
        ("from rmqstore_spark.store.files import x", "errors.py", "store.files"),
        ("from rmqstore_spark.errors import x", "store/files.py", "errors"),
        ("from rmqstore_spark.store.files import x", "store/format/units.py", "store.files"),
        ("from rmqstore_spark.store.format import units", "store/files.py", "store.format.units"),
    ],
)
def test_upward_import_is_found(house: ModuleType, tmp_path: Path, line: str, module: str, seen: str) -> None:
    package = tmp_path / "rmqstore_spark"
    for name in ("read", "write", "store", "store/format"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
    paths = "__init__.py errors.py read/planner.py store/files.py store/format/units.py write/commit.py write/disk.py"
    for path in paths.split():
        (package / path).touch()
    assert house.upward(house.read(tmp_path)) == []
    (package / module).write_text(line + "\n")

    graph = house.read(tmp_path)
    name = "rmqstore_spark." + module.removesuffix(".py").replace("/", ".")
    assert {other for other in graph[name] if other.count(".") > 1 or other.endswith("errors")} == {
        f"rmqstore_spark.{seen}"
    }
    # Of rooms beside each other the test's own rule decides: read is above write in the picture. Of the rooms inside a
    # room house.upward() alone knows.
    is_allowed = (module, seen) in {
        ("store/files.py", "errors"),
        ("store/files.py", "store.format.units"),
        ("write/disk.py", "store.files"),
        ("write/commit.py", "write.disk"),
    }
    assert (house.upward(graph) == []) == is_allowed
    assert (beyond_the_rule(house, graph) == []) == (is_allowed or module == "store/format/units.py")


def test_circle_is_found(house: ModuleType) -> None:
    first, second = "rmqstore_spark.read.plan.access_path", "rmqstore_spark.read.plan.planner"
    assert house.upward({first: {second}, second: {first}}) == [f"{first}, {second}: import each other in a circle"]


def test_module_without_a_room_is_an_error(house: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"rmqstore_spark\.cellar: in no room; name it in ROOMS"):
        house.room_of("rmqstore_spark.cellar")
