"""Files in HDFS, as the objects of a bucket: listed, and read by position. Each error becomes one line of text.

The client is hdfs-native (the extra `hdfs`), in Rust, without Java. The client reads core-site.xml and hdfs-site.xml in
HADOOP_CONF_DIR, and takes the user from HADOOP_USER_NAME, a Kerberos ticket, or the tokens that YARN gives. Each
process makes one client for each cluster.

HDFS has no tags, but a file's content below its length never changes without its modification time, which is set when
the file is closed. So bytes that were read count if the modification time is afterwards still that of the plan. A file
that is open for writing keeps its modification time while it grows.
"""

import functools
import itertools
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, NoReturn, TypeVar

from rmqstore_spark.errors import OptionError, StorageError
from rmqstore_spark.store.io.files import Pin
from rmqstore_spark.store.io.remote.objects import Entry, Objects
from rmqstore_spark.store.io.remote.tries import ChangedError, FailedError, tried
from rmqstore_spark.store.io.storage import HDFS, Location, Storage, seconds

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileStatus

_REQUEST_TIMEOUT = 30.0  # seconds; enough for 8 MiB at 280 kB/s
_CONFIGURATION = {
    "dfs.client.socket-timeout": "15000",  # milliseconds without a byte from a DataNode
    # Rounds through a cluster's NameNodes. By default the client would go on for minutes.
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "500",
}
_READERS = 256  # readers that are kept: each knows where the blocks of a file are
_LISTED = 1000  # entries that have to arrive within the time of a request

_CLASS = re.compile(r"RPCError\(\"(?:[\w$]+\.)*([\w$]+)\", \"(.*)", re.DOTALL)
_DENIED = {"AccessControlException", "AuthorizationException"}
_BELOW_A_FILE = "(is not a directory)"  # a NameNode reports such a path as a denied access
_UNKNOWN_USER = re.compile("SASL|GSSAPI|authentication is not enabled|InvalidToken|[Kk]erberos")
_NO_NAMENODE = re.compile("No NameNode hosts found|No fs.defaultFS setting|URL must contain a host")
_LASTING = re.compile("InvalidArgument|InvalidPath|UrlParseError|XmlParseError|Unsupported")

_Answer = TypeVar("_Answer")


def connect(where: Location, name: str, storage: Storage) -> Objects:
    """The cluster of a location.

    Args:
        name: the cluster's URI, for messages.

    Raises:
        OptionError: hdfs-native is not installed, or refuses an option.
    """
    limit = seconds("timeout", storage.of(HDFS).get("timeout"), _REQUEST_TIMEOUT)
    return _connected(os.getpid(), where.bucket, name, limit)


@functools.lru_cache(64)
def _connected(process: int, cluster: str, name: str, limit: float) -> Objects:
    """connect(), cached for each process, as a client does not survive a fork."""
    try:
        from hdfs_native import Client
    except ImportError:
        raise OptionError(
            f"{name}: reading it needs hdfs-native, which is not installed: pip install hdfs-native"
        ) from None
    return _Cluster(lambda: Client(f"hdfs://{cluster}" if cluster else None, _CONFIGURATION), name, limit)


class _Cluster:
    """Objects by way of hdfs-native.

    Args:
        limit: seconds that a request may take.
    """

    def __init__(self, make: "Callable[[], Client]", name: str, limit: float) -> None:
        self._make = make
        self._name = name
        self._limit = limit
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._readers: OrderedDict[tuple[str, Pin], FileReader] = OrderedDict()

    def below(self, key: str, most: int | None = None) -> Iterator[Entry]:
        def listed() -> list[Entry]:
            found = itertools.islice(self._connection().list_status(f"/{key}", recursive=True), most)
            entries: list[Entry] = []
            while some := self._within(lambda: [*itertools.islice(found, _LISTED)]):
                entries += map(_entry, some)
            return entries

        try:
            # A file lists itself.
            yield from (entry for entry in self._tried(key, listed) if entry.key != key)
        except FileNotFoundError:
            return

    def inside(self, key: str) -> tuple[list[str], list[Entry]]:
        def listed() -> list[Entry]:
            return [*map(_entry, self._within(lambda: [*self._connection().list_status(f"/{key}")]))]

        try:
            found = [entry for entry in self._tried(key, listed) if entry.key != key]
        except FileNotFoundError:
            return [], []
        return [entry.key for entry in found if entry.pin is None], [entry for entry in found if entry.pin is not None]

    def look(self, key: str) -> Pin | None:
        try:
            return self._tried(key, lambda: self._pin(key))
        except FileNotFoundError:
            return None

    def get(self, key: str, start: int, stop: int, pin: Pin) -> memoryview:
        def once() -> memoryview:
            reader = self._reader(key, pin)
            length = len(reader)
            try:
                # A read beyond the end breaks hdfs-native instead of raising an error.
                data = self._within(lambda: reader.read_range(start, max(min(stop, length) - start, 0)))
            except Exception:
                self._forget(key, pin)  # blocks move from DataNode to DataNode
                raise
            there = self._pin(key)
            if there is None or there.tag != pin.tag or there.size < pin.size:
                raise ChangedError
            if length < stop:
                self._forget(key, pin)
                raise StorageError(
                    f"{self._name}/{key}: position {length}: the file is being written, and the rest of its "
                    f"{there.size} bytes cannot be read yet; read it when it is closed, or read a complete copy"
                )
            if len(data) != stop - start:
                raise ConnectionError(f"expected {stop - start} bytes, got {len(data)}")
            return memoryview(data)

        try:
            return self._tried(key, once)
        except FileNotFoundError:
            raise StorageError(
                f"{self._name}/{key}: the file is gone since the read was planned; load the store again"
            ) from None

    def _pin(self, key: str) -> Pin | None:
        return _entry(self._within(lambda: self._connection().get_file_info(f"/{key}"))).pin

    def _connection(self) -> "Client":
        with self._lock:
            if self._client is None:
                self._client = self._make()
            return self._client

    def _reader(self, key: str, pin: Pin) -> "FileReader":
        with self._lock:
            reader = self._readers.get((key, pin))
        if reader is None:
            reader = self._within(lambda: self._connection().read(f"/{key}"))
            with self._lock:
                self._readers[key, pin] = reader
                while len(self._readers) > _READERS:
                    self._readers.popitem(last=False)
        return reader

    def _forget(self, key: str, pin: Pin) -> None:
        with self._lock:
            self._readers.pop((key, pin), None)

    def _within(self, work: Callable[[], _Answer]) -> _Answer:
        """The answer of some work, within the time of a request. hdfs-native waits for a NameNode forever, and cannot
        be interrupted.

        Raises:
            TimeoutError: the work takes longer.
        """
        answer: Future[_Answer] = Future()
        threading.Thread(target=_answered, args=(work, answer), daemon=True).start()
        try:
            return answer.result(self._limit)
        except TimeoutError:
            with self._lock:
                self._client = None  # other threads would wait for the same connection
                self._readers.clear()
            raise TimeoutError(f"no answer within {self._limit:g} s") from None

    def _tried(self, key: str, work: Callable[[], _Answer]) -> _Answer:
        """The answer of some work, at the first try or a later one.

        Raises:
            FileNotFoundError: there is no such file.
            StorageError: any other error.
        """
        try:
            return tried(work, (RuntimeError, OSError, ChangedError), _may_pass)
        except FailedError as failed:
            if isinstance(failed.why, FileNotFoundError) or _BELOW_A_FILE in str(failed.why):
                raise FileNotFoundError(key) from None
            self._fail(key, failed.why, failed.again)

    def _fail(self, key: str, why: Exception, again: str) -> NoReturn:
        where = f"{self._name}/{key}"
        if isinstance(why, ChangedError):
            raise StorageError(
                f"{where}: the file was replaced since the read was planned; load the store again, and do not "
                "overwrite a copy that is being read"
            ) from None
        kind, said = _said(why)
        if _UNKNOWN_USER.search(str(why)):
            raise StorageError(
                f"{where}: the cluster does not know this user ({said}); get a Kerberos ticket with kinit, and set "
                "HADOOP_CONF_DIR to the directory of the cluster's core-site.xml"
            ) from None
        if kind in _DENIED:
            raise StorageError(
                f"{where}: access denied ({said}); read as a user with access (named by HADOOP_USER_NAME if there is "
                "no Kerberos)"
            ) from None
        if _NO_NAMENODE.search(str(why)):
            raise StorageError(
                f"{where}: no NameNode is known for it ({said}); give hdfs://host:port/path, or set HADOOP_CONF_DIR to "
                "the directory of the cluster's core-site.xml and hdfs-site.xml"
            ) from None
        raise StorageError(f"{where}: unexpected answer of the storage{again}: {said}; try later") from None


def _answered(work: Callable[[], _Answer], answer: "Future[_Answer]") -> None:
    try:
        answer.set_result(work())
    except Exception as why:
        answer.set_exception(why)
    except BaseException as why:  # a Rust panic is no Exception
        answer.set_exception(RuntimeError(str(why)))


def _entry(status: "FileStatus") -> Entry:
    pin = None if status.isdir else Pin(status.length, str(status.modification_time))
    return Entry(status.path.strip("/"), pin)


def _said(why: Exception) -> tuple[str, str]:
    """The Java class of an error, or '', and the error's text before the stack trace."""
    found = _CLASS.search(str(why))
    kind, text = (found[1], found[2]) if found else ("", str(why))
    text = re.split(r"\\n|\n|\"\)", text)[0].replace('\\"', "'")
    return kind, (f"{kind}: {text}" if kind else text)[:300]


def _may_pass(why: Exception) -> bool:
    """Whether the next try may succeed."""
    lasts = isinstance(why, (FileNotFoundError, ChangedError, NotImplementedError)) or _said(why)[0] in _DENIED
    return not lasts and not any(pattern.search(str(why)) for pattern in (_UNKNOWN_USER, _NO_NAMENODE, _LASTING))
