"""`rmqstore explain`: how messages would be found."""

from collections.abc import Sequence

import click

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.parameters import options_for, some_paths
from rmqstore_spark.query.options import Use


@command(
    [some_paths(), *options_for(Use.MESSAGES)],
    "How `messages` with these options would find its rows, and what that costs.",
    "/data/store --key order-4711",
)
def explain(paths: Sequence[str], given: dict[str, str]) -> int:
    from rmqstore_spark.read.explain import explanation

    click.echo(explanation(list(paths), given))
    return FINE
