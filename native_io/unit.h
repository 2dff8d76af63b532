/* One message unit of the commitlog: the places of its fields, and its checks.
 *
 * Wire layout (big-endian; org.apache.rocketmq.store.MessageExtEncoder). BH and SH are 8 for an IPv4 host and
 * 20 for an IPv6 host, TL is 1 for magic V1 and 2 for V2, n / t / p are the three lengths:
 *
 *      0  i32 totalSize          28  i64 physicalOffset       56+BH     SH  storeHost
 *      4  i32 magic              36  i32 sysFlag              56+BH+SH  i32 reconsumeTimes
 *      8  i32 bodyCRC            40  i64 bornTimestamp        60+BH+SH  i64 preparedTransactionOffset
 *     12  i32 queueId            48  BH  bornHost             68+BH+SH  i32 bodyLength n, body
 *     16  i32 flag            48+BH  i64 storeTimestamp       72+BH+SH+n  TL topicLength t, topic
 *     20  i64 queueOffset                                     ...         i16 propertiesLength p, properties
 *
 * A file that cannot take the next unit and 8 more bytes ends with a blank: i32 bytes left, i32 magic.
 */
#ifndef RMQ_UNIT_H
#define RMQ_UNIT_H

#include <stdint.h>
#include <string.h>

#include "crc32.h"

enum {
    RMQ_MAGIC_V1 = (int32_t)0xDAA320A7,
    RMQ_MAGIC_V2 = (int32_t)0xDAA320AB,
    RMQ_MAGIC_BLANK = (int32_t)0xCBD43194,
    RMQ_BLANK_SIZE = 8,
    RMQ_FIXED_SIZE = 90,      /* every field but the topic length, the body, the topic and the properties; IPv4 hosts */
    RMQ_SMALLEST_UNIT = 91,
    RMQ_SYSFLAG_COMPRESSED = 0x1,
    RMQ_SYSFLAG_TRANSACTION_TYPE = 0xC,     /* two bits, of which NOT is 0 */
    RMQ_SYSFLAG_TRANSACTION_PREPARED = 0x4, /* PREPARED and ROLLBACK messages are in no queue */
    RMQ_SYSFLAG_TRANSACTION_ROLLBACK = 0xC,
    RMQ_SYSFLAG_BORNHOST_V6 = 0x10,
    RMQ_SYSFLAG_STOREHOST_V6 = 0x20,
    RMQ_SYSFLAG_NEED_UNWRAP = 0x40, /* with the next one: a client takes the messages out */
    RMQ_SYSFLAG_INNER_BATCH = 0x80, /* the body holds several messages; of a BatchConsumeQueue only */
    RMQ_AT_BODY_CRC = 8,
    RMQ_AT_QUEUE_ID = 12,
    RMQ_AT_FLAG = 16,
    RMQ_AT_QUEUE_OFFSET = 20,
    RMQ_AT_PHYSICAL_OFFSET = 28,
    RMQ_AT_SYSFLAG = 36,
    RMQ_AT_BORN_TIMESTAMP = 40,
    RMQ_AT_BORN_HOST = 48,
};

/* Why a walk stopped, or what is wrong with a unit. The names are Status's in _common.pyx. */
enum {
    RMQ_OK = 0,              /* a unit, in every check */
    RMQ_LIMIT,               /* the walk stands exactly at its stop */
    RMQ_FULL,                /* the next unit would be one too many */
    RMQ_MORE,                /* the window is too short to tell */
    RMQ_BLANK,               /* the blank that ends a file */
    RMQ_NO_BLANK,            /* fewer than 8 bytes left in the segment, and no blank before them */
    RMQ_BAD_MAGIC,
    RMQ_BAD_BLANK,           /* a blank that does not reach exactly to the end of its segment */
    RMQ_BAD_TOTAL_SIZE,
    RMQ_BAD_PHYSICAL_OFFSET,
    RMQ_BAD_BODY_LENGTH,
    RMQ_BAD_TOPIC_LENGTH,
    RMQ_BAD_PROPERTIES_LENGTH,
    RMQ_BAD_LENGTH_SUM,      /* the parts do not add up to totalSize */
    RMQ_BAD_BODY_CRC,
    RMQ_NOT_A_BATCH,         /* messages do not fill the body of a batch (inner.h) */
    RMQ_BAD_QUEUE_OFFSET,    /* of a batch: its properties say another one (copies.h) */
    RMQ_BAD_SYSFLAG,         /* of a copy of a batch: not that of the copy before (copies.h) */
    RMQ_CROSSES_STOP,        /* a unit that begins before the stop and ends after it */
    RMQ_CONTRADICTED,        /* a unit, but not the one that an accelerator says is here */
    RMQ_NO_ENTRY,            /* neither a unit nor an entry that wraps one (walk.h) */
    RMQ_BAD_ENTRY,           /* an entry that is not as long as its unit and its header */
    RMQ_ASK,                 /* a queue that the filter has not judged yet; never leaves the kernel */
    RMQ_COPY,                /* of the batch before it (copies.h); never leaves the kernel */
};

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define RMQ_BE16(x) (x)
#define RMQ_BE32(x) (x)
#define RMQ_BE64(x) (x)
#else
#define RMQ_BE16(x) __builtin_bswap16(x)
#define RMQ_BE32(x) __builtin_bswap32(x)
#define RMQ_BE64(x) __builtin_bswap64(x)
#endif

static inline int16_t rmq_i16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return (int16_t)RMQ_BE16(v); }
static inline int32_t rmq_i32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)RMQ_BE32(v); }
static inline int64_t rmq_i64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)RMQ_BE64(v); }
static inline void rmq_put_i16(uint8_t *p, int16_t v) { const uint16_t u = RMQ_BE16((uint16_t)v); memcpy(p, &u, 2); }
static inline void rmq_put_i32(uint8_t *p, int32_t v) { const uint32_t u = RMQ_BE32((uint32_t)v); memcpy(p, &u, 4); }
static inline void rmq_put_i64(uint8_t *p, int64_t v) { const uint64_t u = RMQ_BE64((uint64_t)v); memcpy(p, &u, 8); }

typedef struct {
    int32_t total, sys_flag, body_length, topic_length, properties_length;
    int32_t born_host_size, store_host_size;
    int64_t queue_offset;
    const uint8_t *start, *store_timestamp, *body, *topic, *properties;
} rmq_unit;

/* What a failed check expected and found; for RMQ_MORE `expected` is the number of bytes the unit needs. */
typedef struct {
    int64_t expected, found;
} rmq_finding;

static inline int rmq_fail(rmq_finding *why, int status, int64_t expected, int64_t found) {
    why->expected = expected;
    why->found = found;
    return status;
}

/* Does the body agree with bodyCRC, given the body's CRC? */
static inline int rmq_compare_crc(const rmq_unit *u, uint32_t crc, rmq_finding *why) {
    const int32_t stored = rmq_i32(u->start + RMQ_AT_BODY_CRC);
    const int32_t computed = (int32_t)(crc & 0x7FFFFFFF);
    return stored == computed ? RMQ_OK : rmq_fail(why, RMQ_BAD_BODY_CRC, stored, computed);
}

/* Does the body agree with bodyCRC? No CRC is stored for an empty body. */
static inline int rmq_check_crc(const rmq_unit *u, rmq_finding *why) {
    if (u->body_length == 0) return RMQ_OK;
    return rmq_compare_crc(u, rmq_crc32(0, u->body, (size_t)u->body_length), why);
}

/* Is there a unit at `p`? `available` bytes may be read there; `position` is its physical offset, and `left` the
 * number of bytes from it to the end of its segment. Nothing is read, and no length is used, before it is checked. */
static inline int rmq_unit_at(const uint8_t *p, int64_t available, int64_t position, int64_t left, int verify_crc,
                              rmq_unit *u, rmq_finding *why) {
    if (left < RMQ_BLANK_SIZE) return rmq_fail(why, RMQ_NO_BLANK, RMQ_BLANK_SIZE, left);
    if (available < RMQ_BLANK_SIZE) return rmq_fail(why, RMQ_MORE, RMQ_BLANK_SIZE, available);
    const int64_t total = rmq_i32(p);
    const int32_t magic = rmq_i32(p + 4);
    if (magic == RMQ_MAGIC_BLANK)
        return rmq_fail(why, total == left ? RMQ_BLANK : RMQ_BAD_BLANK, left, total);
    if (magic != RMQ_MAGIC_V1 && magic != RMQ_MAGIC_V2) return rmq_fail(why, RMQ_BAD_MAGIC, RMQ_MAGIC_V1, magic);
    /* A broker never lets a unit end so late that the blank after it would not fit. */
    if (total < RMQ_SMALLEST_UNIT) return rmq_fail(why, RMQ_BAD_TOTAL_SIZE, RMQ_SMALLEST_UNIT, total);
    if (total > left - RMQ_BLANK_SIZE) return rmq_fail(why, RMQ_BAD_TOTAL_SIZE, left - RMQ_BLANK_SIZE, total);
    if (available < RMQ_AT_BORN_TIMESTAMP) return rmq_fail(why, RMQ_MORE, RMQ_SMALLEST_UNIT, available);
    const int64_t stored_position = rmq_i64(p + RMQ_AT_PHYSICAL_OFFSET);
    if (stored_position != position) return rmq_fail(why, RMQ_BAD_PHYSICAL_OFFSET, position, stored_position);

    const int32_t sys_flag = rmq_i32(p + RMQ_AT_SYSFLAG);
    const int32_t born = sys_flag & RMQ_SYSFLAG_BORNHOST_V6 ? 20 : 8;
    const int32_t store = sys_flag & RMQ_SYSFLAG_STOREHOST_V6 ? 20 : 8;
    const int32_t topic_length_size = magic == RMQ_MAGIC_V1 ? 1 : 2;
    const int64_t fixed = RMQ_FIXED_SIZE + topic_length_size + (born - 8) + (store - 8);
    if (total < fixed) return rmq_fail(why, RMQ_BAD_TOTAL_SIZE, fixed, total);
    const int64_t at_body = 72 + born + store;
    if (available < at_body) return rmq_fail(why, RMQ_MORE, at_body, available);
    const int64_t body_length = rmq_i32(p + at_body - 4);
    int64_t spare = total - fixed; /* bytes left for the three variable parts */
    if (body_length < 0 || body_length > spare) return rmq_fail(why, RMQ_BAD_BODY_LENGTH, spare, body_length);
    spare -= body_length;

    /* From here the whole unit is needed: the two lengths that are left lie after the body. */
    if (available < total) {
        const int64_t at_topic_length = at_body + body_length;
        if (available < at_topic_length + topic_length_size) return rmq_fail(why, RMQ_MORE, total, available);
    }
    const uint8_t *q = p + at_body + body_length;
    const int64_t topic_length = topic_length_size == 1 ? (int8_t)*q : rmq_i16(q);
    if (topic_length < 0 || topic_length > spare) return rmq_fail(why, RMQ_BAD_TOPIC_LENGTH, spare, topic_length);
    spare -= topic_length;
    const uint8_t *topic = q + topic_length_size;
    if (available < total) return rmq_fail(why, RMQ_MORE, total, available);
    const int64_t properties_length = rmq_i16(topic + topic_length);
    if (properties_length < 0) return rmq_fail(why, RMQ_BAD_PROPERTIES_LENGTH, spare, properties_length);
    if (properties_length != spare)
        return rmq_fail(why, RMQ_BAD_LENGTH_SUM, total - spare + properties_length, total);

    u->start = p;
    u->queue_offset = rmq_i64(p + RMQ_AT_QUEUE_OFFSET);
    u->total = (int32_t)total;
    u->sys_flag = sys_flag;
    u->born_host_size = born;
    u->store_host_size = store;
    u->store_timestamp = p + RMQ_AT_BORN_HOST + born;
    u->body = p + at_body;
    u->body_length = (int32_t)body_length;
    u->topic = topic;
    u->topic_length = (int32_t)topic_length;
    u->properties = topic + topic_length + 2;
    u->properties_length = (int32_t)properties_length;
    return verify_crc ? rmq_check_crc(u, why) : RMQ_OK;
}

#endif
