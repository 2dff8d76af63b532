"""The exit codes. 0: fine; also when whoever reads our output has closed it."""

import signal

WRONG = 1  # something is wrong with the store, or it cannot be read; or what was looked for is not there
WRONG_USE = 2
INTERRUPTED = 128 + signal.SIGINT
