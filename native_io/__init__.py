"""Compiled kernels: buffers in, arrays out. No policy, no Spark."""

try:
    from native_io._common import FORMAT, Status, crc32, java_hash, java_hashes
    from native_io._read import (
        COLUMNS,
        SLIDE,
        TILING_ROWS,
        Decoder,
        Filter,
        QueueWalk,
        Tiling,
        array_address,
        find_unit,
        fingerprint,
        follow_chains,
        gather,
        read_short_queues,
        resident,
        scan,
    )
    from native_io._write import (
        ENCODE_COLUMNS,
        Dispatched,
        Dispatcher,
        EncodeError,
        Encoder,
        exchange,
        mount_of,
        put_index,
    )
except ModuleNotFoundError as missing:
    # Spark workers put the current directory first on sys.path: in a checkout that was never built they end here.
    raise ImportError(
        "native_io has no compiled kernel here; build it in this directory (make build, or pip install .) "
        "or run from another one"
    ) from missing

Taken = tuple[int, int, Status, int, int]  # units, position, why it ended, bytes expected and found: of each walk

__all__ = [
    "COLUMNS",
    "ENCODE_COLUMNS",
    "FORMAT",
    "SLIDE",
    "TILING_ROWS",
    "Decoder",
    "Dispatched",
    "Dispatcher",
    "EncodeError",
    "Encoder",
    "Filter",
    "QueueWalk",
    "Status",
    "Taken",
    "Tiling",
    "array_address",
    "crc32",
    "exchange",
    "find_unit",
    "fingerprint",
    "follow_chains",
    "gather",
    "java_hash",
    "java_hashes",
    "mount_of",
    "put_index",
    "read_short_queues",
    "resident",
    "scan",
]
