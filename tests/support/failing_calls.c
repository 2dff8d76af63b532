/* Preloaded: one call of a function of the C library fails, the n-th that the kernel's own code makes of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { ENDS = 0 }; /* instead of an errno: the call gives 0, as where a file ends */

static char failing[16];
static int how;
static atomic_long left = -1; /* calls until then; below 0: none fails */
static atomic_int has_failed;

void fail_call(const char *name, long number, int error) {
    strncpy(failing, name, sizeof failing - 1);
    how = error;
    has_failed = 0;
    left = number;
}

int has_call_failed(void) { return has_failed; }

static int fails(const char *name, const void *caller) {
    Dl_info of;
    if (left < 0 || strcmp(name, failing) != 0 || dladdr(caller, &of) == 0 || of.dli_fname == NULL) return 0;
    if (strstr(of.dli_fname, "/native_io/_") == NULL || atomic_fetch_sub(&left, 1) != 0) return 0;
    has_failed = 1;
    errno = how;
    return 1;
}

#define THEIRS(name) (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FAILED (how == ENDS ? 0 : -1)
#define CALLER __builtin_return_address(0)

ssize_t pread(int fd, void *to, size_t n, off_t at) { return fails("pread", CALLER) ? FAILED : (THEIRS(pread))(fd, to, n, at); }

off_t lseek(int fd, off_t at, int whence) { return fails("lseek", CALLER) ? FAILED : (THEIRS(lseek))(fd, at, whence); }

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const int mode = va_arg(rest, int);
    va_end(rest);
    return fails("open", CALLER) ? -1 : (THEIRS(open))(path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const int mode = va_arg(rest, int);
    va_end(rest);
    return fails("openat", CALLER) ? -1 : (THEIRS(openat))(directory, path, flags, mode);
}

long syscall(long number, ...) {
    long of[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) of[i] = va_arg(rest, long);
    va_end(rest);
    return fails("syscall", CALLER) ? FAILED : (THEIRS(syscall))(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}

/* As callers name them that were compiled for files of any size. */
ssize_t pread64(int fd, void *to, size_t n, off_t at) __attribute__((alias("pread")));
off_t lseek64(int fd, off_t at, int whence) __attribute__((alias("lseek")));
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int directory, const char *path, int flags, ...) __attribute__((alias("openat")));
