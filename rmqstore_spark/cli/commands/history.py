"""`rmqstore history`: what happened to a message."""

import click
import pyarrow.compute as pc

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.output import Output, found_code
from rmqstore_spark.cli.parameters import group_option, one_path, options_for, output_options
from rmqstore_spark.query.options import OPTIONS, Use, check_columns, understand
from rmqstore_spark.read.run.told import heard

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
    from rmqstore_spark.api import Store

    asked, named = understand({**given, "key": wanted}, OPTIONS)
    how = {name: text for name, text in given.items() if name != "columns"}
    with heard() as damage:
        found = Store(path, **how).history(wanted)  # type: ignore[arg-type]
    if group is not None:
        found = found.filter(pc.equal(found["group"], group))
    last = None
    if "columns" in named:
        check_columns(asked["columns"], found.schema.names)
        found = found.select(asked["columns"])
    elif output.is_table:
        found = found.select([*_FIRST, *(name for name in found.schema.names if name not in _FIRST)])
        last = "details"
    rows = output.put(found.schema, iter(found.to_batches()), last)
    what = f"key or id {wanted!r}" + ("" if group is None else f", group {group!r}")
    return found_code(rows, [path], given, damage, what)
