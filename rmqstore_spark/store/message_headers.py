"""The messages at many places of a log, read in its order, each once."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.many_headers import Headers, Place, fill_headers
from rmqstore_spark.store.structures.segments import Extent

# Where requests take long, pages are asked for before the first of them is needed: no more than are kept.
_PAGE, _PAGES_AT_ONCE = 64 * 1024, 768
_END_SIZE = 4 * 1024  # bytes at the end of a larger message, which mostly have all that comes after its body

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
    if store.files.is_slow:
        _fetch(store, found, sizes)
        return found
    for extent in store.log.extents:
        first, stop = np.searchsorted(positions, (extent.start, extent.stop)).tolist()
        if first == stop:
            continue
        with store.reader(extent.segment) as reader:
            fill_headers(reader, found.part(first, stop), sizes[first:stop])
    return found


def _fetch(store: Snapshot, headers: Headers, sizes: _Longs) -> None:
    """fill_headers() of all segments where pages come side by side, and stay."""
    places = [
        (int(headers.positions[row]), int(sizes[row]), extent)
        for extent in store.log.extents
        for row in range(*np.searchsorted(headers.positions, (extent.start, extent.stop)))
    ]
    positions = np.array([position for position, _, _ in places], np.int64)
    rows = np.searchsorted(headers.positions, positions).tolist()
    # Two neighbours that are asked for with one request may have a page or two between them.
    pages = np.cumsum(np.minimum(np.diff(positions // _PAGE, prepend=0), 3))
    last = int(pages[-1]) // _PAGES_AT_ONCE if places else -1
    bounds = np.searchsorted(pages // _PAGES_AT_ONCE, range(last + 2)).tolist()
    for first, stop in itertools.pairwise(bounds):
        some = places[first:stop]
        store.files.prefetch(both for place in some for both in _both_ends(*place))
        for segment, here in itertools.groupby(zip(rows[first:stop], some, strict=True), key=lambda e: e[1][2].segment):
            with store.reader(segment) as reader:
                for row, (position, _, _) in here:
                    headers.put(row, reader.header(position))


def _both_ends(position: int, size: int, extent: Extent) -> Iterator[tuple[str, int]]:
    """Where a message begins in its file, and where the end of a larger one is: both are needed for its header."""
    path, start = extent.segment.path, extent.segment.start
    yield path, position - start
    if _END_SIZE < size <= extent.stop - position:
        yield path, position + size - _END_SIZE - start


def _longs(values: Iterable[int]) -> _Longs:
    return np.fromiter(values, np.int64)
