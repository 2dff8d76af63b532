"""Stores without Spark: their tables and messages as Arrow data, in the calling process."""

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from rmqstore_spark.errors import OptionError, quoted
from rmqstore_spark.option_texts import (
    PATH,
    TIME,
    Flag,
    MessageOptions,
    Names,
    Path,
    Paths,
    StoreOptions,
    TableOptions,
    Time,
    path_options,
    required,
    text_of,
)
from rmqstore_spark.option_values import parse_instant
from rmqstore_spark.options import (
    CALL_OPTIONS,
    COPY_OPTIONS,
    MESSAGES,
    REBUILD_OPTIONS,
    STORE_OPTIONS,
    ReadOptions,
    Use,
    of_stores,
    option_texts,
    parse_options,
    refuse,
    understand,
)
from rmqstore_spark.read.again import again
from rmqstore_spark.read.stores import files_of, open_stores
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.storage import is_storage_option
from rmqstore_spark.tables.methods import TableMethods

if TYPE_CHECKING:
    from rmqstore_spark.jobs.copy import Copied
    from rmqstore_spark.jobs.glance import Glance
    from rmqstore_spark.writing import WriteMode


class Store(TableMethods):
    """A store directory, or several whose rows are to come together.

    Each call sees the store as it is then. Nothing in it is ever changed, but by `write` and `rebuild`.

    >>> store = rmqstore_spark.Store("/data/broker-a/store")
    >>> store.topics().to_pandas()
    >>> for batch in store.messages(columns=["keys", "body"], subscribe="Orders"):
    ...     print(batch.to_pylist())

    Args:
        path: the directory, or a glob, or a list of them.
        options: where its files are, and how they are read, in all calls that this is of use for.

    Raises:
        NotAStoreError: a path is no store; the text says what to give instead.
        OptionError: an option cannot be understood.
    """

    def __init__(self, path: Paths, **options: Unpack[StoreOptions]) -> None:
        self._path = path_options(path)
        self._given = option_texts(options, STORE_OPTIONS)
        self._open(self._options({}))

    def table(self, name: str, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A table by its name, as the method of that name gives it.

        Args:
            columns: which, in this order; all but `store` if none are named.
            options: the read options that go with the table.

        Raises:
            OptionError: there is no such table or column, or an option does not go with the table.
            RmqStoreError: the store cannot be read.
        """
        from rmqstore_spark.tables.registry import read_table

        name = required("name", name)
        if name == MESSAGES:
            return self.messages(columns, **options).read_all()
        return read_table(self._options({"columns": columns, **options}, name))

    def messages(self, columns: Names | None = None, **options: Unpack[MessageOptions]) -> pa.RecordBatchReader:
        """The messages, in the order of the log: docs/columns.md and docs/options.md have the tables.

        All cores work ahead of what is taken, up to a limit. DuckDB, Polars and pandas read it as it is. It can be
        read once.

        Args:
            columns: which, in this order; without it all but those that come only by name.
            options: which messages, and how they are read.

        Raises:
            OptionError: an option cannot be understood, or names what no store has.
            RmqStoreError: the store cannot be read. Reading on may raise one, too.
        """
        from rmqstore_spark.columns import DEFAULT_COLUMNS
        from rmqstore_spark.read.scan import Scan

        understood = self._options({"columns": columns, **options})
        scan = Scan(understood, understood.columns or DEFAULT_COLUMNS)
        return pa.RecordBatchReader.from_batches(scan.schema, scan.batches())

    def get(self, id: str, columns: Names | None = None, **options: Unpack[MessageOptions]) -> pa.Table:
        """The messages with this `msgId` or `offsetMsgId`: mostly one, or none. A client's msgId stays the same in all
        that is stored of a message: half, delayed, retried, dead."""
        wanted = option_texts({"columns": columns, **options}, CALL_OPTIONS)
        if "msgId" in wanted:
            raise OptionError("option 'msgId' is given beside the id that is asked for; remove it")
        wanted["msgId"] = required("id", id)
        return again(lambda: self.messages(**wanted).read_all())  # type: ignore[arg-type]

    def history(self, name: str) -> pa.Table:
        """What happened to the messages with a key or id, in order of time: one row for each event, such as `produced`,
        `committed`, `delayed`, `delivered`, `retried`, `dead`, `consumed`.

        Columns: timestamp, event, topic, queueId, queueOffset, group, msgId, details, commitLogOffset; `store` where
        there are several.

        Args:
            name: a word of `keys`, a `msgId`, or an `offsetMsgId`.
        """
        from rmqstore_spark.jobs.history import history

        options, wanted = self._options({}), required("name", name)
        found = again(lambda: [(store.root, history(store, options, wanted)) for store in self._open(options)])
        if len(found) == 1:
            return found[0][1]
        tables = [table.append_column("store", pa.repeat(root, table.num_rows)) for root, table in found]
        return pa.concat_tables(tables).sort_by("timestamp")

    def explain(self, columns: Names | None = None, **options: Unpack[MessageOptions]) -> None:
        """Print how `messages` with these options would find them, and why so."""
        from rmqstore_spark.read.explain import explained

        print(explained(self._options({"columns": columns, **options})))

    def offsets_at(self, time: Time) -> str:
        """Of each queue the first offset with this store time or a later one, else its end: as JSON that option
        `startingOffsets` takes. Of what a broker wrote that is a binary search, so where its clock was set back it
        may be another one.

        Args:
            time: as of `startingTimestamp`.
        """
        from rmqstore_spark.tables.positions import positions_at

        text = required("time", time, TIME)
        try:
            instant = parse_instant(text)
        except ValueError as expected:
            raise OptionError(f"time: expected {expected}, found {quoted(text)}") from None
        microseconds = math.ceil(instant.milliseconds) * 1000
        return json.dumps(again(lambda: positions_at(self._one("offsets_at"), microseconds)))

    def offsets_of(self, group: str) -> str:
        """Where a consumer group goes on in each queue that it has consumed, as JSON that option `startingOffsets`
        takes. Queues that are not in it are read whole; `startingOffsets=group:NAME` leaves other topics out.

        Raises:
            OptionError: the group has no offset in this store.
        """
        from rmqstore_spark.tables.positions import positions_of

        wanted = required("group", group)
        return json.dumps(again(lambda: positions_of(self._one("offsets_of"), wanted)))

    def rebuild(self, **options: object) -> int:
        """rmqstore_spark.rebuild() of this store: ConsumeQueue and IndexFile anew from the commitlog. This changes it.

        Returns:
            How many messages the queues have got.
        """
        return rebuild(self._one("rebuild").root, **options)

    def write(self, data: object, mode: "WriteMode" = "append", **options: object) -> int:
        """rmqstore_spark.write_store() to this store. This changes it.

        Returns:
            How many messages were written: 0 where `txnVersion` says that they have been before.
        """
        return write_store(self._one("write").root, data, mode, **options)

    def copy(self, target: Path, *, messageIndexEnable: Flag = True, **options: Unpack[MessageOptions]) -> "Copied":
        """Make a new store of this one, or of several one. No Spark, no broker; the store is only read.

        Each message keeps its queue offset, and each consumer group its place: what config/ says of topics and groups
        comes along. Where several stores become one, the queues of a topic come one after the other: the second store's
        queue 0 gets the number after the first one's last, and its groups' offsets go with it. With `deduplicate=True`
        copies of one store become that one, with what is whole in any of them. docs/copying.md tells what becomes of
        delayed and half messages.

        Args:
            target: the new store's directory, which does not exist yet or is empty.
            messageIndexEnable: whether to make index files.
            options: which messages, as of `messages`; without them all. Not those that say what comes of a message.

        Raises:
            RmqStoreError: it cannot be done; nothing was written.
        """
        return self._copy(target, options, messageIndexEnable, is_salvage=False)

    def salvage(self, target: Path, *, messageIndexEnable: Flag = True, **options: Unpack[MessageOptions]) -> "Copied":
        """The same with a damaged store: what is whole comes along, with its queue offsets. Consumers pass over what is
        lost, as over messages that have expired; `lost` of the result tells what that is.

        Args and errors as of `copy`.
        """
        return self._copy(target, options, messageIndexEnable, is_salvage=True)

    def _copy(self, target: Path, options: MessageOptions, index: Flag, is_salvage: bool) -> "Copied":
        from rmqstore_spark.jobs.copy import copy
        from rmqstore_spark.store.layout import place_to_write

        place = place_to_write(text_of("target", target, PATH))
        written, _ = understand(option_texts({"messageIndexEnable": index}, COPY_OPTIONS), COPY_OPTIONS)
        selected = option_texts(options, CALL_OPTIONS)
        refuse(selected, Use.COPIES)
        how = {"mode": "PERMISSIVE" if is_salvage else "FAILFAST", "decompress": "true", "trust": "log"}
        given = {**selected, **how}
        understood = self._options(given)
        own = {**self._given, **of_stores(selected)}

        def table(store: Snapshot, name: str, **options: object) -> pa.Table:
            mode = {"mode": "DROPMALFORMED"} if is_salvage else {}
            return Store(store.root, **own).table(name, **{**mode, **options})  # type: ignore[arg-type]

        return copy(
            self._open(understood),
            understood,
            table,
            place,
            is_salvage=is_salvage,
            index=written["messageIndexEnable"],
        )

    def __repr__(self) -> str:
        return "\n".join(glance.text for glance in self._glances())

    def _repr_html_(self) -> str:
        return "\n".join(glance.html for glance in self._glances())

    def _glances(self) -> "list[Glance]":
        from rmqstore_spark.jobs.glance import glance

        options = self._options({})
        return [glance(store, options) for store in self._open(options)]

    def _options(self, given: Mapping[str, object], table: str = MESSAGES) -> ReadOptions:
        """What options mean, with those that this was made with, as far as they go with the table."""
        from rmqstore_spark.tables.registry import takes

        goes_with = [name for name in self._given if is_storage_option(name) or table == MESSAGES or takes(table, name)]
        own = {name: self._given[name] for name in goes_with}
        return parse_options({**own, **option_texts(given, CALL_OPTIONS), **self._path, "table": table})

    def _open(self, options: ReadOptions) -> list[Snapshot]:
        return open_stores(options, files_of(options))

    def _one(self, method: str) -> Snapshot:
        stores = self._open(self._options({}))
        if len(stores) != 1:
            raise OptionError(f"{method} is for one store, but the path gives {len(stores)}")
        return stores[0]


def rebuild(store: Path, **options: object) -> int:
    """rmqstore_spark.rebuild()."""
    from rmqstore_spark.options import parse_rebuild_options
    from rmqstore_spark.store.layout import place_to_write
    from rmqstore_spark.write.rebuild import rebuild as rebuild_store

    path = text_of("store", store, PATH)
    understood = parse_rebuild_options({**option_texts(options, REBUILD_OPTIONS), "path": path})
    return rebuild_store(place_to_write(understood.path), understood.sizes, understood.message_index_enable)


def write_store(path: Path, data: object, mode: "WriteMode" = "append", **options: object) -> int:
    """rmqstore_spark.write_store()."""
    from rmqstore_spark.writing import write as write_rows

    return write_rows(path, data, mode, options)
