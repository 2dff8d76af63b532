"""Small stores of brokers from before 4.9: writes tests/data/old anew. What is there is only to be read.

python tests/interop/older.py [version ...]

The client is of the broker's own version too: the properties of a message are in the form that its producer gave them.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import shutil
import socket
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from oracle import golden
from support.patience import HANG

from interop import jars, scenario
from interop.child import ChildError, Process
from interop.rocketmq import NEWEST, OLDEST, Broker, Client, Record, Runtime, Sizes

# The first one with Apache, the first kind of transactions' second kind, before and after IPv6, the last ones.
VERSIONS = ("4.0.0-incubating", "4.3.2", "4.5.2", "4.7.1", "4.8.0")
SIZES = Sizes(segment=64 * 1024, queue_file=20 * 20, index_slots=100, index_items=200)
_WITH_EXT = {
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "enablePropertyFilter": "true",
    "mapedFileSizeConsumeQueueExt": 4096,
    "mappedFileSizeConsumeQueueExt": 4096,
}
_SETTINGS: dict[str, dict[str, Any]] = {"4.3.2": _WITH_EXT}
_ONCE = {"mapedFileSizeCommitLog": SIZES.segment, "mapedFileSizeConsumeQueue": SIZES.queue_file}  # as 4.0.0 spells it
_JAVA = Path(__file__).parent / "java"
_SOURCES = [
    _JAVA / "older" / "Older.java",
    *(_JAVA / "src/main/java/interop" / f"{n}.java" for n in ("Json", "Messages")),
]


@cache
def runtime(version: str) -> Runtime:
    """
    Raises:
        Unavailable: it is not cached, and cannot be had.
    """
    pom = _JAVA / "pom.xml"
    directory = jars.directory_of(pom, version)
    versions = [f"-Drocketmq.version={version}", f"-Dnamesrv.version={version}"]
    broker, namesrv = (
        jars.class_path(directory / f"{profile}.txt", f"RocketMQ {version}", pom, f"-P{profile}", *versions)
        for profile in ("broker", "namesrv")
    )
    classes = jars.compiled(directory, _SOURCES, broker)
    archives = directory / "archives"
    archives.mkdir(exist_ok=True)
    return Runtime(version, jars.java("java"), namesrv, f"{classes}:{broker}", archives)


@dataclass
class OlderBroker(Broker):
    """A broker from before 4.9 with its own clients."""

    older: str = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.runtime = runtime(self.older)

    def _spawn(self, name: str, class_path: str, main: str, *arguments: str, pipes: bool = False) -> Process:
        process = super()._spawn(name, class_path, main, *arguments, pipes=pipes)
        if name == "broker":  # 4.0.0 does not say that it has started
            process.wait_for = lambda text: self._wait_until_it_listens(process)  # type: ignore[method-assign]
        return process

    def _wait_until_it_listens(self, process: Process) -> None:
        end = time.monotonic() + HANG
        while time.monotonic() < end and process.popen.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.1)
        raise ChildError(f"the broker does not listen:\n{process.tail()}")

    def sent(self) -> list[Record]:
        """What interop.Older says that it has sent and got."""
        arguments = (self.namesrv_address, self.name)
        process = self._spawn("client", self.runtime.broker, "interop.Older", *arguments, pipes=True)
        client = Client(process)
        self._clients.append(client)
        client.wait()
        return client.wait()


def write(version: str, directory: Path) -> tuple[Path, list[Record], Path]:
    """A store of a version after a clean stop, what its clients say, and what the newest RocketMQ finds in it."""
    root = directory / "store"
    settings = _ONCE | _SETTINGS.get(version, {})
    with OlderBroker(OLDEST, root, directory / "home", SIZES, settings, older=version) as broker:
        told = broker.sent()
    return root, told, scenario.dump_of(NEWEST, root, directory / "dump", SIZES)


def main(versions: list[str]) -> None:
    for version in versions:
        with tempfile.TemporaryDirectory() as temporary:
            root, told, dump = write(version, Path(temporary))
            target = golden.OLD / version
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            with tarfile.open(target / "store.tar.xz", "w:xz", preset=9) as packed:
                packed.add(root, arcname=".", filter=_packed)
            for name, data in (("dump", dump.read_bytes()), ("told", _lines(told))):
                with lzma.open(target / f"{name}.jsonl.xz", "wb", preset=9) as out:
                    out.write(data)
            print(f"{version}: {sum(file.stat().st_size for file in target.iterdir()):,} bytes")


def _lines(records: list[Record]) -> bytes:
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


def _packed(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="", gname="", deep=False)


if __name__ == "__main__":
    main(sys.argv[1:] or list(VERSIONS))
