"""However many segments and queues a store in object storage has, what is asked of it waits for few requests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from support import remote, remote_work

from rmqstore_spark import write_store
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.store import queue_bounds
from rmqstore_spark.store.io.remote import pages
from rmqstore_spark.store.io.remote.files import RemoteFiles
from rmqstore_spark.tables.registry import read_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "remote.md"
SEGMENTS, QUEUES = 20, 80
SEGMENT = 1 << 17
BODY = 700
QUEUES_OF_TOPIC = 8
LARGE_SEGMENTS, LARGE_SEGMENT = 1100, 1 << 13


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rounds") / "store"
    numbers = range(SEGMENTS * SEGMENT // (BODY + 300))
    table = pa.table(
        {
            "topic": [f"Topic{number % QUEUES // QUEUES_OF_TOPIC}" for number in numbers],
            "queueId": pa.array([number % QUEUES % QUEUES_OF_TOPIC for number in numbers], pa.int32()),
            "body": [b"x" * BODY for _ in numbers],
            "keys": [f"k{number}" for number in numbers],
        }
    )
    write_store(root, table, mappedFileSizeCommitLog=SEGMENT)
    offsets = {
        f"Topic{topic}@group": dict.fromkeys(map(str, range(QUEUES_OF_TOPIC)), 3)
        for topic in range(QUEUES // QUEUES_OF_TOPIC)
    }
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return root


def promised() -> dict[str, int]:
    """The most rounds of each work, listing and opening the store included, as docs/remote.md says."""
    _, _, table = PAGE.read_text().partition("20 segments, 80 queues: at most |")
    rows = (line.strip("| ").split(" | ") for line in table.split("\n\n")[0].splitlines()[2:])
    return {row[0].replace("`", ""): int(row[-1]) for row in rows}


@pytest.mark.parametrize("name", remote_work.WORK)
def test_rounds(store: Path, name: str) -> None:
    """The answers are those of a store on a disk."""
    work = remote_work.WORK[name]
    expected = repr(work(str(store)))
    with remote.InRounds() as storage:
        uri = storage.uri(store)
        found = repr(work(uri)).replace(uri, str(store))
        print(f"{name}: {storage.rounds} rounds, {storage.lists} lists, {len(storage.asked)} requests")
    assert found == expected
    assert storage.rounds <= promised()[name]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of more objects than are in a page of a list, and of more queues than are asked at a time."""
    root, queues = tmp_path_factory.mktemp("large") / "store", 1200
    numbers = range(LARGE_SEGMENTS * LARGE_SEGMENT // (BODY + 300))
    table = pa.table(
        {
            "topic": [f"Topic{number % queues // 4}" for number in numbers],
            "queueId": pa.array([number % queues % 4 for number in numbers], pa.int32()),
            "body": [b"x" * BODY for _ in numbers],
        }
    )
    write_store(root, table, mappedFileSizeCommitLog=LARGE_SEGMENT)
    offsets = {f"Topic{topic}@group": dict.fromkeys("0123", 3) for topic in range(queues // 4)}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plan of a scan", "topics", "offsets", "show"])
def test_rounds_do_not_grow(large: Path, name: str) -> None:
    """Beyond the rounds of a small store there are no more than so many requests at a time take."""
    with remote.InRounds() as storage:
        remote_work.WORK[name](storage.uri(large))
    requests = len(storage.asked)
    print(f"{name}: {storage.rounds} rounds, {storage.lists} lists, {requests} requests")
    assert storage.rounds <= 12 + requests / 256
    assert requests <= 3000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["offsets at a time", "stream from a group"])
def test_places_in_queues_take_few_rounds(large: Path, name: str) -> None:
    """Five of them are 1,200 queues, 256 at a time."""
    with remote.InRounds() as storage:
        remote_work.WORK[name](storage.uri(large))
    print(f"{name}: {storage.rounds} rounds, {storage.lists} lists, {len(storage.asked)} requests")
    assert storage.rounds <= 12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["topics", "show"])
def test_queues_are_asked_for_while_the_log_is_searched(large: Path, name: str) -> None:
    """Also those of the next part, where the bounds of some queues at a time are found."""
    with remote.InRounds() as storage, mock.patch.object(queue_bounds, "_QUEUES_AT_ONCE", 256):
        remote_work.WORK[name](storage.uri(large))
    requests = len(storage.asked)
    print(f"{name}: {storage.rounds} rounds, {storage.lists} lists, {requests} requests")
    assert storage.rounds <= 9 + requests / 256


@pytest.mark.slow
def test_a_plan_learns_from_few_segments(large: Path) -> None:
    """Where the queues that are known do not help to cut a segment, it is not looked at, however many there are."""
    with remote.InRounds() as storage:
        remote_work.plan_of(maxPartitionBytes=str(LARGE_SEGMENT // 2))(storage.uri(large))
    print(storage.rounds, storage.lists, len(storage.asked))
    assert storage.rounds <= 9
    assert len(storage.asked) <= 300


@pytest.mark.slow
def test_a_stream_from_a_time_looks_at_no_later_segment(large: Path) -> None:
    with remote.InRounds() as storage:
        remote_work.WORK["stream from a time"](storage.uri(large))
    print(storage.rounds, storage.lists, len(storage.asked))
    assert storage.rounds <= 12
    assert len(storage.asked) <= 500


@pytest.mark.parametrize("end", [1, 128 << 16, 128 << 17, 123_456_789])
def test_the_end_of_a_large_segment_is_found_in_two_rounds(tmp_path: Path, end: int) -> None:
    """Also where it is between two parts of the file, of which the places that are far apart tell."""
    size, page = 1 << 30, 1 << 16
    with (tmp_path / "object").open("wb") as file:
        file.truncate(size)
        for at in range(0, end, page):
            os.pwrite(file.fileno(), b"x", at)
    with remote.InRounds() as storage, RemoteFiles().file(storage.uri(tmp_path / "object")) as opened:
        before, last = storage.rounds, (end - 1) // page * page
        assert opened.likely_data_end() == last + 1
        opened.read(last, page)
        opened.read(last + page, page)
        assert storage.rounds == before + 2


def test_a_plan_cuts_all_segments_side_by_side(tmp_path: Path) -> None:
    """Eight pieces of each segment take hardly more rounds than none, and the log is asked once for each cut."""
    segment, segments = 1 << 20, 12
    numbers = range(segment * segments // 4096)
    table = pa.table(
        {
            "topic": ["T"] * len(numbers),
            "queueId": pa.array([number % 16 for number in numbers], pa.int32()),
            "body": [b"x" * 4000] * len(numbers),
        }
    )
    write_store(tmp_path / "store", table, mappedFileSizeCommitLog=segment)
    found = []
    for size in (segment, segment // 8):
        with remote.InRounds() as storage:
            ranges = sum(remote_work.plan_of(maxPartitionBytes=str(size))(storage.uri(tmp_path / "store")))
            found.append((ranges, storage.rounds, len(storage.asked)))
    print(found)
    (few, rounds, requests), (many, rounds_of_many, requests_of_many) = found
    assert few <= segments + 1
    assert many > 6 * segments
    assert rounds_of_many <= rounds + 6
    assert requests_of_many - requests < 1.5 * (many - few)


def test_delayed_reads_the_log_once(store: Path) -> None:
    """No queue tells where messages of its topics are, so all of the log is read for them."""
    with remote.InRounds() as storage:
        remote_work.WORK["delayed"](storage.uri(store))
    assert storage.nbytes < 1.6 * SEGMENTS * SEGMENT


def test_segments_take_few_requests(store: Path) -> None:
    """The beginning and the end of each, and few queues, although all queues of the next segment's first messages might
    be asked; without store times no segment is read for its row."""
    requests = []
    for columns in ("file,endOffset,lastStoreTimestamp", "file,endOffset"):
        with remote.InRounds() as storage:
            options = parse_options({"path": storage.uri(store), "table": "segments", "columns": columns})
            rows = read_table(options).num_rows
            requests.append(len(storage.asked))
    print(requests, rows)
    assert requests[0] - requests[1] < 5 * rows
    assert requests[1] < rows


def test_ends_of_large_messages_come_with_their_beginnings(tmp_path: Path) -> None:
    """Topic and properties stand after the body: a message's second request would wait for its first."""
    count = 48
    table = pa.table(
        {
            "topic": ["T"] * count,
            "queueId": pa.array([number % 2 for number in range(count)], pa.int32()),
            "body": [bytes([1 + number]) * 200_000 for number in range(count)],
        }
    )
    write_store(tmp_path / "store", table, mappedFileSizeCommitLog=1 << 20)
    with remote.InRounds() as storage:
        remote_work.WORK["show"](storage.uri(tmp_path / "store"))
    print(storage.rounds, len(storage.asked))
    assert storage.rounds <= 10


def test_first_messages_in_many_segments(tmp_path: Path) -> None:
    """Where no later segment tells of those segments as a whole, they are asked about side by side."""
    queues, numbers = 40, range(40 * 40)
    table = pa.table(
        {
            "topic": ["T"] * len(numbers),
            "queueId": pa.array([number % queues for number in numbers], pa.int32()),
            "body": [b"x" * BODY] * len(numbers),
        }
    )
    assert rounds_of_topics(tmp_path / "store", table, segment=1 << 13) <= 7


@pytest.mark.slow
def test_units_that_are_not_kept_do_not_make_queues_wait_for_each_other(tmp_path: Path) -> None:
    """A large store has more queues than pages are kept. Their last messages, in segments of which no queue tells as a
    whole, are proved live by one walk along each segment, and not each by itself."""
    queues, numbers = 700, range(700 * 3)
    table = pa.table(
        {
            "topic": ["T"] * len(numbers),
            "queueId": pa.array([number % queues for number in numbers], pa.int32()),
            "body": [b"x" * BODY] * len(numbers),
        }
    )
    with mock.patch.object(pages, "MOST_PAGES", 256), mock.patch.object(pages, "_PARTS", 1):
        assert rounds_of_topics(tmp_path / "store", table, segment=1 << 18) <= 60


def test_a_long_queue_is_read_in_large_pieces(tmp_path: Path) -> None:
    """Where all units are looked at, to know what no queue has."""
    count = 50_000
    table = pa.table({"topic": ["T"] * count, "queueId": pa.array([0] * count, pa.int32()), "body": [b""] * count})
    assert rounds_of_topics(tmp_path / "store", table) <= 11


def test_many_files_are_read_on_side_by_side(tmp_path: Path) -> None:
    """What a reader that goes on will need is little at first, so far more than a few such requests are under way."""
    paths, size = [tmp_path / str(number) for number in range(48)], 40_000
    for path in paths:
        path.write_bytes(bytes(1 << 18))
    with remote.InRounds() as storage:
        files = RemoteFiles()
        files.list_tree(storage.uri(tmp_path))

        def read(path: Path) -> None:
            with files.file(storage.uri(path)) as file:
                for at in range(0, 4 * size, size):
                    file.load(at, size, lambda count: memoryview(bytearray(count)))

        files.schedule.mapped(read, paths)
    print(storage.rounds)
    assert storage.rounds <= 4


def rounds_of_topics(root: Path, table: pa.Table, segment: int = 1 << 30) -> int:
    """The rounds that table `topics` takes for a store of some messages."""
    write_store(root, table, mappedFileSizeCommitLog=segment)
    work = remote_work.WORK["topics"]
    expected = repr(work(str(root)))
    with remote.InRounds() as storage:
        found = repr(work(storage.uri(root)))
    print(storage.rounds, len(storage.asked))
    assert found == expected
    return storage.rounds
