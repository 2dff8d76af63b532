"""What tools/uncovered.py says of code that no test has passed (`make coverage`)."""

import re
from pathlib import Path

import pytest
import uncovered

SOURCE = """\
def f(x):
    if x:
        return 1
    for each in x:
        print(each)
        print(x)
    return 2
"""
HEADER = """\
if (a) return 1;
if (b) return 2;
while (c) {
"""
LISTED = """\
What the list is.

a.py
return 1
= nobody gives true

b*.h
if (…) return 2;
while (c) {
= memory
"""


def _gaps(tmp_path: Path) -> list[uncovered.Gap]:
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "b.h").write_text(HEADER)
    python = {"executed_lines": [1, 2, 4, 7], "missing_lines": [3, 5, 6], "missing_branches": [[2, 3], [4, 5], [7, -1]]}
    lines = [(1, [3, 2]), (2, [5, 0]), (3, [0, 0])]
    kernel = {"file": "b.h", "lines": [_line(number, counts) for number, counts in lines]}
    return [
        *uncovered.python_gaps({"files": {"a.py": python}}, tmp_path),
        *uncovered.kernel_gaps({"files": [kernel]}, tmp_path),
    ]


def _line(number: int, counts: list[int]) -> dict[str, object]:
    return {"line_number": number, "branches": [{"count": count} for count in counts]}


def test_a_run_of_lines_is_one_gap(tmp_path: Path) -> None:
    assert [(gap.path, gap.line, gap.text) for gap in _gaps(tmp_path)] == [
        ("a.py", 3, "return 1"),
        ("a.py", 5, "print(each)"),
        ("a.py", 7, "return 2"),
        ("b.h", 2, "if (b) return 2;"),
    ]


def test_what_is_not_listed_and_what_is_listed_for_nothing_is_told(tmp_path: Path) -> None:
    unlisted, unused = uncovered.faults(_gaps(tmp_path), uncovered.reasons(LISTED))
    assert [told.partition(": ")[0] for told in unlisted] == ["a.py:5", "a.py:7"]
    assert unused == ["b*.h: listed, and covered or gone: while (c) {"]


@pytest.mark.parametrize("paragraph", ["a.py\n= a reason", "a.py\nreturn 1\na reason", "a.py"])
def test_each_line_of_the_list_has_a_reason(paragraph: str) -> None:
    with pytest.raises(ValueError, match="expected a path"):
        uncovered.reasons(f"What the list is.\n\n{paragraph}\n")


def test_the_list_names_lines_that_are_there() -> None:
    for reason in uncovered.reasons(uncovered.LIST.read_text()):
        line = re.compile(rf"^\s*{reason.pattern}$", re.MULTILINE)
        assert any(line.search(path.read_text()) for path in uncovered.ROOT.glob(reason.paths)), reason
