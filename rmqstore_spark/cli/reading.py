"""Any table of some stores, as record batches.

What only some commands need is imported where it is used: a command is a process, and mostly a short one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from rmqstore_spark.amounts import size_text
from rmqstore_spark.cli.base64_columns import Base64Columns
from rmqstore_spark.columns import DEFAULT_COLUMNS
from rmqstore_spark.errors import OptionError
from rmqstore_spark.query.option_texts import required
from rmqstore_spark.query.options import MESSAGES, ReadOptions, of_stores, parse_options
from rmqstore_spark.read.plan.again import again
from rmqstore_spark.read.plan.store_options import options_by_store
from rmqstore_spark.read.plan.stores import files_of, open_stores
from rmqstore_spark.store.elsewhere import elsewhere, say_what_is_unknown
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.registry import schema_of, table_batches, table_of
from rmqstore_spark.times import span_text

Batches = Iterator[pa.RecordBatch]
_T = TypeVar("_T")


def batches_of(name: str, paths: Sequence[str], given: Mapping[str, str]) -> tuple[pa.Schema, Batches]:
    """A table's schema, and its rows as they are read.

    Args:
        paths: the stores, or globs of them.
        given: read options as text.

    Raises:
        RmqStoreError: the table cannot be read.
    """
    asked = Base64Columns(given)
    if name == MESSAGES:
        from rmqstore_spark.api import Store

        reader = Store(paths, **of_stores(asked.given)).messages(**asked.given)  # type: ignore[arg-type]
        return asked.of(reader.schema, iter(reader))
    options = _options(paths, {**asked.given, "table": name})
    return asked.of(schema_of(table_of(options), options.columns), table_batches(options))


def history_of(path: str, given: Mapping[str, str], name: str) -> tuple[pa.Schema, Batches]:
    """What happened to the messages with a key or id: the schema of Store.history, and its rows as they are sorted.

    Raises:
        RmqStoreError: the store cannot be read.
    """
    from rmqstore_spark.jobs.history import all_events

    return all_events(_options([path], given), required("name", name))


def checked(
    paths: Sequence[str], given: Mapping[str, str], added_up: Callable[[Batches], _T]
) -> tuple[list[Snapshot], _T]:
    """Stores as they were checked, and what a function makes of the rows of the table `check`.

    Args:
        added_up: takes the rows as they are found; once more from the beginning, where a broker deletes files
            meanwhile.

    Raises:
        RmqStoreError: a path is no store, or a store cannot be read.
    """
    options = _options(paths, {**given, "table": "check"})

    def opened() -> tuple[list[Snapshot], _T]:
        stores = open_stores(options, files_of(options), with_queue_logs=True)
        return stores, added_up(table_batches(options, stores))

    return again(opened)


def last_batches(path: str, given: Mapping[str, str], count: int) -> tuple[pa.Schema, Batches]:
    """The last messages of a store that the options select, up to `count`: their schema and their batches.

    Raises:
        RmqStoreError: the store cannot be read.
    """
    from rmqstore_spark.tables.messages import last_of_logs

    asked = Base64Columns(given)
    logs = stores_of([path], asked.given, with_queue_logs=True)
    roots = {log.root for log in logs}
    if len(roots) > 1:
        raise OptionError(f"{path}: expected one store, found {len(roots)}")
    say_what_is_unknown(logs[0], MESSAGES)
    options = _options([path], asked.given)
    found = last_of_logs(options_by_store(options, logs), options.columns or DEFAULT_COLUMNS, count)
    return asked.of(found.schema, iter(found.to_batches()))


@dataclass(frozen=True)
class Searched:
    """What a search for messages has looked at.

    Attributes:
        text: its amount, its time span and its stores, in words.
        unseen: the places with messages that this package does not read.
    """

    text: str
    unseen: list[str]


def searched(paths: Sequence[str], given: Mapping[str, str]) -> Searched:
    """What a search for messages in some paths or globs looks at.

    Raises:
        RmqStoreError: a path is no store, or a store cannot be read.
    """
    own = {name: text for name, text in given.items() if name != "columns"}  # columns may be those of another table
    stores = stores_of(paths, own, with_queue_logs=True)
    times = [store.log.timestamp(at) for store in stores for at in _ends(store)]
    known = [time * 1000 for time in times if time is not None]
    span = f", stored {span_text(min(known), max(known))}" if known else ""
    roots = ", ".join(dict.fromkeys(store.root for store in stores))
    text = f"{size_text(sum(store.log.size for store in stores))} of log{span}, of {roots}"
    return Searched(text, [place.path for store in stores for place in elsewhere(store, MESSAGES)])


def _ends(store: Snapshot) -> list[int]:
    extents = store.log.extents
    return [extents[0].start, extents[-1].stop] if extents else []


def stores_of(paths: Sequence[str], given: Mapping[str, str], *, with_queue_logs: bool = False) -> list[Snapshot]:
    """The stores of some paths or globs. Arguments as of open_stores().

    Raises:
        NotAStoreError: a path is no store.
    """
    options = _options(paths, given)
    return open_stores(options, files_of(options), with_queue_logs=with_queue_logs)


def _options(paths: Sequence[str], given: Mapping[str, str]) -> ReadOptions:
    return parse_options({"paths": json.dumps(list(paths)), **given})
