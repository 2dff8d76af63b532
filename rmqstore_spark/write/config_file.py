"""Files of config/ anew, in a store that stands still: each of them whole, or as it was."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.kinds import refuse_to_write
from rmqstore_spark.store.structures.layout import find_store
from rmqstore_spark.write.build.target import check_kinds, check_writable
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.lock import StoreLock
from rmqstore_spark.write.fs.workshop import workshop
from rmqstore_spark.write.publish.change import Change
from rmqstore_spark.write.publish.sweep import sweep


@dataclass(frozen=True)
class NewConfig:
    """Files that are to be put into config/.

    Attributes:
        files: their contents, by name.
        broken: the names of those in whose place something is that no broker can read: it is kept beside them.
    """

    files: Mapping[str, bytes]
    broken: Collection[str] = ()


def change_config(root: str, make: Callable[[Snapshot], NewConfig], is_tried: bool) -> None:
    """Put files into config/ of a store. A store that a crashed broker left (`abort`) is taken as it is.

    Args:
        root: the store directory, absolute.
        make: gives the files, for the store as it is while nobody else can change it.
        is_tried: whether the store stays as it is: the files are made, and thrown away.

    Raises:
        RmqStoreError: a broker runs on the store, or it is of a kind that is not written; or of `make`. The store is
            unchanged, unless the text says otherwise.
    """
    place = find_store(root, None, Files()).root
    if is_tried:
        refuse_to_write(place, Files())
        make(Snapshot.find(place, Files()))
        return
    with disk.Tree(place) as tree:
        check_kinds(tree, with_queues=False, with_topics=False)
        with StoreLock(tree):
            try:
                _change(tree, make)
            finally:
                tree.remove_empty(workshop(tree.path))


def _change(tree: disk.Tree, make: Callable[[Snapshot], NewConfig]) -> None:
    tree.make_directory(workshop(tree.path))
    change = Change(tree)
    change.recover()
    sweep(tree)
    check_writable(tree, may_have_abort=True)
    made = make(Snapshot.find(tree.path, tree.files))
    if not made.files:
        return
    change.begin()
    try:
        directory = os.path.join(change.new, "config")
        tree.make_directory(directory)
        for name, data in made.files.items():
            tree.write_file(os.path.join(directory, name), data, os.path.join(tree.path, "config", name))
        change.publish_config(made.files, made.broken)
    except Exception:
        change.give_up()
        raise
