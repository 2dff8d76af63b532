"""Rows as a table for people: as wide as the terminal, hostile names escaped, colours only at a terminal."""

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from rmqstore_spark.cli.rows import few_at_once, rows_of
from rmqstore_spark.errors import one_line

_WIDE = 10_000  # the width where no terminal limits it
_LEAST_OF_FIRST, _LEAST = 24, 16  # the narrowest columns of text: the first column, which names the row, and others
_EASY = 40  # cells with which a name, or half of another text, is enough, before there are more columns
RIGHT, WHOLE = {"screen": "right"}, {"screen": "whole"}  # metadata of texts that are not cut, as numbers are not
_MOST_OF_PATH = 40  # cells that a path gets before other columns
_MOST_LINES = 4  # of a text in the last column
_LONGEST = 200  # characters of a text that are shown
_ROWS_MEASURED = 1000
SPACE = 2  # between columns
_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # main.py handles it; rich would exit with 1


def console(piped_width: int = _WIDE) -> Console:
    """Standard output: in colour and as wide as the terminal; plain text where there is no terminal."""
    if sys.stdout.isatty():
        return _Output(highlight=False)
    return _Output(highlight=False, width=piped_width, color_system=None)


def screen_width(is_wide: bool = False) -> int:
    """The cells of a line of rows; of a very long one where no terminal limits it."""
    return _WIDE if is_wide else console().width


def show_rows(
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    limit: int | None,
    measured: int = _ROWS_MEASURED,
    is_wide: bool = False,
    last: str | None = None,
    width: int | None = None,
) -> None:
    """Show at most `limit` rows, and say whether there are more. The first rows determine the widths of columns. A text
    in the last column that does not fit goes on below itself.

    Args:
        measured: the number of first rows that determine widths, where there is no limit.
        is_wide: whether lines may be longer than the terminal is wide.
        last: the column of text that comes last where they may not, so that all of it is shown; others are left out.
        width: the cells of a line that the rows were made for; None: screen_width().
    """
    names = schema.names
    if last is not None and not is_wide:
        schema = pa.schema([schema.field(name) for name in names[: names.index(last) + 1]])
    rows = _rows(batches)
    first = list(itertools.islice(rows, measured if limit is None else limit))
    if not first:
        return
    out = console()
    widths = _fitting(schema, first, screen_width(is_wide) if width is None else width, last)
    is_right = {name: _is_right(schema.field(name)) for name in widths}

    *_, lowest = widths
    indent = " " * (sum(widths.values()) + SPACE * (len(widths) - 1) - widths[lowest])

    def show(row: dict[str, Any], style: str = "") -> None:
        line = Text(style=style)
        below: list[str] = []
        for name, width in widths.items():
            text = cell(row[name])
            shown = text.rjust(width) if is_right[name] else text
            if name == lowest:
                shown, *below = _in_lines(shown, width)
            line.append(_sized(shown, width), _STYLES.get(text, ""))
            line.append(" " * SPACE)
        line.rstrip()
        out.print(line, soft_wrap=True)
        for text in below:
            out.print(Text(f"{indent}{text}", style), soft_wrap=True)

    show({name: name for name in widths}, "bold")
    rule = "-" if out.options.ascii_only else "─"
    out.print(rule * (sum(widths.values()) + SPACE * (len(widths) - 1)), soft_wrap=True)
    for row in first:
        show(row)
    for row in rows if limit is None else ():
        show(row)
    if left_out := [name for name in names if name not in widths]:
        _say(out, f"not shown: {', '.join(left_out)} (--wide shows all)")
    if limit is not None and next(rows, None) is not None:
        rows_shown = f"{len(first):,} rows" if len(first) > 1 else "row"
        _say(out, f"the first {rows_shown}; --limit 0 shows all")


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in few_at_once(batches):
        yield from rows_of(batch, is_for_people=True)


def _sized(text: str, width: int) -> str:
    """The text made this many cells wide, with a mark where it was cut: in the middle, as many names begin alike, and
    before a slash of a path."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    if text.startswith("/") or "://" in text:  # a path: its last parts
        parts = text.split("/")
        ends = ("…/" + "/".join(parts[at:]) for at in range(1, len(parts)))
        if (end := next((end for end in ends if cell_len(end) <= width), None)) is not None:
            return set_cell_size(end, width)
    at_end = (width - 1) // 2
    end = text[-at_end:] if at_end else ""
    while cell_len(end) > at_end:  # wide characters
        end = end[1:]
    return set_cell_size(text, width - 1 - cell_len(end)) + "…" + end


def shortened(text: str, most: int) -> str:
    """The text in at most this many cells, with its middle cut out where it is longer."""
    return text if cell_len(text) <= most else _sized(text, most)


def _say(out: Console, text: str) -> None:
    """Say something about rows on standard error, in lines as wide as the rows."""
    for line in _in_lines(text, out.width, len(text)):
        print(line, file=sys.stderr)


def print_indented(out: Console, text: str, style: str = "", indent: int = SPACE) -> None:
    """Print a line behind two spaces; at a terminal in several ones, where it is longer, each behind two spaces."""
    width = max(_LEAST, out.width - indent) if out.is_terminal else len(text) + 1
    for line in _in_lines(text, width, len(text)):
        out.print(Text(f"{' ' * indent}{line}", style), soft_wrap=True)


def _in_lines(text: str, width: int, most: int = _MOST_LINES) -> list[str]:
    """The text in lines of at most this many cells: at spaces, and paths before their slashes, where there are any.

    Args:
        most: the most lines.
    """
    lines: list[str] = []
    while cell_len(text) > width and len(lines) < most - 1:
        at = min(len(text), width)
        while cell_len(text[:at]) > width and at > 1:  # a wide character has two cells
            at -= 1
        space = text.rfind(" ", 0, at + 1)
        word = text[space + 1 :].partition(" ")[0]
        slash = text.rfind("/", space + 2, at + 1) if word.startswith("/") or "://" in word else -1
        end = max(space, slash)
        at = end if end > at // 3 else at
        lines.append(text[:at].rstrip())
        text = text[at:].lstrip()
    return [*lines, _sized(text, width).rstrip() if cell_len(text) > width else text]


def width_before(table: pa.Table, most: int) -> int:
    """The cells of a line of so many that a table's columns take before another one, where that one needs space."""
    _, _, easy = _wanted(table.schema, list(_rows(iter(table.slice(0, _ROWS_MEASURED).to_batches()))), most)
    return sum(width + SPACE for width in easy.values())


def _wanted(schema: pa.Schema, rows: list[dict[str, Any]], most: int) -> tuple[dict[str, int], ...]:
    """The cells that each column needs to be whole, those that it has at least, and those that are enough for it."""
    needed = {name: max(cell_len(name), *(cell_len(cell(row[name])) for row in rows)) for name in schema.names}
    texts = [field.name for field in schema if not _is_fixed(field)]
    tight, easy = dict(needed), dict(needed)
    for name in texts:
        is_name = name == schema.names[0]
        least = max(_LEAST_OF_FIRST if is_name else _LEAST, *(_end_of_path(row[name]) for row in rows))
        tight[name] = min(needed[name], max(len(name), least))
        enough = min(_EASY, most // 3, needed[name] if is_name else needed[name] // 2)
        easy[name] = min(needed[name], max(tight[name], enough))
    return needed, tight, easy


def _fitting(schema: pa.Schema, rows: list[dict[str, Any]], most: int, last: str | None) -> dict[str, int]:
    """The widths of the columns that fit. Texts are cut before columns are left out, first those without any value.

    Args:
        last: the last column, which stays; None: the last ones are left out.
    """
    needed, tight, easy = _wanted(schema, rows, most)  # the last column, which may go on below itself, needs less
    names = list(schema.names)
    while len(names) > 1 and sum(easy[name] + SPACE for name in names[:-1]) + tight[names[-1]] > most:
        empty = [name for name in names[1:] if name != last and not any(cell(row[name]) for row in rows)]
        names.remove(empty[-1] if empty else names[-1 if last is None or len(names) == 2 else -2])
    least_of = {name: easy[name] for name in names[:-1]} | {names[-1]: tight[names[-1]]}
    room = most - sum(least_of[name] + SPACE for name in names) + SPACE
    widths = {}
    for name in sorted(names, key=lambda name: needed[name] - least_of[name]):  # the narrowest get the width they need
        others = sum(needed[other] > least_of[other] for other in names if other not in widths)
        more = min(needed[name] - least_of[name], max(0, room) // max(1, others))
        widths[name] = min(least_of[name] + more, most)
        room -= more
    return {name: widths[name] for name in names}


def _end_of_path(value: Any) -> int:
    """The cells that the last part of a path takes, with what stands for the others; 0 for what is no path."""
    is_path = isinstance(value, str) and (value.startswith("/") or "://" in value)
    return min(_MOST_OF_PATH, cell_len("…/") + cell_len(one_line(value).rpartition("/")[2])) if is_path else 0


def _is_right(field: pa.Field) -> bool:
    """Does a column stand at the right?"""
    return _is_number(field.type) or _on_screen(field) == b"right"


def _on_screen(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(b"screen")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_fixed(field: pa.Field) -> bool:
    """Is a part of a value worse than no value?"""
    return _is_number(field.type) or bool(pa.types.is_timestamp(field.type)) or _on_screen(field) is not None


def cell(value: Any) -> str:
    """A value for people, in one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        value = value[: 4 * _LONGEST].decode(errors="backslashreplace")  # a character has up to four bytes
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    if isinstance(value, dict):
        value = ", ".join(f"{name}={each}" for name, each in value.items())
    text = one_line(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
