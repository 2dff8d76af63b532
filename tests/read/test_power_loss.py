"""After a loss of power a disk has each page of a growing file as it was at some time: some with the last that a broker
wrote, others from long before. Whatever page is old, look-ups give what a scan gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
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


def test_no_hash_is_looked_up(grown: tuple[StoreBuilder, dict[Path, bytes]]) -> None:
    with IndexReader(str(grown[0].index_file(0)), Files(), may_have_old_pages=True) as reader:
        found = reader.lookup(reader.check(), np.array([], np.int32))
    assert found is not None
    assert not len(found)
