"""Files that a broker deletes during a read are no damage: a read that has not given any message yet begins again, with
the store as it is then."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from rmqstore_spark.errors import DeletedMeanwhileError

_T = TypeVar("_T")

# Seconds to wait before the next try. A broker that has begun to delete goes on with ten files, at intervals of 0.1 s
# (MessageStoreConfig.deleteCommitLogFilesInterval).
_PAUSES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.8)


def again(make: Callable[[], _T]) -> _T:
    """The result of a function that opens the stores anew at each call.

    Raises:
        DeletedMeanwhileError: files were deleted in each of several tries.
    """
    for pause in _PAUSES:
        try:
            return make()
        except DeletedMeanwhileError:
            time.sleep(pause)
    return make()


def begun_again(make: Callable[[], Iterator[_T]]) -> Iterator[_T]:
    """The items of an iterator that opens the stores anew, begun again as long as no item has come.

    Raises:
        DeletedMeanwhileError: as by again(); or files were deleted after the first item.
    """
    first, others = again(lambda: _first_of(make()))
    yield from first
    yield from others


def _first_of(items: Iterator[_T]) -> tuple[list[_T], Iterator[_T]]:
    return list(itertools.islice(items, 1)), items
