"""A cluster of HDFS that is this machine's disk, and a client of it that answers as hdfs-native does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Status:
    path: str
    length: int
    isdir: bool
    modification_time: int


class Reader:
    def __init__(self, path: str, fault: Callable[[str], None]) -> None:
        self._content = Path(path).read_bytes()  # as the blocks of a file that is replaced stay for a while
        self._fault = fault

    def __len__(self) -> int:
        return len(self._content)

    def read_range(self, offset: int, size: int) -> bytes:
        self._fault("read_range")
        assert offset + size <= len(self._content), "hdfs-native panics"
        return self._content[offset : offset + size]


class Machine:
    """A cluster that is this machine's disk.

    Attributes:
        clients: how many were made.
        asked: what they were asked for.
        fault: is called with the name of that, before it is answered.
    """

    def __init__(self) -> None:
        self.clients = 0
        self.asked: list[str] = []
        self.fault: Callable[[str], None] = lambda name: None

    def client(self) -> Any:
        self.clients += 1
        return Client(self)

    def ask(self, name: str) -> None:
        self.asked.append(name)
        self.fault(name)


class Client:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def get_file_info(self, path: str) -> Status:
        self._machine.ask("get_file_info")
        return self._status(path)

    @staticmethod
    def _status(path: str) -> Status:
        found = os.stat(path)
        is_directory = os.path.isdir(path)
        return Status(path, 0 if is_directory else found.st_size, is_directory, found.st_mtime_ns)

    def list_status(self, path: str, recursive: bool = False) -> Iterator[Status]:
        self._machine.ask("list_status")
        if os.path.isfile(path):
            yield self._status(path)
            return
        for name in sorted(os.listdir(path)):
            yield self._status(f"{path}/{name}")
            if recursive and os.path.isdir(f"{path}/{name}"):
                yield from self.list_status(f"{path}/{name}", True)

    def read(self, path: str) -> Reader:
        self._machine.ask("read")
        return Reader(path, self._machine.ask)
