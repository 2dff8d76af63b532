/* Rows of random valid Arrow arrays, encoded. What the units have is what the rows had, read by the plain way; placed, they are a log. */
#include "dispatched.h"
#include "encode.h"
#include "plain.h"

enum { MOST_ROWS = 8, MOST_ENTRIES = 24 };

static const char *const columns[RMQ_IN_COLUMNS] = {
    "topic", "queueId", "tags", "keys", "msgId", "properties", "body", "flag", "sysFlag", "bornTimestamp", "bornHost",
    "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset",
};

/* An array whose buffers end where their memory ends. */
typedef struct {
    struct ArrowArray array;
    const void *buffers[3];
} made;

static void check_schema(void) {
    static struct ArrowSchema fields[RMQ_IN_COLUMNS], entries, sides[2], *of_struct[RMQ_IN_COLUMNS], *of_map[1] = {&entries}, *of_entries[2] = {&sides[0], &sides[1]};
    struct ArrowSchema schema = {.format = "+s", .n_children = RMQ_IN_COLUMNS, .children = of_struct};
    sides[0].format = sides[1].format = "u";
    entries = (struct ArrowSchema){.format = "+s", .n_children = 2, .children = of_entries};
    for (int i = 0; i < RMQ_IN_COLUMNS; i++) {
        fields[i] = (struct ArrowSchema){.name = columns[i], .format = rmq_in_formats[i]};
        if (i == RMQ_IN_PROPERTIES) fields[i].n_children = 1, fields[i].children = of_map;
        of_struct[i] = &fields[i];
    }
    CHECK(rmq_check_schema(&schema, columns) == -1);
}

/* Bytes of a text: one of the usual ones, or of the input. */
static size_t draw_text(fuzz_input *in, int kind, uint8_t *to) {
    static const char *const topics[] = {"T", "TopicA", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "%LMQ%a"};
    static const char *const names[] = {"TAGS", "KEYS", "UNIQ_KEY", "DELAY", "INNER_MULTI_DISPATCH", "__CRC32#", "a", "WAIT", "INNER_MULTI_QUEUE_OFFSET"};
    static const char *const values[] = {"", "1", "TagA", "k1 k2", "%LMQ%a,%LMQ%b", "7,8", "x\1y", "\xC3\xA4", "true"};
    const uint64_t which = fuzz_number(in, 1);
    const char *const *const usual = kind == 0 ? topics : kind == 1 ? names : values;
    const size_t count = kind == 0 ? sizeof topics / sizeof *topics : kind == 1 ? sizeof names / sizeof *names : sizeof values / sizeof *values;
    if (which < 224) {
        const char *const text = usual[which % count];
        memcpy(to, text, strlen(text));
        return strlen(text);
    }
    const size_t size = fuzz_number(in, 1);
    for (size_t i = 0; i < size; i++) to[i] = kind == 0 ? (uint8_t)('a' + fuzz_number(in, 1) % 26) : (uint8_t)fuzz_number(in, 1);
    return size;
}

static void make(made *m, int64_t length, int64_t offset, int n_buffers, const uint8_t *validity, const void *values, size_t width, const uint8_t *text) {
    memset(&m->array, 0, sizeof m->array);
    const size_t all = (size_t)(length + offset);
    m->array.length = length;
    m->array.offset = offset;
    m->array.n_buffers = n_buffers;
    m->array.null_count = validity != NULL ? -1 : 0;
    m->array.buffers = m->buffers;
    m->buffers[0] = validity != NULL ? fuzz_copy(validity, (all + 7) / 8) : NULL;
    m->buffers[1] = fuzz_copy(values, width * (all + (n_buffers == 3 || width == 0)));
    m->buffers[2] = NULL;
    if (n_buffers == 3) m->buffers[2] = fuzz_copy(text, (size_t)((const int32_t *)values)[all]);
}

static void free_made(made *m) {
    for (int i = 0; i < 3; i++) free((void *)m->buffers[i]);
}

static void make_text(made *m, fuzz_input *in, int kind, int64_t length, int64_t offset, int may_be_null) {
    static uint8_t text[256 * (MOST_ENTRIES + MOST_ROWS + 4)];
    int32_t ends[MOST_ENTRIES + MOST_ROWS + 4] = {0};
    const uint8_t validity[] = {(uint8_t)fuzz_number(in, may_be_null ? 1 : 0), (uint8_t)fuzz_number(in, may_be_null ? 1 : 0), 255, 255, 255};
    for (int64_t i = 0; i < length + offset; i++) {
        size_t size;
        uint8_t *const to = text + ends[i];
        if (kind == 3) { /* a host */
            size = fuzz_number(in, 1) % 8 == 0 ? 20 : 8;
            for (size_t k = 0; k < size; k++) to[k] = (uint8_t)fuzz_number(in, 1);
            if (fuzz_number(in, 1) == 255) size = 9;
        } else {
            size = draw_text(in, kind, to);
        }
        ends[i + 1] = ends[i] + (int32_t)size;
    }
    make(m, length, offset, 3, may_be_null ? validity : NULL, ends, 4, text);
}

static void make_numbers(made *m, fuzz_input *in, int column, int64_t length, int64_t offset) {
    int64_t wide[MOST_ROWS + 4];
    int32_t narrow[MOST_ROWS + 4];
    const int is_wide = *rmq_in_formats[column] == 'l', is_time = column == RMQ_IN_STORE_TIMESTAMP;
    const uint8_t validity[] = {(uint8_t)fuzz_number(in, is_time), 255};
    for (int64_t i = 0; i < length + offset; i++) {
        wide[i] = fuzz_offset(in);
        if (is_time && fuzz_number(in, 1) < 250) wide[i] = 1700000000000 + (wide[i] & 1023);
        narrow[i] = (int32_t)(column == RMQ_IN_QUEUE_ID && fuzz_number(in, 1) < 250 ? wide[i] & 3 : wide[i]);
        if (column == RMQ_IN_SYSFLAG && fuzz_number(in, 1) < 250) narrow[i] &= ~RMQ_SYSFLAG_INNER_BATCH;
    }
    make(m, length, offset, 2, is_time ? validity : NULL, is_wide ? (const void *)wide : narrow, is_wide ? 8 : 4, NULL);
}

typedef struct {
    made batch, columns[RMQ_IN_COLUMNS], entries, names, contents;
    struct ArrowArray *of_batch[RMQ_IN_COLUMNS], *of_map[1], *of_entries[2];
} rows;

static void make_map(rows *to, fuzz_input *in, int64_t length, int64_t offset) {
    int32_t ends[MOST_ROWS + 4] = {0};
    const uint8_t validity[] = {(uint8_t)fuzz_number(in, 1), 255};
    for (int64_t i = 0; i < length + offset; i++) ends[i + 1] = ends[i] + (int32_t)(fuzz_number(in, 1) % 4 * (ends[i] < MOST_ENTRIES - 4));
    const int64_t entries = ends[length + offset], skipped = (int64_t)fuzz_number(in, 1) % 2;
    made *const map = &to->columns[RMQ_IN_PROPERTIES];
    make(map, length, offset, 2, validity, ends, 4, NULL);
    free((void *)map->buffers[1]);
    map->buffers[1] = fuzz_copy(ends, 4 * (size_t)(length + offset + 1));
    make_text(&to->names, in, 1, entries, skipped, 0);
    make_text(&to->contents, in, 2, entries, skipped, 1);
    make(&to->entries, entries, 0, 1, NULL, "", 0, NULL);
    if (skipped) { /* of the struct, not of its children: those begin at their own offset, too */
        to->names.array.offset = to->contents.array.offset = 0;
        to->names.array.length = to->contents.array.length = entries + skipped;
        to->entries.array.offset = skipped;
    }
    to->of_entries[0] = &to->names.array, to->of_entries[1] = &to->contents.array;
    to->entries.array.children = to->of_entries, to->entries.array.n_children = 2;
    to->of_map[0] = &to->entries.array;
    map->array.children = to->of_map, map->array.n_children = 1;
}

static void make_rows(rows *to, fuzz_input *in, int64_t length, int64_t offset) {
    memset(to, 0, sizeof *to);
    for (int i = 0; i < RMQ_IN_COLUMNS; i++) {
        made *const column = &to->columns[i];
        const int kind = i == RMQ_IN_TOPIC ? 0 : i == RMQ_IN_BORN_HOST || i == RMQ_IN_STORE_HOST ? 3 : 2;
        if (i == RMQ_IN_PROPERTIES) make_map(to, in, length, offset);
        else if (*rmq_in_formats[i] == 'u' || *rmq_in_formats[i] == 'z') make_text(column, in, kind, length, offset, rmq_may_be_null(i));
        else make_numbers(column, in, i, length, offset);
        to->of_batch[i] = &column->array;
        if (offset == 0) continue; /* the batch is a slice: its children are longer by what is before it */
        column->array.offset = 0;
        column->array.length = length + offset;
    }
    make(&to->batch, length, offset, 1, NULL, "", 0, NULL);
    to->batch.array.children = to->of_batch;
    to->batch.array.n_children = RMQ_IN_COLUMNS;
}

static void free_rows(rows *r) {
    for (int i = 0; i < RMQ_IN_COLUMNS; i++) free_made(&r->columns[i]);
    free_made(&r->batch), free_made(&r->entries), free_made(&r->names), free_made(&r->contents);
}

static void check_text(const rmq_rows *r, int column, int64_t row, const uint8_t *found, int64_t size) {
    int64_t n;
    const uint8_t *const p = rmq_in_text(&r->columns[column], row, &n);
    CHECK(plain_same(p, n, found, size));
}

/* What a property of this name has to be: of its column, or the last one of the map. */
static int expected_property(const rmq_rows *r, int64_t row, const uint8_t *name, int64_t name_size, const uint8_t **value, int64_t *size) {
    const int named = rmq_which_named(name, name_size);
    if (named >= 0 && rmq_in_valid(&r->columns[rmq_named[named].column], row)) {
        *value = rmq_in_text(&r->columns[rmq_named[named].column], row, size);
        return *size > 0;
    }
    const rmq_in *const map = &r->columns[RMQ_IN_PROPERTIES];
    int found = 0;
    for (int64_t i = rmq_in_i32(map, row); rmq_in_valid(map, row) && i < rmq_in_i32(map, row + 1); i++) {
        int64_t n, m;
        const uint8_t *const p = rmq_in_text(&r->names, i, &n), *const q = rmq_in_text(&r->contents, i, &m);
        if (!plain_same(p, n, name, name_size) || !rmq_in_valid(&r->contents, i) || m == 0 || plain_same(p, n, (const uint8_t *)"__CRC32#", 8)) continue;
        *value = q, *size = m;
        found = 1;
    }
    return found;
}

static void check_properties(const rmq_rows *r, int64_t row, const plain_unit *u) {
    plain_pair pairs[600];
    const uint8_t *value;
    int64_t size, n;
    const int count = plain_pairs(u->properties, u->properties_size, pairs, 600);
    for (int i = 0; i < count; i++) {
        CHECK(expected_property(r, row, pairs[i].name, pairs[i].name_size, &value, &size));
        CHECK(plain_same(value, size, pairs[i].value, pairs[i].value_size));
    }
    const rmq_in *const map = &r->columns[RMQ_IN_PROPERTIES];
    for (int64_t i = rmq_in_i32(map, row); rmq_in_valid(map, row) && i < rmq_in_i32(map, row + 1); i++) {
        const uint8_t *const name = rmq_in_text(&r->names, i, &n);
        char text[300] = {0};
        memcpy(text, name, (size_t)n);
        if (memchr(name, 0, (size_t)n) == NULL) CHECK((plain_find(pairs, count, text) != NULL) == expected_property(r, row, name, n, &value, &size));
    }
    for (int which = 0; which < RMQ_NAMED; which++) {
        const char *const name = (const char *)rmq_named[which].name;
        CHECK((plain_find(pairs, count, name) != NULL) == expected_property(r, row, rmq_named[which].name, rmq_named[which].size, &value, &size));
    }
}

static void check_unit(const rmq_rows *r, int64_t row, const plain_unit *u) {
    const rmq_in *const c = r->columns;
    check_text(r, RMQ_IN_TOPIC, row, u->topic, u->topic_size);
    check_text(r, RMQ_IN_BODY, row, u->body, u->body_size);
    check_text(r, RMQ_IN_BORN_HOST, row, u->born_host, u->born_size);
    check_text(r, RMQ_IN_STORE_HOST, row, u->store_host, u->store_size);
    CHECK(u->queue_id == rmq_in_i32(&c[RMQ_IN_QUEUE_ID], row) && u->flag == rmq_in_i32(&c[RMQ_IN_FLAG], row));
    CHECK((u->sys_flag & ~0x30) == (rmq_in_i32(&c[RMQ_IN_SYSFLAG], row) & ~0x30));
    CHECK(u->born_timestamp == rmq_in_i64(&c[RMQ_IN_BORN_TIMESTAMP], row) && u->queue_offset == 0);
    CHECK(u->store_timestamp == (rmq_in_valid(&c[RMQ_IN_STORE_TIMESTAMP], row) ? rmq_in_i64(&c[RMQ_IN_STORE_TIMESTAMP], row) : 0));
    CHECK(u->reconsume_times == rmq_in_i32(&c[RMQ_IN_RECONSUME_TIMES], row));
    CHECK(u->prepared_offset == rmq_in_i64(&c[RMQ_IN_PREPARED_TRANSACTION_OFFSET], row));
    check_properties(r, row, u);
}

/* The units, placed: a log that dispatches to the same. */
static void place(uint8_t *units, int64_t size, int64_t count, int flags) {
    rmq_dispatcher *const placed = fuzz_dispatcher(flags & 1, flags & 2, flags & 4), *const again = fuzz_dispatcher(flags & 1, flags & 2, flags & 4);
    rmq_walk w = {units, size, 5000, 5000, 5000 + size + 8, 1, 5000, 0, 0, {0, 0}, NULL}, v = w;
    CHECK(rmq_place(placed, &w, 1700000000000, 0) == 0 && w.count == count && w.status == RMQ_LIMIT);
    v.stop = INT64_MAX;
    CHECK(rmq_dispatch(again, &v, count) == 0 && v.count == count);
    fuzz_check_dispatched(placed, again);
    rmq_free_dispatcher(placed);
    rmq_free_dispatcher(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, size};
    static rows made_rows;
    rmq_rows r;
    check_schema();
    const int flags = (int)fuzz_number(&in, 1);
    const int64_t length = (int64_t)fuzz_number(&in, 1) % (MOST_ROWS + 1), offset = (int64_t)fuzz_number(&in, 1) % 3;
    make_rows(&made_rows, &in, length, offset);
    CHECK(rmq_read_batch(&r, &made_rows.batch.array) == 0);
    const int64_t bound = rmq_encode_bound(&r);
    uint8_t *const units = fuzz_memory((size_t)bound + RMQ_SLACK), *const others = fuzz_memory((size_t)bound + RMQ_SLACK);
    int32_t sizes[MOST_ROWS], other_sizes[MOST_ROWS];
    rmq_refusal why = {0}, other_why = {0};
    rmq_encoder e = {.allow_v2 = flags >> 3 & 1, .topic_size = -1}, other = e;
    const int64_t total = rmq_encode(&e, &r, units, sizes, &why);
    CHECK(total == rmq_encode_on(&other, &r, others, other_sizes, &other_why, RMQ_ANY_MACHINE) && total <= bound);
    CHECK(why.reason == other_why.reason && why.row == other_why.row && why.column == other_why.column);
    if (total < 0) CHECK(why.reason > 0 && why.row >= 0 && why.row < length && why.column >= 0 && why.column < RMQ_IN_COLUMNS);
    if (total >= 0) {
        CHECK(memcmp(units, others, (size_t)total) == 0);
        int64_t at = 0;
        for (int64_t row = 0; row < length; at += sizes[row++]) {
            plain_unit u;
            CHECK(plain_is_unit(units + at, total - at, 0, INT64_MAX, 1, &u) && u.total == sizes[row]);
            check_unit(&r, row, &u);
        }
        CHECK(at == total);
        uint8_t *const log = fuzz_copy(units, (size_t)total);
        place(log, total, length, flags);
        free(log);
    }
    free(units);
    free(others);
    free_rows(&made_rows);
    return 0;
}
