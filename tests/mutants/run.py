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
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mutants.changes import ROOMS, ROOT, Mutant, everywhere
from mutants.judge import INVALID, KILLED, LIVES, TESTS, TIME

_PLACE = ROOT / "build" / "mutants"
_REACHED = _PLACE / "reached.json"
_EXCUSED = Path(__file__).with_name("excused.txt")
# Which tests are asked: the quick ones, and of each other one a case.
_CHOICE = "(not slow or sample) and not spark and not interop and not long"
# No test reaches it.
UNREACHED = "not reached"
# So many are handed to a process; then the next one begins with what has killed so far.
_AT_ONCE = 300
_CONTROLS = 5
# As in CI: the same draws every time.
_ENVIRONMENT = {
    "CI": "1",
    "RMQ_TEST_SEED": "1",
    "RMQ_FAILED_DRAWS": os.devnull,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    "PYTHONDONTWRITEBYTECODE": "1",
}


def _lines_from(command: list[str], variable: str) -> Iterator[str]:
    """What a program writes to the file descriptor that `variable` names; its own output goes to a file."""
    mine, its = os.pipe()
    environment = {**os.environ, **_ENVIRONMENT, variable: str(its)}
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
        self._killers: dict[str, Counter[str]] = defaultdict(Counter)

    def killed(self, path: str, test: str) -> None:
        """A test has killed a mutant of this module."""
        self._killers[path][test] += 1

    def _part(self, mutant: Mutant) -> int:
        """The line of the last mark before it; 0: none."""
        marks = sorted(self._tests.get(mutant.path, ()))
        at = bisect.bisect_right(marks, mutant.lines[0])
        return marks[at - 1] if at else 0

    def is_called(self, mutant: Mutant) -> bool:
        """Whether it is in a function, and in a part that no import calls."""
        return mutant.is_called and self._part(mutant) not in self._imported.get(mutant.path, ())

    def tests(self, mutant: Mutant) -> list[tuple[str, float]]:
        """As many as take so many seconds: first those that have killed others of this module, then those in files that
        have its name, then the quickest of each other file, the second of each, and so on: tests of one file ask much
        the same."""
        by_line = self._tests.get(mutant.path, {})
        parts = [self._part(mutant)] if self.is_called(mutant) else list(by_line)
        numbers = {test for part in parts for test in by_line.get(part, ())}
        killers = self._killers[mutant.path]
        places: Counter[str] = Counter()
        asked: list[tuple[tuple[int, bool, int, float], str, float]] = []
        for test, took in sorted((self._took[number] for number in numbers), key=lambda test: test[1]):
            file = test.partition("::")[0]
            is_about = _is_about(test, mutant.path)
            asked.append(((-min(killers[test], 3), not is_about, 0 if is_about else places[file], took), test, took))
            places[file] += 1
        left = math.inf if self.others else self._seconds
        chosen: list[tuple[str, float]] = []
        for _, test, took in sorted(asked):
            if took <= left or not chosen:
                chosen.append((test, took))
                left -= took
        return chosen


def excuses() -> dict[tuple[str, str, str], str]:
    """What excused.txt says: by path, line, and what becomes of what, the reason."""
    blocks = [block.splitlines() for block in _EXCUSED.read_text().split("\n\n")[1:]]
    return {(path, text, what): why for path, text, what, why in blocks}


def excused(mutants: Sequence[Mutant]) -> dict[Mutant, str]:
    """The mutants that need no test, each with the first word of the reason."""
    reasons = excuses()
    found = ((mutant, reasons.get(_said(mutant))) for mutant in mutants)
    return {mutant: reason.partition(":")[0] for mutant, reason in found if reason is not None}


def _said(mutant: Mutant) -> tuple[str, str, str]:
    """How excused.txt names it."""
    return mutant.path, _lines(mutant.path)[mutant.line - 1].strip(), mutant.what


@functools.cache
def _lines(path: str) -> list[str]:
    return (ROOT / path).read_text().splitlines()


def _key(mutant: Mutant) -> str:
    return f"{mutant.path} {mutant.number}"


def _judged(mutants: list[Mutant], reached: Reached) -> Iterator[dict[str, Any]]:
    """What the judge says of each; of those that no test reaches where the sample has them, so that a part of it has as
    many of them as the whole."""
    tasks, unreached = [], []
    for number, mutant in enumerate(mutants):
        tests = reached.tests(mutant)
        if not tests:
            unreached.append((number, {"key": _key(mutant), "verdict": UNREACHED, "test": "", "seconds": 0}))
            continue
        tasks.append(
            {
                "key": _key(mutant),
                "path": mutant.path,
                "number": mutant.number,
                "is_called": reached.is_called(mutant),
                "tests": tests,
                "others": reached.others,
            }
        )
    controls = [{**task, "key": f"control {task['key']}", "number": -1} for task in tasks[:_CONTROLS]]
    with tempfile.TemporaryDirectory() as home, tempfile.NamedTemporaryFile("w", suffix=".json") as given:
        json.dump({"tasks": controls + tasks, "modules": reached.modules}, given)
        given.flush()
        count = -len(controls)
        for line in _lines_from(["-m", "mutants.judge", given.name, home], "RMQ_VERDICTS"):
            yield json.loads(line)
            count += 1
            while unreached and unreached[0][0] <= count:
                yield unreached.pop(0)[1]
                count += 1
    yield from (found for _, found in unreached)


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
    for key, found in results.by_key.items():
        if found["verdict"] == KILLED:
            reached.killed(key.partition(" ")[0], found["test"])
    sample = random.Random(given.seed).sample(every, min(given.count, len(every)))
    wanted = ("", LIVES, UNREACHED) if given.living else ("",)
    known = excused(sample) if given.living else {}
    left = [mutant for mutant in sample if results.verdict(mutant) in wanted and mutant not in known]
    print(f"seed {given.seed}: {len(sample)} of {len(every)} mutants, {len(left)} to be judged", flush=True)
    end = time.monotonic() + 60 * given.minutes
    while left and time.monotonic() < end:
        some, left = left[:_AT_ONCE], left[_AT_ONCE:]
        for found in _judged(some, reached):
            results.add(found)
            if found["verdict"] == KILLED:
                reached.killed(found["key"].partition(" ")[0], found["test"])
            if time.monotonic() > end:
                break
    print(summary(sample, results))
    for path, text, what in sorted(excuses().keys() - set(map(_said, everywhere()))):
        print(f"excused.txt: {path} has no {what} in {text}")


if __name__ == "__main__":
    main()
