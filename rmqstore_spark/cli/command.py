"""How a command is made: of a function, of what it takes, and of what `--help` says."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from rmqstore_spark.cli.output import Output
from rmqstore_spark.cli.parameters import Command, SourceOption


def command(
    parameters: Sequence[click.Parameter], text: str, example: str, name: str | None = None
) -> Callable[[Callable[..., int]], click.Command]:
    """Make a command of a function, which gives the exit code. Its arguments are those of the command, and

    * `given`: the data source's options that are given, as its texts, by their names;
    * `output`: how rows are put out (Output), if the command has output_options().

    Args:
        parameters: what the command takes.
        text: what it does: a sentence that lists of commands show, and what else there is to say.
        example: arguments after `rmqstore NAME`.
        name: its name, if that is not the function's.
    """

    def made(function: Callable[..., int]) -> click.Command:
        called = name or function.__name__

        def run(**values: Any) -> int:
            sources = [each.name for each in parameters if isinstance(each, SourceOption)]
            given = {option: _text(values.pop(option)) for option in sources if option is not None}
            values["given"] = {option: value for option, value in given.items() if value is not None}
            if "kind" in values:
                values["output"] = Output(values.pop("kind"), values.pop("output"), values.pop("limit"))
            return function(**values)

        return Command(
            called,
            callback=run,
            params=list(parameters),
            help=text,
            epilog=f"Example: rmqstore {called} {example}",
            short_help=text.partition(".")[0],
        )

    return made


def _text(value: str | bool | None) -> str | None:
    return str(value).lower() if isinstance(value, bool) else value
