"""What _config.pyx uses of the C headers."""
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "queues.h" nogil:
    ctypedef struct rmq_queue_name:
        int32_t topic_size
    ctypedef struct rmq_queues:
        pass
    int32_t rmq_queue_count(const rmq_queues *q)
    const rmq_queue_name *rmq_queue_name_of(const rmq_queues *q, int32_t number)
    const uint8_t *rmq_topic_of(const rmq_queues *q, int32_t number)
    void rmq_free_queues(rmq_queues *q)

cdef extern from "consumer_offsets.h" nogil:
    ctypedef struct rmq_entries:
        const uint8_t *text
        int64_t size
        int64_t at
        int is_begun
        int64_t *names
        int64_t *counts
        int64_t entries
        int64_t most_entries
        int64_t *queue_ids
        int64_t *offsets
        int64_t queues
        int64_t most_queues
    int rmq_take_entries(rmq_entries *e)
    int rmq_number_names(rmq_queues *topics, rmq_queues *groups, const uint8_t *text, const int64_t *names, int64_t count,
                         int32_t *topic_of, int32_t *group_of, int32_t *has_at)
