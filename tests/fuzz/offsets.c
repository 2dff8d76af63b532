/* Consumers' offsets from JSON: whole, or in pieces, they are the same; and the numbers of the names in them. */
#include "consumer_offsets.h"
#include "fuzz.h"

enum { OPTIONS = 3, MOST = 600, FEW = 40 }; /* of 2000 bytes, all entries fit */

typedef struct {
    int64_t names[2 * MOST], counts[MOST], queue_ids[MOST], offsets[MOST];
    rmq_entries entries;
    int status;
} taken;

static void take(taken *t, const uint8_t *text, size_t size, int64_t at, int is_begun, int64_t most_entries, int64_t most_queues) {
    t->entries = (rmq_entries){text, (int64_t)size, at, is_begun, t->names, t->counts, 0, most_entries, t->queue_ids, t->offsets, 0, most_queues};
    t->status = rmq_take_entries(&t->entries);
    int64_t queues = 0, before = at;
    CHECK(t->entries.entries <= most_entries && t->entries.queues <= most_queues);
    for (int64_t i = 0; i < t->entries.entries; i++) {
        CHECK(before < t->names[2 * i] && t->names[2 * i] <= t->names[2 * i + 1] && t->names[2 * i + 1] < (int64_t)size);
        CHECK(text[t->names[2 * i] - 1] == '"' && text[t->names[2 * i + 1]] == '"');
        before = t->names[2 * i + 1];
        queues += t->counts[i];
    }
    CHECK(queues == t->entries.queues && t->entries.at <= (int64_t)size);
}

/* Is a number's text what a name has, and is it the next new number, or one that names before had? */
static void check_number(const rmq_queues *texts, int32_t number, const uint8_t *text, int64_t size, int32_t *known) {
    CHECK(number >= 0 && number <= *known && number < rmq_queue_count(texts));
    CHECK(rmq_is_queue(texts, number, text, (int32_t)size, 0));
    *known += number == *known;
}

/* The names, numbered in two calls: each text has one number, and no two texts have the same. */
static void number(const taken *t, const uint8_t *text, int64_t first) {
    static rmq_queues topics, groups;
    static int32_t topic_of[MOST], group_of[MOST], has_at[MOST];
    const int64_t count = t->entries.entries;
    rmq_forget_queues(&topics);
    rmq_forget_queues(&groups);
    CHECK(rmq_number_names(&topics, &groups, text, t->names, first, topic_of, group_of, has_at) == 0);
    CHECK(rmq_number_names(&topics, &groups, text, t->names + 2 * first, count - first, topic_of + first, group_of + first, has_at + first) == 0);
    int32_t known_topics = 0, known_groups = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t begin = t->names[2 * i], end = t->names[2 * i + 1];
        int64_t at = begin;
        while (at < end && text[at] != '@') at++;
        CHECK(has_at[i] == (at < end));
        check_number(&topics, topic_of[i], text + begin, at - begin, &known_topics);
        check_number(&groups, group_of[i], text + at + has_at[i], end - at - has_at[i], &known_groups);
    }
    CHECK(known_topics == rmq_queue_count(&topics) && known_groups == rmq_queue_count(&groups));
    for (int32_t i = 1; i < known_topics; i++) {
        const rmq_queue_name *const name = rmq_queue_name_of(&topics, i);
        CHECK(rmq_find_queue(&topics, rmq_topic_of(&topics, i), name->topic_size, 0) == i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static taken all, first, rest;
    if (size < OPTIONS) return 0;
    const size_t length = size - OPTIONS, cut = length * data[0] / 256;
    const int64_t few = 1 + data[1] % FEW, few_queues = 1 + data[2] % FEW;
    uint8_t *const text = fuzz_copy(data + OPTIONS, length), *const piece = fuzz_copy(text, cut);
    take(&all, text, length, 0, 0, MOST, MOST);
    take(&first, piece, cut, 0, 0, few, few_queues);
    const int64_t n = first.entries.entries, queues = first.entries.queues;
    const int is_whole = all.entries.entries < MOST && all.entries.queues < MOST;
    if (is_whole && first.status == RMQ_ENTRIES_MORE) {
        take(&rest, text, length, first.entries.at, first.entries.is_begun, MOST, MOST);
        CHECK(rest.status == all.status && n + rest.entries.entries == all.entries.entries && rest.entries.at == all.entries.at);
        CHECK(memcmp(rest.offsets, all.offsets + queues, (size_t)rest.entries.queues * 8) == 0);
        CHECK(memcmp(rest.names, all.names + 2 * n, (size_t)rest.entries.entries * 16) == 0);
    } else if (is_whole) {
        CHECK(first.status == all.status && n == all.entries.entries);
    }
    CHECK(memcmp(first.queue_ids, all.queue_ids, (size_t)queues * 8) == 0 || !is_whole);
    number(&all, text, all.entries.entries * data[1] / 256);
    free(text);
    free(piece);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    static const char *const parts[] = {"\"T@g\":{0:1,1:2}", ",", "}", "\"%RETRY%g@g\":{}", "\"a\\\"@b\":{\"0\":-1}", "{", "\"T@g\":{0:123456789012345678}",
                                        "\"", ":", "2147483648", "\n\t", "\"T@h\":{\n\t\t3:0\n\t}", "\"T\":{},", "\"LongTopic@LongGroup@g\":{}", "\"@\":{},", "@"};
    fuzz_random r = fuzz_seeded(seed);
    if (size < OPTIONS || fuzz_below(&r, 3) == 0) return fuzz_mutate(data, size, room);
    const char *const part = parts[fuzz_below(&r, sizeof parts / sizeof *parts)];
    const size_t more = strlen(part), at = OPTIONS + fuzz_below(&r, size - OPTIONS + 1);
    if (size + more > room) return fuzz_mutate(data, size, room);
    const size_t where = fuzz_below(&r, 2) ? at : size;
    memmove(data + where + more, data + where, size - where);
    memcpy(data + where, part, more);
    return size + more;
}
