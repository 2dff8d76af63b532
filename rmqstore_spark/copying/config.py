"""config/ of a copy: topics, groups, and where each group goes on. In what stands in files nothing needs to be true."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from rmqstore_spark.copying.rows import Source
from rmqstore_spark.errors import one_line
from rmqstore_spark.store.config import Table, consumer_offsets, delay_offsets, is_count, load, member_of, topic_entries
from rmqstore_spark.store.elsewhere import elsewhere
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.write.copying import Ends
from rmqstore_spark.write.topics import merge

log = logging.getLogger(__name__)

# Files that are taken over as they are; of several stores the first one counts for what it names.
_MEMBERS = {
    "subscriptionGroup.json": "subscriptionGroupTable",
    "messageRequestMode.json": "messageRequestModeMap",
}
_OF_ONE = ("consumerFilter.json", "consumerOrderInfo.json")
_NUMBERS = ("readQueueNums", "writeQueueNums")
_NEEDED = {"topics", "groups", "inflight"}  # what these tables do not know, a copy does not have


def say_what_stays_behind(store: OpenStore) -> None:
    """Say in the log what a copy should have, and where it is not read."""
    for place in elsewhere(store):
        if place.tables & _NEEDED:
            log.warning("%s: %s: not read, so the new store does not have it", one_line(place.path), place.what)


def config_files(sources: list[Source], ends: Ends, is_whole: bool) -> dict[str, bytes]:
    """The files of config/, by name.

    Args:
        ends: where each queue of the new store goes on.
        is_whole: whether all topics are copied; else only those with messages are told of.
    """
    files = {
        "topics.json": _topics(sources, ends, is_whole),
        "consumerOffset.json": _consumer_offsets(sources, ends, is_whole),
    }
    for name, member in _MEMBERS.items():
        found = _joined(sources, name, member)
        if found:
            files[name] = _json(found)
    if len(sources) == 1:
        store = sources[0].store
        for name in _OF_ONE:
            table = load(os.path.join(store.root, "config", name), store.files)
            if table:
                files[name] = _json(table)
        delays = delay_offsets(store.root, store.files)
        if delays:
            files["delayOffset.json"] = _json({"offsetTable": {str(level): at for level, at in delays.items()}})
    return files


def _topics(sources: list[Source], ends: Ends, is_whole: bool) -> bytes:
    entries: dict[str, Table] = {}
    copied = {topic for topic, _ in ends}
    for source in sources:
        for topic, entry in topic_entries(source.store.root, source.store.files).items():
            if not is_whole and topic not in copied:
                continue
            if source.queues is None:
                entries[topic] = entry
                continue
            count = source.first_queue.get(topic, 0) + source.queues.get(topic, 0)
            # Which topics an administrator has closed for writing, stays as the first store has it.
            entries[topic] = {**entry, **entries.get(topic, {}), **dict.fromkeys(_NUMBERS, count)}
    for entry in entries.values():
        if not all(is_count(entry[name]) for name in _NUMBERS if name in entry):
            entry.update(dict.fromkeys(_NUMBERS, 0))  # merge() counts the queues that have messages
    needed: dict[str, int] = {}
    for topic, queue_id in ends:
        needed[topic] = max(needed.get(topic, 0), queue_id + 1)
    return merge({"topicConfigTable": entries}, needed, time.time_ns() // 1_000_000)


def _consumer_offsets(sources: list[Source], ends: Ends, is_whole: bool) -> bytes:
    """A group that was further than the copy goes on at its end. Otherwise it would leave out what is sent next."""
    table: dict[str, dict[str, int]] = {}
    copied = {topic for topic, _ in ends}
    for source in sources:
        for (group, topic), offsets in consumer_offsets(source.store.root, source.store.files).items():
            if source.queues is not None and source.waiting.begins_anew(topic):
                continue
            if not is_whole and topic not in copied:
                continue
            first = source.first_queue.get(topic, 0)
            known = table.setdefault(f"{topic}@{group}", {})
            for queue_id, offset in offsets.items():
                known[str(first + queue_id)] = min(offset, ends.get((topic, first + queue_id), 0))
    return _json({"offsetTable": table})


def _joined(sources: list[Source], name: str, member: str) -> Table:
    if len(sources) == 1:
        return load(os.path.join(sources[0].store.root, "config", name), sources[0].store.files) or {}
    joined: dict[str, Any] = {}
    for source in reversed(sources):
        joined.update(member_of(source.store.root, name, member, source.store.files))
    return {member: joined} if joined else {}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent="\t").encode()
