"""`lock`: the holder of this file's first byte may change the store (org.apache.rocketmq.store.DefaultMessageStore).

A broker takes the lock when it starts, but only after it has loaded and recovered the store.
"""

import os

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.write.fs.disk import Tree

_CONTENT = b"lock"


class StoreLock:
    """The lock, held from entering to leaving the context. A context manager.

    The lock belongs to the opened file (F_OFD_SETLK), so two writers in one process exclude each other as well. A
    broker's lock belongs to its process; the two kinds exclude each other, too.

    Args:
        tree: the store directory.

    Raises:
        RmqStoreError: a broker or another writer holds the lock.
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
    """See that nobody holds the lock now; the lock file is not made.

    Raises:
        RmqStoreError: somebody holds the lock.
    """
    if tree.find(os.path.join(tree.path, "lock")) is not None:
        with StoreLock(tree):
            pass
