"""All commands. Each command has a module here, which is loaded only when the command is run: check, copy (also
salvage), explain, get, history, import_, lag, messages, rebuild, set_offsets, show, sql, tail, usage. table makes the
commands that only show a table.
"""

import importlib
import keyword
import os
from typing import Any

import click

import rmqstore_spark
from rmqstore_spark.cli.exit_codes import EXIT_CODES
from rmqstore_spark.errors import nearest
from rmqstore_spark.tables.registry import TABLES

# The module of each command, below this one, in the order in which the help shows them, before the tables.
COMMANDS = {
    "show": "show",
    "messages": "messages",
    "tail": "tail",
    "get": "get",
    "history": "history",
    "check": "check",
    "lag": "lag",
    "usage": "usage",
    "sql": "sql",
    "explain": "explain",
    "rebuild": "rebuild",
    "set-offsets": "set_offsets",
    "copy": "copy",
    "salvage": "copy",
    "import": "import_",
}


class Rmqstore(click.Group):
    """The command `rmqstore`."""

    def __init__(self) -> None:
        super().__init__(
            help="What is in the store directory of an Apache RocketMQ broker. No broker is needed, and nothing in "
            "the store is changed but by `rebuild`, `set-offsets` and `import`; `copy` and `salvage` make a new one.",
            epilog=f"Exit codes: {'; '.join(f'{code}: {what}' for code, what in EXIT_CODES.items())}. "
            "`rmqstore COMMAND --help` has examples. For completion in bash: "
            'eval "$(_RMQSTORE_COMPLETE=bash_source rmqstore)"; zsh_source and fish_source likewise.',
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )
        show = click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version, help="show the version"
        )
        self.params.append(show)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *(name for name in TABLES if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module = importlib.import_module(f"{__name__}.{COMMANDS[cmd_name]}")
            name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name.replace("-", "_")
            found: click.Command = getattr(module, name)
            return found
        if cmd_name in TABLES:
            from rmqstore_spark.cli.commands.table import table_command

            return table_command(cmd_name)
        return None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = nearest(args[0], self.list_commands(ctx))
            if not near and os.path.isdir(args[0]):
                near = f" Did you mean 'show {args[0]}'?"
            raise click.UsageError(f"there is no command {args[0]!r}.{near}", ctx)
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(f"rmqstore {rmqstore_spark.__version__}")
        ctx.exit()
