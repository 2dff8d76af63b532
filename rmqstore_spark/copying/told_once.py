"""A salvage goes through a damaged log several times; its damage is told once."""

import contextlib
import logging
from collections.abc import Iterator

from rmqstore_spark.read import batches


@contextlib.contextmanager
def told_once() -> Iterator[None]:
    """Within it, in all threads, what reading says in the log is said there no second time."""
    told: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text in told:
            return False
        told.add(text)
        return True

    batches.log.addFilter(is_new)
    try:
        yield
    finally:
        batches.log.removeFilter(is_new)
