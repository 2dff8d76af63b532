"""Of a writer that is killed, or fails, at any change, all messages are there or none, and the next writer cleans
up."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from oracle import reference
from support import writing
from support.killing import (
    SIZES,
    STOPS,
    Killed,
    Stopper,
    assert_all_or_none,
    assert_goes_on,
    ids,
    open_files,
    ours,
    rows,
    state,
    stopped_at_every_change,
    stopped_writes,
)
from support.writing import write

import rmqstore_spark
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.build import stretch
from rmqstore_spark.write.commit import Settings, commit
from rmqstore_spark.write.stage.job_directory import prepared


@pytest.mark.slow
@pytest.mark.parametrize("existing", [0, 40])
@pytest.mark.parametrize("error", STOPS)
def test_stopped_at_every_change(home: Path, stop: Stopper, existing: int, error: type[BaseException]) -> None:
    before = home / "before"
    if existing:
        write(before, rows(existing, "Old"), sizes=SIZES)
    for root, all_there in stopped_writes(home, stop, error, rows(40, "New", 1000)):
        if error is not Killed and existing and not all_there:
            assert state(root) == state(before)


def test_every_file_is_written_where_it_can_be_stopped(home: Path, stop: Stopper) -> None:
    """Not in a mapping, where a full disk is a SIGBUS."""
    root = home / "store"
    _, staged = writing.stage_rows(root, [rows(40, "New")])
    stop.written.clear()
    commit(str(root), staged, Settings(SIZES))
    assert {path.name for path in root.rglob("*") if path.is_file()} - {"lock", "made-the-store"} <= stop.written
    assert any(path.parent.name == "index" for path in root.rglob("*"))


@pytest.mark.slow
def test_stopped_again_while_cleaning_up(home: Path, stop: Stopper, rng: random.Random) -> None:
    before, root = home / "before", home / "store"
    write(before, rows(40, "Old"), sizes=SIZES)
    none, new = ids(before), rows(40, "New", 1000)
    all_ = none + [row["msgId"] for row in new]
    shutil.copytree(before, root)
    _, staged = writing.stage_rows(root, [new])
    stop.at(None)
    commit(str(root), staged, Settings(SIZES))
    total = stop.calls
    for _ in range(30):
        shutil.rmtree(root)
        shutil.copytree(before, root)
        _, staged = writing.stage_rows(root, [new])
        stop.at(rng.randrange(total))
        with pytest.raises(Killed):
            commit(str(root), staged, Settings(SIZES))
        outcome = assert_all_or_none(root, none, all_)
        for _ in range(3):
            stop.at(None)
            _, staged = writing.stage_rows(root, [])
            stop.at(rng.randrange(60))
            with contextlib.suppress(Killed):
                commit(str(root), staged, Settings(SIZES))
            stop.at(None)
            assert assert_all_or_none(root, none, all_) == outcome
        assert_goes_on(root)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("error", STOPS)
def test_overwrite_stopped_at_every_change(home: Path, stop: Stopper, error: type[BaseException]) -> None:
    before, root = home / "before", home / "store"
    write(before, rows(40, "Old"), sizes=SIZES)
    none, new = ids(before), rows(40, "New", 1000)
    all_ = [row["msgId"] for row in new]

    def begin() -> Callable[[], object]:
        shutil.copytree(before, root)
        _, staged = writing.stage_rows(root, [new])
        return lambda: commit(str(root), staged, Settings(SIZES, overwrite=True))

    outcomes = []
    for each in stopped_at_every_change(stop, begin, error):
        outcomes.append(assert_all_or_none(root, none, all_))
        if error is not Killed:
            assert open_files(home) == []
            assert outcomes[-1] == (each.told is None or "all messages are written" in each.told)
        assert_goes_on(root)
        assert [path.name for path in sorted(home.iterdir())] == ["before", "store"]
        shutil.rmtree(root)
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("error", STOPS)
def test_rebuild_stopped_at_every_change(home: Path, stop: Stopper, error: type[BaseException]) -> None:
    before, root = home / "before", home / "store"
    write(before, rows(40, "Old"), sizes=SIZES)
    found = ids(before)

    def begin() -> Callable[[], object]:
        shutil.copytree(before, root)
        return lambda: rmqstore_spark.rebuild(root)

    for _ in stopped_at_every_change(stop, begin, error):
        if error is not Killed:
            assert open_files(home) == []
        assert ids(root) == ours(root) == found
        assert_goes_on(root)
        shutil.rmtree(root)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_the_next_write_clears_all_that_is_left(
    home: Path, stop: Stopper, mode: Literal["append", "overwrite"]
) -> None:
    """Also what a killed writer had staged, and what it tried the file system with. Who still writes is left alone."""
    before, root = home / "before", home / "store"
    write(before, rows(3, "Old"), sizes=SIZES)
    row = pa.table({"topic": ["New"], "body": [b"new"]})
    left = set()

    def begin() -> Callable[[], object]:
        shutil.copytree(before, root)
        return lambda: rmqstore_spark.write_store(root, row, mode=mode)

    for _ in stopped_at_every_change(stop, begin):
        left |= {re.sub("[0-9a-f]{16,}", "*", path.name) for path in root.glob(".rmqstore-spark/*")}
        job, _ = writing.stage_rows(root, [rows(1, "Other")])  # of somebody else
        with prepared(str(root), "mine"):
            rmqstore_spark.write_store(root, row)
            staged = {f"staging-{job.name}", "staging-mine"}
            assert {path.name for path in root.glob(".rmqstore-spark/*")} - staged <= {"checked.json", "times.json"}
            assert {path.name for path in root.glob(".rmqstore-spark/staging-*")} == staged
        assert [path.name for path in sorted(home.iterdir())] == ["before", "store"]
        shutil.rmtree(root)
    assert {"staging-*", "staging-*.part", *(["staging-*-gone", "commit"] if mode == "append" else [])} <= left


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stretch", "exchange", "rebuild"])
def test_no_broker_keeps_half_an_index_file(
    home: Path, stop: Stopper, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Where a broker finds `abort`, it deletes the index files that end after the checkpoint's indexMsgTimestamp, 0
    where there is none, and makes them anew; else it goes on with them as they are, and in half a file slots would lead
    nowhere, and chains end early (IndexService.load, IndexFile.putKey)."""
    if how == "exchange":
        monkeypatch.setattr(stretch, "fits", lambda *_: False)
    sizes = Sizes(segment=1 << 16, queue_file=6000, slots=3000, items=1000)  # slots in several blocks
    before, root = home / "before", home / "store"
    write(before, rows(40, "Old"), sizes=sizes)

    def begin() -> Callable[[], object]:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(before, root)
        if how == "rebuild":
            return lambda: rmqstore_spark.rebuild(root)
        _, staged = writing.stage_rows(root, [rows(40, "New", 1000)])
        return lambda: commit(str(root), staged, Settings(sizes))

    outcomes = Counter[str]()
    whole = {path.read_bytes() for path in (before / "index").iterdir()}
    for each in stopped_at_every_change(stop, begin, backwards=True):
        for path in (root / "index").iterdir():
            if not each.has_stopped:
                whole.add(path.read_bytes())
            is_kept = not (root / "abort").exists() or _indexed(root) >= _end_of(path)
            is_whole = path.read_bytes() in whole
            outcomes[f"{'kept' if is_kept else 'deleted'}, {'whole' if is_whole else 'half'}"] += 1
    assert outcomes["kept, half"] == 0
    assert outcomes["kept, whole"] > 50
    assert (outcomes["deleted, half"] > 0) == (how == "stretch")  # else what is not whole is not there


def _indexed(root: Path) -> int:
    checkpoint = root / "checkpoint"
    return int(struct.unpack_from(">q", checkpoint.read_bytes(), 16)[0]) if checkpoint.exists() else 0


def _end_of(index_file: Path) -> int:
    return reference.decode_index_header(index_file.read_bytes()).end_timestamp


# For each store that it is told of, a process of its own writes to it. What all of them need is imported only once.
WRITERS = """
import os, sys
sys.path[:0] = sys.argv[1:]
from pathlib import Path
from support import killing, writing
from rmqstore_spark.write.commit import Settings, commit
def say(text):
    os.write(1, text.encode() + b"\\n")  # at once: print() may be killed before the end of the line
while told := os.read(0, 4096).decode().splitlines():
    if told[-1] == "go":  # it was for a writer that was killed before it read that
        continue
    writer = os.fork()
    if writer:
        os.waitpid(writer, 0)
        say("ended")
        continue
    root = Path(told[-1])
    _, staged = writing.stage_rows(root, [killing.rows(600, "New", 1000)])
    say(str(os.getpid()))
    os.read(0, 4096)
    commit(str(root), staged, Settings(killing.SIZES))
    say("done")
    os.read(0, 4096)
"""


@pytest.mark.slow
def test_sigkill_at_random_moments(home: Path, rng: random.Random) -> None:
    """A process of its own is killed, wherever it is just then."""
    before = home / "before"
    write(before, rows(40, "Old"), sizes=SIZES)
    none = ids(before)
    all_ = none + [row["msgId"] for row in rows(600, "New", 1000)]
    longest = 0.3
    outcomes = Counter[str]()
    with subprocess.Popen(
        [sys.executable, "-c", WRITERS, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as writers:
        assert writers.stdin
        assert writers.stdout

        def tell(text: str) -> None:
            print(text, file=writers.stdin, flush=True)

        def hear() -> str:
            assert writers.stdout
            return writers.stdout.readline().strip() or pytest.fail(writers.communicate()[1])

        for number in range(int(os.environ.get("RMQ_KILLS", "25"))):
            root = home / f"store-{number}"
            shutil.copytree(before, root)
            tell(str(root))
            writer = int(hear())
            begin = time.monotonic()
            tell("go")
            if number < 3:
                assert hear() == "done"
                longest = time.monotonic() - begin
            else:
                time.sleep(rng.uniform(0, longest))
            os.kill(writer, signal.SIGKILL)
            assert [word for word in iter(hear, "ended") if word != "done"] == []
            outcome = assert_all_or_none(root, none, all_)
            outcomes["all" if outcome else "none"] += 1
            outcomes["in between"] += (root / ".rmqstore-spark" / "commit").exists()
            assert_goes_on(root)
            shutil.rmtree(root)
    print(outcomes)
    assert outcomes["in between"] > 0
