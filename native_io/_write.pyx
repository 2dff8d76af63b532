# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Writing: rows to staged units, their positions in a log, and the ConsumeQueue units and index entries that follow.

What is declared from C stands in _write.pxd and _common.pxd, what the functions answer in _write.pyi.
"""
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc

from native_io._common cimport (
    ArrowArray, ArrowSchema, OneAtATime, Wrapping, address, begin_walk, end_walk, not_sound, rmq_walk, text_of,
)

import collections

import numpy as np

# In the order of encode.h.
ENCODE_COLUMNS = (
    "topic", "queueId", "tags", "keys", "msgId", "properties", "body", "flag", "sysFlag", "bornTimestamp", "bornHost",
    "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset",
)
assert len(ENCODE_COLUMNS) == RMQ_IN_COLUMNS


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
    RMQ_REFUSE_QUEUE_ID: "0 to 2147483646",
    RMQ_REFUSE_EMPTY_NAME: "a name of 1 byte or more",
    RMQ_REFUSE_NAME_SEPARATOR: "a name without the bytes 0x01 and 0x02",
    RMQ_REFUSE_VALUE_SEPARATOR: "a value without the byte 0x02",
    RMQ_REFUSE_PROPERTIES_LENGTH: f"{RMQ_MAX_PROPERTIES_SIZE} bytes at most in all properties as they are stored",
    RMQ_REFUSE_DELAY: "a whole number as DELAY of a message in SCHEDULE_TOPIC_XXXX",
    RMQ_REFUSE_LIGHT_TOPIC: "a topic, and not a light queue (LMQ), which has messages of topics",
    RMQ_REFUSE_LIGHT_QUEUES: "no light queue (LMQ) in INNER_MULTI_DISPATCH, where only a broker numbers messages; "
                             "leave the property out",
    RMQ_REFUSE_BODY_LENGTH: f"{RMQ_MAX_BODY} bytes at most (maxMessageSize)",
    RMQ_REFUSE_INNER_BATCH: "no inner batch (0x80), which a ConsumeQueue cannot hold",
    RMQ_REFUSE_STORE_TIMESTAMP: "a time after 1970",
    RMQ_REFUSE_HOST_LENGTH: "8 or 20 bytes (address, 4 bytes of port)",
}
_SHOWN = 80  # bytes of a text that was found


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


cdef class _Units:
    """Encoded units; their memory goes back to the pool with the last view of them."""
    cdef const uint8_t *data
    cdef int64_t size

    def __dealloc__(self):
        rmq_put_buffer(self.data)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *>self.data, self.size, 1, flags)


cdef class Encoder(OneAtATime):
    cdef rmq_encoder encoder
    cdef rmq_pool *pool
    cdef const char *names[RMQ_IN_COLUMNS]
    cdef list encoded_names

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
                f"column {wrong}: expected {ENCODE_COLUMNS[wrong]!r} of Arrow format {text_of(rmq_in_formats[wrong])}, found "
                f"{text_of(schema.children[wrong].name)} of format {text_of(schema.children[wrong].format)}"
            )
        if rmq_read_batch(&rows, array) != 0:
            raise not_sound()
        sizes = np.empty(rows.rows, np.int32)
        cdef int32_t[::1] sizes_view = sizes
        cdef int32_t *sizes_at = &sizes_view[0] if rows.rows else NULL
        self.enter()
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
            self.leave()
        return memoryview(units), sizes


class Dispatched(collections.namedtuple("Dispatched", (
    "units", "run_queue", "run_offset", "run_count", "key_hash", "key_position", "key_timestamp",
    "last_position", "last_timestamp", "least_timestamp", "most_timestamp", "fall", "inner_batches", "nbytes",
    "run_size", "odd_bodies",
))):
    __slots__ = ()

    def runs(self):
        units = memoryview(self.units)
        begin = 0
        columns = (self.run_queue, self.run_offset, self.run_count, self.run_size)
        for queue, offset, count, size in zip(*(column.tolist() for column in columns)):
            end = begin + size * count
            yield queue, offset, units[begin:end]
            begin = end


cdef class Dispatcher(OneAtATime):
    cdef rmq_dispatcher *dispatcher
    cdef list batch_topics  # keeps the bytes that the dispatcher points to

    def __cinit__(self, *, bint index_tags=False, bint light_queues=False, batch_topics=()):
        cdef bytes name
        self.dispatcher = <rmq_dispatcher *>calloc(1, sizeof(rmq_dispatcher))
        if self.dispatcher == NULL:
            raise MemoryError()
        self.dispatcher.index_tags = index_tags
        self.dispatcher.light_queues = light_queues
        self.batch_topics = [topic.encode() for topic in batch_topics]
        for name in self.batch_topics:
            if rmq_add_batch_topic(self.dispatcher, name, len(name)) < 0:
                raise MemoryError()
        rmq_forget(self.dispatcher)

    def __dealloc__(self):
        if self.dispatcher != NULL:
            rmq_free_dispatcher(self.dispatcher)

    cdef int done(self, int64_t status) except -1:
        # After an error what was collected may be of half a unit, so the dispatcher stays shut.
        if status < 0:
            raise MemoryError()
        self.leave()
        return 0

    @property
    def queues(self):
        cdef rmq_queues *queues = &self.dispatcher.queues
        cdef const rmq_queue_name *name
        self.enter()
        found = []
        for i in range(rmq_queue_count(queues)):
            name = rmq_queue_name_of(queues, i)
            found.append((rmq_topic_of(queues, i)[:name.topic_size].decode("utf-8", "replace"), name.id))
        self.leave()
        return found

    def set_next(self, str topic not None, int32_t queue_id, int64_t queue_offset):
        cdef bytes name = topic.encode()
        cdef int32_t number
        if not 0 <= queue_offset < rmq_max_queue_offset:
            raise ValueError(f"a queueOffset is 0 or more and below {rmq_max_queue_offset}, found {queue_offset}")
        self.enter()
        number = rmq_know_queue(self.dispatcher, name, len(name), queue_id)
        self.done(number)
        rmq_queue_at(self.dispatcher, number).next = queue_offset

    def place(self, uint8_t[::1] window not None, *, int64_t position, int64_t segment_end, int64_t store_timestamp,
              bint keep=False):
        cdef rmq_walk walk
        cdef int failed
        if not 0 <= position <= segment_end:
            raise ValueError(f"expected 0 <= position <= segment_end, found {position} and {segment_end}")
        begin_walk(&walk, address(window), window.shape[0], position, position, segment_end, segment_end, True)
        self.enter()
        with nogil:
            failed = rmq_place(self.dispatcher, &walk, store_timestamp, keep)
        self.done(failed)
        return end_walk(&walk)

    def dispatch(self, const uint8_t[::1] window not None, *, int64_t base, int64_t position, int64_t stop,
                 int64_t segment_end, bint verify_crc, int64_t most, Wrapping wrapping=None):
        cdef rmq_walk walk
        cdef int failed
        if begin_walk(&walk, address(window), window.shape[0], base, position, stop, segment_end, verify_crc, wrapping):
            self.enter()
            with nogil:
                failed = rmq_dispatch(self.dispatcher, &walk, most)
            self.done(failed)
        return end_walk(&walk)

    def finish(self):
        self.enter()
        cdef rmq_dispatcher *d = self.dispatcher
        cdef int64_t n = d.units.size, m = d.entries.size, i, runs_count
        key_hash, key_position, key_timestamp = np.empty(m, np.int32), np.empty(m, np.int64), np.empty(m, np.int64)
        units, runs = np.empty(rmq_units_size(d), np.uint8), np.empty((n, 4), np.int64)
        odd_bodies = [(<const int64_t *>d.odd_bodies.data)[i] for i in range(d.odd_bodies.size)]
        cdef int32_t[::1] key_hash_view = key_hash
        cdef int64_t[::1] key_position_view = key_position, key_timestamp_view = key_timestamp
        cdef uint8_t[::1] units_view = units
        cdef int64_t[:, ::1] runs_view = runs
        cdef uint8_t *units_at = &units_view[0] if n else NULL
        cdef rmq_run *runs_at = <rmq_run *>&runs_view[0, 0] if n else NULL
        cdef const rmq_index_entry *entry = <const rmq_index_entry *>d.entries.data
        with nogil:
            for i in range(m):
                key_hash_view[i] = <int32_t>entry[i].hash
                key_position_view[i] = entry[i].position
                key_timestamp_view[i] = entry[i].timestamp
            runs_count = rmq_group(d, units_at, runs_at)
        dispatched = Dispatched(
            units, runs[:runs_count, 0].astype(np.int32), runs[:runs_count, 1].copy(), runs[:runs_count, 2].copy(),
            key_hash, key_position, key_timestamp, d.last_position, d.last_timestamp, d.least_timestamp,
            d.most_timestamp, d.fall, d.inner_batches, d.bytes, runs[:runs_count, 3].copy(),
            np.array(odd_bodies, np.int64),
        ) if runs_count >= 0 else None
        if runs_count >= 0:
            rmq_forget(d)
        self.done(runs_count)
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
