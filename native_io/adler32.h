/* Adler-32 (RFC 1950), the checksum of a zlib stream. */
#ifndef RMQ_ADLER32_H
#define RMQ_ADLER32_H

#include <stdint.h>

#include "machine.h"

enum {
    RMQ_ADLER_BASE = 65521,
    RMQ_ADLER_ROW = 32,  /* bytes that are added up side by side */
    RMQ_ADLER_ROWS = 128, /* rows whose sums fit into 16 bits, and into 32 bits what these add up to */
};

/* Of a piece of whole rows: a sum for each column, and what the sums were before each row, added up. The compiler makes vectors
 * of it. */
static inline void rmq_adler32_rows(const uint8_t *p, int64_t rows, uint32_t *a, uint32_t *b) {
    uint16_t sums[RMQ_ADLER_ROW] = {0};
    uint32_t before[RMQ_ADLER_ROW] = {0}, all = 0, weighted = 0, earlier = 0;
    for (int64_t row = 0; row < rows; row++, p += RMQ_ADLER_ROW)
        for (int i = 0; i < RMQ_ADLER_ROW; i++) {
            before[i] += sums[i];
            sums[i] = (uint16_t)(sums[i] + p[i]);
        }
    for (int i = 0; i < RMQ_ADLER_ROW; i++) {
        all += sums[i];
        weighted += (uint32_t)(RMQ_ADLER_ROW - i) * sums[i];
        earlier += before[i];
    }
    *b = (*b + (uint32_t)rows * RMQ_ADLER_ROW * *a + RMQ_ADLER_ROW * (earlier % RMQ_ADLER_BASE) + weighted) % RMQ_ADLER_BASE;
    *a = (*a + all) % RMQ_ADLER_BASE;
}

static inline uint32_t rmq_adler32_on(const uint8_t *p, int64_t n, rmq_machine machine) {
    uint32_t a = 1, b = 0;
    (void)machine;
    while (n >= RMQ_ADLER_ROW) {
        const int64_t rows = n / RMQ_ADLER_ROW < RMQ_ADLER_ROWS ? n / RMQ_ADLER_ROW : RMQ_ADLER_ROWS;
        rmq_adler32_rows(p, rows, &a, &b);
        p += rows * RMQ_ADLER_ROW;
        n -= rows * RMQ_ADLER_ROW;
    }
    for (; n > 0; n--) {
        a += *p++;
        b += a;
    }
    return (b % RMQ_ADLER_BASE) << 16 | a % RMQ_ADLER_BASE;
}

#endif
