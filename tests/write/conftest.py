"""A writer that can be stopped."""

from __future__ import annotations

import pytest
from support.killing import Stopper

from rmqstore_spark.write import disk


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stopper:
    stopper = Stopper()
    monkeypatch.setattr(disk, "_do", stopper)
    return stopper
