"""config/ of a store on which no broker runs made anew, where files are broken, or topics have vanished from them: from
their backups, else from what offsets, queues and the log say. Rows tell what that is, and what could not be known.

Source of the defaults: org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import TEXT, Column, as_schema
from rmqstore_spark.errors import DamagedStoreError, counted, one_line
from rmqstore_spark.query.options import ReadOptions, parse_options
from rmqstore_spark.read.run.damage_reports import listening
from rmqstore_spark.store.format.clock import milliseconds_now
from rmqstore_spark.store.format.light_queues import is_light
from rmqstore_spark.store.format.system_topics import DEAD_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, is_brokers_own
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.compaction import compaction_topics
from rmqstore_spark.store.structures.config import (
    MEMBERS,
    OFFSETS,
    Table,
    Taken,
    age_of,
    is_count,
    offset_entries,
    offsets_in,
    what_is_taken,
)
from rmqstore_spark.store.structures.consumer_offsets import ConsumerOffsets, sound_offsets
from rmqstore_spark.store.structures.layout import queue_path
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.registry import read_table
from rmqstore_spark.tables.usage import usage_of
from rmqstore_spark.write.build.topics import lacking, merge, next_version, of_batches
from rmqstore_spark.write.config_file import NewConfig, change_config

FILE, BACKUP, QUEUES, LOG, OFFSETS_OF_GROUPS, RETRIES = "file", "backup", "queues", "log", "offsets", "retries"
NOWHERE = "nowhere"
_COLUMNS = (
    Column("file", TEXT, "name of the file in config/"),
    Column("entry", TEXT, "topic, consumer group or delay level that the file has; null for the file as a whole"),
    Column("source", TEXT, "where it is from: file, backup, offsets, retries, queues, log, or nowhere"),
    Column("details", TEXT, "what was found, and what could not be known"),
)
SCHEMA = as_schema(_COLUMNS)

_TOPICS, _GROUPS, _DELAYS = "topics.json", "subscriptionGroup.json", "delayOffset.json"
_FIRSTS = ("delayLevel", "commitLogOffset_min")
_BROKERS_GROUPS = ("CID_RMQ_SYS_", "CID_ONS", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP")
_DEFAULTS = {
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "consumeMessageOrderly": False,
    "retryMaxTimes": 16,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
    "groupSysFlag": 0,
    "consumeTimeoutMinute": 15,
}
# What it means that nothing of a file is left.
_LOST = {
    _TOPICS: "perm, order and attributes (as message.type) are not known: they are RocketMQ's defaults, but for what "
    "queues are of (mqadmin updateTopic sets them)",
    _GROUPS: "what groups are configured to do is not known: they have RocketMQ's defaults (mqadmin updateSubGroup "
    "sets it)",
    "consumerOffset.json": "where groups stand is not known",
    "lmqConsumerOffset.json": "where groups stand in light queues is not known",
    _DELAYS: "how far delayed messages were delivered is not known but from the log",
    "messageRequestMode.json": "which groups share queues by pop is not known: none does (mqadmin setConsumeMode)",
    "consumerOrderInfo.json": "which messages groups that pop in order have in hand is not known: they get them again",
    "consumerFilter.json": "filters are not known until their consumers come back",
}


class Origin(NamedTuple):
    """A row: where a file or an entry of it is from. The fields are the columns."""

    file: str
    entry: str | None
    source: str
    details: str


def rebuild_config(root: str, is_tried: bool) -> pa.Table:
    """Make the files of config/ anew that are broken or lack topics.

    Args:
        root: the store directory, absolute.
        is_tried: whether the store stays as it is.

    Returns:
        Rows of SCHEMA.

    Raises:
        RmqStoreError: a broker runs on the store, or it cannot be written to. The store is unchanged, unless the text
            says otherwise.
    """
    origins: list[Origin] = []

    def make(store: Snapshot) -> NewConfig:
        found = _Found.of(store)
        files = _files(found)
        origins[:] = (row for file in files for row in file.origins)
        return NewConfig({file.name: file.data for file in files if file.data is not None}, found.broken)

    change_config(root, make, is_tried)
    return pa.Table.from_batches(batches(SCHEMA, origins), SCHEMA)


class _Found(NamedTuple):
    """What there is of config/.

    Attributes:
        taken: what is taken of each file, by its name.
        broken: the names of files in whose place something is that no broker can read.
        now: milliseconds.
        large: the offsets of files that are as a broker writes them, and larger than what is parsed: they stay.
    """

    store: Snapshot
    taken: Mapping[str, Taken]
    broken: frozenset[str]
    now: int
    large: Mapping[str, ConsumerOffsets]

    @classmethod
    def of(cls, store: Snapshot) -> _Found:
        files = store.files.unlinked()
        taken = {name: what_is_taken(store.root, name, files) for name in MEMBERS}
        large = {}
        for name in (name for name in MEMBERS if taken[name].is_too_large):
            path = os.path.join(store.root, "config", name)
            sound = sound_offsets(path, files) if name in OFFSETS else None
            if sound is None:
                raise DamagedStoreError(f"{taken[name].why_not}, so whether it is broken is not known; mend it by hand")
            taken[name], large[name] = Taken(path, {}, []), sound
        broken = (name for name in MEMBERS if _is_there(store, name) and _is_other(taken[name]))
        return cls(store, taken, frozenset(broken), milliseconds_now(), large)

    def entries(self, name: str) -> dict[str, Any]:
        """The entries of a file, as far as they are known."""
        if name in self.large:
            return {f"{topic}@{group}": None for group, topic in self.large[name]}
        known: dict[str, Any] = self.taken[name].table.get(MEMBERS[name], {})
        return known

    def is_lost(self, name: str) -> bool:
        """Is there neither a file of this name nor a backup of it that can be read?"""
        return self.taken[name].path is None

    @property
    def groups_with_offsets(self) -> set[str]:
        """Those of both files of offsets: the one that counts may be broken, and a group too many does no harm."""
        known = (self.large.get(name) or offsets_in(offset_entries(self.taken[name].table)) for name in OFFSETS)
        return {group for of_file in known for group, _ in of_file}


class _File(NamedTuple):
    """A file as it is to be.

    Attributes:
        data: its contents; None where what is there stays.
        origins: where it, and entries of it, are from.
        entries: what it has then.
    """

    name: str
    data: bytes | None
    origins: list[Origin]
    entries: Mapping[str, object]


def _files(found: _Found) -> list[_File]:
    """All files, in the order in which they are shown."""
    topics = _topics(found)
    groups = _groups(found, {*topics.entries, *found.store.queues.topics})
    made = {file.name: file for file in (topics, groups, _delays(found))}
    names = [_TOPICS, *OFFSETS, _GROUPS, _DELAYS]
    names += [name for name in MEMBERS if name not in names]
    return [made[name] if name in made else _file(found, name) for name in names]


def _file(
    found: _Found, name: str, added: Mapping[str, object] | None = None, of_entries: Iterable[Origin] = ()
) -> _File:
    """A file with the entries that it or its backup has, and some more; only where that is not what is there.

    Args:
        of_entries: what is said of its entries.
    """
    taken, added = found.taken[name], added or {}
    entries = {**found.entries(name), **added}
    origins = [*_origins_of(found, name, bool(added)), *of_entries]
    if not (taken.is_backup or added or name in found.broken):
        return _File(name, None, origins, entries)
    version = {"dataVersion": next_version(taken.table, found.now)} if added or "dataVersion" in taken.table else {}
    data = json.dumps({**taken.table, **version, MEMBERS[name]: entries}, indent="\t").encode()
    return _File(name, data, origins, entries)


def _origins_of(found: _Found, name: str, is_more: bool) -> Iterator[Origin]:
    """What is said of a file as a whole.

    Args:
        is_more: whether it gets more entries.
    """
    taken = found.taken[name]
    path = os.path.join(found.store.root, "config", name)
    why = one_line(taken.reasons[0].removeprefix(f"{path}: ")) if taken.reasons else "the file is missing"
    if taken.is_backup:
        assert taken.path is not None
        age = age_of(taken.path, taken.table, found.store.files)
        yield Origin(name, None, BACKUP, f"{age}; what was changed since is not known; {why}")
    elif taken.path is not None:
        count = len(found.entries(name))
        yield Origin(name, None, FILE, f"{count:,} {'entry' if count == 1 else 'entries'}")
    elif name in found.broken or is_more:
        yield Origin(name, None, NOWHERE, f"{why}; {_LOST[name]}")


# ---- topics


def _topics(found: _Found) -> _File:
    """topics.json."""
    store, table = found.store, _with_numbers(found.taken[_TOPICS].table)
    queues = dict(_queues(store, table))
    in_log, of_damage = _in_log(store) if found.is_lost(_TOPICS) else ({}, [])
    needed = {topic: max(queues.get(topic, 0), in_log.get(topic, 0)) for topic in {*queues, *in_log}}
    missing = lacking(table, {topic: count for topic, count in needed.items() if not is_brokers_own(topic)})
    known = table.get(MEMBERS[_TOPICS], {})
    rows = of_damage
    for topic, count in sorted(missing.items()):
        source, details = QUEUES, f"{counted(count, 'queue')}; perm, order and attributes: RocketMQ's defaults"
        if topic in known:
            details = f"{counted(count, 'queue')}, of which the file knew {known[topic].get('readQueueNums')}"
        elif topic not in queues:
            source, details = LOG, f"{details}; no queue of it is there: perhaps it was deleted on purpose"
        rows.append(Origin(_TOPICS, topic, source, details))
    kinds = of_batches(table, store.queues), compaction_topics(store.root, store.files)
    entries = json.loads(merge(table, missing, found.now, *kinds))[MEMBERS[_TOPICS]]
    before = found.entries(_TOPICS)
    return _file(found, _TOPICS, {topic: each for topic, each in entries.items() if each != before.get(topic)}, rows)


# ---- groups


def _groups(found: _Found, topics: set[str]) -> _File:
    """subscriptionGroup.json; what is said of it names the groups that lack offsets, where none are left."""
    known, with_offsets = found.entries(_GROUPS), found.groups_with_offsets
    retried = dict(_retried(topics, {*known, *with_offsets}))
    added: dict[str, object] = {}
    rows = []
    if found.is_lost(_GROUPS) or found.taken[_GROUPS].is_backup:
        for group in sorted({*with_offsets, *retried} - {*known}):
            if not group.startswith(_BROKERS_GROUPS):
                queues = found.store.queues.of_topic(RETRY_PREFIX + group)
                count = max((queue.queue_id + 1 for queue in queues), default=1)
                added[group] = {"groupName": group, **_DEFAULTS, "retryQueueNums": count}
                source, what = (OFFSETS_OF_GROUPS, "it has offsets") if group in with_offsets else retried[group]
                rows.append(Origin(_GROUPS, group, source, f"{what}; RocketMQ's defaults"))
    if not with_offsets and all(found.is_lost(name) for name in OFFSETS):
        rows += (
            Origin(
                OFFSETS[0],
                group,
                NOWHERE,
                "where it stands is not known: it begins where its clients say (consumeFromWhere), and may miss "
                "messages; rmqstore set-offsets puts it elsewhere",
            )
            for group in sorted({*known, *added, *retried})
            if not group.startswith(_BROKERS_GROUPS)
        )
    return _file(found, _GROUPS, added, rows)


# ---- delayed messages


def _delays(found: _Found) -> _File:
    """delayOffset.json: where nothing is left of it, a broker would deliver again whatever is in the log."""
    levels = dict(_delivered(found.store)) if found.is_lost(_DELAYS) else {}
    rows = [
        Origin(_DELAYS, level, LOG, f"the first message that the log does not have delivered is at queue offset {at}")
        for level, at in levels.items()
    ]
    return _file(found, _DELAYS, levels, rows)


def _is_there(store: Snapshot, name: str) -> bool:
    return store.files.exists(os.path.join(store.root, "config", name))


def _is_other(taken: Taken) -> bool:
    """Is what was taken not the file itself?"""
    return taken.path is None or taken.is_backup


def _with_numbers(table: Table) -> Table:
    """topics.json with a number of queues in each entry: 0 in the place of anything else."""
    entries = table.get(MEMBERS[_TOPICS], {})
    wrong = [name for name, entry in entries.items() if not is_count(entry.get("readQueueNums", 0))]
    return {**table, MEMBERS[_TOPICS]: {**entries, **{name: {**entries[name], "readQueueNums": 0} for name in wrong}}}


def _queues(store: Snapshot, table: Table) -> Iterator[tuple[str, int]]:
    """The topics that have queues, each with the number that it needs. Of a topic that topics.json knows, only queues
    with messages count: an administrator may have taken others away."""
    known = table.get(MEMBERS[_TOPICS], {})
    for topic in sorted(store.queues.topics):
        numbers = [
            queue.queue_id
            for queue in store.queues.all_of_topic(topic)
            if queue.in_files and (topic not in known or queue.last() is not None)
        ]
        if numbers:
            yield topic, max(numbers) + 1


def _in_log(store: Snapshot) -> tuple[dict[str, int], list[Origin]]:
    """The topics of the log's messages, with the queues that they need; and what is said of damage, which is passed
    over."""
    found: dict[str, int] = {}
    with listening(is_silent=True) as damage:
        used = usage_of(_to_scan(store), _options(store, {}), ("topic", "queueId"))
    assert used is not None
    for topic, queue_id in zip(*(used[0].column(name).to_pylist() for name in ("topic", "queueId")), strict=True):
        if not is_light(topic) and queue_path(topic, queue_id) is not None:
            found[topic] = max(found.get(topic, 0), queue_id + 1)
    if not (damage.is_lost or store.faults):
        return found, []
    places = sorted({*damage.texts, *(fault.place for fault in store.faults)})
    why = f"topics of damaged messages are not known: {one_line('; '.join(places)):.500}"
    return found, [Origin(_TOPICS, None, NOWHERE, why)]


def _to_scan(store: Snapshot) -> Snapshot:
    """The same store, of which a task can have a copy: a writer's has directories open."""
    return Snapshot.find(store.root, Files())


def _options(store: Snapshot, given: Mapping[str, str]) -> ReadOptions:
    return parse_options({"path": store.root, "mode": "DROPMALFORMED", **given})


def _retried(topics: set[str], groups: set[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Groups that retry topics and DLQs are named after, each with a source and the topic. A pop retry topic is named
    after group and topic (KeyBuilder): only a group that is known otherwise can be told from V1's."""
    dead = {topic.removeprefix(DEAD_PREFIX) for topic in topics if topic.startswith(DEAD_PREFIX)}
    for topic in sorted(topics):
        if topic.startswith(DEAD_PREFIX):
            yield topic.removeprefix(DEAD_PREFIX), (RETRIES, topic)
        elif topic.startswith(RETRY_PREFIX):
            group, plus, _ = topic.removeprefix(RETRY_PREFIX).partition("+")
            cuts = [at for at, letter in enumerate(group) if letter == "_" and not plus]
            if not any(group[:at] in groups | dead and group[at + 1 :] in topics for at in cuts):
                yield group, (RETRIES, topic)


def _delivered(store: Snapshot) -> Iterator[tuple[str, int]]:
    """Where each delay level goes on: at the first message that the log does not have a second time, delivered."""
    queues = [queue for queue in store.queues.of_topic(SCHEDULE_TOPIC) if queue.in_files]
    if not queues:
        return
    given = {"table": "delayed", "columns": "state,delayLevel,commitLogOffset"}
    with listening(is_silent=True):
        rows = read_table(_options(store, given), [_to_scan(store)])
    waiting = rows.filter(pc.equal(rows.column("state"), "pending"))
    firsts = waiting.group_by("delayLevel").aggregate([("commitLogOffset", "min")])
    first_of = dict(zip(*(firsts.column(name).to_pylist() for name in _FIRSTS), strict=True))
    for queue in queues:
        level = queue.queue_id + 1
        yield str(level), QueueCursor(queue).seek(first_of[level]) if level in first_of else queue.end
