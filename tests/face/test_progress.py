"""How far long work is, told to whoever wants to show it."""

from __future__ import annotations

import pytest

from rmqstore_spark.progress import Progress, shown


def test_shown(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    monkeypatch.setattr("rmqstore_spark.progress.time.monotonic", lambda: now)
    told: list[tuple[str, int, int, str | None]] = []
    with shown(lambda progress: told.append((progress.what, progress.done, progress.total, progress.noun))):
        work = Progress("reading", 100)
        for _ in range(50):
            now += 0.03
            work.add(1)
        assert len(told) == 12
        work.add(50)
        Progress("listing", 1, "topics").add()
    assert told[0] == ("reading", 4, 100, None)
    assert told[-2:] == [("reading", 100, 100, None), ("listing", 1, 1, "topics")]
    assert not caplog.messages
    work = Progress("reading", 5_000_000)
    now += 10
    work.add(2_500_000)
    assert len(told) == 14
    assert caplog.messages == ["reading: 2.5 of 5.0 MB (50 %), 0 MB/s"]
    now += 10
    work.add(2_500_000)
    assert len(caplog.messages) == 1, "whoever waited has it now"
