"""Table `traces`: the clients' records of sending and consuming, from the trace topic.

A trace message has records, each ended by 0x02, of fields with 0x01 between them. The first field, the type, decides
which fields follow. Fields that a record lacks are null; clients write `null` for nothing. The columns are filled for a
batch at a time, without a loop over rows.
Source: org.apache.rocketmq.client.trace.TraceDataEncoder (encoderFromContextBean, decoderFromTraceDataString).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import BOOL, INT, LONG, TEXT, TIME, Column, arrow_schema
from rmqstore_spark.query.option_types import Mode
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Selection
from rmqstore_spark.read.plan.planner import plan_stores
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.store.format.system_topics import TRACE_TOPIC
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.picked import HOW_TO_READ, numbers, of_topics, times
from rmqstore_spark.tables.table import Part, Table

_READ = ["body", "bornHost", "storeTimestamp", "commitLogOffset"]

# The number of each field in a record of a type. Pub has gained fields from version to version: the number of fields
# tells what the middle ones of the newest records are.
_FIELDS = {
    "Pub": {
        "timestamp": 1,
        "region": 2,
        "group": 3,
        "topic": 4,
        "msgId": 5,
        "tags": 6,
        "keys": 7,
        "storeHost": 8,
        "bodyLength": 9,
        "costMillis": 10,
        "msgType": 11,
        "offsetMsgId": 12,
        "success": 13,
        "clientHost": 14,
    },
    "SubBefore": {"timestamp": 1, "region": 2, "group": 3, "requestId": 4, "msgId": 5, "retryTimes": 6, "keys": 7},
    "SubAfter": {
        "requestId": 1,
        "msgId": 2,
        "costMillis": 3,
        "success": 4,
        "keys": 5,
        "contextCode": 6,
        "timestamp": 7,
        "group": 8,
    },
    "EndTransaction": {
        "timestamp": 1,
        "region": 2,
        "group": 3,
        "topic": 4,
        "msgId": 5,
        "tags": 6,
        "keys": 7,
        "storeHost": 8,
        "msgType": 9,
        "transactionId": 10,
        "transactionState": 11,
        "fromTransactionCheck": 12,
    },
    "Recall": {"timestamp": 1, "region": 2, "group": 3, "topic": 4, "msgId": 5, "success": 6},
}
_OLD_PUB = {name: number for name, number in _FIELDS["Pub"].items() if number < 12} | {"success": 12}
_OLD_PUB_SIZE = 13
_TYPES = pa.array(list(_FIELDS), TEXT)
_LAYOUTS = [*_FIELDS.values(), _OLD_PUB, {}]  # the last layout is for unknown types


def _parts(store: Snapshot, options: ReadOptions) -> Sequence[Part]:
    return plan_stores([store], replace(options, selection=_selection(options)), store.files, _READ).tasks


def _selection(options: ReadOptions) -> Selection:
    """The messages that the options select; if they name no topic, those of the usual trace topic."""
    selection = options.selection
    names_topics = selection.topic != EVERYTHING.topic or selection.assigned is not None
    return selection if names_topics else selection.narrowed(of_topics(TRACE_TOPIC))


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    mode: Mode = "FAILFAST" if options.mode == "FAILFAST" else "DROPMALFORMED"
    how = replace(options, mode=mode, selection=_selection(options))
    for batch in read_task(part, ReadSettings.of(how, arrow_schema(_READ))):
        records = traces_of(batch)
        for word in options.selection.words:
            records = records.filter(_is_about(records, word))
        yield records


def _is_about(records: pa.RecordBatch, word: str) -> pa.Array:
    """True for records with a word as their msgId or among their keys; a trace message has records of many messages."""
    keys = pc.binary_join_element_wise("", pc.fill_null(records.column("keys"), ""), "", " ")
    is_key = pc.match_substring(keys, f" {word} ")
    return pc.or_(pc.fill_null(pc.equal(records.column("msgId"), word), False), is_key)


def traces_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The records in trace messages.

    Args:
        batch: with the columns body (decompressed), bornHost, storeTimestamp and commitLogOffset.
    """
    records = pc.split_pattern(_texts(batch.column("body")), "\2")
    message = pc.list_parent_indices(records)
    records = records.flatten()
    is_record = pc.not_equal(records, "")
    fields, message = pc.split_pattern(records.filter(is_record), "\1"), message.filter(is_record)
    texts = _by_name(fields)
    host = pc.replace_substring_regex(batch.column("bornHost"), ":-?[0-9]+$", "").take(message)
    texts["clientHost"] = pc.coalesce(texts["clientHost"], host)
    columns: list[pa.Array] = []
    for field in TRACES.schema:
        if field.name in ("storeTimestamp", "commitLogOffset"):
            columns.append(batch.column(field.name).take(message))
        else:
            columns.append(_typed(texts[field.name], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=TRACES.schema)


def _texts(bodies: pa.Array) -> pa.Array:
    try:
        return pc.fill_null(bodies, b"").cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([(body or b"").decode("utf-8", "replace") for body in bodies.to_pylist()], pa.string())


def _by_name(fields: pa.ListArray) -> dict[str, pa.Array]:
    """The columns as texts, from records that are lists of fields."""
    values = pc.if_else(pc.equal(fields.flatten(), "null"), pa.scalar(None, pa.string()), fields.flatten())
    sizes = fields.value_lengths().to_numpy(zero_copy_only=False)
    starts = np.cumsum(sizes) - sizes
    types = values.take(pa.array(starts))
    found: dict[str, pa.Array] = {"traceType": types}
    layouts = pc.fill_null(pc.index_in(types, _TYPES), len(_LAYOUTS) - 1).to_numpy().copy()
    layouts[(layouts == 0) & (sizes == _OLD_PUB_SIZE)] = len(_LAYOUTS) - 2
    for name in TRACES.schema.names:
        if name not in found:
            at = np.array([layout.get(name, -1) for layout in _LAYOUTS])[layouts]
            missing = (at < 0) | (at >= sizes)
            found[name] = values.take(pa.array(np.where(missing, 0, starts + at), mask=missing))
    return found


def _typed(texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    """A column of texts converted to the column's type; null where a text does not fit."""
    if arrow == TIME:
        return times(texts)
    if arrow == BOOL:
        return pc.if_else(pc.is_in(texts, pa.array(["true", "false"])), pc.equal(texts, "true"), None)
    if arrow == TEXT:
        return texts
    found = numbers(texts)
    if arrow == INT:
        fits = pc.equal(found, found.cast(pa.int32(), safe=False).cast(pa.int64()))
        found = pc.if_else(fits, found, pa.scalar(None, pa.int64()))
    return found.cast(arrow)


TRACES = Table(
    name="traces",
    row="a record of the trace topic",
    columns=(
        Column("traceType", TEXT, "Pub: sent; SubBefore, SubAfter: consumed; EndTransaction; Recall"),
        Column("timestamp", TIME, "time of the event, by the client's clock"),
        Column("group", TEXT, "group of the producer or consumer"),
        Column("topic", TEXT, "topic of the message"),
        Column("msgId", TEXT, "id of the message"),
        Column("tags", TEXT, "tags of the message"),
        Column("keys", TEXT, "keys of the message"),
        Column("storeHost", TEXT, "address of the broker"),
        Column("clientHost", TEXT, "address of the client"),
        Column("costMillis", LONG, "duration in milliseconds"),
        Column("success", BOOL, "whether it succeeded"),
        Column("region", TEXT, "region of the broker"),
        Column("offsetMsgId", TEXT, "message id of the broker"),
        Column("bodyLength", LONG, "bytes of the message's body"),
        Column("msgType", INT, "number of the client's MessageType"),
        Column("requestId", TEXT, "id that SubBefore and SubAfter of one delivery share"),
        Column("retryTimes", INT, "number of earlier deliveries"),
        Column("contextCode", INT, "number of the client's ConsumeReturnType"),
        Column("transactionId", TEXT, "transaction id of the client"),
        Column("transactionState", TEXT, "answer of the producer"),
        Column("fromTransactionCheck", BOOL, "whether the broker had asked for it"),
        Column("storeTimestamp", TIME, "store time of the trace message"),
        Column("commitLogOffset", LONG, "physical offset of the trace message"),
    ),
    note="Columns that a record of its type does not have are null.",
    options=HOW_TO_READ
    | {
        "subscribe",
        "subscribePattern",
        "assign",
        "key",
        "startingTimestamp",
        "endingTimestamp",
        "maxPartitionBytes",
        "minPartitions",
    },
    rows=_rows,
    parts=_parts,
    of_queue_logs=True,
)
