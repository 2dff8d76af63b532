"""A write, from its options to its messages in the store: how Spark, its streams and write_store() run one.

A job is pickled for tasks that run elsewhere, and a task begins with what this module imports: so what only the driver
does is imported there.
"""

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqstore_spark.query.option_values import Transaction
from rmqstore_spark.query.options import WriteOptions
from rmqstore_spark.store.structures.layout import place_to_write
from rmqstore_spark.write.build.brought import brought_by
from rmqstore_spark.write.build.staging import Staged
from rmqstore_spark.write.stage.incoming import check_incoming
from rmqstore_spark.write.stage.rows import stage

if TYPE_CHECKING:
    from rmqstore_spark.write.commit import Settings


class WriteJob:
    """One write. It begins, tasks stage rows, what they tell is committed, and in any case it is abandoned at its end.

    Attributes:
        root: the store directory, absolute.
        name: its own.

    Raises:
        OptionError: the path is none that can be written to, or configFrom names no store that can come along.
    """

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        self.root = place_to_write(options.path)
        self.name = uuid.uuid4().hex
        self._options = options
        self._overwrite = overwrite
        self._brought = brought_by(options)

    def begin(self, schema: pa.Schema, names: Mapping[str, str] | None = None) -> None:
        """Refuse what can be refused already, and make the directory in which tasks stage.

        Args:
            schema: of the rows.
            names: the columns' types as Spark says them, where it is Spark that is told.

        Raises:
            OptionError: naming a column that cannot be written.
            RmqStoreError: the store cannot be written to.
        """
        from rmqstore_spark.write.stage.job_directory import prepare

        self._refuse(schema, names)
        prepare(self.root, self.name)

    @contextlib.contextmanager
    def alone(self, schema: pa.Schema) -> Iterator[None]:
        """begin() and abandon() of a job that is of this process alone; errors as of begin(). If the process is killed,
        the next write sees that, and clears."""
        from rmqstore_spark.write.stage.job_directory import prepared

        self._refuse(schema, None)
        with prepared(self.root, self.name):
            yield

    def _refuse(self, schema: pa.Schema, names: Mapping[str, str] | None) -> None:
        from rmqstore_spark.write.commit import check

        check_incoming(schema, self._options, names)
        check(self.root, self._settings())

    def _settings(self) -> "Settings":
        """How the store is written."""
        from rmqstore_spark.write.commit import Settings

        return Settings(
            sizes=self._options.sizes,
            index=self._options.message_index_enable,
            overwrite=self._overwrite,
            transaction=self._options.transaction,
            brought=self._brought,
        )

    def stage(self, batches: Iterable[pa.RecordBatch], partition: int = 0, attempt: int = 0) -> Staged:
        """Encode a task's rows. Nobody hears of them before commit(); errors as of rows.stage()."""
        name = f"{partition:05d}-{attempt}-{uuid.uuid4().hex}"
        return stage(batches, self._options, self.root, self.name, name, partition, self._brought)

    def commit(self, staged: Sequence[Staged], transaction: Transaction | None = None) -> int:
        """Publish what tasks have staged, in this order: all of it, or nothing; errors as of commit.commit().

        Args:
            transaction: by which the store remembers it, if no options say so.

        Returns:
            How many messages were written: 0 where they have been before.
        """
        from rmqstore_spark.write.commit import commit

        settings = self._settings()
        if transaction is not None:
            settings = replace(settings, transaction=transaction)
        return commit(self.root, staged, settings)

    def abandon(self, *others: str) -> None:
        """Throw away what its tasks have staged, and those of other jobs by their names. Some may still run."""
        from rmqstore_spark.write.stage.job_directory import forget

        forget(self.root, *{*others, self.name})
