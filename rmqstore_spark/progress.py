"""The progress of long work: reported in the log, or shown by a user's function."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from rmqstore_spark.amounts import MIB
from rmqstore_spark.errors import OptionError

logger = logging.getLogger(__name__)

REPORT_SECONDS = 5.0
_SHOW_SECONDS = 0.1


@dataclass
class _Shows:
    by: "Callable[[Progress], None]"
    is_over: bool = False


_shows: ContextVar[_Shows | None] = ContextVar("_shows", default=None)


class Progress:
    """Reports every few seconds how far some work is; short work is not reported. Several threads may do the work.

    Large because the fields are the values that a user sees, and when and to whom they were reported last.

    Args:
        is_said: False where nobody may want a line in the log: the progress is only shown.

    Attributes:
        what: the work in words, with its store.
        total: the amount of the work, in nouns or bytes.
        noun: the unit that is counted; None for bytes.
        done: the amount that is done.
    """

    def __init__(self, what: str, total: int, noun: str | None = None, is_said: bool = True) -> None:
        self.what = what
        self.total = total
        self.noun = noun
        self.done = 0
        self._is_said = is_said
        self._shows = _shows.get()  # of the thread that begins the work; other threads may do it
        self._lock = threading.Lock()
        self._begin = self._reported = time.monotonic()

    def add(self, amount: int = 1) -> None:
        """Report that this much more is done."""
        with self._lock:
            self.done += amount
        now = time.monotonic()
        if self._shows is not None and not self._shows.is_over:
            if now - self._reported >= _SHOW_SECONDS or self.done >= self.total:
                self._reported = now
                self._shows.by(self)
        elif self._is_said and self.done < self.total and now - self._reported >= REPORT_SECONDS:
            self._reported = now
            # Spark's workers show only warnings, and a user who waits wants to see the progress.
            logger.warning("%s: %s (%d %%)%s", self.what, *self._how_far(now - self._begin))

    def _how_far(self, seconds: float) -> tuple[str, int, str]:
        percent = 100 * self.done // max(1, self.total)
        if self.noun is not None:
            return f"{self.done:,} of {self.total:,} {self.noun}", percent, ""
        left = (self.total - self.done) * seconds / max(1, self.done)
        amount = f"{self.done / MIB:.1f} of {self.total / MIB:.1f} MiB"
        rate = self.done / MIB / max(seconds, 1e-9)
        remaining = f"{left:.0f} s" if left < 120 else f"{left / 60:.0f} min"
        return amount, percent, f", {rate:.0f} MiB/s, about {remaining} left"


def shown_if_asked(by: object) -> contextlib.AbstractContextManager[None]:
    """shown() with a user's function; does nothing if `by` is None.

    Raises:
        OptionError: `by` is not a function.
    """
    if by is None:
        return contextlib.nullcontext()
    if not callable(by):
        raise OptionError(f"progress: expected a function, found another value (of type {type(by).__name__})")
    return shown(by)


@contextlib.contextmanager
def shown(by: Callable[[Progress], None]) -> Iterator[None]:
    """In this context, the progress of work that this thread begins goes to a function instead of the log, whichever
    thread does the work: at most ten times a second, and when a piece of work is done."""
    before, mine = _shows.get(), _Shows(by)
    _shows.set(mine)
    try:
        yield
    finally:
        mine.is_over = True
        _shows.set(before)
