"""A while of operations drawn at random on one store; `make soak` takes an hour."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from interop.rocketmq import NEWEST, usually
from interop.soak import Soak

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long, pytest.mark.nightly]

SECONDS = float(os.environ.get("RMQ_SOAK_SECONDS", "300"))


@pytest.mark.parametrize("version", usually(NEWEST))
def test_whatever_is_done_to_a_store(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    soak = Soak(tmp_path, rng, version)
    soak.run(SECONDS)
    assert soak.done["send"] > 0
