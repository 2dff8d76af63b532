"""Parameters of the commands: the data source's options, stores, and how rows are shown."""

import json
from collections.abc import Callable, Mapping, Sequence

import click

from rmqstore_spark.cli import formats
from rmqstore_spark.cli.bodies import FORMS
from rmqstore_spark.cli.completion import COMPLETED, directories, files, words
from rmqstore_spark.cli.template import MEANINGS
from rmqstore_spark.errors import nearest
from rmqstore_spark.query.option_types import GROUP_STARTS, PAIRS, PROPERTIES, TEXTS, Type
from rmqstore_spark.query.options import OPTIONS, Option, Use, going_with
from rmqstore_spark.tables.table import Table

# Defaults of --limit: rows of a table, messages of `tail`, and rows of each problem.
ROWS_SHOWN, LAST_SHOWN, FINDINGS_SHOWN = 100, 10, 20
_MOST = (1 << 63) - 1  # rows
_MOST_JSON = 64 * 1024 * 1024  # characters
_TRUTHS = ("true", "false")


OF_FINDINGS = f"{FINDINGS_SHOWN} of each problem on the screen, else all"


class SourceOption(click.Option):
    """An option of the data source."""


class Command(click.Command):
    """A command whose flags may also be given a value: `--deduplicate true`, `--deduplicate=false`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags: dict[str, str] = {}  # each flag, and the flag for its opposite
        for each in self.params:
            if isinstance(each, click.Option):
                flags |= zip(each.opts, each.secondary_opts, strict=False)
        plain: list[str] = []
        for at, word in enumerate(args):
            flag, equals, truth = word.partition("=")
            if at and args[at - 1] in flags and word.lower() in _TRUTHS:
                flag, equals, truth = plain.pop(), "=", word
            if flag in flags and equals:
                if truth.lower() not in _TRUTHS:
                    raise click.UsageError(f"{flag}: expected true or false, or nothing, found {truth!r}", ctx)
                word = flag if truth.lower() == "true" else flags[flag]
            plain.append(word)
        return super().parse_args(ctx, plain)


def unknown_option(why: click.NoSuchOption) -> str:
    """The error text for an option that a command does not have, with the option that was probably meant."""
    if why.ctx is None:
        return f"there is no option {why.option_name!r}"
    known = [spelling for each in why.ctx.command.get_params(why.ctx) for spelling in each.opts]
    before = " here: a command comes before its options" if isinstance(why.ctx.command, click.Group) else ""
    near = nearest(why.option_name, known)
    return f"there is no option {why.option_name!r}{f'.{near}' if near else before}"


def options_for(use: Use, table: Mapping[str, Option] = OPTIONS) -> list[click.Parameter]:
    """The data source's options that are of use at a place, with the same names and help. Spellings such as
    `--starting-timestamp` are accepted, too."""
    return [_option(option) for option in going_with(use, table).values()]


def table_options(table: Table) -> list[click.Parameter]:
    """The options of a table: its own, and those that all tables take."""
    names = table.options | going_with(Use.TABLE | Use.CALL).keys()
    return [_option(option) for name, option in OPTIONS.items() if name in names]


def _option(option: Option) -> click.Option:
    kebab = "".join(f"-{c.lower()}" if c.isupper() else c for c in option.name)
    text = option.help.replace("`", "").replace(r"\|", "|")
    default = f" [default: {option.default}]" if option.default else ""
    spellings = dict.fromkeys([f"--{option.name}", f"--{kebab}", option.short or f"--{kebab}"])
    if option.type.metavar is None:
        both = [f"{spelling}/--no-{spelling[2:]}" for spelling in spellings]
        return SourceOption([*both, option.name], help=text + default, default=None)
    if option.type in _TOGETHER:
        return SourceOption(
            [*spellings, option.name],
            help=f"{text}. May be given several times",
            metavar=option.type.metavar,
            multiple=True,
            callback=_TOGETHER[option.type],
            shell_complete=COMPLETED.get(option.name),
        )
    return SourceOption(
        [*spellings, option.name],
        help=text + default,
        metavar=option.type.metavar,
        shell_complete=COMPLETED.get(option.name) or words(option.type.words),
    )


def _all_hold(ctx: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> str | None:
    """Several times NAME=VALUE as one text."""
    if len(texts) < 2:
        return texts[0] if texts else None
    pairs = [(name, value) for name, equals, value in (text.partition("=") for text in texts) if equals]
    if len(dict(pairs)) < len(texts):
        raise click.BadParameter("expected NAME=VALUE each time, and each NAME once")
    return json.dumps(dict(pairs))


def _each_group(ctx: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> str | None:
    """Several times GROUP=PLACE as one text. A place may be in a file: GROUP=@FILE."""
    return _all_hold(ctx, parameter, [_with_file(text) for text in texts])


def _with_file(text: str) -> str:
    group, at, place = text.partition("=@")
    if not at or place.lstrip().startswith("{"):
        return text
    try:
        with open(place, encoding="utf-8") as file:
            return f"{group}={file.read(_MOST_JSON)}"
    except (OSError, ValueError) as why:
        raise click.BadParameter(f"{place}: expected a file with JSON ({why})") from None


def _any_of(ctx: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> str | None:
    """Several texts as one; one stays as it was given, and so it is in errors."""
    is_plain = len(texts) == 1 and texts[0] and not texts[0].lstrip().startswith("[")
    return texts[0] if is_plain else json.dumps(list(texts)) if texts else None


# Options that may be given several times, and how one text is made of theirs.
_TOGETHER: dict[Type, Callable[[click.Context, click.Parameter, Sequence[str]], str | None]] = {
    PROPERTIES: _all_hold,
    GROUP_STARTS: _each_group,
    TEXTS: _any_of,
    PAIRS: _any_of,
}


def _not_empty(ctx: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    if path == "":
        raise click.BadParameter("expected a file's name, found ''")
    return path


def some_paths(metavar: str = "PATH...") -> click.Argument:
    """An argument: stores, or globs of stores."""
    return click.Argument(["paths"], metavar=metavar, nargs=-1, required=True, shell_complete=directories)


def one_path() -> click.Argument:
    """An argument: one store."""
    return click.Argument(["path"], shell_complete=directories)


def body_options() -> list[click.Parameter]:
    """The options that say how bodies are shown, and the template of what each message becomes."""
    return [
        click.Option(
            ["--body"],
            type=click.Choice(FORMS),
            help="bodies as text, in hex or base64; json: as the JSON that they are, with --format json. "
            "[default: text; in base64 where they are no text]",
        ),
        click.Option(["--template"], metavar="TEXT", help=f"what each message becomes: {MEANINGS}"),
    ]


def partition_option() -> click.Option:
    """The option that writes a directory of Parquet files."""

    def parsed(ctx: click.Context, parameter: click.Parameter, text: str | None) -> list[str] | None:
        if text is None:
            return None
        from rmqstore_spark.cli.partitioned import names_of

        return names_of(text)

    return click.Option(
        ["--partition-by"],
        metavar="COLUMNS",
        callback=parsed,
        shell_complete=COMPLETED["partition_by"],
        help="--output is a new directory, with Parquet files in a directory for each value of these columns; day and "
        "hour are those of storeTimestamp",
    )


def group_option() -> click.Option:
    """The option that leaves one consumer group's rows."""
    return click.Option(
        ["--group"], metavar="NAME", shell_complete=COMPLETED["group"], help="only rows of this consumer group"
    )


def output_options(
    limit: str = f"{ROWS_SHOWN} in a table, else all", of: str = "the most rows"
) -> list[click.Parameter]:
    """The options that say how rows are shown.

    Args:
        limit: the default of `--limit` in words.
        of: what `--limit` counts.
    """
    return [
        click.Option(
            ["--format", "kind"],
            type=click.Choice(["table", *formats.FORMATS], case_sensitive=False),
            callback=lambda ctx, parameter, name: formats.FORMATS.get(name, name),
            help="table: for people; json (or jsonl, ndjson): one object a line. "
            "[default: table, or what the name of --output says]",
        ),
        click.Option(
            ["--output", "-o"],
            metavar="FILE",
            callback=_not_empty,
            shell_complete=files,
            help="write to this file instead of showing it",
        ),
        click.Option(
            ["--limit", "-n"],
            type=click.IntRange(min=0),
            callback=lambda ctx, parameter, number: None if number is None else min(number, _MOST),
            help=f"{of}; 0: all of them. [default: {limit}]",
        ),
        click.Option(
            ["--sort"],
            metavar="COLUMNS",
            shell_complete=COMPLETED["sort"],
            help="sort by these columns, comma-separated; a - before a name: the greatest value first",
        ),
        click.Option(["--wide"], is_flag=True, help="cut no text to the width of the terminal"),
        click.Option(["--force"], is_flag=True, help="let --output replace an existing file"),
    ]
