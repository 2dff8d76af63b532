"""A write as Spark sees it: tasks encode rows, and the driver commits them all at once."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqstore_spark.options import WriteOptions
from rmqstore_spark.spark.worker import called_by_spark, told

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore_spark.write.commit import Settings
    from rmqstore_spark.write.staging import Staged


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task tells the driver: where its units are."""

    staged: "Staged"


class RmqStoreWriter(DataSourceArrowWriter):
    """Encodes rows in tasks, and commits them all at once on the driver.

    Attributes:
        root: the store directory, absolute.
        job: a name of its own.
    """

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        from rmqstore_spark.store.layout import place_to_write
        from rmqstore_spark.write.brought import brought_by

        self._brought = brought_by(options)
        self.root = place_to_write(options.path)
        self._options = options
        self._overwrite = overwrite
        self.job = uuid.uuid4().hex

    @property
    def settings(self) -> "Settings":
        """How the store is written."""
        from rmqstore_spark.write.commit import Settings

        options = self._options
        index, transaction = options.message_index_enable, options.transaction
        return Settings(options.sizes, index, self._overwrite, transaction, self._brought)

    def prepare(self) -> None:
        """Refuse what can be refused already, and make the directory in which the tasks stage.

        Raises:
            RmqStoreError: the store cannot be written to.
        """
        from rmqstore_spark.write.commit import check, prepare

        check(self.root, self.settings)
        prepare(self.root, self.job)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Encode a task's rows. Nobody hears of them before commit()."""
        from pyspark import TaskContext

        from rmqstore_spark.write.rows import stage

        with called_by_spark():
            task = TaskContext.get()
            partition, attempt = (task.partitionId(), task.taskAttemptId()) if task else (0, 0)
            name = f"{partition:05d}-{attempt}-{uuid.uuid4().hex}"
            staged = stage(iterator, self._options, self.root, self.job, name, partition, self._brought)
            return StagedMessage(staged)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have encoded, in the order of the partitions."""
        from rmqstore_spark.write.commit import begun, commit, forget, written

        with called_by_spark():
            staged = [message.staged for message in messages if isinstance(message, StagedMessage)]
            with told(begun(self.root, staged)) as result:
                result.append(written(commit(self.root, staged, self.settings)))
            forget(self.root, self.job)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Throw away what the tasks have encoded. Some of them may still run."""
        from rmqstore_spark.write.commit import forget

        forget(self.root, self.job)


def check_input(schema: StructType, options: WriteOptions) -> None:
    """Refuse columns that cannot be written.

    Raises:
        OptionError: naming the column.
    """
    import pyarrow as pa

    from rmqstore_spark.columns import COLUMNS
    from rmqstore_spark.write.incoming import check_incoming

    # What a DataFrame may have beside the columns' own types; nothing that is written is a list.
    arrow = {column.spark: column.arrow for column in COLUMNS.values()}
    arrow |= {"tinyint": pa.int8(), "smallint": pa.int16(), "timestamp_ntz": pa.timestamp("us"), "void": pa.null()}
    names = {field.name: field.dataType.simpleString() for field in schema.fields}
    found = pa.schema([(field.name, arrow.get(names[field.name], pa.list_(pa.null()))) for field in schema.fields])
    check_incoming(found, options, names)
