"""Each test file says in its first lines which promise it holds: a sentence or two, before anything else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_each_says_what_it_holds() -> None:
    files = sorted(TESTS.rglob("test_*.py"))
    told = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in files}
    assert len(files) > 150
    assert [
        str(path) for path, text in told.items() if not re.match(r"\w.{30,}\.(\n\n|\Z)", text.lstrip("`"), re.DOTALL)
    ] == []
    assert len(set(told.values())) == len(files)
