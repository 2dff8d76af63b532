/* Parts of ConsumeQueue files, many files in one call: their last units, or some that are asked for by number. */
#ifndef RMQ_QUEUE_PARTS_H
#define RMQ_QUEUE_PARTS_H

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
#include "queues.h"
#include "short_queues.h"

enum { RMQ_AT_THE_END = -1, RMQ_CANNOT_TELL = -2 }; /* in place of the position of a part */

/* Where the last `room` bytes of whole units begin before the hole at a file's end, and how many they are;
 * RMQ_CANNOT_TELL where there is no data, several holes, or a file system that knows none. */
static int64_t rmq_last_units(int fd, int64_t size, int64_t room, int64_t *count) {
    const int64_t unit = RMQ_QUEUE_UNIT_SIZE, whole = size - size % unit;
    const off_t data = lseek(fd, 0, SEEK_DATA);
    const off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    if (hole < 0) return RMQ_CANNOT_TELL;
    if (hole < size && !(lseek(fd, hole, SEEK_DATA) < 0 && errno == ENXIO)) return RMQ_CANNOT_TELL;
    int64_t stop = (hole + unit - 1) / unit * unit;
    if (stop > whole) stop = whole;
    const int64_t most = room - room % unit;
    *count = stop < most ? stop : most;
    return stop - *count;
}

/* Read parts of a file, each into its share of the room, of which the rest is cleared.
 *
 * positions: of the parts, or RMQ_AT_THE_END, which is replaced.
 * sizes: filled with the bytes of each part; -1 where it cannot be read, or its place cannot be told. */
static void rmq_read_queue_parts(const char *path, int64_t *positions, int64_t *sizes, int64_t n, uint8_t *to, int64_t share,
                                 rmq_file *cost) {
    struct stat status;
    memset(to, 0, (size_t)(n * share));
    for (int64_t i = 0; i < n; i++) sizes[i] = -1;
    cost->fd = rmq_open_regular(AT_FDCWD, path, DT_UNKNOWN, &status);
    if (cost->fd < 0) return;
    for (int64_t i = 0; i < n; i++, to += share) {
        int64_t wanted = share;
        if (positions[i] == RMQ_AT_THE_END) positions[i] = rmq_last_units(cost->fd, (int64_t)status.st_size, share, &wanted);
        if (positions[i] < 0) continue;
        const int64_t got = rmq_read_file(cost, to, wanted, positions[i]);
        if (cost->error == 0) sizes[i] = got;
        else memset(to, 0, (size_t)share);
        cost->error = 0;
    }
    close(cost->fd);
}

#endif
