"""`rmqstore lag`: how far consumer groups are behind."""

from collections.abc import Sequence

import click
import pyarrow as pa

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.output import Output, code_after, with_options
from rmqstore_spark.cli.parameters import group_option, output_options, some_paths, table_options
from rmqstore_spark.errors import one_line
from rmqstore_spark.jobs.lag import BY, NEEDED
from rmqstore_spark.read.run.damage_reports import listening
from rmqstore_spark.tables.registry import table

_OF = table("offsets")
_FIRST = ["lag", "lagMillis", "lastConsumedTimestamp"]  # on the screen, after what names the row


@command(
    [
        some_paths(),
        group_option(),
        click.Option(["--by"], type=click.Choice(list(BY)), default="group", help="what a row is [default: group]"),
        *(each for each in table_options(_OF) if each.name != "columns"),
        *output_options(),
    ],
    "How far consumer groups are behind. Table offsets in sums, the worst first: messages that are left, and the "
    "milliseconds of store time from the last consumed message to the last one.",
    "/data/store --by topic",
)
def lag(paths: Sequence[str], group: str | None, by: str, output: Output, given: dict[str, str]) -> int:
    from rmqstore_spark.cli.progress_bar import progress_bars
    from rmqstore_spark.cli.reading import batches_of
    from rmqstore_spark.jobs import lag as job

    schema, batches = batches_of(_OF.name, paths, {**given, "columns": ",".join(NEEDED)})
    with progress_bars(), listening(is_once=True) as damage:
        schema, found = job.lag(batches, schema, by, group)
    if output.is_table:
        names = [*dict.fromkeys([*BY[by], *_FIRST, *schema.names])]
        schema, found = pa.schema([schema.field(name) for name in names]), (batch.select(names) for batch in found)
    if not output.put(schema, found):
        click.echo(one_line(f"no consumer group has an offset{with_options(given)} in {', '.join(paths)}"), err=True)
    return code_after(damage, paths)
