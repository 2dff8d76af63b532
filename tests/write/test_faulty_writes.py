"""A write of which any system call fails (EIO), finds no room (ENOSPC, EDQUOT), is interrupted, or moves fewer bytes
than it was asked for, is whole or not there, as it says; and the next one goes on. Appends in both ways, also a
stream's, overwrite, rebuild, set_offsets, copy and salvage; and those of a store with light queues, a static topic,
and queues of batches, also one that is left over.

`kinds, each call` is exhaustive: each call of each write of that store fails in each way. The others are samples: one
of each `step` calls.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from support import killing, writing
from support.faulty_program import faulty_library, ran

from rmqstore_spark import RmqStoreError
from rmqstore_spark.write.fs.new_file import NewFile

NIGHTLY = [pytest.mark.long, pytest.mark.nightly]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "stores"),
    [
        pytest.param(1000, [], id="few"),
        pytest.param(250, [], id="some", marks=pytest.mark.long),
        pytest.param(60, [], id="many", marks=NIGHTLY),
        pytest.param(1, ["kinds"], id="kinds, each call", marks=NIGHTLY),
    ],
)
def test_whole_or_not_there(tmp_path: Path, rng: random.Random, step: int, stores: list[str]) -> None:
    wrong, counts = ran(faulty_library(tmp_path), "support.faulty_writes", tmp_path, step, rng.random(), *stores)
    assert wrong == []
    tried, told = map(int, re.findall(r"\d+", counts))
    assert tried > told > 10


def test_a_new_file_of_a_queue_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left open where its status could not be asked for, and took space on disk as long as the process lived."""

    def fails(file: NewFile) -> tuple[int, int]:
        raise RmqStoreError(f"{file.path}: Input/output error")

    monkeypatch.setattr(NewFile, "identity", property(fails))
    with pytest.raises(RmqStoreError, match=r"consumequeue.*Input/output error"):
        writing.write(tmp_path / "store", killing.rows(1, "Topic"))
    assert killing.open_files(tmp_path) == []
