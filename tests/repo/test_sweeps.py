"""The quick tests take some cases of every sweep, and the names of sweeps are those of tests."""

from __future__ import annotations

import pytest
from support import sweeps


@pytest.mark.parametrize("name", sweeps.QUICK)
def test_a_sweep_is_a_test(name: str, pytestconfig: pytest.Config) -> None:
    file, _, function = name.partition("::")
    assert f"\ndef {function}(" in (pytestconfig.rootpath / file).read_text()


def test_cases_are_taken_evenly(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(sweeps, "QUICK", {request.node.nodeid: 1})
    assert list(sweeps.slow_cases([request.node])) == []
    assert len(list(sweeps.slow_cases([request.node] * 10))) == 9
    monkeypatch.setattr(sweeps, "QUICK", {request.node.nodeid: 0})
    assert list(sweeps.slow_cases([request.node])) == [request.node]
