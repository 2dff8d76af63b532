"""The exit codes and their meanings: the source for the help, docs/errors.md and the commands."""

import signal

from rmqstore_spark.errors import BadRowError, NotAStoreError, OptionError, RmqStoreError

FINE, WRONG, WRONG_USE, NOT_ALL, NOT_FOUND = range(5)
INTERRUPTED = 128 + signal.SIGINT

EXIT_CODES = {
    FINE: "fine, or the reader of the output has closed it",
    WRONG: "something is wrong with the store, or it cannot be read",
    WRONG_USE: "wrong use: an option, a topic, a path or a row of `import` that does not fit; or an output that cannot "
    "be written",
    NOT_ALL: "not all could be looked at: nothing was found, or rows were shown of a damaged store",
    NOT_FOUND: "no message was found (messages, tail, get, history)",
    INTERRUPTED: "interrupted",
}


def exit_code_of(error: type[RmqStoreError]) -> int:
    """The exit code of a command that ends with such an error."""
    return WRONG_USE if issubclass(error, OptionError | NotAStoreError | BadRowError) else WRONG
