"""What an engine wants of a table: columns, and a filter of Arrow's. What is to be read for it, and what comes of the
rows that are read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.query.expressions import understood
from rmqstore_spark.query.options import MESSAGES, ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Selection
from rmqstore_spark.tables.registry import column_types, schema_of, table_of

Batches = Iterator[pa.RecordBatch]
Columns = Sequence[str] | dict[str, pc.Expression] | None


@dataclass(frozen=True, eq=False)
class Wanted:
    """What is wanted of a table.

    Attributes:
        options: the read that has all rows which may pass the filter, and maybe more.
        whole: the schema of all columns that can be asked for.
        needed: the columns to read.
        filter: the rows wanted of those that are read; None: all.
        columns: the columns wanted, or what is to be computed.
        schema: their schema.
    """

    options: ReadOptions
    whole: pa.Schema
    needed: list[str]
    filter: pc.Expression | None
    columns: list[str] | dict[str, pc.Expression]
    schema: pa.Schema

    @classmethod
    def of(cls, options: ReadOptions, columns: Columns, filter: pc.Expression | None) -> "Wanted":
        """What is wanted of the table that options name.

        Raises:
            OptionError: there is no such table or column in the options, or the table does not take one of them.
            pyarrow.ArrowInvalid: there is no such column, or the filter does not fit its type.
        """
        whole = dataset_schema(options)
        asked = columns if isinstance(columns, dict) else list(whole.names if columns is None else columns)
        schema = ds.Scanner.from_batches(iter(()), schema=whole, columns=asked).projected_schema
        if filter is None:
            return cls(options, whole, _needed(whole, asked, frozenset()), None, asked, schema)
        _filtered(whole.empty_table(), filter)  # a filter that does not fit is an error before anything is read
        known = understood(filter)
        narrowed = _narrowed(options, known.selection)
        if known.is_exact and _has_messages_only(narrowed):
            return cls(narrowed, whole, _needed(whole, asked, frozenset()), None, asked, schema)
        return cls(narrowed, whole, _needed(whole, asked, known.columns), filter, asked, schema)

    def without_columns(self) -> "Wanted":
        """The same rows, with no columns but those that the filter needs."""
        filters = frozenset[str]() if self.filter is None else understood(self.filter).columns
        needed = _needed(self.whole, [], filters)
        return replace(self, needed=needed, columns=needed, schema=pa.schema(map(self.whole.field, needed)))

    def rows(self, batches: Batches) -> Batches:
        """What is wanted of the rows that were read."""
        if self.filter is not None:
            wanted, filter = batches, self.filter
            batches = (
                part for batch in wanted for part in _filtered(pa.Table.from_batches([batch]), filter).to_batches()
            )
        rows = (batch for batch in batches if batch.num_rows)
        if isinstance(self.columns, dict):
            reader = pa.RecordBatchReader.from_batches(pa.schema(map(self.whole.field, self.needed)), rows)
            return ds.Scanner.from_batches(reader, columns=self.columns).to_batches()  # type: ignore[no-any-return]
        return rows if self.columns == self.needed else (batch.select(self.columns) for batch in rows)


def _filtered(rows: pa.Table, filter: pc.Expression) -> pa.Table:
    """The rows for which a filter is true. As `Table.filter`, which wakes Arrow's threads: that takes longer than to
    filter as few rows as a batch has."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    keep = acero.Declaration("filter", acero.FilterNodeOptions(filter))
    return acero.Declaration.from_sequence([source, keep]).to_table(use_threads=False)


def dataset_schema(options: ReadOptions) -> pa.Schema:
    """The schema of the columns that options ask for.

    Raises:
        OptionError: there is no such table or column, or the table does not take one of the options.
    """
    if options.table == MESSAGES:
        return arrow_schema(options.columns or DEFAULT_COLUMNS)
    return schema_of(table_of(options), options.columns)


def known_columns(options: ReadOptions) -> frozenset[str]:
    """All columns that options may ask for, also those that exist by name only.

    Raises:
        OptionError: as by dataset_schema().
    """
    return frozenset(COLUMNS if options.table == MESSAGES else column_types(table_of(options)))


def _has_messages_only(options: ReadOptions) -> bool:
    """Are the rows of a read the selected messages as they are stored, and nothing else, such as a row for damage?"""
    if options.table != MESSAGES or options.mode == "PERMISSIVE":
        return False
    return not options.as_original and not options.compacted


def _narrowed(options: ReadOptions, selection: Selection) -> ReadOptions:
    """The options of a read whose rows are filtered afterwards, narrowed to what may pass the filter. A selection that
    is about other values than those of the rows, or about other rows, changes nothing."""
    if options.as_original or options.compacted:
        return options
    if options.table == MESSAGES:
        return replace(options, selection=options.selection.narrowed(selection))
    # Of other tables the topic alone means the same everywhere, where they have such a column and option.
    found = table_of(options)
    if selection.topic == EVERYTHING.topic or "subscribe" not in found.options or "topic" not in found.schema.names:
        return options
    return replace(options, selection=options.selection.narrowed(Selection(topic=selection.topic)))


def _needed(
    whole: pa.Schema, columns: list[str] | dict[str, pc.Expression], filters: frozenset[str] | None
) -> list[str]:
    """The columns to read: those that are asked for, in this order, and then those that the filter needs. All, where
    that is not known."""
    names = list(columns)
    if isinstance(columns, dict):
        parts = [understood(each).columns for each in columns.values()]
        if None in parts:
            return list(whole.names)
        names = [name for part in parts if part for name in part]
    return list(whole.names) if filters is None else list(dict.fromkeys([*names, *sorted(filters)]))
