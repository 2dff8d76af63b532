/* Units of ConsumeQueues: taken as columns, walked and tiled, at once and in pieces; and short queues in files. */
#define _GNU_SOURCE
#include "fuzz.h"
#include "tiling.h"
#include "queue_ends.h"
#include "queue_tiles.h"

enum { OPTIONS = 10, MOST = 256, STRETCHES = 3 };

typedef struct {
    uint64_t open_ends[STRETCHES], prints[STRETCHES];
    int64_t furthest[STRETCHES], counts[STRETCHES], crossed[STRETCHES], asked[STRETCHES], bytes[STRETCHES], latest[STRETCHES], followed[STRETCHES];
} tiles;

static rmq_tiling tiling_into(tiles *to, const int64_t *starts) {
    static const int64_t segments[STRETCHES] = {0, 0, 1000}, headers[STRETCHES] = {0, 48, 0};
    memset(to, 0, sizeof *to);
    return (rmq_tiling){.starts = starts, .stops = starts + 1, .segments = segments, .headers = headers, .stretches = STRETCHES, .open_ends = to->open_ends,
                        .furthest = to->furthest, .counts = to->counts, .crossed = to->crossed, .asked_counts = to->asked, .asked_prints = to->prints,
                        .asked_bytes = to->bytes, .latest = to->latest, .followed = to->followed};
}

static void tile(tiles *to, const uint8_t *units, int64_t count, int64_t unit_size, int64_t cut, const int64_t *starts) {
    rmq_tiling t = tiling_into(to, starts);
    rmq_begin_tiling(&t, 0, unit_size, 1);
    if (rmq_add_units(&t, units, cut)) rmq_add_units(&t, units + cut * unit_size, count - cut);
}

/* Tiled in its file, a queue gives what its units give. */
static void tile_in_file(const char *queue, const tiles *expected, const int64_t *starts, int64_t room) {
    tiles found;
    rmq_tiling t = tiling_into(&found, starts);
    uint8_t *const buffer = fuzz_memory((size_t)room);
    const rmq_tile_reading how = {INT64_MAX, buffer, room};
    rmq_file cost = {-1, 0, 0, 0, 0};
    CHECK(rmq_tile_queue(&t, queue, 1, &how, &cost) == 1);
    CHECK(memcmp(&found, expected, sizeof found) == 0);
    free(buffer);
}

static int64_t walk(const uint8_t *units, int64_t count, int64_t unit_size, int64_t start, int64_t stop, int64_t cut, int64_t room, int64_t *positions,
                    int64_t *offsets, int32_t *sizes) {
    rmq_queue_walk w = {unit_size, start, stop, 7, 0, positions, offsets, sizes, 0, MOST};
    int64_t done = 0;
    for (int64_t part = cut; done < count; part = count - done) {
        w.capacity = w.rows + room < MOST ? w.rows + room : MOST;
        const int64_t taken = rmq_take_units(&w, units + done * unit_size, part);
        done += taken;
        if (taken < part && w.rows < w.capacity) break; /* it is over */
        if (w.rows == MOST) break;
    }
    for (int64_t i = 0; i < w.rows; i++) {
        CHECK(positions[i] >= start && positions[i] < stop && sizes[i] > 0);
        CHECK(i == 0 || positions[i] >= positions[i - 1] + sizes[i - 1]);
    }
    return w.rows;
}

/* The ends of the same queue, and a unit by number. */
static void find_ends(const char *queue, const uint8_t *units, int64_t count, int64_t asked_for) {
    const rmq_queue_look look = {asked_for, 1 + asked_for % RMQ_MOST_SHOWN};
    const int64_t first = 2, numbers[2] = {asked_for % 300, INT64_MIN + asked_for};
    int64_t positions[2], sizes[2];
    const rmq_asked_units asked = {numbers, 2, positions, sizes};
    uint8_t *const both = fuzz_memory(2 * RMQ_QUEUE_UNIT_SIZE);
    rmq_file cost = {-1, 0, 0, 0, 0};
    const rmq_queue_ends ends = rmq_read_queue_ends(queue, &look, &asked, both, &cost);
    const int64_t at[2] = {ends.first, ends.last};
    for (int i = 0; i < 2; i++) {
        CHECK(at[i] == -1 || (at[i] >= first && at[i] < first + count));
        CHECK(at[i] == -1 || memcmp(both + i * RMQ_QUEUE_UNIT_SIZE, units + (at[i] - first) * RMQ_QUEUE_UNIT_SIZE, RMQ_QUEUE_UNIT_SIZE) == 0);
    }
    const int64_t shown = count < look.width ? count : look.width; /* the last one of all where those do not end in zeros */
    const int64_t among = rmq_last_used(units, shown);
    if (ends.is_known) CHECK(ends.last == (among < 0 || among == shown - 1 ? rmq_last_used(units, count) + (rmq_last_used(units, count) < 0 ? 0 : first) : first + among));
    const int is_there = numbers[0] >= first && numbers[0] < first + count && ends.is_known;
    CHECK(!is_there || rmq_kind_of_unit(units + (numbers[0] - first) * RMQ_QUEUE_UNIT_SIZE, 0) != RMQ_UNIT_IS_MESSAGE ||
          positions[0] == rmq_i64(units + (numbers[0] - first) * RMQ_QUEUE_UNIT_SIZE));
    CHECK(positions[1] == -1 && sizes[1] == -1);
    free(both);
}

static char directory[40], path[80];

static void remove_files(void) {
    unlink(path);
    rmdir(directory);
}

/* In memory where there is such a place: on a disk nearly all of the time goes into making files. */
static void make_directory(void) {
    strcpy(directory, "/dev/shm/fuzz-queues-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        strcpy(directory, "/tmp/fuzz-queues-XXXXXX");
        CHECK(mkdtemp(directory) != NULL);
    }
    sprintf(path, "%s/%020d", directory, 40);
    CHECK(atexit(remove_files) == 0);
}

/* A queue in a file: what is read of it are its first units. */
static void read_short(const uint8_t *units, size_t size, int64_t room, const tiles *tiled, const int64_t *starts) {
    if (directory[0] == 0) make_directory();
    const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    CHECK(fd >= 0 && (size == 0 || write(fd, units, size) == (ssize_t)size));
    close(fd);
    uint8_t *const to = fuzz_memory((size_t)room);
    rmq_file cost = {-1, 0, 0, 0, 0};
    int64_t number = -1;
    const int64_t got = rmq_read_short_queue(directory, to, room, &number, &cost);
    CHECK(got <= room && (got < 0 || (number == 2 && memcmp(to, units, (size_t)got) == 0)));
    const rmq_queue_head head = rmq_read_queue_head(directory, -1, to, room, &cost);
    CHECK(head.start == 40 && head.size == (int64_t)size && head.used <= head.read && head.read <= room);
    CHECK(head.used == 0 || memcmp(to, units, (size_t)head.used) == 0);
    for (int64_t i = head.used; i < room; i++) CHECK(to[i] == 0);
    const rmq_queue_head by_file = rmq_read_queue_head(path, 40, to, room, &cost);
    CHECK(memcmp(&by_file, &head, sizeof head) == 0);
    int64_t file_size, allocated;
    CHECK(rmq_find_only_file(directory, &file_size, &allocated) == 40 && file_size == head.size && allocated == head.allocated);
    free(to);
    tile_in_file(directory, tiled, starts, RMQ_LEAST_TILED + room);
    find_ends(directory, units, (int64_t)size / RMQ_QUEUE_UNIT_SIZE, room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < OPTIONS) return 0;
    const int is_batch = data[0] & 1;
    const int64_t unit_size = is_batch ? RMQ_BATCH_QUEUE_UNIT_SIZE : RMQ_QUEUE_UNIT_SIZE;
    int64_t count = (int64_t)(size - OPTIONS) / unit_size;
    if (count > MOST) count = MOST;
    const int64_t cut = count * data[1] / 255, room = 1 + data[2] % 20;
    uint8_t *const units = fuzz_copy(data + OPTIONS, (size_t)(count * unit_size));

    const int64_t starts[STRETCHES + 1] = {data[3] * 8, data[3] * 8 + data[4] * 8, data[3] * 8 + data[4] * 8 + 100, INT64_MAX - data[5]};
    tiles whole, parts;
    tile(&whole, units, count, unit_size, count, starts);
    tile(&parts, units, count, unit_size, cut, starts);
    CHECK(memcmp(&whole, &parts, sizeof whole) == 0);

    static int64_t positions[2][MOST], offsets[2][MOST];
    static int32_t sizes[2][MOST];
    const int64_t start = data[6] * 8, stop = data[7] < 200 ? INT64_MAX : data[7] * 16;
    const int64_t rows = walk(units, count, unit_size, start, stop, count, MOST, positions[0], offsets[0], sizes[0]);
    CHECK(rows == walk(units, count, unit_size, start, stop, cut, room, positions[1], offsets[1], sizes[1]));
    for (int64_t i = 0; i < rows; i++)
        CHECK(positions[0][i] == positions[1][i] && offsets[0][i] == offsets[1][i] && sizes[0][i] == sizes[1][i]);

    int64_t *const columns = fuzz_memory((size_t)count * 7 * sizeof *columns);
    uint8_t *const kinds = fuzz_memory((size_t)count);
    int64_t *c[7];
    for (int i = 0; i < 7; i++) c[i] = columns + i * count;
    const rmq_unit_columns to = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], kinds};
    rmq_read_queue_units(units, count, data[8], is_batch, &to);
    int64_t end = 0, found = 0; /* the walk once more, by the columns */
    for (int64_t i = 0; i < count; i++) {
        if (kinds[i] == RMQ_UNIT_IS_PRE_BLANK || kinds[i] == RMQ_UNIT_IS_LOST) continue;
        if (kinds[i] != RMQ_UNIT_IS_MESSAGE || c[1][i] < end || c[1][i] >= stop) break;
        end = c[1][i] + c[2][i];
        if (c[1][i] < start) continue;
        CHECK(found < rows && positions[0][found] == c[1][i] && offsets[0][found] == (is_batch ? c[4][i] : i + 7));
        found += 1;
    }
    CHECK(found == rows);
    free(columns);
    free(kinds);
    if (data[9] < 8 && !is_batch) read_short(units, (size_t)(count * unit_size), 1 + data[9] * 300, &whole, starts);
    free(units);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    fuzz_random r = fuzz_seeded(seed);
    if (size < OPTIONS || fuzz_below(&r, 3) == 0) return fuzz_mutate(data, size, room);
    const size_t unit_size = data[0] & 1 ? RMQ_BATCH_QUEUE_UNIT_SIZE : RMQ_QUEUE_UNIT_SIZE;
    const size_t count = (size - OPTIONS) / unit_size;
    uint8_t *p = data + OPTIONS;
    if (fuzz_below(&r, 2)) { /* one more, where the last one ends */
        if (size + unit_size > room) return size;
        const uint8_t *const last = p + (count > 0 ? count - 1 : 0) * unit_size;
        const int64_t end = count > 0 ? (int64_t)((uint64_t)rmq_i64(last) + (uint64_t)(int64_t)rmq_i32(last + 8)) : 0;
        p += count * unit_size;
        memset(p, 0, unit_size);
        rmq_put_i64(p, fuzz_sum(end, fuzz_below(&r, 3) ? 0 : 100));
        rmq_put_i32(p + 8, fuzz_below(&r, 9) ? 100 : RMQ_LOST_UNIT_SIZE);
        if (fuzz_below(&r, 9) == 0) rmq_put_i64(p, 0), rmq_put_i32(p + 8, RMQ_PRE_BLANK_SIZE);
        if (unit_size > RMQ_QUEUE_UNIT_SIZE) rmq_put_i64(p + RMQ_AT_BATCH_BASE, (int64_t)count * 3), rmq_put_i16(p + RMQ_AT_BATCH_COUNT, 3);
        return OPTIONS + (count + 1) * unit_size;
    }
    if (count == 0) return size;
    p += fuzz_below(&r, count) * unit_size;
    if (fuzz_below(&r, 2)) rmq_put_i64(p, fuzz_lie(&r, rmq_i64(p)));
    else rmq_put_i32(p + 8, (int32_t)fuzz_lie(&r, rmq_i32(p + 8)));
    return size;
}
