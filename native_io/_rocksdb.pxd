"""What _rocksdb.pyx uses of the C headers."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "crc32c.h" nogil:
    uint32_t rmq_crc32c(uint32_t crc, const uint8_t *p, size_t n)
    uint32_t rmq_crc32c_portable(uint32_t crc, const uint8_t *p, size_t n)
    uint32_t rmq_masked(uint32_t crc)

cdef extern from "xxh3.h" nogil:
    uint64_t rmq_xxh3(const uint8_t *p, uint64_t n)

cdef extern from "table_checksum.h" nogil:
    enum:
        RMQ_CHECKSUM_CRC32C, RMQ_CHECKSUM_XXH3
    uint32_t rmq_table_checksum(int kind, const uint8_t *p, int64_t n)
    uint32_t rmq_checksum_of_place(uint32_t context, uint64_t offset)

cdef extern from "varint.h" nogil:
    uint32_t rmq_le32(const uint8_t *p)
    const uint8_t *rmq_varint(const uint8_t *p, const uint8_t *end, int bits, uint64_t *value)
    void rmq_put_le64(uint8_t *p, uint64_t value)

cdef extern from "lz4_size.h" nogil:
    int64_t rmq_lz4_size(const uint8_t *p, int64_t size)

cdef extern from "lz4_frame.h" nogil:
    enum:
        RMQ_EXPANDED
    int rmq_lz4_block(const uint8_t *p, const uint8_t *end, const uint8_t *before, uint8_t **to, const uint8_t *stop)

cdef extern from "log_records.h" nogil:
    enum:
        RMQ_LOG_HEADER
    ctypedef struct rmq_log:
        uint8_t *bytes
        int64_t size
        uint32_t number
        int64_t position
        int64_t records
        int64_t written
        int status
    void rmq_take_records(rmq_log *log, int64_t *ends)

cdef extern from "sorted_block.h" nogil:
    enum:
        RMQ_SEQUENCE, RMQ_BLOCK_TRAILER, RMQ_BLOCK_SOUND
    ctypedef struct rmq_sorted_block:
        const uint8_t *bytes
        int64_t size
        int is_index
        int is_delta
        int64_t least_key
        int64_t entries
        int64_t key_bytes
        int64_t position
        int status
    ctypedef struct rmq_entries:
        uint8_t *keys
        int64_t *key_ends
        int64_t *value_starts
        int64_t *value_ends
    void rmq_walk_block(rmq_sorted_block *b, const rmq_entries *into, int64_t base)

cdef extern from "newest.h" nogil:
    enum:
        RMQ_NOT_IN_ORDER
    ctypedef struct rmq_run:
        const uint8_t *keys
        const int64_t *key_starts
        const uint8_t *values
        const int64_t *value_starts
        const int64_t *value_ends
        int64_t at
        int64_t end
        int is_plain
    ctypedef struct rmq_tombstones:
        const uint8_t *keys
        const int64_t *starts
        const uint64_t *newest
        int64_t at
        int64_t count
    ctypedef struct rmq_newest:
        rmq_run *runs
        int32_t *heap
        int32_t count
        rmq_tombstones tombstones
        const uint8_t *last
        int64_t last_size
        int32_t *from_run
        int64_t *from_entry
        int64_t taken
        int64_t key_bytes
        int64_t value_bytes
        int32_t stopped
        int32_t unknown
    int64_t rmq_first_too_late(rmq_run *run)
    void rmq_take_newest(rmq_newest *w)
    void rmq_copy_newest(const rmq_newest *w, uint8_t *keys, int64_t *key_starts, uint8_t *values, int64_t *value_starts)
    uint64_t rmq_le64(const uint8_t *p)
    int64_t rmq_user_key(const rmq_run *r, const uint8_t **key)
    int rmq_compare(const uint8_t *a, int64_t m, const uint8_t *b, int64_t n)
    int64_t rmq_first_not_below(const rmq_run *run, const uint8_t *key, int64_t size)

cdef extern from "write_batch.h" nogil:
    enum:
        RMQ_BATCH_SOUND, RMQ_BATCH_TYPE, RMQ_BATCH_RANGE_DELETION
    ctypedef struct rmq_batches:
        const uint8_t *bytes
        const int64_t *ends
        int64_t count
        int64_t records
        int64_t position
        int64_t batch
        int status
    ctypedef struct rmq_batch_records:
        int64_t *families
        int64_t *trailers
        int64_t *key_starts
        int64_t *key_ends
        int64_t *value_starts
        int64_t *value_ends
    void rmq_walk_batches(rmq_batches *b, const rmq_batch_records *into)
    void rmq_sort_records(const rmq_batch_records *r, const uint8_t *bytes, int64_t *order, int64_t *spare, int64_t n)
