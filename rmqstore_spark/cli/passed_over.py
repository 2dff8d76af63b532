"""Whether damage was passed over by what a command has read: where nothing was found, it may have been there."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rmqstore_spark.read import batches


class PassedOver(logging.Filter):
    """Hears what reading says of damage.

    Attributes:
        any: whether there was any that nothing made good for.
    """

    any = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record goes on."""
        self.any |= record.msg == batches.PASSED_OVER
        return True


@contextmanager
def passed_over() -> Iterator[PassedOver]:
    """What is passed over within."""
    heard = PassedOver()
    batches.log.addFilter(heard)
    try:
        yield heard
    finally:
        batches.log.removeFilter(heard)
