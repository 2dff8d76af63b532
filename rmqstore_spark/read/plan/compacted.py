"""The last value of each key of compaction topics (option `compacted`).

A consumer of a compaction topic is served from the topic's compaction log: the newest message of each key as of the
last pass, and after these all messages since. What it knows in the end is the last value of each key, and that is what
is selected here: of each queue the newest message of each KEYS text, from the compaction log and the commitlog
together; none for a key whose newest message has no body (a tombstone), and none for messages without keys, which a
pass drops. A pass may remove what is superseded at any time, so the rows do not depend on when it last ran.

A message is in both logs until its segment of the commitlog expires, with the same queueOffset. No index knows which
message of a key is the last one, so the plan reads both logs of these topics, without their bodies being kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.errors import DamagedStoreError, OptionError, counted, quoted
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import Selection, Texts
from rmqstore_spark.read.pieces.task import Chosen, Range, Task
from rmqstore_spark.read.plan.access_path import Access, choose
from rmqstore_spark.read.plan.pack import Pieces, pack
from rmqstore_spark.read.plan.prune import ranges_of
from rmqstore_spark.read.plan.split import Splitter
from rmqstore_spark.read.run.messages import messages_in
from rmqstore_spark.store.format.message import is_queued
from rmqstore_spark.store.queue_log import compaction_logs_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.compaction import compaction_topics
from rmqstore_spark.store.structures.segments import Damage

_COLUMNS = ["topic", "queueId", "queueOffset", "keys", "sysFlag", "commitLogOffset", "body"]
_WHOLE = 1 << 62
_NO_SPACES = "\x85\xa0\u2007\u202f"  # for Java, unlike Python


class _Message(NamedTuple):
    """A message that may be the last of its key.

    Attributes:
        queue_offset: its number in the queue.
        piece, position: the number of the piece that it is in, and its offset in that piece's log.
        has_body: whether it is a value; else it deletes its key.
    """

    queue_offset: int
    piece: int
    position: int
    has_body: bool


@dataclass
class _OfQueue:
    """What is known of a queue's messages.

    Attributes:
        newest: the newest message of each key.
        in_commitlog: the queue offsets of the messages that the commitlog has.
    """

    newest: dict[str, _Message] = field(default_factory=dict)
    in_commitlog: set[int] = field(default_factory=set)


class _Newest:
    """The newest message of each key of each queue.

    The commitlog is added first. Where it has a message, the copy in the compaction log is not asked: no checksum
    covers the key.
    """

    def __init__(self) -> None:
        self._queues: dict[tuple[str, int], _OfQueue] = {}

    def add_commitlog(self, batch: pa.RecordBatch, piece: int) -> None:
        """Add the messages of a piece of the commitlog; pieces come in its order, so a later message is the newer
        one, also where a topic was deleted and began anew."""
        for queue, key, message in _messages_of(batch, piece):
            known = self._queues.setdefault(queue, _OfQueue())
            known.in_commitlog.add(message.queue_offset)
            if key and not _is_blank(key):
                known.newest[key] = message

    def add_compaction_log(self, batch: pa.RecordBatch, piece: int) -> None:
        """Add the messages of a piece of a compaction log."""
        for queue, key, message in _messages_of(batch, piece):
            known = self._queues.setdefault(queue, _OfQueue())
            if not key or _is_blank(key) or message.queue_offset in known.in_commitlog:
                continue
            other = known.newest.get(key)
            if other is None or other.queue_offset < message.queue_offset:
                known.newest[key] = message

    def positions(self, pieces: int) -> list[list[int]]:
        """The offsets of the chosen messages in each of so many pieces, ascending."""
        found: list[list[int]] = [[] for _ in range(pieces)]
        for queue in self._queues.values():
            for message in queue.newest.values():
                if message.has_body:
                    found[message.piece].append(message.position)
        return [sorted(each) for each in found]


def _is_blank(key: str) -> bool:
    """Is a text no key? A broker compares KEYS as a whole, but takes no message whose KEYS have only white space
    (org.apache.rocketmq.store.kv.CompactionLog.asyncPutMessage)."""
    return all(character.isspace() and character not in _NO_SPACES for character in key)


def _messages_of(batch: pa.RecordBatch, piece: int) -> Iterator[tuple[tuple[str, int], str | None, _Message]]:
    """The messages of a batch that are in queues: queue, key and message."""
    has_body = pc.greater(pc.binary_length(batch.column(6)), 0)
    columns = [column.to_pylist() for column in (*batch.columns[:6], has_body)]
    for topic, queue_id, offset, key, flags, position, is_value in zip(*columns, strict=True):
        if is_queued(flags):
            yield (topic, queue_id), key, _Message(offset, piece, position, is_value)


def compacted(stores: list[Snapshot], options: ReadOptions) -> tuple[list[Task], list[tuple[Snapshot, Access]]]:
    """The tasks that read the last value of each key, and the way to them in each log.

    Raises:
        OptionError: no store has a compaction topic, or a topic of `subscribe` is none.
        DamagedStoreError: mode FAILFAST, and something is damaged.
    """
    if options.starting_group is not None or options.deduplicate:
        name = "deduplicate" if options.deduplicate else "startingOffsets=group:..."
        raise OptionError(f"options 'compacted' and {name!r} cannot be given together: remove one of them")
    topics = {store: compaction_topics(store.root, store.files) for store in stores}
    _refuse_others(options, frozenset[str]().union(*topics.values()))
    tasks: list[Task] = []
    accesses: list[tuple[Snapshot, Access]] = []
    for store in stores:
        if not options.selection.is_nothing and topics[store]:
            more, ways = _of_store(store, topics[store], options)
            tasks += more
            accesses += ways
    return tasks, accesses


def _refuse_others(options: ReadOptions, topics: frozenset[str]) -> None:
    if not topics:
        raise OptionError(
            "option 'compacted': expected a store with compaction topics (cleanup.policy=COMPACTION), found none; "
            "remove the option"
        )
    others = sorted((options.subscribe | (options.selection.assigned or {}).keys()) - topics)
    if others:
        raise OptionError(
            f"option 'compacted': expected compaction topics (cleanup.policy=COMPACTION), found {quoted(others[0])}; "
            "read it without the option"
        )


def _of_store(
    store: Snapshot, topics: set[str], options: ReadOptions
) -> tuple[list[Task], list[tuple[Snapshot, Access]]]:
    selection = options.selection
    asked = frozenset(topic for topic in topics if selection.wants_topic(topic))
    queues = Selection(topic=Texts(among=asked), assigned=selection.assigned, queue_id=selection.queue_id)
    logs = [each for each in compaction_logs_of(store) if selection.queue(*each.queue) is not None]
    for each in logs:
        each.look_at_units()
    of_logs = [piece for each in logs for piece in ranges_of(each)]
    own = [_of_queue(*each.queue) for each in logs for _ in each.log.extents]
    splitter = Splitter(_WHOLE, may_walk=False)
    of_store = [piece for piece, _ in choose(store, ranges_of(store), queues, splitter).pieces]
    newest, damages = _Newest(), list[Damage]()
    for number, piece in enumerate(of_store, len(of_logs)):
        for found in messages_in(piece, queues, _COLUMNS, options.verify_crc):
            if isinstance(found, Damage):
                damages.append(found)
            else:
                newest.add_commitlog(found, number)
    for number, (piece, queue) in enumerate(zip(of_logs, own, strict=True)):
        for found in messages_in(piece, queue, _COLUMNS, options.verify_crc):
            if isinstance(found, Damage):
                damages.append(found)
            else:
                newest.add_compaction_log(found, number)
    damages += (lost for each in logs for lost in each.lost())
    if damages and options.mode == "FAILFAST":
        raise DamagedStoreError(str(damages[0]))
    positions = newest.positions(len(of_logs) + len(of_store))
    of_each = [
        (each, [number for number, piece in enumerate(of_logs) if piece.store is each], selection.without_offsets())
        for each in logs
    ]
    parts = [*of_each, (store, list(range(len(of_logs), len(positions))), selection)]
    pieces = [*of_logs, *of_store]
    tasks: list[Task] = []
    accesses: list[tuple[Snapshot, Access]] = []
    for owner, numbers, selected in parts:
        chosen: Pieces = [
            (piece, len(piece.positions) * store.files.prices.request)
            for number in numbers
            if positions[number] and (piece := _chosen(pieces[number], positions[number]))
        ]
        tasks += [replace(task, selection=selected) for task in pack(chosen, options)]
        count = sum(len(positions[number]) for number in numbers)
        accesses.append((owner, Access("compacted", f"{counted(count, 'last value')} of keys", chosen, [])))
    if damages:
        tasks.append(Task(faults=tuple((store.root, damage) for damage in damages)))
    return tasks, accesses


def _of_queue(topic: str, queue_id: int) -> Selection:
    """The messages that belong into a queue's own log. Others there are no consumer's (table check tells them)."""
    return Selection(assigned={topic: frozenset([queue_id])})


def _chosen(piece: Range, positions: list[int]) -> Chosen:
    return Chosen(piece.segment, piece.start, piece.stop, piece.store, piece.stop, np.array(positions, np.int64))
