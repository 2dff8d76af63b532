/* Calls of the C library that read or change files, of which one fails: for LD_PRELOAD (test_faulty_calls.py).

   Only calls about files below a directory count. The n-th of them fails, or, if it reads or writes, does so with fewer
   bytes than it was asked for, as POSIX allows; or a signal comes, where the call may be interrupted; or another program
   changes the files just before it. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FAILS = 0, IS_SHORT = 1, COMES_AFTER_CHANGE = 2, IS_INTERRUPTED = 3, LACKS_ROOM = 4 };
enum { MAY_WAIT = 1, TAKES_ROOM = 2 }; /* what a call may do */

static char below[PATH_MAX], last[PATH_MAX + 1];
static size_t below_size;
static atomic_int calls, failing, kind, with; /* reads run in threads; only one call fails */
static void (*change)(int);
static int each;
static _Thread_local int is_changing; /* the calls that make the change do not count */

/* From now on calls about files below a directory are counted; the n-th fails (0: none). */
void faulty_begin(const char *directory, int n, int how, int error) {
    below_size = strlen(strcpy(below, directory));
    calls = 0;
    kind = how;
    with = error;
    failing = n;
}

/* From now on the files change before the n-th call, and, where they do so in steps, before each `every`-th after it.
   What changes them is called with the number of the step. */
void faulty_change(const char *directory, int n, int every, void (*changes)(int)) {
    change = changes;
    each = every;
    faulty_begin(directory, n, COMES_AFTER_CHANGE, 0);
}

int faulty_end(void) {
    below_size = 0;
    return calls;
}

/* What the call that failed was about. */
const char *faulty_path(void) {
    return last;
}

/* The path of a descriptor, in PATH_MAX + 1 bytes; empty for none. */
static void path_of(int fd, char *to) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t size = fd < 0 ? -1 : readlink(link, to, PATH_MAX);
    to[size < 0 ? 0 : size] = 0;
}

static int is_below(int fd, const char *path) {
    char found[PATH_MAX + 1];
    if (!below_size || is_changing) return 0;
    if (path && *path == '/') return !strncmp(path, below, below_size);
    path_of(fd, found);
    return !strncmp(found, below, below_size);
}

/* Whether the call that fails is not made at all. */
static int is_refused(int may) {
    if (kind == IS_INTERRUPTED && may & MAY_WAIT) return errno = EINTR;
    if (kind == LACKS_ROOM && may & TAKES_ROOM) return errno = with;
    return kind == FAILS;
}

/* Whether this call is the one that fails. */
static int fails(int fd, const char *path) {
    const int error = errno;
    if (!is_below(fd, path)) {
        errno = error;
        return 0;
    }
    const int number = ++calls;
    const int is_step = kind == COMES_AFTER_CHANGE && failing && each && number > failing && (number - failing) % each == 0;
    const int is_it = number == failing || is_step;
    if (is_it) path_of(fd, last);
    if (is_it && path) strncat(last, path, PATH_MAX - strlen(last));
    if (is_it && kind == COMES_AFTER_CHANGE) {
        is_changing = 1;
        change(is_step ? (number - failing) / each : 0);
        is_changing = 0;
    }
    errno = is_it && kind == FAILS ? with : error;
    return is_it && kind != COMES_AFTER_CHANGE;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define MOVES(name, may, ...)                                                                                          \
    REAL(name);                                                                                                        \
    if (fails(fd, NULL)) {                                                                                             \
        if (is_refused(may)) return -1;                                                                                \
        if (kind == IS_SHORT && n > 1) n = n / 2;                                                                      \
    }                                                                                                                  \
    return real(__VA_ARGS__)

#define READS(name, ...) MOVES(name, MAY_WAIT, __VA_ARGS__)
#define WRITES(name, ...) MOVES(name, MAY_WAIT | TAKES_ROOM, __VA_ARGS__)

ssize_t read(int fd, void *to, size_t n) { READS(read, fd, to, n); }
ssize_t write(int fd, const void *from, size_t n) { WRITES(write, fd, from, n); }
ssize_t pwrite(int fd, const void *from, size_t n, off_t at) { WRITES(pwrite, fd, from, n, at); }
ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at) { WRITES(pwrite64, fd, from, n, at); }
ssize_t pread(int fd, void *to, size_t n, off_t at) { READS(pread, fd, to, n, at); }
ssize_t pread64(int fd, void *to, size_t n, off64_t at) { READS(pread64, fd, to, n, at); }

static struct iovec halved(const struct iovec *some) {
    struct iovec one = *some;
    if (one.iov_len > 1) one.iov_len /= 2;
    return one;
}

#define READS_VECTOR(name, ...)                                                                                        \
    REAL(name);                                                                                                        \
    struct iovec one;                                                                                                  \
    if (fails(fd, NULL)) {                                                                                             \
        if (is_refused(MAY_WAIT)) return -1;                                                                           \
        one = halved(to);                                                                                              \
        if (kind == IS_SHORT) to = &one, n = 1;                                                                                              \
    }                                                                                                                  \
    return real(__VA_ARGS__)

ssize_t preadv(int fd, const struct iovec *to, int n, off_t at) { READS_VECTOR(preadv, fd, to, n, at); }
ssize_t preadv64(int fd, const struct iovec *to, int n, off64_t at) { READS_VECTOR(preadv64, fd, to, n, at); }
ssize_t preadv2(int fd, const struct iovec *to, int n, off_t at, int flags) {
    READS_VECTOR(preadv2, fd, to, n, at, flags);
}
ssize_t preadv64v2(int fd, const struct iovec *to, int n, off64_t at, int flags) {
    READS_VECTOR(preadv64v2, fd, to, n, at, flags);
}

#define ACTS(name, may, at, path, ...)                                                                                 \
    REAL(name);                                                                                                        \
    if (fails(at, path) && is_refused(may)) return -1;                                                                 \
    return real(__VA_ARGS__)

#define STATS(name, ...) ACTS(name, 0, __VA_ARGS__)
#define CHANGES(name, ...) ACTS(name, TAKES_ROOM, __VA_ARGS__)
#define SYNCS(name, ...) ACTS(name, TAKES_ROOM | MAY_WAIT, __VA_ARGS__)

int fstat(int fd, struct stat *to) { STATS(fstat, fd, NULL, fd, to); }
int fstat64(int fd, struct stat64 *to) { STATS(fstat64, fd, NULL, fd, to); }
int stat(const char *path, struct stat *to) { STATS(stat, -1, path, path, to); }
int stat64(const char *path, struct stat64 *to) { STATS(stat64, -1, path, path, to); }
int lstat(const char *path, struct stat *to) { STATS(lstat, -1, path, path, to); }
int lstat64(const char *path, struct stat64 *to) { STATS(lstat64, -1, path, path, to); }
int fstatat(int at, const char *path, struct stat *to, int flags) { STATS(fstatat, at, path, at, path, to, flags); }
int fstatat64(int at, const char *path, struct stat64 *to, int flags) {
    STATS(fstatat64, at, path, at, path, to, flags);
}

#define OPENS(name, at, path, ...)                                                                                     \
    REAL(name);                                                                                                        \
    va_list more;                                                                                                      \
    va_start(more, flags);                                                                                             \
    const mode_t mode = va_arg(more, mode_t);                                                                          \
    va_end(more);                                                                                                      \
    if (fails(at, path) && is_refused(MAY_WAIT | (flags & O_CREAT ? TAKES_ROOM : 0))) return -1;                        \
    return real(__VA_ARGS__, mode)

int open(const char *path, int flags, ...) { OPENS(open, -1, path, path, flags); }
int open64(const char *path, int flags, ...) { OPENS(open64, -1, path, path, flags); }
int openat(int at, const char *path, int flags, ...) { OPENS(openat, at, path, at, path, flags); }
int openat64(int at, const char *path, int flags, ...) { OPENS(openat64, at, path, at, path, flags); }

DIR *opendir(const char *path) {
    REAL(opendir);
    return fails(-1, path) && kind == FAILS ? NULL : real(path);
}

DIR *fdopendir(int fd) {
    REAL(fdopendir);
    return fails(fd, NULL) && kind == FAILS ? NULL : real(fd);
}

struct dirent64 *readdir64(DIR *of) {
    REAL(readdir64);
    return fails(dirfd(of), NULL) && kind == FAILS ? NULL : real(of);
}

/* Where a file has holes. */
off_t lseek(int fd, off_t at, int whence) { STATS(lseek, fd, NULL, fd, at, whence); }
off64_t lseek64(int fd, off64_t at, int whence) { STATS(lseek64, fd, NULL, fd, at, whence); }

/* What changes files. */
int rename(const char *path, const char *to) { CHANGES(rename, -1, path, path, to); }
int renameat(int at, const char *path, int to_at, const char *to) { CHANGES(renameat, at, path, at, path, to_at, to); }
int linkat(int at, const char *path, int to_at, const char *to, int flags) {
    CHANGES(linkat, at, path, at, path, to_at, to, flags);
}
int unlink(const char *path) { CHANGES(unlink, -1, path, path); }
int unlinkat(int at, const char *path, int flags) { CHANGES(unlinkat, at, path, at, path, flags); }
int rmdir(const char *path) { CHANGES(rmdir, -1, path, path); }
int mkdir(const char *path, mode_t mode) { CHANGES(mkdir, -1, path, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { CHANGES(mkdirat, at, path, at, path, mode); }
int fchmod(int fd, mode_t mode) { STATS(fchmod, fd, NULL, fd, mode); }
int futimens(int fd, const struct timespec times[2]) { STATS(futimens, fd, NULL, fd, times); }
int syncfs(int fd) { CHANGES(syncfs, fd, NULL, fd); }
int sync_file_range(int fd, off64_t at, off64_t n, unsigned flags) {
    CHANGES(sync_file_range, fd, NULL, fd, at, n, flags);
}

int fsync(int fd) { SYNCS(fsync, fd, NULL, fd); }
int fdatasync(int fd) { SYNCS(fdatasync, fd, NULL, fd); }
int ftruncate(int fd, off_t size) { SYNCS(ftruncate, fd, NULL, fd, size); }
int ftruncate64(int fd, off64_t size) { SYNCS(ftruncate64, fd, NULL, fd, size); }

ssize_t copy_file_range(int from, off64_t *from_at, int fd, off64_t *at, size_t n, unsigned flags) {
    WRITES(copy_file_range, from, from_at, fd, at, n, flags);
}

/* The kernel of the package calls some by number (native_io/system.h): those that list directories, give
   statuses, and exchange names. */
long syscall(long number, ...) {
    long a[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
    va_end(more);
    REAL(syscall);
    struct iovec one;
    const int is_path = number == SYS_newfstatat || number == SYS_statx || number == SYS_renameat2;
    if ((is_path || number == SYS_getdents64 || number == SYS_preadv2) && fails((int)a[0], is_path ? (const char *)a[1] : NULL)) {
        if (is_refused(number == SYS_preadv2 ? MAY_WAIT : number == SYS_renameat2 ? TAKES_ROOM : 0)) return -1;
        if (kind == IS_SHORT && number == SYS_preadv2) {
            one = halved((const struct iovec *)a[1]);
            a[1] = (long)&one;
        }
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
