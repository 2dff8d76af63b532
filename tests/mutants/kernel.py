"""Mutants of the kernel's C: small changes of the functions in native_io/*.h, all of them compiled into one kernel, in
which a number says which one counts. The quick tests of tests/kernel/ have to notice:

    PYTHONPATH=.:tests python -m mutants.kernel --seed 1 --count 500 --minutes 20

The kernel is built in a copy of the tree. Each change also notes that it was reached, so a mutant is a fork that runs
the tests that reach it, the quickest first. There are four kinds: a bound moved by one (`<` becomes `<=`), a condition
that is left out of others, or turned round, a number that is one more, and a statement less. What lives and may stands
in excused.txt, with the reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import mmap
import os
import random
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutants import judge
from mutants.changes import ROOT
from mutants.excuses import excused, outlived
from mutants.judge import LIVES
from mutants.run import ENVIRONMENT, UNREACHED

_PLACE = ROOT / "build" / "mutants" / "kernel"
_CHOICE = "(not slow or sample) and not spark and not interop and not long"
_COPIED = ("native_io", "rmqstore_spark", "tests", "sample_store", "LICENSE", "NOTICE", "setup.py", "setup.cfg")
# What is included before all else. The number of the mutant, then a byte for each that was reached.
_SWITCH = r"""
#ifndef RMQ_MUTANTS_H
#define RMQ_MUTANTS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* as Python has it, which comes later */
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
enum { RMQ_MUTANTS_SIZE = 1 << 16 };
typedef struct { volatile int32_t number; volatile uint8_t reached[RMQ_MUTANTS_SIZE - 4]; } rmq_mutants;
static rmq_mutants rmq_no_mutants = {-1, {0}};
static rmq_mutants *rmq_mutants_now = &rmq_no_mutants;
__attribute__((constructor(101))) static void rmq_find_mutants(void) {
    const char *path = getenv("RMQ_MUTANTS");
    const int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *found = mmap(NULL, RMQ_MUTANTS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) rmq_mutants_now = (rmq_mutants *)found;
    close(file);
}
#define RMQ_MUTANT(n) (rmq_mutants_now->reached[n] = 1, rmq_mutants_now->number == (n))
#endif
"""
_SIZE = 1 << 16


@dataclasses.dataclass(frozen=True, order=True)
class Change:
    """Attributes:
    path, line, what: as those of a `changes.Mutant`.
    at: where it is in the file.
    put: what is put where, with a rank: what is around others has a smaller one.
    """

    path: str
    at: int
    line: int
    what: str
    put: tuple[tuple[int, int, str], ...]

    def text(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def _plain(text: str) -> str:
    """Blanks in the place of comments and what the preprocessor takes, and nothing that counts in that of texts."""
    pattern = r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*"

    def blanks(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "_" if found.group()[0] in "\"'" else " ", found.group())

    return re.sub(pattern, blanks, text, flags=re.DOTALL | re.MULTILINE)


def _ends(text: str) -> dict[int, int]:
    """Where what each bracket opens ends, and the other way round."""
    found, opened = dict[int, int](), list[int]()
    for at, char in enumerate(text):
        if char in "([{":
            opened.append(at)
        elif char in ")]}" and opened:
            begin = opened.pop()
            found[begin], found[at] = at, begin
    return found


def _functions(text: str, ends: dict[int, int]) -> Iterator[tuple[int, int]]:
    """The insides of the functions, but of those that run while the kernel is loaded."""
    at = 0
    while (at := text.find("{", at)) >= 0:
        stop = ends.get(at, len(text))
        head = text[max(text.rfind(end, 0, at) for end in ";}") + 1 : at].rstrip()
        if head.endswith(")") and "constructor" not in head:
            yield at + 1, stop
        at = stop


_BEFORE = re.compile(r"&&|\|\||[?:,;]|(?:(?<![=!<>])|(?<=<<)|(?<=>>))=(?!=)|\breturn\b")


class _File:
    """The changes of a header."""

    def __init__(self, path: Path) -> None:
        self.path = str(path.relative_to(path.parents[1]))
        self.text = path.read_text()
        self.plain = _plain(self.text)
        self.ends = _ends(self.plain)
        for name in (r"\benum\s*\{[^}]*\}", r"\bstatic\s+const\b[^;]*;", r"\bsizeof\s*\([^)]*\)", r"\bcase\b[^:]*:"):
            self.plain = re.sub(name, lambda found: re.sub(r"[^\n(){}\[\];]", " ", found.group()), self.plain)

    def _change(self, at: int, what: str, *put: tuple[int, int, str]) -> Change:
        return Change(self.path, at, self.text.count("\n", 0, at) + 1, what, put)

    def changes(self) -> Iterator[Change]:
        for begin, stop in _functions(self.plain, self.ends):
            yield from self._bounds(begin, stop)
            yield from self._numbers(begin, stop)
            yield from self._conditions(begin, stop)
            yield from self._statements(begin, stop)

    def _bounds(self, begin: int, stop: int) -> Iterator[Change]:
        names = {"<": ("<=", "+"), "<=": ("<", "-"), ">": (">=", "-"), ">=": (">", "+")}
        for found in re.compile(r"(?<= )(<=?|>=?)(?= )").finditer(self.plain, begin, stop):
            other, sign = names[found.group()]
            put = f" (RMQ_MUTANT(%d) ? 1 : 0) {sign}" if sign == "+" else " (RMQ_MUTANT(%d) ? -1 : 0) +"
            yield self._change(found.start(), f"{found.group()} becomes {other}", (found.end(), 5, put))

    def _numbers(self, begin: int, stop: int) -> Iterator[Change]:
        for found in re.compile(r"(?<![\w.])\d+(?![\w.])").finditer(self.plain, begin, stop):
            line = self.plain[self.plain.rfind("\n", 0, found.start()) : self.plain.find("\n", found.end())]
            if "_mm" in line or "__builtin" in line:  # they may want a constant
                continue
            number = int(found.group())
            yield self._change(
                found.start(),
                f"{number} becomes {number + 1}",
                (found.start(), 3, "("),
                (found.end(), -3, " + RMQ_MUTANT(%d))"),
            )

    def _operand(self, at: int, stop: int, step: int) -> int:
        """Where what stands before or after a place ends: before an operator that binds less."""
        while at != stop:
            char = self.plain[at]
            if char in ("([{" if step > 0 else ")]}"):
                at = self.ends[at]
            elif char in ")]}([{":
                return at + (step < 0)
            elif step > 0 and (re.compile(r"&&|\|\||[?:,;]").match(self.plain, at)):
                return at
            elif step < 0 and (found := next(self._operators_at(at), None)):
                return found
            at += step
        return at

    def _operators_at(self, at: int) -> Iterator[int]:
        """The end of an operator that ends here."""
        for size in (1, 2, 6):
            found = _BEFORE.match(self.plain, max(0, at + 1 - size))
            if found and found.end() == at + 1:
                yield at + 1

    def _around(self, at: int, stop: int, what: str, before: str, after: str) -> Change:
        while self.plain[at].isspace():
            at += 1
        while self.plain[stop - 1].isspace():
            stop -= 1
        said = re.sub(r"\s+", " ", self.text[at:stop])
        return self._change(at, what.format(said), (at, 1, before), (stop, -1, after))

    def _conditions(self, begin: int, stop: int) -> Iterator[Change]:
        seen = set[tuple[int, int]]()
        for found in re.compile(r"&&|\|\|").finditer(self.plain, begin, stop):
            before = "(RMQ_MUTANT(%d) || (" if found.group() == "&&" else "(!RMQ_MUTANT(%d) && ("
            left = self._operand(found.start() - 1, begin, -1), found.start()
            right = found.end(), self._operand(found.end(), stop, 1)
            for part in (left, right):
                if part not in seen:
                    seen.add(part)
                    yield self._around(*part, "without {}", before, "))")
        for found in re.compile(r"\bif\s*\(").finditer(self.plain, begin, stop):
            inside = found.end(), self.ends[found.end() - 1]
            if not any(inside[0] <= at and end <= inside[1] for at, end in seen):
                yield self._around(*inside, "not {}", "(RMQ_MUTANT(%d) ^ !!(", "))")
        for found in re.compile(r"\?").finditer(self.plain, begin, stop):
            inside = self._operand(found.start() - 1, begin, -1), found.start()
            if not any(inside[0] <= at and end <= inside[1] for at, end in seen):
                yield self._around(*inside, "not {}", "(RMQ_MUTANT(%d) ^ !!(", "))")

    def _statements(self, begin: int, stop: int) -> Iterator[Change]:
        starts = [begin]
        depth = 0
        for at in range(begin, stop):
            char = self.plain[at]
            if char == "(":
                depth += 1
            elif char == ")":
                depth -= 1
                head = self.plain[max(begin, self.ends[at] - 8) : self.ends[at]].rstrip()
                if depth == 0 and re.search(r"\b(if|for|while)$", head):
                    starts.append(at + 1)
            elif depth == 0 and char in ";{}":
                starts.append(at + 1)
        starts += [found.end() for found in re.compile(r"\belse\b").finditer(self.plain, begin, stop)]
        for at in starts:
            end = self.plain.find(";", at, stop)
            said = self.plain[at:end].strip() if end >= 0 else ""
            if said and _is_statement(said):
                yield self._around(at, end + 1, "without {}", "{ if (!RMQ_MUTANT(%d)) ", " }")


_WORDS = re.compile(r"(if|for|while|do|switch|return|case|default|goto|else|enum|static|typedef|struct)\b")


def _is_statement(said: str) -> bool:
    """Does it do something, and declares nothing?"""
    if "{" in said or "}" in said or _WORDS.match(said):
        return False
    if said in ("break", "continue") or re.fullmatch(r"(\+\+|--)?[\w.\->\[\]]+(\+\+|--)?", said):
        return True
    if re.match(r"\w+\s*\(", said):
        return True
    left = re.split(r"(?<![=!<>])=(?!=)", said, maxsplit=1)
    return len(left) == 2 and not re.match(r"(const\s+)?\w+[\s*]+(const\s+)?\w+", left[0].rstrip("+-*/%&|^<> "))


def changes(kernel: Path) -> list[Change]:
    """All of the kernel's headers."""
    return [change for path in sorted(kernel.glob("*.h")) for change in sorted(_File(path).changes())]


def _instrumented(text: str, numbered: list[tuple[int, Change]]) -> str:
    puts = [
        (at, rank, (put % number if "%d" in put else put))
        for number, change in numbered
        for at, rank, put in change.put
    ]
    # At one place what ends there comes first, the innermost before the others; then what begins, the outermost first.
    puts.sort(key=lambda put: (put[0], put[1] > 0, put[1]))
    pieces, before = list[str](), 0
    for at, _, put in puts:
        pieces += [text[before:at], put]
        before = at
    return "".join([*pieces, text[before:]])


def build() -> list[Change]:
    """A kernel with all changes that compile.

    Raises:
        SystemExit: there is something else that does not compile.
    """
    shutil.rmtree(_PLACE, ignore_errors=True)
    _PLACE.mkdir(parents=True)
    for name in _COPIED:
        ours, its = ROOT / name, _PLACE / name
        (shutil.copytree if ours.is_dir() else shutil.copy2)(ours, its)
    for path in ROOT.glob("*.md"):
        shutil.copy2(path, _PLACE)
    shutil.copy2(ROOT / "pyproject.toml", _PLACE)
    kernel = _PLACE / "native_io"
    for path in kernel.glob("*.so"):
        path.unlink()
    (kernel / "mutants.h").write_text(_SWITCH)
    compiler = _PLACE / "unhurried-cc"
    compiler.write_text(f'#!/bin/sh\nexec gcc "$@" -w -O0 -include "{kernel / "mutants.h"}"\n')
    compiler.chmod(0o755)
    every = changes(ROOT / "native_io")
    for path in sorted((ROOT / "native_io").glob("*.h")):
        while True:
            numbered = [(at, change) for at, change in enumerate(every) if change.path.endswith(f"/{path.name}")]
            (kernel / path.name).write_text(_instrumented(path.read_text(), numbered))
            bad = _refused(path.name)
            if bad is None:
                break
            left = [change for change in every if (change.path, change.line) != bad]
            if len(left) == len(every):
                raise SystemExit(f"{bad} does not compile, whatever is changed there")
            every = left
    for path in sorted((ROOT / "native_io").glob("*.h")):  # now that all numbers are known
        numbered = [(at, change) for at, change in enumerate(every) if change.path.endswith(f"/{path.name}")]
        (kernel / path.name).write_text(_instrumented(path.read_text(), numbered))
    command = [sys.executable, "setup.py", "-q", "build_ext", "-j2"]
    subprocess.run(command, cwd=_PLACE, env={**os.environ, "CC": str(compiler)}, check=True)
    return every


def _refused(header: str) -> tuple[str, int] | None:
    """The first line of a header that the compiler refuses: what follows may be refused for its sake."""
    command = [str(_PLACE / "unhurried-cc"), "-std=gnu11", "-fsyntax-only", "-x", "c", f"native_io/{header}"]
    ran = subprocess.run(command, cwd=_PLACE, capture_output=True, text=True, check=False)
    found = re.search(rf"^native_io/({re.escape(header)}):(\d+):\d+: error", ran.stderr, re.MULTILINE)
    if ran.returncode != 0 and not found:
        raise SystemExit(ran.stderr[:3000])
    return (f"native_io/{header}", int(found[2])) if found else None


# ---- in the copy


class _Room:
    """The memory that the kernel looks at: the number of the mutant, and which were reached."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)
        self.count(-1)

    def count(self, number: int) -> None:
        self._memory[:4] = number.to_bytes(4, sys.byteorder, signed=True)

    def taken(self) -> list[int]:
        """Those that were reached since the last call."""
        found: list[int] = np.flatnonzero(np.frombuffer(self._memory, np.uint8, offset=4)).tolist()
        self._memory[4:] = bytes(_SIZE - 4)
        return found


class _Loop:
    """A plugin that finds out what each test reaches, and then judges."""

    def __init__(self, numbers: Sequence[int], room: _Room, home: Path) -> None:
        self._numbers, self._room, self._home = numbers, room, home
        self._out = os.fdopen(int(os.environ["RMQ_VERDICTS"]), "w", buffering=1)

    def _verdict(self, act: Callable[[], tuple[str, str]], seconds: float) -> dict[str, Any]:
        fork = judge.Fork(act, self._home, seconds)
        poll = select.poll()
        poll.register(fork.ended, select.POLLIN)
        while not poll.poll(1000):
            fork.see()
        return fork.verdict()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        reached: dict[int, list[tuple[float, int]]] = defaultdict(list)
        self._room.taken()
        for at, item in enumerate(items):
            passes = functools.partial(judge.tested, session, [item], {item.nodeid: 60.0})
            found = self._verdict(passes, 600)
            for number in self._room.taken() if found["verdict"] == LIVES else ():
                reached[number].append((found["worked"], at))
        for number in self._numbers:
            tests = sorted(reached[number])
            took = {items[at].nodeid: seconds for seconds, at in tests}
            if tests:
                self._room.count(number)
                asked = functools.partial(judge.tested, session, [items[at] for _, at in tests], took)
                found = self._verdict(asked, 60 + 20 * sum(took.values()))
                self._room.count(-1)
            else:
                found = {"verdict": UNREACHED, "test": ""}
            self._out.write(json.dumps({"number": number, **found}) + "\n")
        return True


def _judge(numbers: Sequence[int], home: Path) -> None:
    own = judge.enclosed(home)
    room = _Room(home / "mutants")
    os.environ["RMQ_MUTANTS"] = str(home / "mutants")
    sys.exit(pytest.main([*judge.OPTIONS, "-m", _CHOICE, "tests/kernel"], plugins=[_Loop(numbers, room, own)]))


# ---- beside it


def _verdicts(numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
    mine, its = os.pipe()
    paths = os.pathsep.join([str(_PLACE), str(_PLACE / "tests")])
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": paths, "RMQ_VERDICTS": str(its)}
    with tempfile.TemporaryDirectory() as home, (_PLACE.parent / "kernel.txt").open("w") as output:
        program = subprocess.Popen(
            [sys.executable, "-m", "mutants.kernel", "--judge", json.dumps(numbers), home],
            env=environment,
            pass_fds=[its],
            stdout=output,
            stderr=output,
            cwd=_PLACE,
        )
        os.close(its)
        with os.fdopen(mine) as said:
            yield from map(json.loads, said)
        if program.wait() != 0:
            raise SystemExit(f"the judge has failed; see {output.name}")


def main() -> None:
    if sys.argv[1:2] == ["--judge"]:
        _judge(json.loads(sys.argv[2]), Path(sys.argv[3]))
    parser = argparse.ArgumentParser(prog="mutants.kernel", description=__doc__)
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--count", type=int, default=500)
    given = parser.parse_args()
    every = build()
    numbers = random.Random(given.seed).sample(range(len(every)), min(given.count, len(every)))
    print(f"seed {given.seed}: {len(numbers)} of {len(every)} mutants of the kernel", flush=True)
    found = {each["number"]: each["verdict"] for each in _verdicts(numbers)}
    alive = [every[number] for number in sorted(found) if found[number] in (LIVES, UNREACHED)]
    reasons = excused(alive)
    told = Counter(reasons.get(every[number], verdict) for number, verdict in found.items())
    print(", ".join(f"{name} {count}" for name, count in told.most_common()))
    for number in sorted(found):
        if found[number] in (LIVES, UNREACHED) and every[number] not in reasons:
            print(f"{found[number]:11} {every[number].text()}")
    print(*outlived(every, "native_io/"), sep="\n")


if __name__ == "__main__":
    main()
