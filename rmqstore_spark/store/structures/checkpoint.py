"""`checkpoint`: how far the broker knew its files to be written (org.apache.rocketmq.store.StoreCheckpoint).

 0  i64 physicMsgTimestamp    8  i64 logicsMsgTimestamp   16  i64 indexMsgTimestamp   (ms; any may be 0)
24  i64 masterFlushedOffset  32  i64 confirmPhyOffset     (since 5.0.0 and 5.1.1); zeros up to 4096 bytes
Brokers since 5.5.0 have one more offset after these, which may be 0: this package leaves it 0. Brokers map all of the
file and change only their own fields, so a sign after these fields stays (written.py).
"""

import struct

from rmqstore_spark.store.io.files import Files, ignore_unreadable

_TIMESTAMPS = struct.Struct(">qqq")
_OFFSETS = struct.Struct(">qq")
_FILE_SIZE = 4096
_SIGN, _SIGN_AT = b"rmqstore-spark", 2048
_NAMES = (
    *("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"),
    *("masterFlushedOffset", "confirmPhyOffset", "logicsPhysicalOffset"),
)


def encode(message: int, index: int, end: int, signed: bool = False) -> bytes:
    """The file for a store that is whole on disk.

    Args:
        message: store time (ms) of the last message.
        index: store time (ms) of the last entry in an index file. A broker that crashes later deletes newer index
            files.
        end: physical offset where the last message ends.
        signed: whether messages in the log were written by us.
    """
    own = _TIMESTAMPS.pack(message, message, index) + _OFFSETS.pack(0, end)
    return (own.ljust(_SIGN_AT, b"\0") + (_SIGN if signed else b"")).ljust(_FILE_SIZE, b"\0")


def is_signed(path: str, files: Files) -> bool:
    """Were messages written by us, as far as the file says? A hint."""
    with ignore_unreadable(), files.file(path) as file:
        return file.read(_SIGN_AT, len(_SIGN)) == _SIGN
    return False


def fields(path: str, files: Files) -> dict[str, int]:
    """The file's fields by RocketMQ's names, in the file's order; empty where the file cannot be read, or is too short.
    A hint."""
    data = b""
    with ignore_unreadable(), files.file(path) as file:
        data = file.read(0, 8 * len(_NAMES))
    values = struct.unpack_from(f">{len(data) // 8}q", data)
    return dict(zip(_NAMES, values, strict=False)) if len(data) >= _TIMESTAMPS.size else {}


def index_timestamp(path: str, files: Files) -> int:
    """Store time (ms) up to which the index files are complete; 0 if unknown."""
    return fields(path, files).get("indexMsgTimestamp", 0)
