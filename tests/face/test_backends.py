"""A store in object storage or in HDFS answers as the same store on a disk. Here these are in this process, or a server
of the tests; real ones are held to the same contract in tests/interop/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from oracle import golden
from support import remote
from support.backends import Backend, Directory
from support.contract import assert_pinned, assert_same
from support.hdfs_client import Machine
from support.s3_server import Server

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


def test_an_object_that_changes(backend: Backend, tmp_path: Path) -> None:
    assert_pinned(backend, golden.unpack(VERSION, tmp_path / "here"))
