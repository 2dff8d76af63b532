"""The changes to an index file, kept until the messages count. The whole file may have 420 MB.

A patch is a row of parts; each is an i64 position and an i32 size, in the machine's byte order, and then the bytes.
Applying a patch twice changes nothing, so a writer can be killed anywhere. The file's first block has the header and is
written last: until then a reader sees only the items that were there before.
"""

import struct
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.io.files import ReadFile
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.new_file import BLOCK, NewFile

PATCHES = "patches"  # the directory of patches among the new files of a change; a patch has the name of its file
_PART = struct.Struct("=qi")
_MOST_BYTES = 512 * 1024 * 1024  # a small append of messages that are all keys needs 350 million


class PatchWriter:
    """Writes a patch; has the interface of the file.

    Args:
        file: the patch, a new file.
    """

    def __init__(self, file: NewFile) -> None:
        self._file = file
        self._size = 0

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def write(self, data: Any, offset: int) -> None:
        """Put down that these bytes are to stand at a position."""
        part = _PART.pack(offset, len(data)) + bytes(data)
        self._file.write(part, self._size)
        self._size += len(part)

    def sync(self) -> None:
        """Wait until the patch is on disk."""
        self._file.sync()


def apply(tree: Tree, patch: str, path: str, spare: str) -> None:
    """Change a file as a patch says.

    Args:
        spare: where a copy can be made if the file may not be changed because it got another name meanwhile.

    Raises:
        RmqStoreError: the file is no patch, or the patch does not fit the index file.
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
    """The changes of a patch to a file: positions, and the bytes to stand there.

    Raises:
        RmqStoreError: the file is no patch, or the patch does not fit the index file.
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
