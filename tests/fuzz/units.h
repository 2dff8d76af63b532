/* Units for mutators: whole ones drawn anew, and those of a window with one field that lies. */
#ifndef FUZZ_UNITS_H
#define FUZZ_UNITS_H

#include "fuzz.h"
#include "unit.h"

enum { FUZZ_HEADER = 48, FUZZ_MOST_UNIT = 1200 }; /* of an entry that wraps a unit (DLedger); of a drawn one */

static const char *const fuzz_names[] = {"TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "INNER_BASE", "INNER_NUM", "INNER_MULTI_DISPATCH",
                                         "INNER_MULTI_QUEUE_OFFSET", "a", "\xC3\xA4", "\xFF", "CLUSTER", "__CRC32#", ""};
static const char *const fuzz_values[] = {"A", "TagA", "1", "2 3", "k1 k2  k3", "%LMQ%a,%LMQ%b", "7,8", "0", "\xEF\xBF\xBD", "\xE2\x82",
                                          "\x01x", "9223372036854775807", "true", "", "0A0B0C0D000018B4AAC20000000000010A0B"};
static const char *const fuzz_topics[] = {"T", "TopicA", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "rmq_sys_x", "\xC3\xA9", "%LMQ%a", ""};

static inline size_t fuzz_put_text(uint8_t *to, const char *text) {
    memcpy(to, text, strlen(text));
    return strlen(text);
}

static inline size_t fuzz_draw_properties(fuzz_random *r, uint8_t *to) {
    size_t size = 0;
    const uint64_t count = fuzz_below(r, 8) == 0 ? fuzz_below(r, 40) : fuzz_below(r, 6);
    for (uint64_t i = 0; i < count; i++) {
        size += fuzz_put_text(to + size, fuzz_names[fuzz_below(r, sizeof fuzz_names / sizeof *fuzz_names)]);
        to[size++] = 1;
        size += fuzz_put_text(to + size, fuzz_values[fuzz_below(r, sizeof fuzz_values / sizeof *fuzz_values)]);
        if (i + 1 < count || fuzz_below(r, 2)) to[size++] = 2;
        if (size > 700) break;
    }
    return size;
}

/* The messages of a batch. */
static inline size_t fuzz_draw_batch(fuzz_random *r, uint8_t *to) {
    size_t size = 0;
    for (uint64_t count = fuzz_below(r, 4); count > 0; count--) {
        uint8_t *const p = to + size;
        const size_t body = fuzz_below(r, 12);
        memset(p, 0, 22 + body);
        rmq_put_i32(p + 12, (int32_t)fuzz_below(r, 9));
        rmq_put_i32(p + 16, (int32_t)body);
        memset(p + 20, 'b', body);
        const size_t properties = fuzz_below(r, 3) ? 0 : fuzz_put_text(p + 22 + body, "TAGS\1TagA\2");
        rmq_put_i16(p + 20 + body, (int16_t)properties);
        rmq_put_i32(p, (int32_t)(22 + body + properties));
        size += 22 + body + properties;
    }
    return size;
}

/* "hello " eight times, compressed by zlib, LZ4 and zstd, and 300 times 'x' by zlib; sysFlag's bits 8 to 10 tell which. */
static const struct {
    uint8_t size, kind, bytes[31];
} fuzz_compressed[] = {
    {17, 0, {0x78, 0xDA, 0xCB, 0x48, 0xCD, 0xC9, 0xC9, 0x57, 0xC8, 0x20, 0x9A, 0x04, 0x00, 0xB5, 0x37, 0x11, 0xA1}},
    {13, 3, {0x78, 0xDA, 0xAB, 0xA8, 0x18, 0x05, 0xC4, 0x02, 0x00, 0xB2, 0x0A, 0x8C, 0xA1}},
    {31, 1, {0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82, 0x10, 0x00, 0x00, 0x00, 0x6F, 0x68, 0x65, 0x6C, 0x6C,
             0x6F, 0x20, 0x06, 0x00, 0x12, 0x50, 0x65, 0x6C, 0x6C, 0x6F, 0x20, 0x00, 0x00, 0x00, 0x00}},
    {21, 2, {0x28, 0xB5, 0x2F, 0xFD, 0x20, 0x30, 0x65, 0x00, 0x00, 0x30, 0x68, 0x65, 0x6C, 0x6C, 0x6F, 0x20, 0x01, 0x00, 0x03, 0x95, 0x22}},
};

static inline size_t fuzz_draw_body(fuzz_random *r, uint8_t *to, int32_t *flags) {
    if ((*flags & (RMQ_SYSFLAG_NEED_UNWRAP | RMQ_SYSFLAG_INNER_BATCH | 1)) == (RMQ_SYSFLAG_NEED_UNWRAP | RMQ_SYSFLAG_INNER_BATCH))
        return fuzz_draw_batch(r, to);
    if (*flags & RMQ_SYSFLAG_COMPRESSED) {
        const uint64_t which = fuzz_below(r, sizeof fuzz_compressed / sizeof *fuzz_compressed);
        *flags = (*flags & ~0x700) | fuzz_compressed[which].kind << 8;
        memcpy(to, fuzz_compressed[which].bytes, fuzz_compressed[which].size);
        return fuzz_compressed[which].size;
    }
    const size_t size = fuzz_below(r, 4) == 0 ? 0 : fuzz_below(r, 40);
    for (size_t i = 0; i < size; i++) to[i] = (uint8_t)fuzz_draw(r);
    return size;
}

/* The CRC of a unit's body is right again. */
static inline void fuzz_mend_crc(uint8_t *p, const rmq_unit *u) {
    rmq_put_i32(p + RMQ_AT_BODY_CRC, (int32_t)(rmq_crc32(0, u->body, (size_t)u->body_length) & 0x7FFFFFFF));
}

/* Write a whole unit: its size, FUZZ_MOST_UNIT at most. */
static inline size_t fuzz_draw_unit(fuzz_random *r, uint8_t *const to, int64_t position) {
    static const int32_t usual[] = {0, 0, 0, 1, 0x201, 4, 8, 12, 16, 32, 48, 0xC0, 0xC1, 0x40, 0x80};
    int32_t flags = usual[fuzz_below(r, sizeof usual / sizeof *usual)];
    const size_t born = flags & RMQ_SYSFLAG_BORNHOST_V6 ? 20 : 8, store = flags & RMQ_SYSFLAG_STOREHOST_V6 ? 20 : 8;
    const int is_v2 = fuzz_below(r, 4) == 0;
    memset(to, 0, RMQ_AT_BORN_HOST + 64);
    rmq_put_i32(to + 4, is_v2 ? RMQ_MAGIC_V2 : RMQ_MAGIC_V1);
    rmq_put_i32(to + RMQ_AT_QUEUE_ID, (int32_t)fuzz_below(r, 3));
    rmq_put_i32(to + RMQ_AT_FLAG, (int32_t)fuzz_draw(r));
    rmq_put_i64(to + RMQ_AT_QUEUE_OFFSET, fuzz_below(r, 9) == 0 ? fuzz_lie(r, 0) : (int64_t)fuzz_below(r, 20));
    rmq_put_i64(to + RMQ_AT_PHYSICAL_OFFSET, position);
    rmq_put_i64(to + RMQ_AT_BORN_TIMESTAMP, fuzz_below(r, 9) == 0 ? fuzz_lie(r, 0) : 1700000000000 + (int64_t)fuzz_below(r, 99));
    uint8_t *p = to + RMQ_AT_BORN_HOST;
    for (size_t i = 0; i < born; i++) p[i] = (uint8_t)(fuzz_below(r, 3) ? i : fuzz_draw(r));
    p += born;
    rmq_put_i64(p, fuzz_below(r, 9) == 0 ? fuzz_lie(r, 0) : 1700000000000 + (int64_t)fuzz_below(r, 99));
    p += 8;
    memcpy(p, "\x7F\0\0\1\0\0\x2A\x9F\0\0\0\0\0\0\0\1\0\0\0\0", store);
    p += store;
    rmq_put_i32(p, (int32_t)fuzz_below(r, 3));
    rmq_put_i64(p + 4, (int64_t)fuzz_below(r, 3));
    const size_t body = fuzz_draw_body(r, p + 16, &flags);
    rmq_put_i32(to + RMQ_AT_SYSFLAG, flags);
    rmq_put_i32(p + 12, (int32_t)body);
    rmq_put_i32(to + RMQ_AT_BODY_CRC, (int32_t)(rmq_crc32(0, p + 16, body) & 0x7FFFFFFF));
    p += 16 + body;
    const char *const topic = fuzz_topics[fuzz_below(r, sizeof fuzz_topics / sizeof *fuzz_topics)];
    if (is_v2) *p++ = 0;
    *p++ = (uint8_t)strlen(topic);
    p += fuzz_put_text(p, topic);
    const size_t properties = fuzz_draw_properties(r, p + 2);
    rmq_put_i16(p, (int16_t)properties);
    p += 2 + properties;
    rmq_put_i32(to, (int32_t)(p - to));
    return (size_t)(p - to);
}

/* The header of an entry that wraps a unit of `size` bytes. */
static inline void fuzz_put_header(uint8_t *p, int64_t position, int64_t number, int32_t size) {
    memset(p, 0, FUZZ_HEADER);
    rmq_put_i32(p, 1);
    rmq_put_i32(p + 4, FUZZ_HEADER + size);
    rmq_put_i64(p + 8, number);
    rmq_put_i64(p + 16, 1);
    rmq_put_i64(p + 24, position);
    rmq_put_i32(p + 44, size);
}

/* Where the units of a window begin, as far as their sizes lead: at most `most`. A wrapped one begins after its header. */
static inline int fuzz_units_in(const uint8_t *window, size_t size, size_t header, size_t *starts, int most) {
    int count = 0;
    for (size_t at = 0; count < most && at + header + RMQ_BLANK_SIZE <= size;) {
        at += header;
        const int64_t total = rmq_i32(window + at);
        if (total < RMQ_SMALLEST_UNIT || (uint64_t)total > size - at) break;
        starts[count++] = at;
        at += (size_t)total;
    }
    return count;
}

/* A field of a whole unit, to lie in: its offset and its size. */
static inline void fuzz_draw_field(fuzz_random *r, const uint8_t *p, const rmq_unit *u, int64_t *at, int *size) {
    const uint8_t *const after = u->store_timestamp + 8 + u->store_host_size;
    const uint8_t *const fields[] = {p, p + 4, p + 8, p + 12, p + 16, p + 20, p + 28, p + 36, p + 40, p + 48, u->store_timestamp, after, after + 4,
                                     after + 12, u->body + u->body_length, u->topic + u->topic_length};
    static const int sizes[] = {4, 4, 4, 4, 4, 8, 8, 4, 8, 8, 8, 4, 8, 4, 1, 2};
    const uint64_t which = fuzz_below(r, sizeof sizes / sizeof *sizes);
    *at = fields[which] - p;
    *size = sizes[which];
}

/* Change one thing of a unit at p, whose memory is as long as it is: lie in one field, or change a byte of a part and mend
 * the CRC. */
static inline void fuzz_spoil(fuzz_random *r, uint8_t *p, int64_t size) {
    rmq_unit u;
    rmq_finding why;
    if (size < RMQ_SMALLEST_UNIT) return;
    if (rmq_unit_at(p, size, rmq_i64(p + RMQ_AT_PHYSICAL_OFFSET), INT64_MAX, 0, &u, &why) != RMQ_OK) {
        p[fuzz_below(r, (uint64_t)size)] = (uint8_t)fuzz_draw(r);
        return;
    }
    if (fuzz_below(r, 2)) {
        int64_t at;
        int width;
        fuzz_draw_field(r, p, &u, &at, &width);
        if (width == 8) rmq_put_i64(p + at, fuzz_lie(r, rmq_i64(p + at)));
        else if (width == 4) rmq_put_i32(p + at, (int32_t)fuzz_lie(r, rmq_i32(p + at)));
        else if (width == 2) rmq_put_i16(p + at, (int16_t)fuzz_lie(r, rmq_i16(p + at)));
        else p[at] = (uint8_t)fuzz_lie(r, p[at]);
        return;
    }
    const uint64_t part = fuzz_below(r, 3);
    uint8_t *const bytes = (uint8_t *)(part == 0 ? u.body : part == 1 ? u.topic : u.properties);
    const int32_t length = part == 0 ? u.body_length : part == 1 ? u.topic_length : u.properties_length;
    if (length > 0) fuzz_mutate(bytes, (size_t)length, (size_t)length); /* what it leaves shorter stays as it was behind */
    fuzz_mend_crc(p, &u);
}

/* Change a window of units that begins at `base`, in place, and answer its size. `header`: FUZZ_HEADER or 0. */
static inline size_t fuzz_mutate_units(fuzz_random *r, uint8_t *window, size_t size, size_t room, int64_t base, size_t header) {
    size_t starts[64];
    const int count = fuzz_units_in(window, size, header, starts, 64);
    const int which = (int)fuzz_below(r, (uint64_t)count + 1);
    const size_t at = which < count ? starts[which] - header : count > 0 ? starts[count - 1] + (size_t)rmq_i32(window + starts[count - 1]) : 0;
    const size_t after = which < count ? starts[which] + (size_t)rmq_i32(window + starts[which]) : at;
    switch (fuzz_below(r, 5)) {
        case 0: { /* a unit more, or instead */
            uint8_t unit[FUZZ_HEADER + FUZZ_MOST_UNIT];
            const size_t rest = fuzz_below(r, 2) ? at : after;
            const size_t unit_size = fuzz_draw_unit(r, unit + header, fuzz_sum(base, at + header)), more = header + unit_size;
            if (header > 0) fuzz_put_header(unit, fuzz_sum(base, at), which + 1, (int32_t)unit_size);
            if (at + more + (size - rest) > room) break;
            memmove(window + at + more, window + rest, size - rest);
            memcpy(window + at, unit, more);
            size = at + more + (size - rest);
            break;
        }
        case 1: /* a unit less */
            memmove(window + at, window + after, size - after);
            size -= after - at;
            break;
        case 2: /* an end */
            if (size > 0 && fuzz_below(r, 2)) size -= 1 + fuzz_below(r, size < 100 ? size : 100);
            else if (size + RMQ_BLANK_SIZE <= room) {
                rmq_put_i32(window + size, (int32_t)fuzz_below(r, 64));
                rmq_put_i32(window + size + 4, RMQ_MAGIC_BLANK);
                size += RMQ_BLANK_SIZE;
            }
            break;
        case 3: /* all are where they say */
            for (int i = 0; i < count; i++) {
                rmq_put_i64(window + starts[i] + RMQ_AT_PHYSICAL_OFFSET, fuzz_sum(base, starts[i]));
                if (header > 0) rmq_put_i64(window + starts[i] - header + 24, fuzz_sum(base, starts[i] - header));
            }
            break;
        default:
            if (which < count) fuzz_spoil(r, window + starts[which], (int64_t)(after - starts[which]));
    }
    return size;
}

/* Change an input of `options` bytes of options and a window of units after them: the options, the window, or anything.
 * The first byte has the bit `wrapped` where units have a header; `base_of` tells where the window begins. */
static inline size_t fuzz_mutate_log(uint8_t *data, size_t size, size_t room, unsigned seed, size_t options, int wrapped,
                                     int64_t (*base_of)(const uint8_t *data, size_t window_size)) {
    fuzz_random r = fuzz_seeded(seed);
    if (size < options || fuzz_below(&r, 10) == 0) return fuzz_mutate(data, size, room);
    if (fuzz_below(&r, 6) == 0) {
        data[fuzz_below(&r, options)] = (uint8_t)fuzz_draw(&r);
        return size;
    }
    const size_t header = data[0] & wrapped ? FUZZ_HEADER : 0;
    for (uint64_t times = 1 + fuzz_below(&r, 3); times > 0; times--) {
        const size_t n = size - options;
        size = options + fuzz_mutate_units(&r, data + options, n, room - options, base_of(data, n), header);
    }
    return size;
}

#endif
