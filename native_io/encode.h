/* Arrow columns to staged units, as org.apache.rocketmq.store.MessageExtEncoder makes them of messages, except for
 * fields that are known only when a message is appended. physicalOffset and queueOffset are 0, and so is a
 * storeTimestamp that the row does not give: rmq_place (dispatch.h) writes them. Every limit of a broker is checked
 * here, row by row, before a byte is used. */
#ifndef RMQ_ENCODE_H
#define RMQ_ENCODE_H

#include <stdint.h>
#include <string.h>

#include "arrow_in.h"
#include "crc32.h"
#include "light_queues.h"
#include "memory.h"
#include "properties.h"
#include "schedule.h"
#include "unit.h"

/* The columns a unit is made of. The names are ENCODE_COLUMNS's in _write.pyx, in this order. */
enum {
    RMQ_IN_TOPIC,
    RMQ_IN_QUEUE_ID,
    RMQ_IN_TAGS,
    RMQ_IN_KEYS,
    RMQ_IN_UNIQ_KEY,
    RMQ_IN_PROPERTIES,
    RMQ_IN_BODY,
    RMQ_IN_FLAG,
    RMQ_IN_SYSFLAG,
    RMQ_IN_BORN_TIMESTAMP,
    RMQ_IN_BORN_HOST,
    RMQ_IN_STORE_TIMESTAMP,
    RMQ_IN_STORE_HOST,
    RMQ_IN_RECONSUME_TIMES,
    RMQ_IN_PREPARED_TRANSACTION_OFFSET,
    RMQ_IN_COLUMNS
};

/* Arrow's names of their types. */
static const char *const rmq_in_formats[RMQ_IN_COLUMNS] = {
    [RMQ_IN_TOPIC] = "u",
    [RMQ_IN_QUEUE_ID] = "i",
    [RMQ_IN_TAGS] = "u",
    [RMQ_IN_KEYS] = "u",
    [RMQ_IN_UNIQ_KEY] = "u",
    [RMQ_IN_PROPERTIES] = "+m",
    [RMQ_IN_BODY] = "z",
    [RMQ_IN_FLAG] = "i",
    [RMQ_IN_SYSFLAG] = "i",
    [RMQ_IN_BORN_TIMESTAMP] = "l",
    [RMQ_IN_BORN_HOST] = "z",
    [RMQ_IN_STORE_TIMESTAMP] = "l",
    [RMQ_IN_STORE_HOST] = "z",
    [RMQ_IN_RECONSUME_TIMES] = "i",
    [RMQ_IN_PREPARED_TRANSACTION_OFFSET] = "l",
};

enum {
    RMQ_MAX_BODY = 4 * 1024 * 1024,   /* MessageStoreConfig.maxMessageSize */
    RMQ_MAX_PROPERTIES_SIZE = 32767,
    RMQ_MAX_TOPIC_V1 = 127,
    RMQ_MAX_TOPIC_V2 = 255,           /* bytes of a topic, for brokers since 5.1.0 */
    RMQ_MOST_FIXED = RMQ_FIXED_SIZE + 2 + 2 * 12,       /* a unit without its variable parts */
    RMQ_MOST_NAMED = 4 + 4 + 8 + 3 * 2,                 /* the names TAGS, KEYS, UNIQ_KEY and their separators */
};

/* Why a row was refused. The texts are in _REFUSALS in _write.pyx. */
enum {
    RMQ_REFUSE_NULL = 1,
    RMQ_REFUSE_TOPIC_LENGTH,
    RMQ_REFUSE_TOPIC_CHARACTERS,
    RMQ_REFUSE_QUEUE_ID,
    RMQ_REFUSE_EMPTY_NAME,
    RMQ_REFUSE_NAME_SEPARATOR,
    RMQ_REFUSE_VALUE_SEPARATOR,
    RMQ_REFUSE_PROPERTIES_LENGTH,
    RMQ_REFUSE_DELAY,
    RMQ_REFUSE_LIGHT_TOPIC,
    RMQ_REFUSE_LIGHT_QUEUES,
    RMQ_REFUSE_BODY_LENGTH,
    RMQ_REFUSE_INNER_BATCH,
    RMQ_REFUSE_STORE_TIMESTAMP,
    RMQ_REFUSE_HOST_LENGTH,
};

typedef struct {
    int reason, column;
    int64_t row, number;
    const uint8_t *text; /* the value found, where it is text */
    int64_t size;
} rmq_refusal;

typedef struct {
    int64_t rows;
    int may_have_nulls; /* where none are allowed */
    const uint8_t *validity; /* of the rows themselves, should the batch be a struct array */
    int64_t first;
    rmq_in columns[RMQ_IN_COLUMNS];
    rmq_in names, contents; /* the map's entries, only those of the rows */
} rmq_rows;

static inline int rmq_may_be_null(int column) {
    return column == RMQ_IN_TAGS || column == RMQ_IN_KEYS || column == RMQ_IN_UNIQ_KEY || column == RMQ_IN_PROPERTIES ||
           column == RMQ_IN_STORE_TIMESTAMP;
}

/* ---- from Arrow's C data interface */

/* Is it a struct of exactly these columns? -1 yes, else the first that is not, or RMQ_IN_COLUMNS. */
static int rmq_check_schema(const struct ArrowSchema *schema, const char *const *names) {
    if (!rmq_has_format(schema, "+s", RMQ_IN_COLUMNS)) return RMQ_IN_COLUMNS;
    for (int i = 0; i < RMQ_IN_COLUMNS; i++) {
        const struct ArrowSchema *child = schema->children[i];
        const int is_map = i == RMQ_IN_PROPERTIES;
        if (child->name == NULL || strcmp(child->name, names[i]) != 0) return i;
        if (!rmq_has_format(child, rmq_in_formats[i], is_map)) return i;
        if (!is_map) continue;
        const struct ArrowSchema *entries = child->children[0];
        if (!rmq_has_format(entries, "+s", 2)) return i;
        if (!rmq_has_format(entries->children[0], "u", 0) || !rmq_has_format(entries->children[1], "u", 0)) return i;
    }
    return -1;
}

/* A batch whose schema rmq_check_schema took. 0, or -1 when its arrays are not sound. */
static int rmq_read_batch(rmq_rows *r, const struct ArrowArray *batch) {
    if (batch->n_children != RMQ_IN_COLUMNS || batch->length < 0 || batch->offset < 0) return -1;
    r->rows = batch->length;
    r->validity = batch->null_count == 0 || batch->n_buffers < 1 ? NULL : batch->buffers[0];
    r->first = batch->offset;
    r->may_have_nulls = r->validity != NULL;
    for (int i = 0; i < RMQ_IN_COLUMNS; i++) {
        rmq_in *c = &r->columns[i];
        RMQ_TRY(rmq_read_column(c, batch->children[i], batch->offset, batch->length, *rmq_in_formats[i]));
        r->may_have_nulls |= !rmq_may_be_null(i) && c->validity != NULL;
    }
    const struct ArrowArray *map = batch->children[RMQ_IN_PROPERTIES];
    if (map->n_children != 1 || map->children[0]->n_children != 2) return -1;
    const struct ArrowArray *entries = map->children[0];
    const rmq_in *c = &r->columns[RMQ_IN_PROPERTIES];
    const int64_t first = r->rows > 0 ? rmq_in_i32(c, 0) : 0, last = r->rows > 0 ? rmq_in_i32(c, r->rows) : 0;
    if (entries->offset < 0 || last > entries->length) return -1;
    for (int i = 0; i < 2; i++) { /* a slice of a large array shall cost no more than its own entries */
        rmq_in *side = i == 0 ? &r->names : &r->contents;
        RMQ_TRY(rmq_read_column(side, entries->children[i], entries->offset + first, last - first, 'u'));
        side->first -= first;
    }
    return 0;
}

/* ---- encoding */

typedef struct {
    int allow_v2;
    int64_t topic_size; /* of the last topic that was found good; -1: none yet */
    uint8_t topic[RMQ_MAX_TOPIC_V2 + 1];
} rmq_encoder;

static int rmq_refuse(rmq_refusal *why, int reason, int column, int64_t number) {
    why->reason = reason;
    why->column = column;
    why->number = number;
    return -1;
}

static int rmq_refuse_text(rmq_refusal *why, int reason, int column, const uint8_t *text, int64_t size) {
    why->text = text;
    why->size = size;
    return rmq_refuse(why, reason, column, size);
}

/* TopicValidator: [%|a-zA-Z0-9_-]. */
static inline int rmq_in_topic(uint8_t c) {
    const uint8_t letter = c | 0x20;
    return (letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '%' || c == '|';
}

__attribute__((noinline)) static int rmq_check_topic(rmq_encoder *e, const uint8_t *p, int64_t n, rmq_refusal *why) {
    if (n == 0 || n > (e->allow_v2 ? RMQ_MAX_TOPIC_V2 : RMQ_MAX_TOPIC_V1))
        return rmq_refuse(why, RMQ_REFUSE_TOPIC_LENGTH, RMQ_IN_TOPIC, n);
    for (int64_t i = 0; i < n; i++)
        if (!rmq_in_topic(p[i])) return rmq_refuse_text(why, RMQ_REFUSE_TOPIC_CHARACTERS, RMQ_IN_TOPIC, p, n);
    if (rmq_is_light((rmq_text){p, n})) return rmq_refuse_text(why, RMQ_REFUSE_LIGHT_TOPIC, RMQ_IN_TOPIC, p, n);
    memcpy(e->topic, p, (size_t)n);
    e->topic_size = n;
    return 0;
}

/* The place of the next pair, and the number of pairs. */
typedef struct {
    uint8_t *to;
    int32_t count;
} rmq_pairs;

static inline void rmq_put_pair(rmq_pairs *out, const uint8_t *name, int64_t name_size, int name_slack,
                                const uint8_t *value, int64_t size, int slack) {
    uint8_t *to = out->to;
    rmq_copy(to, name, name_size, name_slack);
    to += name_size;
    *to++ = 1;
    rmq_copy(to, value, size, slack);
    to += size;
    *to++ = 2;
    out->to = to;
    out->count += 1;
}

/* The properties that have a column of their own. */
enum { RMQ_NAMED = 3 };
static const struct {
    uint8_t name[32]; /* may be over-read */
    int size, column;
} rmq_named[RMQ_NAMED] = {
    {"TAGS", 4, RMQ_IN_TAGS},
    {"KEYS", 4, RMQ_IN_KEYS},
    {"UNIQ_KEY", 8, RMQ_IN_UNIQ_KEY},
};

/* The index of a name among these, or -1. */
static inline int rmq_which_named(const uint8_t *name, int64_t size) {
    if (size == 4) return rmq_is(name, "TAGS", 4) ? 0 : rmq_is(name, "KEYS", 4) ? 1 : -1;
    return size == 8 && rmq_is(name, "UNIQ_KEY", 8) ? 2 : -1;
}

/* Does a property put the message into light queues? A broker that is told so numbers it in each of them. */
static inline int rmq_is_dispatch(const uint8_t *name, int64_t name_size, const uint8_t *value, int64_t size) {
    return name_size == 20 && memcmp(name, "INNER_MULTI_DISPATCH", 20) == 0 && rmq_names_light((rmq_text){value, size});
}

/* The property CRC is a broker's, of a unit with other fields than this one. */
static inline int rmq_is_property_crc(const uint8_t *name, int64_t size) {
    return size == 8 && rmq_is(name, "__CRC32#", 8);
}

static inline void rmq_put_named(const rmq_rows *r, int64_t row, int which, rmq_pairs *out) {
    const rmq_in *c = &r->columns[rmq_named[which].column];
    int64_t size;
    const uint8_t *value = rmq_in_text(c, row, &size);
    if (size == 0) return;
    rmq_put_pair(out, rmq_named[which].name, rmq_named[which].size, 1, value, size, c->data_end - value >= 32);
}

/* The number of 0x01 and 0x02 among `n` bytes. The RMQ_SLACK bytes after them are overwritten. */
static inline int64_t rmq_count_separators(uint8_t *p, int64_t n) {
    int64_t count = 0;
    memset(p + n, 0, RMQ_SLACK);
    for (int64_t i = 0; i < n;) {
        uint8_t lanes[RMQ_SLACK] = {0};
        for (int rounds = 0; rounds < 255 && i < n; rounds++, i += RMQ_SLACK)
            for (int lane = 0; lane < RMQ_SLACK; lane++) lanes[lane] += (uint8_t)(p[i + lane] - 1) < 2;
        for (int lane = 0; lane < RMQ_SLACK; lane++) count += lanes[lane];
    }
    return count;
}

/* Refuse the row for a separator in a place where none is allowed. The only one allowed is a 0x01 in a value, which
 * parsers accept. */
__attribute__((noinline, cold)) static int rmq_check_separators(const rmq_rows *r, int64_t row, rmq_refusal *why) {
    int64_t size, name_size;
    for (int which = 0; which < RMQ_NAMED; which++) {
        const int column = rmq_named[which].column;
        if (!rmq_in_valid(&r->columns[column], row)) continue;
        const uint8_t *value = rmq_in_text(&r->columns[column], row, &size);
        if (memchr(value, 2, (size_t)size) != NULL)
            return rmq_refuse_text(why, RMQ_REFUSE_VALUE_SEPARATOR, column, value, size);
    }
    const rmq_in *map = &r->columns[RMQ_IN_PROPERTIES];
    if (!rmq_in_valid(map, row)) return 0;
    for (int64_t i = rmq_in_i32(map, row); i < rmq_in_i32(map, row + 1); i++) {
        const uint8_t *name = rmq_in_text(&r->names, i, &name_size), *value = rmq_in_text(&r->contents, i, &size);
        if (memchr(name, 1, (size_t)name_size) != NULL || memchr(name, 2, (size_t)name_size) != NULL)
            return rmq_refuse_text(why, RMQ_REFUSE_NAME_SEPARATOR, RMQ_IN_PROPERTIES, name, name_size);
        const int which = rmq_which_named(name, name_size);
        if (which >= 0 && rmq_in_valid(&r->columns[rmq_named[which].column], row)) continue; /* not written */
        if (!rmq_in_valid(&r->contents, i) || rmq_is_property_crc(name, name_size)) continue; /* neither */
        if (memchr(value, 2, (size_t)size) != NULL)
            return rmq_refuse_text(why, RMQ_REFUSE_VALUE_SEPARATOR, RMQ_IN_PROPERTIES, value, size);
    }
    return 0;
}

/* The property string: the map's entries in their order, the named ones from their columns where those are not null. A
 * pair without a value is left out, as every parser drops it. Returns the size of the string, or -1. */
static inline int64_t rmq_put_property_string(const rmq_rows *r, int64_t row, uint8_t *const to, int is_schedule,
                                              int is_dispatched, rmq_refusal *why) {
    rmq_pairs out = {to, 0};
    int pending[RMQ_NAMED]; /* -1: the column has none; 1: it has, and 0: it is written */
    for (int which = 0; which < RMQ_NAMED; which++)
        pending[which] = rmq_in_valid(&r->columns[rmq_named[which].column], row) ? 1 : -1;
    const rmq_in *map = &r->columns[RMQ_IN_PROPERTIES];
    const int has_map = rmq_in_valid(map, row);
    const int64_t last = has_map ? rmq_in_i32(map, row + 1) : 0;
    int left_out = 0;
    for (int64_t i = has_map ? rmq_in_i32(map, row) : 0; i < last; i++) {
        int64_t name_size, size;
        int32_t level;
        const uint8_t *name = rmq_in_text(&r->names, i, &name_size), *value = rmq_in_text(&r->contents, i, &size);
        if (name_size == 0) return rmq_refuse(why, RMQ_REFUSE_EMPTY_NAME, RMQ_IN_PROPERTIES, 0);
        const int which = rmq_which_named(name, name_size);
        if (which >= 0 && pending[which] >= 0) {
            if (pending[which]) rmq_put_named(r, row, which, &out);
            pending[which] = 0;
            continue;
        }
        if (size == 0 || !rmq_in_valid(&r->contents, i) || rmq_is_property_crc(name, name_size)) {
            left_out = 1;
            continue;
        }
        if (is_schedule && name_size == 5 && rmq_is(name, "DELAY", 5) && !rmq_parse_int(value, size, &level))
            return rmq_refuse_text(why, RMQ_REFUSE_DELAY, RMQ_IN_PROPERTIES, value, size);
        if (is_dispatched && rmq_is_dispatch(name, name_size, value, size))
            return rmq_refuse_text(why, RMQ_REFUSE_LIGHT_QUEUES, RMQ_IN_PROPERTIES, value, size);
        rmq_put_pair(&out, name, name_size, r->names.data_end - name >= 32, value, size,
                     r->contents.data_end - value >= 32);
    }
    for (int which = 0; which < RMQ_NAMED; which++)
        if (pending[which] > 0) rmq_put_named(r, row, which, &out);
    const int64_t n = out.to - to;
    if (left_out || rmq_count_separators(to, n) != 2 * out.count)
        RMQ_TRY(rmq_check_separators(r, row, why));
    if (n > RMQ_MAX_PROPERTIES_SIZE) return rmq_refuse(why, RMQ_REFUSE_PROPERTIES_LENGTH, RMQ_IN_PROPERTIES, n);
    return n;
}

__attribute__((noinline)) static int rmq_check_nulls(const rmq_rows *r, int64_t row, rmq_refusal *why) {
    for (int i = 0; i < RMQ_IN_COLUMNS; i++)
        if (!rmq_is_valid(r->validity, r->first + row) || (!rmq_may_be_null(i) && !rmq_in_valid(&r->columns[i], row)))
            return rmq_refuse(why, RMQ_REFUSE_NULL, i, 0);
    return 0;
}

/* Write the row as a unit at `to`; returns its size, or -1. */
static inline int64_t rmq_encode_row(rmq_encoder *e, const rmq_rows *r, int64_t row, uint8_t *const to,
                                     rmq_refusal *why) {
    const rmq_in *const c = r->columns;
    int64_t topic_size, body_size, born_size, store_size;
    if (r->may_have_nulls) RMQ_TRY(rmq_check_nulls(r, row, why));
    const uint8_t *topic = rmq_in_text(&c[RMQ_IN_TOPIC], row, &topic_size);
    if (topic_size != e->topic_size || memcmp(topic, e->topic, (size_t)topic_size) != 0)
        RMQ_TRY(rmq_check_topic(e, topic, topic_size, why));
    const int32_t queue_id = rmq_in_i32(&c[RMQ_IN_QUEUE_ID], row);
    // A topic has one queue more than its last id, and brokers have an i32 for that.
    if (queue_id < 0 || queue_id == INT32_MAX) return rmq_refuse(why, RMQ_REFUSE_QUEUE_ID, RMQ_IN_QUEUE_ID, queue_id);
    const uint8_t *body = rmq_in_text(&c[RMQ_IN_BODY], row, &body_size);
    if (body_size > RMQ_MAX_BODY) return rmq_refuse(why, RMQ_REFUSE_BODY_LENGTH, RMQ_IN_BODY, body_size);
    const uint8_t *born_host = rmq_in_text(&c[RMQ_IN_BORN_HOST], row, &born_size);
    if (born_size != 8 && born_size != 20) return rmq_refuse(why, RMQ_REFUSE_HOST_LENGTH, RMQ_IN_BORN_HOST, born_size);
    const uint8_t *store_host = rmq_in_text(&c[RMQ_IN_STORE_HOST], row, &store_size);
    if (store_size != 8 && store_size != 20)
        return rmq_refuse(why, RMQ_REFUSE_HOST_LENGTH, RMQ_IN_STORE_HOST, store_size);
    int64_t store_timestamp = rmq_in_i64(&c[RMQ_IN_STORE_TIMESTAMP], row);
    if (__builtin_expect(!rmq_in_valid(&c[RMQ_IN_STORE_TIMESTAMP], row), 0))
        store_timestamp = 0;
    else if (store_timestamp <= 0)
        return rmq_refuse(why, RMQ_REFUSE_STORE_TIMESTAMP, RMQ_IN_STORE_TIMESTAMP, store_timestamp);
    int32_t sys_flag = rmq_in_i32(&c[RMQ_IN_SYSFLAG], row);
    if (sys_flag & RMQ_SYSFLAG_INNER_BATCH)
        return rmq_refuse(why, RMQ_REFUSE_INNER_BATCH, RMQ_IN_SYSFLAG, sys_flag);
    sys_flag &= ~(RMQ_SYSFLAG_BORNHOST_V6 | RMQ_SYSFLAG_STOREHOST_V6);
    if (born_size == 20) sys_flag |= RMQ_SYSFLAG_BORNHOST_V6;
    if (store_size == 20) sys_flag |= RMQ_SYSFLAG_STOREHOST_V6;

    const int is_v2 = topic_size > RMQ_MAX_TOPIC_V1;
    rmq_put_i32(to + 4, is_v2 ? RMQ_MAGIC_V2 : RMQ_MAGIC_V1);
    rmq_put_i32(to + RMQ_AT_QUEUE_ID, queue_id);
    rmq_put_i32(to + RMQ_AT_FLAG, rmq_in_i32(&c[RMQ_IN_FLAG], row));
    rmq_put_i64(to + RMQ_AT_QUEUE_OFFSET, 0);
    rmq_put_i64(to + RMQ_AT_PHYSICAL_OFFSET, 0);
    rmq_put_i32(to + RMQ_AT_SYSFLAG, sys_flag);
    rmq_put_i64(to + RMQ_AT_BORN_TIMESTAMP, rmq_in_i64(&c[RMQ_IN_BORN_TIMESTAMP], row));
    uint8_t *p = to + RMQ_AT_BORN_HOST;
    memcpy(p, born_host, (size_t)born_size);
    p += born_size;
    rmq_put_i64(p, store_timestamp);
    p += 8;
    memcpy(p, store_host, (size_t)store_size);
    p += store_size;
    rmq_put_i32(p, rmq_in_i32(&c[RMQ_IN_RECONSUME_TIMES], row));
    rmq_put_i64(p + 4, rmq_in_i64(&c[RMQ_IN_PREPARED_TRANSACTION_OFFSET], row));
    rmq_put_i32(p + 12, (int32_t)body_size);
    p += 16;
    memcpy(p, body, (size_t)body_size);
    rmq_put_i32(to + RMQ_AT_BODY_CRC, (int32_t)(rmq_crc32(0, p, (size_t)body_size) & 0x7FFFFFFF));
    p += body_size;
    if (is_v2) *p++ = (uint8_t)(topic_size >> 8);
    *p++ = (uint8_t)topic_size;
    rmq_copy(p, topic, topic_size, c[RMQ_IN_TOPIC].data_end - topic >= 32);
    p += topic_size;
    const int64_t n = rmq_put_property_string(r, row, p + 2, rmq_is_schedule_topic(topic, topic_size),
                                              rmq_is_dispatched(topic, topic_size, sys_flag), why);
    if (n < 0) return -1;
    rmq_put_i16(p, (int16_t)n);
    p += 2 + n;
    rmq_put_i32(to, (int32_t)(p - to));
    return p - to;
}

/* An upper bound of the bytes that the rows take. */
static int64_t rmq_encode_bound(const rmq_rows *r) {
    static const int texts[] = {RMQ_IN_TOPIC, RMQ_IN_TAGS, RMQ_IN_KEYS, RMQ_IN_UNIQ_KEY, RMQ_IN_BODY};
    int64_t bound = (RMQ_MOST_FIXED + RMQ_MOST_NAMED) * r->rows;
    if (r->rows == 0) return bound;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        bound += rmq_in_i32(&r->columns[texts[i]], r->rows) - rmq_in_i32(&r->columns[texts[i]], 0);
    const rmq_in *map = &r->columns[RMQ_IN_PROPERTIES];
    const int64_t first = rmq_in_i32(map, 0), last = rmq_in_i32(map, r->rows);
    if (first < last) {
        bound += 2 * (last - first);
        bound += rmq_in_i32(&r->names, last) - rmq_in_i32(&r->names, first);
        bound += rmq_in_i32(&r->contents, last) - rmq_in_i32(&r->contents, first);
    }
    return bound;
}

/* All rows as units, back to back, into rmq_encode_bound() + RMQ_SLACK bytes. Returns the number of bytes, or -1. */
static inline int64_t rmq_encode_on(rmq_encoder *e, const rmq_rows *r, uint8_t *to, int32_t *sizes, rmq_refusal *why,
                                    rmq_machine machine) {
    int64_t total = 0;
    (void)machine; /* only the compiler uses the newer instructions */
    for (int64_t row = 0; row < r->rows; row++) {
        const int64_t size = rmq_encode_row(e, r, row, to + total, why);
        if (size < 0) {
            why->row = row;
            return -1;
        }
        sizes[row] = (int32_t)size;
        total += size;
    }
    return total;
}

RMQ_FOR_MACHINES(int64_t, rmq_encode, (rmq_encoder *e, const rmq_rows *r, uint8_t *to, int32_t *sizes, rmq_refusal *why),
                 e, r, to, sizes, why)

#endif
