"""A standalone cluster of Spark's: a master and two workers on hosts that are two addresses of this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark

HOSTS = ("127.0.0.1", "127.0.0.2")


@contextlib.contextmanager
def master(home: Path, within: Callable[[list[str]], list[str]] = list) -> Iterator[str]:
    """The address of a cluster with an executor of one core on each host.

    Args:
        home: where the logs and what executors write go.
        within: what makes of a worker's command the one that starts it.
    """
    spark = Path(pyspark.__file__).parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"spark://127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "SPARK_HOME": str(spark), "SPARK_DAEMON_MEMORY": "256m"}
    environment["SPARK_DAEMON_JAVA_OPTS"] = environment["SPARK_SUBMIT_OPTS"]

    def command(kind: str, *arguments: str) -> list[str]:
        return [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--webui-port", "0", *arguments]

    def start(name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (home / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=home)

    with contextlib.ExitStack() as running:

        def add(name: str, command: list[str]) -> None:
            process = running.enter_context(start(name, command))
            running.callback(process.terminate)

        add("master", command("master.Master", "--host", "127.0.0.1", "--port", address.rpartition(":")[2]))
        for host in HOSTS:
            limits = ("--cores", "1", "--memory", "600m", "--work-dir", str(home / host))
            add(f"worker-{host}", within(command("worker.Worker", "--host", host, *limits, address)))
        yield address
