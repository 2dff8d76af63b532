"""Runs the quick tests that reach a mutant, for one mutant after the other:

    python -m mutants.judge HOW HOME

Of each mutant a line of JSON comes from file descriptor RMQ_TASKS, and a line goes to RMQ_VERDICTS. HOME is an empty
directory, the only place where anything can be written from here on (support/sandbox.py), as a mutant may delete what
it should not; each has a memory of its own there. Several are judged at once where the one who asks does not wait.

A mutant in a function is put into the functions that are there (HOW is "called"): a fork, and nothing is loaded. One in
what an import does is loaded anew ("imported"), by a fork that has loaded all but the package and its tests.
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
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, NoReturn

import pytest
from support import sandbox

from mutants.changes import ROOT, changed

KILLED, TIME, LIVES, INVALID, AGAIN = "killed", "time", "lives", "invalid", "again"
TESTS = ("read", "store", "write", "tables", "face")
# What is loaded is not rewritten, which does not matter to plugins.
_LOADED = "ignore::pytest.PytestAssertRewriteWarning"
OPTIONS = ["-p", "no:cacheprovider", "-q", "--no-header", "--tb=no", "-W", _LOADED]
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
    tests: with the seconds that each takes, in the order in which they run.
    others: 0, or for how many seconds the other cases of these tests are asked instead, also the slow ones.
    """

    key: str
    path: str
    number: int
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
            self.failed = report.nodeid
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
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._path, self._tree = str(ROOT / task.path), _module(task)

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != self.name:
            return None
        loader = _Loader(name, self._path)
        loader.tree = self._tree
        places = [str(Path(self._path).parent)] if self._path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            name, self._path, loader=loader, submodule_search_locations=places
        )


# ---- a fork for each


class Fork:
    """A process of its own in which `act` judges, and says so: the verdict, and with which test.

    Attributes:
        ended: can be polled, and read from when it has ended.
    """

    def __init__(self, act: Callable[[], tuple[str, str]], home: Path, seconds: float) -> None:
        self._said, its = os.pipe()
        self._began = time.monotonic()
        self._end = self._began + seconds
        self._worked, self._look = -1, self._began + _IDLE
        self._is_late = False
        self._child = os.fork()
        if self._child == 0:
            _judge(act, home, its)
        os.close(its)
        self.ended = os.pidfd_open(self._child)

    def see(self) -> None:
        """End it where it takes too long, or waits forever."""
        now = time.monotonic()
        if now < self._look:
            return
        before, self._worked = self._worked, _work(self._child)
        self._look = now + _IDLE
        if now > self._end or before == self._worked:
            self._is_late = True
            os.killpg(self._child, signal.SIGKILL)

    def verdict(self) -> dict[str, Any]:
        """Once it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGKILL)  # what it has started
        _, status, usage = os.wait4(self._child, 0)
        os.set_blocking(self._said, False)
        try:
            said = os.read(self._said, 1 << 16)
        except BlockingIOError:
            said = b""
        os.close(self._said)
        os.close(self.ended)
        is_late = self._is_late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL))
        verdict, test = json.loads(said) if said else (TIME, "") if is_late else (KILLED, f"status {status}")
        seconds = round(time.monotonic() - self._began, 2)
        return {
            "verdict": verdict,
            "test": test,
            "seconds": seconds,
            "worked": round(usage.ru_utime + usage.ru_stime, 2),
        }


def _judge(act: Callable[[], tuple[str, str]], home: Path, its: int) -> NoReturn:
    os.setsid()
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(5.0)
    try:
        sandbox.enclose_again(home)
        (home / "scratch").mkdir()
        said = act()
    except BaseException as why:
        said = (KILLED, repr(why)[:200])
    with contextlib.suppress(BaseException):
        os.write(its, json.dumps(said).encode())
    os._exit(0)


def _work(session: int) -> int:
    """The ticks of processor time that a session's processes have had."""
    ticks = 0
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if int(fields[3]) == session else 0
    return ticks


def serve(judged: Callable[[Task], Fork]) -> None:
    """Judge what is asked, all at once, until nobody asks any more."""
    asks, out = int(os.environ["RMQ_TASKS"]), os.fdopen(int(os.environ["RMQ_VERDICTS"]), "w", buffering=1)
    poll, left, is_open = select.poll(), b"", True
    poll.register(asks, select.POLLIN)
    forks = dict[int, tuple[Task, Fork]]()
    while is_open or forks:
        for ready, _ in poll.poll(1000):
            if ready == asks:
                data = os.read(asks, 1 << 20)
                *lines, left = (left + data).split(b"\n")
                is_open = bool(data)
                if not is_open:
                    poll.unregister(asks)
                for line in lines:
                    task = Task(**json.loads(line))
                    fork = judged(task)
                    forks[fork.ended] = task, fork
                    poll.register(fork.ended, select.POLLIN)
            else:
                poll.unregister(ready)
                task, fork = forks.pop(ready)
                out.write(json.dumps({"key": task.key, **fork.verdict()}) + "\n")
        for _, fork in forks.values():
            fork.see()


def _patience(task: Task) -> float:
    """For how many seconds it may take."""
    return 30 + 20 * (task.others + sum(seconds for _, seconds in task.tests))


class Loop:
    """A plugin that judges instead of running the tests that were collected."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # conftest.py has frozen what is loaded, and what is frozen is not found
        functions = _Functions()
        gc.freeze()

        def judged(task: Task) -> Fork:
            def act() -> tuple[str, str]:
                try:
                    if not functions.change(task):
                        return AGAIN, ""
                except SyntaxError as why:
                    return INVALID, str(why)
                asked = _cases(task, items)
                return tested(session, [items[test] for test in asked], asked)

            return Fork(act, self._home, _patience(task))

        serve(judged)
        return True


def tested(session: pytest.Session, items: list[pytest.Item], took: dict[str, float]) -> tuple[str, str]:
    """Run tests until one notices."""
    session.config.pluginmanager.register(_Watch(took))
    for at, item in enumerate(items):
        try:
            following = items[at + 1] if at + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except _Died as died:
            return KILLED, str(died)
    return LIVES, ""


def _imported(task: Task, home: Path) -> Fork:
    """Judge one that is loaded anew."""

    def act() -> tuple[str, str]:
        try:
            finder = _Finder(task)
            compile(_module(task), task.path, "exec", dont_inherit=True)
        except SyntaxError as why:
            return INVALID, str(why)
        sys.meta_path.insert(0, finder)
        importlib.import_module(finder.name)  # what this raises kills
        watch = _Watch(dict(task.tests))
        code = pytest.main([*OPTIONS, *(test for test, _ in task.tests)], plugins=[watch])
        if watch.failed:
            return KILLED, watch.failed
        return (LIVES, "") if code == pytest.ExitCode.OK else (INVALID, f"pytest {code}")  # no test has judged

    return Fork(act, home, _patience(task))


def enclosed(home: Path) -> Path:
    """Let this process write to one directory alone; the place in it that each fork has for itself."""
    sandbox.enclose(home)
    own = home / "own"
    (own / "scratch").mkdir(parents=True)
    os.environ["TMPDIR"] = str(own / "scratch")
    os.environ["PYTEST_ADDOPTS"] = f"--basetemp={own / 'tests'}"
    return own


def main() -> None:
    how, home = sys.argv[1], enclosed(Path(sys.argv[2]))
    for module in json.loads(os.environ["RMQ_MODULES"]):
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    if how == "called":
        sys.exit(pytest.main([*OPTIONS, *(f"tests/{room}" for room in TESTS)], plugins=[Loop(home)]))
    serve(lambda task: _imported(task, home))


if __name__ == "__main__":
    main()
