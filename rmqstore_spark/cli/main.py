"""The entry point for the shell: errors become one line each, and exit codes."""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, NoReturn

from rmqstore_spark.cli.exit_codes import FINE, INTERRUPTED, WRONG, WRONG_USE, exit_code_of
from rmqstore_spark.cli.streams import open_streams, restart_in_utf8
from rmqstore_spark.errors import RmqStoreError, one_line
from rmqstore_spark.once import Once

if TYPE_CHECKING:
    import click

_NAME = "rmqstore"
_COMPLETE = "_RMQSTORE_COMPLETE"  # set by a shell that completes words; the name is click's


def main() -> NoReturn:
    """Run the command line of this process, and exit."""
    restart_in_utf8()
    open_streams()
    _leave(exit_code(sys.argv[1:]))


def exit_code(arguments: Sequence[str]) -> int:
    """Run a command, and return its exit code. An error becomes one line on standard error.

    Args:
        arguments: the words after `rmqstore`.
    """
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return FINE
    except KeyboardInterrupt:
        return INTERRUPTED
    except RmqStoreError as why:
        text = re.sub(r"\bmode=(?=[A-Z])", "--mode ", str(why))  # as it is written here
        print(f"rmqstore: {text}", file=sys.stderr)
        return exit_code_of(type(why))
    except OSError as why:
        print(f"rmqstore: {one_line(why)}", file=sys.stderr)
        return WRONG
    return code


def _run(arguments: Sequence[str]) -> int:
    sys.meta_path.insert(0, _NoPandas())
    try:
        import click
        import rich  # noqa: F401
    except ModuleNotFoundError as why:
        print(f"rmqstore: {why}; install the command line with: pip install click rich", file=sys.stderr)
        return WRONG_USE
    from rmqstore_spark.cli.commands import Rmqstore

    logging.basicConfig(format="rmqstore: %(message)s", handlers=[_ToStandardError()])
    command = Rmqstore()
    if instruction := os.environ.get(_COMPLETE):
        from rmqstore_spark.cli.completion import shell_complete

        return shell_complete(command, {}, _NAME, _COMPLETE, instruction)
    try:
        # Not command.main(), which has an exit code of its own for a closed pipe.
        with _each_once(), command.make_context(_NAME, [*arguments]) as context:
            found = command.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as why:
        return _wrong_use(why)
    return found if isinstance(found, int) else FINE


def _wrong_use(why: "click.ClickException") -> int:
    import click

    from rmqstore_spark.cli.parameters import unknown_option

    if isinstance(why, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # of click 8.2 and later
        why.show()
        return why.exit_code
    text = unknown_option(why) if isinstance(why, click.NoSuchOption) else why.format_message()
    path = why.ctx.command_path if isinstance(why, click.UsageError) and why.ctx is not None else _NAME
    text = one_line(text.rstrip("."))
    print(f"{path}: {text}{' See' if text.endswith('?') else '; see'} {path} --help", file=sys.stderr)
    return why.exit_code


@contextlib.contextmanager
def _each_once() -> Iterator[None]:
    """The log says each text once: a command that opens a store several times is told the same of it each time."""
    handlers, once = logging.getLogger().handlers[:], Once()

    def is_new(record: logging.LogRecord) -> bool:
        return once.is_new(record.getMessage())

    for handler in handlers:
        handler.addFilter(is_new)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_new)


class _ToStandardError(logging.Handler):
    """Prints to what is standard error at that moment: above progress bars, where there are any."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)


class _NoPandas(MetaPathFinder):
    """Hides pandas. Where pandas is installed, pyarrow imports it when the first list becomes an array, only to see
    that the list is no Series. The import would take longer than most commands."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)


def _leave(code: int) -> NoReturn:
    """Exit without flushing the streams again: output that nobody reads any more cannot be written."""
    try:
        sys.stdout.flush()
    except (OSError, RmqStoreError):
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
    sys.exit(code)
