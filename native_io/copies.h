/* Copies of batches in a queue's log of a tiered store: a broker brings a batch once for each message in it, as the queue has a unit
 * for each, one copy after the other. Only the first sound one counts: whether the bodies of the others are right does not matter to
 * a read, as they are no rows; `check` tells of them.
 *
 * No checksum covers the head of a unit, so a copy whose queueOffset or sysFlag is damaged would be another batch, or a message of
 * its own. What tells it: property INNER_BASE repeats the queueOffset of a batch, and no message has that of the batch before it.
 */
#ifndef RMQ_COPIES_H
#define RMQ_COPIES_H

#include <stdint.h>
#include <string.h>

#include "inner.h"
#include "unit.h"

typedef struct {
    int are_left_out;
    int32_t kind;         /* of the unit before, see rmq_batch_kind */
    int64_t queue_offset; /* and its queueOffset, where it is a batch */
} rmq_copies;

/* What sysFlag says of a batch: of one that is compressed, too, which is left as it is; 0: it is none. */
static inline int32_t rmq_batch_kind(int32_t sys_flag) {
    const int is_batch = (sys_flag & RMQ_SYSFLAG_BATCH) == RMQ_SYSFLAG_BATCH;
    return is_batch ? sys_flag & (RMQ_SYSFLAG_BATCH | RMQ_SYSFLAG_COMPRESSED) : 0;
}

/* The number in property INNER_BASE of a batch; -1 where there is none. */
static int64_t rmq_inner_base(const uint8_t *p, int32_t n) {
    static const char name[] = "INNER_BASE\x01";
    enum { LENGTH = sizeof name - 1, DIGITS = 18 };
    for (int32_t i = 0; i + LENGTH < n; i++) {
        int64_t number = 0;
        int32_t at = i + LENGTH;
        if (memcmp(p + i, name, LENGTH) != 0 || (i > 0 && p[i - 1] != 2)) continue;
        for (; at < n && at < i + LENGTH + DIGITS && p[at] >= '0' && p[at] <= '9'; at++) number = 10 * number + (p[at] - '0');
        return at > i + LENGTH && (at == n || p[at] == 2) ? number : -1;
    }
    return -1;
}

__attribute__((noinline)) static int rmq_judge_copy(const rmq_copies *c, const rmq_unit *u, rmq_finding *why) {
    const int32_t kind = rmq_batch_kind(u->sys_flag);
    const int64_t base = kind != 0 ? rmq_inner_base(u->properties, u->properties_length) : -1;
    if (base >= 0 && base != u->queue_offset) return rmq_fail(why, RMQ_BAD_QUEUE_OFFSET, base, u->queue_offset);
    if (c->kind == 0 || u->queue_offset != c->queue_offset) return RMQ_OK;
    if (kind == c->kind) return RMQ_COPY;
    return c->kind == RMQ_SYSFLAG_BATCH ? rmq_fail(why, RMQ_BAD_SYSFLAG, c->kind, u->sys_flag) : RMQ_OK;
}

/* Does a unit count? RMQ_OK, or RMQ_COPY: the same batch came just before it, or RMQ_BAD_QUEUE_OFFSET, or RMQ_BAD_SYSFLAG. */
static inline int rmq_see_copy(const rmq_copies *c, const rmq_unit *u, rmq_finding *why) {
    if (__builtin_expect(!c->are_left_out, 1)) return RMQ_OK;
    return c->kind == 0 && rmq_batch_kind(u->sys_flag) == 0 ? RMQ_OK : rmq_judge_copy(c, u, why);
}

/* Note a unit that counts, once all is done with it. */
static inline void rmq_note_unit(rmq_copies *c, const rmq_unit *u) {
    if (__builtin_expect(!c->are_left_out, 1)) return;
    c->kind = rmq_batch_kind(u->sys_flag);
    c->queue_offset = u->queue_offset;
}

/* Note a unit that a filter refuses, before its body was checked: after a damaged batch the next copy counts. */
static inline void rmq_note_refused(rmq_copies *c, const rmq_unit *u, int verify_crc) {
    rmq_finding why;
    if (__builtin_expect(!c->are_left_out, 1)) return;
    if (rmq_batch_kind(u->sys_flag) == 0 || !verify_crc || rmq_check_crc(u, &why) == RMQ_OK) rmq_note_unit(c, u);
}

#endif
