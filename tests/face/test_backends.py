"""A store in object storage or in HDFS answers as the same store on a disk. Here these are in this process, or a server
of the tests; real ones are held to the same contract in tests/interop/."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import golden, tiered
from oracle.stores import StoreBuilder
from support import remote
from support.backends import Backend, Directory
from support.contract import assert_pinned, assert_same
from support.hdfs_client import Machine
from support.s3_server import Server

from rmqstore_spark import Store
from rmqstore_spark.store.io.remote import hdfs, objects

VERSION = golden.VERSIONS[-1]


@pytest.fixture(params=["s3", "objects", "hdfs"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """S3 by HTTP; objects without HTTP; and what hdfs-native makes of HDFS. All of them show what is in a directory."""
    root = tmp_path / "stores"
    root.mkdir()
    client = Directory(root)
    if request.param == "s3":
        with Server(root) as server:
            yield Backend("s3://stores", server.options, client)
    elif request.param == "objects":
        monkeypatch.setattr(objects, "connect", lambda *_: remote.DIRECTORY)
        yield Backend(f"s3://disk{root}", {}, client)
    else:
        machine = Machine()
        monkeypatch.setattr(hdfs, "connect", lambda where, name, _: hdfs._Cluster(machine.client, name, 30.0))
        yield Backend(f"hdfs://nn:8020{root}", {}, client)


def test_a_store(backend: Backend, tmp_path: Path) -> None:
    root = golden.unpack(VERSION, tmp_path / "here")
    backend.upload(root, VERSION)
    assert_same(backend, VERSION, root)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["objects"], indirect=True)
@pytest.mark.parametrize("version", golden.VERSIONS[:-1])
def test_stores_of_older_brokers(backend: Backend, version: str, tmp_path: Path) -> None:
    root = golden.unpack(version, tmp_path / "here")
    backend.upload(root, version)
    assert_same(backend, version, root)


def test_a_tiered_store(backend: Backend, tmp_path: Path, rng: random.Random) -> None:
    """By itself, beside a store on this disk, and beside one there; and copied."""
    builder = StoreBuilder(tmp_path / "store", segment_size=8192)
    for number in range(240):
        builder.append(rng.choice("AB"), f"{number}".encode() * 9, queue_id=rng.randrange(3), keys=f"{number}")
    builder.close()
    columns = ["topic", "queueId", "queueOffset", "keys", "body"]

    def rows(path: str | Path, **options: Any) -> list[dict[str, Any]]:
        store = Store(path, **backend.options)  # type: ignore[arg-type]
        found = store.messages(columns, **options).read_all().to_pylist()
        return sorted(found, key=lambda row: int(row["keys"]))

    everything = rows(tmp_path / "store")
    tiered.bring(tmp_path / "tier", tmp_path / "store", rng)
    builder.expire(2)
    assert len(rows(tmp_path / "store")) < len(everything)
    store, tier = backend.upload(tmp_path / "store", "store"), backend.upload(tmp_path / "tier", "tier")
    assert rows(tier) == everything
    for one, other in ((tmp_path / "store", tier), (store, tier), (store, tmp_path / "tier")):
        assert rows(one, tiered=str(other)) == everything
    assert Store(tier, **backend.options).check().num_rows == 0  # type: ignore[arg-type]
    Store(tmp_path / "store", **backend.options).copy(tmp_path / "copy", tiered=tier)  # type: ignore[arg-type]
    assert rows(tmp_path / "copy") == everything


def test_an_object_that_changes(backend: Backend, tmp_path: Path) -> None:
    assert_pinned(backend, golden.unpack(VERSION, tmp_path / "here"))
