# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""What a broker keeps in config/, where it may be large.

What is declared from C stands in _config.pxd, what the functions answer in _config.pyi.
"""
from libc.stdint cimport int64_t, uint8_t

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
