"""`rmqstore import`: rows from a file or a pipe, appended to a store. This changes a store."""

from typing import get_args

import click

from rmqstore_spark.cli import formats
from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.completion import directories, files
from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.parameters import options_for
from rmqstore_spark.errors import counted
from rmqstore_spark.query.options import WRITE_OPTIONS, Use
from rmqstore_spark.writing import WriteMode


@command(
    [
        click.Argument(["path"], metavar="STORE", shell_complete=directories),
        click.Argument(["file"], metavar="FILE|-", shell_complete=files),
        click.Option(
            ["--format", "kind"],
            type=click.Choice([*formats.FORMATS], case_sensitive=False),
            callback=lambda ctx, parameter, name: formats.FORMATS.get(name),
            help="what FILE is. [default: what its name says, or its first bytes]",
        ),
        click.Option(
            ["--mode"],
            type=click.Choice(get_args(WriteMode)),
            default="append",
            show_default=True,
            help="append to the messages of the store, or replace all of it",
        ),
        *options_for(Use.WRITE | Use.CALL, WRITE_OPTIONS),
    ],
    "Append messages from a file, or from standard input (-), to a store; a new one is made. All of them or "
    "none. No broker may run on the store. FILE has the columns of messages, as --format json, csv, parquet and arrow "
    "write them: topic and body (or bodyBase64) at least. Columns that say where a message was stored are ignored.",
    "/data/store orders.parquet --topic Orders",
    name="import",
)
def import_(path: str, file: str, kind: formats.Format | None, mode: WriteMode, given: dict[str, str]) -> int:
    from rmqstore_spark.api import write_store
    from rmqstore_spark.cli.incoming import incoming_rows
    from rmqstore_spark.cli.progress_bar import progress_bars

    with incoming_rows(file, kind) as batches, progress_bars():
        written = write_store(path, batches, mode, **given)
    click.echo(f"{path} has {counted(written, 'new message')}", err=True)
    return FINE
