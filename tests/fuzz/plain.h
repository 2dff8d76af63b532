/* Units read in the plainest way, from the description in unit.h and properties.h alone: what the kernel's answers are held against. */
#ifndef FUZZ_PLAIN_H
#define FUZZ_PLAIN_H

#include "fuzz.h"

typedef struct {
    int64_t total, queue_offset, physical_offset, born_timestamp, store_timestamp, prepared_offset;
    int32_t magic, body_crc, queue_id, flag, sys_flag, reconsume_times;
    const uint8_t *born_host, *store_host, *body, *topic, *properties;
    int64_t born_size, store_size, body_size, topic_size, properties_size;
} plain_unit;

typedef struct {
    const uint8_t *name, *value;
    int64_t name_size, value_size;
} plain_pair;

static inline int64_t plain_number(const uint8_t *p, int bytes) {
    uint64_t number = p[0] & 0x80 ? ~(uint64_t)0 : 0;
    for (int i = 0; i < bytes; i++) number = number << 8 | p[i];
    return (int64_t)number;
}

static inline uint32_t plain_crc(const uint8_t *p, int64_t n) {
    static uint32_t table[256];
    uint32_t crc = ~0u;
    for (uint32_t i = 0; table[255] == 0 && i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xEDB88320u : 0);
    }
    for (int64_t i = 0; i < n; i++) crc = crc >> 8 ^ table[(crc ^ p[i]) & 255];
    return ~crc & 0x7FFFFFFF;
}

/* The next `bytes` bytes, or NULL. */
static inline const uint8_t *plain_next(const uint8_t **at, const uint8_t *end, int64_t bytes) {
    const uint8_t *const here = *at;
    if (bytes < 0 || bytes > end - here) return NULL;
    *at += bytes;
    return here;
}

/* Is there a whole unit at p? `left`: bytes to the end of its segment. */
static inline int plain_is_unit(const uint8_t *p, int64_t available, int64_t position, int64_t left, int verify, plain_unit *u) {
    memset(u, 0, sizeof *u);
    if (left < 8 || available < 91) return 0;
    u->total = plain_number(p, 4);
    u->magic = (int32_t)plain_number(p + 4, 4);
    if (u->magic != (int32_t)0xDAA320A7 && u->magic != (int32_t)0xDAA320AB) return 0;
    if (u->total < 91 || u->total > available || u->total > left - 8) return 0;
    u->body_crc = (int32_t)plain_number(p + 8, 4);
    u->queue_id = (int32_t)plain_number(p + 12, 4);
    u->flag = (int32_t)plain_number(p + 16, 4);
    u->queue_offset = plain_number(p + 20, 8);
    u->physical_offset = plain_number(p + 28, 8);
    u->sys_flag = (int32_t)plain_number(p + 36, 4);
    u->born_timestamp = plain_number(p + 40, 8);
    if (u->physical_offset != position) return 0;
    const uint8_t *at = p + 48, *const end = p + u->total, *q;
    u->born_size = u->sys_flag & 0x10 ? 20 : 8;
    u->store_size = u->sys_flag & 0x20 ? 20 : 8;
    if ((u->born_host = plain_next(&at, end, u->born_size)) == NULL) return 0;
    if ((q = plain_next(&at, end, 8)) == NULL) return 0;
    u->store_timestamp = plain_number(q, 8);
    if ((u->store_host = plain_next(&at, end, u->store_size)) == NULL) return 0;
    if ((q = plain_next(&at, end, 16)) == NULL) return 0;
    u->reconsume_times = (int32_t)plain_number(q, 4);
    u->prepared_offset = plain_number(q + 4, 8);
    u->body_size = plain_number(q + 12, 4);
    if ((u->body = plain_next(&at, end, u->body_size)) == NULL) return 0;
    const int width = u->magic == (int32_t)0xDAA320A7 ? 1 : 2;
    if ((q = plain_next(&at, end, width)) == NULL) return 0;
    u->topic_size = plain_number(q, width);
    if ((u->topic = plain_next(&at, end, u->topic_size)) == NULL) return 0;
    if ((q = plain_next(&at, end, 2)) == NULL) return 0;
    u->properties_size = plain_number(q, 2);
    if ((u->properties = plain_next(&at, end, u->properties_size)) == NULL || at != end) return 0;
    return !verify || u->body_size == 0 || plain_crc(u->body, u->body_size) == (uint32_t)u->body_crc;
}

static inline int plain_same(const uint8_t *a, int64_t m, const uint8_t *b, int64_t n) {
    return m == n && (n == 0 || memcmp(a, b, (size_t)n) == 0);
}

/* The pairs of some properties, the last of each name, `most` at most. */
static inline int plain_pairs(const uint8_t *p, int64_t n, plain_pair *pairs, int most) {
    int count = 0;
    for (int64_t begin = 0; begin < n && count < most;) {
        int64_t end = begin, one = -1;
        for (; end < n && p[end] != 2; end++)
            if (p[end] == 1 && one < 0) one = end;
        if (one > begin && one < end - 1) pairs[count++] = (plain_pair){p + begin, p + one + 1, one - begin, end - one - 1};
        begin = end + 1;
    }
    int kept = 0;
    for (int i = 0; i < count; i++) {
        int is_last = 1;
        for (int j = i + 1; j < count; j++) is_last &= !plain_same(pairs[i].name, pairs[i].name_size, pairs[j].name, pairs[j].name_size);
        if (is_last) pairs[kept++] = pairs[i];
    }
    return kept;
}

static inline const plain_pair *plain_find(const plain_pair *pairs, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (plain_same(pairs[i].name, pairs[i].name_size, (const uint8_t *)name, (int64_t)strlen(name))) return &pairs[i];
    return NULL;
}

#endif
