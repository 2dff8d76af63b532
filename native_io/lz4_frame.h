/* LZ4 frames (LZ4 Frame Format 1.6, LZ4 Block Format) that lie in memory as a whole, decompressed in one go.
 *
 * A frame that this decompresses is one that liblz4 decompresses, to the same bytes. It gives up on others, and on some odd
 * ones: with a dictionary, or followed by anything. */
#ifndef RMQ_LZ4_FRAME_H
#define RMQ_LZ4_FRAME_H

#include <stdint.h>
#include <string.h>

#include "expanded.h"
#include "frame_magic.h"
#include "little_endian.h"
#include "lz4_size.h"
#include "xxhash32.h"

enum {
    RMQ_LZ4_SHORTEST_MATCH = 4,
    RMQ_LZ4_LAST_LITERALS = 5, /* a block ends with so many literals at least */
    RMQ_LZ4_LAST_MATCH = 12,   /* and its last match begins so many bytes before the end, or more */
    RMQ_LZ4_WILD = 32,         /* room behind what is copied, so that it can be copied 16 bytes at a time */
    RMQ_LZ4_MIDST = 32,        /* the most bytes of literals and a match whose lengths are in the token */
};

/* From the frame's header. */
typedef struct {
    int is_independent, has_block_sums, has_sum;
    int64_t largest_block;
    int64_t size; /* of the content; -1: not told */
} rmq_lz4_frame;

/* The header; where the blocks begin, or NULL. */
static inline const uint8_t *rmq_lz4_header(rmq_lz4_frame *frame, const uint8_t *p, const uint8_t *end) {
    if (end - p < 7 || rmq_le32(p) != RMQ_LZ4_MAGIC) return NULL;
    const uint8_t *const begin = p + 4;
    const int flags = begin[0], blocks = begin[1];
    /* version 1, no reserved bit, no dictionary */
    if (flags >> 6 != 1 || flags & 3 || blocks & 0x8F || blocks >> 4 < 4) return NULL;
    p = begin + 2;
    frame->is_independent = flags >> 5 & 1;
    frame->has_block_sums = flags >> 4 & 1;
    frame->has_sum = flags >> 2 & 1;
    frame->largest_block = (int64_t)1 << (2 * (blocks >> 4) + 8);
    frame->size = -1;
    if (flags & 8) {
        if (end - p < 9) return NULL;
        frame->size = (int64_t)rmq_le64(p);
        if (frame->size < 0) return NULL;
        p += 8;
    }
    return *p == (rmq_xxhash32(begin, p - begin) >> 8 & 255) ? p + 1 : NULL;
}

/* Copy bytes of which none is where they are copied to; up to 15 more are written. */
static inline void rmq_lz4_copy(uint8_t *to, const uint8_t *from, int64_t n) {
    for (int64_t at = 0; at < n; at += 16) memcpy(to + at, from + at, 16);
}

/* Copy a match; wild: RMQ_LZ4_WILD bytes may be written behind it. */
static inline void rmq_lz4_copy_match(uint8_t *to, int64_t distance, int64_t length, int wild) {
    const uint8_t *from = to - distance;
    if (wild && distance >= 16) {
        rmq_lz4_copy(to, from, length);
        return;
    }
    if (wild && distance >= 8) { /* each eight bytes are there before they are copied */
        for (int64_t at = 0; at < length; at += 8) memcpy(to + at, from + at, 8);
        return;
    }
    if (distance == 1) {
        memset(to, *from, (size_t)length);
        return;
    }
    for (int64_t i = 0; i < length; i++) to[i] = from[i];
}

/* A block to *to, which is moved on; `before` is the first byte that a match may reach back to. */
static inline int rmq_lz4_block(const uint8_t *p, const uint8_t *end, const uint8_t *before, uint8_t **to, const uint8_t *stop) {
    uint8_t *o = *to;
    int64_t match = 0; /* bytes of the one before */
    while (p < end) {
        const int token = *p++;
        int64_t literals = token >> 4;
        /* Most are short and in the midst of a block: all bytes that they may have are copied, and few branches taken. */
        if (literals < 15 && end - p >= RMQ_LZ4_MIDST && stop - o >= RMQ_LZ4_MIDST) {
            memcpy(o, p, 16);
            const int64_t distance = rmq_le16(p + literals);
            if (distance >= 8 && distance <= o + literals - before && (token & 15) < 15) {
                o += literals;
                p += literals + 2;
                const uint8_t *const from = o - distance;
                memcpy(o, from, 8);
                memcpy(o + 8, from + 8, 8);
                memcpy(o + 16, from + 16, 2);
                match = (token & 15) + RMQ_LZ4_SHORTEST_MATCH;
                o += match;
                continue;
            }
        }
        if ((p = rmq_lz4_length(p, end, &literals)) == NULL || literals > end - p) return RMQ_NOT_KNOWN;
        if (literals > stop - o) return RMQ_NO_ROOM;
        if (end - p - literals >= 16 && stop - o - literals >= 16)
            rmq_lz4_copy(o, p, literals);
        else
            memcpy(o, p, (size_t)literals);
        o += literals;
        p += literals;
        if (p == end) {
            *to = o;
            return match == 0 || (literals >= RMQ_LZ4_LAST_LITERALS && match + literals >= RMQ_LZ4_LAST_MATCH)
                       ? RMQ_EXPANDED : RMQ_NOT_KNOWN;
        }
        if (end - p < 2) return RMQ_NOT_KNOWN;
        const int64_t distance = rmq_le16(p);
        match = token & 15;
        if ((p = rmq_lz4_length(p + 2, end, &match)) == NULL) return RMQ_NOT_KNOWN;
        match += RMQ_LZ4_SHORTEST_MATCH;
        if (distance == 0 || distance > o - before) return RMQ_NOT_KNOWN;
        if (match > stop - o) return RMQ_NO_ROOM;
        rmq_lz4_copy_match(o, distance, match, stop - o - match >= RMQ_LZ4_WILD);
        o += match;
    }
    return RMQ_NOT_KNOWN;
}

/* The next block of a frame, and its checksum. *at is moved on; to `end` + 1 behind the last one. */
static inline int rmq_lz4_next(const rmq_lz4_frame *frame, const uint8_t **at, const uint8_t *end, const uint8_t *out, uint8_t **to,
                               const uint8_t *stop, int *is_last) {
    const uint8_t *p = *at;
    if (end - p < 4) return RMQ_NOT_KNOWN;
    const uint32_t head = rmq_le32(p);
    const int64_t size = head & 0x7FFFFFFF;
    *is_last = head == 0;
    p += 4;
    *at = p;
    if (*is_last) return RMQ_EXPANDED;
    if (size == 0 || size > frame->largest_block || size > end - p) return RMQ_NOT_KNOWN;
    uint8_t *const begin = *to;
    if (head >> 31) {
        if (size > stop - begin) return RMQ_NO_ROOM;
        memcpy(begin, p, (size_t)size);
        *to += size;
    } else {
        const int status = rmq_lz4_block(p, p + size, frame->is_independent ? begin : out, to, stop);
        if (status != RMQ_EXPANDED) return status;
        if (*to - begin > frame->largest_block) return RMQ_NOT_KNOWN;
    }
    p += size;
    if (frame->has_block_sums) {
        if (end - p < 4 || rmq_le32(p) != rmq_xxhash32(p - size, size)) return RMQ_NOT_KNOWN;
        p += 4;
    }
    *at = p;
    return RMQ_EXPANDED;
}

/* Decompress a frame to out[0 .. room); *size becomes how many bytes it has, if it is RMQ_EXPANDED. */
static int rmq_expand_lz4(const uint8_t *p, int64_t length, uint8_t *out, int64_t room, int64_t *size) {
    const uint8_t *const end = p + length;
    rmq_lz4_frame frame;
    uint8_t *to = out;
    int is_last = 0;
    p = rmq_lz4_header(&frame, p, end);
    if (p == NULL) return RMQ_NOT_KNOWN;
    while (!is_last) {
        const int status = rmq_lz4_next(&frame, &p, end, out, &to, out + room, &is_last);
        if (status != RMQ_EXPANDED) return status;
    }
    *size = to - out;
    if (frame.size >= 0 && frame.size != *size) return RMQ_NOT_KNOWN;
    if (!frame.has_sum) return p == end ? RMQ_EXPANDED : RMQ_NOT_KNOWN;
    return end - p == 4 && rmq_le32(p) == rmq_xxhash32(out, *size) ? RMQ_EXPANDED : RMQ_NOT_KNOWN;
}

#endif
