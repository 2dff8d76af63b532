"""Every option: its name, default and type, one line of help, where it is of use, and where it is not and why.

docs/options.md is made from it, and so is what a call, a command, a stream, a copy or a table takes.
"""

import enum
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from rmqstore_spark import option_types as types
from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.errors import OptionError, nearest, quoted
from rmqstore_spark.option_texts import StoreOptions, refuse_no_text, storage_kind, text_of
from rmqstore_spark.option_types import Mode, Pushdown, Trust, Type
from rmqstore_spark.option_values import GroupOffsets, Transaction, selection_of
from rmqstore_spark.selection import EVERYTHING, Selection
from rmqstore_spark.store.consumequeue import UNIT_SIZE as QUEUE_UNIT_SIZE
from rmqstore_spark.store.guest import Manners
from rmqstore_spark.store.layout import refuse_remote
from rmqstore_spark.store.sizes import DEFAULT_SIZES, MOST_BYTES, Sizes, most_items, most_slots
from rmqstore_spark.store.storage import Storage, is_storage_option, taken_out

_Value = TypeVar("_Value")

MESSAGES = "messages"  # the table that is read if no other is asked for

NO_STORAGE = Storage()


def check_columns(names: list[str], known: Collection[str] = COLUMNS) -> None:
    """Refuse columns that do not exist, or are named twice.

    Args:
        known: those that there are; of messages, if it is not given.

    Raises:
        OptionError: naming the column and the nearest one.
    """
    for name in names:
        if name not in known:
            raise OptionError(
                f"unknown column {quoted(name)}.{nearest(name, list(known))} The columns are {', '.join(known)}"
            )
        if names.count(name) > 1:
            raise OptionError(f"column {quoted(name)} is asked for twice")


class Use(enum.Flag):
    """Where an option is of use."""

    READ = enum.auto()  # a batch read in Spark
    STREAMS = enum.auto()
    EXPLAIN = enum.auto()
    CALL = enum.auto()  # a Python call: paths and table are arguments there, and a Store has them
    STORE = enum.auto()  # a Store is made with it, for all of its calls
    COPIES = enum.auto()
    TABLE = enum.auto()  # every table: which stores, which columns, with what manners towards others
    PICKED = enum.auto()  # every table that is made of messages; what else goes with a table, it says itself
    MESSAGES = enum.auto()  # the command of this name, like the next ones; `explain` takes the same
    TAIL = enum.auto()
    GET = enum.auto()
    HISTORY = enum.auto()
    SHOW = enum.auto()
    SELECT = enum.auto()  # no place: it says which messages are wanted
    WRITE = enum.auto()
    REBUILD = enum.auto()


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        default: as a user would write it; '' when there is none.
        help: one line for people.
        uses: where it is of use.
        refused: where it is not, though one might think so, and why.
        short: what else it is called at a terminal.
    """

    name: str
    default: str
    type: Type
    help: str
    uses: Use
    refused: Mapping[Use, str] = field(default_factory=dict)
    short: str | None = None

    def goes_with(self, use: Use) -> bool:
        """Is it of use there, or in all of several places?"""
        return use in self.uses and not any(where in use for where in self.refused)


_STORES = Use.READ | Use.STREAMS | Use.TABLE
_CALLS = Use.READ | Use.STREAMS | Use.EXPLAIN | Use.CALL | Use.COPIES
_EVERYWHERE = _CALLS | Use.MESSAGES | Use.TAIL  # where messages are read
_ANY_TABLE = Use.TABLE | Use.GET | Use.HISTORY
_WRITES = Use.WRITE | Use.CALL
_NO_END = {Use.STREAMS: "a stream has no end"}
_NO_LOOKUP = {Use.STREAMS: "a stream reads all that comes; look messages up with a batch read, or filter"}
_WHOLE = {Use.COPIES: "they have whole messages"}

_READ_TABLE = (
    Option("path", "", types.DIRECTORY, "the store directory, or a glob; what `load(path)` sets", _STORES),
    Option("paths", "", types.DIRECTORIES, "several of them as a JSON list; what `load([...])` sets", _STORES),
    Option(
        "storePathCommitLog",
        "",
        types.COMMITLOGS,
        "the commitlog's directories, with commas between them, where they are not `<path>/commitlog` (broker.conf)",
        _EVERYWHERE | Use.STORE | _ANY_TABLE | Use.SHOW,
    ),
    Option(
        "table",
        MESSAGES,
        types.NAME,
        "what is read of a store: its messages, or another of its tables, such as `topics` or `offsets`",
        _STORES,
    ),
    Option(
        "subscribe",
        "",
        types.TOPICS,
        "the topics to read, with commas between them",
        _EVERYWHERE | Use.SELECT | Use.GET,
        short="--topic",
    ),
    Option(
        "subscribePattern",
        "",
        types.PATTERN,
        "a regular expression (RE2's: no look-around, no back references) that matches their whole names",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "assign",
        "",
        types.QUEUES,
        'the queues to read: `{"topic": [0, 1]}`; at most one of these three options',
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "tags", "*", types.TAGS, r"a subscription expression: `*`, `TagA` or `TagA \|\| TagB`", _EVERYWHERE | Use.SELECT
    ),
    Option(
        "key",
        "",
        types.WORD,
        "the messages with this word in `keys`, or this `msgId`",
        _EVERYWHERE | Use.SELECT | Use.GET,
        refused=_NO_LOOKUP,
    ),
    Option(
        "msgId",
        "",
        types.WORD,
        "the messages with this `msgId` or `offsetMsgId`",
        _EVERYWHERE | Use.SELECT,
        refused=_NO_LOOKUP,
    ),
    Option(
        "offsetMsgId",
        "",
        types.OFFSET_ID,
        "the message with this `offsetMsgId`, which says where it is: no index is asked, as it is for `msgId`",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "startingTimestamp",
        "",
        types.INSTANT,
        "the first store time: milliseconds of the epoch, or ISO-8601 (UTC, unless it says else)",
        _EVERYWHERE | Use.SELECT | Use.GET,
        short="--from",
    ),
    Option(
        "endingTimestamp",
        "",
        types.INSTANT,
        "the first store time that is too late",
        _EVERYWHERE | Use.SELECT | Use.GET,
        refused=_NO_END,
        short="--to",
    ),
    Option(
        "startingOffsets",
        "earliest",
        types.STARTS,
        'the first offset of queues: `{"topic": {"0": 17}}`, -2 for `earliest`; queues not named are read whole; or '
        "`group:NAME`: what this consumer group has not consumed of the topics that it consumes",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "endingOffsets",
        "latest",
        types.ENDS,
        "the first offset that is too late; -1 for `latest`",
        _EVERYWHERE | Use.SELECT,
        refused=_NO_END,
    ),
    Option(
        "columns",
        "",
        types.COLUMNS,
        "the columns to read, with commas between them; the rest is never decoded",
        _EVERYWHERE | _ANY_TABLE,
        refused=_WHOLE,
    ),
    Option(
        "mode",
        "FAILFAST",
        types.one_of(Mode),
        "at damage: `FAILFAST` stops with an error; `DROPMALFORMED` logs it and reads on after it; `PERMISSIVE` also "
        "gives a row for it, told in column `corrupt`",
        _EVERYWHERE | Use.STORE | Use.PICKED | Use.GET | Use.HISTORY,
        refused=_WHOLE,
    ),
    Option(
        "deduplicate",
        "false",
        types.FLAG,
        "of several copies of one broker's store (master and slave, two backups) each message once: of each commitlog "
        "file the copy that reaches furthest, and what is damaged there from another; without it copies are an error",
        _EVERYWHERE & ~Use.TAIL | Use.GET,
        refused={Use.STREAMS: "each store is followed by itself, so name one copy"},
    ),
    Option(
        "verifyCrc", "true", types.FLAG, "check each body against its `bodyCRC`", _EVERYWHERE | Use.STORE | Use.PICKED
    ),
    Option(
        "decompress",
        "true",
        types.FLAG,
        "decompress zlib, LZ4 and zstd bodies; `false` gives them as stored",
        _EVERYWHERE,
        refused=_WHOLE,
    ),
    Option(
        "maxPartitionBytes",
        "auto",
        types.PARTITION_SIZE,
        "the most commitlog bytes in a partition; `auto`: 128m, and in stores of more than 250 GiB more, up to 1g, "
        "to keep to 2,000 partitions",
        _CALLS,
    ),
    Option(
        "minPartitions", "", types.COUNT, "how many partitions to aim at, at least; else the driver's cores", _CALLS
    ),
    Option(
        "pushdown",
        "auto",
        types.one_of(Pushdown),
        "use of the filters that Spark pushes: `auto` where Spark does it right, `off`, or `on`: you promise that the "
        "DataFrame is scanned once only",
        Use.READ | Use.EXPLAIN,
        refused={Use.STREAMS: "Spark pushes no filters to streams"},
    ),
    Option(
        "trust",
        "log",
        types.one_of(Trust),
        "`log`: ConsumeQueues are used as far as the log bears them out; `queues`: you promise that they are whole. "
        "Then nothing is proved, and topic, queueId, queueOffset, commitLogOffset, storeSize and store come from them "
        "alone",
        _EVERYWHERE | Use.STORE | Use.GET,
        refused={Use.STREAMS: "a stream reads the log itself"} | _WHOLE,
    ),
    Option(
        "dropCache",
        "false",
        types.FLAG,
        "drop the commitlog's pages from the system's memory once they are read, but for those that were there before: "
        "a broker on the same machine keeps its own",
        _EVERYWHERE | Use.STORE | _ANY_TABLE,
    ),
    Option(
        "maxTaskBytesPerSecond",
        "",
        types.SIZE,
        "the most bytes that each task reads in a second; all tasks that run at the same time read that much each",
        _EVERYWHERE | Use.STORE | _ANY_TABLE,
    ),
)

_STREAM_TABLE = (
    Option(
        "startingOffsets",
        "latest",
        types.STREAM_START,
        "where a new query begins: `latest`, with what comes from now on; `earliest`; `group:NAME`; or "
        '`{"topic": {"0": 17}}`, -2 for `earliest` and -1 for `latest`, queues not named are read whole. '
        "Beside `startingTimestamp` it is `earliest` by default. A restarted query goes on where its checkpoint says",
        Use.STREAMS,
    ),
    Option(
        "maxBytesPerTrigger",
        "",
        types.SIZE,
        "about the most bytes of the log that a micro-batch reads, shared by the stores; needs Spark 4.2",
        Use.STREAMS,
    ),
    Option(
        "maxOffsetsPerTrigger",
        "",
        types.COUNT,
        "the most messages of a micro-batch, shared by the stores; needs Spark 4.2. To count them, the driver looks "
        "through the log first",
        Use.STREAMS,
    ),
    Option(
        "failOnDataLoss",
        "true",
        types.FLAG,
        "fail where the store no longer has what comes next, or what was read last: segments were deleted before they "
        "were read, the log was cut and written anew, or an older copy took its place; `false` logs which "
        "commitLogOffsets are gone, and goes on",
        Use.STREAMS,
    ),
)

_WRITE_TABLE = (
    Option("path", "", types.DIRECTORY, "the store directory; what `save(path)` sets", Use.WRITE),
    Option("topic", "", types.NAME, "the topic of rows without one", _WRITES),
    Option(
        "queues",
        "4",
        types.within(types.COUNT, MOST_BYTES),
        "rows without a `queueId` go to this many queues of their topic: by the hash of `keys`, or else in turn",
        _WRITES,
    ),
    Option(
        "mappedFileSizeCommitLog",
        f"{DEFAULT_SIZES.segment >> 30}g",
        types.within(types.SIZE, MOST_BYTES),
        "bytes of a commitlog file, for a new store",
        _WRITES,
    ),
    Option(
        "mappedFileSizeConsumeQueue",
        str(DEFAULT_SIZES.queue_file),
        types.within(types.QUEUE_SIZE, MOST_BYTES // QUEUE_UNIT_SIZE * QUEUE_UNIT_SIZE),
        "bytes of a ConsumeQueue file, for a new store",
        _WRITES | Use.REBUILD,
    ),
    Option(
        "maxHashSlotNum",
        str(DEFAULT_SIZES.slots),
        types.within(types.COUNT, most_slots(2)),
        "hash slots of an index file, for a new store",
        _WRITES | Use.REBUILD,
    ),
    Option(
        "maxIndexNum",
        str(DEFAULT_SIZES.items),
        types.within(types.ITEMS, most_items(1)),
        "entries of an index file, for a new store",
        _WRITES | Use.REBUILD,
    ),
    Option(
        "messageIndexEnable",
        "true",
        types.FLAG,
        "put the messages' keys and ids into index files",
        _WRITES | Use.REBUILD | Use.COPIES,
        short="--index",
    ),
    Option(
        "storeHost",
        "127.0.0.1:10911",
        types.HOST,
        "`ip:port` or `[ipv6]:port` of the broker, for rows without one",
        _WRITES,
    ),
    Option("bornHost", "127.0.0.1:0", types.HOST, "the same of the producer", _WRITES),
    Option(
        "decompress",
        "true",
        types.FLAG,
        "as the rows were read: `true`: bodies are plain, and `sysFlag` loses its compression bits; `false`: they are "
        "as they were stored, and it keeps them",
        _WRITES,
    ),
    Option(
        "autoMessageVersionOnTopicLen",
        "false",
        types.FLAG,
        "allow topics of 128 to 255 bytes; brokers before 5.1.0 delete such messages and all after them",
        _WRITES,
    ),
    Option(
        "configFrom",
        "",
        types.OTHER_STORE,
        "for rows of a broker's store that become a new one: that store's directory. What it knows of topics and "
        "consumer groups comes along, and each group goes on where it was, though queue offsets are given anew. Needs "
        "columns `topic`, `queueId` and `queueOffset`, and the rows of each queue in their order",
        _WRITES,
    ),
    Option(
        "txnAppId",
        "",
        types.NAME,
        "with `txnVersion`: who writes. A write whose version is not greater than the last one of this application is "
        "skipped, so that one that is tried again, in `foreachBatch` for example, writes nothing twice",
        _WRITES,
    ),
    Option(
        "txnVersion",
        "",
        types.VERSION,
        "with `txnAppId`: the number of this write; each one's is greater than the last",
        _WRITES,
    ),
)

_SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")  # as in Sizes

OPTIONS: dict[str, Option] = {option.name: option for option in _READ_TABLE}
STREAM_OPTIONS: dict[str, Option] = {option.name: option for option in _STREAM_TABLE}
WRITE_OPTIONS: dict[str, Option] = {option.name: option for option in _WRITE_TABLE}
ONLY_OF_STREAMS = {name.lower(): name for name in STREAM_OPTIONS if name not in OPTIONS}


def going_with(use: Use, table: Mapping[str, Option] = OPTIONS) -> dict[str, Option]:
    """The options that are of use somewhere, or in all of several places."""
    return {name: option for name, option in table.items() if option.goes_with(use)}


def refused_for(use: Use) -> dict[str, str]:
    """The options of a read that are of no use somewhere, and why."""
    return {name: option.refused[use] for name, option in OPTIONS.items() if use in option.refused}


def refuse(given: Iterable[str], use: Use) -> None:
    """Refuse options of a read that are of no use somewhere; their names in any case.

    Raises:
        OptionError: there is one.
    """
    names = {name.lower() for name in given}
    for name, why in refused_for(use).items():
        if name.lower() in names:
            raise OptionError(f"option {name!r} is not for {(use.name or '').lower()}: {why}; remove it")


EXPLAIN_OPTIONS = going_with(Use.EXPLAIN)
CALL_OPTIONS = going_with(Use.CALL)
STORE_OPTIONS = going_with(Use.STORE)
WRITE_CALL_OPTIONS = going_with(Use.CALL, WRITE_OPTIONS)
REBUILD_OPTIONS = going_with(Use.REBUILD, WRITE_OPTIONS)
COPY_OPTIONS = going_with(Use.COPIES, WRITE_OPTIONS)  # that a copy is written with


def of_stores(given: Mapping[str, object]) -> StoreOptions:
    """Those of the options that say where a store's files are, and how they are read."""
    names = {name.lower() for name in STORE_OPTIONS}
    return {  # type: ignore[return-value]
        name: value for name, value in given.items() if name.lower() in names or is_storage_option(name)
    }


@dataclass(frozen=True)
class ReadOptions:
    """The read options, understood. Attributes are the options' names in Python's spelling.

    Attributes:
        manners: what `dropCache` and `maxTaskBytesPerSecond` ask for.
        selection: what those that select rows say together.
        subscribe: the topics that this one names. Filters may have left fewer of them in the selection.
        max_partition_bytes: None for `auto` (read/pack.py).
        storage: how remote stores are reached.
        starting_group: the consumer group that startingOffsets names; the selection says nothing of it yet.
        given: the names of the options that were given at all.
    """

    paths: list[str]
    store_path_commit_log: list[str] | None
    columns: list[str] | None
    mode: Mode
    verify_crc: bool
    decompress: bool
    max_partition_bytes: int | None
    min_partitions: int | None
    manners: Manners
    selection: Selection = EVERYTHING
    subscribe: frozenset[str] = frozenset()
    pushdown: Pushdown = "auto"
    trust: Trust = "log"
    deduplicate: bool = False
    table: str = MESSAGES
    starting_group: str | None = None
    given: frozenset[str] = frozenset()
    storage: Storage = NO_STORAGE

    @property
    def is_everything(self) -> bool:
        """True when no message is left out."""
        return self.selection.is_everything and self.starting_group is None


@dataclass(frozen=True)
class WriteOptions:
    """The write options, understood. Attributes are the options' names in Python's spelling; hosts are as stored.

    Attributes:
        sizes: those that the user gives; a store has its own, and RocketMQ's are for what neither says.
        config_from: the store whose topics and groups come along.
        transaction: what `txnAppId` and `txnVersion` say; None where they are not given.
    """

    path: str
    topic: str | None
    queues: int
    sizes: Sizes
    message_index_enable: bool
    store_host: bytes
    born_host: bytes
    decompress: bool
    auto_message_version_on_topic_len: bool
    config_from: str | None = None
    transaction: Transaction | None = None


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Understand a reader's options; their names in any case.

    Raises:
        OptionError: an unknown option (with the nearest known one), or a value that cannot be understood.
    """
    storage, given = taken_out(given)
    values, named = understand(given, OPTIONS)
    if values["path"] and values["paths"]:
        raise OptionError("options 'path' and 'paths' are both given; give one of them")
    paths = values["paths"] or values["path"]
    if not paths:
        raise OptionError(
            "no path is given; use load(path), or in SQL: CREATE TEMPORARY VIEW v USING rmqstore OPTIONS (path '...') "
            "(Spark hands no options to the tables that CREATE TABLE makes)"
        )
    if values["storePathCommitLog"] and len(paths) > 1:
        raise OptionError("option 'storePathCommitLog' belongs to one store, but several paths are given")
    if values["columns"] and values["table"] == MESSAGES:
        check_columns(values["columns"])
    start = values["startingOffsets"]
    together = {
        "paths": paths,
        "manners": Manners(values["dropCache"], values["maxTaskBytesPerSecond"]),
        "selection": selection_of(values),
        "subscribe": values["subscribe"] or frozenset(),
        "starting_group": start.group if isinstance(start, GroupOffsets) else None,
        "given": frozenset(named),
        "storage": storage,
    }
    return ReadOptions(**_attributes(ReadOptions, values) | together)


def _attributes(understood: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options that are attributes as they are: of their names, in Python's spelling."""
    names = {attribute.name for attribute in fields(understood)}
    spelled = {re.sub("[A-Z]+", lambda found: f"_{found[0].lower()}", name): value for name, value in values.items()}
    return {name: value for name, value in spelled.items() if name in names}


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Understand a writer's options; their names in any case.

    Raises:
        OptionError: an unknown option (with the nearest known one), or a value that cannot be understood.
    """
    refuse_remote(next((text for name, text in given.items() if name.lower() == "path"), ""))
    values, named = understand(given, WRITE_OPTIONS)
    if not values["path"]:
        raise OptionError(
            "no path is given; use save(path), or in SQL: INSERT INTO a temporary view "
            "(Spark hands no options to the tables that CREATE TABLE makes)"
        )
    application, version = values["txnAppId"], values["txnVersion"]
    if (application is None) != (version is None):
        missing = "txnVersion" if version is None else "txnAppId"
        raise OptionError(f"options 'txnAppId' and 'txnVersion' go together: expected {missing!r}, too, found none")
    together = {
        "path": values["path"][0],
        "sizes": Sizes(*(values[name] if name in named else None for name in _SIZES)),
        "transaction": None if application is None else Transaction(application, version),
    }
    return WriteOptions(**_attributes(WriteOptions, values) | together)


def parse_rebuild_options(given: Mapping[str, str]) -> WriteOptions:
    """Understand the options of rmqstore_spark.rebuild, which are some of those for writing.

    Raises:
        OptionError: one that has no meaning there, or a value that cannot be understood.
    """
    understand(given, {"path": WRITE_OPTIONS["path"], **REBUILD_OPTIONS})
    return parse_write_options(given)


def option_texts(given: Mapping[str, object], table: Mapping[str, Option]) -> dict[str, str]:
    """A Python program's options as the texts that they are in Spark, by their own names; what is None is not given.

    Raises:
        OptionError: one that is not in the table, is given twice, or takes no such value.
    """
    values = {name: value for name, value in given.items() if value is not None}
    of_storage = {name: value for name, value in values.items() if is_storage_option(name)}
    own = named({name: value for name, value in values.items() if name not in of_storage}, table)
    kinds = {name: storage_kind(name) for name in of_storage} | {name: table[name].type.python for name in own}
    return {name: text_of(f"option {name!r}", value, kinds[name]) for name, value in {**of_storage, **own}.items()}


def named(given: Mapping[str, _Value], table: Mapping[str, Option]) -> dict[str, _Value]:
    """Options by their own names, in the order of their table: so of two that are wrong it is always the same that is
    told, however they are given.

    Raises:
        OptionError: an option that is not in the table, or is given twice.
    """
    by_lower_name = {name.lower(): name for name in table}
    found: dict[str, _Value] = {}
    for name, value in sorted(given.items(), key=lambda item: item[0]):
        own = by_lower_name.get(name.lower())
        if own is None:
            raise OptionError(_unknown(name, table))
        if own in found:
            raise OptionError(f"option {own!r} is given twice, as {quoted(name)} the second time")
        found[own] = value
    return {name: found[name] for name in table if name in found}


def _unknown(name: str, table: Mapping[str, Option]) -> str:
    if name.lower() in ONLY_OF_STREAMS and "subscribe" in table:
        return f"option {ONLY_OF_STREAMS[name.lower()]!r} is for streams (readStream); remove it"
    known = f"The options are {', '.join(table)}"
    others = {other.lower(): other for other in OPTIONS}
    if name.lower() in others and table.items() < OPTIONS.items():
        return f"option {others[name.lower()]!r} is not for this call. {known}"
    streams = STREAM_OPTIONS if table is OPTIONS else {}
    return f"unknown option {quoted(name)}.{nearest(name, [*table, *streams])} {known}"


def understand(given: Mapping[str, str], table: Mapping[str, Option]) -> tuple[dict[str, Any], set[str]]:
    """The values of all options of a table, and the names of those that are given.

    Raises:
        OptionError: an option that is not in the table, or a value that cannot be understood.
    """
    texts = named(given, table)
    values = {name: _parse(table[name], text) for name, text in texts.items()}
    for option in table.values():
        if option.name not in values:
            values[option.name] = _parse(option, option.default) if option.default else None
    return values, set(texts)


def _parse(option: Option, text: str) -> Any:
    try:
        if not option.type.is_path:
            refuse_no_text(text)
        return option.type.parse(text)
    except ValueError as expected:
        raise OptionError(f"option {option.name!r}: expected {expected}, found {quoted(text)}") from None
