"""The texts of options that change what a copy has: where groups go on, and which messages stay behind.

The parse functions raise a ValueError that says what was expected.
"""

import json
from typing import Any

from rmqstore_spark.errors import quoted
from rmqstore_spark.query.instants import Instant, parse_instant
from rmqstore_spark.query.option_texts import refuse_no_text
from rmqstore_spark.query.option_values import WORDS, Offsets, Word, parse_object, parse_offsets, parse_properties

# Where a consumer group goes on: a word or a time in all queues of the topics that it consumes, or offsets of queues.
Start = Word | Instant | Offsets

_PLACE = 'earliest, latest, a time, or JSON such as {"topic": {"0": 17}}'


def parse_group_offsets(text: str) -> dict[str, Start]:
    """`groupOffset`: GROUP=PLACE for one group, or JSON with the place of each."""
    expected = f'GROUP=PLACE, or JSON such as {{"GROUP": PLACE}}, where a PLACE is {_PLACE}'
    group, equals, place = text.partition("=")
    is_one = equals and not text.lstrip().startswith("{")
    found = {group: place} if is_one else parse_object(text, expected)
    if not found or "" in found:
        raise ValueError(expected)
    return {name: _place(name, value) for name, value in found.items()}


def _place(group: str, value: Any) -> Start:
    """One group's place."""
    text = (value if isinstance(value, str) else json.dumps(value)).strip().removeprefix("@")
    try:
        if (word := text.lower()) in WORDS:
            return word
        return parse_offsets(text, WORDS, "offsets of queues,") if text.startswith("{") else parse_instant(text)
    except ValueError as why:
        raise ValueError(f"for group {quoted(group)} {_PLACE} ({why!s:.300})") from None


def parse_texts(text: str) -> tuple[str, ...]:
    """`excludeKey`, `excludeMsgId`: one text, or a JSON list of texts; each counts once."""
    texts = _listed(text) or [text]
    refuse_no_text("".join(texts))
    if not all(texts):
        raise ValueError("a text that is not empty, or a JSON list of such texts")
    return tuple(dict.fromkeys(texts))


def parse_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """`excludeProperty`: NAME=VALUE, or a JSON list of such texts."""
    return tuple(dict.fromkeys(pair for each in parse_texts(text) for pair in parse_properties(each)))


def _listed(text: str) -> list[str] | None:
    """The texts of a JSON list; None for any other text."""
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and found and all(isinstance(each, str) for each in found) else None
