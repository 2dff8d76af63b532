"""A salvage goes through a damaged log several times; its damage is told once."""

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar

from rmqstore_spark.read import batches

_told: ContextVar[set[str] | None] = ContextVar("_told", default=None)  # by the salvage that reads


def _is_new(record: logging.LogRecord) -> bool:
    told = _told.get()
    if told is None:
        return True
    text = record.getMessage()
    if text in told:
        return False
    told.add(text)
    return True


batches.log.addFilter(_is_new)


@contextlib.contextmanager
def told_once() -> Iterator[None]:
    """Within it, also in the threads that read for it, what reading says in the log is said there no second time. What
    others read meanwhile is said as ever."""
    before = _told.set(set())
    try:
        yield
    finally:
        _told.reset(before)
