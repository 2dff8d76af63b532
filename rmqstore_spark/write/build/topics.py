"""`config/topics.json`: the topics a broker serves (remoting.protocol.body.TopicConfigSerializeWrapper)."""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.light_queues import is_light
from rmqstore_spark.store.format.sizes import MOST_QUEUES
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.store.structures import config
from rmqstore_spark.store.structures.config import DEFAULT_QUEUES, Table
from rmqstore_spark.store.structures.layout import queue_path
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.write.fs.disk import Tree

_SCHEDULE_QUEUES = 18  # one for each delay level; the file's entry overrides the broker's default
_PERM_READ_WRITE = 6
_LEAVE_AWAY = "other queues cannot be written: omit its messages, or write them elsewhere"
_QUEUE_TYPES = ("SimpleCQ", None)
_CLEANUP_POLICIES = ("DELETE", None)


def load(tree: Tree) -> Table:
    """The topics of a store; an empty table where it has none. Where the file is missing or empty, its backup counts.

    Unlike config.load this function does not guess, as the table that is written back must lack nothing.

    Raises:
        RmqStoreError: a file cannot be read; or there are files, but none that can be understood.
    """
    wrong = None
    file = os.path.join(tree.path, "config", "topics.json")
    for path in config.with_backup(file):
        if tree.find(path) is None:
            continue
        try:
            text = config.read_text(path, tree.files, "strict")
            if text.strip():
                table = parse(text)
                if path != file:
                    config.say_of_backup(file, table, tree.files)
                return table
        except ValueError as why:
            wrong = wrong or f"{path}: cannot be understood: {why}"
    if wrong:
        raise RmqStoreError(f"{wrong}; `rmqstore rebuild --config` makes it anew of what queues and the log say")
    return {}


def parse(text: str) -> Table:
    """The topics in a text, provided that the parts merge() works with are as a broker writes them.

    Raises:
        ValueError: they are not.
    """
    table = config.parse(text)
    topics = table.get("topicConfigTable", {})
    if not isinstance(topics, dict):
        raise ValueError("expected an object as topicConfigTable")
    for topic, entry in topics.items():
        count = _readable(entry)
        if not config.is_count(count):
            raise ValueError(f"topic {topic}: expected a number of queues as readQueueNums, found {count!r:.40}")
    return table


def _readable(entry: Any) -> Any:
    """The number of queues that a topic has to read from, by its entry."""
    return entry.get("readQueueNums", DEFAULT_QUEUES) if isinstance(entry, dict) else DEFAULT_QUEUES


def refuse_unwritable(tree: Tree, table: Table, topics: Iterable[str]) -> None:
    """Refuse topics whose messages a broker keeps in another form.

    Args:
        table: as of load().

    Raises:
        RmqStoreError: naming the topic.
    """
    for topic in topics:
        refuse_batches(tree, table, topic)
        _refuse_attribute(tree.path, table, topic, "cleanup.policy", _CLEANUP_POLICIES)


def of_batches(table: Table, queues: ConsumeQueues) -> frozenset[str]:
    """The topics whose queues are BatchCQs: by topics.json, or, if it does not know the topic, by the queues that
    exist. A broker does not start where both differ.

    Args:
        table: as of load().
        queues: the queues of the store.
    """
    entries = table.get("topicConfigTable", {})
    named = config.batch_topics({topic: entry for topic, entry in entries.items() if isinstance(entry, dict)})
    return frozenset(named | {queue.topic for queue in queues.batch if queue.topic not in entries and queue.sizes})


def refuse_batches(tree: Tree, table: Table, topic: str, advice: str = _LEAVE_AWAY) -> None:
    """Refuse a topic whose queues are of batches (BatchCQ), by topics.json or by the queues that exist.

    Args:
        advice: what the user can do instead.

    Raises:
        RmqStoreError: the topic's queues are of batches.
    """
    _refuse_attribute(tree.path, table, topic, "queue.type", _QUEUE_TYPES, advice)
    queue = queue_path(topic, 0)
    directory = None if queue is None else os.path.join(tree.path, "batchconsumequeue", os.path.dirname(queue))
    if directory is not None and tree.is_directory(directory) and tree.names(directory):
        raise RmqStoreError(
            f"{directory}: topic {topic} has queues of batches (queue.type BatchCQ): expected simple ones; {advice}"
        )


def _refuse_attribute(
    root: str, table: Table, topic: str, name: str, usual: Collection[str | None], advice: str = _LEAVE_AWAY
) -> None:
    entry = table.get("topicConfigTable", {}).get(topic)
    attributes = entry.get("attributes") if isinstance(entry, dict) else None
    found = attributes.get(name, attributes.get("+" + name)) if isinstance(attributes, dict) else None
    if found not in usual:
        raise RmqStoreError(
            f"{os.path.join(root, 'config', 'topics.json')}: topic {topic} has {name} {found}: expected "
            f"{next(iter(usual))}; {advice}"
        )


def with_queues(table: Table, needed: Mapping[str, int], queues: ConsumeQueues) -> dict[str, int]:
    """The topics with the queues that each needs, including existing queues that have files: those of the needed
    topics, or of all topics if the table knows none. A topic whose entry had fewer queues would not be served whole.

    Args:
        needed: how many queues each topic needs.
        queues: the queues of the store.
    """
    counts = dict(needed)
    for topic in sorted(needed if table.get("topicConfigTable") else {*needed, *queues.topics}):
        if not queues.batch_of_topic(topic):
            for queue in queues.of_topic(topic):
                if queue.in_files:
                    counts[topic] = max(counts.get(topic, 0), queue.queue_id + 1)
    return counts


def lacking(table: Table, queues: Mapping[str, int]) -> dict[str, int]:
    """The topics, each with the queues it needs, of which a broker would not serve every queue."""
    known = table.get("topicConfigTable", {})
    return {
        topic: count
        for topic, count in _configured(queues)
        if not isinstance(known.get(topic), dict) or _readable(known[topic]) < min(count, MOST_QUEUES)
    }


def _configured(queues: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Those that a broker serves only if topics.json has them: not light queues (LmqTopicConfigManager)."""
    return ((topic, count) for topic, count in queues.items() if not is_light(topic))


def merge(
    table: Table,
    queues: Mapping[str, int],
    now: int,
    batch_topics: Collection[str] = (),
    compacted: Collection[str] = (),
) -> bytes:
    """The text of topics.json with these topics added.

    Args:
        batch_topics: those whose queues are BatchCQs.
        compacted: those that are compacted.
        queues: the number of queues that each topic of the write needs. An existing topic only gets more queues to read
            from.
        now: the time in ms.
    """
    known = dict(table.get("topicConfigTable", {}))
    for topic, count in sorted(_configured(queues)):
        if topic == SCHEDULE_TOPIC:
            count = max(count, _SCHEDULE_QUEUES)
        count = min(count, MOST_QUEUES)  # a message's queueId may be above that; no broker serves such a queue
        entry = known.get(topic)
        if isinstance(entry, dict):
            known[topic] = {**entry, "readQueueNums": max(count, _readable(entry))}
        else:
            known[topic] = {
                "order": False,
                "perm": _PERM_READ_WRITE,
                "readQueueNums": count,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": count,
                **_attributes(topic in batch_topics, topic in compacted),
            }
    merged = {**table, "dataVersion": next_version(table, now), "topicConfigTable": known}
    return json.dumps(merged, indent="\t").encode()


def _attributes(is_batch: bool, is_compacted: bool) -> Table:
    found = {"queue.type": "BatchCQ"} if is_batch else {}
    found |= {"cleanup.policy": "COMPACTION"} if is_compacted else {}
    return {"attributes": found} if found else {}


def next_version(table: Table, now: int) -> Table:
    """The dataVersion of a file of config/ that is changed, by which slaves notice the change.

    Args:
        table: the file before.
        now: the time in ms.
    """
    version = table.get("dataVersion")
    version = version if isinstance(version, dict) else {}
    counter = version.get("counter", 0)
    return {**version, "counter": counter + 1 if isinstance(counter, int) else 1, "timestamp": now}
