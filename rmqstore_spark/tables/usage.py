"""Table `usage`: the messages and bytes in the log, by topic, or by what the option `by` names.

By topic and queue alone, the units of ConsumeQueues are added up wherever they tile the log (store/queue_coverage.py
proves that, as for `subscribe`), and only the bytes that no queue knows are read. Anything else is added up from the
headers of all selected messages. Both give the same numbers.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column, arrow_schema, batch_of
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.query.options import ReadOptions, Use, going_with
from rmqstore_spark.query.selection import ALL, ANY, EVERYTHING, Selection
from rmqstore_spark.read.pieces.queue_claims import is_asked
from rmqstore_spark.read.pieces.task import Scanned, Task
from rmqstore_spark.read.plan.prune import offsets_asked, ranges_of
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.read.run.damage_reports import say_passed_over
from rmqstore_spark.read.scan import Scan
from rmqstore_spark.sorting import Batches, in_order
from rmqstore_spark.store.queue_coverage import Gaps, QueueUnits, coverage_of_each
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.columns import array, numbers
from rmqstore_spark.tables.picked import HOW_TO_READ
from rmqstore_spark.tables.table import Part, Table

QUEUES, LOG, BOTH = "queues", "log", "queues and log"
_OF_QUEUES = frozenset({"topic", "queueId"})
# By the names that `by` takes: the column of messages that tells it.
_MADE_OF = {"tag": "tags", "hour": "storeTimestamp", "day": "storeTimestamp"}
_HOUR = 3600 * 1_000_000  # microseconds
_LENGTHS = {"hour": _HOUR, "day": 24 * _HOUR}
# The columns that tell the messages of one unit from others; in logs without physical offsets.
_UNIT = ["commitLogOffset"]
_UNIT_OF_QUEUE = ["topic", "queueId", "queueOffset", "batchIndex"]
_MANY = 100_000  # groups that are added up in memory; those of more wait in files
_SUMS = [("messages", "sum"), ("bytes", "sum")]


def usage_of(
    store: Snapshot, options: ReadOptions, by: Sequence[str], most_bytes: int | None = None
) -> tuple[pa.Table, str] | None:
    """sums_of() as a table, in memory."""
    found = sums_of(store, options, by, most_bytes)
    return None if found is None else (pa.Table.from_batches(found[0], _schema(by)), found[1])


def sums_of(
    store: Snapshot, options: ReadOptions, by: Sequence[str], most_bytes: int | None = None
) -> tuple[Batches, str] | None:
    """The messages and bytes of each group, and where they are from: QUEUES, LOG or BOTH.

    Args:
        by: names that the option takes; the columns of the result are these, `messages` and `bytes`.
        most_bytes: the most bytes of the log to be read; None: all that are needed.

    Returns:
        None if more bytes would have to be read.

    Raises:
        DamagedStoreError: mode FAILFAST, and segments are missing, or something is damaged where the log is read.
    """
    if store.faults and options.mode == "FAILFAST":
        raise store.faults[0].error()
    told = _told_by_queues(store, options.selection) if _OF_QUEUES.issuperset(by) else None
    if told is None:
        too_large = most_bytes is not None and store.log.size > most_bytes
        return None if too_large else _of_log(store, options, by)
    gaps, of_each = told
    size = sum(stop - start for some in gaps for start, stop in some)
    if most_bytes is not None and size > most_bytes:
        return None
    if size > store.log.size // 2:
        return _of_log(store, options, by)
    schema = _schema(by)
    rows: dict[tuple[str | int, ...], list[int]] = {}
    for queue, count, nbytes in of_each:
        known: dict[str, str | int] = {"topic": queue.topic, "queueId": queue.queue_id}
        sums = rows.setdefault(tuple(known[name] for name in by), [0, 0])
        sums[0] += count
        sums[1] += nbytes
    columns = list(zip(*((*key, *sums) for key, sums in rows.items()), strict=True)) or [()] * len(schema)
    of_queues = pa.table([array(each, field.type) for each, field in zip(columns, schema, strict=True)], schema)
    if not size:
        return iter(of_queues.to_batches()), QUEUES
    try:
        read = _read(store, replace(options, mode="FAILFAST"), gaps, _columns(store, by))
        of_gaps = pa.Table.from_batches(_of_batches(read, by), schema)
    except DamagedStoreError:  # the log is damaged there, or a unit lies about where its message ends
        return None if most_bytes is not None and store.log.size > most_bytes else _of_log(store, options, by)
    return iter(_grouped([of_queues, of_gaps], by).to_batches()), BOTH


def _of_log(store: Snapshot, options: ReadOptions, by: Sequence[str]) -> tuple[Batches, str]:
    return _of_batches(Scan(_to_read(options), _columns(store, by), tuple(store.logs())).batches(), by), LOG


def _told_by_queues(store: Snapshot, selection: Selection) -> tuple[list[Gaps], Iterable[QueueUnits]] | None:
    """The selected messages of each queue as coverage_of_each() gives them; None where queues cannot tell."""
    if replace(selection, topic=ANY, assigned=None, queue_id=ALL) != EVERYTHING or store.is_of_known_queues:
        return None
    selection.topic.learn(store.queues.topics)  # many queues are asked one by one
    return coverage_of_each(store, store.log.extents, lambda queue: is_asked(queue, selection))


def _to_read(options: ReadOptions) -> ReadOptions:
    """The options, without rows for damage; nothing here depends on bodies."""
    mode = "DROPMALFORMED" if options.mode == "PERMISSIVE" else options.mode
    return replace(options, mode=mode, verify_crc=False, decompress=False)


def _read(store: Snapshot, options: ReadOptions, gaps: Sequence[Gaps], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The selected messages in the gaps."""
    ranges = [
        Scanned(r.segment, start, stop, store)
        for r, some in zip(ranges_of(store), gaps, strict=True)
        for start, stop in some
    ]
    return read_task(Task(tuple(ranges)), ReadSettings.of(_to_read(options), arrow_schema(columns)))


def _columns(store: Snapshot, by: Sequence[str]) -> list[str]:
    """The columns of messages that are read."""
    unit = _UNIT if store.has_physical_offsets else _UNIT_OF_QUEUE
    return list(dict.fromkeys([*(_MADE_OF.get(name, name) for name in by), "storeSize", *unit]))


def _schema(by: Sequence[str]) -> pa.Schema:
    names = [*by, "messages", "bytes"]
    return pa.schema([USAGE.schema.field(name) for name in names])


def _of_batches(batches: Batches, by: Sequence[str]) -> Batches:
    """The sums of messages, with each group once."""
    schema, parts = _schema(by), _added_up(batches, by)
    some = list(itertools.islice(parts, 2))
    if len(some) == 1:
        yield from some[0].to_batches()
        return
    rows = (batch for part in itertools.chain(some, parts) for batch in part.to_batches())
    del some
    last = schema.empty_table()  # the group that may go on in the next batch
    for batch in in_order(schema, rows, [(name, "ascending") for name in by]):
        whole = _grouped([last, pa.Table.from_batches([batch])], by)
        last = whole.slice(len(whole) - 1)
        yield from whole.slice(0, len(whole) - 1).to_batches()
    yield from last.to_batches()


def _added_up(batches: Batches, by: Sequence[str]) -> Iterator[pa.Table]:
    """The sums of messages in parts, of which only one is in memory: each has a group once, and has _MANY groups at
    least but for the last one."""
    schema, last = _schema(by), list[Any]()
    kept, size = [schema.empty_table()], 0
    for batch in batches:
        are_first, last = _are_first(batch, last)
        sizes = np.asarray(batch.column("storeSize")).astype(np.int64) * are_first
        columns = [_column_of(batch, name) for name in by]
        sums = [numbers(np.ones(len(sizes), np.int64), LONG), numbers(sizes, LONG)]
        one = _grouped([pa.table([*columns, *sums], schema=schema)], by)
        kept.append(one)
        size += one.num_rows
        if size > _MANY + 2 * kept[0].num_rows:
            kept, size = [_grouped(kept, by)], 0
            if kept[0].num_rows >= _MANY:
                yield kept[0]
                kept = [schema.empty_table()]
    yield _grouped(kept, by)


def _are_first(batch: pa.RecordBatch, last: list[Any]) -> tuple[npt.NDArray[np.bool_], list[Any]]:
    """Which messages are the first ones of their units: messages of one batch stand side by side, and their unit is
    counted once. And what the last one's unit is known by, for the next record batch.

    Args:
        last: the same of the record batch before.
    """
    if not batch.num_rows:
        return np.zeros(0, np.bool_), last
    if _UNIT[0] in batch.schema.names:
        known_by = [np.asarray(batch.column(_UNIT[0]))]
    else:
        *queue, offsets, indexes = (batch.column(name) for name in _UNIT_OF_QUEUE)
        known_by = [np.asarray(each) for each in queue]
        known_by.append(np.asarray(offsets) - np.asarray(indexes.fill_null(0)))
    are_first = np.ones(batch.num_rows, np.bool_)
    are_first[0] = [each[0] for each in known_by] != last
    are_first[1:] = np.logical_or.reduce([each[1:] != each[:-1] for each in known_by])
    return are_first, [each[-1] for each in known_by]


def _column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of `by`."""
    column = batch.column(_MADE_OF.get(name, name))
    if name not in _LENGTHS:
        return column
    is_known = ~np.asarray(column.is_null())
    times = np.nan_to_num(np.asarray(column.fill_null(0).cast(LONG)))
    return numbers(times // _LENGTHS[name] * _LENGTHS[name], TIME, is_known)


def _grouped(tables: Sequence[pa.Table], by: Sequence[str]) -> pa.Table:
    """One table with a row for each group."""
    whole = pa.concat_tables(tables)
    found = whole.group_by(list(by), use_threads=False).aggregate(_SUMS)
    return found.select([*by, "messages_sum", "bytes_sum"]).rename_columns(_schema(by).names)


def _parts(store: Snapshot, options: ReadOptions) -> list[Part]:
    return [None] if store.leads(offsets_asked(options.selection)) else []


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    """One row for each group: in the order of time, where there is one, and the most bytes first."""
    found = sums_of(store, options, options.by)
    assert found is not None
    sums, source = found
    if source != LOG:  # whose read has said so
        for fault in store.faults:
            say_passed_over(fault.place)
    times = [(name, "ascending") for name in options.by if name in _LENGTHS]
    others = [(name, "ascending") for name in options.by if name not in _LENGTHS]
    for batch in in_order(_schema(options.by), sums, [*times, ("bytes", "descending"), *others]):
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns["source"] = array([source] * batch.num_rows, TEXT)
        unknown = {field.name: pa.nulls(batch.num_rows, field.type) for field in USAGE.schema}
        yield batch_of([columns.get(name, unknown[name]) for name in unknown], batch.num_rows, USAGE.schema)


USAGE = Table(
    name="usage",
    row="a topic with messages in the log, or what option `by` names",
    columns=(
        Column("topic", TEXT, "topic that the messages are stored under"),
        Column("queueId", INT, "number of the queue in its topic"),
        Column("tag", TEXT, "property `TAGS` of the messages"),
        Column("bornHost", TEXT, "address of the producer"),
        Column("storeHost", TEXT, "address of the broker"),
        Column("hour", TIME, "hour of the store time, in UTC"),
        Column("day", TIME, "day of the store time, in UTC"),
        Column("messages", LONG, "number of messages in the log"),
        Column("bytes", LONG, "bytes that they take in the log"),
        Column("source", TEXT, "where the numbers are from: queues, log, or queues and log"),
    ),
    note="Columns that `by` does not name are null. The numbers are exact: by topic and queue they are added up from "
    "ConsumeQueues, as far as these are proved to have every message of the log, and else from the log. A batch counts "
    "as the messages in it; a damaged message counts where its queue has it and the log is not read. A topic or "
    "queue that no store has is an error, as for messages; other tables log it.",
    options=HOW_TO_READ | going_with(Use.SELECT).keys() | {"by"},
    rows=_rows,
    parts=_parts,
    of_queue_logs=True,
)
