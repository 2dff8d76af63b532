"""Table `epochs`: the terms of masters of a broker in controller mode."""

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.epochs import epochs_of
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.table import Part, Table

log = logging.getLogger(__name__)


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    return batches(EPOCHS.schema, _epochs(store))


def _epochs(store: Snapshot) -> Iterator[tuple[Any, ...]]:
    path, epochs, wrong = epochs_of(store.root, store.files)
    for file, why in wrong:
        log.warning("%s: %s; %s", file, why, "it is passed over" if path is None else f"{path} is read instead")
    afters = [epoch.start for epoch in epochs[1:]]
    for (number, start), after in itertools.zip_longest(epochs, afters):
        end = store.end if after is None else after
        header = store.log.header(start) if start < store.end else None
        time = None if header is None else header.store_timestamp
        yield number, start, end if end >= start else None, time, path


EPOCHS = Table(
    name="epochs",
    row="a term of a master, of a broker in controller mode",
    columns=(
        Column("epoch", INT, "number of the term, which grows with each new master"),
        Column("startOffset", LONG, "physical offset that the term's messages begin at"),
        Column(
            "endOffset",
            LONG,
            "physical offset at which the next term begins, or the log ends; null if the term begins after that",
        ),
        Column("firstStoreTimestamp", TIME, "store time of the term's first message; null if the log does not have it"),
        Column("file", TEXT, "path of epochFileCheckpoint, or of its backup"),
    ),
    note="Replicas whose epochs end at different offsets have different messages from the lesser one on.",
    options=frozenset(),
    rows=_rows,
)
