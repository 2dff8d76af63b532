"""Writes what README and docs/ have from the code: options, columns, tables, problems, commands, figures and pictures;
and the methods of Store that give tables.

`make reference` runs it. Such a part stands in a page between `<!-- NAME: ... -->` and `<!-- end -->`.
tests/repo/test_reference.py fails where it is not what the code says.
"""

import functools
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import click
import docstrings
import figures
import screenshot
from docstrings import plain

import rmqstore_spark
from rmqstore_spark.cli.commands import Rmqstore
from rmqstore_spark.cli.exit_codes import EXIT_CODES, exit_code_of
from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.query.options import COPY_OPTIONS, OPTIONS, STREAM_OPTIONS, WRITE_OPTIONS, Option, Use, refused_for
from rmqstore_spark.store.format.sent_properties import ADDED_PROPERTIES, SET_BY_RETRIES
from rmqstore_spark.store.io.storage import STORAGE_OPTIONS
from rmqstore_spark.tables.check.problems import PROBLEMS
from rmqstore_spark.tables.registry import TABLES, table

ROOT = Path(__file__).resolve().parents[1]


def options(table: dict[str, Option] = OPTIONS) -> str:
    """A table of options."""
    rows = [f"| `{option.name}` | {option.default or ''} | {option.help} |" for option in table.values()]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def storage_options() -> str:
    """The options of object storage."""
    rows = [
        f"| `{option.name}` | {', '.join(f'`{alias}`' for alias in option.aliases)} | {option.help} |"
        for option in STORAGE_OPTIONS.values()
    ]
    return "\n".join(["| option | also | meaning |", "|---|---|---|", *rows])


def not_for_streams() -> str:
    """The options of a read that a stream does not take."""
    rows = [f"| `{name}` | {why} |" for name, why in refused_for(Use.STREAMS).items()]
    return "\n".join(["| option | why |", "|---|---|", *rows])


def ignored() -> str:
    """The columns that are not looked at when messages are written."""
    return ", ".join(f"`{column.name}`" for column in COLUMNS.values() if column.derived)


def columns() -> str:
    """The columns of messages."""
    rows = [
        f"| `{column.name}` | `{column.spark}` | {column.meaning}{'' if column.default else ' *'} |"
        for column in COLUMNS.values()
    ]
    head = ["| column | type | what it is |", "|---|---|---|"]
    return "\n".join([*head, *rows, "", "\\* only when asked for by name."])


def added_properties() -> str:
    """The properties that no producer sends."""
    rows = [f"| {by} | {', '.join(f'`{name}`' for name in names)} |" for by, names in ADDED_PROPERTIES.items()]
    again = ", ".join(f"`{name}`" for name in SET_BY_RETRIES)
    rows.append(f"| a retry or a DLQ, in place of the producer's | {again} |")
    return "\n".join(["| added by or for | properties |", "|---|---|", *rows])


def tables() -> str:
    """All tables but messages."""
    parts = []
    for found in map(table, TABLES):
        fit = ", ".join(f"`{name}`" for name in sorted(found.options)) or "none"
        rows = [f"| `{column.name}` | `{column.spark}` | {plain(column.meaning)} |" for column in found.columns]
        head = [f"### {found.name}", "", f"One row is {found.row}. Options of its own: {fit}.", ""]
        after = ["", plain(found.note)] if found.note else []
        parts.append("\n".join([*head, "| column | type | what it is |", "|---|---|---|", *rows, *after]))
    return "\n\n".join(parts)


_METHODS = '''"""Each table as a method, so that people and type checkers see which there are.

Made by tools/reference.py (`make reference`) from the tables; what is changed here is lost.
"""

from collections.abc import Callable
from typing import Unpack

import pyarrow as pa

from rmqstore_spark.progress import Progress, shown_if_asked
from rmqstore_spark.query.option_texts import Names, TableOptions


class TableMethods:
    """The tables of stores.

    Each method takes the names of the columns that it shall have (`store`, the path of the store, comes only so), and
    as keyword arguments the read options that go with the table; any other is an OptionError that names them.
    """

    def table(self, name: str, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A table by its name."""
        raise NotImplementedError
'''
_METHOD = '''
    def {name}(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is {row}.

{columns}
        """
        return self.table("{name}", columns, **options)
'''
_METHOD_WITH_PROGRESS = '''
    def {name}(
        self,
        columns: Names | None = None,
        progress: Callable[[Progress], None] | None = None,
        **options: Unpack[TableOptions],
    ) -> pa.Table:
        """A row is {row}.

{columns}

        Args:
            progress: is told ten times a second how far it is, as an object with `what`, `done` and `total`, in bytes
                where its `noun` is None. Without it, the log says so every few seconds.
        """
        with shown_if_asked(progress):
            return self.table("{name}", columns, **options)
'''


def methods() -> str:
    """The module with a method for each table."""
    made = [_METHODS]
    for found in map(table, TABLES):
        columns = ", ".join(f"{column.name} ({column.meaning})" for column in found.columns)
        indent = " " * 8
        told = textwrap.fill(
            f"Columns: {columns}. {found.note}".strip(),
            width=120,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
        method = _METHOD if found.nbytes is None else _METHOD_WITH_PROGRESS
        made.append(method.format(name=found.name, row=found.row, columns=told))
    return "".join(made)


def problems() -> str:
    """What `check` can find."""
    return _problems({name: problem.advice for name, problem in PROBLEMS.items()})


def lost() -> str:
    """What a salvage can lose."""
    return _problems({name: problem.salvaged for name, problem in PROBLEMS.items()})


def _problems(advices: dict[str, str]) -> str:
    rows = [
        f"| `{name}` | {PROBLEMS[name].severity} | {PROBLEMS[name].area} | {plain(advice)} |"
        for name, advice in advices.items()
        if advice
    ]
    return "\n".join(["| problem | severity | area | what to do |", "|---|---|---|---|", *rows])


# The options that many commands have, by what they are for. The rest stands with the command that has it.
_GROUPS = {
    "Selecting messages": (
        "subscribe subscribePattern assign tags key msgId offsetMsgId startingTimestamp endingTimestamp "
        "startingOffsets endingOffsets"
    ),
    "Reading": "storePathCommitLog mode deduplicate verifyCrc decompress trust dropCache maxTaskBytesPerSecond",
    "Output": "columns format output limit sort wide force",
}


def command_options() -> str:
    """The options that commands share, in groups."""
    options = _usual_options()
    parts = []
    for group, names in _GROUPS.items():
        rows = [_option_row(options[name]) for name in names.split()]
        parts.append("\n".join([f"### {group}", "", "| option | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def commands() -> str:
    """Each command of `rmqstore`: what it does, which of the common options it takes, and its own."""
    parts = []
    for name, command in _commands().items():
        arguments = [each.metavar or (each.name or "").upper() for each in command.params if _is_argument(each)]
        about = [f"### {name}", "", plain(_without_columns(command.help or "")), ""]
        about += [f"`{' '.join(['rmqstore', name, *arguments])}`", "", *_taken(command)]
        parts.append("\n".join([*about, _example(command)]))
    return "\n\n".join(parts)


def _commands() -> dict[str, click.Command]:
    group = Rmqstore()
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def _is_argument(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Argument)


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def _option_name(option: click.Option) -> str:
    return option.opts[0].removeprefix("--")


def _taken(command: click.Command) -> list[str]:
    """The lines that say which options a command takes."""
    own = {_option_name(option): option for option in _options(command)}
    lines = []
    for group, joined in _GROUPS.items():
        names = joined.split()
        has = [name for name in names if name in own]
        lacks = [name for name in names if name not in own]
        if not has:
            continue
        said = "all" if not lacks else ", ".join(f"`--{name}`" for name in has)
        if lacks and len(lacks) < len(has):
            said = f"all but {', '.join(f'`--{name}`' for name in lacks)}"
        lines.append(f"* [{group}](#{group.lower().replace(' ', '-')}): {said}")
    common = {name for joined in _GROUPS.values() for name in joined.split()}
    lines += [f"* `{option.opts[0]}`: {plain(option.help or '')}" for name, option in own.items() if name not in common]
    return [*lines, *_different(own, common), ""] if lines else []


def _different(own: dict[str, click.Option], common: set[str]) -> list[str]:
    """What common options mean to a command, where that is not what the table of options says."""
    usual = _usual_options()
    different = [name for name in own if name in common and own[name].help != usual[name].help]
    return [f"* `--{name}`: {plain(own[name].help or '')}" for name in different]


def _usual_options() -> dict[str, click.Option]:
    """The options of all commands, as `messages` has them where it does: another command may mean its own by a name."""
    commands = _commands()
    last = commands.pop("messages")
    return {_option_name(option): option for each in [*commands.values(), last] for option in _options(each)}


def option_help(command: str, option: str) -> str:
    """What an option means to a command, as pages say it."""
    return plain({_option_name(each): each for each in _options(_commands()[command])}[option].help or "")


def _option_row(option: click.Option) -> str:
    spelling = ", ".join(f"`{each}`" for each in [*option.opts, *option.secondary_opts])
    return f"| {spelling} | {plain(option.help or '')} |"


def _without_columns(text: str) -> str:
    """A help text without its list of columns, which docs/columns.md has with their meanings."""
    return re.sub(r" (Its|Their) columns: [^.]*\.", "", text)


def exit_codes() -> str:
    """What the exit codes of `rmqstore` say."""
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(["| exit code | meaning |", "|---|---|", *rows])


def _example(command: click.Command) -> str:
    before, _, line = (command.epilog or "").partition(": ")
    return f"{before}: `{line}`"


def functions() -> str:
    """The functions of the package."""
    names = ["write_store", "rebuild", "explain", "register", "storage_options"]
    return "\n\n".join(
        docstrings.callable_part(f"rmqstore_spark.{name}", getattr(rmqstore_spark, name)) for name in names
    )


def store_class() -> str:
    """The class Store: what it is, and its methods but for those that are tables."""
    store = rmqstore_spark.Store
    made = [
        (name, getattr(store, name)) for name in ("table", *vars(store)) if not name.startswith("_") and name != "table"
    ]
    methods = [docstrings.callable_part(f"Store.{name}", method) for name, method in [("table", store.table), *made]]
    head = ["`rmqstore_spark.Store(path, **options)`", *docstrings.text_of(store)]
    names = ", ".join(f"[`{name}`](columns.md#{name})" for name in TABLES)
    tables = f"### Methods for tables\n\nEach of these gives the table of its name, as `Store.table` does: {names}."
    return "\n\n".join([*head, *methods, tables])


def errors() -> str:
    """The errors, what each means, and the exit code of a command that ends with it."""
    rows = []
    for name in rmqstore_spark.__all__:
        kind = getattr(rmqstore_spark, name)
        if isinstance(kind, type) and issubclass(kind, rmqstore_spark.RmqStoreError):
            meaning = " ".join(docstrings.text_of(kind))
            rows.append(f"| `{name}` | {meaning} | {exit_code_of(kind)} |")
    return "\n".join(["| error | meaning | exit code |", "|---|---|---|", *rows])


def _figures(area: str) -> str:
    return figures.area_table(figures.read(), area)


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"speed": lambda: figures.front_table(figures.read())},
    "docs/options.md": {
        "options": options,
        "stream-options": lambda: options(STREAM_OPTIONS),
        "copy-options": lambda: options(COPY_OPTIONS),
        "write-options": lambda: options(WRITE_OPTIONS),
    },
    "docs/streams.md": {"not-for-streams": not_for_streams},
    "docs/writing.md": {"ignored": ignored},
    "docs/remote.md": {"storage-options": storage_options},
    "docs/columns.md": {"columns": columns, "added-properties": added_properties, "tables": tables},
    "docs/problems.md": {"problems": problems, "lost": lost},
    "docs/command-line.md": {"command-options": command_options, "commands": commands},
    "docs/api.md": {"functions": functions, "store-class": store_class},
    "docs/errors.md": {"errors": errors, "exit-codes": exit_codes},
    "docs/performance.md": {
        "reading": lambda: _figures("reading"),
        "selecting": lambda: _figures("selecting"),
        "writing": lambda: _figures("writing"),
    },
}


def part(name: str) -> re.Pattern[str]:
    """Finds a part of a page: what opens it, what is in it, what ends it."""
    return re.compile(rf"(<!-- {name}: [^>]*-->\n)(.*?)(<!-- end -->)", re.DOTALL)


def page(name: str) -> str:
    """The text of a page with its parts as the code says them."""
    text = (ROOT / name).read_text()
    for each, make in PARTS[name].items():
        said = f"\n{make()}\n\n"
        text = part(each).sub(lambda found, said=said: found[1] + said + found[3], text)  # type: ignore[misc]
    return text


# What is made as a whole.
FILES: dict[Path, Callable[[], str]] = {
    Path("rmqstore_spark/tables/methods.py"): methods,
    figures.PICTURE: lambda: figures.draw([figure for figure in figures.read() if figure.front]),
    **{path: functools.partial(screenshot.picture, path) for path in screenshot.SCREENS},
}


def main() -> int:
    """Write all of it."""
    for name in PARTS:
        (ROOT / name).write_text(page(name))
    for path, make in FILES.items():
        (ROOT / path).write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main())
