"""All ConsumeQueues of a store, simple ones and those of BatchCQ topics: which exist, and what they know."""

import os
from collections.abc import Iterator

from rmqstore_spark.kept import kept
from rmqstore_spark.progress import Progress
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.consumequeue import Queue, is_light, names_in
from rmqstore_spark.store.structures.layout import queue_id_of, queue_path
from rmqstore_spark.store.structures.queue_cursor import QueueCursor


class ConsumeQueues:
    """All queues of a store.

    Args:
        directory: `consumequeue/`, or None where a store has none.
        files: how to reach files, and where requests and bytes are counted.
        batch_directory: `batchconsumequeue/`, or None.
    """

    def __init__(self, directory: str | None, files: Files, batch_directory: str | None = None) -> None:
        self._directory = directory
        self._batch_directory = batch_directory
        self._files = files
        self._topics: dict[tuple[str, bool], list[Queue]] = {}

    def __iter__(self) -> Iterator[Queue]:
        """Every simple queue there is, by topic and queueId. The directories are listed once."""
        return iter(self._simple)

    @property
    def with_batch(self) -> list[Queue]:
        """The simple queues, and after them the batch queues."""
        return self._simple + self.batch

    def of_topic(self, topic: str, is_batch: bool = False) -> list[Queue]:
        """The simple queues of a topic, or its batch queues; only the topic's directory is listed, and only once."""
        path, above = queue_path(topic, 0), self._batch_directory if is_batch else self._directory
        if above is None or path is None:
            return []
        if (topic, is_batch) not in self._topics:
            directory = os.path.join(above, os.path.dirname(path))
            self._topics[topic, is_batch] = list(_queues_of(directory, topic, self._files, is_batch))
        return self._topics[topic, is_batch]

    def all_of_topic(self, topic: str) -> list[Queue]:
        """The simple queues of a topic, and after them its batch queues."""
        return self.of_topic(topic) + self.of_topic(topic, is_batch=True)

    def some(self) -> Iterator[Queue]:
        """The simple queues, listed lazily: a few of many cost little."""
        return _queues(self._directory, self._files, is_batch=False)

    def queue(self, topic: str, queue_id: int, is_batch: bool = False) -> Queue | None:
        """A simple queue, or a BatchCQ, whether it has files or not; None where there can be none
        (layout.queue_path)."""
        path, above = queue_path(topic, queue_id), self._batch_directory if is_batch else self._directory
        if above is None or path is None:
            return None
        return Queue(os.path.join(above, path), topic, queue_id, self._files, is_batch)

    @kept
    def topics(self) -> set[str]:
        """The names that can be topics with a queue, light message queues left out. No topic's own directory is
        listed."""
        return {name for name in self._names if not is_light(name)}

    @property
    def is_empty(self) -> bool:
        """Is there nothing that can be a topic's directory?"""
        return not self._names

    @kept
    def _names(self) -> set[str]:
        directories = (self._directory, self._batch_directory)
        return {name for directory in directories if directory for name in names_in(directory, self._files)}

    @kept
    def in_use(self) -> bool:
        """Is there any simple queue with a unit in it?"""
        return any(queue.last() is not None for queue in self.some())

    @kept
    def _simple(self) -> list[Queue]:
        return list(_queues(self._directory, self._files, is_batch=False))

    @kept
    def batch(self) -> list[Queue]:
        """Every BatchCQ there is."""
        return list(_queues(self._batch_directory, self._files, is_batch=True))

    def vouch_for(self, header: Header) -> bool | None:
        """Do the queues know this message? True or False; None when there is no unit at its queue offset. A BatchCQ has
        one unit for a batch, so it is searched for the message's position.

        The question is the reverse of SegmentReader.has_message(): the message was read, and its queue is asked, not
        the log. The log's end and what follows damage are found with this answer, before there is a LiveLog to ask for
        evidence()."""
        queue = self.queue(header.topic, header.queue_id)
        unit = None if queue is None else queue.unit(header.queue_offset)
        found = None if unit is None else (unit.position, unit.size) == (header.position, header.size)
        batches = None if found else self.queue(header.topic, header.queue_id, is_batch=True)
        if batches is not None:
            unit = batches.unit(QueueCursor(batches).seek(header.position))
            if unit is not None and (unit.position, unit.size) == (header.position, header.size):
                return True
        return found


def _queues(directory: str | None, files: Files, is_batch: bool) -> Iterator[Queue]:
    """The queues in a directory, by topic."""
    if directory is None:
        return
    topics = names_in(directory, files)
    progress = Progress(f"listing queues in {directory}", len(topics), "topics")
    for topic in topics:
        yield from _queues_of(os.path.join(directory, topic), topic, files, is_batch)
        progress.add()


def _queues_of(directory: str, topic: str, files: Files, is_batch: bool) -> Iterator[Queue]:
    """The queues of a topic, in its directory."""
    for name in names_in(directory, files):
        queue_id = queue_id_of(name)
        if queue_id is not None:
            yield Queue(os.path.join(directory, name), topic, queue_id, files, is_batch)
