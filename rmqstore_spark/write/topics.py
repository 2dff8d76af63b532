"""`config/topics.json`: the topics a broker serves (remoting.protocol.body.TopicConfigSerializeWrapper)."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.config import MOST_BYTES
from rmqstore_spark.store.config import parse as parse_json
from rmqstore_spark.store.files import ReadFile
from rmqstore_spark.store.message import SCHEDULE_TOPIC
from rmqstore_spark.write.disk import Tree

_SCHEDULE_QUEUES = 18  # one for each delay level; what the file says overrides what the broker gives it
_PERM_READ_WRITE = 6
_USUAL_QUEUES = 16  # TopicConfig's own, where the file does not say
_QUEUE_TYPES = ("SimpleCQ", None)
_CLEANUP_POLICIES = ("DELETE", None)

Table = dict[str, Any]


def parse(text: str) -> Table:
    """What a broker's JSON file says.

    Raises:
        ValueError: it is not JSON, nor fastjson's.
    """
    table = parse_json(text)
    if not isinstance(table, dict):
        raise ValueError(f"expected an object, found {type(table).__name__}")
    return table


def load(tree: Tree) -> Table:
    """The topics of a store; an empty table where it has none. As a broker does, it falls back on the `.bak`.

    Raises:
        RmqStoreError: neither file can be understood.
    """
    path = os.path.join(tree.path, "config", "topics.json")
    wrong = None
    for candidate in (path, path + ".bak"):
        if tree.find(candidate) is None:
            continue
        with ReadFile(candidate, tree) as file:
            data = file.read(0, min(file.size, MOST_BYTES + 1))
        try:
            text = data.decode()
            if text.strip():
                table = parse(text)
                _check(table)
                return table
        except ValueError as why:
            wrong = wrong or f"{candidate}: cannot be understood: {why}"
    if wrong:
        raise RmqStoreError(f"{wrong}; mend the file, or delete it for a broker to make its topics anew")
    return {}


def _check(table: Table) -> None:
    """See that what merge() works with is what a broker writes.

    Raises:
        ValueError: it is not.
    """
    configs = table.get("topicConfigTable", {})
    if not isinstance(configs, dict):
        raise ValueError("expected an object as topicConfigTable")
    for topic, config in configs.items():
        count = config.get("readQueueNums", _USUAL_QUEUES) if isinstance(config, dict) else _USUAL_QUEUES
        if type(count) is not int or not 0 <= count < 1 << 31:
            raise ValueError(f"topic {topic}: expected a number of queues as readQueueNums, found {count!r:.40}")


def refuse_unwritable(table: Table, topics: Iterable[str], root: str) -> None:
    """Topics whose queues a broker keeps in another form.

    Raises:
        RmqStoreError: naming the topic.
    """
    for topic in topics:
        config = table.get("topicConfigTable", {}).get(topic)
        attributes = config.get("attributes") if isinstance(config, dict) else None
        if not isinstance(attributes, dict):
            continue
        for name, usual in (("queue.type", _QUEUE_TYPES), ("cleanup.policy", _CLEANUP_POLICIES)):
            found = attributes.get(name, attributes.get("+" + name))
            if found not in usual:
                raise RmqStoreError(
                    f"{os.path.join(root, 'config', 'topics.json')}: topic {topic} has {name} {found}: expected "
                    f"{usual[0]}; other queues cannot be written: leave its messages away, or write them elsewhere"
                )


def lacking(table: Table, queues: Mapping[str, int]) -> dict[str, int]:
    """Of the topics with the queues that each needs, those that a broker would not serve all of."""
    known = table.get("topicConfigTable", {})
    return {
        topic: count
        for topic, count in queues.items()
        if not isinstance(known.get(topic), dict) or known[topic].get("readQueueNums", _USUAL_QUEUES) < count
    }


def merge(table: Table, queues: Mapping[str, int], now: int) -> bytes:
    """The topics with these ones added.

    Args:
        queues: how many queues each topic that is written to needs. A topic that is there only gets more to read from.
        now: ms.
    """
    known = dict(table.get("topicConfigTable", {}))
    for topic, count in sorted(queues.items()):
        if topic == SCHEDULE_TOPIC:
            count = max(count, _SCHEDULE_QUEUES)
        config = known.get(topic)
        if isinstance(config, dict):
            readable = max(count, config.get("readQueueNums", _USUAL_QUEUES))
            known[topic] = {**config, "readQueueNums": readable}
        else:
            known[topic] = {
                "order": False,
                "perm": _PERM_READ_WRITE,
                "readQueueNums": count,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": count,
            }
    version = table.get("dataVersion")
    version = version if isinstance(version, dict) else {}
    counter = version.get("counter", 0)
    version = {**version, "counter": counter + 1 if isinstance(counter, int) else 1, "timestamp": now}
    merged = {**table, "dataVersion": version, "topicConfigTable": known}
    return json.dumps(merged, indent="\t").encode()
