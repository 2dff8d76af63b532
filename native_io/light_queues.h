/* The light queues of a message (LMQ): properties INNER_MULTI_DISPATCH and INNER_MULTI_QUEUE_OFFSET have their names and
 * the message's offset in each of them, both with commas between them. Such a queue has queueId 0.
 * Source: org.apache.rocketmq.store.ConsumeQueue (multiDispatchLmqQueue), queue.MultiDispatchUtils. */
#ifndef RMQ_LIGHT_QUEUES_H
#define RMQ_LIGHT_QUEUES_H

#include <stdint.h>
#include <string.h>

#include "properties.h"
#include "schedule.h"
#include "unit.h"

enum { RMQ_LIGHT_PREFIX_SIZE = 5, RMQ_MOST_DIGITS = 19 }; /* of "%LMQ%"; of an offset */

/* What is left of both lists, and the light queue that rmq_next_light has found. */
typedef struct {
    rmq_text names, offsets;
    const uint8_t *name;
    int64_t name_size, offset;
} rmq_light;

/* A list without the empty elements at its end, as Java's split() leaves them out. */
static inline rmq_text rmq_without_last_commas(rmq_text list) {
    while (list.size > 0 && list.bytes[list.size - 1] == ',') list.size -= 1;
    return list;
}

/* Split the first element off a list; NULL in `bytes`: there is none. */
static inline rmq_text rmq_first_of(rmq_text *list) {
    rmq_text first = {NULL, 0};
    if (list->bytes == NULL) return first;
    const uint8_t *const comma = memchr(list->bytes, ',', (size_t)list->size);
    first = (rmq_text){list->bytes, comma == NULL ? list->size : comma - list->bytes};
    *list = comma == NULL ? (rmq_text){NULL, 0} : (rmq_text){comma + 1, list->size - first.size - 1};
    return first;
}

static inline int64_t rmq_count_of(rmq_text list) {
    int64_t count = list.bytes != NULL;
    for (int64_t i = 0; i < list.size; i++) count += list.bytes[i] == ',';
    return count;
}

/* An offset in decimal digits; -1 where the text is none. */
static inline int64_t rmq_light_offset(rmq_text text) {
    uint64_t value = 0;
    if (text.size == 0 || text.size > RMQ_MOST_DIGITS) return -1;
    for (int64_t i = 0; i < text.size; i++) {
        if (text.bytes[i] < '0' || text.bytes[i] > '9') return -1;
        value = 10 * value + (uint64_t)(text.bytes[i] - '0');
    }
    return value > INT64_MAX ? -1 : (int64_t)value;
}

/* Are messages of a topic dispatched to light queues? Not what is in no queue at all, retried and delayed messages, and
 * those of topics rmq_sys_... */
static inline int rmq_is_dispatched(const uint8_t *topic, int64_t size, int32_t sys_flag) {
    static const char *const without[] = {"%RETRY%", "rmq_sys_"};
    const int32_t type = sys_flag & RMQ_SYSFLAG_TRANSACTION_TYPE;
    if (type == RMQ_SYSFLAG_TRANSACTION_PREPARED || type == RMQ_SYSFLAG_TRANSACTION_ROLLBACK) return 0;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (size >= (int64_t)strlen(without[i]) && memcmp(topic, without[i], strlen(without[i])) == 0) return 0;
    return !rmq_is_schedule_topic(topic, size);
}

static inline int rmq_is_light(rmq_text name) {
    return name.size >= RMQ_LIGHT_PREFIX_SIZE && memcmp(name.bytes, "%LMQ%", RMQ_LIGHT_PREFIX_SIZE) == 0;
}

/* Does a list of names have a light queue? */
static inline int rmq_names_light(rmq_text names) {
    for (rmq_text name = rmq_first_of(&names); name.bytes != NULL; name = rmq_first_of(&names))
        if (rmq_is_light(name)) return 1;
    return 0;
}

/* Before the first light queue of a unit. A message is in none where both lists differ in length. */
static inline rmq_light rmq_lights_of(const rmq_unit *u, rmq_text names, rmq_text offsets) {
    const rmq_light none = {{NULL, 0}, {NULL, 0}, NULL, 0, 0};
    if (names.bytes == NULL || offsets.bytes == NULL) return none;
    if (!rmq_is_dispatched(u->topic, u->topic_length, u->sys_flag)) return none;
    names = rmq_without_last_commas(names);
    offsets = rmq_without_last_commas(offsets);
    return rmq_count_of(names) == rmq_count_of(offsets) ? (rmq_light){names, offsets, NULL, 0, 0} : none;
}

/* Find the next light queue. 0: there is none. */
static inline int rmq_next_light(rmq_light *light) {
    while (light->names.bytes != NULL) {
        const rmq_text name = rmq_first_of(&light->names), offset = rmq_first_of(&light->offsets);
        if (!rmq_is_light(name)) continue;
        if (memchr(name.bytes, '/', (size_t)name.size) != NULL) continue;
        light->name = name.bytes;
        light->name_size = name.size;
        light->offset = rmq_light_offset(offset);
        if (light->offset >= 0) return 1;
    }
    return 0;
}

static inline int rmq_is_named(const uint8_t *p, const uint8_t *end, const char *name, size_t n) {
    return (size_t)(end - p) > n + 1 && p[n] == 1 && memcmp(p, name, n) == 0;
}

/* Before the first light queue of a unit, whose properties are walked. */
static inline rmq_light rmq_find_lights(const rmq_unit *u) {
    const uint8_t *p = u->properties, *const stop = p + u->properties_length;
    rmq_text names = {NULL, 0}, offsets = {NULL, 0};
    while (p < stop) {
        const uint8_t *end = memchr(p, 2, (size_t)(stop - p));
        if (end == NULL) end = stop;
        if (rmq_is_named(p, end, "INNER_MULTI_DISPATCH", 20)) names = (rmq_text){p + 21, end - p - 21};
        else if (rmq_is_named(p, end, "INNER_MULTI_QUEUE_OFFSET", 24)) offsets = (rmq_text){p + 25, end - p - 25};
        p = end < stop ? end + 1 : stop;
    }
    return rmq_lights_of(u, names, offsets);
}

#endif
