"""The one handle on a store: planner and writer begin with a Snapshot, tasks have its StoreRef."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from rmqstore_spark.errors import DamagedStoreError, DeletedMeanwhileError, RmqStoreError, StorageError
from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.kept import kept
from rmqstore_spark.store.committed import Uncommitted, end_of_entry, has_order
from rmqstore_spark.store.format.message import MARK_SIZE, Header, Mark, mark_of
from rmqstore_spark.store.io.files import Files, file_status, ignore_unreadable
from rmqstore_spark.store.io.storage import Storage
from rmqstore_spark.store.live_log import LiveLog
from rmqstore_spark.store.log_end import End, LogEnd
from rmqstore_spark.store.log_times import LogTimes
from rmqstore_spark.store.structures.checkpoint import fields
from rmqstore_spark.store.structures.commitlog import SegmentReader, numbers_of
from rmqstore_spark.store.structures.config import (
    OffsetsFiles,
    Table,
    batch_topics,
    topic_entries,
    topic_queues,
)
from rmqstore_spark.store.structures.consumer_offsets import Consumed, ConsumerOffsets, consumed, consumed_in_rocksdb
from rmqstore_spark.store.structures.entries import Entry, Marks
from rmqstore_spark.store.structures.epochs import epochs_of
from rmqstore_spark.store.structures.kinds import KINDS, Kind, Part, kind_with, kinds_in, marks_of
from rmqstore_spark.store.structures.layout import Layout, find_store
from rmqstore_spark.store.structures.past_damage import PastDamage
from rmqstore_spark.store.structures.proofs import PROOF_SIZE, Proof, proofs_of
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.rocksdb_popped import Popped, popped_in_rocksdb
from rmqstore_spark.store.structures.segments import Damage, Extent, Segment, index_of, segments_of
from rmqstore_spark.store.structures.static_topics import LogicPart, static_parts
from rmqstore_spark.store.structures.written import Record, load

_FEW_TOPICS = 256  # of which consumers' offsets are read without those of others

# The least and the most queueOffset that are asked for of a queue; None where none is.
AskedOffsets = Callable[[str, int], tuple[int, int] | None]


class LogQueue(NamedTuple):
    """A queue as its own log has it: the first and the last message, None where there are none; and the queue offset
    after the last one."""

    topic: str
    queue_id: int
    first: Header | None
    last: Header | None
    end: int


class StoreRef:
    """A store's place, and how to read it: all that a task gets. The task's plan says which segments to read.

    Large because each thing that tasks look up beside the log has a property that keeps the answer.

    Attributes:
        layout: where its parts are.
        files: how they are reached, and where requests and bytes are counted.
        beside: of a tiered store that is read with its broker's own store, that store: its config/ tells of the
            messages here, too. None of any other store.
    """

    beside: "StoreRef | None" = None

    def __init__(self, layout: Layout, files: Files) -> None:
        self.layout = layout
        self.files = files
        self._offsets_by_topics: dict[frozenset[str], ConsumerOffsets | None] = {}

    def __reduce__(self) -> tuple[type["StoreRef"], tuple[Any, ...]]:
        return StoreRef, (replace(self.layout, segments=(), strays=()), self.files)

    @property
    def root(self) -> str:
        """The store directory, absolute."""
        return self.layout.root

    def set_credentials(self, storage: Storage) -> None:
        """As of Files, for all that this store reads."""
        for store in (self, self.beside):
            if store is not None:
                store.files.set_credentials(storage)

    @kept
    def queues(self) -> ConsumeQueues:
        """The store's ConsumeQueues."""
        layout = self.layout
        return ConsumeQueues(layout.consumequeue, self.files, layout.queues_beside, layout.queues_in_rocksdb)

    @property
    def stored_queues(self) -> ConsumeQueues:
        """The queues whose units a broker keeps beside this log."""
        return self.queues

    def reader(self, segment: Segment, verify_crc: bool = False) -> SegmentReader:
        """A reader of a segment. The caller closes it."""
        return SegmentReader(segment, self.files, verify_crc)

    def past_damage(self, reader: SegmentReader) -> PastDamage:
        """A reader of a segment with the damage in it."""
        return PastDamage(reader, self.queues)

    @kept
    def checkpoint(self) -> dict[str, int]:
        """The fields of `checkpoint` (structures/checkpoint.py)."""
        return fields(self.layout.checkpoint, self.files)

    @kept
    def topic_entries(self) -> dict[str, Table]:
        """The entry of each topic in the broker's configuration, unchanged."""
        return topic_entries(self.root, self.files)

    @kept
    def topics(self) -> dict[str, int]:
        """The topics that the broker was told of, each with its number of queues."""
        return topic_queues(self.topic_entries)

    @kept
    def unindexed_topics(self) -> set[str]:
        """The topics of which no index has all keys, as the broker was told to keep producers' batches as they are."""
        return batch_topics(self.topic_entries)

    @kept
    def static_parts(self) -> list[LogicPart]:
        """The parts of the queues of static topics, as the broker knows them."""
        return static_parts(self.root, self.files) if self.beside is None else self.beside.static_parts

    @kept
    def term_starts(self) -> list[int] | None:
        """The physical offsets at which a new master of a broker in controller mode went on: up to there a master that
        comes back cuts its log. Ascending; None where some may be unknown."""
        found = epochs_of(self.root, self.files)
        return None if found.may_lack_the_last else sorted({epoch.start for epoch in found.epochs})

    def has_in_files(self, part: Part) -> bool:
        """Does a broker keep this part of the store in files?"""
        return kind_with(self.root, self.files, part) is None

    @kept
    def known_topics(self) -> set[str]:
        """The topics that the broker was told of, or that have a queue."""
        beside = set() if self.beside is None else self.beside.known_topics
        return {*self.topics, *self.queues.topics, *beside}

    @kept
    def _consumed(self) -> Consumed:
        with collector_paused():  # there may be very many entries
            return consumed(self.root, self.files)

    @property
    def consumed_topics(self) -> set[str]:
        """The topics that some group has consumed."""
        return self._consumed.topics

    @property
    def consumer_offsets(self) -> ConsumerOffsets:
        """The offset of the next message in each queue that a group consumes."""
        return self._consumed.offsets

    def offsets_in(self, topics: Collection[str] | None) -> ConsumerOffsets:
        """Those of consumer_offsets that are in some topics; None: all. Of a RocksDB only these are read."""
        if topics is None:
            return self.consumer_offsets
        found = self._in_rocksdb(frozenset(topics))
        return self.consumer_offsets.only(topics) if found is None else found

    def has_offsets_in_rocksdb(self, topics: Collection[str] | None = None) -> bool:
        """Does a RocksDB have consumers' offsets, and can those in some topics be read? None: all."""
        of_topics = None if topics is None else self._in_rocksdb(frozenset(topics))
        return of_topics is not None or self._consumed.is_in_rocksdb

    def _in_rocksdb(self, topics: frozenset[str]) -> ConsumerOffsets | None:
        """The offsets in some topics where a RocksDB has them; None where it does not, or all offsets are known or are
        as fast to read."""
        if "_consumed" in self.__dict__ or len(topics) > _FEW_TOPICS:
            return None
        if topics not in self._offsets_by_topics:
            self._offsets_by_topics[topics] = consumed_in_rocksdb(self.root, self.files, topics)
        return self._offsets_by_topics[topics]

    @property
    def offsets_files(self) -> OffsetsFiles:
        """Which file of config/ has the consumers' offsets that count."""
        return self._consumed.file

    @property
    def sound_offsets(self) -> frozenset[str]:
        """The name of that file, if it is surely as a broker writes it."""
        return self._consumed.sound

    def refuse_unread_offsets(self, topics: Collection[str] | None = None) -> None:
        """Refuse to show that no group has consumed anything where a file says otherwise.

        Args:
            topics: only these are of concern; None: all are.

        Raises:
            DamagedStoreError: the file of offsets is so large that it is only read in the form that brokers write, and
                has another one.
        """
        if topics is not None and self._in_rocksdb(frozenset(topics)) is not None:
            return
        if self._consumed.refused is not None:
            raise DamagedStoreError(f"{self._consumed.refused}: restore it from a backup, or delete it")

    @kept
    def popped(self) -> Popped | None:
        """The popped messages that are in RocksDB; None where there is no such database."""
        return popped_in_rocksdb(self.root, self.files)


def as_snapshot(store: StoreRef) -> "Snapshot":
    """The Snapshot of a range that is planned in this process; only in a task the store is a plain StoreRef."""
    assert isinstance(store, Snapshot), f"{store.root}: planned elsewhere"
    return store


def _is_of(proof: Proof | None, message: Header) -> bool:
    """Are these the bytes of a message?"""
    mark = None if proof is None else mark_of(proof.data, message.position)
    known = message.store_timestamp
    return mark is not None and (known is None or mark.store_timestamp == known // 1000)


class Snapshot(StoreRef):
    """A store as it was found. Answers are kept, so they all describe one state of the store.

    A pickled Snapshot becomes a StoreRef: the answers stay in the process that found them.

    Large because each question about a whole store (log, end, times, topics, groups) has a method that keeps its
    answer.

    Args:
        end: the physical offset where the log is to end, if known: a unit's end. Nothing after it is read.
        committed: whether the log is to end with the last entry that a node says to be committed, where it has such.

    Attributes:
        what: the kind of it, in a few words, for texts.
        is_whole: whether it is all that a broker has on its disk: a log, queues, index files and configuration.
        has_physical_offsets: whether positions in this log are offsets of a commitlog.
        is_of_known_queues: whether it is sure that the log has only messages of queues that are known.
    """

    what: ClassVar[str] = "a store"
    is_whole: ClassVar[bool] = True
    has_physical_offsets: ClassVar[bool] = True
    is_of_known_queues: ClassVar[bool] = False

    def __init__(self, layout: Layout, files: Files, end: int | None = None, committed: bool = False) -> None:
        super().__init__(layout, files)
        self._known_end = end
        self._committed = committed

    @classmethod
    def find(
        cls,
        root: str,
        files: Files,
        commitlogs: list[str] | None = None,
        end: int | None = None,
        committed: bool = False,
    ) -> "Snapshot":
        """The store in a directory; arguments and errors are those of layout.find_store()."""
        return cls(find_store(root, commitlogs, files), files, end, committed)

    def kinds(self, among: Sequence[Kind] = KINDS) -> Iterator[Kind]:
        """The other forms in which a broker keeps something beside this log."""
        return kinds_in(self.root, self.files, among)

    def may_be_copy_of(self, other: "Snapshot") -> bool:
        """Are the messages of two logs to be compared, to know whether one is a copy of the other?"""
        return self.what == other.what and self.root != other.root

    def may_have(self, asked: AskedOffsets) -> bool:
        """May the log have messages of a queue that is asked for?"""
        return True

    def may_hold(self, starts: Sequence[int], asked: AskedOffsets) -> list[bool]:
        """Which parts of the log may hold the queue offsets that are asked for, as far as the log's own order tells.

        Args:
            starts: where each part begins, ascending.
        """
        return [True] * len(starts)

    def number_after(self, position: int) -> int | None:
        """The queue offset after that of the message at a physical offset, or after those of the batch there; None
        where there is none."""
        extent, header = self.log.extent_at(position), self.log.header(position)
        if header is None or extent is None:
            return None
        with self.reader(extent.segment) as reader:
            return numbers_of(reader, header).stop

    def queues_of_log(self) -> list[LogQueue]:
        """The queues that the log tells by itself, as it has no messages of others."""
        return []

    def leads(self, asked: AskedOffsets) -> bool:
        """Is it the first of logs() that may have what is asked for?"""
        return True

    def logs(self) -> "list[Snapshot]":
        """The logs that together are the store: mostly this one alone."""
        return [self]

    @property
    def leads_topic(self) -> bool:
        """Is it the first of the logs that together have a topic's messages? One that has all of them is."""
        return True

    def queues_of_topic(self) -> list[LogQueue]:
        """queues_of_log() of all logs that together have the topic's messages."""
        return self.queues_of_log()

    def ending_at(self, end: int) -> "Snapshot":
        """The same store, with a log that ends there."""
        return Snapshot(self.layout, self.files, end)

    @kept
    def _segments_of(self) -> tuple[list[Segment], list[Damage]]:
        return segments_of(self.layout.segments)

    @property
    def segments(self) -> list[Segment]:
        """The store's segments, by start.

        Raises:
            DamagedStoreError: two files claim the same physical offsets.
        """
        return self._segments_of[0]

    def never_brought(self) -> Iterable[Damage]:
        """The messages that a read finds missing where others follow each other without a gap; none in a
        commitlog."""
        return ()

    @property
    def faults(self) -> list[Damage]:
        """The faults in the names and sizes of the segments.

        Raises:
            DamagedStoreError: two files claim the same physical offsets.
        """
        return self._segments_of[1]

    @kept
    def _end(self) -> End:
        if self._known_end is not None:
            return End(self._known_end, self.segments)
        if not self.files.is_snapshot:
            _ = self.checkpoint  # a log that is appended to meanwhile has all messages of which it tells
        found = self._log_end().find()
        self._refuse_cut(found.position)
        if not self._committed or self._marks is None:
            return found
        end = end_of_entry(found.segments, self._marks.committed, found.position, self.reader)
        return found if end >= found.position else End(end, found.segments)

    def _refuse_cut(self, end: int) -> None:
        """Raise a StorageError where a segment has become shorter while the end was searched for: what is missing looks
        like the zeros of a log that ends there."""
        last = (segment for segment in self.segments if segment.start + segment.size >= end)
        for segment in itertools.islice(last, 2):
            status = file_status(segment.path, self.files)
            if status is not None and status.st_size < segment.size:
                raise StorageError(
                    f"{segment.path}: expected {segment.size:,} bytes, as when the store was opened, found "
                    f"{status.st_size:,}: the file was cut meanwhile; load the store again"
                )

    def refuse_exchanged(self) -> None:
        """See that the segments are still those that were listed. A write that begins segments exchanges all of
        commitlog/: of its messages, only those in the last segment that was listed would be seen.

        Raises:
            DeletedMeanwhileError: they are others.
        """
        if self.layout.commitlog_inode != self.layout.commitlog_inode_now(self.files):
            raise DeletedMeanwhileError(
                f"{self.root}: a write has put another commitlog/ in the place of the one that was listed; load the "
                "store again"
            )

    @kept
    def _marks(self) -> Marks | None:
        """What a node had written down of its log; None in other stores."""
        return marks_of(self.root, self.files) if any(map(has_order, self.segments)) else None

    @property
    def last_entry(self) -> Entry | None:
        """The last entry of a log of entries; None if unknown, or in other logs."""
        return self._end.entry

    @kept
    def uncommitted(self) -> Uncommitted | None:
        """The last entries, where a node has some that it does not say to be committed. None if it has none, or the log
        is no log of entries."""
        found = self._noted
        return found if found is not None and (found.behind_committed or found.behind_end) else None

    @property
    def lacks_committed(self) -> Uncommitted | None:
        """The log's last entry, where a node says that a later one is committed."""
        found = self._noted
        return found if found is not None and found.last < found.marks.committed else None

    @property
    def lacks_marks(self) -> bool:
        """Was this log of entries to end with the last one that is committed, and nothing says which one that is?"""
        return self._committed and self._marks is None and any(map(has_order, self.segments))

    @kept
    def _noted(self) -> Uncommitted | None:
        entry = self.last_entry
        with ignore_unreadable():
            return None if entry is None or self._marks is None else Uncommitted(self._marks, entry.number)
        return None

    def _log_end(self) -> LogEnd:
        return LogEnd(self.layout, self.segments, self.queues, self.files, lambda: self.checkpoint)

    def first_of(self, start: int, least: int, most: int) -> int:
        """A physical offset before which the log has no message with these queue offsets of a queue.

        Args:
            start: where the unit of the first of them leads to.
        """
        return start

    @kept
    def may_have_old_pages(self) -> bool:
        """May the broker have ended with a loss of power? Then a disk has some pages of files as they were long before.
        A process that runs sees all that was written, and a clean stop waits until the disk has it."""
        return self.layout.abort and not self.files.is_locked(self.layout.lock)

    @property
    def is_being_written(self) -> bool:
        """May somebody be writing the store, so that its files are of several moments?"""
        return self.layout.abort or self.files.is_locked(self.layout.lock)

    @property
    def end(self) -> int:
        """The physical offset where the log ends."""
        return self._end.position

    @property
    def last_message(self) -> Header | None:
        """The last message of the log; None if unknown."""
        return self._end.last

    @kept
    def log(self) -> LiveLog:
        """The log as it was at the first call: where it ends, and which units are live."""
        return self._log_to(self._end)

    def log_without_end(self) -> LiveLog:
        """All segments, up to the ends of their files: for a first look, before the log's end is known."""
        end = End(max((segment.end for segment in self.segments), default=0), self.segments)
        return self._log_to(end, has_end=False)

    def _log_to(self, end: End, has_end: bool = True) -> LiveLog:
        extents = []
        for segment in end.segments:
            # A cut file is read up to its end: the missing rest is one of the faults.
            stop = min(segment.end, segment.start + segment.size, end.position)
            if stop > segment.start:
                extents.append(Extent(segment, segment.start, stop))
        return LiveLog(extents, end.timestamp, self.queues, self.reader, has_end)

    @kept
    def written(self) -> Record:
        """Our writer's record. The record is read after the log's end was found, so nothing in the log is newer than
        the record."""
        _ = self.end
        return load(self.root, self.files)

    @kept
    def times(self) -> LogTimes:
        """The store times of the log."""
        return LogTimes(self.log, self.written, self._mark_at)

    def _mark_at(self, position: int) -> Mark | None:
        extent = self.log.extent_at(position)
        if extent is None:
            return None
        with self.reader(extent.segment) as reader:
            return mark_of(reader.read(position, MARK_SIZE), position)

    def proof(self, segment: Segment, position: int, stop: int) -> Proof | None:
        """The bytes at a physical offset of a segment, which up to `stop` never change. None where there are no bytes,
        or where they cannot be read, as the segment has just expired: the reader of the segment reports that."""
        return self._proofs(segment, (position, stop))[0]

    def _proofs(self, segment: Segment, *places: tuple[int, int]) -> list[Proof | None]:
        sizes = [(position - segment.start, stop - position) for position, stop in places]
        with ignore_unreadable():
            return proofs_of(self.root, segment.path, sizes, self.files, segment.start, segment.pin)
        return [None for _ in places]

    @kept
    def seen(self) -> Proof | None:
        """The proof that tells this store, as of the first call, from others: the bytes of the log's last message. None
        for a store without a log.

        Raises:
            DeletedMeanwhileError: the last message is not there any more.
        """
        last = self.last_message
        extent = self.log.extent_at(self.end - 1 if last is None else last.position)
        if extent is None:
            return None
        position = max(extent.start, extent.stop - PROOF_SIZE) if last is None else last.position
        proof = self._late_proof(extent.segment, position, extent.stop)
        if last is not None and not self.files.is_snapshot and not _is_of(proof, last):
            raise DeletedMeanwhileError(
                f"{extent.segment.path}: the last message, at commitLogOffset {last.position}, is gone since it was "
                "found: another store has taken the place of this one, or its broker has cut the log; load it again"
            )
        return proof

    @kept
    def glimpsed(self) -> Proof | None:
        """The proof for callers that do not need the log's end: the bytes of a late message. Where finding one would
        cost much, those of the first message in the last segment in use. In object storage the tag tells all else. None
        also for a store that cannot be read."""
        try:
            late = None if self.files.is_snapshot else self._log_end().late_message()
            if late is not None:
                index = index_of(self.segments, late.position)
                assert index is not None
                return self._late_proof(self.segments[index], late.position, late.position + late.size)
            begun = (self.proof(each, each.start, each.start + MARK_SIZE) for each in reversed(self.segments))
            used = next((proof for proof in begun if proof is not None and any(proof.data)), None)
            return None if used is None else replace(used, may_expire=False)
        except StorageError:
            raise
        except RmqStoreError:
            return None

    def _late_proof(self, segment: Segment, position: int, stop: int) -> Proof | None:
        first = self.segments[0]
        late, early = (position, stop), (first.start, position)
        if segment is first:
            proof, before = self._proofs(first, late, early)
        else:
            proof, before = self._proofs(segment, late)[0], self._proofs(first, early)[0]
        return None if proof is None else replace(proof, may_expire=False, before=before)
