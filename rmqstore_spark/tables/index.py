"""Table `index`: the items of index files as they stand there. Nothing is compared with the log."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column
from rmqstore_spark.errors import RmqStoreError, StorageError
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.store.io.files import ignore_unreadable
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import ITEM, Header, IndexReader, index_paths, item_at
from rmqstore_spark.store.structures.proofs import Proof, proof_of
from rmqstore_spark.tables.columns import timestamps
from rmqstore_spark.tables.table import Table

logger = logging.getLogger(__name__)

_BATCH_ITEMS = 64 * 1024


def tell(why: RmqStoreError, options: ReadOptions) -> None:
    """Raise or log the error of a file that cannot be read, as `mode` says."""
    if options.mode == "FAILFAST" or isinstance(why, StorageError):
        raise why
    logger.warning("%s", why)


def _parts(store: Snapshot, options: ReadOptions) -> list[str]:
    return list(index_paths(store.layout.index, store.files))


def _rows(store: Snapshot, options: ReadOptions, path: str) -> Iterator[pa.RecordBatch]:
    try:
        with IndexReader(path, store.files) as reader:
            if reader.is_empty:
                return
            file = reader.check()
            for first in range(1, file.header.index_count, _BATCH_ITEMS):
                count = min(_BATCH_ITEMS, file.header.index_count - first)
                yield _items(path, file.header, first, reader.item_array(file.slots, first, count))
    except RmqStoreError as why:
        tell(why, options)


def _items(path: str, header: Header, first: int, items: Any) -> pa.RecordBatch:
    arrays = [
        pa.repeat(pa.scalar(path), len(items)),
        pa.array(np.arange(first, first + len(items), dtype=np.int32)),
        pa.array(items["key_hash"].astype(np.int32)),
        pa.array(items["position"].astype(np.int64)),
        timestamps(header.begin_timestamp + 1000 * items["seconds"].astype(np.int64)),
        pa.array(items["previous"].astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=INDEX.schema)


def index_proofs(store: Snapshot) -> Iterator[Proof | None]:
    """A proof of the last item of the newest index file that has items: an older copy does not have that item."""
    for path in reversed(index_paths(store.layout.index, store.files)):
        with ignore_unreadable(), IndexReader(path, store.files) as reader:
            if not reader.is_empty:
                at = item_at(reader.check().slots, reader.header.index_count - 1)
                found = proof_of(store.root, path, at, ITEM.size, store.files, pin=store.files.pin(path))
                yield None if found is None else replace(found, may_expire=False)
                return


def _seen(store: Snapshot, options: ReadOptions) -> Iterator[Proof | None]:
    return index_proofs(store)


INDEX = Table(
    name="index",
    row="an item of an index file, as stored",
    columns=(
        Column("file", TEXT, "path of the index file"),
        Column("item", INT, "number of the item in the file"),
        Column("keyHash", INT, "hash of topic#key"),
        Column("commitLogOffset", LONG, "physical offset of the message"),
        # Cut to a whole second; of item 1 of a file that is not the first, up to the time between the two files too
        # late (IndexFile.putKey).
        Column("storeTimestamp", TIME, "store time of the message, in whole seconds after the file's beginTimestamp"),
        Column("previousItem", INT, "next older item in the same hash slot; 0 for none"),
    ),
    options=frozenset({"mode"}),
    rows=_rows,
    parts=_parts,
    seen=_seen,
)
