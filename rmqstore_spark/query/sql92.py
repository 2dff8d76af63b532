"""RocketMQ's filter language SQL92: a parser of it, and what an expression says of a message's properties.

Properties are texts. A text is converted by the type of what it is compared with, as Java reads such a number; where
that fails, the message does not match, whatever the rest of the expression is. A missing property is null, and so is
nearly all that is made of it.

Source: org.apache.rocketmq.filter.parser.SelectorParser, org.apache.rocketmq.filter.expression, as of 5.5.0. Unlike the
broker's parser, this one refuses what follows after the end of an expression.
"""

import functools
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, TypeGuard

_MOST_CHARACTERS = 16 * 1024
_MOST_DEPTH = 64  # of parentheses, NOT and signs in one another
MOST_NAMES = 64  # of properties
_SHOWN = "\N{REPLACEMENT CHARACTER}"

_TOKEN = re.compile(
    r"""(?P<gap>[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    |(?P<real>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<whole>0|[1-9][0-9]*[lL]?)
    |(?P<text>'(?:''|[^'])*')
    |(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
    |(?P<sign><>|>=|<=|[=<>(),+-])""",
    re.VERBOSE,
)
_RESERVED = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
# What other languages have, and people try.
_INSTEAD = {
    '"': " (texts stand in single quotes)",
    "'": " (a text that does not end)",
    "!": " (unequal is <>)",
    "LIKE": " (there are CONTAINS, STARTSWITH and ENDSWITH)",
}
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII)
_HEX_DOUBLE = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII)


class Int(int):
    """Java's Integer."""


class Long(int):
    """Java's Long."""


_Value = str | bool | Int | Long | float | None
_Values = Sequence[str | None]
_Evaluate = Callable[[_Values], _Value]


class _Fault(Exception):
    """What makes an evaluation fail: the message does not match."""


class _Node(NamedTuple):
    """A part of an expression.

    Attributes:
        is_boolean: whether its value is true, false or null.
        constant: its value, in a tuple, where it is a literal.
        property: its number, where it is a property.
    """

    evaluate: _Evaluate
    is_boolean: bool = False
    constant: tuple[_Value] | None = None
    property: int | None = None


@dataclass(frozen=True)
class Sql92:
    """An expression.

    Raises:
        ValueError: what was expected, where it is not an expression.
    """

    text: str

    def __post_init__(self) -> None:
        _parsed(self.text)

    @property
    def names(self) -> tuple[str, ...]:
        """The properties that it is about."""
        return _parsed(self.text)[1]

    def value(self, values: _Values) -> _Value:
        """What it says of a message: True, False, or None.

        Args:
            values: of the properties `names`; None for one that the message does not have.

        Raises:
            _Fault: it cannot be evaluated.
        """
        return _parsed(self.text)[0](values)

    def judge(self) -> Callable[[_Values], bool]:
        """A function that says whether a message matches; see value()."""
        evaluate = _parsed(self.text)[0]

        def matches(values: _Values) -> bool:
            try:
                return evaluate(values) is True
            except _Fault:
                return False

        return matches


@functools.lru_cache(64)
def _parsed(text: str) -> tuple[_Evaluate, tuple[str, ...]]:
    parser = _Parser(text)
    return parser.whole(), tuple(parser.names)


class _Token(NamedTuple):
    kind: str  # the group of _TOKEN; a reserved word or a sign is its own kind; "" at the end
    text: str
    at: int


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            where = f"{text[at]!r} at character {at + 1}"
            raise ValueError(f"an expression of SQL92, and no {where}{_INSTEAD.get(text[at], '')}")
        kind, word = str(match.lastgroup), match.group()
        if kind == "sign" or (kind == "word" and word.upper() in _RESERVED):
            kind = word.upper()
        if kind != "gap":
            found.append(_Token(kind, word, at))
        at = match.end()
    return [*found, _Token("", "", at)]


class _Parser:
    """By recursive descent: OR, AND, = <> IS, > BETWEEN IN CONTAINS ..., NOT and signs, literals and properties."""

    def __init__(self, text: str) -> None:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(f"an expression of SQL92 of at most {_MOST_CHARACTERS} characters")
        if _SHOWN in text:
            raise ValueError("an expression of SQL92 without U+FFFD, which stands for bytes that are no text")
        self.names: dict[str, int] = {}
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def whole(self) -> _Evaluate:
        found = self._boolean(self._either())
        if self._tokens[self._next].kind:
            self._refuse("the end of the expression, AND or OR")
        return found

    def _refuse(self, expected: str) -> NoReturn:
        token = self._tokens[self._next]
        where = f"{token.text[:40]!r} at character {token.at + 1}" if token.kind else "its end"
        raise ValueError(f"an expression of SQL92: {expected}, and not {where}{_INSTEAD.get(token.text.upper(), '')}")

    def _takes(self, *kinds: str) -> bool:
        """Are the next tokens of these kinds? Then they are taken."""
        if all(token.kind == kind for token, kind in zip(self._tokens[self._next :], kinds, strict=False)):
            self._next += len(kinds)
            return True
        return False

    def _boolean(self, node: _Node) -> _Evaluate:
        if node.is_boolean:
            return node.evaluate
        if node.property is None:
            self._refuse("a comparison before it, as a value alone is neither true nor false")
        evaluate = node.evaluate
        return lambda values: None if evaluate(values) is None else False  # a text is not true

    def _either(self) -> _Node:
        return self._chain("OR", self._both, decisive=True)

    def _both(self) -> _Node:
        return self._chain("AND", self._equality, decisive=False)

    def _chain(self, word: str, part: Callable[[], _Node], *, decisive: bool) -> _Node:
        first = part()
        if self._tokens[self._next].kind != word:
            return first
        parts = [self._boolean(first)]
        while self._takes(word):
            parts.append(self._boolean(part()))

        def evaluate(values: _Values) -> _Value:
            has_null = False
            for each in parts:
                value = each(values)
                if value is decisive:
                    return decisive
                has_null = has_null or value is None
            return None if has_null else not decisive

        return _Node(evaluate, True)

    def _equality(self) -> _Node:
        left = self._comparison()
        while True:
            if self._takes("IS", "NULL"):
                left = _equal(left, _NULL)
            elif self._takes("IS", "NOT", "NULL"):
                left = _not(_equal(left, _NULL).evaluate)
            elif self._takes("="):
                left = self._compared_equal(left)
            elif self._takes("<>"):
                left = _not(self._compared_equal(left).evaluate)
            else:
                return left

    def _compared_equal(self, left: _Node) -> _Node:
        right = self._comparison()
        if (None,) in (left.constant, right.constant):
            self._refuse("IS NULL or IS NOT NULL, as nothing equals NULL")
        if left.constant and right.constant and left.is_boolean and not right.is_boolean:
            self._refuse("two literals of one type")
        return _equal(left, right)

    def _comparison(self) -> _Node:
        left = self._unary()
        while True:
            sign = self._tokens[self._next].kind
            if sign in _ORDERS:
                self._next += 1
                left = self._ordered(left, sign, self._unary())
            elif self._takes("BETWEEN"):
                left = self._between(left, is_not=False)
            elif self._takes("NOT", "BETWEEN"):
                left = self._between(left, is_not=True)
            elif self._takes("IN"):
                left = self._among(left, is_not=False)
            elif self._takes("NOT", "IN"):
                left = self._among(left, is_not=True)
            elif sign in _SEARCHES:
                self._next += 1
                left = _searched(left, _SEARCHES[sign], self._text(), is_not=False)
            elif sign == "NOT" and self._tokens[self._next + 1].kind in _SEARCHES:
                self._next += 2
                search = _SEARCHES[self._tokens[self._next - 1].kind]
                left = _searched(left, search, self._text(), is_not=True)
            else:
                return left

    def _ordered(self, left: _Node, sign: str, right: _Node) -> _Node:
        for side in (left, right):
            if side.is_boolean or (side.constant is not None and not _is_number(side.constant[0])):
                self._refuse(f"a number or a property on both sides of {sign}")
        return _order(left.evaluate, _ORDERS[sign], right.evaluate)

    def _between(self, value: _Node, *, is_not: bool) -> _Node:
        low = self._unary()
        if not self._takes("AND"):
            self._refuse("AND after BETWEEN and a number")
        high = self._unary()
        above = self._ordered(value, "<" if is_not else ">=", low)
        below = self._ordered(value, ">" if is_not else "<=", high)
        if not is_not and low.constant and high.constant and _compared(high.constant[0], low.constant[0]) < 0:
            self._refuse("BETWEEN the smaller number AND the larger one")
        both = (above.evaluate, below.evaluate)

        def evaluate(values: _Values) -> _Value:
            first = both[0](values)
            if first is is_not:
                return is_not
            second = both[1](values)
            if second is is_not:
                return is_not
            return None if first is None or second is None else not is_not

        return _Node(evaluate, True)

    def _among(self, left: _Node, *, is_not: bool) -> _Node:
        if left.property is None:
            self._refuse("a property before IN")
        if not self._takes("("):
            self._refuse("( after IN")
        texts = {self._text()}
        while self._takes(","):
            texts.add(self._text())
        if not self._takes(")"):
            self._refuse(", or ) after a text in IN")
        evaluate = left.evaluate
        return _Node(lambda values: None if (v := evaluate(values)) is None else (v in texts) is not is_not, True)

    def _text(self) -> str:
        token = self._tokens[self._next]
        if token.kind != "text":
            self._refuse("a text in single quotes")
        self._next += 1
        return token.text[1:-1].replace("''", "'")

    def _unary(self) -> _Node:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ValueError(
                f"an expression of SQL92 with at most {_MOST_DEPTH} parentheses, NOT and signs in one another"
            )
        try:
            if self._takes("+"):
                return self._unary()
            if self._takes("-"):
                return _Node(_negated(self._unary().evaluate))
            if self._takes("NOT"):
                return _not(self._boolean(self._unary()))
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> _Node:
        token = self._tokens[self._next]
        if token.kind not in _PRIMARY:
            self._refuse("a property, a number, a text in single quotes, or (")
        if token.kind == "text":
            return _literal(self._text())
        self._next += 1
        if token.kind == "word":
            return self._property(token.text)
        if token.kind in _WORDS:
            return _WORDS[token.kind]
        if token.kind == "whole":
            return self._whole(int(token.text.rstrip("lL")) if len(token.text) < 25 else 1 << 63)
        if token.kind == "real":
            return self._real(float(token.text))
        inner = self._either()
        if not self._takes(")"):
            self._refuse(")")
        return inner

    def _property(self, name: str) -> _Node:
        number = self.names.setdefault(name, len(self.names))
        if number >= MOST_NAMES:
            raise ValueError(f"an expression of SQL92 about at most {MOST_NAMES} properties")
        return _Node(lambda values: values[number], property=number)

    def _whole(self, value: int) -> _Node:
        if value >= 1 << 63:
            self._next -= 1
            self._refuse("a whole number of 64 bits")
        return _literal(Int(value) if value < 1 << 31 else Long(value))

    def _real(self, value: float) -> _Node:
        if value == 0 or value == float("inf"):  # the broker refuses these, 0.0 too
            self._next -= 1
            self._refuse("a number with a point that is not 0, and not larger than 64 bits hold")
        return _literal(value)


def _literal(value: _Value) -> _Node:
    return _Node(lambda values: value, value is None or isinstance(value, bool), (value,))


_NULL = _literal(None)
_WORDS = {"TRUE": _literal(True), "FALSE": _literal(False), "NULL": _NULL}
_PRIMARY = {"text", "word", "whole", "real", "(", *_WORDS}
_ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}
_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, wanted: wanted in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _not(evaluate: _Evaluate) -> _Node:
    return _Node(lambda values: None if (value := evaluate(values)) is None else not value, True)


def _negated(evaluate: _Evaluate) -> _Evaluate:
    def negated(values: _Values) -> _Value:
        value = evaluate(values)
        return type(value)(-value) if _is_number(value) else None

    return negated


def _equal(left: _Node, right: _Node) -> _Node:
    one, other = left.evaluate, right.evaluate

    def evaluate(values: _Values) -> _Value:
        a, b = one(values), other(values)
        if a is None or b is None:
            return True if a is b else None if a is None else False
        return _compared(a, b) == 0

    return _Node(evaluate, True)


def _order(left: _Evaluate, holds: Callable[[int], bool], right: _Evaluate) -> _Node:
    def evaluate(values: _Values) -> _Value:
        if (a := left(values)) is None or (b := right(values)) is None:
            return None
        if isinstance(a, str) and isinstance(b, str):
            a, b = _double(a), _double(b)
        return holds(_compared(a, b))

    return _Node(evaluate, True)


def _searched(left: _Node, holds: Callable[[str, str], bool], wanted: str, *, is_not: bool) -> _Node:
    inner = left.evaluate

    def evaluate(values: _Values) -> _Value:
        value = inner(values) if wanted else None
        return isinstance(value, str) and holds(value, wanted) is not is_not

    return _Node(evaluate, True)


def _is_number(value: _Value) -> TypeGuard[Int | Long | float]:
    return isinstance(value, Int | Long | float)


def _compared(a: _Value, b: _Value) -> int:
    """Less than 0, 0 or more, as ComparisonExpression.__compare; -1 for what cannot be compared."""
    if type(a) is type(b):
        pass
    elif isinstance(a, str):
        a = a.lower() == "true" if isinstance(b, bool) else _number(a, b)
    elif isinstance(b, str):
        if isinstance(a, bool):
            raise _Fault  # the broker casts the wrong one of both
        b = _number(b, a)
    elif isinstance(a, bool) or isinstance(b, bool):
        return -1
    elif isinstance(a, float) or isinstance(b, float):
        a, b = float(a or 0), float(b or 0)
    if isinstance(a, float) and isinstance(b, float):
        return _order_of(_total(a), _total(b))
    return _order_of(a, b)


def _order_of(a: object, b: object) -> int:
    return 0 if a == b else -1 if a < b else 1  # type: ignore[operator]


def _total(value: float) -> tuple[int, float, int]:
    """For Double.compare: NaN equals itself and is the largest, and -0.0 is less than 0.0."""
    is_nan = value != value
    return is_nan, 0.0 if is_nan else value, 0 if value or is_nan else (1 if str(value)[0] != "-" else 0)


def _number(text: str, like: _Value) -> _Value:
    """A text as a number of the other one's type."""
    if isinstance(like, float):
        return _double(text)
    bits = 31 if isinstance(like, Int) else 63
    sign, digits = (-1, text[1:]) if text[:1] == "-" else (1, text[1:] if text[:1] == "+" else text)
    if not digits or len(digits) > 4096:
        raise _Fault
    value = 0
    for digit in digits:
        value = value * 10 + unicodedata.decimal(digit, -1) if unicodedata.decimal(digit, -1) >= 0 else 1 << 70
        if value > 1 << bits:
            raise _Fault
    if not -(1 << bits) <= sign * value < 1 << bits:
        raise _Fault
    return type(like)(sign * value) if isinstance(like, Int | Long) else None


def _double(text: str) -> float:
    """Double.valueOf."""
    text = text.strip("".join(map(chr, range(33))))
    if _DOUBLE.fullmatch(text):
        return float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    if found := _HEX_DOUBLE.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return float("-inf" if text[0] == "-" else "inf")
    raise _Fault
