"""`-p mutants.reach`: which test comes to which part of the package, and how long it takes, as JSON to the file
descriptor RMQ_REACHED. The tests run as in judge.py, with nothing to write to but the directory RMQ_HOME: those that
fail there cannot judge.

A part is what lies between two places where code may go elsewhere: each begins with a mark, which is put into the
modules as they are loaded. (To trace lines takes ten times as long.)
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from support import sandbox

from mutants.changes import ROOT

_PACKAGE = "rmqstore_spark"
_MARK = "__mutants_reached__"
# Of a test with many cases so many are asked, unless tests are named (run.py).
_CASES = int(os.environ.get("RMQ_CASES", "4"))
_BLOCKS = ("body", "orelse", "finalbody")


class Marked:
    """The marks of all modules, and those that were passed."""

    def __init__(self) -> None:
        self.lines: dict[str, list[int]] = {}
        self.passed: set[int] = set()
        self._paths: list[str] = []

    def module(self, path: str) -> ast.Module:
        """The module with its marks."""
        tree = ast.parse(Path(path).read_text())
        self._paths.append(str(Path(path).relative_to(ROOT)))
        self.lines[self._paths[-1]] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                self._mark_blocks(node)
        self.lines[self._paths[-1]].sort()
        return ast.fix_missing_locations(tree)

    def _mark_blocks(self, node: ast.AST) -> None:
        for name in _BLOCKS:
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                setattr(node, name, list(self._marked(block)))
        for case in [*getattr(node, "cases", ()), *getattr(node, "handlers", ())]:
            self._mark_blocks(case)

    def _marked(self, block: list[ast.stmt]) -> Iterator[ast.stmt]:
        is_new = True
        for at, statement in enumerate(block):
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if is_new and not (at == 0 and is_text):
                yield self._mark(statement.lineno)
                is_new = False
            yield statement
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef) and (
                hasattr(statement, "body") or hasattr(statement, "cases")
            ):
                self._mark_blocks(statement)
                is_new = True

    def _mark(self, line: int) -> ast.stmt:
        self.lines[self._paths[-1]].append(line)
        number = ast.Constant(len(self._paths) - 1 << 16 | line)
        return ast.Expr(ast.Call(ast.Name(_MARK, ast.Load()), [number], []), lineno=line, col_offset=0)

    def taken(self) -> list[tuple[str, int]]:
        """Path and line of those that were passed since the last call."""
        passed = self.passed.copy()  # other threads may go on
        self.passed.difference_update(passed)
        return [(self._paths[number >> 16], number & 0xFFFF) for number in passed]


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        return compile(_MARKED.module(self.path), self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name.partition(".")[0] != _PACKAGE:
            return None
        place = ROOT.joinpath(*name.split("."))
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if not file.exists():
            return None
        below = [str(place)] if place.is_dir() else None
        loader = _Loader(name, str(file))
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=below)


_MARKED = Marked()
_TOOK: dict[str, float] = {}
_BAD: set[str] = set()
_PASSED: dict[str, list[tuple[str, int]]] = {}


# Now, before a conftest.py loads the package.
setattr(builtins, _MARK, _MARKED.passed.add)
sys.meta_path.insert(0, _Finder())


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    home = Path(os.environ["RMQ_HOME"])
    sandbox.enclose(home)
    (home / "scratch").mkdir()
    os.environ["TMPDIR"] = str(home / "scratch")
    config.option.basetemp = str(home / "tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    items[:] = [item for some in cases.values() for item in some[:: -(-len(some) // _CASES)]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not _TOOK:
        _PASSED[""] = _MARKED.taken()  # by imports
    began = time.process_time()
    try:
        return (yield)
    finally:
        _TOOK[item.nodeid] = round(time.process_time() - began, 4)
        _PASSED[item.nodeid] = _MARKED.taken()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.outcome != "passed":
        _BAD.add(report.nodeid)


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return  # what the other tests reach is not known
    names = sorted(_TOOK, key=_TOOK.__getitem__)
    tests: dict[str, dict[int, list[int]]] = {
        path: {line: [] for line in lines} for path, lines in _MARKED.lines.items()
    }
    for number, name in enumerate(names):
        for path, line in () if name in _BAD else _PASSED[name]:
            tests[path][line].append(number)
    imported: dict[str, list[int]] = defaultdict(list)
    for path, line in _PASSED[""]:
        imported[path].append(line)
    modules = sorted({name.partition(".")[0] for name in sys.modules})
    known = {"took": [(name, _TOOK[name]) for name in names], "tests": tests, "imported": imported, "modules": modules}
    with os.fdopen(int(os.environ["RMQ_REACHED"]), "w") as out:
        json.dump(known, out)
