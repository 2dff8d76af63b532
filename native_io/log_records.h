/* The frame of a RocksDB write-ahead log and of its MANIFEST: records in blocks of 32 KiB, each piece with a CRC-32C.
 *
 * A piece is CRC (4 bytes), length (2), type (1), in logs that are used again the log's number (4), and the bytes. A
 * record is one piece (FULL), or FIRST, MIDDLE ..., LAST. The end of a block that is too short for a header is zeros.
 */
#ifndef RMQ_LOG_RECORDS_H
#define RMQ_LOG_RECORDS_H

#include <stdint.h>
#include <string.h>

#include "crc32c.h"
#include "varint.h"

enum {
    RMQ_LOG_BLOCK = 32768,
    RMQ_LOG_HEADER = 7,
    RMQ_LOG_RECYCLED_HEADER = 11,
    RMQ_LOG_MOST_TYPE = 8, /* larger types hold no data */
    RMQ_LOG_FULL = 1,
    RMQ_LOG_FIRST = 2,
    RMQ_LOG_MIDDLE = 3,
    RMQ_LOG_LAST = 4,
    RMQ_LOG_IGNORED = 0x80, /* types with this bit are passed over by readers that do not know them */
};

typedef enum {
    RMQ_LOG_END,      /* all was read */
    RMQ_LOG_TORN,     /* the last record was not written to its end */
    RMQ_LOG_DAMAGED,  /* a CRC, or the order of pieces */
    RMQ_LOG_UNKNOWN,  /* a type of piece that must not be passed over */
} rmq_log_status;

typedef struct {
    uint8_t *bytes; /* records are moved to the beginning, one after the other */
    int64_t size;
    uint32_t number; /* the log's number, as pieces of recycled logs name it */
    int64_t position;
    int64_t records;
    int64_t written;
    rmq_log_status status;
} rmq_log;

/* The size in bytes of the piece whose header is at p, as claimed there; 0: an unknown type. */
static inline int64_t rmq_piece_size(const uint8_t *p) {
    if (p[6] == 0 || p[6] > RMQ_LOG_MOST_TYPE) return 0;
    return (p[6] > RMQ_LOG_LAST ? RMQ_LOG_RECYCLED_HEADER : RMQ_LOG_HEADER) + (p[4] | p[5] << 8);
}

static inline int rmq_piece_is_sound(const uint8_t *p, int64_t size) {
    return rmq_le32(p) == rmq_masked(rmq_crc32c(0, p + 6, (size_t)size - 6));
}

static inline int rmq_all_zeros(const uint8_t *p, int64_t n) {
    while (n > 0 && *p == 0) p++, n--;
    return n == 0;
}

/* Does a whole piece begin after `position`, which is in the last block? If so, the bytes at `position` are damaged, and not
 * an unfinished write. */
static int rmq_piece_follows(const rmq_log *log, int64_t position) {
    for (int64_t at = position + 1; at + RMQ_LOG_HEADER <= log->size; at++) {
        const int64_t size = rmq_piece_size(log->bytes + at);
        if (size > 0 && size <= log->size - at && rmq_piece_is_sound(log->bytes + at, size)) return 1;
    }
    return 0;
}

static inline rmq_log_status rmq_log_broken(const rmq_log *log, int64_t position) {
    return rmq_piece_follows(log, position) ? RMQ_LOG_DAMAGED : RMQ_LOG_TORN;
}

/* Take all records, at most size / RMQ_LOG_HEADER; ends[i] is the end of the i-th in bytes. The records are moved
 * within `bytes`: the taken ones always end before the bytes that are read next. */
static void rmq_take_records(rmq_log *log, int64_t *ends) {
    uint8_t *const bytes = log->bytes;
    int64_t record = 0; /* where the bytes of an unfinished record end; the finished ones end at log->written */
    int open = 0;
    int64_t at = 0, begun = 0;
    log->status = RMQ_LOG_END;
    while (at < log->size) {
        const int64_t block_end = (at / RMQ_LOG_BLOCK + 1) * RMQ_LOG_BLOCK;
        if (block_end - at < RMQ_LOG_HEADER) {
            at = block_end;
            continue;
        }
        const int64_t left = log->size - at;
        const uint8_t *const p = bytes + at;
        if (rmq_all_zeros(p, left < RMQ_LOG_HEADER ? left : RMQ_LOG_HEADER)) {
            /* Preallocated space: nothing follows. */
            log->status = rmq_all_zeros(p, left) ? (open ? RMQ_LOG_TORN : RMQ_LOG_END) : RMQ_LOG_DAMAGED;
            break;
        }
        if (left < RMQ_LOG_HEADER) {
            log->status = RMQ_LOG_TORN;
            break;
        }
        const int known = p[6] != 0 && p[6] <= RMQ_LOG_MOST_TYPE;
        const int64_t size = known ? rmq_piece_size(p) : RMQ_LOG_HEADER + (p[4] | p[5] << 8);
        if (size > block_end - at) {
            log->status = RMQ_LOG_DAMAGED;
            break;
        }
        if (size > left) {
            log->status = rmq_log_broken(log, at);
            break;
        }
        if (!rmq_piece_is_sound(p, size)) {
            log->status = RMQ_LOG_DAMAGED;
            break;
        }
        if (!known) {
            if (p[6] & RMQ_LOG_IGNORED) {
                at += size;
                continue;
            }
            log->status = RMQ_LOG_UNKNOWN;
            break;
        }
        const int recycled = p[6] > RMQ_LOG_LAST;
        const int type = recycled ? p[6] - RMQ_LOG_LAST : p[6];
        const int64_t header = recycled ? RMQ_LOG_RECYCLED_HEADER : RMQ_LOG_HEADER;
        if (recycled && rmq_le32(p + 7) != log->number) break; /* a piece of the log that the file was before */
        const int first = type == RMQ_LOG_FULL || type == RMQ_LOG_FIRST;
        if (first == open) {
            log->status = RMQ_LOG_DAMAGED;
            break;
        }
        if (first) {
            begun = at;
            record = log->written;
        }
        memmove(bytes + record, p + header, (size_t)(size - header));
        record += size - header;
        open = type == RMQ_LOG_FIRST || type == RMQ_LOG_MIDDLE;
        at += size;
        if (!open) {
            log->written = record;
            ends[log->records++] = record;
        }
    }
    if (open && log->status == RMQ_LOG_END) log->status = RMQ_LOG_TORN;
    log->position = open && log->status == RMQ_LOG_TORN ? begun : at;
}

#endif
