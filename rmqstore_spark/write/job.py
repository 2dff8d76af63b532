"""A write, from its options to its messages in the store: how Spark, its streams and write_store() run one."""

import contextlib
import itertools
import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from rmqstore_spark.errors import RmqStoreError, one_line
from rmqstore_spark.option_values import Transaction
from rmqstore_spark.options import WriteOptions
from rmqstore_spark.store.layout import place_to_write
from rmqstore_spark.write import disk
from rmqstore_spark.write.brought import brought_by
from rmqstore_spark.write.calls import RaceError
from rmqstore_spark.write.commit import Settings, check, commit
from rmqstore_spark.write.incoming import check_incoming
from rmqstore_spark.write.rows import stage
from rmqstore_spark.write.staging import Staged, hold, root_is_made, tell_root_is_made
from rmqstore_spark.write.target import check_can_exchange, check_kinds, make_root
from rmqstore_spark.write.workshop import GONE, PART, staging, workshop

log = logging.getLogger(__name__)

_TRIES = 100  # to make a job's directory where others come and go


class WriteJob:
    """One write. It begins, tasks stage rows, what they tell is committed, and in any case it is abandoned at its end.

    It is pickled for tasks that run elsewhere.

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
        self._settings = Settings(
            sizes=options.sizes,
            index=options.message_index_enable,
            overwrite=overwrite,
            transaction=options.transaction,
            brought=brought_by(options),
        )

    def begin(self, schema: pa.Schema, names: Mapping[str, str] | None = None) -> None:
        """Refuse what can be refused already, and make the directory in which tasks stage.

        Args:
            schema: of the rows.
            names: the columns' types as Spark says them, where it is Spark that is told.

        Raises:
            OptionError: naming a column that cannot be written.
            RmqStoreError: the store cannot be written to.
        """
        self._refuse(schema, names)
        prepare(self.root, self.name)

    @contextlib.contextmanager
    def alone(self, schema: pa.Schema) -> Iterator[None]:
        """begin() and abandon() of a job that is of this process alone; errors as of begin(). If the process is killed,
        the next write sees that, and clears."""
        self._refuse(schema, None)
        with prepared(self.root, self.name):
            yield

    def _refuse(self, schema: pa.Schema, names: Mapping[str, str] | None) -> None:
        check_incoming(schema, self._options, names)
        check(self.root, self._settings)

    def stage(self, batches: Iterable[pa.RecordBatch], partition: int = 0, attempt: int = 0) -> Staged:
        """Encode a task's rows. Nobody hears of them before commit(); errors as of rows.stage()."""
        name = f"{partition:05d}-{attempt}-{uuid.uuid4().hex}"
        return stage(batches, self._options, self.root, self.name, name, partition, self._settings.brought)

    def commit(self, staged: Sequence[Staged], transaction: Transaction | None = None) -> int:
        """Publish what tasks have staged, in this order: all of it, or nothing; errors as of commit.commit().

        Args:
            transaction: by which the store remembers it, if no options say so.

        Returns:
            How many messages were written: 0 where they have been before.
        """
        settings = self._settings if transaction is None else replace(self._settings, transaction=transaction)
        return commit(self.root, staged, settings)

    def abandon(self, *others: str) -> None:
        """Throw away what its tasks have staged, and those of other jobs by their names. Some may still run."""
        forget(self.root, *{*others, self.name})


# ---- a job's directory


def prepare(root: str, job: str) -> None:
    """Make the directory that a job's tasks stage in.

    Raises:
        RmqStoreError: the file system is none that can be written to; there is no trace then.
    """
    is_made = False
    for tries in itertools.count(1):
        is_made = is_made or disk.kind_at(root) is None
        try:
            with make_root(root) as tree:
                check_kinds(tree, with_queues=False)
                tree.make_private(staging(root, job))
                if is_made:
                    tell_root_is_made(tree, staging(root, job))
                check_can_exchange(tree, staging(root, job))
                return
        except RaceError:  # another job has just ended, and taken the empty directories away
            if tries == _TRIES:
                raise
        except RmqStoreError:
            forget(root, job)
            if is_made:
                disk.remove_empty(root)
            raise


@contextlib.contextmanager
def prepared(root: str, job: str) -> Iterator[None]:
    """prepare() and forget() for a job of this process alone. If it is killed, the next write sees that, and clears."""
    with contextlib.ExitStack() as at_end:
        at_end.callback(forget, root, job)
        at_end.callback(os.close, _prepare_held(root, job))
        yield


def _prepare_held(root: str, job: str) -> int:
    new = job + PART  # it has its name only when it is held
    for tries in itertools.count(1):
        prepare(root, new)
        try:
            with disk.Tree(root) as tree:
                return hold(tree, staging(root, new), staging(root, job))
        except RaceError:  # the next write of another process has just thrown it away
            if tries == _TRIES:
                raise
    raise AssertionError


def forget(root: str, *jobs: str) -> None:
    """Throw away what jobs' tasks have staged, and directories of the writer's that are empty without it: also the
    store's, if one of the jobs has made it. One that was there before is its owner's, be it empty or a mount point.

    Tasks that still run find their directory gone, and can make nothing new. Where it cannot be thrown away, that is
    only told, as the messages may be written: a later write does it (sweep.py).
    """
    if disk.kind_at(root) != "a directory":
        return
    is_made = False
    try:
        with disk.Tree(root) as tree:
            for staged in (staging(root, job) for job in jobs):
                is_made = is_made or root_is_made(tree, staged)
                if tree.is_directory(staged):
                    tree.rename(staged, staged + GONE)
                    tree.remove_tree(staged + GONE)
            tree.remove_empty(workshop(root))
    except (OSError, RmqStoreError) as why:
        log.warning("%s: what was staged is not deleted, a later write does it: %s", *map(one_line, (root, why)))
    if is_made:
        disk.remove_empty(root)
