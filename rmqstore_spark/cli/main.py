"""What the shell calls: each error in one line, and the exit codes."""

import logging
import os
import sys
from importlib.abc import MetaPathFinder
from typing import NoReturn

from rmqstore_spark.cli.exit_codes import INTERRUPTED, WRONG, WRONG_USE
from rmqstore_spark.errors import NotAStoreError, OptionError, RmqStoreError, one_line

_NAME = "rmqstore"
_COMPLETE = "_RMQSTORE_COMPLETE"  # what a shell sets: click's name for it


def main() -> NoReturn:
    """Run the command line of this process, and exit."""
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        code = 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    except RmqStoreError as why:
        print(f"rmqstore: {why}", file=sys.stderr)
        code = WRONG_USE if isinstance(why, OptionError | NotAStoreError) else WRONG
    except OSError as why:
        print(f"rmqstore: {one_line(why)}", file=sys.stderr)
        code = WRONG
    _leave(code)


def _run() -> int:
    sys.meta_path.insert(0, _NoPandas())
    try:
        import click
        import rich  # noqa: F401
        from click.shell_completion import shell_complete
    except ModuleNotFoundError as why:
        print(f"rmqstore: {why}; install it with: pip install 'rmqstore-spark[cli]'", file=sys.stderr)
        return WRONG_USE
    from rmqstore_spark.cli.commands import Rmqstore

    logging.basicConfig(format="rmqstore: %(message)s")
    command = Rmqstore()
    if instruction := os.environ.get(_COMPLETE):
        return shell_complete(command, {}, _NAME, _COMPLETE, instruction)
    try:
        # Not main(): that has an exit code of its own for a closed pipe.
        with command.make_context(_NAME, sys.argv[1:]) as context:
            found = command.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as why:
        text = why.format_message()
        if "\n" in text:  # the help, where no command is given
            why.show()
            return why.exit_code
        path = why.ctx.command_path if isinstance(why, click.UsageError) and why.ctx is not None else _NAME
        text = one_line(text.rstrip("."))
        print(f"{path}: {text}{' See' if text.endswith('?') else '; see'} {path} --help", file=sys.stderr)
        return why.exit_code
    return found if isinstance(found, int) else 0


class _NoPandas(MetaPathFinder):
    """Hides pandas. Where it is installed, pyarrow imports it with the first list that becomes an array, only to see
    that the list is no Series. That would take longer than most commands."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)


def _leave(code: int) -> NoReturn:
    """Exit. What nobody reads any more must not be flushed again when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
    sys.exit(code)
