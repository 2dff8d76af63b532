"""Selections: whatever the accelerators look like, the rows are those of the full scan filtered.

Known limits, which are not tested against: topics that are known nowhere (no ConsumeQueue, not in topics.json or
consumerOffset.json) in a lookup by key or msgId without topic; messages of batches in a lookup by key or msgId where
neither topics.json nor batchconsumequeue/ knows their topic; ROLLBACK messages with keys, which no index has; a
queueOffset used twice in a queue that is named with bounded offsets; a wrong tagsCode in an otherwise sound
ConsumeQueue; a zeroed index slot, or an item unlinked in a sound chain; messages written after a truncation and before
the log was as long as it had been, which are in no index; clock steps back of more than CLOCK_SLACK inside a piece of
the log whose ends do not show them.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import aged_stores, damage, reference, rocksdb
from oracle.random_stores import UNUSUAL_TIMES
from oracle.stores import StoreBuilder
from support import reading, selecting
from support.selecting import Row, Wanted

from rmqstore_spark.errors import DamagedStoreError, OptionError
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.plan import access_path
from rmqstore_spark.read.run import find
from rmqstore_spark.store.format.clock import CLOCK_SLACK
from rmqstore_spark.store.io.files import Prices

COLUMNS = ["topic", "queueId", "queueOffset", "tags", "keys", "msgId", "offsetMsgId", "commitLogOffset"]
COLUMNS += ["storeTimestamp", "bodyCRC", "batchIndex"]
EXAMPLES = 60
OBJECT_EXAMPLES = 12
ROCKSDB_EXAMPLES = 40


@dataclass
class Paths:
    """How often each way was taken: pieces by class, and how many of them gave rows; contradictions."""

    pieces: Counter[str] = field(default_factory=Counter)
    fruitful: Counter[str] = field(default_factory=Counter)
    contradictions: int = 0


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Paths:
    found = Paths()

    def warning(text: str, *args: object) -> None:
        assert "; reading" in text
        found.contradictions += 1

    monkeypatch.setattr(find.log, "warning", warning)
    monkeypatch.setattr(access_path.log, "warning", warning)
    return found


def _read(options: ReadOptions, paths: Paths | None = None, prices: Prices | None = None) -> list[Row]:
    rows = []
    for task in reading.forced_plan(options, reading.new_files(prices)).tasks:
        if paths is None:
            rows += reading.read_one(task, options, COLUMNS)
            continue
        for piece in task.ranges:
            found = reading.read_one(replace(task, ranges=(piece,)), options, COLUMNS)
            paths.pieces[type(piece).__name__] += 1
            paths.fruitful[type(piece).__name__] += bool(found)
            rows += found
    return sorted(rows, key=lambda row: (row["commitLogOffset"], row["batchIndex"] or 0))


def _options(root: Path, rng: random.Random, parts: list[Wanted]) -> ReadOptions:
    given = {name: value for part in parts for name, value in part.options.items()}
    size = rng.choice(({}, {"minPartitions": "7"}, {"maxPartitionBytes": "1000"}, {"maxPartitionBytes": "5000"}))
    options = reading.options_of(root, **given, **size)
    selection = options.selection
    for part in parts:
        if part.pushed is not None:
            selection = selection.narrowed(part.pushed)
    return replace(options, selection=selection)


def _check(
    seed: int,
    damages: list[str],
    kinds: list[list[str]],
    is_pushed: list[bool],
    paths: Paths,
    prices: Prices | None,
    in_rocksdb: bool = False,
) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        store, is_cut = aged_stores.aged_store(root, rng, batches=rng.random() < 0.5)
        for name in damages:
            damage.DAMAGES[name](root, rng)
        if in_rocksdb:
            _put_into_rocksdb(root, rng)
        if reading.STORAGE == "objects" and not any((root / "commitlog").iterdir()):
            return  # a bucket has no empty directories, so that is no store
        try:
            rows = _read(reading.options_of(root))
        except DamagedStoreError:  # where a truncated log ends cannot be told when its queues lie as well
            assert is_cut
            return
        assert is_cut or rows == [_narrow(row) for row in reference.read_store(root, with_index=True)]
        for names, pushed in zip(kinds, is_pushed, strict=False):
            if pushed:
                parts = [selecting.by_filter(rng, rows, name) for name in names]
            else:
                parts = selecting.by_options(rng, rows, store, names)
            options = _options(root, rng, parts)
            expected = [row for row in rows if all(part.predicate(row) for part in parts)]
            try:
                found = _read(options, paths, prices)
            except OptionError as error:  # nothing knows a topic; then the log must have no message of it
                (topic,) = [topic for topic in options.subscribe if f"unknown topic {topic!r}" in str(error)]
                assert topic not in {row["topic"] for row in rows}
                continue
            assert found == expected, (options, _explain(found, expected))


def _put_into_rocksdb(root: Path, rng: random.Random) -> None:
    place = rng.choice(("consumequeue", "consumequeue", "consumequeue_rocksdb"))
    lacks = rng.choice(("", "", "end", "middle"))
    rocksdb.put_queues(root, rng, keeps_files=rng.random() < 0.3, place=place, lacks=lacks)
    if rng.random() < 0.3:
        rocksdb.damage(root / place, rng)


def _narrow(row: Row) -> Row:
    return {name: row[name] for name in COLUMNS}


def _explain(found: list[Row], expected: list[Row]) -> str:
    missing = [row for row in expected if row not in found]
    more = [row for row in found if row not in expected]
    return f"{len(found)} rows found, {len(expected)} expected; missing: {missing[:3]}; too many: {more[:3]}"


damages_of = st.lists(st.sampled_from(sorted(damage.DAMAGES)), max_size=2)
seeds = st.integers(0, (1 << 32) - 1)


def _some(kinds: tuple[str, ...]) -> st.SearchStrategy[list[list[str]]]:
    return st.lists(st.lists(st.sampled_from(kinds), min_size=1, max_size=3, unique=True), min_size=3, max_size=6)


@pytest.mark.slow
@pytest.mark.parametrize("pushed", [False, True], ids=["options", "filters"])
@pytest.mark.parametrize("prices", ["real", "none"])
def test_rows_are_those_of_the_filtered_full_scan(prices: str, pushed: bool, paths: Paths) -> None:
    kinds = selecting.PUSHED_KINDS if pushed else selecting.OPTION_KINDS

    @settings(max_examples=EXAMPLES)
    @given(seeds, damages_of, _some(kinds))
    def check(seed: int, damages: list[str], some: list[list[str]]) -> None:
        _check(seed, damages, some, [pushed] * len(some), paths, reading.FREE if prices == "none" else None)

    check()
    if prices == "none":
        assert paths.fruitful["Scanned"] > 40
        assert paths.fruitful["Queued"] > 10
        if settings().derandomize:  # else 60 examples may have no index, and no queue that lies
            assert paths.contradictions > 0
            assert paths.pieces["Indexed"] > 10
            assert paths.fruitful["Indexed"] > 2


@pytest.mark.parametrize("pushed", [False, True], ids=["options", "filters"])
def test_queues_in_rocksdb(pushed: bool, paths: Paths) -> None:
    kinds = selecting.PUSHED_KINDS if pushed else selecting.OPTION_KINDS

    @settings(max_examples=ROCKSDB_EXAMPLES)
    @given(seeds, damages_of, _some(kinds))
    def check(seed: int, damages: list[str], some: list[list[str]]) -> None:
        _check(seed, damages, some, [pushed] * len(some), paths, reading.FREE, in_rocksdb=True)

    check()
    assert paths.fruitful["Queued"] > 3


# ---- what random stores hardly ever have


def _assert_same(
    root: Path, predicate: Callable[[Row], bool], may_miss: Container[int] = (), **options: object
) -> None:
    """`may_miss`: positions of messages that need not be found."""
    everything = _read(reading.options_of(root))
    assert everything == [_narrow(row) for row in reference.read_store(root, with_index=True)]
    expected = [row for row in everything if predicate(row)]
    for prices in (None, reading.FREE):
        found = _read(reading.options_of(root, **options), prices=prices)
        missed = [row for row in expected if row not in found]
        assert all(row["commitLogOffset"] in may_miss for row in missed), options
        assert found == [row for row in expected if row not in missed], options


@pytest.fixture
def cut_store(tmp_path: Path, request: pytest.FixtureRequest) -> StoreBuilder:
    """Truncated, and so much shorter before its first segment ends that whole old messages lie behind the blank; the
    queue of TopicB still has units for them, and the index items."""
    forgotten, again = request.param
    store = StoreBuilder(tmp_path, 4096, 2000, index=True, index_slots=aged_stores.SLOTS, index_items=1000)
    while store.end < 3600:
        for topic in ("TopicA", "TopicB"):
            store.append(topic, bytes(20), msg_id=f"ID{len(store.messages)}")
    store.forget_last(forgotten)
    store.append("TopicC", bytes(3000))
    for _ in range(again):
        store.append("TopicA", bytes(30))
    store.append("TopicB", bytes(30))
    store.close()
    return store


cut_stores = pytest.mark.parametrize("cut_store", [(6, 0), (6, 2), (10, 3), (20, 1)], indirect=True, ids=str)


@pytest.mark.slow
@cut_stores
def test_queue_offsets_of_old_messages_behind_a_blank(cut_store: StoreBuilder) -> None:
    offsets = [m.queue_offset for m in cut_store.messages if m.topic == "TopicA"]
    near = range(max(0, max(offsets) - 8), max(offsets) + 12)
    for start, end in itertools.combinations(near, 2):
        _assert_same(
            cut_store.root,
            lambda row: row["topic"] == "TopicA" and start <= row["queueOffset"] < end,  # noqa: B023
            assign='{"TopicA": [0]}',
            startingOffsets=json.dumps({"TopicA": {"0": start}}),
            endingOffsets=json.dumps({"TopicA": {"0": end}}),
        )


@cut_stores
def test_an_index_that_ends_with_an_old_message_behind_a_blank(cut_store: StoreBuilder) -> None:
    for number in (0, 5, *range(len(cut_store.messages) - 8, len(cut_store.messages) + 22)):
        _assert_same(cut_store.root, lambda row: row["msgId"] == f"ID{number}", key=f"ID{number}")  # noqa: B023


@pytest.mark.parametrize("tags", ["*", "Aa", "BB", "TagC"])
def test_a_queue_that_stands_for_another_of_equal_sizes(tags: str, tmp_path: Path, paths: Paths) -> None:
    """Units that are missing in one place and there twice in another add up to the same size."""
    store = StoreBuilder(tmp_path)
    for _ in range(40):
        store.append("TopicA", b"12", tags="Aa")
        store.append("TopicB", b"34", tags="Bc")
    store.close()
    shutil.rmtree(tmp_path / "consumequeue" / "TopicA")
    shutil.copytree(tmp_path / "consumequeue" / "TopicB", tmp_path / "consumequeue" / "TopicA")
    for topics in ("TopicA", "TopicB", "TopicA,TopicB"):
        _assert_same(
            tmp_path,
            lambda row: row["topic"] in topics and tags in ("*", row["tags"]),  # noqa: B023
            subscribe=topics,
            tags=tags,
        )
    assert paths.contradictions > 0


@pytest.mark.slow
@pytest.mark.parametrize("step", [CLOCK_SLACK, CLOCK_SLACK + 1, 7_200_000])
def test_a_clock_that_was_set_back(step: int, tmp_path: Path, rng: random.Random) -> None:
    """Pieces see it at their ends, however far it went. Only where it went hardly further than a minute they may not.
    Then the messages on both sides of the step may be missing: what is older by more than that than the first message
    of its piece, and what is newer by more than that than the message after its piece."""
    store = StoreBuilder(tmp_path, 65536, 20_000)
    for number in range(300):
        time = store.now + (1000 if number != 150 else -step)
        store.append(rng.choice(("TopicA", "TopicB")), store_timestamp=time)
    store.close()
    times = [message.store_timestamp for message in store.messages]
    may_miss = {message.position for message in store.messages[149:151]} if step == CLOCK_SLACK + 1 else ()
    at_the_step = [(times[number], times[number] + 1) for number in (148, 149, 150, 151)]
    drawn = (sorted(rng.choice(times) + rng.choice((0, 1)) for _ in range(2)) for _ in range(30))
    for start, end in itertools.chain(at_the_step, drawn):
        for subscribed in ({}, {"subscribe": "TopicA"}):
            _assert_same(
                tmp_path,
                lambda row: (
                    start <= row["storeTimestamp"] // 1000 < end  # noqa: B023
                    and subscribed.get("subscribe", row["topic"]) == row["topic"]  # noqa: B023
                ),
                may_miss=may_miss,
                startingTimestamp=start,
                endingTimestamp=end,
                maxPartitionBytes=rng.choice((2000, 100_000)),
                **subscribed,
            )


@pytest.mark.parametrize("time", UNUSUAL_TIMES)
def test_times_that_no_column_holds_are_not_selected(time: int, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path)
    store.append(store_timestamp=time, born_timestamp=0)
    store.close()
    for options in ({"startingTimestamp": -((1 << 63) - 1)}, {"endingTimestamp": (1 << 63) - 1}):
        _assert_same(tmp_path, lambda row: row["storeTimestamp"] is not None, (), **options)


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["objects"], indirect=True)
@pytest.mark.parametrize("pushed", [False, True], ids=["options", "filters"])
def test_object_storage_has_the_same_rows(storage: None, pushed: bool, paths: Paths) -> None:
    kinds = selecting.PUSHED_KINDS if pushed else selecting.OPTION_KINDS

    @settings(max_examples=OBJECT_EXAMPLES)
    @given(seeds, damages_of, _some(kinds))
    def check(seed: int, damages: list[str], some: list[list[str]]) -> None:
        _check(seed, damages, some, [pushed] * len(some), paths, reading.FREE)

    check()
    assert paths.fruitful["Scanned"] + paths.fruitful["Queued"] > 0
