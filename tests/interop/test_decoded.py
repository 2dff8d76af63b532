"""What the kernel takes for a unit RocketMQ's own classes do, but for the differences that docs/format.md lists."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from interop.decoded import ROUND, RocketMQ, judged, kind_of


@pytest.mark.slow
@pytest.mark.long
def test_who_takes_what(real: None, tmp_path: Path, rng: random.Random) -> None:
    with RocketMQ(tmp_path) as theirs:
        counts = Counter(kind_of(unit, found, differ) for unit, found, differ in judged(theirs, rng, ROUND))
    assert [kind for kind in counts if kind.startswith("?")] == []
    assert counts["all agree"] > ROUND // 2
    assert len(counts) > 5
