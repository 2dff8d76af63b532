"""What commands do with rows: show them, or write them to a file; and the exit code of those that look for messages."""

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

# What a table shows of messages if no columns are named: first what goes into 80 columns.
MESSAGE_COLUMNS = ["storeTimestamp", "topic", "keys", "body", "tags", "queueId", "queueOffset"]

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Output:
    """How rows are put out, as the options `--format`, `--output` and `--limit` say.

    Attributes:
        kind: the format; None where it is not given.
        path: the file; None: standard output.
        limit: the most rows; 0: all of them; None where it is not given.
    """

    kind: str | None
    path: str | None
    limit: int | None

    @property
    def is_table(self) -> bool:
        """Is it a table for people?"""
        return self.kind in (None, "table") and self.path is None

    def put(self, schema: pa.Schema, batches: Batches) -> int:
        """Show rows, or write them to a file.

        Returns:
            How many were written; of those that are shown, whether there are any.
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
    """The exit code of what looks for messages, and has had so many rows. Where there was none, that is said.

    Args:
        given: options that say what was looked for.
        damage: has heard of any where they might have been.
        what: was looked for, if it is not all that options say.
    """
    if rows:
        return FINE
    from rmqstore_spark.cli.reading import is_all_looked_at

    asked = [what] if what else []
    asked += [f"{name} {text!r}" for name, text in given.items() if name in going_with(Use.SELECT)]
    click.echo(one_line(f"nothing found{' with ' if asked else ''}{', '.join(asked)}"), err=True)
    return NOT_FOUND if not damage.is_lost and is_all_looked_at(paths, given) else NOT_ALL


class _Count:
    """How many rows went by."""

    rows = 0

    def of(self, batches: Batches) -> Batches:
        """The same batches, counted."""
        for batch in batches:
            self.rows += batch.num_rows
            yield batch
