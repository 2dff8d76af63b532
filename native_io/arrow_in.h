/* Arrays that come in by Arrow's C data interface. Their own fields are checked before use; the lengths of their
 * buffers cannot be checked, and are the producer's promise. */
#ifndef RMQ_ARROW_IN_H
#define RMQ_ARROW_IN_H

#include <stdint.h>
#include <string.h>

#include "arrow_abi.h"

/* Some elements of an array; number 0 is the first one asked for. */
typedef struct {
    const uint8_t *validity; /* NULL: no nulls */
    int64_t first;           /* the position of element 0 in the buffers */
    const void *values;      /* numbers, or the int32 offsets of text and map */
    const uint8_t *data, *data_end;
} rmq_in;

static inline int rmq_is_valid(const uint8_t *validity, int64_t i) {
    return validity == NULL || (validity[i / 8] >> i % 8 & 1);
}
static inline int rmq_in_valid(const rmq_in *c, int64_t row) { return rmq_is_valid(c->validity, c->first + row); }
static inline int32_t rmq_in_i32(const rmq_in *c, int64_t row) { return ((const int32_t *)c->values)[c->first + row]; }
static inline int64_t rmq_in_i64(const rmq_in *c, int64_t row) { return ((const int64_t *)c->values)[c->first + row]; }

static inline const uint8_t *rmq_in_text(const rmq_in *c, int64_t row, int64_t *size) {
    const int32_t begin = rmq_in_i32(c, row);
    *size = rmq_in_i32(c, row + 1) - begin;
    return c->data + begin;
}

static int rmq_has_format(const struct ArrowSchema *schema, const char *format, int64_t children) {
    return schema->format != NULL && strcmp(schema->format, format) == 0 && schema->n_children == children &&
           schema->dictionary == NULL;
}

/* Elements [begin, begin + n) of an array of text, map or numbers; -1 when there are not so many, or its offsets lie. */
static int rmq_read_column(rmq_in *c, const struct ArrowArray *array, int64_t begin, int64_t n, char format) {
    static const uint8_t nothing[1];
    const int is_text = format == 'u' || format == 'z';
    if (array->n_buffers != (is_text ? 3 : 2) || array->offset < 0 || array->length < begin + n) return -1;
    c->validity = array->null_count == 0 ? NULL : array->buffers[0];
    c->first = array->offset + begin;
    c->values = array->buffers[1];
    c->data = c->data_end = nothing;
    if (n == 0) return 0;
    if (c->values == NULL) return -1;
    if (!is_text && format != '+') return 0;
    const int32_t *offsets = (const int32_t *)c->values + c->first;
    int backwards = offsets[0] < 0;
    for (int64_t i = 0; i < n; i++) backwards |= offsets[i + 1] < offsets[i];
    if (backwards) return -1;
    if (is_text && offsets[n] > 0) {
        if (array->buffers[2] == NULL) return -1;
        c->data = array->buffers[2];
        c->data_end = c->data + offsets[n];
    }
    return 0;
}

#endif
