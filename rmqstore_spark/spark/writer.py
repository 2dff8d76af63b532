"""A write as Spark sees it: tasks encode rows, and the driver commits them all at once."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqstore_spark.errors import counted
from rmqstore_spark.query.option_values import WriteId
from rmqstore_spark.query.options import WriteOptions
from rmqstore_spark.spark.worker import called_by_spark, logged

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore_spark.write.build.staging import Staged
    from rmqstore_spark.write.job import WriteJob

log = logging.getLogger(__name__)
_OF_THE_LOG = {"commitLogOffset", "storeSize"}  # columns of rows that were read from a store


@dataclass
class StagedMessage(WriterCommitMessage):
    """A task's message to the driver: where its units are staged."""

    staged: "Staged"


class RmqStoreWriter(DataSourceArrowWriter):
    """Encodes rows in tasks, and commits them all at once on the driver.

    Attributes:
        job: the write.
    """

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        from rmqstore_spark.write.job import WriteJob

        self.job = WriteJob(options, overwrite)

    def prepare(self, schema: StructType) -> None:
        """Refuse a write that is known to be impossible, and make the directory in which the tasks stage. Errors are
        those of WriteJob.begin()."""
        self.job.begin(*arrow_types(schema))

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Encode a task's rows. No reader sees them before commit()."""
        from pyspark import TaskContext

        with called_by_spark():
            task = TaskContext.get()
            partition, attempt = (task.partitionId(), task.taskAttemptId()) if task else (0, 0)
            return StagedMessage(self.job.stage(iterator, partition, attempt))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the rows that the tasks have encoded, in the order of the partitions."""
        with called_by_spark():
            commit_logged(self.job, [message.staged for message in messages if isinstance(message, StagedMessage)])
            self.job.abandon()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the rows that the tasks have encoded. Some tasks may still be running."""
        self.job.abandon()


def advise_to_copy(names: Sequence[str]) -> None:
    """Say that there is a better way, if what is to be written has all columns of what was read from a store."""
    if _OF_THE_LOG.issubset(names):
        log.warning(
            "these rows seem to be a store's messages: `rmqstore copy` and Store.copy copy a store, or some of it, "
            "several times as fast, and keep queue offsets"
        )


def commit_logged(
    job: "WriteJob", staged: "Sequence[Staged]", write_id: WriteId | None = None, which: str = ""
) -> None:
    """Commit, with a line in the log before and after.

    Args:
        which: the beginning of both lines.
    """
    rows, nbytes = sum(part.rows for part in staged), sum(part.nbytes for part in staged)
    with logged(f"{which}committing to {job.root} {counted(rows, 'message')} of {nbytes:,} bytes") as result:
        result.append(f"{counted(job.commit(staged, write_id), 'message')} written")


def arrow_types(schema: StructType) -> "tuple[pa.Schema, dict[str, str]]":
    """The columns of a DataFrame with their Arrow types, and the names of these types in Spark."""
    import pyarrow as pa

    from rmqstore_spark.columns import COLUMNS

    # The types that a DataFrame may have besides the columns' own types; no written column is a list. Spark's own
    # to_arrow_type() has other parameters in each version.
    arrow = {column.spark: column.arrow for column in COLUMNS.values()}
    arrow |= {"tinyint": pa.int8(), "smallint": pa.int16(), "timestamp_ntz": pa.timestamp("us"), "void": pa.null()}
    names = {field.name: field.dataType.simpleString() for field in schema.fields}
    found = pa.schema([(field.name, arrow.get(names[field.name], pa.list_(pa.null()))) for field in schema.fields])
    return found, names
