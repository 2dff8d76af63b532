"""What pages of docs/ say by hand is what the code does: damage.md, options.md, writing.md."""

from __future__ import annotations

import logging
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from oracle import stores
from support.writing import ROWS, SIZES

import rmqstore_spark
from rmqstore_spark import DamagedStoreError, NotAStoreError, OptionError, RmqStoreError, Store

SAMPLE = Path(__file__).parents[2] / "sample_store"


@pytest.fixture
def segments(tmp_path: Path) -> list[Path]:
    builder = stores.StoreBuilder(tmp_path / "store", 4096)
    for number in range(60):
        builder.append("T", b"x" * 200, keys=f"k{number}")
    builder.close()
    return sorted((tmp_path / "store" / "commitlog").iterdir())


def test_a_missing_segment_is_damage(segments: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    root = segments[0].parents[1]
    segments[1].unlink()
    with pytest.raises(DamagedStoreError, match="a gap in the commitlog"):
        Store(root).messages().read_all()
    left = Store(root, mode="DROPMALFORMED").messages("corrupt").read_all()
    assert "a gap in the commitlog" in caplog.text
    told = Store(root, mode="PERMISSIVE").messages("corrupt").read_all()
    assert told.num_rows == left.num_rows + 1
    assert "a gap in the commitlog" in str(told["corrupt"].drop_null().to_pylist())
    shutil.rmtree(root / "commitlog")
    for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
        with pytest.raises(NotAStoreError, match="expected a directory commitlog/"):
            Store(root, mode=mode)


@pytest.mark.parametrize("at", [0, -1])
def test_a_segment_that_is_missing_at_an_end(segments: list[Path], at: int) -> None:
    root = segments[0].parents[1]
    segments[at].unlink()
    for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
        found = Store(root, mode=mode).messages("corrupt").read_all()
        assert found["corrupt"].null_count == found.num_rows > 40
    problems = set(Store(root).check()["problem"].to_pylist())
    assert ("queueAheadOfLog" in problems) == (at == -1)


def test_a_store_is_pickled_with_its_secrets_and_shared_by_threads() -> None:
    store = Store(SAMPLE, aws_secret_access_key="MARKER")
    assert b"MARKER" in pickle.dumps(store)
    again = pickle.loads(pickle.dumps(store))
    assert again.topics().equals(store.topics())
    with pytest.raises(TypeError):
        pickle.dumps(store.messages())
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(again.messages("topic").read_all().num_rows)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [store.messages("topic").read_all().num_rows] * 8


def test_config_that_is_not_understood(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "store"
    shutil.copytree(SAMPLE, root)
    named = {"topics": "topics.json", "groups": "subscriptionGroup.json", "offsets": "consumerOffset.json"}
    named["transactions"] = "consumerOffset.json"
    for name in set(named.values()):
        whole = (root / "config" / name).read_bytes()
        (root / "config" / f"{name}.bak").write_bytes(whole)
        (root / "config" / name).write_bytes(whole[:40])
    for name in named:
        assert Store(root).table(name).num_rows == Store(SAMPLE).table(name).num_rows
    for name in set(named.values()):
        (root / "config" / f"{name}.bak").unlink()
    assert Store(root).messages().read_all().num_rows == Store(SAMPLE).messages().read_all().num_rows
    for name, file in named.items():
        caplog.clear()
        Store(root).table(name)
        assert any(file in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    check = Store(root).check().to_pylist()
    assert {Path(row["file"]).name for row in check if row["problem"] == "brokenConfig"} == set(named.values())
    for call in (
        lambda: Store(root).offsets_of("pull-group"),
        lambda: Store(root).messages(startingOffsets="group:pull-group"),
    ):
        with pytest.raises(OptionError, match=r"consumerOffset\.json: expected JSON"):
            call()


def test_two_writers(tmp_path: Path) -> None:
    """Both may stage; of two that change the store one does."""
    rmqstore_spark.write_store(tmp_path, [ROWS], **SIZES)

    def beside() -> Any:
        yield ROWS
        assert rmqstore_spark.write_store(tmp_path, [ROWS]) == 10
        yield ROWS

    assert rmqstore_spark.write_store(tmp_path, beside()) == 20
    told: list[str] = []
    outcomes: list[int] = []

    def write() -> None:
        try:
            outcomes.append(rmqstore_spark.write_store(tmp_path, [ROWS]))
        except RmqStoreError as why:
            told.append(str(why))

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("locked: expected a store that nobody uses" in text for text in told)
    assert len(told) + len(outcomes) == 6
    assert Store(tmp_path).messages("topic").read_all().num_rows == 40 + sum(outcomes)


def test_what_a_killed_write_leaves(tmp_path: Path) -> None:
    rmqstore_spark.write_store(tmp_path, [ROWS], **SIZES)
    code = (
        "import os, signal, sys\nimport pyarrow as pa\nimport rmqstore_spark\n"
        "rows = pa.record_batch({'topic': ['T'], 'body': ['x']})\n"
        "def data():\n    yield rows\n    os.kill(os.getpid(), signal.SIGKILL)\n    yield rows\n"
        "rmqstore_spark.write_store(sys.argv[1], data())"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    (left,) = (tmp_path / ".rmqstore-spark").glob("staging-*")
    assert Store(tmp_path).messages("topic").read_all().num_rows == 10
    assert rmqstore_spark.write_store(tmp_path, [ROWS]) == 10
    assert not left.exists()
