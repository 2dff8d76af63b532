/* A window that slides along a file, and the units that it shows in Arrow columns: one call makes a whole batch. */
#ifndef RMQ_SLIDE_H
#define RMQ_SLIDE_H

#include <stdint.h>

#include "decode.h"
#include "file.h"

/* Offsets are physical ones. Whoever begins has checked that 0 <= start <= end, that base >= 0, and that `shown` is no
 * more than the capacity. */
typedef struct {
    rmq_file file;
    int64_t start, end;   /* of the file: where its first byte is, and where it ends or is not to be read on */
    uint8_t *buffer;
    int64_t capacity;
    int64_t base, shown;  /* what the buffer has: from where on, and how many bytes */
    int64_t ahead;        /* bytes of the next window; of those after it the capacity */
} rmq_slide;

/* Show what begins at `at`: a window's worth, but nothing from `stop` on that is not needed. */
static void rmq_slide_to(rmq_slide *s, int64_t at, int64_t need, int64_t stop) {
    int64_t size = s->ahead < stop - at ? s->ahead : stop - at;
    if (size < need) size = need;
    if (size > s->end - at) size = s->end - at;
    s->ahead = s->capacity; /* who has read on will go on reading */
    s->base = at;
    s->shown = rmq_read_file(&s->file, s->buffer, size, at - s->start);
}

/* Where a filter selects little, so many bytes of the log are passed before the caller is asked whether to go on. */
static const int64_t rmq_slide_most = 32 * 1024 * 1024;

/* rmq_decode, window after window, until w->count reaches `most` units or at least `enough` bytes are decoded; both are looked
 * at after each window. Status FULL: it only has to be called again. RMQ_MORE: the same where anything was passed; else the
 * unit at the walk's position is longer than the buffer, or than the file shows. Answers 0, or -1 / -2 of rmq_reserve; what
 * could not be read is in s->file.error. */
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
