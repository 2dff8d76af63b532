"""Option sql92 and the broker's own SqlFilter: 10,000 random expressions, each of random messages."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from support.patience import HANG

from interop.child import SMALL_JVM
from interop.rocketmq import NEWEST, runtime, usually
from rmqstore_spark.query.sql92 import Sql92

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

EXPRESSIONS, MESSAGES = 10_000, 60
NAMES = ["a", "b", "c1", "TAGS", "_x", "$y", "A", "missing"]
VALUES = [
    "1",
    "2",
    "-3",
    "1.5",
    "2.0",
    "1e3",
    "abc",
    "ab",
    "",
    "true",
    "FALSE",
    "null",
    "9" * 19,
    "0",
    " 1",
    "it's",
    "c",
]
NUMBERS = ["1", "2", "-3", "1.5", "2.0", "0", "-0", "100", "1e2", "9223372036854775807", "0x1F", "017", "5L", ".5"]
TEXTS = ["'abc'", "'ab'", "'1'", "''", "'it''s'", "'b'", "'true'"]
COMPARED = ["=", "<>", ">", ">=", "<", "<=", "!=", "=="]
WORDS = [
    "AND",
    "OR",
    "NOT",
    "IN",
    "(",
    ")",
    ",",
    "=",
    "a",
    "1",
    "'x'",
    "BETWEEN",
    "IS",
    "NULL",
    "+",
    "-",
    "CONTAINS",
    "TRUE",
]


def cased(rng: random.Random, word: str) -> str:
    return rng.choice([word, word, word.lower(), word.title()])


def operand(rng: random.Random) -> str:
    return rng.choice([rng.choice(NAMES), rng.choice(NAMES), rng.choice(NUMBERS), rng.choice(TEXTS)])


def condition(rng: random.Random) -> str:
    name, negated = rng.choice(NAMES), rng.choice(["", "", "NOT "])
    match rng.randrange(9):
        case 0 | 1 | 2:
            return f"{operand(rng)} {rng.choice(COMPARED)} {operand(rng)}"
        case 3:
            return f"{operand(rng)} {negated}{cased(rng, 'BETWEEN')} {rng.choice(NUMBERS)} AND {rng.choice(NUMBERS)}"
        case 4:
            return f"{name} {negated}{cased(rng, 'IN')} ({', '.join(rng.choices(TEXTS, k=rng.randint(1, 3)))})"
        case 5:
            return f"{operand(rng)} IS {negated}{cased(rng, 'NULL')}"
        case 6 | 7:
            word = rng.choice(["CONTAINS", "STARTSWITH", "ENDSWITH"])
            return f"{operand(rng)} {negated}{cased(rng, word)} {operand(rng)}"
        case _:
            return rng.choice([cased(rng, "TRUE"), cased(rng, "FALSE"), name, f"{name} = TRUE", f"TRUE = {name}"])


def expression(rng: random.Random, depth: int) -> str:
    match rng.randrange(6) if depth else 0:
        case 0 | 1:
            return condition(rng)
        case 2 | 3:
            word = cased(rng, rng.choice(["AND", "OR"]))
            return f"{expression(rng, depth - 1)} {word} {expression(rng, depth - 1)}"
        case 4:
            return f"({expression(rng, depth - 1)})"
        case _:
            return f"{cased(rng, 'NOT')} {expression(rng, depth - 1)}"


def spoiled(rng: random.Random, text: str) -> str:
    """With a word left out, or another in its place, or one more."""
    words = text.split(" ")
    at = rng.randrange(len(words))
    words[at : at + rng.randrange(2)] = rng.choices(WORDS, k=rng.randrange(2))
    return " ".join(words)


def drawn(rng: random.Random) -> str:
    text = expression(rng, rng.randrange(5))
    return spoiled(rng, text) if rng.random() < 0.3 else text


@pytest.mark.parametrize("version", usually(NEWEST))
def test_the_broker_says_the_same(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    messages = [
        {name: rng.choice(VALUES) for name in NAMES if name != "missing" and rng.random() < 0.7}
        for _ in range(MESSAGES)
    ]
    expressions = [drawn(rng) for _ in range(EXPRESSIONS)]
    lines = ["\t".join(["M", *(part for pair in message.items() for part in pair)]) for message in messages]
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    asked.write_text("\n".join([*lines, *(f"E\t{text}" for text in expressions)]))
    ran = runtime(version)
    command = [ran.java, *SMALL_JVM, "-cp", ran.broker, "interop.Judge", str(asked), str(answered)]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG)
    answers = answered.read_text().splitlines()
    wrong = []
    for text, answer in zip(expressions, answers, strict=True):
        found = judged(text, messages)
        if found == "R" != answer:  # the broker ignores what follows after the end of an expression
            parts = (judged(text[:size], messages) for size in range(len(text) - 1, 0, -1))
            found = next((part for part in parts if part != "R"), "R")
        if found != answer.replace("N", "F").replace("E", "F"):
            wrong.append((text, found, answer))
    assert wrong == []
    assert EXPRESSIONS // 10 < answers.count("R") < EXPRESSIONS * 3 // 4
    assert sum(len(set(answer)) > 1 for answer in answers) > EXPRESSIONS // 10


def judged(text: str, messages: list[dict[str, str]]) -> str:
    """R where the expression is refused, else T or F for each message."""
    try:
        parsed = Sql92(text)
    except ValueError:
        return "R"
    judge = parsed.judge()
    return "".join("FT"[judge([message.get(name) for name in parsed.names])] for message in messages)
