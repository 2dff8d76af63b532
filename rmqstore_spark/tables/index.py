"""Tables `indexfiles` and `index`: what the index files say, as it stands there. Nothing is held against the log."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rmqstore_spark.columns import TIME
from rmqstore_spark.errors import RmqStoreError, StorageError
from rmqstore_spark.options import ReadOptions
from rmqstore_spark.store.indexfile import Header, IndexReader, index_paths
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.tables.columns import timestamps
from rmqstore_spark.tables.table import Table

log = logging.getLogger(__name__)

FILES_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("beginTimestamp", TIME),
        ("endTimestamp", TIME),
        ("beginOffset", pa.int64()),
        ("endOffset", pa.int64()),
        ("usedSlots", pa.int32()),
        ("items", pa.int32()),
        # How many items it has room for: maxIndexNum - 1. Null where header and items contradict each other, as then
        # nothing tells where the items begin.
        ("capacity", pa.int32()),
    ]
)
SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("item", pa.int32()),
        ("keyHash", pa.int32()),
        ("commitLogOffset", pa.int64()),
        # Cut to a whole second after the file's beginTimestamp; of item 1 of a file that is not the first, up to the
        # time between the two files too late (IndexFile.putKey).
        ("storeTimestamp", TIME),
        ("previousItem", pa.int32()),
    ]
)

_BATCH_ITEMS = 64 * 1024


def _file_rows(store: OpenStore, options: ReadOptions, part: None) -> Iterator[pa.RecordBatch]:
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
            _tell(why, options)
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
    yield pa.RecordBatch.from_arrays(arrays, schema=FILES_SCHEMA)


def _capacity(reader: IndexReader) -> int | None:
    try:
        return None if reader.is_empty else reader.check().items - 1
    except StorageError:
        raise
    except RmqStoreError:
        return None


def _tell(why: RmqStoreError, options: ReadOptions) -> None:
    """A file that cannot be read: as `mode` says."""
    if options.mode == "FAILFAST" or isinstance(why, StorageError):
        raise why
    log.warning("%s", why)


def _item_parts(store: OpenStore, options: ReadOptions) -> list[str]:
    return list(index_paths(store.layout.index, store.files))


def _item_rows(store: OpenStore, options: ReadOptions, path: str) -> Iterator[pa.RecordBatch]:
    try:
        with IndexReader(path, store.files) as reader:
            if reader.is_empty:
                return
            file = reader.check()
            for first in range(1, file.header.index_count, _BATCH_ITEMS):
                count = min(_BATCH_ITEMS, file.header.index_count - first)
                yield _items(path, file.header, first, reader.item_array(file.slots, first, count))
    except RmqStoreError as why:
        _tell(why, options)


def _items(path: str, header: Header, first: int, items: Any) -> pa.RecordBatch:
    arrays = [
        pa.repeat(pa.scalar(path), len(items)),
        pa.array(np.arange(first, first + len(items), dtype=np.int32)),
        pa.array(items["key_hash"].astype(np.int32)),
        pa.array(items["position"].astype(np.int64)),
        timestamps(header.begin_timestamp + 1000 * items["seconds"].astype(np.int64)),
        pa.array(items["previous"].astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


_OPTIONS = frozenset({"mode", "maxTaskBytesPerSecond"})
FILES = Table("indexfiles", "an index file, as its header says", FILES_SCHEMA, _OPTIONS, _file_rows)
ITEMS = Table("index", "an item of an index file, as it stands there", SCHEMA, _OPTIONS, _item_rows, _item_parts)
