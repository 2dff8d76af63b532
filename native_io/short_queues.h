/* The units of short ConsumeQueues, many queues in one call. A queue costs some system calls, and for each one Python
 * releases the GIL and waits for it again, which takes longer than the call. */
#ifndef RMQ_SHORT_QUEUES_H
#define RMQ_SHORT_QUEUES_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "queues.h"
#include "system.h"
#include "unit.h"

enum {
    RMQ_FILE_NAME_DIGITS = 20, /* of a file of a MappedFileQueue */
    RMQ_FIRST_UNITS = 100,     /* of a queue are read first; most have no more */
    RMQ_BLOCK_SIZE = 512,      /* of st_blocks */
    RMQ_ROUNDED_UP = 4096,     /* disk space is mostly allocated in multiples of this, and memory for it */
    RMQ_ENTRIES_AT_ONCE = 1024, /* bytes of a directory; a queue has few files */
};
#ifndef SEEK_DATA
#define SEEK_DATA 3 /* of Linux */
#endif
#define RMQ_MOST_START ((int64_t)1 << 62) /* of a file, as in rmqstore_spark/store/structures/layout.py */

/* The offset that a file begins with, by its name; -1 for a name that no broker gives. */
static int64_t rmq_start_in(const char *name) {
    int64_t start = 0;
    for (int i = 0; i < RMQ_FILE_NAME_DIGITS; i++) {
        if (name[i] < '0' || name[i] > '9') return -1;
        const int digit = name[i] - '0';
        if (start > (RMQ_MOST_START - digit) / 10) return -1;
        start = 10 * start + digit;
    }
    return name[RMQ_FILE_NAME_DIGITS] == '\0' ? start : -1;
}

/* The name of a queue's only file, and the offset that the file begins with; -1 where there is no file, or several. What
 * the directory says of its type is DT_UNKNOWN where it does not say. */
static int64_t rmq_only_file(int directory, char name[RMQ_FILE_NAME_DIGITS + 1], int *type) {
    uint8_t entries[RMQ_ENTRIES_AT_ONCE] __attribute__((aligned(8)));
    int64_t found = -1, got;
    while ((got = rmq_entries_in(directory, entries, sizeof entries)) > 0) {
        for (int64_t at = 0; at < got; at += rmq_entry_size(entries + at)) {
            const char *each = rmq_entry_name(entries + at);
            const int64_t start = rmq_start_in(each);
            if (start < 0) continue;
            if (found >= 0) return -1;
            found = start;
            *type = rmq_entry_type(entries + at);
            memcpy(name, each, RMQ_FILE_NAME_DIGITS + 1);
        }
    }
    return found;
}

/* A descriptor of a directory, or -1. */
static int rmq_open_directory(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* The queueId that a name in a topic's directory tells; -1 for a name that no broker gives. */
static int64_t rmq_queue_id_in(const char *name) {
    int64_t id = 0;
    if (name[0] == '0') return name[1] == '\0' ? 0 : -1;
    for (; *name >= '0' && *name <= '9' && id <= INT32_MAX; name++) id = 10 * id + (*name - '0');
    return *name == '\0' && id > 0 && id <= INT32_MAX ? id : -1;
}

/* The queueIds that the names in a topic's directory tell, in no order. Returns how many there are; -1 where the directory
 * cannot be read, -2 where there are more than `room`. */
static int64_t rmq_queue_ids_in(const char *path, int32_t *ids, int64_t room) {
    uint8_t entries[RMQ_ENTRIES_AT_ONCE] __attribute__((aligned(8)));
    int64_t count = 0, got;
    const int directory = rmq_open_directory(path);
    if (directory < 0) return -1;
    while ((got = rmq_entries_in(directory, entries, sizeof entries)) > 0 && count >= 0) {
        for (int64_t at = 0; at < got && count >= 0; at += rmq_entry_size(entries + at)) {
            const int64_t id = rmq_queue_id_in(rmq_entry_name(entries + at));
            if (id < 0) continue;
            if (count == room) {
                count = -2;
            } else {
                ids[count++] = (int32_t)id;
            }
        }
    }
    close(directory);
    return got < 0 ? -1 : count;
}

/* The offset that the only file of a queue begins with, by the queue's directory; the file's size, and its bytes on the
 * disk. -1 where there is not exactly one file, or something else has its name. Nothing but the directory is opened. */
static int64_t rmq_find_only_file(const char *path, int64_t *size, int64_t *allocated) {
    struct stat status = {0};
    char name[RMQ_FILE_NAME_DIGITS + 1];
    int type = DT_UNKNOWN;
    *size = *allocated = 0;
    const int directory = rmq_open_directory(path);
    if (directory < 0) return -1;
    int64_t start = rmq_only_file(directory, name, &type);
    if (start >= 0 && (rmq_status_at(directory, name, &status, 0) != 0 || !S_ISREG(status.st_mode))) start = -1;
    close(directory);
    if (start < 0) return -1;
    *size = (int64_t)status.st_size;
    *allocated = (int64_t)status.st_blocks * RMQ_BLOCK_SIZE;
    return start;
}

/* A descriptor of a regular file; -1 where there is none, or it cannot be opened. Nothing else is opened: a FIFO would
 * wait, a device may do anything. `type` is what its directory says. */
static int rmq_open_regular(int directory, const char *name, int type, struct stat *status) {
    if (type != DT_REG && (rmq_status_at(directory, name, status, 0) != 0 || !S_ISREG(status->st_mode))) return -1;
    const int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return -1;
    if (rmq_status_of(fd, status) == 0 && S_ISREG(status->st_mode)) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* else Linux fills 128 KiB of memory with the zeros of the hole */
        return fd;
    }
    close(fd); /* another entry took the name in between */
    return -1;
}

/* Read the units of an open file up to the first unused one, and maybe some after it. Returns their bytes; -1 where
 * there are more than `room`, or reading fails. */
static int64_t rmq_read_short_file(rmq_file *f, const struct stat *status, uint8_t *to, int64_t room) {
    const int64_t unit_size = RMQ_QUEUE_UNIT_SIZE;
    const int64_t whole = status->st_size - status->st_size % unit_size;
    int64_t first = RMQ_FIRST_UNITS * unit_size;
    if (first > whole) first = whole;
    if (first > room) return -1;
    int64_t got = rmq_read_file(f, to, first, 0);
    if (f->error != 0 || got != first) return -1;
    if (got == whole || rmq_i32(to + got - unit_size + 8) <= 0) return got;
    if ((int64_t)status->st_blocks * RMQ_BLOCK_SIZE > room + RMQ_ROUNDED_UP) return -1; /* so long that room will not do */
    const int64_t rest = (whole < room ? whole : room - room % unit_size) - got;
    got += rmq_read_file(f, to + got, rest, got);
    if (f->error != 0 || got != first + rest) return -1;
    return got == whole || rmq_i32(to + got - unit_size + 8) <= 0 ? got : -1;
}

/* Read the units of a queue of 20-byte units. Returns the number of bytes read, and the number of the first unit; -1
 * where the queue has not exactly one short file, or the file cannot be read. */
static int64_t rmq_read_short_queue(const char *path, uint8_t *to, int64_t room, int64_t *number, rmq_file *cost) {
    char name[RMQ_FILE_NAME_DIGITS + 1];
    struct stat status;
    int64_t got = -1;
    const int directory = rmq_open_directory(path);
    if (directory < 0) return -1;
    int type = DT_UNKNOWN;
    const int64_t start = rmq_only_file(directory, name, &type);
    cost->fd = start < 0 ? -1 : rmq_open_regular(directory, name, type, &status);
    if (cost->fd >= 0) {
        got = rmq_read_short_file(cost, &status, to, room);
        close(cost->fd);
        *number = start / RMQ_QUEUE_UNIT_SIZE;
        cost->error = 0;
    }
    close(directory);
    return got;
}

/* What is known of a queue with one file. */
typedef struct {
    int64_t start;     /* the offset that the file begins with */
    int64_t size;      /* of the file, bytes */
    int64_t allocated; /* bytes on the disk */
    int64_t read;      /* bytes of its first units; -1 where there is not exactly one file, or it cannot be read */
    int64_t used;      /* bytes of these up to the last one that is not 0 */
    int64_t is_all;    /* whether only a hole follows what was read */
} rmq_queue_head;

/* Read the first `n` bytes of an open file; a hole after its first page is not read. Returns the number of bytes there,
 * and notes whether only a hole follows them. */
static int64_t rmq_read_head(rmq_file *f, uint8_t *to, int64_t n, int64_t size, int64_t *is_all) {
    const int64_t first = n < RMQ_ROUNDED_UP ? n : RMQ_ROUNDED_UP;
    int64_t got = rmq_read_file(f, to, first, 0);
    *is_all = size <= first || (lseek(f->fd, first, SEEK_DATA) < 0 && errno == ENXIO);
    if (n == first || f->error != 0 || got < first) return got;
    if (*is_all) {
        memset(to + first, 0, (size_t)(n - first));
        return n;
    }
    got += rmq_read_file(f, to + first, n - first, first);
    *is_all = size <= n || (lseek(f->fd, n, SEEK_DATA) < 0 && errno == ENXIO);
    return got;
}

/* The number of bytes up to the last one that is not 0. */
static int64_t rmq_used_bytes(const uint8_t *bytes, int64_t n) {
    uint64_t word = 0;
    for (; n >= (int64_t)sizeof word; n -= (int64_t)sizeof word) { /* most of a head are zeros */
        memcpy(&word, bytes + n - sizeof word, sizeof word);
        if (word != 0) break;
    }
    while (n > 0 && bytes[n - 1] == 0) n--;
    return n;
}

/* Read the first units of an open file of a queue, as many as there is room for. Returns how many bytes are there. */
static int64_t rmq_fill_head(rmq_queue_head *head, const struct stat *status, uint8_t *to, int64_t room, rmq_file *f) {
    head->size = (int64_t)status->st_size;
    head->allocated = (int64_t)status->st_blocks * RMQ_BLOCK_SIZE;
    const int64_t wanted = head->size < room ? head->size : room;
    const int64_t filled = rmq_read_head(f, to, wanted, head->size, &head->is_all);
    head->read = f->error != 0 || filled != wanted ? -1 : filled;
    f->error = 0;
    return filled < 0 ? 0 : filled;
}

/* Read the first units of a queue that has one file, as many as there is room for, and clear the rest of the room. `path`
 * is the queue's directory; or, where the offset is known that the file begins with (`start`, else -1), the file's. */
static rmq_queue_head rmq_read_queue_head(const char *path, int64_t start, uint8_t *to, int64_t room, rmq_file *cost) {
    char name[RMQ_FILE_NAME_DIGITS + 1];
    struct stat status;
    int type = DT_UNKNOWN;
    rmq_queue_head head = {start, 0, 0, -1, 0, 0};
    int64_t filled = 0;
    const int directory = start < 0 ? rmq_open_directory(path) : AT_FDCWD;
    if (start < 0) head.start = directory < 0 ? -1 : rmq_only_file(directory, name, &type);
    cost->fd = head.start < 0 ? -1 : rmq_open_regular(directory, start < 0 ? name : path, type, &status);
    if (cost->fd >= 0) {
        filled = rmq_fill_head(&head, &status, to, room, cost);
        close(cost->fd);
    }
    if (start < 0 && directory >= 0) close(directory);
    memset(to + filled, 0, (size_t)(room - filled));
    if (head.read < 0) memset(to, 0, (size_t)filled);
    head.used = head.read < 0 ? 0 : rmq_used_bytes(to, filled);
    return head;
}

#endif
