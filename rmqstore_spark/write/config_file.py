"""One file of config/ anew, in a store that stands still: all of it, or nothing."""

import os
from collections.abc import Callable

from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.write.build.target import check_kinds, check_writable
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.lock import StoreLock
from rmqstore_spark.write.fs.workshop import workshop
from rmqstore_spark.write.publish.change import Change
from rmqstore_spark.write.publish.sweep import sweep


def change_config(root: str, make: Callable[[Snapshot], tuple[str, bytes]]) -> None:
    """Put a file into config/ of a store. A store that a crashed broker left (`abort`) is taken as it is.

    Args:
        root: the store directory, absolute.
        make: gives the file's name and contents, for the store as it is while nobody else can change it.

    Raises:
        RmqStoreError: a broker runs on the store, or it is of a kind that is not written; or of `make`. The store is
            unchanged, unless the text says otherwise.
    """
    with disk.Tree(root) as tree:
        check_kinds(tree, with_queues=False)
        with StoreLock(tree):
            try:
                _change(tree, make)
            finally:
                tree.remove_empty(workshop(tree.path))


def _change(tree: disk.Tree, make: Callable[[Snapshot], tuple[str, bytes]]) -> None:
    tree.make_directory(workshop(tree.path))
    change = Change(tree)
    change.recover()
    sweep(tree)
    check_writable(tree, may_have_abort=True)
    name, data = make(Snapshot.find(tree.path, tree.files))
    change.begin()
    try:
        directory = os.path.join(change.new, "config")
        tree.make_directory(directory)
        tree.write_file(os.path.join(directory, name), data, os.path.join(tree.path, "config", name))
        change.publish_config(name)
    except Exception:
        change.give_up()
        raise
