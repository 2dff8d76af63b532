"""Work on a scan's tasks that is deferred until their turn comes: cutting segments, and pinning.

A process that reads its own tasks has the first rows after the work for one segment, however many there are. Nothing is
believed longer for that: every task is pinned to the end of the log that the plan has seen, as a log that has its last
message has all messages before it.
"""

from collections.abc import Iterator
from dataclasses import replace

from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.pieces.pinned import pinned
from rmqstore_spark.read.pieces.task import Range, Scanned, Task
from rmqstore_spark.read.plan.prune import in_time
from rmqstore_spark.read.plan.split import SplitPoints, Splitter
from rmqstore_spark.store.snapshot import as_snapshot

_SEGMENTS_AT_ONCE = 8  # small ones, read in one task


class WholeSegments(Splitter):
    """Cuts nothing. Deferred cuts what is scanned; what queues name in a segment may well be one task's.

    Args:
        target, points: as of Splitter.
    """

    def __init__(self, target: int, points: SplitPoints) -> None:
        super().__init__(target, may_walk=False, points=points)

    def split_all(self, ranges: list[Range], least: int = 0) -> list[Range]:
        return ranges


class Deferred:
    """What is yet to be done with the tasks of a plan. For one thread at a time, in the process that has planned.

    Args:
        splitter: cuts what is scanned.
        selection: the selected messages.
    """

    def __init__(self, splitter: Splitter, selection: Selection) -> None:
        self._splitter = splitter
        self._selection = selection

    def begun(self, tasks: list[Task]) -> list[Task]:
        """The tasks of a plan, with all done that cannot be deferred."""
        for store in {piece.store for task in tasks for piece in task.ranges}:
            _ = as_snapshot(store).seen  # the end of the log as of now
        at_once = [number for number, task in enumerate(tasks) if not _is_deferred(task)]
        found = list(tasks)
        for number, task in zip(at_once, pinned([tasks[number] for number in at_once], self._selection), strict=True):
            found[number] = task
        return found

    def ready(self, task: Task) -> Iterator[Task]:
        """The tasks that are read in place of one, in the order of the log.

        Raises:
            DeletedMeanwhileError: a segment has been deleted since the plan was made.
        """
        if not _is_deferred(task):
            yield task
            return
        for tasks in self._cut(task):
            yield from pinned(tasks, self._selection)

    def _cut(self, task: Task) -> Iterator[list[Task]]:
        """The tasks that are read in place of one, as many together as are pinned together."""
        if len(task.ranges) > 1:  # small segments: each is opened to be pinned
            starts = range(0, len(task.ranges), _SEGMENTS_AT_ONCE)
            yield from ([replace(task, ranges=task.ranges[at : at + _SEGMENTS_AT_ONCE])] for at in starts)
            return
        cut = self._splitter.split_all(list(task.ranges))  # what is worth a cut is a task of its own
        store, times = as_snapshot(task.ranges[0].store), self._selection.store_timestamp
        yield [replace(task, ranges=(piece,)) for piece in in_time(store, cut, times)] if len(cut) > 1 else [task]


def _is_deferred(task: Task) -> bool:
    return bool(task.ranges) and all(isinstance(piece, Scanned) for piece in task.ranges)
