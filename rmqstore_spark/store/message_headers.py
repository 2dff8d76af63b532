"""The messages at many places of a log, read in its order, each once."""

import itertools
from collections.abc import Iterable

from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.many_headers import Place, headers_at
from rmqstore_spark.store.structures.segments import Extent

_FETCHED_AT_ONCE = 256  # headers that are asked for before the first of them is needed, where requests take long


def headers_of(store: Snapshot, places: Iterable[Place]) -> dict[int, Header | None]:
    """What LiveLog.header() says of each place in the log, by physical offset: the unit there, live or not, or None."""
    by_position = {place.position: place for place in places}
    located = ((store.log.extent_at(position), by_position[position]) for position in sorted(by_position))
    found: dict[int, Header | None] = {}
    for extent, group in itertools.groupby(located, key=lambda pair: pair[0]):
        if extent is None:
            continue
        here = [place for _, place in group]
        with store.reader(extent.segment) as reader:
            headers = _fetched(store, extent, reader, here) if store.files.is_slow else headers_at(reader, here)
            found.update(zip((place.position for place in here), headers, strict=True))
    return found


def _fetched(store: Snapshot, extent: Extent, reader: SegmentReader, places: list[Place]) -> list[Header | None]:
    """headers_at() where pages of the segment come side by side, and stay."""
    found: list[Header | None] = []
    for first in range(0, len(places), _FETCHED_AT_ONCE):
        some = [place.position for place in places[first : first + _FETCHED_AT_ONCE]]
        store.files.prefetch((extent.segment.path, position - extent.segment.start) for position in some)
        found += map(reader.header, some)
    return found
