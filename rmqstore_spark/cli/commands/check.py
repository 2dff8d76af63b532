"""`rmqstore check`: what is wrong with a store."""

from collections.abc import Sequence

import pyarrow as pa

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE, NOT_ALL, WRONG
from rmqstore_spark.cli.output import Output
from rmqstore_spark.cli.parameters import OF_FINDINGS, output_options, some_paths, table_options
from rmqstore_spark.tables.registry import table


@command(
    [some_paths(), *table_options(table("check")), *output_options(OF_FINDINGS)],
    "What is wrong with a store, or suspicious. The whole log is read, and compared with queues, index files, "
    "config and offsets. Exit code 1: there are errors or warnings; 3: there are none where it could look.",
    "/data/store",
)
def check(paths: Sequence[str], output: Output, given: dict[str, str]) -> int:
    from rmqstore_spark.cli.progress_bar import progress_bars
    from rmqstore_spark.cli.reading import batches_of

    shown, _ = batches_of("check", paths, given)
    # Options choose the columns that are shown; the exit code depends on everything that was found.
    needed = dict.fromkeys([*shown.names, "severity", "problem"])
    schema, batches = batches_of("check", paths, {**given, "columns": ",".join(needed)})
    with progress_bars():
        found = pa.Table.from_batches(batches, schema)
    if output.is_table and "columns" not in given:
        from rmqstore_spark.cli.findings import show_findings

        show_findings(found, output.limit)
    else:
        output.put(shown, iter(found.select(shown.names).to_batches()))
    if {"error", "warning"} & set(found.column("severity").to_pylist()):
        return WRONG
    return NOT_ALL if "notLookedAt" in found.column("problem").to_pylist() else FINE
