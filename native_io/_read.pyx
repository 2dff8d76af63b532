# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Reading: where units are in the bytes of a log, which of them are selected, and their fields as Arrow columns.

What is declared from C stands in _read.pxd and _common.pxd, what the functions answer in _read.pyi.
"""
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from native_io._common cimport (
    RMQ_ASK, RMQ_AT_QUEUE_ID, RMQ_MORE, ArrowArray, OneAtATime, address, begin_walk, check_offsets, end_walk,
    rmq_finding, rmq_i32, rmq_unit, rmq_walk, status_of,
)

import os

from native_io._common import Status

# In the order of decode.h.
COLUMNS = (
    "topic", "queueId", "queueOffset", "tags", "keys", "msgId", "offsetMsgId", "body", "properties", "flag", "sysFlag",
    "bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset",
    "commitLogOffset", "storeSize", "bodyCRC",
)
assert len(COLUMNS) == RMQ_COLUMNS


def scan(const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop, int64_t segment_end,
         bint verify_crc, int64_t[::1] positions not None):
    cdef rmq_walk walk
    cdef int64_t capacity = positions.shape[0]
    cdef int64_t *out = &positions[0] if capacity else NULL
    if begin_walk(&walk, address(window), window.shape[0], base, position, stop, segment_end, verify_crc):
        with nogil:
            rmq_scan(&walk, out, capacity)
    return end_walk(&walk)


def find_unit(const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop,
              int64_t segment_end, bint verify_crc):
    cdef rmq_walk walk
    # Also where the window ends before the position: then the answer may still be that there is none.
    begin_walk(&walk, address(window), window.shape[0], base, position, stop, segment_end, verify_crc)
    with nogil:
        rmq_find(&walk)
    return walk.position, status_of(walk.status), walk.why.expected if walk.status == RMQ_MORE else 0


cdef rmq_bounds _bounds(pair) except *:
    least, most = pair  # not pair[0], pair[1]: with boundscheck=False they are not checked
    return rmq_bounds(least, most)


cdef class Filter(OneAtATime):
    cdef rmq_filter filter
    cdef object judge

    def __cinit__(self, *, store_timestamp, commit_log_offset, judge):
        self.filter.store_timestamp = _bounds(store_timestamp)
        self.filter.physical_offset = _bounds(commit_log_offset)
        self.filter.any_queue = judge is None
        self.judge = judge

    def __dealloc__(self):
        rmq_free_filter(&self.filter)

    cdef int _ask(self, const rmq_unit *unit) except -1:
        cdef int32_t queue_id = rmq_i32(unit.start + RMQ_AT_QUEUE_ID)
        selected = self.judge(unit.topic[:unit.topic_length], queue_id)
        cdef rmq_bounds bounds = rmq_bounds(0, -1) if selected is None else _bounds(selected)
        if rmq_judge(&self.filter, unit.topic, unit.topic_length, queue_id, bounds) != 0:
            raise MemoryError()
        return 0

    def scan(self, const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop,
             int64_t segment_end, bint verify_crc, int64_t[::1] positions not None):
        cdef rmq_walk walk
        cdef rmq_unit asked
        cdef int64_t capacity = positions.shape[0]
        cdef int64_t *out = &positions[0] if capacity else NULL
        if not begin_walk(&walk, address(window), window.shape[0], base, position, stop, segment_end, verify_crc):
            return end_walk(&walk)
        self.enter()
        try:
            while True:
                with nogil:
                    rmq_select(&self.filter, &walk, out, capacity, &asked)
                if walk.status != RMQ_ASK:
                    return end_walk(&walk)
                self._ask(&asked)
        finally:
            self.leave()

    def pick(self, const uint8_t[::1] window not None, *, int64_t segment_end, bint verify_crc,
             const int64_t[::1] positions not None, const int64_t[::1] window_offsets not None,
             const int64_t[::1] lengths not None, const int32_t[::1] sizes, const int64_t[::1] queue_offsets,
             int64_t[::1] chosen not None):
        cdef int64_t n = positions.shape[0]
        cdef rmq_unit asked
        cdef rmq_claims claims
        cdef const int32_t *sizes_at = NULL
        cdef const int64_t *offsets_at = NULL
        cdef int status = RMQ_ASK
        if min(window_offsets.shape[0], lengths.shape[0], chosen.shape[0]) < n or (
                sizes is not None and sizes.shape[0] < n) or (
                queue_offsets is not None and queue_offsets.shape[0] < n):
            raise ValueError(f"{n} positions need as many window_offsets, lengths, sizes, queue offsets and answers")
        check_offsets(window.shape[0], 0, 0, segment_end)
        if n == 0:
            return 0, 0, Status.LIMIT, 0, 0
        if sizes is not None:
            sizes_at = &sizes[0]
        if queue_offsets is not None:
            offsets_at = &queue_offsets[0]
        claims = rmq_claims(address(window), window.shape[0], &positions[0], &window_offsets[0], &lengths[0], sizes_at,
                            offsets_at, n, segment_end, verify_crc, 0, 0, rmq_finding(0, 0))
        self.enter()
        try:
            while status == RMQ_ASK:
                with nogil:
                    status = rmq_pick(&self.filter, &claims, &chosen[0], &asked)
                if status == RMQ_ASK:
                    self._ask(&asked)
        finally:
            self.leave()
        return claims.selected, claims.taken, status_of(status), claims.why.expected, claims.why.found


def gather(int fd, const int64_t[::1] offsets not None, const int32_t[::1] sizes not None,
           uint8_t[::1] buffer not None, int64_t[::1] window_offsets not None, int64_t[::1] lengths not None, *,
           int64_t slack):
    cdef int64_t n = offsets.shape[0], done = 0
    cdef rmq_gathered out
    if min(sizes.shape[0], window_offsets.shape[0], lengths.shape[0]) < n:
        raise ValueError(f"{n} offsets need as many sizes, window_offsets and lengths")
    if n == 0 or buffer.shape[0] == 0:
        return 0, 0, 0
    out.buffer = &buffer[0]
    out.capacity = buffer.shape[0]
    out.window_offsets = &window_offsets[0]
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


cdef class Decoder(OneAtATime):
    cdef rmq_decoder *decoder
    cdef int *order
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
            self.decoder.asked |= <uint32_t>1 << self.order[i]

    def __dealloc__(self):
        if self.decoder != NULL:
            rmq_free_decoder(self.decoder)
        PyMem_Free(self.order)

    cdef int done(self, int status, int64_t wrong) except -1:
        # After an error the columns may differ in length, so the decoder stays shut.
        if status == -1:
            raise MemoryError()
        if status == -2:
            raise OverflowError("a column of one batch would pass 2 GiB")
        if status == 1:
            raise ValueError(f"there is no message unit at {wrong}")
        self.leave()
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
        self.enter()  # else another thread may be moving the text just now
        cdef bint found = rmq_not_ascii(self.decoder) != 0
        self.leave()
        return found

    def append(self, const uint8_t[::1] window not None, const int64_t[::1] positions not None, *, int64_t base,
               const int64_t[::1] window_offsets=None):
        cdef int64_t size = window.shape[0], count = positions.shape[0], wrong = 0
        cdef const uint8_t *bytes_ = address(window)
        cdef const int64_t *at = &positions[0] if count else NULL
        cdef const int64_t *in_window = NULL
        cdef int status
        if window_offsets is not None:
            if window_offsets.shape[0] < count:
                raise ValueError(f"{count} positions need as many window_offsets")
            in_window = &window_offsets[0] if count else NULL
        self.enter()
        with nogil:
            status = rmq_append(self.decoder, bytes_, size, base, at, in_window, count, &wrong)
        self.done(status, wrong)

    def scan(self, const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop,
             int64_t segment_end, bint verify_crc, int64_t most):
        cdef rmq_walk walk
        cdef int failed
        if begin_walk(&walk, address(window), window.shape[0], base, position, stop, segment_end, verify_crc):
            self.enter()
            with nogil:
                failed = rmq_decode(self.decoder, &walk, most)
            self.done(failed, 0)
        return end_walk(&walk)

    def finish(self):
        cdef int64_t n = len(self.columns)
        cdef ArrowArray *array
        cdef int status
        self.enter()
        array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        if array == NULL:
            raise MemoryError()
        with nogil:
            status = rmq_export(array, self.decoder, self.order, n)
        if status != 0:
            free(array)
        self.done(status, 0)
        return PyCapsule_New(array, "arrow_array", _free_array)
