"""One message for people: all of its columns, and its body."""

import contextlib
import json
from typing import Any

from rich.console import Console
from rich.text import Text

from rmqstore_spark.errors import one_line

# Width of the labels: two more than the longest name, reconsumeTimes.
_LABEL = 16
_MOST_BODY = 16 * 1024
_BYTES_A_LINE = 16
_SEPARATORS = ((",", ":"), (", ", ": "))  # as programs usually write JSON
_PLACES = {"topic", "queueId", "queueOffset", "storeTimestamp", "storeHost", "commitLogOffset", "storeSize"}
_PLACES |= {"bornTimestamp", "bornHost", "properties", "body", "store", "file"}


def show_message(out: Console, row: dict[str, Any]) -> None:
    """Show a message: a row with all columns and `store`, times as text."""
    _say(out, "topic", f"{row['topic']}, queue {row['queueId']}, offset {row['queueOffset']}")
    _say(out, "stored", f"{row['storeTimestamp']} UTC by {row['storeHost']}")
    _say(out, "born", f"{row['bornTimestamp']} UTC at {row['bornHost']}")
    _say(out, "in the log", f"commitLogOffset {row['commitLogOffset']}, {row['storeSize']} bytes, store {row['store']}")
    for name, value in row.items():
        if name not in _PLACES and value is not None and value != 0:
            _say(out, name, value)
    for number, (name, value) in enumerate((row["properties"] or {}).items()):
        _say(out, "" if number else "properties", f"{name} = {value}")
    body = row["body"] or b""
    _say(out, "body", f"{len(body):,} bytes")
    for line in _body_lines(body[:_MOST_BODY]):
        out.print(Text("  " + line), soft_wrap=True)
    if len(body) > _MOST_BODY:
        out.print(Text(f"  ... and {len(body) - _MOST_BODY:,} bytes more (--format json has all)"), soft_wrap=True)


def _say(out: Console, label: str, value: object) -> None:
    out.print(Text.assemble((label.ljust(_LABEL), "bold"), one_line(value)), soft_wrap=True)


def _body_lines(body: bytes) -> list[str]:
    """The lines of a body: text as it is, other bytes in hexadecimal. JSON gets a line for each member, unless
    that would change more than white space: where a name comes twice, or Python would write a number otherwise."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return [_hex_line(body, at) for at in range(0, len(body), _BYTES_A_LINE)]
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        if text in (json.dumps(value, ensure_ascii=False, separators=each) for each in _SEPARATORS):
            text = json.dumps(value, indent=2, ensure_ascii=False)
    return [one_line(line) for line in text.split("\n")]


def _hex_line(body: bytes, at: int) -> str:
    part = body[at : at + _BYTES_A_LINE]
    text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
    return f"{at:08x}  {part.hex(' ').ljust(3 * _BYTES_A_LINE)} {text}"
