/* Conditions on a message's own fields; all of them must hold.
 *
 * A condition lists values of a field, and holds where the field has one of them. A condition on several fields holds
 * if one of them has such a value. Values are compared as the columns show them (decode.h), but by the unit's own
 * bytes: nothing is decoded. */
#ifndef RMQ_CONDITIONS_H
#define RMQ_CONDITIONS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "body_search.h"
#include "light_queues.h"
#include "memory.h"
#include "properties.h"
#include "unit.h"
#include "utf8.h"

/* The fields, and how their values are given. The names are _FIELDS's in _read.pyx, in this order. */
enum {
    RMQ_BY_QUEUE_OFFSET, /* numbers: 8 bytes, as in the unit */
    RMQ_BY_PHYSICAL_OFFSET,
    RMQ_BY_STORE_TIMESTAMP,
    RMQ_BY_OFFSET_MSG_ID, /* the store host's bytes and 8 of the physical offset: the column has these in hex */
    RMQ_BY_TAGS,          /* UTF-8 */
    RMQ_BY_KEYS,
    RMQ_BY_WORD, /* one of the words of KEYS, which spaces separate */
    RMQ_BY_UNIQ_KEY,
    RMQ_BY_LIGHT_QUEUE, /* one of the message's light queues, with bounds of its offset there */
    RMQ_BY_PROPERTY,    /* name 0x01 value: a single one */
    RMQ_BY_BODY,        /* bytes that the body contains: a single text */
    RMQ_BY_PROPERTIES,  /* what a judge says of the values of some properties, whose names are the values */
};

enum { RMQ_MOST_JUDGED_PROPERTIES = 64 };

/* Says of the values of properties, with NULL for those that are missing, whether their message is selected. */
typedef int (*rmq_properties_judge)(void *asked, const rmq_text *texts, int64_t count);

typedef struct {
    int64_t at, size; /* in rmq_values.bytes */
} rmq_value;

typedef struct {
    int64_t least, most; /* both included; empty when least > most */
} rmq_bounds;

static inline int rmq_within(rmq_bounds b, int64_t v) { return b.least <= v && v <= b.most; }

/* Values of a field: in order of their size, and of one size in order of their bytes. */
typedef struct {
    int32_t condition; /* its number: those of one condition stand together */
    int32_t field;
    rmq_list spans, bytes; /* of rmq_value; of them all */
    rmq_list bounds; /* of rmq_bounds: of each value, where the field is the light queue */
    int64_t longest;
    rmq_body_search *body; /* where the field is the body */
    rmq_properties_judge judge; /* where the field is properties */
    void *asked;
    uint8_t *shown; /* space for a text as shown; NULL where no value has U+FFFD: texts then differ if bytes do */
} rmq_values;

/* Values of one more field, or NULL when there is no memory. */
static rmq_values *rmq_add_values(rmq_list *conditions, int32_t condition, int32_t field) {
    if (rmq_list_reserve(conditions, 1, sizeof(rmq_values)) != 0) return NULL;
    rmq_values *v = (rmq_values *)conditions->data + conditions->size++;
    memset(v, 0, sizeof *v);
    v->condition = condition;
    v->field = field;
    return v;
}

/* Add a value, which comes after all existing ones. 0, or -1 when there is no memory. */
static int rmq_add_value(rmq_values *v, const uint8_t *p, int64_t n) {
    RMQ_TRY(rmq_list_reserve(&v->spans, 1, sizeof(rmq_value)));
    RMQ_TRY(rmq_list_reserve(&v->bytes, n + 1, 1));
    memcpy((uint8_t *)v->bytes.data + v->bytes.size, p, (size_t)n);
    ((rmq_value *)v->spans.data)[v->spans.size] = (rmq_value){v->bytes.size, n};
    v->spans.size += 1;
    v->bytes.size += n;
    v->longest = n;
    return 0;
}

/* From this call on texts are compared as columns show them. 0, or -1 when there is no memory. */
static int rmq_compare_as_shown(rmq_values *v) {
    v->shown = malloc((size_t)v->longest + 1);
    return v->shown == NULL ? -1 : 0;
}

static void rmq_free_conditions(rmq_list *conditions) {
    for (int64_t i = 0; i < conditions->size; i++) {
        rmq_values *v = (rmq_values *)conditions->data + i;
        free(v->spans.data);
        free(v->bytes.data);
        free(v->bounds.data);
        free(v->shown);
        rmq_free_body_search(v->body);
    }
    free(conditions->data);
}

/* The number of a value, or -1. */
static inline int64_t rmq_find_value(const rmq_values *v, const uint8_t *p, int64_t n) {
    int64_t low = 0, high = v->spans.size;
    if (v->shown != NULL) {
        if ((n = rmq_show(p, n, v->shown, v->longest)) < 0) return -1;
        p = v->shown;
    }
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const rmq_value *value = (const rmq_value *)v->spans.data + middle;
        int64_t order = value->size - n;
        if (order == 0) order = memcmp((const uint8_t *)v->bytes.data + value->at, p, (size_t)n);
        if (order == 0) return middle;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

static inline int rmq_is_value(const rmq_values *v, const uint8_t *p, int64_t n) { return rmq_find_value(v, p, n) >= 0; }

/* Bounds of the value that was added last. 0, or -1 when there is no memory. */
static int rmq_add_bounds(rmq_values *v, rmq_bounds bounds) {
    RMQ_TRY(rmq_list_reserve(&v->bounds, 1, sizeof(rmq_bounds)));
    ((rmq_bounds *)v->bounds.data)[v->bounds.size++] = bounds;
    return 0;
}

/* Is a message in one of the light queues, at an offset that is selected there? */
__attribute__((noinline)) static int rmq_is_in_light_queue(const rmq_values *v, const rmq_unit *u) {
    rmq_light light = rmq_find_lights(u);
    while (rmq_next_light(&light)) {
        const int64_t found = rmq_find_value(v, light.name, light.name_size);
        if (found >= 0 && rmq_within(((const rmq_bounds *)v->bounds.data)[found], light.offset)) return 1;
    }
    return 0;
}

static inline int rmq_has_word(const rmq_values *v, const uint8_t *p, int64_t n) {
    const uint8_t *const end = p + n;
    while (p < end) {
        const uint8_t *space = memchr(p, ' ', (size_t)(end - p));
        if (space == NULL) space = end;
        if (space > p && rmq_is_value(v, p, space - p)) return 1;
        p = space < end ? space + 1 : end;
    }
    return 0;
}

/* Has a property a value? A missing property is null, which is no value. */
static inline int rmq_is_property(const rmq_values *v, rmq_text text) {
    return text.bytes != NULL && rmq_is_value(v, text.bytes, text.size);
}

static inline uint8_t rmq_lower(uint8_t c) { return c >= 'A' && c <= 'Z' ? c | 0x20 : c; }

/* Are two names the same but for the case of ASCII letters? */
static inline int rmq_same_but_for_case(const uint8_t *a, const uint8_t *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (rmq_lower(a[i]) != rmq_lower(b[i])) return 0;
    return 1;
}

/* Has the message a property of this name and value? The case of names does not count; the last one of a name does. */
__attribute__((noinline)) static int rmq_has_property(const rmq_values *v, const rmq_unit *u) {
    if (v->spans.size == 0) return 0;
    const rmq_value *const span = v->spans.data;
    const uint8_t *const name = (const uint8_t *)v->bytes.data + span->at;
    const uint8_t *const split = memchr(name, 1, (size_t)span->size);
    const uint8_t *p = u->properties, *const stop = p + u->properties_length;
    if (split == NULL) return 0;
    const int64_t name_size = split - name, value_size = span->size - name_size - 1;
    int holds = 0;
    while (p < stop) {
        const uint8_t *end = memchr(p, 2, (size_t)(stop - p));
        if (end == NULL) end = stop;
        if (end - p > name_size + 1 && p[name_size] == 1 && rmq_same_but_for_case(p, name, name_size)) {
            const uint8_t *value = p + name_size + 1;
            int64_t n = end - value;
            if (v->shown != NULL) {
                n = rmq_show(value, n, v->shown, v->longest);
                value = v->shown;
            }
            holds = n == value_size && memcmp(value, split + 1, (size_t)n) == 0;
        }
        p = end < stop ? end + 1 : stop;
    }
    return holds;
}

/* What the judge says of the last property of each name, in the order of the names. */
__attribute__((noinline)) static int rmq_are_selected(const rmq_values *v, const rmq_unit *u) {
    rmq_text texts[RMQ_MOST_JUDGED_PROPERTIES] = {{0}};
    const rmq_value *const names = v->spans.data;
    const int64_t count = v->spans.size < RMQ_MOST_JUDGED_PROPERTIES ? v->spans.size : RMQ_MOST_JUDGED_PROPERTIES;
    const uint8_t *p = u->properties, *const stop = p + u->properties_length;
    while (p < stop) {
        const uint8_t *end = memchr(p, 2, (size_t)(stop - p));
        if (end == NULL) end = stop;
        for (int64_t i = 0; i < count; i++) {
            const int64_t n = names[i].size;
            if (end - p > n + 1 && p[n] == 1 && memcmp(p, (const uint8_t *)v->bytes.data + names[i].at, (size_t)n) == 0) {
                texts[i].bytes = p + n + 1;
                texts[i].size = end - p - n - 1;
                break;
            }
        }
        p = end < stop ? end + 1 : stop;
    }
    return v->judge(v->asked, texts, count);
}

/* Does the body contain the text? */
__attribute__((noinline)) static int rmq_has_in_body(const rmq_values *v, const rmq_unit *u) {
    const rmq_value *const span = v->spans.data;
    return v->spans.size > 0 && rmq_body_contains(v->body, u, (const uint8_t *)v->bytes.data + span->at, span->size);
}

/* Has the unit's field one of the values? `labels` are the unit's properties, once found (*known). */
static inline int rmq_has_value(const rmq_values *v, const rmq_unit *u, rmq_labels *labels, int *known) {
    uint8_t id[20 + 8];
    if (v->field >= RMQ_BY_TAGS && v->field <= RMQ_BY_UNIQ_KEY && !*known) {
        rmq_find_labels(u->properties, u->properties_length, labels);
        *known = 1;
    }
    switch (v->field) {
    case RMQ_BY_QUEUE_OFFSET:
        rmq_put_i64(id, u->queue_offset);
        return rmq_is_value(v, id, 8);
    case RMQ_BY_PHYSICAL_OFFSET: return rmq_is_value(v, u->start + RMQ_AT_PHYSICAL_OFFSET, 8);
    case RMQ_BY_STORE_TIMESTAMP: return rmq_is_value(v, u->store_timestamp, 8);
    case RMQ_BY_OFFSET_MSG_ID:
        memcpy(id, u->store_timestamp + 8, (size_t)u->store_host_size);
        memcpy(id + u->store_host_size, u->start + RMQ_AT_PHYSICAL_OFFSET, 8);
        return rmq_is_value(v, id, u->store_host_size + 8);
    case RMQ_BY_TAGS: return rmq_is_property(v, labels->tags);
    case RMQ_BY_KEYS: return rmq_is_property(v, labels->keys);
    case RMQ_BY_WORD: return labels->keys.bytes != NULL && rmq_has_word(v, labels->keys.bytes, labels->keys.size);
    case RMQ_BY_UNIQ_KEY: return rmq_is_property(v, labels->uniq_key);
    case RMQ_BY_PROPERTY: return rmq_has_property(v, u);
    case RMQ_BY_BODY: return rmq_has_in_body(v, u);
    case RMQ_BY_PROPERTIES: return rmq_are_selected(v, u);
    default: return rmq_is_in_light_queue(v, u);
    }
}

/* Do all conditions (a list of rmq_values) hold? They are tested in their order, up to the first that does not; the properties
 * are walked once, and only when they are asked for. */
static inline int rmq_all_hold(const rmq_list *conditions, const rmq_unit *u) {
    const rmq_values *const all = conditions->data;
    rmq_labels labels;
    int known = 0;
    for (int64_t i = 0; i < conditions->size;) {
        const int32_t condition = all[i].condition;
        int holds = 0;
        for (; i < conditions->size && all[i].condition == condition; i++)
            holds = holds || rmq_has_value(&all[i], u, &labels, &known);
        if (!holds) return 0;
    }
    return 1;
}

#endif
