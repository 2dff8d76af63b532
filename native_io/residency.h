/* Which pages of a file are in memory. */
#ifndef RMQ_RESIDENCY_H
#define RMQ_RESIDENCY_H

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Set pages[i] to whether the i-th page from `offset` on, the start of one, is in memory; returns 0 or an errno.
 * Nothing is read. Where the file ends there are no more pages. */
static int rmq_resident(int fd, int64_t offset, uint8_t *pages, int64_t count) {
    const size_t size = (size_t)count * (size_t)sysconf(_SC_PAGESIZE);
    void *at = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, offset);
    if (at == MAP_FAILED) return errno;
    const int error = mincore(at, size, pages) == 0 ? 0 : errno;
    munmap(at, size);
    for (int64_t i = 0; i < count; i++) pages[i] &= 1; /* the other bits mean nothing */
    return error;
}

#endif
