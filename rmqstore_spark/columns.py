"""Every column: its name, its Spark and Arrow types, and what it holds. The only such table (docs/design.md)."""

from dataclasses import dataclass

import pyarrow as pa

from rmqstore_spark.errors import OptionError

_TIMESTAMP = pa.timestamp("us", "UTC")
_MAP = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True)
class Column:
    """A column of the DataFrame.

    Attributes:
        spark: its type as Spark's DDL writes it.
        arrow: its type in a record batch; Spark compares it exactly.
        meaning: one line for people.
        default: False for a column that comes only when it is asked for by name.
        derived: whether it follows from the others and the message's position; on writing it is not looked at.
    """

    name: str
    spark: str
    arrow: pa.DataType
    meaning: str
    default: bool = True
    derived: bool = False


_TABLE = (
    Column("topic", "string", pa.string(), "topic the message is stored under"),
    Column("queueId", "int", pa.int32(), "queue of the topic"),
    Column("queueOffset", "bigint", pa.int64(), "position in the queue", derived=True),
    Column("tags", "string", pa.string(), "property `TAGS`"),
    Column("keys", "string", pa.string(), "property `KEYS` as stored: words with spaces between them"),
    Column("msgId", "string", pa.string(), "property `UNIQ_KEY`, the client's message id; null when absent"),
    Column(
        "offsetMsgId",
        "string",
        pa.string(),
        "the broker's message id: store host and physical offset in hex",
        derived=True,
    ),
    Column("body", "binary", pa.binary(), "decompressed; with `decompress=false` as stored"),
    Column("properties", "map<string,string>", _MAP, "all properties, as RocketMQ 4.9.1 and later parse them"),
    Column("flag", "int", pa.int32(), "the application's own number"),
    Column("sysFlag", "int", pa.int32(), "as stored: bit 0 compressed, bits 2-3 transaction type, ..."),
    Column("bornTimestamp", "timestamp", _TIMESTAMP, "the producer's clock"),
    Column("bornHost", "string", pa.string(), "the producer, `ip:port` or `[ipv6]:port`"),
    Column("storeTimestamp", "timestamp", _TIMESTAMP, "the broker's clock"),
    Column("storeHost", "string", pa.string(), "the broker, `ip:port` or `[ipv6]:port`"),
    Column("reconsumeTimes", "int", pa.int32(), "how often it was delivered in vain"),
    Column("preparedTransactionOffset", "bigint", pa.int64(), "physical offset of a committed message's half message"),
    Column("commitLogOffset", "bigint", pa.int64(), "absolute physical offset", derived=True),
    Column("storeSize", "int", pa.int32(), "bytes of the whole unit", derived=True),
    Column("bodyCRC", "int", pa.int32(), "CRC-32 of the stored body, without its highest bit", derived=True),
    Column(
        "realTopic",
        "string",
        pa.string(),
        "the application's topic, where the broker has put the message under another: half, delayed, timed, retried "
        "and dead messages; else `topic`",
        default=False,
        derived=True,
    ),
    Column(
        "realQueueId",
        "int",
        pa.int32(),
        "the queue of `realTopic`; null for retried and dead messages, which do not name it",
        default=False,
        derived=True,
    ),
    Column(
        "originMsgId",
        "string",
        pa.string(),
        "the `offsetMsgId` of a retried or dead message when it was first stored; null when absent",
        default=False,
        derived=True,
    ),
    Column(
        "consumerGroup",
        "string",
        pa.string(),
        "the group that a retried message is for, or that gave a dead one up; else null",
        default=False,
        derived=True,
    ),
    Column("file", "string", pa.string(), "path of the segment", default=False, derived=True),
    Column("store", "string", pa.string(), "path of the store", default=False, derived=True),
    Column(
        "corrupt",
        "string",
        pa.string(),
        "what is wrong here, with `mode=PERMISSIVE`; else null",
        default=False,
        derived=True,
    ),
)

COLUMNS: dict[str, Column] = {column.name: column for column in _TABLE}
DEFAULT_COLUMNS = [column.name for column in _TABLE if column.default]


def arrow_schema(names: list[str]) -> pa.Schema:
    """The record batch schema of these columns, in this order, all nullable."""
    return pa.schema([pa.field(name, COLUMNS[name].arrow) for name in names])


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
