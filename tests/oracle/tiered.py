"""A tiered store on a file system, as a broker brings messages there: each queue a log of its own."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oracle import reference
from oracle.stores import StoreBuilder
from oracle.unit import encode_unit

CLUSTER = "30781641_Cl"
_UNIT = struct.Struct(">qiq")


def name_of(start: int) -> str:
    return hashlib.md5(str(start).encode()).hexdigest()[:8] + f"{start:020d}"


def local_store(root: Path, rng: random.Random, count: int = 150) -> StoreBuilder:
    """The broker's own store whose queues are brought to a tier."""
    builder = StoreBuilder(root, segment_size=8192)
    for number in range(count):
        builder.append(
            rng.choice(["A", "A", "B", "%RETRY%g"]),
            f"body-{number}".encode() * rng.randint(1, 8),
            queue_id=rng.randrange(3),
            tags=rng.choice([None, "red", "blue"]),
            keys=f"key-{number % 40}",
            msg_id=f"{number:032X}",
        )
    builder.close()
    return builder


def queue_units(root: Path) -> dict[tuple[str, int], list[bytes]]:
    """The units of a store's log that are in queues, by queue."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for position, data in reference.read_units(root):
        unit = reference.parse_unit(data, position)
        found.setdefault((unit.topic.decode(), unit.queue_id), []).append(bytes(data))
    return found


class TierWriter:
    """Writes the log of one queue, segment by segment."""

    def __init__(self, tier: Path, topic: str, queue_id: int, broker: str = "bk") -> None:
        queue = tier / CLUSTER / broker / topic / str(queue_id)
        self.log, self.queue = queue / "COMMIT_LOG", queue / "CONSUME_QUEUE"
        for directory in (self.log, self.queue):
            directory.mkdir(parents=True, exist_ok=True)
        self.topic = topic
        self.next = 0  # flat offset

    def write_segment(self, units: Sequence[bytes], coda: bool = False, lag: int = 0) -> Path:
        """A file with these units; `lag`: so many of them have no unit in CONSUME_QUEUE yet."""
        data, claims = b"", b""
        first = struct.unpack_from(">q", units[0], 20)[0] if units else 0
        time = 0
        for unit in units:
            position = self.next + len(data)
            parsed = reference.parse_unit(unit, struct.unpack_from(">q", unit, 28)[0])
            code = reference.tags_code(
                self.topic, reference.parse_properties(parsed.properties), parsed.store_timestamp
            )
            claims += _UNIT.pack(position, len(unit), code)
            data += unit[:28] + struct.pack(">q", position) + unit[36:]
            time = parsed.store_timestamp
        if coda:
            data += struct.pack(">iiq", 16, reference.MAGIC_BLANK, time)
        path = self.log / name_of(self.next)
        path.write_bytes(data)
        claims = claims[: max(0, len(claims) - 20 * lag)]
        if claims:
            (self.queue / name_of(first * 20)).write_bytes(claims)
        self.next += len(data)
        return path


def bring(tier: Path, root: Path, rng: random.Random, codas: bool = False) -> dict[tuple[str, int], list[Path]]:
    """Bring all of a store's queues to a tier, in segments of random sizes."""
    files: dict[tuple[str, int], list[Path]] = {}
    for queue, units in queue_units(root).items():
        writer = TierWriter(tier, *queue)
        at = 0
        while at < len(units):
            count = rng.randint(1, 12)
            files.setdefault(queue, []).append(writer.write_segment(units[at : at + count], codas))
            at += count
    return files


def read_tier(tier: Path) -> Iterator[dict[str, Any]]:
    """The messages of a tier, by walking its files; those of the commitlog's columns are None."""
    for directory in sorted(tier.glob("*/*/*/*/COMMIT_LOG")):
        for path in sorted(directory.iterdir(), key=lambda path: path.name[8:]):
            data, at, start = path.read_bytes(), 0, int(path.name[8:])
            while at + 8 <= len(data):
                size, magic = struct.unpack_from(">ii", data, at)
                if magic not in (reference.MAGIC_V1, reference.MAGIC_V2) or at + size > len(data):
                    break
                row = reference.decode_unit(data[at : at + size], start + at)
                yield {**row, "commitLogOffset": None, "offsetMsgId": None, "file": os.fspath(path)}
                at += size


class GrowingQueue(TierWriter):
    """The log of a queue to which a broker brings messages one by one.

    Attributes:
        bodies: of all messages brought, by queueOffset.
        began: the store time (ms) of a first message; each later one is stored 1 ms later.
    """

    def __init__(self, tier: Path, topic: str, queue_id: int, broker: str = "bk") -> None:
        super().__init__(tier, topic, queue_id, broker)
        self.queue_id = queue_id
        self.offset = 0
        self.began = 1_700_000_000_000
        self.bodies: dict[int, bytes] = {}
        self._rest = self._claims = b""
        self._late = 0
        self._file = self._units = Path()
        self._begin()

    def _begin(self) -> None:
        for directory in (self.log, self.queue):
            directory.mkdir(parents=True, exist_ok=True)
        self._file = self.log / name_of(self.next)
        self._file.touch()
        if not self._late:
            self._units = self.queue / name_of(self.offset * 20)
        self._units.touch()

    @property
    def files(self) -> list[Path]:
        """The files of the log, in order."""
        return sorted(self.log.iterdir(), key=lambda path: path.name[8:])

    def bring(self, body: bytes, half: int | None = None, is_ahead: bool = False, is_late: bool = False) -> None:
        """Bring a message, or the first bytes of it: the rest comes with finish().

        Args:
            is_ahead: the queue's unit is there before the message is whole.
            is_late: the queue's unit comes with that of the next message.
        """
        time = self.began + self.offset
        unit = encode_unit(
            topic=self.topic,
            queue_id=self.queue_id,
            queue_offset=self.offset,
            physical_offset=self.next,
            body=body,
            store_timestamp=time,
        )
        self._claims += _UNIT.pack(self.next, len(unit), 0)
        self._late += 1
        if is_ahead:
            self._write_units()
        self.bodies[self.offset] = body
        self._rest = unit
        self.next += len(unit)
        self.offset += 1
        self._write(len(unit) if half is None else half)
        if self.is_whole and not is_late:
            self._write_units()

    def _write(self, size: int) -> None:
        with self._file.open("ab") as file:
            file.write(self._rest[:size])
        self._rest = self._rest[size:]

    def _write_units(self) -> None:
        with self._units.open("ab") as file:
            file.write(self._claims)
        self._claims, self._late = b"", 0

    @property
    def has_units(self) -> bool:
        """Has the queue a unit of a message?"""
        return any(path.stat().st_size for path in self.queue.iterdir())

    @property
    def is_whole(self) -> bool:
        """Is the last message whole?"""
        return not self._rest

    def finish(self) -> None:
        """Bring the rest of the last message."""
        if self._rest:
            self._write(len(self._rest))
            self._write_units()

    def kill(self, is_late: bool = False) -> None:
        """Kill the broker, and start it: it brings again what has no units yet, behind what is there.

        Args:
            is_late: the last unit does not come yet.
        """
        end = self.offset
        self.offset -= self._late
        self.next = int(self._file.name[8:]) + self._file.stat().st_size
        self._rest = self._claims = b""
        self._late = 0
        for number in range(self.offset, end):
            self.bring(self.bodies[number], is_late=is_late and number == end - 1)

    def roll(self, coda: bool = False) -> None:
        """Begin a file."""
        if coda:
            with self._file.open("ab") as file:
                file.write(struct.pack(">iiq", 16, reference.MAGIC_BLANK, 1_700_000_000_000))
            self.next += 16
        self._begin()

    def expire(self) -> None:
        """Delete the first file."""
        self.files[0].unlink()

    def begin_anew(self, lost: int) -> None:
        """The broker has lost messages before it brought them: it deletes what it has brought."""
        shutil.rmtree(self.log.parent)
        self.offset += lost
        self.next = 0
        self._begin()
