"""The directory that a job's tasks stage in: made before the tasks run, and thrown away in any case."""

import contextlib
import itertools
import logging
import os
from collections.abc import Iterator

from rmqstore_spark.errors import RmqStoreError, one_line
from rmqstore_spark.write.build.staging import hold, root_is_made, tell_root_is_made
from rmqstore_spark.write.build.target import check_can_exchange, check_kinds, make_root
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.calls import RaceError
from rmqstore_spark.write.fs.workshop import GONE, PART, staging, workshop

logger = logging.getLogger(__name__)

_TRIES = 100  # at making a job's directory while other jobs come and go


def prepare(root: str, job: str) -> None:
    """Make the directory that a job's tasks stage in.

    Raises:
        RmqStoreError: the file system cannot be written to; nothing is left behind then.
    """
    is_made = False
    for tries in itertools.count(1):
        is_made = is_made or disk.kind_at(root) is None
        try:
            with make_root(root) as tree:
                check_kinds(tree, with_queues=False)
                tree.make_private(staging(root, job))
                if is_made:
                    tell_root_is_made(tree, staging(root, job))
                check_can_exchange(tree, staging(root, job))
                return
        except RaceError:  # another job has just ended, and removed the empty directories
            if tries == _TRIES:
                raise
        except RmqStoreError:
            forget(root, job)
            if is_made:
                disk.remove_empty(root)
            raise


@contextlib.contextmanager
def prepared(root: str, job: str) -> Iterator[None]:
    """prepare() and forget() for a job in this process alone. If it is killed, the next write notices and clears up."""
    with contextlib.ExitStack() as at_end:
        at_end.callback(forget, root, job)
        at_end.callback(os.close, _prepare_held(root, job))
        yield


def _prepare_held(root: str, job: str) -> int:
    new = job + PART  # the directory gets its name only when it is held
    for tries in itertools.count(1):
        prepare(root, new)
        try:
            with disk.Tree(root) as tree:
                return hold(tree, staging(root, new), staging(root, job))
        except RaceError:  # the next write of another process has just thrown it away
            if tries == _TRIES:
                raise
    raise AssertionError


def forget(root: str, *jobs: str) -> None:
    """Throw away the staged files of jobs, and directories of the writer that are then empty; also the store's
    directory, if one of the jobs has made it. A directory that was there before is its owner's, be it empty or a mount
    point.

    Tasks that still run find their directory gone, and can make nothing new. A failure to throw files away is only
    logged, as the messages may be written already: a later write does it (sweep.py).
    """
    if disk.kind_at(root) != "a directory":
        return
    is_made = False
    try:
        with disk.Tree(root) as tree:
            for staged in (staging(root, job) for job in jobs):
                is_made = is_made or root_is_made(tree, staged)
                with contextlib.suppress(RaceError):  # a write that sweeps deletes what is left here at the same time
                    if tree.is_directory(staged):
                        tree.rename(staged, staged + GONE)
                        tree.remove_tree(staged + GONE)
            tree.remove_empty(workshop(root))
    except (OSError, RmqStoreError) as why:
        logger.warning("%s: staged files are not deleted yet, a later write does it: %s", *map(one_line, (root, why)))
    if is_made:
        disk.remove_empty(root)
