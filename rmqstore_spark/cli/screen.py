"""Rows as a table for people: as wide as the terminal, hostile names escaped, no colour where nobody sees it."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmqstore_spark.errors import one_line

_WIDE = 10_000  # where no terminal limits it
_LEAST = 12  # so narrow may a column of text get
_LONGEST = 200  # so much of a text is shown
_SPACE = 2  # between columns
_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def console() -> Console:
    """Standard output, as wide as the terminal; as wide as it takes where it is none."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=_WIDE, color_system=None)


def width() -> int | None:
    """The columns of the terminal; None where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show_rows(schema: pa.Schema, batches: Iterator[pa.RecordBatch], limit: int | None) -> None:
    """Show the first rows, and say whether there are more."""
    rows: list[dict[str, Any]] = []
    is_more = False
    for batch in batches:
        some = batch.to_pylist()
        room = len(some) if limit is None else limit - len(rows)
        rows += some[:room]
        if len(some) > room:
            is_more = True
            break
    out = console()
    if not rows:
        print("nothing found", file=sys.stderr)
        return
    names, left_out = _fitting(schema, rows, width())
    table = Table(box=box.SIMPLE_HEAD, padding=(0, _SPACE, 0, 0), pad_edge=False, show_edge=False)
    for name in names:
        field = schema.field(name)
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(cell(row[name]), _STYLES.get(str(row[name]), "")) for name in names))
    out.print(table)
    if left_out:
        print(f"not shown: {', '.join(left_out)} (--columns names columns, --format json has all)", file=sys.stderr)
    if is_more:
        print(f"the first {len(rows):,} rows; --limit 0 shows all", file=sys.stderr)


def _fitting(schema: pa.Schema, rows: Sequence[dict[str, Any]], most: int | None) -> tuple[list[str], list[str]]:
    """The columns that have a place, at least as wide as they need to be; and the rest."""
    names: list[str] = []
    left_out: list[str] = []
    used = 0
    for field in schema:
        needed = max(len(field.name), *(len(cell(row[field.name])) for row in rows))
        if not (pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)):
            needed = min(needed, max(_LEAST, len(field.name)))
        used += needed + _SPACE
        (left_out if most is not None and names and used - _SPACE > most else names).append(field.name)
    return names, left_out


def cell(value: Any) -> str:
    """A value as people read it, in one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}"
    if isinstance(value, bytes):
        value = value[:_LONGEST].decode(errors="backslashreplace")
    if isinstance(value, list):
        value = ", ".join(f"{each[0]}={each[1]}" if isinstance(each, tuple) else str(each) for each in value)
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False)
    text = one_line(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
