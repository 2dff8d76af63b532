"""Says which code no test has passed, and holds it to the list of that code and its reasons, `tests/uncovered.txt`:

    python tools/uncovered.py PYTHON KERNEL

PYTHON is what `coverage json` writes, KERNEL what `gcovr --json` writes. What is not covered and not listed is told,
and so is what is listed and covered. `make coverage` does this, from the directory that the sources were measured in.

A gap is a run of statements that were not passed, or a condition that was only ever true or only ever false. It has the
text of its first line: line numbers move.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "uncovered.txt"
# What stands for anything in a line of the list.
_ANY = "…"


class Gap(NamedTuple):
    path: str
    line: int
    text: str


class Reason(NamedTuple):
    """Attributes:
    paths: of which files: a path, or a pattern such as `native_io/*.h`.
    text: of the line; `…` in it stands for anything.
    why: why no test passes it.
    """

    paths: str
    text: str
    why: str

    @property
    def pattern(self) -> str:
        """What matches such lines."""
        return ".*".join(map(re.escape, self.text.split(_ANY)))

    def is_of(self, gap: Gap) -> bool:
        return fnmatch.fnmatchcase(gap.path, self.paths) and re.fullmatch(self.pattern, gap.text) is not None


def reasons(listed: str) -> list[Reason]:
    """What the list says. Its paragraphs are a path, lines of that file, and in the last line, after `=`, the reason;
    the first one says what the list is.

    Raises:
        ValueError: a paragraph is none of that kind.
    """
    found: list[Reason] = []
    for paragraph in listed.strip().split("\n\n")[1:]:
        paths, *texts = paragraph.split("\n")
        if len(texts) < 2 or not texts[-1].startswith("= "):
            raise ValueError(f"expected a path, lines and '= ' with a reason, found {paragraph!r}")
        found += [Reason(paths, text, texts[-1].removeprefix("= ")) for text in texts[:-1]]
    return found


def _in_runs(path: str, lines: list[str], gaps: set[int], between: list[int]) -> Iterator[Gap]:
    """The first of each run of lines, of which no line `between` them is covered."""
    before = False
    for number in between:
        if number in gaps and not before:
            yield Gap(path, number, lines[number - 1].strip())
        before = number in gaps


def python_gaps(measured: dict[str, Any], root: Path) -> list[Gap]:
    found: list[Gap] = []
    for path, file in sorted(measured["files"].items()):
        lines = (root / path).read_text().split("\n")
        missed = set(file["missing_lines"])
        found += _in_runs(path, lines, missed, sorted(missed | set(file["executed_lines"])))
        # A branch to a line that was not passed is the gap which begins there.
        half = {start for start, to in file["missing_branches"] if start not in missed and to not in missed}
        found += [Gap(path, number, lines[number - 1].strip()) for number in sorted(half)]
    return sorted(found)


def kernel_gaps(measured: dict[str, Any], root: Path) -> list[Gap]:
    found = []
    for file in sorted(measured["files"], key=lambda file: str(file["file"])):
        lines = (root / file["file"]).read_text().split("\n")
        taken: dict[int, list[int]] = {}
        for line in file["lines"]:
            taken.setdefault(line["line_number"], []).extend(branch["count"] for branch in line["branches"])
        branching = sorted(number for number, counts in taken.items() if counts)
        missed = {number for number in branching if 0 in taken[number]}
        # Lines of which no branch was reached belong to the gap before them.
        unreached = {number for number in missed if not any(taken[number])}
        for before, number in zip([0, *branching], branching, strict=False):
            if number in missed and not (number in unreached and before in missed):
                found.append(Gap(file["file"], number, lines[number - 1].strip()))
    return found


def branches(measured: dict[str, Any], kernel: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Of Python and the kernel: how many branches there are, and how many were taken."""
    counts = [branch["count"] for file in kernel["files"] for line in file["lines"] for branch in line["branches"]]
    total = measured["totals"]
    return {
        "Python": (total["num_branches"], total["covered_branches"]),
        "the kernel": (len(counts), sum(count > 0 for count in counts)),
    }


def faults(gaps: list[Gap], listed: list[Reason]) -> tuple[list[str], list[str]]:
    """The gaps that have no reason, and the reasons that have no gap."""
    unlisted = [gap for gap in gaps if not any(reason.is_of(gap) for reason in listed)]
    unused = [reason for reason in listed if not any(reason.is_of(gap) for gap in gaps)]
    return (
        [f"{gap.path}:{gap.line}: not covered, and not listed: {gap.text}" for gap in unlisted],
        [f"{reason.paths}: listed, and covered or gone: {reason.text}" for reason in unused],
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="uncovered", description=__doc__)
    parser.add_argument("python", type=Path)
    parser.add_argument("kernel", type=Path)
    given = parser.parse_args()
    root = Path.cwd()
    measured, kernel = (json.loads(path.read_text()) for path in (given.python, given.kernel))
    for what, (count, taken) in branches(measured, kernel).items():
        print(f"{what}: {taken:,} of {count:,} branches, {100 * taken / max(1, count):.1f} %")
    gaps = python_gaps(measured, root) + kernel_gaps(kernel, root)
    unlisted, unused = faults(gaps, reasons(LIST.read_text()))
    print("\n".join([*unlisted, *unused]))
    print(f"{len(gaps):,} gaps, {len(unlisted):,} without a reason; {len(unused):,} reasons without a gap")


if __name__ == "__main__":
    main()
