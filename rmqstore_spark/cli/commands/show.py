"""`rmqstore show`: what is in a store at a glance."""

from collections.abc import Sequence

import click

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE, NOT_ALL
from rmqstore_spark.cli.parameters import options_for, some_paths
from rmqstore_spark.query.options import Use


@command(
    [
        some_paths(),
        *options_for(Use.SHOW),
        click.Option(["--all", "is_whole"], is_flag=True, help="all topics and groups, not only the largest"),
        click.Option(
            ["--limit", "-n"],
            type=click.IntRange(min=0),
            help="the most topics, and the most groups; 0: all of them, as --all. [default: 15 topics, 10 groups]",
        ),
        click.Option(
            ["--format", "form"],
            type=click.Choice(["table", "json"]),
            default="table",
            help="json: one object for each store, with all topics and groups [default: table]",
        ),
    ],
    "What is in a store at a glance. Its size and time, what is pending, the largest topics, the groups that lag.",
    "/data/store",
)
def show(paths: Sequence[str], is_whole: bool, limit: int | None, form: str, given: dict[str, str]) -> int:
    from rmqstore_spark.cli.progress_bar import progress_bars
    from rmqstore_spark.cli.reading import stores_of
    from rmqstore_spark.cli.show import as_json, show_summary
    from rmqstore_spark.jobs.summary import summarize

    is_damaged = False
    for number, store in enumerate(stores_of(paths, given)):
        if number and form == "table":
            click.echo()
        with progress_bars():
            summary = summarize(store)
        is_damaged = is_damaged or bool(summary.damage) or summary.has_broken_config
        if form == "json":
            click.echo(as_json(summary))
        else:
            show_summary(summary, is_whole, limit)
    return NOT_ALL if is_damaged else FINE
