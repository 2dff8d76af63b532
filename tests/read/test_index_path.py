"""A look-up through index files finds each message also where files are cut anywhere or topics are many, and its price
is that of the files that it needs."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import aged_stores, reference
from oracle.stores import StoreBuilder
from support import reading

from rmqstore_spark.read.explain import explanation
from rmqstore_spark.read.pieces.task import Indexed, Range, Scanned
from rmqstore_spark.read.plan.index_path import IndexPath
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.indexfile import IndexReader
from rmqstore_spark.store.structures.queues import ConsumeQueues

COLUMNS = ["topic", "msgId", "keys", "commitLogOffset", "storeTimestamp"]
Row = dict[str, Any]


def _same(root: Path, predicate: Callable[[Row], bool], **options: object) -> None:
    expected = [row for row in reading.read(root, columns=COLUMNS) if predicate(row)]
    for prices in (None, reading.FREE):
        found = reading.read(root, columns=COLUMNS, prices=prices, **options)
        assert sorted(found, key=lambda row: row["commitLogOffset"]) == expected, options


def _all_names(root: Path, rng: random.Random, most: int) -> None:
    """Rows of some names, with and without their topic."""
    rows = reading.read(root, columns=COLUMNS)
    for row in rng.sample(rows, min(most, len(rows))):
        name = row["msgId"]
        if name is None:
            continue
        _same(root, lambda row: row["msgId"] == name, msgId=name)  # noqa: B023
        topic = row["topic"]
        _same(root, lambda row: (row["topic"], row["msgId"]) == (topic, name), msgId=name, subscribe=topic)  # noqa: B023


def _pieces(root: Path, **options: object) -> list[Range]:
    return [p for task in reading.make_plan(root, prices=reading.FREE, **options).tasks for p in task.ranges]


def _grow(store: StoreBuilder, rng: random.Random, count: int) -> None:
    for _ in range(count):
        number = len(store.messages)
        store.append(
            rng.choice(("TopicA", "TopicB", "TopicC")),
            rng.randbytes(rng.choice((0, 20, 200))),
            rng.randrange(2),
            msg_id=f"ID{number:05d}{rng.randrange(1 << 20):05X}",
            keys=rng.choice((None, "k", f"k{number} k")),
            store_timestamp=store.now + rng.choice((0, 1, 900, 5000)),
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_log_that_was_cut_within_index_files(seed: int, rng: random.Random, tmp_path: Path) -> None:
    """Anywhere, and written anew, but not to its old length: what comes then is in no index."""
    store = StoreBuilder(tmp_path, 4096, 2000, index=True, index_slots=7, index_items=rng.choice((5, 12, 60, 1000)))
    _grow(store, rng, 120)
    store.flush()
    end, newest = store.end, store.now
    store.forget_last(rng.randrange(40, 100))
    store.append("TopicA", bytes(rng.choice((333, 2000))), msg_id="after the cut", store_timestamp=newest + 1)
    while store.end < end - rng.choice((1500, 4000)):
        _grow(store, rng, 1)
    assert store.end < end
    store.close()
    _same(tmp_path, lambda row: row["msgId"] == "after the cut", msgId="after the cut")
    _all_names(tmp_path, rng, 25)


def _end_early(path: Path, slots: int, count: int) -> None:
    """An index file as it was when it had so many items."""
    built = reference.IndexFile(slots, 1000)
    data = path.read_bytes()
    header = reference.decode_index_header(data)
    for item in reference.read_index(data, slots)[:count]:
        assert built.put(item.key_hash, item.physical_offset, header.begin_timestamp + 1000 * item.seconds)
    path.write_bytes(built.encode())


@pytest.mark.parametrize("with_queues", [True, False])
def test_a_file_that_ends_or_begins_where_nothing_proves_it_is_believed_but_for_that(
    with_queues: bool, rng: random.Random, tmp_path: Path
) -> None:
    """Times in the header that the log does not bear out: the items do, in between."""
    store = StoreBuilder(tmp_path, 1 << 16, 2000, index=True, index_slots=7, index_items=5000)
    _grow(store, rng, 900)
    store.close()
    if not with_queues:
        store.drop_queues()
    wanted = store.messages[450]
    name = next(r["msgId"] for r in reading.read(tmp_path, columns=COLUMNS) if r["commitLogOffset"] == wanted.position)
    path = store.index_file(0)
    honest = path.read_bytes()
    header = reference.decode_index_header(honest)
    for lie in ({"end_timestamp": 5}, {"end_timestamp": header.end_timestamp + 1}):
        path.write_bytes(reference.encode_index_header(header._replace(**lie)) + honest[40:])
        pieces = _pieces(tmp_path, msgId=name)
        (found,) = [piece for piece in pieces if isinstance(piece, Indexed)]
        assert wanted.position in found.positions
        scanned = sum(piece.stop - piece.start for piece in pieces if isinstance(piece, Scanned))
        assert scanned < (store.end - store.start) // 10
        _same(tmp_path, lambda row: row["msgId"] == name, msgId=name)


def test_items_that_do_not_ascend_are_not_believed(rng: random.Random, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path, 1 << 16, 2000, index=True, index_slots=1, index_items=5000)
    _grow(store, rng, 300)
    store.close()
    path = store.index_file(0)
    data = bytearray(path.read_bytes())
    header = reference.decode_index_header(data)
    middle = (1 + header.index_count - 1) // 2
    at = reference.index_item_at(1, middle) + 4
    data[at : at + 8] = (header.end_physical_offset + 8).to_bytes(8, "big")
    data[:40] = reference.encode_index_header(header._replace(end_timestamp=5))
    path.write_bytes(data)
    assert not any(isinstance(piece, Indexed) for piece in _pieces(tmp_path, msgId="none"))
    _all_names(tmp_path, rng, 5)


@pytest.mark.parametrize("seed", range(6))
def test_many_topics_without_a_topic_given(seed: int, rng: random.Random, tmp_path: Path) -> None:
    """More names than are looked up one by one; the same key in many topics, other names of files than their order."""
    store = StoreBuilder(
        tmp_path, 1 << 15, 200, index=True, index_slots=rng.choice((1, 3, 50)), index_items=rng.choice((20, 300))
    )
    for number in range(200):
        store.append(
            f"Topic{rng.randrange(60)}", msg_id=f"ID{number}", keys=rng.choice(("k", f"k{number % 9}", "Aa BB"))
        )
    store.close()
    paths = sorted((tmp_path / "index").iterdir())
    for number, path in enumerate(paths):
        path.rename(path.with_name(str(1000 - number)))
    for key in ("k", "k3", "Aa", "ID77", "none"):
        _same(tmp_path, lambda row: key == row["msgId"] or key in row["keys"].split(" "), key=key)  # noqa: B023
    assert any(isinstance(piece, Indexed) for piece in _pieces(tmp_path, key="k3"))


class _Counting(Files):
    """Counts what is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: dict[str, int] = {}

    def open(self, path: str) -> int:
        self.opened[path] = self.opened.get(path, 0) + 1
        return super().open(path)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> StoreBuilder:
    """20 index files, 60 topics."""
    root = tmp_path_factory.mktemp("wide")
    store = StoreBuilder(root, 1 << 17, 2000, index=True, index_slots=100, index_items=401)
    for number in range(8000):
        store.append(f"Topic{number % 60}", bytes(50), msg_id=f"ID{number}")
    store.close()
    assert len(list((root / "index").iterdir())) == 20
    return store


@pytest.mark.parametrize("options", [{"msgId": "ID4321", "subscribe": "Topic1"}, {"msgId": "ID4321"}])
def test_each_file_is_opened_once_and_no_queue_but_those_of_the_log_s_end_is_listed(
    options: dict[str, str], wide: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(_: object) -> None:
        raise AssertionError("all queues are listed")

    monkeypatch.setattr(ConsumeQueues, "every", property(listed))
    monkeypatch.setattr(ConsumeQueues, "__iter__", listed)
    files = _Counting()
    planned = plan(reading.options_of(wide.root, **options), files)
    assert planned.accesses[0][1].name == "index"
    by_index = {path: count for path, count in files.opened.items() if "/index/" in path}
    assert len(by_index) == 20
    assert set(by_index.values()) == {1}


def test_what_a_file_costs(wide: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Header, first items, last item and its slot; then a slot and a chain of about four. Of many names a file is read
    once."""
    costs: list[tuple[int, int]] = []

    class Counted(IndexReader):
        def lookup(self, *arguments: Any) -> Any:
            requests, size = self._files.requests, self._files.bytes
            found = super().lookup(*arguments)
            costs.append((self._files.requests - requests, self._files.bytes - size))
            return found

    monkeypatch.setattr("rmqstore_spark.read.plan.index_evidence.IndexReader", Counted)
    plan(reading.options_of(wide.root, msgId="none", subscribe="Topic1"))
    assert len(costs) == 20
    assert max(requests for requests, _ in costs) <= 20
    assert max(size for _, size in costs) < 4096
    costs.clear()
    plan(reading.options_of(wide.root, msgId="none"))
    assert {requests for requests, _ in costs} <= {1, 2}  # where no item is found, whether the slots are right
    assert max(size for _, size in costs) <= reference.index_item_at(100, 401) + reference.INDEX_SLOT_SIZE


def test_files_out_of_the_time_range_are_not_looked_into(
    wide: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqstore_spark.store.format.clock.CLOCK_SLACK", 0)
    looked: list[str] = []
    lookup = IndexReader.lookup

    def counted(self: IndexReader, *arguments: Any) -> Any:
        looked.append(self.path)
        return lookup(self, *arguments)

    monkeypatch.setattr(IndexReader, "lookup", counted)
    message = wide.messages[4321]
    time: dict[str, Any] = {
        "startingTimestamp": message.store_timestamp,
        "endingTimestamp": message.store_timestamp + 1,
    }
    for options in ({"msgId": "ID4321"}, {"msgId": "ID4321", "subscribe": message.topic}):
        looked.clear()
        assert [row["commitLogOffset"] for row in reading.read(wide.root, **options, **time)] == [message.position]
        assert 1 <= len(looked) <= 2
    _same(wide.root, lambda row: row["msgId"] == "ID4321", msgId="ID4321")


def test_lies_of_a_header_s_times_hide_nothing(wide: StoreBuilder, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(wide.root, root)
    message = wide.messages[4321]
    for path in (root / "index").iterdir():
        data = path.read_bytes()
        header = reference.decode_index_header(data)
        path.write_bytes(reference.encode_index_header(header._replace(begin_timestamp=1, end_timestamp=2)) + data[40:])
    found = reading.read(root, msgId="ID4321", startingTimestamp=message.store_timestamp)
    assert [row["commitLogOffset"] for row in found] == [message.position]


def test_it_says_how_many_files(wide: StoreBuilder) -> None:
    assert "looked up in 20 index files: 1 message to look at" in explanation(str(wide.root), {"msgId": "ID4321"})


def test_a_light_queue_is_no_topic(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path)
    store.append("TopicA")
    store.append(aged_stores.LMQ)
    store.close()
    assert ConsumeQueues(str(tmp_path / "consumequeue"), Files()).topics == {"TopicA"}


# ---- what a file costs in all, and the lies that the few requests still have to see


def _cost(root: Path, monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[int, int, int]:
    """Index files, requests of the look-ups without those for items in chains, and bytes of all of them."""
    chains: list[int] = []
    whole: list[tuple[int, int]] = []
    lookup, look_up = IndexReader.lookup, IndexPath.look_up

    def counted_lookup(self: IndexReader, *arguments: Any) -> Any:
        before = self._files.requests
        found = lookup(self, *arguments)
        chains.append(max(0, self._files.requests - before - 1))  # a slot
        return found

    def counted_look_up(self: IndexPath, ranges: list[Range]) -> Any:
        files = self._store.files
        requests, size = files.requests, files.bytes
        found = look_up(self, ranges)
        whole.append((files.requests - requests, files.bytes - size))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(IndexReader, "lookup", counted_lookup)
        patch.setattr(IndexPath, "look_up", counted_look_up)
        reading.make_plan(root, prices=reading.FREE, **options)
    ((requests, size),) = whole
    return len(chains), requests - sum(chains), size


@pytest.mark.parametrize("largest", [4096, 1 << 24])
@pytest.mark.parametrize(("topics", "messages", "body"), [(5, 60, 50), (100, 60, 50), (5, 400, 50), (20, 60, 1024)])
def test_six_requests_a_file_besides_chains(
    largest: int, topics: int, messages: int, body: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many queues and messages there are: header, last item, slot; the messages that it ends with and the next
    begins with; and two that prove that these are live, or the size of the message that begins the next segment."""
    monkeypatch.setattr("rmqstore_spark.store.live_log._LARGEST_SENT", largest)
    store = StoreBuilder(tmp_path, 1 << 16, 20_000, index=True, index_slots=messages // 4, index_items=messages + 1)
    files = 20
    for number in range(files * messages):
        store.append(f"Topic{number * 7 % topics}", bytes(body), msg_id=f"ID{number}")
    store.close()
    asked, requests, size = _cost(tmp_path, monkeypatch, msgId="none", subscribe="Topic1")
    assert asked == files
    first = 20  # the first one is checked as a whole, and how many slots it has is found out
    at_the_end = 40  # a queue may end before the log does
    assert requests <= 6 * files + first + at_the_end
    assert size <= files * (5 * 1024 + 2 * body) + 64 * 1024
    known = reading.read(
        tmp_path, columns=COLUMNS, prices=reading.FREE, msgId="ID777", subscribe=f"Topic{777 * 7 % topics}"
    )
    assert [row["msgId"] for row in known] == ["ID777"]


def test_an_offset_msg_id_is_not_looked_up(tmp_path: Path) -> None:
    """As option msgId it may be a client's id as well; by its own option it costs the same however many files there
    are."""
    found = []
    for files in (5, 20):
        root = tmp_path / str(files)
        store = StoreBuilder(root, 1 << 16, 20_000, index=True, index_slots=50, index_items=101)
        for number in range(100 * files):
            store.append(f"Topic{number % 50}", bytes(300), msg_id=f"ID{number}")
        store.close()
        row = next(row for row in reference.read_store(root) if row["msgId"] == "ID40")
        counted = Files()
        planned = plan(reading.options_of(root, offsetMsgId=row["offsetMsgId"].lower()), counted)
        assert planned.accesses[0][1].name != "index"
        found.append(counted.requests)
        assert reading.read(root, offsetMsgId=row["offsetMsgId"]) == [row]
    assert found[0] == found[1]


def _looked_up(root: Path, files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of a plan of one message by its id and topic: as many bytes as let 200 files be below a mebibyte."""

    def listed(_: object) -> None:
        raise AssertionError("other queues are looked at")

    monkeypatch.setattr("rmqstore_spark.read.plan.access_path._in_queues", listed)
    counted = Files()
    planned = plan(reading.options_of(root, msgId="none", subscribe="Topic1"), counted)
    assert planned.accesses[0][1].name == "index"
    assert counted.bytes <= files * 4608 + 96 * 1024


def test_a_price_needs_no_queue_of_another_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few topics there are."""
    store = StoreBuilder(tmp_path, 1 << 18, 20_000, index=True, index_slots=30, index_items=101)
    for number in range(2000):
        store.append(f"Topic{number % 3}", bytes(1000), msg_id=f"ID{number}")
    store.close()
    _looked_up(tmp_path, 20, monkeypatch)


def test_six_requests_a_file_where_queues_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the queue of the message that a file ends with has no later one, its neighbours' queues have."""
    store = StoreBuilder(tmp_path, 1 << 14, 20_000, index=True, index_slots=15, index_items=61)
    files = 20
    for number in range(files * 60):
        ends = number % 60 in (0, 59)  # where a file ends and begins
        store.append(f"Ended{number}" if ends else f"Topic{number % 20}", bytes(200), msg_id=f"ID{number}")
    store.close()
    asked, requests, _ = _cost(tmp_path, monkeypatch, msgId="none", subscribe="Topic1")
    assert asked == files
    assert requests <= 6 * files
    _looked_up(tmp_path, files, monkeypatch)


@pytest.fixture
def at_once(tmp_path: Path) -> StoreBuilder:
    """Five index files that go on one after the other. All messages have one store time: no time tells a lie."""
    store = StoreBuilder(tmp_path, 4096, 2000, index=True, index_slots=12, index_items=13)
    for number in range(30):
        store.append(f"Topic{number % 3}", bytes(60), msg_id=f"ID{number}", keys="k", store_timestamp=store.now)
    store.close()
    assert any(isinstance(piece, Indexed) for piece in _pieces(tmp_path, msgId="ID13"))
    return store


def _all_are_found(store: StoreBuilder) -> None:
    for number in range(4, 25, 2):  # of the file that lies, and of those beside it
        rows = reading.read(store.root, columns=["commitLogOffset"], prices=reading.FREE, msgId=f"ID{number}")
        assert [row["commitLogOffset"] for row in rows] == [store.messages[number].position], number


@pytest.mark.parametrize("field", ["begin_physical_offset", "end_physical_offset"])
def test_a_header_that_names_another_message_hides_none(field: str, at_once: StoreBuilder) -> None:
    path = at_once.index_file(2)
    honest = path.read_bytes()
    header = reference.decode_index_header(honest)
    for message in at_once.messages[::3]:
        lie = header._replace(**{field: message.position})
        path.write_bytes(reference.encode_index_header(lie) + honest[40:])
        _all_are_found(at_once)


@pytest.mark.parametrize("count", [-3, -1, 1])
def test_a_header_with_another_count_hides_none(count: int, at_once: StoreBuilder) -> None:
    path = at_once.index_file(2)
    honest = path.read_bytes()
    header = reference.decode_index_header(honest)
    lie = header._replace(index_count=header.index_count + count)
    path.write_bytes(reference.encode_index_header(lie) + honest[40:])
    _all_are_found(at_once)


def test_a_file_without_its_slots_hides_none(at_once: StoreBuilder) -> None:
    """As a crash may leave it. What is looked for would be in an empty chain."""
    path = at_once.index_file(2)
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(4 * 12) + data[40 + 4 * 12 :])
    _all_are_found(at_once)


def test_a_file_without_its_items_hides_none(at_once: StoreBuilder) -> None:
    path = at_once.index_file(2)
    data = path.read_bytes()
    first, last = reference.index_item_at(12, 1), reference.index_item_at(12, 12)
    for start, stop in ((first, last), (last, len(data)), (first, len(data))):
        path.write_bytes(data[:start] + bytes(stop - start) + data[stop:])
        _all_are_found(at_once)


def test_a_file_of_the_same_size_with_other_slots_hides_none(at_once: StoreBuilder) -> None:
    """The broker's settings were changed: five slots less, an item more."""
    path = at_once.index_file(2)
    data = path.read_bytes()
    header = reference.decode_index_header(data)
    built = reference.IndexFile(7, 14)
    for item in reference.read_index(data, 12):
        assert built.put(item.key_hash, item.physical_offset, header.begin_timestamp + 1000 * item.seconds)
    assert len(built.encode()) == len(data)
    path.write_bytes(built.encode())
    _all_are_found(at_once)


@pytest.mark.parametrize("other", [0, 1, 3, 4])
def test_a_copy_of_another_file_hides_none(other: int, at_once: StoreBuilder) -> None:
    shutil.copyfile(at_once.index_file(other), at_once.index_file(2))
    _all_are_found(at_once)
