"""Makes a command of a function, its parameters and its help text."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.output import Output, code_after
from rmqstore_spark.cli.parameters import Command, SourceOption
from rmqstore_spark.cli.template import Template
from rmqstore_spark.errors import OptionError
from rmqstore_spark.read.run.damage_reports import listening

# By the field of Output, the parameter that it comes from.
_OUTPUT = {
    "kind": "kind",
    "path": "output",
    "limit": "limit",
    "sort": "sort",
    "body": "body",
    "template": "template",
    "is_wide": "wide",
    "is_forced": "force",
    "parts": "partition_by",
}


def command(
    parameters: Sequence[click.Parameter], text: str, example: str, name: str | None = None
) -> Callable[[Callable[..., int]], click.Command]:
    """Make a command of a function that returns the exit code. The function's arguments are those of the command, and

    * `given`: the data source's options that are given, as texts, by their names;
    * `output`: how rows are shown or written (Output), if the command has output_options().

    Args:
        parameters: the command's parameters.
        text: the help text: a sentence that lists of commands show, and then the rest.
        example: the arguments after `rmqstore NAME` in an example.
        name: the command's name, if it is not the function's.
    """

    def made(function: Callable[..., int]) -> click.Command:
        called = name or function.__name__

        def run(**values: Any) -> int:
            sources = [each.name for each in parameters if isinstance(each, SourceOption)]
            given = {option: _text(values.pop(option)) for option in sources if option is not None}
            values["given"] = {option: value for option, value in given.items() if value is not None}
            if "output" in values:
                how = {field: values.pop(name) for field, name in _OUTPUT.items() if name in values}
                template = how.get("template")
                if template is not None:
                    if how["kind"] or how["body"] or "columns" in values["given"]:
                        raise OptionError("--template: leave out --format, --columns and --body")
                    how["template"] = parsed = Template(template)
                    values["given"]["columns"] = ",".join(parsed.columns or ["topic"])
                values["output"] = Output(**how)
                if values["output"].is_table and "mode" in given and given["mode"] is None:
                    return _past_damage(function, values)
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


def _past_damage(function: Callable[..., int], values: dict[str, Any]) -> int:
    """Call a function that shows rows to people. Where the log is damaged they get all the rest, what is damaged is
    told, and the exit code says that not all could be looked at: whoever looks into a damaged store needs just that.
    Programs get an error, unless they give `--mode`."""
    values["given"]["mode"] = "DROPMALFORMED"
    with listening(is_once=True) as damage:
        code = function(**values)
    after = code_after(damage, values.get("paths") or [values["path"]], "what is damaged was left out")
    return after if code == FINE else code


def _text(value: str | bool | None) -> str | None:
    return str(value).lower() if isinstance(value, bool) else value
