# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Files, by descriptors that the caller has opened: read in one call where Python would need many, and system calls that
Python lacks. The rest of the kernel knows nothing of files.

What is declared from C stands in _io.pxd, what the functions answer in _io.pyi.
"""
from cpython.exc cimport PyErr_SetFromErrno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy, strlen

from native_io._common cimport (
    RMQ_ASK, RMQ_FULL, RMQ_MORE, Wrapping, address, check_offsets, end_walk, rmq_finding, rmq_unit, rmq_walk, wrapping_of,
)
from native_io._read cimport Decoder, Filter, Tiling, rmq_filter, rmq_list, rmq_tiling

import os

import numpy as np


cdef int check_read(int error) except -1:
    if error != 0:
        raise OSError(error, os.strerror(error))
    return 0


cdef class Slide:
    cdef uint8_t[::1] window
    cdef rmq_slide slide

    def __cinit__(self, uint8_t[::1] window not None, *, int64_t base, int64_t shown, int64_t ahead):
        cdef int64_t size = window.shape[0]
        if not (0 < ahead <= size and 0 <= shown <= size and 0 <= base <= INT64_MAX - shown):
            raise ValueError(
                f"expected {ahead} bytes ahead and {shown} shown from {base} on to fit into a window of {size} bytes"
            )
        self.window = window
        self.slide = rmq_slide(rmq_file(-1, 0, 0, 0, 0), 0, 0, &window[0], size, base, shown, ahead)

    @property
    def base(self):
        return self.slide.base

    @property
    def shown(self):
        return self.slide.shown

    @property
    def ahead(self):
        return self.slide.ahead

    @property
    def bytes(self):
        return self.slide.file.bytes

    @property
    def requests(self):
        return self.slide.file.requests

    def decode(self, Decoder decoder not None, int fd, *, int64_t start, int64_t end, int64_t position, int64_t stop,
               int64_t segment_end, bint verify_crc, int64_t most, int64_t enough, Filter chosen=None,
               Wrapping wrapping=None, int flags=0):
        cdef rmq_filter *filter = NULL
        cdef rmq_unit asked
        cdef rmq_walk walk
        cdef rmq_slide slide = self.slide
        cdef int failed
        if not 0 <= start <= min(end, position):
            raise ValueError(f"position {position} lies before the file, which begins at {start} and ends at {end}")
        check_offsets(slide.shown, slide.base, max(slide.base, position), segment_end)
        walk = rmq_walk(NULL, 0, position, stop, segment_end, verify_crc, position, 0, RMQ_MORE, rmq_finding(0, 0),
                        wrapping_of(wrapping))
        slide.file, slide.start, slide.end = rmq_file(fd, 0, 0, 0, flags), start, end
        if chosen is not None:
            chosen.enter()
            filter = &chosen.filter
        try:
            decoder.enter()
            while True:
                with nogil:
                    failed = rmq_decode_file(decoder.decoder, filter, &walk, &slide, most, enough, &asked)
                if chosen is not None:
                    chosen.fail()
                if failed or walk.status != RMQ_ASK:
                    break
                chosen.ask(&asked)
        finally:
            if chosen is not None:
                chosen.leave()
            self.slide = slide
        if walk.status == RMQ_MORE and walk.position > position:
            walk.status = RMQ_FULL
        decoder.done(failed, 0)
        check_read(slide.file.error)
        return end_walk(&walk)


def gather(int fd, const int64_t[::1] offsets not None, const int32_t[::1] sizes not None,
           uint8_t[::1] buffer not None, int64_t[::1] window_offsets not None, int64_t[::1] lengths not None, *,
           int64_t slack, int flags=0):
    cdef int64_t n = offsets.shape[0], done = 0
    cdef rmq_file file = rmq_file(fd, 0, 0, 0, flags)
    cdef rmq_gathered out
    if min(sizes.shape[0], window_offsets.shape[0], lengths.shape[0]) < n:
        raise ValueError(f"{n} offsets need as many sizes, window_offsets and lengths")
    if n == 0 or buffer.shape[0] == 0:
        return 0, 0, 0
    out = rmq_gathered(&buffer[0], buffer.shape[0], &window_offsets[0], &lengths[0])
    with nogil:
        done = rmq_gather(&file, &offsets[0], &sizes[0], n, slack, &out)
    check_read(file.error)
    return done, file.bytes, file.requests


def read_short_queues(bytes paths not None, int64_t[::1] numbers not None, int64_t[::1] sizes not None,
                      uint8_t[::1] buffer not None):
    cdef int64_t n = numbers.shape[0], room, i
    cdef const char *path = paths
    cdef rmq_file cost = rmq_file(-1, 0, 0, 0, 0)
    if paths.count(b"\0") != n or not paths.endswith(b"\0") or sizes.shape[0] != n:
        raise ValueError(f"{n} numbers need as many sizes, and paths that end with a NUL each")
    room = buffer.shape[0] // n
    if room == 0:
        raise ValueError(f"a buffer of {buffer.shape[0]} bytes has no share for each of {n} queues")
    with nogil:
        for i in range(n):
            sizes[i] = rmq_read_short_queue(path, &buffer[i * room], room, &numbers[i], &cost)
            path += strlen(path) + 1
    return cost.bytes, cost.requests


def tile_queues(Tiling tiling not None, bytes paths not None, const uint8_t[::1] asked not None,
                int64_t[:, ::1] found not None, uint8_t[::1] buffer not None, *, int64_t most):
    cdef int64_t n = asked.shape[0], i
    cdef const char *path = paths
    cdef rmq_file cost = rmq_file(-1, 0, 0, 0, 0)
    cdef rmq_tile_reading how
    cdef rmq_tiling *t = &tiling.tiling
    if paths.count(b"\0") != n or (n > 0 and not paths.endswith(b"\0")) or found.shape[0] != n or found.shape[1] != 9:
        raise ValueError(f"{n} queues need as many paths that end with a NUL each, and rows of 9 columns")
    if buffer.shape[0] < RMQ_LEAST_TILED:
        raise ValueError(f"a buffer of {buffer.shape[0]} bytes is too small for the first units of a queue")
    how = rmq_tile_reading(most, &buffer[0], buffer.shape[0])
    tiling.enter()
    with nogil:
        for i in range(n):
            found[i, 0] = rmq_tile_queue(t, path, asked[i], &how, &cost)
            if found[i, 0]:
                found[i, 1], found[i, 2] = t.queue_count, t.queue_bytes
                found[i, 3], found[i, 4], found[i, 5] = t.first.position, t.first.size, t.first.queue_offset
                found[i, 6], found[i, 7], found[i, 8] = t.last.position, t.last.size, t.last.queue_offset
            path += strlen(path) + 1
    tiling.leave()
    return cost.bytes, cost.requests


def list_queue_ids(bytes paths not None, int64_t[::1] counts not None, int32_t[::1] ids not None):
    cdef int64_t n = counts.shape[0], room = ids.shape[0], count = 0, listed = 0, i
    cdef const char *path = paths
    if paths.count(b"\0") != n or (n > 0 and not paths.endswith(b"\0")) or room == 0:
        raise ValueError(f"{n} counts need as many paths that end with a NUL each, and room for queueIds")
    with nogil:
        for i in range(n):
            counts[i] = rmq_queue_ids_in(path, &ids[0] + count, room - count)
            if counts[i] == -2:
                break
            count += counts[i] if counts[i] > 0 else 0
            listed += 1
            path += strlen(path) + 1
    return listed


def find_queue_files(bytes paths not None, int64_t[:, ::1] found not None):
    cdef int64_t n = found.shape[0], i
    cdef const char *path = paths
    if paths.count(b"\0") != n or (n > 0 and not paths.endswith(b"\0")) or found.shape[1] != 3:
        raise ValueError(f"{n} rows need 3 columns, and as many paths that end with a NUL each")
    with nogil:
        for i in range(n):
            found[i, 0] = rmq_find_only_file(path, &found[i, 1], &found[i, 2])
            path += strlen(path) + 1


def read_queue_heads(bytes paths not None, const int64_t[::1] starts not None, int64_t[:, ::1] heads not None,
                     uint8_t[::1] buffer not None):
    cdef int64_t n = heads.shape[0], room, i
    cdef const char *path = paths
    cdef rmq_file cost = rmq_file(-1, 0, 0, 0, 0)
    cdef rmq_queue_head head
    if paths.count(b"\0") != n or not paths.endswith(b"\0") or starts.shape[0] != n or heads.shape[1] != 6:
        raise ValueError(f"{n} rows of heads need 6 columns, and as many starts, and paths that end with a NUL each")
    room = buffer.shape[0] // n
    if room == 0:
        raise ValueError(f"a buffer of {buffer.shape[0]} bytes has no share for each of {n} queues")
    with nogil:
        for i in range(n):
            head = rmq_read_queue_head(path, starts[i], &buffer[i * room], room, &cost)
            heads[i, 0] = head.start
            heads[i, 1] = head.size
            heads[i, 2] = head.allocated
            heads[i, 3] = head.read
            heads[i, 4] = head.used
            heads[i, 5] = head.is_all
            path += strlen(path) + 1
    return cost.bytes, cost.requests


cdef check_starts(const int64_t[::1] starts, int64_t parts):
    """Refuse starts that are not those of `parts` parts of some files."""
    cdef int64_t n = starts.shape[0] - 1, i
    if n < 0 or starts[0] != 0 or starts[n] != parts:
        raise ValueError(f"{parts} parts need starts from 0 to their number")
    for i in range(n):
        if starts[i] > starts[i + 1]:
            raise ValueError("starts do not ascend")


def read_queue_ends(bytes paths not None, int64_t[:, ::1] ends not None, uint8_t[::1] units not None, *,
                    const int64_t[::1] starts not None, const int64_t[::1] numbers not None,
                    int64_t[:, ::1] places not None, int64_t begin, int64_t width):
    cdef int64_t n = ends.shape[0], parts = numbers.shape[0], i
    cdef const char *path = paths
    cdef rmq_file cost = rmq_file(-1, 0, 0, 0, 0)
    cdef rmq_queue_look look = rmq_queue_look(begin, width)
    cdef rmq_asked_units asked = rmq_asked_units(NULL, 0, NULL, NULL)
    cdef rmq_queue_ends found
    if paths.count(b"\0") != n or (n > 0 and not paths.endswith(b"\0")) or starts.shape[0] != n + 1:
        raise ValueError(f"{n} rows of ends need as many paths that end with a NUL each, and starts")
    if ends.shape[1] != 7 or units.shape[0] != n * 2 * RMQ_QUEUE_UNIT_SIZE:
        raise ValueError(f"{n} rows of ends need 7 columns, and two units each")
    if places.shape[0] != 2 or places.shape[1] != parts:
        raise ValueError(f"{parts} numbers need two rows of as many places")
    if not 1 <= width <= RMQ_MOST_SHOWN:
        raise ValueError(f"width must be from 1 to {RMQ_MOST_SHOWN}, found {width}")
    check_starts(starts, parts)
    with nogil:
        for i in range(n):
            asked.count = starts[i + 1] - starts[i]
            if asked.count > 0:
                asked.numbers = &numbers[starts[i]]
                asked.positions = &places[0, starts[i]]
                asked.sizes = &places[1, starts[i]]
            found = rmq_read_queue_ends(path, &look, &asked, &units[i * 2 * RMQ_QUEUE_UNIT_SIZE], &cost)
            ends[i, 0] = found.start
            ends[i, 1] = found.size
            ends[i, 2] = found.allocated
            ends[i, 3] = found.first
            ends[i, 4] = found.last
            ends[i, 5] = found.is_all
            ends[i, 6] = found.is_known
            path += strlen(path) + 1
    return cost.bytes, cost.requests


def read_queue_parts(bytes paths not None, const int64_t[::1] starts not None, const int64_t[::1] positions not None,
                     int64_t[::1] sizes not None, uint8_t[::1] buffer not None):
    cdef int64_t n = starts.shape[0] - 1, parts = positions.shape[0], share, i
    cdef const char *path = paths
    cdef rmq_file cost = rmq_file(-1, 0, 0, 0, 0)
    if n < 0 or paths.count(b"\0") != n or (n > 0 and not paths.endswith(b"\0")):
        raise ValueError(f"{n} files need as many paths that end with a NUL each")
    if sizes.shape[0] != parts:
        raise ValueError(f"{parts} positions need as many sizes")
    check_starts(starts, parts)
    if parts == 0:
        return 0, 0
    share = buffer.shape[0] // parts
    if share == 0:
        raise ValueError(f"a buffer of {buffer.shape[0]} bytes has no share for each of {parts} parts")
    with nogil:
        for i in range(n):
            if starts[i] < starts[i + 1]:
                rmq_read_queue_parts(path, &positions[starts[i]], &sizes[starts[i]], starts[i + 1] - starts[i],
                                     &buffer[starts[i] * share], share, &cost)
            path += strlen(path) + 1
    return cost.bytes, cost.requests


def resident(int fd, int64_t offset, uint8_t[::1] pages not None):
    cdef int error = 0
    if pages.shape[0]:
        with nogil:
            error = rmq_resident(fd, offset, &pages[0], pages.shape[0])
    check_read(error)


def follow_chains(int fd, const uint8_t[::1] start not None, const int32_t[::1] hashes not None, *, int64_t slots,
                  int64_t items, int64_t count, int64_t begin_offset, int64_t end_offset):
    cdef rmq_index_file file
    cdef rmq_list found
    cdef int64_t[::1] view
    cdef int64_t i, n = hashes.shape[0]
    cdef int status
    if not (0 < slots < 1 << 31 and 0 <= items <= 1 << 31):
        raise ValueError(f"no file has {slots} slots and {items} items")
    for i in range(n):
        if hashes[i] < 0:
            raise ValueError(f"a key hash is not negative, found {hashes[i]}")
    file = rmq_index_file(address(start), start.shape[0], rmq_file(fd, 0, 0, 0, 0), begin_offset, end_offset, count, items,
                          <uint32_t>slots)
    found.data = NULL
    found.size = found.capacity = 0
    try:
        with nogil:
            status = rmq_follow_chains(&file, &hashes[0] if n else NULL, n, &found)
        if status == RMQ_CHAINS_NO_MEMORY:
            raise MemoryError()
        check_read(file.file.error)
        if status == RMQ_CHAINS_BROKEN:
            return None, file.file.bytes, file.file.requests
        offsets = np.empty(found.size, np.int64)
        view = offsets
        if found.size:
            memcpy(&view[0], found.data, found.size * sizeof(int64_t))
        return offsets, file.file.bytes, file.file.requests
    finally:
        free(found.data)


def exchange(int above, bytes name not None, int other_above, bytes other not None):
    if rmq_exchange(above, name, other_above, other) != 0:
        PyErr_SetFromErrno(OSError)


def mount_of(int fd):
    mount = rmq_mount_of(fd)
    return None if mount < 0 else mount
