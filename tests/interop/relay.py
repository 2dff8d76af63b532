"""A port in front of an HTTP server on this machine, which counts what goes through it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple

_METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")


class Traffic(NamedTuple):
    """What was asked for one path: requests, and the bytes of the answers with their headers."""

    requests: int
    nbytes: int


class Relay:
    """The count.

    Attributes:
        url: of the port.
    """

    def __init__(self, server: socket.socket, target: tuple[str, int]) -> None:
        self.url = f"http://127.0.0.1:{server.getsockname()[1]}"
        self._server = server
        self._target = target
        self._lock = threading.Lock()
        self._asked: dict[str, Traffic] = {}

    def take(self) -> dict[str, Traffic]:
        """What was asked since the last call, by path, of lists with their query."""
        with self._lock:
            found, self._asked = self._asked, {}
        return found

    def serve(self) -> None:
        """Take connections until the port is closed."""
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        """One connection: its requests follow each other, and each begins with what the client sends at once."""
        with contextlib.suppress(OSError), client, socket.create_connection(self._target) as server:
            paths = [""]
            back = threading.Thread(target=self._pass_back, args=(server, client, paths), daemon=True)
            back.start()
            while data := client.recv(1 << 18):
                if data.startswith(_METHODS):
                    paths.append(data.split(b" ", 2)[1].decode())
                    self._add(paths[-1], 1, 0)
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)
            back.join()

    def _pass_back(self, server: socket.socket, client: socket.socket, paths: list[str]) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 18):
                self._add(paths[-1], 0, len(data))
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def _add(self, path: str, requests: int, nbytes: int) -> None:
        with self._lock:
            before = self._asked.get(path, Traffic(0, 0))
            self._asked[path] = Traffic(before.requests + requests, before.nbytes + nbytes)


@contextlib.contextmanager
def relay(url: str) -> Iterator[Relay]:
    """A relay to the server with this URL."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = Relay(server, (host, int(port)))
        threading.Thread(target=found.serve, daemon=True).start()
        try:
            yield found
        finally:
            server.shutdown(socket.SHUT_RDWR)
