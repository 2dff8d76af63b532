"""Messages of the copied stores, as arrays, in the order of the new log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rmqstore_spark.jobs.copying.source import Source
from rmqstore_spark.store.format.by_queue import Integers
from rmqstore_spark.store.format.message import are_queued

_COLUMNS = ("codes", "positions", "sizes", "queue_ids", "queue_offsets", "timestamps", "flags", "prepared")


class Units(Protocol):
    """Reads the bytes of messages (read/run/stored.py)."""

    def read_into(self, memory: memoryview, positions: Integers, sizes: Integers) -> None:
        """Put units into memory, back to back; arguments and errors as of StoredUnits."""


@dataclass(frozen=True)
class Rows:
    """Some messages of a source, as arrays of one length.

    Large because a copy needs each of these columns of a message, and no other.

    Attributes:
        source: the messages' source.
        units: reads the messages' bytes.
        topics: names; `codes` are indexes into it.
        queue_ids, queue_offsets: those in the new store.
        timestamps: store times, in microseconds.
        flags: sysFlag.
        prepared: the physical offsets of committed messages' half messages, in the old log.
        renamed: whether queue_ids or queue_offsets are not those that stand in the units.
    """

    source: Source
    units: Units
    topics: list[str]
    codes: Integers
    positions: Integers
    sizes: Integers
    queue_ids: Integers
    queue_offsets: Integers
    timestamps: Integers
    flags: Integers
    prepared: Integers
    renamed: bool = False

    @property
    def is_queued(self) -> npt.NDArray[np.bool_]:
        """True for the messages that are in a queue."""
        return are_queued(self.flags)

    def only(self, which: npt.NDArray[np.bool_ | np.intp] | slice) -> Rows:
        """Some of the messages, by a mask, or by their numbers in the order wanted."""
        return replace(self, **{name: getattr(self, name)[which] for name in _COLUMNS})


def together(parts: list[Rows]) -> Rows:
    """The messages of some parts of one source, in their order."""
    topics = list(dict.fromkeys(topic for part in parts for topic in part.topics))
    codes = [np.array([topics.index(topic) for topic in part.topics], np.int64)[part.codes] for part in parts]
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return replace(parts[0], topics=topics, **{**columns, "codes": np.concatenate(codes)})


def merged(streams: list[Iterator[Rows]]) -> Iterator[Rows]:
    """The messages of all streams by store time; the messages of one stream keep their order."""
    heads = [(number, rows) for number, stream in enumerate(streams) if (rows := next(stream, None)) is not None]
    while heads:
        if len(heads) == 1:
            number, rows = heads[0]
            yield rows
            yield from streams[number]
            return
        # A store time earlier than the one before it in its stream counts as that one.
        at = min(range(len(heads)), key=lambda i: int(heads[i][1].timestamps[0]))
        number, rows = heads[at]
        others = min(int(rows.timestamps[0]) for i, (_, rows) in enumerate(heads) if i != at)
        end = max(1, int(np.searchsorted(np.maximum.accumulate(rows.timestamps), others, "right")))
        yield rows.only(slice(end))
        rest = rows.only(slice(end, None)) if end < len(rows.positions) else next(streams[number], None)
        if rest is None:
            heads.pop(at)
        else:
            heads[at] = number, rest
