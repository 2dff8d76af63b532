"""config/ of a copy: topics, groups, and where each group goes on. The contents of files are not trusted."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rmqstore_spark.errors import DamagedStoreError, OptionError, counted, one_line, quoted
from rmqstore_spark.jobs.copying.source import Source
from rmqstore_spark.jobs.starts import Started, starts_of
from rmqstore_spark.query.copy_values import Start
from rmqstore_spark.read.plan.groups import check_group
from rmqstore_spark.store.elsewhere import elsewhere
from rmqstore_spark.store.format.clock import milliseconds_now
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import (
    ALL_MEMBERS,
    LIGHT_OFFSETS,
    LOGIC_QUEUES,
    MEMBERS,
    OFFSETS,
    STATIC_TOPICS,
    OffsetsByName,
    Table,
    has_one_offset,
    is_count,
    offset_entries,
    offsets_by_number,
    offsets_files,
    offsets_in,
    read,
)
from rmqstore_spark.store.structures.consumer_offsets import ConsumerOffsets, sound_offsets
from rmqstore_spark.store.structures.rocksdb_popped import POPPED
from rmqstore_spark.write.build.store_files import ConfigFiles
from rmqstore_spark.write.build.topics import merge
from rmqstore_spark.write.new_store import Ends

logger = logging.getLogger(__name__)

# Copied as they are; where several stores name the same entry, the first store's counts.
_TAKEN_OVER = ("subscriptionGroup.json", "messageRequestMode.json")
_FILTERS, _STATIC = _OF_ONE = ("consumerFilter.json", STATIC_TOPICS)
_BY_TOPIC = {"topics.json", *OFFSETS, "messageRequestMode.json", "consumerOrderInfo.json", *_OF_ONE}
_GROUP_OFFSETS = "option 'groupOffset'"
_FILES = (
    "topics.json",
    *_TAKEN_OVER,
    "consumerOrderInfo.json",
    "delayOffset.json",
)  # and that of the consumers' offsets; for timed and delayed messages, too
_BY_TOPIC_AND_GROUP = (MEMBERS[OFFSETS[0]], LIGHT_OFFSETS)
_PART = 256 * 1024  # bytes of a large file that are made at once
_NUMBERS = ("readQueueNums", "writeQueueNums")
NEEDED_BY_COPIES = {"topics", "groups", "inflight"}  # a copy has only what these tables know


def say_what_stays_behind(store: Snapshot) -> None:
    """Warn in the log of data that a copy should have but that is not read."""
    for place in elsewhere(store):
        if place.tables & NEEDED_BY_COPIES and "consumequeue" not in place.tables:  # ConsumeQueues are made anew
            logger.warning("%s: %s: not read, so the new store does not have it", one_line(place.path), place.what)
    if store.popped is not None and store.popped.records:
        logger.warning(
            "%s: %s: only RocksDB has them, so the new store does not, and a group does not get them again",
            one_line(os.path.join(store.root, POPPED)),
            counted(len(store.popped.records), "popped message"),
        )


@dataclass(frozen=True)
class Config:
    """config/ of a store, read once. Links are not followed: they could lead to files that are not the broker's.

    Attributes:
        root: the store directory.
        tables: the object in each file, by name.
        unread: by name, the files that cannot be parsed, each with the reason.
        large: by name, the consumers' offsets in files that are larger than what is parsed; their tables are empty.
        offsets_file: the name of the file with the consumers' offsets, the only one of OFFSETS that is read.
    """

    root: str
    tables: dict[str, Table]
    unread: dict[str, str]
    large: dict[str, ConsumerOffsets] = field(default_factory=dict)
    offsets_file: str = OFFSETS[0]

    @classmethod
    def of(cls, store: Snapshot, is_one: bool) -> Config:
        """The config of a store.

        Args:
            is_one: whether the store is the only one that is copied.
        """
        files = store.files.unlinked()
        if not is_one and read(store.root, _STATIC, files)[0].get(LOGIC_QUEUES):
            logger.warning(
                "%s: static topics: where several stores become one, queues get other numbers, so the new store does "
                "not have their logic queues and offsets",
                one_line(store.root),
            )
        offsets_file = offsets_files(store.root, files).name
        tables, unread, large = dict[str, Table](), {}, {}
        for name in (offsets_file, *_FILES, *(_OF_ONE if is_one else [])):
            tables[name], why = read(store.root, name, files)
            if why is None:
                continue
            path = os.path.join(store.root, "config", name)
            sound = sound_offsets(path, files) if name == offsets_file else None
            if sound is None:
                unread[name] = why
            else:
                large[name] = sound
        return cls(store.root, tables, unread, large, offsets_file)

    @classmethod
    def nothing(cls, store: Snapshot) -> Config:
        """The config of a log that has none."""
        return cls(store.root, {name: {} for name in (OFFSETS[0], *_FILES, *_OF_ONE)}, {})

    def without(self, topics: Collection[str]) -> Config:
        """The same without what it says of some topics, in entries of their name or of `topic@group`."""
        if not topics:
            return self
        tables = {}
        for name, table in self.tables.items():
            for member in _BY_TOPIC_AND_GROUP if name in OFFSETS else (ALL_MEMBERS[name],):
                entries = table.get(member)
                if name in _BY_TOPIC and isinstance(entries, dict):
                    kept = {key: entry for key, entry in entries.items() if key.partition("@")[0] not in topics}
                    table = {**table, member: kept}
            tables[name] = table
        large = {name: of.only({topic for _, topic in of} - {*topics}) for name, of in self.large.items()}
        return replace(self, tables=tables, large=large)

    def member(self, name: str) -> Table:
        """The object that readers take from a file."""
        found: Table = self.tables[name].get(ALL_MEMBERS[name], {})
        return found

    @property
    def offsets(self) -> OffsetsByName | ConsumerOffsets:
        """The consumers' offsets."""
        large = self.large.get(self.offsets_file)
        return offsets_in(offset_entries(self.tables[self.offsets_file])) if large is None else large

    def refuse_unread(self) -> None:
        """Refuse files that would be missing in a copy.

        Raises:
            DamagedStoreError: a file cannot be parsed.
        """
        for name, why in self.unread.items():
            mended = "`rmqstore rebuild --config` takes its backup, or says what is lost"
            raise DamagedStoreError(
                f"{why}; so the new store would lack what is in {name}",
                f"{mended if name in MEMBERS else 'bring it back'}; `rmqstore salvage` makes a new store without it",
            )


def started(sources: list[Source], starts: Mapping[str, Start]) -> list[Started]:
    """Where groups go on in the copy, in queues by their names there.

    Args:
        starts: by group; offsets of queues are those of the only source.

    Raises:
        OptionError: a group, topic, queue or offset that no source has.
    """
    if not starts:
        return []
    if not sources:
        raise OptionError(f"{_GROUP_OFFSETS}: a tiered store alone has no consumer groups; remove it")
    if len(sources) == 1:
        return list(starts_of(sources[0].store, starts, _GROUP_OFFSETS))
    for group, start in starts.items():
        if isinstance(start, dict):
            raise OptionError(
                f"{_GROUP_OFFSETS}: for group {quoted(group)}: where several stores become one, queues get other "
                "numbers: expected earliest, latest or a time; or set the offsets in the new store (set-offsets)"
            )
    for group in starts:
        check_group([source.store for source in sources], group, _GROUP_OFFSETS)
    return [
        each._replace(queue=source.new_name(*each.queue))
        for source in sources
        for each in starts_of(source.store, _of_store(source.store, starts), _GROUP_OFFSETS)
        if not source.waiting.begins_anew(each.queue[0])
    ]


def _of_store(store: Snapshot, starts: Mapping[str, Start]) -> dict[str, Start]:
    """The starts of groups that a store knows."""
    known = {group for group, _ in store.consumer_offsets}
    return {group: start for group, start in starts.items() if group in known}


def config_files(
    sources: list[Source],
    configs: list[Config],
    is_whole: bool,
    batch_topics: Collection[str],
    ends: Ends,
    starts: Iterable[Started] = (),
) -> ConfigFiles:
    """The files of config/, by name.

    Args:
        configs: one for each source.
        is_whole: whether all topics are copied; else only topics with messages are kept.
        batch_topics: the topics whose queues are BatchCQs.
        ends: the next queue offset of each queue of the new store.
        starts: where groups go on, other than in the sources.
    """
    both = list(zip(sources, configs, strict=True))
    offsets_file = max(config.offsets_file for config in configs)
    files: dict[str, bytes | Iterable[bytes]] = {
        "topics.json": _topics(both, ends, is_whole, batch_topics),
        offsets_file: _consumer_offsets(both, ends, is_whole, starts, offsets_file),
    }
    for name in _TAKEN_OVER:
        found = _joined(configs, name)
        if found:
            files[name] = _json(found)
    return {**files, **_of_one(configs[0], ends, is_whole)} if len(sources) == 1 else files


def _of_one(config: Config, ends: Ends, is_whole: bool) -> dict[str, bytes]:
    """The files that refer to a store's own queue offsets; only for a copy of one store."""
    files = {}
    copied = {topic for topic, _ in ends}
    if filters := config.tables[_FILTERS]:
        files[_FILTERS] = _json(filters)
    mapped = config.member(_STATIC)
    if kept := {topic: mapped[topic] for topic in mapped if is_whole or topic in copied}:
        files[_STATIC] = _json({**config.tables[_STATIC], LOGIC_QUEUES: kept})
    if config.tables["consumerOrderInfo.json"]:
        orders = config.member("consumerOrderInfo.json")
        kept = {name: orders[name] for name in orders if is_whole or name.partition("@")[0] in copied}
        files["consumerOrderInfo.json"] = _json({**config.tables["consumerOrderInfo.json"], "table": kept})
    delays = offsets_by_number(config.member("delayOffset.json"))
    if delays:  # a level beyond the copy's end would skip the next messages
        levels = {str(level): min(at, ends.get((SCHEDULE_TOPIC, level - 1), 0)) for level, at in delays.items()}
        files["delayOffset.json"] = _json({"offsetTable": levels})
    return files


def _topics(sources: list[tuple[Source, Config]], ends: Ends, is_whole: bool, batch_topics: Collection[str]) -> bytes:
    entries: dict[str, Table] = {}
    copied = {topic for topic, _ in ends}
    for source, config in sources:
        for topic, entry in config.member("topics.json").items():
            if not is_whole and topic not in copied:
                continue
            if source.queues is None:
                entries[topic] = entry
                continue
            count = source.first_queue.get(topic, 0) + source.queues.get(topic, 0)
            # The first store decides which topics an administrator has closed for writing.
            entries[topic] = {**entry, **entries.get(topic, {}), **dict.fromkeys(_NUMBERS, count)}
    for entry in entries.values():
        if not all(is_count(entry[name]) for name in _NUMBERS if name in entry):
            entry.update(dict.fromkeys(_NUMBERS, 0))  # merge() counts the queues that have messages
    needed: dict[str, int] = {}
    for topic, queue_id in ends:
        needed[topic] = max(needed.get(topic, 0), queue_id + 1)
    return merge({"topicConfigTable": entries}, needed, milliseconds_now(), batch_topics)


def _consumer_offsets(
    sources: list[tuple[Source, Config]], ends: Ends, is_whole: bool, starts: Iterable[Started], file: str
) -> Iterator[bytes]:
    """The consumers' offsets, in parts, as there may be very many. A group that was beyond the copy's end goes on at
    that end; otherwise it would skip the next messages.

    Args:
        file: the name of the file.
    """
    # By name where each entry is from: it is put together when it is written.
    origins: dict[tuple[str, str], list[tuple[Source, OffsetsByName | ConsumerOffsets]]] = {}
    started: dict[tuple[str, str], list[Started]] = {}
    copied = {topic for topic, _ in ends}
    for source, config in sources:
        offsets = config.offsets
        for group, topic in offsets:
            if source.queues is not None and source.waiting.begins_anew(topic):
                continue
            if is_whole or topic in copied:
                origins.setdefault((group, topic), []).append((source, offsets))
    for each in starts:
        if is_whole or each.queue[0] in copied:
            started.setdefault((each.group, each.queue[0]), []).append(each)
    made, count, light = bytearray(b'{\n\t"offsetTable": {'), 0, dict[str, int]()
    for group, topic in dict.fromkeys([*origins, *started]):
        known: dict[str, int] = {}
        for source, offsets in origins.get((group, topic), ()):
            first = source.first_queue.get(topic, 0)
            for queue_id, offset in offsets[group, topic].items():
                known[str(first + queue_id)] = min(offset, ends.get((topic, first + queue_id), 0))
        for each in started.get((group, topic), ()):
            known[str(each.queue[1])] = min(each.offset, ends.get(each.queue, 0))
        name = f"{topic}@{group}"
        if has_one_offset(group, file):
            if "0" in known:
                light[name] = known["0"]
            continue
        entry = json.dumps(known, indent="\t").replace("\n", "\n\t\t")
        made += f"{',' * (count > 0)}\n\t\t{json.dumps(name)}: {entry}".encode()
        count += 1
        if len(made) >= _PART:
            yield bytes(made)
            made.clear()
    of_light = json.dumps(light, indent="\t").replace("\n", "\n\t")
    yield (
        bytes(made)
        + b"\n\t" * (count > 0)
        + b"}"
        + f',\n\t"{LIGHT_OFFSETS}": {of_light}'.encode() * bool(light)
        + b"\n}"
    )


def _joined(configs: list[Config], name: str) -> Table:
    if len(configs) == 1:
        return configs[0].tables[name]
    joined: dict[str, Any] = {}
    for config in reversed(configs):
        joined.update(config.member(name))
    return {MEMBERS[name]: joined} if joined else {}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent="\t").encode()
