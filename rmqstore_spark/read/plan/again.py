"""What a broker deletes while it is read is no damage: who has not given anything out yet begins again, with the store
as it is then."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from rmqstore_spark.errors import DeletedMeanwhileError

_T = TypeVar("_T")

# Seconds to wait before the next try. A broker that has begun to delete goes on with ten files, a tenth of a second
# each (MessageStoreConfig.deleteCommitLogFilesInterval).
_PAUSES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.8)


def again(make: Callable[[], _T]) -> _T:
    """What a function gives, which opens the stores anew each time.

    Raises:
        DeletedMeanwhileError: something was deleted in each of several tries.
    """
    for pause in _PAUSES:
        try:
            return make()
        except DeletedMeanwhileError:
            time.sleep(pause)
    return make()


def begun_again(make: Callable[[], Iterator[_T]]) -> Iterator[_T]:
    """The same of what comes one after the other, as long as nothing has come.

    Raises:
        DeletedMeanwhileError: as again(); or something was deleted after that.
    """
    first, others = again(lambda: _first_of(make()))
    yield from first
    yield from others


def _first_of(items: Iterator[_T]) -> tuple[list[_T], Iterator[_T]]:
    return list(itertools.islice(items, 1)), items
