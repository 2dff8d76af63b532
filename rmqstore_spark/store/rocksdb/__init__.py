"""The contents of a RocksDB that a broker keeps: the column families' keys and values, read from the files as they are.

Nothing is written, no lock is taken, and no RocksDB library is used: untrusted bytes are parsed with all lengths
checked. Wrong bytes raise one error, with file and position. Everything goes through store/io/files.py, so a database
in an object store is read in the same way.

Types: a `Database` (database.py) is opened from a directory and gives `Entries` (entries.py), blocks of keys and
values in the order of keys. A `Manifest` (manifest.py) says which `TableFile`s a column family has; a `Table`
(table.py) is one of them, with its index and its `RangeDeletion`s (tombstones.py). A `WriteAheadLog` (write_ahead.py)
has the writes that are not yet in tables. The loops are in native_io/_rocksdb.pyx.

To be read in this order: log_file.py (the frame of MANIFEST and logs), manifest.py, blocks.py (compression),
table.py, write_ahead.py, tombstones.py, database.py. fields.py takes numbers and texts out of bytes, faults.py makes
the errors.

The supported files are those that brokers of RocketMQ 5.2 to 5.5 write (RocksDB 8.4), and those that RocksDB writes
with similar settings: block-based tables of format versions 2 to 6 with CRC-32C or no checksum; an index of one level
or two; compression none, snappy, zlib, bzip2, LZ4 or ZSTD; logs, also recycled ones, that are not compressed. Merge
operands, blobs, wide columns, transactions, tables that were ingested, dictionaries and other comparators are refused
by name.
"""
