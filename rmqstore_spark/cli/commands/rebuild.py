"""`rmqstore rebuild`: ConsumeQueue and IndexFile anew, or config/. This changes a store."""

import click

import rmqstore_spark
from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE, WRONG
from rmqstore_spark.cli.output import Output
from rmqstore_spark.cli.parameters import one_path, options_for, output_options
from rmqstore_spark.errors import counted, one_line
from rmqstore_spark.query.options import WRITE_OPTIONS, Use


@command(
    [
        one_path(),
        *options_for(Use.REBUILD, WRITE_OPTIONS),
        click.Option(
            ["--config"],
            is_flag=True,
            help="make config/ anew instead, where files are broken or lack topics: from their backups (.bak), else "
            "from what offsets, queues and the log say; shown is what is from where",
        ),
        click.Option(["--dry-run"], is_flag=True, help="with --config: change nothing"),
        *output_options(),
    ],
    "Make ConsumeQueue and IndexFile anew from the commitlog, or config/. No broker may run on the store; the "
    "commitlog is only read. With --config, exit code 1: something could not be known (source nowhere).",
    "/data/store",
)
def rebuild(path: str, config: bool, dry_run: bool, output: Output, given: dict[str, str]) -> int:
    from rmqstore_spark.cli.progress_bar import progress_bars

    if config:
        return _rebuild_config(path, dry_run, output, given)
    if dry_run or not output.is_table:
        raise click.UsageError("--dry-run, --format and --output go with --config: give that, or leave them out")
    with progress_bars():
        count = rmqstore_spark.rebuild(path, **given)
    click.echo(f"the queues have {counted(count, 'message')}")
    return FINE


def _rebuild_config(path: str, dry_run: bool, output: Output, given: dict[str, str]) -> int:
    from rmqstore_spark.api import Store
    from rmqstore_spark.cli.progress_bar import progress_bars
    from rmqstore_spark.jobs.rebuild_config import NOWHERE

    if given:
        raise click.UsageError(f"--config makes no queues and no index: leave out {', '.join(given)}")
    with progress_bars():
        found = Store(path).rebuild_config(dry_run=dry_run)
    output.put(found.schema, iter(found.to_batches()))
    if not len(found):
        click.echo(one_line(f"{path} has no files in config/, and no topic or group that they could have"), err=True)
    if dry_run:
        click.echo("nothing was changed", err=True)
    return WRONG if NOWHERE in found.column("source").to_pylist() else FINE
