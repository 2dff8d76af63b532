"""A store on a real HDFS, written there by Hadoop's own client, gives what it gives on a disk, and what goes wrong is
told in one line."""

from __future__ import annotations

import os
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import golden
from oracle.stores import StoreBuilder
from support import reading
from support.command import run
from support.contract import assert_pinned, assert_same
from support.following import assert_followed

from interop import jars
from interop.hdfs_cluster import Cluster
from rmqstore_spark import NotAStoreError, OptionError, StorageError, Store
from rmqstore_spark.query.stream_options import parse_stream_options
from rmqstore_spark.read.plan.stores import files_of
from rmqstore_spark.store.io.files import Pin
from rmqstore_spark.store.io.remote import tries

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

VERSION = golden.VERSIONS[-1]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, with the golden stores in it. The last test kills it."""
    home = tmp_path_factory.mktemp("hdfs")
    try:
        running = Cluster(home)
    except jars.Unavailable as why:
        if os.environ.get("RMQ_INTEROP"):
            pytest.fail(f"no real HDFS: {why}", pytrace=False)
        pytest.skip(f"no real HDFS: {why}")
    try:
        for version in golden.VERSIONS:
            running.run("put", f"/{version}", golden.unpack(version, home / version))
        yield running
    finally:
        running.kill()


@pytest.fixture
def cluster(started: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_TOKEN_FILE_LOCATION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HADOOP_USER_NAME", "reader")
    monkeypatch.setattr(tries, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(tries, "_LONGEST_PAUSE", 0.05)
    return started


@pytest.fixture
def broker(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A store of a test's own, there and here: a log and nothing else."""
    root = tmp_path / "store"
    shutil.move(golden.unpack(VERSION, tmp_path / "whole") / "commitlog", root / "commitlog")
    cluster.run("put", "/broker", root)
    yield f"{cluster.uri}/broker", root
    cluster.run("delete", "/broker")


@pytest.mark.parametrize("version", [pytest.param(golden.VERSIONS[0], marks=pytest.mark.nightly), golden.VERSIONS[-1]])
def test_a_store(cluster: Cluster, version: str, tmp_path: Path) -> None:
    assert_same(cluster.backend, version, golden.unpack(version, tmp_path / "store"))


def test_a_file_that_changes(cluster: Cluster, tmp_path: Path) -> None:
    assert_pinned(cluster.backend, golden.unpack(VERSION, tmp_path / "store"))
    cluster.run("delete", "/changing")


def test_commands_globs_and_copies(cluster: Cluster, tmp_path: Path) -> None:
    uri = f"{cluster.uri}/{VERSION}"
    shown = run("show", uri)
    assert (shown.code, uri in shown.out) == (0, True)
    rows = sum(Store(f"{cluster.uri}/{version}").messages().read_all().num_rows for version in golden.VERSIONS)
    several = Store(f"{cluster.uri}/*").messages(columns=["store"]).read_all()
    assert several.num_rows == rows
    assert set(several["store"].to_pylist()) == {f"{cluster.uri}/{version}" for version in golden.VERSIONS}
    made = Store(uri).copy(tmp_path / "copy")
    assert made.messages > 100
    assert made.lost.num_rows == 0
    with pytest.raises(OptionError, match="a store there can only be read"):
        Store(uri).rebuild()


def test_followed(cluster: Cluster, tmp_path: Path) -> None:
    """A store that is copied there again and again: files that are replaced by longer ones, and others that come."""
    store = StoreBuilder(tmp_path / "live", segment_size=4096)
    options = parse_stream_options({"path": f"{cluster.uri}/live", "startingOffsets": "earliest"})

    def copy() -> None:
        for path in sorted(path for path in store.root.rglob("*") if path.is_file()):
            cluster.run("put", f"/{path.relative_to(tmp_path)}", path)

    assert_followed(options, store, (20, 1, 0, 30), copy)
    cluster.run("delete", "/live")


def test_a_store_without_messages(cluster: Cluster) -> None:
    """Unlike a bucket, HDFS has empty directories."""
    cluster.run("mkdir", "/new/commitlog")
    assert Store(f"{cluster.uri}/new").messages().read_all().num_rows == 0
    cluster.run("delete", "/new")


def test_what_is_no_store(cluster: Cluster) -> None:
    texts = {"nothing": "no such directory", f"{VERSION}/checkpoint": "a file; give", "": "not a RocketMQ store"}
    for name, text in texts.items():
        with pytest.raises(NotAStoreError, match=text):
            Store(f"{cluster.uri}/{name}")


def plan_and_read(uri: str, between: Callable[[], object]) -> int:
    """Something happens between planning and reading. Answers the number of messages."""
    options = reading.parse_options({"path": uri})
    planned = reading.plan(options, files_of(options))
    between()
    settings = reading.ReadSettings.of(options, reading.arrow_schema(["msgId"]))
    tasks = pickle.loads(pickle.dumps(planned.tasks))
    return sum(batch.num_rows for task in tasks for batch in reading.read_task(task, settings))


def test_replaced_or_deleted_since_it_was_planned(cluster: Cluster, broker: tuple[str, Path]) -> None:
    uri, root = broker
    name = f"commitlog/{'0' * 20}"
    assert plan_and_read(uri, lambda: None) == Store(root).messages().read_all().num_rows
    with pytest.raises(StorageError, match=f"{name}: the file was replaced since the read was planned; load"):
        plan_and_read(uri, lambda: cluster.run("put", f"/broker/{name}", root / name))
    with pytest.raises(
        StorageError, match=f"{name}: the file is gone since the read was planned; load the store again"
    ):
        plan_and_read(uri, lambda: cluster.run("delete", f"/broker/{name}"))


def test_replaced_under_an_open_file(cluster: Cluster, broker: tuple[str, Path]) -> None:
    """The blocks that it had may still be there: what comes from them counts no more."""
    uri, root = broker
    name = f"commitlog/{'0' * 20}"
    files = files_of(reading.parse_options({"path": uri}))
    with files.file(f"{uri}/{name}", is_log=True) as file:
        assert file.read(0, 100) == (root / name).read_bytes()[:100]
        cluster.run("put", f"/broker/{name}", root / name)
        with pytest.raises(StorageError, match="replaced since the read was planned"):
            file.read(1 << 20, 100)


def test_a_file_that_is_open_for_writing(cluster: Cluster, broker: tuple[str, Path], tmp_path: Path) -> None:
    """Its complete blocks can be read while it grows; what was planned stays what it was. Closed, it is another
    one."""
    uri, root = broker
    first, *others = sorted((root / "commitlog").iterdir())
    for path in others:
        path.unlink()
    expected = Store(root).messages().read_all().num_rows
    there, size = f"/broker/commitlog/{first.name}", first.stat().st_size
    longer = tmp_path / "longer"
    longer.write_bytes(first.read_bytes() * 2)
    cluster.run("delete", "/broker")
    cluster.run("write", there, longer, 0, size)
    assert Store(uri).messages().read_all().num_rows == expected
    with (
        files_of(reading.parse_options({"path": uri})).file(f"{uri}/commitlog/{first.name}") as file,
        pytest.raises(StorageError, match=f"position {1 << 20}: the file is being written, .* of its {size} bytes"),
    ):
        file.read(size - 100, 100)
    assert plan_and_read(uri, lambda: cluster.run("write", there, longer, size, size + 1000)) == expected
    cluster.run("close", there)
    cluster.run("delete", "/broker")
    cluster.run("write", there, longer, 0, size)

    def close() -> None:
        time.sleep(0.01)  # times are in milliseconds
        cluster.run("close", there)

    with pytest.raises(StorageError, match="replaced since the read was planned"):
        plan_and_read(uri, close)
    assert Store(uri).messages().read_all().num_rows == expected


def test_who_may_not(cluster: Cluster, broker: tuple[str, Path]) -> None:
    uri, _ = broker
    for path in ("/broker", "/broker/commitlog"):
        cluster.run("permit", path, "700")
        with pytest.raises(StorageError, match=r"access denied \(AccessControlException: .*user=reader.*\); read as a"):
            Store(uri).messages().read_all()
        cluster.run("permit", path, "755")
    segment = f"/broker/commitlog/{'0' * 20}"
    cluster.run("permit", segment, "600")
    with pytest.raises(StorageError, match=r"commitlog/0{20}: access denied \(AccessControlException: .*user=reader"):
        Store(uri).messages().read_all()


def test_ranges(cluster: Cluster, broker: tuple[str, Path], rng: Any) -> None:
    """Within and over blocks (of 1 MiB)."""
    uri, root = broker
    name = f"commitlog/{'0' * 20}"
    content = (root / name).read_bytes()
    files = files_of(reading.parse_options({"path": uri}))
    with files.file(f"{uri}/{name}") as file:
        assert file.size == len(content)
        for _ in range(50):
            start = rng.randrange(len(content) + 100)
            size = rng.choice([1, 20, 70_000, 1 << 20, 3 << 20])
            assert file.read(start, size) == content[start : start + size]
    pin = files.pin(f"{uri}/{name}")
    assert pin is not None
    for wrong in (Pin(pin.size, "1"), Pin(pin.size + 1, pin.tag)):
        again = files_of(reading.parse_options({"path": uri}))
        with (
            pytest.raises(StorageError, match="replaced since the read was planned"),
            again.file(f"{uri}/{name}", pin=wrong) as file,
        ):
            file.read(0, 100)


def test_killed_in_the_middle_of_a_read(cluster: Cluster) -> None:
    """The last test of this cluster."""
    uri = f"{cluster.uri}/{VERSION}"
    store = Store(uri)
    files = files_of(reading.parse_options({"path": uri}))
    begun = time.monotonic()
    with files.file(f"{uri}/commitlog/{'0' * 20}", is_log=True) as file:
        file.read(0, 100)
        cluster.kill()
        with pytest.raises(StorageError, match=r"unexpected answer of the storage, tried 4 times in .*try later"):
            file.read(1 << 20, 100)
    with pytest.raises(
        StorageError, match=r"unexpected answer of the storage, tried 4 times in \d+ s: Connection refused"
    ):
        store.messages()
    assert time.monotonic() - begun < 120
