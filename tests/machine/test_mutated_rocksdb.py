"""A few mutations of queues in RocksDB; machine.rocksdb_queues tries many."""

from __future__ import annotations

import logging
import random

import pytest

from machine import rocksdb_queues


def test_mutated_queues(rng: random.Random, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    for _ in range(3):
        rocksdb_queues.try_seed(rng.randrange(1 << 32), mutations=5)
