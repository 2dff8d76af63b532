/* xxHash's 32-bit checksum with seed 0, which LZ4 frames have (xxHash specification, version 0.1.1). */
#ifndef RMQ_XXHASH32_H
#define RMQ_XXHASH32_H

#include <stdint.h>

#include "little_endian.h"

static const uint32_t rmq_xxh_primes[5] = {0x9E3779B1u, 0x85EBCA77u, 0xC2B2AE3Du, 0x27D4EB2Fu, 0x165667B1u};

static inline uint32_t rmq_rotated(uint32_t v, int by) { return v << by | v >> (32 - by); }

static inline uint32_t rmq_xxh_lane(uint32_t lane, const uint8_t *p) {
    return rmq_rotated(lane + rmq_le32(p) * rmq_xxh_primes[1], 13) * rmq_xxh_primes[0];
}

static uint32_t rmq_xxhash32(const uint8_t *p, int64_t n) {
    const uint32_t *const prime = rmq_xxh_primes;
    uint32_t hash = prime[4];
    int64_t left = n;
    if (n >= 16) {
        uint32_t lanes[4] = {prime[0] + prime[1], prime[1], 0, 0u - prime[0]};
        for (; left >= 16; left -= 16, p += 16)
            for (int i = 0; i < 4; i++) lanes[i] = rmq_xxh_lane(lanes[i], p + 4 * i);
        hash = rmq_rotated(lanes[0], 1) + rmq_rotated(lanes[1], 7) + rmq_rotated(lanes[2], 12) + rmq_rotated(lanes[3], 18);
    }
    hash += (uint32_t)n;
    for (; left >= 4; left -= 4, p += 4) hash = rmq_rotated(hash + rmq_le32(p) * prime[2], 17) * prime[3];
    for (; left > 0; left--) hash = rmq_rotated(hash + *p++ * prime[4], 11) * prime[0];
    hash = (hash ^ hash >> 15) * prime[1];
    hash = (hash ^ hash >> 13) * prime[2];
    return hash ^ hash >> 16;
}

#endif
