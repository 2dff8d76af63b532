/* Checksums of RocksDB's block-based tables: of blocks with their compression type, and since format version 6 of the
 * footer. A table's footer says which kind it has. */
#ifndef RMQ_TABLE_CHECKSUM_H
#define RMQ_TABLE_CHECKSUM_H

#include <stdint.h>

#include "crc32c.h"
#include "xxh3.h"

enum { RMQ_CHECKSUM_CRC32C = 1, RMQ_CHECKSUM_XXH3 = 4 }; /* as footers have them */

static inline uint32_t rmq_table_checksum(int kind, const uint8_t *p, int64_t n) {
    if (kind == RMQ_CHECKSUM_CRC32C) return rmq_masked(rmq_crc32c(0, p, (size_t)n));
    /* The last byte, mostly a compression type that is not beside its block in memory yet, is mixed in afterwards. */
    return n > 0 ? (uint32_t)rmq_xxh3(p, (uint64_t)n - 1) ^ p[n - 1] * 0x6B9083D9u : 0;
}

/* What a checksum at some offset of a file is raised by; context 0: nothing. */
static inline uint32_t rmq_checksum_of_place(uint32_t context, uint64_t offset) {
    return context != 0 ? context ^ ((uint32_t)offset + (uint32_t)(offset >> 32)) : 0;
}

#endif
