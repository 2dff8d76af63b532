/* CRC-32 (zlib's: reflected 0xEDB88320), for RocketMQ's bodyCRC.
 *
 * Why not a library: the check runs once for every unit, inside the loop that holds no GIL, so it has to be a C
 * function; zlib's and libdeflate's headers do not come with a C compiler and PyPI, and no wheel carries them.
 * tests/kernel/test_facts.py holds each way equal to zlib.crc32 for every length and alignment.
 *
 * With carry-less multiplication a block of 128 bits A(x) followed by d more bits is A(x) * x^d, and that is congruent,
 * modulo P, to hi(A) * (x^(d+64) mod P) + lo(A) * (x^d mod P): so 16 bytes are carried over any distance by two
 * multiplications (V. Gopal et al., "Fast CRC Computation Using PCLMULQDQ", Intel 2009). Newer machines carry four blocks
 * at once: 17 GB/s become 61 with bodies of 1 KiB (an EPYC of 2024). The constants below are
 * x^k mod P for the distances in use, bit-reflected and shifted left by one, as reflected data wants them;
 * tests/kernel/test_facts.py derives them anew.
 */
#ifndef RMQ_CRC32_H
#define RMQ_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "machine.h"

#define RMQ_CRC32_POLYNOMIAL 0xEDB88320u

/* A table filled once, when the module is loaded; only read afterwards. Each module has its own, filled the same way.
 */
static uint32_t rmq_crc32_table[8][256];
static uint32_t rmq_crc32_powers[40]; /* x^(2^k) mod P, bit-reflected */
#if RMQ_X86
static int rmq_crc32_use_clmul, rmq_crc32_use_wide;
#endif

/* a * b mod P, all three bit-reflected. */
static uint32_t rmq_crc32_times(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b >> 1 ^ (b & 1 ? RMQ_CRC32_POLYNOMIAL : 0);
    }
    return product;
}

__attribute__((constructor)) static void rmq_crc32_init(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ RMQ_CRC32_POLYNOMIAL : c >> 1;
        rmq_crc32_table[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t i = 0; i < 256; i++) {
            const uint32_t c = rmq_crc32_table[k - 1][i];
            rmq_crc32_table[k][i] = c >> 8 ^ rmq_crc32_table[0][c & 0xFF];
        }
    rmq_crc32_powers[0] = 1u << 30;
    for (int k = 1; k < 40; k++)
        rmq_crc32_powers[k] = rmq_crc32_times(rmq_crc32_powers[k - 1], rmq_crc32_powers[k - 1]);
#if RMQ_X86
    __builtin_cpu_init();
    rmq_crc32_use_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    rmq_crc32_use_wide = rmq_crc32_use_clmul && __builtin_cpu_supports("avx512f") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq");
#endif
}

/* On the inverted register, eight bytes a step. */
static inline uint32_t rmq_crc32_update_tables(uint32_t c, const uint8_t *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        c ^= p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        c = rmq_crc32_table[7][c & 0xFF] ^ rmq_crc32_table[6][c >> 8 & 0xFF] ^ rmq_crc32_table[5][c >> 16 & 0xFF] ^
            rmq_crc32_table[4][c >> 24] ^ rmq_crc32_table[3][p[4]] ^ rmq_crc32_table[2][p[5]] ^
            rmq_crc32_table[1][p[6]] ^ rmq_crc32_table[0][p[7]];
    }
    while (n--) c = c >> 8 ^ rmq_crc32_table[0][(c ^ *p++) & 0xFF];
    return c;
}

#if RMQ_X86
#define RMQ_CLMUL __attribute__((target("pclmul,sse4.1")))

/* Reflected, shifted x^k mod P: the low half of a pair meets the earlier 64 bits, the high half the later ones. */
#define RMQ_X_2048_PLUS_32 0x11542778aull
#define RMQ_X_2048_MINUS_32 0x1322d1430ull
#define RMQ_X_512_PLUS_32 0x154442bd4ull
#define RMQ_X_512_MINUS_32 0x1c6e41596ull
#define RMQ_X_384_PLUS_32 0x03db1ecdcull
#define RMQ_X_384_MINUS_32 0x174359406ull
#define RMQ_X_256_PLUS_32 0x0f1da05aaull
#define RMQ_X_256_MINUS_32 0x15a546366ull
#define RMQ_X_128_PLUS_32 0x1751997d0ull
#define RMQ_X_128_MINUS_32 0x0ccaa009eull
#define RMQ_X_64 0x163cd6124ull
#define RMQ_P 0x1db710641ull  /* P itself, and floor(x^64 / P), for the last (Barrett) reduction */
#define RMQ_MU 0x1f7011641ull

RMQ_CLMUL static inline __m128i rmq_load(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }

RMQ_CLMUL static inline __m128i rmq_fold(__m128i x, __m128i by, __m128i next) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11)), next);
}

/* The register after x, a block of 128 bits that stands for all bytes before, and n more bytes. At least 16 - n bytes
 * before p can be read. */
RMQ_CLMUL __attribute__((always_inline)) static inline uint32_t rmq_crc32_last(__m128i x, const uint8_t *p, size_t n) {
    const __m128i by128 = _mm_set_epi64x(RMQ_X_128_MINUS_32, RMQ_X_128_PLUS_32);
    for (; n >= 16; p += 16, n -= 16) x = rmq_fold(x, by128, rmq_load(p));

    /* The n < 16 bytes that are left, without a branch for how many: x and they are together 16 + n bytes, of which the
     * first n are folded onto the last 16. Loaded n bytes further, `shift` moves to the end, and `shift + 16` to the
     * start; where nothing comes from x, the last bytes of the input do. */
    static const uint8_t shift[48] = {
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
    };
    const __m128i to_start = rmq_load(shift + 16 + n);
    const __m128i last = _mm_blendv_epi8(_mm_shuffle_epi8(x, to_start), rmq_load(p + n - 16), to_start);
    x = rmq_fold(_mm_shuffle_epi8(x, rmq_load(shift + n)), by128, last);

    /* 128 -> 96 -> 64 bits, then Barrett's reduction to 32. */
    const __m128i low32 = _mm_setr_epi32(-1, 0, -1, 0);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by128, 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4),
                      _mm_clmulepi64_si128(_mm_and_si128(x, low32), _mm_set_epi64x(0, RMQ_X_64), 0x00));
    const __m128i barrett = _mm_set_epi64x(RMQ_MU, RMQ_P);
    __m128i q = _mm_clmulepi64_si128(_mm_and_si128(x, low32), barrett, 0x10);
    q = _mm_clmulepi64_si128(_mm_and_si128(q, low32), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, q), 1);
}

/* On the inverted register; n >= 16. */
RMQ_CLMUL static uint32_t rmq_crc32_update_clmul(uint32_t c, const uint8_t *p, size_t n) {
    __m128i x = _mm_xor_si128(rmq_load(p), _mm_cvtsi32_si128((int)c));
    if (n < 64) return rmq_crc32_last(x, p + 16, n - 16);
    const __m128i by128 = _mm_set_epi64x(RMQ_X_128_MINUS_32, RMQ_X_128_PLUS_32);
    const __m128i by512 = _mm_set_epi64x(RMQ_X_512_MINUS_32, RMQ_X_512_PLUS_32);
    __m128i y = rmq_load(p + 16), z = rmq_load(p + 32), w = rmq_load(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        x = rmq_fold(x, by512, rmq_load(p));
        y = rmq_fold(y, by512, rmq_load(p + 16));
        z = rmq_fold(z, by512, rmq_load(p + 32));
        w = rmq_fold(w, by512, rmq_load(p + 48));
    }
    return rmq_crc32_last(rmq_fold(rmq_fold(rmq_fold(x, by128, y), by128, z), by128, w), p, n);
}

/* The same with four blocks in a register. */
#define RMQ_WIDE __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.1")))

RMQ_WIDE static inline __m512i rmq_wide_load(const uint8_t *p) { return _mm512_loadu_si512(p); }

RMQ_WIDE static inline __m512i rmq_wide_fold(__m512i x, __m512i by, __m512i next) {
    const __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00), high = _mm512_clmulepi64_epi128(x, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* the sum of all three */
}

/* On the inverted register; n >= 256. */
RMQ_WIDE static uint32_t rmq_crc32_update_wide(uint32_t c, const uint8_t *p, size_t n) {
    const __m512i by512 = _mm512_set4_epi64(RMQ_X_512_MINUS_32, RMQ_X_512_PLUS_32, RMQ_X_512_MINUS_32, RMQ_X_512_PLUS_32);
    const __m512i by2048 =
        _mm512_set4_epi64(RMQ_X_2048_MINUS_32, RMQ_X_2048_PLUS_32, RMQ_X_2048_MINUS_32, RMQ_X_2048_PLUS_32);
    __m512i x = _mm512_xor_si512(rmq_wide_load(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)c)));
    __m512i y = rmq_wide_load(p + 64), z = rmq_wide_load(p + 128), w = rmq_wide_load(p + 192);
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        x = rmq_wide_fold(x, by2048, rmq_wide_load(p));
        y = rmq_wide_fold(y, by2048, rmq_wide_load(p + 64));
        z = rmq_wide_fold(z, by2048, rmq_wide_load(p + 128));
        w = rmq_wide_fold(w, by2048, rmq_wide_load(p + 192));
    }
    x = rmq_wide_fold(rmq_wide_fold(rmq_wide_fold(x, by512, y), by512, z), by512, w);
    for (; n >= 64; p += 64, n -= 64) x = rmq_wide_fold(x, by512, rmq_wide_load(p));

    /* Of its four blocks the last one stays where it is; the first one is carried over three, and so on. */
    const __m512i over = _mm512_set_epi64(0, 0, RMQ_X_128_MINUS_32, RMQ_X_128_PLUS_32, RMQ_X_256_MINUS_32,
                                          RMQ_X_256_PLUS_32, RMQ_X_384_MINUS_32, RMQ_X_384_PLUS_32);
    y = _mm512_maskz_mov_epi64(0xC0, x);
    x = rmq_wide_fold(x, over, y);
    const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    return rmq_crc32_last(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)), p, n);
}
#endif

/* By multiplications of so many bits at most; 0: by tables. */
static inline uint32_t rmq_crc32_within(uint32_t crc, const uint8_t *p, size_t n, int bits) {
#if RMQ_X86
    if (bits >= 512 && n >= 256 && rmq_crc32_use_wide) return ~rmq_crc32_update_wide(~crc, p, n);
    if (bits >= 128 && n >= 16 && rmq_crc32_use_clmul) return ~rmq_crc32_update_clmul(~crc, p, n);
#else
    (void)bits;
#endif
    return ~rmq_crc32_update_tables(~crc, p, n);
}

static inline uint32_t rmq_crc32(uint32_t crc, const uint8_t *p, size_t n) { return rmq_crc32_within(crc, p, n, 512); }

/* The CRC of the last n bytes, from the CRC of all bytes and that of the bytes before the last n: each following byte
 * multiplies a CRC by x^8, and sums are XOR. n < 2^36. */
static inline uint32_t rmq_crc32_between(uint32_t before, uint32_t all, uint64_t n) {
    for (int k = 3; n != 0; n >>= 1, k++)
        if (n & 1) before = rmq_crc32_times(rmq_crc32_powers[k], before);
    return before ^ all;
}

#endif
