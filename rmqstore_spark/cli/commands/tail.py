"""`rmqstore tail`: the last messages, and new ones as they come."""

import itertools
import sys
from dataclasses import replace

import click

from rmqstore_spark.cli.bodies import with_bodies
from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.output import MESSAGE_COLUMNS, Output, found_code
from rmqstore_spark.cli.parameters import LAST_SHOWN, body_options, one_path, options_for, output_options
from rmqstore_spark.errors import OptionError
from rmqstore_spark.query.options import Use
from rmqstore_spark.read.run.damage_reports import listening

_ALL = 1 << 62


@command(
    [
        one_path(),
        click.Option(["--follow", "-f"], is_flag=True, help="go on with those that come, until Ctrl-C"),
        *options_for(Use.TAIL),
        *output_options(str(LAST_SHOWN), "the most rows, the last ones of those that are there"),
        *body_options(),
    ],
    f"The last messages, {LAST_SHOWN} of them unless --limit says else. With --follow also those that come, or "
    "with --starting-offsets all from there on.",
    "/data/store --subscribe Orders -n 3",
)
def tail(path: str, follow: bool, output: Output, given: dict[str, str]) -> int:
    from rmqstore_spark.cli.reading import last_batches

    if output.is_table:
        given.setdefault("columns", ",".join(MESSAGE_COLUMNS))
    count = LAST_SHOWN if output.limit is None else output.limit or _ALL
    if follow:
        return _follow(path, given, count, output)
    with listening() as damage:
        rows = replace(output, limit=0).put(*last_batches(path, given, count))
    return found_code(rows, [path], given, damage)


def _follow(path: str, given: dict[str, str], count: int, output: Output) -> int:
    from rmqstore_spark.cli.base64_columns import Base64Columns
    from rmqstore_spark.cli.following import followed

    if output.path is not None or output.kind in ("parquet", "arrow"):
        raise OptionError(
            "--follow: output without an end cannot be such a file; give --format json or csv, and no --output"
        )
    if output.sort is not None:
        raise OptionError("--follow: what has no end has no order; leave --sort out")
    asked = Base64Columns(given)
    last, coming = followed(path, asked.given, count, output.limit is not None)
    schema, batches = asked.of(last.schema, itertools.chain(last.to_batches(), coming))
    if output.is_table:
        from rmqstore_spark.cli.screen import show_rows

        schema, batches = with_bodies(schema, batches, output.body or "")
        show_rows(schema, batches, None, measured=max(1, last.num_rows), is_wide=output.is_wide)
    else:
        output.write(output.kind, schema, batches, sys.stdout.buffer, is_terminal=sys.stdout.isatty())
    return FINE
