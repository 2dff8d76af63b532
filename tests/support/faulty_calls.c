/* Calls of the C library that read files, of which one fails: for LD_PRELOAD (test_faulty_calls.py).

   Only calls about files below a directory count. The n-th of them fails, or, if it reads, gives fewer bytes than it was
   asked for, as POSIX allows; or another program changes the files just before it. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FAILS = 0, IS_SHORT = 1, COMES_AFTER_CHANGE = 2 };

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

#define READS(name, ...)                                                                                               \
    REAL(name);                                                                                                        \
    if (fails(fd, NULL)) {                                                                                             \
        if (kind == FAILS) return -1;                                                                                  \
        if (n > 1) n = n / 2;                                                                                          \
    }                                                                                                                  \
    return real(__VA_ARGS__)

ssize_t read(int fd, void *to, size_t n) { READS(read, fd, to, n); }
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
        if (kind == FAILS) return -1;                                                                                  \
        one = halved(to);                                                                                              \
        to = &one, n = 1;                                                                                              \
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

#define STATS(name, at, path, ...)                                                                                     \
    REAL(name);                                                                                                        \
    if (fails(at, path) && kind == FAILS) return -1;                                                                   \
    return real(__VA_ARGS__)

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
    if (fails(at, path) && kind == FAILS) return -1;                                                                   \
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

/* The kernel of the package calls some by number (native_io/system.h): those that list directories and give statuses. */
long syscall(long number, ...) {
    long a[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
    va_end(more);
    REAL(syscall);
    struct iovec one;
    if ((number == SYS_getdents64 || number == SYS_newfstatat || number == SYS_statx || number == SYS_preadv2) &&
        fails((int)a[0], number == SYS_newfstatat || number == SYS_statx ? (const char *)a[1] : NULL)) {
        if (kind == FAILS) return -1;
        if (number == SYS_preadv2) {
            one = halved((const struct iovec *)a[1]);
            a[1] = (long)&one;
        }
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
