"""`epochFileCheckpoint`: the terms of masters of a broker in controller mode, and where in the log each has begun.

Lines of text: the number of epochs, the CRC-32 of the lines after it without its highest bit (0: not checked), then
`epoch-startOffset` for each. A broker takes the backup where the file is missing, empty or not right.
Source: org.apache.rocketmq.store.ha.autoswitch.EpochFileCache, common.utils.CheckpointFile.
"""

import itertools
import os
import re
import zlib
from typing import NamedTuple

from rmqstore_spark.errors import RmqStoreError, StorageError
from rmqstore_spark.store.io.files import Files

NAME = "epochFileCheckpoint"
_BACKUP = ".bak"
_MOST_BYTES = 16 * 1024 * 1024
_EPOCH = re.compile(rb"([0-9]{1,9})-([0-9]{1,18})")


class Epoch(NamedTuple):
    """A term of a master: its number, and the physical offset that its messages begin at."""

    number: int
    start: int


class Epochs(NamedTuple):
    """The epochs of a store, and the file that they were read from; without a file there are none.

    Attributes:
        wrong: the files that were passed over, each with what is wrong with it.
    """

    path: str | None
    epochs: list[Epoch]
    wrong: list[tuple[str, str]]

    @property
    def may_lack_the_last(self) -> bool:
        """Were they not read from the file itself? A backup is from before the last change."""
        return bool(self.wrong) or (self.path is not None and self.path.endswith(_BACKUP))


def epochs_of(root: str, files: Files) -> Epochs:
    """The epochs of a store directory. A hint."""
    wrong: list[tuple[str, str]] = []
    for path in (os.path.join(root, NAME), os.path.join(root, NAME + _BACKUP)):
        found = _read(path, files)
        if isinstance(found, str):
            wrong.append((path, found))
        elif found:
            return Epochs(path, found, wrong)
    return Epochs(None, [], wrong)


def _read(path: str, files: Files) -> list[Epoch] | str:
    """The epochs in a file, none where it is missing; or what is wrong with it."""
    try:
        with files.file(path) as file:
            return f"{file.size} bytes" if file.size > _MOST_BYTES else _parsed(file.read(0, file.size))
    except StorageError:
        raise
    except RmqStoreError as why:
        return str(why).removeprefix(f"{path}: ") if files.exists(path) else []


def _parsed(data: bytes) -> list[Epoch] | str:
    """The epochs in a file, or what is wrong with it."""
    if not data:
        return []
    head = data.split(b"\n", 2)
    if len(head) < 3 or not (head[0].isdigit() and head[1].isdigit()) or len(head[0]) > 9 or len(head[1]) > 10:
        return "no number of epochs and CRC at its beginning"
    lines = head[2].splitlines()
    matches = [_EPOCH.fullmatch(line) for line in lines]
    found = [Epoch(int(match[1]), int(match[2])) for match in matches if match is not None]
    if len(found) < len(lines) or len(found) != int(head[0]):
        return f"{len(found)} epochs, but {int(head[0])} by its first line"
    crc = zlib.crc32(head[2]) & 0x7FFFFFFF
    if int(head[1]) not in (0, crc):
        return f"CRC {int(head[1])}, computed {crc}"
    if any(later.number <= one.number or later.start <= one.start for one, later in itertools.pairwise(found)):
        return "epochs that do not ascend"
    return found
