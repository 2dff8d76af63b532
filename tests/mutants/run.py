"""Draws mutants of the package, has the quick tests judge them, and says which live:

    PYTHONPATH=.:tests python -m mutants.run --seed 1 --count 2000 --minutes 60

What was judged is kept in build/mutants/: the same command goes on where the last one stopped; `--living` asks again
about those that lived, after tests were added: `--living --reach tests/read/test_new.py`. After a change of the package
`--reach` finds out anew which tests reach what, and all are judged again.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from mutants.changes import ROOMS, ROOT, Mutant, everywhere
from mutants.judge import INVALID, KILLED, LIVES, TESTS, TIME

_PLACE = ROOT / "build" / "mutants"
_REACHED = _PLACE / "reached.json"
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
    known["took"] |= new["took"]
    known["modules"] = sorted({*known["modules"], *new["modules"]})
    for path, by_line in new["tests"].items():
        known["imported"].setdefault(path, new["imported"].get(path, []))
        of_file = known["tests"].setdefault(path, {})
        for line, tests in by_line.items():
            of_file[line] = list(dict.fromkeys([*of_file.get(line, ()), *tests]))
    return known


class Reached:
    """Which tests reach a mutant."""

    def __init__(self, seconds: float) -> None:
        found = json.loads(_REACHED.read_text())
        ours = {path.stem for place in ("", "tests", "tools") for path in (ROOT / place).iterdir()}
        self.modules: list[str] = [name for name in found["modules"] if name not in ours]
        self._took: dict[str, float] = found["took"]
        self._tests = {
            path: {int(line): tests for line, tests in by_line.items()} for path, by_line in found["tests"].items()
        }
        self._imported = {path: set(lines) for path, lines in found["imported"].items()}
        self._seconds = seconds
        self.killers: Counter[str] = Counter()

    def _part(self, mutant: Mutant) -> int:
        """The line of the last mark before it; 0: none."""
        marks = sorted(self._tests.get(mutant.path, ()))
        at = bisect.bisect_right(marks, mutant.lines[0])
        return marks[at - 1] if at else 0

    def is_called(self, mutant: Mutant) -> bool:
        """Whether it is in a function, and in a part that no import calls."""
        return mutant.is_called and self._part(mutant) not in self._imported.get(mutant.path, ())

    def tests(self, mutant: Mutant) -> list[tuple[str, float]]:
        """Those that have killed others first, then the quickest; as many as take so many seconds."""
        by_line = self._tests.get(mutant.path, {})
        parts = [self._part(mutant)] if self.is_called(mutant) else list(by_line)
        tests = {test for part in parts for test in by_line.get(part, ())}
        left = self._seconds
        chosen: list[tuple[str, float]] = []
        for test in sorted(tests, key=lambda test: (-min(self.killers[test], 3), self._took[test], test)):
            left -= self._took[test]
            if left < 0 and chosen:
                break
            chosen.append((test, self._took[test]))
        return chosen


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
    """How many were killed, by room, and who lives."""
    judged = [mutant for mutant in sample if results.verdict(mutant) not in ("", INVALID)]
    lines = []
    for room in (*ROOMS, ""):
        verdicts = Counter(results.verdict(mutant) for mutant in judged if f"/{room}/" in mutant.path or not room)
        killed, count = verdicts[KILLED] + verdicts[TIME], max(1, verdicts.total())
        told = ", ".join(f"{name} {number}" for name, number in verdicts.most_common())
        lines.append(f"{room or 'all':7} {killed} of {verdicts.total()} killed, {100 * killed / count:.1f} % ({told})")
    alive = [mutant for mutant in judged if results.verdict(mutant) in (LIVES, UNREACHED)]
    lines += [f"{results.verdict(mutant):11} {mutant.text()}" for mutant in sorted(alive)]
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
    parser.add_argument("--reach", nargs="*", help="find out anew which tests reach what; or of some new tests alone")
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    _PLACE.mkdir(parents=True, exist_ok=True)
    if given.reach is not None or not _REACHED.exists():
        reach(given.reach or ())
    reached, results = Reached(given.seconds), Results(given.seed, _sources())
    every = [mutant for mutant in everywhere() if mutant.path.startswith(f"rmqstore_spark/{given.only}")]
    sample = random.Random(given.seed).sample(every, min(given.count, len(every)))
    wanted = ("", LIVES, UNREACHED) if given.living else ("",)
    left = [mutant for mutant in sample if results.verdict(mutant) in wanted]
    print(f"seed {given.seed}: {len(sample)} of {len(every)} mutants, {len(left)} to be judged", flush=True)
    end = time.monotonic() + 60 * given.minutes
    while left and time.monotonic() < end:
        some, left = left[:_AT_ONCE], left[_AT_ONCE:]
        for found in _judged(some, reached):
            results.add(found)
            reached.killers[found["test"]] += found["verdict"] == KILLED
            if time.monotonic() > end:
                break
    print(summary(sample, results))


if __name__ == "__main__":
    main()
