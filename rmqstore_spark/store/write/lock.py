"""`lock`: who holds the first byte of this file may change the store (org.apache.rocketmq.store.DefaultMessageStore).

A broker takes it when it starts, but only after it has loaded and recovered the store.
"""

import errno
import fcntl
import os
import struct

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.write.disk import cannot_write

_FLOCK = struct.Struct("hhqqi")  # l_type, l_whence, l_start, l_len, l_pid
_CONTENT = b"lock"


class StoreLock:
    """The lock, held from making it to leaving it. A context manager.

    It belongs to the opened file (F_OFD_SETLK): two writers in one process exclude each other as well. To a broker's
    lock, which belongs to its process, it is one like any other.

    Args:
        root: the store directory, which exists.

    Raises:
        RmqStoreError: a broker or another writer has it.
    """

    def __init__(self, root: str) -> None:
        path = os.path.join(root, "lock")
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as why:
            raise cannot_write(path, why) from None
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            if os.fstat(self._fd).st_size == 0:
                os.pwrite(self._fd, _CONTENT, 0)
        except OSError as why:
            os.close(self._fd)
            if why.errno not in (errno.EAGAIN, errno.EACCES):
                raise cannot_write(path, why) from None
            raise RmqStoreError(
                f"{path}: locked: expected a store that nobody uses, found a broker running on it, or another write; "
                "stop the broker (mqshutdown broker), or wait for the other write"
            ) from None

    def __enter__(self) -> "StoreLock":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def check_lock(root: str) -> None:
    """See that nobody holds the lock now; the file is not made.

    Raises:
        RmqStoreError: somebody does.
    """
    if os.path.exists(os.path.join(root, "lock")):
        with StoreLock(root):
            pass
