/* Little-endian numbers of RocksDB's files, and those of variable length (seven bits a byte, the low ones first). */
#ifndef RMQ_VARINT_H
#define RMQ_VARINT_H

#include <stdint.h>
#include <string.h>

#include "little_endian.h"

static inline void rmq_put_le64(uint8_t *p, uint64_t value) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(value >> 8 * i);
}

/* A number of at most `bits` (32 or 64) bits from p on, before end. Returns the address of the next byte; NULL: no
 * number. */
static inline const uint8_t *rmq_varint(const uint8_t *p, const uint8_t *end, int bits, uint64_t *value) {
    uint64_t all = 0;
    for (int shift = 0; shift < bits && p < end; shift += 7, p++) {
        all |= (uint64_t)(*p & 0x7F) << shift;
        if (*p < 0x80) {
            if (bits < 64 && all >> bits != 0) return NULL;
            *value = all;
            return p + 1;
        }
    }
    return NULL;
}

/* A text with its length before it. */
static inline const uint8_t *rmq_slice(const uint8_t *p, const uint8_t *end, const uint8_t **text, uint64_t *size) {
    p = rmq_varint(p, end, 32, size);
    if (p == NULL || *size > (uint64_t)(end - p)) return NULL;
    *text = p;
    return p + *size;
}

#endif
