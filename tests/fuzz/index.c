/* An index file: entries put into any bytes, and chains followed through them. What was put into an empty file is found there. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "chains.h"
#include "fuzz.h"

enum { OPTIONS = 20, MOST = 48 };

static size_t size_of(uint32_t slots, int32_t items) {
    return RMQ_INDEX_HEADER_SIZE + RMQ_INDEX_SLOT_SIZE * (size_t)slots + RMQ_INDEX_ITEM_SIZE * (size_t)items;
}

static int follow(const uint8_t *file, size_t size, size_t shown, uint32_t slots, int32_t items, const int32_t *hashes, int64_t n, rmq_list *found) {
    static int fd = -1;
    if (fd < 0) fd = memfd_create("index", 0);
    CHECK(ftruncate(fd, 0) == 0 && (size == 0 || pwrite(fd, file, size, 0) == (ssize_t)size));
    uint8_t *const memory = fuzz_copy(file, shown);
    const rmq_index_header h = rmq_load_index_header(file);
    rmq_index_file f = {memory, (int64_t)shown, {fd, 0, 0, 0, 0}, h.begin_offset, h.end_offset, h.count, items, slots};
    const int status = rmq_follow_chains(&f, hashes, n, found);
    free(memory);
    return status;
}

static int is_among(const rmq_list *found, int64_t position) {
    for (int64_t i = 0; i < found->size; i++)
        if (((const int64_t *)found->data)[i] == position) return 1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int32_t hashes[MOST];
    int64_t positions[MOST], timestamps[MOST];
    if (size < OPTIONS) return 0;
    fuzz_input in = {data, size};
    const uint32_t slots = 1 + (uint32_t)fuzz_number(&in, 1) % 16;
    const int32_t items = 1 + (int32_t)fuzz_number(&in, 1) % 64;
    const int64_t n = (int64_t)fuzz_number(&in, 1) % MOST, start = n == 0 ? 0 : (int64_t)fuzz_number(&in, 1) % n;
    const int is_empty = fuzz_number(&in, 1) & 1, sorted = (int)fuzz_number(&in, 1) & 1;
    const size_t all = size_of(slots, items), shown = all * fuzz_number(&in, 1) / 255;
    const int64_t previous_timestamp = fuzz_offset(&in), previous_offset = fuzz_offset(&in);
    for (int64_t i = 0, position = 0; i < n; i++) {
        hashes[i] = sorted ? 1 + (int32_t)fuzz_number(&in, 1) : (int32_t)fuzz_number(&in, 4); /* 0 at offset 0 is a wiped item */
        position = sorted ? position + (int64_t)fuzz_number(&in, 1) : fuzz_offset(&in);
        positions[i] = position;
        timestamps[i] = sorted ? 1700000000000 + 500 * i : fuzz_offset(&in);
    }
    uint8_t *const file = calloc(1, all);
    if (file == NULL) abort();
    if (!is_empty) memcpy(file, in.at, in.left < all ? in.left : all);
    int64_t end = start;
    if (n > start)
        end = rmq_put_index(file, slots, items, hashes, positions, timestamps, start, n, previous_timestamp, previous_offset);
    if (sorted && is_empty && previous_offset <= 0) {
        CHECK(end == (n - start < items - 1 ? n : start + items - 1));
        for (int64_t i = start; i < end; i++) {
            rmq_list found = {0};
            CHECK(follow(file, all, shown, slots, items, &hashes[i], 1, &found) == RMQ_CHAINS_FOLLOWED);
            CHECK(is_among(&found, positions[i]));
            int64_t same = 0;
            for (int64_t j = start; j < end; j++) same += hashes[j] == hashes[i];
            CHECK(found.size == same);
            free(found.data);
        }
    }
    rmq_list whole = {0}, partly = {0};
    int32_t asked[2] = {hashes[0] & INT32_MAX, (hashes[0] & INT32_MAX) % (int32_t)slots};
    if (n > 0) CHECK(follow(file, all, all, slots, items, asked, 2, &whole) == follow(file, all, shown, slots, items, asked, 2, &partly));
    CHECK(whole.size == partly.size && (whole.size == 0 || memcmp(whole.data, partly.data, (size_t)whole.size * 8) == 0));
    if (n > 0) follow(file, shown, shown / 2 > RMQ_INDEX_HEADER_SIZE ? shown / 2 : 0, slots, items, asked, 2, &partly); /* the file is shorter now */
    free(whole.data);
    free(partly.data);
    free(file);
    return 0;
}
