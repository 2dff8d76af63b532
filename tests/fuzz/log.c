/* A window of a log: walked, searched, selected from and decoded. Each answer is held against the plain reading of the same bytes
 * (plain.h), against the same bytes in two windows, and against the kernel's other way to it. */
#include "arrow.h"
#include "plain.h"
#include "scan.h"
#include "select.h"
#include "units.h"
#include "zstd.h"

enum { OPTIONS = 12, MOST = 64, VERIFY = 1, EXPLODES = 2, EXPANDS = 4, PORTABLE = 8, WRAPPED = 16, ANY_QUEUE = 32, BOUNDS = 64, COPIES = 128 };

static const rmq_wrapping wrapping = {FUZZ_HEADER, 4, 24, 44};

typedef struct {
    int flags;
    uint32_t asked;
    int64_t base, segment_end, stop;
    size_t cut;
    int condition, value;
    const uint8_t *window;
    size_t size;
    int64_t positions[MOST]; /* of the units found */
    int64_t count;
    int status;
} log_case;

static int64_t base_of(uint8_t kind, size_t size) {
    const int64_t bases[] = {0, 1000, (int64_t)1 << 40, INT64_MAX - (int64_t)size};
    return bases[kind & 3];
}

static int64_t sum_below(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

static log_case case_of(const uint8_t *options, const uint8_t *window, size_t size) {
    log_case c = {.flags = options[0], .window = window, .size = size};
    c.asked = (options[1] | (uint32_t)options[2] << 8 | (uint32_t)options[3] << 16) & ((1u << RMQ_COLUMNS) - 1);
    if (options[1] == 0) c.asked = (1u << RMQ_COLUMNS) - 1;
    c.base = base_of(options[4], size);
    const int64_t end = c.base + (int64_t)size, more[] = {0, 8, 100, (int64_t)1 << 30};
    c.segment_end = sum_below(end, more[options[5] & 3]);
    c.stop = options[6] < 128 ? INT64_MAX : sum_below(c.base, (int64_t)size * (options[6] - 128) / 100);
    c.cut = size * options[7] / 256;
    c.condition = options[8];
    c.value = options[9];
    return c;
}

static rmq_walk walk_of(const log_case *c, const uint8_t *window, size_t size, int64_t base, int64_t position) {
    return (rmq_walk){window, (int64_t)size, base, c->stop, c->segment_end, c->flags & VERIFY, position, 0, RMQ_MORE, {0, 0},
                      c->flags & WRAPPED ? &wrapping : NULL};
}

/* ---- walks */

static void scan_all(log_case *c) {
    rmq_walk w = walk_of(c, c->window, c->size, c->base, c->base);
    rmq_scan(&w, c->positions, MOST);
    c->count = w.count;
    c->status = w.status;
    if (c->flags & WRAPPED) return;
    int64_t at = c->base;
    for (int64_t i = 0;; i++) {
        plain_unit u;
        const int64_t in_window = at - c->base;
        const int is_unit = at < c->stop && plain_is_unit(c->window + in_window, (int64_t)c->size - in_window, at, c->segment_end - at,
                                                          c->flags & VERIFY, &u) && u.total <= c->stop - at;
        if (i == MOST) break;
        CHECK(is_unit == (i < c->count));
        if (!is_unit) break;
        CHECK(c->positions[i] == at);
        at += u.total;
    }
}

/* The same in two windows, of which the first one is cut anywhere. */
static void scan_cut(const log_case *c) {
    int64_t positions[MOST];
    uint8_t *const first = fuzz_copy(c->window, c->cut);
    rmq_walk w = walk_of(c, first, c->cut, c->base, c->base);
    rmq_scan(&w, positions, MOST);
    int64_t count = w.count;
    if (w.status == RMQ_MORE) {
        CHECK(w.why.expected > (int64_t)c->cut - (w.position - c->base));
        const size_t passed = (size_t)(w.position - c->base);
        uint8_t *const rest = fuzz_copy(c->window + passed, c->size - passed);
        w = walk_of(c, rest, c->size - passed, w.position, w.position);
        rmq_scan(&w, positions + count, MOST - count);
        count += w.count;
        free(rest);
    }
    CHECK(count == c->count && w.status == c->status);
    CHECK(memcmp(positions, c->positions, (size_t)count * sizeof *positions) == 0);
    free(first);
}

/* The first unit, by every position. */
static void find(const log_case *c) {
    rmq_walk w = walk_of(c, c->window, c->size, c->base, c->base);
    rmq_find(&w);
    for (int64_t at = c->base; at < w.position || w.status == RMQ_OK; at++) {
        plain_unit u;
        const int64_t in_window = at - c->base;
        const int is_unit = in_window <= (int64_t)c->size && at < c->stop && plain_is_unit(c->window + in_window, (int64_t)c->size - in_window, at,
                                                                                     c->segment_end - at, c->flags & VERIFY, &u);
        CHECK(is_unit == (at == w.position));
        if (is_unit) break;
    }
}

/* ---- rows */

/* A decoder like a new one, for a new one takes long to clear. */
static rmq_decoder *decoder_of(rmq_decoder **kept, const log_case *c) {
    rmq_decoder *d = *kept;
    if (d == NULL) {
        d = *kept = rmq_new_decoder();
    } else {
        rmq_pool *const old = d->names.data.pool, *const pool = rmq_new_pool();
        for (int i = 0; i < RMQ_COLUMNS + 2; i++) {
            rmq_column *const column = rmq_any_column(d, i);
            rmq_put_buffer(column->validity.data);
            rmq_put_buffer(column->values.data);
            rmq_put_buffer(column->data.data);
            memset(column, 0, sizeof *column);
            column->validity.pool = column->values.pool = column->data.pool = pool;
        }
        rmq_leave_pool(old);
        for (int i = 0; i < RMQ_KNOWN_SETS; i++) d->splitter.known[i].count = 0;
        for (int i = 0; i < RMQ_HOSTS; i++) d->hosts[i].raw_size = 0;
    }
    d->rows = d->room = d->usual = d->entries = d->compressed = d->unexpanded.size = 0;
    d->splitter.high = 0;
    d->position = -1;
    d->asked = c->asked;
    d->explodes = (c->flags & EXPLODES) != 0;
    d->enough = 100;
    const rmq_zstd_library library = fuzz_zstd_library();
    if (c->flags & EXPANDS && d->expander == NULL) d->expander = rmq_new_expander(&library);
    if (!(c->flags & EXPANDS)) {
        rmq_free_expander(d->expander);
        d->expander = NULL;
    }
    return d;
}

static int decode_on(const log_case *c, rmq_decoder *d, rmq_filter *f, rmq_walk *w, int64_t most, rmq_unit *asked) {
    return c->flags & PORTABLE ? rmq_decode_on(d, f, w, most, asked, RMQ_ANY_MACHINE) : rmq_decode(d, f, w, most, asked);
}

/* Queues whose id is below 2 are selected, with some of their offsets. */
static void judge(rmq_filter *f, const rmq_unit *u) {
    const int32_t id = rmq_i32(u->start + RMQ_AT_QUEUE_ID);
    const rmq_bounds bounds = id < 0 || id > 1 ? (rmq_bounds){0, -1} : (rmq_bounds){id, 15};
    CHECK(rmq_judge(f, u->topic, u->topic_length, id, bounds) == 0);
}

/* Decode what is left of a walk, `most` rows a call. */
static void decode_rest(const log_case *c, rmq_decoder *d, rmq_filter *f, rmq_walk *w, int64_t most) {
    for (int calls = 0;; calls++) {
        rmq_unit asked;
        const int64_t before = w->position, rows = d->rows;
        CHECK(decode_on(c, d, f, w, most, &asked) == 0);
        if (w->status == RMQ_ASK) judge(f, &asked);
        else if (w->status != RMQ_FULL) return;
        CHECK(w->status == RMQ_ASK || w->position > before || d->rows > rows);
        if (d->rows > 5000) return;
    }
}

static void check_text(const struct ArrowArray *array, int64_t row, const uint8_t *expected, int64_t size) {
    const int32_t *const ends = array->buffers[1];
    CHECK(plain_same((const uint8_t *)array->buffers[2] + ends[row], ends[row + 1] - ends[row], expected, size));
}

static int is_null(const struct ArrowArray *array, int64_t row) {
    const uint8_t *const valid = array->buffers[0];
    return valid != NULL && !(valid[row / 8] >> row % 8 & 1);
}

static void check_i64(const struct ArrowArray *array, int64_t row, int64_t expected) { CHECK(((const int64_t *)array->buffers[1])[row] == expected); }
static void check_i32(const struct ArrowArray *array, int64_t row, int32_t expected) { CHECK(((const int32_t *)array->buffers[1])[row] == expected); }

static void check_time(const struct ArrowArray *array, int64_t row, int64_t milliseconds) {
    int64_t microseconds;
    const int fits = !__builtin_mul_overflow(milliseconds, (int64_t)1000, &microseconds);
    CHECK(is_null(array, row) == !fits);
    if (fits) check_i64(array, row, microseconds);
}

static void check_pair(const struct ArrowArray *array, int64_t row, const plain_pair *pair) {
    CHECK(is_null(array, row) == (pair == NULL));
    if (pair != NULL) check_text(array, row, pair->value, pair->value_size);
}

static void check_map(const struct ArrowArray *array, int64_t row, const plain_pair *pairs, int count) {
    const int32_t *const ends = array->buffers[1];
    CHECK(ends[row + 1] - ends[row] == count);
    for (int i = 0; i < count; i++) {
        check_text(array->children[0]->children[0], ends[row] + i, pairs[i].name, pairs[i].name_size);
        check_text(array->children[0]->children[1], ends[row] + i, pairs[i].value, pairs[i].value_size);
    }
}

static void check_message_id(const struct ArrowArray *array, int64_t row, const plain_unit *u) {
    char text[60];
    int n = 0;
    for (int64_t i = 0; i < u->store_size; i++) n += sprintf(text + n, "%02X", u->store_host[i]);
    n += sprintf(text + n, "%016llX", (unsigned long long)u->physical_offset);
    check_text(array, row, (const uint8_t *)text, n);
}

static void check_host(const struct ArrowArray *array, int64_t row, const uint8_t *host, int64_t size) {
    char text[40];
    if (size != 8) return; /* an IPv6 address has several texts */
    const int n = sprintf(text, "%d.%d.%d.%d:%d", host[0], host[1], host[2], host[3], (int)plain_number(host + 4, 4));
    check_text(array, row, (const uint8_t *)text, n);
}

static void check_column(const struct ArrowArray *array, int64_t row, int column, const plain_unit *u) {
    plain_pair pairs[600];
    const int count = column == RMQ_TAGS || column == RMQ_KEYS || column == RMQ_UNIQ_KEY || column == RMQ_PROPERTIES
                          ? plain_pairs(u->properties, u->properties_size, pairs, 600) : 0;
    switch (column) {
        case RMQ_TOPIC: check_text(array, row, u->topic, u->topic_size); break;
        case RMQ_QUEUE_ID: check_i32(array, row, u->queue_id); break;
        case RMQ_QUEUE_OFFSET: check_i64(array, row, u->queue_offset); break;
        case RMQ_TAGS: check_pair(array, row, plain_find(pairs, count, "TAGS")); break;
        case RMQ_KEYS: check_pair(array, row, plain_find(pairs, count, "KEYS")); break;
        case RMQ_UNIQ_KEY: check_pair(array, row, plain_find(pairs, count, "UNIQ_KEY")); break;
        case RMQ_OFFSET_MSG_ID: check_message_id(array, row, u); break;
        case RMQ_BODY: check_text(array, row, u->body, u->body_size); break;
        case RMQ_PROPERTIES: if (count < 600) check_map(array, row, pairs, count); break;
        case RMQ_FLAG: check_i32(array, row, u->flag); break;
        case RMQ_SYSFLAG: check_i32(array, row, u->sys_flag); break;
        case RMQ_BORN_TIMESTAMP: check_time(array, row, u->born_timestamp); break;
        case RMQ_BORN_HOST: check_host(array, row, u->born_host, u->born_size); break;
        case RMQ_STORE_TIMESTAMP: check_time(array, row, u->store_timestamp); break;
        case RMQ_STORE_HOST: check_host(array, row, u->store_host, u->store_size); break;
        case RMQ_RECONSUME_TIMES: check_i32(array, row, u->reconsume_times); break;
        case RMQ_PREPARED_TRANSACTION_OFFSET: check_i64(array, row, u->prepared_offset); break;
        case RMQ_PHYSICAL_OFFSET: check_i64(array, row, u->physical_offset); break;
        case RMQ_TOTAL_SIZE: check_i32(array, row, (int32_t)u->total); break;
        case RMQ_BODY_CRC: check_i32(array, row, u->body_crc); break;
        case RMQ_BATCH_INDEX: CHECK(is_null(array, row)); break;
    }
}

static int column_order(uint32_t asked, int *order) {
    int n = 0;
    for (int i = 0; i < RMQ_COLUMNS; i++)
        if (rmq_asks(asked, i)) order[n++] = i;
    return n;
}

/* Rows of units, read once more by the plain way. */
static void check_rows(const log_case *c, const struct ArrowArray *array) {
    int order[RMQ_COLUMNS];
    const int n = column_order(c->asked, order);
    CHECK(array->length >= c->count);
    for (int64_t row = 0; row < c->count; row++) {
        plain_unit u;
        const int64_t in_window = c->positions[row] - c->base;
        CHECK(plain_is_unit(c->window + in_window, (int64_t)c->size - in_window, c->positions[row], INT64_MAX, 0, &u));
        for (int i = 0; i < n; i++)
            if (order[i] != RMQ_BODY || !(c->flags & EXPANDS) || !(u.sys_flag & 1)) check_column(array->children[i], row, order[i], &u);
    }
}

static void check_same(const struct ArrowArray *a, const struct ArrowArray *b) {
    CHECK(a->length == b->length && a->n_buffers == b->n_buffers && a->n_children == b->n_children && a->null_count == b->null_count);
    for (int64_t row = 0; a->null_count > 0 && row < a->length; row++) CHECK(is_null(a, row) == is_null(b, row));
    if (a->n_buffers == 3) {
        const int32_t *const ends = a->buffers[1];
        CHECK(memcmp(ends, b->buffers[1], 4 * (size_t)(a->length + 1)) == 0);
        CHECK(memcmp(a->buffers[2], b->buffers[2], (size_t)ends[a->length]) == 0);
    } else if (a->n_buffers == 2) {
        CHECK(memcmp(a->buffers[1], b->buffers[1], 4 * (size_t)a->length) == 0);
    }
    for (int64_t i = 0; i < a->n_children; i++) check_same(a->children[i], b->children[i]);
}

static struct ArrowArray rows_of(rmq_decoder *d, uint32_t asked) {
    struct ArrowArray array;
    int order[RMQ_COLUMNS];
    const int n = column_order(asked, order);
    CHECK(rmq_export(&array, d, order, n) == 0);
    return array;
}

/* All rows by one walk, and by another way again: some rows a call, from positions, or by the other kind of machine. */
static void decode(const log_case *c) {
    static rmq_decoder *kept[2];
    rmq_decoder *d = decoder_of(&kept[0], c);
    rmq_walk w = walk_of(c, c->window, c->size, c->base, c->base);
    decode_rest(c, d, NULL, &w, 1 << 20);
    const int is_scan = !(c->flags & EXPLODES) && c->count < MOST; /* where not all is in c->positions, or is no row */
    CHECK(!is_scan || d->rows == c->count);
    const int64_t rows = d->rows;
    struct ArrowArray array = rows_of(d, c->asked);
    if (is_scan) check_rows(c, &array);

    log_case other = *c;
    other.flags ^= PORTABLE;
    d = decoder_of(&kept[1], c);
    rmq_walk v = walk_of(c, c->window, c->size, c->base, c->base);
    if (c->condition & 1) {
        rmq_places places = {c->window, (int64_t)c->size, c->base, c->positions, NULL, c->count, 0};
        for (int64_t before = -1; places.taken < places.count && d->rows != before;) {
            before = d->rows;
            rmq_unit asked;
            if (rmq_append(d, NULL, &places, d->rows + 1 + c->value % 8, &asked) != 0) break; /* no batch */
            if (places.taken == places.count) break;
        }
        CHECK(c->count == MOST || d->rows == rows);
    } else {
        decode_rest(&other, d, NULL, &v, 1 + c->value % 8);
        CHECK(d->rows == rows && v.position == w.position && v.status == w.status);
    }
    struct ArrowArray again = rows_of(d, c->asked);
    if (array.length == again.length) check_same(&array, &again);
    array.release(&array);
    again.release(&again);
}

/* ---- selections */

static int body_judge(void *asked, const uint8_t *body, int64_t n, int32_t sys_flag) {
    (void)asked, (void)sys_flag;
    return n > 0 && body[0] & 1;
}

static int properties_judge(void *asked, const rmq_text *texts, int64_t count) {
    (void)asked;
    return count == 2 && texts[0].bytes != NULL && texts[1].bytes == NULL;
}

static rmq_values *add_condition(const log_case *c, rmq_filter *f, int number, int field) {
    static const char *const names[] = {"TAGS", "a", "tags", "\xFF"};
    const char *const value = fuzz_values[c->value % (sizeof fuzz_values / sizeof *fuzz_values)];
    const rmq_zstd_library library = fuzz_zstd_library();
    char pair[60];
    uint8_t offset[8];
    rmq_values *const v = rmq_add_values(&f->conditions, number, field);
    rmq_put_i64(offset, field == RMQ_BY_PHYSICAL_OFFSET && c->count > 0 ? c->positions[c->count / 2] : c->value % 20);
    switch (field) {
        case RMQ_BY_QUEUE_OFFSET: case RMQ_BY_PHYSICAL_OFFSET: case RMQ_BY_STORE_TIMESTAMP: CHECK(rmq_add_value(v, offset, 8) == 0); return v;
        case RMQ_BY_OFFSET_MSG_ID: CHECK(rmq_add_value(v, (const uint8_t *)"\x7F\0\0\1\0\0\x2A\x9F\0\0\0\0\0\0\0\0", 16) == 0); return v;
        case RMQ_BY_PROPERTY: {
            const int n = sprintf(pair, "%s\1%s", names[c->value & 3], value);
            CHECK(rmq_add_value(v, (const uint8_t *)pair, n) == 0);
            break;
        }
        case RMQ_BY_LIGHT_QUEUE:
            CHECK(rmq_add_value(v, (const uint8_t *)"%LMQ%a", 6) == 0 && rmq_add_bounds(v, (rmq_bounds){0, 7}) == 0);
            return v;
        case RMQ_BY_PROPERTIES:
            CHECK(rmq_add_value(v, (const uint8_t *)"TAGS", 4) == 0 && rmq_add_value(v, (const uint8_t *)"KEYS", 4) == 0);
            v->judge = properties_judge;
            return v;
        case RMQ_BY_BODY:
            v->body = rmq_new_body_search(&library, body_judge, NULL);
            f->looks_in_bodies = 1;
            /* falls through */
        default: CHECK(rmq_add_value(v, (const uint8_t *)value, (int64_t)strlen(value)) == 0);
    }
    if (field != RMQ_BY_BODY && strstr(value, "\xEF\xBF\xBD") != NULL) CHECK(rmq_compare_as_shown(v) == 0);
    return v;
}

static rmq_filter filter_of(const log_case *c) {
    const rmq_bounds any = {INT64_MIN, INT64_MAX};
    rmq_filter f = {.store_timestamp = any, .physical_offset = any, .any_queue = (c->flags & ANY_QUEUE) != 0, .explodes = (c->flags & EXPLODES) != 0};
    if (c->flags & BOUNDS) {
        f.store_timestamp = (rmq_bounds){1700000000000 + c->value % 50, 1700000000060};
        f.physical_offset.most = sum_below(c->base, 500);
    }
    if (c->condition & 0x70) add_condition(c, &f, 0, (c->condition >> 4) + (c->condition >> 1 & 7) > 11 ? 11 : (c->condition >> 4) + (c->condition >> 1 & 7));
    if (c->condition & 0x80) add_condition(c, &f, 1, c->condition >> 1 & 7);
    return f;
}

static int plain_has(const log_case *c, const plain_unit *u, int field) {
    plain_pair pairs[600];
    const int count = plain_pairs(u->properties, u->properties_size, pairs, 600);
    const char *const value = fuzz_values[c->value % (sizeof fuzz_values / sizeof *fuzz_values)];
    const char *const name = field == RMQ_BY_TAGS ? "TAGS" : field == RMQ_BY_KEYS ? "KEYS" : "UNIQ_KEY";
    const plain_pair *const pair = plain_find(pairs, count, name);
    return pair != NULL && plain_same(pair->value, pair->value_size, (const uint8_t *)value, (int64_t)strlen(value));
}

/* Whether the plain way knows the answer, and the answer. */
static int plain_selects(const log_case *c, const rmq_filter *f, const plain_unit *u, int *selected) {
    const rmq_values *const conditions = f->conditions.data;
    *selected = rmq_within(f->store_timestamp, u->store_timestamp) && rmq_within(f->physical_offset, u->physical_offset);
    if (!f->any_queue)
        *selected &= u->queue_id >= 0 && u->queue_id <= 1 && u->queue_offset >= u->queue_id && u->queue_offset <= 15;
    for (int64_t i = 0; i < f->conditions.size; i++) {
        const int field = conditions[i].field;
        if ((field != RMQ_BY_TAGS && field != RMQ_BY_KEYS && field != RMQ_BY_UNIQ_KEY) || conditions[i].shown != NULL) return 0;
        *selected &= plain_has(c, u, field);
    }
    return 1;
}

static void check_selected(const log_case *c, const rmq_filter *f, const int64_t *positions, int64_t count, const rmq_walk *w) {
    int64_t next = 0;
    for (int64_t i = 0; i < c->count; i++) { /* with CRC all of these are whole */
        plain_unit u;
        int selected;
        const int64_t in_window = c->positions[i] - c->base;
        if (c->positions[i] >= w->position) break;
        CHECK(plain_is_unit(c->window + in_window, (int64_t)c->size - in_window, c->positions[i], INT64_MAX, 0, &u));
        const int is_there = next < count && positions[next] == c->positions[i];
        if (plain_selects(c, f, &u, &selected)) CHECK(is_there == selected);
        next += is_there;
    }
    CHECK(next == count || c->flags & VERIFY || c->count == MOST); /* what is not selected has no CRC checked: the walk may go further */
}

static void pick(const log_case *c, rmq_filter *f, const int64_t *selected, int64_t count) {
    int64_t starts[MOST], lengths[MOST], chosen[MOST];
    int32_t sizes[MOST];
    for (int64_t i = 0; i < c->count; i++) {
        starts[i] = c->positions[i] - c->base;
        lengths[i] = (int64_t)c->size - starts[i];
        sizes[i] = rmq_i32(c->window + starts[i]);
    }
    rmq_claims claims = {c->window, (int64_t)c->size, c->positions, starts, lengths, c->value & 1 ? sizes : NULL, NULL, c->count, c->segment_end,
                         c->flags & VERIFY, 0, 0, {0, 0}};
    rmq_unit asked;
    int status;
    while ((status = rmq_pick(f, &claims, chosen, &asked)) == RMQ_ASK) judge(f, &asked);
    if (status != RMQ_LIMIT) return;
    CHECK(claims.selected <= count || count == MOST);
    for (int64_t i = 0; i < claims.selected && i < count; i++) CHECK(c->positions[chosen[i]] == selected[i]);
}

static void choose(const log_case *c) {
    static rmq_decoder *kept;
    int64_t positions[MOST];
    rmq_filter f = filter_of(c);
    rmq_unit asked;
    rmq_walk w = walk_of(c, c->window, c->size, c->base, c->base);
    const rmq_copies before_first = {(c->flags & COPIES) != 0, 0, 0};
    f.copies = before_first;
    do {
        rmq_select(&f, &w, positions, MOST, &asked);
        if (w.status == RMQ_ASK) judge(&f, &asked);
    } while (w.status == RMQ_ASK);
    if (!f.explodes && !f.copies.are_left_out) check_selected(c, &f, positions, w.count, &w);
    f.copies = before_first;
    rmq_decoder *const d = decoder_of(&kept, c);
    rmq_walk v = walk_of(c, c->window, c->size, c->base, c->base);
    decode_rest(c, d, &f, &v, 1 + c->value);
    if (!f.explodes && w.count < MOST) CHECK(d->rows == w.count && v.position == w.position && v.status == w.status);
    if (!f.explodes && rmq_asks(c->asked, RMQ_PHYSICAL_OFFSET))
        CHECK(w.count == 0 || memcmp(d->columns[RMQ_PHYSICAL_OFFSET].values.data, positions, (size_t)w.count * 8) == 0);
    if (!f.copies.are_left_out) pick(c, &f, positions, w.count); /* which takes what it is told of */
    rmq_free_filter(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < OPTIONS) return 0;
    uint8_t *const window = fuzz_copy(data + OPTIONS, size - OPTIONS);
    log_case c = case_of(data, window, size - OPTIONS);
    scan_all(&c);
    scan_cut(&c);
    find(&c);
    decode(&c);
    choose(&c);
    free(window);
    return 0;
}

static int64_t base_in(const uint8_t *data, size_t window_size) { return base_of(data[4], window_size); }

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    return fuzz_mutate_log(data, size, room, seed, OPTIONS, WRAPPED, base_in);
}
