/* The libzstd of the machine, as Python hands it to the kernel. */
#ifndef FUZZ_ZSTD_H
#define FUZZ_ZSTD_H

#include <dlfcn.h>

#include "fuzz.h"
#include "zstd_frame.h"

static inline rmq_zstd_library fuzz_zstd_library(void) {
    static const char *const names[] = {"ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_decompressDCtx"};
    static uintptr_t functions[3];
    void *const library = functions[0] == 0 && !FUZZ_SEES_MEMORY ? dlopen("libzstd.so.1", RTLD_NOW) : NULL;
    for (int i = 0; library != NULL && i < 3; i++) functions[i] = (uintptr_t)dlsym(library, names[i]);
    return rmq_zstd_library_at(functions);
}

#endif
