/* Numbers whose lowest byte comes first, as compressed data has them. RocketMQ's own are in unit.h. */
#ifndef RMQ_LITTLE_ENDIAN_H
#define RMQ_LITTLE_ENDIAN_H

#include <stdint.h>
#include <string.h>

static inline uint32_t rmq_le16(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }

static inline uint32_t rmq_le32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline uint64_t rmq_le64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

#endif
