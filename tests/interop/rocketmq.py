"""Real RocketMQ, as processes of ours: jars from Maven, a namesrv with a broker on a store, and the real client.

Needs Maven and a JDK the first time (jars.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import random
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from support.patience import HANG

from interop.child import SMALL_JVM, ChildError, Process, User
from interop.jars import class_path, compiled, directory_of, java

# The last 4.9.x with a broker on Maven Central, a 5.1.x, 5.3.0, and the newest 5.x that is there in all its parts.
VERSIONS = ("4.9.7", "5.1.4", "5.3.0", "5.5.0")
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
# A run has one or two of them in each test, as a broker takes 10 to 20 s of two cores; every night it has all of them.
ALL_VERSIONS = bool(os.environ.get("RMQ_ALL_VERSIONS"))
_NAMESRV = {"5.3.0": "5.3.3"}  # where Maven Central has no namesrv of the broker's version

_JAVA = Path(__file__).parent / "java"
_ANSWER_SECONDS = HANG
_DUMP_SECONDS = 1800  # of some millions of messages

# To unmap files RocketMQ reaches into what Java 16 has closed; without that no clean stop.
_JVM = (
    *SMALL_JVM,
    "-Dfile.encoding=UTF-8",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Drocketmq.client.rebalance.waitInterval=500",  # 20 s by default
    "-Dtls.server.mode=disabled",  # or each server makes itself a key and a certificate: half of its start
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",  # a full disk is no reason to delete messages
)

# What it says of archives that it cannot use, or not make, would come on stdout.
_ARCHIVE = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xlog:disable")

Record = dict[str, Any]


def usually(*versions: str) -> tuple[str, ...]:
    """The versions of a test that is run on these, and on all others where that is asked for."""
    return VERSIONS if ALL_VERSIONS else versions


TRIED = usually(OLDEST, NEWEST)


# ---- jars


@dataclass(frozen=True)
class Runtime:
    """How to run one version."""

    version: str
    java: str
    namesrv: str  # class paths
    broker: str  # our own classes too
    archives: Path  # of the classes that processes load (JSA), for the next ones, which then start sooner

    @property
    def five(self) -> bool:
        return not self.version.startswith("4.")

    def copied_to(self, directory: Path) -> Runtime:
        """The same with copies of the jars. Maven's repository may be for its owner only."""
        for entry in (*self.namesrv.split(os.pathsep), *self.broker.split(os.pathsep)):
            copy = Path(f"{directory}{entry}")
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if os.path.isdir(entry) else shutil.copyfile)(entry, copy)
        namesrv, broker = (
            os.pathsep.join(f"{directory}{entry}" for entry in class_path.split(os.pathsep))
            for class_path in (self.namesrv, self.broker)
        )
        return replace(self, namesrv=namesrv, broker=broker)


@cache
def runtime(version: str) -> Runtime:
    """
    Raises:
        Unavailable: it is not cached, and cannot be had.
    """
    pom = _JAVA / "pom.xml"
    directory = directory_of(pom, version)
    versions = [f"-Drocketmq.version={version}", f"-Dnamesrv.version={_NAMESRV.get(version, version)}"]
    broker, namesrv = (
        class_path(directory / f"{profile}.txt", f"RocketMQ {version}", pom, f"-P{profile}", *versions)
        for profile in ("broker", "namesrv")
    )
    classes = compiled(directory, sorted(_JAVA.glob("src/main/java/**/*.java")), broker)
    program, release = java("java"), Path(java("java")).parents[1] / "release"
    kind = f"{program} {classes} {release.read_text() if release.exists() else ''}"
    archives = directory / f"archives-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
    archives.mkdir(exist_ok=True)
    return Runtime(version, program, namesrv, f"{classes}{os.pathsep}{broker}", archives)


# ---- a broker

_LOGBACK = '<configuration><root level="OFF"/></configuration>'  # 4.x does not start without these files


@dataclass(frozen=True)
class Sizes:
    """Of the files of a store, in bytes and units."""

    segment: int = 4 * 1024 * 1024
    queue_file: int = 300 * 20
    index_slots: int = 500
    index_items: int = 2000

    def settings(self) -> dict[str, Any]:
        return {
            "mappedFileSizeCommitLog": self.segment,
            "mappedFileSizeConsumeQueue": self.queue_file,
            "maxHashSlotNum": self.index_slots,
            "maxIndexNum": self.index_items,
            "mappedFileSizeTimerLog": 52 * 1000,
        }


@dataclass
class Broker:
    """A broker on a store directory, with a namesrv of its own. As a context it stops both, whatever happens."""

    version: str
    root: Path
    home: Path  # for logs and configuration
    sizes: Sizes = field(default_factory=Sizes)
    settings: Mapping[str, Any] = field(default_factory=dict)
    user: User | None = None
    main: str = "org.apache.rocketmq.broker.BrokerStartup"
    archives: bool = False  # whether to make archives of classes at the end, where there are none
    beside: Broker | None = None  # whose namesrv it uses
    naming: Mapping[str, Any] = field(default_factory=dict)  # settings of its namesrv

    def __post_init__(self) -> None:
        self.runtime = runtime(self.version)
        self.home = self.home.resolve()
        self.root = self.root.resolve()
        self.name = "bench"
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        for name in ("broker", "namesrv", "tools"):
            (self.home / "conf" / f"logback_{name}.xml").write_text(_LOGBACK)
        if self.user:
            self.runtime = self.runtime.copied_to(self.user.jars)
            os.chown(self.home, self.user.uid, self.user.gid)
        self._namesrv: Process | None = None
        self._namesrv_port = 0
        self._broker: Process | None = None
        self._clients: list[Client] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.stop()
                if self.archives:
                    self._keep_archives()
        finally:
            self.kill()

    @property
    def address(self) -> str:
        """While it runs."""
        return f"127.0.0.1:{self._port}"

    @property
    def namesrv_address(self) -> str:
        return f"127.0.0.1:{self._namesrv_port}"

    def start(self) -> None:
        """Until it serves. Ports are chosen anew: the ones before may still be held by dying connections."""
        for attempt in range(3):
            try:
                self._start()
                return
            except ChildError as why:
                self._end_processes(kill=True)
                if attempt == 2 or "Address already in use" not in str(why):
                    raise

    def _start(self) -> None:
        if self.beside:
            self._namesrv_port = self.beside._namesrv_port
        elif not self._namesrv:
            (self._namesrv_port,) = free_ports(1)
            conf = self.home / "conf" / "namesrv.conf"
            given = {
                "listenPort": self._namesrv_port,
                "bindAddress": "127.0.0.1",
                "kvConfigPath": self.home / "kv.json",
                **self.naming,
            }
            conf.write_text(_properties(given))
            main = "org.apache.rocketmq.namesrv.NamesrvStartup"
            self._namesrv = self._spawn("namesrv", self.runtime.namesrv, main, "-c", str(conf))
            self._namesrv.wait_for("boot success")
        self._broker = self._spawn("broker", self.runtime.broker, self.main, "-c", str(self.configure()))
        self._broker.wait_for("boot success")

    def configure(self) -> Path:
        """Writes the broker's configuration, for ports that are free now."""
        # The broker listens on port - 2 as well.
        _, port, ha_port = free_ports(3)
        given = {
            "brokerClusterName": "bench-cluster",
            "brokerName": self.name,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",  # 4.x does not know this one
            "listenPort": port,
            "haListenPort": ha_port,
            "storePathRootDir": self.root,
            "storePathCommitLog": self.root / "commitlog",
            "autoCreateTopicEnable": "true",
            "brokerFastFailureEnable": "false",  # a busy machine is no failure
            "osPageCacheBusyTimeOutMills": 60_000,
            "waitTimeMillsInSendQueue": 60_000,
            "diskMaxUsedSpaceRatio": 99,
            "fileReservedTime": 1_000_000,
            "maxMsgsNumBatch": 1000,  # of a key query
            "reviveQueueNum": 1,  # a broker that stops waits for the thread of each
            "transactionTimeOut": 1000,
            "transactionCheckInterval": 3000,
            # Milliseconds. A broker that has nothing to do spends a core for the first one of these, and copies its
            # timer wheel (37 MB) at each of those.
            "transactionMetricFlushInterval": 200,
            "timerFlushIntervalMs": 5000,
            **self.sizes.settings(),
            **self.settings,
        }
        self._port = given["listenPort"]  # which the settings may say
        if self._namesrv or self.beside:
            given["namesrvAddr"] = self.namesrv_address
        path = self.home / "conf" / "broker.conf"
        path.write_text(_properties(given))
        return path

    def _spawn(self, name: str, class_path: str, main: str, *arguments: str, pipes: bool = False) -> Process:
        log = self.home / f"{name}.log"
        log.unlink(missing_ok=True)
        command = [self.runtime.java, *_JVM, *self._archived("broker" if name == "dump" else name)]
        command += [f"-Duser.home={self.home}", f"-Drocketmq.client.logRoot={self.home}"]
        command += [f"-Dlogback.configurationFile={self.home}/conf/logback_broker.xml"]
        command += ["-cp", class_path, main, *arguments]
        environment = {"ROCKETMQ_HOME": str(self.home), "NAMESRV_ADDR": "", "JAVA_TOOL_OPTIONS": ""}
        return Process(f"{name} {self.version}", command, log, environment, self.user, pipes)

    def _archived(self, name: str) -> list[str]:
        """Options of Java."""
        archive = self.runtime.archives / f"{name}.jsa"
        if archive.exists() and not self.user:  # who has copies of the jars
            return [*_ARCHIVE, f"-XX:SharedArchiveFile={archive}"]
        return [*_ARCHIVE, f"-XX:ArchiveClassesAtExit={self.home}/{archive.name}"] if self.archives else []

    def _keep_archives(self) -> None:
        if self._namesrv:
            self._namesrv.stop()
        for made in self.home.glob("*.jsa"):
            with tempfile.TemporaryDirectory(dir=self.runtime.archives) as directory:
                copy = shutil.copy(made, directory)
                os.replace(copy, self.runtime.archives / made.name)

    def stop(self) -> None:
        """Cleanly: the clients, the broker; the namesrv stays."""
        self._end_processes(kill=False)

    def kill_alone(self) -> None:
        """`kill -9` of the broker and its clients; the namesrv stays."""
        self._end_processes(kill=True)

    def kill(self) -> None:
        """`kill -9` of the broker, and of what is left of all others."""
        self._end_processes(kill=True)
        if self._namesrv:
            self._namesrv.kill()
            self._namesrv = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """The broker's process does nothing meanwhile: whatever changes in its store, others do."""
        assert self._broker is not None
        self._broker.popen.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._broker.popen.pid, os.WSTOPPED)  # a thread may be writing yet, for seconds
        try:
            yield
        finally:
            self._broker.popen.send_signal(signal.SIGCONT)

    def _end_processes(self, kill: bool) -> None:
        if kill and self._broker:
            self._broker.kill()
            self._broker = None
        for client in self._clients:
            client.close(kill or not self.archives)
        self._clients.clear()
        if self._broker:
            broker, self._broker = self._broker, None
            broker.stop()

    def client(self) -> Client:
        arguments = (self.namesrv_address, self.name, self.address)
        process = self._spawn("client", self.runtime.broker, "interop.Client", *arguments, pipes=True)
        client = Client(process)
        self._clients.append(client)
        client.wait()
        return client

    def decoder(self) -> Process:
        """interop.Decoded, which looks at no store."""
        return self._spawn("decoder", self.runtime.broker, "interop.Decoded", str(self.configure()), pipes=True)

    def dump(self, out: Path, *only: str) -> None:
        """RocketMQ's view of the store, which it may change; with "log" only of that. No broker may run on it."""
        assert self._broker is None
        process = self._spawn("dump", self.runtime.broker, "interop.Dump", str(self.configure()), str(out), *only)
        try:
            code = process.popen.wait(_DUMP_SECONDS)
            if code != 0:
                raise ChildError(f"the dump of RocketMQ {self.version} ended with {code}:\n{process.tail()}")
        finally:
            process.kill()


class Client:
    """interop.Client: commands in, records out."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._records: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self.seen: list[Record] = []  # all that has come so far; grows while a command runs
        assert process.popen.stdout
        self._reader = threading.Thread(target=self._read, args=(process.popen.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stdout: IO[bytes]) -> None:
        with contextlib.suppress(ValueError, OSError):  # closed under our hands
            for line in stdout:
                if line.startswith(b"@"):
                    record = json.loads(line[1:])
                    self.seen.append(record)
                    self._records.put(record)
        self._records.put(None)

    def run(self, *words: object) -> list[Record]:
        """What it says to one command.

        Raises:
            ChildError: that it failed.
        """
        self.begin(*words)
        return self.wait()

    def begin(self, *words: object) -> None:
        assert self._process.popen.stdin
        self._process.popen.stdin.write(("\t".join(map(str, words)) + "\n").encode())
        self._process.popen.stdin.flush()

    def wait(self) -> list[Record]:
        return list(self._until_done())

    def _until_done(self) -> Iterator[Record]:
        end = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                record = self._records.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise ChildError(f"no answer within {_ANSWER_SECONDS} s:\n{self._process.tail()}") from None
            if record is None:
                raise ChildError(f"the client is gone:\n{self._process.tail()}")
            if record["kind"] == "error":
                raise ChildError(f"{record['command']}: {record['why']}\n{self._process.tail()}")
            if record["kind"] in ("ready", "done"):
                return
            yield record

    def close(self, kill: bool = True) -> None:
        if not kill:
            assert self._process.popen.stdin
            self._process.popen.stdin.close()
            self._process.popen.wait(_ANSWER_SECONDS)
        self._process.kill()
        self._reader.join(10)


def _properties(given: Mapping[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in given.items())


def free_ports(count: int) -> list[int]:
    """Of 127.0.0.1, below those that the system itself gives out; the first and second are two apart."""
    while True:
        start = random.randrange(12_000, 32_000)
        ports = [start, start + 2, start + 3][:count]
        with contextlib.ExitStack() as held:
            try:
                for port in ports:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
        return ports


# ---- stores


def copy_store(source: Path, target: Path) -> Path:
    """A copy with its holes, and its files' and directories' owners as far as we may."""
    from oracle import golden  # prepare.py is for a Python that has not what this needs

    for directory, _, names in os.walk(source):
        there = target / Path(directory).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        _keep_owner(directory, there)
        for name in names:
            with open(Path(directory, name), "rb") as data, open(there / name, "wb") as out:
                golden.copy_sparse(data, out, os.fstat(data.fileno()).st_size)
            shutil.copystat(Path(directory, name), there / name)
            _keep_owner(Path(directory, name), there / name)
    return target


def _keep_owner(source: str | Path, copy: Path) -> None:
    shutil.copymode(source, copy)
    if os.geteuid() == 0:
        status = os.stat(source)
        os.chown(copy, status.st_uid, status.st_gid)
