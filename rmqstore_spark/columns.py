"""What a column is, and every column of messages: its name, its type, and what it holds. The only such table
(docs/design.md)."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from rmqstore_spark.errors import OptionError

TEXT, BYTES = pa.string(), pa.binary()
INT, LONG, BOOL = pa.int32(), pa.int64(), pa.bool_()
TIME = pa.timestamp("us", "UTC")
MAP = pa.map_(TEXT, TEXT)
TEXTS = pa.list_(TEXT)
_SPARK = {
    TEXT: "string",
    BYTES: "binary",
    INT: "int",
    LONG: "bigint",
    BOOL: "boolean",
    TIME: "timestamp",
    MAP: "map<string,string>",
    TEXTS: "array<string>",
}


@dataclass(frozen=True)
class Column:
    """A column of messages or of another table.

    Attributes:
        arrow: its type in a record batch, one of the above; Spark compares it exactly.
        meaning: one line for people.
        default: False for a column that comes only when it is asked for by name.
        derived: whether it follows from the others and the message's position; on writing it is not looked at.
    """

    name: str
    arrow: pa.DataType
    meaning: str
    default: bool = True
    derived: bool = False

    @property
    def spark(self) -> str:
        """Its type as Spark's DDL writes it."""
        return _SPARK[self.arrow]


_TABLE = (
    Column("topic", TEXT, "topic the message is stored under"),
    Column("queueId", INT, "queue of the topic"),
    Column("queueOffset", LONG, "position in the queue", derived=True),
    Column("tags", TEXT, "property `TAGS`"),
    Column("keys", TEXT, "property `KEYS` as stored: words with spaces between them"),
    Column("msgId", TEXT, "property `UNIQ_KEY`, the client's message id; null when absent"),
    Column(
        "offsetMsgId",
        TEXT,
        "the broker's message id: store host and physical offset in hex",
        derived=True,
    ),
    Column("body", BYTES, "decompressed; with `decompress=false` as stored"),
    Column("properties", MAP, "all properties, as RocketMQ 4.9.1 and later parse them"),
    Column("flag", INT, "the application's own number"),
    Column("sysFlag", INT, "as stored: bit 0 compressed, bits 2-3 transaction type, ..."),
    Column("bornTimestamp", TIME, "the producer's clock"),
    Column("bornHost", TEXT, "the producer, `ip:port` or `[ipv6]:port`"),
    Column("storeTimestamp", TIME, "the broker's clock"),
    Column("storeHost", TEXT, "the broker, `ip:port` or `[ipv6]:port`"),
    Column("reconsumeTimes", INT, "how often it was delivered in vain"),
    Column("preparedTransactionOffset", LONG, "physical offset of a committed message's half message"),
    Column("commitLogOffset", LONG, "absolute physical offset", derived=True),
    Column("storeSize", INT, "bytes of the whole unit", derived=True),
    Column("bodyCRC", INT, "CRC-32 of the stored body, without its highest bit", derived=True),
    Column(
        "realTopic",
        TEXT,
        "the application's topic, where the broker has put the message under another: half, delayed, timed, retried "
        "and dead messages; else `topic`",
        default=False,
        derived=True,
    ),
    Column(
        "realQueueId",
        INT,
        "the queue of `realTopic`; null for retried and dead messages, which do not name it",
        default=False,
        derived=True,
    ),
    Column(
        "originMsgId",
        TEXT,
        "the `offsetMsgId` of a retried or dead message when it was first stored; null when absent",
        default=False,
        derived=True,
    ),
    Column(
        "consumerGroup",
        TEXT,
        "the group that a retried message is for, or that gave a dead one up; else null",
        default=False,
        derived=True,
    ),
    Column("file", TEXT, "path of the segment", default=False, derived=True),
    Column("store", TEXT, "path of the store", default=False, derived=True),
    Column(
        "corrupt",
        TEXT,
        "what is wrong here, with `mode=PERMISSIVE`; else null",
        default=False,
        derived=True,
    ),
)

COLUMNS: dict[str, Column] = {column.name: column for column in _TABLE}
DEFAULT_COLUMNS = [column.name for column in _TABLE if column.default]


def arrow_schema(names: list[str]) -> pa.Schema:
    """The record batch schema of these columns, in this order, all nullable."""
    return as_schema(COLUMNS[name] for name in names)


def as_schema(columns: Iterable[Column]) -> pa.Schema:
    """The same of columns that are no messages'."""
    return pa.schema([pa.field(column.name, column.arrow) for column in columns])


def batch_of(arrays: list[pa.Array], rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of columns; of none it still has rows.

    Raises:
        OptionError: a column that the user declares NOT NULL is null. The store is sound, so this is no damage.
    """
    for field, array in zip(schema, arrays, strict=True):
        if not field.nullable and array.null_count:
            raise OptionError(
                f"column {field.name!r}: the schema declares it NOT NULL, but a row has none; leave NOT NULL away"
            )
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
