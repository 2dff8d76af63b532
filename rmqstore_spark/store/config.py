"""config/*.json: what the broker was told of topics and consumers. Hints: nothing that is in them needs to be true.

fastjson writes them, with numbers as keys in no quotes: {0:12,1:9}. While one is replaced, only its .bak may be there.
Source: org.apache.rocketmq.common.ConfigManager, broker.BrokerPathConfigHelper.
"""

import contextlib
import json
import os
import re
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.files import Files, ReadFile

MOST_BYTES = 64 * 1024 * 1024  # 100 000 topics are half of it
_MOST_MEMBERS = 2_000_000  # and these, too; a topic has about ten
_MOST_DEPTH = 32  # a broker's have five; so many are safe in any code that calls itself
_DEFAULT_QUEUES = 16  # TopicConfig.defaultReadQueueNums
# A text, which stays what it is, or a number before a colon. Also a text without an end: it is then all that is left.
_TEXT_OR_KEY = re.compile(r'("(?:[^"\\]|\\.)*"?)|(?<![\w.+-])(-?[0-9]+)(?=\s*:)', re.DOTALL)


def load(path: str, files: Files) -> dict[str, Any] | None:
    """A file's object, its backup's when it has none, or None. Whole numbers as keys become text.

    Args:
        path: the file without `.bak`.
        files: how to reach files, and where requests and bytes are counted.
    """
    for candidate in (path, path + ".bak"):
        try:
            found = parse(_read(candidate, files))
        except (RmqStoreError, ValueError):
            continue
        if isinstance(found, dict):
            return found
    return None


def _read(path: str, files: Files) -> str:
    with ReadFile(path, files) as file:
        size = file.size
        return file.read(0, size).decode(errors="replace") if size <= MOST_BYTES else ""


def parse(text: str) -> Any:
    """What a broker's JSON says.

    Raises:
        ValueError: it is none, or larger or deeper than any broker's; the text says which.
    """
    if len(text) > MOST_BYTES or max(text.count(":"), text.count(",")) > _MOST_MEMBERS:
        raise ValueError(f"expected at most {MOST_BYTES} bytes and {_MOST_MEMBERS} members, found more")
    try:
        found = _parse(text)
    except RecursionError:
        found, depth = None, _MOST_DEPTH + 1
    else:
        depth = _depth(found)
    if depth > _MOST_DEPTH:
        raise ValueError(f"expected objects in objects, {_MOST_DEPTH} at most, found more")
    return found


def _parse(text: str) -> Any:
    with contextlib.suppress(json.JSONDecodeError):
        return json.loads(text)
    return json.loads(_TEXT_OR_KEY.sub(lambda found: found[1] or f'"{found[2]}"', text))


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [container for container in level if isinstance(container, dict | list)]:
        depth += 1
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
    return depth


def topic_queues(root: str, files: Files) -> dict[str, int]:
    """The topics of config/topics.json, each with its number of queues: the larger of those to read and to write.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    queues = {}
    for topic, config in _table(root, "topics.json", "topicConfigTable", files).items():
        if isinstance(config, dict):
            numbers = [config.get(name, _DEFAULT_QUEUES) for name in ("readQueueNums", "writeQueueNums")]
            queues[topic] = max((n for n in numbers if type(n) is int and 0 <= n < 1 << 31), default=_DEFAULT_QUEUES)
    return queues


def offset_topics(root: str, files: Files) -> set[str]:
    """The topics that some group has consumed, from config/consumerOffset.json.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    table = _table(root, "consumerOffset.json", "offsetTable", files)  # by Topic@Group
    return {topic for topic, at, _ in (name.partition("@") for name in table) if topic and at}


def _table(root: str, name: str, member: str, files: Files) -> dict[str, Any]:
    found = (load(os.path.join(root, "config", name), files) or {}).get(member)
    return found if isinstance(found, dict) else {}
