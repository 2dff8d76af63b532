"""Writes what README and docs/ have from the code: options, columns, tables, problems, commands, figures and pictures;
and the methods of Store that give tables.

`make reference` runs it. Such a part stands in a page between `<!-- NAME: ... -->` and `<!-- end -->`.
tests/repo/test_reference.py fails where it is not what the code says.
"""

import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import click
import figures
import screenshot

from rmqstore_spark.cli.commands import Rmqstore
from rmqstore_spark.cli.exit_codes import EXIT_CODES
from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.jobs.copying.report import LOST
from rmqstore_spark.options import OPTIONS, STREAM_OPTIONS, WRITE_OPTIONS, Option, Use, refused_for
from rmqstore_spark.store.storage import STORAGE_OPTIONS
from rmqstore_spark.tables.check.problems import PROBLEMS, Problem
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


def tables() -> str:
    """All tables but messages."""
    parts = []
    for found in map(table, TABLES):
        fit = ", ".join(f"`{name}`" for name in sorted(found.options)) or "none"
        rows = [f"| `{column.name}` | `{column.spark}` | {_plain(column.meaning)} |" for column in found.columns]
        head = [f"### {found.name}", "", f"One row is {found.row}. Options of its own: {fit}.", ""]
        after = ["", _plain(found.note)] if found.note else []
        parts.append("\n".join([*head, "| column | type | what it is |", "|---|---|---|", *rows, *after]))
    return "\n\n".join(parts)


_METHODS = '''"""Each table as a method, so that people and type checkers see which there are.

Made by tools/reference.py (`make reference`) from the tables; what is changed here is lost.
"""

from collections.abc import Callable
from typing import Unpack

import pyarrow as pa

from rmqstore_spark.option_texts import Names, TableOptions
from rmqstore_spark.progress import Progress, shown_if_asked


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


def problems(found: dict[str, Problem] = PROBLEMS) -> str:
    """What `check` can find, or another table of problems."""
    rows = [
        f"| `{name}` | {problem.severity} | {problem.area} | {_plain(problem.advice)} |"
        for name, problem in found.items()
    ]
    return "\n".join(["| problem | severity | area | what to do |", "|---|---|---|---|", *rows])


def commands() -> str:
    """Each command of `rmqstore`, and a table of all their options."""
    group = Rmqstore()
    context = click.Context(group)
    parts = []
    spellings: dict[str, dict[str, list[str]]] = {}  # of an option, and in which commands it means what
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = ["rmqstore", name]
        names = []
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                spelling = ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
                spellings.setdefault(spelling, {}).setdefault(parameter.help or "", []).append(name)
                names.append(f"`{parameter.opts[0]}`")
            else:
                words.append(parameter.metavar or (parameter.name or "").upper())
        about = [f"### {name}", "", _plain(command.help or ""), "", f"`{' '.join(words)}`", ""]
        about += [f"Options: {', '.join(names)}.", "", f"{_example(command)}"]
        parts.append("\n".join(about))
    rows = [f"| {spelling} | {_meaning(meanings)} |" for spelling, meanings in spellings.items()]
    table = ["### The options of the commands", "", "| option | meaning |", "|---|---|", *rows]
    return "\n\n".join([*parts, "\n".join(table)])


def _meaning(meanings: dict[str, list[str]]) -> str:
    """What an option means: first what most commands say of it."""
    most, *others = sorted(meanings, key=lambda meaning: -len(meanings[meaning]))
    told = [f"{', '.join(f'`{name}`' for name in meanings[other])}: {_plain(other)}" for other in others]
    return "; ".join([_plain(most), *told])


def exit_codes() -> str:
    """What the exit codes of `rmqstore` say."""
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(["| exit code | meaning |", "|---|---|", *rows])


def _example(command: click.Command) -> str:
    before, _, line = (command.epilog or "").partition(": ")
    return f"{before}: `{line}`"


def _plain(text: str) -> str:
    """Text in which nothing means anything to Markdown."""
    return re.sub(r"([*|<_])", r"\\\1", text)


def _figures(area: str) -> str:
    return figures.area_table(figures.read(), area)


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"speed": lambda: figures.front_table(figures.read())},
    "docs/options.md": {
        "options": options,
        "stream-options": lambda: options(STREAM_OPTIONS),
        "write-options": lambda: options(WRITE_OPTIONS),
    },
    "docs/streams.md": {"not-for-streams": not_for_streams},
    "docs/writing.md": {"ignored": ignored},
    "docs/remote.md": {"storage-options": storage_options},
    "docs/columns.md": {"columns": columns, "tables": tables},
    "docs/damage.md": {"problems": problems, "lost": lambda: problems(LOST)},
    "docs/command-line.md": {"exit-codes": exit_codes, "commands": commands},
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
    screenshot.PICTURE: lambda: screenshot.draw(screenshot.shown()),
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
