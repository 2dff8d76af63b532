"""What a table is: a name, columns, and the rows of a store. registry.py has them all."""

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
    """The parts of a small table: one, for the whole store."""
    return [None]


def of_the_log_alone(store: Snapshot, options: ReadOptions) -> Iterable[Proof | None]:
    """What tells a store's other files from those of another time: nothing."""
    return ()


@dataclass(frozen=True)
class Table:
    """A table: all that anybody has to know of it, so that nothing outside its module is written for it.

    Large because nothing outside of a table's module is written for it, so all that differs between tables is a
    field.

    Attributes:
        name: what `option("table", ...)` names, and the method of Store.
        row: what a row is, in words.
        columns: in their order, without `store`, which every table has by name.
        options: the read options that select rows of it, or say how they are read; any other is refused.
        rows: the rows of one part of a store, in record batches of the whole schema.
        parts: what a store's rows are read in, each by a task of its own. A part can be pickled.
        nbytes: how much of a part there is to read, of a table whose parts take long: it shows its progress.
        note: what else there is to say of it, in sentences.
        seen: what a plan looks at beside the log, so that a task can tell whether the files that it reads are those of
            the plan. Of tables that are cut by such files; one that is read in one task finds them all there.
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

    @kept
    def schema(self) -> pa.Schema:
        """Of its record batches."""
        return as_schema(self.columns)
