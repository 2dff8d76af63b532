"""Tiers that brokers have left that were killed again and again, by what RocketMQ's tieredstore does.

A broker brings some messages, then writes their units; what is full is written at once and the next file begun. One
that starts goes on after the last unit of the queue, behind the last byte of its log. So a kill leaves:
    k  messages without units, which come again
    h  the same, and half of the next message
    t  the same, and another one's half of it in the same file, which together are as long as it
    n  units without messages: those of a file that was full; the broker goes on with the messages after them
    f  units of a full file with some of their messages, and half of the next one
    u  units of a full file and half of their first message, and then the same of another one, whose half goes on where
        the first half ends, to that message's end or beyond
    K, H  as k and h, before any unit
    c  a loss of power, which cuts the last file of units within a unit; all units after it are no multiple of 20 bytes
        from the beginning, also in the files after this one
Source: org.apache.rocketmq.tieredstore.core.MessageStoreDispatcherImpl, file.FlatAppendFile, provider.FileSegment.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oracle import reference
from oracle.tiered import CLUSTER, name_of

UNIT = struct.Struct(">qiq")
LONG_AGO = 1_700_000_000


class KilledQueue:
    """The log of one queue.

    Attributes:
        whole: the queue offsets of which the log has a whole message.
        events: what has happened: the kind, the first queue offset, the one after the last message, and after the last
            unit.
    """

    def __init__(self, tier: Path, topic: str, queue_id: int, units: Sequence[bytes], rng: random.Random) -> None:
        directory = tier / CLUSTER / "bk" / topic / str(queue_id)
        self.log, self.queue = directory / "COMMIT_LOG", directory / "CONSUME_QUEUE"
        for each in (self.log, self.queue):
            each.mkdir(parents=True)
        self.units, self._rng, self._topic = units, rng, topic
        self._units_per_file = rng.choice([4, 9, 1000])
        self._file_size = rng.choice([1500, 6000, 10**9])
        self._file, self._size = self.log / name_of(0), 0
        self._next = 0  # flat offset
        self._number = 0  # after the last unit
        self._units_start = self._units_end = 0  # bytes of the queue: where its last file begins, and ends
        self.whole: set[int] = set()
        self.events: list[tuple[str, int, int, int]] = []

    @property
    def is_over(self) -> bool:
        """Have nearly all messages come?"""
        return self._number >= len(self.units) - 24

    @property
    def lost(self) -> set[int]:
        """What never came, though messages after it did."""
        return {*range(max(self.whole, default=-1) + 1)} - self.whole

    def step(self, kind: str, count: int | None = None) -> None:
        """One more broker, until it is killed.

        Args:
            count: of messages; drawn if None.
        """
        rng, first = self._rng, self._number
        if kind in "nfu" and first:
            units = rng.randint(1, 4)
            messages = rng.randrange(units) if kind == "f" else 0
        else:
            messages = rng.randint(1, 9) if count is None else count
            units = {"o": messages, "K": 0, "H": 0}.get(kind, rng.randint(0, messages))
        claims, at = [], self._next
        for number in range(first, first + units):
            claims.append((at, number))
            at += len(self.units[number])
        for number in range(first, first + messages):
            self._bring(self._placed(number))
            self.whole.add(number)
        if kind == "t":
            begun = self._placed(first + messages)
            missing = rng.randint(8, 60)  # less of a head is no head
            self._bring(begun[:-missing])
            if self._size < self._file_size:
                self._bring(self._placed(first + messages)[:missing])
        if kind in "hHf":
            half = self._placed(first + messages)
            sizes = [rng.randrange(1, len(half)), len(half) - rng.randint(1, 30), rng.randint(1, 60)]
            self._bring(half[: rng.choice(sizes)])
        for at, number in claims:
            self._claim(at, number)
        if kind == "u" and first:
            self._bring_halves(first, first + units)
            units += 1
        self._number += units
        if kind == "c" and self._units_end > self._units_start:
            self._cut(rng.randint(1, min(self._units_end - self._units_start, rng.choice([19, 70]))))
        self.events.append((kind, first, first + messages, first + units))

    def finish(self, is_killed: bool = False) -> None:
        """One that is not killed, long ago.

        Args:
            is_killed: whether there is none, if the last one has brought the messages of its units.
        """
        if not is_killed or not self.events or self.events[-1][0] in "nfu":
            self.step("o", max({self._number, *self.whole}) + 1 - self._number)
        for path in (*self.log.iterdir(), *self.queue.iterdir()):
            os.utime(path, (LONG_AGO, LONG_AGO))

    def rows(self) -> list[dict[str, Any]]:
        """The messages that are there."""
        return [
            {**reference.decode_unit(self.units[number], 0), "commitLogOffset": None, "offsetMsgId": None}
            for number in sorted(self.whole)
        ]

    def _bring_halves(self, number: int, other: int) -> None:
        """The halves of two messages, the second one after its unit."""
        missing = self._rng.randint(8, 60)
        self._bring(self._placed(number)[:-missing])
        self._claim(self._next, other)
        if self._size < self._file_size:
            self._bring(self._placed(other)[: missing + self._rng.choice([0, self._rng.randrange(40)])])

    def _placed(self, number: int) -> bytes:
        unit = self.units[number]
        if self._size >= self._file_size:
            self._file, self._size = self.log / name_of(self._next), 0
        return unit[:28] + struct.pack(">q", self._next) + unit[36:]

    def _bring(self, data: bytes) -> None:
        with self._file.open("ab") as file:
            file.write(data)
        self._next += len(data)
        self._size += len(data)

    def _claim(self, position: int, number: int) -> None:
        unit = reference.parse_unit(self.units[number], struct.unpack_from(">q", self.units[number], 28)[0])
        properties = reference.parse_properties(unit.properties)
        code = reference.tags_code(self._topic, properties, unit.store_timestamp)
        if self._units_end + UNIT.size > self._units_start + UNIT.size * self._units_per_file:
            self._units_start = self._units_end
        with (self.queue / name_of(self._units_start)).open("ab") as file:
            file.write(UNIT.pack(position, len(self.units[number]), code))
        self._units_end += UNIT.size

    def _cut(self, nbytes: int) -> None:
        path = self.queue / name_of(self._units_start)
        path.write_bytes(path.read_bytes()[:-nbytes])
        self._units_end -= nbytes
        self._number = self._units_end // UNIT.size
