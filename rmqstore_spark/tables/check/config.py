"""Topics and consumers' progress in config/, compared with the queues."""

import os
import time
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from rmqstore_spark.store.format.system_topics import is_brokers_own
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import (
    ALL_MEMBERS,
    DEFAULT_QUEUES,
    LIGHT_OFFSETS,
    MEMBERS,
    OFFSETS,
    Looked,
    Table,
    is_count,
    looked_at,
    member_of,
    offset_entries,
    why_unread,
    with_backup,
)
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.consumer_offsets import ConsumerOffsets, sound_offsets
from rmqstore_spark.store.structures.epochs import epochs_of
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.static_topics import LogicPart
from rmqstore_spark.tables.check.layout import has_queues
from rmqstore_spark.tables.check.problems import CONFIG_CALL, Finding

_LOOKS = 3  # at a file that a broker may be replacing
_SECONDS_BETWEEN = 0.05
_TOO_LARGE = (
    "the file is too large to be parsed here, and a broker may well take it: see with another tool whether it is JSON; "
    f"if it is not, move it away, and {CONFIG_CALL} takes its .bak, or what else tells of it"
)
_BY_HAND = (
    "a broker starts without the contents of this file, or not at all: bring it back, or consumers of static topics "
    "lose their place"
)
_BACKUP_BY_HAND = "the backup may be older: where it is right, copy it to where the file should be"

# Topic, group, and the group's offsets by queueId.
_Entry = tuple[str, str, Iterable[tuple[int, int]]]


def check_config(store: Snapshot, log_start: int) -> Iterator[Finding]:
    """Problems of the files of config/, of its topics and of its consumers' offsets.

    Args:
        log_start: the first physical offset that has not expired.
    """
    yield from check_config_files(store)
    if not has_queues(store):
        return  # only a RocksDB knows the queues
    if why_unread(store.root, "topics.json", store.files) is None:
        yield from _topics(store)
    yield from _offsets(store, log_start)


def check_config_files(store: Snapshot) -> Iterator[Finding]:
    """Files of config/, and epochs, that cannot be read."""
    looks = {name: _look(store, name) for name in ALL_MEMBERS if name not in store.sound_offsets}
    for name, look in looks.items():
        path = os.path.join(store.root, "config", name)
        if look.why_not is not None:
            # Offsets are read whatever their size, but not in any form.
            problem = "notLookedAt" if look.is_too_large and name not in OFFSETS else "brokenConfig"
            advice = _TOO_LARGE if look.is_too_large else _BY_HAND if name not in MEMBERS else None
            yield Finding(problem, path, expected="what a broker writes", found=look.why_not, advice=advice)
    for name, look in looks.items():
        if look.backup is not None:
            found, age = look.backup
            path = os.path.join(store.root, "config", name)
            advice = None if name in MEMBERS else _BACKUP_BY_HAND
            told = f"{found}; a broker takes {name}.bak, {age}"
            yield Finding("oldConfig", path, expected="a file", found=told, advice=advice)
    for path, why in epochs_of(store.root, store.files).wrong:
        yield Finding("brokenEpochs", path, expected="what a broker writes", found=why)


def _look(store: Snapshot, name: str) -> Looked:
    for look in range(_LOOKS):
        time.sleep(_SECONDS_BETWEEN * (look > 0))
        looked = looked_at(store.root, name, store.files)
        if looked.backup is None:
            break
    return looked


def _topics(store: Snapshot) -> Iterator[Finding]:
    path = os.path.join(store.root, "config", "topics.json")
    # Empty directories are no queues: the writer makes no entries for them either (topics.with_queues).
    queues = {topic: store.queues.all_of_topic(topic) for topic in store.queues.topics}
    topics = {topic for topic, some in queues.items() if any(queue.in_files for queue in some)}
    if not any(store.files.exists(candidate) for candidate in with_backup(path)):
        if topics and store.has_in_files("topics"):
            yield Finding("noTopicConfig", path, expected="a file", found="none", count=len(topics))
        return
    table = member_of(store.root, "topics.json", "topicConfigTable", store.files)
    for topic in sorted(topics):
        entry = table.get(topic)
        if not isinstance(entry, dict):
            if not is_brokers_own(topic):
                yield Finding("topicWithoutConfig", path, topic=topic, expected="an entry", found="none")
            continue
        said = entry.get("readQueueNums", DEFAULT_QUEUES)
        count = said if is_count(said) else DEFAULT_QUEUES
        for queue in queues[topic]:
            if queue.queue_id >= count and queue.last() is not None:
                yield Finding(
                    "queueBeyondConfig",
                    path,
                    topic=topic,
                    queue_id=queue.queue_id,
                    expected=f"readQueueNums of at least {queue.queue_id + 1}",
                    found=f"{count}",
                )
    for topic in sorted(set(table) - topics):
        yield Finding("topicWithoutQueue", path, topic=topic, expected="a queue", found="none")


def _offsets(store: Snapshot, log_start: int) -> Iterator[Finding]:
    bounds = _BoundsOfQueues(store, log_start)
    parts = _parts_here(store)
    name, other = store.offsets_files
    path = os.path.join(store.root, "config", name)
    if other is not None:
        expected = f"no offsets but those in {name}, where they were written last"
        yield Finding("otherOffsets", os.path.join(store.root, "config", other), expected=expected, found="others")
    sound = sound_offsets(path, store.files, are_all=True) if name in store.sound_offsets else None
    members = (MEMBERS[name], LIGHT_OFFSETS) if sound is None else ()
    table = offset_entries({member: member_of(store.root, name, member, store.files) for member in members})
    topics = {key.partition("@")[0] for key in table} if sound is None else {topic for _, topic in sound}
    bounds.look_up(topics)
    for topic, group, offsets in _parsed(table) if sound is None else _streamed(sound):
        queues = {queue.queue_id: queue for queue in store.queues.all_of_topic(topic)}
        for queue_id, offset in _asked_for(offsets, parts[topic]) if topic in parts else offsets:
            finding = _offset(queues.get(queue_id), offset, bounds)
            if finding is not None:
                problem, expected = finding
                found = f"{offset} of group {group}"
                yield Finding(problem, path, None, None, topic, queue_id, offset, expected, found)


def _parts_here(store: Snapshot) -> dict[str, list[LogicPart]]:
    """By static topic the parts of its logic queues that are in this broker, each queue's in their order."""
    found: dict[str, list[LogicPart]] = {}
    for part in store.static_parts:
        if part.is_here:
            found.setdefault(part.topic, []).append(part)
    return found


def _asked_for(offsets: Iterable[tuple[int, int]], parts: list[LogicPart]) -> Iterator[tuple[int, int]]:
    """A group's offsets in a static topic that a broker asks for. They count in the broker's own queues, not in logic
    ones (ConsumerManageProcessor), and of a logic queue it takes that of the last part where the group has one."""
    known = dict(offsets)
    last = {part.logic_queue_id: part.queue_id for part in parts if part.queue_id in known}
    passed = {part.queue_id for part in parts} - {*last.values()}
    return ((queue_id, offset) for queue_id, offset in known.items() if queue_id not in passed)


def _parsed(table: Table) -> Iterator[_Entry]:
    for key, offsets in sorted(table.items()):
        topic, _, group = key.partition("@")
        if isinstance(offsets, dict):
            numbers = (each for each in offsets.items() if each[0].isascii() and each[0].isdecimal())
            yield topic, group, ((int(text), offset) for text, offset in numbers if type(offset) is int)


def _streamed(sound: ConsumerOffsets) -> Iterator[_Entry]:
    """The same, of a file of any size."""
    names = sound.names
    ranks = np.empty(len(names.topics), np.int64)
    ranks[sorted(range(len(ranks)), key=lambda at: f"{names.topics[at]}@")] = np.arange(len(ranks))  # T-1@ before T@
    for at in np.lexsort((names.group_of, ranks[names.topic_of])):
        group, topic = names[at]
        rows = slice(*sound.bounds[at : at + 2].tolist())
        yield topic, group, zip(sound.queue_ids[rows].tolist(), sound.offsets[rows].tolist(), strict=True)


def _offset(queue: Queue | None, offset: int, bounds: "_BoundsOfQueues") -> tuple[str, str] | None:
    """The problem of a group's offset in a queue, and the expected value."""
    if queue is None:
        return ("offsetWithoutQueue", "a queue") if offset > 0 else None
    least, end = bounds.of(queue)
    if offset > end:
        return "offsetAheadOfQueue", f"at most {end}"
    return ("offsetBehindQueue", f"at least {least}") if offset < least else None


class _BoundsOfQueues:
    """_bounds() of queues, each looked up once."""

    def __init__(self, store: Snapshot, log_start: int) -> None:
        self._store = store
        self._log_start = log_start
        self._known: dict[Queue, tuple[int, int]] = {}

    def look_up(self, topics: Collection[str]) -> None:
        """Look up the queues of topics side by side, where requests take long."""
        if self._store.files.is_slow:
            queues = [queue for topic in sorted(topics) for queue in self._store.queues.all_of_topic(topic)]
            new = [queue for queue in queues if queue not in self._known]
            found = self._store.files.schedule.mapped(lambda queue: _bounds(queue, self._log_start), new)
            self._known.update(zip(new, found, strict=True))

    def of(self, queue: Queue) -> tuple[int, int]:
        if queue not in self._known:
            self._known[queue] = _bounds(queue, self._log_start)
        return self._known[queue]


def _bounds(queue: Queue, log_start: int) -> tuple[int, int]:
    """The queue's first offset that has not expired, and the offset after its last."""
    return queue.offsets_from(QueueCursor(queue).seek(log_start))
