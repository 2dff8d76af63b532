"""The texts of options that change what a copy has: where groups go on.

The parse functions raise a ValueError that says what was expected.
"""

import json
from typing import Any

from rmqstore_spark.errors import quoted
from rmqstore_spark.query.instants import Instant, parse_instant
from rmqstore_spark.query.option_values import Offsets, Word, parse_object, parse_stream_start

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
        if text.startswith("{") or text.lower() in ("earliest", "latest"):
            found = parse_stream_start(text)
            assert not hasattr(found, "group")
            return found
        return parse_instant(text)
    except ValueError as why:
        raise ValueError(f"for group {quoted(group)} {_PLACE} ({why!s:.300})") from None
