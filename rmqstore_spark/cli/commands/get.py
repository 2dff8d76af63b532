"""`rmqstore get`: a message in full."""

from dataclasses import replace

import click

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.output import Batches, Output, found_code
from rmqstore_spark.cli.parameters import body_options, one_path, options_for, output_options
from rmqstore_spark.columns import DEFAULT_COLUMNS
from rmqstore_spark.query.options import MESSAGES, Use
from rmqstore_spark.read.run.damage_reports import listening
from rmqstore_spark.sorting import first


@command(
    [
        one_path(),
        click.Argument(["wanted"], metavar="[ID]", required=False),
        *options_for(Use.GET),
        *output_options("all"),
        *body_options(),
    ],
    "One message, by its msgId or offsetMsgId; or those with a key. All that is known of them, and their bodies.",
    "/data/store --key order-4711",
)
def get(path: str, wanted: str | None, output: Output, given: dict[str, str]) -> int:
    if (wanted is None) == ("key" not in given):
        raise click.UsageError("give an ID, or --key")
    if wanted is not None:
        given["msgId"] = wanted
    is_in_full = output.kind is None and output.is_table and output.body is None and "columns" not in given
    given.setdefault("columns", ",".join([*DEFAULT_COLUMNS, "store"]))
    from rmqstore_spark.cli.reading import batches_of

    with listening() as damage:
        schema, batches = batches_of(MESSAGES, [path], given)
        if is_in_full:
            rows = _show(batches, output.limit)
        else:
            rows = replace(output, limit=output.limit or 0).put(schema, batches)
    return found_code(rows, [path], given, damage)


def _show(batches: Batches, limit: int | None) -> int:
    from rmqstore_spark.cli.message import show_message
    from rmqstore_spark.cli.rows import rows_of
    from rmqstore_spark.cli.screen import console

    out = console()
    count = 0
    for batch in first(batches, limit or None):
        for row in rows_of(batch, is_for_people=True):
            if count:
                out.print()
            show_message(out, row)
            count += 1
    return count
