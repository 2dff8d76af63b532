"""The quick tests take some cases of every sweep, those before a merge some more, and the names of sweeps are those of
tests."""

from __future__ import annotations

import pytest
from support import sweeps


def test_each_name_is_that_of_a_test(pytestconfig: pytest.Config) -> None:
    texts: dict[str, str] = {}
    for name in (*sweeps.QUICK, *sweeps.MERGE):
        file, _, function = name.partition("::")
        text = texts.setdefault(file, (pytestconfig.rootpath / file).read_text())
        assert f"\ndef {function}(" in text, name


def test_cases_are_taken_evenly(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(sweeps, "QUICK", {request.node.nodeid: 1})
    assert list(sweeps.slow_cases([request.node])) == []
    assert len(list(sweeps.slow_cases([request.node] * 10))) == 9
    assert list(sweeps.samples([request.node] * 10)) == []
    monkeypatch.setattr(sweeps, "QUICK", {request.node.nodeid: 0})
    assert list(sweeps.slow_cases([request.node])) == [request.node]
    assert list(sweeps.samples([request.node] * 10)) == [request.node]


def test_some_cases_are_nightly(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(sweeps, "MERGE", {request.node.nodeid: 3})
    assert list(sweeps.nightly_cases([request.node] * 10)) == []  # they are quick
    request.node.add_marker(pytest.mark.slow)
    assert len(list(sweeps.nightly_cases([request.node] * 10))) == 7
    request.node.add_marker(pytest.mark.long)
    assert list(sweeps.nightly_cases([request.node] * 10)) == []
