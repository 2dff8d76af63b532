"""`rmqstore set-offsets`: consumer groups go on at another place. This changes a store."""

import click

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.output import Output
from rmqstore_spark.cli.parameters import one_path, options_for, output_options
from rmqstore_spark.errors import counted
from rmqstore_spark.query.options import COPY_OPTIONS, Use


@command(
    [
        one_path(),
        *options_for(Use.OFFSETS, COPY_OPTIONS),
        click.Option(
            ["--dry-run"], is_flag=True, help="change nothing: show the offsets and the messages between them"
        ),
        *output_options(),
    ],
    "Let consumer groups go on at another place, in a store on which no broker runs. Shown are, for each queue, the "
    "old offset and the new one, and how many messages between them come again or are skipped. A group's retry topic "
    "stays as it is, unless its queues are named. A store with offsets or queues in RocksDB, or of a DLedger node, is "
    "not changed: copy it with the same option (--dry-run shows what the copy would have).",
    "/data/store --group-offset billing=2026-01-31T12:00 --dry-run",
    name="set-offsets",
)
def set_offsets(path: str, dry_run: bool, output: Output, given: dict[str, str]) -> int:
    from rmqstore_spark.api import Store
    from rmqstore_spark.store.io.files import Files
    from rmqstore_spark.store.structures.kinds import is_writable

    if "groupOffset" not in given:
        raise click.UsageError("give --group-offset: a group and where it goes on")
    found = Store(path).set_offsets(given["groupOffset"], dry_run=dry_run)
    output.put(found.schema, iter(found.to_batches()))
    queues = counted(found.num_rows, "queue")
    if not dry_run:
        told = f"{queues} set"
    elif is_writable(path, Files()):
        told = f"nothing was changed: {queues} would be set"
    else:
        told = (
            f"nothing was changed, and this kind of store is not written to: {queues} would be set in a copy, which "
            "rmqstore copy makes with the same --group-offset"
        )
    click.echo(told, err=True)
    return FINE
