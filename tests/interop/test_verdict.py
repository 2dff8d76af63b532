"""The verdict of a check says whether a broker starts: asked of a real one, on stores in which something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tables import test_check
from tables.test_check import Planted

from interop.child import ChildError
from interop.rocketmq import NEWEST, Broker, Sizes
from rmqstore_spark import Store
from rmqstore_spark.jobs.findings import Findings
from rmqstore_spark.jobs.verdict import verdict

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

OF_PLANTED = Sizes(segment=8192, queue_file=200, index_slots=100, index_items=30)


def starts(root: Path, home: Path) -> bool:
    try:
        with Broker(NEWEST, root, home, OF_PLANTED):
            return True
    except ChildError:
        return False


@pytest.mark.parametrize(
    "plant",
    [
        test_check.planted_strays,
        test_check.planted_segment_padded,
        test_check.planted_queue_file_padded,
        test_check.planted_log,
        test_check.planted_no_queues,
        test_check.planted_index_noise,
    ],
    ids=lambda plant: plant.__name__.removeprefix("planted_"),
)
def test_what_is_said_of_a_start(
    real: None, plant: Callable[[Planted], Iterator[tuple[Any, ...]]], tmp_path: Path
) -> None:
    store = Planted(tmp_path / "store")
    list(plant(store))
    text = verdict(Findings.of(Store(store.root).check().to_pylist()), str(store.root)).text
    assert starts(store.root, tmp_path / "home") == text.startswith("A broker will start on this store"), text
