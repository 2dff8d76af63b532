"""Copies of one broker's store under one glob are told at planning, and nothing else is taken for one."""

from __future__ import annotations

import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle import reference, stores
from support import flavours
from support.reading import FREE, MODES, make_plan, new_files, options_of, read

from rmqstore_spark import Store
from rmqstore_spark.errors import DamagedStoreError, OptionError
from rmqstore_spark.query.stream_options import parse_stream_options
from rmqstore_spark.read.explain import explained
from rmqstore_spark.read.plan.related import related_pairs
from rmqstore_spark.store.io.files import Prices
from rmqstore_spark.store.snapshot import Snapshot

Change = Callable[[stores.StoreBuilder, stores.StoreBuilder], None]


def broker(root: Path, host: str = "10.0.0.1:10911", count: int = 100) -> stores.StoreBuilder:
    """Its bodies are those of each other broker's; store times, sizes and offsets, too."""
    store = stores.StoreBuilder(root, segment_size=4096)
    add(store, host, count)
    store.close()
    return store


def add(store: stores.StoreBuilder, host: str, count: int, text: bytes = b"b") -> None:
    for _ in range(count):
        number = len(store.messages)
        store.append(f"T{number % 3}", text * (1 + number % 70), queue_id=number % 2, store_host=host)


def cut(root: Path, size: int = 4096, keep: int = 100) -> None:
    """As a crash and a broker that starts again leave it, at some message."""
    position = list(reference.read_units(root))[keep][0]
    for path in (root / "commitlog").iterdir():
        start = int(path.name)
        data = path.read_bytes()
        path.write_bytes(data[: max(0, position - start)].ljust(size, b"\0"))
        if start > position:
            path.unlink()
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink(missing_ok=True)


def expire(root: Path, count: int) -> None:
    for path in sorted((root / "commitlog").iterdir())[:count]:
        path.unlink()


def spoil(root: Path, position: int, size: int = 60) -> None:
    """A message's head becomes noise."""
    path = root / "commitlog" / f"{position // 4096 * 4096:020d}"
    data = bytearray(path.read_bytes())
    data[position % 4096 : position % 4096 + size] = b"\x5a" * size
    path.write_bytes(data)


def old_backup(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    cut(other.root, keep=30)


def expired(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    expire(one.root, 3)


def both_ends(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    expire(one.root, 2)
    cut(other.root, keep=80)


def other_tails(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    """Both have gone on with messages of their own, as two masters do."""
    add(one, "10.0.0.1:10911", 40, b"x")
    add(other, "10.0.0.2:10911", 30, b"y")
    one.close()
    other.close()


def damaged_first(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    spoil(one.root, 0)


def damaged_head(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    """A time in a message's head, which no checksum is over; and the last message, in the other one."""
    path = one.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    spoil(other.root, other.messages[-1].position)


def both_ends_damaged(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    spoil(one.root, 0)
    spoil(one.root, one.messages[-1].position)


def an_end_of_each_damaged(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    spoil(one.root, 0)
    spoil(other.root, other.messages[-1].position)


def first_segments_damaged(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    """Of the first common one no message is whole in both, and of the others the first one is not."""
    for message in one.messages:
        number, after = divmod(message.position, 4096)
        if number == 0:
            spoil(one.root if message.position < 2000 else other.root, message.position)
        elif after == 0:
            spoil(one.root, message.position)
    spoil(other.root, other.messages[-1].position)


def without_queues(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    one.drop_queues()


def same(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    pass


CHANGES = [same, old_backup, expired, both_ends, other_tails, damaged_first, damaged_head, without_queues]
CHANGES += [both_ends_damaged, an_end_of_each_damaged, first_segments_damaged]


@pytest.mark.parametrize("change", CHANGES)
def test_copies(tmp_path: Path, change: Change) -> None:
    one = broker(tmp_path / "a")
    shutil.copytree(one.root, tmp_path / "b")
    other = broker(tmp_path / "b")
    assert other.messages == one.messages
    change(one, other)
    third = broker(tmp_path / "c", "10.0.0.3:10911")
    for roots in (("a", "c", "b"), ("b", "a", "c")):
        with pytest.raises(OptionError, match=r"[ab] and .*/[ab]: expected stores of different .* two copies of one"):
            make_plan(*(tmp_path / name for name in roots))
    assert len(read(one.root, third.root, mode="DROPMALFORMED")) > 100
    assert make_plan(one.root, other.root, startingTimestamp=5, endingTimestamp=5).tasks == []


def test_moved_brokers(tmp_path: Path) -> None:
    """Their logs have messages of several hosts, and what an old backup has, may be of none of those at the ends."""
    for name in "ab":
        store = broker(tmp_path / name, "10.0.0.1:10911", 60)
        add(store, "10.0.0.2:10911", 60)
        store.close()
        if name == "a":
            add(store, "10.0.0.3:10911", 60)
            store.close()
    expire(tmp_path / "b", 3)
    assert {row["storeHost"] for row in read(tmp_path / "b")} == {"10.0.0.2:10911"}
    with pytest.raises(OptionError, match="two copies of one"):
        make_plan(tmp_path / "*")


@pytest.mark.parametrize("host", ["10.0.0.2:10911", "10.0.0.1:10911"])
def test_brokers_that_have_nothing_to_do_with_each_other(tmp_path: Path, host: str) -> None:
    """Messages at equal offsets, of equal sizes and times; also of brokers that have the same address."""
    one = broker(tmp_path / "a")
    other = stores.StoreBuilder(tmp_path / "b", segment_size=4096)
    add(other, host, 150, b"c")
    other.close()
    assert other.messages[:100] == one.messages
    empty = stores.StoreBuilder(tmp_path / "empty")
    empty.close()
    assert len(read(tmp_path / "*")) == 250


def test_a_store_in_two_parts(tmp_path: Path) -> None:
    """What one has is not in the other: nothing comes twice."""
    one = broker(tmp_path / "a")
    shutil.copytree(one.root, tmp_path / "b")
    segments = sorted(path.name for path in (one.root / "commitlog").iterdir())
    for name in segments[3:]:
        (one.root / "commitlog" / name).unlink()
    for name in segments[:3]:
        (tmp_path / "b" / "commitlog" / name).unlink()
    assert len(read(tmp_path / "*", mode="DROPMALFORMED")) == 100


def one_segment(root: Path) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, segment_size=65536)
    add(store, "10.0.0.1:10911", 50)
    store.close()
    return store


@pytest.mark.parametrize("change", [both_ends_damaged, an_end_of_each_damaged])
def test_copies_of_one_segment(tmp_path: Path, change: Change) -> None:
    one, other = one_segment(tmp_path / "a"), one_segment(tmp_path / "b")
    for store in (one, other):
        whole = of(reference.read_store(store.root))
    path = one.segment(0)
    assert path.stat().st_size == 65536
    for store, position in ((one, 0), (one if change is both_ends_damaged else other, one.messages[-1].position)):
        data = bytearray(store.segment(0).read_bytes())
        data[position : position + 60] = b"\x5a" * 60
        store.segment(0).write_bytes(data)
    with pytest.raises(OptionError, match="two copies of one"):
        read(one.root, other.root, mode="DROPMALFORMED")
    assert once(one.root, other.root) == whole
    made = Store([one.root, other.root]).salvage(tmp_path / "target", deduplicate=True)
    assert (made.messages, made.lost.num_rows) == (50, 0)


def halves(tmp_path: Path, host: str = "10.0.0.1:10911") -> list[Path]:
    """Two stores, of which one is damaged in its first half and the other in its second."""
    roots = []
    for number, each in enumerate(["10.0.0.1:10911", host]):
        store = stores.StoreBuilder(tmp_path / f"half-{number}", segment_size=65536)
        add(store, each, 50)
        store.close()
        first, last = [(0, store.messages[25].position), (store.messages[25].position, store.end)][number]
        data = bytearray(store.segment(0).read_bytes())
        data[first:last] = b"\x5a" * (last - first)
        store.segment(0).write_bytes(data)
        roots.append(store.root)
    return roots


@pytest.mark.parametrize("deduplicate", [False, True])
def test_what_cannot_be_told(tmp_path: Path, deduplicate: bool) -> None:
    """Where one has messages the other is damaged: copies, or two containers of the same address?"""
    roots = halves(tmp_path)
    with pytest.raises(OptionError, match=r"half-0 and .*half-1: expected a message that is whole in both .* none:"):
        read(*roots, mode="DROPMALFORMED", deduplicate=deduplicate)
    with pytest.raises(OptionError, match="expected a message that is whole in both"):
        Store(roots).salvage(tmp_path / "target", deduplicate=deduplicate)
    assert len(read(*halves(tmp_path / "x", "10.0.0.2:10911"), mode="DROPMALFORMED", deduplicate=deduplicate)) == 50


def test_a_store_without_a_whole_message(tmp_path: Path) -> None:
    """Nothing of it comes twice; but what it is a copy of nobody knows."""
    one, other = broker(tmp_path / "a"), broker(tmp_path / "b")
    for path in (other.root / "commitlog").iterdir():
        path.write_bytes(b"\x5a" * 4096)
    assert len(read(one.root, other.root, mode="DROPMALFORMED")) == 100
    with pytest.raises(OptionError, match="leave one out"):
        once(one.root, other.root, mode="DROPMALFORMED")


def test_costs_where_all_have_the_same_address(tmp_path: Path) -> None:
    """As containers have it: each store is looked at a few times, however many others there are."""
    for number in range(12):
        store = stores.StoreBuilder(tmp_path / f"s{number}", segment_size=4096)
        add(store, "127.0.0.1:10911", 60, bytes([97 + number]))
        store.close()

    def requests(count: int) -> int:
        files = new_files()
        opened = [Snapshot.find(str(tmp_path / f"s{number}"), files) for number in range(count)]
        for each in opened:
            _ = each.log, each.last_message
        before = files.requests
        assert list(related_pairs(opened)) == []
        return int(files.requests - before)

    few, many = requests(3), requests(12)
    assert many <= 5 * few
    assert many <= 12 * 20


def test_costs(tmp_path: Path, rng: random.Random) -> None:
    """One store: nothing. Several brokers: two looks each, however many there are."""
    hosts = [f"10.0.0.{number}:10911" for number in range(8)]
    for number, host in enumerate(hosts):
        broker(tmp_path / f"s{number}", host, rng.randrange(20, 200))

    def requests(count: int) -> int:
        files = new_files()
        opened = [Snapshot.find(str(tmp_path / f"s{number}"), files) for number in range(count)]
        for store in opened:
            _ = store.log, store.last_message
        before = files.requests
        assert list(related_pairs(opened)) == []
        return int(files.requests - before)

    assert requests(1) == 0
    assert requests(8) == 4 * requests(2)
    assert requests(2) <= 2 * 2 * 4


# ---- deduplicate=true

NAMES = ["topic", "queueId", "queueOffset", "commitLogOffset", "body", "storeTimestamp", "storeHost"]


def once(*roots: Path, **options: object) -> list[dict[str, object]]:
    return read(*roots, columns=NAMES, deduplicate=True, **options)


def of(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: row[name] for name in NAMES} for row in rows]


@pytest.mark.parametrize("change", [c for c in CHANGES if c not in (other_tails, damaged_head)])
def test_each_message_once(tmp_path: Path, change: Change) -> None:
    one = broker(tmp_path / "a")
    whole = of(reference.read_store(one.root))
    shutil.copytree(one.root, tmp_path / "b")
    other = broker(tmp_path / "b")
    change(one, other)
    third = broker(tmp_path / "c", "10.0.0.3:10911")
    beside = of(reference.read_store(third.root))
    assert once(one.root, third.root, other.root) == whole + beside
    assert once(third.root, other.root, one.root) == beside + whole
    assert once(other.root, one.root, subscribe="T1") == [row for row in whole if row["topic"] == "T1"]


def hurt(store: stores.StoreBuilder, message: stores.Stored, rng: random.Random) -> None:
    """Damages one message so that its checks tell."""
    path = store.segment(message.position)
    data = bytearray(path.read_bytes())
    at = message.position % store.segment_size
    match rng.randrange(4):
        case 0:
            data[at : at + 80] = rng.randbytes(80)
        case 1:
            data[at : at + message.size] = bytes(message.size)
        case 2:
            data[at : at + 4] = rng.randrange(1, 5000).to_bytes(4, "big")
        case 3:
            data[at + 88] ^= 1 << rng.randrange(8)  # its body
    path.write_bytes(data)


def damage_both(pair: list[stores.StoreBuilder], rng: random.Random) -> None:
    """Each message stays whole in one of them at least."""
    one = pair[0]
    for start in range(0, one.end, one.segment_size):
        if rng.random() < 0.3:
            path = rng.choice(pair).segment(start)
            data = path.read_bytes()
            path.unlink()
            if rng.random() < 0.5:
                path.write_bytes(data[: rng.randrange(len(data))])
            continue
        for message in one.messages:
            if start <= message.position < start + one.segment_size and rng.random() < 0.3:
                hurt(rng.choice(pair), message, rng)


SELECTIONS: list[dict[str, object]] = [
    {},
    {"subscribe": "T1"},
    {"key": "k7"},
    {"assign": '{"T0": [1]}', "startingOffsets": '{"T0": {"1": 5}}'},
    {"startingTimestamp": stores.FIRST_TIMESTAMP + 40, "endingTimestamp": stores.FIRST_TIMESTAMP + 90},
    {"maxPartitionBytes": 1000},
]


@pytest.mark.parametrize("number", range(4))
def test_two_damaged_copies(tmp_path: Path, rng: random.Random, number: int) -> None:
    """Together they have each message, once and in its order, whichever way it is looked for."""
    pair = []
    for name in "ab":
        store = stores.StoreBuilder(tmp_path / name, segment_size=4096, index=True)
        for i in range(150):
            store.append(f"T{i % 3}", b"b" * (1 + i % 90), queue_id=i % 2, keys=f"k{i % 10}", msg_id=f"{i:032X}")
        store.close()
        pair.append(store)
    whole = [read(pair[0].root, columns=NAMES, **options) for options in SELECTIONS]
    damage_both(pair, rng)
    roots = [store.root for store in pair]
    for options, expected in zip(SELECTIONS, whole, strict=True):
        for prices in (None, FREE):
            rng.shuffle(roots)
            assert once(*roots, prices=prices, mode=rng.choice(MODES[::2]), **options) == expected


def twice(tmp_path: Path) -> list[stores.StoreBuilder]:
    return [broker(tmp_path / name) for name in "ab"]


def test_what_no_copy_has(tmp_path: Path) -> None:
    """An error, or a row for the part that is damaged in both."""
    one, other = twice(tmp_path)
    for number in (20, 21, 22):
        spoil(one.root, one.messages[number].position)
    for number in (22, 23):
        spoil(other.root, one.messages[number].position)
    lost = one.messages[22]
    with pytest.raises(DamagedStoreError, match=rf"commitLogOffset {lost.position}\): .*; {lost.size} bytes cannot be"):
        once(one.root, other.root)
    rows = read(one.root, other.root, mode="PERMISSIVE", deduplicate=True)
    assert [row["commitLogOffset"] for row in rows] == [message.position for message in one.messages]
    assert [row["commitLogOffset"] for row in rows if row["corrupt"]] == [lost.position]
    assert len(read(one.root, other.root, mode="DROPMALFORMED", deduplicate=True)) == 99


def flagged(store: stores.StoreBuilder, number: int, how: int = 1) -> None:
    """Flips bits of a message's sysFlag, which no checksum covers: by 1 its body should be compressed by zlib."""
    message = store.messages[number]
    path = store.segment(message.position)
    data = bytearray(path.read_bytes())
    data[message.position % store.segment_size + 39] ^= how
    path.write_bytes(data)


@pytest.mark.parametrize("prices", [None, FREE])
def test_bodies_that_cannot_be_decompressed(tmp_path: Path, prices: Prices | None) -> None:
    """Another copy has them, in their place among the other rows; also where another body of the same batch is
    compressed, and where the other copies have damage of another kind there."""
    trio = []
    for name in "abc":
        store = stores.StoreBuilder(tmp_path / name, segment_size=4096, index=True)
        for i in range(150):
            body, flag = b"b" * (1 + i % 90), i % 5 == 0
            store.append(
                f"T{i % 3}", zlib.compress(body) if flag else body, sys_flag=flag, queue_id=i % 2, keys=f"k{i % 10}"
            )
        store.close()
        trio.append(store)
    whole = [read(trio[0].root, columns=NAMES, **options) for options in SELECTIONS]
    one, other, third = trio
    for number in (7, 8, 9, 47, 77):
        flagged(one, number)
    for number in (8, 37, 77):
        flagged(other, number)
    for number in (9, 47):
        spoil(other.root, one.messages[number].position)
    flagged(third, 9)
    spoil(third.root, one.messages[77].position)
    lost = {one.messages[number].position for number in (9, 77)}
    for first in range(3):
        roots = [store.root for store in (*trio[first:], *trio[:first])]
        for options, expected in zip(SELECTIONS, whole, strict=True):
            found = once(*roots, prices=prices, mode="DROPMALFORMED", **options)
            assert found == [row for row in expected if row["commitLogOffset"] not in lost]


def test_a_body_that_no_copy_can_decompress(tmp_path: Path) -> None:
    """Its row is there without a body, as of one store."""
    one, other = twice(tmp_path)
    flagged(one, 20)
    flagged(other, 20)
    position = one.messages[20].position
    with pytest.raises(DamagedStoreError, match=rf"commitLogOffset {position}\): .*should be zlib-compressed"):
        once(one.root, other.root)
    rows = read(one.root, other.root, mode="PERMISSIVE", deduplicate=True, columns=[*NAMES, "corrupt"])
    assert [row["commitLogOffset"] for row in rows] == [message.position for message in one.messages]
    assert [(row["commitLogOffset"], row["body"], row["queueOffset"]) for row in rows if row["corrupt"]] == [
        (position, None, one.messages[20].queue_offset)
    ]


def test_a_body_whose_checksum_was_not_looked_at(tmp_path: Path) -> None:
    """With verifyCrc=false only a compressed one tells that it is damaged."""
    pair = []
    for name in "ab":
        store = stores.StoreBuilder(tmp_path / name)
        for number in range(9):
            store.append("T", zlib.compress(b"%d" % number * 50), sys_flag=1)
        store.close()
        pair.append(store)
    whole = read(pair[0].root, columns=NAMES)
    spoil(pair[0].root, pair[0].messages[4].position + 90, 4)
    assert once(*(store.root for store in pair), verifyCrc=False) == whole


def test_another_broker_is_no_spare(tmp_path: Path) -> None:
    """Of the same offsets in one task."""
    one, other = twice(tmp_path)
    third = broker(tmp_path / "c", "10.0.0.3:10911")
    spoil(one.root, one.messages[20].position)
    spoil(third.root, one.messages[20].position)
    roots = (one.root, other.root, third.root)
    assert len(make_plan(*roots, mode="PERMISSIVE", deduplicate=True).tasks) == 1
    with pytest.raises(DamagedStoreError, match="c/commitlog"):
        once(*roots)
    assert len(once(*roots, mode="DROPMALFORMED")) == 199


def test_rows_say_which_copy_they_are_from(tmp_path: Path) -> None:
    one, other = twice(tmp_path)
    spoil(one.root, one.messages[20].position)
    rows = read(one.root, other.root, columns=["commitLogOffset", "store", "file"], deduplicate=True)
    assert [Path(str(row["store"])) for row in rows] == [other.root if n == 20 else one.root for n in range(100)]
    assert all(Path(str(row["file"])).parent.parent == Path(str(row["store"])) for row in rows)


def test_a_segment_that_no_copy_has(tmp_path: Path) -> None:
    """Also where it is the old backup that ends, and the other copy that begins later."""
    one, other = twice(tmp_path)
    third = broker(tmp_path / "c")
    segments = sorted(path.name for path in (one.root / "commitlog").iterdir())
    (one.root / "commitlog" / segments[1]).unlink()
    (other.root / "commitlog" / segments[1]).unlink()
    lost = sum(4096 <= message.position < 8192 for message in one.messages)
    with pytest.raises(DamagedStoreError, match=r"a gap in the commitlog: expected a file 00000000000000004096"):
        once(one.root, other.root)
    assert len(once(one.root, other.root, mode="DROPMALFORMED")) == 100 - lost
    assert len(once(one.root, other.root, third.root)) == 100


def test_logs_that_differ(tmp_path: Path) -> None:
    """Two that went on by themselves after a cut; damage hides neither where nor that."""
    one, other = twice(tmp_path)
    end = one.end
    other_tails(one, other)
    for number in range(2):
        for roots in ((one.root, other.root), (other.root, one.root)):
            with pytest.raises(OptionError, match=rf"but from {end} on these have different messages"):
                once(*roots)
        spoil((one, other)[number].root, (one, other)[number].messages[-1].position)


@pytest.mark.parametrize(
    ("bodies", "own", "spoiled"),
    [
        pytest.param([50, 50, 50, 1500, 50], [300, 50], -2, id="all that shows lies across one of the other's"),
        pytest.param([100] * 12, [100], None, id="old messages follow right after the new one"),
    ],
)
def test_logs_that_differ_where_little_shows(
    tmp_path: Path, bodies: list[int], own: list[int], spoiled: int | None
) -> None:
    """The last message of the shorter log, or the only one that is whole after the cut, does not tell it."""
    logs = [stores.StoreBuilder(tmp_path / name, segment_size=4096) for name in "ab"]
    for log in logs:
        for size in bodies:
            log.append("T", b"m" * size)
    cut = logs[1].forget_last(len(bodies) - 2)
    logs[1].now += 1_000_000
    for size in own:
        logs[1].append("T", b"n" * size)
    for log in logs:
        log.close()
    if spoiled is not None:
        spoil(logs[1].root, logs[1].messages[spoiled].position)
    alone = [read(log.root, columns=["body"], mode="DROPMALFORMED") for log in logs]
    assert any(bytes(row["body"]).startswith(b"n") for row in alone[1])
    first = logs[1].messages[spoiled + 1].position if len(own) == 2 and spoiled is not None else cut
    for roots in (logs, logs[::-1]):
        with pytest.raises(OptionError, match=rf"but from {first} on these have different messages"):
            once(*(log.root for log in roots), mode="DROPMALFORMED")


def test_copies_with_other_offsets(tmp_path: Path) -> None:
    one = broker(tmp_path / "a")
    Store(one.root).copy(tmp_path / "b")
    with pytest.raises(OptionError, match=r"the same messages in different places, as a copy by `rmqstore"):
        once(one.root, tmp_path / "b")


def test_a_copy_of_batches(tmp_path: Path) -> None:
    """BatchCQs tell where a message is as simple queues do: the copy of one topic alone, whose messages are elsewhere
    in its log, was taken for another broker's store, and each message came twice."""
    root = flavours.unpack_store("batchcq", tmp_path / "a")
    Store(root).copy(tmp_path / "b", subscribe="Bq")
    with pytest.raises(OptionError, match="found two copies of one"):
        read(root, tmp_path / "b")
    with pytest.raises(OptionError, match="the same messages in different places"):
        once(root, tmp_path / "b")


def test_explained(tmp_path: Path) -> None:
    one, other = twice(tmp_path)
    cut(other.root, keep=90)
    lines = explained(options_of(one.root, other.root, deduplicate=True)).splitlines()
    assert f"  access: copy: it is read where {one.root} is damaged" in lines
    assert sum("access: scan" in line for line in lines) == 1


def test_what_goes_with_it(tmp_path: Path) -> None:
    one, other = twice(tmp_path)
    for root in (one.root, other.root):
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "consumerOffset.json").write_text('{"offsetTable": {"T0@G": {"0": 3}}}')
    with pytest.raises(OptionError, match="group:G cannot be used with replicas"):
        once(one.root, other.root, startingOffsets="group:G")
    assert len(once(one.root, startingOffsets="group:G")) == 14 + 17
    with pytest.raises(OptionError, match="'deduplicate' does not go with table 'queues'"):
        Store(one.root).table("queues", deduplicate=True)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="'deduplicate' is not for streams"):
        parse_stream_options({"path": str(one.root), "deduplicate": "true"})
    rows = read(one.root, other.root, columns=["commitLogOffset"], trust="queues", deduplicate=True)
    assert sorted(row["commitLogOffset"] for row in rows) == [message.position for message in one.messages]
    found = Store([one.root, other.root]).messages(["commitLogOffset"], deduplicate=True).read_all()
    assert found["commitLogOffset"].to_pylist() == [message.position for message in one.messages]


def test_a_copy_for_another_host_is_another_brokers(tmp_path: Path) -> None:
    """docs/moving.md says so."""
    broker(tmp_path / "old", count=20)
    Store(tmp_path / "old").copy(tmp_path / "new", storeHost="10.1.2.3:10911")
    Store(tmp_path / "old").copy(tmp_path / "copy")
    for deduplicate in (False, True):
        both = Store([tmp_path / "old", tmp_path / "new"]).messages("storeHost", deduplicate=deduplicate).read_all()
        hosts = both.column("storeHost").to_pylist()
        assert (hosts.count("10.0.0.1:10911"), hosts.count("10.1.2.3:10911")) == (20, 20)
    with pytest.raises(OptionError, match="expected stores of different brokers"):
        Store([tmp_path / "old", tmp_path / "copy"]).messages()
