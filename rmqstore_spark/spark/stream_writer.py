"""A sink as Spark sees it: each micro-batch is one write, which happens once however often Spark tries it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqstore_spark.errors import OptionError, RmqStoreError
from rmqstore_spark.query.option_values import WriteId
from rmqstore_spark.query.options import WriteOptions
from rmqstore_spark.spark.worker import called_by_spark
from rmqstore_spark.spark.writer import RmqStoreWriter, StagedMessage, commit_logged

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_QUERY_ID = "sql.streaming.queryId"  # the id of the query, not of its run: the checkpoint keeps it


@dataclass
class BatchMessage(StagedMessage):
    """A task's message to the driver, which also names the task's query and job."""

    query: str | None
    job: str


class RmqStoreStreamWriter(DataSourceStreamArrowWriter):
    """Encodes the rows of micro-batches in tasks, and commits each batch at once.

    Spark makes one writer for each batch to run the batch's tasks, and another one, in a process of its own, to commit
    the batch. The two writers share only the messages of the tasks.

    Raises:
        OptionError: an option or the output mode has no meaning for streams.
    """

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("outputMode complete: expected append, as messages cannot be taken back; use append")
        if options.write_id is not None:
            raise OptionError(
                "options 'txnAppId' and 'txnVersion' are not for streams: the store remembers each batch by the ids of "
                "the query and the batch, which are in the checkpoint; remove them"
            )
        if options.config_from is not None:
            raise OptionError("option 'configFrom' is for a new store, and a stream continues one; remove it")
        self._writer = RmqStoreWriter(options, overwrite)
        self._job = self._writer.job

    def prepare(self, schema: StructType) -> None:
        """Refuse writes that are already known to be impossible, and make the directory in which the tasks stage."""
        self._writer.prepare(schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Encode a task's rows. No reader sees them before commit()."""
        from pyspark import TaskContext

        message = self._writer.write(iterator)
        assert isinstance(message, StagedMessage)
        task = TaskContext.get()
        query = task.getLocalProperty(_QUERY_ID) if task is not None else None
        return BatchMessage(message.staged, query, self._job.name)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the rows that a batch's tasks have encoded, unless an earlier try of the batch was published."""
        with called_by_spark():
            of_batch = [message for message in messages if isinstance(message, BatchMessage)]
            if any(message.staged.rows for message in of_batch):
                queries = {message.query for message in of_batch}
                query = queries.pop()
                if query is None or queries:
                    raise RmqStoreError(
                        f"{self._job.root}: expected Spark to tell each task the query's id ({_QUERY_ID}), found "
                        "none; use foreachBatch with options txnAppId and txnVersion"
                    )
                staged = [message.staged for message in of_batch]
                commit_logged(self._job, staged, WriteId(query, batchId), f"batch {batchId}: ")
            self.abort(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the rows that the tasks have encoded. Some tasks may still be running."""
        self._job.abandon(*(message.job for message in messages if isinstance(message, BatchMessage)))
