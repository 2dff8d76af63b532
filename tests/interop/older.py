"""Brokers of before 4.9, as processes of ours, with clients of a later version.

python tests/interop/older.py [version ...]: writes tests/data/old anew.
"""

from __future__ import annotations

import contextlib
import lzma
import shutil
import socket
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.patience import HANG

from interop import rocketmq, scenario
from interop.child import ChildError, Process
from interop.jars import class_path, directory_of
from interop.rocketmq import NEWEST, OLDEST, Broker, Client, Record, Runtime, Sizes

VERSIONS = ("4.0.0-incubating", "4.3.2", "4.5.2", "4.8.0")
SIZES = Sizes(segment=64 * 1024, queue_file=20 * 20, index_slots=100, index_items=200)
TOPIC = "Older"
COUNT = 40
_POM = Path(__file__).parent / "java" / "pom.xml"
_DATA = Path(__file__).resolve().parents[1] / "data" / "old"


def runtime(version: str) -> Runtime:
    """
    Raises:
        Unavailable: it is not cached, and cannot be had.
    """
    directory = directory_of(_POM, version)
    versions = [f"-Drocketmq.version={version}", f"-Dnamesrv.version={version}"]
    broker, namesrv = (
        class_path(directory / f"{profile}.txt", f"RocketMQ {version}", _POM, f"-P{profile}", *versions)
        for profile in ("broker", "namesrv")
    )
    return replace(
        rocketmq.runtime(OLDEST), version=version, broker=broker, namesrv=namesrv, archives=directory / "archives"
    )


class OlderBroker(Broker):
    """A broker of before 4.9: make it with the version of its clients, and give it its own runtime."""

    def _spawn(self, name: str, *arguments: str, **options: bool) -> Process:
        process = super()._spawn(name, *arguments, **options)
        if name == "broker":
            process.wait_for = lambda text: self._wait_until_it_listens()  # type: ignore[method-assign]
        return process

    def _wait_until_it_listens(self) -> None:
        """4.0.0 does not say that it has started."""
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.1)
        raise ChildError("the broker does not listen")

    def client(self) -> Client:
        own, self.runtime = self.runtime, rocketmq.runtime(self.version)
        try:
            return super().client()
        finally:
            self.runtime = own


def write(version: str, directory: Path) -> tuple[Path, list[Record], Path]:
    """A store of a version after a clean stop, what its consumer received, and what the newest RocketMQ finds in it."""
    root = directory / "store"
    broker = OlderBroker(OLDEST, root, directory / "home", SIZES)
    broker.runtime = runtime(version)
    with broker:
        client = broker.client()
        client.run("create", TOPIC, 2)
        client.run("older", TOPIC, COUNT)
        received = client.run("consume", TOPIC, "older-group", COUNT - 5, 500)
    return root, received, scenario.dump_of(NEWEST, root, directory / "dump", SIZES)


def main(versions: list[str]) -> None:
    for version in versions:
        with tempfile.TemporaryDirectory() as temporary:
            root, _, dump = write(version, Path(temporary))
            target = _DATA / version
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            with tarfile.open(target / "store.tar.xz", "w:xz", preset=9) as packed:
                packed.add(root, arcname=".", filter=_packed)
            with lzma.open(target / "dump.jsonl.xz", "wb", preset=9) as out:
                out.write(dump.read_bytes())
            print(f"{version}: {sum(file.stat().st_size for file in target.iterdir()):,} bytes")


def _packed(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(sys.argv[1:] or list(VERSIONS))
