"""A real HDFS of one NameNode and one DataNode (hdfs/Cluster.java), as a process of ours on loopback."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from pathlib import Path
from typing import IO

from support.backends import Backend
from support.patience import HANG

from interop.child import SMALL_JVM, ChildError, Process
from interop.jars import class_path, compiled, directory_of, java

_SOURCES = Path(__file__).parent / "hdfs"
_START_SECONDS = HANG
_ANSWER_SECONDS = HANG


def command() -> list[str]:
    """All but where its data is to be.

    Raises:
        Unavailable: its jars are not cached, and cannot be had.
    """
    kept = directory_of(_SOURCES / "pom.xml", "hdfs")
    jars = class_path(kept / "cluster.txt", "HDFS", _SOURCES / "pom.xml")
    classes = compiled(kept, [_SOURCES / "Cluster.java"], jars)
    return [java("java"), *SMALL_JVM, "-cp", f"{classes}{os.pathsep}{jars}", "Cluster"]


class Cluster:
    """The cluster, running.

    Attributes:
        uri: of its root.

    Raises:
        Unavailable: its jars are not cached, and cannot be had.
    """

    def __init__(self, home: Path) -> None:
        # SIMPLE authentication: whoever asks is whom he says he is.
        environment = {"HADOOP_USER_NAME": "owner", "JAVA_TOOL_OPTIONS": "", "HADOOP_CONF_DIR": ""}
        arguments = [*command(), str(home / "data")]
        self._process = Process("HDFS", arguments, home / "hdfs.log", environment, None, pipes=True)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.popen.stdout
        threading.Thread(target=self._read, args=(self._process.popen.stdout,), daemon=True).start()
        try:
            self.uri = f"hdfs://127.0.0.1:{self._answer(_START_SECONDS).split()[1]}"
        except ChildError:
            self.kill()
            raise

    def _read(self, stdout: IO[bytes]) -> None:
        for line in stdout:
            if line.startswith(b"@"):
                self._lines.put(line.decode())
        self._lines.put("")

    def _answer(self, seconds: float) -> str:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            line = ""
        if not line or line.startswith("@failed"):
            raise ChildError(f"HDFS: {line or 'it is gone, or does not answer'}\n{self._process.tail()}")
        return line

    def run(self, *words: object) -> None:
        """One command of Cluster.java's.

        Raises:
            ChildError: it failed.
        """
        assert self._process.popen.stdin
        self._process.popen.stdin.write(("\t".join(map(str, words)) + "\n").encode())
        self._process.popen.stdin.flush()
        self._answer(_ANSWER_SECONDS)

    @property
    def backend(self) -> Backend:
        """The whole of it, for those whose right to read is anybody's."""
        return Backend(self.uri, {}, self)

    def put(self, key: str, content: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            self.run("put", f"/{key}", file.name)

    def delete(self, key: str) -> None:
        self.run("delete", f"/{key}")

    def kill(self) -> None:
        self._process.kill()
