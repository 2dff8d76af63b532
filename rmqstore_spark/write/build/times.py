"""The record of a write: between which store times its messages are (store/structures/written.py)."""

import os

from native_io import Dispatched
from rmqstore_spark.store.format.message import Mark
from rmqstore_spark.store.structures.written import Record, Run, Written, encode, extended, record_path, with_run
from rmqstore_spark.write.build.target import Target
from rmqstore_spark.write.fs.disk import Tree

_LARGEST = (1 << 63) - 1


class Times:
    """Gathers the store times of a write.

    Args:
        target: the store before the write.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._runs: tuple[Run, ...] = ()
        self.last_position = -1  # physical offset of the last message

    def add(self, placed: Dispatched, stop: int) -> None:
        """Add more messages, which end at the physical offset `stop`."""
        if placed.nbytes:
            run = Run(stop, placed.least_timestamp, placed.most_timestamp, min(placed.fall, _LARGEST))
            self._runs = with_run(self._runs, self._target.end, run)
            self.last_position = placed.last_position

    def record(self, last: Mark | None) -> Record:
        """The record of the store with the messages of the write.

        Args:
            last: the last message; None where there is none.
        """
        store = self._target.store
        known = Record() if store is None else store.written
        if not self._runs or last is None:
            return known
        start, before = self._target.end, self._target.last_timestamp or None
        new = Written(start, self._runs[-1].stop, before, last, self._runs)
        return extended(known, new, (lambda _: False) if store is None else store.times.has)


def put(tree: Tree, new: str, record: Record) -> None:
    """Make the record's file in the directory of a change's new files."""
    if record.stretches:
        path = record_path(new)
        tree.make_directory(os.path.dirname(path))
        tree.write_file(path, encode(record))
