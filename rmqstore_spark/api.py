"""Stores without Spark: their tables and messages as Arrow data, in the calling process."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from rmqstore_spark.errors import NotAStoreError, OptionError, RmqStoreError, quoted
from rmqstore_spark.query.instants import parse_instant
from rmqstore_spark.query.option_texts import (
    PATH,
    TIME,
    CopyOptions,
    MessageOptions,
    Names,
    Path,
    Paths,
    Starts,
    StoreOptions,
    TableOptions,
    Time,
    path_options,
    required,
    text_of,
)
from rmqstore_spark.query.options import (
    CALL_OPTIONS,
    COPY_OPTIONS,
    MESSAGES,
    REBUILD_OPTIONS,
    STORE_OPTIONS,
    ReadOptions,
    Use,
    option_texts,
    parse_options,
    refuse,
)
from rmqstore_spark.read.plan.again import again
from rmqstore_spark.read.plan.stores import files_of, open_stores, see_stores
from rmqstore_spark.store.io.storage import is_storage_option
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.methods import TableMethods

if TYPE_CHECKING:
    from pyarrow.compute import Expression

    from rmqstore_spark.jobs.copy import Copied
    from rmqstore_spark.jobs.summary import Summary
    from rmqstore_spark.tables.dataset import StoreDataset
    from rmqstore_spark.tables.tasks import StoreTask
    from rmqstore_spark.writing import WriteMode


class Store(TableMethods):
    """A store directory, or several that are read together.

    Each call sees the store as it is at that moment. Only `write` and `rebuild` change anything in it. A Store can be
    used by several threads at once, and pickled; its options, secrets included, are pickled with it.

    >>> store = rmqstore_spark.Store("sample_store")
    >>> store.topics().to_pylist()
    >>> for batch in store.messages(columns=["keys", "body"], subscribe="Plain"):
    ...     print(batch.to_pylist())

    Large because each thing that can be done with a store is a method.

    Args:
        path: the directory, a glob, or a list of them.
        options: options for every call of this Store: where its files are and how they are read (docs/options.md).

    Raises:
        NotAStoreError: a path is not a store; the text says what to give instead.
        OptionError: an option is unknown or has a wrong value.
    """

    def __init__(self, path: Paths, **options: Unpack[StoreOptions]) -> None:
        self._path = path_options(path)
        self._given = option_texts(options, STORE_OPTIONS)
        understood = self._options({})
        see_stores(understood, files_of(understood))

    def table(self, name: str, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """Read a table by its name. Each table is also a method of that name: `store.topics()`.

        Args:
            name: one of the tables of docs/columns.md.
            columns: the columns to read, in this order; default: all but `store`.
            options: the read options that the table takes, see docs/columns.md.

        Returns:
            A `pyarrow.Table`.

        Raises:
            OptionError: no such table or column, or an option that the table does not take.
            RmqStoreError: the store cannot be read.
        """
        from rmqstore_spark.tables.registry import read_table

        name = required("name", name)
        if name == MESSAGES:
            return self.messages(columns, **options).read_all()
        return read_table(self._options({"columns": columns, **options}, name))

    def messages(self, columns: Names | None = None, **options: Unpack[MessageOptions]) -> pa.RecordBatchReader:
        """Read messages, in the order of the log, as a stream of record batches.

        All cores decode ahead of the consumer, up to a limit. DuckDB, Polars and pandas take the result as it is. The
        result can be read once, by one thread.

        Args:
            columns: the columns to read, in this order; default: all but those marked in docs/columns.md.
            options: options that select messages and say how to read them, see docs/options.md.

        Returns:
            A `pyarrow.RecordBatchReader`.

        Raises:
            OptionError: an option is unknown, has a wrong value, or names a topic or group that no store has.
            RmqStoreError: the store cannot be read. Reading from the result may raise this, too.
        """
        from rmqstore_spark.columns import DEFAULT_COLUMNS
        from rmqstore_spark.read.scan import Scan

        understood = self._options({"columns": columns, **options})
        scan = Scan(understood, understood.columns or DEFAULT_COLUMNS)
        return pa.RecordBatchReader.from_batches(scan.schema, scan.batches())

    def dataset(
        self, name: str = MESSAGES, columns: Names | None = None, **options: Unpack[MessageOptions]
    ) -> "StoreDataset":
        """Give messages, or another table, to an engine that asks for a `pyarrow.dataset.Dataset`.

        Each scan reads the columns that it asks for, and of messages what its filter may let pass: conditions on topic,
        queueId, queueOffset, storeTimestamp, commitLogOffset, tags, keys, msgId and offsetMsgId find messages as the
        options do. The filter is then applied to every row.

        >>> store.dataset().to_table(["keys", "body"], filter=pc.field("topic") == "Ordered")

        Args:
            name: one of the tables of docs/columns.md.
            columns: the columns of the dataset; default: as for `table`.
            options: as for `messages`, or those that the other table takes.

        Returns:
            A `pyarrow.dataset.Dataset` that can be pickled, secrets included. What pyarrow does not do in a scan
            (`join`, `sort_by`, `get_fragments`) it does with all rows in memory.

        Raises:
            OptionError: no such table or column, or an option that the table does not take.
        """
        from rmqstore_spark.tables.dataset import StoreDataset

        return StoreDataset(self._options({"columns": columns, **options}, required("name", name)))

    def tasks(
        self,
        name: str = MESSAGES,
        columns: Names | None = None,
        filter: "Expression | None" = None,
        **options: Unpack[MessageOptions],
    ) -> "list[StoreTask]":
        """Plan a read of messages, or of another table, as tasks that any engine can read on its machines.

        The tasks are of the store as it is now: a task whose store has been replaced since raises an error. Their rows,
        one task after the other, are those of `messages`, or of the table. docs/cookbook.md has Ray Data and Daft
        read them.

        >>> tasks = store.tasks(columns=["keys", "body"], subscribe="Ordered")
        >>> [(task.size, sum(batch.num_rows for batch in task.read())) for task in tasks]

        Args:
            name: one of the tables of docs/columns.md.
            columns: the columns to read, in this order; default: as for `table`.
            filter: only rows for which this expression of `pyarrow.compute` is true; it narrows the read as in
                `dataset`.
            options: as for `messages`, or those that the other table takes; of messages, `maxPartitionBytes` and
                `minPartitions` say how many tasks there are.

        Returns:
            Tasks, each with `schema`; `size`, the bytes of the store that it covers at the most, None for a table of
            which they are few; and `read()`, which gives its rows as record batches, in any process, also several
            times. Pickled tasks have no secrets: `read(**options)` takes these (keys, tokens), or they are in the
            environment.

        Raises:
            OptionError: no such table or column, or an option that does not go with it.
            RmqStoreError: the store cannot be read. `read()` may raise this, too.
        """
        from rmqstore_spark.tables.tasks import plan_tasks

        return plan_tasks(self._options({"columns": columns, **options}, required("name", name)), filter)

    def get(self, id: str, columns: Names | None = None, **options: Unpack[MessageOptions]) -> pa.Table:
        """Find messages by `msgId` or `offsetMsgId`.

        Usually one or none is found. All stored forms of a message (half, delayed, retried, dead) share one `msgId`.

        Args:
            id: the client's `msgId`, or the broker's `offsetMsgId`.
            columns: as for `messages`.
            options: as for `messages`, without `msgId`.

        Returns:
            A `pyarrow.Table`, empty if nothing was found.
        """
        wanted = option_texts({"columns": columns, **options}, CALL_OPTIONS)
        if "msgId" in wanted:
            raise OptionError("option 'msgId' is given beside the id that is asked for; remove it")
        wanted["msgId"] = required("id", id)
        return again(lambda: self.messages(**wanted).read_all())  # type: ignore[arg-type]

    def history(self, name: str) -> pa.Table:
        """Tell what happened to the messages with a key or id, in order of time.

        Each event is a row: `produced`, `committed`, `delayed`, `delivered`, `retried`, `dead`, `consumed` and so on.
        The columns are timestamp, event, topic, queueId, queueOffset, group, msgId, details and commitLogOffset, and
        `store` if several stores are read.

        Of messages without msgId, those count as `delivered` that were sent in the same millisecond by the same client
        as a delayed one with their key, and so perhaps one that was never delayed.

        >>> store.history("retried-0").to_pylist()

        Args:
            name: a word of `keys`, a `msgId`, or an `offsetMsgId`.

        Returns:
            A `pyarrow.Table`, empty if nothing was found.
        """
        from rmqstore_spark.jobs.history import histories

        found = histories(self._options({}), required("name", name))
        if len(found) == 1:
            return found[0].drop_columns("store")
        return pa.concat_tables(found).sort_by("timestamp")

    def explain(self, columns: Names | None = None, **options: Unpack[MessageOptions]) -> None:
        """Print how `messages` with these options would find its rows, why, and how many bytes it would read.

        >>> store.explain(key="retried-0")
        """
        from rmqstore_spark.read.explain import explained

        print(explained(self._options({"columns": columns, **options})))

    def offsets_at(self, time: Time) -> str:
        """Find where each queue stood at a time, as JSON for the option `startingOffsets`.

        Each queue gets the offset of its first message with this store time or a later one, or its end. For messages
        written by a broker the search is binary: if the broker's clock was set back, the result may be a neighbour.

        >>> store.messages(startingOffsets=store.offsets_at("2026-11-21T00:45:30"))

        Args:
            time: as for `startingTimestamp`.
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
        """Return where a consumer group goes on in each queue that it has consumed, as JSON for `startingOffsets`.

        A read with that JSON reads all other queues whole. `startingOffsets=group:NAME` reads only the group's topics.

        Args:
            group: the consumer group.

        Raises:
            OptionError: the group has no offset in this store.
        """
        from rmqstore_spark.tables.positions import positions_of

        wanted = required("group", group)
        return json.dumps(again(lambda: positions_of(self._one("offsets_of"), wanted)))

    def rebuild(self, **options: object) -> int:
        """Rebuild this store's ConsumeQueue and index files: `rmqstore_spark.rebuild`. This changes the store.

        Returns:
            The number of messages in the new queues.
        """
        return rebuild(self._one("rebuild").root, **options)

    def rebuild_config(self, *, dry_run: bool = False) -> pa.Table:
        """Make files of config/ anew that are broken, or lack topics: this changes a store, on which no broker may run.

        Each file is taken from its `.bak`, else made of what offsets, retry topics, queues and the log say; topics that
        have queues but no entry get one. What is in the place of a broken file is kept as `NAME.broken`. Each file
        becomes the new one or stays as it was, whenever this is killed, and may be done again. docs/damage.md says what
        of a file can be known.

        >>> store.rebuild_config(dry_run=True).to_pylist()

        Args:
            dry_run: True to change nothing.

        Returns:
            A `pyarrow.Table` with a row for each file, and for each entry that is new: file, entry (null for the file
            as a whole), source (`file`, `backup`, `offsets`, `retries`, `queues`, `log`, or `nowhere` for what could
            not be known) and details.

        Raises:
            RmqStoreError: a broker runs on the store, or its topics, groups or offsets are in RocksDB. The store is
                unchanged, unless the text says otherwise.
        """
        from rmqstore_spark.jobs.rebuild_config import rebuild_config
        from rmqstore_spark.store.structures.layout import place_to_write

        return rebuild_config(place_to_write(self._one("rebuild_config").root), dry_run)

    def write(self, data: object, mode: "WriteMode" = "append", **options: object) -> int:
        """Append messages to this store, or replace all of it: `rmqstore_spark.write_store`. This changes the store.

        Returns:
            The number of messages written: 0 if `txnVersion` shows that this write has been done before.
        """
        return write_store(self._one("write").root, data, mode, **options)

    def set_offsets(self, groupOffset: "Starts", *, dry_run: bool = False) -> pa.Table:
        """Let consumer groups go on at another place: this changes config/consumerOffset.json of the store (with
        enableLmq lmqConsumerOffset.json), on which no broker may run. All or nothing is changed, whenever it is killed.

        >>> store.set_offsets({"partial-group": "2026-11-21T00:45:57"}, dry_run=True).to_pylist()

        Args:
            groupOffset: by group a place: `"earliest"`, `"latest"` or a time, as for `startingTimestamp`, in all queues
                of the topics, and the light queues, that the group has consumed, without its retry topic; or the
                offset in each queue, `{"topic": {0: 17}}`, -2 for earliest and -1 for latest.
            dry_run: True to change nothing. Then the store may also be of a kind that is not written to, as with its
                queues or offsets in RocksDB: `copy(target, groupOffset=...)` makes one with these offsets.

        Returns:
            A `pyarrow.Table` with a row for each queue that is set: group, topic, queueId, consumerOffset (so far),
            newOffset, minOffset, maxOffset, and the messages between: `again` or `skipped`.

        Raises:
            OptionError: a group, topic, queue or offset that the store does not have.
            RmqStoreError: a broker runs on the store, or it is of a kind that is not written to. The store is
                unchanged.
        """
        from rmqstore_spark.jobs.set_offsets import set_offsets
        from rmqstore_spark.query.copy_options import parse_copy_options
        from rmqstore_spark.store.structures.layout import place_to_write

        given = parse_copy_options(option_texts({"groupOffset": groupOffset}, COPY_OPTIONS))
        if not given.starts:
            raise OptionError("option 'groupOffset': expected where groups go on, found nothing")
        return set_offsets(place_to_write(self._one("set_offsets").root), given.starts, dry_run)

    def copy(self, target: Path, **options: Unpack[CopyOptions]) -> "Copied":
        """Copy this store, or merge several into one. The sources are only read.

        Each message keeps its queue offset and each consumer group its position; the configuration of topics and groups
        is copied. When several stores are merged, the queues of a topic follow one another: queue 0 of the second store
        gets the number after the last queue of the first, and the groups' offsets move with it. With
        `deduplicate=True`, replicas of one store become that store, with every message that is whole in one of them.
        docs/copying.md says what happens to delayed and half messages.

        >>> store.copy("new_store")

        Args:
            target: the directory of the new store, which must not exist or must be empty.
            options: options that select messages, as for `messages`; default: all messages. `groupOffset` says where
                groups go on (as in `set_offsets`); `storeHost` gives all messages the address of their new broker, to
                which their `offsetMsgId` then leads; `excludeTopic`, `excludeKey`, `excludeMsgId` and `excludeProperty`
                leave messages out; `messageIndexEnable=False` builds no index files.

        Returns:
            An object with `messages`, the number of messages copied; `lost`, a table like that of `check`, of the
            messages that queues lack; and `excluded`, a table of what each of the options for that has left out, and
            what a search of the copy finds of it.

        Raises:
            RmqStoreError: the copy is not possible. Nothing was written; or, where the text says so, the new store is
                there.
        """
        return self._copy(target, options, is_salvage=False)

    def salvage(self, target: Path, **options: Unpack[CopyOptions]) -> "Copied":
        """Copy what is whole of a damaged store. Arguments and errors are those of `copy`.

        Messages keep their queue offsets. Consumers skip lost messages as they skip expired ones.

        >>> store.salvage("salvaged_store").lost.to_pylist()

        Returns:
            An object with `messages`, the number of messages copied, and `lost`, a table like that of `check` with a
            row for each kind of loss.
        """
        return self._copy(target, options, is_salvage=True)

    def _copy(self, target: Path, options: Mapping[str, object], is_salvage: bool) -> "Copied":
        from rmqstore_spark.jobs.copy import CopyJob, copy
        from rmqstore_spark.query.copy_options import parse_copy_options, split
        from rmqstore_spark.store.structures.layout import place_to_write

        place = place_to_write(text_of("target", target, PATH))
        selected, own = split(option_texts(options, CALL_OPTIONS | COPY_OPTIONS))
        written = parse_copy_options(own)
        refuse(selected, Use.COPIES)
        how = {"mode": "PERMISSIVE" if is_salvage else "FAILFAST", "decompress": "true", "trust": "log"}
        understood = self._options({**selected, **how})
        return copy(CopyJob.of(understood, place, written, is_salvage=is_salvage))

    def __repr__(self) -> str:
        from rmqstore_spark.jobs.summary_text import as_text

        return "\n".join(as_text(root, summary) for root, summary in self._summaries())

    def _repr_html_(self) -> str:
        from rmqstore_spark.notebook.store import store_html

        return "\n".join(store_html(root, summary) for root, summary in self._summaries(is_close=True))

    def _summaries(self, is_close: bool = False) -> Iterator[tuple[str, "Summary | RmqStoreError"]]:
        """Of each store its root and what is in it, at a glance; or why that cannot be read.

        Args:
            is_close: as of summary.glance().
        """
        from rmqstore_spark.jobs.summary import glance

        options = self._options({})
        try:
            stores = self._open(options)
        except NotAStoreError as why:  # a tiered store
            yield ", ".join(options.paths), why
            return
        for store in stores:
            yield store.root, glance(store, options.store_path_commit_log, is_close)

    def _options(self, given: Mapping[str, object], table: str = MESSAGES) -> ReadOptions:
        """The given options parsed, together with this Store's own options that the table takes."""
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
    from rmqstore_spark.query.options import parse_rebuild_options
    from rmqstore_spark.store.structures.layout import place_to_write
    from rmqstore_spark.write.rebuild import rebuild as rebuild_store

    path = text_of("store", store, PATH)
    understood = parse_rebuild_options({**option_texts(options, REBUILD_OPTIONS), "path": path})
    return rebuild_store(place_to_write(understood.path), understood.sizes, understood.message_index_enable)


def write_store(path: Path, data: object, mode: "WriteMode" = "append", **options: object) -> int:
    """rmqstore_spark.write_store()."""
    from rmqstore_spark.writing import write as write_rows

    return write_rows(path, data, mode, options)
