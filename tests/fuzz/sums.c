/* Checksums and hashes: every way to them gives the same, over any bytes and in pieces. */
#include <zlib.h>

#include "adler32.h"
#include "crc32c.h"
#include "fuzz.h"
#include "java_hash.h"
#include "sums.h"
#include "table_checksum.h"
#include "utf8.h"
#include "xxhash32.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4) return 0;
    const size_t n = size - 4, cut = n * data[0] / 255;
    const int64_t begin = (int64_t)(n * data[1] / 255), end = begin + (int64_t)((n - (size_t)begin) * data[2] / 255);
    uint8_t *const p = fuzz_copy(data + 4, n);
    const uint32_t crc = rmq_crc32(0, p, n);
    CHECK(crc == (uint32_t)crc32(crc32(0, NULL, 0), p, (unsigned)n));
    CHECK(crc == rmq_crc32_within(0, p, n, 128) && crc == rmq_crc32_within(0, p, n, 0));
    CHECK(crc == rmq_crc32(rmq_crc32(0, p, cut), p + cut, n - cut));
    CHECK(rmq_crc32_between(rmq_crc32(0, p, cut), crc, n - cut) == rmq_crc32(0, p + cut, n - cut));
    const uint32_t adler = (uint32_t)adler32(adler32(0, NULL, 0), p, (unsigned)n);
    CHECK(rmq_adler32_on(p, (int64_t)n, RMQ_ANY_MACHINE) == adler);
    const uint32_t crc_c = rmq_crc32c(0, p, n);
    CHECK(crc_c == rmq_crc32c_portable(0, p, n) && crc_c == rmq_crc32c(rmq_crc32c(0, p, cut), p + cut, n - cut));
    if (cut == n || p[cut] < 0x80) /* not within a character */
        CHECK(rmq_java_hash(0, p, (int64_t)n) == rmq_java_hash(rmq_java_hash(0, p, (int64_t)cut), p + cut, (int64_t)(n - cut)));
    rmq_xxh3(p, n);
    rmq_xxhash32(p, (int64_t)n);
    rmq_table_checksum(data[3] & 1 ? RMQ_CHECKSUM_CRC32C : RMQ_CHECKSUM_XXH3, p, (int64_t)n);

    rmq_sums sums = rmq_new_sums(p, (int64_t)n);
    for (int i = 0; i < 3; i++) CHECK(rmq_sum(&sums, begin, end, data[3]) == rmq_crc32(0, p + begin, (size_t)(end - begin)));
    CHECK(rmq_sum(&sums, 0, (int64_t)n, 0) == crc);
    rmq_free_sums(&sums);

    uint8_t *const shown = fuzz_memory(3 * n), *const again = fuzz_memory(3 * n);
    const int64_t length = rmq_show(p, (int64_t)n, shown, 3 * (int64_t)n);
    CHECK(length >= 0 && rmq_show(shown, length, again, length) == length && (length == 0 || memcmp(shown, again, (size_t)length) == 0));
    CHECK(length == 0 || rmq_show(p, (int64_t)n, again, length - 1) == -1);
    free(shown);
    free(again);
    free(p);
    return 0;
}
