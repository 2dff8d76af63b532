"""The messages at many places of a log, read in its order, each once."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.many_headers import Headers, Place, fill_headers
from rmqstore_spark.store.structures.segments import Extent

_FETCHED_AT_ONCE = 256  # headers that are asked for before the first of them is needed, where requests take long

_Longs = npt.NDArray[np.int64]


def headers_of(store: Snapshot, places: Iterable[Place]) -> dict[int, Header | None]:
    """What LiveLog.header() says of each place in the log, by physical offset: the unit there, live or not, or None."""
    by_position = {place.position: place.size for place in places}
    positions = sorted(by_position)
    found = many_headers(store, _longs(positions), _longs(by_position[at] for at in positions))
    return dict(zip(positions, found.at(range(len(positions))), strict=True))


def many_headers(store: Snapshot, positions: _Longs, sizes: _Longs) -> Headers:
    """headers_of() in columns.

    Args:
        positions: physical offsets, ascending, each once.
        sizes: the bytes of each unit, as far as is said.
    """
    found = Headers.none_at(positions)
    for extent in store.log.extents:
        first, stop = np.searchsorted(positions, (extent.start, extent.stop)).tolist()
        if first == stop:
            continue
        here = found.part(first, stop)
        with store.reader(extent.segment) as reader:
            if store.files.is_slow:
                _fetch(store, extent, reader, here)
            else:
                fill_headers(reader, here, sizes[first:stop])
    return found


def _fetch(store: Snapshot, extent: Extent, reader: SegmentReader, headers: Headers) -> None:
    """fill_headers() where pages of the segment come side by side, and stay."""
    positions = headers.positions.tolist()
    for first in range(0, len(positions), _FETCHED_AT_ONCE):
        some = positions[first : first + _FETCHED_AT_ONCE]
        store.files.prefetch((extent.segment.path, position - extent.segment.start) for position in some)
        for at, position in enumerate(some, first):
            headers.put(at, reader.header(position))


def _longs(values: Iterable[int]) -> _Longs:
    return np.fromiter(values, np.int64)
