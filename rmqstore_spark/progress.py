"""How far long work is: said in the log, or shown by whoever wants to."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

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
    """Says every few seconds how far some work is; of short work nothing. Several threads may do it.

    Large because the fields are what a user sees of the work, and when that was said last, to whom.

    Args:
        is_said: False where nobody may want to know: it is only shown.

    Attributes:
        what: what is done, and to which store.
        total: how much of it there is.
        noun: what is counted; None: bytes.
        done: how much of it is done.
    """

    def __init__(self, what: str, total: int, noun: str | None = None, is_said: bool = True) -> None:
        self.what = what
        self.total = total
        self.noun = noun
        self.done = 0
        self._is_said = is_said
        self._shows = _shows.get()  # of who begins the work; who makes it may be other threads
        self._lock = threading.Lock()
        self._begin = self._reported = time.monotonic()

    def add(self, amount: int = 1) -> None:
        """So much more is done."""
        with self._lock:
            self.done += amount
        now = time.monotonic()
        if self._shows is not None and not self._shows.is_over:
            if now - self._reported >= _SHOW_SECONDS or self.done >= self.total:
                self._reported = now
                self._shows.by(self)
        elif self._is_said and self.done < self.total and now - self._reported >= REPORT_SECONDS:
            self._reported = now
            # A worker of Spark's shows warnings only, and who waits wants to know.
            logger.warning("%s: %s (%d %%)%s", self.what, *self._how_far(now - self._begin))

    def _how_far(self, seconds: float) -> tuple[str, int, str]:
        percent = 100 * self.done // max(1, self.total)
        if self.noun is not None:
            return f"{self.done:,} of {self.total:,} {self.noun}", percent, ""
        left = (self.total - self.done) * seconds / max(1, self.done)
        megabytes, rate = f"{self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB", self.done / 1e6 / max(seconds, 1e-9)
        remaining = f"{left:.0f} s" if left < 120 else f"{left / 60:.0f} min"
        return megabytes, percent, f", {rate:.0f} MB/s, about {remaining} left"


def shown_if_asked(by: object) -> contextlib.AbstractContextManager[None]:
    """shown() to what a user gives as a function; None where nobody asks for it.

    Raises:
        OptionError: it is none.
    """
    if by is None:
        return contextlib.nullcontext()
    if not callable(by):
        raise OptionError(f"progress: expected a function, found another value (of type {type(by).__name__})")
    return shown(by)


@contextlib.contextmanager
def shown(by: Callable[[Progress], None]) -> Iterator[None]:
    """Within it, progress of what this thread begins is not said in the log but handed to a function, whichever thread
    it is made in: ten times a second at most, and when something is done."""
    before, mine = _shows.get(), _Shows(by)
    _shows.set(mine)
    try:
        yield
    finally:
        mine.is_over = True
        _shows.set(before)
