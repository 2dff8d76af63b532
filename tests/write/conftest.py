"""A writer that can be stopped, and a place where that takes no time."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import memory
from support.killing import Stopper
from support.prepared import Ground

from rmqstore_spark.write.fs import calls


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stopper:
    stopper = Stopper()
    monkeypatch.setattr(calls, "do", stopper)
    return stopper


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A directory, in memory where there is such: for tests that write a thousand times over, and do not depend on a
    disk. What does has files that are synced, and takes five times as long."""
    with tempfile.TemporaryDirectory(dir=memory.place() or tmp_path) as path:
        yield Path(path)


@pytest.fixture
def ground(home: Path, rng: random.Random) -> Ground:
    ground = Ground(home / "home", rng)
    "".encode("utf-16-be")  # Python loads the codec now: what it is made of may be readable for root only
    ground.home.chmod(0o777)  # mode overwrite makes a directory beside the store
    return ground
