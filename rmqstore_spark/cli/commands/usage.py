"""`rmqstore usage`: what takes the space in the log."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.output import Output, say_nothing, sorted_by
from rmqstore_spark.cli.parameters import output_options, some_paths, table_options
from rmqstore_spark.sorting import WaitingRows, first
from rmqstore_spark.tables.registry import table

_OF = table("usage")


@command(
    [some_paths(), *table_options(_OF), *output_options()],
    "What takes the space in the log. Messages and bytes by topic, or by what --by names, and their share; how fast "
    f"the log grows, and when the disk is full at that rate. The columns: {', '.join(_OF.schema.names)}.",
    "/data/store --by topic,hour",
)
def usage(paths: Sequence[str], output: Output, given: dict[str, str]) -> int:
    from rmqstore_spark.cli.progress_bar import progress_bars
    from rmqstore_spark.cli.reading import batches_of

    schema, batches = batches_of(_OF.name, paths, given)
    with progress_bars():
        rows = WaitingRows(schema, batches)
    if not output.is_table or "columns" in given:
        output.put(schema, iter(rows))
        return FINE
    from rmqstore_spark.cli.reading import stores_of
    from rmqstore_spark.cli.screen import screen_width
    from rmqstore_spark.cli.shares import Totals, say_source, show_growth, with_shares

    totals = Totals.of(iter(rows))
    if totals.rows:
        # One more than are shown, so that the table says that there are more.
        most = None if output.most_shown is None else output.most_shown + 1
        # Here, as it may be by a column that is not shown as it is.
        some = iter(rows) if output.sort is None else sorted_by(schema, iter(rows), output.sort, most)
        found = pa.Table.from_batches(first(some, most), schema)
        width = screen_width(output.is_wide)
        shown = with_shares(found, totals, given.get("by", "topic"), width)
        replace(output, sort=None).put(shown.schema, iter(shown.to_batches()), width=width)
        say_source(totals)
    else:
        say_nothing(given, paths, _OF.row)
    for store in stores_of(paths, {name: text for name, text in given.items() if name == "storePathCommitLog"}):
        show_growth(store, len(paths) > 1)
    return FINE
