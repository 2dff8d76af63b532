"""Every call of Spark's refuses relative paths where they mean nothing, tells its plan in the log, and names its host;
seen without a session."""

from __future__ import annotations

import logging
import re
import socket
from pathlib import Path

import pyarrow as pa
import pytest
from oracle.stores import StoreBuilder
from pyspark.sql.types import StructType

from rmqstore_spark.errors import OptionError, RmqStoreError
from rmqstore_spark.query.options import parse_write_options
from rmqstore_spark.spark.datasource import RmqStoreDataSource
from rmqstore_spark.spark.stream_reader import RmqStoreStreamReader
from rmqstore_spark.spark.worker import refuse_relative
from rmqstore_spark.spark.writer import RmqStoreWriter


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where Spark has put the worker into a session's own directory."""
    monkeypatch.chdir(tmp_path)
    absolute = [str(tmp_path), f"file://{tmp_path}", "s3a://bucket/store", "/stores/broker-*", "~/store"]
    for session in (None, "default"):
        monkeypatch.delenv("SPARK_JOB_ARTIFACT_UUID", raising=False)
        if session is not None:
            monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", session)
        refuse_relative(["store", "./store", *absolute])
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "3f1e8a52-7a54-4a53-9a67-000000000000")
    refuse_relative(absolute)
    for path in ("store", "./store", "broker-*", "../store"):
        with pytest.raises(OptionError, match="a relative path: expected an absolute one"):
            refuse_relative([*absolute, path])


@pytest.mark.parametrize("is_long", [True, False])
def test_a_plan_is_a_line_in_the_log(
    small_store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_long: bool
) -> None:
    """Which store, by which way, how many tasks and bytes. A worker of Spark's shows warnings only."""
    monkeypatch.setattr("rmqstore_spark.spark.worker.LONG_SECONDS", 0 if is_long else 1000)
    caplog.set_level(logging.INFO, "rmqstore_spark")
    size = r"[0-9.]+ \w+"
    for options, end in (
        ({}, rf"1 task, {small_store} by scan: about ({size}) of \1"),
        ({"key": "no such key"}, rf"\d+ tasks?, {small_store} by \w+: about {size} of {size}"),
        ({"table": "queues"}, rf"\d+ tasks?, {small_store}"),
    ):
        caplog.clear()
        source = RmqStoreDataSource({"path": str(small_store), **options})
        source.reader(StructType().add("topic", "string")).partitions()
        begin, done = caplog.records
        what = f"planning a read{' of table queues' if 'table' in options else ''}"
        assert (begin.levelno, begin.getMessage()) == (logging.INFO, what)
        assert done.levelno == (logging.WARNING if is_long else logging.INFO)
        assert re.fullmatch(rf"{what}: {end}, in [0-9.]+ s", done.getMessage())


@pytest.mark.parametrize("is_long", [True, False])
def test_a_batch_of_a_stream_is_a_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_long: bool
) -> None:
    """How far it goes in each store, and how much of the log that is: the first ones of many."""
    monkeypatch.setattr("rmqstore_spark.spark.worker.LONG_SECONDS", 0 if is_long else 1000)
    caplog.set_level(logging.INFO, "rmqstore_spark")
    for number in range(5):
        store = StoreBuilder(tmp_path / f"store-{number}")
        store.now += number  # else they would be copies of one
        for _ in range(3 + number):
            store.append(body=b"x")
        store.close()
    source = RmqStoreDataSource({"path": str(tmp_path / "store-*"), "startingOffsets": "earliest"})
    reader = source.streamReader(StructType().add("topic", "string"))
    assert isinstance(reader, RmqStoreStreamReader)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert not caplog.messages
    assert len(reader.partitions(start, end)) > 0
    begin, done = caplog.records
    assert (begin.levelno, begin.getMessage()) == (logging.INFO, "planning a batch")
    assert done.levelno == (logging.WARNING if is_long else logging.INFO)
    places = [(root, end["stores"][root]["commitLogOffset"]) for root in sorted(end["stores"])]
    stores = ", ".join(rf"{root} to commitLogOffset {at}: [0-9.]+ (?:bytes|KiB) of the log" for root, at in places[:3])
    said = rf"planning a batch: \d+ tasks?, {stores}, and 2 more stores, in [0-9.]+ s"
    assert re.fullmatch(said, done.getMessage())


def test_a_commit_is_two_lines_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rmqstore_spark")
    writer = RmqStoreWriter(parse_write_options({"path": str(tmp_path / "store"), "topic": "T"}), overwrite=False)
    writer.prepare(StructType().add("body", "binary"))
    staged = writer.write(iter([pa.record_batch({"body": pa.array([b"x", b"y"])})]))
    assert not caplog.messages
    writer.commit([staged])
    begin, done = caplog.messages
    assert re.fullmatch(rf"committing to {tmp_path}/store 2 messages of \d+ bytes", begin)
    assert re.fullmatch(rf"{begin}: 2 messages written, in [0-9.]+ s", done)
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_who_copies_a_store_with_spark_is_told_of_a_better_way(
    small_store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read = RmqStoreDataSource({"path": str(small_store)}).schema()
    target = RmqStoreDataSource({"path": str(tmp_path / "store")})
    target.writer(StructType().add("topic", "string").add("body", "binary"), False)
    assert not caplog.messages
    target.writer(read, False)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "`rmqstore copy`" in record.getMessage()


@pytest.mark.parametrize("is_there", [True, False])
def test_an_executor_that_does_not_see_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Or has an empty directory there, which stays."""
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-7")
    store = tmp_path / "store"
    if is_there:
        store.mkdir()
    writer = RmqStoreWriter(parse_write_options({"path": str(store), "topic": "T"}), overwrite=False)
    with pytest.raises(RmqStoreError, match=r"this executor \(worker-7\) does not see the driver's directories"):
        writer.write(iter([pa.record_batch({"body": pa.array([b"x"])})]))
    assert store.exists() == is_there


def test_no_secret_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rmqstore_spark")
    source = RmqStoreDataSource({"path": "s3://key:geheim@bucket/store"})
    with pytest.raises(OptionError):
        source.reader(StructType().add("topic", "string")).partitions()
    assert caplog.messages
    assert "geheim" not in caplog.text
