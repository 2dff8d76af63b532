"""Stores on a real S3 server (versitygw), uploaded by a client of it: what signatures, tags and pages really are.

`make interop` builds the server with Go, once; its binary stays in the user's cache.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from oracle import golden
from support import reading

from interop.jars import CACHE
from interop.same import assert_same
from rmqstore_spark import StorageError, Store

pytestmark = pytest.mark.interop

SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BINARY = CACHE.parent / "bin" / "versitygw"
BUCKET = "stores"
KEYS = {"aws_access_key_id": "tester", "aws_secret_access_key": "testersecret", "aws_region": "us-east-1"}


@pytest.fixture(scope="session")
def binary() -> Path:
    """The server. `make interop` and .ci/run build it, where there is Go; else it is only taken where it is."""
    go = shutil.which("go")
    if not BINARY.exists() and {"RMQ_INTEROP", "CI"} & set(os.environ) and go:
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "GOBIN": str(BINARY.parent)}
        subprocess.run([go, "install", SERVER], env=env, check=True, timeout=1800)
    if not BINARY.exists():
        pytest.skip(f"no S3 server: `make interop` builds one where there is Go ({SERVER})")
    return BINARY


@pytest.fixture(scope="module")
def options(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """How the server is reached, with the golden stores in its bucket."""
    import obstore
    from obstore.store import S3Store

    home = tmp_path_factory.mktemp("s3")
    (home / BUCKET).mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "ROOT_ACCESS_KEY": KEYS["aws_access_key_id"]}
    env |= {"ROOT_SECRET_KEY": KEYS["aws_secret_access_key"], "AWS_EC2_METADATA_DISABLED": "true"}
    command = [str(binary), "--port", f"127.0.0.1:{port}", "--health", "/health", "--quiet", "posix", str(home)]
    with (home.parent / "versitygw.log").open("w") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server)
        found = {**KEYS, "aws_endpoint_url": f"http://127.0.0.1:{port}"}
        bucket = S3Store(BUCKET, config={**found}, client_options={"allow_http": True})  # type: ignore[arg-type]
        for version in golden.VERSIONS:
            root = golden.unpack(version, tmp_path_factory.mktemp(version) / "store")
            for path in sorted(path for path in root.rglob("*") if path.is_file()):
                obstore.put(bucket, f"{version}/{path.relative_to(root)}", path.read_bytes())
        yield found
    finally:
        server.terminate()
        server.wait(10)


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the S3 server does not start")


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_a_store(options: dict[str, str], version: str, tmp_path: Path) -> None:
    uri, root = f"s3://{BUCKET}/{version}", golden.unpack(version, tmp_path / "store")
    assert_same(Store(uri, **options), uri, root)  # type: ignore[arg-type]


def test_an_object_that_changes(options: dict[str, str]) -> None:
    import obstore
    from obstore.store import S3Store

    from rmqstore_spark.read.stores import files_of

    uri = f"s3://{BUCKET}/{golden.VERSIONS[0]}"
    understood = reading.parse_options({"path": uri, **options})
    files = files_of(understood)
    segment = f"{uri}/commitlog/{'0' * 20}"
    pin = files.pin(segment)
    assert pin is not None
    assert pin.tag
    with files.file(segment, pin=pin) as file:
        head = file.read(0, 100)
        assert len(head) == 100
    bucket = S3Store(BUCKET, config={**options}, client_options={"allow_http": True})  # type: ignore[arg-type]
    key = segment.removeprefix(f"s3://{BUCKET}/")
    whole = bytes(obstore.get(bucket, key).bytes())
    obstore.put(bucket, key, whole[:-1] + b"x")
    try:
        for tag in (pin.tag, "none"):
            again = files_of(understood)
            with (
                pytest.raises(StorageError, match="another one since the read was planned"),
                again.file(segment, pin=type(pin)(pin.size, tag)) as file,
            ):
                file.read(0, 100)
    finally:
        obstore.put(bucket, key, whole)


def test_wrong_keys(options: dict[str, str]) -> None:
    for wrong in ("aws_access_key_id", "aws_secret_access_key"):
        with pytest.raises(StorageError, match="access denied") as error:
            Store(f"s3://{BUCKET}/x", **{**options, wrong: "WRONGMARKER"})  # type: ignore[arg-type]
        assert "WRONGMARKER" not in str(error.value)
