/* Consumers' offsets, from the JSON that a broker writes: entries "topic@group": {queueId: offset, ...}, with keys that
 * are numbers, quoted or not. The text comes in pieces, and an entry counts once it is whole. */
#ifndef RMQ_CONSUMER_OFFSETS_H
#define RMQ_CONSUMER_OFFSETS_H

#include <stdint.h>
#include <string.h>

#include "queues.h"

enum rmq_entries_status {
    RMQ_ENTRIES_MORE, /* the text ends within an entry, or there is no room for it */
    RMQ_ENTRIES_END,  /* the brace after the last entry has come */
    RMQ_ENTRIES_ODD,  /* something that a broker does not write so; `at` says where its entry begins */
};
enum { RMQ_MOST_DIGITS = 18 }; /* of a number: what has as many fits */

/* Where the reading of some text stands. Arrays are the caller's. */
typedef struct {
    const uint8_t *text;
    int64_t size;
    int64_t at;     /* behind the last whole entry and its comma */
    int is_begun;   /* whether an entry has to follow, as there was a comma */
    int64_t *names; /* two for each entry: where its name begins, and where it ends */
    int64_t *counts; /* queues of each entry */
    int64_t entries, most_entries;
    int64_t *queue_ids, *offsets;
    int64_t queues, most_queues;
} rmq_entries;

static inline int64_t rmq_past_blanks(const rmq_entries *e, int64_t at) {
    while (at < e->size && (e->text[at] == ' ' || (e->text[at] >= '\t' && e->text[at] <= '\r' && e->text[at] != '\v' &&
                                                   e->text[at] != '\f'))) {
        at++;
    }
    return at;
}

/* Pass a character that has to be there, and the blanks before it. */
static inline int rmq_pass(const rmq_entries *e, int64_t *at, uint8_t character) {
    *at = rmq_past_blanks(e, *at);
    if (*at == e->size) return RMQ_ENTRIES_MORE;
    if (e->text[*at] != character) return RMQ_ENTRIES_ODD;
    ++*at;
    return RMQ_ENTRIES_END;
}

/* Take the digits of a whole number without leading zeros. */
static inline int rmq_take_number(const rmq_entries *e, int64_t *at, int64_t *number) {
    const int64_t start = *at;
    int64_t found = 0;
    while (*at < e->size && e->text[*at] >= '0' && e->text[*at] <= '9') {
        if (*at - start == RMQ_MOST_DIGITS) return RMQ_ENTRIES_ODD;
        found = 10 * found + (e->text[(*at)++] - '0');
    }
    if (*at == e->size) return RMQ_ENTRIES_MORE;
    if (*at == start || (e->text[start] == '0' && *at - start > 1)) return RMQ_ENTRIES_ODD;
    *number = found;
    return RMQ_ENTRIES_END;
}

/* Take a queueId and its offset, -1 for any that is below 0. */
static inline int rmq_take_queue(rmq_entries *e, int64_t *at) {
    int64_t queue_id, offset;
    int status;
    *at = rmq_past_blanks(e, *at);
    const int is_quoted = *at < e->size && e->text[*at] == '"';
    *at += is_quoted;
    if ((status = rmq_take_number(e, at, &queue_id)) != RMQ_ENTRIES_END) return status;
    if (is_quoted && e->text[(*at)++] != '"') return RMQ_ENTRIES_ODD;
    if ((status = rmq_pass(e, at, ':')) != RMQ_ENTRIES_END) return status;
    *at = rmq_past_blanks(e, *at);
    const int is_below = *at < e->size && e->text[*at] == '-';
    *at += is_below;
    if ((status = rmq_take_number(e, at, &offset)) != RMQ_ENTRIES_END) return status;
    if (queue_id > INT32_MAX) return RMQ_ENTRIES_ODD;
    if (e->queues == e->most_queues) return RMQ_ENTRIES_MORE;
    e->queue_ids[e->queues] = queue_id;
    e->offsets[e->queues++] = is_below && offset > 0 ? -1 : offset;
    return RMQ_ENTRIES_END;
}

/* Take the queues of an entry, up to its closing brace. */
static inline int rmq_take_queues(rmq_entries *e, int64_t *at) {
    int status;
    if ((status = rmq_pass(e, at, '}')) != RMQ_ENTRIES_ODD) return status;
    for (;;) {
        if ((status = rmq_take_queue(e, at)) != RMQ_ENTRIES_END) return status;
        if ((status = rmq_pass(e, at, '}')) != RMQ_ENTRIES_ODD) return status;
        if ((status = rmq_pass(e, at, ',')) != RMQ_ENTRIES_END) return status;
    }
}

/* Take an entry's name, with escapes as they stand. */
static inline int rmq_take_name(rmq_entries *e, int64_t *at) {
    int status = rmq_pass(e, at, '"');
    if (status != RMQ_ENTRIES_END) return status;
    if (e->entries == e->most_entries) return RMQ_ENTRIES_MORE;
    e->names[2 * e->entries] = *at;
    for (; *at < e->size && e->text[*at] != '"'; ++*at) {
        if (e->text[*at] < ' ') return RMQ_ENTRIES_ODD;
        *at += e->text[*at] == '\\';
    }
    if (*at >= e->size) return RMQ_ENTRIES_MORE;
    e->names[2 * e->entries + 1] = (*at)++;
    return RMQ_ENTRIES_END;
}

/* Take all whole entries of the text. */
static int rmq_take_entries(rmq_entries *e) {
    for (;;) {
        int64_t at = e->at;
        const int64_t before = e->queues;
        int status = e->is_begun ? RMQ_ENTRIES_ODD : rmq_pass(e, &at, '}');
        if (status == RMQ_ENTRIES_END) e->at = at;
        if (status != RMQ_ENTRIES_ODD) return status;
        if ((status = rmq_take_name(e, &at)) == RMQ_ENTRIES_END && (status = rmq_pass(e, &at, ':')) == RMQ_ENTRIES_END &&
            (status = rmq_pass(e, &at, '{')) == RMQ_ENTRIES_END) {
            status = rmq_take_queues(e, &at);
        }
        int is_last = 0;
        if (status == RMQ_ENTRIES_END) {
            status = rmq_pass(e, &at, '}');
            is_last = status == RMQ_ENTRIES_END;
            if (status == RMQ_ENTRIES_ODD) status = rmq_pass(e, &at, ',');
        }
        if (status != RMQ_ENTRIES_END) {
            e->queues = before;
            return status;
        }
        e->counts[e->entries++] = e->queues - before;
        e->at = at;
        e->is_begun = 1;
        if (is_last) return RMQ_ENTRIES_END;
    }
}

/* The texts that names have before their first '@', or after it, each with a number: those of queues with id 0. */
static inline int32_t rmq_number_of_text(rmq_queues *texts, const uint8_t *text, int64_t size) {
    const int32_t known = rmq_find_queue(texts, text, (int32_t)size, 0);
    return known >= 0 ? known : rmq_add_queue(texts, text, (int32_t)size, 0);
}

/* The numbers of the topic and of the group in each name, topic@group, and whether the name has an '@'; else its group is
 * the empty text. Returns 0, or -1 when there is no memory. */
static inline int rmq_number_names(rmq_queues *topics, rmq_queues *groups, const uint8_t *text, const int64_t *names, int64_t count,
                                   int32_t *topic_of, int32_t *group_of, int32_t *has_at) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *const name = text + names[2 * i];
        const int64_t size = names[2 * i + 1] - names[2 * i];
        const uint8_t *const at = memchr(name, '@', (size_t)size);
        const int64_t topic = at == NULL ? size : at - name;
        has_at[i] = at != NULL;
        topic_of[i] = rmq_number_of_text(topics, name, topic);
        group_of[i] = rmq_number_of_text(groups, name + topic + has_at[i], size - topic - has_at[i]);
        if (topic_of[i] < 0 || group_of[i] < 0) return -1;
    }
    return 0;
}

#endif
