"""Our rows of stores that real brokers wrote are what RocketMQ itself says is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracle import golden, reference, truth
from support import reading


@pytest.fixture(params=golden.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(version: str, tmp_path: Path) -> Path:
    return golden.unpack(version, tmp_path / "store")


def test_there_are_golden_stores() -> None:
    assert len(golden.VERSIONS) >= 4


def test_every_row(version: str, store: Path) -> None:
    expected = golden.load_truth(version).units
    pieces: tuple[dict[str, Any], ...] = ({}, {"minPartitions": 7}, {"maxPartitionBytes": 1000})
    for options in pieces:
        plain = reading.read(store, **options)
        stored = reading.read(store, decompress=False, **options)
        assert truth.as_units(plain, stored) == expected, options


def test_the_reference_reads_the_same(version: str, store: Path) -> None:
    plain, stored = reference.read_store(store), reference.read_store(store, decompress=False)
    assert truth.as_units(plain, stored) == golden.load_truth(version).units


def test_every_queue(version: str, store: Path) -> None:
    truth.assert_queues(store, golden.load_truth(version))
