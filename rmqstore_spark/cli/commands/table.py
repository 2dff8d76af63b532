"""`rmqstore TABLE`: a command for each table."""

from collections.abc import Sequence

import click

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.output import Output
from rmqstore_spark.cli.parameters import output_options, some_paths, table_options
from rmqstore_spark.tables.registry import table


def table_command(name: str) -> click.Command:
    """The command that shows a table."""
    found = table(name)

    def show(paths: Sequence[str], output: Output, given: dict[str, str]) -> int:
        from rmqstore_spark.cli.reading import batches_of

        if not output.put(*batches_of(name, paths, given)):
            click.echo("nothing found", err=True)
        return FINE

    return command(
        [some_paths(), *table_options(found), *output_options()],
        f"One row is {found.row}. Its columns: {', '.join(found.schema.names)}.",
        "/data/store --format json",
        name,
    )(show)
