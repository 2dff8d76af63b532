"""What a storage does not answer well at first is asked again: how often, and after how long."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

_TRIES = 4
LIMIT = 90.0  # seconds, after which nothing is tried again
# Seconds between tries. Each is cut by chance, so that not all come back at once.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0

_Answer = TypeVar("_Answer")


class ChangedError(Exception):
    """An object is not the one that it was."""


class FailedError(Exception):
    """Some work failed for good.

    Attributes:
        why: the last try's error.
        again: how often it was tried, and for how long, as words after a comma; '' where it was tried once.
    """

    def __init__(self, why: Exception, again: str) -> None:
        super().__init__(why, again)
        self.why = why
        self.again = again


def tried(
    work: Callable[[], _Answer], errors: tuple[type[Exception], ...], may_pass: Callable[[Exception], bool]
) -> _Answer:
    """What some work answers, at the first try or a later one.

    Args:
        errors: of which kinds its failures are. Others are not caught.
        may_pass: whether the next try may go better after such an error.

    Raises:
        FailedError: it failed.
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
