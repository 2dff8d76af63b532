"""config/: the broker's topics, groups and offsets, in files or in RocksDB (rocksdb_config.py). Hints: nothing in
config/ needs to be true.

fastjson writes the files, with unquoted numbers as keys: {0:12,1:9}. While a file is replaced, only its .bak may exist.
Source: org.apache.rocketmq.common.ConfigManager, broker.BrokerPathConfigHelper.
"""

import contextlib
import functools
import json
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rmqstore_spark.errors import RmqStoreError, StorageError, one_line
from rmqstore_spark.store.format.light_queues import is_light
from rmqstore_spark.store.io.files import Files, cannot_read, ignore_unreadable, kind_of
from rmqstore_spark.store.structures.kinds import Part, kind_with
from rmqstore_spark.store.structures.layout import queue_id_of
from rmqstore_spark.store.structures.rocksdb_config import InRocksDB, config_in_rocksdb

log = logging.getLogger(__name__)

_BACKUP = ".bak"
_MOST_MILLISECONDS = 253_402_300_800_000  # the year 10000
_MOST_BYTES = 64 * 1024 * 1024  # bytes of a file; 100 000 topics take half of it
_MOST_MEMBERS = 2_000_000  # members of objects; 100 000 topics have half as many, about ten each
_MOST_DEPTH = 32  # levels; a broker's files have five, and 32 are safe in any recursive code
DEFAULT_QUEUES = 16  # read and write queues of a topic whose entry gives no number (TopicConfig.defaultReadQueueNums)
# A string, which is kept, or a number before a colon. An unclosed string reaches to the end of the text.
_KEY = re.compile(r"(?<![\w.+-])(-?[0-9]+)(?=\s*:)")
_TEXT_OR_KEY = re.compile(rf'("(?:[^"\\]|\\.)*"?)|{_KEY.pattern}', re.DOTALL)
_BETWEEN = "\x01"  # in no JSON

# The member of each file that readers use.
MEMBERS = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "lmqConsumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
    "messageRequestMode.json": "messageRequestModeMap",
    "consumerOrderInfo.json": "table",
    "consumerFilter.json": "filterDataByTopic",
}
# A broker has all offsets in one of these, which is the second with light queues (enableLmq); it reads no other.
OFFSETS = ("consumerOffset.json", "lmqConsumerOffset.json")
# Beside "offsetTable": of groups that are named like light queues, as MQTT's (LmqConsumerOffsetManager).
LIGHT_OFFSETS = "lmqOffsetTable"
_TOGETHER = 60  # seconds between the times of two files that may be those of a copying, and not of the broker
STATIC_TOPICS, LOGIC_QUEUES = "topicQueueMapping.json", "topicQueueMappingInfoMap"  # by topic: its logic queues
ALL_MEMBERS = {**MEMBERS, STATIC_TOPICS: LOGIC_QUEUES}  # also of the file that no command makes anew
# The files that a broker may have in RocksDB instead.
_PARTS: dict[str, Part] = {
    "topics.json": "topics",
    "subscriptionGroup.json": "groups",
    **dict.fromkeys(OFFSETS, "offsets"),
}


class _TooMuchError(ValueError):
    """A file has more than what is parsed."""

    def __init__(self) -> None:
        super().__init__(f"expected at most {_MOST_BYTES} bytes and {_MOST_MEMBERS} members, found more")


Table = dict[str, Any]
OffsetsByName = dict[tuple[str, str], dict[int, int]]  # by (group, topic): offsets by queueId


def load(path: str, files: Files) -> Table | None:
    """A file's object, else its backup's, else None. A hint: a file that cannot be parsed is passed over. The backup of
    one that is too large is not taken: a broker may well take the file.

    Args:
        path: the file without `.bak`.
        files: how to reach files, and where requests and bytes are counted.
    """
    for candidate in with_backup(path):
        with ignore_unreadable(), contextlib.suppress(ValueError):
            try:
                found = parse(read_text(candidate, files, "replace"))
            except _TooMuchError as why:
                _say_once(f"{one_line(candidate)}: {why}; so what is in it is not known, and no backup is taken")
                return None
            if candidate != path:
                say_of_backup(path, found, files)
            return found
    return None


def why_unread(root: str, name: str, files: Files) -> str | None:
    """The reason why an existing file in config/ could not be used, as text; None where the file or its backup can be
    read, or neither exists.

    Args:
        root: the store directory.
        name: the file's, without `.bak`.
        files: how to reach files, and where requests and bytes are counted.
    """
    return what_is_taken(root, name, files).why_not


def read(root: str, name: str, files: Files) -> tuple[Table, str | None]:
    """A file's object, or its backup's, if it has the form that a broker writes, else an empty one; and as text, why an
    existing file gave no object. Unlike load(), read() does not guess.

    Args:
        root: the store directory.
        name: the file's, without `.bak`.
        files: how to reach files, and where requests and bytes are counted.
    """
    taken = what_is_taken(root, name, files)
    if taken.path is not None and taken.is_backup:
        say_of_backup(os.path.join(root, "config", name), taken.table, files)
    return taken.table, taken.why_not


class Looked(NamedTuple):
    """What a look at a file in config/ has shown, as text.

    Attributes:
        why_not: as why_unread().
        backup: the state of the file, and the age of its backup, where a broker takes that; None where the file itself
            is taken.
        is_too_large: whether it is larger than what is parsed: a broker may well take it.
    """

    why_not: str | None
    backup: tuple[str, str] | None
    is_too_large: bool = False


def looked_at(root: str, name: str, files: Files) -> Looked:
    """Look at a file in config/, which is parsed once.

    Args:
        root: the store directory.
        name: the file's, without `.bak`.
        files: how to reach files, and where requests and bytes are counted.
    """
    taken = what_is_taken(root, name, files)
    if taken.path is None or not taken.is_backup:
        return Looked(taken.why_not, None, taken.is_too_large)
    return Looked(None, (taken.reasons[0] if taken.reasons else "none", age_of(taken.path, taken.table, files)))


class Taken(NamedTuple):
    """The result of reading a file in config/.

    Attributes:
        path: the file or its backup, whichever was read; None where neither could be read.
        reasons: why the files tried before `path` could not be read.
        is_too_large: whether the last of these is larger than what is parsed: a broker may well take it, so its backup
            is not taken instead.
    """

    path: str | None
    table: Table
    reasons: list[str]
    is_too_large: bool = False

    @property
    def is_backup(self) -> bool:
        return self.path is not None and self.path.endswith(_BACKUP)

    @property
    def why_not(self) -> str | None:
        return self.reasons[0] if self.path is None and self.reasons else None


def what_is_taken(root: str, name: str, files: Files) -> Taken:
    """The file, or its backup, that a broker takes, as far as it has the form that a broker writes; as read()."""
    kept = in_rocksdb(root, name, files)
    if kept is not None:
        return Taken(kept.directory, {MEMBERS[name]: kept.table}, [])
    reasons: list[str] = []
    for path in with_backup(os.path.join(root, "config", name)):
        try:
            files.status(path)
            table = parse(read_text(path, files, "strict"))
            _check_shape(name, table)
            return Taken(path, table, reasons)
        except (FileNotFoundError, NotADirectoryError):
            reasons += _instead_of(path, files)
        except OSError as why:
            reasons.append(str(cannot_read(path, why)))
        except StorageError:
            raise
        except RmqStoreError as why:
            reasons.append(str(why))
        except ValueError as why:
            reasons.append(f"{path}: expected JSON as a broker writes it ({why})")
            if isinstance(why, _TooMuchError):
                return Taken(None, {}, reasons[-1:], is_too_large=True)
    return Taken(None, {}, reasons)


def in_rocksdb(root: str, name: str, files: Files, topics: Collection[str] | None = None) -> InRocksDB | None:
    """The part of a RocksDB that stands in for a file in config/; None where no RocksDB has it, or it cannot be
    read. Arguments as in config_in_rocksdb(), but for the file's name."""
    kept = config_in_rocksdb(root, _PARTS[name], files, topics) if name in _PARTS else None
    if kept is None or kept.table is None:
        if kept is not None:
            log.info("%s", kept.why_not)  # elsewhere.py names the tables that lack it
        return None
    path = os.path.join(root, "config", name)
    if files.exists(path):
        _say_once(
            f"{one_line(path)}: there is a RocksDB as well, {one_line(kept.directory)}, which is taken: a broker that "
            "has one does not look at the file; if it has none any more, move the RocksDB away"
        )
    return kept if name != OFFSETS[1] else kept._replace(table={})  # the first file stands for all offsets


def say_of_backup(path: str, table: Table, files: Files) -> None:
    """Log a message, once, where a file's backup is used instead of the file.

    Args:
        path: the file's, without `.bak`.
        table: the backup's object.
    """
    _say_once(
        f"{one_line(path)}: is missing, or cannot be read: its backup is taken, "
        f"{age_of(path + _BACKUP, table, files)}; what was changed since then is not known: bring the file back, or "
        "have `rmqstore rebuild --config` take the backup"
    )


@functools.lru_cache(maxsize=10_000)
def _say_once(text: str) -> None:
    log.warning("%s", text)


def age_of(path: str, table: Table, files: Files) -> str:
    """The age of a backup as text: the last change that its dataVersion names, else that of the file."""
    milliseconds = _changed_at(table)
    if not milliseconds:
        with contextlib.suppress(OSError):
            milliseconds = int(files.status(path).st_mtime) * 1000
    if not milliseconds:
        return "of an unknown time"
    return f"of {datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _changed_at(table: Table) -> int:
    """When the dataVersion of a file changed, in milliseconds; 0 where it does not tell."""
    version = table.get("dataVersion")
    milliseconds = version.get("timestamp") if isinstance(version, dict) else None
    return milliseconds if type(milliseconds) is int and 0 < milliseconds < _MOST_MILLISECONDS else 0


def _instead_of(path: str, files: Files) -> Iterator[str]:
    """Descriptions of other entries in the place of a missing file, or of its directory; none where nothing is
    there."""
    directory = os.path.dirname(path)
    with contextlib.suppress(OSError):
        found = files.lstat(directory)
        if not files.is_directory(directory):
            yield f"{directory}: expected a directory, found {kind_of(found)}"
            return
        yield f"{path}: expected a file, found {kind_of(files.lstat(path))}"


def _check_shape(name: str, table: Table) -> None:
    """Check that the part of a file that readers use has the form that a broker writes; the file may hold more.

    Raises:
        ValueError: the part has another form.
    """
    member = ALL_MEMBERS.get(name)
    found = {} if member is None else table.get(member, {})
    if not isinstance(found, dict):
        raise ValueError(f"expected an object as {member}, found {type(found).__name__}")
    for key, entry in found.items():
        place = f"of {one_line(key):.200} in {member}"
        if name == "delayOffset.json":
            _check_offset(key, entry, place)
        elif not isinstance(entry, dict):
            raise ValueError(f"expected an object {place}, found {type(entry).__name__}")
        elif member == "offsetTable":
            for queue_id, offset in entry.items():
                _check_offset(queue_id, offset, place)


def _check_offset(number: str, offset: Any, place: str) -> None:
    if queue_id_of(number) is None or type(offset) is not int:
        raise ValueError(f"expected a number and its offset {place}, found {one_line(number):.40} and {offset!r:.40}")


def with_backup(path: str) -> tuple[str, str]:
    """The file and its backup, in the order in which a broker tries them."""
    return path, path + _BACKUP


def read_text(path: str, files: Files, errors: str) -> str:
    """The text of one file.

    Args:
        errors: how bytes that are not UTF-8 are handled, as in bytes.decode.

    Raises:
        RmqStoreError: the file cannot be read.
        ValueError: the file is larger than any broker's, or not UTF-8.
    """
    with files.file(path) as file:
        size = file.size
        if size > _MOST_BYTES:
            raise _TooMuchError
        return file.read(0, size).decode(errors=errors)


def is_too_large(path: str, files: Files) -> bool:
    """Is a file larger than what read_text() reads?"""
    with files.file(path) as file:
        return file.size > _MOST_BYTES


def parse(text: str) -> Table:
    """The JSON object in a text. Whole numbers as keys become strings.

    Raises:
        ValueError: the text holds no object, or one with more members or more levels than any broker's.
    """
    if max(text.count(":"), text.count(",")) > _MOST_MEMBERS:
        raise _TooMuchError
    try:
        found = _parse(text)
    except RecursionError:
        found, depth = None, _MOST_DEPTH + 1
    else:
        depth = _depth(found)
    if depth > _MOST_DEPTH:
        raise ValueError(f"expected objects nested at most {_MOST_DEPTH} deep, found deeper ones")
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, found {type(found).__name__}")
    return found


def _parse(text: str) -> Any:
    with contextlib.suppress(json.JSONDecodeError):
        return json.loads(text)
    return json.loads(_with_texts_as_keys(text))


def _with_texts_as_keys(text: str) -> str:
    """JSON in which each number that is a key is a string."""
    parts = text.split('"')  # strings are every second part, if no quote is in one
    if "\\" in text or _BETWEEN in text or len(parts) % 2 == 0:
        return _TEXT_OR_KEY.sub(lambda found: found[1] or f'"{found[2]}"', text)
    between = _KEY.split(_BETWEEN.join(parts[::2]))  # every second part is a key
    between[1::2] = [f'"{key}"' for key in between[1::2]]
    parts[::2] = "".join(between).split(_BETWEEN)
    return '"'.join(parts)


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [container for container in level if isinstance(container, dict | list)]:
        depth += 1
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
    return depth


def batch_topics(entries: Mapping[str, Table]) -> set[str]:
    """The topics with BatchCQ queues (attribute queue.type), by topic_entries()."""
    attributes = {topic: entry.get("attributes") for topic, entry in entries.items()}
    return {topic for topic, of in attributes.items() if isinstance(of, dict) and of.get("queue.type") == "BatchCQ"}


def topic_queues(entries: Mapping[str, Table]) -> dict[str, int]:
    """The topics of topic_entries(), each with its number of queues: the larger of those to read and to write."""
    queues = {}
    for topic, entry in entries.items():
        numbers = [entry.get(name, DEFAULT_QUEUES) for name in ("readQueueNums", "writeQueueNums")]
        queues[topic] = max(filter(is_count, numbers), default=DEFAULT_QUEUES)
    return queues


def is_count(value: Any) -> bool:
    """Is a value a number of queues to a broker?"""
    return type(value) is int and 0 <= value < 1 << 31


def is_exactly(value: Any, number: int) -> bool:
    """Is a value exactly this whole number? To Python, true and 1.0 are equal to 1, too."""
    return type(value) is int and value == number


def has_one_offset(group: str, file: str) -> bool:
    """Does a group have one offset in a topic, of queue 0, which brokers write to LIGHT_OFFSETS?

    Args:
        file: the name of the OFFSETS file: without light queues any group has offsets of queues.
    """
    return file == OFFSETS[1] and is_light(group)


class OffsetsFiles(NamedTuple):
    """The OFFSETS file that counts, and another that enableLmq has left behind.

    Attributes:
        name: that of the broker that ran last, by its name; it need not be there.
        other: the name of the other one; None where it is not there, or has no offsets.
    """

    name: str
    other: str | None


def offsets_files(root: str, files: Files) -> OffsetsFiles:
    """The consumers' offsets that count. Where both files are there, enableLmq has been switched on or off, and the
    broker then began without any: those in the file that was written last count, as a broker writes its own every 5 s
    and when it stops. Where a copy has given both about the same time, their dataVersion tells, which is as old as the
    broker's start at most; and where that does not, light queues were switched on rather than off.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    light = _written_at(root, OFFSETS[1], files)
    if light is None or kind_with(root, files, "offsets") is not None:
        return OffsetsFiles(OFFSETS[0], None)
    plain = _written_at(root, OFFSETS[0], files)
    if plain is None:
        return OffsetsFiles(OFFSETS[1], None)
    taken = {name: what_is_taken(root, name, files) for name in OFFSETS}
    if abs(plain - light) <= _TOGETHER:
        plain, light = (_changed_at(taken[name].table) for name in OFFSETS)
    name, other = OFFSETS if plain > light else OFFSETS[::-1]
    is_any = bool(offset_entries(taken[other].table)) or taken[other].is_too_large
    if is_any:
        config = os.path.join(root, "config")
        _say_once(
            f"{one_line(os.path.join(config, name))}: consumers' offsets are taken from here, where they were written "
            f"last; those in {other} are older: a broker has the one file with enableLmq, the other without, and does "
            "not look at both; if it has the other one, move this one away"
        )
    return OffsetsFiles(name, other if is_any else None)


def _written_at(root: str, name: str, files: Files) -> float | None:
    """When a file of config/, or else its backup, was written; None where neither is there."""
    for path in with_backup(os.path.join(root, "config", name)):
        with contextlib.suppress(OSError):
            return files.status(path).st_mtime
    return None


def offset_entries(table: Table) -> Table:
    """The consumers' offsets in an OFFSETS file: by topic@group, then by queueId."""
    entries, of_light = (table.get(member) for member in (MEMBERS[OFFSETS[0]], LIGHT_OFFSETS))
    light = of_light.items() if isinstance(of_light, dict) else ()
    return {**(entries if isinstance(entries, dict) else {}), **{name: {"0": offset} for name, offset in light}}


def offsets_table(entries: Mapping[str, Mapping[str, int]], file: str) -> Table:
    """The members of an OFFSETS file for some entries, as those of offset_entries().

    Args:
        file: the file's name.
    """
    lights = {name for name in entries if has_one_offset(name.partition("@")[2], file)}
    light = {name: entries[name]["0"] for name in entries if name in lights and "0" in entries[name]}
    table: Table = {MEMBERS[file]: {name: entries[name] for name in entries if name not in lights}}
    return table | ({LIGHT_OFFSETS: light} if light else {})


def offsets_in(entries: Table) -> OffsetsByName:
    """The consumers' offsets in offset_entries()."""
    offsets: OffsetsByName = {}
    for name, queues in entries.items():
        topic, at, group = name.partition("@")
        if not topic or not at or not group or not isinstance(queues, dict):
            continue
        if found := offsets_by_number(queues):
            offsets[group, topic] = found
    return offsets


def delay_offsets(root: str, files: Files) -> dict[int, int]:
    """The queue offset of the next message of each delay level that is to be delivered, from config/delayOffset.json.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    return offsets_by_number(member_of(root, "delayOffset.json", "offsetTable", files))


def order_entries(root: str, files: Files) -> dict[str, Table]:
    """The entries of config/consumerOrderInfo.json for each `topic@group` that is popped in order, by queueId.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    return _entries(root, "consumerOrderInfo.json", "table", files)


def topic_entries(root: str, files: Files) -> dict[str, Table]:
    """The entry of each topic in config/topics.json, unchanged.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    return _entries(root, "topics.json", "topicConfigTable", files)


def group_entries(root: str, files: Files) -> dict[str, Table]:
    """The entry of each consumer group in config/subscriptionGroup.json, unchanged.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    return _entries(root, "subscriptionGroup.json", "subscriptionGroupTable", files)


def offsets_by_number(offsets: Mapping[str, Any]) -> dict[int, int]:
    """The queue offsets in an object, by their keys as numbers."""
    by_number = {}
    for text, offset in offsets.items():
        number = queue_id_of(text)
        if number is not None and type(offset) is int and 0 <= offset < 1 << 63:
            by_number[number] = offset
    return by_number


def _entries(root: str, name: str, member: str, files: Files) -> dict[str, Table]:
    return {key: entry for key, entry in member_of(root, name, member, files).items() if isinstance(entry, dict)}


def member_of(root: str, name: str, member: str, files: Files) -> Table:
    """The object in a member of a file in config/, or its stand-in from a RocksDB; empty where there is none."""
    if member == MEMBERS.get(name) and (kept := in_rocksdb(root, name, files)) is not None:
        return kept.table or {}
    found = (load(os.path.join(root, "config", name), files) or {}).get(member)
    return found if isinstance(found, dict) else {}
