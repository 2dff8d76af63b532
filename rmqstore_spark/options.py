"""Every option: its name, default, how its text is read, and one line of help. docs/options.md is made from it."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.errors import OptionError, nearest, quoted
from rmqstore_spark.option_texts import RebuildOptions, StoreOptions, kind_of, refuse_no_text, text_of
from rmqstore_spark.option_values import (
    GroupOffsets,
    Transaction,
    parse_assign,
    parse_ending_offsets,
    parse_instant,
    parse_offset_msg_id,
    parse_pattern,
    parse_starting_offsets,
    parse_stream_start,
    parse_tags,
    parse_topics,
    parse_word,
    refuse_list,
    selection_of,
)
from rmqstore_spark.selection import EVERYTHING, Selection
from rmqstore_spark.store.consumequeue import UNIT_SIZE as QUEUE_UNIT_SIZE
from rmqstore_spark.store.guest import Manners
from rmqstore_spark.store.layout import refuse_remote
from rmqstore_spark.store.message import host_bytes
from rmqstore_spark.store.sizes import DEFAULT_SIZES, MOST_BYTES, Sizes, most_items, most_slots
from rmqstore_spark.store.storage import Storage, is_storage_option, taken_out

_Value = TypeVar("_Value")

Mode = Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]
MODES: tuple[Mode, ...] = get_args(Mode)
MESSAGES = "messages"  # the table that is read if no other is asked for
Pushdown = Literal["auto", "on", "off"]
Trust = Literal["log", "queues"]

NO_STORAGE = Storage()
_OF_PATHS = {"path", "paths", "storePathCommitLog", "configFrom"}  # whoever opens these tells what is wrong with them
# A copy has all of each message, as the log has it; what is damaged, copy and salvage are there to tell.
NOT_FOR_COPIES = {"columns", "mode", "decompress", "trust"}

_SIZE = re.compile(r"([0-9]{1,40})\s*(b|k|kb|m|mb|g|gb|t|tb|)", re.IGNORECASE)
_WHOLE = re.compile(r"[0-9]{1,40}")
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << _UNITS[match[2].lower()[:1].replace("b", "")] if match else 0
    if size < 1:
        raise ValueError("a number of bytes such as 67108864, 64m or 1g")
    return size


def _partition_size(text: str) -> int | None:
    try:
        return None if text.strip().lower() == "auto" else _size(text)
    except ValueError as why:
        raise ValueError(f"{why}, or auto") from None


def _whole(text: str) -> int:
    """A whole number; -1 where it is none, or of more digits than anything here has."""
    return int(text) if _WHOLE.fullmatch(text.strip()) else -1


def _count(text: str) -> int:
    if _whole(text) < 1:
        raise ValueError("a whole number of at least 1")
    return _whole(text)


def _version(text: str) -> int:
    if not 0 <= _whole(text) < 1 << 63:
        raise ValueError("a whole number of at least 0")
    return _whole(text)


def _within(parse: Callable[[str], int], most: int) -> Callable[[str], int]:
    """Reads what a broker takes: it has an int for it."""

    def parse_within(text: str) -> int:
        value = parse(text)
        if value > most:
            raise ValueError(f"{most} at most, as no broker takes more")
        return value

    return parse_within


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    """Reads one of these, in any case."""

    def parse(text: str) -> str:
        for word in words:
            if text.lower() == word.lower():
                return word
        raise ValueError(" or ".join(words))

    return parse


def _items(text: str) -> int:
    if _count(text) < 2:
        raise ValueError("a whole number of at least 2: the first entry is never used")
    return _count(text)


def _queue_size(text: str) -> int:
    return -(-_size(text) // QUEUE_UNIT_SIZE) * QUEUE_UNIT_SIZE  # a broker rounds it up as well


def _text(text: str) -> str:
    if not text:
        raise ValueError("a name")
    return text


def _host(text: str) -> bytes:
    host = host_bytes(text)
    if host is None:
        raise ValueError("ip:port or [ipv6]:port")
    return host


def _names(text: str) -> list[str]:
    refuse_list(text, "names with commas between them")
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError("names with commas between them")
    return names


def _paths(text: str) -> list[str]:
    try:
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise ValueError('a JSON list of paths such as ["/data/a", "/data/b"]')
    if "" in paths:
        raise ValueError("paths that are not empty")
    return paths


def _path(text: str) -> list[str]:
    if not text:
        raise ValueError("a directory")
    return [text]


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


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        default: as a user would write it; '' when there is none.
        parse: text to value; a ValueError says what was expected.
        help: one line for people.
    """

    name: str
    default: str
    parse: Callable[[str], Any]
    help: str

    @property
    def is_flag(self) -> bool:
        """Is it true or false, and nothing else?"""
        return self.parse is _boolean


_READ_TABLE = (
    Option("path", "", _path, "the store directory, or a glob; what `load(path)` sets"),
    Option("paths", "", _paths, "several of them as a JSON list; what `load([...])` sets"),
    Option(
        "storePathCommitLog",
        "",
        _names,
        "the commitlog's directories, with commas between them, where they are not `<path>/commitlog` (broker.conf)",
    ),
    Option(
        "table",
        MESSAGES,
        _text,
        "what is read of a store: its messages, or another of its tables, such as `topics` or `offsets`",
    ),
    Option("subscribe", "", parse_topics, "the topics to read, with commas between them"),
    Option(
        "subscribePattern",
        "",
        parse_pattern,
        "a regular expression (RE2's: no look-around, no back references) that matches their whole names",
    ),
    Option("assign", "", parse_assign, 'the queues to read: `{"topic": [0, 1]}`; at most one of these three options'),
    Option("tags", "*", parse_tags, r"a subscription expression: `*`, `TagA` or `TagA \|\| TagB`"),
    Option("key", "", parse_word, "the messages with this word in `keys`, or this `msgId`"),
    Option("msgId", "", parse_word, "the messages with this `msgId` or `offsetMsgId`"),
    Option(
        "offsetMsgId",
        "",
        parse_offset_msg_id,
        "the message with this `offsetMsgId`, which says where it is: no index is asked, as it is for `msgId`",
    ),
    Option(
        "startingTimestamp",
        "",
        parse_instant,
        "the first store time: milliseconds of the epoch, or ISO-8601 (UTC, unless it says else)",
    ),
    Option("endingTimestamp", "", parse_instant, "the first store time that is too late"),
    Option(
        "startingOffsets",
        "earliest",
        parse_starting_offsets,
        'the first offset of queues: `{"topic": {"0": 17}}`, -2 for `earliest`; queues not named are read whole; or '
        "`group:NAME`: what this consumer group has not consumed of the topics that it consumes",
    ),
    Option("endingOffsets", "latest", parse_ending_offsets, "the first offset that is too late; -1 for `latest`"),
    Option("columns", "", _names, "the columns to read, with commas between them; the rest is never decoded"),
    Option(
        "mode",
        "FAILFAST",
        _one_of(MODES),
        "at damage: `FAILFAST` stops with an error; `DROPMALFORMED` logs it and reads on after it; `PERMISSIVE` also "
        "gives a row for it, told in column `corrupt`",
    ),
    Option(
        "deduplicate",
        "false",
        _boolean,
        "of several copies of one broker's store (master and slave, two backups) each message once: of each commitlog "
        "file the copy that reaches furthest, and what is damaged there from another; without it copies are an error",
    ),
    Option("verifyCrc", "true", _boolean, "check each body against its `bodyCRC`"),
    Option("decompress", "true", _boolean, "decompress zlib, LZ4 and zstd bodies; `false` gives them as stored"),
    Option(
        "maxPartitionBytes",
        "auto",
        _partition_size,
        "the most commitlog bytes in a partition; `auto`: 128m, and in stores of more than 250 GiB more, up to 1g, "
        "to keep to 2,000 partitions",
    ),
    Option("minPartitions", "", _count, "how many partitions to aim at, at least; else the driver's cores"),
    Option(
        "pushdown",
        "auto",
        _one_of(get_args(Pushdown)),
        "use of the filters that Spark pushes: `auto` where Spark does it right, `off`, or `on`: you promise that the "
        "DataFrame is scanned once only",
    ),
    Option(
        "trust",
        "log",
        _one_of(get_args(Trust)),
        "`log`: ConsumeQueues are used as far as the log bears them out; `queues`: you promise that they are whole. "
        "Then nothing is proved, and topic, queueId, queueOffset, commitLogOffset, storeSize and store come from them "
        "alone",
    ),
    Option(
        "dropCache",
        "false",
        _boolean,
        "drop the commitlog's pages from the system's memory once they are read, but for those that were there before: "
        "a broker on the same machine keeps its own",
    ),
    Option(
        "maxTaskBytesPerSecond",
        "",
        _size,
        "the most bytes that each task reads in a second; all tasks that run at the same time read that much each",
    ),
)

_STREAM_TABLE = (
    Option(
        "startingOffsets",
        "latest",
        parse_stream_start,
        "where a new query begins: `latest`, with what comes from now on; `earliest`; `group:NAME`; or "
        '`{"topic": {"0": 17}}`, -2 for `earliest` and -1 for `latest`, queues not named are read whole. '
        "Beside `startingTimestamp` it is `earliest` by default. A restarted query goes on where its checkpoint says",
    ),
    Option(
        "maxBytesPerTrigger",
        "",
        _size,
        "about the most bytes of the log that a micro-batch reads, shared by the stores; needs Spark 4.2",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "",
        _count,
        "the most messages of a micro-batch, shared by the stores; needs Spark 4.2. To count them, the driver looks "
        "through the log first",
    ),
    Option(
        "failOnDataLoss",
        "true",
        _boolean,
        "fail where the store no longer has what comes next, or what was read last: segments were deleted before they "
        "were read, the log was cut and written anew, or an older copy took its place; `false` logs which "
        "commitLogOffsets are gone, and goes on",
    ),
)

_WRITE_TABLE = (
    Option("path", "", _path, "the store directory; what `save(path)` sets"),
    Option("topic", "", _text, "the topic of rows without one"),
    Option(
        "queues",
        "4",
        _within(_count, MOST_BYTES),
        "rows without a `queueId` go to this many queues of their topic: by the hash of `keys`, or else in turn",
    ),
    Option(
        "mappedFileSizeCommitLog",
        f"{DEFAULT_SIZES.segment >> 30}g",
        _within(_size, MOST_BYTES),
        "bytes of a commitlog file, for a new store",
    ),
    Option(
        "mappedFileSizeConsumeQueue",
        str(DEFAULT_SIZES.queue_file),
        _within(_queue_size, MOST_BYTES // QUEUE_UNIT_SIZE * QUEUE_UNIT_SIZE),
        "bytes of a ConsumeQueue file, for a new store",
    ),
    Option(
        "maxHashSlotNum",
        str(DEFAULT_SIZES.slots),
        _within(_count, most_slots(2)),
        "hash slots of an index file, for a new store",
    ),
    Option(
        "maxIndexNum",
        str(DEFAULT_SIZES.items),
        _within(_items, most_items(1)),
        "entries of an index file, for a new store",
    ),
    Option("messageIndexEnable", "true", _boolean, "put the messages' keys and ids into index files"),
    Option("storeHost", "127.0.0.1:10911", _host, "`ip:port` or `[ipv6]:port` of the broker, for rows without one"),
    Option("bornHost", "127.0.0.1:0", _host, "the same of the producer"),
    Option(
        "decompress",
        "true",
        _boolean,
        "as the rows were read: `true`: bodies are plain, and `sysFlag` loses its compression bits; `false`: they are "
        "as they were stored, and it keeps them",
    ),
    Option(
        "autoMessageVersionOnTopicLen",
        "false",
        _boolean,
        "allow topics of 128 to 255 bytes; brokers before 5.1.0 delete such messages and all after them",
    ),
    Option(
        "configFrom",
        "",
        _text,
        "for rows of a broker's store that become a new one: that store's directory. What it knows of topics and "
        "consumer groups comes along, and each group goes on where it was, though queue offsets are given anew. Needs "
        "columns `topic`, `queueId` and `queueOffset`, and the rows of each queue in their order",
    ),
    Option(
        "txnAppId",
        "",
        _text,
        "with `txnVersion`: who writes. A write whose version is not greater than the last one of this application is "
        "skipped, so that one that is tried again, in `foreachBatch` for example, writes nothing twice",
    ),
    Option(
        "txnVersion", "", _version, "with `txnAppId`: the number of this write; each one's is greater than the last"
    ),
)

_SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")  # as in Sizes

OPTIONS: dict[str, Option] = {option.name: option for option in _READ_TABLE}
STREAM_OPTIONS: dict[str, Option] = {option.name: option for option in _STREAM_TABLE}
WRITE_OPTIONS: dict[str, Option] = {option.name: option for option in _WRITE_TABLE}
ONLY_OF_STREAMS = {name.lower(): name for name in STREAM_OPTIONS if name not in OPTIONS}
# What a Python call takes: paths and table are arguments there, and a Store has them; only Spark pushes filters.
EXPLAIN_OPTIONS = {name: option for name, option in OPTIONS.items() if name not in ("path", "paths", "table")}
CALL_OPTIONS = {name: option for name, option in EXPLAIN_OPTIONS.items() if name != "pushdown"}
STORE_OPTIONS = {name: option for name, option in OPTIONS.items() if name in StoreOptions.__annotations__}
WRITE_CALL_OPTIONS = {name: option for name, option in WRITE_OPTIONS.items() if name != "path"}
REBUILD_OPTIONS = {name: option for name, option in WRITE_OPTIONS.items() if name in RebuildOptions.__annotations__}


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
    return ReadOptions(
        paths=paths,
        store_path_commit_log=values["storePathCommitLog"],
        columns=values["columns"],
        mode=values["mode"],
        verify_crc=values["verifyCrc"],
        decompress=values["decompress"],
        max_partition_bytes=values["maxPartitionBytes"],
        min_partitions=values["minPartitions"],
        manners=Manners(values["dropCache"], values["maxTaskBytesPerSecond"]),
        selection=selection_of(values),
        subscribe=values["subscribe"] or frozenset(),
        pushdown=values["pushdown"],
        trust=values["trust"],
        deduplicate=values["deduplicate"],
        table=values["table"],
        starting_group=start.group if isinstance(start, GroupOffsets) else None,
        given=frozenset(named),
        storage=storage,
    )


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
    return WriteOptions(
        path=values["path"][0],
        topic=values["topic"],
        queues=values["queues"],
        sizes=Sizes(*(values[name] if name in named else None for name in _SIZES)),
        message_index_enable=values["messageIndexEnable"],
        store_host=values["storeHost"],
        born_host=values["bornHost"],
        decompress=values["decompress"],
        auto_message_version_on_topic_len=values["autoMessageVersionOnTopicLen"],
        config_from=values["configFrom"],
        transaction=None if application is None else Transaction(application, version),
    )


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
    return {name: text_of(f"option {name!r}", value, kind_of(name)) for name, value in {**of_storage, **own}.items()}


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
        return f"option {ONLY_OF_STREAMS[name.lower()]!r} is for streams (readStream); leave it away"
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
        if option.name not in _OF_PATHS:
            refuse_no_text(text)
        return option.parse(text)
    except ValueError as expected:
        raise OptionError(f"option {option.name!r}: expected {expected}, found {quoted(text)}") from None
