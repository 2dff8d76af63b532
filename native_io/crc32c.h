/* CRC-32C (Castagnoli, reflected 0x82F63B78), which RocksDB's files carry. Newer x86-64 has an instruction for it. */
#ifndef RMQ_CRC32C_H
#define RMQ_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "machine.h"

#define RMQ_CRC32C_POLYNOMIAL 0x82F63B78u

/* Filled once, when the module is loaded; only read afterwards. */
static uint32_t rmq_crc32c_table[256];
#if RMQ_X86
static int rmq_crc32c_use_sse42;
#endif

__attribute__((constructor)) static void rmq_crc32c_init(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ RMQ_CRC32C_POLYNOMIAL : c >> 1;
        rmq_crc32c_table[i] = c;
    }
#if RMQ_X86
    __builtin_cpu_init();
    rmq_crc32c_use_sse42 = __builtin_cpu_supports("sse4.2");
#endif
}

#if RMQ_X86
/* On the inverted register. */
__attribute__((target("sse4.2"))) static uint32_t rmq_crc32c_update_sse42(uint32_t c, const uint8_t *p, size_t n) {
    uint64_t wide = c;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t eight;
        memcpy(&eight, p, 8);
        wide = _mm_crc32_u64(wide, eight);
    }
    for (c = (uint32_t)wide; n > 0; p++, n--) c = _mm_crc32_u8(c, *p);
    return c;
}
#endif

static inline uint32_t rmq_crc32c_portable(uint32_t crc, const uint8_t *p, size_t n) {
    for (crc = ~crc; n > 0; p++, n--) crc = crc >> 8 ^ rmq_crc32c_table[(crc ^ *p) & 0xFF];
    return ~crc;
}

static inline uint32_t rmq_crc32c(uint32_t crc, const uint8_t *p, size_t n) {
#if RMQ_X86
    if (rmq_crc32c_use_sse42) return ~rmq_crc32c_update_sse42(~crc, p, n);
#endif
    return rmq_crc32c_portable(crc, p, n);
}

/* A CRC as RocksDB stores it: rotated, plus a constant, so that the CRC of bytes that contain a CRC is no special case.
 */
static inline uint32_t rmq_masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8u; }

#endif
