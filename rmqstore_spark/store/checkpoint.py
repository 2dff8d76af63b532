"""`checkpoint`: how far the broker knew its files to be written (org.apache.rocketmq.store.StoreCheckpoint).

 0  i64 physicMsgTimestamp    8  i64 logicsMsgTimestamp   16  i64 indexMsgTimestamp   (ms; any may be 0)
24  i64 masterFlushedOffset  32  i64 confirmPhyOffset     (since 5.0.0 and 5.1.1); zeros up to 4096 bytes
Brokers since 5.5.0 have one more offset after these, which may be 0: it is left so.
"""

import struct
from dataclasses import dataclass

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.files import Files, ReadFile

_TIMESTAMPS = struct.Struct(">qqq")
_OFFSETS = struct.Struct(">qq")
_FILE_SIZE = 4096


def encode(message: int, index: int, end: int) -> bytes:
    """The file for a store that is whole on disk.

    Args:
        message: store time (ms) of the last message.
        index: store time of the last entry in an index file. A broker that crashes later deletes newer index files.
        end: physical offset where the last message ends.
    """
    return (_TIMESTAMPS.pack(message, message, index) + _OFFSETS.pack(0, end)).ljust(_FILE_SIZE, b"\0")


@dataclass(frozen=True)
class Checkpoint:
    """What the file says: store times (ms) and physical offsets, of which any may be 0."""

    physic: int
    logics: int
    index: int
    master_flushed: int
    confirmed: int


def read_checkpoint(path: str, files: Files) -> Checkpoint | None:
    """The file's fields; None where it is missing, unreadable or too short. A hint."""
    try:
        with ReadFile(path, files) as file:
            data = file.read(0, _TIMESTAMPS.size + _OFFSETS.size)
    except RmqStoreError:
        return None
    if len(data) < _TIMESTAMPS.size:
        return None
    data = data.ljust(_TIMESTAMPS.size + _OFFSETS.size, b"\0")
    return Checkpoint(*_TIMESTAMPS.unpack_from(data), *_OFFSETS.unpack_from(data, _TIMESTAMPS.size))


def index_timestamp(path: str, files: Files) -> int:
    """Store time (ms) up to which the index files are complete; 0 when that is not known."""
    found = read_checkpoint(path, files)
    return 0 if found is None else found.index


def logics_timestamp(path: str, files: Files) -> int:
    """Store time (ms) of the last message put into a ConsumeQueue, as of the last flush; 0 when that is not known."""
    found = read_checkpoint(path, files)
    return 0 if found is None else found.logics
