"""The table of all options: name, default, type, one line of help, and where each is of use or refused, and why.

This table says which options each call, command, stream, copy and table takes; docs/options.md is generated from it.
"""

import enum
import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.errors import OptionError, nearest, quoted
from rmqstore_spark.kept import kept
from rmqstore_spark.query import option_types as types
from rmqstore_spark.query.option_texts import StoreOptions, refuse_no_text, storage_kind, text_of
from rmqstore_spark.query.option_types import Mode, Pushdown, Trust, Type
from rmqstore_spark.query.option_values import GroupOffsets, WriteId, of_messages, selection_of
from rmqstore_spark.query.selection import EVERYTHING, Selection
from rmqstore_spark.store.format.queue_block import UNIT_SIZE as QUEUE_UNIT_SIZE
from rmqstore_spark.store.format.sizes import DEFAULT_SIZES, MOST_BYTES, Sizes, most_items, most_slots
from rmqstore_spark.store.io.guest import Manners
from rmqstore_spark.store.io.storage import Storage, is_storage_option, taken_out
from rmqstore_spark.store.structures.layout import refuse_remote

_Value = TypeVar("_Value")

MESSAGES = "messages"  # the table that is read if no other is asked for
_OF_MESSAGES = (MESSAGES, "usage")  # where a light queue selects messages; in other tables it is a queue

NO_STORAGE = Storage()


def check_columns(names: list[str], known: Collection[str] = COLUMNS) -> None:
    """Refuse unknown columns, and columns named twice.

    Args:
        known: the existing columns; default: those of messages.

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
    """A place where options may be of use: a call, a command, a kind of read."""

    READ = enum.auto()  # a batch read in Spark
    STREAMS = enum.auto()
    EXPLAIN = enum.auto()
    CALL = enum.auto()  # a Python call: paths and table are arguments there, and a Store has them
    STORE = enum.auto()  # a Store is made with it, for all of its calls
    COPIES = enum.auto()
    TABLE = enum.auto()  # every table
    PICKED = enum.auto()  # every table that is made of messages; each table names its further options itself
    MESSAGES = enum.auto()  # the command of this name, like the next ones; `explain` takes the same
    TAIL = enum.auto()
    GET = enum.auto()
    HISTORY = enum.auto()
    SHOW = enum.auto()
    SELECT = enum.auto()  # not a place: marks options that select messages
    WRITE = enum.auto()
    REBUILD = enum.auto()
    OFFSETS = enum.auto()  # where groups go on is set in place


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        default: the default as a user would write it; '' for none.
        help: one line for people.
        uses: the places where the option is of use.
        refused: places where one might expect the option, and why it is refused there.
        short: another spelling on the command line.
    """

    name: str
    default: str
    type: Type
    help: str
    uses: Use
    refused: Mapping[Use, str] = field(default_factory=dict)
    short: str | None = None

    @kept
    def default_value(self) -> Any:
        """The default as the program uses it; None for none."""
        return _parse(self, self.default) if self.default else None

    def goes_with(self, use: Use) -> bool:
        """True if the option is of use there; of several places combined, in all of them."""
        return use in self.uses and not any(where in use for where in self.refused)


_STORES = Use.READ | Use.STREAMS | Use.TABLE
_CALLS = Use.READ | Use.STREAMS | Use.EXPLAIN | Use.CALL | Use.COPIES
_EVERYWHERE = _CALLS | Use.MESSAGES | Use.TAIL  # where messages are read
_ANY_TABLE = Use.TABLE | Use.GET | Use.HISTORY
_WRITES = Use.WRITE | Use.CALL
_NO_END = {Use.STREAMS: "a stream has no end"}
_NO_LOOKUP = {Use.STREAMS: "a stream reads everything that arrives; look messages up with a batch read, or filter"}
_WHOLE = {Use.COPIES: "a copy has whole messages"}

_READ_TABLE = (
    Option("path", "", types.DIRECTORY, "the store directory, or a glob; what `load(path)` sets", _STORES),
    Option(
        "paths", "", types.DIRECTORIES, "several store directories as a JSON list; what `load([...])` sets", _STORES
    ),
    Option(
        "storePathCommitLog",
        "",
        types.COMMITLOGS,
        "the directories of the commitlog, comma-separated, if it is not in `<path>/commitlog` (as in broker.conf)",
        _EVERYWHERE | Use.STORE | _ANY_TABLE | Use.SHOW,
    ),
    Option(
        "table",
        MESSAGES,
        types.NAME,
        "the table to read: `messages`, or another one such as `topics` or `offsets`",
        _STORES,
    ),
    Option(
        "subscribe",
        "",
        types.TOPICS,
        "the topics to read, comma-separated",
        _EVERYWHERE | Use.SELECT | Use.GET,
        short="--topic",
    ),
    Option(
        "subscribePattern",
        "",
        types.PATTERN,
        "a regular expression that matches the whole names of the topics to read (RE2: no look-around, no back "
        "references)",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "assign",
        "",
        types.QUEUES,
        'the queues to read: `{"topic": [0, 1]}`. Only one of `subscribe`, `subscribePattern` and `assign` can be '
        "given",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "tags",
        "*",
        types.TAGS,
        r"tags to read, as in a subscription: `*`, `TagA` or `TagA \|\| TagB`",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "key",
        "",
        types.WORD,
        "messages with this word in `keys`, or with this `msgId`",
        _EVERYWHERE | Use.SELECT | Use.GET,
        refused=_NO_LOOKUP,
    ),
    Option(
        "msgId",
        "",
        types.WORD,
        "messages with this `msgId` or `offsetMsgId`",
        _EVERYWHERE | Use.SELECT,
        refused=_NO_LOOKUP,
    ),
    Option(
        "offsetMsgId",
        "",
        types.OFFSET_ID,
        "the message with this `offsetMsgId`, which contains its position: no index is needed, unlike with `msgId`",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "bodyContains",
        "",
        types.BODY,
        "messages whose body, decompressed, contains this text (UTF-8), or these bytes: `hex:` and hex digits",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "property",
        "",
        types.PROPERTIES,
        'messages with these properties: `{"NAME": "VALUE"}`, or `NAME=VALUE` for one. Except at a terminal '
        "`property.NAME` is an option, too. The case of ASCII letters in a NAME does not count, as Spark does not "
        "tell it",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "sql92",
        "",
        types.SQL92,
        "messages that a consumer with this expression of RocketMQ's filter language would get: "
        "`a > 5 AND b IS NOT NULL`",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "startingTimestamp",
        "",
        types.INSTANT,
        "messages stored at this time or later: milliseconds since 1970, ISO-8601 (UTC unless it has a zone), `-1h` "
        "(also `s`, `m`, `d`, `w`), `now`, `today`, `yesterday Asia/Shanghai`, `today local`",
        _EVERYWHERE | Use.SELECT | Use.GET,
        short="--from",
    ),
    Option(
        "endingTimestamp",
        "",
        types.INSTANT,
        "messages stored before this time",
        _EVERYWHERE | Use.SELECT | Use.GET,
        refused=_NO_END,
        short="--to",
    ),
    Option(
        "startingOffsets",
        "earliest",
        types.STARTS,
        'the first queue offset to read: `{"topic": {"0": 17}}`, -2 for `earliest`; other queues are read whole. Or '
        "`group:NAME`: what this consumer group has not consumed yet, of the topics that it consumes",
        _EVERYWHERE | Use.SELECT,
    ),
    Option(
        "endingOffsets",
        "latest",
        types.ENDS,
        'the queue offset to stop before: `{"topic": {"0": 17}}`, -1 for `latest`',
        _EVERYWHERE | Use.SELECT,
        refused=_NO_END,
    ),
    Option(
        "by",
        "topic",
        types.BY,
        "what a row of table `usage` is, comma-separated: `topic`, `queueId`, `tag`, `bornHost`, `storeHost`, `hour`, "
        "`day`",
        Use.CALL,
        refused={Use.STREAMS: "table `usage` is read as a batch"} | {Use.COPIES: "it is for table `usage`"},
    ),
    Option(
        "columns",
        "",
        types.COLUMNS,
        "the columns to read, comma-separated; others are never decoded",
        _EVERYWHERE | _ANY_TABLE,
        refused=_WHOLE,
    ),
    Option(
        "mode",
        "FAILFAST",
        types.one_of(Mode),
        "what to do at damage: `FAILFAST`: stop with an error; `DROPMALFORMED`: log it and read on after it; "
        "`PERMISSIVE`: the same, and return a row that describes it in column `corrupt`",
        _EVERYWHERE | Use.STORE | Use.PICKED | Use.GET | Use.HISTORY,
        refused=_WHOLE,
    ),
    Option(
        "deduplicate",
        "false",
        types.FLAG,
        "read each message of several replicas of one store (master and slave, two backups) once: each commitlog file "
        "from the replica that reaches furthest, damaged messages from another one. Without it replicas are an error",
        _EVERYWHERE & ~Use.TAIL | Use.GET,
        refused={Use.STREAMS: "a stream follows each store separately, so name one replica"},
    ),
    Option(
        "tiered",
        "",
        types.OTHER_STORE,
        "the directory of the broker's tiered store (`tieredStoreFilePath`), to read what has expired in the store as "
        "well: each message once",
        _EVERYWHERE & ~Use.TAIL | Use.GET,
        refused={
            Use.STREAMS: "a stream follows the broker's own store, or the tiered store by itself",
        },
    ),
    Option(
        "compacted",
        "false",
        types.FLAG,
        "of compaction topics (`cleanup.policy=COMPACTION`) the last value of each key, from the compaction log and "
        "the commitlog together, and of other topics nothing; without it the commitlog as it is",
        _EVERYWHERE & ~Use.TAIL,
        refused={
            Use.STREAMS: "a later message of a key takes back a row that a stream has already given",
            Use.COPIES: "a copy keeps what the commitlog has",
        },
    ),
    Option(
        "committed",
        "false",
        types.FLAG,
        "in the store of a DLedger node, end with the last message that the node had noted as committed; without it "
        "with the last one that a broker keeps that starts on the store. Other stores are read whole",
        _EVERYWHERE & ~Use.TAIL | Use.GET,
        refused={Use.STREAMS: "what a node notes lags behind its log"},
    ),
    Option(
        "verifyCrc", "true", types.FLAG, "check each body against its `bodyCRC`", _EVERYWHERE | Use.STORE | Use.PICKED
    ),
    Option(
        "decompress",
        "true",
        types.FLAG,
        "decompress zlib, LZ4 and zstd bodies; `false` returns bodies as stored",
        _EVERYWHERE,
        refused=_WHOLE,
    ),
    Option(
        "explodeBatches",
        "true",
        types.FLAG,
        "a row for each message of a batch (BatchCQ topics), as consumers get them; `false`: a row for the whole "
        "batch, as stored",
        _EVERYWHERE,
        refused=_WHOLE,
    ),
    Option(
        "asOriginal",
        "false",
        types.FLAG,
        "messages as their producer sent them, to be written or sent again: of retried, dead, delayed, timed and half "
        "ones the application's topic, and its queue where that is known; without what brokers add. Options that "
        "select, such as `subscribe`, still mean what is stored",
        _EVERYWHERE | Use.GET,
        refused={Use.COPIES: "a copy keeps messages as they are stored"},
    ),
    Option(
        "maxPartitionBytes",
        "auto",
        types.PARTITION_SIZE,
        "the largest number of commitlog bytes in a partition; `auto`: 128m, and up to 1g in stores of more than 250 "
        "GiB, to have 2,000 partitions at most",
        _CALLS,
    ),
    Option(
        "minPartitions",
        "",
        types.COUNT,
        "the least number of partitions to aim at; default: the driver's cores",
        _CALLS,
    ),
    Option(
        "pushdown",
        "auto",
        types.one_of(Pushdown),
        "use of the filters that Spark pushes down: `auto`: if this version of Spark does it correctly; `off`; `on`: "
        "always, and you promise that the DataFrame is scanned only once",
        Use.READ | Use.EXPLAIN,
        refused={Use.STREAMS: "Spark pushes no filters to streams"},
    ),
    Option(
        "trust",
        "log",
        types.one_of(Trust),
        "`log`: ConsumeQueues are used as far as the log confirms them; `queues`: you promise that they are whole. "
        "Then nothing is proved, and topic, queueId, queueOffset, commitLogOffset, storeSize and store are read from "
        "the queues alone",
        _EVERYWHERE | Use.STORE | Use.GET,
        refused={Use.STREAMS: "a stream reads the log itself"} | _WHOLE,
    ),
    Option(
        "dropCache",
        "false",
        types.FLAG,
        "drop the commitlog's pages from the page cache after reading them, except those that were cached before, so "
        "that a broker on the same machine keeps its own",
        _EVERYWHERE | Use.STORE | _ANY_TABLE,
    ),
    Option(
        "maxTaskBytesPerSecond",
        "",
        types.SIZE,
        "throttle: the largest number of bytes that a task reads in a second. Tasks that run at the same time add up",
        _EVERYWHERE | Use.STORE | _ANY_TABLE,
    ),
)

_STREAM_TABLE = (
    Option(
        "startingOffsets",
        "latest",
        types.STREAM_START,
        "where a new query begins: `latest`: with the next message to arrive; `earliest`; `group:NAME`; or "
        '`{"topic": {"0": 17}}`, -2 for `earliest` and -1 for `latest`; other queues are read whole. With '
        "`startingTimestamp` the default is `earliest`. A restarted query goes on where its checkpoint says",
        Use.STREAMS,
    ),
    Option(
        "maxBytesPerTrigger",
        "",
        types.SIZE,
        "the approximate limit of log bytes in a micro-batch, shared by all stores; needs Spark 4.2",
        Use.STREAMS,
    ),
    Option(
        "maxOffsetsPerTrigger",
        "",
        types.COUNT,
        "the limit of messages in a micro-batch, shared by all stores; needs Spark 4.2. To count them, the driver "
        "scans the log first",
        Use.STREAMS,
    ),
    Option(
        "failOnDataLoss",
        "true",
        types.FLAG,
        "fail if the store no longer has the next message, or the last one that was read: segments were deleted before "
        "they were read, the log was truncated and written again, or an older copy took its place; `false`: log which "
        "commitLogOffsets are gone, and go on",
        Use.STREAMS,
    ),
)

_WRITE_TABLE = (
    Option("path", "", types.DIRECTORY, "the store directory; what `save(path)` sets", Use.WRITE),
    Option("topic", "", types.NAME, "the topic of rows that have none", _WRITES),
    Option(
        "queues",
        "4",
        types.within(types.COUNT, MOST_BYTES),
        "the number of queues per topic for rows without a `queueId`, which are spread by the hash of `keys`, or in "
        "turn",
        _WRITES,
    ),
    Option(
        "mappedFileSizeCommitLog",
        f"{DEFAULT_SIZES.segment >> 30}g",
        types.within(types.SIZE, MOST_BYTES),
        "size of a commitlog file in a new store",
        _WRITES,
    ),
    Option(
        "mappedFileSizeConsumeQueue",
        str(DEFAULT_SIZES.queue_file),
        types.within(types.QUEUE_SIZE, MOST_BYTES // QUEUE_UNIT_SIZE * QUEUE_UNIT_SIZE),
        "size of a ConsumeQueue file in a new store",
        _WRITES | Use.REBUILD,
    ),
    Option(
        "maxHashSlotNum",
        str(DEFAULT_SIZES.slots),
        types.within(types.COUNT, most_slots(2)),
        "hash slots of an index file in a new store",
        _WRITES | Use.REBUILD,
    ),
    Option(
        "maxIndexNum",
        str(DEFAULT_SIZES.items),
        types.within(types.ITEMS, most_items(1)),
        "entries of an index file in a new store",
        _WRITES | Use.REBUILD,
    ),
    Option(
        "messageIndexEnable",
        "true",
        types.FLAG,
        "index the messages' keys and ids",
        _WRITES | Use.REBUILD | Use.COPIES,
        short="--index",
    ),
    Option(
        "storeHost",
        "127.0.0.1:10911",
        types.HOST,
        "the broker's `ip:port` or `[ipv6]:port`, for rows that have none",
        _WRITES,
    ),
    Option(
        "bornHost",
        "127.0.0.1:0",
        types.HOST,
        "the producer's `ip:port` or `[ipv6]:port`, for rows that have none",
        _WRITES,
    ),
    Option(
        "decompress",
        "true",
        types.FLAG,
        "how the rows were read: `true`: bodies are decompressed, and `sysFlag` loses its compression bits; `false`: "
        "bodies are as stored, and `sysFlag` is kept",
        _WRITES,
    ),
    Option(
        "autoMessageVersionOnTopicLen",
        "false",
        types.FLAG,
        "allow topics of 128 to 255 bytes; brokers before 5.1.0 delete such messages and everything after them",
        _WRITES,
    ),
    Option(
        "configFrom",
        "",
        types.OTHER_STORE,
        "the store that the rows come from: a new store inherits its topics and consumer groups, and consumer offsets "
        "are translated to the new queue offsets. Needs columns `topic`, `queueId` and `queueOffset`, and the rows of "
        "each queue in order of their offsets",
        _WRITES,
    ),
    Option(
        "txnAppId",
        "",
        types.NAME,
        "with `txnVersion`: the application that writes. A write whose version is not above the last one of its "
        "application is skipped, so a retried write, for example in `foreachBatch`, writes nothing twice",
        _WRITES,
    ),
    Option(
        "txnVersion",
        "",
        types.VERSION,
        "with `txnAppId`: the number of this write, which grows with each write of the application",
        _WRITES,
    ),
)

_COPY_TABLE = (
    Option(
        "groupOffset",
        "",
        types.GROUP_STARTS,
        "where a consumer group goes on: `GROUP=earliest`, `GROUP=latest`, `GROUP=` and a time, in all topics that it "
        'consumes; or `GROUP=@{"topic": {"0": 17}}` in these queues (-2 for `earliest`, -1 for `latest`)',
        Use.COPIES | Use.OFFSETS,
    ),
    Option(
        "storeHost",
        "",
        types.HOST,
        "the address of the broker that is to serve the copy, `ip:port` or `[ipv6]:port`: all messages get it, and so "
        "their `offsetMsgId` leads there; those that have an address of the other length (IPv4, IPv6) are refused",
        Use.COPIES,
    ),
    Option(
        "excludeTopic",
        "",
        types.TOPICS,
        "leave out the messages of these topics, comma-separated, also where they wait or are sent again, and the "
        "topics themselves",
        Use.COPIES,
    ),
    Option(
        "excludeKey",
        "",
        types.TEXTS,
        "leave out the messages that `key` finds: those with this word in `keys`, or with this `msgId`; a JSON list "
        "for several",
        Use.COPIES,
    ),
    Option(
        "excludeMsgId",
        "",
        types.TEXTS,
        "leave out the messages with this `msgId` or `offsetMsgId`; a JSON list for several",
        Use.COPIES,
    ),
    Option(
        "excludeProperty",
        "",
        types.PAIRS,
        "leave out the messages with this property, `NAME=VALUE`; a JSON list for several",
        Use.COPIES,
    ),
)

_PROPERTY = "property."  # before the NAME in an option's name
_SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")  # as in Sizes

OPTIONS: dict[str, Option] = {option.name: option for option in _READ_TABLE}
STREAM_OPTIONS: dict[str, Option] = {option.name: option for option in _STREAM_TABLE}
WRITE_OPTIONS: dict[str, Option] = {option.name: option for option in _WRITE_TABLE}
ONLY_OF_STREAMS = {name.lower(): name for name in STREAM_OPTIONS if name not in OPTIONS}


def going_with(use: Use, table: Mapping[str, Option] = OPTIONS) -> dict[str, Option]:
    """The options of use at a place; of several places combined, those of use at all of them."""
    return {name: option for name, option in table.items() if option.goes_with(use)}


def refused_for(use: Use) -> dict[str, str]:
    """The read options that a place refuses, and why."""
    return {name: option.refused[use] for name, option in OPTIONS.items() if use in option.refused}


def refuse(given: Iterable[str], use: Use) -> None:
    """Refuse read options that have no meaning at a place. Names are compared in any case.

    Raises:
        OptionError: one of the options is refused there.
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
# For writing a copy.
COPY_OPTIONS = {option.name: option for option in _COPY_TABLE} | going_with(Use.COPIES, WRITE_OPTIONS)


def of_stores(given: Mapping[str, object]) -> StoreOptions:
    """The given options that say where a store's files are and how they are read."""
    names = {name.lower() for name in STORE_OPTIONS}
    return {  # type: ignore[return-value]
        name: value for name, value in given.items() if name.lower() in names or is_storage_option(name)
    }


@dataclass(frozen=True)
class ReadOptions:
    """Parsed read options. Attributes are the options' names in Python's spelling.

    Large because each option of a read is a field, and all of them go with a task.

    Attributes:
        manners: page cache and throttle, from `dropCache` and `maxTaskBytesPerSecond`.
        selection: the options that select messages, taken together.
        subscribe: the topics of option `subscribe`; pushed filters may leave fewer of them in the selection.
        max_partition_bytes: None for `auto` (read/plan/pack.py).
        storage: how to reach remote stores.
        by: what a row of table `usage` is.
        starting_group: the consumer group in startingOffsets, which is not part of the selection yet.
        given: the names of the options that were given.
    """

    paths: list[str]
    store_path_commit_log: list[str] | None
    columns: list[str] | None
    mode: Mode
    verify_crc: bool
    decompress: bool
    explode_batches: bool
    as_original: bool
    max_partition_bytes: int | None
    min_partitions: int | None
    manners: Manners
    selection: Selection = EVERYTHING
    subscribe: frozenset[str] = frozenset()
    pushdown: Pushdown = "auto"
    trust: Trust = "log"
    deduplicate: bool = False
    compacted: bool = False
    committed: bool = False
    tiered: str | None = None
    table: str = MESSAGES
    by: tuple[str, ...] = ("topic",)
    starting_group: str | None = None
    given: frozenset[str] = frozenset()
    storage: Storage = NO_STORAGE
    read_beside: frozenset[str] = frozenset()

    @property
    def is_everything(self) -> bool:
        """True if the options select all messages."""
        return self.selection.is_everything and self.starting_group is None


@dataclass(frozen=True)
class WriteOptions:
    """Parsed write options. Attributes are the options' names in Python's spelling; hosts are as stored.

    Large because each option of a write is a field.

    Attributes:
        sizes: the sizes that the user gives. An existing store has its own; RocketMQ's defaults fill the rest.
        config_from: the store whose topics and groups a new store inherits.
        write_id: `txnAppId` and `txnVersion`; None if they are not given.
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
    write_id: WriteId | None = None


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse read options. Names are compared in any case.

    Raises:
        OptionError: an unknown option (with the most similar known one), or a wrong value.
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
    start, selection = values["startingOffsets"], selection_of(values)
    together = {
        "paths": paths,
        "manners": Manners(values["dropCache"], values["maxTaskBytesPerSecond"]),
        "selection": of_messages(selection) if values["table"] in _OF_MESSAGES else selection,
        "subscribe": values["subscribe"] or frozenset(),
        "starting_group": start.group if isinstance(start, GroupOffsets) else None,
        "given": frozenset(named),
        "storage": storage,
    }
    return ReadOptions(**_attributes(ReadOptions, values) | together)


def _attributes(understood: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of those options that have an attribute of the same name, by its spelling in Python."""
    names = _names_in_python(understood)
    return {names[name]: value for name, value in values.items() if name in names}


@functools.cache
def _names_in_python(understood: type) -> dict[str, str]:
    """The spelling in Python of the options that have an attribute of the same name."""
    names = {attribute.name for attribute in fields(understood)}
    spelled = {
        name: re.sub("[A-Z]+", lambda found: f"_{found[0].lower()}", name) for name in OPTIONS.keys() | WRITE_OPTIONS
    }
    return {name: python for name, python in spelled.items() if python in names}


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse write options. Names are compared in any case.

    Raises:
        OptionError: an unknown option (with the most similar known one), or a wrong value.
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
        raise OptionError(f"options 'txnAppId' and 'txnVersion' go together: expected {missing!r} as well, found none")
    together = {
        "path": values["path"][0],
        "sizes": Sizes(*(values[name] if name in named else None for name in _SIZES)),
        "write_id": None if application is None else WriteId(application, version),
    }
    return WriteOptions(**_attributes(WriteOptions, values) | together)


def parse_rebuild_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse the options of rmqstore_spark.rebuild, which are some of the write options.

    Raises:
        OptionError: an option that a rebuild does not have, or a wrong value.
    """
    understand(given, {"path": WRITE_OPTIONS["path"], **REBUILD_OPTIONS})
    return parse_write_options(given)


def option_texts(given: Mapping[str, object], table: Mapping[str, Option]) -> dict[str, str]:
    """A Python program's options as texts, as Spark passes them, by their exact names. None counts as not given.

    Raises:
        OptionError: an option that is not in the table, is given twice, or has a value of a wrong type.
    """
    values = {name: value for name, value in given.items() if value is not None}
    of_storage = {name: value for name, value in values.items() if is_storage_option(name)}
    others: dict[str, object] = {name: value for name, value in values.items() if name not in of_storage}
    own = named(with_properties(others, dict) if "property" in table else others, table)
    kinds = {name: storage_kind(name) for name in of_storage} | {name: table[name].type.python for name in own}
    return {name: text_of(f"option {name!r}", value, kinds[name]) for name, value in {**of_storage, **own}.items()}


def named(given: Mapping[str, _Value], table: Mapping[str, Option]) -> dict[str, _Value]:
    """Options by their exact names, in the order of the table: of two wrong options always the same one is reported.

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


def with_properties(given: Mapping[str, _Value], together: Callable[[dict[str, _Value]], _Value]) -> dict[str, _Value]:
    """Options with those called `property.NAME` as one option `property`.

    Args:
        together: makes its value of the values by NAME.

    Raises:
        OptionError: `property` is given as well.
    """
    found = {name[len(_PROPERTY) :]: value for name, value in given.items() if name.lower().startswith(_PROPERTY)}
    rest = {name: value for name, value in given.items() if not name.lower().startswith(_PROPERTY)}
    if found and any(name.lower() == "property" for name in rest):
        raise OptionError(
            f"options 'property' and {quoted(f'property.{min(found)}')} are given together; give one of them"
        )
    return rest | ({"property": together(found)} if found else {})


def _unknown(name: str, table: Mapping[str, Option]) -> str:
    if name.lower() in ONLY_OF_STREAMS and "subscribe" in table:
        return f"option {ONLY_OF_STREAMS[name.lower()]!r} is for streams (readStream); remove it"
    known = f"The options are {', '.join(table)}"
    others = {other.lower(): other for other in OPTIONS}
    if name.lower() in others and table.items() < OPTIONS.items():
        return f"option {others[name.lower()]!r} is not for this call. {known}"
    if table is OPTIONS:
        for what, some in (("copies: Store.copy", COPY_OPTIONS), ("writes: df.write", WRITE_OPTIONS)):
            for other in some:
                if other.lower() == name.lower():
                    return f"option {other!r} is not for reads, but for {what}. {known}"
    streams = STREAM_OPTIONS if table is OPTIONS else {}
    return f"unknown option {quoted(name)}.{nearest(name, [*table, *streams])} {known}"


def understand(given: Mapping[str, str], table: Mapping[str, Option]) -> tuple[dict[str, Any], set[str]]:
    """Parse the options of a table.

    Returns:
        The values of all its options, by name, and the names of those that were given.

    Raises:
        OptionError: an option that is not in the table, or a wrong value.
    """
    texts = named(with_properties(given, json.dumps) if "property" in table else given, table)
    values = {name: _parse(table[name], text) for name, text in texts.items()}
    for option in table.values():
        if option.name not in values:
            values[option.name] = option.default_value
    return values, set(texts)


def _parse(option: Option, text: str) -> Any:
    try:
        if not option.type.is_path:
            refuse_no_text(text)
        return option.type.parse(text)
    except ValueError as expected:
        raise OptionError(f"option {option.name!r}: expected {expected}, found {quoted(text)}") from None
