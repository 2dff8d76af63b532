"""Runs the quick tests that reach a mutant, for one mutant after the other:

    python -m mutants.judge TASKS HOME

TASKS is what run.py wrote; HOME an empty directory, the only place where anything can be written from here on
(support/sandbox.py), as a mutant may delete what it was not meant to. Of each mutant a line of JSON goes to file
descriptor RMQ_VERDICTS.

A mutant in a function is put into the functions that are there: a fork, and nothing is loaded. One in what an import
does is loaded anew, by a fork that has loaded all but the package and its tests.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import itertools
import json
import math
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest
from support import sandbox

from mutants.changes import ROOT, changed

KILLED, TIME, LIVES, INVALID, AGAIN = "killed", "time", "lives", "invalid", "again"
TESTS = ("read", "store", "write", "tables", "face")
# What is loaded is not rewritten, which does not matter to plugins.
_LOADED = "ignore::pytest.PytestAssertRewriteWarning"
_OPTIONS = ["-p", "no:cacheprovider", "-q", "--no-header", "--tb=no", "-W", _LOADED]
_MEMORY = 12 << 30
# Who does nothing for so many seconds waits forever.
_IDLE = 5
# Of the other cases of a test so many are asked.
_MOST_CASES = 40


class Task(NamedTuple):
    """Attributes:
    key: the mutant's name.
    path: its file.
    number: its number there; -1 for the module as it is.
    is_called: whether it can be put into functions.
    tests: with the seconds that each takes, in the order in which they run.
    others: 0, or for how many seconds the other cases of these tests are asked instead, also the slow ones.
    """

    key: str
    path: str
    number: int
    is_called: bool
    tests: list[tuple[str, float]]
    others: float


class _Died(Exception):
    """A test has noticed."""


class _Watch:
    """Ends with the first test that fails, and ends tests that take far longer than they should."""

    def __init__(self, took: dict[str, float]) -> None:
        self.took = took
        self.failed = ""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        _limit(self.took.get(item.nodeid, 1.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            raise _Died(report.nodeid)


def _limit(seconds: float) -> None:
    """Of processor time from now on, for one test."""
    most = math.ceil(time.process_time() + 2 + 5 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def _module(task: Task) -> ast.Module:
    return ast.parse((ROOT / task.path).read_text()) if task.number < 0 else changed(ROOT / task.path, task.number)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _named(codes: Iterator[CodeType]) -> dict[tuple[str, int, int], CodeType]:
    """With their names and lines; of those that have the same, such as two lambdas, by their order."""
    found: dict[tuple[str, int, int], CodeType] = {}
    for code in codes:
        at = 0
        while (code.co_qualname, code.co_firstlineno, at) in found:
            at += 1
        found[code.co_qualname, code.co_firstlineno, at] = code
    return found


class _Functions:
    """The functions of the package that are loaded, by file and code."""

    def __init__(self) -> None:
        self._by_file: dict[str, dict[CodeType, list[FunctionType]]] = defaultdict(lambda: defaultdict(list))
        for function in gc.get_objects():
            if type(function) is FunctionType:
                self._by_file[function.__code__.co_filename][function.__code__].append(function)

    def change(self, task: Task) -> bool:
        """Put the mutant into them; false where that cannot be done.

        Raises:
            SyntaxError: it is no Python.
        """
        path = str(ROOT / task.path)
        old = _named(_codes(compile((ROOT / task.path).read_text(), path, "exec", dont_inherit=True)))
        new = _named(_codes(compile(_module(task), path, "exec", dont_inherit=True)))
        if old.keys() != new.keys():
            return False
        loaded = self._by_file.get(path, {})
        count = 0
        for key, code in old.items():
            for function in loaded.get(code, ()):
                try:
                    function.__code__ = new[key]
                except ValueError:  # it shares other variables with the function around it
                    return False
                count += 1
        return count > 0


def _cases(task: Task, items: dict[str, pytest.Item]) -> dict[str, float]:
    """The cases that are asked, with the seconds that each may take. Of other ones a case of each test, another of
    each, and so on."""
    took = dict(task.tests)
    if not task.others:
        return {test: seconds for test, seconds in took.items() if test in items}
    of_test: dict[str, list[str]] = defaultdict(list)
    for test in items:
        of_test[test.partition("[")[0]].append(test)
    asked = {test.partition("[")[0]: seconds for test, seconds in took.items()}
    left, found = task.others, dict[str, float]()
    for row in itertools.zip_longest(*(of_test[test][:: -(-len(of_test[test]) // _MOST_CASES)] for test in asked)):
        for test, seconds in zip(row, asked.values(), strict=True):
            if test is not None and test not in took and seconds <= left:
                found[test] = seconds
                left -= seconds
    return found


class _Loader(importlib.machinery.SourceFileLoader):
    tree: ast.Module

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.tree, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module changed."""

    def __init__(self, task: Task) -> None:
        parts = Path(task.path).with_suffix("").parts
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._path, self._tree = str(ROOT / task.path), _module(task)

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != self._name:
            return None
        loader = _Loader(name, self._path)
        loader.tree = self._tree
        places = [str(Path(self._path).parent)] if self._path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            name, self._path, loader=loader, submodule_search_locations=places
        )


# ---- a fork for each


class _Verdicts:
    def __init__(self) -> None:
        self._out = os.fdopen(int(os.environ["RMQ_VERDICTS"]), "w", buffering=1)

    def say(self, task: Task, verdict: str, test: str, seconds: float) -> None:
        said = {"key": task.key, "verdict": verdict, "test": test, "seconds": round(seconds, 2)}
        self._out.write(json.dumps(said) + "\n")


def _in_fork(task: Task, home: Path, act: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """What `act` says of the mutant in a process of its own, and with which test."""
    mine, its = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit(5.0)
        try:
            said = act()
        except BaseException as why:
            said = (KILLED, repr(why)[:200])
        with contextlib.suppress(BaseException):
            os.write(its, json.dumps(said).encode())
        os._exit(0)
    os.close(its)
    verdict = _waited(child, mine, 30 + 20 * (task.others + sum(seconds for _, seconds in task.tests)))
    for left in home.iterdir():
        shutil.rmtree(left, ignore_errors=True)
    (home / "scratch").mkdir()
    return verdict


def _work(session: int) -> int:
    """The ticks of processor time that a session's processes have had."""
    ticks = 0
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if int(fields[3]) == session else 0
    return ticks


def _waited(child: int, mine: int, seconds: float) -> tuple[str, str]:
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    in_time, end = False, time.monotonic() + seconds
    worked = -1
    while not in_time and time.monotonic() < end:
        in_time = bool(poll.poll(1000 * _IDLE))
        before, worked = worked, _work(child)
        if before == worked:
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.set_blocking(mine, False)
    try:
        said = os.read(mine, 1 << 16)
    except BlockingIOError:
        said = b""
    os.close(mine)
    os.close(ended)
    if said:
        verdict, test = json.loads(said)
        return verdict, test
    is_late = not in_time or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL))
    return (TIME, "") if is_late else (KILLED, f"status {status}")


class Loop:
    """A plugin that judges instead of running the tests that were collected."""

    def __init__(self, tasks: list[Task], home: Path, verdicts: _Verdicts) -> None:
        self._tasks, self._home, self._verdicts = tasks, home, verdicts
        self.again: list[Task] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # conftest.py has frozen what is loaded, and what is frozen is not found
        functions = _Functions()
        gc.freeze()
        for task in self._tasks:
            began = time.monotonic()

            def act(task: Task = task) -> tuple[str, str]:
                try:
                    if not functions.change(task):
                        return AGAIN, ""
                except SyntaxError as why:
                    return INVALID, str(why)
                asked = _cases(task, items)
                return _tested(session, [items[test] for test in asked], asked)

            verdict, test = _in_fork(task, self._home, act)
            if verdict == AGAIN:
                self.again.append(task)
            else:
                self._verdicts.say(task, verdict, test, time.monotonic() - began)
        return True


def _tested(session: pytest.Session, items: list[pytest.Item], took: dict[str, float]) -> tuple[str, str]:
    session.config.pluginmanager.register(_Watch(took))
    for at, item in enumerate(items):
        try:
            following = items[at + 1] if at + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except _Died as died:
            return KILLED, str(died)
    return LIVES, ""


def _called(tasks: list[Task], home: Path, verdicts: _Verdicts) -> list[Task]:
    """Judge those that are put into functions, in a process that has loaded all tests; those that could not be."""
    if not tasks:
        return []
    mine, its = os.pipe()
    child = os.fork()
    if child == 0:
        loop = Loop(tasks, home, verdicts)
        code = pytest.main([*_OPTIONS, *(f"tests/{room}" for room in TESTS)], plugins=[loop])
        os.write(its, json.dumps([task.key for task in loop.again]).encode())
        os._exit(int(code))
    os.close(its)
    with os.fdopen(mine, "rb") as said:
        again = said.read()
    os.waitpid(child, 0)
    keys = set(json.loads(again or b"[]"))
    return [task for task in tasks if task.key in keys]


def _imported(task: Task, home: Path, verdicts: _Verdicts) -> None:
    """Judge one that is loaded anew."""

    def act() -> tuple[str, str]:
        try:
            sys.meta_path.insert(0, _Finder(task))
            compile(_module(task), task.path, "exec", dont_inherit=True)
        except SyntaxError as why:
            return INVALID, str(why)
        watch = _Watch(dict(task.tests))
        code = pytest.main([*_OPTIONS, *(test for test, _ in task.tests)], plugins=[watch])
        return (LIVES, "") if code == pytest.ExitCode.OK else (KILLED, f"pytest {code}")

    began = time.monotonic()
    verdict, test = _in_fork(task, home, act)
    verdicts.say(task, verdict, test, time.monotonic() - began)


def main() -> None:
    given, home = Path(sys.argv[1]), Path(sys.argv[2])
    asked = json.loads(given.read_text())
    tasks = [Task(**{**task, "tests": [tuple(test) for test in task["tests"]]}) for task in asked["tasks"]]
    sandbox.enclose(home)
    home = home / "own"
    (home / "scratch").mkdir(parents=True)
    os.environ["TMPDIR"] = str(home / "scratch")
    os.environ["PYTEST_ADDOPTS"] = f"--basetemp={home / 'tests'}"
    for module in asked["modules"]:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    verdicts = _Verdicts()
    again = _called([task for task in tasks if task.is_called], home, verdicts)
    for task in [*again, *(task for task in tasks if not task.is_called)]:
        _imported(task, home, verdicts)


if __name__ == "__main__":
    main()
