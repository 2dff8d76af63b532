# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The compiled kernel: buffers in, arrays out. The loops are C (unit.h, decode.h, ...); this is their Python face.

It knows the wire layout of a message unit and Arrow's layout, and nothing of files, options or Spark. Every function is
safe on any bytes, releases the GIL while it works, and keeps no state outside the objects it is given.
"""
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

import collections
import enum
import os

import numpy as np


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
        RMQ_BAD_PROPERTIES_LENGTH, RMQ_BAD_LENGTH_SUM, RMQ_BAD_BODY_CRC, RMQ_CROSSES_STOP, RMQ_CONTRADICTED, RMQ_ASK
    ctypedef struct rmq_unit:
        const uint8_t *start
        const uint8_t *topic
        int32_t topic_length
    int32_t rmq_i32(const uint8_t *p)
    int rmq_scan(const uint8_t *window, int64_t size, int64_t base, int64_t *position, int64_t stop,
                 int64_t segment_end, int verify_crc, int64_t *positions, int64_t capacity, int64_t *count,
                 rmq_finding *why)
    int rmq_find(const uint8_t *window, int64_t size, int64_t base, int64_t *position, int64_t stop,
                 int64_t segment_end, int verify_crc, rmq_finding *why)

cdef extern from "crc32.h" nogil:
    void rmq_crc32_init()
    uint32_t rmq_crc32(uint32_t crc, const uint8_t *p, size_t n)
    uint32_t rmq_crc32_portable(uint32_t crc, const uint8_t *p, size_t n)

cdef extern from "select.h" nogil:
    ctypedef struct rmq_bounds:
        int64_t least
        int64_t most
    ctypedef struct rmq_filter:
        rmq_bounds store_timestamp
        rmq_bounds physical_offset
        int any_queue
    ctypedef struct rmq_claims:
        const int64_t *positions
        const int64_t *places
        const int64_t *lengths
        const int32_t *sizes
        const int64_t *queue_offsets
        int64_t count
    int rmq_judge(rmq_filter *f, const uint8_t *topic, int32_t n, int32_t queue_id, rmq_bounds queue_offset)
    void rmq_free_filter(rmq_filter *f)
    int rmq_select(rmq_filter *f, const uint8_t *window, int64_t size, int64_t base, int64_t *position, int64_t stop,
                   int64_t segment_end, int verify_crc, int64_t *positions, int64_t capacity, int64_t *count,
                   rmq_unit *asked, rmq_finding *why)
    int rmq_pick(rmq_filter *f, const uint8_t *window, int64_t size, const rmq_claims *claims, int64_t *taken,
                 int64_t segment_end, int verify_crc, int64_t *wanted, int64_t *count, rmq_unit *asked,
                 rmq_finding *why)

cdef extern from "gather.h" nogil:
    ctypedef struct rmq_gathered:
        uint8_t *buffer
        int64_t capacity
        int64_t *places
        int64_t *lengths
        int64_t bytes
        int64_t requests
        int error
    int64_t rmq_gather(int fd, const int64_t *offsets, const int32_t *sizes, int64_t count, int64_t slack,
                       rmq_gathered *out)

cdef extern from "decode.h" nogil:
    enum:
        RMQ_COLUMNS
    ctypedef struct rmq_decoder:
        uint32_t wanted
        int64_t rows
        int64_t compressed
    rmq_decoder *rmq_new_decoder()
    int rmq_append(rmq_decoder *d, const uint8_t *window, int64_t size, int64_t base, const int64_t *positions,
                   const int64_t *places, int64_t count, int64_t *wrong)
    ctypedef struct rmq_walk:
        const uint8_t *window
        int64_t size
        int64_t base
        int64_t stop
        int64_t segment_end
        int verify_crc
    int rmq_decode(rmq_decoder *d, const rmq_walk *w, int64_t *position, int64_t most, int *status, rmq_finding *why)
    int64_t rmq_decoded_bytes(const rmq_decoder *d)
    int rmq_not_ascii(const rmq_decoder *d)

cdef extern from "arrow_abi.h" nogil:
    cdef struct ArrowSchema:
        const char *name
        const char *format
        int64_t n_children
        ArrowSchema **children
    cdef struct ArrowArray:
        int64_t length
        void (*release)(ArrowArray *)

cdef extern from "arrow.h" nogil:
    int rmq_export(ArrowArray *array, rmq_decoder *d, const int *order, int64_t n)
    void rmq_free_decoder(rmq_decoder *d)

cdef extern from "memory.h" nogil:
    enum:
        RMQ_SLACK
    ctypedef struct rmq_pool:
        pass
    rmq_pool *rmq_new_pool()
    void rmq_leave_pool(rmq_pool *pool)
    uint8_t *rmq_get_buffer(rmq_pool *pool, int64_t size, int64_t *capacity)
    void rmq_put_buffer(const void *buffer)

cdef extern from "arrow_in.h" nogil:
    ctypedef struct rmq_in:
        pass
    int rmq_has_format(const ArrowSchema *schema, const char *format, int64_t children)
    int rmq_read_column(rmq_in *c, const ArrowArray *array, int64_t begin, int64_t n, char format)
    int rmq_in_valid(const rmq_in *c, int64_t row)
    const uint8_t *rmq_in_text(const rmq_in *c, int64_t row, int64_t *size)

cdef extern from "java_hash.h" nogil:
    uint32_t rmq_java_hash(uint32_t hash, const uint8_t *p, int64_t n)

cdef extern from "encode.h" nogil:
    enum:
        RMQ_IN_COLUMNS, RMQ_MAX_BODY, RMQ_MAX_PROPERTIES_SIZE, RMQ_MAX_TOPIC_V1, RMQ_MAX_TOPIC_V2
        RMQ_REFUSE_NULL, RMQ_REFUSE_TOPIC_LENGTH, RMQ_REFUSE_TOPIC_CHARACTERS, RMQ_REFUSE_QUEUE_ID
        RMQ_REFUSE_EMPTY_NAME, RMQ_REFUSE_NAME_SEPARATOR, RMQ_REFUSE_VALUE_SEPARATOR, RMQ_REFUSE_PROPERTIES_LENGTH
        RMQ_REFUSE_DELAY, RMQ_REFUSE_BODY_LENGTH, RMQ_REFUSE_INNER_BATCH, RMQ_REFUSE_STORE_TIMESTAMP
        RMQ_REFUSE_HOST_LENGTH
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
    enum:
        RMQ_QUEUE_UNIT_SIZE
    const int64_t rmq_max_queue_offset
    ctypedef struct rmq_list:
        void *data
        int64_t size
    ctypedef struct rmq_queue:
        int64_t next
        int64_t topic
        int32_t topic_size
        int32_t id
    ctypedef struct rmq_queue_unit:
        int64_t queue_offset
        int64_t position
        int64_t tags_code
        int32_t queue
        int32_t size
    ctypedef struct rmq_index_entry:
        int64_t position
        int64_t timestamp
        int64_t hash
    ctypedef struct rmq_run:
        int64_t queue
        int64_t offset
        int64_t count
    ctypedef struct rmq_dispatcher:
        int index_tags
        rmq_list queues
        rmq_list topics
        rmq_list units
        rmq_list entries
        int64_t last_timestamp
        int64_t inner_batches
    ctypedef struct rmq_staged:
        uint8_t *window
        int64_t at
        int64_t size
        int64_t position
        int64_t segment_end
        int verify_crc
    void rmq_free_dispatcher(rmq_dispatcher *d)
    int32_t rmq_find_queue(rmq_dispatcher *d, const uint8_t *topic, int32_t size, int32_t id)
    rmq_queue *rmq_queue_at(rmq_dispatcher *d, int32_t number)
    int rmq_place(rmq_dispatcher *d, rmq_staged *w, int64_t *count, int *status, rmq_finding *why)
    int rmq_dispatch(rmq_dispatcher *d, const uint8_t *window, int64_t size, int64_t base, int64_t *position,
                     int64_t stop, int64_t segment_end, int verify_crc, int64_t most, int64_t *count, int *status,
                     rmq_finding *why)
    int64_t rmq_group(rmq_dispatcher *d, uint8_t *out, rmq_run *runs)
    void rmq_forget(rmq_dispatcher *d)

cdef extern from "index.h" nogil:
    enum:
        RMQ_INDEX_HEADER_SIZE, RMQ_INDEX_SLOT_SIZE, RMQ_INDEX_ITEM_SIZE
    int64_t rmq_put_index(uint8_t *file, uint32_t slots, int32_t items, const int32_t *hashes,
                          const int64_t *positions, const int64_t *timestamps, int64_t start, int64_t n,
                          int64_t previous_timestamp, int64_t previous_offset)


rmq_crc32_init()

# The format's numbers as the C code has them; tests hold them equal to the table in rmqstore_spark.store.message.
FORMAT = {
    "MAGIC_V1": RMQ_MAGIC_V1,
    "MAGIC_V2": RMQ_MAGIC_V2,
    "MAGIC_BLANK": RMQ_MAGIC_BLANK,
    "BLANK_SIZE": RMQ_BLANK_SIZE,
    "FIXED_SIZE": RMQ_FIXED_SIZE,
    "SMALLEST_UNIT": RMQ_SMALLEST_UNIT,
    "SYSFLAG_COMPRESSED": RMQ_SYSFLAG_COMPRESSED,
    "SYSFLAG_BORNHOST_V6": RMQ_SYSFLAG_BORNHOST_V6,
    "SYSFLAG_STOREHOST_V6": RMQ_SYSFLAG_STOREHOST_V6,
    "AT_BODY_CRC": RMQ_AT_BODY_CRC,
    "AT_QUEUE_ID": RMQ_AT_QUEUE_ID,
    "AT_FLAG": RMQ_AT_FLAG,
    "AT_QUEUE_OFFSET": RMQ_AT_QUEUE_OFFSET,
    "AT_PHYSICAL_OFFSET": RMQ_AT_PHYSICAL_OFFSET,
    "AT_SYSFLAG": RMQ_AT_SYSFLAG,
    "AT_BORN_TIMESTAMP": RMQ_AT_BORN_TIMESTAMP,
    "AT_BORN_HOST": RMQ_AT_BORN_HOST,
}

# In the order of decode.h.
COLUMNS = (
    "topic", "queueId", "queueOffset", "tags", "keys", "msgId", "offsetMsgId", "body", "properties", "flag", "sysFlag",
    "bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset",
    "commitLogOffset", "storeSize", "bodyCRC",
)
assert len(COLUMNS) == RMQ_COLUMNS

# In the order of encode.h.
ENCODE_COLUMNS = (
    "topic", "queueId", "tags", "keys", "msgId", "properties", "body", "flag", "sysFlag", "bornTimestamp", "bornHost",
    "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset",
)
assert len(ENCODE_COLUMNS) == RMQ_IN_COLUMNS


class Status(enum.IntEnum):
    OK = RMQ_OK
    LIMIT = RMQ_LIMIT
    FULL = RMQ_FULL
    MORE = RMQ_MORE
    BLANK = RMQ_BLANK
    NO_BLANK = RMQ_NO_BLANK
    BAD_MAGIC = RMQ_BAD_MAGIC
    BAD_BLANK = RMQ_BAD_BLANK
    BAD_TOTAL_SIZE = RMQ_BAD_TOTAL_SIZE
    BAD_PHYSICAL_OFFSET = RMQ_BAD_PHYSICAL_OFFSET
    BAD_BODY_LENGTH = RMQ_BAD_BODY_LENGTH
    BAD_TOPIC_LENGTH = RMQ_BAD_TOPIC_LENGTH
    BAD_PROPERTIES_LENGTH = RMQ_BAD_PROPERTIES_LENGTH
    BAD_LENGTH_SUM = RMQ_BAD_LENGTH_SUM
    BAD_BODY_CRC = RMQ_BAD_BODY_CRC
    CROSSES_STOP = RMQ_CROSSES_STOP
    CONTRADICTED = RMQ_CONTRADICTED


_STATUS = tuple(Status)  # by value: an enum look-up by number costs more than a whole unit


cdef inline const uint8_t *_address(const uint8_t[::1] window) noexcept:
    return &window[0] if window.shape[0] else NULL


cdef int _check_offsets(int64_t size, int64_t base, int64_t position, int64_t segment_end) except -1:
    # So that no sum or difference of offsets in unit.h can leave the range of int64.
    if base < 0 or position < base:
        raise ValueError(f"position {position} lies before the window, which begins at {base}")
    if segment_end < 0 or size > INT64_MAX - base:
        raise ValueError(f"offsets reach from 0 to 2**63: segment end {segment_end}, window of {size} bytes at {base}")
    return 0


def scan(const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop, int64_t segment_end,
         bint verify_crc, int64_t[::1] positions not None):
    cdef int64_t at = position, count = 0, size = window.shape[0], capacity = positions.shape[0]
    cdef rmq_finding why = rmq_finding(0, 0)
    cdef const uint8_t *bytes_ = _address(window)
    cdef int64_t *out = &positions[0] if capacity else NULL
    cdef int status
    _check_offsets(size, base, position, segment_end)
    if position - base > size:
        return 0, position, Status.MORE, RMQ_BLANK_SIZE, 0
    with nogil:
        status = rmq_scan(bytes_, size, base, &at, stop, segment_end, verify_crc, out, capacity, &count, &why)
    return count, at, _STATUS[status], why.expected, why.found


def find_unit(const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop,
              int64_t segment_end, bint verify_crc):
    cdef int64_t at = position, size = window.shape[0]
    cdef rmq_finding why = rmq_finding(0, 0)
    cdef const uint8_t *bytes_ = _address(window)
    cdef int status
    _check_offsets(size, base, position, segment_end)
    with nogil:
        status = rmq_find(bytes_, size, base, &at, stop, segment_end, verify_crc, &why)
    return at, _STATUS[status], why.expected if status == RMQ_MORE else 0


def crc32(const uint8_t[::1] data not None, *, bint portable=False):
    cdef size_t size = data.shape[0]
    cdef const uint8_t *bytes_ = _address(data)
    cdef uint32_t crc
    with nogil:
        crc = rmq_crc32_portable(0, bytes_, size) if portable else rmq_crc32(0, bytes_, size)
    return crc


cdef rmq_bounds _bounds(pair) except *:
    least, most = pair  # not pair[0], pair[1]: with boundscheck=False they are not checked
    return rmq_bounds(least, most)


cdef class Filter:
    cdef rmq_filter filter
    cdef object judge
    cdef bint busy

    def __cinit__(self, *, store_timestamp, commit_log_offset, judge):
        self.filter.store_timestamp = _bounds(store_timestamp)
        self.filter.physical_offset = _bounds(commit_log_offset)
        self.filter.any_queue = judge is None
        self.judge = judge

    def __dealloc__(self):
        rmq_free_filter(&self.filter)

    cdef int _enter(self) except -1:
        if self.busy:
            raise RuntimeError("this Filter is in use by another thread")
        self.busy = True
        return 0

    cdef int _ask(self, const rmq_unit *unit) except -1:
        cdef int32_t queue_id = rmq_i32(unit.start + RMQ_AT_QUEUE_ID)
        wanted = self.judge(unit.topic[:unit.topic_length], queue_id)
        cdef rmq_bounds bounds = rmq_bounds(0, -1) if wanted is None else _bounds(wanted)
        if rmq_judge(&self.filter, unit.topic, unit.topic_length, queue_id, bounds) != 0:
            raise MemoryError()
        return 0

    def scan(self, const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop,
             int64_t segment_end, bint verify_crc, int64_t[::1] positions not None):
        cdef int64_t at = position, count = 0, size = window.shape[0], capacity = positions.shape[0]
        cdef rmq_finding why = rmq_finding(0, 0)
        cdef rmq_unit asked
        cdef const uint8_t *bytes_ = _address(window)
        cdef int64_t *out = &positions[0] if capacity else NULL
        cdef int status = RMQ_ASK
        _check_offsets(size, base, position, segment_end)
        if position - base > size:
            return 0, position, Status.MORE, RMQ_BLANK_SIZE, 0
        self._enter()
        try:
            while status == RMQ_ASK:
                with nogil:
                    status = rmq_select(&self.filter, bytes_, size, base, &at, stop, segment_end, verify_crc, out,
                                        capacity, &count, &asked, &why)
                if status == RMQ_ASK:
                    self._ask(&asked)
        finally:
            self.busy = False
        return count, at, _STATUS[status], why.expected, why.found

    def pick(self, const uint8_t[::1] window not None, *, int64_t segment_end, bint verify_crc,
             const int64_t[::1] positions not None, const int64_t[::1] places not None,
             const int64_t[::1] lengths not None, const int32_t[::1] sizes, const int64_t[::1] queue_offsets,
             int64_t[::1] wanted not None):
        cdef int64_t n = positions.shape[0], size = window.shape[0], taken = 0, count = 0
        cdef rmq_finding why = rmq_finding(0, 0)
        cdef rmq_unit asked
        cdef rmq_claims claims
        cdef const uint8_t *bytes_ = _address(window)
        cdef int64_t *out = &wanted[0] if n and wanted.shape[0] else NULL
        cdef int status = RMQ_ASK
        if min(places.shape[0], lengths.shape[0], wanted.shape[0]) < n or (
                sizes is not None and sizes.shape[0] < n) or (
                queue_offsets is not None and queue_offsets.shape[0] < n):
            raise ValueError(f"{n} positions need as many places, lengths, sizes, queue offsets and room for answers")
        _check_offsets(size, 0, 0, segment_end)
        if n == 0:
            return 0, 0, Status.LIMIT, 0, 0
        claims.positions = &positions[0]
        claims.places = &places[0]
        claims.lengths = &lengths[0]
        claims.sizes = &sizes[0] if sizes is not None else NULL
        claims.queue_offsets = &queue_offsets[0] if queue_offsets is not None else NULL
        claims.count = n
        self._enter()
        try:
            while status == RMQ_ASK:
                with nogil:
                    status = rmq_pick(&self.filter, bytes_, size, &claims, &taken, segment_end, verify_crc, out,
                                      &count, &asked, &why)
                if status == RMQ_ASK:
                    self._ask(&asked)
        finally:
            self.busy = False
        return count, taken, _STATUS[status], why.expected, why.found


def gather(int fd, const int64_t[::1] offsets not None, const int32_t[::1] sizes not None,
           uint8_t[::1] buffer not None, int64_t[::1] places not None, int64_t[::1] lengths not None, *,
           int64_t slack):
    cdef int64_t n = offsets.shape[0], done = 0
    cdef rmq_gathered out
    if min(sizes.shape[0], places.shape[0], lengths.shape[0]) < n:
        raise ValueError(f"{n} offsets need as many sizes, places and lengths")
    if n == 0 or buffer.shape[0] == 0:
        return 0, 0, 0
    out.buffer = &buffer[0]
    out.capacity = buffer.shape[0]
    out.places = &places[0]
    out.lengths = &lengths[0]
    out.bytes = out.requests = 0
    out.error = 0
    with nogil:
        done = rmq_gather(fd, &offsets[0], &sizes[0], n, slack, &out)
    if out.error != 0:
        raise OSError(out.error, os.strerror(out.error))
    return done, out.bytes, out.requests


cdef void _free_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


_IN_USE = "this Decoder is in use by another thread, or failed earlier"
_ENCODER_IN_USE = "this Encoder is in use by another thread"
_DISPATCHER_IN_USE = "this Dispatcher is in use by another thread, or failed earlier"


cdef class Decoder:
    cdef rmq_decoder *decoder
    cdef int *order
    cdef bint busy
    cdef readonly tuple columns

    def __cinit__(self, columns):
        self.columns = tuple(columns)
        unknown = [name for name in self.columns if name not in COLUMNS]
        if unknown or len(set(self.columns)) != len(self.columns):
            raise ValueError(f"columns must be different names out of {COLUMNS}, found {self.columns}")
        self.decoder = rmq_new_decoder()
        self.order = <int *>PyMem_Malloc((len(self.columns) + 1) * sizeof(int))
        if self.decoder == NULL or self.order == NULL:
            raise MemoryError()
        for i, name in enumerate(self.columns):
            self.order[i] = COLUMNS.index(name)
            self.decoder.wanted |= <uint32_t>1 << self.order[i]

    def __dealloc__(self):
        if self.decoder != NULL:
            rmq_free_decoder(self.decoder)
        PyMem_Free(self.order)

    cdef int _enter(self) except -1:
        # The GIL is released while it works: a second thread must not come in.
        if self.busy:
            raise RuntimeError(_IN_USE)
        self.busy = True
        return 0

    cdef int _leave(self, int status, int64_t wrong) except -1:
        # After an error the columns may differ in length, so the decoder stays shut.
        if status == -1:
            raise MemoryError()
        if status == -2:
            raise OverflowError("a column of one batch would pass 2 GiB")
        if status == 1:
            raise ValueError(f"there is no message unit at {wrong}")
        self.busy = False
        return 0

    @property
    def rows(self):
        return self.decoder.rows

    @property
    def nbytes(self):
        return rmq_decoded_bytes(self.decoder)

    @property
    def compressed(self):
        return self.decoder.compressed

    @property
    def non_ascii(self):
        if self.busy:  # another thread may be moving the text just now
            raise RuntimeError(_IN_USE)
        return rmq_not_ascii(self.decoder) != 0

    def append(self, const uint8_t[::1] window not None, const int64_t[::1] positions not None, *, int64_t base,
               const int64_t[::1] places=None):
        cdef int64_t size = window.shape[0], count = positions.shape[0], wrong = 0
        cdef const uint8_t *bytes_ = _address(window)
        cdef const int64_t *at = &positions[0] if count else NULL
        cdef const int64_t *in_window = NULL
        cdef int status
        if places is not None:
            if places.shape[0] < count:
                raise ValueError(f"{count} positions need as many places")
            in_window = &places[0] if count else NULL
        self._enter()
        with nogil:
            status = rmq_append(self.decoder, bytes_, size, base, at, in_window, count, &wrong)
        self._leave(status, wrong)

    def scan(self, const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop,
             int64_t segment_end, bint verify_crc, int64_t most):
        cdef rmq_walk walk = rmq_walk(_address(window), window.shape[0], base, stop, segment_end, verify_crc)
        cdef rmq_finding why = rmq_finding(0, 0)
        cdef int64_t at = position, rows = self.decoder.rows
        cdef int failed, status = RMQ_MORE
        _check_offsets(walk.size, base, position, segment_end)
        if position - base > walk.size:
            return 0, position, Status.MORE, RMQ_BLANK_SIZE, 0
        self._enter()
        with nogil:
            failed = rmq_decode(self.decoder, &walk, &at, most, &status, &why)
        self._leave(failed, 0)
        return self.decoder.rows - rows, at, _STATUS[status], why.expected, why.found

    def finish(self):
        cdef int64_t n = len(self.columns)
        cdef ArrowArray *array
        cdef int status
        self._enter()
        array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        if array == NULL:
            raise MemoryError()
        with nogil:
            status = rmq_export(array, self.decoder, self.order, n)
        if status != 0:
            free(array)
        self._leave(status, 0)
        return PyCapsule_New(array, "arrow_array", _free_array)


class EncodeError(ValueError):
    def __init__(self, row, column, reason):
        super().__init__(f"row {row}, column {column!r}: {reason}")
        self.row = row
        self.column = column
        self.reason = reason

    def __reduce__(self):  # between a worker and the driver
        return type(self), (self.row, self.column, self.reason)


# What was expected; what was found follows.
_REFUSALS = {
    RMQ_REFUSE_NULL: "a value",
    RMQ_REFUSE_TOPIC_LENGTH: "1 to {longest} bytes",
    RMQ_REFUSE_TOPIC_CHARACTERS: "letters, digits and any of % | _ -",
    RMQ_REFUSE_QUEUE_ID: "0 or more",
    RMQ_REFUSE_EMPTY_NAME: "a name of 1 byte or more",
    RMQ_REFUSE_NAME_SEPARATOR: "a name without the bytes 0x01 and 0x02",
    RMQ_REFUSE_VALUE_SEPARATOR: "a value without the byte 0x02",
    RMQ_REFUSE_PROPERTIES_LENGTH: f"{RMQ_MAX_PROPERTIES_SIZE} bytes at most in all properties as they are stored",
    RMQ_REFUSE_DELAY: "a whole number as DELAY of a message in SCHEDULE_TOPIC_XXXX",
    RMQ_REFUSE_BODY_LENGTH: f"{RMQ_MAX_BODY} bytes at most (maxMessageSize)",
    RMQ_REFUSE_INNER_BATCH: "no inner batch (0x80), which a ConsumeQueue cannot hold",
    RMQ_REFUSE_STORE_TIMESTAMP: "a time after 1970",
    RMQ_REFUSE_HOST_LENGTH: "8 or 20 bytes (address, 4 bytes of port)",
}
_SHOWN = 80  # bytes of a text that was found
_NOT_SOUND = "the array does not keep to Arrow's layout"


cdef object _refusal(const rmq_refusal *why, int longest):
    cdef object found
    if why.reason == RMQ_REFUSE_NULL:
        found = "null"
    elif why.text != NULL:
        found = repr(why.text[:min(why.size, <int64_t>_SHOWN)].decode("utf-8", "backslashreplace"))
        if why.size > _SHOWN:
            found += f"... ({why.size} bytes)"
    else:
        found = why.number
    expected = _REFUSALS[why.reason].format(longest=longest)
    return EncodeError(why.row, ENCODE_COLUMNS[why.column], f"expected {expected}, found {found}")


cdef object _text(const char *text):
    return repr((<bytes>text).decode("utf-8", "backslashreplace")) if text != NULL else "nothing"


cdef class _Units:
    """Encoded units; their memory goes back to the pool with the last view of them."""
    cdef const uint8_t *data
    cdef int64_t size

    def __dealloc__(self):
        rmq_put_buffer(self.data)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *>self.data, self.size, 1, flags)


cdef class Encoder:
    cdef rmq_encoder encoder
    cdef rmq_pool *pool
    cdef const char *names[RMQ_IN_COLUMNS]
    cdef list encoded_names
    cdef bint busy

    def __cinit__(self, *, bint allow_v2):
        self.pool = rmq_new_pool()
        if self.pool == NULL:
            raise MemoryError()
        self.encoder.allow_v2 = allow_v2
        self.encoder.topic_size = -1
        self.encoded_names = [name.encode() for name in ENCODE_COLUMNS]
        for i in range(RMQ_IN_COLUMNS):
            self.names[i] = self.encoded_names[i]

    def __dealloc__(self):
        if self.pool != NULL:
            rmq_leave_pool(self.pool)

    def encode(self, batch):
        cdef object schema_capsule, array_capsule
        cdef _Units units = _Units()
        cdef rmq_refusal why
        cdef rmq_rows rows
        cdef int64_t capacity = 0
        schema_capsule, array_capsule = batch.__arrow_c_array__()
        cdef const ArrowSchema *schema = <const ArrowSchema *>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
        cdef const ArrowArray *array = <const ArrowArray *>PyCapsule_GetPointer(array_capsule, "arrow_array")
        wrong = rmq_check_schema(schema, self.names)
        if wrong == RMQ_IN_COLUMNS:
            raise TypeError(f"expected a struct of the columns {', '.join(ENCODE_COLUMNS)}")
        if wrong >= 0:
            raise TypeError(
                f"column {wrong}: expected {ENCODE_COLUMNS[wrong]!r} of Arrow format {_text(rmq_in_formats[wrong])}, found "
                f"{_text(schema.children[wrong].name)} of format {_text(schema.children[wrong].format)}"
            )
        if rmq_read_batch(&rows, array) != 0:
            raise ValueError(_NOT_SOUND)
        sizes = np.empty(rows.rows, np.int32)
        cdef int32_t[::1] sizes_view = sizes
        cdef int32_t *sizes_at = &sizes_view[0] if rows.rows else NULL
        if self.busy:
            raise RuntimeError(_ENCODER_IN_USE)
        self.busy = True
        try:
            why = rmq_refusal(0, 0, 0, 0, NULL, 0)
            with nogil:
                units.data = rmq_get_buffer(self.pool, rmq_encode_bound(&rows) + RMQ_SLACK, &capacity)
                if units.data != NULL:
                    units.size = rmq_encode(&self.encoder, &rows, <uint8_t *>units.data, sizes_at, &why)
            if units.data == NULL:
                raise MemoryError()
            if units.size < 0:
                units.size = 0
                raise _refusal(&why, RMQ_MAX_TOPIC_V2 if self.encoder.allow_v2 else RMQ_MAX_TOPIC_V1)
        finally:
            self.busy = False
        return memoryview(units), sizes


class Dispatched(collections.namedtuple("Dispatched", (
    "queue", "queue_offset", "position", "size", "tags_code",
    "key_hash", "key_position", "key_timestamp",
    "units", "run_queue", "run_offset", "run_count",
    "last_timestamp", "inner_batches",
))):
    __slots__ = ()

    def runs(self):
        units = memoryview(self.units)
        begin = 0
        for queue, offset, count in zip(self.run_queue.tolist(), self.run_offset.tolist(), self.run_count.tolist()):
            end = begin + RMQ_QUEUE_UNIT_SIZE * count
            yield queue, offset, units[begin:end]
            begin = end


cdef class Dispatcher:
    cdef rmq_dispatcher *dispatcher
    cdef bint busy

    def __cinit__(self, *, bint index_tags=False):
        self.dispatcher = <rmq_dispatcher *>calloc(1, sizeof(rmq_dispatcher))
        if self.dispatcher == NULL:
            raise MemoryError()
        self.dispatcher.index_tags = index_tags

    def __dealloc__(self):
        if self.dispatcher != NULL:
            rmq_free_dispatcher(self.dispatcher)

    cdef int _enter(self) except -1:
        if self.busy:
            raise RuntimeError(_DISPATCHER_IN_USE)
        self.busy = True
        return 0

    cdef int _leave(self, int64_t status) except -1:
        # After an error what was collected may be of half a unit, so the dispatcher stays shut.
        if status < 0:
            raise MemoryError()
        self.busy = False
        return 0

    @property
    def queues(self):
        cdef rmq_queue *q
        self._enter()
        found = []
        for i in range(self.dispatcher.queues.size):
            q = rmq_queue_at(self.dispatcher, i)
            name = (<const uint8_t *>self.dispatcher.topics.data + q.topic)[:q.topic_size]
            found.append((name.decode("utf-8", "replace"), q.id))
        self._leave(0)
        return found

    @property
    def next_offsets(self):
        self._enter()
        found = np.array([rmq_queue_at(self.dispatcher, i).next for i in range(self.dispatcher.queues.size)], np.int64)
        self._leave(0)
        return found

    def set_next(self, str topic not None, int32_t queue_id, int64_t queue_offset):
        cdef bytes name = topic.encode()
        cdef int32_t number
        if not 0 <= queue_offset < rmq_max_queue_offset:
            raise ValueError(f"a queueOffset is 0 or more and below {rmq_max_queue_offset}, found {queue_offset}")
        self._enter()
        number = rmq_find_queue(self.dispatcher, name, len(name), queue_id)
        self._leave(number)
        rmq_queue_at(self.dispatcher, number).next = queue_offset

    def place(self, uint8_t[::1] window not None, *, int64_t at, int64_t size, int64_t position, int64_t segment_end,
              bint verify_crc=True):
        cdef rmq_finding why = rmq_finding(0, 0)
        cdef rmq_staged staged
        cdef int64_t count = 0
        cdef int failed, status = RMQ_LIMIT
        if not 0 <= at <= size <= window.shape[0]:
            raise ValueError(f"expected 0 <= at <= size <= {window.shape[0]}, found at {at}, size {size}")
        if not 0 <= position <= segment_end:
            raise ValueError(f"expected 0 <= position <= segment_end, found {position} and {segment_end}")
        staged = rmq_staged(<uint8_t *>_address(window), at, size, position, segment_end, verify_crc)
        self._enter()
        with nogil:
            failed = rmq_place(self.dispatcher, &staged, &count, &status, &why)
        self._leave(failed)
        return count, staged.at, _STATUS[status], why.expected, why.found

    def dispatch(self, const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop,
                 int64_t segment_end, bint verify_crc, int64_t most):
        cdef int64_t at = position, count = 0, size = window.shape[0]
        cdef rmq_finding why = rmq_finding(0, 0)
        cdef const uint8_t *bytes_ = _address(window)
        cdef int failed, status = RMQ_MORE
        _check_offsets(size, base, position, segment_end)
        if position - base > size:
            return 0, position, Status.MORE, RMQ_BLANK_SIZE, 0
        self._enter()
        with nogil:
            failed = rmq_dispatch(self.dispatcher, bytes_, size, base, &at, stop, segment_end, verify_crc, most, &count,
                                  &status, &why)
        self._leave(failed)
        return count, at, _STATUS[status], why.expected, why.found

    def finish(self):
        self._enter()
        cdef rmq_dispatcher *d = self.dispatcher
        cdef int64_t n = d.units.size, m = d.entries.size, i, runs_count
        queue, size = np.empty(n, np.int32), np.empty(n, np.int32)
        queue_offset, position, tags_code = (np.empty(n, np.int64) for _ in range(3))
        key_hash, key_position, key_timestamp = np.empty(m, np.int32), np.empty(m, np.int64), np.empty(m, np.int64)
        units, runs = np.empty(RMQ_QUEUE_UNIT_SIZE * n, np.uint8), np.empty((n, 3), np.int64)
        cdef int32_t[::1] queue_view = queue, size_view = size, key_hash_view = key_hash
        cdef int64_t[::1] queue_offset_view = queue_offset, position_view = position, tags_code_view = tags_code
        cdef int64_t[::1] key_position_view = key_position, key_timestamp_view = key_timestamp
        cdef uint8_t[::1] units_view = units
        cdef int64_t[:, ::1] runs_view = runs
        cdef uint8_t *units_at = &units_view[0] if n else NULL
        cdef rmq_run *runs_at = <rmq_run *>&runs_view[0, 0] if n else NULL
        cdef const rmq_queue_unit *unit = <const rmq_queue_unit *>d.units.data
        cdef const rmq_index_entry *entry = <const rmq_index_entry *>d.entries.data
        with nogil:
            for i in range(n):
                queue_view[i] = unit[i].queue
                queue_offset_view[i] = unit[i].queue_offset
                position_view[i] = unit[i].position
                size_view[i] = unit[i].size
                tags_code_view[i] = unit[i].tags_code
            for i in range(m):
                key_hash_view[i] = <int32_t>entry[i].hash
                key_position_view[i] = entry[i].position
                key_timestamp_view[i] = entry[i].timestamp
            runs_count = rmq_group(d, units_at, runs_at)
        dispatched = Dispatched(
            queue, queue_offset, position, size, tags_code, key_hash, key_position, key_timestamp, units,
            runs[:runs_count, 0].astype(np.int32), runs[:runs_count, 1].copy(), runs[:runs_count, 2].copy(),
            d.last_timestamp, d.inner_batches,
        ) if runs_count >= 0 else None
        self._leave(runs_count)
        rmq_forget(d)
        return dispatched


def put_index(uint8_t[::1] file not None, *, int32_t slots, int32_t items, const int32_t[::1] key_hash not None,
              const int64_t[::1] key_position not None, const int64_t[::1] key_timestamp not None, int64_t start=0,
              previous_end=(0, 0)):
    cdef int64_t n = key_hash.shape[0], end = start
    cdef int64_t expected = RMQ_INDEX_HEADER_SIZE
    cdef int64_t previous_timestamp, previous_offset
    cdef const int32_t *hashes
    cdef const int64_t *positions
    cdef const int64_t *timestamps
    previous_timestamp, previous_offset = previous_end
    if slots < 1 or items < 1:
        raise ValueError(f"an index file has slots and items, found {slots} and {items}")
    expected += <int64_t>RMQ_INDEX_SLOT_SIZE * slots + <int64_t>RMQ_INDEX_ITEM_SIZE * items
    if file.shape[0] != expected:
        raise ValueError(f"an index file of {slots} slots and {items} items has {expected} bytes, found {file.shape[0]}")
    if n != key_position.shape[0] or n != key_timestamp.shape[0] or not 0 <= start <= n:
        raise ValueError(
            f"expected as many hashes as positions and timestamps, and a start among them, found {n}, "
            f"{key_position.shape[0]}, {key_timestamp.shape[0]} and {start}"
        )
    if n == start:
        return start
    hashes, positions, timestamps = &key_hash[0], &key_position[0], &key_timestamp[0]
    with nogil:
        end = rmq_put_index(&file[0], <uint32_t>slots, items, hashes, positions, timestamps, start, n,
                            previous_timestamp, previous_offset)
    if end < 0:
        raise ValueError(f"a key hash is 0 or more, found {key_hash[-1 - end]} at {-1 - end}")
    return end


def java_hash(str text not None):
    cdef bytes units
    cdef const uint8_t *p
    cdef uint32_t value = 0
    cdef Py_ssize_t i
    if text.isascii():
        units = text.encode()
        value = rmq_java_hash(0, units, len(units))
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        p = units
        for i in range(0, len(units), 2):
            value = 31 * value + (<uint32_t>p[i] << 8 | p[i + 1])
    return <int32_t>value


def java_hashes(texts):
    cdef object schema_capsule, array_capsule
    cdef int64_t i, size = 0
    cdef const uint8_t *text
    cdef int32_t[::1] view
    cdef rmq_in column
    schema_capsule, array_capsule = texts.__arrow_c_array__()
    cdef const ArrowSchema *schema = <const ArrowSchema *>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
    cdef const ArrowArray *array = <const ArrowArray *>PyCapsule_GetPointer(array_capsule, "arrow_array")
    if not rmq_has_format(schema, b"u", 0):
        raise TypeError(f"expected an array of Arrow format 'u', found {_text(schema.format)}")
    if rmq_read_column(&column, array, 0, array.length, b"u") != 0:
        raise ValueError(_NOT_SOUND)
    hashes = np.zeros(array.length, np.int32)
    view = hashes
    with nogil:
        for i in range(view.shape[0]):
            if rmq_in_valid(&column, i):
                text = rmq_in_text(&column, i, &size)
                view[i] = <int32_t>rmq_java_hash(0, text, size)
    return hashes
