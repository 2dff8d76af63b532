"""Messages of one store for the tables that are made of them: the same planner and tasks as a read of messages."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.options import ReadOptions
from rmqstore_spark.read.batches import ReadSettings, read_task
from rmqstore_spark.read.planner import plan_stores
from rmqstore_spark.selection import Selection
from rmqstore_spark.store.opened import OpenStore


def messages(
    store: OpenStore, options: ReadOptions, selection: Selection, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """The selected messages of a store, in log order.

    Args:
        options: how to read; which messages they select does not count.
        selection: which messages.

    Raises:
        DamagedStoreError: mode FAILFAST, and something is damaged.
    """
    options = replace(options, selection=selection, subscribe=frozenset(), starting_group=None)
    settings = ReadSettings(arrow_schema(columns), options.mode, options.verify_crc, options.decompress, selection)
    for task in plan_stores([store], options, store.files, columns).tasks:
        yield from read_task(task, settings)
