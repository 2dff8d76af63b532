"""Reports of damage that reads have met: in the log file, and to listeners.

A listener hears of reads in its own context (contextvars), including those of threads that read for it, and of no
others.
"""

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

from rmqstore_spark.errors import one_line
from rmqstore_spark.once import Once
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import why_unread

logger = logging.getLogger(__name__)

_MOST_TEXTS = 1000  # kept for whoever tells them; a damaged log may have millions


@dataclass
class Listener:
    """Hears of the damage that reads meet.

    Attributes:
        is_once: whether damage that was heard of already is not logged again.
        is_silent: whether no damage is logged: whoever listens tells it.
        is_lost: whether damage was heard of that no replica makes good for.
        texts: what was reported, or some of it where it is very much.
        once: knows what was reported, where each damage is logged once.
    """

    is_once: bool = False
    is_silent: bool = False
    is_lost: bool = False
    texts: set[str] = field(default_factory=set)
    once: Once = field(default_factory=Once)

    def takes(self, text: str, is_lost: bool) -> bool:
        """Take a report. Is it to be logged, as far as this listener is concerned?"""
        self.is_lost |= is_lost
        if len(self.texts) < _MOST_TEXTS:
            self.texts.add(text)
        is_new = not self.is_once or self.once.is_new(text)
        return is_new and not self.is_silent


_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("_listeners", default=())


@contextlib.contextmanager
def listening(is_once: bool = False, is_silent: bool = False) -> Iterator[Listener]:
    """A listener to the reads within the context.

    Args:
        is_once: for work that goes through a damaged log several times: each damage is logged once.
        is_silent: for work that tells of the damage itself: none is logged.
    """
    listener = Listener(is_once, is_silent)
    before = _listeners.set((*_listeners.get(), listener))
    try:
        yield listener
    finally:
        _listeners.reset(before)


def say_passed_over(place: str) -> None:
    """Report that messages are passed over.

    Args:
        place: where in the log, and the fault there.
    """
    _say(f"{place}; what comes after is read", is_lost=True)


def say_lost(what: str) -> None:
    """Report what is lost that no read can meet."""
    _say(what, is_lost=True)


def say_if_unread(store: Snapshot, name: str, table: str) -> None:
    """Report that a file of config/ exists and cannot be read. For tables that found nothing in the file.

    Args:
        name: the file's name.
    """
    why = why_unread(store.root, name, store.files)
    if why is not None:
        say_lost(f"{one_line(why)}; so table {table!r} lacks its contents")


def say_mended(place: str, path: str) -> None:
    """Report that messages are read in a replica.

    Args:
        place: where in the log, and the fault there.
        path: the replica's segment.
    """
    _say(f"{place}; read from the replica {path} instead", is_lost=False)


def _say(text: str, is_lost: bool) -> None:
    is_new = True
    for listener in _listeners.get():
        is_new &= listener.takes(text, is_lost)
    if is_new:
        logger.warning("%s", text)
