"""`rmqstore show`: what is in a store at a glance."""

from collections.abc import Sequence

import click

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.parameters import options_for, some_paths
from rmqstore_spark.query.options import Use


@command(
    [some_paths(), *options_for(Use.SHOW)],
    "What is in a store at a glance. Its size and time, the largest topics, the groups that lag.",
    "/data/store",
)
def show(paths: Sequence[str], given: dict[str, str]) -> int:
    from rmqstore_spark.cli.progress_bar import progress_bars
    from rmqstore_spark.cli.reading import stores_of
    from rmqstore_spark.cli.show import show_summary
    from rmqstore_spark.jobs.summary import summarize

    for number, store in enumerate(stores_of(paths, given)):
        if number:
            click.echo()
        with progress_bars():
            summary = summarize(store)
        show_summary(summary)
    return FINE
