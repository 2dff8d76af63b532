"""A sink as Spark sees it: each micro-batch is one write, which happens once however often Spark tries it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqstore_spark.errors import OptionError, RmqStoreError
from rmqstore_spark.query.option_values import Transaction
from rmqstore_spark.query.options import WriteOptions
from rmqstore_spark.spark.worker import called_by_spark
from rmqstore_spark.spark.writer import RmqStoreWriter, StagedMessage, commit_told

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_QUERY_ID = "sql.streaming.queryId"  # of the query, not of its run: it is in the checkpoint


@dataclass
class BatchMessage(StagedMessage):
    """What a task tells the driver: also for which query, and for which job, it has worked."""

    query: str | None
    job: str


class RmqStoreStreamWriter(DataSourceStreamArrowWriter):
    """Encodes the rows of micro-batches in tasks, and commits each batch at once.

    Spark makes one for each batch to run its tasks, and another, in a process of its own, to commit it: the two know
    each other only by what the tasks tell.

    Raises:
        OptionError: an option or the output mode has no meaning for streams.
    """

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("outputMode complete: expected append, as messages cannot be taken back; use append")
        if options.transaction is not None:
            raise OptionError(
                "options 'txnAppId' and 'txnVersion' are not for streams: the store remembers each batch by the ids of "
                "the query and the batch, which are in the checkpoint; remove them"
            )
        if options.config_from is not None:
            raise OptionError("option 'configFrom' is for a new store, and a stream continues one; remove it")
        self._writer = RmqStoreWriter(options, overwrite)
        self._job = self._writer.job

    def prepare(self, schema: StructType) -> None:
        """Refuse what can be refused already, and make the directory in which the tasks stage."""
        self._writer.prepare(schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Encode a task's rows. Nobody hears of them before commit()."""
        from pyspark import TaskContext

        message = self._writer.write(iterator)
        assert isinstance(message, StagedMessage)
        task = TaskContext.get()
        query = task.getLocalProperty(_QUERY_ID) if task is not None else None
        return BatchMessage(message.staged, query, self._job.name)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish what the tasks of a batch have encoded, unless an earlier try of it has been."""
        with called_by_spark():
            messages_told = [message for message in messages if isinstance(message, BatchMessage)]
            if any(message.staged.rows for message in messages_told):
                queries = {message.query for message in messages_told}
                query = queries.pop()
                if query is None or queries:
                    raise RmqStoreError(
                        f"{self._job.root}: expected Spark to tell each task the query's id ({_QUERY_ID}), found "
                        "none; use foreachBatch with options txnAppId and txnVersion"
                    )
                staged = [message.staged for message in messages_told]
                commit_told(self._job, staged, Transaction(query, batchId), f"batch {batchId}: ")
            self.abort(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Throw away what the tasks have encoded. Some of them may still run."""
        self._job.abandon(*(message.job for message in messages if isinstance(message, BatchMessage)))
