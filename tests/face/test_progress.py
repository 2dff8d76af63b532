"""Long work tells how far it is, from nothing to all of it, to whoever wants to show it."""

from __future__ import annotations

import io
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.patience import HANG

from rmqstore_spark.cli.progress_bar import progress_bars
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
    work = Progress("reading", 400 << 20)
    now += 10
    work.add(100 << 20)
    assert len(told) == 14
    now += 190
    work.add(100 << 20)
    assert caplog.messages == [
        "reading: 100.0 of 400.0 MiB (25 %), 10 MiB/s, about 30 s left",
        "reading: 200.0 of 400.0 MiB (50 %), 1 MiB/s, about 3 min left",
    ]
    now += 10
    work.add(200 << 20)
    assert len(caplog.messages) == 2, "whoever waited has it now"


def test_each_thread_is_told_of_its_own_work() -> None:
    """In whichever order they leave; what a thread of a pool does counts for who began it."""
    told: dict[str, list[str]] = {"first": [], "second": []}
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def first() -> None:
        with shown(lambda work: told["first"].append(work.what)):
            first_is_in.set()
            assert second_is_in.wait(HANG)
            work = Progress("of the first", 1)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(work.add).result()
        first_is_out.set()

    def second() -> None:
        assert first_is_in.wait(HANG)
        with shown(lambda work: told["second"].append(work.what)):
            second_is_in.set()
            assert first_is_out.wait(HANG)
            Progress("of the second", 1).add()
        Progress("of nobody", 1).add()

    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(first), both.submit(second)]:
            done.result()
    Progress("of nobody", 1).add()
    assert told == {"first": ["of the first"], "second": ["of the second"]}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("columns", [80, 200])
def test_bars(monkeypatch: pytest.MonkeyPatch, is_terminal: bool, columns: int) -> None:
    """Bytes, how many in a second, and how long it takes, however long the path; only where somebody sees it. Names
    from a store move no cursor."""
    now = 1000.0
    monkeypatch.setattr("rmqstore_spark.progress.time.monotonic", lambda: now)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    with progress_bars():
        work = Progress(f"reading \x07evil{'/directory' * 30}", 300 << 20)
        for _ in range(2):
            now += 1
            work.add(100 << 20)
        now += 1
        Progress("listing", 7, "topics").add(7)
    shown = screen.getvalue()
    if not is_terminal:
        assert shown == ""
        return
    assert "200 of 300 MiB, " in shown
    assert " MiB/s" in shown
    assert re.search(r"\d:\d\d:\d\d", shown)
    assert "7 of 7 topics" in shown
    assert r"reading \x07evil" in shown
    assert "\x07" not in shown
