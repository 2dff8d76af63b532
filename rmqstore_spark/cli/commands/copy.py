"""`rmqstore copy` and `rmqstore salvage`: a new store from existing ones."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rmqstore_spark.amounts import size_text
from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE, WRONG
from rmqstore_spark.cli.output import Output
from rmqstore_spark.cli.parameters import FINDINGS_SHOWN, OF_FINDINGS, options_for, output_options, some_paths
from rmqstore_spark.cli.rows import few_at_once
from rmqstore_spark.errors import counted, one_line
from rmqstore_spark.query.options import COPY_OPTIONS, Use, of_stores
from rmqstore_spark.read.run.damage_reports import listening

if TYPE_CHECKING:
    from rmqstore_spark.jobs.copy import Copied

_PARAMETERS: list[click.Parameter] = [
    some_paths("SOURCE... TARGET"),
    *options_for(Use.MESSAGES | Use.COPIES),
    *options_for(Use.COPIES, COPY_OPTIONS),
    *output_options(OF_FINDINGS),
]


@command(
    _PARAMETERS,
    "Make a new store of one, or of several. Messages keep their queue offsets, and groups their place. TARGET "
    "does not exist yet, or is empty; sources are only read. Where several become one, the queues of a topic come "
    "one after the other. Retried and dead messages come along, and so do delayed and half messages with the "
    "broker's state. Of timed messages only those that still wait come along; where several stores become one, "
    "the same holds for delayed and half messages. "
    "With --subscribe, name %RETRY%GROUP and the like, too, where these are to come.",
    "/data/store /new/store",
)
def copy(paths: Sequence[str], output: Output, given: dict[str, str]) -> int:
    made = _make(paths, output, given, is_salvage=False)
    return WRONG if _is_found(made) else FINE


@command(
    _PARAMETERS,
    "Make a new store of what is whole in a damaged one. Messages keep their queue offsets; a "
    "broker passes over lost ones as over expired ones. What is lost is shown, as by check. Exit code 1: "
    "something is. Otherwise it is like copy.",
    "/data/store /new/store --format json --output lost.json",
)
def salvage(paths: Sequence[str], output: Output, given: dict[str, str]) -> int:
    made = _make(paths, output, given, is_salvage=True)
    return WRONG if made.lost.num_rows or _is_found(made) else FINE


def _make(paths: Sequence[str], output: Output, given: dict[str, str], is_salvage: bool) -> "Copied":
    """Make the new store, and show which messages are lost, and which were left out."""
    from rmqstore_spark.api import Store
    from rmqstore_spark.cli.progress_bar import progress_bars

    if len(paths) < 2:
        raise click.UsageError("give the store, and the directory of the new one")
    *sources, target = paths
    store = Store(sources, **of_stores(given))
    with progress_bars(), listening(is_silent=is_salvage):  # what is lost is shown below
        make = store.salvage if is_salvage else store.copy
        made = make(target, **given)  # type: ignore[arg-type]
    click.echo(f"{target} has {counted(made.messages, 'message')}", err=True)
    for row in made.excluded.to_pylist():
        click.echo(one_line(_left_out(row)), err=True)
    if not output.is_table:
        output.put(made.lost.schema, iter(made.lost.to_batches()))
    elif made.lost.num_rows:
        from rmqstore_spark.cli.findings import rows_among, show_findings
        from rmqstore_spark.jobs.findings import Findings

        lost = (row for batch in few_at_once(made.lost.to_batches()) for row in batch.to_pylist())
        show_findings(Findings.of(lost, FINDINGS_SHOWN), output.limit, rows_among(made.lost.to_batches()))
    return made


def _is_found(made: "Copied") -> bool:
    """Does a search find something in the copy that was to be left out?"""
    return any(made.excluded.column("found").to_pylist())


def _left_out(row: dict[str, Any]) -> str:
    """What an option has left out, and the proof of it, in a line."""
    name = f"{row['option']} {row['value']!r}"
    found = f"the same search finds {row['found']:,} in the copy" if row["found"] else "the copy has none of them"
    gone = f"{counted(row['messages'], 'message')} left out ({size_text(row['bytes'])}); {found}"
    told = f"{name}: {gone if row['messages'] else 'no message of the store has it, so it left nothing out'}"
    if row["inBodies"]:
        told += f"; {counted(row['inBodies'], 'other message')} with its text in the body"
    if row["inBytes"]:
        told += f"; its text is still at {counted(row['inBytes'], 'place')}, first in {row['firstPlace']}"
    if row["inBodies"] or row["inBytes"]:
        return told
    return f"{told}, nor its text" if row["messages"] else f"{told}; its text is nowhere in the copy"
