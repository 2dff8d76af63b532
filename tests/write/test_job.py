"""A write is one job: a task of it loads only what it needs, what is refused leaves nothing, and with its end it is
gone."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from support import reading

from rmqstore_spark import OptionError
from rmqstore_spark.query.options import parse_write_options
from rmqstore_spark.write.job import WriteJob

BATCH = pa.record_batch({"topic": pa.array(["T", "T"]), "body": pa.array([b"x", b"y"])})
TASK = """
import sys
sys.path[:0] = sys.argv[1:]
import pickle
import pyarrow as pa
job = pickle.load(sys.stdin.buffer)
staged = job.stage([pa.record_batch({"topic": pa.array(["T", "T"]), "body": pa.array([b"x", b"y"])})], 3, 7)
loaded = {name.removeprefix("rmqstore_spark.write.") for name in sys.modules}
wrong = loaded & {"commit", "change", "target", "indexfiles"}
assert not wrong, wrong
sys.stdout.buffer.write(pickle.dumps(staged))
"""


def job_of(root: Path, overwrite: bool = False) -> WriteJob:
    return WriteJob(parse_write_options({"path": str(root), "mappedFileSizeCommitLog": "65536"}), overwrite)


def test_a_task_elsewhere_loads_no_commit(tmp_path: Path) -> None:
    """Each Python worker of Spark's begins with it."""
    job = job_of(tmp_path / "store")
    job.begin(BATCH.schema)
    command = [sys.executable, "-c", TASK, *sys.path]
    ran = subprocess.run(command, input=pickle.dumps(job), capture_output=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr.decode()
    staged = pickle.loads(ran.stdout)
    assert Path(staged.path).name.startswith("00003-7-")
    assert job.commit([staged]) == 2
    job.abandon()
    assert [row["body"] for row in reading.read(tmp_path / "store")] == [b"x", b"y"]
    assert not list((tmp_path / "store").glob(".rmqstore-spark/staging-*"))


def test_what_is_refused_leaves_nothing(tmp_path: Path) -> None:
    job = job_of(tmp_path / "store")
    with pytest.raises(OptionError, match="column 'topic': expected one of type string, or option 'topic'"):
        job.begin(BATCH.schema.remove(0))
    with pytest.raises(OptionError, match="column 'body'"), job.alone(BATCH.schema.remove(1)):
        raise AssertionError
    assert not (tmp_path / "store").exists()


def test_a_job_ends_others_with_it(tmp_path: Path) -> None:
    """As the two writers of a stream's batch do: one has begun for the tasks, one commits."""
    tasks, committing = job_of(tmp_path / "store"), job_of(tmp_path / "store")
    for job in (tasks, committing):
        job.begin(BATCH.schema)
    assert committing.commit([tasks.stage([BATCH])]) == 2
    committing.abandon(tasks.name)
    assert not list((tmp_path / "store").glob(".rmqstore-spark/staging-*"))
    assert (tmp_path / "store" / "commitlog" / f"{0:020d}").stat().st_size == 65536
