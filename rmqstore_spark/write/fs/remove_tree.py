"""Deletes a directory with its contents, file by file, so that a kill can come at any of them."""

import errno
import os

from rmqstore_spark.cores import cores
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.write.fs import calls
from rmqstore_spark.write.fs.background import for_each
from rmqstore_spark.write.fs.calls import cannot_write
from rmqstore_spark.write.fs.walk import DIRECTORY, Walk

_MOST_PASSES = 100_000  # through a directory that is deleted, one for so many levels of it
_MOST_LEVELS = 8  # levels that are open at a time while they are deleted
_MOST_REMOVERS = 8
_FEW_TO_REMOVE = 64  # names: on a file system that discards freed blocks, each deletion waits for the disk


def remove_tree(walk: Walk, path: str) -> None:
    """Delete a directory that is there. Depth does not matter: directories within are moved up to the top before they
    are emptied.

    Raises:
        RmqStoreError: something in it is a mount point, or cannot be deleted.
    """
    above, own_name = walk.parent_for_write(path)
    top = walk.directory_for_write(path)
    for _ in range(_MOST_PASSES):
        _empty(walk, top, path, top, _MOST_LEVELS, True)
        if calls.do(calls.remove_if_empty_at, path, above, own_name):
            walk.forget(path)
            return
    raise RmqStoreError(f"{path}: cannot be deleted: another process keeps creating files in it")


def _empty(walk: Walk, fd: int, path: str, top: int, levels: int, may_split: bool) -> None:
    """Delete the contents of a directory; directories more levels down are moved up to `top`, and deleted later.

    Args:
        may_split: whether several threads may delete, where there are many names.
    """
    with os.scandir(fd) as entries:
        found = list(entries)
    splits = may_split and len(found) > _FEW_TO_REMOVE

    def remove(entry: os.DirEntry[str]) -> None:
        inner_path = os.path.join(path, entry.name)
        if not entry.is_dir(follow_symlinks=False):
            calls.do(calls.unlink_at, inner_path, fd, entry.name)
        elif levels == 0:
            calls.do(calls.rename_at, inner_path, fd, entry.name, top, f".{entry.inode():x}")
        else:
            _remove_directory(walk, fd, entry.name, inner_path, top, levels - 1, may_split and not splits)

    if splits:
        # Deleting is work, not waiting. A thread has a descriptor open for each level.
        for_each(found, remove, few=_FEW_TO_REMOVE, workers=min(cores() + 1, _MOST_REMOVERS))
    else:
        for entry in found:
            remove(entry)


def _remove_directory(walk: Walk, above: int, name: str, path: str, top: int, levels: int, may_split: bool) -> None:
    try:
        fd = os.open(name, DIRECTORY, dir_fd=above)
    except FileNotFoundError:
        return
    except OSError as why:
        if why.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise cannot_write(path, why) from None
        calls.do(calls.unlink_at, path, above, name)  # the directory was swapped for something else in between
        return
    try:
        walk.refuse_mount_point(fd, path)
        _empty(walk, fd, path, top, levels, may_split)
    finally:
        os.close(fd)
    calls.do(calls.remove_directory_at, path, above, name)
