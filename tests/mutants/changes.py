"""The small changes of a module, in the order in which they stand there."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("read", "store", "write", "tables")


class Mutant(NamedTuple):
    """Attributes:
    path: the module's file, from the repository's top.
    number: of the changes of this file, from 0 on.
    lines: the first and the last line of the statement that it is in; of a compound one of its head.
    line: where it is.
    what: what becomes of what.
    is_called: whether it is in a function, and not in what an import does.
    """

    path: str
    number: int
    lines: tuple[int, int]
    line: int
    what: str
    is_called: bool

    def text(self) -> str:
        return f"{self.path}:{self.line}: {self.what}  (change {self.number})"


class _Place(NamedTuple):
    """A node, where it hangs, and what it is in."""

    holder: ast.AST
    field: str
    at: int | None
    lines: tuple[int, int]
    is_called: bool

    def put(self, node: ast.AST) -> None:
        if self.at is None:
            setattr(self.holder, self.field, node)
        else:
            getattr(self.holder, self.field)[self.at] = node


_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list"}
# Keywords that change nothing but for those who make a mistake.
_PROMISES = {"strict", "frozen", "slots", "kw_only"}
_NEVER = {"annotation", "returns", "type_params", "type_comment", "ctx", "names"}


def _name(kind: type[ast.AST]) -> str:
    return kind.__name__


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _not(node: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), node), node)


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                for other in _COMPARED[type(op)]:
                    yield (
                        f"{_name(type(op))} becomes {_name(other)}",
                        _with(node, ops=[*ops[:at], other(), *ops[at + 1 :]]),
                    )
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _CALCULATED:
            if not (_is_text(left) or _is_text(right)):
                other_op = _CALCULATED[type(op)]
                yield f"{_name(type(op))} becomes {_name(other_op)}", _with(node, op=other_op())
        case ast.BoolOp(op=ast.And()):
            yield "and becomes or", _with(node, op=ast.Or())
        case ast.BoolOp():
            yield "or becomes and", _with(node, op=ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub() as op, operand=operand):
            yield f"without {_name(type(op))}", operand
        case ast.IfExp(body=body, orelse=orelse):
            yield "x if y else z becomes z if y else x", _with(node, body=orelse, orelse=body)
        case ast.Constant(value=bool(value)):
            yield f"{value} becomes {not value}", _with(node, value=not value)
        case ast.Constant(value=int(value) | float(value)):
            yield f"{value} becomes {value + 1}", _with(node, value=value + 1)
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield "a slice without its beginning", _with(node, lower=None)
            if upper is not None:
                yield "a slice without its end", _with(node, upper=None)
        case ast.Call(func=ast.Name(id=name) as function) if name in _CALLED and not node.keywords:
            yield f"{name} becomes {_CALLED[name]}", _with(node, func=_with(function, id=_CALLED[name]))
        case ast.Call(keywords=keywords):
            for at, keyword in enumerate(keywords):
                if keyword.arg is not None and keyword.arg not in _PROMISES:
                    yield f"a call without {keyword.arg}=", _with(node, keywords=[*keywords[:at], *keywords[at + 1 :]])


def _is_false(node: ast.expr) -> bool:
    """Is it None, or False, which callers take for the same?"""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    nothing = ast.copy_location(ast.Pass(), node)
    match node:
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield "the condition's contrary", _with(node, test=_not(test))
        case ast.Return(value=value) if value is not None and not _is_false(value):
            yield "returns None", _with(node, value=None)
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Expr():
            yield "a statement less", nothing
        case ast.AugAssign(op=op):
            yield "a statement less", nothing
            if type(op) in _CALCULATED and not _is_text(node.value):
                other = _CALCULATED[type(op)]
                yield f"{_name(type(op))} becomes {_name(other)}", _with(node, op=other())
        case ast.Raise():
            yield "raises nothing", nothing
        case ast.Break():
            yield "break becomes continue", ast.copy_location(ast.Continue(), node)
        case ast.Continue():
            yield "continue becomes break", ast.copy_location(ast.Break(), node)


def _of(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    elif isinstance(node, ast.expr):
        yield from _of_expression(node)
    elif isinstance(node, ast.comprehension):
        for at, test in enumerate(node.ifs):
            if not isinstance(test, ast.Compare | ast.UnaryOp):
                yield "the condition's contrary", _with(node, ifs=[*node.ifs[:at], _not(test), *node.ifs[at + 1 :]])


def _head(node: ast.stmt) -> tuple[int, int]:
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        return node.lineno, max(node.lineno, body[0].lineno - 1)
    return node.lineno, node.end_lineno or node.lineno


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _below(node: ast.AST, lines: tuple[int, int], is_called: bool) -> Iterator[tuple[_Place, ast.AST]]:
    """All nodes that may change, those above first."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr) or _is_for_types(node):
        return
    if isinstance(node, ast.keyword) and node.arg in _PROMISES:
        return
    for field, value in ast.iter_fields(node):
        if field in _NEVER:
            continue
        inside = is_called or (field == "body" and isinstance(node, ast.FunctionDef | ast.Lambda))
        for at, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST):
                where = _head(child) if isinstance(child, ast.stmt) else lines
                yield _Place(node, field, at if isinstance(value, list) else None, where, inside), child
                yield from _below(child, where, inside)


def _all(tree: ast.Module) -> Iterator[tuple[_Place, ast.AST, str, ast.AST]]:
    for place, node in _below(tree, (1, 1), False):
        for what, other in _of(node):
            yield place, node, what, other


def mutants(path: Path) -> list[Mutant]:
    """All of a module."""
    name = str(path.relative_to(ROOT))
    return [
        Mutant(name, number, place.lines, getattr(node, "lineno", place.lines[0]), what, place.is_called)
        for number, (place, node, what, _) in enumerate(_all(ast.parse(path.read_text())))
    ]


def everywhere() -> list[Mutant]:
    """All of the rooms that are mutated."""
    paths = (path for room in ROOMS for path in sorted((ROOT / "rmqstore_spark" / room).rglob("*.py")))
    return [mutant for path in paths for mutant in mutants(path)]


def changed(path: Path, number: int) -> ast.Module:
    """The module with this change."""
    tree = ast.parse(path.read_text())
    for at, (place, _, _, other) in enumerate(_all(tree)):
        if at == number:
            place.put(other)
            return ast.fix_missing_locations(tree)
    raise ValueError(f"{path} has no change {number}")
