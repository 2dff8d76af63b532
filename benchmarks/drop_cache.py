"""Section `drop-cache`: a scan that leaves the page cache as it was, against an ordinary one. Nothing of the log is in
the page cache when either begins."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from generate import Store
from measure import Row, Stores, batches_of


def drop_cache_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    """CPU seconds of this process. Those of the ordinary scan vary, as it needs memory that the system may have to get
    from its host first; the least of all runs counts."""
    store = stores.large
    costs: dict[str, list[float]] = {"false": [], "true": []}
    for _ in range(repeat):
        for option, found in costs.items():
            forget(store)
            begin = time.process_time()
            rows = sum(batch.num_rows for batch in batches_of(store, dropCache=option))
            found.append(time.process_time() - begin)
            assert rows == store.units
    ordinary, polite = (min(found) for found in costs.values())
    yield Row("dropCache / an ordinary scan, cold", store.end / polite / 1e9, "GB/CPU s", polite / ordinary, "<= 1.2")


def forget(store: Store) -> None:
    """Drop a store's log from the page cache."""
    for path in (store.root / store.spec.log).iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
