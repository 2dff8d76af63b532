"""What _io.pyx uses of the C headers."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from native_io._common cimport rmq_unit, rmq_walk
from native_io._read cimport rmq_decoder, rmq_filter, rmq_list, rmq_tiling


cdef extern from "file.h" nogil:
    ctypedef struct rmq_file:
        int fd
        int64_t bytes
        int64_t requests
        int error
        int flags

cdef extern from "short_queues.h" nogil:
    ctypedef struct rmq_queue_head:
        int64_t start
        int64_t size
        int64_t allocated
        int64_t read
        int64_t used
        int64_t is_all
    rmq_queue_head rmq_read_queue_head(const char *path, int64_t start, uint8_t *to, int64_t room, rmq_file *cost)
    int64_t rmq_queue_ids_in(const char *path, int32_t *ids, int64_t room)
    int64_t rmq_find_only_file(const char *path, int64_t *size, int64_t *allocated)
    int64_t rmq_read_short_queue(const char *path, uint8_t *to, int64_t room, int64_t *number, rmq_file *cost)

cdef extern from "queue_tiles.h" nogil:
    ctypedef struct rmq_tile_reading:
        int64_t most
        uint8_t *buffer
        int64_t room
    enum:
        RMQ_LEAST_TILED
    int rmq_tile_queue(rmq_tiling *t, const char *path, int asked, const rmq_tile_reading *how, rmq_file *cost)

cdef extern from "queue_ends.h" nogil:
    enum:
        RMQ_MOST_SHOWN, RMQ_QUEUE_UNIT_SIZE
    ctypedef struct rmq_queue_look:
        int64_t begin
        int64_t width
    ctypedef struct rmq_queue_ends:
        int64_t start
        int64_t size
        int64_t allocated
        int64_t first
        int64_t last
        int64_t is_all
        int64_t is_known
    ctypedef struct rmq_asked_units:
        const int64_t *numbers
        int64_t count
        int64_t *positions
        int64_t *sizes
    rmq_queue_ends rmq_read_queue_ends(const char *path, const rmq_queue_look *look, const rmq_asked_units *asked,
                                       uint8_t *units, rmq_file *cost)

cdef extern from "queue_parts.h" nogil:
    void rmq_read_queue_parts(const char *path, const int64_t *positions, int64_t *sizes, int64_t n, uint8_t *to, int64_t share,
                              rmq_file *cost)

cdef extern from "gather.h" nogil:
    ctypedef struct rmq_gathered:
        uint8_t *buffer
        int64_t capacity
        int64_t *window_offsets
        int64_t *lengths
    int64_t rmq_gather(rmq_file *f, const int64_t *offsets, const int32_t *sizes, int64_t count, int64_t slack,
                       rmq_gathered *out)

cdef extern from "residency.h" nogil:
    int rmq_resident(int fd, int64_t offset, uint8_t *pages, int64_t count)

cdef extern from "chains.h" nogil:
    ctypedef struct rmq_index_file:
        const uint8_t *memory
        int64_t size
        rmq_file file
        int64_t begin_offset
        int64_t end_offset
        int64_t count
        int64_t items
        uint32_t slots
    enum:
        RMQ_CHAINS_FOLLOWED, RMQ_CHAINS_NO_MEMORY, RMQ_CHAINS_BROKEN
    int rmq_follow_chains(rmq_index_file *f, const int32_t *hashes, int64_t n, rmq_list *found)

cdef extern from "slide.h" nogil:
    ctypedef struct rmq_slide:
        rmq_file file
        int64_t start
        int64_t end
        uint8_t *buffer
        int64_t capacity
        int64_t base
        int64_t shown
        int64_t ahead
    int rmq_decode_file(rmq_decoder *d, rmq_filter *f, rmq_walk *w, rmq_slide *s, int64_t most, int64_t enough,
                        rmq_unit *asked)

cdef extern from "system.h" nogil:
    int rmq_exchange(int above, const char *name, int other_above, const char *other)
    int64_t rmq_mount_of(int fd)
