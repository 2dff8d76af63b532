"""Table `indexfiles`: the headers of index files as they stand there. Nothing is compared with the log."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column
from rmqstore_spark.errors import RmqStoreError, StorageError
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import Header, IndexReader, index_paths
from rmqstore_spark.tables.columns import timestamps
from rmqstore_spark.tables.index import tell
from rmqstore_spark.tables.table import Table


def _rows(store: Snapshot, options: ReadOptions, part: None) -> Iterator[pa.RecordBatch]:
    headers: list[Header] = []
    paths: list[str] = []
    capacities: list[int | None] = []
    for path in index_paths(store.layout.index, store.files):
        try:
            with IndexReader(path, store.files) as reader:
                headers.append(reader.header)
                paths.append(path)
                capacities.append(_capacity(reader))
        except RmqStoreError as why:
            tell(why, options)
    if not headers:
        return
    begins, ends, first, last, used, counts = np.array(headers, np.int64).T
    arrays = [
        pa.array(paths),
        timestamps(begins),
        timestamps(ends),
        pa.array(first),
        pa.array(last),
        pa.array(used, pa.int32()),
        pa.array(np.maximum(counts - 1, 0), pa.int32()),
        pa.array(capacities, pa.int32()),
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=INDEXFILES.schema)


def _capacity(reader: IndexReader) -> int | None:
    try:
        return None if reader.is_empty else reader.check().items - 1
    except StorageError:
        raise
    except RmqStoreError:
        return None


INDEXFILES = Table(
    name="indexfiles",
    row="an index file, as described by its header",
    columns=(
        Column("file", TEXT, "path of the file"),
        Column("beginTimestamp", TIME, "store time of the first item's message"),
        Column("endTimestamp", TIME, "store time of the last item's message"),
        Column("beginOffset", LONG, "physical offset of the first item's message"),
        Column("endOffset", LONG, "physical offset of the last item's message"),
        Column("usedSlots", INT, "number of hash slots in use"),
        Column("items", INT, "number of items"),
        # maxIndexNum - 1. Where header and items contradict each other, nothing tells where the items begin.
        Column("capacity", INT, "number of items that fit; null if header and items contradict each other"),
    ),
    options=frozenset({"mode"}),
    rows=_rows,
)
