"""What commands say that look at queues alone, where the log lacks messages that its queues know."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from support.command import run
from support.flavours import unpack_store

from rmqstore_spark import Store
from rmqstore_spark.cli.findings import as_typed
from rmqstore_spark.jobs.findings import Findings
from rmqstore_spark.jobs.verdict import verdict
from rmqstore_spark.tables.check.problems import PROBLEMS

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "rocketmq-5.3.0"
LAST = 16384  # where its last segment begins
OF_QUEUES = ["lag", "topics", "queues", "offsets"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    shutil.copytree(GOLDEN, root)
    (root / "config").mkdir()
    offsets = {"TopicA@Group": {"0": 5, "1": 30}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return root


@pytest.mark.parametrize("command", OF_QUEUES)
def test_a_whole_store(command: str, store: Path) -> None:
    found = run(command, str(store))
    assert (found.code, found.err) == (0, "")


@pytest.mark.parametrize("command", OF_QUEUES)
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_lost_end_is_told(command: str, form: str, store: Path) -> None:
    queued = Store(store).table("consumequeue").to_pylist()
    lost = [unit for unit in queued if unit["commitLogOffset"] >= LAST]
    assert lost
    (store / "commitlog" / f"{LAST:020d}").unlink()
    found = run(command, str(store), "--format", form)
    assert found.code == 3
    assert f"and queues know of {len(lost)} later messages" in found.err
    assert f"rmqstore check {store}" in found.err


def test_show_begins_with_the_lost_end(store: Path) -> None:
    (store / "commitlog" / f"{LAST:020d}").unlink()
    found = run("show", str(store))
    told = found.out.splitlines()[1:3]
    assert all(line.startswith("  warning: queueAheadOfLog: topic TopicA, queueId ") for line in told)
    assert found.err == ""


def test_a_broker_that_was_killed_is_no_news(store: Path) -> None:
    (store / "commitlog" / f"{LAST:020d}").unlink()
    (store / "abort").touch()
    found = run("lag", str(store))
    assert (found.code, found.err) == (0, "")
    assert "queueAheadOfLog" not in run("show", str(store)).out


@pytest.mark.parametrize("command", OF_QUEUES)
def test_a_missing_segment_is_told(command: str, store: Path) -> None:
    (store / "commitlog" / f"{LAST // 2:020d}").unlink()
    found = run(command, str(store))
    assert found.code == 3
    assert "a gap in the commitlog" in found.err


@pytest.mark.parametrize("command", ["messages", "copy", "salvage"])
@pytest.mark.parametrize("is_there", [False, True])
def test_an_empty_log_is_told(command: str, is_there: bool, store: Path) -> None:
    """With files or without: its queues know of messages."""
    for file in (store / "commitlog").iterdir():
        if is_there:
            file.write_bytes(bytes(file.stat().st_size))
        else:
            file.unlink()
    found = run(command, str(store), *([str(store) + "-new"] if command != "messages" else []))
    assert re.search("expected the log to go on after 0, as .*/consumequeue/.* knows", found.err), found.err


def test_a_new_store_lacks_nothing(store: Path) -> None:
    for part in (store / "commitlog").iterdir():
        part.unlink()
    shutil.rmtree(store / "consumequeue")
    found = run("copy", str(store), str(store) + "-new")
    assert "expected the log to go on" not in found.err


def test_what_is_to_be_restored_comes_first(store: Path) -> None:
    (store / "commitlog" / f"{LAST:020d}").unlink()
    answer = verdict(Findings.of(Store(store).check().to_pylist()), str(store))
    assert answer.commands[0].startswith("# if a replica or a backup has the log's end")


def test_advice_for_stores_that_are_not_written_to(tmp_path: Path) -> None:
    root = unpack_store("rocksdb-all", tmp_path)
    (index,) = (root / "index").iterdir()
    data = bytearray(index.read_bytes())
    data[:40] = bytes(40)  # its header
    index.write_bytes(data)
    advice = {row["advice"] for row in Store(root).check().to_pylist() if row["severity"] == "error"}
    assert advice
    assert not any("rebuild(" in each for each in advice)
    assert any("call Store(path).copy(target), which builds new queues and index files" in each for each in advice)
    shown = run("check", str(root)).out
    assert "rmqstore rebuild" not in shown
    assert "run rmqstore copy, which builds new" in " ".join(shown.split())


def test_advice_at_a_terminal_has_no_python() -> None:
    for name, problem in PROBLEMS.items():
        typed = as_typed(problem.advice)
        assert not re.search(r"\bcall |\w\(\w*\)|=true|\boption [a-z]", typed), (name, typed)
