"""The contents of a RocksDB that a broker keeps: the column families' keys and values, read from the files as they are.

Nothing is written, no lock is taken, and no RocksDB library is used: untrusted bytes are parsed with all lengths
checked. Wrong bytes raise one error, with file and position. Everything goes through store/io/files.py, so a database
in an object store is read in the same way.

Types: a `Database` (database.py) is opened from a directory and gives `Entries` (entries.py), blocks of keys and
values in the order of keys; a `ChangingDatabase` (changing.py) opens it anew where a broker changes it. A `Manifest`
(manifest.py) says which `TableFile`s a column family has; a `Table` (table.py) is one of them, with its index and its
`RangeDeletion`s (tombstones.py). A `WriteAheadLog` (write_ahead.py) has the writes that are not yet in tables. The
loops are in native_io/_rocksdb.pyx.

To be read in this order: log_file.py (the frame of MANIFEST and logs), manifest.py, blocks.py (compression),
table.py, write_ahead.py, tombstones.py, merges.py (merge operands), database.py, changing.py. entry_types.py has the
types of entries, fields.py takes numbers and texts out of bytes, faults.py makes the errors.

The supported files are those that brokers of RocketMQ 5.2 to 5.5 write (RocksDB 8.4: block-based tables of format
version 5 with CRC-32C, an index of one level, any compression that a broker can be told, an appending merge operator),
and those that RocksDB itself writes by default up to version 11: format versions 2 to 7; CRC-32C, XXH3 or no checksum;
an index of one level or two; compression none, snappy, zlib, bzip2, LZ4 or ZSTD; merge operands of
StringAppendOperator; deleted ranges; logs, also recycled ones, that are not compressed.

Refused by name: the checksums xxHash and xxHash64; compression with a dictionary, by XPRESS or by a program of the
writer's own; other merge operators; values in blob files, wide columns, timestamps, transactions; tables that were
ingested or lie in another directory; other comparators, other kinds of tables and of indexes; compressed logs.
"""
