"""Compaction logs of a store that is copied.

A broker serves consumers of a compaction topic from the topic's compaction log alone, and brings messages there as it
stores them, but never later. So a copy without that log would have nothing for these consumers, whatever its commitlog
has. The log has positions of its own, so its files are right in any store, as they are; its queue offsets are those of
the commitlog, which a copy keeps. What is not right in every case is refused: the topic can be left out.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.errors import DamagedStoreError, NotAStoreError, OptionError, counted, quoted
from rmqstore_spark.query.copy_options import CopyOptions
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import ANY, EVERYTHING, Numbers, Selection
from rmqstore_spark.read.scan import Scan
from rmqstore_spark.store.compaction_log import compaction_logs_of
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_bounds import queue_bounds
from rmqstore_spark.store.queue_log import QueueLog
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.compaction import CHECKPOINT, compaction_queue_file, last_compacted
from rmqstore_spark.tables.check.moment import Moment
from rmqstore_spark.tables.check.problems import PROBLEMS
from rmqstore_spark.tables.check.queue_logs import check_queue_logs
from rmqstore_spark.write.build.other_files import OtherFile
from rmqstore_spark.write.build.tails import Queue

_BLOCK = 1024 * 1024  # bytes


@dataclass(frozen=True)
class CompactionFiles:
    """What a copy takes over.

    Attributes:
        files: the files of compaction/.
        ends: by queue, the queue offset after the last message of its compaction log, where the store has no other
            trace of the queue.
    """

    files: Sequence[OtherFile]
    ends: Mapping[Queue, int]


def compaction_files(stores: list[Snapshot], options: ReadOptions, own: CopyOptions) -> CompactionFiles:
    """The files of compaction/ for a copy of these stores.

    Args:
        options: which messages are copied, and how they are read.
        own: which are left out.

    Raises:
        OptionError: with these options the copy of a compaction topic would not be right.
        DamagedStoreError: a compaction log is damaged.
        NotAStoreError: a broker runs on the store, or has not brought all messages to the compaction log.
    """
    found: list[OtherFile] = []
    ends: dict[Queue, int] = {}
    for store in stores:
        logs = [log for log in compaction_logs_of(store) if options.selection.wants_topic(log.queue[0])]
        logs = [log for log in logs if log.queue[0] not in own.excluded_topics and (log.segments or log.lost_files)]
        if not logs:
            continue
        _refuse(store, logs, stores, options)
        _refuse_exclusions(store, logs, own)
        ends |= {log.queue: end for log in logs if (end := _end_of_lost_queue(store, log, options)) is not None}
        found += [file for log in logs for file in _files_of(store, log)]
        found.append(_checkpoint(store, [log.queue for log in logs]))
    return CompactionFiles(found, ends)


def _refuse(store: Snapshot, logs: Sequence[QueueLog], stores: list[Snapshot], options: ReadOptions) -> None:
    topic = quoted(logs[0].queue[0])
    instead = f"leave topic {topic} out (subscribePattern), or read it with compacted=true and write the rows"
    if len(stores) > 1:
        raise OptionError(f"{store.root}: topic {topic} has a compaction log, which only one store can have; {instead}")
    if replace(options.selection, topic=ANY, explodes=True) != EVERYTHING or options.starting_group is not None:
        raise OptionError(
            f"{store.root}: topic {topic} has a compaction log, which is copied as a whole: select by topics alone; or "
            f"{instead}"
        )
    if store.files.is_locked(store.layout.lock):
        raise NotAStoreError(
            f"{store.root}: a broker runs on it, and may compact topic {topic} at any moment: stop the broker; or "
            f"{instead}"
        )
    topics = {log.queue[0] for log in logs}
    for finding in check_queue_logs(store, Moment(store.end, False, False, store.end)):
        if finding.topic in topics and PROBLEMS[finding.problem].severity == "error":
            raise DamagedStoreError(
                f"{finding.file or store.root}: {finding.problem}: expected {finding.expected}, found {finding.found}; "
                f"{instead}"
            )


def _refuse_exclusions(store: Snapshot, logs: Sequence[QueueLog], own: CopyOptions) -> None:
    for each in own.exclusions:
        if each.topic is None:
            raise OptionError(
                f"{store.root}: option {each.option!r}: topic {quoted(logs[0].queue[0])} has a compaction log, which "
                "is copied as a whole; leave the topic out (excludeTopic), or read it with compacted=true and write "
                "its rows"
            )


def _end_of_lost_queue(store: Snapshot, log: QueueLog, options: ReadOptions) -> int | None:
    """The queue offset after the last message of a log whose queue the store does not have; None where it has it."""
    topic, queue_id = log.queue
    ends = log.ends()
    after = 0 if ends is None else ends[1].queue_offset + 1
    late = Selection(assigned={topic: frozenset([queue_id])}, offsets={log.queue: Numbers(least=after)})
    own = replace(options, selection=late, subscribe=frozenset(), mode="FAILFAST", deduplicate=False)
    missing = sum(
        batch.num_rows - int(pc.sum(_are_blank(batch)).as_py() or 0)
        for batch in Scan(own, ["keys"], (store,)).batches()
        if batch.num_rows
    )
    if missing:
        raise NotAStoreError(
            f"{store.root}: topic {quoted(topic)}, queue {queue_id}: its compaction log lacks "
            f"{counted(missing, 'message')} from queueOffset {after} on, as after a kill: start a broker on the store "
            "and stop it, and copy it then"
        )
    queue = store.queues.queue(topic, queue_id)
    if queue is None:
        return after
    (bounds,) = queue_bounds(store, [queue])
    if bounds.end < after:
        raise NotAStoreError(
            f"{store.root}: topic {quoted(topic)}, queue {queue_id}: its compaction log goes to queueOffset "
            f"{after - 1}, and the queue only to {bounds.end - 1}: they are not of one time; restore one of them "
            "from a backup"
        )
    return None


def _are_blank(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.equal(pc.binary_length(pc.utf8_trim_whitespace(pc.fill_null(batch.column("keys"), ""))), 0)


def _files_of(store: Snapshot, log: QueueLog) -> Iterator[OtherFile]:
    for segment in log.segments:
        queue = compaction_queue_file(store.root, log.queue, os.path.basename(segment.path))
        for path in (queue, segment.path):
            size = store.files.status(path).st_size
            yield OtherFile(
                os.path.relpath(path, store.root), size, functools.partial(_blocks, path, size, store.files)
            )


def _blocks(path: str, size: int, files: Files) -> Iterator[tuple[int, bytes]]:
    with files.file(path) as file:
        for at in range(0, size, _BLOCK):
            data = file.read(at, min(_BLOCK, size - at))
            if any(data):
                yield at, data


def _checkpoint(store: Snapshot, queues: list[Queue]) -> OtherFile:
    """The file with the last queue offset that a pass has seen of each queue."""
    known = last_compacted(store.root, store.files)
    names = {f"{topic}_{queue_id}" for topic, queue_id in queues}
    kept = {name: offset for name, offset in known.items() if name in names}
    data = json.dumps({"empty": not kept, "queueOffsetMap": kept}).encode()
    return OtherFile(CHECKPOINT, len(data), lambda: iter([(0, data)]))
