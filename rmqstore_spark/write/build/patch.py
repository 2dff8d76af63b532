"""What is to be changed in an index file, kept until the messages count. The whole file may be 420 MB.

A row of parts, each an i64 position and an i32 size and then the bytes; in the machine's order. To apply it once more
changes nothing, so it can be killed anywhere. The first block has the header, and comes last: up to then a reader knows
only the items that were there before.
"""

import struct
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.io.files import ReadFile
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.new_file import BLOCK, NewFile

PATCHES = "patches"  # in what a change makes anew: the patches, by the names of the files
_PART = struct.Struct("=qi")
_MOST_BYTES = 512 * 1024 * 1024  # a small append of messages that are all keys has 350 million


class PatchWriter:
    """Writes a patch; it is used as if it were the file.

    Args:
        file: the patch, which is made anew.
    """

    def __init__(self, file: NewFile) -> None:
        self._file = file
        self._size = 0

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def write(self, data: Any, offset: int) -> None:
        """These bytes are to stand at a position."""
        part = _PART.pack(offset, len(data)) + bytes(data)
        self._file.write(part, self._size)
        self._size += len(part)

    def sync(self) -> None:
        """Wait until it is on disk."""
        self._file.sync()


def apply(tree: Tree, patch: str, path: str, spare: str) -> None:
    """Change a file as a patch says.

    Args:
        spare: where a copy can be made, if the file may not be changed: one that got another name meanwhile.

    Raises:
        RmqStoreError: the patch is none, or does not fit the file.
    """
    size = tree.status(path).st_size
    changes = parts(tree, patch, path)
    if not tree.may_be_changed(path):
        tree.remove(spare)
        with tree.new_file(spare, size, path) as copy:
            copy.copy_from(tree, path, size)
            copy.sync()
        tree.rename(spare, path)
    with tree.open_to_change(path) as file:
        for position, data in sorted(changes, reverse=True):
            if position == 0:
                file.write(data[BLOCK:], BLOCK)
                file.sync()
                data = data[:BLOCK]
            file.write(data, position)
        file.sync()


def parts(tree: Tree, patch: str, path: str) -> list[tuple[int, bytes]]:
    """What a patch changes in a file: positions, and what is to stand there.

    Raises:
        RmqStoreError: it is none, or does not fit the file.
    """
    with ReadFile(patch, tree.files) as file:
        if file.size > _MOST_BYTES:
            raise RmqStoreError(f"{patch}: expected at most {_MOST_BYTES} bytes, found {file.size}")
        data = file.read(0, file.size)
    found: list[tuple[int, bytes]] = []
    at, most = 0, tree.status(path).st_size
    while at + _PART.size <= len(data):
        position, size = _PART.unpack_from(data, at)
        at += _PART.size
        if not 0 <= position <= position + size <= most or at + size > len(data):
            break
        found.append((position, data[at : at + size]))
        at += size
    if at != len(data):
        raise RmqStoreError(f"{patch}: expected what to change in an index file, found something else")
    return found
