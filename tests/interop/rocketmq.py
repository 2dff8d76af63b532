"""Real RocketMQ, as processes of ours: jars from Maven, a namesrv with a broker on a store, and the real client.

Needs Maven and a JDK the first time; what they made is kept (see `CACHE`) and then only Java runs.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from oracle import golden

# The last 4.9.x with a broker on Maven Central, a 5.1.x, 5.3.0, and the newest 5.x that is there in all its parts.
VERSIONS = ("4.9.7", "5.1.4", "5.3.0", "5.5.0")
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
# Of those between, of which tests/data/golden has stores too, each run tries one; which one, RMQ_TEST_SEED says.
_BETWEEN = zlib.crc32(os.environ.get("RMQ_TEST_SEED", "").encode()) % (len(VERSIONS) - 2) + 1
TRIED = (OLDEST, VERSIONS[_BETWEEN], NEWEST)
_NAMESRV = {"5.3.0": "5.3.3"}  # where Maven Central has no namesrv of the broker's version

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqstore-spark" / "interop"
_JAVA = Path(__file__).parent / "java"
_MAVEN_SECONDS = 600
_START_SECONDS = 90
_STOP_SECONDS = 60
_ANSWER_SECONDS = 180

# Small heaps, quick starts. To unmap files RocketMQ reaches into what Java 16 has closed; without that no clean stop.
_JVM = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dfile.encoding=UTF-8",
    "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Drocketmq.client.rebalance.waitInterval=500",  # 20 s by default
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",  # a full disk is no reason to delete messages
)

Record = dict[str, Any]


class Unavailable(Exception):
    """Why there is no RocketMQ to run: no Maven, no JDK, no answer from the repository."""


# ---- jars


@dataclass(frozen=True)
class Runtime:
    """How to run one version."""

    version: str
    java: str
    namesrv: str  # class paths
    broker: str  # our own classes too

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


@dataclass(frozen=True)
class User:
    """Whom processes run as, instead of as root."""

    uid: int
    gid: int
    jars: Path  # a directory that everyone can enter, for copies


@cache
def runtime(version: str) -> Runtime:
    """
    Raises:
        Unavailable: it is not cached, and cannot be had.
    """
    java, javac = _java("java"), _java("javac")
    pom = _JAVA / "pom.xml"
    key = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    directory = CACHE / f"{version}-{key}"
    directory.mkdir(parents=True, exist_ok=True)
    broker = _class_path(directory / "broker.txt", version, "broker")
    namesrv = _class_path(directory / "namesrv.txt", version, "namesrv")
    classes = _compile(javac, directory, broker)
    return Runtime(version, java, namesrv, f"{classes}{os.pathsep}{broker}")


def _java(program: str) -> str:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "javac").exists():
        return str(Path(home) / "bin" / program)
    compiler = shutil.which("javac")
    if not compiler:
        raise Unavailable("no JDK: javac is neither in JAVA_HOME nor on the PATH")
    return str(Path(compiler).resolve().parent / program)


def _class_path(kept: Path, version: str, profile: str) -> str:
    if kept.exists():
        class_path = kept.read_text()
        if all(Path(jar).exists() for jar in class_path.split(os.pathsep)):
            return class_path
    maven = shutil.which("mvn")
    if not maven:
        raise Unavailable(f"no Maven (mvn) on the PATH, and RocketMQ {version} is not in {CACHE}")
    found = kept.with_suffix(".new")
    command = [maven, "-B", "-q", "-f", str(_JAVA / "pom.xml"), f"-P{profile}", f"-Drocketmq.version={version}"]
    command += [f"-Dnamesrv.version={_NAMESRV.get(version, version)}", "dependency:build-classpath"]
    command += ["-Dmdep.includeScope=runtime", f"-Dmdep.outputFile={found}"]
    try:
        told = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_MAVEN_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Maven did not bring RocketMQ {version} within {_MAVEN_SECONDS} s") from None
    if told.returncode != 0:
        lines = (told.stdout + told.stderr).splitlines()
        why = next((line for line in lines if line.startswith("[ERROR]")), "no reason given")
        raise Unavailable(f"Maven does not bring RocketMQ {version}: {why.removeprefix('[ERROR] ')[:300]}")
    found.replace(kept)
    return kept.read_text()


def _compile(javac: str, directory: Path, class_path: str) -> Path:
    sources = sorted(_JAVA.glob("src/main/java/**/*.java"))
    key = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    classes = directory / f"classes-{key}"
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            command = [javac, "--release", "11", "-encoding", "UTF-8", "-nowarn", "-proc:none", "-d", f"{temporary}/c"]
            command += ["-cp", class_path, *map(str, sources)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            with contextlib.suppress(OSError):  # another run was faster
                os.rename(f"{temporary}/c", classes)
    return classes


# ---- processes

_alive: set[_Process] = set()


@atexit.register
def _kill_all() -> None:
    for process in list(_alive):
        process.kill()


# Not even a killed pytest leaves a broker behind: PR_SET_PDEATHSIG, which Linux alone has, outlives the exec. (What
# subprocess offers for it, preexec_fn, is not for processes with threads. And with its user=, Python would have to be
# where that user can run it.) The system forgets it when the user changes, so that comes first.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.argv[1]:
    uid, gid = map(int, sys.argv[1].split(":"))
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.argv[2], sys.argv[2:])
"""


class _Process:
    """A child in a process group of its own. Its output goes to a file, unless it is asked for."""

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        environment: Mapping[str, str],
        user: User | None,
        pipes: bool = False,
    ):
        self.name = name
        self.log = log
        owner = f"{user.uid}:{user.gid}" if user else ""
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, owner, *command],
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else out,
                stderr=out,
                env={**os.environ, **environment},
                cwd=log.parent,
                start_new_session=True,
            )
        _alive.add(self)

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + _START_SECONDS
        while text not in self.log.read_text(errors="replace"):
            if self.popen.poll() is not None:
                raise ChildError(f"{self.name} ended with {self.popen.returncode} before it served:\n{self.tail()}")
            if time.monotonic() > end:
                raise ChildError(f"{self.name} did not serve within {_START_SECONDS} s:\n{self.tail()}")
            time.sleep(0.05)

    def tail(self, size: int = 4000) -> str:
        return self.log.read_text(errors="replace")[-size:]

    def stop(self) -> None:
        """Cleanly.

        Raises:
            ChildError: it had to be killed.
        """
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise ChildError(f"{self.name} did not stop within {_STOP_SECONDS} s:\n{self.tail()}") from None
        self._close()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self._close()

    def _close(self) -> None:
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        _alive.discard(self)


class ChildError(Exception):
    """A process of ours did not do its part."""


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
        self._namesrv: _Process | None = None
        self._broker: _Process | None = None
        self._clients: list[Client] = []

    def __enter__(self) -> Broker:
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
        finally:
            self.kill()

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
        if not self._namesrv:
            (self._namesrv_port,) = _free_ports(1)
            conf = self.home / "conf" / "namesrv.conf"
            given = {
                "listenPort": self._namesrv_port,
                "bindAddress": "127.0.0.1",
                "kvConfigPath": self.home / "kv.json",
            }
            conf.write_text(_properties(given))
            main = "org.apache.rocketmq.namesrv.NamesrvStartup"
            self._namesrv = self._spawn("namesrv", self.runtime.namesrv, main, "-c", str(conf))
            self._namesrv.wait_for("boot success")
        main = "org.apache.rocketmq.broker.BrokerStartup"
        self._broker = self._spawn("broker", self.runtime.broker, main, "-c", str(self.configure()))
        self._broker.wait_for("boot success")

    def configure(self) -> Path:
        """Writes the broker's configuration, for ports that are free now."""
        # The broker listens on port - 2 as well.
        _, self._port, ha_port = _free_ports(3)
        given = {
            "brokerClusterName": "bench-cluster",
            "brokerName": self.name,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",  # 4.x does not know this one
            "listenPort": self._port,
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
            **self.sizes.settings(),
            **self.settings,
        }
        if self._namesrv:
            given["namesrvAddr"] = self.namesrv_address
        path = self.home / "conf" / "broker.conf"
        path.write_text(_properties(given))
        return path

    def _spawn(self, name: str, class_path: str, main: str, *arguments: str, pipes: bool = False) -> _Process:
        log = self.home / f"{name}.log"
        log.unlink(missing_ok=True)
        command = [self.runtime.java, *_JVM, f"-Duser.home={self.home}", f"-Drocketmq.client.logRoot={self.home}"]
        command += [f"-Dlogback.configurationFile={self.home}/conf/logback_broker.xml"]
        command += ["-cp", class_path, main, *arguments]
        environment = {"ROCKETMQ_HOME": str(self.home), "NAMESRV_ADDR": "", "JAVA_TOOL_OPTIONS": ""}
        return _Process(f"{name} {self.version}", command, log, environment, self.user, pipes)

    def stop(self) -> None:
        """Cleanly: the clients, the broker; the namesrv stays."""
        self._end_processes(kill=False)

    def kill(self) -> None:
        """`kill -9` of the broker, and of what is left of all others."""
        self._end_processes(kill=True)
        if self._namesrv:
            self._namesrv.kill()
            self._namesrv = None

    def _end_processes(self, kill: bool) -> None:
        if kill and self._broker:
            self._broker.kill()
            self._broker = None
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self._broker:
            broker, self._broker = self._broker, None
            broker.stop()

    def client(self) -> Client:
        arguments = (self.namesrv_address, self.name, f"127.0.0.1:{self._port}")
        process = self._spawn("client", self.runtime.broker, "interop.Client", *arguments, pipes=True)
        client = Client(process)
        self._clients.append(client)
        client.wait()
        return client

    def dump(self, out: Path) -> None:
        """RocketMQ's view of the store, which it may change. No broker may run on it."""
        assert self._broker is None
        process = self._spawn("dump", self.runtime.broker, "interop.Dump", str(self.configure()), str(out))
        try:
            code = process.popen.wait(_ANSWER_SECONDS)
            if code != 0:
                raise ChildError(f"the dump of RocketMQ {self.version} ended with {code}:\n{process.tail()}")
        finally:
            process.kill()


class Client:
    """interop.Client: commands in, records out."""

    def __init__(self, process: _Process) -> None:
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

    def close(self) -> None:
        self._process.kill()
        self._reader.join(10)


def _properties(given: Mapping[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in given.items())


def _free_ports(count: int) -> list[int]:
    """Ports below those that the system itself gives out; the first and second are two apart."""
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
