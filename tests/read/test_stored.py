"""Units for a copy out of object storage come in few requests: what follows one another is fetched ahead, the rest at
once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from support import remote

import rmqstore_spark
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.read.run.stored import StoredUnits
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot

MIB = 1 << 20
DELAY = 0.1  # seconds of a request: far more than the work between two of them takes
TRIES = 3  # where something else kept this machine busy meanwhile


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """46 MiB of messages, each of 128 KiB, in two segments; the second one is not full."""
    root = tmp_path_factory.mktemp("stored") / "store"
    bodies = [b"%02d" % (number % 100) * (1 << 16) for number in range(368)]
    table = pa.table({"topic": ["Orders"] * len(bodies), "body": bodies})
    rmqstore_spark.write_store(root, table, mappedFileSizeCommitLog=32 * MIB)
    return root


def units_of(store: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where they are, and how large."""
    found = rmqstore_spark.Store(store).messages(["commitLogOffset", "storeSize"]).read_all()
    return found["commitLogOffset"].to_numpy(), found["storeSize"].to_numpy().astype(np.int64)


@pytest.mark.parametrize(
    ("every", "most_rounds", "most_bytes"),
    [(1, 5, 1.1), (3, 10, 1.1), (16, 5, 0.2)],
    ids=["all", "a third", "a few"],
)
def test_the_same_bytes_in_few_rounds(store: Path, every: int, most_rounds: int, most_bytes: float) -> None:
    positions, sizes = (each[::every] for each in units_of(store))
    with StoredUnits(Snapshot.find(str(store), Files())) as local:
        expected = read(local, positions, sizes)
    log = b"".join(file.read_bytes() for file in sorted((store / "commitlog").iterdir()))
    assert expected == b"".join(log[at : at + size] for at, size in zip(positions, sizes, strict=True))
    found = []
    for _ in range(TRIES):
        slow = remote.Slow(DELAY)
        opened = Snapshot.find(str(store), slow.files)
        end = opened.end
        slow.begun, slow.nbytes = [], 0
        with StoredUnits(opened) as units:
            assert read(units, positions, sizes) == expected
        assert slow.nbytes <= most_bytes * end + MIB
        found.append(slow.rounds())
        if found[-1] <= most_rounds:
            return
    pytest.fail(f"{found} rounds, at most {most_rounds} were expected")


@pytest.mark.parametrize("every", [1, 16])
@pytest.mark.parametrize("is_remote", [False, True], ids=["disk", "remote"])
def test_a_file_that_has_become_shorter(store: Path, tmp_path: Path, every: int, is_remote: bool) -> None:
    positions, sizes = (each[::every] for each in units_of(store))
    copied = shutil.copytree(store, tmp_path / "store")
    first, second = sorted((copied / "commitlog").iterdir())[:2]
    opened = Snapshot.find(str(copied), remote.remote_files() if is_remote else Files())
    assert opened.end > positions[-1]
    os.truncate(first, int(positions[positions < int(second.name)][-1]) + 10)
    with StoredUnits(opened) as units, pytest.raises(RmqStoreError, match=r"has become shorter|was replaced since"):
        read(units, positions, sizes)


def test_a_segment_that_is_begun_after_the_store_was_listed(store: Path, tmp_path: Path) -> None:
    """The read of the messages to copy is planned after that."""
    positions, sizes = units_of(store)
    copied = shutil.copytree(store, tmp_path / "store")
    last = sorted((copied / "commitlog").iterdir())[-1]
    with StoredUnits(Snapshot.find(str(store), Files())) as units:
        expected = read(units, positions, sizes)
    last.rename(tmp_path / last.name)
    opened = Snapshot.find(str(copied), Files())
    assert len(opened.segments) == 1
    (tmp_path / last.name).rename(last)
    with StoredUnits(opened) as units:
        assert read(units, positions, sizes) == expected


def read(units: StoredUnits, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> bytes:
    """In chunks, as a copy does."""
    found = []
    ends = np.cumsum(sizes)
    for first in range(0, len(sizes), 32):
        some = slice(first, first + 32)
        memory = memoryview(bytearray(int(sizes[some].sum())))
        units.read_into(memory, positions[some], sizes[some])
        found.append(bytes(memory))
    assert ends[-1] == sum(map(len, found))
    return b"".join(found)
