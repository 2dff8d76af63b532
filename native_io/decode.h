/* Units to Arrow buffers: validity, offsets and data of each requested column, row by row. */
#ifndef RMQ_DECODE_H
#define RMQ_DECODE_H

#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "body_search.h"
#include "expand.h"
#include "inner.h"
#include "memory.h"
#include "properties.h"
#include "select.h"
#include "unit.h"
#include "walk.h"

/* The columns a unit gives. The names are COLUMNS's in _read.pyx, in this order. */
enum {
    RMQ_TOPIC,
    RMQ_QUEUE_ID,
    RMQ_QUEUE_OFFSET,
    RMQ_TAGS,
    RMQ_KEYS,
    RMQ_UNIQ_KEY,
    RMQ_OFFSET_MSG_ID,
    RMQ_BODY,
    RMQ_PROPERTIES,
    RMQ_FLAG,
    RMQ_SYSFLAG,
    RMQ_BORN_TIMESTAMP,
    RMQ_BORN_HOST,
    RMQ_STORE_TIMESTAMP,
    RMQ_STORE_HOST,
    RMQ_RECONSUME_TIMES,
    RMQ_PREPARED_TRANSACTION_OFFSET,
    RMQ_PHYSICAL_OFFSET,
    RMQ_TOTAL_SIZE,
    RMQ_BODY_CRC,
    RMQ_BATCH_INDEX,
    RMQ_COLUMNS
};

/* How a column lies in Arrow. */
enum { RMQ_INT32, RMQ_INT64, RMQ_TIMESTAMP, RMQ_TEXT, RMQ_MAP };

static const uint8_t rmq_layout[RMQ_COLUMNS] = {
    [RMQ_TOPIC] = RMQ_TEXT,
    [RMQ_QUEUE_ID] = RMQ_INT32,
    [RMQ_QUEUE_OFFSET] = RMQ_INT64,
    [RMQ_TAGS] = RMQ_TEXT,
    [RMQ_KEYS] = RMQ_TEXT,
    [RMQ_UNIQ_KEY] = RMQ_TEXT,
    [RMQ_OFFSET_MSG_ID] = RMQ_TEXT,
    [RMQ_BODY] = RMQ_TEXT,
    [RMQ_PROPERTIES] = RMQ_MAP,
    [RMQ_FLAG] = RMQ_INT32,
    [RMQ_SYSFLAG] = RMQ_INT32,
    [RMQ_BORN_TIMESTAMP] = RMQ_TIMESTAMP,
    [RMQ_BORN_HOST] = RMQ_TEXT,
    [RMQ_STORE_TIMESTAMP] = RMQ_TIMESTAMP,
    [RMQ_STORE_HOST] = RMQ_TEXT,
    [RMQ_RECONSUME_TIMES] = RMQ_INT32,
    [RMQ_PREPARED_TRANSACTION_OFFSET] = RMQ_INT64,
    [RMQ_PHYSICAL_OFFSET] = RMQ_INT64,
    [RMQ_TOTAL_SIZE] = RMQ_INT32,
    [RMQ_BODY_CRC] = RMQ_INT32,
    [RMQ_BATCH_INDEX] = RMQ_INT32,
};

typedef struct {
    uint8_t *data;
    int64_t size; /* bytes in use; not kept for `values`, where the number of rows gives it */
    int64_t capacity;
    rmq_pool *pool;
    int64_t usual; /* bytes of earlier batches, see rmq_usual */
} rmq_buffer;

typedef struct {
    rmq_buffer validity; /* made by the first null; empty until then, with all rows valid */
    rmq_buffer values;   /* fixed-width values by row, or the rows + 1 int32 offsets of text and map */
    rmq_buffer data;     /* bytes of text */
    int64_t nulls;
} rmq_column;

/* A host as text and in hex. Brokers and producers are few, so each host is formatted once and found again. */
typedef struct {
    uint8_t raw[20];
    int32_t raw_size; /* 0: nothing yet */
    int32_t size;
    char text[72];
    char hex[40];
} rmq_host;

enum { RMQ_HOSTS = 64, RMQ_ENOUGH = 2 };

typedef struct {
    uint32_t asked; /* 1 << column */
    int64_t rows;
    int64_t room;        /* rows that fit */
    int64_t usual;       /* rows of earlier batches, see rmq_usual */
    int64_t entries;     /* entries of the map */
    int64_t compressed;  /* rows whose body says it is compressed */
    rmq_expander *expander; /* decompresses bodies; NULL: they stay as they are stored */
    int64_t enough;      /* bytes of bodies in a batch, where they are decompressed: no unit is walked to then */
    const rmq_body_search *searched; /* has decompressed a body of this window, to look into it; NULL: nobody looks */
    rmq_list unexpanded; /* int64: rows of compressed bodies that were left as they are stored */
    rmq_column columns[RMQ_COLUMNS];
    rmq_column names, contents; /* the map's entries */
    int explodes;        /* a row for each message of a batch; else one for the unit */
    rmq_inner inner;     /* the last message whose batch goes on in the next call, */
    int64_t position;    /* and the batch's physical offset; -1: there is none */
    rmq_copies copies;   /* where no filter has its own */
    rmq_host hosts[RMQ_HOSTS]; /* at the index that rmq_see_host's hash gives */
    rmq_splitter splitter;
} rmq_decoder;

/* All columns, and after them the two of the map's entries. */
static inline rmq_column *rmq_any_column(rmq_decoder *d, int i) {
    return i < RMQ_COLUMNS ? &d->columns[i] : i == RMQ_COLUMNS ? &d->names : &d->contents;
}

/* An empty decoder, or NULL when there is no memory. */
static rmq_decoder *rmq_new_decoder(void) {
    rmq_decoder *d = calloc(1, sizeof *d);
    rmq_pool *pool = rmq_new_pool();
    if (d == NULL || pool == NULL) {
        free(d);
        free(pool);
        return NULL;
    }
    d->position = -1;
    for (int i = 0; i < RMQ_COLUMNS + 2; i++) {
        rmq_column *c = rmq_any_column(d, i);
        c->validity.pool = c->values.pool = c->data.pool = pool;
    }
    return d;
}

static inline int rmq_asks(uint32_t asked, int column) { return asked >> column & 1; }

/* The expected size of the next batch, so that its buffers need not move: a little more than this batch; where this
 * batch is small, as the last of a piece is, nearly as much as earlier ones. */
static inline int64_t rmq_usual(int64_t before, int64_t now) {
    const int64_t next = now + now / 8, fewer = before - before / 8;
    return next > fewer ? next : fewer;
}

/* Have memory for `size` bytes in all: the rare case, see rmq_reserve. 0, or -1 when there is no memory, or -2 when an Arrow
 * offset could not reach so far. */
__attribute__((noinline, cold)) static int rmq_grow(rmq_buffer *b, int64_t size) {
    if (size > INT32_MAX) return -2;
    const int64_t need = size + RMQ_SLACK, most = (int64_t)INT32_MAX + RMQ_SLACK;
    int64_t capacity = b->capacity + b->capacity / 2;
    if (capacity < b->usual + RMQ_SLACK) capacity = b->usual + RMQ_SLACK;
    if (capacity < need) capacity = need;
    if (capacity > most) capacity = most;
    uint8_t *data = rmq_get_buffer(b->pool, capacity, &capacity);
    if (data == NULL) return -1;
    if (b->data != NULL) memcpy(data, b->data, (size_t)b->capacity);
    rmq_put_buffer(b->data);
    b->data = data;
    b->capacity = capacity < most ? capacity : most;
    return 0;
}

static inline int rmq_reserve(rmq_buffer *b, int64_t size) {
    return size + RMQ_SLACK <= b->capacity ? 0 : rmq_grow(b, size);
}

static inline void rmq_set_i32(rmq_column *c, int64_t row, int32_t v) { ((int32_t *)c->values.data)[row] = v; }
static inline void rmq_set_i64(rmq_column *c, int64_t row, int64_t v) { ((int64_t *)c->values.data)[row] = v; }

/* The row is null: give the column a validity bitmap (all ones so far) if it has none yet. */
__attribute__((noinline)) static int rmq_set_null(rmq_column *c, int64_t row) {
    const int64_t bytes = row / 8 + 1;
    if (c->validity.size < bytes) {
        RMQ_TRY(rmq_reserve(&c->validity, bytes));
        memset(c->validity.data + c->validity.size, 0xFF, (size_t)(bytes - c->validity.size));
        c->validity.size = bytes;
    }
    c->validity.data[row / 8] &= (uint8_t) ~(1u << row % 8);
    c->nulls += 1;
    return 0;
}

/* Arrow has microseconds, RocketMQ milliseconds: a time that does not fit is null, not another time. */
static inline int rmq_set_timestamp(rmq_column *c, int64_t row, int64_t milliseconds) {
    int64_t microseconds;
    if (__builtin_mul_overflow(milliseconds, (int64_t)1000, &microseconds)) {
        rmq_set_i64(c, row, 0);
        return rmq_set_null(c, row);
    }
    rmq_set_i64(c, row, microseconds);
    return 0;
}

static inline int rmq_set_text(rmq_column *c, int64_t row, const uint8_t *p, int64_t n, const uint8_t *readable_end) {
    const int64_t size = c->data.size + n;
    RMQ_TRY(rmq_reserve(&c->data, size));
    rmq_copy(c->data.data + c->data.size, p, n, readable_end - p >= 32);
    c->data.size = size;
    rmq_set_i32(c, row + 1, (int32_t)size);
    return 0;
}

static inline char *rmq_decimal(char *to, uint32_t v) {
    char digits[10];
    int n = 0;
    do {
        digits[n++] = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    while (n > 0) *to++ = digits[--n];
    return to;
}

/* 4 bytes as 8 upper-case hex digits, all at once: spread the nibbles, then add '0', and 7 more to those above 9. */
static inline void rmq_hex4(char *to, const uint8_t *p) {
    uint64_t x = (uint32_t)rmq_i32(p);
    x = (x | x << 16) & 0x0000FFFF0000FFFFull;
    x = (x | x << 8) & 0x00FF00FF00FF00FFull;
    x = (x | x << 4) & 0x0F0F0F0F0F0F0F0Full;
    const uint64_t letters = (x + 0x0606060606060606ull) >> 4 & 0x0101010101010101ull;
    const uint64_t text = RMQ_BE64(x + 0x3030303030303030ull + letters * 7);
    memcpy(to, &text, 8);
}

/* `ip:port` or `[ipv6]:port`. The port is an i32 on disk; any value is shown. */
__attribute__((noinline)) static void rmq_format_host(rmq_host *h, const uint8_t *raw, int32_t raw_size) {
    char *to = h->text;
    if (raw_size == 8) {
        for (int i = 0; i < 4; i++) {
            to = rmq_decimal(to, raw[i]);
            *to++ = i < 3 ? '.' : ':';
        }
    } else {
        *to++ = '[';
        inet_ntop(AF_INET6, raw, to, INET6_ADDRSTRLEN);
        to += strlen(to);
        *to++ = ']';
        *to++ = ':';
    }
    const int32_t port = rmq_i32(raw + raw_size - 4);
    if (port < 0) *to++ = '-';
    to = rmq_decimal(to, port < 0 ? 0u - (uint32_t)port : (uint32_t)port);
    h->size = (int32_t)(to - h->text);
    for (int32_t i = 0; i < raw_size; i += 4) rmq_hex4(h->hex + 2 * i, raw + i);
    memcpy(h->raw, raw, (size_t)raw_size);
    h->raw_size = raw_size;
}

static inline const rmq_host *rmq_see_host(rmq_decoder *d, const uint8_t *raw, int32_t raw_size) {
    const uint64_t tail = (uint64_t)rmq_i64(raw + raw_size - 8); /* the address, or its end, and the port */
    rmq_host *h = &d->hosts[tail * 0x9E3779B97F4A7C15ull >> 58];
    const int same = h->raw_size == raw_size && (raw_size == 8 ? memcmp(h->raw, raw, 8) : memcmp(h->raw, raw, 20)) == 0;
    if (!same) rmq_format_host(h, raw, raw_size);
    return h;
}

static inline int rmq_set_host(rmq_column *c, int64_t row, const rmq_host *h) {
    const uint8_t *text = (const uint8_t *)h->text;
    return rmq_set_text(c, row, text, h->size, text + sizeof h->text);
}

/* Have room to decompress a body to: as much as is there, and as much as it mostly takes. The room; -1: no memory for it. */
static int64_t rmq_body_room(rmq_buffer *b, int64_t least) {
    if (rmq_reserve(b, b->size + least) != 0) return -1;
    const int64_t room = b->capacity - RMQ_SLACK - b->size;
    return room < RMQ_MOST_EXPANDED ? room : RMQ_MOST_EXPANDED;
}

/* Decompress the body of the unit into the column. 1: it was left alone, for the caller to decompress or to refuse. */
__attribute__((noinline)) static int rmq_expand_body(rmq_decoder *d, const rmq_unit *u) {
    rmq_buffer *const b = &d->columns[RMQ_BODY].data;
    int64_t least = (int64_t)u->body_length * RMQ_USUAL_GAIN + RMQ_FAST_OUTPUT, size = 0;
    if (b->size > d->enough + RMQ_MOST_EXPANDED) return 1; /* positions of units may be many, and their bodies bombs */
    for (;;) {
        if (least > RMQ_MOST_EXPANDED) least = RMQ_MOST_EXPANDED;
        const int64_t room = rmq_body_room(b, least);
        if (room < 0) return 1;
        const int status = rmq_expand(d->expander, u->sys_flag, u->body, u->body_length, b->data + b->size, room, &size);
        if (status == RMQ_EXPANDED) break;
        if (status == RMQ_NOT_KNOWN || room == RMQ_MOST_EXPANDED) return 1;
        least = 4 * room;
    }
    b->size += size;
    rmq_set_i32(&d->columns[RMQ_BODY], d->rows + 1, (int32_t)b->size);
    return 0;
}

/* A body that says that it is compressed. 0, or RMQ_ENOUGH, or -1 / -2 of rmq_reserve. */
static inline int rmq_set_compressed(rmq_decoder *d, const rmq_unit *u, const uint8_t *readable_end) {
    const rmq_body_search *const s = d->searched;
    d->compressed += 1;
    if (d->expander != NULL && s != NULL && s->of == u->body) {
        RMQ_TRY(rmq_set_text(&d->columns[RMQ_BODY], d->rows, s->room, s->found, s->room + s->size));
    } else if (d->expander == NULL || u->body_length == 0 || rmq_expand_body(d, u) != 0) {
        RMQ_TRY(rmq_set_text(&d->columns[RMQ_BODY], d->rows, u->body, u->body_length, readable_end));
        if (d->expander == NULL || u->body_length == 0) return 0;
        RMQ_TRY(rmq_list_reserve(&d->unexpanded, 1, sizeof(int64_t)));
        ((int64_t *)d->unexpanded.data)[d->unexpanded.size++] = d->rows;
    }
    return d->columns[RMQ_BODY].data.size >= d->enough ? RMQ_ENOUGH : 0;
}

/* offsetMsgId: store host and physical offset in hex (MessageDecoder.createMessageId). */
static inline int rmq_set_offset_msg_id(rmq_column *c, int64_t row, const rmq_host *host, const uint8_t *position) {
    const int64_t n = 2 * host->raw_size;
    RMQ_TRY(rmq_reserve(&c->data, c->data.size + n + 16));
    char *to = (char *)c->data.data + c->data.size;
    memcpy(to, host->hex, sizeof host->hex); /* 40 bytes, of which 16 or 40 count: 16 + 16 + RMQ_SLACK are there */
    rmq_hex4(to + n, position);
    rmq_hex4(to + n + 8, position + 4);
    c->data.size += n + 16;
    rmq_set_i32(c, row + 1, (int32_t)c->data.size);
    return 0;
}

static inline int rmq_set_property(rmq_decoder *d, int column, const uint8_t *p, int32_t which,
                                   const uint8_t *readable_end) {
    if (!rmq_asks(d->asked, column)) return 0;
    rmq_column *c = &d->columns[column];
    const int64_t row = d->rows;
    if (which >= 0) {
        const rmq_property *found = &d->splitter.found[which];
        return rmq_set_text(c, row, p + found->separator + 1, found->end - found->separator - 1, readable_end);
    }
    rmq_set_i32(c, row + 1, (int32_t)c->data.size);
    return rmq_set_null(c, row);
}

/* The map's entries of one unit: names and values one after another, into memory reserved beforehand. */
static inline int rmq_put_entries(rmq_decoder *d, const uint8_t *p, int32_t size, int32_t n, const uint8_t *readable_end,
                                  const rmq_known_names *known) {
    rmq_column *const names = &d->names, *const contents = &d->contents;
    RMQ_TRY(rmq_reserve(&names->values, 4 * (d->entries + n + 1)));
    RMQ_TRY(rmq_reserve(&contents->values, 4 * (d->entries + n + 1)));
    RMQ_TRY(rmq_reserve(&names->data, names->data.size + size));
    RMQ_TRY(rmq_reserve(&contents->data, contents->data.size + size));
    int32_t *name_offsets = (int32_t *)names->values.data + d->entries + 1;
    int32_t *content_offsets = (int32_t *)contents->values.data + d->entries + 1;
    uint8_t *const name_data = names->data.data, *const content_data = contents->data.data;
    int64_t name_size = names->data.size, content_size = contents->data.size;
    const int can_overread = readable_end - (p + size) >= 32;
    if (known != NULL) { /* all names in one piece */
        const int32_t text = known->ends[n - 1], before = (int32_t)name_size;
        for (int32_t i = 0; i < text; i += 32) memcpy(name_data + name_size + i, known->text + i, 32);
        for (int32_t i = 0; i < n; i++) name_offsets[i] = before + known->ends[i];
        name_size += text;
    } else {
        for (int32_t i = 0; i < n; i++) {
            const int32_t name = d->splitter.found[i].name, length = d->splitter.found[i].separator - name;
            rmq_copy(name_data + name_size, p + name, length, can_overread);
            name_offsets[i] = (int32_t)(name_size += length);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t content = d->splitter.found[i].separator + 1, length = d->splitter.found[i].end - content;
        rmq_copy(content_data + content_size, p + content, length, can_overread);
        content_offsets[i] = (int32_t)(content_size += length);
    }
    names->data.size = name_size;
    contents->data.size = content_size;
    d->entries += n;
    rmq_set_i32(&d->columns[RMQ_PROPERTIES], d->rows + 1, (int32_t)d->entries);
    return 0;
}

static inline __attribute__((always_inline)) int rmq_put_properties(rmq_decoder *d, const rmq_unit *u,
                                                                    const uint8_t *readable_end, rmq_machine machine) {
    const uint8_t *p = u->properties;
    const int32_t size = u->properties_length;
    const rmq_known_names *known, *names;
    const int32_t n = rmq_split(&d->splitter, p, size, readable_end, &names, &known, machine);
    RMQ_TRY(rmq_set_property(d, RMQ_TAGS, p, names->tags, readable_end));
    RMQ_TRY(rmq_set_property(d, RMQ_KEYS, p, names->keys, readable_end));
    RMQ_TRY(rmq_set_property(d, RMQ_UNIQ_KEY, p, names->uniq_key, readable_end));
    return rmq_asks(d->asked, RMQ_PROPERTIES) ? rmq_put_entries(d, p, size, n, readable_end, known) : 0;
}

/* Have memory for `rows` rows in all. Memory for text is added as text comes; offsets of text, like the map's, begin
 * with a 0. */
static int rmq_reserve_rows(rmq_decoder *d, int64_t rows) {
    for (int i = 0; i < RMQ_COLUMNS; i++) {
        if (!rmq_asks(d->asked, i)) continue;
        rmq_column *c = &d->columns[i];
        const int layout = rmq_layout[i];
        RMQ_TRY(rmq_reserve(&c->values, layout == RMQ_INT64 || layout == RMQ_TIMESTAMP ? 8 * rows : 4 * (rows + 1)));
        if (layout == RMQ_TEXT || layout == RMQ_MAP) rmq_set_i32(c, 0, 0);
        if (layout == RMQ_TEXT) RMQ_TRY(rmq_reserve(&c->data, 0));
    }
    if (rmq_asks(d->asked, RMQ_PROPERTIES)) {
        rmq_column *const both[] = {&d->names, &d->contents};
        for (int i = 0; i < 2; i++) {
            RMQ_TRY(rmq_reserve(&both[i]->values, 4 * (d->entries + 1)));
            RMQ_TRY(rmq_reserve(&both[i]->data, 0));
            rmq_set_i32(both[i], 0, 0);
        }
    }
    if (d->room < rows) d->room = rows;
    return 0;
}

/* Have memory for one more row, and with it for as many as usual, but for no more than `most` in all. */
__attribute__((noinline, cold)) static int rmq_make_room(rmq_decoder *d, int64_t most) {
    const int64_t more = d->rows + d->rows / 2 + 64, rows = more > d->usual ? more : d->usual;
    return rmq_reserve_rows(d, rows < most ? rows : most);
}

/* The row of a unit. `inner`: u is a message of a batch; NULL: it is not. 0, or RMQ_ENOUGH where decompressed bodies are as much as
 * a batch of rows should have, or -1 / -2 of rmq_reserve. */
static inline __attribute__((always_inline)) int rmq_append_row(rmq_decoder *d, const rmq_unit *u, const rmq_inner *inner,
                                                                const uint8_t *readable_end, rmq_machine machine) {
    rmq_column *const c = d->columns;
    const uint8_t *const p = u->start;
    const uint8_t *const store_host = u->store_timestamp + 8;
    const uint8_t *const after_hosts = store_host + u->store_host_size;
    const int64_t row = d->rows;
    const uint32_t asked = d->asked; /* unlike d, not reloaded after every store of bytes */
    int answer = 0;
    if (rmq_asks(asked, RMQ_TOPIC)) RMQ_TRY(rmq_set_text(&c[RMQ_TOPIC], row, u->topic, u->topic_length, readable_end));
    if (rmq_asks(asked, RMQ_QUEUE_ID)) rmq_set_i32(&c[RMQ_QUEUE_ID], row, rmq_i32(p + RMQ_AT_QUEUE_ID));
    if (rmq_asks(asked, RMQ_QUEUE_OFFSET)) rmq_set_i64(&c[RMQ_QUEUE_OFFSET], row, u->queue_offset);
    if (asked & (1u << RMQ_OFFSET_MSG_ID | 1u << RMQ_STORE_HOST)) {
        const rmq_host *host = rmq_see_host(d, store_host, u->store_host_size);
        if (rmq_asks(asked, RMQ_OFFSET_MSG_ID))
            RMQ_TRY(rmq_set_offset_msg_id(&c[RMQ_OFFSET_MSG_ID], row, host, p + RMQ_AT_PHYSICAL_OFFSET));
        if (rmq_asks(asked, RMQ_STORE_HOST)) RMQ_TRY(rmq_set_host(&c[RMQ_STORE_HOST], row, host));
    }
    if (rmq_asks(asked, RMQ_BODY)) {
        if (u->sys_flag & RMQ_SYSFLAG_COMPRESSED) {
            answer = rmq_set_compressed(d, u, readable_end);
            if (answer < 0) return answer;
        } else {
            RMQ_TRY(rmq_set_text(&c[RMQ_BODY], row, u->body, u->body_length, readable_end));
        }
    }
    if (rmq_asks(asked, RMQ_FLAG)) rmq_set_i32(&c[RMQ_FLAG], row, inner ? inner->flag : rmq_i32(p + RMQ_AT_FLAG));
    if (rmq_asks(asked, RMQ_SYSFLAG)) rmq_set_i32(&c[RMQ_SYSFLAG], row, u->sys_flag);
    if (rmq_asks(asked, RMQ_BORN_TIMESTAMP))
        RMQ_TRY(rmq_set_timestamp(&c[RMQ_BORN_TIMESTAMP], row, rmq_i64(p + RMQ_AT_BORN_TIMESTAMP)));
    if (rmq_asks(asked, RMQ_BORN_HOST)) {
        const rmq_host *host = rmq_see_host(d, p + RMQ_AT_BORN_HOST, u->born_host_size);
        RMQ_TRY(rmq_set_host(&c[RMQ_BORN_HOST], row, host));
    }
    if (rmq_asks(asked, RMQ_STORE_TIMESTAMP))
        RMQ_TRY(rmq_set_timestamp(&c[RMQ_STORE_TIMESTAMP], row, rmq_i64(u->store_timestamp)));
    if (rmq_asks(asked, RMQ_RECONSUME_TIMES))
        rmq_set_i32(&c[RMQ_RECONSUME_TIMES], row, inner ? 0 : rmq_i32(after_hosts));
    if (rmq_asks(asked, RMQ_PREPARED_TRANSACTION_OFFSET))
        rmq_set_i64(&c[RMQ_PREPARED_TRANSACTION_OFFSET], row, inner ? 0 : rmq_i64(after_hosts + 4));
    if (rmq_asks(asked, RMQ_PHYSICAL_OFFSET))
        rmq_set_i64(&c[RMQ_PHYSICAL_OFFSET], row, rmq_i64(p + RMQ_AT_PHYSICAL_OFFSET));
    if (rmq_asks(asked, RMQ_TOTAL_SIZE)) rmq_set_i32(&c[RMQ_TOTAL_SIZE], row, u->total);
    if (rmq_asks(asked, RMQ_BODY_CRC)) rmq_set_i32(&c[RMQ_BODY_CRC], row, inner ? 0 : rmq_i32(p + RMQ_AT_BODY_CRC));
    if (rmq_asks(asked, RMQ_BATCH_INDEX)) {
        rmq_set_i32(&c[RMQ_BATCH_INDEX], row, inner ? inner->index : 0);
        if (!inner) RMQ_TRY(rmq_set_null(&c[RMQ_BATCH_INDEX], row));
    }
    const uint32_t from_properties = 1u << RMQ_TAGS | 1u << RMQ_KEYS | 1u << RMQ_UNIQ_KEY | 1u << RMQ_PROPERTIES;
    if (asked & from_properties) RMQ_TRY(rmq_put_properties(d, u, readable_end, machine));
    d->rows += 1;
    return answer;
}

static inline int rmq_append_unit(rmq_decoder *d, const rmq_unit *u, const uint8_t *readable_end, rmq_machine machine) {
    return rmq_append_row(d, u, NULL, readable_end, machine);
}

/* A batch repeats its topic and hosts in each row: a call ends after so many bytes of them, so that a batch never takes much more
 * memory than its bytes. */
enum { RMQ_MOST_REPEATED = 4 * 1024 * 1024, RMQ_REPEATED_IN_ROW = 256 };

/* The rows of the messages in a batch, up to `full` rows in all, from the one on at which an earlier call stopped: only those that
 * a filter selects, which has judged the queue (RMQ_ASK: it has not). RMQ_OK: the batch is done; RMQ_FULL: it goes on in the next
 * call; RMQ_NOT_A_BATCH; or -1 / -2 of rmq_reserve. */
static inline int rmq_append_batch_on(rmq_decoder *d, rmq_filter *f, const rmq_unit *batch, int64_t position, int64_t full,
                                      const uint8_t *readable_end, rmq_finding *why, rmq_machine machine) {
    const rmq_bounds *judged = NULL;
    const int64_t most = RMQ_MOST_REPEATED / (RMQ_REPEATED_IN_ROW + batch->topic_length) + 1;
    const int64_t enough = full - d->rows < most ? full : d->rows + most;
    rmq_inner inner = rmq_before_first(batch);
    if (f != NULL && !f->any_queue && (judged = rmq_judged_of(f, batch)) == NULL) return RMQ_ASK;
    if (d->position == position) {
        inner.index = d->inner.index;
        inner.end = d->inner.end;
        if (inner.end > batch->body_length) return rmq_fail(why, RMQ_NOT_A_BATCH, batch->body_length, inner.end);
    }
    d->position = -1;
    while (d->rows < enough) {
        const int status = rmq_next_inner(batch, &inner, why);
        if (status != RMQ_OK) return status == RMQ_LIMIT ? RMQ_OK : status;
        if (f != NULL && !rmq_selects_inner(f, judged, &inner)) continue;
        if (d->rows >= d->room) RMQ_TRY(rmq_make_room(d, full));
        const int appended = rmq_append_row(d, &inner.unit, &inner, readable_end, machine);
        if (appended < 0) return appended;
        if (appended == RMQ_ENOUGH) break;
    }
    if (inner.end == batch->body_length) return RMQ_OK;
    d->inner = inner;
    d->position = position;
    return RMQ_FULL;
}

/* By itself, as what decodes other units should stay small. */
__attribute__((noinline)) static int rmq_append_batch(rmq_decoder *d, rmq_filter *f, const rmq_unit *batch, int64_t position,
                                                      int64_t full, const uint8_t *readable_end, rmq_finding *why);

RMQ_FOR_MACHINES(int, rmq_append_batch,
                 (rmq_decoder *d, rmq_filter *f, const rmq_unit *batch, int64_t position, int64_t full,
                  const uint8_t *readable_end, rmq_finding *why),
                 d, f, batch, position, full, readable_end, why)

/* Units in a window, to be decoded: positions[0 .. count), at window_offsets[i], or at their distance from `base` when that is
 * NULL. */
typedef struct {
    const uint8_t *window;
    int64_t size, base;
    const int64_t *positions, *window_offsets;
    int64_t count;
    int64_t taken; /* how many units are decoded so far; where none is, the next one */
} rmq_places;

/* Decode units from places->taken on, until there are `full` rows in all. They are checked again (all but the CRC), as positions
 * may come from anywhere. 0, or -1 / -2 of rmq_reserve, or 1 when there is no unit at the next place, or RMQ_ASK. */
static int rmq_append(rmq_decoder *d, rmq_filter *f, rmq_places *places, int64_t full, rmq_unit *asked) {
    const uint8_t *const end = places->window + places->size;
    const int64_t left = places->count - places->taken, more = full - d->rows;
    RMQ_TRY(rmq_reserve_rows(d, d->rows + (left < more ? left : more)));
    for (; places->taken < places->count && d->rows < full; places->taken++) {
        const int64_t position = places->positions[places->taken];
        rmq_unit u;
        rmq_finding why;
        if (places->base < 0 || position < places->base) return 1; /* as the difference might not fit */
        const int64_t at =
            places->window_offsets != NULL ? places->window_offsets[places->taken] : position - places->base;
        if (at < 0 || at > places->size) return 1;
        if (rmq_unit_at(places->window + at, places->size - at, position, INT64_MAX, 0, &u, &why) != RMQ_OK) return 1;
        if (d->explodes && rmq_is_batch(&u)) {
            if (d->position != position && rmq_check_inner(&u, &why) != RMQ_OK) return 1;
            const int status = rmq_append_batch(d, f, &u, position, full, end, &why);
            if (status == RMQ_FULL) break;
            if (status == RMQ_ASK) *asked = u;
            if (status != RMQ_OK) return status < 0 || status == RMQ_ASK ? status : 1;
            continue;
        }
        if (d->rows >= d->room) RMQ_TRY(rmq_make_room(d, full));
        const int status = rmq_append_unit(d, &u, end, RMQ_ANY_MACHINE);
        if (status < 0) return status;
    }
    return 0;
}

/* Walk and decode in one, up to `most` rows: of all units, or of those that a filter selects, and then only their CRC is
 * checked (RMQ_ASK: see rmq_select). RMQ_FULL with the walk's position at a batch: the batch goes on in the next call.
 * Returns 0, or -1 / -2 of rmq_reserve. */
static inline int rmq_decode_on(rmq_decoder *d, rmq_filter *f, rmq_walk *w, int64_t most, rmq_unit *asked,
                                rmq_machine machine) {
    const int64_t before = d->rows, shown = (w->base + w->size - w->position) / RMQ_SMALLEST_UNIT + 1;
    const int64_t full = before + (most < shown || d->explodes ? most : shown);
    const int explodes = d->explodes;
    rmq_copies *const copies = f != NULL ? &f->copies : &d->copies;
    int64_t begun = d->position; /* of a batch that goes on: all checks were made */
    d->searched = f != NULL ? rmq_begin_searches(f) : NULL;
    w->status = RMQ_FULL;
    while (d->rows < full) {
        rmq_unit u;
        const int goes_on = begun == w->position;
        const int verifies = w->verify_crc && f == NULL && !goes_on;
        /* Of a copy that is left out, the body does not matter. */
        w->status = rmq_next(w, &w->position, verifies && !copies->are_left_out, &u, &w->why);
        if (w->status != RMQ_OK) {
            if (w->status != RMQ_MORE) d->position = -1;
            break;
        }
        rmq_prefetch_next(&u);
        const int copy = goes_on ? RMQ_OK : rmq_see_copy(copies, &u, &w->why);
        if (copy == RMQ_COPY) {
            w->position += u.total;
            w->status = RMQ_FULL;
            continue;
        }
        if (__builtin_expect(copy != RMQ_OK, 0)) {
            w->status = copy;
            break;
        }
        if (__builtin_expect(copies->are_left_out, 0) && verifies && (w->status = rmq_check_crc(&u, &w->why)) != RMQ_OK) break;
        if (f != NULL && !goes_on) {
            const int verdict = rmq_verdict(f, &u, w->position, w->verify_crc, &w->why);
            if (verdict == RMQ_REFUSED) {
                rmq_note_refused(copies, &u, w->verify_crc);
                w->position += u.total;
                w->status = RMQ_FULL;
                continue;
            }
            if (verdict == RMQ_UNKNOWN) {
                *asked = u;
                w->status = RMQ_ASK;
                break;
            }
            if (verdict == RMQ_DAMAGED) {
                w->status = f->status;
                break;
            }
            const int is_checked = f->looks_in_bodies; /* by the verdict */
            if (w->verify_crc && !is_checked && (w->status = rmq_check_crc(&u, &w->why)) != RMQ_OK) break;
        }
        begun = -1;
        if (__builtin_expect(explodes && rmq_is_batch(&u), 0)) {
            if (!goes_on && f == NULL && (w->status = rmq_check_inner(&u, &w->why)) != RMQ_OK) break;
            const int status = rmq_append_batch(d, f, &u, w->position, full, w->window + w->size, &w->why);
            if (status < 0) return status;
            w->status = status;
            if (status == RMQ_ASK) *asked = u;
            if (status != RMQ_OK) break;
            w->status = RMQ_FULL;
            w->position += u.total;
            rmq_note_unit(copies, &u);
            continue;
        }
        w->status = RMQ_FULL;
        if (d->rows >= d->room) RMQ_TRY(rmq_make_room(d, full));
        const int status = rmq_append_unit(d, &u, w->window + w->size, machine);
        if (status < 0) return status;
        w->position += u.total;
        rmq_note_unit(copies, &u);
        if (status == RMQ_ENOUGH) break;
    }
    w->count = d->rows - before;
    d->searched = NULL;
    return 0;
}

RMQ_FOR_MACHINES(int, rmq_decode, (rmq_decoder *d, rmq_filter *f, rmq_walk *w, int64_t most, rmq_unit *asked), d, f, w, most,
                 asked)

static int64_t rmq_row_width(int column) {
    return rmq_layout[column] == RMQ_INT64 || rmq_layout[column] == RMQ_TIMESTAMP ? 8 : 4;
}

/* Bytes of Arrow data so far. */
static int64_t rmq_decoded_bytes(const rmq_decoder *d) {
    int64_t bytes = d->names.data.size + d->contents.data.size + 8 * d->entries;
    for (int i = 0; i < RMQ_COLUMNS; i++)
        if (rmq_asks(d->asked, i)) bytes += rmq_row_width(i) * d->rows + d->columns[i].data.size;
    return bytes;
}

/* May any text be other than UTF-8? Topics are checked here, all at once; properties were checked while they were
 * split. */
static int rmq_not_ascii(const rmq_decoder *d) {
    const rmq_buffer *topics = &d->columns[RMQ_TOPIC].data;
    uint8_t high = d->splitter.high != 0;
    for (int64_t i = 0; i < topics->size; i++) high |= topics->data[i] & 0x80;
    return high != 0;
}

#endif
