"""config/*.json: what the broker was told of topics and consumers. Hints: nothing that is in them needs to be true.

fastjson writes them, with numbers as keys in no quotes: {0:12,1:9}. While one is replaced, only its .bak may be there.
Source: org.apache.rocketmq.common.ConfigManager, broker.BrokerPathConfigHelper.
"""

import json
import os
import re
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.files import Counters, ReadFile

_MOST_BYTES = 64 * 1024 * 1024  # 100 000 topics are half of it
_DEFAULT_QUEUES = 16  # TopicConfig.defaultReadQueueNums
# A text, which stays what it is, or a number before a colon. Also a text without an end: it is then all that is left.
_TEXT_OR_KEY = re.compile(r'("(?:[^"\\]|\\.)*"?)|(?<![\w.+-])(-?[0-9]+)(?=\s*:)', re.DOTALL)


def load(path: str, counters: Counters) -> dict[str, Any] | None:
    """A file's object, its backup's when it has none, or None. Whole numbers as keys become text.

    Args:
        path: the file without `.bak`.
        counters: where to count requests and bytes.
    """
    for candidate in (path, path + ".bak"):
        try:
            found = parse(_read(candidate, counters))
        except (RmqStoreError, ValueError, RecursionError):  # ValueError: a JSONDecodeError, or a number without end
            continue
        if isinstance(found, dict):
            return found
    return None


def _read(path: str, counters: Counters) -> str:
    if not os.path.isfile(path):
        return ""
    with ReadFile(path, counters) as file:
        size = file.size
        return file.read(0, size).decode(errors="replace") if size <= _MOST_BYTES else ""


def parse(text: str) -> Any:
    """What a broker's JSON says; a ValueError where it is none."""
    return json.loads(_TEXT_OR_KEY.sub(lambda found: found[1] or f'"{found[2]}"', text))


def topic_queues(root: str, counters: Counters) -> dict[str, int]:
    """The topics of config/topics.json, each with its number of queues: the larger of those to read and to write.

    Args:
        root: the store directory.
        counters: where to count requests and bytes.
    """
    queues = {}
    for topic, config in _table(root, "topics.json", "topicConfigTable", counters).items():
        if isinstance(config, dict):
            numbers = [config.get(name, _DEFAULT_QUEUES) for name in ("readQueueNums", "writeQueueNums")]
            queues[topic] = max((n for n in numbers if type(n) is int and 0 <= n < 1 << 31), default=_DEFAULT_QUEUES)
    return queues


def offset_topics(root: str, counters: Counters) -> set[str]:
    """The topics that some group has consumed, from config/consumerOffset.json.

    Args:
        root: the store directory.
        counters: where to count requests and bytes.
    """
    table = _table(root, "consumerOffset.json", "offsetTable", counters)  # by Topic@Group
    return {topic for topic, at, _ in (name.partition("@") for name in table) if topic and at}


def _table(root: str, name: str, member: str, counters: Counters) -> dict[str, Any]:
    found = (load(os.path.join(root, "config", name), counters) or {}).get(member)
    return found if isinstance(found, dict) else {}
