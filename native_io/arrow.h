/* The decoded columns handed over by Arrow's C data interface: one struct array, whose children own their buffers. */
#ifndef RMQ_ARROW_H
#define RMQ_ARROW_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_abi.h"
#include "decode.h"

/* Frees the children that no consumer took, and everything that rmq_new_array allocated. */
static void rmq_release_array(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        struct ArrowArray *child = array->children[i];
        if (child->release != NULL) child->release(child);
        free(child);
    }
    for (int64_t i = 0; i < array->n_buffers; i++) rmq_put_buffer(array->buffers[i]);
    free(array->private_data); /* buffers and children pointers, in one piece */
    array->release = NULL;
}

/* An array of n_buffers empty buffers and n_children zeroed children; -1 when there is no memory, and nothing is kept. */
static int rmq_new_array(struct ArrowArray *array, int64_t length, int64_t n_buffers, int64_t n_children) {
    memset(array, 0, sizeof *array);
    void **pointers = calloc((size_t)(n_buffers + n_children + 1), sizeof(void *));
    if (pointers == NULL) return -1;
    array->length = length;
    array->n_buffers = n_buffers;
    array->buffers = (const void **)pointers;
    array->children = (struct ArrowArray **)(pointers + n_buffers);
    array->private_data = pointers;
    array->release = rmq_release_array;
    for (int64_t i = 0; i < n_children; i++) {
        array->children[i] = calloc(1, sizeof(struct ArrowArray));
        if (array->children[i] == NULL) {
            rmq_release_array(array);
            return -1;
        }
        array->n_children = i + 1;
    }
    return 0;
}

/* Hand over a buffer of which `size` bytes are in use. */
static const void *rmq_take(rmq_buffer *b, int64_t size) {
    const void *data = b->data;
    b->usual = rmq_usual(b->usual, size);
    b->data = NULL;
    b->size = b->capacity = 0;
    return data;
}

static int rmq_export_text(struct ArrowArray *array, int64_t length, rmq_column *c) {
    RMQ_TRY(rmq_new_array(array, length, 3, 0));
    array->buffers[1] = rmq_take(&c->values, 4 * (length + 1));
    array->buffers[2] = rmq_take(&c->data, c->data.size);
    return 0;
}

static int rmq_export_map(struct ArrowArray *array, rmq_decoder *d) {
    RMQ_TRY(rmq_new_array(array, d->rows, 2, 1));
    array->buffers[1] = rmq_take(&d->columns[RMQ_PROPERTIES].values, 4 * (d->rows + 1));
    RMQ_TRY(rmq_new_array(array->children[0], d->entries, 1, 2));
    RMQ_TRY(rmq_export_text(array->children[0]->children[0], d->entries, &d->names));
    return rmq_export_text(array->children[0]->children[1], d->entries, &d->contents);
}

static int rmq_export_column(struct ArrowArray *array, rmq_decoder *d, int column) {
    rmq_column *c = &d->columns[column];
    if (rmq_layout[column] == RMQ_MAP) {
        RMQ_TRY(rmq_export_map(array, d));
    } else if (rmq_layout[column] == RMQ_TEXT) {
        RMQ_TRY(rmq_export_text(array, d->rows, c));
    } else {
        RMQ_TRY(rmq_new_array(array, d->rows, 2, 0));
        array->buffers[1] = rmq_take(&c->values, rmq_row_width(column) * d->rows);
    }
    if (c->nulls > 0) { /* the bitmap reaches to the last null only: the rows after it are valid */
        const int64_t bytes = (d->rows + 7) / 8;
        RMQ_TRY(rmq_reserve(&c->validity, bytes));
        memset(c->validity.data + c->validity.size, 0xFF, (size_t)(bytes - c->validity.size));
        array->buffers[0] = rmq_take(&c->validity, bytes);
    }
    array->null_count = c->nulls;
    c->nulls = 0;
    return 0;
}

/* All rows so far as a struct array of `n` columns, in the order asked for; the decoder is empty afterwards.
 * On an error the array is released. */
static int rmq_export(struct ArrowArray *array, rmq_decoder *d, const int *order, int64_t n) {
    /* A consumer may ask for a first offset and for data even where there is no row. */
    RMQ_TRY(rmq_reserve_rows(d, d->rows));
    RMQ_TRY(rmq_new_array(array, d->rows, 1, n));
    for (int64_t i = 0; i < n; i++) {
        const int status = rmq_export_column(array->children[i], d, order[i]);
        if (status != 0) {
            rmq_release_array(array);
            return status;
        }
    }
    /* Decompressed bodies end behind the one with which they are enough: a little room more, and nothing is moved. */
    rmq_buffer *const bodies = &d->columns[RMQ_BODY].data;
    if (d->expander != NULL && bodies->usual > d->enough / 2 && bodies->usual < d->enough + d->enough / 8)
        bodies->usual = d->enough + d->enough / 8;
    d->usual = rmq_usual(d->usual, d->rows);
    d->rows = d->room = d->entries = d->compressed = d->unexpanded.size = 0;
    d->splitter.high = 0;
    return 0;
}

static void rmq_free_decoder(rmq_decoder *d) {
    rmq_pool *pool = d->names.data.pool;
    for (int i = 0; i < RMQ_COLUMNS + 2; i++) {
        rmq_column *c = rmq_any_column(d, i);
        rmq_put_buffer(c->validity.data);
        rmq_put_buffer(c->values.data);
        rmq_put_buffer(c->data.data);
    }
    free(d->unexpanded.data);
    rmq_free_expander(d->expander);
    free(d);
    rmq_leave_pool(pool);
}

#endif
