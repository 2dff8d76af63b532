"""`rmqstore history`: what happened to a message."""

import click
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.output import Output, found_code
from rmqstore_spark.cli.parameters import group_option, one_path, options_for, output_options
from rmqstore_spark.query.options import OPTIONS, Use, check_columns, understand
from rmqstore_spark.read.run.damage_reports import listening

_FIRST = ["timestamp", "event", "topic", "group", "details", "queueId", "queueOffset"]  # of the columns in a table


@command(
    [
        one_path(),
        click.Argument(["wanted"], metavar="KEY_OR_ID"),
        *options_for(Use.HISTORY),
        group_option(),
        *output_options(),
    ],
    "What happened to a message, in order of time. Transactions, delays, retries, who has consumed it, traces.",
    "/data/store order-4711",
)
def history(path: str, wanted: str, group: str | None, output: Output, given: dict[str, str]) -> int:
    from rmqstore_spark.cli.reading import history_of

    asked, named = understand({**given, "key": wanted}, OPTIONS)
    how = {name: text for name, text in given.items() if name != "columns"}
    schema, rows = history_of(path, how, wanted)
    if group is not None:
        rows = (batch.filter(pc.equal(batch.column("group"), group)) for batch in rows)
    names, last = schema.names, None
    if "columns" in named:
        check_columns(asked["columns"], names)
        names = asked["columns"]
    elif output.is_table:
        names, last = [*_FIRST, *(name for name in names if name not in _FIRST)], "details"
    with listening() as damage:
        shown = (batch.select(names) for batch in rows)
        count = output.put(pa.schema([schema.field(name) for name in names]), shown, last)
    what = f"key or id {wanted!r}" + ("" if group is None else f", group {group!r}")
    return found_code(count, [path], given, damage, what)
