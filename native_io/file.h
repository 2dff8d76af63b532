/* Bytes from a position of a file, and the cost of reading them. */
#ifndef RMQ_FILE_H
#define RMQ_FILE_H

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "system.h"

typedef struct {
    int fd;
    int64_t bytes, requests; /* read, in all */
    int error;               /* errno of a read that failed, or 0 */
    int flags;               /* of preadv2() */
} rmq_file;

/* Read `n` bytes from `at` on. Returns the number read, fewer only where the file ends or reading fails (f->error). */
static int64_t rmq_read_file(rmq_file *f, uint8_t *to, int64_t n, int64_t at) {
    int64_t got = 0;
    while (got < n) {
        const ssize_t some = f->flags == 0 ? pread(f->fd, to + got, (size_t)(n - got), at + got)
                                           : rmq_pread_with(f->fd, to + got, (size_t)(n - got), at + got, f->flags);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) f->error = errno;
        if (some < 0) break;
        f->requests += 1;
        f->bytes += some;
        if (some == 0) break;
        got += some;
    }
    return got;
}

#endif
