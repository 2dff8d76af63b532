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

enum {
    RMQ_MAX_PROPERTIES = 32767 / 4 + 1, /* of 0x7FFF bytes, a pair takes 4 (the last one may do with 3) */
    RMQ_MASK_WORDS = 32768 / 64,
};

/* Offsets into the properties: the name is [name, separator), the value [separator + 1, end). */
typedef struct {
    int32_t name, separator, end;
} rmq_property;

/* A bit for each byte of the properties: is it 0x01, is it 0x02. Bits after the last byte mean nothing. */
typedef struct {
    uint64_t ones[RMQ_MASK_WORDS], twos[RMQ_MASK_WORDS];
} rmq_masks;

/* The masks of `words` times 64 bytes at `p`, into masks[first ..]. Answers the OR of all bytes' high bits, one bit for
 * each byte of 64. */
#if !RMQ_X86
static uint64_t rmq_classify_any(const uint8_t *p, int32_t words, rmq_masks *masks, int32_t first) {
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
static uint64_t rmq_classify_any(const uint8_t *p, int32_t words, rmq_masks *masks, int32_t first) {
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

RMQ_AVX2 static inline uint64_t rmq_mask64(__m256i low, __m256i high) {
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

RMQ_AVX2 static uint64_t rmq_classify_avx2(const uint8_t *p, int32_t words, rmq_masks *masks, int32_t first) {
    const __m256i one = _mm256_set1_epi8(1), two = _mm256_set1_epi8(2);
    uint64_t highs = 0;
    for (int32_t w = first; w < first + words; w++, p += 64) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)p), y = _mm256_loadu_si256((const __m256i *)(p + 32));
        masks->ones[w] = rmq_mask64(_mm256_cmpeq_epi8(x, one), _mm256_cmpeq_epi8(y, one));
        masks->twos[w] = rmq_mask64(_mm256_cmpeq_epi8(x, two), _mm256_cmpeq_epi8(y, two));
        highs |= rmq_mask64(x, y);
    }
    return highs;
}
#endif

static inline uint64_t rmq_classify(const uint8_t *p, int32_t words, rmq_masks *masks, int32_t first,
                                    rmq_machine machine) {
#if RMQ_X86
    if (machine == RMQ_AVX2_MACHINE) return rmq_classify_avx2(p, words, masks, first);
#else
    (void)machine;
#endif
    return rmq_classify_any(p, words, masks, first);
}

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

/* Split `n` bytes at `p` into found[0 .. answer), of RMQ_MAX_PROPERTIES elements. `readable` bytes may be read at p. *high
 * becomes non-zero when a byte of them is not ASCII. */
static inline int32_t rmq_split_properties(const uint8_t *p, int32_t n, int64_t readable, rmq_masks *masks,
                                           rmq_property *found, uint64_t *high, rmq_machine machine) {
    const int32_t whole = n / 64, rest = n % 64;
    *high |= rmq_classify(p, whole, masks, 0, machine);
    if (rest != 0) {
        uint8_t copy[64];
        const uint8_t *q = p + 64 * whole;
        if (readable < 64 * (int64_t)(whole + 1)) {
            memset(copy, 0, sizeof copy);
            memcpy(copy, q, (size_t)rest);
            q = copy;
        }
        const uint64_t inside = ((uint64_t)1 << rest) - 1;
        *high |= rmq_classify(q, 1, masks, whole, machine) & inside;
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

static inline int rmq_is(const uint8_t *p, const char *name, size_t n) { return memcmp(p, name, n) == 0; }

typedef struct {
    const uint8_t *bytes; /* NULL: there is none */
    int64_t size;
} rmq_text;

typedef struct {
    rmq_text tags, keys, uniq_key;
} rmq_labels;

/* The three properties that have columns of their own, in `n` bytes at `p`, where nothing else is asked for. The rules are the
 * same, seen from the name: a pair is a segment that begins with the name and 0x01 and goes on after them. */
static inline void rmq_find_labels(const uint8_t *p, int32_t n, rmq_labels *labels) {
    const uint8_t *const stop = p + n;
    memset(labels, 0, sizeof *labels);
    while (p < stop) {
        const uint8_t *end = memchr(p, 2, (size_t)(stop - p));
        if (end == NULL) end = stop;
        if (end - p > 5 && p[4] == 1) {
            if (rmq_is(p, "TAGS", 4)) labels->tags = (rmq_text){p + 5, end - p - 5};
            else if (rmq_is(p, "KEYS", 4)) labels->keys = (rmq_text){p + 5, end - p - 5};
        } else if (end - p > 9 && rmq_is(p, "UNIQ_KEY\1", 9)) {
            labels->uniq_key = (rmq_text){p + 9, end - p - 9};
        }
        p = end < stop ? end + 1 : stop;
    }
}

/* The names of a unit, to try on later ones: a producer writes the same names in the same order again and again. Sets
 * of names are kept by their number of names, so that messages with and without KEYS, say, do not evict each other. */
enum { RMQ_KNOWN_SETS = 8, RMQ_KNOWN_NAMES = 32, RMQ_KNOWN_BLOCKS = 16 };

typedef struct {
    uint8_t bytes[32]; /* the name and its 0x01 */
    uint32_t mask;     /* a bit for each of them */
    int32_t size;      /* how many they are */
} rmq_known_name;

typedef struct {
    int32_t tags, keys, uniq_key; /* which property has this name, or -1: also where nothing else is known */
    int32_t light_queues, light_offsets; /* the same for those of light_queues.h */
    int32_t count;                /* 0: the names were not simple enough to be known */
    int high;                     /* a name is not ASCII */
    rmq_known_name names[RMQ_KNOWN_NAMES];
    int32_t ends[RMQ_KNOWN_NAMES]; /* of each name in text */
    uint8_t text[32 * RMQ_KNOWN_NAMES];
} rmq_known_names;

/* Learn from what rmq_split_properties found in `n` bytes at `p`. */
static inline void rmq_know_names(rmq_known_names *known, const uint8_t *p, int32_t n, const rmq_property *found,
                                  int32_t count, int high) {
    known->tags = known->keys = known->uniq_key = known->light_queues = known->light_offsets = -1;
    known->count = 0;
    known->high = high;
    int simple = count > 0 && count <= RMQ_KNOWN_NAMES && found[count - 1].end >= n - 1;
    for (int32_t i = 0, begin = 0, text = 0; i < count; i++) {
        const uint8_t *name = p + found[i].name;
        const int32_t length = found[i].separator - found[i].name;
        if (length == 4) {
            if (rmq_is(name, "TAGS", 4)) known->tags = i;
            else if (rmq_is(name, "KEYS", 4)) known->keys = i;
        } else if (length == 8 && rmq_is(name, "UNIQ_KEY", 8)) {
            known->uniq_key = i;
        } else if (length == 20 && rmq_is(name, "INNER_MULTI_DISPATCH", 20)) {
            known->light_queues = i;
        } else if (length == 24 && rmq_is(name, "INNER_MULTI_QUEUE_OFFSET", 24)) {
            known->light_offsets = i;
        }
        simple = simple && found[i].name == begin && length < 31;
        if (!simple) continue;
        memcpy(known->names[i].bytes, name, (size_t)length + 1);
        known->names[i].mask = ((uint32_t)1 << (length + 1)) - 1;
        known->names[i].size = length + 1;
        memcpy(known->text + text, name, (size_t)length);
        known->ends[i] = text += length;
        begin = found[i].end + 1;
    }
    if (simple) known->count = count;
}

#if RMQ_X86
/* rmq_split_properties, tried first: the set of names that the properties have, in its order, or NULL. found[0 .. count) is
 * filled then. Needs 64 readable bytes after them. The known names are all different, so nothing is doubled. */
RMQ_AVX2 static inline const rmq_known_names *rmq_split_as_known(const rmq_known_names *sets, const uint8_t *p, int32_t n,
                                                                 rmq_property *found, uint64_t *high) {
    uint64_t twos[RMQ_KNOWN_BLOCKS + 1], highs = 0;
    const __m256i two = _mm256_set1_epi8(2);
    const int32_t blocks = (n + 63) / 64;
    int32_t count = 0;
    if (n == 0 || blocks > RMQ_KNOWN_BLOCKS) return NULL;
    for (int32_t i = 0; i < blocks; i++) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(p + 64 * i));
        const __m256i y = _mm256_loadu_si256((const __m256i *)(p + 64 * i + 32));
        const uint64_t inside = i + 1 < blocks || n % 64 == 0 ? ~(uint64_t)0 : ((uint64_t)1 << n % 64) - 1;
        twos[i] = rmq_mask64(_mm256_cmpeq_epi8(x, two), _mm256_cmpeq_epi8(y, two)) & inside;
        highs |= rmq_mask64(x, y) & inside;
        count += __builtin_popcountll(twos[i]);
    }
    twos[blocks] = 0;
    if (p[n - 1] != 2) { /* the last pair may lack its 0x02: it ends at n */
        twos[n / 64] |= (uint64_t)1 << n % 64;
        count += 1;
    }
    const rmq_known_names *known = &sets[count % RMQ_KNOWN_SETS];
    if (count != known->count) return NULL;
    uint32_t wrong = 0;
    int32_t block = 0;
    uint64_t ends = twos[0];
    for (int32_t i = 0, begin = 0; i < count; i++) {
        const rmq_known_name *name = &known->names[i];
        while (ends == 0) ends = twos[++block]; /* there are `count` bits */
        const int32_t content = begin + name->size, end = 64 * block + __builtin_ctzll(ends);
        ends &= ends - 1;
        const __m256i there = _mm256_loadu_si256((const __m256i *)(p + begin));
        const __m256i same = _mm256_cmpeq_epi8(there, _mm256_loadu_si256((const __m256i *)name->bytes));
        wrong |= (~(uint32_t)_mm256_movemask_epi8(same) & name->mask) | (uint32_t)(end <= content);
        found[i] = (rmq_property){begin, content - 1, end};
        begin = end + 1;
    }
    if (wrong != 0) return NULL;
    *high |= highs | (uint64_t)known->high;
    return known;
}
#endif

/* The state that splitting keeps from one unit to the next, and working memory. All zeros at first. */
typedef struct {
    rmq_known_names known[RMQ_KNOWN_SETS];
    rmq_masks masks;
    rmq_property found[RMQ_MAX_PROPERTIES]; /* of the last unit */
    uint64_t high;                          /* non-zero: a property held a byte that is not ASCII */
} rmq_splitter;

/* Split `n` bytes at `p` into s->found[0 .. answer), in the quickest way. *names tells which of them are TAGS, KEYS and
 * UNIQ_KEY; *known is the same set where the names were known before, or NULL. */
static inline int32_t rmq_split(rmq_splitter *s, const uint8_t *p, int32_t n, const uint8_t *readable_end,
                                const rmq_known_names **names, const rmq_known_names **known, rmq_machine machine) {
    *known = NULL;
#if RMQ_X86
    if (machine == RMQ_AVX2_MACHINE && readable_end - p >= n + 64)
        *known = rmq_split_as_known(s->known, p, n, s->found, &s->high);
#endif
    if (*known != NULL) {
        *names = *known;
        return (*known)->count;
    }
    uint64_t high = 0;
    const int32_t count = rmq_split_properties(p, n, readable_end - p, &s->masks, s->found, &high, machine);
    rmq_known_names *const learned = &s->known[count % RMQ_KNOWN_SETS];
    rmq_know_names(learned, p, n, s->found, count, high != 0);
    *names = learned;
    s->high |= high;
    return count;
}

#endif
