/* The messages in the body of a batch: a unit whose producer sent several messages at once, to a topic of BatchCQ queues.
 *
 *      0  i32 totalSize    8  i32 0      16  i32 bodyLength n, body
 *      4  i32 magic       12  i32 flag   20+n  i16 propertiesLength p, properties
 *
 * The rules are those of RocketMQ's client: it looks at the two lengths, and at neither totalSize nor magic. All other fields are
 * the unit's, or 0. Source: org.apache.rocketmq.common.message.MessageDecoder (decodeMessage, decodeMessages).
 */
#ifndef RMQ_INNER_H
#define RMQ_INNER_H

#include <stdint.h>

#include "unit.h"

enum { RMQ_INNER_HEAD = 20, RMQ_SMALLEST_INNER = 22, RMQ_SYSFLAG_BATCH = RMQ_SYSFLAG_NEED_UNWRAP | RMQ_SYSFLAG_INNER_BATCH };

/* A message of a batch as a unit with other body, properties and queueOffset. */
typedef struct {
    rmq_unit unit;
    int32_t index, flag;
    int64_t at, end; /* in the batch's body */
} rmq_inner;

/* Does a unit hold several messages? No client compresses a batch: what is compressed is left as it is. */
static inline int rmq_is_batch(const rmq_unit *u) {
    return (u->sys_flag & (RMQ_SYSFLAG_BATCH | RMQ_SYSFLAG_COMPRESSED)) == RMQ_SYSFLAG_BATCH;
}

/* Before the first message of a batch. */
static inline rmq_inner rmq_before_first(const rmq_unit *batch) {
    rmq_inner inner = {*batch, -1, 0, 0, 0};
    return inner;
}

/* Go on to the next message of a batch: RMQ_OK, or RMQ_LIMIT after the last one, or RMQ_NOT_A_BATCH. No length is used
 * before it is checked. */
static inline int rmq_next_inner(const rmq_unit *batch, rmq_inner *inner, rmq_finding *why) {
    const int64_t at = inner->end, left = batch->body_length - at;
    const uint8_t *const p = batch->body + at;
    if (left == 0) return RMQ_LIMIT;
    if (left < RMQ_SMALLEST_INNER) return rmq_fail(why, RMQ_NOT_A_BATCH, left, RMQ_SMALLEST_INNER);
    const int64_t body_length = rmq_i32(p + 16), spare = left - RMQ_SMALLEST_INNER;
    if (body_length < 0 || body_length > spare)
        return rmq_fail(why, RMQ_NOT_A_BATCH, left, RMQ_SMALLEST_INNER + body_length);
    const uint8_t *const q = p + RMQ_INNER_HEAD + body_length;
    const int64_t properties_length = rmq_i16(q), size = RMQ_SMALLEST_INNER + body_length + properties_length;
    if (properties_length < 0 || size > left) return rmq_fail(why, RMQ_NOT_A_BATCH, left, size);
    inner->index += 1;
    inner->at = at;
    inner->end = at + size;
    inner->flag = rmq_i32(p + 12);
    inner->unit.body = p + RMQ_INNER_HEAD;
    inner->unit.body_length = (int32_t)body_length;
    inner->unit.properties = q + 2;
    inner->unit.properties_length = (int32_t)properties_length;
    /* Like Java's, the sum wraps round. */
    inner->unit.queue_offset = (int64_t)((uint64_t)batch->queue_offset + (uint64_t)inner->index);
    return RMQ_OK;
}

/* Do messages fill a batch's body? RMQ_OK, or RMQ_NOT_A_BATCH. */
static int rmq_check_inner(const rmq_unit *batch, rmq_finding *why) {
    rmq_inner inner = rmq_before_first(batch);
    int status;
    do status = rmq_next_inner(batch, &inner, why);
    while (status == RMQ_OK);
    return status == RMQ_LIMIT ? RMQ_OK : status;
}

#endif
