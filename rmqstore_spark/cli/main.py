"""What the shell calls: one line for each error, and the exit codes.

0: fine; also when whoever reads our output has closed it. 1: something is wrong with the store, or it cannot be read.
2: wrong use. 130: interrupted.
"""

import os
import signal
import sys
from typing import NoReturn

from rmqstore_spark.errors import NotAStoreError, OptionError, RmqStoreError, one_line

WRONG, WRONG_USE, INTERRUPTED = 1, 2, 128 + signal.SIGINT


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
    try:
        import click
        import rich  # noqa: F401
    except ModuleNotFoundError as why:
        print(f"rmqstore: {why}; install it with: pip install 'rmqstore-spark[cli]'", file=sys.stderr)
        return WRONG_USE
    from rmqstore_spark.cli.commands import Rmqstore

    try:
        found = Rmqstore().main(prog_name="rmqstore", standalone_mode=False)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as why:
        why.show()
        return why.exit_code
    return found if isinstance(found, int) else 0


def _leave(code: int) -> NoReturn:
    """Exit. What nobody reads any more must not be flushed again when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
