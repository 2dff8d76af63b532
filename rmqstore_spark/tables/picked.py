"""Messages with some of their properties as columns, for the tables that are made of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.query.options import ReadOptions, Use, going_with
from rmqstore_spark.query.selection import EVERYTHING, Numbers, Selection, Texts
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.messages import messages

HOW_TO_READ = frozenset(going_with(Use.PICKED))
OF_ROWS = HOW_TO_READ | {"subscribe", "subscribePattern", "startingTimestamp", "endingTimestamp"}

_FEW = 4096  # up to this many ids are looked up one by one; for more, the whole topic is read
_MOST_REPEATED = 16  # times that an id may come, of those that are looked up one by one
_MANY_ROWS = 256 * 1024
_ROWS_COPIED = 8 * 1024
_WHOLE_NUMBER = "^-?[0-9]{1,15}$"  # also as milliseconds that fit an Arrow timestamp[us]


def picked(
    store: Snapshot, options: ReadOptions, selection: Selection, columns: Sequence[str], properties: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The selected messages of a store in log order, with these columns and properties. Damage is an error in mode
    FAILFAST, and left out in every other mode.

    Raises:
        DamagedStoreError: mode FAILFAST, and something is damaged.
    """
    if options.mode == "PERMISSIVE":
        options = replace(options, mode="DROPMALFORMED")
    schema = picked_schema(columns, properties)
    asked = [name for name in columns if name != "properties"] + ["properties"]
    for batch in messages(store, options, selection, asked):
        found = [pc.map_lookup(batch.column("properties"), name, "last") for name in properties]
        yield pa.RecordBatch.from_arrays([*(batch.column(name) for name in columns), *found], schema=schema)


def picked_schema(columns: Sequence[str], properties: Sequence[str]) -> pa.Schema:
    """The schema of picked()."""
    texts = [pa.field(name, pa.string()) for name in properties]
    return pa.schema([*arrow_schema(list(columns)), *texts])


def picked_table(
    store: Snapshot, options: ReadOptions, selection: Selection, columns: Sequence[str], properties: Sequence[str]
) -> pa.Table:
    """The messages of picked() as one table, each column in one piece. Copies of the columns are kept, as a batch that
    was read keeps the memory of all its properties."""
    batches = picked(store, options, selection, columns, properties)
    some = [each.combine_chunks() for each in in_bulk(batches, picked_schema(columns, properties), _ROWS_COPIED)]
    return pa.concat_tables(some).combine_chunks()


def in_bulk(batches: Iterator[pa.RecordBatch], schema: pa.Schema, most: int = _MANY_ROWS) -> Iterator[pa.Table]:
    """The same rows, many at a time: for work whose cost is mostly in its start."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(each.num_rows for each in some) >= most:
            yield pa.Table.from_batches(some, schema)
            some = []
    yield pa.Table.from_batches(some, schema)


def of_topics(*topics: str) -> Selection:
    """The messages that are stored under these topics."""
    return Selection(topic=Texts(among=frozenset(topics)))


def with_ids(topics: Sequence[str], ids: pa.Array, start: int) -> Selection:
    """A selection with at least the messages of some topics that have one of these msgIds and are stored at a physical
    offset or after it.

    Args:
        ids: texts; nulls and repeated ones do not count.
    """
    selection = replace(of_topics(*topics), commit_log_offset=Numbers(start))
    if len(ids) > _MOST_REPEATED * _FEW:  # then it takes too much memory to count the different ones
        return selection
    ids = ids.unique().drop_null()
    return replace(selection, msg_id=frozenset(ids.to_pylist())) if len(ids) <= _FEW else selection


def rows_wanted(options: ReadOptions, topics: pa.Array, times: pa.Array) -> pa.Array:
    """True for rows that the options select, by the (application's) topic and the store time of each."""
    selection = options.selection
    wanted = np.ones(len(topics), bool)
    if selection.topic != EVERYTHING.topic:
        encoded = pc.fill_null(topics, "").dictionary_encode()
        of_topic = np.array([selection.wants_topic(topic) for topic in encoded.dictionary.to_pylist()], bool)
        wanted &= of_topic[encoded.indices.to_numpy()] if len(of_topic) else wanted
    if selection.store_timestamp != EVERYTHING.store_timestamp:
        milliseconds = np.floor_divide(integers(times.cast(pa.int64()), -1), 1000)
        wanted &= (milliseconds >= selection.store_timestamp.least) & (milliseconds <= selection.store_timestamp.most)
    return pa.array(wanted)


def numbers(texts: pa.Array) -> pa.Array:
    """Texts as whole numbers; null for a text that is not one or has more than 15 digits."""
    is_number = pc.match_substring_regex(texts, _WHOLE_NUMBER)
    return pc.if_else(is_number, texts, pa.scalar(None, pa.string())).cast(pa.int64())


def times(texts: pa.Array) -> pa.Array:
    """Texts with milliseconds since 1970, as times."""
    return pc.multiply(numbers(texts), 1000).cast(pa.timestamp("us", "UTC"))


def integers(column: pa.Array, default: int) -> npt.NDArray[np.int64]:
    """A column of whole numbers, with a default for null."""
    return pc.fill_null(column.cast(pa.int64()), default).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def text_keys(*columns: pa.Array) -> pa.Array:
    """Keys that tell rows apart by several texts; null where one of the texts is null."""
    return pc.binary_join_element_wise(*columns, "\0")


def column(table: pa.Table | pa.RecordBatch, name: str) -> Any:
    """A column of a table in one piece."""
    found = table.column(name)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
