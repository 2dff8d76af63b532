/* Memory: a list that gets longer, and a pool for the columns' buffers.
 *
 * The pool. A batch's buffers are about as large as those of the batch before, so they are reused: memory returned to
 * the system comes back as zeroed pages, which cost a quarter of the time of decoding. A pool belongs to a decoder or
 * an encoder, and lives on until the last buffer that came from it is released, wherever and on whatever thread that
 * is.
 */
#ifndef RMQ_MEMORY_H
#define RMQ_MEMORY_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    RMQ_MAX_SPARES = 512,            /* more buffers than the batches have that a reader's threads hold ready */
    RMQ_MAX_KEPT = 40 * 1024 * 1024, /* bytes; the memory of a rare huge batch is freed */
};

#define RMQ_TRY(call)                     \
    do {                                  \
        const int status_ = (call);       \
        if (status_ != 0) return status_; \
    } while (0)

/* An array that gets longer. All zeros at first. */
typedef struct {
    void *data;
    int64_t size, capacity; /* in elements */
} rmq_list;

/* Have memory for `more` elements of `width` bytes after the existing ones; 0, or -1 when there is no memory. */
static inline int rmq_list_reserve(rmq_list *list, int64_t more, size_t width) {
    if (list->size + more <= list->capacity) return 0;
    const int64_t capacity = 2 * list->capacity + more + 64;
    void *data = realloc(list->data, (size_t)capacity * width);
    if (data == NULL) return -1;
    list->data = data;
    list->capacity = capacity;
    return 0;
}

struct rmq_pool;

/* The header before each buffer, as long as a cache line, so that the buffer begins on one. */
typedef struct {
    struct rmq_pool *pool;
    int64_t capacity;
    uint8_t padding[48];
} rmq_block;

typedef struct rmq_pool {
    atomic_int users; /* its owner, and every buffer that is out */
    atomic_flag locked;
    int spares;
    int64_t kept;
    int64_t capacity[RMQ_MAX_SPARES]; /* of each spare, which by now may be far from this processor */
    rmq_block *spare[RMQ_MAX_SPARES];
} rmq_pool;

static rmq_pool *rmq_new_pool(void) {
    rmq_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return NULL;
    atomic_init(&pool->users, 1);
    atomic_flag_clear(&pool->locked);
    return pool;
}

static void rmq_leave_pool(rmq_pool *pool) {
    if (atomic_fetch_sub_explicit(&pool->users, 1, memory_order_acq_rel) != 1) return;
    for (int i = 0; i < pool->spares; i++) free(pool->spare[i]);
    free(pool);
}

/* Held for some hundred instructions at most, and hardly ever by two. */
static void rmq_lock(rmq_pool *pool) {
    while (atomic_flag_test_and_set_explicit(&pool->locked, memory_order_acquire)) continue;
}

static void rmq_unlock(rmq_pool *pool) { atomic_flag_clear_explicit(&pool->locked, memory_order_release); }

/* The smallest spare of at least `size` bytes, but not one much larger; NULL when there is none. */
static rmq_block *rmq_find_spare(rmq_pool *pool, int64_t size) {
    const int64_t *const capacity = pool->capacity;
    int best = -1;
    for (int i = pool->spares - 1; i >= 0; i--) /* the spare returned last is still in a cache */
        if (capacity[i] >= size && capacity[i] <= 4 * size + 4096 && (best < 0 || capacity[i] < capacity[best])) best = i;
    if (best < 0) return NULL;
    rmq_block *block = pool->spare[best];
    pool->kept -= capacity[best];
    pool->spares -= 1;
    memmove(pool->spare + best, pool->spare + best + 1, (size_t)(pool->spares - best) * sizeof block);
    memmove(pool->capacity + best, pool->capacity + best + 1, (size_t)(pool->spares - best) * sizeof *capacity);
    return block;
}

/* A little more than `size`: batches differ, and buffers of few sizes serve each other. What is not used is never touched. */
static inline int64_t rmq_rounded(int64_t size) {
    if (size < 4096) return size;
    const int64_t step = ((int64_t)1 << (63 - __builtin_clzll((unsigned long long)size))) / 4;
    return (size + step - 1) / step * step;
}

/* A buffer of at least `size` bytes; *capacity is set to its size. NULL when there is no memory. */
static uint8_t *rmq_get_buffer(rmq_pool *pool, int64_t size, int64_t *capacity) {
    rmq_lock(pool);
    rmq_block *block = rmq_find_spare(pool, size);
    rmq_unlock(pool);
    if (block == NULL) {
        const int64_t rounded = rmq_rounded(size);
        block = malloc(sizeof *block + (size_t)rounded);
        if (block == NULL) return NULL;
        block->pool = pool;
        block->capacity = rounded;
    }
    atomic_fetch_add_explicit(&pool->users, 1, memory_order_relaxed);
    *capacity = block->capacity;
    return (uint8_t *)(block + 1);
}

/* Give a buffer back, or NULL. */
static void rmq_put_buffer(const void *buffer) {
    if (buffer == NULL) return;
    rmq_block *block = (rmq_block *)buffer - 1;
    rmq_pool *pool = block->pool;
    rmq_lock(pool);
    const int keep = pool->spares < RMQ_MAX_SPARES && pool->kept + block->capacity <= RMQ_MAX_KEPT;
    if (keep) {
        pool->capacity[pool->spares] = block->capacity;
        pool->spare[pool->spares++] = block;
        pool->kept += block->capacity;
    }
    rmq_unlock(pool);
    if (!keep) free(block);
    rmq_leave_pool(pool);
}

enum { RMQ_SLACK = 32 }; /* after every buffer, so that short texts can be copied 32 bytes at a time */

/* Copy short texts 32 bytes at a time, beyond their end: `to` always has RMQ_SLACK bytes after it, `p` has them if
 * can_overread. */
static inline void rmq_copy(uint8_t *to, const uint8_t *p, int64_t n, int can_overread) {
    if (n <= 32 && can_overread) {
        memcpy(to, p, 16);
        memcpy(to + 16, p + 16, 16);
    } else {
        memcpy(to, p, (size_t)n);
    }
}

#endif
