"""The exit codes, and what each says: the help, docs/command-line.md and the commands have them from here."""

import signal

FINE, WRONG, WRONG_USE, NOT_ALL, NOT_FOUND = range(5)
INTERRUPTED = 128 + signal.SIGINT

EXIT_CODES = {
    FINE: "fine, or the reader of the output has closed it",
    WRONG: "something is wrong with the store, or it cannot be read",
    WRONG_USE: "wrong use, or an output that cannot be written",
    NOT_ALL: "nothing was found, but not all could be looked at (damage that --mode passes over, too)",
    NOT_FOUND: "no message was found (messages, tail, get, history)",
    INTERRUPTED: "interrupted",
}
