/* zlib streams (RFC 1950) that lie in memory as a whole, decompressed in one go.
 *
 * Why not a library: see docs/decisions.md. The way is the usual one of fast decoders. A code is looked up by as many bits
 * as most codes have; an entry of the table says all that has to be done, so that a symbol costs one look-up and a
 * shift. While 32 bytes of input and 320 of output are left, nothing is checked but distances.
 *
 * A stream that this decompresses is one that zlib decompresses, to the same bytes. It gives up on others, and on some
 * odd ones: who has to say what is wrong asks zlib. */
#ifndef RMQ_INFLATE_H
#define RMQ_INFLATE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "adler32.h"
#include "expanded.h"
#include "little_endian.h"
#include "machine.h"

enum {
    RMQ_LONGEST_CODE = 15,
    RMQ_SYMBOLS = 288, /* literals, the end of a block, and lengths of matches */
    RMQ_DISTANCES = 32,
    RMQ_LENGTHS = 19, /* codes for the lengths of codes */
    RMQ_SYMBOL_BITS = 10, /* looked up at once; the tables' sizes suffice for every complete code, and are checked */
    RMQ_DISTANCE_BITS = 8,
    RMQ_LENGTH_BITS = 7,
    RMQ_SYMBOL_ENTRIES = 1400,
    RMQ_DISTANCE_ENTRIES = 512,
    RMQ_FAST_INPUT = 32,   /* three loads of 8 bytes, each up to 7 bytes further on than the one before */
    RMQ_FAST_OUTPUT = 320, /* three literals and a match of 258, copied 16 bytes at a time, or 32 at first */
};

/* An entry of a table, from its lowest bits: 5 bits: how many bits are passed, those after the code included; 4 bits from
 * bit 8 on: how many bits the code has; flags; from bit 16 on: the literal, or the base of a length or distance, or
 * where in the table the entries of longer codes begin (their number of bits is then in bits 8 to 11). */
enum { RMQ_LONGER = 1 << 13, RMQ_BLOCK_END = 1 << 14, RMQ_NO_CODE = 1 << 15, RMQ_SPECIAL = RMQ_LONGER | RMQ_BLOCK_END | RMQ_NO_CODE };
#define RMQ_LITERAL (1u << 31)

typedef struct {
    uint32_t symbols[RMQ_SYMBOL_ENTRIES], distances[RMQ_DISTANCE_ENTRIES];
    int symbol_bits, distance_bits;
    int is_fixed; /* the tables are those of RFC 1951's fixed codes */
} rmq_inflater;

/* What is read. Behind the input are zeros, which are counted. */
typedef struct {
    const uint8_t *at, *end;
    uint64_t bits;  /* the next ones, the first one lowest */
    uint32_t left;  /* how many of them are counted as read: its lowest byte, see rmq_pass */
    uint32_t zeros; /* bytes that were read behind the end */
} rmq_bits;

/* Have at least 56 bits, where 8 bytes are left to load. Bits above `left` are right ones, too. */
static inline void rmq_fill_fast(rmq_bits *b) {
    b->bits |= rmq_le64(b->at) << (b->left & 63);
    b->at += 7 - (b->left >> 3 & 7);
    b->left |= 56;
}

static inline void rmq_fill(rmq_bits *b) {
    if (b->end - b->at >= 8) {
        rmq_fill_fast(b);
        return;
    }
    for (b->left &= 255; b->left < 56; b->left += 8) {
        if (b->at < b->end)
            b->bits |= (uint64_t)*b->at++ << b->left;
        else
            b->zeros += 1;
    }
}

/* Pass as many bits as the lowest byte of `entry` says, at most 56. The others are not masked out: on x86 a shift looks at the
 * lowest bits only, and this is done for every symbol, which waits for it. */
static inline void rmq_pass(rmq_bits *b, uint32_t entry) {
    b->bits >>= entry & 63;
    b->left -= entry;
}

static inline uint64_t rmq_low(uint64_t bits, uint32_t n) { return bits & (((uint64_t)1 << (n & 63)) - 1); }

static inline uint32_t rmq_take_bits(rmq_bits *b, uint32_t n) {
    const uint32_t v = (uint32_t)rmq_low(b->bits, n);
    rmq_pass(b, n);
    return v;
}

/* Was more passed than there is? */
static inline int rmq_is_past_end(const rmq_bits *b) { return b->zeros > (b->left & 255) / 8; }

/* Go on with the next whole byte. */
static inline void rmq_align(rmq_bits *b) {
    b->at -= (b->left & 255) / 8 - b->zeros;
    b->bits = b->left = b->zeros = 0;
}

/* ---- tables */

/* The entry of a symbol, without the bits of its code. */
static inline uint32_t rmq_symbol_entry(int symbol) {
    static const uint16_t base[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                      31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t extra[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    if (symbol < 256) return RMQ_LITERAL | (uint32_t)symbol << 16;
    if (symbol == 256) return RMQ_BLOCK_END;
    return symbol < 286 ? (uint32_t)base[symbol - 257] << 16 | extra[symbol - 257] : RMQ_NO_CODE;
}

static inline uint32_t rmq_distance_entry(int symbol) {
    if (symbol >= 30) return RMQ_NO_CODE;
    const int extra = symbol < 4 ? 0 : symbol / 2 - 1;
    const uint32_t base = symbol < 4 ? (uint32_t)symbol + 1 : (2u + (uint32_t)(symbol & 1)) << extra | 1;
    return base << 16 | (uint32_t)extra;
}

static inline uint32_t rmq_length_entry(int symbol) { return (uint32_t)symbol << 16; }

/* The code after a code, both bit-reversed, as they are read; `last` is the last one of its length. */
static inline uint32_t rmq_next_code(uint32_t code, uint32_t last) {
    const uint32_t bit = 1u << (31 - __builtin_clz(code ^ last)); /* the highest bit that is 0: those above become 0 */
    return (code & (bit - 1)) | bit;
}

/* How many bits the codes have that begin alike and are longer than the table's: `length` is the shortest, and `count[n]` so
 * many codes have n bits, of which `left` of the shortest are still to come. */
static inline int rmq_longer_bits(const uint16_t *count, int left, int length, int bits, int longest) {
    int space = left;
    for (; space < 1 << (length - bits) && length < longest; space = 2 * space + count[length]) length++;
    return length - bits;
}

/* How many codes there are of each length. Neighbours are often of one length, and the second would wait for the first. */
static inline void rmq_count_lengths(const uint8_t *lengths, int n, uint16_t *count) {
    uint16_t other[3][RMQ_LONGEST_CODE + 1] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        count[lengths[i]]++;
        other[0][lengths[i + 1]]++;
        other[1][lengths[i + 2]]++;
        other[2][lengths[i + 3]]++;
    }
    for (; i < n; i++) count[lengths[i]]++;
    for (int length = 0; length <= RMQ_LONGEST_CODE; length++)
        count[length] = (uint16_t)(count[length] + other[0][length] + other[1][length] + other[2][length]);
}

/* Make a table of the lengths of codes, 0 where a symbol has none; *bits is how many bits it is looked up by, at first the
 * most. -1: no complete code, except that it may have one code of one bit, or none. */
static inline int rmq_make_table(uint32_t *table, int capacity, int *bits, const uint8_t *lengths, int n,
                                 uint32_t (*entry_of)(int)) {
    uint16_t count[RMQ_LONGEST_CODE + 1] = {0}, first[RMQ_LONGEST_CODE + 2], order[RMQ_SYMBOLS];
    rmq_count_lengths(lengths, n, count);
    int longest = RMQ_LONGEST_CODE, space = 0;
    while (longest > 0 && count[longest] == 0) longest--;
    first[1] = 0;
    for (int length = 1; length <= RMQ_LONGEST_CODE; length++) {
        first[length + 1] = (uint16_t)(first[length] + count[length]);
        space += count[length] << (RMQ_LONGEST_CODE - length);
    }
    for (int i = 0; i < n; i++)
        if (lengths[i] != 0) order[first[lengths[i]]++] = (uint16_t)i;
    if (space != 1 << RMQ_LONGEST_CODE) {
        if (longest > 1 || space > 1 << RMQ_LONGEST_CODE) return -1;
        *bits = 1;
        table[0] = longest == 1 ? entry_of(order[0]) + 0x101 : RMQ_NO_CODE;
        table[1] = RMQ_NO_CODE;
        return 0;
    }
    const int most = longest < *bits ? longest : *bits;
    *bits = most;
    const uint16_t *symbol = order;
    uint32_t code = 0;
    int length = 1;
    /* A longer code has two entries where a shorter one has one: the table is doubled on the way. */
    table[0] = 0;
    for (int size = 1; length <= most; length++) {
        memcpy(table + size, table, (size_t)size * sizeof *table);
        size *= 2;
        for (int i = 0; i < count[length]; i++) {
            table[code] = entry_of(*symbol++) + (uint32_t)length * 0x101;
            if (code == (uint32_t)size - 1) return 0;
            code = rmq_next_code(code, (uint32_t)size - 1);
        }
    }
    int start = 1 << most, used = start, more = 0;
    uint32_t prefix = UINT32_MAX;
    for (; length <= longest; length++) {
        const uint32_t last = (1u << length) - 1;
        for (int i = 0; i < count[length]; i++) {
            if ((uint32_t)rmq_low(code, (uint32_t)most) != prefix) {
                prefix = (uint32_t)rmq_low(code, (uint32_t)most);
                start = used;
                more = rmq_longer_bits(count, count[length] - i, length, most, longest);
                used += 1 << more;
                if (used > capacity) return -1;
                table[prefix] = RMQ_LONGER | (uint32_t)start << 16 | (uint32_t)more << 8 | (uint32_t)most;
            }
            const uint32_t entry = entry_of(*symbol++) + (uint32_t)(length - most) * 0x101;
            for (int at = (int)(code >> most); at < 1 << more; at += 1 << (length - most)) table[start + at] = entry;
            if (code == last) return 0;
            code = rmq_next_code(code, last);
        }
    }
    return -1; /* never: a complete code ends with the code of ones */
}

static inline int rmq_make_tables(rmq_inflater *z, const uint8_t *lengths, int symbols, int distances) {
    z->symbol_bits = RMQ_SYMBOL_BITS;
    z->distance_bits = RMQ_DISTANCE_BITS;
    if (rmq_make_table(z->symbols, RMQ_SYMBOL_ENTRIES, &z->symbol_bits, lengths, symbols, rmq_symbol_entry) != 0) return -1;
    return rmq_make_table(z->distances, RMQ_DISTANCE_ENTRIES, &z->distance_bits, lengths + symbols, distances,
                          rmq_distance_entry);
}

static inline int rmq_make_fixed_tables(rmq_inflater *z) {
    uint8_t lengths[RMQ_SYMBOLS + RMQ_DISTANCES];
    if (z->is_fixed) return 0;
    for (int i = 0; i < RMQ_SYMBOLS; i++) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    memset(lengths + RMQ_SYMBOLS, 5, RMQ_DISTANCES);
    z->is_fixed = 1;
    return rmq_make_tables(z, lengths, RMQ_SYMBOLS, RMQ_DISTANCES);
}

/* The tables of a block, from the lengths of their codes, which are coded themselves. */
static inline int rmq_read_tables(rmq_inflater *z, rmq_bits *b) {
    static const uint8_t place[RMQ_LENGTHS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[RMQ_SYMBOLS + RMQ_DISTANCES], of_lengths[RMQ_LENGTHS] = {0};
    uint32_t table[1 << RMQ_LENGTH_BITS];
    int bits = RMQ_LENGTH_BITS, at = 0;
    z->is_fixed = 0;
    rmq_fill(b);
    const int symbols = 257 + (int)rmq_take_bits(b, 5), distances = 1 + (int)rmq_take_bits(b, 5);
    const int count = 4 + (int)rmq_take_bits(b, 4), all = symbols + distances;
    if (symbols > 286 || distances > 30) return -1;
    for (int i = 0; i < count; i++) {
        if (i % 8 == 0) rmq_fill(b);
        of_lengths[place[i]] = (uint8_t)rmq_take_bits(b, 3);
    }
    if (rmq_make_table(table, 1 << RMQ_LENGTH_BITS, &bits, of_lengths, RMQ_LENGTHS, rmq_length_entry) != 0) return -1;
    while (at < all) {
        if ((b->left & 255) < 14) {
            rmq_fill(b);
            if (rmq_is_past_end(b)) return -1;
        }
        const uint32_t entry = table[rmq_low(b->bits, (uint32_t)bits)], symbol = entry >> 16;
        if (entry & RMQ_NO_CODE) return -1;
        rmq_pass(b, entry);
        if (symbol < 16) {
            lengths[at++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16 && at == 0) return -1;
        const int times = symbol == 16 ? 3 + (int)rmq_take_bits(b, 2)
                        : symbol == 17 ? 3 + (int)rmq_take_bits(b, 3)
                                       : 11 + (int)rmq_take_bits(b, 7);
        if (times > all - at) return -1;
        memset(lengths + at, symbol == 16 ? lengths[at - 1] : 0, (size_t)times);
        at += times;
    }
    if (lengths[256] == 0) return -1; /* no end of the block */
    return rmq_make_tables(z, lengths, symbols, distances);
}

/* ---- blocks */

/* Copy a match, up to 31 bytes beyond its end. */
static inline void rmq_copy_match(uint8_t *to, uint32_t distance, uint32_t length) {
    const uint8_t *from = to - distance;
    uint8_t *const end = to + length;
    if (distance >= 16) {
        memcpy(to, from, 16);
        memcpy(to + 16, from + 16, 16);
        for (to += 32, from += 32; to < end; to += 16, from += 16) memcpy(to, from, 16);
    } else if (distance == 1) {
        memset(to, *from, length);
    } else {
        for (; to < end; to++, from++) *to = *from;
    }
}

/* The entry that the next bits are looked up to; they are not passed yet, but those that lead to longer codes are. */
static inline uint32_t rmq_look_up(rmq_bits *b, const uint32_t *table, int bits) {
    uint32_t entry = table[rmq_low(b->bits, (uint32_t)bits)];
    if (entry & RMQ_LONGER) {
        rmq_pass(b, entry);
        entry = table[(entry >> 16) + rmq_low(b->bits, entry >> 8 & 15)];
    }
    return entry;
}

/* The length or distance that bits say, from their entry on. */
static inline uint32_t rmq_number(uint64_t bits, uint32_t entry) {
    return (entry >> 16) + (uint32_t)(rmq_low(bits, entry) >> (entry >> 8 & 15));
}

static inline uint32_t rmq_take_number(rmq_bits *b, uint32_t entry) {
    const uint64_t bits = b->bits;
    rmq_pass(b, entry);
    return rmq_number(bits, entry);
}

/* One symbol near the end of the input or of the room. -1: it was the end of the block. */
static inline int rmq_inflate_symbol(const rmq_inflater *z, rmq_bits *b, const uint8_t *out, uint8_t **to, const uint8_t *stop) {
    rmq_fill(b);
    if (rmq_is_past_end(b)) return RMQ_NOT_KNOWN;
    uint32_t entry = rmq_look_up(b, z->symbols, z->symbol_bits);
    if (entry & RMQ_NO_CODE) return RMQ_NOT_KNOWN;
    if (entry & RMQ_LITERAL) {
        if (*to == stop) return RMQ_NO_ROOM;
        rmq_pass(b, entry);
        *(*to)++ = (uint8_t)(entry >> 16);
        return RMQ_EXPANDED;
    }
    if (entry & RMQ_BLOCK_END) {
        rmq_pass(b, entry);
        return -1;
    }
    const uint32_t length = rmq_take_number(b, entry);
    rmq_fill(b);
    entry = rmq_look_up(b, z->distances, z->distance_bits);
    if (entry & RMQ_NO_CODE) return RMQ_NOT_KNOWN;
    const uint32_t distance = rmq_take_number(b, entry);
    if (distance > *to - out) return RMQ_NOT_KNOWN;
    if (length > stop - *to) return RMQ_NO_ROOM;
    for (uint32_t i = 0; i < length; i++, (*to)++) **to = *(*to - distance);
    return RMQ_EXPANDED;
}

/* The symbols of a block while there is plenty of input and of room. -1: the block has ended. What comes next waits for the
 * entry of its symbol, so that is looked up first, then bits are filled up, and matches are copied. */
static inline int rmq_inflate_fast(const rmq_inflater *z, rmq_bits *from, const uint8_t *out, uint8_t **to,
                                   const uint8_t *stop) {
    const uint32_t *const symbols = z->symbols, *const distances = z->distances;
    const uint32_t symbol_bits = (uint32_t)z->symbol_bits, distance_bits = (uint32_t)z->distance_bits;
    const uint8_t *const last_input = from->end - RMQ_FAST_INPUT, *const last_output = stop - RMQ_FAST_OUTPUT;
    rmq_bits b = *from; /* in registers */
    uint8_t *o = *to;
    uint64_t before;
    int status = RMQ_EXPANDED;
    rmq_fill_fast(&b);
    uint32_t entry = symbols[rmq_low(b.bits, symbol_bits)];
    do {
        /* 56 bits are there, which suffice for two literals of 10 bits each, a length of 20, and to look up what comes then. */
        before = b.bits;
        rmq_pass(&b, entry);
        if (entry & RMQ_LITERAL) {
            *o++ = (uint8_t)(entry >> 16);
            entry = symbols[rmq_low(b.bits, symbol_bits)];
            before = b.bits;
            rmq_pass(&b, entry);
            if (entry & RMQ_LITERAL) {
                *o++ = (uint8_t)(entry >> 16);
                entry = symbols[rmq_low(b.bits, symbol_bits)];
                before = b.bits;
                rmq_pass(&b, entry);
                if (entry & RMQ_LITERAL) {
                    *o++ = (uint8_t)(entry >> 16);
                    entry = symbols[rmq_low(b.bits, symbol_bits)];
                    rmq_fill_fast(&b);
                    continue;
                }
            }
        }
        if (entry & RMQ_SPECIAL) {
            if (entry & RMQ_LONGER) {
                entry = symbols[(entry >> 16) + rmq_low(b.bits, entry >> 8 & 15)];
                before = b.bits;
                rmq_pass(&b, entry);
            }
            if (entry & RMQ_LITERAL) {
                *o++ = (uint8_t)(entry >> 16);
                rmq_fill_fast(&b);
                entry = symbols[rmq_low(b.bits, symbol_bits)];
                continue;
            }
            if (entry & RMQ_SPECIAL) {
                status = entry & RMQ_NO_CODE ? RMQ_NOT_KNOWN : -1;
                break;
            }
        }
        const uint32_t length = rmq_number(before, entry);
        entry = distances[rmq_low(b.bits, distance_bits)];
        rmq_fill_fast(&b);
        if (entry & RMQ_LONGER) {
            rmq_pass(&b, entry);
            entry = distances[(entry >> 16) + rmq_low(b.bits, entry >> 8 & 15)];
        }
        before = b.bits;
        rmq_pass(&b, entry);
        const uint32_t distance = rmq_number(before, entry);
        if (entry & RMQ_NO_CODE || distance > o - out) {
            status = RMQ_NOT_KNOWN;
            break;
        }
        entry = symbols[rmq_low(b.bits, symbol_bits)];
        rmq_fill_fast(&b);
        rmq_copy_match(o, distance, length);
        o += length;
    } while (b.at <= last_input && o <= last_output);
    *from = b;
    *to = o;
    return status;
}

/* The rest of a block that has codes. */
static inline int rmq_inflate_codes(const rmq_inflater *z, rmq_bits *b, const uint8_t *out, uint8_t **to,
                                    const uint8_t *stop) {
    int status = RMQ_EXPANDED;
    while (status == RMQ_EXPANDED) {
        if (b->end - b->at >= RMQ_FAST_INPUT && stop - *to >= RMQ_FAST_OUTPUT)
            status = rmq_inflate_fast(z, b, out, to, stop);
        else
            status = rmq_inflate_symbol(z, b, out, to, stop);
    }
    return status == -1 ? RMQ_EXPANDED : status;
}

/* A block that is not compressed. */
static inline int rmq_inflate_stored(rmq_bits *b, uint8_t **to, const uint8_t *stop) {
    if (rmq_is_past_end(b)) return RMQ_NOT_KNOWN;
    rmq_align(b);
    if (b->end - b->at < 4) return RMQ_NOT_KNOWN;
    const uint32_t size = b->at[0] | (uint32_t)b->at[1] << 8, inverse = b->at[2] | (uint32_t)b->at[3] << 8;
    b->at += 4;
    if ((size ^ inverse) != 0xFFFF || size > b->end - b->at) return RMQ_NOT_KNOWN;
    if (size > stop - *to) return RMQ_NO_ROOM;
    memcpy(*to, b->at, size);
    b->at += size;
    *to += size;
    return RMQ_EXPANDED;
}

static inline int rmq_inflate_block(rmq_inflater *z, rmq_bits *b, const uint8_t *out, uint8_t **to, const uint8_t *stop,
                                    int *is_last) {
    rmq_fill(b);
    *is_last = (int)rmq_take_bits(b, 1);
    const uint32_t kind = rmq_take_bits(b, 2);
    if (kind == 0) return rmq_inflate_stored(b, to, stop);
    if (kind == 3 || (kind == 1 ? rmq_make_fixed_tables(z) : rmq_read_tables(z, b)) != 0) return RMQ_NOT_KNOWN;
    return rmq_inflate_codes(z, b, out, to, stop);
}

/* Decompress a stream to out[0 .. room); *size becomes how many bytes it has, if it is RMQ_EXPANDED. All of the room
 * may be written to. Bytes after the stream are ignored. */
static inline int rmq_inflate_on(rmq_inflater *z, const uint8_t *stream, int64_t length, uint8_t *out, int64_t room,
                                 int64_t *size, rmq_machine machine) {
    if (length < 2 || (stream[0] & 15) != 8 || stream[0] >> 4 > 7 || stream[1] & 32 || (stream[0] << 8 | stream[1]) % 31 != 0)
        return RMQ_NOT_KNOWN;
    rmq_bits b = {stream + 2, stream + length, 0, 0, 0};
    uint8_t *to = out;
    int is_last = 0;
    while (!is_last) {
        const int status = rmq_inflate_block(z, &b, out, &to, out + room, &is_last);
        if (status != RMQ_EXPANDED) return status;
        if (rmq_is_past_end(&b)) return RMQ_NOT_KNOWN;
    }
    rmq_align(&b);
    if (b.end - b.at < 4) return RMQ_NOT_KNOWN;
    const uint32_t sum = (uint32_t)b.at[0] << 24 | (uint32_t)b.at[1] << 16 | (uint32_t)b.at[2] << 8 | b.at[3];
    *size = to - out;
    return rmq_adler32_on(out, *size, machine) == sum ? RMQ_EXPANDED : RMQ_NOT_KNOWN;
}

RMQ_FOR_MACHINES(int, rmq_inflate, (rmq_inflater *z, const uint8_t *stream, int64_t length, uint8_t *out, int64_t room, int64_t *size),
                 z, stream, length, out, room, size)

#endif
