"""`lock`: who holds the first byte of this file may change the store (org.apache.rocketmq.store.DefaultMessageStore).

A broker takes it when it starts, but only after it has loaded and recovered the store.
"""

import os

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.write.fs.disk import Tree

_CONTENT = b"lock"


class StoreLock:
    """The lock, held from making it to leaving it. A context manager.

    It belongs to the opened file (F_OFD_SETLK): two writers in one process exclude each other as well. To a broker's
    lock, which belongs to its process, it is one like any other.

    Args:
        tree: the store directory.

    Raises:
        RmqStoreError: a broker or another writer has it.
    """

    def __init__(self, tree: Tree) -> None:
        path = os.path.join(tree.path, "lock")
        if tree.find(path) is None:
            tree.make_lock(path, _CONTENT)
        fd = tree.lock(path)
        if fd is None:
            raise RmqStoreError(
                f"{path}: locked: expected a store that nobody uses, found a broker running on it, or another write; "
                "stop the broker (mqshutdown broker), or wait for the other write"
            )
        self._fd = fd

    def __enter__(self) -> "StoreLock":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def check_lock(tree: Tree) -> None:
    """See that nobody holds the lock now; the file is not made.

    Raises:
        RmqStoreError: somebody does.
    """
    if tree.find(os.path.join(tree.path, "lock")) is not None:
        with StoreLock(tree):
            pass
