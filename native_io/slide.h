/* A window that slides along a file, and the units in it as Arrow columns: one call makes a whole batch. */
#ifndef RMQ_SLIDE_H
#define RMQ_SLIDE_H

#include <stdint.h>
#include <string.h>

#include "decode.h"
#include "file.h"

/* Offsets are physical ones. The caller has checked that 0 <= start <= end, that base >= 0, and that `shown` is no more
 * than the capacity. */
typedef struct {
    rmq_file file;
    int64_t start, end;   /* offsets of the file's first byte, and of the end of the file or of the part to read */
    uint8_t *buffer;
    int64_t capacity;
    int64_t base, shown;  /* the buffer's bytes: their offset, and their number */
    int64_t ahead;        /* bytes of the next window; later windows have the capacity */
} rmq_slide;

/* Reads with flags pass by: the system drops each page, of at most this many bytes and at a multiple of its size, once
 * any of its bytes are read. Whoever reads the others then waits for the disk again, and has stopped the reading ahead. */
static const int64_t rmq_slide_page = 2 * 1024 * 1024;

/* Show the bytes from `at` on: a window's worth, but nothing from `stop` on that is not needed. Reads that pass by keep
 * what is there, and end where a page does. */
static void rmq_slide_to(rmq_slide *s, int64_t at, int64_t need, int64_t stop) {
    int64_t size = s->ahead < stop - at ? s->ahead : stop - at, kept = 0;
    if (s->file.flags != 0) {
        const int64_t after = (at - s->start + size) % rmq_slide_page;
        if (size < stop - at && after < size) size -= after;
        if (at > s->base && at < s->base + s->shown) {
            kept = s->base + s->shown - at;
            memmove(s->buffer, s->buffer + (at - s->base), (size_t)kept);
        }
    }
    if (size < need) size = need; /* which is more than is there */
    if (size > s->end - at) size = s->end - at;
    s->ahead = s->capacity; /* sequential reading mostly goes on */
    s->base = at;
    s->shown = kept + rmq_read_file(&s->file, s->buffer + kept, size - kept, at + kept - s->start);
}

/* Bytes of the log that are passed, where a filter selects little, before the caller decides whether to go on. */
static const int64_t rmq_slide_most = 32 * 1024 * 1024;

/* rmq_decode, window after window, until w->count reaches `most` units or at least `enough` bytes are decoded; both are
 * checked after each window. Status FULL: the function only has to be called again. RMQ_MORE: likewise, if any unit was
 * passed; else the unit at the walk's position is longer than the buffer, or than the rest of the file. Returns 0, or
 * -1 / -2 of rmq_reserve; a read error is in s->file.error. */
static int rmq_decode_file(rmq_decoder *d, rmq_filter *f, rmq_walk *w, rmq_slide *s, int64_t most, int64_t enough,
                           rmq_unit *asked) {
    const int64_t began = w->position;
    int64_t count = w->count, need = RMQ_BLANK_SIZE;
    w->status = RMQ_FULL;
    while (count < most) {
        const int64_t at = w->position;
        if (at >= w->stop) {
            w->status = RMQ_LIMIT;
            break;
        }
        if (at < s->base || s->base + s->shown - at < need) {
            w->status = RMQ_MORE;
            if (need > s->end - at || need > s->capacity) break;
            rmq_slide_to(s, at, need, w->stop);
            if (s->shown < need) break;
        }
        w->window = s->buffer;
        w->base = s->base;
        w->size = s->shown;
        RMQ_TRY(rmq_decode(d, f, w, most - count, asked));
        count += w->count;
        if (w->status != RMQ_MORE) break;
        need = w->why.expected;
        if (need <= s->base + s->shown - w->position || rmq_decoded_bytes(d) >= enough) break;
        if (w->position - began >= rmq_slide_most) break;
    }
    w->count = count;
    return 0;
}

#endif
