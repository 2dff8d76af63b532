"""Object storage, as servers of ours on loopback: versitygw for S3, fake-gcs-server for Google's, azurite for Azure's.

None is known to any cloud, and each is asked with keys that say who asks, so no client looks for a machine's identity.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import quote

from support.backends import Backend
from support.patience import HANG

from interop.child import Process
from interop.jars import CACHE, Unavailable, alone

S3_SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
GCS_SERVER = "github.com/fsouza/fake-gcs-server@v1.56.1"
AZURE_SERVER = "azurite@3.35.0"
BUCKET = "stores"

S3_KEYS = {"aws_access_key_id": "tester", "aws_secret_access_key": "testersecret", "aws_region": "us-east-1"}
# What azurite's documentation gives to everyone.
_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_BUILD_SECONDS = 600
_START_SECONDS = HANG


class _Obstore:
    """By way of the library that reads, too."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, key: str, content: bytes) -> None:
        import obstore

        obstore.put(self._store, key, content)

    def delete(self, key: str) -> None:
        import obstore

        obstore.delete(self._store, key)


class _GcsApi:
    """By the JSON API: what obstore uses to write, fake-gcs-server does not understand ("invalid uploadType")."""

    def __init__(self, url: str) -> None:
        self._url = url

    def put(self, key: str, content: bytes) -> None:
        where = f"upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(key, safe='')}"
        self._ask("POST", where, content, "application/octet-stream")

    def delete(self, key: str) -> None:
        self._ask("DELETE", f"storage/v1/b/{BUCKET}/o/{quote(key, safe='')}")

    def make(self) -> None:
        self._ask("POST", "storage/v1/b?project=tests", json.dumps({"name": BUCKET}).encode(), "application/json")

    def _ask(self, method: str, path: str, content: bytes | None = None, kind: str = "") -> None:
        request = urllib.request.Request(f"{self._url}/{path}", content, {"Content-Type": kind}, method=method)
        urllib.request.urlopen(request, timeout=60).close()


# ---- the servers


@contextmanager
def s3(home: Path) -> Iterator[Backend]:
    """A bucket of versitygw.

    Args:
        home: a directory that is there, for it alone.

    Raises:
        Unavailable: it is not to be had.
    """
    from obstore.store import S3Store

    program = PROGRAMS["s3"]()
    data = home / "data"
    (data / BUCKET).mkdir(parents=True)
    url = _free_url()
    command = [*program, "--port", url.removeprefix("http://"), "--health", "/health", "--quiet", "posix", str(data)]
    keys = {"ROOT_ACCESS_KEY": S3_KEYS["aws_access_key_id"], "ROOT_SECRET_KEY": S3_KEYS["aws_secret_access_key"]}
    with _running("versitygw", command, home, f"{url}/health", keys):
        options = {**S3_KEYS, "aws_endpoint_url": url}
        store = S3Store(BUCKET, config={**options}, client_options={"allow_http": True})  # type: ignore[arg-type]
        yield Backend(f"s3://{BUCKET}", options, _Obstore(store))


@contextmanager
def gcs(home: Path) -> Iterator[Backend]:
    """A bucket of fake-gcs-server; see s3()."""
    program = PROGRAMS["gs"]()
    url = _free_url()
    host, port = url.removeprefix("http://").split(":")
    command = [*program, "-scheme", "http", "-host", host, "-port", port, "-public-host", f"{host}:{port}"]
    command += ["-backend", "memory", "-log-level", "error"]
    with _running("fake-gcs-server", command, home, f"{url}/storage/v1/b"):
        api = _GcsApi(url)
        api.make()
        # The server checks no signature, and a key that could sign one would be a key.
        key = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        yield Backend(f"gs://{BUCKET}", {"google_service_account_key": json.dumps(key), "allow_http": "true"}, api)


@contextmanager
def azure(home: Path) -> Iterator[Backend]:
    """A container of azurite; see s3()."""
    from obstore.store import AzureStore

    program = PROGRAMS["abfss"]()
    url = _free_url()
    host, port = url.removeprefix("http://").split(":")
    command = [*program, "--blobHost", host, "--blobPort", port, "--location", str(home)]
    command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with _running("azurite", command, home, url):
        _make_container(host, int(port))
        options = {"azure_storage_account_key": _AZURE_KEY, "azure_endpoint": f"{url}/{_AZURE_ACCOUNT}"}
        config: Any = {**options, "azure_storage_account_name": _AZURE_ACCOUNT}
        store = AzureStore(BUCKET, config=config, client_options={"allow_http": True})
        yield Backend(f"abfss://{BUCKET}@{_AZURE_ACCOUNT}.dfs.core.windows.net", options, _Obstore(store))


SERVERS: dict[str, Callable[[Path], Any]] = {"s3": s3, "gs": gcs, "abfss": azure}


def _make_container(host: str, port: int) -> None:
    """Nothing that we have can; so here is a request as Azure wants it signed ("Authorize with Shared Key")."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    path = f"/{_AZURE_ACCOUNT}/{BUCKET}"
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in sorted(headers.items()))]
    text = "\n".join([*lines, f"/{_AZURE_ACCOUNT}{path}", "restype:container"])
    digest = hmac.new(base64.b64decode(_AZURE_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("PUT", f"{path}?restype=container", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()


# ---- how they come here


def _of_go(module: str) -> list[str]:
    """A program that Go builds, once, where _brings() says so; it stays in the user's cache."""
    name = module.partition("@")[0].rpartition("/")[2]
    binary = CACHE.parent / "bin" / name
    go = shutil.which("go")
    if _brings() and go:
        binary.parent.mkdir(parents=True, exist_ok=True)
        _bring(name, binary, [go, "install", module], GOBIN=str(binary.parent))
    if not binary.exists():
        raise Unavailable(f"no {name}: `make interop` builds it where there is Go ({module})")
    return [str(binary)]


def _brings() -> bool:
    """Whether what is missing is to be fetched: `make interop` and .ci/run ask for it."""
    return not {"RMQ_INTEROP", "CI"}.isdisjoint(os.environ)


def _bring(name: str, program: Path, command: list[str], **environment: str) -> None:
    """Raises Unavailable, for a registry that does not answer is no fault of ours."""
    try:
        with alone(CACHE.parent / name):
            if not program.exists():
                subprocess.run(
                    command,
                    env={**os.environ, **environment},
                    check=True,
                    timeout=_BUILD_SECONDS,
                    stderr=subprocess.PIPE,
                    text=True,
                )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no {name}: not there after {_BUILD_SECONDS} s") from None
    except subprocess.CalledProcessError as failed:
        last = [line for line in failed.stderr.splitlines() if line.strip()][-1:] or ["it did not say why"]
        raise Unavailable(f"no {name}: {last[0].strip()}") from None


def _azurite() -> list[str]:
    """Node and azurite's program, which npm brings once, likewise."""
    directory = CACHE.parent / "azurite"
    program = directory / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    node, npm = shutil.which("node"), shutil.which("npm")
    if _brings() and node and npm:
        directory.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(directory), AZURE_SERVER]
        _bring("azurite", program, command)
    if node is None or not program.exists():
        raise Unavailable(f"no azurite: `make interop` brings it where there are Node and npm ({AZURE_SERVER})")
    return [node, str(program)]


# The beginning of each server's command.
PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "s3": lambda: _of_go(S3_SERVER),
    "gs": lambda: _of_go(GCS_SERVER),
    "abfss": _azurite,
}


def _free_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def _running(
    name: str, command: list[str], home: Path, url: str, environment: dict[str, str] | None = None
) -> Iterator[None]:
    """A server, once it answers."""
    server = Process(name, command, home / f"{name}.log", environment or {}, None)
    try:
        until = time.monotonic() + _START_SECONDS
        while not _answers(url):
            assert time.monotonic() < until, f"{name} does not start:\n{server.tail()}"
            assert server.popen.poll() is None, f"{name} has ended:\n{server.tail()}"
            time.sleep(0.05)
        yield
    finally:
        server.kill()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
