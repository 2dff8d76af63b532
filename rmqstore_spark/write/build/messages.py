"""The messages of a write as tasks have staged them: their needs, and the files that a store has with them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.clock import milliseconds_now
from rmqstore_spark.store.geometry import indexes_tags
from rmqstore_spark.store.structures.config import Table
from rmqstore_spark.write.build import topics
from rmqstore_spark.write.build.config_from import ConfigFrom, Counts
from rmqstore_spark.write.build.logfiles import InPlaceWriter, LogWriter
from rmqstore_spark.write.build.placing import Placing
from rmqstore_spark.write.build.staging import Chunk, Staged, read_chunks
from rmqstore_spark.write.build.store_files import StoreFiles
from rmqstore_spark.write.build.tails import Queue
from rmqstore_spark.write.build.target import Target
from rmqstore_spark.write.fs.disk import Tree


@dataclass(frozen=True)
class Messages:
    """The messages that are written.

    Attributes:
        tree: the store's directory, in which tasks have staged the messages.
        staged: the files in which they are staged.
    """

    tree: Tree
    staged: Sequence[Staged]

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(part.rows for part in self.staged)

    @property
    def nbytes(self) -> int:
        """The bytes of all messages together."""
        return sum(part.nbytes for part in self.staged)

    @kept
    def topics(self) -> dict[str, int]:
        """The topics of the messages, with the number of queues that each needs."""
        needed: dict[str, int] = {}
        for part in self.staged:
            for topic, count in part.topics.items():
                needed[topic] = max(count, needed.get(topic, 0))
        return needed

    def entries_in(self, entries: Mapping[str, Table]) -> dict[str, Table]:
        """The entries of the messages' topics."""
        return {topic: entry for topic, entry in entries.items() if topic in self.topics}

    def counts(self, config_from: ConfigFrom) -> Counts:
        """The new positions of the queue offsets of the store that the messages are from.

        Raises:
            OptionError: the messages do not come in the order of the queues of that store.
        """
        found = Counts(config_from.positions())
        found.extend([part.counts for part in self.staged if part.counts is not None])
        return found

    def make(self, files: StoreFiles, log: LogWriter | InPlaceWriter, target: Target, table: Table) -> dict[Queue, int]:
        """Make all files that change or are new in the store when these messages are added.

        Args:
            table: the entries of other topics for topics.json.

        Returns:
            The next queue offset of each queue of the topics that are written to.
        """
        store, needed = target.store, dict(self.topics)
        has_tags = store is not None and indexes_tags(store, target.sizes.slots)
        with files, log:
            placing = Placing(target, log, files, index_tags=has_tags)
            placing.append(self._chunks(), self.nbytes)
            placing.finish()
            if store is not None:
                needed = topics.with_queues(table, needed, store.queues)
            files.put_config({"topics.json": topics.merge(table, needed, milliseconds_now())})
        return {**target.queues, **files.queues.ends}

    def _chunks(self) -> Iterator[Chunk]:
        for part in self.staged:
            yield from read_chunks(self.tree, part)
