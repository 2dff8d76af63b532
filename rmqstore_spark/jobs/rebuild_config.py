"""config/ of a store on which no broker runs made anew, where files are broken, or topics have vanished from them: from
their backups, else from what offsets, queues and the log say. Rows tell what that is, and what could not be known.

Source of the defaults: org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from rmqstore_spark.columns import TEXT, Column, as_schema
from rmqstore_spark.errors import counted, one_line
from rmqstore_spark.query.options import ReadOptions, parse_options
from rmqstore_spark.read.run.told import heard
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
    offsets_in,
    what_is_taken,
)
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


class Told(NamedTuple):
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
    told: list[Told] = []

    def make(store: Snapshot) -> NewConfig:
        made = _Making(store)
        made.make()
        told[:] = made.told
        return NewConfig(made.files, made.broken)

    change_config(root, make, is_tried)
    return pa.Table.from_batches(batches(SCHEMA, told), SCHEMA)


class _Making:
    """The files of config/ that are made anew, one after the other: groups depend on topics and offsets.

    Attributes:
        files: the new files, by name.
        broken: the names of those in whose place something is that no broker can read.
        told: what is said of them.
    """

    def __init__(self, store: Snapshot) -> None:
        self._store = store
        self._now = milliseconds_now()
        files = store.files.unlinked()
        self._taken: dict[str, Taken] = {name: what_is_taken(store.root, name, files) for name in MEMBERS}
        self.files: dict[str, bytes] = {}
        self.broken = frozenset(
            name for name, taken in self._taken.items() if _is_there(store, name) and _is_other(taken)
        )
        self.told: list[Told] = []

    def make(self) -> None:
        topics = self._make_topics()
        offsets = self._make_offsets()
        self._make_groups({*topics, *self._store.queues.topics}, offsets)
        self._make_delays()
        for name in MEMBERS:
            if name not in (_TOPICS, _GROUPS, _DELAYS, *OFFSETS):
                self._make(name, {}, [])

    def _make(self, name: str, added: Mapping[str, object], of_entries: Iterable[Told]) -> None:
        """A file with the entries that it or its backup has, and some more; only where that is not what is there."""
        self._say(name, bool(added))
        self.told += of_entries
        taken, table = self._taken[name], self._taken[name].table
        if taken.is_backup or added or name in self.broken:
            version = {"dataVersion": next_version(table, self._now)} if added or "dataVersion" in table else {}
            entries = {**table.get(MEMBERS[name], {}), **added}
            self.files[name] = json.dumps({**table, **version, MEMBERS[name]: entries}, indent="\t").encode()

    def _say(self, name: str, is_more: bool) -> None:
        """Tell what there is of a file."""
        taken = self._taken[name]
        path = os.path.join(self._store.root, "config", name)
        why = one_line(taken.reasons[0].removeprefix(f"{path}: ")) if taken.reasons else "the file is missing"
        if taken.is_backup:
            assert taken.path is not None
            age = age_of(taken.path, taken.table, self._store.files)
            self.told.append(Told(name, None, BACKUP, f"{age}; what was changed since is not known; {why}"))
        elif taken.path is not None:
            count = len(taken.table.get(MEMBERS[name], {}))
            self.told.append(Told(name, None, FILE, f"{count:,} {'entry' if count == 1 else 'entries'}"))
        elif name in self.broken or is_more:
            self.told.append(Told(name, None, NOWHERE, f"{why}; {_LOST[name]}"))

    def _is_lost(self, name: str) -> bool:
        return self._taken[name].path is None

    # ---- topics

    def _make_topics(self) -> set[str]:
        """topics.json; returns the topics that it has then."""
        store, table = self._store, _with_numbers(self._taken[_TOPICS].table)
        queues = dict(_queues(store, table))
        in_log = _in_log(store, self.told) if self._is_lost(_TOPICS) else {}
        needed = {topic: max(queues.get(topic, 0), in_log.get(topic, 0)) for topic in {*queues, *in_log}}
        missing = lacking(table, {topic: count for topic, count in needed.items() if not is_brokers_own(topic)})
        known = table.get(MEMBERS[_TOPICS], {})
        rows = []
        for topic, count in sorted(missing.items()):
            source, details = QUEUES, f"{counted(count, 'queue')}; perm, order and attributes: RocketMQ's defaults"
            if topic in known:
                details = f"{counted(count, 'queue')}, of which the file knew {known[topic].get('readQueueNums')}"
            elif topic not in queues:
                source, details = LOG, f"{details}; no queue of it is there: perhaps it was deleted on purpose"
            rows.append(Told(_TOPICS, topic, source, details))
        merged = json.loads(
            merge(
                table, missing, self._now, of_batches(table, store.queues), compaction_topics(store.root, store.files)
            )
        )
        entries = merged[MEMBERS[_TOPICS]]
        before = self._taken[_TOPICS].table.get(MEMBERS[_TOPICS], {})
        self._make(_TOPICS, {topic: each for topic, each in entries.items() if each != before.get(topic)}, rows)
        return {*entries}

    # ---- groups

    def _make_offsets(self) -> set[str]:
        """The files with groups' offsets; returns the groups that they know."""
        for name in OFFSETS:
            self._make(name, {}, [])
        return {group for group, _ in offsets_in(self._taken[name].table.get("offsetTable", {}) for name in OFFSETS)}

    def _make_groups(self, topics: set[str], with_offsets: set[str]) -> None:
        """subscriptionGroup.json; and, where no offsets are left, the groups that lack them."""
        known = self._taken[_GROUPS].table.get(MEMBERS[_GROUPS], {})
        retried = dict(_retried(topics, {*known, *with_offsets}))
        added: dict[str, object] = {}
        rows = []
        if self._is_lost(_GROUPS) or self._taken[_GROUPS].is_backup:
            for group in sorted({*with_offsets, *retried} - {*known}):
                if not group.startswith(_BROKERS_GROUPS):
                    queues = self._store.queues.of_topic(RETRY_PREFIX + group)
                    count = max((queue.queue_id + 1 for queue in queues), default=1)
                    added[group] = {"groupName": group, **_DEFAULTS, "retryQueueNums": count}
                    source, what = (OFFSETS_OF_GROUPS, "it has offsets") if group in with_offsets else retried[group]
                    rows.append(Told(_GROUPS, group, source, f"{what}; RocketMQ's defaults"))
        self._make(_GROUPS, added, rows)
        if not with_offsets and all(self._is_lost(name) for name in OFFSETS):
            self.told += (
                Told(
                    OFFSETS[0],
                    group,
                    NOWHERE,
                    "where it stands is not known: it begins where its clients say (consumeFromWhere), and may miss "
                    "messages; rmqstore set-offsets puts it elsewhere",
                )
                for group in sorted({*known, *added, *retried})
                if not group.startswith(_BROKERS_GROUPS)
            )

    # ---- delayed messages

    def _make_delays(self) -> None:
        """delayOffset.json: where nothing is left of it, a broker would deliver again whatever is in the log."""
        found = dict(_delivered(self._store)) if self._is_lost(_DELAYS) else {}
        rows = [
            Told(_DELAYS, level, LOG, f"the first message that the log does not have delivered is at queue offset {at}")
            for level, at in found.items()
        ]
        self._make(_DELAYS, found, rows)


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


def _in_log(store: Snapshot, told: list[Told]) -> dict[str, int]:
    """The topics of the log's messages, with the queues that they need. Damage is passed over, and told."""
    found: dict[str, int] = {}
    with heard(is_silent=True) as damage:
        used = usage_of(_to_scan(store), _options(store, {}), ("topic", "queueId"))
    assert used is not None
    for topic, queue_id in zip(*(used[0].column(name).to_pylist() for name in ("topic", "queueId")), strict=True):
        if not is_light(topic) and queue_path(topic, queue_id) is not None:
            found[topic] = max(found.get(topic, 0), queue_id + 1)
    if damage.is_lost or store.faults:
        places = sorted({*damage.heard, *(fault.place for fault in store.faults)})
        told.append(
            Told(
                _TOPICS, None, NOWHERE, f"topics of damaged messages are not known: {one_line('; '.join(places)):.500}"
            )
        )
    return found


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
    with heard(is_silent=True):
        rows = read_table(_options(store, {"table": "delayed"}), [_to_scan(store)]).to_pylist()
    for queue in queues:
        level = queue.queue_id + 1
        waiting = [row["commitLogOffset"] for row in rows if row["delayLevel"] == level and row["state"] == "pending"]
        yield str(level), QueueCursor(queue).seek(min(waiting)) if waiting else queue.end
