"""Compiled kernels: buffers in, arrays out. No policy, no Spark."""

try:
    from native_io._common import FORMAT, Status, crc32, crc32_between, java_hash, java_hashes
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
    archive = getattr(__spec__.loader, "archive", None)
    if archive is not None:  # of zipimport
        raise ImportError(
            f"{archive}: Python cannot load a compiled module from an archive on its path (--py-files); "
            "leave this one away, and install the package on driver and executors, or send an environment that has it "
            "with --archives"
        ) from missing
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
    "crc32_between",
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
