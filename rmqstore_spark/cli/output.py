"""Rows of commands, shown or written to a file; and the exit code of commands that look for messages."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import click
import pyarrow as pa

from rmqstore_spark.cli import formats
from rmqstore_spark.cli.bodies import with_bodies
from rmqstore_spark.cli.exit_codes import FINE, NOT_ALL, NOT_FOUND
from rmqstore_spark.cli.parameters import ROWS_SHOWN
from rmqstore_spark.cli.template import Template
from rmqstore_spark.errors import OptionError, counted, one_line
from rmqstore_spark.query.options import Use, check_columns, going_with
from rmqstore_spark.read.run.damage_reports import Listener
from rmqstore_spark.sorting import first, in_order

# The columns of messages in a table if none are named; the first ones fit into a terminal of 80 columns.
MESSAGE_COLUMNS = ["storeTimestamp", "topic", "keys", "body", "tags", "queueId", "queueOffset"]

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Output:
    """How rows are shown or written, from the options that output_options() makes.

    Large because each field is an option.

    Attributes:
        kind: the format; None if not given.
        path: the file; None for standard output.
        limit: the most rows; 0 for all rows; None if not given.
        sort: the columns to sort by, comma-separated, a `-` before those whose greatest value comes first; None: the
            order in which rows are found.
        is_wide: whether a table for people is as wide as its rows need.
        is_forced: whether an existing file may be replaced.
        parts: the columns whose values are directories below `path`; None: it is one file.
        body: how bodies are shown or written, one of bodies.FORMS; None: as each format has bytes.
        template: what each row becomes instead; None: a format has them.
    """

    kind: str | None = None
    path: str | None = None
    limit: int | None = None
    sort: str | None = None
    is_wide: bool = False
    is_forced: bool = False
    parts: list[str] | None = None
    body: str | None = None
    template: Template | None = None

    @property
    def is_table(self) -> bool:
        """Are rows shown as a table for people?"""
        return self.kind in (None, "table") and self.path is None and self.template is None

    @property
    def most_shown(self) -> int | None:
        """The most rows of a table for people; None: all."""
        return ROWS_SHOWN if self.limit is None else self.limit or None

    def put(self, schema: pa.Schema, batches: Batches, last: str | None = None, width: int | None = None) -> int:
        """Show rows, or write them to a file.

        Args:
            last, width: as of show_rows().

        Returns:
            The number of rows written. For a table for people, a number that is 0 only if there are no rows.
        """
        kind: Any = self.kind or ("template" if self.template is not None else None)
        if self.parts is not None:
            if self.path is None or kind not in (None, "parquet"):
                raise OptionError("--partition-by: give --output DIRECTORY, and no --format but parquet")
            kind = "parquet"
        kind = kind or ("table" if self.path is None else formats.format_of(self.path))
        if self.path is not None and kind == "table":
            raise OptionError("--output: a table is for people; give --format json, csv, parquet or arrow")
        if kind in ("parquet", "arrow") and self.path is None and sys.stdout.isatty():
            raise OptionError(f"--format {kind} is binary: give --output FILE, or pipe it to another program")
        count = _Count()
        most = self.most_shown if kind == "table" else self.limit or None
        if self.sort is not None:
            # One more than are shown, so that a table says that there are more.
            batches = sorted_by(schema, batches, self.sort, None if most is None else most + 1)
        if kind == "table":
            from rmqstore_spark.cli.screen import show_rows

            schema, batches = with_bodies(schema, batches, self.body or "")
            show_rows(schema, count.of(batches), most, is_wide=self.is_wide, last=last, width=width)
            return count.rows
        some = count.of(first(batches, most))
        if self.path is None:
            self.write(kind, schema, some, sys.stdout.buffer, is_terminal=sys.stdout.isatty())
            return count.rows
        from rmqstore_spark.cli.output_file import output_file
        from rmqstore_spark.cli.progress_bar import progress_bars

        if self.parts is not None:
            from rmqstore_spark.cli import partitioned

            with progress_bars():
                partitioned.write(*with_bodies(schema, some, self.body or ""), self.path, self.parts)
            click.echo(f"{one_line(self.path)} has {counted(count.rows, 'row')}", err=True)
            return count.rows
        with output_file(self.path, self.is_forced) as sink, progress_bars():
            self.write(kind, schema, some, sink)
        click.echo(f"{one_line(self.path)} has {counted(count.rows, 'row')}", err=True)
        return count.rows

    def write(
        self, kind: Any, schema: pa.Schema, batches: Batches, sink: IO[bytes], *, is_terminal: bool = False
    ) -> None:
        """Write rows in a format for programs, or by the template."""
        if self.template is not None:
            self.template.write(batches, sink, is_terminal)
        else:
            is_stream = self.path is None
            formats.write(kind, schema, batches, sink, is_terminal=is_terminal, is_stream=is_stream, body=self.body)


def sorted_by(schema: pa.Schema, batches: Batches, columns: str, most: int | None = None) -> Batches:
    """The rows in the order of some columns, up to `most`.

    Args:
        columns: as Output.sort.

    Raises:
        OptionError: there is no such column, or it has no order.
    """
    keys = [_sort_key(schema, name.strip()) for name in columns.split(",")]
    return in_order(schema, batches, keys, most)


def _sort_key(schema: pa.Schema, text: str) -> tuple[str, str]:
    name = text.removeprefix("-")
    check_columns([name], schema.names)
    if pa.types.is_nested(schema.field(name).type):
        raise OptionError(f"--sort {text}: this column has no order; name another one")
    return name, "descending" if text.startswith("-") else "ascending"


def found_code(rows: int, paths: Sequence[str], given: dict[str, str], damage: Listener, what: str = "") -> int:
    """The exit code of a command that looked for messages. If there were none, standard error says so.

    Args:
        rows: the number of rows found.
        given: the options that selected messages.
        damage: has heard of damage that may have hidden messages.
        what: what was looked for, if not what the options say.
    """
    if rows:
        return FINE
    from rmqstore_spark.cli.reading import searched

    looked = searched(paths, given)
    unseen = [*(["what is damaged"] if damage.is_lost else []), *looked.unseen]
    less = f"; not looked at: {', '.join(unseen)}" if unseen else ""
    click.echo(one_line(f"nothing found{with_options(given, what)} in {looked.text}{less}"), err=True)
    return NOT_ALL if unseen else NOT_FOUND


def code_after(damage: Listener, paths: Sequence[str], what: str = "") -> int:
    """The exit code of a command that showed rows: NOT_ALL where it has heard of damage, and standard error says which
    command tells more.

    Args:
        what: what became of the rows.
    """
    if not damage.is_lost:
        return FINE
    more = f"to see what is lost: rmqstore check {' '.join(map(shlex.quote, paths))}"
    click.echo(one_line(f"{what}; {more}" if what else more), err=True)
    return NOT_ALL


def with_options(given: dict[str, str], what: str = "") -> str:
    """What was looked for, in words: " with key 'order-1'"; empty if it was everything.

    Args:
        what: what was looked for besides the options that select.
    """
    asked = [what] if what else []
    asked += [f"{name} {text!r}" for name, text in given.items() if name in going_with(Use.SELECT)]
    return f" with {', '.join(asked)}" if asked else ""


def say_nothing(given: dict[str, str], paths: Sequence[str], row: str, what: str = "") -> None:
    """Say that a table has no row, with what was looked for and where.

    Args:
        row: what a row of the table is.
        what: as of with_options().
    """
    click.echo(one_line(f"nothing found{with_options(given, what)} in {', '.join(paths)}: a row is {row}"), err=True)


class _Count:
    """Counts the rows that pass through it."""

    rows = 0

    def of(self, batches: Batches) -> Batches:
        """The same batches; their rows are counted."""
        for batch in batches:
            self.rows += batch.num_rows
            yield batch
