"""Files in HDFS are listed, pinned and read as objects, and what goes wrong passes or is told in one line. The client
here answers as hdfs-native does; it and a real HDFS are in interop/test_hdfs.py."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support import reading
from support.hdfs_client import Machine

from rmqstore_spark.errors import OptionError, StorageError
from rmqstore_spark.store.io.files import Pin, Prices
from rmqstore_spark.store.io.remote import tries
from rmqstore_spark.store.io.remote.files import RemoteFiles
from rmqstore_spark.store.io.remote.hdfs import _Cluster, connect
from rmqstore_spark.store.io.remote.objects import Entry
from rmqstore_spark.store.io.storage import HDFS, Location, Storage, location

ROOT = Path(__file__).resolve().parents[2]
NAME = "hdfs://nn:8020"
STACK = "\\n\\tat org.apache.hadoop.hdfs.server.namenode.FSPermissionChecker.check(FSPermissionChecker.java:663)"
DENIED = (
    'RPCError("org.apache.hadoop.security.AccessControlException", '
    f'"Permission denied: user=eve, access=READ, inode=\\"/a\\":root:supergroup:-rw-------{STACK}")'
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(tries, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(tries, "_LONGEST_PAUSE", 0.001)
    return Machine()


@pytest.fixture
def cluster(machine: Machine) -> _Cluster:
    return _Cluster(machine.client, NAME, 30.0)


def failing(name: str, *errors: BaseException) -> Callable[[str], None]:
    """The first requests of a name fail."""
    left = list(errors)

    def fail(asked: str) -> None:
        if asked == name and left:
            raise left.pop(0)

    return fail


def key_of(path: Path) -> str:
    return str(path)[1:]


def pin_of(path: Path) -> Pin:
    return Pin(path.stat().st_size, str(path.stat().st_mtime_ns))


# ---- what is there


def test_lists(cluster: _Cluster, tmp_path: Path) -> None:
    (tmp_path / "a" / "empty").mkdir(parents=True)
    (tmp_path / "a" / "b").write_bytes(b"xyz")
    (tmp_path / "c").write_bytes(b"")
    root, directory = key_of(tmp_path), Entry(key_of(tmp_path / "a"), None)
    files = [Entry(key_of(path), pin_of(path)) for path in (tmp_path / "a" / "b", tmp_path / "c")]
    assert list(cluster.below(root)) == [directory, files[0], Entry(f"{root}/a/empty", None), files[1]]
    assert list(cluster.below(root, 2)) == [directory, files[0]]
    assert cluster.inside(root) == ([f"{root}/a"], [files[1]])
    for nothing in ("none", "c", "a/empty"):
        assert list(cluster.below(f"{root}/{nothing}")) == []
        assert cluster.inside(f"{root}/{nothing}") == ([], [])
    assert [cluster.look(f"{root}/{name}") for name in ("c", "a", "none")] == [files[1].pin, None, None]


def test_a_store_without_messages(cluster: _Cluster, tmp_path: Path) -> None:
    """Unlike a bucket, HDFS has empty directories."""
    files = RemoteFiles(Prices(concurrency=4), bucket=lambda path, storage: (cluster, path.strip("/")))
    (tmp_path / "new" / "commitlog").mkdir(parents=True)
    assert reading.read(tmp_path / "new", files=files) == []


# ---- what changes


def test_a_file_is_the_one_that_was_planned_with(cluster: _Cluster, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    pin = pin_of(path)
    assert bytes(cluster.get(key_of(path), 2, 5, pin)) == b"234"
    with path.open("ab") as out:  # it is open for writing: its time stays
        out.write(b"x")
    os.utime(path, ns=(int(pin.tag or 0), int(pin.tag or 0)))
    assert bytes(cluster.get(key_of(path), 2, 10, pin)) == b"23456789"
    os.utime(path, ns=(0, 0))
    with pytest.raises(StorageError, match=f"^{NAME}{path}: the file was replaced since the read was planned; load t"):
        cluster.get(key_of(path), 2, 5, pin)
    for name, there in (("shorter", Pin(5, pin.tag)), ("longer", Pin(5, "0"))):
        short = tmp_path / name
        short.write_bytes(b"01234")
        os.utime(short, ns=(int(there.tag or 0), int(there.tag or 0)))
        with pytest.raises(StorageError, match="the file was replaced since"):
            cluster.get(key_of(short), 2, 8, pin)
    path.unlink()
    with pytest.raises(
        StorageError, match=f"^{NAME}{path}: the file is gone since the read was planned; load the store"
    ):
        cluster.get(key_of(path), 2, 5, pin)


def test_a_file_that_is_being_written(cluster: _Cluster, tmp_path: Path) -> None:
    """hdfs-native reads complete blocks alone, and a list tells of more."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    pin = pin_of(path)
    reader = cluster._reader(key_of(path), pin)
    reader._content = b"01234"  # type: ignore[attr-defined]
    assert bytes(cluster.get(key_of(path), 2, 5, pin)) == b"234"
    with pytest.raises(StorageError, match=f"^{NAME}{path}: position 5: the file is being written, .* of its 10 bytes"):
        cluster.get(key_of(path), 2, 6, pin)


# ---- what goes wrong


def test_what_passes(machine: Machine, cluster: _Cluster, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    moved = RuntimeError('DataTransferError("All DataNodes failed: []")')
    for name in ("read", "read_range", "get_file_info"):
        cluster.get(key_of(path), 2, 5, pin_of(path))
        machine.asked.clear()
        machine.fault = failing(name, moved, ConnectionResetError("reset"))
        cluster._readers.clear()
        assert bytes(cluster.get(key_of(path), 2, 5, pin_of(path))) == b"234"
        assert machine.asked.count(name) == 3
    assert machine.asked.count("read") == 1
    machine.fault = failing("read_range", moved)
    machine.asked.clear()
    assert bytes(cluster.get(key_of(path), 2, 5, pin_of(path))) == b"234"
    assert machine.asked == ["read_range", "read", "read_range", "get_file_info"]  # it asks anew where the blocks are


@pytest.mark.parametrize(
    ("error", "text", "count"),
    [
        (
            RuntimeError(DENIED),
            r"access denied \(AccessControlException: Permission denied: user=eve, access=READ, ino",
            1,
        ),
        (RuntimeError('SASLError("no mechanism")'), "does not know this user .*; get a Kerberos ticket with kinit", 1),
        (
            RuntimeError(
                'FatalRPCError("org.apache.hadoop.security.AccessControlException", "SIMPLE authentication is '
                'not enabled.  Available:[TOKEN, KERBEROS]")'
            ),
            "does not know this user .*SIMPLE authentication is not enabled",
            1,
        ),
        (
            RuntimeError('InvalidArgument("No NameNode hosts found")'),
            "no NameNode is known for it .*HADOOP_CONF_DIR",
            1,
        ),
        (
            RuntimeError(
                'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Zero blocklocations for '
                f'/a. Name node is in safe mode.{STACK}")'
            ),
            "unexpected answer of the storage, tried 4 times .*SafeModeException: Zero blocklocations for /a. Name "
            "node is in safe",
            4,
        ),
        (
            ConnectionRefusedError("Connection refused"),
            r"unexpected answer of the storage, tried 4 times in \d+ s: Connection refused; try later$",
            4,
        ),
    ],
)
def test_what_does_not_pass(
    machine: Machine, cluster: _Cluster, tmp_path: Path, error: Exception, text: str, count: int
) -> None:
    (tmp_path / "a").write_bytes(b"x")

    def fail(name: str) -> None:
        raise error

    machine.fault = fail
    asks: list[Callable[[], object]] = [
        lambda: list(cluster.below(key_of(tmp_path))),
        lambda: cluster.inside(key_of(tmp_path)),
        lambda: cluster.look(key_of(tmp_path / "a")),
        lambda: cluster.get(key_of(tmp_path / "a"), 0, 1, pin_of(tmp_path / "a")),
    ]
    for ask in asks:
        machine.asked.clear()
        with pytest.raises(StorageError, match=text) as raised:
            ask()
        assert len(machine.asked) == count
        assert "\n" not in str(raised.value)
        assert "FSPermissionChecker" not in str(raised.value)


def test_below_a_file_there_is_nothing(machine: Machine, cluster: _Cluster) -> None:
    error = f'RPCError("org.apache.hadoop.security.AccessControlException", "/a (is not a directory){STACK}")'
    machine.fault = failing("list_status", RuntimeError(error), RuntimeError(error))
    assert list(cluster.below("a/b")) == []
    assert cluster.inside("a/b") == ([], [])


class Panic(BaseException):
    """As pyo3 raises them."""


def test_a_panic_is_an_error(machine: Machine, cluster: _Cluster, tmp_path: Path) -> None:
    machine.fault = failing("get_file_info", *[Panic("at the disco")] * 4)
    with pytest.raises(
        StorageError, match=r"unexpected answer of the storage, tried 4 times in \d+ s: at the disco; try later"
    ):
        cluster.look(key_of(tmp_path))


def test_who_never_answers(machine: Machine, tmp_path: Path) -> None:
    """hdfs-native waits for a NameNode for ever. The next try has a connection of its own."""
    (tmp_path / "a").write_bytes(b"x")
    for_ever = threading.Event()
    cluster = _Cluster(machine.client, NAME, 0.2)

    def hang(name: str) -> None:
        for_ever.wait()

    machine.fault = hang
    with pytest.raises(
        StorageError,
        match=r"unexpected answer of the storage, tried 4 times in \d+ s: no answer within 0\.2 s; try later",
    ):
        cluster.look(key_of(tmp_path / "a"))
    assert machine.clients > 1
    for_ever.set()
    cluster._limit = 30.0
    assert cluster.look(key_of(tmp_path / "a")) == pin_of(tmp_path / "a")


# ---- how it is named, and reached


def test_uris() -> None:
    assert location("hdfs://nn:8020/a/b/") == Location(HDFS, "nn:8020", "", "a/b")
    assert location("hdfs:///a") == Location(HDFS, "", "", "a")
    assert location("HDFS://ns") == Location(HDFS, "ns", "", "")
    with pytest.raises(OptionError, match=r"hdfs://\(hidden\)@nn/a: expected a host only, .*HADOOP_USER_NAME"):
        location("hdfs://joe:hunter2@nn/a")


def test_a_time_limit() -> None:
    for text in ("soon", "0s", "5"):
        with pytest.raises(OptionError, match="option 'timeout': expected a time such as 60s, found another text"):
            connect(Location(HDFS, "nn", "", ""), NAME, Storage({"timeout": text}))


def test_without_the_extra() -> None:
    """In a Python that has no hdfs-native, one line says what to install."""
    code = (
        "import sys; sys.modules['hdfs_native'] = None\n"
        "import rmqstore_spark\n"
        "try: rmqstore_spark.Store('hdfs://nn:8020/store')\n"
        "except rmqstore_spark.OptionError as why: print(why)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    said = "reading it needs hdfs-native, which is not installed: pip install hdfs-native"
    assert ran.stdout == f"hdfs://nn:8020: {said}\n"
