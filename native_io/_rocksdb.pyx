# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""RocksDB: records of its logs, entries of its tables, and the newest entry of each key.

What is declared from C stands in _rocksdb.pxd, what the functions answer in _rocksdb.pyi.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from native_io._common cimport address

import numpy as np

BLOCK_TRAILER = RMQ_BLOCK_TRAILER
SEQUENCE_SIZE = RMQ_SEQUENCE
NOT_IN_ORDER = RMQ_NOT_IN_ORDER
CRC32C_CHECKSUM = RMQ_CHECKSUM_CRC32C
XXH3_CHECKSUM = RMQ_CHECKSUM_XXH3

# In the order of rmq_log_status.
LOG_ENDS = ("end", "torn", "damaged", "unknown")
# In the order of rmq_block_status.
_BLOCK_FAULTS = (
    "", "restart points within the block", "an entry within the block", "a key that shares no more than there is",
    "a key with a sequence number", "keys that are in proportion to the block", "the handle of a block",
)
# In the order of rmq_batch_status.
_BATCH_FAULTS = (
    "", "sequence number and count", "a record within its batch", "a put or a deletion", "as many records as are counted",
)

UNKNOWN_RECORD = _BATCH_FAULTS[RMQ_BATCH_TYPE]


class NotSoundError(ValueError):
    def __init__(self, expected, position, part=0):
        super().__init__(f"expected {expected}")
        self.expected = expected
        self.position = position
        self.part = part


cdef int64_t *_numbers(int64_t[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef const int64_t *_given(const int64_t[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef uint8_t *_bytes(uint8_t[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


def crc32c(const uint8_t[::1] data not None, *, bint portable=False):
    cdef size_t size = data.shape[0]
    cdef const uint8_t *p = address(data)
    cdef uint32_t crc
    with nogil:
        crc = rmq_crc32c_portable(0, p, size) if portable else rmq_crc32c(0, p, size)
    return crc


def masked_crc32c(const uint8_t[::1] data not None):
    return rmq_masked(rmq_crc32c(0, address(data), data.shape[0]))


def xxh3(const uint8_t[::1] data not None):
    return rmq_xxh3(address(data), data.shape[0])


def table_checksum(const uint8_t[::1] data not None, *, int kind, uint64_t offset, uint32_t context):
    cdef uint32_t checksum = rmq_table_checksum(kind, address(data), data.shape[0])
    return <uint32_t>(checksum + rmq_checksum_of_place(context, offset))


def lz4_size(const uint8_t[::1] data not None):
    cdef int64_t size
    cdef const uint8_t *p = address(data)
    with nogil:
        size = rmq_lz4_size(p, data.shape[0])
    return size


def take_records(uint8_t[::1] data not None, *, uint32_t number=0):
    cdef rmq_log log
    cdef int64_t[::1] ends = np.empty(data.shape[0] // RMQ_LOG_HEADER, np.int64)
    cdef int64_t *into = _numbers(ends)
    log = rmq_log(_bytes(data), data.shape[0], number, 0, 0, 0, 0)
    with nogil:
        rmq_take_records(&log, into)
    return np.asarray(ends)[:log.records].copy(), LOG_ENDS[log.status], log.position


def check_blocks(const uint8_t[::1] data not None, const int64_t[::1] starts not None, const int64_t[::1] ends not None, *,
                 int kind, uint64_t offset, uint32_t context):
    cdef int64_t i, n = starts.shape[0], bad = -1
    cdef uint32_t expected
    cdef uint8_t[::1] kinds = np.empty(n, np.uint8)
    cdef const uint8_t *p = address(data)
    if ends.shape[0] != n:
        raise ValueError("as many starts as ends")
    with nogil:
        for i in range(n):
            if starts[i] < 0 or ends[i] < starts[i] or ends[i] > data.shape[0] - RMQ_BLOCK_TRAILER:
                bad = i
                break
            expected = rmq_table_checksum(kind, p + starts[i], ends[i] + 1 - starts[i])
            expected += rmq_checksum_of_place(context, offset + <uint64_t>starts[i])
            if rmq_le32(p + ends[i] + 1) != expected:
                bad = i
                break
            kinds[i] = p[ends[i]]
    return np.asarray(kinds), bad


def expand_lz4(const uint8_t[::1] data not None, const int64_t[::1] starts not None, const int64_t[::1] ends not None,
               const uint8_t[::1] are_packed not None, *, int64_t room, int64_t most, int64_t gain):
    cdef int64_t i, size, n = 0, total = 0, count = starts.shape[0]
    cdef uint64_t told
    cdef const uint8_t *p = address(data)
    cdef const uint8_t *q
    cdef uint8_t *to
    cdef int64_t[::1] bounds = np.zeros(count + 1, np.int64)
    cdef int64_t[::1] begins = np.empty(max(count, 1), np.int64)
    if ends.shape[0] != count or are_packed.shape[0] != count:
        raise ValueError("as many starts as ends")
    while n < count and (n == 0 or total < room):
        if starts[n] < 0 or ends[n] < starts[n] or ends[n] > data.shape[0]:
            raise ValueError("a block is not in the data")
        size, begins[n] = ends[n] - starts[n], starts[n]
        if are_packed[n]:
            q = rmq_varint(p + starts[n], p + ends[n], 32, &told)
            if q == NULL or told == 0 or <int64_t>told > most or <int64_t>told > gain * (size + 1):
                break
            size, begins[n] = <int64_t>told, q - p
        total += size
        n += 1
        bounds[n] = total
    cdef uint8_t[::1] out = np.empty(total, np.uint8)
    for i in range(n):
        size, to = bounds[i + 1] - bounds[i], _bytes(out) + bounds[i]
        if not are_packed[i]:
            if size > 0:
                memcpy(to, p + begins[i], size)
            continue
        with nogil:
            if rmq_lz4_block(p + begins[i], p + ends[i], to, &to, to + size) != RMQ_EXPANDED:
                to = NULL
        if to != _bytes(out) + bounds[i + 1]:
            n = i
            break
    return np.asarray(out)[:bounds[n]], np.asarray(bounds)[:n + 1]


cdef class Run:
    """Entries in order; only the functions below make one, so what it holds fits."""
    cdef const uint8_t[::1] keys, values
    cdef const int64_t[::1] key_starts, value_starts, value_ends
    cdef int64_t at, end
    cdef bint is_plain

    def __len__(self):
        return self.end - self.at

    cdef rmq_run plain(self) noexcept:
        return rmq_run(address(self.keys), _given(self.key_starts), address(self.values), _given(self.value_starts),
                       _given(self.value_ends), self.at, self.end, self.is_plain)

    def begin_at(self, const uint8_t[::1] key not None):
        cdef rmq_run run = self.plain()
        self.at = rmq_first_not_below(&run, address(key), key.shape[0])

    def first_key(self):
        return self.key_at(self.at)

    def last_key(self):
        return self.key_at(self.end - 1)

    cdef bytes key_at(self, int64_t entry):
        if not self.at <= entry < self.end:
            raise ValueError("no entry is left")
        cdef const char *keys = <const char *>&self.keys[0]
        return keys[self.key_starts[entry]:self.key_starts[entry + 1]]

    def take_versions(self, bytes key not None):
        cdef rmq_run run = self.plain()
        cdef const uint8_t *own = NULL
        cdef const uint8_t *asked = <const uint8_t *><const char *>key
        cdef const char *values = <const char *>run.values
        cdef int64_t size
        found = []
        while run.at < run.end:
            size = rmq_user_key(&run, &own)
            if rmq_compare(own, size, asked, len(key)) != 0:
                break
            value = values[run.value_starts[run.at]:run.value_ends[run.at]]
            found.append((rmq_le64(own + size) >> 8, own[size], value))
            run.at += 1
        self.at = run.at
        return found

    def stop_at(self, const uint8_t[::1] key not None):
        cdef rmq_run run = self.plain()
        cdef bint cut
        self.end = rmq_first_not_below(&run, address(key), key.shape[0])
        cut = self.end < run.end
        return cut


cdef Run _run(keys, key_starts, values, value_starts, value_ends):
    cdef Run run = Run.__new__(Run)
    run.keys, run.key_starts, run.values = keys, key_starts, values
    run.value_starts, run.value_ends = value_starts, value_ends
    run.at, run.end, run.is_plain = 0, len(value_starts), False
    return run


cdef tuple _entries(const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] ends, bint is_index, bint is_delta,
                    int64_t least_key):
    cdef int64_t i, entries = 0, key_bytes = 0, n = starts.shape[0]
    cdef const uint8_t *p = address(data)
    cdef rmq_sorted_block block
    cdef rmq_entries into
    for i in range(n):
        if starts[i] < 0 or ends[i] < starts[i] or ends[i] > data.shape[0]:
            raise ValueError("a block is not in the data")
        block = rmq_sorted_block(p + starts[i], ends[i] - starts[i], is_index, is_delta, least_key, 0, 0, 0, 0)
        with nogil:
            rmq_walk_block(&block, NULL, starts[i])
        if block.status != RMQ_BLOCK_SOUND:
            raise NotSoundError(_BLOCK_FAULTS[block.status], block.position, i)
        entries += block.entries
        key_bytes += block.key_bytes
    cdef uint8_t[::1] keys = np.empty(key_bytes, np.uint8)
    cdef int64_t[::1] key_starts = np.zeros(entries + 1, np.int64)
    cdef int64_t[::1] value_starts = np.empty(entries, np.int64)
    cdef int64_t[::1] value_ends = np.empty(entries, np.int64)
    cdef int64_t row = 0, key = 0, j
    for i in range(n):
        block = rmq_sorted_block(p + starts[i], ends[i] - starts[i], is_index, is_delta, least_key, 0, 0, 0, 0)
        into = rmq_entries(_bytes(keys) + key, &key_starts[0] + row + 1, _numbers(value_starts) + row,
                           _numbers(value_ends) + row)
        with nogil:
            rmq_walk_block(&block, &into, starts[i])
            for j in range(row + 1, row + 1 + block.entries):
                key_starts[j] += key
        row += block.entries
        key += block.key_bytes
    return np.asarray(keys), np.asarray(key_starts), np.asarray(value_starts), np.asarray(value_ends)


def read_blocks(const uint8_t[::1] data not None, const int64_t[::1] starts not None, const int64_t[::1] ends not None):
    keys, key_starts, value_starts, value_ends = _entries(data, starts, ends, False, False, RMQ_SEQUENCE)
    cdef Run run = _run(keys, key_starts, data, value_starts, value_ends)
    cdef rmq_run plain = run.plain()
    cdef int64_t bad, part, position
    with nogil:
        bad = rmq_first_too_late(&plain)
    run.is_plain = plain.is_plain
    if bad < run.end:
        part, position = 0, value_starts[bad]
        while not starts[part] <= position <= ends[part]:
            part += 1
        raise NotSoundError("keys in order", position - starts[part], part)
    return run


def read_pairs(const uint8_t[::1] data not None, *, bint internal):
    whole = np.array([0, data.shape[0]], np.int64)
    return _entries(data, whole[:1], whole[1:], False, False, RMQ_SEQUENCE if internal else 0)


def read_index(const uint8_t[::1] data not None, *, bint internal, bint delta):
    whole = np.array([0, data.shape[0]], np.int64)
    return _entries(data, whole[:1], whole[1:], True, delta, RMQ_SEQUENCE if internal else 0)


cdef class Tombstones:
    cdef const uint8_t[::1] keys
    cdef const int64_t[::1] starts
    cdef const uint64_t[::1] newest
    cdef int64_t at

    def __init__(self, ranges=()):
        bounds = [bound for start, end, _ in ranges for bound in (start, end)]
        self.keys = b"".join(bounds)
        self.starts = np.cumsum([0, *map(len, bounds)], dtype=np.int64)
        self.newest = np.array([newest for _, _, newest in ranges], np.uint64)
        self.at = 0

    cdef rmq_tombstones plain(self) noexcept:
        cdef const uint64_t *newest = &self.newest[0] if self.newest.shape[0] else <const uint64_t *>NULL
        return rmq_tombstones(address(self.keys), _given(self.starts), newest, self.at, self.newest.shape[0])


def take_newest(list runs not None, Tombstones tombstones not None, bytes last):
    cdef rmq_newest walk
    cdef int32_t i, n = <int32_t>len(runs)
    cdef Run run
    cdef int64_t room = 0
    plain = np.empty(max(n, 1) * sizeof(rmq_run), np.uint8)
    cdef uint8_t[::1] plain_view = plain
    cdef int32_t[::1] heap = np.empty(max(n, 1), np.int32)
    walk.runs = <rmq_run *>&plain_view[0]
    walk.heap = &heap[0]
    walk.count = 0
    for i in range(n):
        run = runs[i]
        walk.runs[i] = run.plain()
        if run.at < run.end:
            walk.heap[walk.count] = i
            walk.count += 1
            room += run.end - run.at
    cdef int32_t[::1] from_run = np.empty(max(room, 1), np.int32)
    cdef int64_t[::1] from_entry = np.empty(max(room, 1), np.int64)
    walk.from_run, walk.from_entry = &from_run[0], &from_entry[0]
    walk.tombstones = tombstones.plain()
    walk.last, walk.last_size = NULL, 0
    if last is not None:
        walk.last, walk.last_size = <const uint8_t *><const char *>last, len(last)
    with nogil:
        rmq_take_newest(&walk)
    cdef uint8_t[::1] keys = np.empty(walk.key_bytes, np.uint8)
    cdef uint8_t[::1] values = np.empty(walk.value_bytes, np.uint8)
    cdef int64_t[::1] key_starts = np.empty(walk.taken + 1, np.int64)
    cdef int64_t[::1] value_starts = np.empty(walk.taken + 1, np.int64)
    cdef uint8_t *to_keys = _bytes(keys)
    cdef uint8_t *to_values = _bytes(values)
    with nogil:
        rmq_copy_newest(&walk, to_keys, &key_starts[0], to_values, &value_starts[0])
    for i in range(n):
        run = runs[i]
        run.at = walk.runs[i].at
    tombstones.at = walk.tombstones.at
    met = None if walk.last == NULL else (<const char *>walk.last)[:walk.last_size]
    arrays = np.asarray(keys), np.asarray(key_starts), np.asarray(values), np.asarray(value_starts)
    return arrays, met, walk.stopped, walk.unknown


cdef class Batches:
    cdef const uint8_t[::1] data
    cdef int64_t[:, ::1] columns
    cdef int64_t count

    def __init__(self, const uint8_t[::1] data not None, const int64_t[::1] ends not None):
        cdef rmq_batches batches
        cdef rmq_batch_records into
        cdef int64_t i, before = 0
        for i in range(ends.shape[0]):
            if ends[i] < before or ends[i] > data.shape[0]:
                raise ValueError("a batch is not in the data")
            before = ends[i]
        self.data = data
        batches = rmq_batches(address(data), _given(ends), ends.shape[0], 0, 0, 0, 0)
        with nogil:
            rmq_walk_batches(&batches, NULL)
        if batches.status != RMQ_BATCH_SOUND:
            raise NotSoundError(_BATCH_FAULTS[batches.status], batches.position, batches.batch)
        self.count = batches.records
        self.columns = np.empty((6, max(self.count, 1)), np.int64)
        into = self.records()
        with nogil:
            rmq_walk_batches(&batches, &into)

    cdef rmq_batch_records records(self) noexcept:
        return rmq_batch_records(&self.columns[0, 0], &self.columns[1, 0], &self.columns[2, 0], &self.columns[3, 0],
                                 &self.columns[4, 0], &self.columns[5, 0])

    def __len__(self):
        return self.count

    def range_deletions(self, int64_t family):
        cdef rmq_batch_records r = self.records()
        cdef int64_t i
        cdef const char *p = <const char *>address(self.data)
        return [
            (p[r.key_starts[i]:r.key_ends[i]], p[r.value_starts[i]:r.value_ends[i]], <uint64_t>r.trailers[i] >> 8)
            for i in range(self.count) if r.families[i] == family and r.trailers[i] & 0xFF == RMQ_BATCH_RANGE_DELETION
        ]

    def run(self, int64_t family):
        cdef rmq_batch_records r = self.records()
        cdef int64_t i, n = 0, size = 0, at = 0
        cdef int64_t[::1] order = np.empty(max(self.count, 1), np.int64)
        for i in range(self.count):
            if r.families[i] == family and r.trailers[i] & 0xFF != RMQ_BATCH_RANGE_DELETION:
                order[n] = i
                n += 1
                size += r.key_ends[i] - r.key_starts[i] + RMQ_SEQUENCE
        cdef int64_t[::1] spare = np.empty(max(n, 1), np.int64)
        cdef uint8_t[::1] keys = np.empty(size, np.uint8)
        cdef int64_t[::1] key_starts = np.zeros(n + 1, np.int64)
        cdef int64_t[::1] value_starts = np.empty(n, np.int64)
        cdef int64_t[::1] value_ends = np.empty(n, np.int64)
        cdef uint8_t *to = _bytes(keys)
        cdef const uint8_t *p = address(self.data)
        with nogil:
            rmq_sort_records(&r, p, &order[0], &spare[0], n)
            for i in range(n):
                size = r.key_ends[order[i]] - r.key_starts[order[i]]
                memcpy(to + at, p + r.key_starts[order[i]], size)
                rmq_put_le64(to + at + size, <uint64_t>r.trailers[order[i]])
                at += size + RMQ_SEQUENCE
                key_starts[i + 1] = at
                value_starts[i] = r.value_starts[order[i]]
                value_ends[i] = r.value_ends[order[i]]
        return _run(keys, key_starts, self.data, value_starts, value_ends)
