/* System calls that the C library of an old Linux has no function for, or has under another name than today's: these
 * are called by number. So a kernel compiled here loads wherever glibc 2.17 does (docs/cluster.md).
 *
 * Linux without such a call answers ENOSYS. */
#ifndef RMQ_SYSTEM_H
#define RMQ_SYSTEM_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Numbers that the headers of such a machine lack. */
#if defined(__x86_64__)
enum { RMQ_RENAMEAT2 = 316, RMQ_PREADV2 = 327, RMQ_STATX = 332 };
#elif defined(__aarch64__)
enum { RMQ_RENAMEAT2 = 276, RMQ_PREADV2 = 286, RMQ_STATX = 291 };
#else
#ifndef SYS_renameat2
#define SYS_renameat2 (-1)
#endif
#ifndef SYS_statx
#define SYS_statx (-1)
#endif
#ifndef SYS_preadv2
#define SYS_preadv2 (-1)
#endif
enum { RMQ_RENAMEAT2 = SYS_renameat2, RMQ_PREADV2 = SYS_preadv2, RMQ_STATX = SYS_statx };
#endif

enum {
    RMQ_AT_EMPTY_PATH = 0x1000,
    RMQ_RENAME_EXCHANGE = 2,
    RMQ_STATX_MNT_ID = 0x1000,
    RMQ_STATX_SIZE = 256, /* of struct statx: mask at 0, mount id at RMQ_STATX_MNT_ID_AT */
    RMQ_STATX_MNT_ID_AT = 0x90,
};

/* fstatat() and fstat(), which programs that are linked to glibc 2.33 or later take from there. On these two machines Linux
 * and glibc have the same struct stat. */
static inline int rmq_status_at(int directory, const char *name, struct stat *status, int flags) {
#if (defined(__x86_64__) && defined(__LP64__)) || defined(__aarch64__)
    return (int)syscall(SYS_newfstatat, directory, name, status, flags);
#else
    return fstatat(directory, name, status, flags);
#endif
}

static inline int rmq_status_of(int fd, struct stat *status) { return rmq_status_at(fd, "", status, RMQ_AT_EMPTY_PATH); }

/* preadv2() of one buffer. Its position is one argument where a long has 64 bits; elsewhere flags are not known: ENOSYS. */
static inline ssize_t rmq_pread_with(int fd, void *to, size_t n, int64_t at, int flags) {
    const struct iovec buffer = {to, n};
    if (sizeof(long) < sizeof at) {
        errno = ENOSYS;
        return -1;
    }
    return (ssize_t)syscall(RMQ_PREADV2, fd, &buffer, 1, (long)at, 0, flags);
}

/* renameat2(), which swaps two names in one step: 0, or -1 and errno. */
static inline int rmq_exchange(int above, const char *name, int other_above, const char *other) {
    return (int)syscall(RMQ_RENAMEAT2, above, name, other_above, other, RMQ_RENAME_EXCHANGE);
}

/* The next entries of an open directory, in as many bytes as there is space for; 0 at its end, -1 and errno where they
 * cannot be read. opendir() and readdir() would take a lot of memory for each directory, and one more call. */
static inline int64_t rmq_entries_in(int directory, uint8_t *to, size_t size) {
    return (int64_t)syscall(SYS_getdents64, directory, to, size);
}

enum { RMQ_ENTRY_SIZE_AT = 16, RMQ_ENTRY_TYPE_AT = 18, RMQ_ENTRY_NAME_AT = 19 }; /* of struct linux_dirent64 */

static inline int64_t rmq_entry_size(const uint8_t *entry) {
    uint16_t size;
    memcpy(&size, entry + RMQ_ENTRY_SIZE_AT, sizeof size);
    return size;
}

/* DT_REG and so on; DT_UNKNOWN where the directory does not say. */
static inline int rmq_entry_type(const uint8_t *entry) { return entry[RMQ_ENTRY_TYPE_AT]; }

static inline const char *rmq_entry_name(const uint8_t *entry) { return (const char *)entry + RMQ_ENTRY_NAME_AT; }

/* The id of the mount that an open file is on; -1 on Linux before 5.8, which does not report it. */
static inline int64_t rmq_mount_of(int fd) {
    uint8_t answer[RMQ_STATX_SIZE] __attribute__((aligned(8))) = {0};
    uint32_t mask;
    int64_t id;
    if (syscall(RMQ_STATX, fd, "", RMQ_AT_EMPTY_PATH, RMQ_STATX_MNT_ID, answer) != 0) return -1;
    memcpy(&mask, answer, sizeof mask);
    memcpy(&id, answer + RMQ_STATX_MNT_ID_AT, sizeof id);
    return (mask & RMQ_STATX_MNT_ID) != 0 ? id : -1;
}

#endif
