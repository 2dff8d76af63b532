/* java.lang.String.hashCode of text that lies in memory as UTF-8: over UTF-16 code units, modulo 2**32. The computation
 * can continue from the hash of the text before.
 *
 * Bytes that are not UTF-8 count as Java decodes them (since 8): U+FFFD for as many as could have begun a character, where a
 * surrogate written in three bytes is one of those.
 */
#ifndef RMQ_JAVA_HASH_H
#define RMQ_JAVA_HASH_H

#include <stdint.h>
#include <string.h>

static inline int rmq_is_continuation(uint8_t b) { return (b & 0xC0) == 0x80; }

/* One character at `p`, before `end`, that is not ASCII. Returns the number of its bytes. */
static int rmq_decode_wide(const uint8_t *p, const uint8_t *end, uint32_t *code) {
    const uint8_t lead = p[0];
    *code = 0xFFFD;
    if (lead < 0xC2 || lead > 0xF4 || end - p < 2 || !rmq_is_continuation(p[1])) return 1;
    if (lead < 0xE0) {
        *code = (lead & 0x1Fu) << 6 | (p[1] & 0x3Fu);
        return 2;
    }
    if ((lead == 0xE0 && p[1] < 0xA0) || (lead == 0xF0 && p[1] < 0x90) || (lead == 0xF4 && p[1] > 0x8F)) return 1;
    if (end - p < 3 || !rmq_is_continuation(p[2])) return 2;
    if (lead < 0xF0) {
        const uint32_t unit = (lead & 0xFu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
        if (unit < 0xD800 || unit > 0xDFFF) *code = unit;
        return 3;
    }
    if (end - p < 4 || !rmq_is_continuation(p[3])) return 3;
    *code = (lead & 0x7u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
    return 4;
}

__attribute__((noinline)) static uint32_t rmq_java_hash_wide(uint32_t hash, const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        uint32_t code = *p;
        p += code < 0x80 ? 1 : rmq_decode_wide(p, end, &code);
        if (code > 0xFFFF) {
            hash = 31 * hash + (0xD800 + ((code - 0x10000) >> 10));
            code = 0xDC00 + ((code - 0x10000) & 0x3FF);
        }
        hash = 31 * hash + code;
    }
    return hash;
}

static inline uint32_t rmq_java_hash(uint32_t hash, const uint8_t *p, int64_t n) {
    const uint8_t *const end = p + n;
    /* Four at a time: a chain of one multiplication for each byte would be four times as long. */
    for (; end - p >= 4; p += 4) {
        uint32_t word;
        memcpy(&word, p, 4);
        if (word & 0x80808080u) return rmq_java_hash_wide(hash, p, end);
        hash = hash * (31u * 31 * 31 * 31) + (p[0] * (31u * 31 * 31) + p[1] * (31u * 31) + p[2] * 31u + p[3]);
    }
    for (; p < end; p++) {
        if (*p & 0x80) return rmq_java_hash_wide(hash, p, end);
        hash = 31 * hash + *p;
    }
    return hash;
}

/* IndexFile.indexKeyHashMethod: Math.abs, and 0 for the one number that has none. */
static inline int32_t rmq_index_hash(uint32_t hash) {
    const uint32_t positive = hash >> 31 ? 0u - hash : hash;
    return positive >> 31 ? 0 : (int32_t)positive;
}

#endif
