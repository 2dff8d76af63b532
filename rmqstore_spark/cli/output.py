"""Rows of commands, shown or written to a file; and the exit code of commands that look for messages."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
import pyarrow as pa

from rmqstore_spark.cli import formats
from rmqstore_spark.cli.exit_codes import FINE, NOT_ALL, NOT_FOUND
from rmqstore_spark.cli.parameters import ROWS_SHOWN
from rmqstore_spark.errors import OptionError, counted, one_line
from rmqstore_spark.query.options import Use, going_with
from rmqstore_spark.read.run.told import Listener

# The columns of messages in a table if none are named; the first ones fit into a terminal of 80 columns.
MESSAGE_COLUMNS = ["storeTimestamp", "topic", "keys", "body", "tags", "queueId", "queueOffset"]

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Output:
    """How rows are shown or written, from the options `--format`, `--output` and `--limit`.

    Attributes:
        kind: the format; None if not given.
        path: the file; None for standard output.
        limit: the most rows; 0 for all rows; None if not given.
    """

    kind: str | None
    path: str | None
    limit: int | None

    @property
    def is_table(self) -> bool:
        """Are rows shown as a table for people?"""
        return self.kind in (None, "table") and self.path is None

    def put(self, schema: pa.Schema, batches: Batches) -> int:
        """Show rows, or write them to a file.

        Returns:
            The number of rows written. For a table for people, a number that is 0 only if there are no rows.
        """
        kind: Any = self.kind or ("table" if self.path is None else formats.format_of(self.path))
        if self.path is not None and kind == "table":
            raise OptionError("--output: a table is for people; give --format json, csv, parquet or arrow")
        if kind in ("parquet", "arrow") and self.path is None and sys.stdout.isatty():
            raise OptionError(f"--format {kind} is binary: give --output FILE, or pipe it to another program")
        count = _Count()
        if kind == "table":
            from rmqstore_spark.cli.screen import show_rows

            show_rows(schema, count.of(batches), ROWS_SHOWN if self.limit is None else self.limit or None)
            return count.rows
        some = count.of(first(batches, self.limit) if self.limit else batches)
        if self.path is None:
            write_out(kind, schema, some)
            return count.rows
        from rmqstore_spark.cli.output_file import output_file
        from rmqstore_spark.cli.progress_bar import progress_bars

        with output_file(self.path) as sink, progress_bars():
            formats.write(kind, schema, some, sink)
        click.echo(f"{one_line(self.path)} has {counted(count.rows, 'row')}", err=True)
        return count.rows


def write_out(kind: Any, schema: pa.Schema, batches: Batches) -> None:
    """Write rows to standard output, in a format for programs."""
    formats.write(kind, schema, batches, sys.stdout.buffer, is_terminal=sys.stdout.isatty())


def first(batches: Batches, limit: int) -> Batches:
    """The first rows."""
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= min(limit, batch.num_rows)
        if not limit:
            return


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
    from rmqstore_spark.cli.reading import is_all_looked_at

    asked = [what] if what else []
    asked += [f"{name} {text!r}" for name, text in given.items() if name in going_with(Use.SELECT)]
    click.echo(one_line(f"nothing found{' with ' if asked else ''}{', '.join(asked)}"), err=True)
    return NOT_FOUND if not damage.is_lost and is_all_looked_at(paths, given) else NOT_ALL


class _Count:
    """Counts the rows that pass through it."""

    rows = 0

    def of(self, batches: Batches) -> Batches:
        """The same batches; their rows are counted."""
        for batch in batches:
            self.rows += batch.num_rows
            yield batch
