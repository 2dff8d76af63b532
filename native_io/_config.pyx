# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""What a broker keeps in config/, where it may be large.

What is declared from C stands in _config.pxd, what the functions answer in _config.pyi.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from native_io._common cimport address

import enum


class EntriesStatus(enum.IntEnum):
    # In the order of rmq_entries_status.
    MORE = 0
    END = 1
    ODD = 2


def take_entries(const uint8_t[::1] text not None, *, bint is_begun, int64_t[:, ::1] names not None,
                 int64_t[::1] counts not None, int64_t[:, ::1] queues not None):
    cdef rmq_entries entries
    cdef int status
    if names.shape[1] != 2 or names.shape[0] != counts.shape[0] or queues.shape[0] != 2:
        raise ValueError("expected as many names, of two columns, as counts, and two rows of queues")
    if names.shape[0] == 0 or queues.shape[1] == 0:
        raise ValueError("expected room for an entry and a queue")
    entries = rmq_entries(
        address(text), text.shape[0], 0, is_begun, &names[0, 0], &counts[0], 0, counts.shape[0], &queues[0, 0],
        &queues[1, 0], 0, queues.shape[1],
    )
    with nogil:
        status = rmq_take_entries(&entries)
    return EntriesStatus(status), entries.at, entries.entries, entries.queues


cdef list texts_from(const rmq_queues *texts, int32_t first):
    """The texts from a number on."""
    cdef int32_t number
    return [
        (<const char *>rmq_topic_of(texts, number))[:rmq_queue_name_of(texts, number).topic_size].decode("ascii")
        for number in range(first, rmq_queue_count(texts))
    ]


cdef class NameNumbers:
    cdef rmq_queues topics
    cdef rmq_queues groups

    def __dealloc__(self):
        rmq_free_queues(&self.topics)
        rmq_free_queues(&self.groups)

    def number(self, const uint8_t[::1] text not None, const int64_t[:, ::1] names not None, int32_t[:, ::1] numbers not None):
        cdef int64_t count = names.shape[0], before = 0, i
        cdef int32_t first_topic = rmq_queue_count(&self.topics), first_group = rmq_queue_count(&self.groups)
        cdef int status
        if names.shape[1] != 2 or numbers.shape[0] != 3 or numbers.shape[1] != count:
            raise ValueError("expected as many columns of three numbers as names, of two columns")
        for i in range(count):
            if not before <= names[i, 0] <= names[i, 1] < text.shape[0]:
                raise ValueError(f"name {i} is not in the text, after the one before")
            before = names[i, 1]
        if count == 0:
            return [], []
        # Without releasing the GIL: another thread would find the tables half made.
        status = rmq_number_names(
            &self.topics, &self.groups, address(text), &names[0, 0], count, &numbers[0, 0], &numbers[1, 0], &numbers[2, 0]
        )
        if status != 0:
            raise MemoryError()
        return texts_from(&self.topics, first_topic), texts_from(&self.groups, first_group)
