"""A pause of Python's garbage collector while many objects are made that all stay. The collector would look at them
again and again, which takes as long as making them."""

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_paused = 0  # how many pauses there are
_was_on = False  # before the first of them


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No collection begins by itself, in any thread, until the last of these pauses ends. What is no longer in use is
    freed as ever, but for circles."""
    global _paused, _was_on
    with _lock:
        if _paused == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if _paused == 0 and _was_on:
                gc.enable()
