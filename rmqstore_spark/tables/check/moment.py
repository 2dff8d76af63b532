"""A store as it was when `check` began. All parts of a check judge this moment, however long they take.

A broker puts a message into the log first, then into its queue, then into the index. So while a broker runs, and in a
copy that was made meanwhile (with `abort`, as after a crash), the three end at different messages. Units and items
beyond the log's end of that moment are not judged. And the last messages may not be in their queues yet: a running
broker will put them there, and a broker that starts after a crash does so from the checkpoint on
(CommitLog.recoverAbnormally). A store that nobody writes is judged without such allowances: where somebody begins to
write it after that moment, what was found since means nothing.
"""

import os
from dataclasses import dataclass

from rmqstore_spark.errors import RmqStoreError, StorageError
from rmqstore_spark.store.io.files import Files, file_status
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.layout import Layout, start_in

RECOVERED_SEGMENTS = 10  # MessageStoreConfig.commitLogRecoverMaxNum
_SLACK = 3000  # milliseconds that a broker goes back behind its checkpoint (StoreCheckpoint.getMinTimestamp)

# Is it locked, is there `abort`, and the checkpoint's size and time.
Sign = tuple[bool, bool, tuple[int, int] | None]


@dataclass(frozen=True)
class Moment:
    """The moment at which a store was looked at.

    Attributes:
        end: the physical offset where its log ended.
        is_unsettled: whether a broker was writing the store at that moment, or when it was copied or the broker killed.
        is_left: whether a broker was copied or killed: nobody writes now, and a broker that starts recovers the store.
        dispatched_from: the physical offset from which a broker puts messages into queues and index, now or when it
            starts.
        sign: what becomes another one when somebody begins to write a store that nobody was writing; None of any other
            store, and where files stay as they were first seen.
    """

    end: int
    is_unsettled: bool
    is_left: bool
    dispatched_from: int
    sign: Sign | None = None

    def is_over(self, layout: Layout, files: Files) -> bool:
        """Has somebody begun to write the store, which nobody was writing at that moment?"""
        return self.sign is not None and self.sign != _sign_of(layout, files)

    def is_gone(self, why: RmqStoreError, path: str, files: Files) -> bool:
        """Does an error only mean that a broker has deleted an expired file?"""
        return self.is_unsettled and _is_gone(why, path, files)


def moment_of(store: Snapshot) -> Moment:
    """The present moment of a store."""
    sign = None if store.files.is_snapshot else _sign_of(store.layout, store.files)
    is_locked = store.files.is_locked(store.layout.lock)
    is_unsettled = store.layout.abort or is_locked
    is_left = store.layout.abort and not is_locked
    if is_unsettled:
        return Moment(store.end, is_unsettled, is_left, _dispatched_from(store))
    return Moment(store.end, is_unsettled, is_left, store.end, sign)


def _sign_of(layout: Layout, files: Files) -> Sign:
    """Brokers and our writer lock a store, make `abort`, and write a checkpoint in the end."""
    found = file_status(layout.checkpoint, files)
    checkpoint = None if found is None else (found.st_size, found.st_mtime_ns)
    return files.is_locked(layout.lock), files.exists(os.path.join(layout.root, "abort")), checkpoint


def _dispatched_from(store: Snapshot) -> int:
    """The physical offset at which a broker that finds `abort` begins: the last segment whose first message is older
    than the checkpoint, and since 5.4.0 at most some segments back."""
    said = store.checkpoint
    known = min(said.get(name, 0) for name in ("physicMsgTimestamp", "logicsMsgTimestamp")) - _SLACK
    start = store.end
    for extent in store.log.extents[-RECOVERED_SEGMENTS:][::-1]:
        try:
            first = store.log.timestamp(extent.start)
        except RmqStoreError as why:
            if _is_gone(why, extent.segment.path, store.files):
                break
            raise
        start = extent.start
        if first and first <= known:  # a broker takes 0 for no time
            break
    return start


def _is_gone(why: RmqStoreError, path: str, files: Files) -> bool:
    return not isinstance(why, StorageError) and not files.exists(path)


def first_segment(commitlogs: list[str], files: Files) -> int:
    """The physical offset at which the log begins now: segments may have been deleted since the check began."""
    starts = [start for each in commitlogs for name in files.names(each) if (start := start_in(name)) is not None]
    return min(starts, default=0)
