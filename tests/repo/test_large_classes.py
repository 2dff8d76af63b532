"""A class of more than 20 methods or 8 fields tells why: a sentence of its docstring begins with "Large because"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_METHODS, MOST_FIELDS = 20, 8
REASON = re.compile(r"\bLarge because [^.]{20,}\.")


def methods_of(node: ast.ClassDef) -> set[str]:
    return {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def fields_of(node: ast.ClassDef) -> set[str]:
    """What is declared (of a dataclass, a NamedTuple, a TypedDict), and what any method sets on `self`."""
    declared = {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and not ast.unparse(each.annotation).startswith("ClassVar")
    }
    are_set = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    return declared | are_set


def large_in(source: str) -> Iterator[tuple[str, str]]:
    """The large classes of a module: their names and docstrings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and (
            len(methods_of(node)) > MOST_METHODS or len(fields_of(node)) > MOST_FIELDS
        ):
            yield node.name, ast.get_docstring(node) or ""


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.glob("rmqstore_spark/**/*.py"))}


def test_each_large_class_tells_why(sources: dict[str, str]) -> None:
    large = [(f"{path}: {name}", text) for path, source in sources.items() for name, text in large_in(source)]
    assert len(large) > 20
    assert [name for name, text in large if not REASON.search(" ".join(text.split()))] == []


def test_no_other_class_claims_to_be_large(sources: dict[str, str]) -> None:
    large = sum(1 for source in sources.values() for _ in large_in(source))
    assert sum(source.count("Large because ") for source in sources.values()) == large


@pytest.mark.parametrize(("methods", "fields", "is_large"), [(20, 8, False), (21, 0, True), (1, 9, True)])
@pytest.mark.parametrize("how", ["declared", "set"])
def test_what_is_large(methods: int, fields: int, is_large: bool, how: str) -> None:
    names = [f"field_{number}" for number in range(fields)]
    lines = [f"    {name}: int" for name in names if how == "declared"]
    lines += [f"    def method_{number}(self): pass" for number in range(methods - 1)]
    lines += ["    def last(self):", *(f"        self.{name} = 0" for name in names if how == "set"), "        pass"]
    assert [name for name, _ in large_in("\n".join(["class Some:", *lines]))] == ["Some"] * is_large
