/* The properties of a unit: name 0x01 value 0x02, repeated; the last 0x02 may be missing.
 *
 * The rules are those of org.apache.rocketmq.common.message.MessageDecoder.string2messageProperties since 4.9.1: a
 * segment between two 0x02 counts when its first 0x01 is neither its first nor its last byte. So a value may contain
 * 0x01, and an empty name or value drops the pair. Of equal names the last one counts.
 * 0x01 and 0x02 are never part of a longer UTF-8 sequence, so bytes may be split before they are decoded.
 */
#ifndef RMQ_PROPERTIES_H
#define RMQ_PROPERTIES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

#if RMQ_X86
#include <immintrin.h>
#endif

enum {
    RMQ_MAX_PROPERTIES = 32767 / 4 + 1, /* of 0x7FFF bytes, a pair takes 4 (the last one may do with 3) */
    RMQ_MASK_WORDS = 32768 / 64,
};

/* Offsets into the properties: the name is [name, separator), the value [separator + 1, end). */
typedef struct {
    int32_t name, separator, end;
} rmq_property;

/* A bit for each byte of the properties: is it 0x01, is it 0x02. Bits behind the last byte mean nothing. */
typedef struct {
    uint64_t ones[RMQ_MASK_WORDS], twos[RMQ_MASK_WORDS];
} rmq_masks;

/* The masks of `words` times 64 bytes at `p`, into masks[first ..]. Answers the OR of all bytes' high bits, one bit for each place in 64. */
typedef uint64_t rmq_classifier(const uint8_t *p, int32_t words, rmq_masks *masks, int32_t first);

#if !RMQ_X86
static uint64_t rmq_classify_portable(const uint8_t *p, int32_t words, rmq_masks *masks, int32_t first) {
    uint64_t highs = 0;
    for (int32_t w = first; w < first + words; w++, p += 64) {
        uint64_t ones = 0, twos = 0;
        for (int i = 0; i < 64; i++) {
            ones |= (uint64_t)(p[i] == 1) << i;
            twos |= (uint64_t)(p[i] == 2) << i;
            highs |= (uint64_t)(p[i] >> 7) << i;
        }
        masks->ones[w] = ones;
        masks->twos[w] = twos;
    }
    return highs;
}
#else
static uint64_t rmq_classify_sse2(const uint8_t *p, int32_t words, rmq_masks *masks, int32_t first) {
    const __m128i one = _mm_set1_epi8(1), two = _mm_set1_epi8(2);
    uint64_t highs = 0;
    for (int32_t w = first; w < first + words; w++) {
        uint64_t ones = 0, twos = 0;
        for (int i = 0; i < 64; i += 16, p += 16) {
            const __m128i x = _mm_loadu_si128((const __m128i *)p);
            ones |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, one)) << i;
            twos |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, two)) << i;
            highs |= (uint64_t)(uint32_t)_mm_movemask_epi8(x) << i;
        }
        masks->ones[w] = ones;
        masks->twos[w] = twos;
    }
    return highs;
}

__attribute__((target("avx2"))) static uint64_t rmq_classify_avx2(const uint8_t *p, int32_t words, rmq_masks *masks, int32_t first) {
    const __m256i one = _mm256_set1_epi8(1), two = _mm256_set1_epi8(2);
    uint64_t highs = 0;
    for (int32_t w = first; w < first + words; w++, p += 64) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)p), y = _mm256_loadu_si256((const __m256i *)(p + 32));
        masks->ones[w] = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, one)) |
                         (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(y, one)) << 32;
        masks->twos[w] = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, two)) |
                         (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(y, two)) << 32;
        highs |= (uint32_t)_mm256_movemask_epi8(x) | (uint64_t)(uint32_t)_mm256_movemask_epi8(y) << 32;
    }
    return highs;
}
#endif

static inline int rmq_same_name(const uint8_t *p, rmq_property a, rmq_property b) {
    const size_t n = (size_t)(a.separator - a.name);
    return n == (size_t)(b.separator - b.name) && memcmp(p + a.name, p + b.name, n) == 0;
}

/* Keep the last of equal names, where it stands. Rare (a doubled name is a producer's accident), but a hostile unit holds
 * thousands of names, so it must not be quadratic: a chained hash table over the names kept so far, filled backwards. */
__attribute__((noinline)) static int32_t rmq_drop_doubles(const uint8_t *p, rmq_property *found, int32_t n) {
    enum { BUCKETS = 4096 };
    uint16_t head[BUCKETS], next[RMQ_MAX_PROPERTIES];
    memset(head, 0, sizeof head);
    int32_t kept = n; /* found[kept .. n) are the ones to keep */
    for (int32_t i = n - 1; i >= 0; i--) {
        uint32_t hash = 2166136261u;
        for (int32_t k = found[i].name; k < found[i].separator; k++) hash = (hash ^ p[k]) * 16777619u;
        uint16_t *const bucket = &head[(hash ^ hash >> 16) % BUCKETS];
        int32_t j = *bucket; /* 1 + index, 0 is the end */
        while (j != 0 && !rmq_same_name(p, found[j - 1], found[i])) j = next[j - 1];
        if (j != 0) continue;
        found[--kept] = found[i];
        next[kept] = *bucket;
        *bucket = (uint16_t)(kept + 1);
    }
    memmove(found, found + kept, (size_t)(n - kept) * sizeof *found);
    return n - kept;
}

/* A bit for a name: equal names share it, and no two of the 21 names that brokers and clients write most often do. */
static inline uint64_t rmq_mark(uint8_t first, uint8_t last, int32_t length) {
    return (uint64_t)1 << ((first + 5u * last + 14u * (uint32_t)length) & 63);
}

static inline void rmq_end_segment(const uint8_t *p, int32_t begin, int32_t separator, int32_t end, rmq_property *found,
                                   int32_t *count, uint64_t *seen, int *doubles) {
    if (separator <= begin || separator >= end - 1) return;
    const uint64_t mark = rmq_mark(p[begin], p[separator - 1], separator - begin);
    *doubles |= (*seen & mark) != 0;
    *seen |= mark;
    found[(*count)++] = (rmq_property){begin, separator, end};
}

/* Split `n` bytes at `p` into found[0 .. answer); found has room for RMQ_MAX_PROPERTIES. `readable` bytes may be read
 * at p. *high becomes non-zero when a byte of them is not ASCII. */
static inline int32_t rmq_split_properties(const uint8_t *p, int32_t n, int64_t readable, rmq_classifier *classify,
                                           rmq_masks *masks, rmq_property *found, uint64_t *high) {
    const int32_t whole = n / 64, rest = n % 64;
    *high |= classify(p, whole, masks, 0);
    if (rest != 0) {
        uint8_t copy[64];
        const uint8_t *q = p + 64 * whole;
        if (readable < 64 * (int64_t)(whole + 1)) {
            memset(copy, 0, sizeof copy);
            memcpy(copy, q, (size_t)rest);
            q = copy;
        }
        const uint64_t inside = ((uint64_t)1 << rest) - 1;
        *high |= classify(q, 1, masks, whole) & inside;
        masks->ones[whole] &= inside;
        masks->twos[whole] &= inside;
    }

    int32_t count = 0, begin = 0, separator = -1;
    uint64_t seen = 0; /* the marks of the names so far */
    int doubles = 0;
    for (int32_t block = 0; block < n; block += 64) {
        uint64_t ones = masks->ones[block / 64], twos = masks->twos[block / 64];
        while (twos != 0) {
            const uint64_t lowest = twos & -twos;
            const int32_t end = block + __builtin_ctzll(twos);
            if (separator < 0 && (ones & (lowest - 1)) != 0) separator = block + __builtin_ctzll(ones);
            rmq_end_segment(p, begin, separator, end, found, &count, &seen, &doubles);
            begin = end + 1;
            separator = -1;
            ones &= -lowest;
            twos ^= lowest;
        }
        if (separator < 0 && ones != 0) separator = block + __builtin_ctzll(ones);
    }
    rmq_end_segment(p, begin, separator, n, found, &count, &seen, &doubles); /* ends at n, should no 0x02 do that */
    if (!doubles) return count;
    for (int32_t i = 1; count <= 16 && i < count; i++) /* most often only a mark was shared */
        for (int32_t j = 0; j < i; j++)
            if (rmq_same_name(p, found[i], found[j])) return rmq_drop_doubles(p, found, count);
    return count <= 16 ? count : rmq_drop_doubles(p, found, count);
}

#endif
