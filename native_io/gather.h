/* Bytes from many offsets of a file into one buffer. */
#ifndef RMQ_GATHER_H
#define RMQ_GATHER_H

#include <stdint.h>

#include "file.h"

/* The result for each offset: the position in the buffer, and the number of bytes from there on that belong to it. */
typedef struct {
    uint8_t *buffer;
    int64_t capacity;
    int64_t *window_offsets, *lengths;
} rmq_gathered;

/* Read sizes[i] bytes at offsets[i], which ascend, for as many i from 0 on as fit: returns how many. Stretches at most
 * `slack` bytes apart are read in one request, with the bytes between. Where the file ends there are fewer bytes, or
 * none; where reading fails (see f->error) no more offsets are read. */
static int64_t rmq_gather(rmq_file *f, const int64_t *offsets, const int32_t *sizes, int64_t count, int64_t slack,
                          rmq_gathered *out) {
    int64_t used = 0, done = 0;
    while (done < count) {
        const int64_t start = offsets[done];
        if (start < 0 || sizes[done] <= 0 || sizes[done] > out->capacity - used) break;
        if (start > INT64_MAX - sizes[done]) break;
        int64_t stop = start + sizes[done], after = done + 1;
        for (; after < count; after++) {
            const int64_t next = offsets[after];
            if (sizes[after] <= 0 || next < offsets[after - 1] || next - stop > slack) break;
            if (next > INT64_MAX - sizes[after]) break;
            const int64_t end = next + sizes[after];
            if (end - start > out->capacity - used) break;
            if (end > stop) stop = end;
        }
        const int64_t got = rmq_read_file(f, out->buffer + used, stop - start, start);
        if (f->error != 0) break;
        for (; done < after; done++) {
            const int64_t from = offsets[done] - start;
            out->window_offsets[done] = used + (from < got ? from : got);
            out->lengths[done] = from < got ? got - from : 0;
        }
        used += got;
    }
    return done;
}

#endif
