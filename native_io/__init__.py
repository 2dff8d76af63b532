"""Compiled kernels: buffers in, arrays out. No policy, no Spark; and files only in _io, by their descriptors."""

try:
    from native_io._common import FORMAT, Status, Walked, Wrapping, crc32, crc32_between, java_hash, java_hashes
    from native_io._config import EntriesStatus, take_entries
    from native_io._io import (
        Slide,
        exchange,
        follow_chains,
        gather,
        mount_of,
        read_queue_ends,
        read_queue_heads,
        read_queue_parts,
        read_short_queues,
        resident,
        tile_queues,
    )
    from native_io._read import (
        BATCH_INDEX,
        COLUMNS,
        QUEUE_COLUMNS,
        QUEUE_FORMAT,
        ZSTD_FUNCTIONS,
        Decoder,
        Filter,
        QueueWalk,
        Tiles,
        Tiling,
        UnitKind,
        array_address,
        find_unit,
        fingerprint,
        queue_units,
        scan,
    )
    from native_io._rocksdb import (
        BLOCK_TRAILER,
        CRC32C_CHECKSUM,
        NOT_IN_ORDER,
        SEQUENCE_SIZE,
        UNKNOWN_RECORD,
        XXH3_CHECKSUM,
        Batches,
        NotSoundError,
        Run,
        Tombstones,
        check_blocks,
        crc32c,
        expand_lz4,
        lz4_size,
        masked_crc32c,
        read_blocks,
        read_index,
        read_pairs,
        table_checksum,
        take_newest,
        take_records,
        xxh3,
    )
    from native_io._write import (
        ENCODE_COLUMNS,
        Dispatched,
        Dispatcher,
        EncodeError,
        Encoder,
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

__all__ = [
    "BATCH_INDEX",
    "BLOCK_TRAILER",
    "COLUMNS",
    "CRC32C_CHECKSUM",
    "ENCODE_COLUMNS",
    "FORMAT",
    "NOT_IN_ORDER",
    "QUEUE_COLUMNS",
    "QUEUE_FORMAT",
    "SEQUENCE_SIZE",
    "UNKNOWN_RECORD",
    "XXH3_CHECKSUM",
    "ZSTD_FUNCTIONS",
    "Batches",
    "Decoder",
    "Dispatched",
    "Dispatcher",
    "EncodeError",
    "Encoder",
    "EntriesStatus",
    "Filter",
    "NotSoundError",
    "QueueWalk",
    "Run",
    "Slide",
    "Status",
    "Tiles",
    "Tiling",
    "Tombstones",
    "UnitKind",
    "Walked",
    "Wrapping",
    "array_address",
    "check_blocks",
    "crc32",
    "crc32_between",
    "crc32c",
    "exchange",
    "expand_lz4",
    "find_unit",
    "fingerprint",
    "follow_chains",
    "gather",
    "java_hash",
    "java_hashes",
    "lz4_size",
    "masked_crc32c",
    "mount_of",
    "put_index",
    "queue_units",
    "read_blocks",
    "read_index",
    "read_pairs",
    "read_queue_ends",
    "read_queue_heads",
    "read_queue_parts",
    "read_short_queues",
    "resident",
    "scan",
    "table_checksum",
    "take_entries",
    "take_newest",
    "take_records",
    "tile_queues",
    "xxh3",
]
