/* Does a body contain some bytes, once it is decompressed? */
#ifndef RMQ_BODY_SEARCH_H
#define RMQ_BODY_SEARCH_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "expand.h"
#include "unit.h"

/* Of the C library, which shows it to programs that ask for GNU's functions. Its time is linear, whatever the bytes are. */
extern void *memmem(const void *, size_t, const void *, size_t);

/* Says of a body that is not decompressed here whether it is to be selected. */
typedef int (*rmq_body_judge)(void *asked, const uint8_t *body, int64_t n, int32_t sys_flag);

typedef struct {
    rmq_expander *expander;
    uint8_t *room; /* for a decompressed body */
    int64_t size;
    const uint8_t *of; /* the body that is in the room, where it lies as it is stored; NULL: none */
    int64_t found;     /* its bytes in the room */
    rmq_body_judge judge;
    void *asked;
} rmq_body_search;

/* NULL when there is no memory. */
static rmq_body_search *rmq_new_body_search(const rmq_zstd_library *library, rmq_body_judge judge, void *asked) {
    rmq_body_search *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->judge = judge;
    s->asked = asked;
    s->expander = rmq_new_expander(library);
    if (s->expander == NULL) {
        free(s);
        return NULL;
    }
    return s;
}

static void rmq_free_body_search(rmq_body_search *s) {
    if (s == NULL) return;
    rmq_free_expander(s->expander);
    free(s->room);
    free(s);
}

/* Decompress a body into s->room: its size, or -1 where it is left to others. */
static int64_t rmq_expand_to_search(rmq_body_search *s, const rmq_unit *u) {
    int64_t wanted = RMQ_USUAL_GAIN * (int64_t)u->body_length + 1024;
    s->of = NULL;
    while (1) {
        if (wanted > RMQ_MOST_EXPANDED) wanted = RMQ_MOST_EXPANDED;
        if (s->size < wanted) {
            uint8_t *const room = realloc(s->room, (size_t)wanted);
            if (room == NULL) return -1;
            s->room = room;
            s->size = wanted;
        }
        const int status = rmq_expand(s->expander, u->sys_flag, u->body, u->body_length, s->room, s->size, &s->found);
        if (status == RMQ_EXPANDED) {
            s->of = u->body;
            return s->found;
        }
        if (status != RMQ_NO_ROOM || s->size >= RMQ_MOST_EXPANDED) return -1;
        wanted = s->size > RMQ_MOST_EXPANDED / 4 ? RMQ_MOST_EXPANDED : 4 * s->size;
    }
}

enum { RMQ_FIRST_TRIES = 8 }; /* places that begin as the text does, before memmem is called: it makes a table first */

static int rmq_holds(const uint8_t *p, int64_t n, const uint8_t *text, int64_t size) {
    if (size == 0) return 1;
    for (int tries = 0; n >= size; tries++) {
        if (tries == RMQ_FIRST_TRIES) return memmem(p, (size_t)n, text, (size_t)size) != NULL;
        const uint8_t *const at = memchr(p, text[0], (size_t)(n - size + 1));
        if (at == NULL) return 0;
        if (memcmp(at, text, (size_t)size) == 0) return 1;
        n -= at + 1 - p;
        p = at + 1;
    }
    return 0;
}

static int rmq_body_contains(rmq_body_search *s, const rmq_unit *u, const uint8_t *needle, int64_t n) {
    const uint8_t *body = u->body;
    int64_t size = u->body_length;
    if (u->sys_flag & RMQ_SYSFLAG_COMPRESSED && size > 0) {
        size = rmq_expand_to_search(s, u);
        if (size < 0) return s->judge(s->asked, u->body, u->body_length, u->sys_flag);
        body = s->room;
    }
    return rmq_holds(body, size, needle, n);
}

#endif
