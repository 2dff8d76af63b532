/* xxHash's XXH3 of 64 bits with seed 0 and its default secret, which RocksDB has in tables by default since 6.27
 * (xxHash specification, version 0.2.0, XXH3). */
#ifndef RMQ_XXH3_H
#define RMQ_XXH3_H

#include <stdint.h>

#include "little_endian.h"

enum {
    RMQ_XXH3_SECRET = 192,
    RMQ_XXH3_STRIPE = 64, /* bytes that all eight lanes take at once */
    RMQ_XXH3_STRIPES = (RMQ_XXH3_SECRET - RMQ_XXH3_STRIPE) / 8, /* until lanes are scrambled */
};

static const uint64_t rmq_xxh3_primes[5] = {
    0x9E3779B185EBCA87u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u, 0x85EBCA77C2B2AE63u, 0x27D4EB2F165667C5u,
};
static const uint64_t rmq_xxh3_short_primes[3] = {0x9E3779B1u, 0x85EBCA77u, 0xC2B2AE3Du};

static const uint8_t rmq_xxh3_secret[RMQ_XXH3_SECRET] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9,
    0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78,
    0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
    0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f,
    0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
    0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff,
    0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

/* The secret at some place, as a number. */
static inline uint64_t rmq_xxh3_key(int at) { return rmq_le64(rmq_xxh3_secret + at); }

static inline uint64_t rmq_xxh3_left(uint64_t v, int by) { return v << by | v >> (64 - by); }

/* The two halves of a product, laid on each other. */
static inline uint64_t rmq_xxh3_folded(uint64_t a, uint64_t b) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t rmq_xxh3_finished(uint64_t hash) {
    hash = (hash ^ hash >> 37) * 0x165667919E3779F9u;
    return hash ^ hash >> 32;
}

static inline uint64_t rmq_xxh3_mixed(const uint8_t *p, int key) {
    return rmq_xxh3_folded(rmq_le64(p) ^ rmq_xxh3_key(key), rmq_le64(p + 8) ^ rmq_xxh3_key(key + 8));
}

static inline uint64_t rmq_xxh3_up_to_3(const uint8_t *p, uint64_t n) {
    uint64_t hash = rmq_xxh3_key(56) ^ rmq_xxh3_key(64);
    if (n > 0) {
        const uint32_t ends = (uint32_t)p[0] << 16 | (uint32_t)p[n >> 1] << 24 | p[n - 1];
        hash = (ends | (uint32_t)n << 8) ^ (uint64_t)(rmq_le32(rmq_xxh3_secret) ^ rmq_le32(rmq_xxh3_secret + 4));
    }
    hash = (hash ^ hash >> 33) * rmq_xxh3_primes[1];
    hash = (hash ^ hash >> 29) * rmq_xxh3_primes[2];
    return hash ^ hash >> 32;
}

static inline uint64_t rmq_xxh3_up_to_8(const uint8_t *p, uint64_t n) {
    uint64_t hash = (rmq_le32(p + n - 4) | (uint64_t)rmq_le32(p) << 32) ^ rmq_xxh3_key(8) ^ rmq_xxh3_key(16);
    hash ^= rmq_xxh3_left(hash, 49) ^ rmq_xxh3_left(hash, 24);
    hash *= 0x9FB21C651E98DF25u;
    hash = (hash ^ ((hash >> 35) + n)) * 0x9FB21C651E98DF25u;
    return hash ^ hash >> 28;
}

static inline uint64_t rmq_xxh3_up_to_16(const uint8_t *p, uint64_t n) {
    const uint64_t first = rmq_le64(p) ^ rmq_xxh3_key(24) ^ rmq_xxh3_key(32);
    const uint64_t last = rmq_le64(p + n - 8) ^ rmq_xxh3_key(40) ^ rmq_xxh3_key(48);
    return rmq_xxh3_finished(n + __builtin_bswap64(first) + last + rmq_xxh3_folded(first, last));
}

/* From both ends towards the middle. */
static inline uint64_t rmq_xxh3_up_to_128(const uint8_t *p, uint64_t n) {
    uint64_t hash = n * rmq_xxh3_primes[0];
    for (int i = (int)(n - 1) / 32; i >= 0; i--)
        hash += rmq_xxh3_mixed(p + 16 * i, 32 * i) + rmq_xxh3_mixed(p + n - 16 * (i + 1), 32 * i + 16);
    return rmq_xxh3_finished(hash);
}

static inline uint64_t rmq_xxh3_up_to_240(const uint8_t *p, uint64_t n) {
    uint64_t hash = n * rmq_xxh3_primes[0];
    for (int i = 0; i < 8; i++) hash += rmq_xxh3_mixed(p + 16 * i, 16 * i);
    hash = rmq_xxh3_finished(hash);
    for (int i = 8; i < (int)n / 16; i++) hash += rmq_xxh3_mixed(p + 16 * i, 16 * (i - 8) + 3);
    return rmq_xxh3_finished(hash + rmq_xxh3_mixed(p + n - 16, 119));
}

static inline void rmq_xxh3_take(uint64_t lanes[8], const uint8_t *p, const uint8_t *secret) {
    for (int i = 0; i < 8; i++) {
        const uint64_t value = rmq_le64(p + 8 * i), keyed = value ^ rmq_le64(secret + 8 * i);
        lanes[i ^ 1] += value;
        lanes[i] += (uint64_t)(uint32_t)keyed * (keyed >> 32);
    }
}

static uint64_t rmq_xxh3_of_many(const uint8_t *p, uint64_t n) {
    const uint64_t *const prime = rmq_xxh3_primes;
    const uint64_t *const less = rmq_xxh3_short_primes;
    uint64_t lanes[8] = {less[2], prime[0], prime[1], prime[2], prime[3], less[1], prime[4], less[0]};
    const uint64_t stripes = (n - 1) / RMQ_XXH3_STRIPE;
    for (uint64_t i = 0; i < stripes; i++) {
        rmq_xxh3_take(lanes, p + RMQ_XXH3_STRIPE * i, rmq_xxh3_secret + 8 * (i % RMQ_XXH3_STRIPES));
        if (i % RMQ_XXH3_STRIPES != RMQ_XXH3_STRIPES - 1) continue;
        for (int lane = 0; lane < 8; lane++) {
            const uint64_t key = rmq_xxh3_key(RMQ_XXH3_SECRET - RMQ_XXH3_STRIPE + 8 * lane);
            lanes[lane] = (lanes[lane] ^ lanes[lane] >> 47 ^ key) * less[0];
        }
    }
    rmq_xxh3_take(lanes, p + n - RMQ_XXH3_STRIPE, rmq_xxh3_secret + RMQ_XXH3_SECRET - RMQ_XXH3_STRIPE - 7);
    uint64_t hash = n * prime[0];
    for (int i = 0; i < 8; i += 2)
        hash += rmq_xxh3_folded(lanes[i] ^ rmq_xxh3_key(11 + 8 * i), lanes[i + 1] ^ rmq_xxh3_key(19 + 8 * i));
    return rmq_xxh3_finished(hash);
}

static uint64_t rmq_xxh3(const uint8_t *p, uint64_t n) {
    if (n <= 3) return rmq_xxh3_up_to_3(p, n);
    if (n <= 8) return rmq_xxh3_up_to_8(p, n);
    if (n <= 16) return rmq_xxh3_up_to_16(p, n);
    if (n <= 128) return rmq_xxh3_up_to_128(p, n);
    if (n <= 240) return rmq_xxh3_up_to_240(p, n);
    return rmq_xxh3_of_many(p, n);
}

#endif
