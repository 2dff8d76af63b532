"""What _read.pyx uses of the C headers, and what _io.pyx uses of its classes."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

from native_io._common cimport ArrowArray, OneAtATime, rmq_finding, rmq_unit, rmq_walk


cdef extern from "memory.h" nogil:
    ctypedef struct rmq_list:
        void *data
        int64_t size
        int64_t capacity

cdef extern from "scan.h" nogil:
    void rmq_scan(rmq_walk *w, int64_t *positions, int64_t capacity)
    void rmq_find(rmq_walk *w)

cdef extern from "expand.h" nogil:
    ctypedef struct rmq_zstd_library:
        pass
    ctypedef struct rmq_expander:
        pass
    rmq_zstd_library rmq_zstd_library_at(const uintptr_t *functions)
    rmq_expander *rmq_new_expander(const rmq_zstd_library *library)

cdef extern from "body_search.h" nogil:
    ctypedef struct rmq_body_search:
        pass
    ctypedef int (*rmq_body_judge)(void *asked, const uint8_t *body, int64_t n, int32_t sys_flag) noexcept
    rmq_body_search *rmq_new_body_search(const rmq_zstd_library *library, rmq_body_judge judge, void *asked)

cdef extern from "conditions.h" nogil:
    enum:
        RMQ_BY_OFFSET_MSG_ID, RMQ_BY_UNIQ_KEY, RMQ_BY_LIGHT_QUEUE, RMQ_BY_PROPERTY, RMQ_BY_BODY, RMQ_BY_PROPERTIES, \
            RMQ_MOST_JUDGED_PROPERTIES
    ctypedef struct rmq_text:
        const uint8_t *bytes
        int64_t size
    ctypedef int (*rmq_properties_judge)(void *asked, const rmq_text *texts, int64_t count) noexcept
    ctypedef struct rmq_values:
        rmq_body_search *body
        rmq_properties_judge judge
        void *asked
    rmq_values *rmq_add_values(rmq_list *conditions, int32_t condition, int32_t field)
    ctypedef struct rmq_bounds:
        int64_t least
        int64_t most
    int rmq_add_value(rmq_values *v, const uint8_t *p, int64_t n)
    int rmq_add_bounds(rmq_values *v, rmq_bounds bounds)
    int rmq_compare_as_shown(rmq_values *v)

cdef extern from "select.h" nogil:
    ctypedef struct rmq_copies:
        int are_left_out
        int32_t kind
        int64_t queue_offset
    ctypedef struct rmq_filter:
        rmq_bounds store_timestamp
        rmq_bounds physical_offset
        int any_queue
        int looks_in_bodies
        int explodes
        rmq_list conditions
        rmq_copies copies
    ctypedef struct rmq_claims:
        const uint8_t *window
        int64_t window_size
        const int64_t *positions
        const int64_t *starts
        const int64_t *lengths
        const int32_t *sizes
        const int64_t *queue_offsets
        int64_t count
        int64_t segment_end
        int verify_crc
        int64_t taken
        int64_t selected
        rmq_finding why
    int rmq_judge(rmq_filter *f, const uint8_t *topic, int32_t n, int32_t queue_id, rmq_bounds queue_offset)
    void rmq_free_filter(rmq_filter *f)
    int32_t rmq_batch_kind(int32_t sys_flag)
    void rmq_select(rmq_filter *f, rmq_walk *w, int64_t *positions, int64_t capacity, rmq_unit *asked)
    int rmq_pick(rmq_filter *f, rmq_claims *c, int64_t *selected, rmq_unit *asked)

cdef extern from "queues.h" nogil:
    enum:
        RMQ_QUEUE_UNIT_SIZE

cdef extern from "queue_units.h" nogil:
    enum:
        RMQ_BATCH_QUEUE_UNIT_SIZE, RMQ_PRE_BLANK_SIZE, RMQ_LOST_UNIT_SIZE
        RMQ_UNIT_IS_NOTHING, RMQ_UNIT_IS_PRE_BLANK, RMQ_UNIT_IS_LOST, RMQ_UNIT_IS_MESSAGE
    ctypedef struct rmq_unit_columns:
        int64_t *numbers
        int64_t *positions
        int64_t *sizes
        int64_t *tags_codes
        int64_t *queue_offsets
        int64_t *messages
        int64_t *store_times
        uint8_t *kinds
    ctypedef enum rmq_unit_kind:
        pass
    rmq_unit_kind rmq_kind_of_unit(const uint8_t *unit, int is_batch)
    int rmq_is_unit_before(rmq_unit_kind kind, int64_t begin, int64_t position)
    int rmq_unit_comes_before(const uint8_t *unit, int is_batch, int64_t position)
    void rmq_read_queue_units(const uint8_t *units, int64_t count, int64_t number, int is_batch,
                              const rmq_unit_columns *to)
    ctypedef struct rmq_queue_walk:
        int64_t unit_size
        int64_t start
        int64_t stop
        int64_t number
        int64_t end
        int64_t *positions
        int64_t *queue_offsets
        int32_t *sizes
        int64_t rows
        int64_t capacity
    int64_t rmq_take_units(rmq_queue_walk *walk, const uint8_t *units, int64_t count)

cdef extern from "tiling.h" nogil:
    ctypedef struct rmq_tile:
        int64_t position
        int64_t size
        int64_t queue_offset
    ctypedef struct rmq_tiling:
        const int64_t *starts
        const int64_t *stops
        const int64_t *segments
        const int64_t *headers
        int64_t stretches
        uint64_t *open_ends
        int64_t *furthest
        int64_t *counts
        int64_t *crossed
        int64_t *asked_counts
        uint64_t *asked_prints
        int64_t *asked_bytes
        int64_t *latest
        int64_t *followed
        int64_t unit_size
        int64_t number
        int64_t at
        int64_t end
        int64_t queue_count
        int64_t queue_bytes
        int asked
        rmq_tile first
        rmq_tile last
    uint64_t rmq_fingerprint(int64_t offset)
    void rmq_begin_tiling(rmq_tiling *t, int64_t number, int64_t unit_size, int asked)
    int rmq_add_units(rmq_tiling *t, const uint8_t *units, int64_t count)

cdef extern from "decode.h" nogil:
    enum:
        RMQ_COLUMNS
    ctypedef struct rmq_decoder:
        uint32_t asked
        int64_t rows
        int64_t compressed
        int explodes
        rmq_copies copies
        rmq_expander *expander
        int64_t enough
        rmq_list unexpanded
    ctypedef struct rmq_places:
        const uint8_t *window
        int64_t size
        int64_t base
        const int64_t *positions
        const int64_t *window_offsets
        int64_t count
        int64_t taken
    rmq_decoder *rmq_new_decoder()
    int rmq_append(rmq_decoder *d, rmq_filter *f, rmq_places *places, int64_t full, rmq_unit *asked)
    int rmq_decode(rmq_decoder *d, rmq_filter *f, rmq_walk *w, int64_t most, rmq_unit *asked)
    int64_t rmq_decoded_bytes(const rmq_decoder *d)
    int rmq_not_ascii(const rmq_decoder *d)

cdef extern from "arrow.h" nogil:
    int rmq_export(ArrowArray *array, rmq_decoder *d, const int *order, int64_t n)
    void rmq_free_decoder(rmq_decoder *d)


cdef class Filter(OneAtATime):
    cdef rmq_filter filter
    cdef object judge, body_judge, properties_judge, failure
    cdef int _add(self, int number, int field, values) except -1
    # Let the condition that was added last look into bodies.
    cdef int _search(self, const rmq_zstd_library *library) except -1
    # Let the condition that was added last ask the judge of properties.
    cdef int _ask_of_properties(self) except -1
    # Raise what a judge raised.
    cdef int fail(self) except -1
    # Have the judge decide on the queue of a unit, where a walk ended with ASK.
    cdef int ask(self, const rmq_unit *unit) except -1


cdef class Decoder(OneAtATime):
    cdef rmq_decoder *decoder
    cdef int *order
    cdef readonly tuple columns
    # The end of a method that enter() began, with what C answered; `wrong` is where there is no unit.
    cdef int done(self, int status, int64_t wrong) except -1


cdef class Tiling(OneAtATime):
    cdef rmq_tiling tiling
    cdef const int64_t[::1] starts, stops, segments, headers
    cdef int64_t[:, ::1] found
