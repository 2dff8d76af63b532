# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Reading: where units are in the bytes of a log, which of them are selected, and their fields as Arrow columns.

What is declared from C stands in _read.pxd and _common.pxd, what the functions answer in _read.pyi.
"""
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

from native_io._common cimport (
    RMQ_ASK, RMQ_AT_QUEUE_ID, RMQ_LIMIT, RMQ_MORE, RMQ_OK, ArrowArray, OneAtATime, Wrapping, address, begin_walk, check_offsets, end_walk,
    rmq_finding, rmq_i32, rmq_unit, rmq_walk, walked,
)

import collections
import enum
import re

import numpy as np

# In the order of decode.h.
COLUMNS = (
    "topic", "queueId", "queueOffset", "tags", "keys", "msgId", "offsetMsgId", "body", "properties", "flag", "sysFlag",
    "bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset",
    "commitLogOffset", "storeSize", "bodyCRC",
)
BATCH_INDEX = "batchIndex"  # the column after them
assert len(COLUMNS) + 1 == RMQ_COLUMNS
# In the order of zstd_frame.h.
ZSTD_FUNCTIONS = ("ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_decompressDCtx")

# Sizes of ConsumeQueue units, and of what two kinds of them say that a message has.
QUEUE_FORMAT = {
    "UNIT_SIZE": RMQ_QUEUE_UNIT_SIZE,
    "BATCH_UNIT_SIZE": RMQ_BATCH_QUEUE_UNIT_SIZE,
    "PRE_BLANK": RMQ_PRE_BLANK_SIZE,
    "LOST": RMQ_LOST_UNIT_SIZE,
}
# Of the array that queue_units() makes.
QUEUE_COLUMNS = ("numbers", "positions", "sizes", "tags_codes", "queue_offsets", "messages", "store_times")


class UnitKind(enum.IntEnum):
    NOTHING = RMQ_UNIT_IS_NOTHING
    PRE_BLANK = RMQ_UNIT_IS_PRE_BLANK
    LOST = RMQ_UNIT_IS_LOST
    MESSAGE = RMQ_UNIT_IS_MESSAGE


# In the order of conditions.h.
_FIELDS = ("queueOffset", "commitLogOffset", "storeTimestamp", "offsetMsgId", "tags", "keys", "word", "msgId",
           "lightQueue", "property", "body", "properties")
assert len(_FIELDS) == RMQ_BY_PROPERTIES + 1
_OFFSET_MSG_ID = re.compile("[0-9A-F]{32}(?:[0-9A-F]{24})?")  # with an IPv4 and an IPv6 host
_SHOWN = "\N{REPLACEMENT CHARACTER}"  # for what is no UTF-8


def scan(const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop, int64_t segment_end,
         bint verify_crc, int64_t[::1] positions not None, Wrapping wrapping=None):
    cdef rmq_walk walk
    cdef int64_t capacity = positions.shape[0]
    cdef int64_t *out = &positions[0] if capacity else NULL
    if begin_walk(&walk, address(window), window.shape[0], base, position, stop, segment_end, verify_crc, wrapping):
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
    walk.count = walk.status == RMQ_OK
    if walk.status != RMQ_MORE:  # else what was compared last says nothing of the answer
        walk.why = rmq_finding(0, 0)
    return end_walk(&walk)


_ANY = -(1 << 63), (1 << 63) - 1


cdef rmq_bounds _bounds(pair) except *:
    least, most = pair  # not pair[0], pair[1]: with boundscheck=False they are not checked
    return rmq_bounds(least, most)


def _as_stored(int field, values):
    """The values of a field as conditions.h takes them, without those that no unit can have."""
    if field < RMQ_BY_OFFSET_MSG_ID:
        stored = {int.to_bytes(value, 8, "big", signed=True) for value in values}
    elif field == RMQ_BY_OFFSET_MSG_ID:
        stored = {bytes.fromhex(value) for value in values if _OFFSET_MSG_ID.fullmatch(value)}
    elif field == RMQ_BY_PROPERTY:
        stored = {f"{name}\1{value}".encode() for name, value in values.items()}
    elif field == RMQ_BY_BODY:
        stored = set(values)
    elif field == RMQ_BY_PROPERTIES:
        return [name.encode() for name in values]  # in their order, as the judge takes them
    else:
        stored = {str.encode(value) for value in values}
    return sorted(stored, key=lambda value: (len(value), value))


cdef rmq_zstd_library zstd_library(addresses) except *:
    """The functions of libzstd at these addresses; none where one is 0."""
    cdef uintptr_t[3] functions
    if len(addresses) != len(ZSTD_FUNCTIONS):
        raise ValueError(f"zstd must be the addresses of {ZSTD_FUNCTIONS}")
    for i, at in enumerate(addresses):
        functions[i] = at if all(addresses) else 0
    return rmq_zstd_library_at(functions)


cdef int judge_body(void *asked, const uint8_t *body, int64_t n, int32_t sys_flag) noexcept with gil:
    """Whether to select a message whose body the kernel does not decompress. After an error it is: whoever decompresses
    the body then meets the same."""
    cdef Filter self = <Filter>asked
    try:
        return self.body_judge is None or bool(self.body_judge(body[:n], sys_flag))
    except Exception:
        return True


cdef int judge_properties(void *asked, const rmq_text *texts, int64_t count) noexcept with gil:
    """What the judge says of the values of properties. After an error nothing is selected, and the walk ends with it."""
    cdef Filter self = <Filter>asked
    cdef int64_t i
    if self.failure is not None:
        return False
    try:
        return bool(self.properties_judge(tuple([
            None if texts[i].bytes == NULL else texts[i].bytes[:texts[i].size] for i in range(count)])))
    except BaseException as why:
        self.failure = why
        return False


cdef rmq_copies copies_after(after) except *:
    if after is None:
        return rmq_copies(False, 0, 0)
    queue_offset, sys_flag = after
    return rmq_copies(True, rmq_batch_kind(sys_flag), queue_offset)


cdef class Filter(OneAtATime):
    def __cinit__(self, *, store_timestamp=_ANY, commit_log_offset=_ANY, judge=None, conditions=(), bint explodes=False,
                  body_judge=None, zstd=(0, 0, 0), properties_judge=None):
        cdef rmq_zstd_library library = zstd_library(zstd)
        self.filter.explodes = explodes
        self.filter.store_timestamp = _bounds(store_timestamp)
        self.filter.physical_offset = _bounds(commit_log_offset)
        self.filter.any_queue = judge is None
        self.judge = judge
        self.body_judge = body_judge
        self.properties_judge = properties_judge
        for number, condition in enumerate(conditions):
            if not condition or not set(condition) <= set(_FIELDS):
                raise ValueError(f"a condition must be about some of {_FIELDS}, found {condition}")
            for name, values in condition.items():
                if name in ("property", "body") and len(values) != 1:
                    raise ValueError(f"a condition on {name} has one value, found {len(values)}")
                if name == "properties" and (properties_judge is None or len(values) > RMQ_MOST_JUDGED_PROPERTIES):
                    raise ValueError(f"properties need a judge, and are {RMQ_MOST_JUDGED_PROPERTIES} at most")
                self._add(number, _FIELDS.index(name), values)
                if name == "properties":
                    self._ask_of_properties()
                if name == "body":
                    self._search(&library)

    def __dealloc__(self):
        rmq_free_filter(&self.filter)

    def leave_out_copies(self, after):
        self.enter()
        self.filter.copies = copies_after(after)
        self.leave()

    @property
    def copies_after(self):
        cdef rmq_copies copies = self.filter.copies
        return (copies.queue_offset, copies.kind) if copies.are_left_out else None

    cdef int _search(self, const rmq_zstd_library *library) except -1:
        cdef rmq_values *added = <rmq_values *>self.filter.conditions.data + self.filter.conditions.size - 1
        added.body = rmq_new_body_search(library, judge_body, <void *>self)
        if added.body == NULL:
            raise MemoryError()
        self.filter.looks_in_bodies = True
        return 0

    cdef int _ask_of_properties(self) except -1:
        cdef rmq_values *added = <rmq_values *>self.filter.conditions.data + self.filter.conditions.size - 1
        added.judge = judge_properties
        added.asked = <void *>self
        return 0

    cdef int fail(self) except -1:
        if self.failure is not None:
            why, self.failure = self.failure, None
            raise why
        return 0

    cdef int _add(self, int number, int field, values) except -1:
        cdef rmq_values *added = rmq_add_values(&self.filter.conditions, number, field)
        cdef bytes value
        if added == NULL:
            raise MemoryError()
        for value in _as_stored(field, values):
            if rmq_add_value(added, <const uint8_t *><const char *>value, len(value)) != 0:
                raise MemoryError()
            if field == RMQ_BY_LIGHT_QUEUE and rmq_add_bounds(added, _bounds(values[value.decode()])) != 0:
                raise MemoryError()
        texts = values.values() if field == RMQ_BY_PROPERTY else () if field == RMQ_BY_BODY else values
        if field > RMQ_BY_OFFSET_MSG_ID and any(_SHOWN in value for value in texts):
            if rmq_compare_as_shown(added) != 0:
                raise MemoryError()
        return 0

    cdef int ask(self, const rmq_unit *unit) except -1:
        cdef int32_t queue_id = rmq_i32(unit.start + RMQ_AT_QUEUE_ID)
        selected = self.judge(unit.topic[:unit.topic_length], queue_id)
        cdef rmq_bounds bounds = rmq_bounds(0, -1) if selected is None else _bounds(selected)
        if rmq_judge(&self.filter, unit.topic, unit.topic_length, queue_id, bounds) != 0:
            raise MemoryError()
        return 0

    def scan(self, const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop,
             int64_t segment_end, bint verify_crc, int64_t[::1] positions not None, Wrapping wrapping=None):
        cdef rmq_walk walk
        cdef rmq_unit asked
        cdef int64_t capacity = positions.shape[0]
        cdef int64_t *out = &positions[0] if capacity else NULL
        if not begin_walk(&walk, address(window), window.shape[0], base, position, stop, segment_end, verify_crc,
                          wrapping):
            return end_walk(&walk)
        self.enter()
        try:
            while True:
                with nogil:
                    rmq_select(&self.filter, &walk, out, capacity, &asked)
                self.fail()
                if walk.status != RMQ_ASK:
                    return end_walk(&walk)
                self.ask(&asked)
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
            return walked(0, 0, RMQ_LIMIT, 0, 0)
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
                self.fail()
                if status == RMQ_ASK:
                    self.ask(&asked)
        finally:
            self.leave()
        return walked(claims.selected, claims.taken, status, claims.why.expected, claims.why.found)


def queue_units(const uint8_t[::1] units not None, int64_t number, *, int64_t unit_size):
    cdef int64_t count
    cdef int64_t[:, ::1] found
    cdef uint8_t[::1] kinds
    cdef rmq_unit_columns to
    check_unit_size(unit_size)
    count = units.shape[0] // unit_size
    columns, which = np.empty((len(QUEUE_COLUMNS), count), np.int64), np.empty(count, np.uint8)
    if count == 0:
        return columns, which
    found, kinds = columns, which
    to = rmq_unit_columns(&found[0, 0], &found[1, 0], &found[2, 0], &found[3, 0], &found[4, 0], &found[5, 0],
                          &found[6, 0], &kinds[0])
    with nogil:
        rmq_read_queue_units(&units[0], count, number, unit_size == RMQ_BATCH_QUEUE_UNIT_SIZE, &to)
    return columns, which


def queue_unit(const uint8_t[::1] unit not None, int64_t number, *, int64_t unit_size):
    cdef int64_t position, size, tags_code, queue_offset, messages, store_time
    cdef uint8_t kind
    cdef rmq_unit_columns to
    check_unit_size(unit_size)
    if unit.shape[0] < unit_size:
        return None
    to = rmq_unit_columns(&number, &position, &size, &tags_code, &queue_offset, &messages, &store_time, &kind)
    rmq_read_queue_units(&unit[0], 1, number, unit_size == RMQ_BATCH_QUEUE_UNIT_SIZE, &to)
    return number, position, size, tags_code, queue_offset, messages, kind


def last_used_unit(const uint8_t[::1] units not None, *, int64_t unit_size):
    cdef int64_t index
    check_unit_size(unit_size)
    index = units.shape[0] // unit_size - 1
    while index >= 0 and rmq_kind_of_unit(&units[index * unit_size],
                                          unit_size == RMQ_BATCH_QUEUE_UNIT_SIZE) == RMQ_UNIT_IS_NOTHING:
        index -= 1
    return index


def first_unit_from(const int64_t[::1] positions not None, const uint8_t[::1] kinds not None, int64_t position, *,
                    int64_t index=0):
    cdef int64_t count = positions.shape[0]
    if kinds.shape[0] != count:
        raise ValueError(f"{count} positions need as many kinds, found {kinds.shape[0]}")
    index = max(index, 0)
    while index < count and rmq_is_unit_before(<rmq_unit_kind>kinds[index], positions[index], position):
        index += 1
    return min(index, count)


def comes_before(const uint8_t[::1] unit not None, int64_t position, *, int64_t unit_size):
    check_unit_size(unit_size)
    return unit.shape[0] >= unit_size and bool(
        rmq_unit_comes_before(&unit[0], unit_size == RMQ_BATCH_QUEUE_UNIT_SIZE, position))


cdef int check_unit_size(int64_t unit_size) except -1:
    if unit_size not in (RMQ_QUEUE_UNIT_SIZE, RMQ_BATCH_QUEUE_UNIT_SIZE):
        raise ValueError(f"unit_size {unit_size}: there is none")
    return 0


cdef class QueueWalk(OneAtATime):
    cdef rmq_queue_walk walk
    cdef int64_t[::1] positions, queue_offsets
    cdef int32_t[::1] sizes

    def __cinit__(self):
        self.walk = rmq_queue_walk(0, 0, 0, 0, 0, NULL, NULL, NULL, 0, 0)

    def fill(self, int64_t[::1] positions not None, int32_t[::1] sizes not None, int64_t[::1] queue_offsets not None):
        cdef int64_t n = positions.shape[0]
        if n == 0 or sizes.shape[0] != n or queue_offsets.shape[0] != n:
            raise ValueError(f"{n} positions need as many sizes and queue offsets, and at least one")
        self.enter()
        self.positions, self.sizes, self.queue_offsets = positions, sizes, queue_offsets
        self.walk.positions, self.walk.sizes, self.walk.queue_offsets = &positions[0], &sizes[0], &queue_offsets[0]
        self.walk.rows, self.walk.capacity = 0, n
        self.leave()

    def begin(self, int64_t number, *, int64_t unit_size, int64_t start, int64_t stop):
        check_unit_size(unit_size)
        if not 0 <= number < 1 << 62:
            raise ValueError(f"number {number}: no unit has it")
        self.enter()
        self.walk.unit_size, self.walk.number, self.walk.start, self.walk.stop = unit_size, number, start, stop
        self.walk.end = 0
        self.leave()

    def take(self, const uint8_t[::1] units not None):
        cdef int64_t count, done
        cdef const uint8_t *first = address(units)
        if self.walk.unit_size == 0 or self.walk.capacity == 0:
            raise ValueError("no queue was begun, or there is nothing to fill")
        self.enter()
        count = units.shape[0] // self.walk.unit_size
        with nogil:
            done = rmq_take_units(&self.walk, first, count)
        self.leave()
        return done

    @property
    def rows(self):
        return self.walk.rows

    def drop(self, int64_t rows):
        if not 0 <= rows <= self.walk.rows:
            raise ValueError(f"there are {self.walk.rows} rows, not {rows}")
        self.walk.rows -= rows


class Tiles(collections.namedtuple("Tiles", (
        "open_ends", "furthest", "counts", "crossed", "asked_counts", "asked_prints", "asked_bytes", "latest",
        "followed"))):
    __slots__ = ()


cdef class Tiling(OneAtATime):
    def __cinit__(self, const int64_t[::1] starts not None, const int64_t[::1] stops not None,
                  const int64_t[::1] segments not None, const int64_t[::1] headers=None):
        cdef int64_t n = starts.shape[0]
        if n == 0 or stops.shape[0] != n or segments.shape[0] != n:
            raise ValueError(f"{n} starts need as many stops and segments")
        cdef int64_t[:, ::1] found = np.zeros((len(Tiles._fields), n), np.int64)
        if headers is not None and headers.shape[0] != n:
            raise ValueError(f"{n} starts need as many headers, found {headers.shape[0]}")
        self.starts, self.stops, self.segments, self.found, self.headers = starts, stops, segments, found, headers
        self.tiling.headers = NULL
        if headers is not None:
            self.tiling.headers = &headers[0]
        self.tiling.starts, self.tiling.stops, self.tiling.stretches = &starts[0], &stops[0], n
        self.tiling.segments = &segments[0]
        self.tiling.open_ends = <uint64_t *>&found[0, 0]
        self.tiling.furthest = &found[1, 0]
        self.tiling.counts = &found[2, 0]
        self.tiling.crossed = &found[3, 0]
        self.tiling.asked_counts = &found[4, 0]
        self.tiling.asked_prints = <uint64_t *>&found[5, 0]
        self.tiling.asked_bytes = &found[6, 0]
        self.tiling.latest = &found[7, 0]
        self.tiling.followed = &found[8, 0]
        self.tiling.unit_size = self.tiling.queue_count = self.tiling.queue_bytes = 0
        self.tiling.first.position = -1

    def begin(self, int64_t number, *, int64_t unit_size, bint asked):
        check_unit_size(unit_size)
        self.enter()
        rmq_begin_tiling(&self.tiling, number, unit_size, asked)
        self.leave()

    def add(self, const uint8_t[::1] units not None):
        cdef int64_t count
        cdef const uint8_t *first = address(units)
        cdef bint goes_on
        if self.tiling.unit_size == 0:
            raise ValueError("no queue was begun")
        self.enter()
        count = units.shape[0] // self.tiling.unit_size
        with nogil:
            goes_on = rmq_add_units(&self.tiling, first, count)
        self.leave()
        return goes_on

    @property
    def tiles(self):
        return Tiles(*np.asarray(self.found))

    @property
    def units(self):
        return self.tiling.queue_count, self.tiling.queue_bytes

    @property
    def ends(self):
        cdef rmq_tile first = self.tiling.first, last = self.tiling.last
        if first.position < 0:
            return []
        found = [(first.position, first.size, first.queue_offset), (last.position, last.size, last.queue_offset)]
        return found[first.position == last.position:]


def fingerprint(const int64_t[::1] offsets not None):
    cdef uint64_t total = 0
    cdef int64_t i
    for i in range(offsets.shape[0]):
        total += rmq_fingerprint(offsets[i])
    return <int64_t>total


cdef void _free_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


def array_address(capsule):
    return <uintptr_t>PyCapsule_GetPointer(capsule, "arrow_array")


cdef class Decoder(OneAtATime):
    def __cinit__(self, columns, *, bint explodes=False, int64_t expand=0, zstd=(0, 0, 0)):
        cdef rmq_zstd_library library
        self.columns = tuple(columns)
        known = (*COLUMNS, BATCH_INDEX)
        unknown = [name for name in self.columns if name not in known]
        if unknown or len(set(self.columns)) != len(self.columns):
            raise ValueError(f"columns must be different names out of {known}, found {self.columns}")
        self.decoder = rmq_new_decoder()
        self.order = <int *>PyMem_Malloc((len(self.columns) + 1) * sizeof(int))
        if self.decoder == NULL or self.order == NULL:
            raise MemoryError()
        self.decoder.explodes = explodes
        for i, name in enumerate(self.columns):
            self.order[i] = known.index(name)
            self.decoder.asked |= <uint32_t>1 << self.order[i]
        if expand < 0 or expand >= 1 << 31 or len(zstd) != len(ZSTD_FUNCTIONS):
            raise ValueError(f"expand must be from 0 to 2 GiB and zstd the addresses of {ZSTD_FUNCTIONS}")
        library = zstd_library(zstd)
        if expand > 0:
            self.decoder.enough = expand
            self.decoder.expander = rmq_new_expander(&library)
            if self.decoder.expander == NULL:
                raise MemoryError()

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

    def leave_out_copies(self, after):
        self.enter()
        self.decoder.copies = copies_after(after)
        self.leave()

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
    def unexpanded(self):
        self.enter()  # else another thread may be moving the list just now
        cdef const int64_t *rows = <const int64_t *>self.decoder.unexpanded.data
        found = [rows[i] for i in range(self.decoder.unexpanded.size)]
        self.leave()
        return found

    @property
    def non_ascii(self):
        self.enter()  # else another thread may be moving the text just now
        cdef bint found = rmq_not_ascii(self.decoder) != 0
        self.leave()
        return found

    def append(self, const uint8_t[::1] window not None, const int64_t[::1] positions not None, *, int64_t base,
               const int64_t[::1] window_offsets=None, Filter chosen=None, int64_t most=1 << 40):
        cdef int64_t count = positions.shape[0]
        cdef rmq_filter *filter = NULL
        cdef rmq_places places
        cdef rmq_unit asked
        cdef int status = RMQ_ASK
        if window_offsets is not None and window_offsets.shape[0] < count:
            raise ValueError(f"{count} positions need as many window_offsets")
        if count == 0 or most <= 0:
            self.enter()
            self.leave()
            return 0
        places = rmq_places(address(window), window.shape[0], base, &positions[0], NULL, count, 0)
        if window_offsets is not None:
            places.window_offsets = &window_offsets[0]
        if chosen is not None:
            chosen.enter()
            filter = &chosen.filter
        try:
            self.enter()
            most = self.decoder.rows + min(most, 1 << 40)
            while True:
                with nogil:
                    status = rmq_append(self.decoder, filter, &places, most, &asked)
                if status != RMQ_ASK:
                    break
                chosen.ask(&asked)
        finally:
            if chosen is not None:
                chosen.leave()
        self.done(status, positions[places.taken] if status == 1 else 0)
        return places.taken

    def scan(self, const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop,
             int64_t segment_end, bint verify_crc, int64_t most, Wrapping wrapping=None):
        cdef rmq_walk walk
        cdef int failed
        if begin_walk(&walk, address(window), window.shape[0], base, position, stop, segment_end, verify_crc, wrapping):
            self.enter()
            with nogil:
                failed = rmq_decode(self.decoder, NULL, &walk, most, NULL)
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
        # Microseconds: to let go of the GIL would cost more, where another thread waits for it.
        status = rmq_export(array, self.decoder, self.order, n)
        if status != 0:
            free(array)
        self.done(status, 0)
        return PyCapsule_New(array, "arrow_array", _free_array)
