/* The queues met so far, (topic, queueId), each with a number: 0, 1, 2, ... The filter and the dispatcher keep their
 * state of a queue in a list of their own, by this number. */
#ifndef RMQ_QUEUES_H
#define RMQ_QUEUES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

enum { RMQ_QUEUE_UNIT_SIZE = 20 }; /* bytes of a unit of a ConsumeQueue */

typedef struct {
    uint64_t hash;
    int64_t topic;    /* where in `topics` */
    int32_t topic_size, id;
} rmq_queue_name;

/* All zeros at first. */
typedef struct {
    rmq_list names;   /* of rmq_queue_name, by number */
    rmq_list topics;  /* their bytes, one after the other */
    int32_t *slots;   /* open addressing: 1 + number, 0 is free */
    int64_t slot_count; /* a power of two; few are taken, so that a queue is nearly always in its first slot */
} rmq_queues;

static inline uint64_t rmq_hash_step(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93ull;
    return hash ^ hash >> 32;
}

/* Hash of a queue: its topic by 8 bytes, of which the last ones may overlap those before. */
static inline uint64_t rmq_hash_queue(const uint8_t *topic, int32_t size, int32_t id) {
    uint64_t word = 0, hash = (uint64_t)(uint32_t)id << 32 | (uint32_t)size;
    if (size < 8) {
        for (int32_t i = 0; i < size; i++) word = word << 8 | topic[i];
        return rmq_hash_step(rmq_hash_step(hash, word), 0);
    }
    for (int32_t i = 0; i < size - 8; i += 8) {
        memcpy(&word, topic + i, 8);
        hash = rmq_hash_step(hash, word);
    }
    memcpy(&word, topic + size - 8, 8);
    return rmq_hash_step(hash, word);
}

static inline int32_t rmq_queue_count(const rmq_queues *q) { return (int32_t)q->names.size; }

static inline const rmq_queue_name *rmq_queue_name_of(const rmq_queues *q, int32_t number) {
    return (const rmq_queue_name *)q->names.data + number;
}

static inline const uint8_t *rmq_topic_of(const rmq_queues *q, int32_t number) {
    return (const uint8_t *)q->topics.data + rmq_queue_name_of(q, number)->topic;
}

static inline int rmq_is_queue(const rmq_queues *q, int32_t number, const uint8_t *topic, int32_t size, int32_t id) {
    const rmq_queue_name *name = rmq_queue_name_of(q, number);
    return name->id == id && name->topic_size == size && memcmp(rmq_topic_of(q, number), topic, (size_t)size) == 0;
}

/* The number of a queue, or -1 when it has none yet. */
static inline int32_t rmq_find_queue(const rmq_queues *q, const uint8_t *topic, int32_t size, int32_t id) {
    if (q->names.size == 0) return -1;
    const uint64_t hash = rmq_hash_queue(topic, size, id), mask = (uint64_t)q->slot_count - 1;
    int32_t number;
    for (uint64_t slot = hash & mask; (number = q->slots[slot] - 1) >= 0; slot = (slot + 1) & mask)
        if (rmq_queue_name_of(q, number)->hash == hash && rmq_is_queue(q, number, topic, size, id)) return number;
    return -1;
}

static inline void rmq_take_slot(int32_t *slots, int64_t slot_count, uint64_t hash, int32_t number) {
    const uint64_t mask = (uint64_t)slot_count - 1;
    uint64_t slot = hash & mask;
    while (slots[slot] != 0) slot = (slot + 1) & mask;
    slots[slot] = 1 + number;
}

/* Twice as many slots; 0, or -1 when there is no memory. */
static int rmq_double_slots(rmq_queues *q) {
    const int64_t slot_count = q->slot_count == 0 ? 1024 : 2 * q->slot_count;
    int32_t *slots = calloc((size_t)slot_count, sizeof *slots);
    if (slots == NULL) return -1;
    for (int32_t i = 0; i < rmq_queue_count(q); i++) rmq_take_slot(slots, slot_count, rmq_queue_name_of(q, i)->hash, i);
    free(q->slots);
    q->slots = slots;
    q->slot_count = slot_count;
    return 0;
}

/* Give a queue that has none yet the next number, and answer it; or -1 when there is no memory, and nothing has changed. */
__attribute__((noinline)) static int32_t rmq_add_queue(rmq_queues *q, const uint8_t *topic, int32_t size, int32_t id) {
    if (q->names.size >= INT32_MAX / 2) return -1;
    RMQ_TRY(rmq_list_reserve(&q->names, 1, sizeof(rmq_queue_name)));
    RMQ_TRY(rmq_list_reserve(&q->topics, (int64_t)size + 1, 1)); /* so that even the topic of no bytes has an address */
    if (4 * (q->names.size + 1) > q->slot_count) RMQ_TRY(rmq_double_slots(q));
    const uint64_t hash = rmq_hash_queue(topic, size, id);
    const int32_t number = rmq_queue_count(q);
    memcpy((uint8_t *)q->topics.data + q->topics.size, topic, (size_t)size);
    ((rmq_queue_name *)q->names.data)[number] = (rmq_queue_name){hash, q->topics.size, size, id};
    rmq_take_slot(q->slots, q->slot_count, hash, number);
    q->topics.size += size;
    q->names.size += 1;
    return number;
}

/* Begin anew at number 0. The memory is kept. */
static inline void rmq_forget_queues(rmq_queues *q) {
    if (q->slots != NULL) memset(q->slots, 0, (size_t)q->slot_count * sizeof *q->slots);
    q->names.size = q->topics.size = 0;
}

static inline void rmq_free_queues(rmq_queues *q) {
    free(q->names.data);
    free(q->topics.data);
    free(q->slots);
}

#endif
