"""What _write.pyx uses of the C headers."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from native_io._common cimport ArrowArray, ArrowSchema, rmq_walk


cdef extern from "memory.h" nogil:
    enum:
        RMQ_SLACK
    ctypedef struct rmq_list:
        void *data
        int64_t size
    ctypedef struct rmq_pool:
        pass
    rmq_pool *rmq_new_pool()
    void rmq_leave_pool(rmq_pool *pool)
    uint8_t *rmq_get_buffer(rmq_pool *pool, int64_t size, int64_t *capacity)
    void rmq_put_buffer(const void *buffer)

cdef extern from "queues.h" nogil:
    ctypedef struct rmq_queue_name:
        int32_t topic_size
        int32_t id
    ctypedef struct rmq_queues:
        pass
    int32_t rmq_queue_count(const rmq_queues *q)
    const rmq_queue_name *rmq_queue_name_of(const rmq_queues *q, int32_t number)
    const uint8_t *rmq_topic_of(const rmq_queues *q, int32_t number)

cdef extern from "encode.h" nogil:
    enum:
        RMQ_IN_COLUMNS, RMQ_MAX_BODY, RMQ_MAX_PROPERTIES_SIZE, RMQ_MAX_TOPIC_V1, RMQ_MAX_TOPIC_V2
        RMQ_REFUSE_NULL, RMQ_REFUSE_TOPIC_LENGTH, RMQ_REFUSE_TOPIC_CHARACTERS, RMQ_REFUSE_QUEUE_ID
        RMQ_REFUSE_EMPTY_NAME, RMQ_REFUSE_NAME_SEPARATOR, RMQ_REFUSE_VALUE_SEPARATOR, RMQ_REFUSE_PROPERTIES_LENGTH
        RMQ_REFUSE_DELAY, RMQ_REFUSE_BODY_LENGTH, RMQ_REFUSE_INNER_BATCH, RMQ_REFUSE_STORE_TIMESTAMP
        RMQ_REFUSE_HOST_LENGTH, RMQ_REFUSE_LIGHT_TOPIC, RMQ_REFUSE_LIGHT_QUEUES
    const char *rmq_in_formats[]
    ctypedef struct rmq_refusal:
        int reason
        int column
        int64_t row
        int64_t number
        const uint8_t *text
        int64_t size
    ctypedef struct rmq_rows:
        int64_t rows
    ctypedef struct rmq_encoder:
        int allow_v2
        int64_t topic_size
    int rmq_check_schema(const ArrowSchema *schema, const char **names)
    int rmq_read_batch(rmq_rows *r, const ArrowArray *batch)
    int64_t rmq_encode_bound(const rmq_rows *r)
    int64_t rmq_encode(rmq_encoder *e, const rmq_rows *r, uint8_t *to, int32_t *sizes, rmq_refusal *why)

cdef extern from "dispatch.h" nogil:
    const int64_t rmq_max_queue_offset
    ctypedef struct rmq_queue:
        int64_t next
    ctypedef struct rmq_index_entry:
        int64_t position
        int64_t timestamp
        int64_t hash
    ctypedef struct rmq_run:
        int64_t queue
        int64_t offset
        int64_t count
        int64_t size
    ctypedef struct rmq_dispatcher:
        int index_tags
        int light_queues
        rmq_queues queues
        rmq_list units
        rmq_list entries
        rmq_list odd_bodies
        int64_t last_position
        int64_t last_timestamp
        int64_t least_timestamp
        int64_t most_timestamp
        uint64_t fall
        int64_t inner_batches
        int64_t bytes
    void rmq_free_dispatcher(rmq_dispatcher *d)
    int rmq_add_batch_topic(rmq_dispatcher *d, const uint8_t *name, int64_t size)
    int32_t rmq_know_queue(rmq_dispatcher *d, const uint8_t *topic, int32_t size, int32_t id)
    rmq_queue *rmq_queue_at(rmq_dispatcher *d, int32_t number)
    int rmq_place(rmq_dispatcher *d, rmq_walk *w, int64_t store_timestamp, int keep)
    int rmq_dispatch(rmq_dispatcher *d, rmq_walk *w, int64_t most)
    int64_t rmq_units_size(const rmq_dispatcher *d)
    int64_t rmq_group(rmq_dispatcher *d, uint8_t *out, rmq_run *runs)
    void rmq_forget(rmq_dispatcher *d)

cdef extern from "index.h" nogil:
    enum:
        RMQ_INDEX_HEADER_SIZE, RMQ_INDEX_SLOT_SIZE, RMQ_INDEX_ITEM_SIZE
    int64_t rmq_put_index(uint8_t *file, uint32_t slots, int32_t items, const int32_t *hashes,
                          const int64_t *positions, const int64_t *timestamps, int64_t start, int64_t n,
                          int64_t previous_timestamp, int64_t previous_offset)
