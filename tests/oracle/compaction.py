"""Compaction topics: their logs as a broker writes and compacts them, and the last value of each key."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from oracle import reference
from oracle.stores import StoreBuilder

_UNIT = struct.Struct(
    ">qiqqqhii"
)  # of compactionCq: position, size, tagsCode, store time, queueOffset, messages, -1, 0


class Value(NamedTuple):
    """A message of a compaction topic."""

    queue_id: int
    queue_offset: int
    key: str | None
    body: bytes
    store_timestamp: int


def configure(root: Path, topics: Iterable[str]) -> None:
    """Have the broker know topics as compaction topics."""
    path = root / "config" / "topics.json"
    config = json.loads(path.read_text())
    for topic in topics:
        config["topicConfigTable"][topic]["attributes"] = {"cleanup.policy": "COMPACTION"}
    path.write_text(json.dumps(config))


def append(builder: StoreBuilder, topic: str, queue_id: int, key: str | None, body: bytes) -> Value:
    builder.append(topic, body, queue_id=queue_id, keys=key)
    stored = builder.messages[-1]
    return Value(queue_id, stored.queue_offset, key, body, stored.store_timestamp)


def last_values(values: Iterable[Value]) -> list[Value]:
    """The newest message of each key of each queue, without tombstones and without messages that have no key."""
    newest: dict[tuple[int, str], Value] = {}
    for value in sorted(values, key=lambda value: value.queue_offset):
        if value.key:
            newest[value.queue_id, value.key] = value
    return sorted(value for value in newest.values() if value.body)


def compact(values: list[Value]) -> list[Value]:
    """What a pass leaves of these."""
    newest = {value.key: value for value in values if value.key}
    return [value for value in values if value.key and newest[value.key] is value and value.body]


class LogWriter:
    """Writes a compaction log and its compactionCq, file by file."""

    def __init__(self, root: Path, topic: str, queue_id: int, file_size: int) -> None:
        self.topic, self.file_size = topic, file_size
        self.log = root / "compaction" / "compactionLog" / topic / str(queue_id)
        self.queue = root / "compaction" / "compactionCq" / topic / str(queue_id)
        for directory in (self.log, self.queue):
            directory.mkdir(parents=True, exist_ok=True)
        self._start: int | None = None
        self._data = self._units = b""

    def begin_file(self, start: int) -> None:
        """Go on in a file that begins at `start`; a gap before it is what a pass leaves."""
        self._flush()
        self._start, self._data, self._units = start, b"", b""

    def write(self, value: Value, **lies: Any) -> bool:
        """Write one message; False where the file is full, and then it is closed with a blank."""
        assert self._start is not None
        position = self._start + len(self._data)
        fields = {
            "physical_offset": position,
            "topic": self.topic,
            "body": value.body,
            "queue_id": value.queue_id,
            "queue_offset": value.queue_offset,
            "properties": reference.encode_properties({"KEYS": value.key} if value.key else {}),
            "store_timestamp": value.store_timestamp,
        }
        unit = reference.encode_unit(**{**fields, **lies})
        left = self.file_size - len(self._data)
        if len(unit) + reference.BLANK_SIZE > left:
            self._data += struct.pack(">ii", left, reference.MAGIC_BLANK)
            return False
        self._data += unit
        self._units += _UNIT.pack(position, len(unit), 0, value.store_timestamp, value.queue_offset, 1, -1, 0)
        return True

    def write_all(self, values: Iterable[Value], start: int) -> int:
        """Write messages into files from `start` on; where the next file would begin."""
        self.begin_file(start)
        for value in values:
            if not self.write(value):
                start += self.file_size
                self.begin_file(start)
                assert self.write(value)
        self._flush()
        return start + self.file_size

    def _flush(self) -> None:
        if self._start is not None:
            name = f"{self._start:020d}"
            (self.log / name).write_bytes(self._data.ljust(self.file_size, b"\0"))
            (self.queue / name).write_bytes(self._units.ljust(46 * 64, b"\0"))


def replace_files(root: Path, topic: str, queue_id: int, file_size: int, new: list[Value]) -> Iterator[str]:
    """A pass that has these messages left of all files but the last, rename by rename, as a broker does it; after each
    its name. The directory was not changed just now, so nobody waits for a broker."""
    writer = LogWriter(root, topic, queue_id, file_size)
    old = sorted(path.name for path in writer.log.iterdir())[:-1]
    made = LogWriter(root / "made", topic, queue_id, file_size)
    made.write_all(new, 0)
    for source, directory in ((made.log, writer.log), (made.queue, writer.queue)):
        shutil.move(source, directory / "compacting")
    for directory in (writer.log, writer.queue):
        new_names = sorted(path.name for path in (directory / "compacting").iterdir())
        renames = [(directory / name, directory / f"{name}.delete") for name in old]
        renames += [(directory / "compacting" / name, directory / name) for name in new_names]
        for source, target in renames:
            source.rename(target)
            os.utime(directory, (0, 0))
            yield str(target.relative_to(root / "compaction"))
        for name in old:
            (directory / f"{name}.delete").unlink()


def read_log(root: Path, topic: str, queue_id: int) -> Iterator[dict[str, Any]]:
    """The messages of a compaction log, by walking its files."""
    directory = root / "compaction" / "compactionLog" / topic / str(queue_id)
    for path in sorted(path for path in directory.iterdir() if path.name.isdigit()):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">ii", data, at)
            if magic not in (reference.MAGIC_V1, reference.MAGIC_V2):
                break
            yield {**reference.decode_unit(data[at : at + size], int(path.name) + at), "file": str(path)}
            at += size
