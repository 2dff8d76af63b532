/* Whole ConsumeQueues tiled in their files, many in one call: a queue costs some system calls, and between them neither
 * its units nor Python's lock pass from hand to hand. */
#ifndef RMQ_QUEUE_TILES_H
#define RMQ_QUEUE_TILES_H

#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "short_queues.h"
#include "tiling.h"

enum { RMQ_LEAST_TILED = RMQ_FIRST_UNITS * RMQ_QUEUE_UNIT_SIZE }; /* bytes of a file that are read first */

/* How queues are read. */
typedef struct {
    int64_t most;    /* bytes of units; of a queue that has more, or may have more, nothing is added */
    uint8_t *buffer; /* for units on their way; small enough for the processor's cache */
    int64_t room;    /* bytes */
} rmq_tile_reading;

static inline int64_t rmq_least(int64_t one, int64_t other) { return one < other ? one : other; }

/* How many bytes are read at `at`, of a file with so many whole units: first a few units, as most queues have no more; then
 * what takes space on the disk; where that was not all, as much as before. */
static int64_t rmq_tiles_at_once(const rmq_tile_reading *how, const struct stat *status, int64_t whole, int64_t at) {
    const int64_t allocated = (int64_t)status->st_blocks * RMQ_BLOCK_SIZE;
    const int64_t wanted = at == 0 ? RMQ_LEAST_TILED : allocated > at ? allocated - at + RMQ_QUEUE_UNIT_SIZE : at;
    const int64_t size = rmq_least(rmq_least(wanted, how->room), whole - at);
    return size - size % RMQ_QUEUE_UNIT_SIZE;
}

/* Add the units of an open file, up to the first one that ends the queue. Returns 1; 0 where there may be more than `most`
 * bytes, or the first ones cannot be read, and nothing was added; -errno where later ones cannot be read. */
static int rmq_tile_file(rmq_tiling *t, rmq_file *f, const struct stat *status, const rmq_tile_reading *how) {
    const int64_t whole = status->st_size - status->st_size % RMQ_QUEUE_UNIT_SIZE;
    const int is_long = whole > how->most && (int64_t)status->st_blocks * RMQ_BLOCK_SIZE > how->most + RMQ_ROUNDED_UP;
    for (int64_t at = 0, size; (size = rmq_tiles_at_once(how, status, whole, at)) > 0; at += size) {
        const int64_t got = rmq_read_file(f, how->buffer, size, at), count = got / RMQ_QUEUE_UNIT_SIZE;
        if (f->error != 0) return at == 0 ? 0 : -f->error;
        if (at == 0 && is_long && got == size && rmq_i32(how->buffer + size - RMQ_QUEUE_UNIT_SIZE + 8) > 0) return 0;
        if (!rmq_add_units(t, how->buffer, count) || got < size) break;
    }
    return 1;
}

/* Begin a queue of 20-byte units and add them. Returns what rmq_tile_file() does; 0 also where the queue has not exactly one
 * file, or that file cannot be opened. */
static int rmq_tile_queue(rmq_tiling *t, const char *path, int asked, const rmq_tile_reading *how, rmq_file *cost) {
    char name[RMQ_FILE_NAME_DIGITS + 1];
    struct stat status;
    int type = DT_UNKNOWN, is_done = 0;
    const int directory = rmq_open_directory(path);
    if (directory < 0) return 0;
    const int64_t start = rmq_only_file(directory, name, &type);
    cost->fd = start < 0 ? -1 : rmq_open_regular(directory, name, type, &status);
    if (cost->fd >= 0) {
        rmq_begin_tiling(t, start / RMQ_QUEUE_UNIT_SIZE, RMQ_QUEUE_UNIT_SIZE, asked);
        is_done = rmq_tile_file(t, cost, &status, how);
        close(cost->fd);
        cost->error = 0;
    }
    close(directory);
    return is_done;
}

#endif
