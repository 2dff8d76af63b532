"""Any table of some stores, as record batches."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from rmqstore_spark.columns import DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.errors import OptionError
from rmqstore_spark.options import MESSAGES, ReadOptions, parse_options
from rmqstore_spark.progress import Progress
from rmqstore_spark.read.batches import ReadSettings, read_task
from rmqstore_spark.read.parallel import in_order
from rmqstore_spark.read.planner import open_stores, plan
from rmqstore_spark.read.task import Task
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.tables.messages import last_messages

Batches = Iterator[pa.RecordBatch]


def batches_of(name: str, paths: Sequence[str], given: Mapping[str, str]) -> tuple[pa.Schema, Batches]:
    """A table's schema, and its rows as they are read.

    Args:
        paths: the stores, or globs of them.
        given: read options as text.

    Raises:
        RmqStoreError: as reading it does.
    """
    options = _options(paths, {**given, "table": name})
    if name == MESSAGES:
        schema = arrow_schema(options.columns or DEFAULT_COLUMNS)
        return schema, _messages(options, schema)
    from rmqstore_spark.tables.registry import schema_of, table_batches, table_of

    return schema_of(table_of(options), options.columns), table_batches(options)


def last_batches(path: str, given: Mapping[str, str], count: int) -> tuple[pa.Schema, Batches]:
    """The last messages of a store that options select, up to `count` of them: their schema, and they.

    Raises:
        RmqStoreError: as reading them does.
    """
    options = _options([path], given)
    columns = options.columns or DEFAULT_COLUMNS
    store, *others = open_stores(options, Files(manners=options.manners))
    if others:
        raise OptionError(f"{path}: expected one store, found {len(others) + 1}")
    found = last_messages(store, options, columns, count)
    return found.schema, iter(found.to_batches())


def stores_of(paths: Sequence[str], given: Mapping[str, str]) -> list[OpenStore]:
    """The stores of some paths or globs.

    Raises:
        NotAStoreError: a path is none.
    """
    options = _options(paths, given)
    return open_stores(options, Files(manners=options.manners))


def _options(paths: Sequence[str], given: Mapping[str, str]) -> ReadOptions:
    return parse_options({"paths": json.dumps(list(paths)), **given})


def _messages(options: ReadOptions, schema: pa.Schema) -> Batches:
    settings = ReadSettings(schema, options.mode, options.verify_crc, options.decompress, options.selection)
    tasks = plan(options, columns=schema.names).tasks
    progress = Progress("reading messages", sum(map(_nbytes, tasks)))

    def job(task: Task) -> Callable[[], Batches]:
        def read() -> Batches:
            yield from read_task(task, settings)
            progress.add(_nbytes(task))

        return read

    yield from in_order([job(task) for task in tasks])


def _nbytes(task: Task) -> int:
    """How much of the log it is about."""
    return sum(piece.stop - piece.start for piece in task.ranges)
