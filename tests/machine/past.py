"""A store with a past, and all that is known of it because the machine itself made it so: the truth by construction."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from oracle import reference
from oracle.stores import StoreBuilder

Row = dict[str, Any]
QueueName = tuple[str, int]


class Message(NamedTuple):
    """A message of the log, as it was before anything was damaged. `row`: as the plain reference decodes it; `rows`: of
    a batch, one for each message in it."""

    position: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int  # milliseconds
    queued: bool
    row: Row
    rows: tuple[Row, ...]

    @property
    def end(self) -> int:
        return self.position + self.size

    @property
    def queue(self) -> QueueName:
        return self.topic, self.queue_id


class Damage(NamedTuple):
    """Bytes of the log that were changed.

    Attributes:
        start, stop: physical offsets of the first message that is touched, and after the last one; of a closing blank
            where none is.
        keeps_head: whether size, magic, queue and store time of the first message can still be read.
        is_zero: whether only zeros are left of the first message.
    """

    start: int
    stop: int
    how: str
    keeps_head: bool
    is_zero: bool = False
    is_blank: bool = False


@dataclass
class Past:
    """A store and its truth.

    Attributes:
        messages: the live ones in the order of the log, damaged ones too.
        stale: messages that a truncation cut off, and whose bytes are all still there.
        first_after_cut: physical offsets of the first messages that were written after a truncation.
        ours: physical offsets of the messages that the package itself has written: their times may go back by any span.
        had_cut: whether something was ever cut off, so that an index may lack messages.
        events: what happened, in order, for people.
    """

    root: Path
    segment_size: int
    queue_file_size: int
    start: int = 0
    messages: list[Message] = field(default_factory=list)
    stale: list[Message] = field(default_factory=list)
    first_after_cut: list[int] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    groups: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    abort: bool = False
    has_index: bool = False
    index_slots: int = 0
    had_cut: bool = False
    ours: set[int] = field(default_factory=set)
    queues_are_whole: bool = True
    events: list[str] = field(default_factory=list)
    builder: StoreBuilder | None = None

    @property
    def end(self) -> int:
        return self.messages[-1].end if self.messages else self.start

    def segment_of(self, position: int) -> int:
        """Where the segment begins that a physical offset is in."""
        return position - position % self.segment_size

    def path_of(self, position: int) -> Path:
        return self.root / "commitlog" / f"{self.segment_of(position):020d}"

    def stored(self, message: Message) -> bytes:
        """Its bytes as they are now."""
        with self.path_of(message.position).open("rb") as file:
            file.seek(message.position % self.segment_size)
            return file.read(message.size)

    @property
    def is_damaged(self) -> bool:
        return bool(self.damages)

    def told(self) -> str:
        return "; ".join(self.events)


def read_messages(root: Path) -> list[Message]:
    """The messages of a store that is whole, by the plain reference."""
    found = []
    for position, data in reference.read_units(root):
        unit = reference.parse_unit(data, position)
        row, rows = reference.decode_unit(data, position), reference.rows_of_unit(data, position)
        queued = unit.sys_flag & reference.TRANSACTION_BITS in (0, reference.COMMIT)
        place = (row["topic"], unit.queue_id, unit.queue_offset)
        found.append(Message(position, len(data), *place, unit.store_timestamp, queued, row, tuple(rows)))
    return found


def known_topics(root: Path) -> set[str]:
    """Those that config/ has."""
    path = root / "config" / "topics.json"
    return set(json.loads(path.read_text())["topicConfigTable"]) if path.exists() else set()


def queue_units(root: Path) -> Iterator[tuple[str, int, int, int, int]]:
    """(topic, queueId, queueOffset, physical offset, size) of all units in ConsumeQueue files, those after a hole too;
    what is pre-blank is left out."""
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        data, start = path.read_bytes(), int(path.name)
        for at in range(0, len(data) - 19, 20):
            position, size, _ = struct.unpack_from(">qiq", data, at)
            if position >= 0 and 0 < size < 0x7FFFFFFF:
                yield path.parent.parent.name, int(path.parent.name), (start + at) // 20, position, size
    for path in sorted((root / "batchconsumequeue").glob("*/*/*")):
        data = path.read_bytes()
        for at in range(0, len(data) - 45, 46):
            unit = reference.read_queue_unit(data[at : at + 46], 0)
            if unit.kind == "message":
                place = unit.queue_offset, unit.physical_offset, unit.size
                yield path.parent.parent.name, int(path.parent.name), *place


class Difference(Exception):
    """The package and the truth are not the same.

    Args:
        kind: what differs, the same text for all cases of a kind.
        text: this case.
    """

    def __init__(self, kind: str, text: object = "") -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = str(text)
