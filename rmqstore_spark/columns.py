"""The type Column, and the table of all columns of messages: name, type and meaning of each."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from rmqstore_spark.errors import OptionError

TEXT, BYTES = pa.string(), pa.binary()
INT, LONG, BOOL = pa.int32(), pa.int64(), pa.bool_()
TIME = pa.timestamp("us", "UTC")
MAP = pa.map_(TEXT, TEXT)
TEXTS = pa.list_(TEXT)
OFFSETS = pa.map_(TEXT, LONG)
_SPARK = {
    TEXT: "string",
    BYTES: "binary",
    INT: "int",
    LONG: "bigint",
    BOOL: "boolean",
    TIME: "timestamp",
    MAP: "map<string,string>",
    TEXTS: "array<string>",
    OFFSETS: "map<string,bigint>",
}


@dataclass(frozen=True)
class Column:
    """A column of messages or of another table.

    Attributes:
        arrow: the type in a record batch, one of the types above; Spark compares types exactly.
        meaning: one line for people.
        default: False for a column that is only returned when it is named.
        derived: True if the value follows from other columns and the message's position; ignored on writing.
    """

    name: str
    arrow: pa.DataType
    meaning: str
    default: bool = True
    derived: bool = False

    @property
    def spark(self) -> str:
        """The type as in Spark's DDL."""
        return _SPARK[self.arrow]


_TABLE = (
    Column("topic", TEXT, "topic that the message is stored under"),
    Column("queueId", INT, "queue of the topic"),
    Column("queueOffset", LONG, "number of the message in its queue", derived=True),
    Column("tags", TEXT, "property `TAGS`"),
    Column("keys", TEXT, "property `KEYS` as stored: words separated by spaces"),
    Column("msgId", TEXT, "property `UNIQ_KEY`, the client's message id; null if absent"),
    Column(
        "offsetMsgId",
        TEXT,
        "the broker's message id: store host and physical offset in hex",
        derived=True,
    ),
    Column("body", BYTES, "body, decompressed; with `decompress=false` as stored"),
    Column("properties", MAP, "all properties, parsed as RocketMQ 4.9.1 and later do"),
    Column("flag", INT, "a number for the application's own use"),
    Column("sysFlag", INT, "flags as stored: bit 0 compressed, bits 2-3 transaction type, ..."),
    Column("bornTimestamp", TIME, "time of sending, by the producer's clock"),
    Column("bornHost", TEXT, "address of the producer, `ip:port` or `[ipv6]:port`"),
    Column("storeTimestamp", TIME, "time of storing, by the broker's clock"),
    Column("storeHost", TEXT, "address of the broker, `ip:port` or `[ipv6]:port`"),
    Column("reconsumeTimes", INT, "number of failed deliveries"),
    Column("preparedTransactionOffset", LONG, "of a committed message, the physical offset of its half message"),
    Column("commitLogOffset", LONG, "physical offset of the message in the commitlog", derived=True),
    Column("storeSize", INT, "size of the whole unit in bytes", derived=True),
    Column("bodyCRC", INT, "CRC-32 of the stored body, without its highest bit", derived=True),
    Column(
        "realTopic",
        TEXT,
        "the application's topic, of half, delayed, timed, retried and dead messages, which the broker stores under "
        "another one; else `topic`",
        default=False,
        derived=True,
    ),
    Column(
        "realQueueId",
        INT,
        "queue of `realTopic`; null for retried and dead messages, which do not name it",
        default=False,
        derived=True,
    ),
    Column(
        "originMsgId",
        TEXT,
        "`offsetMsgId` of a retried or dead message when it was first stored; null if absent",
        default=False,
        derived=True,
    ),
    Column(
        "consumerGroup",
        TEXT,
        "of a retried message the group that gets it, of a dead message the group that gave up; else null",
        default=False,
        derived=True,
    ),
    Column(
        "batchIndex",
        INT,
        "number of a message in its batch (BatchCQ topics), from 0 on; null for any other message",
        default=False,
        derived=True,
    ),
    Column(
        "multiDispatch",
        OFFSETS,
        "the light queues (LMQ, lite topics) that the message is in as well, each with its offset there; null if there "
        "are none",
        default=False,
        derived=True,
    ),
    Column(
        "logicQueueId",
        INT,
        "of a message of a static topic the number of its queue as clients see it (globalId); else null",
        default=False,
        derived=True,
    ),
    Column(
        "logicOffset",
        LONG,
        "of a message of a static topic its offset as consumers count it; else null",
        default=False,
        derived=True,
    ),
    Column("file", TEXT, "path of the segment", default=False, derived=True),
    Column("store", TEXT, "path of the store", default=False, derived=True),
    Column(
        "corrupt",
        TEXT,
        "what is wrong in a damaged place, with `mode=PERMISSIVE`; else null",
        default=False,
        derived=True,
    ),
)

COLUMNS: dict[str, Column] = {column.name: column for column in _TABLE}
DEFAULT_COLUMNS = [column.name for column in _TABLE if column.default]


def arrow_schema(names: list[str]) -> pa.Schema:
    """The record batch schema of columns of messages, in this order, all nullable."""
    return as_schema([COLUMNS[name] for name in names])


def as_schema(columns: Iterable[Column]) -> pa.Schema:
    """The record batch schema of columns, all nullable."""
    return pa.schema([pa.field(column.name, column.arrow) for column in columns])


def batch_of(arrays: list[pa.Array], rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of columns; without columns it still has its rows.

    Raises:
        OptionError: a column that the user declares NOT NULL has a null. The store is sound: this is no damage.
    """
    for field, array in zip(schema, arrays, strict=True):
        if not field.nullable and array.null_count:
            raise OptionError(
                f"column {field.name!r}: the schema declares it NOT NULL, but a row has none; remove NOT NULL"
            )
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
