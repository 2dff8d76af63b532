"""What both parts of the kernel need: the C headers that they share, and what _common.pyx does for them."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef extern from "unit.h" nogil:
    ctypedef struct rmq_finding:
        int64_t expected
        int64_t found
    enum:
        RMQ_MAGIC_V1, RMQ_MAGIC_V2, RMQ_MAGIC_BLANK, RMQ_BLANK_SIZE, RMQ_FIXED_SIZE, RMQ_SMALLEST_UNIT
        RMQ_SYSFLAG_COMPRESSED, RMQ_SYSFLAG_BORNHOST_V6, RMQ_SYSFLAG_STOREHOST_V6
        RMQ_AT_BODY_CRC, RMQ_AT_QUEUE_ID, RMQ_AT_FLAG, RMQ_AT_QUEUE_OFFSET, RMQ_AT_PHYSICAL_OFFSET
        RMQ_AT_SYSFLAG, RMQ_AT_BORN_TIMESTAMP, RMQ_AT_BORN_HOST
        RMQ_OK, RMQ_LIMIT, RMQ_FULL, RMQ_MORE, RMQ_BLANK, RMQ_NO_BLANK, RMQ_BAD_MAGIC, RMQ_BAD_BLANK
        RMQ_BAD_TOTAL_SIZE, RMQ_BAD_PHYSICAL_OFFSET, RMQ_BAD_BODY_LENGTH, RMQ_BAD_TOPIC_LENGTH
        RMQ_BAD_PROPERTIES_LENGTH, RMQ_BAD_LENGTH_SUM, RMQ_BAD_BODY_CRC, RMQ_CROSSES_STOP, RMQ_CONTRADICTED, RMQ_NO_ENTRY, RMQ_BAD_ENTRY, RMQ_ASK
        RMQ_NOT_A_BATCH, RMQ_BAD_QUEUE_OFFSET, RMQ_BAD_SYSFLAG
    ctypedef struct rmq_unit:
        const uint8_t *start
        const uint8_t *topic
        int32_t topic_length
    int32_t rmq_i32(const uint8_t *p)
    int64_t rmq_i64(const uint8_t *p)

cdef extern from "walk.h" nogil:
    ctypedef struct rmq_wrapping:
        int64_t header
        int64_t at_size
        int64_t at_position
        int64_t at_body
    ctypedef struct rmq_walk:
        const uint8_t *window
        int64_t size
        int64_t base
        int64_t stop
        int64_t segment_end
        int verify_crc
        int64_t position
        int64_t count
        int status
        rmq_finding why
        const rmq_wrapping *wrapping

cdef extern from "arrow_abi.h" nogil:
    cdef struct ArrowSchema:
        const char *name
        const char *format
        int64_t n_children
        ArrowSchema **children
    cdef struct ArrowArray:
        int64_t length
        void (*release)(ArrowArray *)


cdef inline const uint8_t *address(const uint8_t[::1] window) noexcept:
    return &window[0] if window.shape[0] else NULL


cdef class OneAtATime:
    """What several threads must not use at once: the GIL is released while it works.

    A method calls enter() first and leave() last. Where it fails in between and does not leave, the object stays shut:
    what it holds may be of half a unit.
    """
    cdef bint busy
    cdef int enter(self) except -1
    cdef void leave(self) noexcept


cdef class Wrapping:
    cdef rmq_wrapping wrapping
    cdef readonly tuple fields


# Sets out on a walk: 1, or 0 when the window ends before the position; then its answer stands already.
cdef int begin_walk(rmq_walk *walk, const uint8_t *window, int64_t size, int64_t base, int64_t position, int64_t stop,
                    int64_t segment_end, bint verify_crc, Wrapping wrapping=*) except -1
# The answers of walks: Walked.
cdef const rmq_wrapping *wrapping_of(Wrapping wrapping) noexcept
cdef object end_walk(const rmq_walk *walk)
cdef object walked(int64_t count, int64_t at, int status, int64_t expected, int64_t found)
cdef int check_offsets(int64_t size, int64_t base, int64_t position, int64_t segment_end) except -1
cdef object text_of(const char *text)
cdef object not_sound()
