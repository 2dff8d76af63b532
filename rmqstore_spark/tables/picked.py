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


def in_bulk(batches: Iterator[pa.RecordBatch], schema: pa.Schema, most: int) -> Iterator[pa.Table]:
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


class Sought:
    """Messages that are looked for by msgId under some topics, as far as they are stored after others: gathered from
    these, batch by batch."""

    def __init__(self) -> None:
        self.rows = 0
        self._topics: set[str] = set()
        self._ids: list[pa.Array] = []
        self._are_known = True
        self._start = 1 << 62

    def add(self, topics: pa.Array, ids: pa.Array, offsets: pa.Array) -> None:
        """Look for messages of these topics and ids from these physical offsets on. What has no id is found in its
        whole topic alone."""
        if not len(ids):
            return
        self.rows += len(ids)
        self._topics.update(topic for topic in topics.unique().to_pylist() if topic)
        self._start = min(self._start, pc.min(offsets).as_py())
        self._are_known &= not ids.null_count and self.rows <= _MOST_REPEATED * _FEW  # more are too many to count
        self._ids = [*self._ids, ids.unique()] if self._are_known else []

    @property
    def selection(self) -> Selection:
        """A selection with at least these messages."""
        selection = replace(of_topics(*self._topics), commit_log_offset=Numbers(self._start))
        if not self._ids:
            return selection
        ids = pa.chunked_array(self._ids).unique()
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


def column(table: pa.Table | pa.RecordBatch, name: str) -> Any:
    """A column of a table in one piece."""
    found = table.column(name)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
