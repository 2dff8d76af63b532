/* Parts of ConsumeQueue files, many files in one call. */
#ifndef RMQ_QUEUE_PARTS_H
#define RMQ_QUEUE_PARTS_H

#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "short_queues.h"

/* Read parts of a file, each into its share of the room, of which the rest is cleared.
 *
 * positions: of the parts; a negative one is that of no part.
 * sizes: filled with the bytes of each part; -1 where there is none, or it cannot be read. */
static void rmq_read_queue_parts(const char *path, const int64_t *positions, int64_t *sizes, int64_t n, uint8_t *to,
                                 int64_t share, rmq_file *cost) {
    struct stat status;
    memset(to, 0, (size_t)(n * share));
    for (int64_t i = 0; i < n; i++) sizes[i] = -1;
    cost->fd = rmq_open_regular(AT_FDCWD, path, DT_UNKNOWN, &status);
    if (cost->fd < 0) return;
    for (int64_t i = 0; i < n; i++, to += share) {
        if (positions[i] < 0) continue;
        const int64_t got = rmq_read_file(cost, to, share, positions[i]);
        if (cost->error == 0) sizes[i] = got;
        else memset(to, 0, (size_t)share);
        cost->error = 0;
    }
    close(cost->fd);
}

#endif
