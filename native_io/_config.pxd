"""What _config.pyx uses of the C headers."""
from libc.stdint cimport int64_t, uint8_t


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
