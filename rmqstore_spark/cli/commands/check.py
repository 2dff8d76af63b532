"""`rmqstore check`: what is wrong with a store."""

import collections
import contextlib
import sys
from collections.abc import Iterable, Sequence

import click
import pyarrow as pa

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE, NOT_ALL, WRONG
from rmqstore_spark.cli.output import Batches, Output
from rmqstore_spark.cli.parameters import FINDINGS_SHOWN, OF_FINDINGS, output_options, some_paths, table_options
from rmqstore_spark.cli.rows import few_at_once
from rmqstore_spark.errors import one_line
from rmqstore_spark.jobs.findings import NOT_LOOKED_AT, Findings
from rmqstore_spark.read.run.damage_reports import listening
from rmqstore_spark.sorting import WaitingRows
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
    given_all = {**given, "columns": ",".join(needed)}
    met = set[str]()

    def noted(batches: Batches) -> Batches:
        for batch in batches:
            met.update(batch.column("severity").to_pylist(), batch.column("problem").to_pylist())
            yield batch

    if output.is_table and "columns" not in given and output.sort is None:
        schema, _ = batches_of("check", paths, given_all)
        with progress_bars():
            stores, found = checked(
                paths, given_all, lambda batches: Found(schema, noted(batches), keeps_all=output.limit is not None)
            )
        with listening(is_silent=True):  # of what the findings say
            _show(stores, found, output.limit, given.get("storePathCommitLog"))
    else:
        names = [*dict.fromkeys([*_FIRST, *shown.names])] if output.is_table and "columns" not in given else shown.names
        schema, batches = batches_of("check", paths, given_all)
        some = (batch.select(names) for batch in noted(batches))
        with contextlib.nullcontext() if sys.stdout.isatty() else progress_bars():
            output.put(pa.schema([schema.field(name) for name in names]), some)
    return WRONG if {"error", "warning"} & met else NOT_ALL if NOT_LOOKED_AT in met else FINE


class Found:
    """What a check has found.

    Args:
        keeps_all: whether all rows are kept, in a file; else the first ones of each problem.

    Attributes:
        by_store: the findings of each store that has any.
        rows: all rows; none where they are not kept.
    """

    def __init__(self, schema: pa.Schema, batches: Batches, *, keeps_all: bool) -> None:
        self.by_store: dict[str, Findings] = {}
        self.rows: Iterable[pa.RecordBatch] = ()
        if keeps_all:
            self.rows = WaitingRows(schema, self._added(batches))
        else:
            collections.deque(self._added(batches), 0)

    def _added(self, batches: Batches) -> Batches:
        for batch in batches:
            for few in few_at_once([batch]):
                for row in few.to_pylist():
                    self.by_store.setdefault(row["store"], Findings(FINDINGS_SHOWN)).add(row)
            yield batch


def _show(stores: list[Snapshot], found: Found, limit: int | None, commitlog: str | None) -> None:
    from rmqstore_spark.cli.findings import rows_among, show_commands, show_findings, show_verdict
    from rmqstore_spark.jobs.verdict import looked_at, verdict
    from rmqstore_spark.store.structures.kinds import is_writable

    by_store: dict[str, list[Snapshot]] = {}
    for store in stores:
        by_store.setdefault(store.root, []).append(store)
    for number, (root, logs) in enumerate(by_store.items()):
        if number:
            click.echo()
        if len(by_store) > 1:
            click.echo(one_line(root))
        own = found.by_store.get(root, Findings())
        part = None if logs[0].is_whole else logs[0].what
        answer = verdict(own, root, part, part is not None or is_writable(root, logs[0].files), commitlog)
        show_verdict(answer, looked_at(logs))
        if limit is None:
            show_findings(own, limit)
        else:
            show_findings(own, limit, rows_among(found.rows, root))
        show_commands(answer)
