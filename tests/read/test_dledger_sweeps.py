"""A small log of DLedger, cut at every byte and with bits flipped: all other rows are right, and damage is told."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from oracle import dledger
from oracle.dledger import DLedgerStoreBuilder
from support.reading import Row, read

from rmqstore_spark.errors import RmqStoreError

ALL_BITS = bool(os.environ.get("RMQ_ALL_BITS"))  # every bit, not one of some bytes
STEP = 1 if ALL_BITS else 7
COLUMNS = ["topic", "queueId", "queueOffset", "keys", "body", "commitLogOffset"]


@pytest.fixture
def store(tmp_path: Path) -> DLedgerStoreBuilder:
    """Five entries, one without a message, of two terms; its queues know all messages."""
    built = DLedgerStoreBuilder(tmp_path, 4096)
    for number in range(4):
        if number == 2:
            built.term = 1
            built.append_empty(2)
        built.append("A", f"body-{number}".encode(), keys=f"k{number}")
    built.close()
    return built


def _read(store: DLedgerStoreBuilder, mode: str) -> list[Row]:
    return read(store.root, columns=COLUMNS, mode=mode)


def _fails(store: DLedgerStoreBuilder) -> bool:
    try:
        _read(store, "FAILFAST")
    except RmqStoreError:
        return True
    return False


def _bits(rng: random.Random, end: int) -> Iterator[tuple[int, int]]:
    """Bits of a log's bytes up to `end`, each as its byte and number."""
    for at in range(rng.randrange(STEP), end, STEP):
        yield from ((at, bit) for bit in (range(8) if ALL_BITS else [rng.randrange(8)]))


def test_flipped_bits(store: DLedgerStoreBuilder, rng: random.Random) -> None:
    path, wanted = store.segment(0), {row["commitLogOffset"]: row for row in _read(store, "FAILFAST")}
    data, entries = path.read_bytes(), list(dledger.entries(store.root))
    assert [bool(entry.unit) for entry in entries] == [True, True, False, True, True]
    lost = 0
    for at, bit in _bits(rng, entries[-1].end):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        hit = next(number for number, entry in enumerate(entries) if at < entry.end)
        in_header = at < entries[hit].position + dledger.HEADER.size
        kept = {row["commitLogOffset"]: row for row in _read(store, "DROPMALFORMED")}
        for number, entry in enumerate(entries):
            row = wanted.get(entry.position + dledger.HEADER.size)
            if row is not None and (number != hit or in_header):  # a message behind a damaged header is whole
                assert kept.get(entry.position + dledger.HEADER.size) == row, (at, bit)
        assert kept.keys() <= wanted.keys()
        if len(kept) < len(wanted):
            lost += 1
            assert _fails(store), (at, bit)
    assert lost > 3


def test_cut_at_every_byte(store: DLedgerStoreBuilder, rng: random.Random) -> None:
    """Bytes that are missing, as in a copy that was not finished, or zeros, as after a crash."""
    path, expected = store.segment(0), _read(store, "FAILFAST")
    data, entries = path.read_bytes(), list(dledger.entries(store.root))
    ends = {0, *(entry.end for entry in entries)}
    for at in range(rng.randrange(STEP), entries[-1].end, STEP):
        whole = [row for row in expected if any(row["commitLogOffset"] + len(e.unit) == e.end <= at for e in entries)]
        path.write_bytes(data[:at])
        assert _read(store, "DROPMALFORMED") == whole, at
        if at not in ends:
            assert _fails(store), at
        path.write_bytes(data[:at].ljust(len(data), b"\0"))
        rows = _read(store, "DROPMALFORMED")
        assert rows[: len(whole)] == whole, at
        # No checksum covers properties: a message that has lost only some of them may be there.
        assert [row["body"] for row in rows[len(whole) :]] in ([], [expected[len(whole)]["body"]]), at
