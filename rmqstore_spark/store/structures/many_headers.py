"""The headers of many units of a segment, given where each is said to begin: read and decoded together, into columns.

One header by itself takes Python 20 microseconds; here most take less than one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from native_io import Filter, Status
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.units import BatchBuilder, Claims
from rmqstore_spark.store.structures.commitlog import SegmentReader

_LARGE = 32 * 1024  # bytes: of a larger unit only the head and the tail are read
_FEW = 4  # units that are sooner looked at one by one
_AT_ONCE = 64 * 1024  # units whose fields are in memory at a time
_NUMBERS = ["commitLogOffset", "storeSize", "queueId", "queueOffset", "sysFlag"]
NO_TIME = -(1 << 63)  # in the place of an unknown time: no number of whole milliseconds, in microseconds

_Longs = npt.NDArray[np.int64]


class Place(NamedTuple):
    """Where a unit is said to be.

    Attributes:
        position: physical offset.
        size: bytes.
    """

    position: int
    size: int


@dataclass(frozen=True, eq=False)
class Headers:
    """The headers of units, as arrays of one length. What is not there has zeros and no topic.

    Attributes:
        positions: where they were looked for: physical offsets, ascending, each once.
        are_there: whether there is a unit.
        numbers: rows of sizes, queueIds, queue offsets and sysFlags.
        times: store times (us); NO_TIME where they do not fit an int64.
        topics: texts.
    """

    positions: _Longs
    are_there: npt.NDArray[np.bool_]
    numbers: _Longs
    times: _Longs
    topics: npt.NDArray[np.object_]

    @classmethod
    def none_at(cls, positions: _Longs) -> "Headers":
        """Arrays for headers that nobody has looked for yet."""
        count = len(positions)
        numbers, times = np.zeros((len(_NUMBERS) - 1, count), np.int64), np.full(count, NO_TIME, np.int64)
        return cls(positions, np.zeros(count, np.bool_), numbers, times, np.full(count, None, np.object_))

    def part(self, first: int, stop: int) -> "Headers":
        """Some of them: the same memory."""
        here = slice(first, stop)
        return Headers(
            self.positions[here], self.are_there[here], self.numbers[:, here], self.times[here], self.topics[here]
        )

    def put(self, at: int, header: Header | None) -> None:
        """Fill in one of them."""
        self.are_there[at] = header is not None
        if header is not None:
            self.numbers[:, at] = header.size, header.queue_id, header.queue_offset, header.sys_flag
            self.times[at] = NO_TIME if header.store_timestamp is None else header.store_timestamp
            self.topics[at] = header.topic

    def at(self, which: Sequence[int] | _Longs) -> list[Header | None]:
        """Some of them, by their index."""
        columns = (self.topics, *self.numbers[1:], self.times, self.positions, self.numbers[0])
        rows = zip(self.are_there[which].tolist(), *(column[which].tolist() for column in columns), strict=True)
        return [
            Header(topic, queue, offset, flags, None if time == NO_TIME else time, at, size) if is_there else None
            for is_there, topic, queue, offset, flags, time, at, size in rows
        ]


def fill_headers(reader: SegmentReader, headers: Headers, sizes: _Longs) -> None:
    """Fill in what SegmentReader.header() says of each place, whatever unit is said to be there.

    Args:
        reader: reads the segment, without checking bodies.
        sizes: the bytes of each unit, as far as is said.
    """
    if len(sizes) > _FEW and reader.segment.wrapping is None:
        for first in range(0, len(sizes), _AT_ONCE):
            _decode(reader, headers.part(first, first + _AT_ONCE), sizes[first : first + _AT_ONCE])
    for at in np.flatnonzero(~headers.are_there).tolist():
        headers.put(at, reader.header(int(headers.positions[at])))


def _decode(reader: SegmentReader, headers: Headers, sizes: _Longs) -> None:
    """Fill in the headers of the units that are there and have the size that is said."""
    which = (sizes > 0) & (sizes <= _LARGE)
    builder = BatchBuilder([*_NUMBERS, "storeTimestamp", "topic"])
    claims, every, at = Claims(headers.positions[which], sizes[which].astype(np.int32)), Filter(), 0
    while at < len(claims):
        run, walked = reader.pick(claims, at, every)
        if run is not None:
            run.add_to(builder)
        at = walked.at + (walked.status is not Status.LIMIT)  # past what is not there
    positions, *numbers, times, topics = builder.finish().columns
    # Not to_numpy(), which imports pandas where that is installed.
    found = np.searchsorted(headers.positions, np.from_dlpack(positions))
    headers.are_there[found] = True
    for of, column in zip(headers.numbers, numbers, strict=True):
        of[found] = np.from_dlpack(column)
    headers.times[found] = _times(times)
    texts: npt.NDArray[Any] = np.empty(len(found), np.object_)
    texts[:] = topics.to_pylist()
    headers.topics[found] = texts


def _times(times: pa.Array) -> _Longs:
    """Times (us), NO_TIME for null."""
    if times.null_count:
        known = [NO_TIME if time is None else time for time in times.cast(pa.int64()).to_pylist()]
        return np.array(known, np.int64)
    return np.from_dlpack(times.cast(pa.int64())).astype(np.int64)
