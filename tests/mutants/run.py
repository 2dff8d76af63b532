"""Draws mutants of the package, has the quick tests judge them, and says which live:

    PYTHONPATH=.:tests python -m mutants.run --seed 1 --count 2000 --minutes 60

What was judged is kept in build/mutants/: the same command goes on where the last one stopped; `--living` asks again
about those that lived, after tests were added: `--living --reach tests/read/test_new.py`; or `--living --others` with
the other cases of the same tests, also the slow ones, of which the first step has a few. After a change of the package
`--reach` finds out anew which tests reach what, and all are judged again.

Those of the living that need no test stand in excused.txt, by the text of their line, with the reason.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import functools
import hashlib
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mutants.changes import ROOMS, ROOT, Mutant, everywhere
from mutants.excuses import excused, outlived
from mutants.judge import AGAIN, INVALID, KILLED, LIVES, TESTS, TIME

_PLACE = ROOT / "build" / "mutants"
_REACHED = _PLACE / "reached.json"
_KNOWN = _PLACE / "noticed.jsonl"
# Which tests are asked: the quick ones, and of each other one a case.
_CHOICE = "(not slow or sample) and not spark and not interop and not long"
# No test reaches it.
UNREACHED = "not reached"
# So many are drawn up at once, those in functions and those that are imported.
_AT_ONCE = 100
# What a test takes besides, in seconds.
_EACH = 0.02
_CONTROLS = 5
# As in CI: the same draws every time.
ENVIRONMENT = {
    "CI": "1",
    "RMQ_TEST_SEED": "1",
    "RMQ_FAILED_DRAWS": os.devnull,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    "PYTHONDONTWRITEBYTECODE": "1",
}


def _lines_from(command: list[str], variable: str) -> Iterator[str]:
    """What a program writes to the file descriptor that `variable` names; its own output goes to a file."""
    mine, its = os.pipe()
    environment = {**os.environ, **ENVIRONMENT, variable: str(its)}
    with open(_PLACE / "output.txt", "ab") as output, tempfile.TemporaryDirectory() as home:
        program = subprocess.Popen(
            [sys.executable, *command],
            env={**environment, "RMQ_HOME": home},
            pass_fds=[its],
            stdout=output,
            stderr=output,
            cwd=ROOT,
        )
        os.close(its)
        try:
            with os.fdopen(mine) as said:
                yield from said
        finally:  # it ends when nobody reads on
            program.wait()


def reach(tests: Sequence[str]) -> None:
    """Find out what tests reach, and add it to what is known of others; without any: of all, anew."""
    command = ["-m", "pytest", "-p", "mutants.reach", "-p", "no:cacheprovider", "-q", "-m", _CHOICE]
    if tests:
        os.environ["RMQ_CASES"] = "1000"
    text = "".join(_lines_from([*command, *(tests or (f"tests/{room}" for room in TESTS))], "RMQ_REACHED"))
    if not text:
        raise SystemExit(f"no test ran; see {_PLACE / 'output.txt'}")
    found = json.loads(text)
    if tests and _REACHED.exists():
        found = _joined(json.loads(_REACHED.read_text()), found)
    _REACHED.write_text(json.dumps(found))


def _joined(known: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Tests are numbers, in the order of "took"."""
    numbers = {name: number for number, (name, _) in enumerate(known["took"])}
    for name, seconds in new["took"]:
        if name not in numbers:
            numbers[name] = len(known["took"])
            known["took"].append((name, seconds))
    names = [name for name, _ in new["took"]]
    known["modules"] = sorted({*known["modules"], *new["modules"]})
    for path, by_line in new["tests"].items():
        known["imported"].setdefault(path, new["imported"].get(path, []))
        of_file = known["tests"].setdefault(path, {})
        for line, tests in by_line.items():
            of_file[line] = sorted({*of_file.get(line, ()), *(numbers[names[test]] for test in tests)})
    return known


def _is_about(test: str, module: str) -> bool:
    """Does a test stand in a file that has a module's name, or a longer or shorter one?"""
    ours, its = Path(module).stem, Path(test.partition("::")[0]).stem.removeprefix("test_")
    return its.startswith(ours) or ours.startswith(its)


class _Known:
    """How often tests have noticed a mutant, of all that they were asked about, kept in a file."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()
        self._noticed: Counter[str] = Counter()
        if _KNOWN.exists():
            for line in _KNOWN.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # a run was ended while it wrote this line
                    self._count(**json.loads(line))

    def _count(self, path: str, asked: Sequence[str], killer: str) -> None:
        self._asked.update(asked)
        self._asked.update(f"{path} {test}" for test in asked)
        if killer:
            self._noticed.update((killer, f"{path} {killer}"))

    def add(self, path: str, asked: Sequence[str], killer: str) -> None:
        self._count(path, asked, killer)
        with _KNOWN.open("a") as out:
            out.write(json.dumps({"path": path, "asked": asked, "killer": killer}) + "\n")

    def of_module(self, path: str) -> Callable[[str], float]:
        """How likely a test notices a mutant of a module: as it did with others of it, or else of all modules; with
        none, more likely in a file that has the module's name."""

        def likely(test: str) -> float:
            here = f"{path} {test}"
            every = (self._noticed[test] + (2 if _is_about(test, path) else 0.3)) / (self._asked[test] + 5)
            return (self._noticed[here] + 2 * every) / (self._asked[here] + 2)

        return likely


class Reached:
    """Which tests reach a mutant, and which of them are asked."""

    def __init__(self, seconds: float, others: bool) -> None:
        self.others = seconds if others else 0.0
        found = json.loads(_REACHED.read_text())
        ours = {path.stem for place in ("", "tests", "tools") for path in (ROOT / place).iterdir()}
        self.modules: list[str] = [name for name in found["modules"] if name not in ours]
        self._took: list[tuple[str, float]] = [(name, took) for name, took in found["took"]]
        self._tests: dict[str, dict[int, list[int]]] = {
            path: {int(line): tests for line, tests in by_line.items()} for path, by_line in found["tests"].items()
        }
        self._imported = {path: set(lines) for path, lines in found["imported"].items()}
        self._seconds = seconds
        self._known = _Known()

    def noticed(self, path: str, asked: Sequence[str], killer: str) -> None:
        """Of a module's mutant these tests were asked, up to the one that noticed; "": none did."""
        self._known.add(path, asked, killer)

    def _part(self, mutant: Mutant) -> int:
        """The line of the last mark before it; 0: none."""
        marks = sorted(self._tests.get(mutant.path, ()))
        at = bisect.bisect_right(marks, mutant.lines[0])
        return marks[at - 1] if at else 0

    def is_called(self, mutant: Mutant) -> bool:
        """Whether it is in a function, and in a part that no import calls."""
        return mutant.is_called and self._part(mutant) not in self._imported.get(mutant.path, ())

    def tests(self, mutant: Mutant) -> list[tuple[str, float]]:
        """As many as take so many seconds, those first that are likely to notice, for the time that they take. Tests of
        one file ask much the same, and even more so the cases of one test: so each next one counts less."""
        by_line = self._tests.get(mutant.path, {})
        parts = [self._part(mutant)] if self.is_called(mutant) else list(by_line)
        numbers = {test for part in parts for test in by_line.get(part, ())}
        of_module = self._known.of_module(mutant.path)
        worth = [(of_module(test) / (took + _EACH), test, took) for test, took in (self._took[n] for n in numbers)]
        before: Counter[str] = Counter()
        asked: list[tuple[float, str, float]] = []
        for value, test, took in sorted(worth, reverse=True):
            file, name = test.partition("::")[0], test.partition("[")[0]
            asked.append((value * 0.9 ** before[file] * 0.5 ** before[name], test, took))
            before.update((file, name))
        left = math.inf if self.others else self._seconds
        chosen: list[tuple[str, float]] = []
        for _, test, took in sorted(asked, reverse=True):
            if took <= left or not chosen:
                chosen.append((test, took))
                left -= took
        return chosen


def _key(mutant: Mutant) -> str:
    return f"{mutant.path} {mutant.number}"


# A task as it is handed over, made when it is its turn: by then more is known of the tests.
_Drawn = Callable[[], dict[str, Any]]


class _Judge:
    """A process of judge.py, which has loaded what it needs; started when it is asked for the first time."""

    def __init__(self, how: str, reached: Reached) -> None:
        self._how, self._reached = how, reached
        self._program: subprocess.Popen[bytes] | None = None

    def _start(self, home: str) -> None:
        asks, self._tasks = os.pipe()
        self._verdicts, out = os.pipe()
        names = {"RMQ_TASKS": str(asks), "RMQ_VERDICTS": str(out), "RMQ_MODULES": json.dumps(self._reached.modules)}
        with open(_PLACE / "output.txt", "ab") as output:
            self._program = subprocess.Popen(
                [sys.executable, "-m", "mutants.judge", self._how, home],
                env={**os.environ, **ENVIRONMENT, **names},
                pass_fds=[asks, out],
                stdout=output,
                stderr=output,
                cwd=ROOT,
            )
        os.close(asks)
        os.close(out)
        self._said = os.fdopen(self._verdicts)

    def of(
        self, tasks: Iterable[Callable[[], dict[str, Any]]], jobs: int
    ) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """What it says of each, and which tests were asked; so many are judged at once."""
        if self._program is None:
            self._home = tempfile.TemporaryDirectory()
            self._start(self._home.name)
        left, asked = iter(tasks), dict[str, list[str]]()
        while True:
            for task in itertools.islice(left, jobs - len(asked)):
                made = task()
                asked[made["key"]] = [test for test, _ in made["tests"]]
                os.write(self._tasks, json.dumps(made).encode() + b"\n")
            if not asked:
                return
            line = self._said.readline()
            if not line:
                raise SystemExit(f"the judge has ended; see {_PLACE / 'output.txt'}")
            found = json.loads(line)
            yield found, asked.pop(found["key"])

    def end(self) -> None:
        if self._program is not None:
            os.close(self._tasks)
            self._program.wait()
            self._said.close()
            self._home.cleanup()


class _Judges:
    def __init__(self, reached: Reached, jobs: int) -> None:
        self._reached, self._jobs = reached, jobs
        self._called, self._imported = _Judge("called", reached), _Judge("imported", reached)
        self._has_controls = False

    def __enter__(self) -> _Judges:
        return self

    def __exit__(self, *_: object) -> None:
        for judge in (self._called, self._imported):
            judge.end()

    def _task(self, mutant: Mutant, is_control: bool = False) -> dict[str, Any]:
        return {
            "key": f"control {_key(mutant)}" if is_control else _key(mutant),
            "path": mutant.path,
            "number": -1 if is_control else mutant.number,
            "tests": self._reached.tests(mutant),
            "others": self._reached.others,
        }

    def judged(self, mutants: list[Mutant]) -> Iterator[dict[str, Any]]:
        """What is said of each."""
        by_key = {_key(mutant): mutant for mutant in mutants}
        called, imported = list[Mutant](), list[Mutant]()
        for mutant in mutants:
            if not self._reached.tests(mutant):
                yield {"key": _key(mutant), "verdict": UNREACHED, "test": "", "seconds": 0, "worked": 0}
            else:
                (called if self._reached.is_called(mutant) else imported).append(mutant)
        tasks = [functools.partial(self._task, mutant) for mutant in called]
        if not self._has_controls:
            tasks = [functools.partial(self._task, mutant, True) for mutant in called[:_CONTROLS]] + tasks
            self._has_controls = True
        for judge in (self._called, self._imported):
            if judge is self._imported:
                tasks = [functools.partial(self._task, mutant) for mutant in imported]
            for found, asked in judge.of(tasks, self._jobs) if tasks else ():
                if found["verdict"] == AGAIN:
                    imported.append(by_key[found["key"]])
                    continue
                if found["key"] in by_key and found["verdict"] in (KILLED, LIVES):
                    mutant, killer = by_key[found["key"]], found["test"]
                    if not killer or killer in asked:
                        until = asked[: asked.index(killer) + 1] if killer else asked
                        self._reached.noticed(mutant.path, until, killer)
                yield found


class Results:
    """What is known of a sample, kept in a file."""

    def __init__(self, seed: str, sources: str) -> None:
        self._path = _PLACE / f"seed-{seed}-{sources}.jsonl"
        self.by_key: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # a run was ended while it wrote this line
                    self._take(json.loads(line))

    def _take(self, found: dict[str, Any]) -> None:
        self.by_key[found["key"]] = found

    def add(self, found: dict[str, Any]) -> None:
        self._take(found)
        with self._path.open("a") as out:
            out.write(json.dumps(found) + "\n")

    def verdict(self, mutant: Mutant) -> str:
        return str(self.by_key.get(_key(mutant), {}).get("verdict", ""))


def _sources() -> str:
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((ROOT / "rmqstore_spark" / room).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def summary(sample: list[Mutant], results: Results) -> str:
    """How many were killed, by room, also without those of the living that need no test; and who lives."""
    judged = [mutant for mutant in sample if results.verdict(mutant) not in ("", INVALID)]
    alive = [mutant for mutant in judged if results.verdict(mutant) in (LIVES, UNREACHED)]
    reasons = excused(alive)
    lines = []
    for room in (*ROOMS, ""):
        here = [mutant for mutant in judged if f"/{room}/" in mutant.path or not room]
        verdicts = Counter(reasons.get(mutant, results.verdict(mutant)) for mutant in here)
        killed = verdicts[KILLED] + verdicts[TIME]
        parts = [100 * killed / max(1, count) for count in (len(here), sum(mutant not in reasons for mutant in here))]
        told = ", ".join(f"{name} {number}" for name, number in verdicts.most_common())
        lines.append(
            f"{room or 'all':7} {killed} of {len(here)} killed, {parts[0]:.1f} %, without the excused ones "
            f"{parts[1]:.1f} % ({told})"
        )
    lines += [f"{results.verdict(mutant):11} {mutant.text()}" for mutant in sorted(set(alive) - reasons.keys())]
    controls = [found for key, found in results.by_key.items() if key.startswith("control ")]
    bad = [found for found in controls if found["verdict"] != LIVES]
    lines.append(f"controls, which change nothing: {len(controls)}, of which {len(bad)} were killed")
    lines += [f"{found['key']}: {found['test']}" for found in bad]
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants.run", description=__doc__)
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=4, help="of tests for one mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="so many at once")
    parser.add_argument("--only", default="", help="how the path of a module begins, below rmqstore_spark/")
    parser.add_argument("--living", action="store_true", help="ask about those that lived once more")
    parser.add_argument("--others", action="store_true", help="ask the other cases of the same tests, also slow ones")
    parser.add_argument("--reach", nargs="*", help="find out anew which tests reach what; or of some new tests alone")
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    _PLACE.mkdir(parents=True, exist_ok=True)
    if given.reach is not None or not _REACHED.exists():
        reach(given.reach or ())
    reached, results = Reached(given.seconds, given.others), Results(given.seed, _sources())
    every = [mutant for mutant in everywhere() if mutant.path.startswith(f"rmqstore_spark/{given.only}")]
    sample = random.Random(given.seed).sample(every, min(given.count, len(every)))
    wanted = ("", LIVES, UNREACHED) if given.living else ("",)
    known = excused(sample) if given.living else {}
    left = [mutant for mutant in sample if results.verdict(mutant) in wanted and mutant not in known]
    print(f"seed {given.seed}: {len(sample)} of {len(every)} mutants, {len(left)} to be judged", flush=True)
    end = time.monotonic() + 60 * given.minutes
    with _Judges(reached, given.jobs) as judges:
        while left and time.monotonic() < end:
            some, left = left[:_AT_ONCE], left[_AT_ONCE:]
            for found in judges.judged(some):
                results.add(found)
                if time.monotonic() > end:
                    break
    print(summary(sample, results))
    print(*outlived(everywhere(), "rmqstore_spark/"), sep="\n")


if __name__ == "__main__":
    main()
