"""A table, `messages` or another one, as a `pyarrow.dataset.Dataset` that reads only what a query needs."""

from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from rmqstore_spark.query.options import MESSAGES, ReadOptions
from rmqstore_spark.read.scan import Scan
from rmqstore_spark.tables.registry import table_batches
from rmqstore_spark.tables.wanted import Batches, Columns, Wanted, dataset_schema

_OWN_METHODS = "a store's dataset; it can be read with its own methods only (scanner, to_table, to_batches, ...)"


class StoreDataset(ds.UnionDataset):  # type: ignore[misc]
    """A table of stores. Each scan sees the stores as they are at that moment, and reads what its filter may let pass.

    A Dataset's own C++ part is not this one's way to its rows, and should be asked for none. So that whatever asks it
    gets an error, and no rows that are not all, it is that of a file that is not there.

    Args:
        options: the read; its columns are those of the dataset.
    """

    def __init__(self, options: ReadOptions) -> None:
        schema = dataset_schema(options)
        nowhere = ds.IpcFileFormat().make_fragment(_OWN_METHODS, fs.LocalFileSystem())
        nothing = ds.FileSystemDataset([nowhere], schema, ds.IpcFileFormat(), fs.LocalFileSystem())
        super().__init__(schema, [nothing])
        self._options = options
        self._filter: pc.Expression | None = None
        self._context: Context | None = None

    def __reduce__(self) -> tuple[Callable[..., "StoreDataset"], tuple[Any, ...]]:
        return _filtered, (self._options, self._filter)

    def __repr__(self) -> str:
        filtered = "" if self._filter is None else f", where {self._filter}"
        return f"<table {self._options.table} of {', '.join(self._options.paths)}{filtered}>"

    def reporting_here(self) -> "StoreDataset":
        """The dataset for an engine that reads in threads of its own: what they meet is heard by those who listen where
        this is called (read/run/damage_reports.py)."""
        made = _filtered(self._options, self._filter)
        made._context = copy_context()
        return made

    def filter(self, expression: pc.Expression) -> "StoreDataset":
        """The dataset of the rows for which an expression is true as well."""
        return _filtered(self._options, _both(self._filter, expression))

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        use_threads: bool | None = None,
        **_: Any,
    ) -> "StoreScanner | ds.Scanner":
        """A scan, as of `pyarrow.dataset.Dataset.scanner`. How far it reads ahead is decided here.

        Args:
            batch_size: the most rows of a batch.
            use_threads: if given, the scan is a Scanner of Arrow's own, which goes on by itself and can be used once:
                what pyarrow asks for where it does something with the scan in C++, as `write_dataset` does.

        Raises:
            pyarrow.ArrowInvalid: there is no such column, or the filter does not fit its type.
        """
        made = self._scanner(columns, filter, batch_size)
        if use_threads is None:
            return made
        return ds.Scanner.from_batches(made.later(), schema=made.projected_schema, use_threads=use_threads)

    def to_table(self, columns: Columns = None, filter: pc.Expression | None = None, **how: Any) -> pa.Table:
        """The rows as one table."""
        return self._scanner(columns, filter, **how).to_table()

    def to_batches(self, columns: Columns = None, filter: pc.Expression | None = None, **how: Any) -> Batches:
        """The rows as they are read."""
        return self._scanner(columns, filter, **how).to_batches()

    def head(self, num_rows: int, columns: Columns = None, filter: pc.Expression | None = None, **how: Any) -> pa.Table:
        """The first rows."""
        return self._scanner(columns, filter, **how).head(num_rows)

    def take(self, indices: Any, columns: Columns = None, filter: pc.Expression | None = None, **how: Any) -> pa.Table:
        """The rows with these numbers. All rows are read."""
        return self._scanner(columns, filter, **how).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **how: Any) -> int:
        """The number of rows."""
        return self._scanner(None, filter, **how).count_rows()

    def _scanner(
        self, columns: Columns, filter: pc.Expression | None, batch_size: int | None = None, **_: Any
    ) -> "StoreScanner":
        return StoreScanner(self._options, columns, _both(self._filter, filter), batch_size, self._context)

    @property
    def partition_expression(self) -> pc.Expression:
        """True of all rows."""
        return pc.scalar(True)

    # What pyarrow does in C++ with a Dataset's own part, it does here with all rows in memory.

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ds.Fragment]:
        """All rows in memory, as fragments."""
        return self._in_memory(filter).get_fragments()  # type: ignore[no-any-return]

    def replace_schema(self, schema: pa.Schema) -> ds.Dataset:
        """All rows in memory, with another schema."""
        return self._in_memory().replace_schema(schema)

    def sort_by(self, sorting: Any, **how: Any) -> ds.Dataset:
        """All rows in memory, sorted."""
        return self._in_memory().sort_by(sorting, **how)

    def join(self, right_dataset: ds.Dataset, *how: Any, **named: Any) -> ds.Dataset:
        """All rows in memory, joined with those of another dataset."""
        return self._in_memory().join(_plain(right_dataset), *how, **named)

    def join_asof(self, right_dataset: ds.Dataset, *how: Any, **named: Any) -> ds.Dataset:
        """All rows in memory, joined by time with those of another dataset."""
        return self._in_memory().join_asof(_plain(right_dataset), *how, **named)

    @property
    def children(self) -> list[ds.Dataset]:
        """All rows in memory, as one dataset."""
        return [self._in_memory()]

    def _in_memory(self, filter: pc.Expression | None = None) -> ds.Dataset:
        return ds.InMemoryDataset(self.to_table(filter=filter))


class StoreScanner:
    """A scan of a StoreDataset, with the methods of a `pyarrow.dataset.Scanner`. Each call reads anew."""

    def __init__(
        self,
        options: ReadOptions,
        columns: Columns,
        filter: pc.Expression | None,
        batch_size: int | None,
        context: Context | None,
    ) -> None:
        self._wanted = Wanted.of(options, columns, filter)
        self._batch_size = batch_size
        self._context = context

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._wanted.schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the dataset."""
        return self._wanted.whole

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as they are read."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """The rows as one table."""
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def to_batches(self) -> Batches:
        """The rows as they are read. The read is planned by this call."""
        rows, size = _within(self._context, lambda: self._wanted.rows(_read(self._wanted))), self._batch_size
        if size is None:
            return rows
        return (batch.slice(at, size) for batch in rows for at in range(0, batch.num_rows, size))

    def later(self) -> Batches:
        """The rows as they are read, planned when the first is asked for."""
        yield from self.to_batches()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The rows as an Arrow stream."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """The rows as they are read, each batch with the fragment that it is said to be of."""
        for batch in self.to_batches():
            yield ds.TaggedRecordBatch(batch, next(iter(ds.InMemoryDataset(batch).get_fragments())))

    def head(self, num_rows: int) -> pa.Table:
        """The first rows."""
        found: list[pa.RecordBatch] = []
        for batch in self.to_batches():
            found.append(batch.slice(0, num_rows))
            num_rows -= found[-1].num_rows
            if not num_rows:
                break
        return pa.Table.from_batches(found, self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """The rows with these numbers. All rows are read."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """The number of rows. Only the filter's columns are read."""
        wanted = self._wanted.without_columns()
        return sum(batch.num_rows for batch in _within(self._context, lambda: wanted.rows(_read(wanted))))


def _within(context: Context | None, read: Callable[[], Batches]) -> Batches:
    """What is read, in a context; each time in a copy of it, as a context is one thread's at a time."""
    return read() if context is None else _one_by_one(context, context.copy().run(read))


def _one_by_one(context: Context, rows: Batches) -> Batches:
    while (batch := context.copy().run(next, rows, None)) is not None:
        yield batch


def _filtered(options: ReadOptions, expression: pc.Expression | None) -> StoreDataset:
    made = StoreDataset(options)
    made._filter = expression
    return made


def _plain(other: ds.Dataset) -> ds.Dataset:
    return other._in_memory() if isinstance(other, StoreDataset) else other


def _both(one: pc.Expression | None, other: pc.Expression | None) -> pc.Expression | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _read(wanted: Wanted) -> Batches:
    """The selected rows, before they are filtered."""
    if wanted.options.table == MESSAGES:
        return Scan(wanted.options, wanted.needed).batches()
    return table_batches(replace(wanted.options, columns=wanted.needed))
