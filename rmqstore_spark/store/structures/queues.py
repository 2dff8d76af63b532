"""All ConsumeQueues of a store, simple ones and those of BatchCQ topics: which exist, and what they know.

A broker that writes its queues twice (rocksdbCQDoubleWriteEnable) has them in files and in RocksDB. Of each queue the
one that knows more is taken; light queues are mostly in RocksDB only.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.kept import kept
from rmqstore_spark.progress import Progress
from rmqstore_spark.store.format.light_queues import is_light
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.batch_queue import BatchQueue
from rmqstore_spark.store.structures.consumequeue import Queue, QueueName, names_in
from rmqstore_spark.store.structures.layout import queue_id_of, queue_path
from rmqstore_spark.store.structures.queue_heads import queue_ids

if TYPE_CHECKING:
    from rmqstore_spark.store.structures.rocksdb_queues import QueuesInRocksDB

# The forms of queues besides the simple one, each in a directory of its own (Queue.directory_name).
FORMS: tuple[type[Queue], ...] = (BatchQueue,)

_TOPICS_AT_ONCE = 512  # whose directories are listed together
_PAGE = 4096  # bytes: the least that a disk has or lacks of a file


class ConsumeQueues:
    """All queues of a store.

    Large because callers ask for all queues, some, those of a topic or a single one, and each question has to be
    answered by three places.

    Attributes:
        files: how to reach files, and where requests and bytes are counted.

    Args:
        directory: `consumequeue/`, or None where a store has none.
        files: see above.
        beside: the store's other directories of queues, which tell by their names the form of these (FORMS).
        database: the directory of a RocksDB that has simple queues, or None. It may be `directory`.
    """

    def __init__(
        self,
        directory: str | None,
        files: Files,
        beside: Iterable[str] = (),
        database: str | None = None,
    ) -> None:
        self._directory = directory
        self._database = database
        places = {os.path.basename(path): path for path in beside}
        self._beside = {made.form: (made, places.get(made.directory_name)) for made in FORMS}
        self.files = files
        self._topics: dict[tuple[str, str], list[Queue]] = {}

    def __iter__(self) -> Iterator[Queue]:
        """Every simple queue there is, by topic and queueId. The directories are listed once."""
        return iter(self._simple)

    @property
    def every(self) -> list[Queue]:
        """The simple queues, and after them those of other forms."""
        return self._simple + self._others

    @property
    def own(self) -> list[Queue]:
        """The simple queues that have each message once: not light ones."""
        return [queue for queue in self._simple if not queue.is_additional]

    def of_topics(self, topics: Iterable[str] | None) -> list[Queue]:
        """All queues of some topics, and no other directory is listed; None: of all topics."""
        return self.every if topics is None else [each for topic in topics for each in self.all_of_topic(topic)]

    def without_light(self, topics: Iterable[str] | None = None) -> list[Queue]:
        """The queues that have each message once, and not also for a light queue; topics as in of_topics()."""
        return [queue for queue in self.of_topics(topics) if not queue.is_additional]

    def unindexed(self, topics: Iterable[str] | None = None) -> list[Queue]:
        """The queues whose messages no index has by their keys. No directory of other queues is listed."""
        forms = [made for made in FORMS if not made.is_indexed]
        if topics is None:
            return [queue for queue in self._others if not queue.is_indexed]
        return [each for topic in topics for made in forms for each in self._beside_of_topic(made, topic)]

    def about(self, most: int) -> int:
        """About how many queues there are: of more topics than so many, a sample is taken."""
        topics = sorted(self.topics)
        some = topics[:: -(-len(topics) // most) or 1]
        of_some = sum(len(self.of_topic(topic)) for topic in some)
        return of_some * len(topics) // max(len(some), 1) + len(self._others)

    def of_topic(self, topic: str) -> list[Queue]:
        """The simple queues of a topic; only the topic's directory is listed, and only once."""
        return self._kept_of(topic, Queue, self._simple_of)

    def batch_of_topic(self, topic: str) -> list[Queue]:
        """The batch queues of a topic, as in of_topic()."""
        return self._beside_of_topic(BatchQueue, topic)

    def _beside_of_topic(self, made: type[Queue], topic: str) -> list[Queue]:
        """The queues of a topic of another form than the simple one, as in of_topic()."""
        _, above = self._beside[made.form]
        return self._kept_of(topic, made, lambda topic: self._in_directory(above, topic, made))

    def _kept_of(self, topic: str, made: type[Queue], found: Callable[[str], list[Queue]]) -> list[Queue]:
        key = topic, made.form
        if key not in self._topics:
            self._topics[key] = found(topic)
        return self._topics[key]

    def _simple_of(self, topic: str) -> list[Queue]:
        found = self._in_directory(self._directory, topic, Queue)
        if self._in_rocksdb is None or queue_path(topic, 0) is None:
            return found
        return _best(found, self._in_rocksdb.of_topic(topic))

    def _in_directory(self, above: str | None, topic: str, made: type[Queue]) -> list[Queue]:
        path = queue_path(topic, 0)
        if path is None or above is None:
            return []
        return _queues_of(os.path.join(above, os.path.dirname(path)), topic, self.files, made)

    def assumed(self, names: Mapping[str, Collection[int]]) -> list[Queue] | None:
        """The queues with these topics and queueIds where all are in RocksDB, without a look at which exist; None where
        some may be in files, whose directories have to be listed."""
        if self._in_rocksdb is None or self._names:
            return None
        return [*self._in_rocksdb.assumed(names)]

    def all_of_topic(self, topic: str) -> list[Queue]:
        """The simple queues of a topic, and after them those of other forms."""
        return self.of_topic(topic) + [each for made in FORMS for each in self._beside_of_topic(made, topic)]

    def some(self) -> Iterator[Queue]:
        """The simple queues, listed lazily: a few of many cost little. Those that are stored twice come twice."""
        yield from _queues(self._directory, self.files, Queue)
        yield from self._in_rocksdb or ()

    def queue(self, topic: str, queue_id: int) -> Queue | None:
        """A simple queue, whether it has files or not; None where there can be none (layout.queue_path)."""
        found = self._below(self._directory, topic, queue_id, Queue)
        other = None if self._in_rocksdb is None else self._in_rocksdb.queue(topic, queue_id)
        return found if other is None else other if found is None else _better(found, other)

    def _beside_queues(self, topic: str, queue_id: int) -> Iterator[Queue]:
        """The queues of other forms than the simple one, as in queue()."""
        for made, above in self._beside.values():
            queue = self._below(above, topic, queue_id, made)
            if queue is not None:
                yield queue

    def _below(self, above: str | None, topic: str, queue_id: int, made: type[Queue]) -> Queue | None:
        path = queue_path(topic, queue_id)
        return None if path is None or above is None else made(f"{above}{os.sep}{path}", topic, queue_id, self.files)

    def named(self, name: QueueName) -> Queue | None:
        """The queue with a name that a queue has told, whether it is still there or not; as in queue()."""
        topic, queue_id, form = name
        if form not in self._beside:
            return self.queue(topic, queue_id)
        made, above = self._beside[form]
        return self._below(above, topic, queue_id, made)

    def dispatched_to(self, topic: str, queue_id: int) -> Queue | None:
        """The queue into which a broker puts the messages of this topic and queueId, whether it has files or not; as in
        queue()."""
        others = self._beside_queues(topic, queue_id)
        used = (queue for queue in others if queue.in_files and not self.is_passed_over(queue))
        return next(used, None) or self.queue(topic, queue_id)

    @kept
    def topics_of_batches(self) -> set[str]:
        """The topics whose queues are BatchCQs alone."""
        topics = {queue.topic for queue in self.batch}
        return {topic for topic in topics if not any(queue.in_files for queue in self.of_topic(topic))}

    def is_passed_over(self, queue: Queue) -> bool:
        """Is it a queue of another form without units beside a simple one? Then the simple queue counts: a topic has
        queues of one form."""
        if queue.form not in self._beside:
            return False
        simple = self.queue(queue.topic, queue.queue_id)
        return simple is not None and bool(simple.in_files) and queue.last() is None

    @property
    def directories(self) -> list[str]:
        """The directories that have those of queues in files."""
        return [each for each in (self._directory, *(above for _, above in self._beside.values())) if each is not None]

    def all_of_queue(self, topic: str, queue_id: int) -> list[Queue]:
        """The queues of this name: a simple one, whether it has files or not, where there is none of another form with
        a unit; those that have one, and before them a simple one only if that has a unit, too."""
        simple = self.queue(topic, queue_id)
        others = [queue for queue in self._beside_queues(topic, queue_id) if queue.last() is not None]
        if simple is None or (others and simple.last() is None):
            return others
        return [simple, *others]

    def units_with(self, topic: str, queue_id: int, queue_offset: int) -> Iterator[tuple[Queue, QueueUnit]]:
        """The units with the message at a queue offset, as far as units are right, each with its queue: a broker uses
        one of the queues of a name, and others may be left over."""
        for queue in self.all_of_queue(topic, queue_id):
            unit = queue.unit(queue.number_with(queue_offset))
            if unit is not None and unit.queue_offset <= queue_offset < unit.end:
                yield queue, unit

    @kept
    def topics(self) -> set[str]:
        """The names that can be topics with a queue, light message queues left out. No topic's own directory is
        listed."""
        in_rocksdb = set() if self._in_rocksdb is None else self._in_rocksdb.topics
        return {name for name in self._names | in_rocksdb if not is_light(name)}

    def has_more_topics(self, most: int) -> bool:
        """Are there more topics than so many? Of a large database, not all are looked at."""
        in_rocksdb = set() if self._in_rocksdb is None else self._in_rocksdb.some_topics(most)
        return len({name for name in self._names | in_rocksdb if not is_light(name)}) > most

    @property
    def is_empty(self) -> bool:
        """Is there nothing that can be a topic with a queue?"""
        return not self._names and next(iter(self._in_rocksdb or ()), None) is None

    @kept
    def _names(self) -> set[str]:
        return {name for directory in self.directories for name in self.topics_in(directory)}

    def topics_in(self, directory: str) -> list[str]:
        """The names in a directory that can be topics: not the files of a database."""
        names = names_in(directory, self.files)
        if directory != self._database:
            return names
        return [name for name in names if self.files.is_directory(os.path.join(directory, name))]

    @kept
    def _in_rocksdb(self) -> "QueuesInRocksDB | None":
        if self._database is None:
            return None
        # Imported here, as most stores have no such database, and each task has ConsumeQueues.
        from rmqstore_spark.store.structures.rocksdb_queues import QueuesInRocksDB

        return QueuesInRocksDB(self._database, self.files)

    @property
    def are_twice(self) -> bool:
        """Is there a database of queues, and something that can be the directory of queues in files?"""
        return self._database is not None and bool(self._names)

    @property
    def why_not(self) -> str | None:
        """Why queues in RocksDB cannot be read; None where they can, or there are none."""
        return None if self._in_rocksdb is None else self._in_rocksdb.why_not

    @property
    def may_lack_topics(self) -> bool:
        """May a topic have messages, but no queue here, because a broker has not written its records yet? Directories
        are made with the first message; records in RocksDB are written much later."""
        return self._database is not None

    @kept
    def in_use(self) -> bool:
        """Is there any simple queue with a unit in it?"""
        return any(queue.last() is not None for queue in self.some())

    @kept
    def _simple(self) -> list[Queue]:
        with collector_paused():  # there may be very many
            found = list(_queues(self._directory, self.files, Queue))
        return found if self._in_rocksdb is None else _best(found, self._in_rocksdb)

    @kept
    def _others(self) -> list[Queue]:
        return [queue for made, above in self._beside.values() for queue in _queues(above, self.files, made)]

    @property
    def batch(self) -> list[Queue]:
        """Every BatchCQ there is, for those who make such queues or know what their units have to be."""
        return [queue for queue in self._others if queue.form == BatchQueue.form]

    def may_be_lost(self, topic: str) -> bool:
        """May a queue of this topic be lost, and its messages be there, where all other queues know all of the log? A
        light queue may."""
        return is_light(topic)

    @property
    def kind_of_lost(self) -> str:
        """The kind (Queue.kind) of the queue into which a broker puts messages whose queue is lost."""
        return Queue.form if self._in_rocksdb is None else self._in_rocksdb.kind

    def vouch_for(self, header: Header) -> bool | None:
        """Do the queues know this message? True or False; None when there is no unit at its queue offset. A BatchCQ has
        one unit for a batch, so it is searched for the message's position.

        The question is the reverse of SegmentReader.has_message(): the message was read, and its queue is asked, not
        the log. The log's end and what follows damage are found with this answer, before there is a LiveLog to ask for
        evidence()."""
        queue = self.queue(header.topic, header.queue_id)
        unit = None if queue is None else queue.unit_of(header)
        found = None if unit is None else (unit.position, unit.size) == (header.position, header.size)
        if not found:
            units = (each.unit_of(header) for each in self._beside_queues(header.topic, header.queue_id))
            if any(unit is not None and unit.size == header.size for unit in units):
                return True
        return found


def _best(some: Iterable[Queue], others: Iterable[Queue]) -> list[Queue]:
    """The queues of both, each once: the better one."""
    found = {(queue.topic, queue.queue_id): queue for queue in some}
    for queue in others:
        name = queue.topic, queue.queue_id
        found[name] = _better(found[name], queue) if name in found else queue
    return list(found.values())


def _better(one: Queue, other: Queue) -> Queue:
    """The one of two, the first in files, that knows more of a queue; `one` if they are equal. Units are counted only
    where neither surely has all of the other's: one that goes further may have holes, as a broker of 5.3.3 leaves them
    in RocksDB. Whichever is taken, it has to tile the log, or the log is read."""
    if not one.in_files or not other.in_files:
        return one if one.in_files else other
    if one.first <= other.first and other.end <= one.end and not _may_lack_pages(one):
        return one
    return other if _units_in(other) > _units_in(one) else one


def _may_lack_pages(queue: Queue) -> bool:
    """Do a queue's files take less space on the disk than its units, as where a disk has lost pages?"""
    space = sum(file.allocated for file in queue.in_files)
    return space + _PAGE * len(queue.in_files) < (queue.end - queue.first) * queue.unit_size


def _units_in(queue: Queue) -> int:
    return sum(int(block.are_used.sum()) for block in queue.blocks(queue.first, queue.end, over_gaps=True))


def _queues(directory: str | None, files: Files, made: type[Queue]) -> Iterator[Queue]:
    """The queues in a directory, by topic. The first ones come early."""
    if directory is None:
        return
    topics = names_in(directory, files)
    progress = Progress(f"listing queues in {directory}", len(topics), "topics")
    at, count = 0, 1
    while some := topics[at : at + count]:
        paths = [f"{directory}{os.sep}{topic}" for topic in some]
        for topic, path, ids in zip(some, paths, queue_ids(paths, files), strict=True):
            if ids is None:
                yield from _queues_of(path, topic, files, made)
            else:
                yield from [made(f"{path}{os.sep}{name}", topic, int(name), files) for name in sorted(map(str, ids))]
        progress.add(len(some))
        at, count = at + count, min(2 * count, _TOPICS_AT_ONCE)


def _queues_of(directory: str, topic: str, files: Files, made: type[Queue]) -> list[Queue]:
    """The queues of a topic, in its directory."""
    above, names = os.path.join(directory, ""), names_in(directory, files)
    return [made(above + name, topic, number, files) for name in names if (number := queue_id_of(name)) is not None]
