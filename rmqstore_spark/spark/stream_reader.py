"""A stream as Spark sees it. read/follow/follow.py decides where the stream is and what a batch reads."""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.query.stream_options import StreamOptions
from rmqstore_spark.read.follow.stream_offset import StreamOffset, stream_offset
from rmqstore_spark.read.follow.tier import follower_of
from rmqstore_spark.spark.reader import RmqStoreReader
from rmqstore_spark.spark.worker import called_by_spark, logged

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    GETS_START = True
except ImportError:  # before Spark 4.2
    GETS_START = False
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

log = logging.getLogger(__name__)


class RmqStoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows stores. Spark makes all calls except read() in one process, as long as the query runs.

    Raises:
        OptionError: Spark is older than 4.2, which does not tell where the stream is, and the start needs to know.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._follower = follower_of(options, gets_start=GETS_START)
        self._initial: dict[str, Any] | None = None
        self._start: tuple[dict[str, Any], StreamOffset] | None = None
        self._latest: tuple[StreamOffset, dict[str, Any]] | None = None
        if not GETS_START and (options.max_bytes is not None or options.max_messages is not None):
            log.warning(
                "maxBytesPerTrigger and maxOffsetsPerTrigger need Spark 4.2: each batch reads everything that is there"
            )

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins. Spark may ask a restarted query too; then the answer does not count."""
        with called_by_spark():
            if self._initial is None:
                self._initial = self._follower.initial().as_json()
            return self._initial

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """How far the next batch goes. Spark 4.1 passes neither the stream's offset nor a limit."""
        with called_by_spark():
            if start is None:
                return self._json(self._follower.latest(None, is_limited=False))
            if self._initial is None:
                self._initial = start
            if self._start is None or self._start[0] != start:
                self._start = start, stream_offset(start)
            found = self._follower.latest(self._start[1], is_limited=not isinstance(limit, ReadAllAvailable))
            return start if found is self._start[1] or found == self._start[1] else self._json(found)

    def getDefaultReadLimit(self) -> Any:
        """The limit that Spark passes to latestOffset() unless the trigger wants everything that is available."""
        if self._options.max_messages is not None:
            return ReadMaxRows(self._options.max_messages)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the logs ended at the last look; the query's progress shows this."""
        newest = self._follower.newest
        return self._json(newest) if newest.stores else None

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than the logs reach now."""
        with called_by_spark():
            self._follower.stop_here()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The byte ranges that each task reads: exactly the stretch between two offsets."""
        from rmqstore_spark.read.explain import batch_summary

        with called_by_spark(), logged("planning a batch") as result:
            since, to = stream_offset(start), stream_offset(end)
            tasks = self._follower.plan(since, to, self._schema.names)
            result += batch_summary(since, to, tasks)
            return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a partition."""
        return RmqStoreReader(self._options.read, self._schema).read(partition)

    def _json(self, offset: StreamOffset) -> dict[str, Any]:
        """The offset as JSON values, cached: mostly the same offset comes again."""
        if self._latest is None or self._latest[0] is not offset:
            self._latest = offset, offset.as_json()
        return self._latest[1]


class RefusedStreamReader(DataSourceStreamReader):
    """Raises the reason why a stream cannot be read when Spark first asks for anything. An error while the reader is
    made would come with an error of Spark's own, and with tracebacks."""

    def __init__(self, why: RmqStoreError) -> None:
        self._why = why

    def initialOffset(self) -> dict[str, Any]:
        """Raises the error."""
        with called_by_spark():
            raise self._why

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Raises the error."""
        return self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises the error."""
        raise AssertionError(self.initialOffset())

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Raises the error."""
        raise AssertionError(self.initialOffset())
