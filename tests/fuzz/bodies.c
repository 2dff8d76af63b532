/* Compressed bodies: what the kernel decompresses, the libraries decompress to the same bytes; and what the libraries take of the usual
 * kinds, the kernel takes too, however little room it is given at first. */
#include <dlfcn.h>
#include <zlib.h>

#include "body_search.h"
#include "fuzz.h"
#include "units.h"
#include "zstd.h"

enum { OPTIONS = 2, MOST = 1 << 16 };


/* liblz4's functions for frames; its headers need not be here. */
static size_t (*lz4_new)(void **, unsigned);
static size_t (*lz4_decompress)(void *, void *, size_t *, const void *, size_t *, const void *);
static size_t (*lz4_free)(void *);
static unsigned (*lz4_is_error)(size_t);

static int has_lz4(void) {
    static int tried;
    void *const library = tried++ ? NULL : dlopen("liblz4.so.1", RTLD_NOW);
    if (library != NULL) {
        *(void **)&lz4_new = dlsym(library, "LZ4F_createDecompressionContext");
        *(void **)&lz4_decompress = dlsym(library, "LZ4F_decompress");
        *(void **)&lz4_free = dlsym(library, "LZ4F_freeDecompressionContext");
        *(void **)&lz4_is_error = dlsym(library, "LZ4F_isError");
    }
    return lz4_new != NULL;
}

/* The bytes that a library decompresses a body to; -1: it does not, or they are more than MOST. */
static int64_t by_zlib(const uint8_t *body, size_t length, uint8_t *out, size_t *used) {
    z_stream z = {.next_in = (Bytef *)body, .avail_in = (unsigned)length, .next_out = out, .avail_out = MOST};
    CHECK(inflateInit(&z) == Z_OK);
    const int status = inflate(&z, Z_FINISH);
    const int64_t size = status == Z_STREAM_END ? (int64_t)z.total_out : -1;
    *used = z.total_in;
    inflateEnd(&z);
    return size;
}

static int64_t by_lz4(const uint8_t *body, size_t length, uint8_t *out) {
    void *lz4; /* a new one, as one that is reset after an error does not always read the next frame */
    size_t at = 0, size = 0, hint = 1;
    CHECK(lz4_new(&lz4, 100) == 0);
    while (at < length && hint != 0) {
        size_t room = MOST - size, some = length - at;
        hint = lz4_decompress(lz4, out + size, &room, body + at, &some, NULL);
        if (lz4_is_error(hint) || (some == 0 && room == 0)) break;
        at += some;
        size += room;
    }
    lz4_free(lz4);
    return hint == 0 && at == length ? (int64_t)size : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t expected[MOST];
    static rmq_expander *expander;
    const rmq_zstd_library library = fuzz_zstd_library();
    if (size < OPTIONS) return 0;
    if (expander == NULL) expander = rmq_new_expander(&library);
    const int kind = data[0] & 3, is_portable = data[0] >> 2 & 1;
    const size_t length = size - OPTIONS;
    uint8_t *const body = fuzz_copy(data + OPTIONS, length);
    expander->inflater.is_fixed = 0;
    int64_t found = -1;
    int status = RMQ_NO_ROOM;
    uint8_t *out = NULL;
    for (int64_t room = data[1] * 3; status == RMQ_NO_ROOM && room <= MOST; room = room == MOST ? MOST + 1 : 4 * room + 64 > MOST ? MOST : 4 * room + 64) {
        free(out);
        out = fuzz_memory((size_t)room);
        status = kind == RMQ_IS_ZLIB && is_portable
                     ? rmq_inflate_on(&expander->inflater, body, (int64_t)length, out, room, &found, RMQ_ANY_MACHINE)
                     : rmq_expand(expander, kind << 8, body, (int64_t)length, out, room, &found);
        CHECK(status != RMQ_EXPANDED || (found >= 0 && found <= room));
    }
    int64_t by_library = -2;
    size_t used = 0;
    if (kind == RMQ_IS_ZLIB || kind == RMQ_IS_ZLIB_TOO) by_library = by_zlib(body, length, expected, &used);
    if (kind == RMQ_IS_LZ4 && has_lz4()) by_library = by_lz4(body, length, expected);
    if (by_library != -2 && status == RMQ_EXPANDED) CHECK(by_library == found && memcmp(out, expected, (size_t)found) == 0);
    free(out);

    rmq_body_search *const search = rmq_new_body_search(&library, NULL, NULL);
    const rmq_unit u = {.sys_flag = 1 | kind << 8, .body = body, .body_length = (int32_t)length};
    if (status == RMQ_EXPANDED && length > 0) {
        const int64_t size_there = rmq_expand_to_search(search, &u);
        CHECK(size_there == found);
        if (found > 2) CHECK(rmq_body_contains(search, &u, search->room + found / 2, found - found / 2));
    }
    rmq_free_body_search(search);
    free(body);
    return 0;
}

/* A body anew: some text, compressed by zlib, as LZ4 frame of one block that is not compressed, or as zstd frame of such a block. */
static size_t draw(fuzz_random *r, uint8_t *data, size_t room) {
    uint8_t text[600];
    const size_t size = fuzz_below(r, sizeof text);
    const uint64_t alphabet = 1 + fuzz_below(r, 40);
    uint8_t *const to = data + OPTIONS;
    for (size_t i = 0; i < size; i++) text[i] = i > 20 && fuzz_below(r, 3) ? text[i - 1 - fuzz_below(r, 19)] : (uint8_t)('a' + fuzz_below(r, alphabet));
    if ((data[0] & 3) == RMQ_IS_LZ4) {
        if (fuzz_below(r, 2)) { /* one with a match, whose distance is any */
            memcpy(to, fuzz_compressed[2].bytes, fuzz_compressed[2].size);
            to[18] = (uint8_t)fuzz_below(r, 9);
            return OPTIONS + fuzz_compressed[2].size;
        }
        if (room < OPTIONS + 15 + size || size == 0) return 0;
        memcpy(to, "\x04\x22\x4D\x18\x60\x40\x82", 7);
        for (int i = 0; i < 4; i++) to[7 + i] = (uint8_t)((size | 0x80000000u) >> 8 * i);
        memcpy(to + 11, text, size);
        memset(to + 11 + size, 0, 4);
        return OPTIONS + 15 + size;
    }
    if ((data[0] & 3) == RMQ_IS_ZSTD) {
        if (room < OPTIONS + 10 + size) return 0;
        memcpy(to, "\x28\xB5\x2F\xFD\x60", 5);
        if (size < 256) return 0;
        to[5] = (uint8_t)(size - 256), to[6] = (uint8_t)((size - 256) >> 8);
        for (int i = 0; i < 3; i++) to[7 + i] = (uint8_t)((size << 3 | 1) >> 8 * i);
        memcpy(to + 10, text, size);
        return OPTIONS + 10 + size;
    }
    z_stream z = {0};
    const int strategies[] = {Z_DEFAULT_STRATEGY, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED};
    CHECK(deflateInit2(&z, (int)fuzz_below(r, 10), Z_DEFLATED, 15, 9, strategies[fuzz_below(r, 4)]) == Z_OK);
    z.next_in = text, z.avail_in = (unsigned)size, z.next_out = to, z.avail_out = (unsigned)(room - OPTIONS);
    const int status = deflate(&z, Z_FINISH);
    const size_t made = z.total_out;
    deflateEnd(&z);
    return status == Z_STREAM_END ? OPTIONS + made : 0;
}

/* The sum at the end of a zlib stream is that of what it decompresses to. */
static void mend(uint8_t *body, size_t length) {
    static uint8_t out[MOST];
    z_stream z = {.next_in = body, .avail_in = (unsigned)length, .next_out = out, .avail_out = MOST};
    CHECK(inflateInit(&z) == Z_OK);
    inflate(&z, Z_FINISH);
    const uint32_t sum = (uint32_t)adler32(adler32(0, NULL, 0), out, (unsigned)z.total_out);
    if (length >= 4 && z.total_in >= 4 && z.total_in <= length)
        for (int i = 0; i < 4; i++) body[z.total_in - 4 + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    inflateEnd(&z);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    fuzz_random r = fuzz_seeded(seed);
    if (size < OPTIONS || fuzz_below(&r, 4) == 0) {
        if (room < 1200) return fuzz_mutate(data, size, room);
        data[0] = (uint8_t)fuzz_below(&r, 8);
        data[1] = (uint8_t)fuzz_draw(&r);
        const size_t drawn = draw(&r, data, room);
        if (drawn > 0) return drawn;
    }
    size = OPTIONS + fuzz_mutate(data + OPTIONS, size > OPTIONS ? size - OPTIONS : 0, room - OPTIONS);
    if ((data[0] & 3) == RMQ_IS_ZLIB && fuzz_below(&r, 2)) mend(data + OPTIONS, size - OPTIONS);
    if ((data[0] & 3) == RMQ_IS_LZ4 && size > OPTIONS + 7 && fuzz_below(&r, 2))
        data[OPTIONS + 6] = (uint8_t)(rmq_xxhash32(data + OPTIONS + 4, 2) >> 8);
    return size;
}
