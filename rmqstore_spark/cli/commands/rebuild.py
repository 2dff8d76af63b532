"""`rmqstore rebuild`: ConsumeQueue and IndexFile anew. This changes a store."""

import click

import rmqstore_spark
from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.parameters import one_path, options_for
from rmqstore_spark.errors import counted
from rmqstore_spark.query.options import WRITE_OPTIONS, Use


@command(
    [one_path(), *options_for(Use.REBUILD, WRITE_OPTIONS)],
    "Make ConsumeQueue and IndexFile anew from the commitlog. No broker may run on the store; the commitlog is "
    "only read.",
    "/data/store",
)
def rebuild(path: str, given: dict[str, str]) -> int:
    from rmqstore_spark.cli.progress_bar import progress_bars

    with progress_bars():
        count = rmqstore_spark.rebuild(path, **given)
    click.echo(f"the queues have {counted(count, 'message')}")
    return FINE
