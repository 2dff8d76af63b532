"""A copy that is killed, or fails, at any change is not there, or whole and can be written to; and the next one is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from oracle import reference
from support.killing import SIZES, STOPS, Killed, Stopper, assert_goes_on, rows, stopped_at_every_change
from support.writing import assert_whole, write

from rmqstore_spark import Store


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("error", STOPS)
def test_stopped_at_every_change(home: Path, stop: Stopper, error: type[BaseException]) -> None:
    """A copy that is killed is not there, or whole; and the next one is."""
    source, target = home / "source", home / "target"
    write(source, rows(40, "Some"), sizes=SIZES)
    expected = [row["msgId"] for row in reference.read_store(source)]
    outcomes = []
    for each in stopped_at_every_change(stop, lambda: lambda: Store(source).copy(target), error):
        is_there = (target / "commitlog").exists()
        outcomes.append(is_there)
        if is_there:
            assert [row["msgId"] for row in reference.read_store(target)] == expected
        elif error is not Killed:
            assert not target.exists()
        assert is_there or each.told is not None
        if not is_there:
            Store(source).copy(target)
        assert [row["msgId"] for row in assert_whole(target, SIZES)] == expected
        assert_goes_on(target)
        shutil.rmtree(target)
        shutil.rmtree(home / ".target.rmqstore-spark-new", ignore_errors=True)
    assert outcomes == sorted(outcomes)
    assert outcomes.count(False) > 20
