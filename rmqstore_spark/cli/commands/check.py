"""`rmqstore check`: what is wrong with a store."""

from collections.abc import Sequence

import click
import pyarrow as pa

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE, NOT_ALL, WRONG
from rmqstore_spark.cli.output import Output
from rmqstore_spark.cli.parameters import OF_FINDINGS, output_options, some_paths, table_options
from rmqstore_spark.errors import one_line
from rmqstore_spark.read.run.told import heard
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.registry import table

# The first columns on the screen, where findings are sorted.
_FIRST = ["severity", "problem", "topic", "queueId", "queueOffset", "count", "found", "expected", "file"]


@command(
    [some_paths(), *table_options(table("check")), *output_options(OF_FINDINGS)],
    "What is wrong with a store, or suspicious. The whole log is read, and compared with queues, index files, "
    "config and offsets. Exit code 1: there are errors or warnings; 3: there are none where it could look.",
    "/data/store",
)
def check(paths: Sequence[str], output: Output, given: dict[str, str]) -> int:
    from rmqstore_spark.cli.progress_bar import progress_bars
    from rmqstore_spark.cli.reading import batches_of, checked

    shown, _ = batches_of("check", paths, given)
    # Options choose the columns that are shown; the exit code depends on everything that was found.
    needed = dict.fromkeys([*shown.names, "severity", "problem", "store"])
    with progress_bars():
        stores, found = checked(paths, {**given, "columns": ",".join(needed)})
    if output.is_table and "columns" not in given and output.sort is None:
        with heard(is_silent=True):  # of what the findings say
            _show(stores, found, output.limit)
    else:
        names = shown.names
        if output.is_table and "columns" not in given:
            names = [*dict.fromkeys([*_FIRST, *names])]
        output.put(found.select(names).schema, iter(found.select(names).to_batches()))
    if {"error", "warning"} & set(found.column("severity").to_pylist()):
        return WRONG
    return NOT_ALL if "notLookedAt" in found.column("problem").to_pylist() else FINE


def _show(stores: list[Snapshot], found: pa.Table, limit: int | None) -> None:
    from rmqstore_spark.cli.findings import show_commands, show_findings, show_verdict
    from rmqstore_spark.jobs.verdict import looked_at, verdict
    from rmqstore_spark.store.structures.kinds import is_writable

    by_store: dict[str, list[Snapshot]] = {}
    for store in stores:
        by_store.setdefault(store.root, []).append(store)
    rows = found.to_pylist()
    for number, (root, logs) in enumerate(by_store.items()):
        if number:
            click.echo()
        if len(by_store) > 1:
            click.echo(one_line(root))
        own = [row for row in rows if row["store"] == root]
        is_tiered = logs[0].layout.queue is not None
        answer = verdict(own, root, is_tiered, is_tiered or is_writable(root, logs[0].files))
        show_verdict(answer, looked_at(logs, is_tiered))
        show_findings(own, limit)
        show_commands(answer)
