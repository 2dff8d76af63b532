"""The record of what we have written is taken as a whole, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from rmqstore_spark.store.structures.written import _written, understood

SOUND: dict[str, Any] = {
    "start": 100,
    "stop": 400,
    "before": 7,
    "last": [300, 5, 9],
    "runs": [[200, 1, 2, 0], [300, 2, 2, 3], [400, -5, 5, 0]],
}


@pytest.mark.parametrize(
    "change",
    [
        {"start": -1},
        {"start": 400},
        {"start": 100.0},
        {"stop": True},
        {"before": 7.5},
        {"last": None},
        {"last": [1, 2]},
        {"runs": []},
        {"runs": [[200, 1, 2, 0]]},  # does not reach the end
        {"runs": [[300, 1, 2, 0], [200, 1, 2, 0], [400, 1, 2, 0]]},
        {"runs": [[100, 1, 2, 0], [400, 1, 2, 0]]},  # is empty
        {"runs": [[200, 1, 2, 0], [200, 1, 2, 0], [400, 1, 2, 0]]},
        {"runs": [[400, 2, 1, 0]]},  # the least is more than the most
        {"runs": [[400, 1, 2, -1]]},
        {"runs": [[400, 1, 2]]},
        {"runs": [[400, 1, 1 << 63, 0]]},
        {"more": 1},
    ],
)
def test_what_nobody_has_written(change: dict[str, Any]) -> None:
    sound = SOUND
    found = _written(sound)
    assert found is not None
    assert [run.stop for run in found.runs] == [200, 300, 400]
    assert _written({**sound, **change}) is None
    assert _written({name: value for name, value in sound.items() if name != "runs"}) is None
    assert _written({**sound, "runs": [], "last": None}) is not None


@pytest.mark.parametrize(("start", "is_one"), [(400, True), (401, True), (399, False)])
def test_stretches_may_touch_and_not_overlap(start: int, is_one: bool) -> None:
    second = {**SOUND, "start": start, "stop": 700, "last": None, "runs": []}
    record = understood({"version": 1, "written": [SOUND, second]})
    assert (record is not None and [each.start for each in record.stretches] == [100, start]) is is_one
