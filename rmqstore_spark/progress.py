"""How far long work is, said in the log."""

import logging
import time

log = logging.getLogger(__name__)

REPORT_SECONDS = 5.0


class Progress:
    """Says every few seconds how far some work is; of short work nothing.

    Args:
        what: what is done, and to which store.
        total: how much of it there is.
        noun: what is counted; None: bytes.
    """

    def __init__(self, what: str, total: int, noun: str | None = None) -> None:
        self._what = what
        self._total = total
        self._noun = noun
        self._done = 0
        self._begin = self._reported = time.monotonic()

    def add(self, amount: int = 1) -> None:
        """So much more is done."""
        self._done += amount
        now = time.monotonic()
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            # A worker of Spark's shows warnings only, and who waits wants to know.
            log.warning("%s: %s (%d %%)%s", self._what, *self._how_far(now - self._begin))

    def _how_far(self, seconds: float) -> tuple[str, int, str]:
        percent = 100 * self._done // max(1, self._total)
        if self._noun is not None:
            return f"{self._done:,} of {self._total:,} {self._noun}", percent, ""
        megabytes, rate = f"{self._done / 1e6:.1f} of {self._total / 1e6:.1f} MB", self._done / 1e6 / max(seconds, 1e-9)
        return megabytes, percent, f", {rate:.0f} MB/s"
