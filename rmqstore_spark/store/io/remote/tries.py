"""Retries of requests to a storage: how often, and after how long."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

_TRIES = 4
LIMIT = 90.0  # seconds after which there are no more retries
# Seconds between tries. Each pause is shortened at random, so that clients do not all come back at once.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0

_Answer = TypeVar("_Answer")


class ChangedError(Exception):
    """The object is not the expected one."""


class FailedError(Exception):
    """Some work failed for good.

    Attributes:
        why: the last try's error.
        again: the number of tries and their total time, as text after a comma; '' for a single try.
    """

    def __init__(self, why: Exception, again: str) -> None:
        super().__init__(why, again)
        self.why = why
        self.again = again


def tried(
    work: Callable[[], _Answer], errors: tuple[type[Exception], ...], may_pass: Callable[[Exception], bool]
) -> _Answer:
    """The answer of some work, at the first try or a later one.

    Args:
        errors: the types of errors that are caught.
        may_pass: whether the next try may succeed after such an error.

    Raises:
        FailedError: the work failed for good.
    """
    begun, count = time.monotonic(), 0
    while True:
        count += 1
        try:
            return work()
        except errors as why:
            pause = min(_FIRST_PAUSE * 4 ** (count - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1)
            passed = time.monotonic() - begun
            if count == _TRIES or passed + pause > LIMIT or not may_pass(why):
                raise FailedError(why, f", tried {count} times in {passed:.0f} s" if count > 1 else "") from None
        time.sleep(pause)
