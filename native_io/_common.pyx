# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""What reading and writing share: the format's numbers, its two hashes, how a walk begins and ends, and the guard.

The kernel is four modules: this one, _read, _write and _io. The loops are C (see README.md); these are their Python face.
They know the wire layout of a message unit and Arrow's layout, and nothing of options or Spark; of files only _io knows.
Every function is safe on any bytes, releases the GIL while it works, and keeps no state outside the objects it is given.
"""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

import collections
import enum

import numpy as np


cdef extern from "crc32.h" nogil:
    uint32_t rmq_crc32_within(uint32_t crc, const uint8_t *p, size_t n, int bits)
    uint32_t rmq_crc32_between(uint32_t before, uint32_t all, uint64_t n)

cdef extern from "java_hash.h" nogil:
    uint32_t rmq_java_hash(uint32_t hash, const uint8_t *p, int64_t n)

cdef extern from "order.h" nogil:
    ctypedef struct rmq_entry:
        int64_t number
        int64_t term
        int64_t end
    int64_t rmq_in_order(const uint8_t *window, int64_t size, int64_t base, int64_t header, int64_t at_number,
                         int64_t at_term, const int64_t *positions, int64_t n, int follows, rmq_entry *last,
                         int *is_known)

cdef extern from "arrow_in.h" nogil:
    ctypedef struct rmq_in:
        pass
    int rmq_has_format(const ArrowSchema *schema, const char *format, int64_t children)
    int rmq_read_column(rmq_in *c, const ArrowArray *array, int64_t begin, int64_t n, char format)
    int rmq_in_valid(const rmq_in *c, int64_t row)
    const uint8_t *rmq_in_text(const rmq_in *c, int64_t row, int64_t *size)


# The format's numbers, as the C code has them: Python has no others.
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
    NOT_A_BATCH = RMQ_NOT_A_BATCH
    BAD_QUEUE_OFFSET = RMQ_BAD_QUEUE_OFFSET
    BAD_SYSFLAG = RMQ_BAD_SYSFLAG
    CROSSES_STOP = RMQ_CROSSES_STOP
    CONTRADICTED = RMQ_CONTRADICTED
    NO_ENTRY = RMQ_NO_ENTRY
    BAD_ENTRY = RMQ_BAD_ENTRY


cdef tuple _STATUS = tuple(Status)  # by value: an enum look-up by number costs more than a whole unit


class Walked(collections.namedtuple("Walked", ("units", "at", "status", "expected", "found"))):
    __slots__ = ()


cdef object _new_tuple = tuple.__new__  # a third of what Walked() takes, of which some are made for each unit looked up


cdef object walked(int64_t count, int64_t at, int status, int64_t expected, int64_t found):
    return _new_tuple(Walked, (count, at, _STATUS[status], expected, found))


# ---- walks


cdef int check_offsets(int64_t size, int64_t base, int64_t position, int64_t segment_end) except -1:
    # So that no sum or difference of offsets in C can leave the range of int64.
    if base < 0 or position < base:
        raise ValueError(f"position {position} lies before the window, which begins at {base}")
    if segment_end < 0 or size > INT64_MAX - base:
        raise ValueError(f"offsets reach from 0 to 2**63: segment end {segment_end}, window of {size} bytes at {base}")
    return 0


cdef class Wrapping:
    def __cinit__(self, int64_t header, int64_t at_size, int64_t at_position, int64_t at_body=-1, at_order=None):
        if not (16 <= header < 1 << 16 and 0 <= at_size <= header - 4 and 0 <= at_position <= header - 8):
            raise ValueError(f"no header of {header} bytes has a size at {at_size} and a position at {at_position}")
        if at_body > header - 4 or (at_order is not None and not 0 <= min(at_order) <= max(at_order) <= header - 8):
            raise ValueError(f"no header of {header} bytes has a body's size at {at_body}, and its order at {at_order}")
        self.wrapping = rmq_wrapping(header, at_size, at_position, at_body)
        self.fields = (header, at_size, at_position, at_body, at_order)

    @property
    def header(self):
        return self.wrapping.header

    @property
    def at_order(self):
        return self.fields[4]

    def entry_size(self, const uint8_t[::1] header not None, int64_t position):
        if header.shape[0] < self.wrapping.header or rmq_i64(&header[0] + self.wrapping.at_position) != position:
            return None
        size = rmq_i32(&header[0] + self.wrapping.at_size)
        return size if size >= self.wrapping.header else None

    def in_order(self, const uint8_t[::1] window not None, *, int64_t base, const int64_t[::1] positions not None, first,
                 end=None):
        cdef int64_t n = positions.shape[0], count = n
        cdef int known = first is not None, follows = end is not None
        cdef int64_t at_number, at_term
        cdef rmq_entry last = rmq_entry(0, 0, 0)
        cdef const uint8_t *start = address(window)
        check_offsets(window.shape[0], base, base, 0)
        at_number, at_term = self.fields[4]
        if known:
            last.number, last.term = first
        if follows:
            last.end = end
        if n:
            with nogil:
                count = rmq_in_order(start, window.shape[0], base, self.wrapping.header, at_number, at_term,
                                     &positions[0], n, follows, &last, &known)
        return count, (last.number, last.term) if known else None, last.end

    def __reduce__(self):
        return Wrapping, self.fields

    def __eq__(self, other):
        return isinstance(other, Wrapping) and self.fields == (<Wrapping>other).fields

    def __hash__(self):
        return hash(self.fields)

    def __repr__(self):
        return f"Wrapping{self.fields}"


cdef const rmq_wrapping *wrapping_of(Wrapping wrapping) noexcept:
    return NULL if wrapping is None else &wrapping.wrapping


cdef int begin_walk(rmq_walk *walk, const uint8_t *window, int64_t size, int64_t base, int64_t position, int64_t stop,
                    int64_t segment_end, bint verify_crc, Wrapping wrapping=None) except -1:
    check_offsets(size, base, position, segment_end)
    walk[0] = rmq_walk(window, size, base, stop, segment_end, verify_crc, position, 0, RMQ_MORE, rmq_finding(0, 0),
                       wrapping_of(wrapping))
    if position - base <= size:
        return 1
    walk.why.expected = RMQ_BLANK_SIZE
    return 0


cdef object end_walk(const rmq_walk *walk):
    return walked(walk.count, walk.position, walk.status, walk.why.expected, walk.why.found)


# ---- one thread at a time


cdef class OneAtATime:
    cdef int enter(self) except -1:
        if self.busy:
            raise RuntimeError(f"this {type(self).__name__} is in use by another thread, or failed earlier")
        self.busy = True
        return 0

    cdef void leave(self) noexcept:
        self.busy = False


# ---- hashes


def crc32(const uint8_t[::1] data not None, *, uint32_t before=0, int bits=512):
    cdef size_t size = data.shape[0]
    cdef const uint8_t *bytes_ = address(data)
    cdef uint32_t crc
    with nogil:
        crc = rmq_crc32_within(before, bytes_, size, bits)
    return crc


def crc32_between(uint32_t before, uint32_t all_, uint32_t size):
    return rmq_crc32_between(before, all_, size)


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
        raise TypeError(f"expected an array of Arrow format 'u', found {text_of(schema.format)}")
    if rmq_read_column(&column, array, 0, array.length, b"u") != 0:
        raise not_sound()
    hashes = np.zeros(array.length, np.int32)
    view = hashes
    with nogil:
        for i in range(view.shape[0]):
            if rmq_in_valid(&column, i):
                text = rmq_in_text(&column, i, &size)
                view[i] = <int32_t>rmq_java_hash(0, text, size)
    return hashes


# ---- Arrow


cdef object text_of(const char *text):
    return repr((<bytes>text).decode("utf-8", "backslashreplace")) if text != NULL else "nothing"


cdef object not_sound():
    return ValueError("the array does not keep to Arrow's layout")
