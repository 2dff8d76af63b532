"""From a task's record batches to staged units: types, defaults, queues."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from native_io import ENCODE_COLUMNS, FORMAT, EncodeError, Encoder, java_hashes
from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.errors import BadRowError
from rmqstore_spark.query.options import WriteOptions
from rmqstore_spark.store.format.clock import milliseconds_now
from rmqstore_spark.store.format.message import BATCH, COMPRESSION_TYPE, host_bytes
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.write.build.config_from import ConfigFrom, Counts
from rmqstore_spark.write.build.staging import Staged, StagingWriter, UnitSizes, unseen
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.workshop import staging
from rmqstore_spark.write.stage.incoming import BadValueError, incoming

_PART_BYTES = 8 * 1024 * 1024  # bytes that are encoded at a time
_PLAIN_BODY = ~(FORMAT["SYSFLAG_COMPRESSED"] | COMPRESSION_TYPE)


@dataclass(frozen=True)
class Encoded:
    """The units of a batch; see StagingWriter.write."""

    units: memoryview
    sizes: UnitSizes
    topics: dict[str, int]


def stage(
    batches: Iterable[pa.RecordBatch],
    options: WriteOptions,
    root: str,
    job: str,
    name: str,
    partition: int,
    config_from: ConfigFrom | None = None,
) -> Staged:
    """Encode a task's rows into a file.

    Args:
        root: the store directory, absolute.
        job: the job's name.
        name: of the file; differs from the name of every other task and attempt.
        partition: the task's number; rows that are spread over queues in turn begin at a different queue in each task.
        config_from: the configuration that option configFrom brings.

    Raises:
        BadRowError: naming row and column. The file is deleted.
        OptionError: configFrom cannot be used for these rows.
        RmqStoreError: the store's directory, or the job's directory in it, is missing.
    """
    counts = None if config_from is None else Counts(config_from.positions())
    if not Files().is_directory(root):
        raise unseen(staging(root, job))
    with Tree(root) as tree, StagingWriter(tree, staging(root, job), name) as file:
        encoder = RowEncoder(options, partition)
        for batch in batches:
            if batch.num_rows:
                rows = encoder.incoming(batch, counts is not None)
                if counts is not None:
                    counts.add(rows)
                for part in _parts(rows):
                    encoded = encoder.encode(part)
                    file.write(encoded.units, encoded.sizes, encoded.topics)
        return replace(file.finish(), counts=counts)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of about _PART_BYTES that share its memory: Spark makes batches of 64 MiB, and a worker may have
    little more memory than one batch."""
    count = max(1, min(batch.num_rows, -(-batch.nbytes // _PART_BYTES)))
    for number in range(count):
        first, stop = (batch.num_rows * each // count for each in (number, number + 1))
        yield batch.slice(first, stop - first)


class RowEncoder:
    """Makes units from rows.

    Args:
        partition: the task's number.
    """

    def __init__(self, options: WriteOptions, partition: int) -> None:
        self._options = options
        self._partition = partition
        self._rows = 0
        self._turn = partition
        self._encoder = Encoder(allow_v2=options.auto_message_version_on_topic_len)

    def incoming(self, batch: pa.RecordBatch, with_offsets: bool) -> pa.RecordBatch:
        """The columns of the next batch that are written, in the types that messages have.

        Raises:
            BadRowError: naming row and column.
        """
        with self._errors_name_rows():
            return incoming(batch, with_offsets)

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        """The units of a batch, which must have rows.

        Raises:
            BadRowError: naming row and column.
        """
        with self._errors_name_rows():
            encoded = self._encode(batch)
        self._rows += batch.num_rows
        return encoded

    @contextmanager
    def _errors_name_rows(self) -> Iterator[None]:
        """Turn the fault of a batch into an error with the row's number in the task."""
        try:
            yield
        except (BadValueError, EncodeError) as why:
            raise BadRowError(
                f"partition {self._partition}, row {self._rows + why.row}: column {why.column!r}: {why.reason}; "
                "nothing was written"
            ) from None

    def _encode(self, batch: pa.RecordBatch) -> Encoded:
        rows = _Rows(batch)
        now = milliseconds_now()
        topic = rows.filled("topic", self._options.topic, ", and no option topic that gives it one")
        keys, properties = rows.get("keys"), rows.get("properties")
        queue_id, spread = self._queue_ids(rows, keys, properties)
        store_timestamp = rows.milliseconds("storeTimestamp")  # null: the commit sets the time
        sys_flag = rows.filled("sysFlag", 0)
        if self._options.decompress:
            sys_flag = pc.bit_wise_and(sys_flag, pa.scalar(_PLAIN_BODY, pa.int32()))
        sys_flag = _without_batch(sys_flag, properties)
        columns = {
            "topic": topic,
            "queueId": queue_id,
            "tags": rows.get("tags"),
            "keys": keys,
            "msgId": rows.get("msgId"),
            "properties": properties,
            "body": rows.filled("body", None),
            "flag": rows.filled("flag", 0),
            "sysFlag": sys_flag,
            "bornTimestamp": pc.coalesce(
                rows.milliseconds("bornTimestamp"), store_timestamp, pa.scalar(now, pa.int64())
            ),
            "bornHost": rows.hosts("bornHost", self._options.born_host),
            "storeTimestamp": store_timestamp,
            "storeHost": rows.hosts("storeHost", self._options.store_host),
            "reconsumeTimes": rows.filled("reconsumeTimes", 0),
            "preparedTransactionOffset": rows.filled("preparedTransactionOffset", 0),
        }
        units, sizes = self._encoder.encode(pa.record_batch([columns[name] for name in ENCODE_COLUMNS], ENCODE_COLUMNS))
        topics = _queues_needed(topic, queue_id, spread, self._options.queues)
        return Encoded(units, sizes, topics)

    def _queue_ids(self, rows: "_Rows", keys: pa.Array, properties: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """The queue of each row, and which rows did not name one."""
        given = rows.get("queueId")
        spread = _to_numpy(pc.is_null(given))
        if not spread.any():
            return given, spread
        queues = self._options.queues
        key = pc.coalesce(keys, pc.map_lookup(properties, "KEYS", "last")).filter(pa.array(spread))
        chosen = np.abs(java_hashes(key).astype(np.int64)) % queues
        keyless = ~_to_numpy(pc.fill_null(pc.not_equal(key, ""), False))
        in_turn = int(keyless.sum())
        chosen[keyless] = (self._turn + np.arange(in_turn)) % queues
        self._turn = (self._turn + in_turn) % queues
        filled = _to_numpy(pc.fill_null(given, 0)).copy()
        filled[spread] = chosen
        return pa.array(filled, pa.int32()), spread


def _without_batch(sys_flag: pa.Array, properties: pa.Array) -> pa.Array:
    """The flags without the bits of a batch where the row is a message out of one, which is written by itself. The
    unit of a batch, with its property INNER_NUM, keeps them, and is refused."""
    are_batches = pc.equal(pc.bit_wise_and(sys_flag, pa.scalar(BATCH, pa.int32())), BATCH)
    if not pc.any(are_batches).as_py():
        return sys_flag
    is_message = pc.and_(pc.is_valid(properties), pc.is_null(pc.map_lookup(properties, "INNER_NUM", "last")))
    alone = pc.bit_wise_and(sys_flag, pa.scalar(~BATCH, pa.int32()))
    return pc.if_else(pc.and_(are_batches, is_message), alone, sys_flag)


class _Rows:
    """The columns of a batch, in the types that the kernel takes."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def get(self, name: str) -> pa.Array:
        """A column; all nulls where the batch does not have it."""
        at = self._batch.schema.get_field_index(name)
        if at < 0:
            return pa.nulls(self._batch.num_rows, COLUMNS[name].arrow)
        return self._batch.column(at)

    def filled(self, name: str, default: Any, hint: str = "") -> pa.Array:
        """A column with no nulls left.

        Args:
            hint: goes on where a value is missing.

        Raises:
            BadValueError: a value is null, and the column has no default.
        """
        column = self.get(name)
        if column.null_count == 0:
            return column
        if default is None:
            row = int(np.argmax(_to_numpy(pc.is_null(column))))
            raise BadValueError(row, name, f"expected a {COLUMNS[name].spark}, found null{hint}")
        return pc.fill_null(column, pa.scalar(default, column.type))

    def milliseconds(self, name: str) -> pa.Array:
        """A timestamp column in ms, with its nulls."""
        column = self.get(name).cast(pa.int64())
        if column.null_count == len(column):
            return column
        times = np.floor_divide(_to_numpy(pc.fill_null(column, 0)), 1000)
        return pa.array(times, pa.int64(), mask=_to_numpy(pc.is_null(column)) if column.null_count else None)

    def hosts(self, name: str, default: bytes) -> pa.Array:
        """A column of host addresses in the form that units have."""
        column = self.get(name)
        if column.null_count == len(column):
            return pa.repeat(pa.scalar(default, pa.binary()), len(column))
        encoded = column.dictionary_encode()
        stored = [host_bytes(text) for text in encoded.dictionary.to_pylist()]
        if None in stored:
            wrong = encoded.dictionary[stored.index(None)]
            row = int(np.argmax(_to_numpy(pc.fill_null(pc.equal(column, wrong), False))))
            raise BadValueError(row, name, f"expected ip:port or [ipv6]:port, found {wrong.as_py()!r}")
        return pc.fill_null(pa.array(stored, pa.binary()).take(encoded.indices), pa.scalar(default, pa.binary()))


def _queues_needed(topic: pa.Array, queue_id: pa.Array, spread: npt.NDArray[np.bool_], queues: int) -> dict[str, int]:
    """How many queues each topic needs: all that rows may have been spread over, else up to the highest one named."""
    needed = np.where(spread, queues, _to_numpy(queue_id).astype(np.int64) + 1)
    topics = topic.dictionary_encode()
    most = np.zeros(len(topics.dictionary), np.int64)
    np.maximum.at(most, _to_numpy(topics.indices), needed)
    return dict(zip(topics.dictionary.to_pylist(), most.tolist(), strict=True))


def _to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
