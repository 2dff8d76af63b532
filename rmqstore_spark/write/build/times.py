"""What is noted down of a write: between which store times it is (store/structures/written.py)."""

import os

from native_io import Dispatched
from rmqstore_spark.store.format.message import Mark
from rmqstore_spark.store.structures.written import Record, Run, Written, encode, extended, record_path, with_run
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.build.target import Target

_LARGEST = (1 << 63) - 1


class Times:
    """Gathers the store times of a write.

    Args:
        target: the store before it.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._runs: tuple[Run, ...] = ()
        self.last_position = -1  # physical offset of the last message

    def add(self, placed: Dispatched, stop: int) -> None:
        """More messages, which end at a physical offset."""
        if placed.nbytes:
            run = Run(stop, placed.least_timestamp, placed.most_timestamp, min(placed.fall, _LARGEST))
            self._runs = with_run(self._runs, self._target.end, run)
            self.last_position = placed.last_position

    def record(self, last: Mark | None) -> Record:
        """What is known of the store with the write in it.

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
    """Make the file, where files of a change are made."""
    if record.stretches:
        path = record_path(new)
        tree.make_directory(os.path.dirname(path))
        tree.write_file(path, encode(record))
