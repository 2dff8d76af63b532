/* RocksDB's files: records of a log, batches in them, blocks of tables, and the newest entry of each key, which a plain search finds too. */
#include "fuzz.h"
#include "log_records.h"
#include "lz4_size.h"
#include "newest.h"
#include "write_batch.h"

enum { OPTIONS = 3, MOST = 64 };

/* ---- logs */

static void take_log(const uint8_t *data, size_t size, uint32_t number) {
    uint8_t *const bytes = fuzz_copy(data, size);
    int64_t *const ends = fuzz_memory((size / RMQ_LOG_HEADER) * sizeof *ends);
    rmq_log log = {bytes, (int64_t)size, number, 0, 0, 0, 0};
    rmq_take_records(&log, ends);
    CHECK(log.written <= log.position && log.position <= (int64_t)size + RMQ_LOG_HEADER);
    for (int64_t i = 0; i < log.records; i++) CHECK(ends[i] >= (i > 0 ? ends[i - 1] : 0) && ends[i] <= log.written);

    rmq_batches batches = {bytes, ends, log.records, 0, 0, 0, 0};
    rmq_walk_batches(&batches, NULL);
    if (batches.status == RMQ_BATCH_SOUND) {
        const size_t n = (size_t)batches.records;
        int64_t *const columns = fuzz_memory(6 * n * sizeof *columns), *const order = fuzz_memory(2 * n * sizeof *order);
        const rmq_batch_records r = {columns, columns + n, columns + 2 * n, columns + 3 * n, columns + 4 * n, columns + 5 * n};
        rmq_walk_batches(&batches, &r);
        for (size_t i = 0; i < n; i++) order[i] = (int64_t)i;
        if (n > 0) rmq_sort_records(&r, bytes, order, order + n, (int64_t)n);
        for (size_t i = 1; i < n; i++) CHECK(!rmq_record_before(&r, bytes, order[i], order[i - 1]));
        free(columns);
        free(order);
    }
    free(ends);
    free(bytes);
}

/* ---- blocks */

typedef struct {
    uint8_t *keys;
    int64_t *key_starts, *value_starts, *value_ends, entries;
} block_entries;

/* The entries of a block; 0: it is not sound. */
static int take_block(const uint8_t *bytes, size_t size, int is_index, int is_delta, int64_t least_key, block_entries *to) {
    rmq_sorted_block block = {bytes, (int64_t)size, is_index, is_delta, least_key, 0, 0, 0, 0};
    rmq_walk_block(&block, NULL, 0);
    if (block.status != RMQ_BLOCK_SOUND) return 0;
    const size_t n = (size_t)block.entries;
    const int64_t key_bytes = block.key_bytes;
    *to = (block_entries){fuzz_memory((size_t)key_bytes), fuzz_memory((n + 1) * 8), fuzz_memory(n * 8), fuzz_memory(n * 8), block.entries};
    to->key_starts[0] = 0;
    const rmq_entries into = {to->keys, to->key_starts + 1, to->value_starts, to->value_ends};
    rmq_walk_block(&block, &into, 0);
    CHECK(block.status == RMQ_BLOCK_SOUND && block.entries == to->entries && block.key_bytes == key_bytes);
    for (size_t i = 0; i < n; i++) {
        CHECK(to->key_starts[i + 1] - to->key_starts[i] >= least_key && to->key_starts[i + 1] <= key_bytes);
        if (!is_index) CHECK(to->value_starts[i] >= 0 && to->value_starts[i] <= to->value_ends[i] && to->value_ends[i] <= (int64_t)size);
    }
    return 1;
}

static void free_block(block_entries *of) {
    free(of->keys);
    free(of->key_starts);
    free(of->value_starts);
    free(of->value_ends);
}

/* ---- the newest */

/* Whether an entry of the run is the newest of its key in all runs, is a value, and is not hidden, by looking at all others. */
static int plain_is_newest(const rmq_run *runs, int count, int which, int64_t entry, const rmq_tombstones *tombstones) {
    rmq_run own = runs[which];
    const uint8_t *key, *other;
    own.at = entry;
    const int64_t size = rmq_user_key(&own, &key);
    const uint64_t trailer = rmq_le64(key + size);
    for (int i = 0; i < count; i++) {
        rmq_run run = runs[i];
        for (run.at = 0; run.at < run.end; run.at++) {
            const int64_t n = rmq_user_key(&run, &other);
            if (rmq_compare(other, n, key, size) == 0 && rmq_le64(other + n) > trailer) return 0;
        }
    }
    if (tombstones->count > 0 && rmq_compare(key, size, tombstones->keys, 1) >= 0 &&
        rmq_compare(key, size, tombstones->keys + 1, 1) < 0 && trailer >> 8 < tombstones->newest[0])
        return 0;
    return (trailer & 0xFF) == RMQ_TYPE_VALUE;
}

static void merge(const block_entries *blocks, const uint8_t *const *values, int count, int has_tombstone) {
    static const uint8_t bounds[] = "bd";
    static const int64_t starts[] = {0, 1, 2};
    static const uint64_t newest[] = {5};
    rmq_run runs[MOST], before[MOST];
    int32_t heap[MOST];
    int64_t room = 0;
    rmq_newest w = {.runs = runs, .heap = heap, .tombstones = {bounds, starts, newest, 0, has_tombstone}};
    for (int i = 0; i < count; i++) {
        runs[i] = (rmq_run){blocks[i].keys, blocks[i].key_starts, values[i], blocks[i].value_starts, blocks[i].value_ends, 0, blocks[i].entries, 0};
        if (rmq_first_too_late(&runs[i]) < runs[i].end) runs[i].is_plain = 0;
        before[i] = runs[i];
        if (blocks[i].entries > 0) heap[w.count++] = i;
        room += blocks[i].entries;
    }
    const rmq_tombstones tombstones = w.tombstones;
    int64_t taken = 0;
    int is_whole = 1;
    while (w.count > 0) {
        w.from_run = fuzz_memory((size_t)room * sizeof *w.from_run);
        w.from_entry = fuzz_memory((size_t)room * sizeof *w.from_entry);
        rmq_take_newest(&w);
        uint8_t *const keys = fuzz_memory((size_t)w.key_bytes), *const copies = fuzz_memory((size_t)w.value_bytes);
        int64_t *const ends = fuzz_memory((size_t)(w.taken + 1) * 16);
        rmq_copy_newest(&w, keys, ends, copies, ends + w.taken + 1);
        taken += w.taken;
        is_whole &= w.unknown < 0;
        for (int64_t i = 0; is_whole && i < w.taken; i++) CHECK(plain_is_newest(before, count, w.from_run[i], w.from_entry[i], &tombstones));
        free(w.from_run);
        free(w.from_entry);
        free(keys);
        free(copies);
        free(ends);
        if (w.unknown >= 0 || w.stopped < 0) break;
        int32_t left = 0; /* the run that stopped is left out */
        for (int32_t i = 0; i < w.count; i++)
            if (runs[heap[i]].at < runs[heap[i]].end) heap[left++] = heap[i];
        w.count = left;
    }
    if (!is_whole) return;
    for (int i = 0; i < count; i++) { /* and none is left out; of equal ones, one is taken */
        for (int64_t entry = 0; entry < before[i].end; entry++) {
            rmq_run a = before[i];
            const uint8_t *key, *other;
            a.at = entry;
            const int64_t size = rmq_user_key(&a, &key);
            int is_first = plain_is_newest(before, count, i, entry, &tombstones);
            for (int j = 0; is_first && j <= i; j++) {
                rmq_run b = before[j];
                for (b.at = 0; b.at < b.end && (j < i || b.at < entry); b.at++) {
                    const int64_t n = rmq_user_key(&b, &other);
                    if (rmq_compare(other, n, key, size) == 0 && rmq_le64(other + n) == rmq_le64(key + size)) is_first = 0;
                }
            }
            taken -= is_first;
        }
    }
    CHECK(taken == 0);
}

/* Are newer entries of a key before older ones? The kernel takes that from a table whose checksums are right. */
static int is_in_order(const block_entries *of) {
    rmq_run a = {of->keys, of->key_starts, NULL, NULL, NULL, 0, of->entries, 0}, b = a;
    for (b.at = 1; b.at < b.end; a.at++, b.at++)
        if (rmq_comes_before(&b, &a)) return 0;
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < OPTIONS) return 0;
    const int kind = data[0] & 3;
    const size_t n = size - OPTIONS, cut = n * data[1] / 256;
    if (kind == 0) {
        take_log(data + OPTIONS, n, data[1]);
        return 0;
    }
    uint8_t *const parts[] = {fuzz_copy(data + OPTIONS, cut), fuzz_copy(data + OPTIONS + cut, n - cut)};
    const size_t sizes[] = {cut, n - cut};
    block_entries blocks[2];
    rmq_lz4_size(parts[0], (int64_t)cut);
    if (kind == 1) {
        if (take_block(parts[0], cut, 1, data[2] & 1, data[2] & 2 ? RMQ_SEQUENCE : 0, &blocks[0])) free_block(&blocks[0]);
    } else {
        int sound = 0;
        while (sound < 2 && take_block(parts[sound], sizes[sound], 0, 0, RMQ_SEQUENCE, &blocks[sound])) sound++;
        if (sound == 2 && is_in_order(&blocks[0]) && is_in_order(&blocks[1])) merge(blocks, (const uint8_t *const *)parts, 2, data[2] & 1);
        while (sound > 0) free_block(&blocks[--sound]);
    }
    free(parts[0]);
    free(parts[1]);
    return 0;
}

/* ---- mutations */

/* Set the CRC of each piece, as far as their lengths lead. */
static void mend_log(uint8_t *p, size_t size) {
    for (size_t at = 0; at + RMQ_LOG_HEADER <= size;) {
        const int64_t piece = rmq_piece_size(p + at);
        if (piece <= 0 || (size_t)piece > size - at) break;
        const uint32_t crc = rmq_masked(rmq_crc32c(0, p + at + 6, (size_t)piece - 6));
        for (int i = 0; i < 4; i++) p[at + (size_t)i] = (uint8_t)(crc >> 8 * i);
        at += (size_t)piece;
    }
}

/* A piece with a batch. */
static size_t draw_piece(fuzz_random *r, uint8_t *p) {
    static const uint8_t types[] = {0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0xD, 0xE, 0xF, 9};
    size_t size = RMQ_LOG_HEADER;
    const int recycled = fuzz_below(r, 4) == 0;
    if (recycled) size += 4;
    uint8_t *const body = p + size;
    const uint8_t count = (uint8_t)fuzz_below(r, 5);
    memset(p, 0, 60);
    p[6] = (uint8_t)(1 + fuzz_below(r, fuzz_below(r, 2) ? 1 : 4) + (recycled ? 4 : 0));
    size_t n = RMQ_BATCH_HEADER;
    body[0] = (uint8_t)fuzz_below(r, 9);
    body[8] = count;
    for (uint8_t i = 0; i < count; i++) {
        const uint8_t type = types[fuzz_below(r, sizeof types)];
        body[n++] = type;
        if (type == 4 || type == 5 || type == 6 || type == 8 || type == 0xE) body[n++] = (uint8_t)fuzz_below(r, 2);
        if (type != 0xD) body[n++] = 1, body[n++] = (uint8_t)('a' + fuzz_below(r, 4));
        if (type == 1 || type == 2 || type == 5 || type == 6 || type == 0xE || type == 0xF) body[n++] = 1, body[n++] = 'v';
    }
    p[4] = (uint8_t)n;
    return size + n;
}

/* A block with keys in order, with prefixes shared. */
static size_t draw_block(fuzz_random *r, uint8_t *p) {
    size_t size = 0;
    uint8_t key = 'a', sequence = 9;
    int first = 1;
    for (uint64_t count = fuzz_below(r, 6); count > 0; count--, first = 0) {
        const int same = !first && fuzz_below(r, 3) == 0 && sequence > 0;
        if (!first && !same) key++;
        sequence = same ? (uint8_t)(sequence - 1) : (uint8_t)fuzz_below(r, 9);
        p[size++] = same, p[size++] = (uint8_t)(9 - same), p[size++] = 1;
        if (!same) p[size++] = key;
        p[size++] = (uint8_t)(fuzz_below(r, 4) ? 1 : fuzz_below(r, 8)), p[size++] = sequence;
        memset(p + size, 0, 6);
        size += 6;
        p[size++] = 'v';
    }
    memcpy(p + size, "\0\0\0\0\1\0\0\0", 8);
    return size + 8;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    fuzz_random r = fuzz_seeded(seed);
    if (size < OPTIONS || room < 400 || fuzz_below(&r, 3) == 0) size = fuzz_mutate(data, size, room);
    if (size < OPTIONS || room < 400) return size;
    const int kind = data[0] & 3;
    if (kind == 0) {
        if (size + 100 < room && fuzz_below(&r, 2)) size += draw_piece(&r, data + size);
        if (fuzz_below(&r, 4)) mend_log(data + OPTIONS, size - OPTIONS);
    } else if (fuzz_below(&r, 4) == 0) {
        const size_t first = draw_block(&r, data + OPTIONS), second = draw_block(&r, data + OPTIONS + first);
        size = OPTIONS + first + second;
        data[1] = (uint8_t)((256 * first + first + second - 1) / (first + second));
    }
    return size;
}
