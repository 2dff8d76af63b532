"""What a read says of damage: in the log, and to those who listen.

Who listens hears what is read in this context (contextvars), also by the threads that read for it, and nobody else's
reads.
"""

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)


@dataclass
class Listener:
    """Hears what reads say of damage.

    Attributes:
        is_once: whether what it has heard already is not said in the log again.
        is_lost: whether it has heard of damage that no replica makes good for.
        heard: the texts.
    """

    is_once: bool = False
    is_lost: bool = False
    heard: set[str] = field(default_factory=set)


_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("_listeners", default=())


@contextlib.contextmanager
def heard(is_once: bool = False) -> Iterator[Listener]:
    """A listener, within it.

    Args:
        is_once: of work that goes through a damaged log several times: each damage is said in the log once.
    """
    listener = Listener(is_once)
    before = _listeners.set((*_listeners.get(), listener))
    try:
        yield listener
    finally:
        _listeners.reset(before)


def say_passed_over(place: str) -> None:
    """Say that messages are passed over.

    Args:
        place: where in the log, and what is wrong there.
    """
    _say(f"{place}; what comes after is read", is_lost=True)


def say_mended(place: str, path: str) -> None:
    """Say that messages are read in a replica.

    Args:
        place: where in the log, and what is wrong there.
        path: the replica's segment.
    """
    _say(f"{place}; read from the replica {path} instead", is_lost=False)


def _say(text: str, is_lost: bool) -> None:
    is_new = True
    for listener in _listeners.get():
        is_new &= not (listener.is_once and text in listener.heard)
        listener.heard.add(text)
        listener.is_lost |= is_lost
    if is_new:
        logger.warning("%s", text)
