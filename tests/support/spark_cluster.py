"""A standalone cluster of Spark's: a master and two workers on hosts that are two addresses of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark

from support.patience import HANG

HOSTS = ("127.0.0.1", "127.0.0.2")
# What makes of the command that starts the worker of a host the one that is run.
Within = Callable[[list[str], str], list[str]]


class Cluster:
    """A cluster that runs.

    Args:
        home: where the logs and what executors write go.
        within: as a worker is started.
        environment: what is other than in this process; None: not set at all.
        executors: for how many of one core there is room on each host.

    Attributes:
        address: of the master.
        workers: the process of each host's worker. Its executors are its children.
    """

    def __init__(self, home: Path, within: Within, environment: dict[str, str | None], executors: int = 1) -> None:
        self._home = home
        self._within = within
        self._spark = Path(pyspark.__file__).parent
        daemons = {"SPARK_HOME": str(self._spark), "SPARK_DAEMON_MEMORY": "256m"}
        daemons["SPARK_DAEMON_JAVA_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"]
        wanted = {**os.environ, **daemons, **environment}
        self._environment = {name: value for name, value in wanted.items() if value is not None}
        self._room = executors
        self._running = contextlib.ExitStack()
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"spark://127.0.0.1:{probe.getsockname()[1]}"

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as failed:
            failed.push(self._running)
            port = self.address.rpartition(":")[2]
            self._start("master", self._command("master.Master", "--host", "127.0.0.1", "--port", port))
            for host in HOSTS:
                self.start_worker(host)
            self._wait_for_workers()
            failed.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start_worker(self, host: str) -> None:
        """Begin the worker of a host, which has none."""
        room = ("--cores", str(self._room), "--memory", f"{600 * self._room}m")
        place = ("--work-dir", str(self._home / host))
        command = self._command("worker.Worker", "--host", host, *room, *place, self.address)
        self.workers[host] = self._start(f"worker-{host}", self._within(command, host))

    def executors(self, host: str) -> list[int]:
        """The processes of a worker's executors."""
        return children(self.workers[host].pid)

    def wait_for_executors(self, count: int) -> None:
        """Until so many are there."""
        since = time.monotonic()
        while sum(len(self.executors(host)) for host in HOSTS) < count:
            assert time.monotonic() < since + HANG
            time.sleep(0.05)

    def _wait_for_workers(self) -> None:
        """Until the master knows all of them: to an application that came before, it would give executors on the first
        one alone."""
        since = time.monotonic()
        while set(re.findall(r"Registering worker ([\d.]+):", (self._home / "master.log").read_text())) != set(HOSTS):
            assert time.monotonic() < since + HANG
            time.sleep(0.05)

    def _command(self, kind: str, *arguments: str) -> list[str]:
        script = str(self._spark / "bin" / "spark-class")
        return [script, f"org.apache.spark.deploy.{kind}", "--webui-port", "0", *arguments]

    def _start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._home / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, cwd=self._home)
        process = self._running.enter_context(started)
        self._running.callback(process.terminate)
        return process


@contextlib.contextmanager
def master(home: Path, within: Callable[[list[str]], list[str]] = list) -> Iterator[str]:
    """The address of a cluster with an executor of one core on each host.

    Args:
        home: where the logs and what executors write go.
        within: what makes of a worker's command the one that starts it.
    """
    with Cluster(home, lambda command, _: within(command), {}) as cluster:
        yield cluster.address


def children(process: int) -> list[int]:
    """The processes that a process has started; the newest one last. None where it has ended."""
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        return sorted(int(child) for task in tasks for child in (task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return []
