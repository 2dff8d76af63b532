"""Section `write-kernel`: rows in memory to units, units to their places, and what follows from them; one core.

Before anything is timed, rows read from a store have to become that store's log again, byte for byte.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from generate import Store
from measure import MIB, Row, Stores, batches_of, in_turns

from native_io import ENCODE_COLUMNS, Dispatched, Dispatcher, Encoder, Status, put_index
from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.store.format.message import host_bytes

LOG_BYTES = 64 * MIB  # more than a cache holds
WINDOW_BYTES = MIB // 2
SLOTS, ITEMS = 5_000_000, 20_000_000  # a broker's defaults


class Staged:
    """The beginning of a store, as rows in batches of about 1 MB and as units."""

    def __init__(self, store: Store) -> None:
        self.batches = list(_rows(store))
        self.segment_end = store.spec.segment_size
        units = [bytes(Encoder(allow_v2=False).encode(batch)[0]) for batch in self.batches]
        self.units = np.frombuffer(b"".join(units), np.uint8).copy()
        self.count = sum(batch.num_rows for batch in self.batches)
        self.dispatched = self.place()
        log = np.fromfile(min((store.root / "commitlog").iterdir()), np.uint8, len(self.units))
        if not np.array_equal(self.units, log):
            raise SystemExit(f"{store.root}: what is encoded from its rows is not its log")

    def encode(self) -> None:
        encoder = Encoder(allow_v2=False)
        for batch in self.batches:
            encoder.encode(batch)

    def place(self) -> Dispatched:
        """As a commit does it."""
        dispatcher, at = Dispatcher(), 0
        while at < len(self.units):
            # A window is cut anywhere: what it cuts off is placed with the next one.
            window = self.units[at : at + WINDOW_BYTES]
            _, at, status, *_ = dispatcher.place(window, position=at, segment_end=self.segment_end, store_timestamp=1)
            assert status in (Status.LIMIT, Status.MORE), status
        return dispatcher.finish()

    def dispatch(self) -> Dispatched:
        """As a rebuild does it."""
        dispatcher, end = Dispatcher(), len(self.units)
        _, at, status, *_ = dispatcher.dispatch(
            self.units, base=0, position=0, stop=end, segment_end=self.segment_end, verify_crc=True, most=self.count + 1
        )
        assert (at, status) == (end, Status.LIMIT)
        return dispatcher.finish()


def _rows(store: Store) -> Iterator[pa.RecordBatch]:
    """The store's first rows, as an Encoder wants them."""
    size = 0
    for batch in batches_of(store):
        columns = []
        for name in ENCODE_COLUMNS:
            column = batch.column(name)
            if pa.types.is_timestamp(COLUMNS[name].arrow):
                column = column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
            elif name.endswith("Host"):
                hosts = column.dictionary_encode()
                column = pa.array(map(host_bytes, hosts.dictionary.to_pylist()), pa.binary()).take(hosts.indices)
            columns.append(column)
        yield pa.record_batch(columns, ENCODE_COLUMNS)
        size += batch.nbytes
        if size >= LOG_BYTES:
            return


class Index:
    """The index entries of some log over and over, a million in all, and a file for them."""

    def __init__(self, dispatched: Dispatched) -> None:
        times = 1 + 10**6 // len(dispatched.key_hash)
        # Other keys each time, as they would be: so their slots lie all over a table that no cache holds.
        shift = np.repeat(np.arange(times, dtype=np.int64), len(dispatched.key_hash)) * 0x9E3779B1
        self._hashes = ((np.tile(dispatched.key_hash, times) + shift) & 0x7FFFFFFF).astype(np.int32)
        self._positions = np.tile(dispatched.key_position, times)
        self._timestamps = np.tile(dispatched.key_timestamp, times)
        self._file = mmap.mmap(-1, 40 + 4 * SLOTS + 20 * ITEMS)
        self.keys = len(self._hashes)

    def put(self) -> None:
        self._file[:40] = bytes(40)  # the header: the file is empty again
        put = put_index(
            self._file,
            slots=SLOTS,
            items=ITEMS,
            key_hash=self._hashes,
            key_position=self._positions,
            key_timestamp=self._timestamps,
        )
        assert put == self.keys


def write_kernel_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    """Speed of native_io's side of writing."""
    large, small = Staged(stores.large), Staged(stores.small)
    index = Index(small.dispatched)
    cases: dict[str, Callable[[], object]] = {"index": index.put}
    for text, staged in (("1 KiB", large), ("100 B", small)):
        cases |= {f"{text}, encode": staged.encode, f"{text}, place": staged.place, f"{text}, derive": staged.dispatch}
    best = in_turns(3 * repeat, cases)
    for what, name, goal in (
        ("encode", "Arrow to units", ">= 1"),
        ("place", "staged units to the log's, queues and index entries derived", ">= 3"),
        ("derive", "queues and index entries from a log as it stands", ">= 3"),
    ):
        speed = len(large.units) / best[f"1 KiB, {what}"]
        yield Row(f"kernel, 1 KiB bodies, {name}", speed / 1e9, "GB/s", None, goal)
        yield Row(f"kernel, 100 B bodies, {name}", best[f"100 B, {what}"] / small.count * 1e9, "ns/message")
    yield Row("kernel, index entries into a file of default size", best["index"] / index.keys * 1e9, "ns/key")
