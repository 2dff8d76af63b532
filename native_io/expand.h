/* Bodies as their producers sent them: decompressed into the buffer of a column.
 *
 * Source: RocketMQ's MessageSysFlag (bits 8 to 10 of sysFlag) and common.compression: zlib streams, LZ4 frames, zstd frames.
 *
 * Only what surely decompresses to these bytes is decompressed here. What does not is left to the caller, whose libraries
 * know what is wrong with it. */
#ifndef RMQ_EXPAND_H
#define RMQ_EXPAND_H

#include <stdint.h>
#include <stdlib.h>

#include "compressed.h"
#include "expanded.h"
#include "inflate.h"
#include "lz4_frame.h"
#include "zstd_frame.h"

enum {
    RMQ_MOST_EXPANDED = 16 * 1024 * 1024, /* bytes of a body; producers send 4 MiB at most by default */
    RMQ_USUAL_GAIN = 6,                   /* how many times as large as its compressed form a body mostly is at most */
};

typedef struct {
    rmq_inflater inflater;
    rmq_zstd zstd;
} rmq_expander;

/* NULL when there is no memory. */
static rmq_expander *rmq_new_expander(const rmq_zstd_library *library) {
    rmq_expander *x = calloc(1, sizeof *x);
    if (x != NULL) x->zstd.library = *library;
    return x;
}

static void rmq_free_expander(rmq_expander *x) {
    if (x == NULL) return;
    rmq_free_zstd(&x->zstd);
    free(x);
}

/* Decompress a body to out[0 .. room), all of which may be written to; *size becomes how many bytes it has. */
static int rmq_expand(rmq_expander *x, int32_t sys_flag, const uint8_t *body, int64_t length, uint8_t *out, int64_t room,
                      int64_t *size) {
    switch (sys_flag >> 8 & 7) {
        case RMQ_IS_ZLIB:
        case RMQ_IS_ZLIB_TOO: return rmq_inflate(&x->inflater, body, length, out, room, size);
        case RMQ_IS_LZ4: return rmq_expand_lz4(body, length, out, room, size);
        case RMQ_IS_ZSTD: return rmq_expand_zstd(&x->zstd, body, length, out, room, size);
        default: return RMQ_NOT_KNOWN;
    }
}

#endif
