/* What all harnesses need: options from the front of an input, memory of an exact size, and a check that ends the process. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_SEES_MEMORY 0 /* MemorySanitizer is at work: it does not know what other code has written */
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#include <sys/stat.h>

#include "system.h"
#undef FUZZ_SEES_MEMORY
#define FUZZ_SEES_MEMORY 1

static inline int64_t fuzz_entries_in(int directory, uint8_t *to, size_t size) {
    const int64_t got = rmq_entries_in(directory, to, size);
    if (got > 0) __msan_unpoison(to, (size_t)got);
    return got;
}
#define rmq_entries_in fuzz_entries_in

static inline int fuzz_status_at(int directory, const char *name, struct stat *status, int flags) {
    memset(status, 0, sizeof *status);
    return rmq_status_at(directory, name, status, flags);
}
#define rmq_status_at fuzz_status_at
#define rmq_status_of(fd, status) fuzz_status_at(fd, "", status, RMQ_AT_EMPTY_PATH)
#endif
#endif

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);

/* By libFuzzer: changes `size` bytes in place, and answers how many they are then, `room` at most. */
static inline size_t fuzz_mutate(uint8_t *data, size_t size, size_t room) {
    size = LLVMFuzzerMutate(data, size, room);
#if FUZZ_SEES_MEMORY
    __msan_unpoison(data, size);
#endif
    return size;
}

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

/* The part of an input that is not used yet. */
typedef struct {
    const uint8_t *at;
    size_t left;
} fuzz_input;

/* The next `bytes` bytes as a number, the lowest first; zeros where they are missing. */
static inline uint64_t fuzz_number(fuzz_input *in, int bytes) {
    uint64_t number = 0;
    for (int i = 0; i < bytes && in->left > 0; i++, in->at++, in->left--) number |= (uint64_t)*in->at << 8 * i;
    return number;
}

/* A signed number of any size, small ones and those near both ends more often than others. */
static inline int64_t fuzz_offset(fuzz_input *in) {
    const uint64_t kind = fuzz_number(in, 1);
    const uint64_t number = fuzz_number(in, kind & 3 ? 2 : 8);
    if ((kind & 12) == 0) return (int64_t)number;
    if ((kind & 12) == 4) return INT64_MAX - (int64_t)(number & 0xFFFF);
    if ((kind & 12) == 8) return INT64_MIN + (int64_t)(number & 0xFFFF);
    return -(int64_t)(number & 0xFFFF);
}

/* A copy that ends where its memory ends, so that a sanitizer sees who reads on. Never NULL. */
static inline uint8_t *fuzz_copy(const void *bytes, size_t size) {
    uint8_t *const copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) abort();
    if (size > 0) memcpy(copy, bytes, size);
    return copy;
}

static inline void *fuzz_memory(size_t size) {
    void *const memory = malloc(size > 0 ? size : 1);
    if (memory == NULL) abort();
    return memory;
}

/* xorshift: the numbers that a mutator draws. */
typedef struct {
    uint64_t state;
} fuzz_random;

static inline uint64_t fuzz_draw(fuzz_random *r) {
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return r->state;
}

/* From 0 to n - 1. */
static inline uint64_t fuzz_below(fuzz_random *r, uint64_t n) { return n == 0 ? 0 : (fuzz_draw(r) >> 11) % n; }

static inline fuzz_random fuzz_seeded(unsigned seed) {
    fuzz_random r = {((uint64_t)seed + 1) * 0x9E3779B97F4A7C15ull};
    for (int i = 0; i < 3; i++) fuzz_draw(&r);
    return r;
}

/* Like Java's, the sum wraps round. */
static inline int64_t fuzz_sum(int64_t a, size_t b) { return (int64_t)((uint64_t)a + b); }

/* A number that a length or an offset is replaced by when it lies. */
static inline int64_t fuzz_lie(fuzz_random *r, int64_t truth) {
    static const int64_t usual[] = {0, 1, -1, 7, 8, 90, 91, 127, 128, 255, 32767, 32768, -32768, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    switch (fuzz_below(r, 4)) {
        case 0: return usual[fuzz_below(r, sizeof usual / sizeof *usual)];
        case 1: return (int64_t)((uint64_t)truth + 1);
        case 2: return (int64_t)((uint64_t)truth - 1);
        default: return (int64_t)((uint64_t)truth ^ (uint64_t)1 << fuzz_below(r, 64));
    }
}

#endif
