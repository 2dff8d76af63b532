"""After a loss of power a disk has each page of a growing file as it was at some time: some with the last that a broker
wrote, others from long before. Whatever page is old, look-ups give what a scan gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from oracle import dledger
from oracle.dledger import DLedgerStoreBuilder
from oracle.stores import StoreBuilder
from support import reading

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.indexfile import IndexReader

PAGE = 4096
COLUMNS = ["topic", "tags", "keys", "commitLogOffset"]


def _grow(builder: StoreBuilder, rng: random.Random, count: int) -> None:
    for _ in range(count):
        number = len(builder.messages)
        builder.append(
            rng.choice(("TopicA", "TopicB")), b"x" * rng.randrange(60), tags="t1", keys=f"k{number} g{number % 7}"
        )
    builder.flush()


@pytest.fixture
def grown(tmp_path: Path) -> tuple[StoreBuilder, dict[Path, bytes]]:
    """A store with some pages in each file, and the files' bytes some time before."""
    rng, root = random.Random(1), tmp_path / "store"
    builder = StoreBuilder(root, 65536, 16_000, index=True, index_slots=4000, index_items=3000)
    _grow(builder, rng, 200)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    _grow(builder, rng, 400)
    builder.close(clean=False)
    return builder, before


def _with_an_old_page(path: Path, before: bytes) -> Iterator[int]:
    """The positions of the file's pages that were written since, each while its page is the old one."""
    new = path.read_bytes()
    old = before.ljust(len(new), b"\0")
    for at in range(0, len(new), PAGE):
        page = slice(at, at + PAGE)
        if new[page] != old[page]:
            path.write_bytes(new[:at] + old[page] + new[at + PAGE :])
            yield at
    path.write_bytes(new)


def _found(root: Path, prices: object, **options: object) -> list[int]:
    rows = reading.read(root, columns=COLUMNS, prices=prices, **options)
    return sorted(row["commitLogOffset"] for row in rows)


@pytest.mark.parametrize("prices", [None, reading.FREE], ids=["priced", "free"])
def test_an_old_page_of_a_growing_index_file_hides_no_key(
    prices: object, grown: tuple[StoreBuilder, dict[Path, bytes]]
) -> None:
    builder, before = grown
    path, rng = builder.index_file(0), random.Random(2)
    pages = 0
    for at in _with_an_old_page(path, before[path]):
        pages += 1
        for number in rng.sample(range(200, 600), 8):
            found = _found(builder.root, prices, key=f"k{number}")
            assert found == [builder.messages[number].position], (at, number)
        some = [message.position for message in builder.messages[3::7]]
        assert _found(builder.root, prices, key="g3") == some, at
    assert pages > 8


def test_an_old_page_of_a_queue_hides_no_tag(grown: tuple[StoreBuilder, dict[Path, bytes]]) -> None:
    """Where a unit goes on in that page, only its tagsCode may be there."""
    builder, before = grown
    path = builder.queue_directory("TopicA", 0) / f"{0:020d}"
    wanted = [message.position for message in builder.messages if message.topic == "TopicA"]
    pages = 0
    for at in _with_an_old_page(path, before[path]):
        pages += 1
        for prices in (None, reading.FREE):
            assert _found(builder.root, prices, subscribe="TopicA", tags="t1") == wanted, at
    assert pages == 2


def test_an_old_file_of_dledger_is_not_taken_for_the_end_of_the_log(tmp_path: Path) -> None:
    """It begins with entries that were taken back and written over, in an older term: a node that starts stops before
    them."""
    builder = DLedgerStoreBuilder(tmp_path, 4096, queue_file_size=4000)
    for _ in range(11):
        builder.append("TopicA", b"x" * 150)
    builder.flush()
    builder.holding, kept = True, builder.index
    for _ in range(9):
        builder.append("TopicA", b"y" * 120)
    builder.flush()
    path = sorted((tmp_path / dledger.NAME / "data").iterdir())[-2]  # the last one is a spare
    before = path.read_bytes()
    builder.cut(kept)
    builder.holding, builder.term = False, 1
    for _ in range(5):
        builder.append("TopicA", b"z" * 140)
    builder.close(clean=False)
    assert any(before)
    assert path.read_bytes()[: dledger.HEADER.size] != before[: dledger.HEADER.size]
    path.write_bytes(before)
    live = [entry.position + dledger.HEADER.size for entry in dledger.entries(tmp_path)]
    assert 11 < len(live) < 16
    assert _found(tmp_path, None) == live


def test_no_hash_is_looked_up(grown: tuple[StoreBuilder, dict[Path, bytes]]) -> None:
    with IndexReader(str(grown[0].index_file(0)), Files(), may_have_old_pages=True) as reader:
        found = reader.lookup(reader.check(), np.array([], np.int32))
    assert found is not None
    assert not len(found)
