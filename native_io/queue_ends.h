/* Both ends of ConsumeQueues that have one file each, and units that are asked for by number: many queues in one call,
 * and each file is opened once. */
#ifndef RMQ_QUEUE_ENDS_H
#define RMQ_QUEUE_ENDS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SEEK_DATA and SEEK_HOLE; Python.h sets it as well */
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "queue_units.h"
#include "queues.h"
#include "short_queues.h"

enum {
    RMQ_MOST_SHOWN = RMQ_ROUNDED_UP / RMQ_QUEUE_UNIT_SIZE,       /* units: the whole ones of a file's first page */
    RMQ_ENDS_ROOM = (RMQ_MOST_SHOWN + 2) * RMQ_QUEUE_UNIT_SIZE, /* bytes: units that any page may show, also in part */
};

/* What is looked for in each queue. */
typedef struct {
    int64_t begin; /* the log's: a unit of a message that begins before it is not the first one */
    int64_t width; /* units that are looked at for the first, at most RMQ_MOST_SHOWN */
} rmq_queue_look;

/* What is found of a queue. */
typedef struct {
    int64_t start, size, allocated; /* as in rmq_queue_head */
    int64_t first;    /* number of the first unit of a message of the log, among the first ones; -1: none */
    int64_t last;     /* number of the last unit in use; -1: none */
    int64_t is_all;   /* whether the first units show all that are in use */
    int64_t is_known; /* else the queue has not exactly one file, or has to be read in another way */
} rmq_queue_ends;

/* Units by number: filled with where their messages are; -1 for a unit that stands for no message. */
typedef struct {
    const int64_t *numbers;
    int64_t count;
    int64_t *positions, *sizes;
} rmq_asked_units;

static int64_t rmq_last_used(const uint8_t *units, int64_t count) {
    while (count > 0 && rmq_kind_of_unit(units + (count - 1) * RMQ_QUEUE_UNIT_SIZE, 0) == RMQ_UNIT_IS_NOTHING) count--;
    return count - 1;
}

static int64_t rmq_first_message(const uint8_t *units, int64_t count, int64_t begin) {
    for (int64_t i = 0; i < count; i++, units += RMQ_QUEUE_UNIT_SIZE)
        if (rmq_kind_of_unit(units, 0) == RMQ_UNIT_IS_MESSAGE && rmq_i64(units) >= begin) return i;
    return -1;
}

static int rmq_is_hole_from(int fd, int64_t at) { return lseek(fd, at, SEEK_DATA) < 0 && errno == ENXIO; }

/* Read the last units before the hole at a file's end. Returns the place of the first of them in the file, and how many
 * they are; -1 where that cannot be told: no data, several holes, a file system that knows none, or reading fails. */
static int64_t rmq_read_last_units(rmq_file *f, int64_t size, uint8_t *to, int64_t *count) {
    const int64_t unit = RMQ_QUEUE_UNIT_SIZE, whole = size - size % unit;
    const off_t data = lseek(f->fd, 0, SEEK_DATA);
    const off_t hole = data < 0 ? -1 : lseek(f->fd, data, SEEK_HOLE);
    if (hole < 0 || (hole < size && !rmq_is_hole_from(f->fd, hole))) return -1;
    int64_t stop = (hole + unit - 1) / unit * unit;
    if (stop > whole) stop = whole;
    const int64_t begin = stop < RMQ_ENDS_ROOM ? 0 : stop - RMQ_ENDS_ROOM;
    *count = rmq_read_file(f, to, stop - begin, begin) / unit;
    return f->error != 0 ? -1 : begin / unit;
}

/* Whether units in use may come after the first `shown` ones, of which `last` is the last in use. Zeros may stand between
 * units, as where a disk has lost a block. */
static int rmq_may_have_more(const rmq_queue_ends *ends, int64_t shown, int64_t last) {
    if (shown >= ends->size / RMQ_QUEUE_UNIT_SIZE) return 0;
    const int64_t zeros_need = shown * RMQ_QUEUE_UNIT_SIZE + RMQ_ROUNDED_UP;
    return last < 0 || last == shown - 1 || (zeros_need < ends->allocated && ends->allocated < ends->size);
}

/* Fill in the units asked for. `page` has the file's first `got` bytes. Returns 0, or -1 where reading fails. */
static int rmq_find_asked(rmq_file *f, const rmq_queue_ends *ends, const rmq_asked_units *asked, const uint8_t *page, int64_t got) {
    const int64_t unit = RMQ_QUEUE_UNIT_SIZE, begin = ends->start / unit, count = ends->size / unit;
    for (int64_t i = 0; i < asked->count; i++) {
        uint8_t read[RMQ_QUEUE_UNIT_SIZE];
        if (asked->numbers[i] < begin || asked->numbers[i] - begin >= count) continue;
        const int64_t at = (asked->numbers[i] - begin) * unit;
        if (at + unit > got) {
            const int64_t there = rmq_read_file(f, read, unit, at);
            if (f->error != 0) return -1;
            if (there < unit) continue;
        }
        const uint8_t *const found = at + unit > got ? read : page + at;
        if (rmq_kind_of_unit(found, 0) != RMQ_UNIT_IS_MESSAGE) continue;
        asked->positions[i] = rmq_i64(found);
        asked->sizes[i] = rmq_i32(found + 8);
    }
    return 0;
}

static void rmq_put_end(int64_t *number, uint8_t *unit, const rmq_queue_ends *ends, const uint8_t *units, int64_t at, int64_t index) {
    if (index < 0) return;
    *number = ends->start / RMQ_QUEUE_UNIT_SIZE + at + index;
    memcpy(unit, units + index * RMQ_QUEUE_UNIT_SIZE, RMQ_QUEUE_UNIT_SIZE);
}

/* Find the ends in an open file; `units` takes both. */
static void rmq_find_ends(rmq_file *f, const rmq_queue_look *look, const rmq_asked_units *asked, rmq_queue_ends *ends, uint8_t *units) {
    uint8_t bytes[RMQ_ENDS_ROOM] = {0};
    const int64_t capacity = ends->size / RMQ_QUEUE_UNIT_SIZE, shown = capacity < look->width ? capacity : look->width;
    const int64_t wanted = ends->size < RMQ_ROUNDED_UP ? ends->size : RMQ_ROUNDED_UP;
    const int64_t got = rmq_read_file(f, bytes, wanted, 0);
    if (f->error != 0 || got < wanted || rmq_find_asked(f, ends, asked, bytes, got) != 0) return;
    rmq_put_end(&ends->first, units, ends, bytes, 0, rmq_first_message(bytes, shown, look->begin));
    int64_t last = rmq_last_used(bytes, shown), at = 0;
    ends->is_all = 1;
    if (rmq_may_have_more(ends, shown, last)) {
        int64_t count = capacity < RMQ_MOST_SHOWN + 1 ? capacity : RMQ_MOST_SHOWN + 1;
        const int is_in_page = rmq_is_hole_from(f->fd, RMQ_ROUNDED_UP);
        if (!is_in_page) at = rmq_read_last_units(f, ends->size, bytes, &count);
        last = at < 0 ? -1 : rmq_last_used(bytes, count);
        if (last < 0 && !is_in_page) return;
        ends->is_all = at + last < shown;
    }
    rmq_put_end(&ends->last, units + RMQ_QUEUE_UNIT_SIZE, ends, bytes, at, last);
    ends->is_known = 1;
}

/* Find the ends of a queue and the units asked for. `units` takes the first and the last one, zeros where there is none. */
static rmq_queue_ends rmq_read_queue_ends(const char *path, const rmq_queue_look *look, const rmq_asked_units *asked, uint8_t *units,
                                          rmq_file *cost) {
    char name[RMQ_FILE_NAME_DIGITS + 1];
    struct stat status;
    int type = DT_UNKNOWN;
    rmq_queue_ends ends = {-1, -1, 0, -1, -1, 0, 0};
    memset(units, 0, 2 * RMQ_QUEUE_UNIT_SIZE);
    for (int64_t i = 0; i < asked->count; i++) asked->positions[i] = asked->sizes[i] = -1;
    const int directory = rmq_open_directory(path);
    if (directory < 0) return ends;
    const int64_t start = rmq_only_file(directory, name, &type);
    cost->fd = start < 0 ? -1 : rmq_open_regular(directory, name, type, &status);
    if (cost->fd >= 0) {
        ends.start = start;
        ends.size = (int64_t)status.st_size;
        ends.allocated = (int64_t)status.st_blocks * RMQ_BLOCK_SIZE;
        rmq_find_ends(cost, look, asked, &ends, units);
        close(cost->fd);
        cost->error = 0;
    }
    close(directory);
    return ends;
}

#endif
