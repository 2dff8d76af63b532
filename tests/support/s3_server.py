"""A small S3 server for one bucket, `stores`: a directory's files as objects, and what can go wrong with them.

It lists (list-type=2, with delimiter and pages), and gets ranges with If-Match. Signatures it does not check; a real
server does that (tests/interop/test_s3.py). It runs in a thread of this process, on loopback.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ACCESS_KEY, SECRET_KEY = "AKIDMARKER", "SECRETMARKER"
BUCKET = "stores"
_SO_MAX_PACING_RATE = 47  # of Linux: the socket sends no faster, and nobody's time is taken for that
_LARGE = 128 * 1024  # bytes of a request: no page, but a block
_SEND_BUFFER = 512 * 1024  # what is in it counts as answered


class Fault(Exception):
    """A request is answered otherwise: `name` says how."""

    def __init__(self, name: str, amount: float = 0) -> None:
        super().__init__(name)
        self.name = name
        self.amount = amount


class Server:
    """The server, running. A context manager.

    Attributes:
        root: the bucket's directory.
        asked: of each request the method, the path with its query, and the range.
        fault: is called with the number of a request and its key before it is answered, and may raise a Fault.
        page: keys in a page of a list.
        pace: bytes a second of one connection, which the kernel holds.
        knows_start_after: whether a list begins where it is asked to.
    """

    def __init__(self, root: Path, page: int = 1000) -> None:
        self.root = root
        self.page = page
        self.knows_start_after = True
        self.pace = math.inf
        self.asked: list[tuple[str, str, str | None]] = []
        self.fault: Callable[[int, str], None] = lambda number, key: None
        self._listing: list[tuple[str, str, int]] | None = None
        self.lock = threading.Lock()
        self.under_way = self.most_under_way = 0  # of requests for large blocks
        self._server = _Listening(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def options(self) -> dict[str, str]:
        """How it is reached, by object_store's names."""
        return {
            "aws_endpoint_url": f"http://127.0.0.1:{self._server.server_address[1]}",
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": "us-east-1",
        }

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def tag(self, path: Path) -> str:
        status = path.stat()
        return f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'

    def listing(self, prefix: str = "") -> list[tuple[str, str, int]]:
        """Of each object the key, the tag and the size, as lists give them: at least of those with this prefix, as
        there may be other stores beside theirs."""
        if self._listing is not None:
            return self._listing
        found = []
        top = f"{self.root}/{prefix.rpartition('/')[0]}"
        for path in (Path(above, name) for above, _, names in os.walk(top) for name in names):
            with contextlib.suppress(FileNotFoundError):  # it is being removed
                found.append((str(path.relative_to(self.root)), self.tag(path), path.stat().st_size))
        return found

    def stop_listing(self) -> None:
        """Lists from now on show what there is now."""
        self._listing = self.listing()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """While a request for much is answered."""
        with self.lock:
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            yield
        finally:
            with self.lock:
                self.under_way -= 1


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512  # clients that connect at a time; one too many tries again a second later


class _Handler(BaseHTTPRequestHandler):
    owner: Server
    protocol_version = "HTTP/1.1"
    timeout = 30

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.owner.pace != math.inf:
            self.connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, int(self.owner.pace))
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        with self.owner.lock:
            number = len(self.owner.asked)
            self.owner.asked.append((self.command, self.path, self.headers.get("Range")))
        with self.owner.one() if _is_large(self.headers.get("Range")) else contextlib.nullcontext():
            try:
                self.owner.fault(number, key)
                self._answer(bucket, key, url.query)
            except Fault as fault:
                self._fail(fault, key)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    def _answer(self, bucket: str, key: str, query: str) -> None:
        if not self.headers.get("Authorization", "").startswith(f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/"):
            self._error(403, "AccessDenied")
        elif bucket != BUCKET:
            self._error(404, "NoSuchBucket")
        elif not key:
            self._list(parse_qs(query, keep_blank_values=True))
        else:
            self._object(key)

    def _list(self, query: dict[str, list[str]]) -> None:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        start = query.get("start-after", [""]) if self.owner.knows_start_after else [""]
        after = query.get("continuation-token", start)[0]
        found: list[tuple[str, str]] = []
        prefixes: set[str] = set()
        for key, tag, size in self.owner.listing(prefix):
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in key[len(prefix) :]:
                prefixes.add(prefix + key[len(prefix) :].split(delimiter)[0] + delimiter)
                continue
            date = "2026-01-01T00:00:00.000Z"
            xml = f"<Key>{escape(key)}</Key><LastModified>{date}</LastModified>"
            xml += f"<ETag>{escape(tag)}</ETag><Size>{size}</Size>"
            found.append((key, f"<Contents>{xml}</Contents>"))
        found += [(p, f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>") for p in prefixes]
        left = sorted(each for each in found if each[0] > after)
        page, more = left[: self.owner.page], len(left) > self.owner.page
        token = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if more else ""
        items = "".join(xml for _, xml in page)
        body = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{items}</ListBucketResult>"
        self._send(200, body.encode(), {"Content-Type": "application/xml"})

    def _object(self, key: str) -> None:
        path = self.owner.root / key
        if not path.is_file():
            self._error(404, "NoSuchKey")
            return
        tag = self.owner.tag(path)
        expected = self.headers.get("If-Match")
        if expected not in (None, tag):
            self._error(412, "PreconditionFailed")
            return
        size = path.stat().st_size
        headers = {"ETag": tag, "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is None:
            self._send(200, path.read_bytes(), headers)
            return
        start, stop = int(asked[1]), min(int(asked[2]) + 1, size)
        if start >= size:
            self._error(416, "InvalidRange")
            return
        self._head(206, stop - start, {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"})
        if self.command != "HEAD":
            with path.open("rb") as file:
                self.connection.sendfile(file, start, stop - start)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _send(self, status: int, body: bytes, headers: dict[str, str], length: int | None = None) -> None:
        self._head(status, len(body) if length is None else length, headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as asked</Message></Error>"
        self._send(status, body.encode(), {"Content-Type": "application/xml"})

    def _fail(self, fault: Fault, key: str) -> None:
        """Answer as the fault says."""
        path = self.owner.root / key
        match fault.name:
            case "status":
                codes = {400: "ExpiredToken", 403: "AccessDenied", 429: "SlowDown", 500: "InternalError"}
                self._error(int(fault.amount), codes.get(int(fault.amount), "SlowDown"))
            case "slow":
                time.sleep(fault.amount)
                self._object(key)
            case "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()
            case "short" | "stall":
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                assert asked
                size = path.stat().st_size
                start, stop = int(asked[1]), min(int(asked[2]) + 1, size)
                with path.open("rb") as file:
                    body = os.pread(file.fileno(), stop - start, start)
                headers = {"ETag": self.owner.tag(path), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
                headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
                self._send(206, body[: len(body) // 2], headers, length=len(body))
                self.wfile.flush()
                if fault.name == "stall":
                    time.sleep(fault.amount)
                self.close_connection = True
                self.connection.close()


def _is_large(asked: str | None) -> bool:
    found = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
    return found is not None and int(found[2]) - int(found[1]) >= _LARGE
