"""The plain reference as tests name it: a RocketMQ store read and written in the plainest Python there is.

It shares no code with the package it judges. Slow and obvious on purpose.
"""

# ruff: noqa: F401

from oracle.batches import BATCH, Inner, encode_batch, is_batch, rows_of_unit
from oracle.index import (
    INDEX_HEADER_SIZE,
    INDEX_ITEM_SIZE,
    INDEX_SLOT_SIZE,
    Index,
    IndexFile,
    IndexHeader,
    IndexItem,
    build_index,
    decode_index_header,
    encode_index_header,
    encode_index_item,
    index_hash,
    index_item_at,
    index_keys,
    read_index,
    unit_index_keys,
)
from oracle.java import (
    java_hash,
    java_properties,
    java_text,
    wrap,
)
from oracle.log import (
    encode_blank,
    is_blank,
    read_segment,
    read_store,
    read_units,
    segment_files,
)
from oracle.queue import (
    BATCH_UNIT_SIZE,
    DELAY_LEVELS,
    LOST_SIZE,
    PRE_BLANK,
    QUEUE_UNIT_SIZE,
    SCHEDULE_TOPIC,
    QueueUnit,
    ReadUnit,
    decode_queue_unit,
    encode_batch_unit,
    encode_queue_unit,
    expected_queues,
    read_queue_unit,
    read_queues,
    tags_code,
)
from oracle.unit import (
    BLANK_SIZE,
    BORN_HOST_V6,
    COLUMNS,
    COMMIT,
    COMPRESSED,
    COMPRESSION_TYPES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PREPARED,
    PROPERTY_CRC_SIZE,
    ROLLBACK,
    STORE_HOST_V6,
    TRANSACTION_BITS,
    UNPROTECTED,
    Buffer,
    Corrupt,
    Properties,
    Text,
    Unit,
    body_crc,
    check_unit,
    compress_body,
    decode_unit,
    decompress_body,
    encode_properties,
    encode_unit,
    host_bytes,
    host_text,
    microseconds,
    parse_properties,
    parse_unit,
)
