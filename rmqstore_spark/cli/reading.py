"""Any table of some stores, as record batches."""

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from rmqstore_spark.api import Store
from rmqstore_spark.cli.base64_columns import Asked
from rmqstore_spark.columns import DEFAULT_COLUMNS
from rmqstore_spark.errors import OptionError
from rmqstore_spark.query.options import MESSAGES, ReadOptions, parse_options
from rmqstore_spark.read.plan.asked import asked_of
from rmqstore_spark.read.plan.stores import files_of, open_stores
from rmqstore_spark.store.elsewhere import elsewhere, say_what_is_unknown
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.messages import last_messages
from rmqstore_spark.tables.registry import schema_of, table_batches, table_of

Batches = Iterator[pa.RecordBatch]


def batches_of(name: str, paths: Sequence[str], given: Mapping[str, str]) -> tuple[pa.Schema, Batches]:
    """A table's schema, and its rows as they are read.

    Args:
        paths: the stores, or globs of them.
        given: read options as text.

    Raises:
        RmqStoreError: the table cannot be read.
    """
    asked = Asked(given)
    if name == MESSAGES:
        reader = Store(paths).messages(**asked.given)  # type: ignore[arg-type]
        return asked.of(reader.schema, iter(reader))
    options = _options(paths, {**asked.given, "table": name})
    return asked.of(schema_of(table_of(options), options.columns), table_batches(options))


def last_batches(path: str, given: Mapping[str, str], count: int) -> tuple[pa.Schema, Batches]:
    """The last messages of a store that the options select, up to `count`: their schema and their batches.

    Raises:
        RmqStoreError: the store cannot be read.
    """
    asked = Asked(given)
    store, *others = stores_of([path], asked.given)
    if others:
        raise OptionError(f"{path}: expected one store, found {len(others) + 1}")
    say_what_is_unknown(store, MESSAGES)
    ((_, options),) = asked_of(_options([path], asked.given), [store])
    found = last_messages(store, options, options.columns or DEFAULT_COLUMNS, count)
    return asked.of(found.schema, iter(found.to_batches()))


def is_all_looked_at(paths: Sequence[str], given: Mapping[str, str]) -> bool:
    """Are all messages of these stores in places that this package reads?

    Raises:
        RmqStoreError: a path is no store, or a store cannot be read.
    """
    own = {name: text for name, text in given.items() if name != "columns"}  # columns may be those of another table
    return not any(
        place for store in stores_of(paths, own, with_queue_logs=True) for place in elsewhere(store, MESSAGES)
    )


def stores_of(paths: Sequence[str], given: Mapping[str, str], *, with_queue_logs: bool = False) -> list[Snapshot]:
    """The stores of some paths or globs. Arguments as of open_stores().

    Raises:
        NotAStoreError: a path is no store.
    """
    options = _options(paths, given)
    return open_stores(options, files_of(options), with_queue_logs=with_queue_logs)


def _options(paths: Sequence[str], given: Mapping[str, str]) -> ReadOptions:
    return parse_options({"paths": json.dumps(list(paths)), **given})
