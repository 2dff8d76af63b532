"""A few mutations of queues in RocksDB, and of all databases of real stores; machine.rocksdb_queues and
machine.rocksdb_stores try many."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from support import flavours

from machine import rocksdb_queues, rocksdb_stores


@pytest.mark.slow
@pytest.mark.long
def test_mutated_queues(rng: random.Random, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    rocksdb_queues.try_seed(1004)  # a last unit lied about where its message ends, and table usage raised
    for _ in range(3):
        rocksdb_queues.try_seed(rng.randrange(1 << 32), mutations=5)


@pytest.mark.slow
@pytest.mark.long
def test_real_stores(rng: random.Random, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """A share of the places in the files of real databases; machine.rocksdb_stores tries all."""
    caplog.set_level(logging.ERROR)
    stores = [flavours.unpack_store(name, tmp_path) for name in rocksdb_stores.STORES]
    tried = [*rocksdb_stores.try_places(stores, rng, 3000, most=12)]
    assert len(tried) == 12
