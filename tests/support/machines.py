"""Machines: a driver's and two workers', each with a disk of its own under one path, and a network disk."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from support import alone, distribution, installed
from support.spark_cluster import HOSTS, Cluster
from support.spark_driver import Driver

# What Spark's daemons are not to inherit from the tests.
_OF_TESTS: dict[str, str | None] = dict.fromkeys(["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"])


class Machines(NamedTuple):
    """What a test has of them.

    Attributes:
        home: what all see; in `shared/` are stores on a network disk.
        stores: a directory that each has for itself; this is the driver's.
        disks: the same of each worker, by its host.
        cluster: the workers.
        python: where the package is installed on each.
    """

    home: Path
    stores: Path
    disks: dict[str, Path]
    cluster: Cluster
    python: Path

    @contextlib.contextmanager
    def driver(
        self,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str | None] | None = None,
        python: Path | None = None,
        prepare: Callable[[Path], None] = lambda home: None,
    ) -> Iterator[Driver]:
        """A driver of the cluster.

        Args:
            settings: of its session.
            environment: what it has beside PYSPARK_PYTHON, or for it; None: not set at all.
            python: what it is run by; the one that has the package where nothing is said.
            prepare: what puts something into the directory in which it is started.
        """
        python = python or self.python
        home = Path(tempfile.mkdtemp(prefix="driver-", dir=self.home))
        prepare(home)
        variables = {**_OF_TESTS, "PYSPARK_PYTHON": str(python), **(environment or {})}
        with Driver(home, python, {"spark.master": self.cluster.address, **(settings or {})}, variables) as driver:
            yield driver


@contextlib.contextmanager
def machines_in(home: Path, wheel: Path | None) -> Iterator[Machines]:
    """A cluster whose machines have the package from a wheel, or a copy of the tree's, and not the source tree."""
    stores = home / "stores"
    disks = {host: home / "disks" / host for host in HOSTS}
    for directory in (stores, home / "shared", *disks.values()):
        directory.mkdir(parents=True)
    python = installed.environment(home / "job", wheel, is_copied=wheel is None)
    hidden = [distribution.ROOT / name for name in distribution.PACKAGES]

    def within(command: list[str], host: str) -> list[str]:
        name = f"worker-{HOSTS.index(host) + 1}"
        return alone.on_a_machine(name, {stores: disks[host]}, hidden)(command)

    with Cluster(home, within, _OF_TESTS, executors=3) as cluster:
        yield Machines(home, stores, disks, cluster, python)
