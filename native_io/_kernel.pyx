# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The compiled kernel: buffers in, arrays out. The loops are C (unit.h, decode.h, ...); this is their Python face.

It knows the wire layout of a message unit and Arrow's layout, and nothing of files, options or Spark. Every function is
safe on any bytes, releases the GIL while it works, and keeps no state outside the objects it is given.
"""
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

import enum
import os


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

cdef extern from "arrow.h" nogil:
    cdef struct ArrowArray:
        void (*release)(ArrowArray *)
    int rmq_export(ArrowArray *array, rmq_decoder *d, const int *order, int64_t n)
    void rmq_free_decoder(rmq_decoder *d)


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
