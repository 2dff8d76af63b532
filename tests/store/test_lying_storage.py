"""Object storage that lies is refused, passed over or named: a list without end, more bytes than were asked for, keys
that are no paths."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from oracle.stores import StoreBuilder
from support.s3_server import Server

from rmqstore_spark import Store
from rmqstore_spark.errors import StorageError
from rmqstore_spark.store.io.files import Pin
from rmqstore_spark.store.io.remote import objects
from rmqstore_spark.store.io.remote.objects import connect
from rmqstore_spark.store.io.storage import Storage, location

Answer = Callable[["_Handler"], None]


class _Server(ThreadingHTTPServer):
    request_queue_size = 256  # clients that connect at a time
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Answer
    requests: Iterator[int]

    def do_GET(self) -> None:
        next(self.requests)
        try:
            type(self).answer(self)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def list(self, keys: list[str], token: str) -> None:
        xml = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>x</ETag><Size>1</Size></Contents>"
            for key in keys
        )
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        self.send(200, f"<ListBucketResult>{more}{xml}</ListBucketResult>".encode())


@pytest.fixture
def liar() -> Iterator[Callable[[Answer], Any]]:
    """A bucket whose server answers like that."""
    servers = []

    def bucket(answer: Answer) -> Any:
        handler = type("Handler", (_Handler,), {"answer": staticmethod(answer), "requests": itertools.count()})
        server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        given = {"aws_endpoint_url": f"http://127.0.0.1:{server.server_address[1]}", "aws_access_key_id": "A"}
        given |= {"aws_secret_access_key": "S", "aws_region": "us-east-1", "timeout": "2s"}
        return connect(location("s3://bucket"), "s3://bucket", Storage(given))

    yield bucket
    for server in servers:
        server.shutdown()
        server.server_close()


def _pages_without_objects(handler: _Handler) -> None:
    handler.list([], "again")


def _the_same_page(handler: _Handler) -> None:
    handler.list([f"a/{number:04}" for number in range(1000)], "again")


def _new_objects(handler: _Handler) -> None:
    after = int(parse_qs(urlsplit(handler.path).query).get("continuation-token", ["0"])[0])
    handler.list([f"a/{number:09}" for number in range(after, after + 1000)], str(after + 1000))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (_pages_without_objects, "s3://bucket/a: .* does not come to an end in 2 s"),
        (_the_same_page, "s3://bucket/a: .* gives the same objects again and again"),
        (_new_objects, "s3://bucket/a: .* has more than 20,000 objects"),
    ],
)
def test_a_list_without_end_is_refused(
    liar: Callable[[Answer], Any], answer: Answer, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_MOST_LISTED", 20_000)
    bucket = liar(answer)
    with pytest.raises(StorageError, match=error):
        list(bucket.below("a"))
    with pytest.raises(StorageError, match="does not come to an end in 2 s"):
        bucket.inside("a")
    assert len(list(bucket.below("a", 1500))) == 1500 if answer is not _pages_without_objects else True


@pytest.mark.slow
def test_no_more_bytes_are_taken_than_were_asked_for(liar: Callable[[Answer], Any]) -> None:
    sent = []

    def much(handler: _Handler) -> None:
        size = 1 << 30
        handler.send(206, b"", {"Content-Length": str(size), "Content-Range": "bytes 0-8191/100000", "ETag": "x"})
        for _ in range(size >> 20):
            handler.wfile.write(bytes(1 << 20))
            sent.append(1 << 20)

    with pytest.raises(StorageError, match=r"s3://bucket/a: .*expected 8192 bytes, got more"):
        liar(much).get("a", 0, 8192, Pin(100_000, "x"))
    assert sum(sent) < 256 << 20, "what lies in buffers of each try, and no more"


def _spoilt(root: Path, directory: str, server: Server) -> None:
    """A key that no file can have."""
    server.stop_listing()
    assert server._listing is not None
    server._listing.append((f"{directory}../evil", "x", 1))


@pytest.mark.parametrize("directory", ["", "commitlog/", "consumequeue/TopicA/", "index/", "config/"])
def test_a_key_that_is_no_path_is_passed_over(directory: str, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", index=True)
    for number in range(100):
        builder.append(topic="TopicA" if number % 2 else "%RETRY%g", body=bytes(200), keys=f"k{number}")
    builder.close()
    with Server(tmp_path, page=7) as server:
        _spoilt(tmp_path, f"store/{directory}", server)
        options: dict[str, Any] = dict(server.options)
        store = Store("s3://stores/store", **options)
        assert store.messages().read_all().num_rows == 100
        assert store.messages(key="k7").read_all().num_rows == 1
        assert store.queues().num_rows == 2


def test_where_it_may_hide_others_it_is_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append()
    builder.close()
    with Server(tmp_path) as server:
        _spoilt(tmp_path, "store/consumequeue/", server)
        options: dict[str, Any] = dict(server.options)
        with pytest.raises(StorageError, match=r"s3://stores/store/consumequeue: .* '\.\.': delete it"):
            Store("s3://stores/store", **options).queues()
