"""docs/troubleshooting.md quotes errors that exist: each line of its blocks is part of a text in the package."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from support.pages import blocks

ROOT = Path(__file__).resolve().parents[2]
# What a sentence in the code leaves open, and what the page writes for it.
_OPEN, _SHOWN = "\0", "..."


def _text(node: ast.JoinedStr | ast.Constant) -> str:
    """A text of the code; what is computed in it is left open."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(_text(part) if isinstance(part, ast.Constant) else _OPEN for part in node.values)


@functools.cache  # not where the module is imported: every process that collects tests would read the package
def _texts() -> list[str]:
    paths = sorted([*(ROOT / "rmqstore_spark").rglob("*.py"), *(ROOT / "native_io").glob("*.py")])
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    return [
        _text(node)
        for node in nodes
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    ]


QUOTED = [line for block in blocks("troubleshooting.md", "") for line in block.text.splitlines()]


def _is_quoted(line: str) -> bool:
    fragments = [fragment.strip() for fragment in line.split(_SHOWN) if fragment.strip()]
    return any(_in_order(fragments, text) for text in _texts())


def _in_order(fragments: list[str], text: str) -> bool:
    """Whether a text has all of them, one behind the other."""
    at = 0
    for fragment in fragments:
        if (found := text.find(fragment, at)) < 0:
            return False
        at = found + len(fragment)
    return True


def test_the_code_says_it() -> None:
    assert len(QUOTED) > 20
    assert not _is_quoted("no error of ours ... says this")
    assert [line for line in QUOTED if not _is_quoted(line)] == []
