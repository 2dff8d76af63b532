"""A write, from its options to its messages in the store: how Spark, its streams and write_store() run one.

A job is pickled for tasks that run elsewhere, and unpickling imports this module: so modules that only the driver needs
are imported inside functions.
"""

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqstore_spark.query.option_values import WriteId
from rmqstore_spark.query.options import WriteOptions
from rmqstore_spark.store.structures.layout import place_to_write
from rmqstore_spark.write.build.config_from import config_from_option
from rmqstore_spark.write.build.staging import Staged
from rmqstore_spark.write.stage.incoming import check_incoming
from rmqstore_spark.write.stage.rows import stage

if TYPE_CHECKING:
    from rmqstore_spark.write.commit import Settings


class WriteJob:
    """One write: it begins, tasks stage rows, the staged files are committed, and in any case it is abandoned at its
    end.

    Attributes:
        root: the store directory, absolute.
        name: the job's own name.

    Raises:
        OptionError: the path cannot be written to, or configFrom names a store whose configuration cannot come along.
    """

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        self.root = place_to_write(options.path)
        self.name = uuid.uuid4().hex
        self._options = options
        self._overwrite = overwrite
        self._config_from = config_from_option(options)

    def begin(self, schema: pa.Schema, names: Mapping[str, str] | None = None) -> None:
        """Refuse early what can be refused already, and make the directory in which tasks stage.

        Args:
            schema: the schema of the rows.
            names: the columns' types in Spark's words, for error texts of Spark writes.

        Raises:
            OptionError: naming a column that cannot be written.
            RmqStoreError: the store cannot be written to.
        """
        from rmqstore_spark.write.stage.job_directory import prepare

        self._refuse(schema, names)
        prepare(self.root, self.name)

    @contextlib.contextmanager
    def alone(self, schema: pa.Schema) -> Iterator[None]:
        """begin() and abandon() of a job that runs in this process alone; errors as of begin(). If the process is
        killed, the next write notices and clears up."""
        from rmqstore_spark.write.stage.job_directory import prepared

        self._refuse(schema, None)
        with prepared(self.root, self.name):
            yield

    def _refuse(self, schema: pa.Schema, names: Mapping[str, str] | None) -> None:
        from rmqstore_spark.write.commit import check

        check_incoming(schema, self._options, names)
        check(self.root, self._settings())

    def _settings(self) -> "Settings":
        """The settings for the commit."""
        from rmqstore_spark.write.commit import Settings

        return Settings(
            sizes=self._options.sizes,
            index=self._options.message_index_enable,
            overwrite=self._overwrite,
            write_id=self._options.write_id,
            config_from=self._config_from,
        )

    def stage(self, batches: Iterable[pa.RecordBatch], partition: int = 0, attempt: int = 0) -> Staged:
        """Encode a task's rows. They stay invisible until commit(); errors as of rows.stage()."""
        name = f"{partition:05d}-{attempt}-{uuid.uuid4().hex}"
        return stage(batches, self._options, self.root, self.name, name, partition, self._config_from)

    def commit(self, staged: Sequence[Staged], write_id: WriteId | None = None) -> int:
        """Publish the files that tasks have staged, in this order: all of them or none; errors as of commit.commit().

        Args:
            write_id: the id by which the store remembers the write, if no options give one.

        Returns:
            How many messages were written: 0 where they had been written before.
        """
        from rmqstore_spark.write.commit import commit

        settings = self._settings()
        if write_id is not None:
            settings = replace(settings, write_id=write_id)
        return commit(self.root, staged, settings)

    def abandon(self, *others: str) -> None:
        """Throw away the staged files of this job, and of other jobs by their names. Some of the tasks may still
        run."""
        from rmqstore_spark.write.stage.job_directory import forget

        forget(self.root, *{*others, self.name})
