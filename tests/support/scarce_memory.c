/* Preloaded: one request for memory is refused, the n-th of those that the kernel's own code makes. All others get theirs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static atomic_long left = -1; /* requests until then; below 0: none is refused */
static atomic_int has_refused;

void scarce_refuse(long number) {
    has_refused = 0;
    left = number;
}

int scarce_has_refused(void) { return has_refused; }

static int is_refused(const void *caller) {
    Dl_info of;
    if (left < 0 || dladdr(caller, &of) == 0 || of.dli_fname == NULL || strstr(of.dli_fname, "/native_io/_") == NULL) return 0;
    if (atomic_fetch_sub(&left, 1) != 0) return 0;
    has_refused = 1;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return is_refused(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return is_refused(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return is_refused(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size); }
