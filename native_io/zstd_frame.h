/* zstd frames (RFC 8878), decompressed by a libzstd that the caller has loaded: its functions come as pointers.
 *
 * A body counts if it is one frame, without a dictionary and followed by nothing, that is no larger than its window: libzstd
 * accepts some others at once that it refuses as a stream. */
#ifndef RMQ_ZSTD_FRAME_H
#define RMQ_ZSTD_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "expanded.h"
#include "frame_magic.h"
#include "little_endian.h"

enum {
    RMQ_ZSTD_TOO_SMALL = 70,   /* ZSTD_error_dstSize_tooSmall: its errors are their negative numbers */
    RMQ_ZSTD_ERRORS = 120,     /* ZSTD_error_maxCode */
    RMQ_ZSTD_MOST_BLOCK = 128 * 1024,
    RMQ_ZSTD_MOST_WINDOW = 128 * 1024 * 1024, /* of a stream, unless one asks for more */
};

/* All NULL: there is none. */
typedef struct {
    void *(*new_context)(void);                                               /* ZSTD_createDCtx */
    size_t (*free_context)(void *);                                           /* ZSTD_freeDCtx */
    size_t (*decompress)(void *, void *to, size_t, const void *from, size_t); /* ZSTD_decompressDCtx */
} rmq_zstd_library;

/* The functions at these addresses, in this order. */
static rmq_zstd_library rmq_zstd_library_at(const uintptr_t *functions) {
    rmq_zstd_library library;
    memcpy(&library, functions, sizeof library);
    return library;
}

typedef struct {
    rmq_zstd_library library;
    void *context; /* made for the first frame */
} rmq_zstd;

static void rmq_free_zstd(rmq_zstd *z) {
    if (z->context != NULL) z->library.free_context(z->context);
}

/* A number of 0, 1, 2, 4 or 8 bytes. */
static int64_t rmq_zstd_number(const uint8_t *p, int size) {
    return size == 0 ? 0 : size == 1 ? *p : size == 2 ? rmq_le16(p) + 256 : size == 4 ? rmq_le32(p) : (int64_t)rmq_le64(p);
}

/* The bytes of a frame's window, and in *blocks where its blocks begin; -1: it is no frame, or no usual one. */
static int64_t rmq_zstd_window(const uint8_t *p, int64_t length, const uint8_t **blocks) {
    static const uint8_t sizes[4] = {0, 2, 4, 8}; /* of the content's size */
    if (length < 5 || rmq_le32(p) != RMQ_ZSTD_MAGIC) return -1;
    const int flags = p[4], is_single = flags >> 5 & 1;
    const int size = flags < 64 ? is_single : sizes[flags >> 6];
    if (flags & 0x0B || length < 6 - is_single + size) return -1; /* a dictionary, or a reserved bit */
    *blocks = p + 6 - is_single + size;
    if (is_single) return rmq_zstd_number(p + 5, size);
    const int64_t window = (int64_t)1 << (10 + (p[5] >> 3));
    return window + window / 8 * (p[5] & 7);
}

/* Does the frame end with the last byte, and is no block larger than the format allows? */
static int rmq_is_zstd_whole(const uint8_t *p, const uint8_t *end, int64_t window, int has_sum) {
    const int64_t most = window < RMQ_ZSTD_MOST_BLOCK ? window : RMQ_ZSTD_MOST_BLOCK;
    for (int is_last = 0; !is_last;) {
        if (end - p < 3) return 0;
        const uint32_t head = rmq_le16(p) | (uint32_t)p[2] << 16, kind = head >> 1 & 3;
        const int64_t size = head >> 3, stored = kind == 1 ? 1 : size; /* 1: one byte, again and again */
        if (kind == 3 || size > most || stored > end - p - 3) return 0;
        is_last = head & 1;
        p += 3 + stored;
    }
    return end - p == (has_sum ? 4 : 0);
}

/* Decompress a frame to out[0 .. room); *size becomes how many bytes it has, if it is RMQ_EXPANDED. */
static int rmq_expand_zstd(rmq_zstd *z, const uint8_t *p, int64_t length, uint8_t *out, int64_t room, int64_t *size) {
    const uint8_t *blocks = p;
    if (z->library.decompress == NULL) return RMQ_NOT_KNOWN;
    const int64_t window = rmq_zstd_window(p, length, &blocks);
    if (window < 0 || window > RMQ_ZSTD_MOST_WINDOW || !rmq_is_zstd_whole(blocks, p + length, window, p[4] & 4)) return RMQ_NOT_KNOWN;
    if (z->context == NULL) z->context = z->library.new_context();
    if (z->context == NULL) return RMQ_NOT_KNOWN;
    const size_t found = z->library.decompress(z->context, out, (size_t)room, p, (size_t)length);
    if (found == (size_t)0 - RMQ_ZSTD_TOO_SMALL) return RMQ_NO_ROOM;
    if (found > (size_t)0 - RMQ_ZSTD_ERRORS || found > (size_t)room || (int64_t)found > window)
        return RMQ_NOT_KNOWN;
    *size = (int64_t)found;
    return RMQ_EXPANDED;
}

#endif
