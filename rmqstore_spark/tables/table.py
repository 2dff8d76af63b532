"""The type Table: a name, columns, and the rows of a store. registry.py lists all tables."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rmqstore_spark.columns import Column, as_schema
from rmqstore_spark.kept import kept
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.proofs import Proof

Part = Any


def whole(store: Snapshot, options: ReadOptions) -> Sequence[Part]:
    """The parts of a small table: one part for the whole store."""
    return [None]


def of_the_log_alone(store: Snapshot, options: ReadOptions) -> Iterable[Proof | None]:
    """The proofs of files besides the log, for tables that need none."""
    return ()


@dataclass(frozen=True)
class Table:
    """A table: all that anybody has to know of it, so that nothing outside its module is written for it.

    Large because all that differs between tables is a field.

    Attributes:
        name: the name for `option("table", ...)`, and of the method of Store.
        row: the meaning of a row, in words.
        columns: in their order, without `store`, which every table has by name.
        by_name: columns that it has by name only, too, because they cost more than all others.
        options: the read options that select the table's rows or say how they are read; all others are refused.
        rows: the rows of one part of a store, in record batches of the whole schema. The options' columns are those
            that are asked for: others may hold anything.
        parts: the parts in which a store's rows are read, each by a task of its own. A part can be pickled.
        nbytes: the bytes to read of a part, for tables whose parts take long and show their progress.
        note: further remarks for users, in sentences.
        seen: proofs of files besides the log, so that a task can tell whether these files are those of the plan. For
            tables that are cut by such files; a table that is read in one task needs none.
        of_queue_logs: whether a tiered store has such a table, too; then `parts` and `rows` are asked for each queue's
            log.
    """

    name: str
    row: str
    columns: tuple[Column, ...]
    options: frozenset[str]
    rows: Callable[[Snapshot, ReadOptions, Part], Iterator[pa.RecordBatch]]
    parts: Callable[[Snapshot, ReadOptions], Sequence[Part]] = whole
    nbytes: Callable[[Part], int] | None = None
    note: str = ""
    seen: Callable[[Snapshot, ReadOptions], Iterable[Proof | None]] = of_the_log_alone
    of_queue_logs: bool = False
    by_name: tuple[Column, ...] = ()

    @kept
    def schema(self) -> pa.Schema:
        """The schema of the table's record batches."""
        return as_schema(self.columns)
