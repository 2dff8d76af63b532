"""The records of a write-ahead log or a MANIFEST: both are framed in the same way.

Source: RocksDB's db/log_format.h, db/log_reader.cc.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import take_records
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.rocksdb.faults import damaged, not_read

_MOST_BYTES = 1 << 30  # bytes of one file; a broker's write buffers together are 128 MiB, its MANIFEST is at most 1 GiB


@dataclass(frozen=True)
class LogFile:
    """The contents of a log.

    Attributes:
        path: the file.
        size: bytes of the file when it was read.
        data: all records, one after the other.
        ends: where in data each record ends.
        torn: where a record begins that was not written to its end; None: no such record.
    """

    path: str
    size: int
    data: memoryview
    ends: npt.NDArray[np.int64]
    torn: int | None


def read_log(path: str, files: Files, number: int) -> LogFile:
    """All records of a log that are written to their end.

    Args:
        path: the file.
        files: how to reach files, and where requests and bytes are counted.
        number: the log's number, as pieces of a recycled log name it.

    Raises:
        RmqStoreError: the log cannot be read, or is damaged before its end.
    """
    with files.file(path) as file:
        size = file.size
        if size > _MOST_BYTES:
            raise not_read(path, f"a log of {size} bytes, more than {_MOST_BYTES}")
        data = bytearray(size)
        size = file.read_into(memoryview(data), 0)
    ends, status, position = take_records(memoryview(data)[:size], number=number & 0xFFFFFFFF)
    if status == "damaged":
        raise damaged(path, position, "a record with its CRC-32C", "another one, and more data after it")
    if status == "unknown":
        raise not_read(path, f"a record of another kind at position {position} (compression of logs?)")
    used = memoryview(data)[: int(ends[-1]) if len(ends) else 0]
    return LogFile(path, size, used, ends, position if status == "torn" else None)
