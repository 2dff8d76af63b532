"""An index file gives each message of a key that brute force finds; a damaged one hides none."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import golden, reference, stores

from native_io import java_hash
from rmqstore_spark.errors import RmqStoreError, StorageError
from rmqstore_spark.store.geometry import index_geometry
from rmqstore_spark.store.io.files import Files, Prices
from rmqstore_spark.store.structures.indexfile import (
    DEFAULT_SLOTS,
    IndexFile,
    IndexReader,
    by_slot,
    index_paths,
    key_hash,
)

DATA = Path(__file__).parents[1] / "data"
DEFAULT_ITEMS = 20_000_000
TAGS_INDEXED = ("5.5.0",)  # versions whose brokers index TAGS as well
PLAIN = sorted(path.name for path in DATA.glob("rocketmq-*"))
# Of each data store: slots and items of its files, as its broker was told.
GEOMETRY = {name: (500, 1000) if name.endswith("features") else (100, 30) for name in PLAIN}
GEOMETRY |= dict.fromkeys(golden.VERSIONS, (100, 200))

Keys = dict[tuple[str, str], set[int]]  # by topic and key: the positions of the messages that have it


@pytest.fixture(params=[*PLAIN, *golden.VERSIONS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(name: str, tmp_path: Path) -> Path:
    """A store that RocketMQ wrote."""
    return DATA / name if name in PLAIN else golden.unpack(name, tmp_path / "store")


def index_files(directory: str | None, files: Files) -> tuple[list[IndexFile], list[str]]:
    """The files of a directory that can be asked, and why others cannot."""
    found, unusable, slots = [], [], [DEFAULT_SLOTS]
    try:
        paths = index_paths(directory, files)
    except RmqStoreError as why:
        return [], [str(why)]
    for path in paths:
        try:
            file = IndexFile.open(path, files, slots)
        except RmqStoreError as why:
            unusable.append(str(why))
            continue
        if file is not None:
            found.append(file)
            slots.append(file.slots)
    return found, unusable


def keys_of(store: Path, tags: bool = False) -> tuple[Keys, dict[int, set[int]]]:
    """Brute force: where each key of the log is, and the hashes at each position."""
    keys: Keys = defaultdict(set)
    hashes: dict[int, set[int]] = {}
    for position, unit in reference.read_units(store):
        row = reference.decode_unit(unit, position, decompress=False)
        rolled_back = row["sysFlag"] & reference.TRANSACTION_BITS == reference.ROLLBACK
        names = [] if rolled_back else reference.index_keys(row["properties"], tags)
        for key in names:
            keys[row["topic"], key].add(position)
        hashes[position] = {reference.index_hash(row["topic"], key) for key in names}
    return keys, hashes


def sound(store: Path) -> list[IndexFile]:
    files, unusable = index_files(str(store / "index"), Files())
    assert unusable == []
    return files


def lookup(file: IndexFile, wanted: int, files: Files | None = None) -> list[int] | None:
    """Where the messages are that have a key of this hash, newest first; None where nothing that the file says is to be
    believed."""
    try:
        with IndexReader(file.path, files or Files(), file.header) as reader:
            found = reader.lookup(file, np.array([wanted], np.int32))
    except RmqStoreError:
        return None
    return None if found is None else found[::-1].tolist()


def covered(file: IndexFile) -> tuple[int, int]:
    """The physical offsets of the first and of the last item's message. Messages strictly between them are in the file
    with all their keys; those two may have keys in the file before or the one after, or not yet anywhere."""
    return file.header.begin_position, file.header.end_position


def ask(files: Iterable[IndexFile], wanted: int) -> set[int]:
    found: set[int] = set()
    for file in files:
        positions = lookup(file, wanted)
        assert positions is not None
        assert positions == sorted(set(positions), reverse=True)
        found.update(positions)
    return found


def by_hash(keys: Keys) -> dict[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for (topic, key), positions in keys.items():
        found[reference.index_hash(topic, key)] |= positions
    return found


# ---- hashes


def test_java_hash() -> None:
    vectors = {"TagA": 2598919, "TopicA#k0": -1903240650, "": 0, "polygenelubricants": -(1 << 31), "中文": 646394}
    for text, expected in {**vectors, "\U0001f600": 1772899}.items():
        assert java_hash(text) == expected
    assert key_hash("TopicA", "k0") == 1903240650


def test_hashes_of_any_text(rng: random.Random) -> None:
    for _ in range(200):
        alphabet = rng.choice(("ab", "aZ09_%-|", "é中\U0001f600\ud800", "\0\uffff\U0010ffff"))
        topic, key = ("".join(rng.choices(alphabet, k=rng.randrange(60))) for _ in range(2))
        assert java_hash(key) == reference.java_hash(key)
        assert key_hash(topic, key) == reference.index_hash(topic, key)


def test_hash_that_has_no_positive() -> None:
    key = _key_with_hash("T#", 1 << 31)
    assert java_hash(f"T#{key}") == -(1 << 31)  # Java's Math.abs leaves it as it is
    assert key_hash("T", key) == reference.index_hash("T", key) == 0


def _key_with_hash(prefix: str, wanted: int) -> str:
    """A text of 7 characters behind `prefix` that brings java_hash to `wanted` (as an unsigned number)."""
    value = (wanted - reference.java_hash(prefix) * 31**7) % (1 << 32)
    digits = []
    for place in range(6, -1, -1):
        digit = min(value // 31**place, 0xD7FF) if place else value
        digits.append(digit)
        value -= digit * 31**place
    return "".join(map(chr, digits))


# ---- what RocketMQ wrote


def test_the_builder_writes_what_a_broker_writes(name: str, store: Path) -> None:
    built = reference.Index(*GEOMETRY[name])
    for position, unit in reference.read_units(store):
        row = reference.decode_unit(unit, position, decompress=False)
        if row["sysFlag"] & reference.TRANSACTION_BITS == reference.ROLLBACK:
            continue
        keys = reference.index_keys(row["properties"], name in TAGS_INDEXED)
        built.put(row["topic"], keys, position, row["storeTimestamp"] // 1000)
    written = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    assert [file.encode() for _, file in built.files] == written


def test_slots_and_items_are_found(name: str, store: Path) -> None:
    for path in sorted((store / "index").iterdir()):
        file = IndexFile.open(str(path), Files())
        assert file
        assert (file.slots, file.items) == GEOMETRY[name]


@pytest.mark.slow
def test_every_key_of_the_log(name: str, store: Path) -> None:
    keys, hashes = keys_of(store, name in TAGS_INDEXED)
    files = sound(store)
    assert keys
    for wanted, expected in by_hash(keys).items():
        assert ask(files, wanted) == expected
    for (topic, key), expected in keys.items():
        found = ask(files, key_hash(topic, key))
        assert {position for position in found if key_hash(topic, key) in hashes[position]} >= expected
    assert ask(files, key_hash("TopicA", "no such key")) == set()


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_every_key_that_rocketmq_finds(version: str, tmp_path: Path) -> None:
    store = golden.unpack(version, tmp_path / "store")
    rows = {row["commitLogOffset"]: row for row in reference.read_store(store, decompress=False)}
    files = sound(store)
    asked = golden.load_truth(version).keys
    assert len(asked) > 100
    for (topic, key), expected in asked.items():

        def has_key(position: int, topic: str = topic, key: str = key) -> bool:
            return rows[position]["topic"] == topic and key in reference.index_keys(rows[position]["properties"])

        found = ask(files, key_hash(topic, key))
        assert found >= set(expected)
        assert set(filter(has_key, found)) == set(filter(has_key, expected)) != set()


# ---- built ones

COLLIDING = ("Aa", "BB")  # the same hash


def random_index(root: Path, rng: random.Random, **builder: int) -> stores.StoreBuilder:
    """A store with many shared keys and hashes, and last messages that are indexed twice."""
    geometry: dict[str, Any] = {
        "index_slots": rng.choice((1, 2, 7, 64, 100)),
        "index_items": rng.choice((2, 3, 5, 30, 1000)),
        **builder,
    }
    store = stores.StoreBuilder(root, segment_size=1 << 14, start=rng.choice((0, 1 << 14)), index=True, **geometry)
    for number in range(rng.randrange(1, 80)):
        words = rng.choices([*COLLIDING, "k", "中文", "a\tb", f"k{number}"], k=rng.randrange(4))
        store.append(
            topic=rng.choice(("TopicA", "TopicAa", "TopicBB", "%RETRY%g")),
            keys=rng.choice((" ", "  ")).join(words) or None,
            msg_id=rng.choice((None, rng.randbytes(16).hex().upper(), "Aa")),
            sys_flag=rng.choice((0, 0, reference.PREPARED, reference.COMMIT, reference.ROLLBACK)),
        )
        if rng.random() < 0.1:
            store.index_last()
    store.close()
    return store


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_lookup_is_brute_force(seed: int, rng: random.Random, tmp_path: Path) -> None:
    store = random_index(tmp_path / "store", rng)
    keys, _ = keys_of(store.root)
    files = sound(store.root) if keys else []
    for wanted, expected in by_hash(keys).items():
        assert ask(files, wanted) == expected
    for _ in range(20):
        other = rng.randrange(1 << 31)
        assert ask(files, other) == by_hash(keys).get(other, set())


@pytest.mark.parametrize("seed", range(20))
def test_each_file_alone_has_all_keys_of_what_it_covers(seed: int, rng: random.Random, tmp_path: Path) -> None:
    """The keys of the messages at its two ends can be in the files beside it."""
    store = random_index(tmp_path / "store", rng, index_items=rng.choice((3, 10, 30)))
    keys, _ = keys_of(store.root)
    for file in sound(store.root) if keys else []:
        begin, end = covered(file)
        for wanted, positions in by_hash(keys).items():
            assert ask([file], wanted) >= {position for position in positions if begin < position < end}


# ---- slots and items of any number


def write_index(path: Path, slots: int, items: int, entries: Iterable[tuple[int, int]], dense: bool = False) -> None:
    """An index file with these (keyHash, position). `dense`: without holes."""
    index = reference.IndexFile(slots, items)
    for wanted, position in entries:
        assert index.put(wanted, position, 1)
    if dense:
        path.write_bytes(index.encode())
    else:
        index.save(path)


def random_entries(rng: random.Random, count: int, start: int = 0) -> list[tuple[int, int]]:
    position = start
    entries = []
    for _ in range(count):
        entries.append((rng.randrange(1 << 31), position))
        position += rng.choice((0, 100, 517))
    return entries


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("start", [0, 5, 1 << 40])
def test_any_slots_and_items(dense: bool, start: int, rng: random.Random, tmp_path: Path) -> None:
    for _ in range(40):
        slots, items = (
            rng.choice((1, 3, 100, 5000, rng.randrange(1, 9000))),
            rng.choice((2, 30, rng.randrange(2, 3000))),
        )
        entries = random_entries(rng, rng.choice((1, items - 1, rng.randrange(1, items))), start)
        path = tmp_path / "1"
        write_index(path, slots, items, entries, dense)
        file = IndexFile.open(str(path), Files())
        assert file
        assert (file.slots, file.items) == (slots, items)
        assert covered(file) == (entries[0][1], entries[-1][1])
        assert (file.newest.key_hash, file.newest.position) == entries[-1]
        for wanted, _ in entries[:20]:
            assert lookup(file, wanted) == sorted({p for h, p in entries if h == wanted}, reverse=True)


def test_a_file_of_the_default_size_is_read_in_a_few_bytes(rng: random.Random, tmp_path: Path) -> None:
    path = tmp_path / "index" / "20231114221320000"
    path.parent.mkdir()
    entries = [(rng.randrange(1 << 31), 300 * number) for number in range(20_000)]
    entries[5000] = entries[15_000] = (4711, 300 * 5000)
    entries[15_000] = (4711, 300 * 15_000)
    write_index(path, DEFAULT_SLOTS, DEFAULT_ITEMS, entries)
    assert path.stat().st_size == 420_000_040
    files = Files()
    (file,), unusable = index_files(str(path.parent), files)
    assert unusable == []
    assert (file.slots, file.items) == (DEFAULT_SLOTS, DEFAULT_ITEMS)
    assert lookup(file, 4711, files) == [300 * 15_000, 300 * 5000]
    assert files.bytes < 512
    assert files.requests < 12


@pytest.mark.parametrize("count", [1, 10, 3000])
def test_other_slots_are_found_in_a_few_bytes(count: int, rng: random.Random, tmp_path: Path) -> None:
    path = tmp_path / "1"
    write_index(path, 1_000_003, 4_000_000, random_entries(rng, count))
    files = Files()
    file = IndexFile.open(str(path), files)
    assert file
    assert (file.slots, file.items) == (1_000_003, 4_000_000)
    assert files.bytes < 8192


def test_without_holes_a_file_that_is_not_nearly_empty_is_read_in_a_few_bytes(
    rng: random.Random, tmp_path: Path
) -> None:
    path = tmp_path / "1"
    write_index(path, 100_003, 400_000, random_entries(rng, 4000), dense=True)
    files = Files()
    file = IndexFile.open(str(path), files)
    assert file
    assert (file.slots, file.items) == (100_003, 400_000)
    assert files.bytes < 8192


@pytest.mark.slow
def test_without_holes_a_nearly_empty_file_has_the_slots_of_its_sibling(rng: random.Random, tmp_path: Path) -> None:
    write_index(tmp_path / "1", 1003, 200_000, random_entries(rng, 199_999), dense=True)
    write_index(tmp_path / "2", 1003, 200_000, [(5, 1 << 40)], dense=True)
    files = Files()
    with pytest.raises(RmqStoreError, match="2: expected the first and the last of 1 items"):
        IndexFile.open(str(tmp_path / "2"), files)
    assert files.bytes < 1 << 18
    opened, unusable = index_files(str(tmp_path), Files())
    assert unusable == []
    assert [(file.slots, file.items) for file in opened] == [(1003, 200_000)] * 2
    assert lookup(opened[1], 5) == [1 << 40]


# ---- chains


def test_a_wiped_item_is_not_the_end_of_its_chain(tmp_path: Path) -> None:
    """In slot 0 of an index that begins at physical offset 0 each of its numbers could be right."""
    path = tmp_path / "1"
    write_index(path, 8, 100, [(8, 0), (16, 0), (24, 9)])
    file = IndexFile.open(str(path), Files())
    assert file is not None
    assert lookup(file, 8) == [0]
    with path.open("r+b") as data:
        data.seek(reference.index_item_at(8, 2))
        data.write(bytes(reference.INDEX_ITEM_SIZE))
    assert lookup(file, 8) is None


@pytest.mark.slow
def test_long_chain_is_read_in_blocks(tmp_path: Path) -> None:
    count = 100_000
    for step in (1, 10):  # every item has the key; or every tenth
        entries = [(7 if number % step == 0 else 8, number) for number in range(count)]
        write_index(tmp_path / "1", 10, count + 1, entries)
        files = Files()
        file = IndexFile.open(str(tmp_path / "1"), files)
        assert file
        assert lookup(file, 7, files) == list(range(0, count, step))[::-1]
        assert files.requests < 100
        assert files.bytes < 20 * count + 100_000


def test_wide_chain_is_read_item_by_item(tmp_path: Path) -> None:
    entries = [(7 if number % 1000 == 0 else 8, number) for number in range(50_000)]
    write_index(tmp_path / "1", 10, 50_001, entries)
    files = Files()
    file = IndexFile.open(str(tmp_path / "1"), files)
    assert file
    assert lookup(file, 7, files) == list(range(0, 50_000, 1000))[::-1]
    assert files.bytes < 50 * 20 + 2000


def test_what_a_broker_adds_after_opening_is_not_seen(tmp_path: Path) -> None:
    """A live one, or a copy whose header is older than the rest."""
    old = [(7, 100), (3, 150), (7, 200)]
    new = [(3, 300), (7, 300), (7, 400), (13, 500)]
    path = tmp_path / "1"
    write_index(path, 10, 50, old)
    header = path.read_bytes()[: reference.INDEX_HEADER_SIZE]
    opened = IndexFile.open(str(path), Files())
    for more in range(1, len(new) + 1):
        write_index(path, 10, 50, [*old, *new[:more]])
        with path.open("r+b") as file:
            file.write(header)
        for index in (opened, IndexFile.open(str(path), Files())):
            assert index
            assert (index.slots, index.items, covered(index)) == (10, 50, (100, 200))
            assert lookup(index, 7) == [200, 100]
            assert lookup(index, 3) == [150]
            assert lookup(index, 13) == []


# ---- many at once


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0, 1 << 20], ids=["item by item", "in memory"])
def test_many_at_once_are_what_each_alone_is(gap: int, rng: random.Random, tmp_path: Path) -> None:
    """In sound files, in damaged ones, and where a broker has just added items."""
    files = Files(Prices(gap=gap))
    answers = {True: 0, False: 0}
    for _ in range(150):
        slots, count = rng.choice((1, 3, 50)), rng.randrange(20, 120)
        entries = [(rng.randrange(300), position) for _, position in random_entries(rng, count, 100)]
        write_index(tmp_path / "1", slots, 200, entries)
        data = bytearray((tmp_path / "1").read_bytes())
        file = IndexFile.open(str(tmp_path / "1"), files, [slots])
        assert file
        if rng.random() < 0.5:
            older = reference.IndexFile(slots, 200)
            for wanted, position in entries[: rng.randrange(10, count)]:
                older.put(wanted, position, 1)
            data[:40] = older.encode()[:40]
            (tmp_path / "1").write_bytes(data)
            file = IndexFile.open(str(tmp_path / "1"), files, [slots])
            assert file
        for _ in range(rng.choice((0, 1, 1, 3))):
            at = rng.randrange(40, reference.index_item_at(slots, count + 1))
            data[at] ^= 1 << rng.randrange(8)
        (tmp_path / "1").write_bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))])
        hashes = np.array(rng.sample(range(300), rng.randrange(17, 60)), np.int32)
        alone = [lookup(file, int(each)) for each in hashes]
        with IndexReader(file.path, files, file.header) as reader:
            found = reader.lookup(file, by_slot(hashes, slots))
        answers[found is None] += 1
        if found is None:
            assert None in alone
        else:
            assert found.tolist() == sorted({position for each in alone for position in each or ()})
            assert None not in alone
    assert min(answers.values()) > 10


# ---- damage


class Damaged:
    """An index file of a store in which nearly all slots are in use, to be damaged."""

    slots, items = 10, 30

    def __init__(self, root: Path) -> None:
        store = stores.StoreBuilder(
            root, segment_size=1 << 16, start=1 << 16, index=True, index_slots=self.slots, index_items=self.items
        )
        for number in range(10):
            store.append(keys=f"k{number % 4} k{number}", msg_id=f"{number:032X}")
        store.close()
        keys, self.hashes = keys_of(store.root)
        self.expected = by_hash(keys)
        self.path = store.index_file(0)
        self.data = self.path.read_bytes()
        self.count = reference.decode_index_header(self.data).index_count

    def open(self, data: bytes) -> IndexFile | None:
        """With these bytes instead, or None when that cannot be asked."""
        self.path.write_bytes(data)
        files, unusable = index_files(str(self.path.parent), Files())
        found = next((file for file in files if file.path == str(self.path)), None)
        assert found or len(unusable) == 1 or reference.decode_index_header(data).index_count <= 1
        return found

    def lookup(self, data: bytes, wanted: int) -> list[int] | None:
        file = self.open(data)
        return lookup(file, wanted) if file else None

    def missed(self, data: bytes) -> int | None:
        """How many lookups miss a message that the file says it covers, and are believed; None: it is not opened.

        As the contract says: a position at which the log has no message with that hash is a reason for disbelief.
        """
        file = self.open(data)
        if file is None or file.newest.key_hash not in self.hashes.get(file.newest.position, ()):
            return None
        begin, end = covered(file)
        misses = 0
        for wanted, positions in self.expected.items():
            found = lookup(file, wanted)
            if found is None or any(wanted not in self.hashes.get(position, ()) for position in found):
                continue
            misses += not {p for p in positions if begin < p < end} <= set(found)
        return misses

    def field(self, at: int) -> str:
        """What the byte there belongs to."""
        item = at - reference.index_item_at(self.slots, 0)
        if at < reference.INDEX_HEADER_SIZE:
            return (
                f"header {next(n for n, e in zip(reference.IndexHeader._fields, HEADER_ENDS, strict=True) if at < e)}"
            )
        if item < 0:
            return "slot"
        if not 0 < item // reference.INDEX_ITEM_SIZE < self.count:
            return "unused item"
        within = item % reference.INDEX_ITEM_SIZE
        return f"item {next(n for n, e in zip(reference.IndexItem._fields, ITEM_ENDS, strict=True) if within < e)}"


# Where their fields end.
HEADER_ENDS = (8, 16, 24, 32, 36, 40)
ITEM_ENDS = (4, 12, 16, 20)


@pytest.fixture
def damaged(tmp_path: Path) -> Damaged:
    return Damaged(tmp_path / "store")


def test_undamaged(damaged: Damaged) -> None:
    assert damaged.missed(damaged.data) == 0


def test_every_lie_in_the_header(damaged: Damaged) -> None:
    honest = reference.decode_index_header(damaged.data)
    for field in reference.IndexHeader._fields:
        bits = 31 if field.endswith("count") else 63
        value = getattr(honest, field)
        lies = {0, 1, 2, value - 1, value + 1, value // 2, 2 * value, -value, -1, (1 << bits) - 1, -(1 << bits)} - {
            value
        }
        for lie in lies:
            header = reference.encode_index_header(honest._replace(**{field: lie}))
            missed = damaged.missed(header + damaged.data[reference.INDEX_HEADER_SIZE :])
            if field in ("begin_timestamp", "end_timestamp", "hash_slot_count"):  # nobody relies on them
                assert missed == 0, (field, lie)
            else:
                assert missed is None, (field, lie)


@pytest.mark.slow
@pytest.mark.long
def test_every_flipped_bit(damaged: Damaged) -> None:
    """A broken link of a chain can look sound: the one damage that no lookup can notice."""
    hidden: dict[str, int] = defaultdict(int)
    for at in range(len(damaged.data)):
        for bit in range(8):
            data = bytearray(damaged.data)
            data[at] ^= 1 << bit
            if damaged.missed(bytes(data)):
                hidden[damaged.field(at)] += 1
    assert hidden == {"slot": 2, "item previous": 4}


@pytest.mark.slow
def test_every_byte_of_noise(damaged: Damaged, rng: random.Random) -> None:
    for at in range(len(damaged.data)):
        data = bytearray(damaged.data)
        data[at] = rng.randrange(256)
        if damaged.missed(bytes(data)):
            assert damaged.field(at) in ("slot", "item previous", "item key_hash")  # the same slot by accident


def test_every_cut(damaged: Damaged) -> None:
    needed = reference.index_item_at(damaged.slots, damaged.count)
    for size in range(len(damaged.data)):
        missed = damaged.missed(damaged.data[:size])
        whole_items = (size - needed) % reference.INDEX_ITEM_SIZE == 0
        assert missed == (0 if size >= needed and whole_items else None)


def test_every_extension(damaged: Damaged) -> None:
    """A broker that expects more extends its files with zeros when it starts."""
    for more in range(1, 200):
        assert damaged.missed(damaged.data + bytes(more)) == (0 if more % reference.INDEX_ITEM_SIZE == 0 else None)
    assert damaged.missed(damaged.data + bytes(1_000_000)) == 0


def test_noise(damaged: Damaged, rng: random.Random) -> None:
    for _ in range(300):
        noise = rng.randbytes(len(damaged.data))
        assert damaged.missed(noise) is None
        assert (
            damaged.missed(damaged.data[: reference.INDEX_HEADER_SIZE] + noise[reference.INDEX_HEADER_SIZE :]) is None
        )
        assert (
            damaged.missed(noise[: reference.INDEX_HEADER_SIZE] + damaged.data[reference.INDEX_HEADER_SIZE :]) is None
        )
    assert damaged.missed(bytes(len(damaged.data))) is None


def test_chains_that_lead_astray(damaged: Damaged) -> None:
    """To themselves, to newer items, in a circle, out of the file, below zero, into another chain: never an answer."""
    items = reference.read_index(damaged.data, damaged.slots)
    for number, item in enumerate(items, start=1):
        slot = item.key_hash % damaged.slots
        allowed = {n for n, other in enumerate(items[: number - 1], start=1) if other.key_hash % damaged.slots == slot}
        for previous in {*range(-2, damaged.items + 2), -(1 << 31), (1 << 31) - 1} - allowed - {0}:
            encoded = reference.encode_index_item(item._replace(previous=previous))
            data = overwritten(damaged.data, reference.index_item_at(damaged.slots, number), encoded)
            assert damaged.lookup(data, item.key_hash) is None


def test_slots_that_lead_astray(damaged: Damaged) -> None:
    items = reference.read_index(damaged.data, damaged.slots)
    for slot in range(damaged.slots):
        allowed = {n for n, item in enumerate(items, start=1) if item.key_hash % damaged.slots == slot}
        for value in {*range(-2, damaged.items + 2), -(1 << 31), (1 << 31) - 1} - allowed - {0}:
            at = reference.INDEX_HEADER_SIZE + slot * reference.INDEX_SLOT_SIZE
            data = overwritten(damaged.data, at, value.to_bytes(4, "big", signed=True))
            assert damaged.lookup(data, slot) is None


def overwritten(data: bytes, at: int, part: bytes) -> bytes:
    return data[:at] + part + data[at + len(part) :]


def test_negative_hash(tmp_path: Path) -> None:
    """It has the same slot as the positive one where the number of slots is a power of two."""
    path = tmp_path / "1"
    write_index(path, 8, 30, [(3, 100), (11, 200), (3, 300)])
    data = path.read_bytes()
    for number in (1, 2):
        at = reference.index_item_at(8, number)
        path.write_bytes(overwritten(data, at, bytes([data[at] ^ 0x80])))
        file = IndexFile.open(str(path), Files())
        assert file
        assert lookup(file, 3) is lookup(file, 11) is None


def test_positions_along_a_chain(tmp_path: Path) -> None:
    """They lie within the header's and do not grow towards older items, or else the chain says nothing."""
    entries = [(3, 100), (3, 200), (4, 250), (3, 300), (4, 400)]
    path = tmp_path / "1"
    write_index(path, 10, 30, entries)
    data = path.read_bytes()

    def with_position(number: int, position: int, header: bytes = b"") -> list[int] | None:
        at = reference.index_item_at(10, number) + 4
        path.write_bytes(overwritten(overwritten(data, at, position.to_bytes(8, "big", signed=True)), 0, header))
        file = IndexFile.open(str(path), Files(), [10])
        assert file
        return lookup(file, 3)

    assert with_position(2, 200) == [300, 200, 100]
    assert with_position(2, 300) == [300, 100]
    assert with_position(2, 100) == [300, 100]
    for lie in (301, 99, 0, -1, 1 << 62):
        assert with_position(2, lie) is None
    assert with_position(4, 400) == [400, 200, 100]
    assert with_position(4, 401) is None
    # The same once more with a header that does not know the last two items yet.
    older = reference.encode_index_header(reference.decode_index_header(data)._replace(end_physical_offset=250))
    older = older[:36] + (4).to_bytes(4, "big")
    assert with_position(4, 300, older) == [200, 100]
    assert with_position(4, 250, older) == [200, 100]
    assert with_position(4, 249, older) is None


def test_ends_that_contradict_the_header(tmp_path: Path) -> None:
    path = tmp_path / "1"
    write_index(path, 10, 30, [(3, 100), (4, 200), (3, 300)])
    data = path.read_bytes()
    slot = reference.INDEX_HEADER_SIZE + 3 * reference.INDEX_SLOT_SIZE
    oldest, newest = reference.index_item_at(10, 1), reference.index_item_at(10, 3)
    lies = {
        "newest in no chain": (slot, bytes(4)),
        "newest not first in its chain": (slot, (1).to_bytes(4, "big")),
        "item 0 in use": (reference.index_item_at(10, 0), b"\1"),
        "oldest has an older one": (oldest + 16, (1).to_bytes(4, "big")),
        "newest has another hash": (newest, (4).to_bytes(4, "big")),
        "newest has a negative hash": (newest, (-7).to_bytes(4, "big", signed=True)),
        "newest is elsewhere": (newest + 4, (299).to_bytes(8, "big")),
        "oldest is elsewhere": (oldest + 4, (101).to_bytes(8, "big")),
    }
    assert IndexFile.open(str(path), Files(), [10])
    for what, (at, part) in lies.items():
        path.write_bytes(overwritten(data, at, part))
        for slots in ([], [10]):
            with pytest.raises(RmqStoreError, match="expected the first and the last of 3 items"):
                pytest.fail(f"{what}: {IndexFile.open(str(path), Files(), slots)}")
    for entries in ([(3, -5)], [(3, -5), (4, 0)], [(3, 5), (4, 4)]):
        write_index(path, 10, 30, entries)
        with pytest.raises(RmqStoreError):
            IndexFile.open(str(path), Files(), [10])


def test_file_that_shrinks_or_goes_after_it_was_opened(damaged: Damaged) -> None:
    wanted = reference.read_index(damaged.data, damaged.slots)[0].key_hash
    file = IndexFile.open(str(damaged.path), Files())
    assert file
    assert lookup(file, wanted)
    for size in (reference.index_item_at(damaged.slots, 1), reference.INDEX_HEADER_SIZE, 0):
        os.truncate(damaged.path, size)
        assert lookup(file, wanted) is None
    damaged.path.unlink()
    assert lookup(file, wanted) is None


# ---- directories


def test_no_directory(tmp_path: Path) -> None:
    assert index_files(None, Files()) == ([], [])
    files, (why,) = index_files(str(tmp_path / "none"), Files())
    assert files == []
    assert why.startswith(f"{tmp_path / 'none'}: ")
    (tmp_path / "file").touch()
    assert index_files(str(tmp_path / "file"), Files())[0] == []


def test_strays_and_empty_files(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, index=True)
    for number in range(20):
        store.append(keys=f"k{number}", msg_id=f"M{number}")
    store.close()
    index = tmp_path / "index"
    expected = sound(tmp_path)
    assert len(expected) == 2
    for name in ("_SUCCESS", ".20231114221320000.crc", "20231114221320000.tmp", "abc", "²³"):
        (index / name).write_bytes(b"stray")
    (index / "1").write_bytes(bytes(1040))  # begun, and nothing in it
    (index / "2").write_bytes(reference.encode_index_header(reference.IndexHeader(5, 5, 9, 9, 0, 1)) + bytes(1000))
    assert sound(tmp_path) == expected
    (index / "3").mkdir()
    os.mkfifo(index / "4")
    assert sound(tmp_path) == expected


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "expected the 40 bytes of an index header, found 0"),
    "short": (lambda data: data[:39], "expected the 40 bytes of an index header, found 39"),
    "cut": (lambda data: data[:100], "expected the first and the last of 10 items to be of the messages at "),
    "header only": (lambda data: data[:40], "found no place for them"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_each_unusable_file_has_a_line_that_says_why(what: str, tmp_path: Path) -> None:
    damage, reason = DAMAGES[what]
    store = stores.StoreBuilder(tmp_path, index=True)
    for number in range(10):
        store.append(keys=f"k{number}")
    store.close()
    path = store.index_file(0)
    path.write_bytes(damage(path.read_bytes()))
    files, (why,) = index_files(str(path.parent), Files())
    assert files == []
    assert why.startswith(f"{path}: ")
    assert reason in why
    assert "\n" not in why


def test_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "1").symlink_to(tmp_path / "nothing")
    files, (why,) = index_files(str(tmp_path), Files())
    assert files == []
    assert why.startswith(f"{tmp_path / '1'}: ")


def test_forgotten_messages_stay_in_the_index(tmp_path: Path) -> None:
    """What `newest` is for: the log was cut, and is written on with messages that no index knows."""
    store = stores.StoreBuilder(tmp_path, index=True)
    for number in range(5):
        store.append(keys=f"k{number}", body=b"x" * 50)
    store.forget_last(2)
    store.append(keys="new")
    store.close()
    (file,) = sound(tmp_path)
    _, hashes = keys_of(tmp_path)
    assert lookup(file, key_hash("TopicA", "new")) == []
    assert file.newest.key_hash not in hashes.get(file.newest.position, ())


@pytest.mark.parametrize("are_older", [False, True])
def test_slots_are_found_where_items_are_left_over(rng: random.Random, tmp_path: Path, are_older: bool) -> None:
    """Behind those that the header counts: of a crash, a truncation, or a copy whose header is older than its items."""
    for _ in range(40):
        slots, capacity = rng.randrange(1, 500), rng.randrange(3, 400)
        counted = rng.randrange(1, capacity - 1)
        file = reference.IndexFile(slots, capacity)
        positions = sorted(rng.sample(range(1000, 100_000), capacity - 1))
        for position in positions[:counted]:
            assert file.put(rng.randrange(1 << 31), position, 1_700_000_000_000 + position)
        whole = bytearray(file.encode())
        for position in positions[: capacity - 1 - counted] if are_older else positions[counted:]:
            assert file.put(rng.randrange(1 << 31), position, 1_700_000_000_000 + position)
        later = file.encode()
        items = reference.index_item_at(slots, counted + 1)
        whole[items:] = later[items:]
        if not are_older and rng.random() < 0.5:
            whole[reference.INDEX_HEADER_SIZE :] = later[reference.INDEX_HEADER_SIZE :]  # slots lead to them, too
        path = tmp_path / "20231114221320000"
        path.write_bytes(whole)
        found = IndexFile.open(str(path), Files(), may_read_all=True)
        assert found is not None
        assert (found.slots, found.items) == (slots, capacity), (counted, slots, capacity)


def test_storage_that_fails_leaves_the_numbers_of_a_file_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is not passed over as a broken one."""
    builder = stores.StoreBuilder(tmp_path, index=True, index_slots=3, index_items=5)
    builder.append(topic="T", keys="k")
    builder.close()
    assert index_geometry(str(tmp_path / "index"), Files(), None, None, may_differ=True) == (3, 5)

    def fails(*of: object, **how: object) -> None:
        raise StorageError("no answer")

    monkeypatch.setattr(IndexFile, "open", fails)
    with pytest.raises(StorageError, match="no answer"):
        index_geometry(str(tmp_path / "index"), Files(), 3, 5, may_differ=True)
