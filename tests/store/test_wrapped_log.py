"""A kind of store whose log wraps its units is one value in the kinds: selections, tables, check and copies run on it
unchanged, and nothing is written to it."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle.stores import FIRST_TIMESTAMP, StoreBuilder
from oracle.wrapped import DIRECTORY, HEADER, WrappedStoreBuilder
from support.reading import read

from native_io import Wrapping
from rmqstore_spark import NotAStoreError, Store, rebuild, write_store
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures import kinds
from rmqstore_spark.tables.registry import TABLES

MOVED = {"commitLogOffset", "offsetMsgId", "store", "file"}  # what the place of a unit decides
TOPICS = ("Orders", "Payments", "Mails")


_WRAPPING = Wrapping(HEADER.size, 4, 8)


@dataclass(frozen=True)
class ToyLog:
    what: str = "a log of the toy kind"
    wrapping: Wrapping = _WRAPPING

    def directories(self, root: str, names: Iterable[str], files: Files) -> list[str]:
        return [os.path.join(root, name) for name in names if name == DIRECTORY]

    def begins(self, head: bytes, start: int) -> bool:
        return False

    def marks(self, root: str, names: Iterable[str], files: Files) -> None:
        return None

    def led_by(self, root: str, names: Iterable[str]) -> list[str]:
        return []

    def noted(self, root: str, names: Iterable[str], number: int, files: Files) -> None:
        return None


@pytest.fixture(autouse=True)
def _toy_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "WRAPPED_LOGS", (ToyLog(),))


@pytest.fixture
def pair(tmp_path: Path, rng: random.Random) -> tuple[WrappedStoreBuilder, StoreBuilder]:
    """The same messages in a store of the kind, and in an ordinary one."""
    wrapped = WrappedStoreBuilder(tmp_path / "wrapped_store", 65536, index=True)
    plain = StoreBuilder(tmp_path / "plain_store", 65536, index=True)
    for number in range(250):
        message: dict[str, Any] = {
            "topic": rng.choice(TOPICS),
            "body": rng.randbytes(rng.choice((0, 20, 300, 3000))),
            "queue_id": rng.randrange(2),
            "tags": rng.choice((None, "a", "b")),
            "keys": f"k{number % 40}",
            "msg_id": f"{number:032X}",
            "sys_flag": 0x4 if rng.random() < 0.05 else 0,  # half messages are in no queue
        }
        if rng.random() < 0.1:
            wrapped.append_empty()
        wrapped.append(**message)
        plain.append(**message)
    wrapped.close()
    plain.close()
    return wrapped, plain


def _alike(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in MOVED} for row in rows]


SELECTIONS: list[dict[str, Any]] = [
    {},
    {"subscribe": "Orders"},
    {"subscribe": "Orders", "tags": "a"},
    {"tags": "b"},
    {"key": "k7", "subscribe": "Payments"},
    {"key": "k7"},
    {"msgId": f"{99:032X}"},
    {"startingTimestamp": str(FIRST_TIMESTAMP + 100), "endingTimestamp": str(FIRST_TIMESTAMP + 140)},
    {
        "startingOffsets": '{"Orders": {"0": 5, "1": 9}}',
        "endingOffsets": '{"Orders": {"0": 12, "1": 30}}',
        "subscribe": "Orders",
    },
    {"maxPartitionBytes": "8k"},
    {"maxPartitionBytes": "8k", "subscribe": "Mails"},
    {"minPartitions": "30"},
]


@pytest.mark.parametrize("options", SELECTIONS, ids=str)
@pytest.mark.parametrize("queues", [True, False])
def test_selections(pair: tuple[WrappedStoreBuilder, StoreBuilder], options: dict[str, Any], queues: bool) -> None:
    """Rows are those of the ordinary store, but for their places; these are the builder's."""
    wrapped, plain = pair
    if not queues:
        wrapped.drop_queues()
        plain.drop_queues()
    rows, expected = read(wrapped.root, **options), read(plain.root, **options)
    assert _alike(rows) == _alike(expected)
    assert rows or not expected
    places = {(m.topic, m.queue_id, m.queue_offset, m.queued): m.position for m in wrapped.messages}
    for row in rows:
        name = row["topic"], row["queueId"], row["queueOffset"]
        assert row["commitLogOffset"] in (places.get((*name, True)), *_half(wrapped))


def _half(store: StoreBuilder) -> list[int]:
    return [message.position for message in store.messages if not message.queued]


def test_by_place(pair: tuple[WrappedStoreBuilder, StoreBuilder], rng: random.Random) -> None:
    wrapped, _ = pair
    store = Store(wrapped.root)
    everything = read(wrapped.root)
    assert [row["commitLogOffset"] for row in everything] == [message.position for message in wrapped.messages]
    for row in rng.sample(everything, 5):
        (found,) = store.get(row["offsetMsgId"]).to_pylist()
        assert found["msgId"] == row["msgId"]


def test_damage_is_met_where_it_is(pair: tuple[WrappedStoreBuilder, StoreBuilder], rng: random.Random) -> None:
    wrapped, _ = pair
    everything = read(wrapped.root)
    number = rng.randrange(1, len(everything) - 1)
    at = everything[number]["commitLogOffset"]
    with wrapped.segment(at).open("r+b") as file:
        file.seek(at % wrapped.segment_size + 4)
        file.write(b"\1\2\3\4")
    rows = read(wrapped.root, mode="DROPMALFORMED")
    assert [row["msgId"] for row in rows] == [row["msgId"] for row in everything if row["commitLogOffset"] != at]


@pytest.mark.parametrize("table", sorted(set(TABLES)))
def test_tables(pair: tuple[WrappedStoreBuilder, StoreBuilder], table: str) -> None:
    """All rows but for places, paths and what `usage` was read from. The segments are others, and so are their ends."""
    rows, expected = (_rows(Store(builder.root), table) for builder in pair)
    if table == "segments":
        rows, expected = rows[-len(expected) :], expected
    assert rows == expected


_PLACES = ("offset", "file", "store", "path", "position", "size", "disk", "allocated", "previous", "hash", "source")


def _rows(store: Store, table: str) -> list[dict[str, Any]]:
    found: pa.Table = getattr(store, table)() if table != "messages" else store.messages().read_all()
    kept = [
        name
        for name in found.column_names
        if name in ("queueOffset", "minOffset", "maxOffset", "consumerOffset")
        or not any(word in name.lower() for word in _PLACES)
    ]
    return list(found.select(kept).to_pylist())


def test_check_finds_nothing(pair: tuple[WrappedStoreBuilder, StoreBuilder]) -> None:
    assert [_rows(Store(builder.root), "check") for builder in pair] == [[], []]


def test_a_copy_is_an_ordinary_store(pair: tuple[WrappedStoreBuilder, StoreBuilder], tmp_path: Path) -> None:
    wrapped, plain = pair
    Store(wrapped.root).copy(tmp_path / "copy")
    assert _alike(read(tmp_path / "copy")) == _alike(read(plain.root))
    assert (tmp_path / "copy" / "commitlog").is_dir()


def test_nothing_is_written_to_it(pair: tuple[WrappedStoreBuilder, StoreBuilder]) -> None:
    wrapped, _ = pair
    before = {path: path.read_bytes() for path in sorted(wrapped.root.rglob("*")) if path.is_file()}
    data = pa.table({"topic": ["Orders"], "body": [b"x"]})
    refused = "wrapped: a log of the toy kind: expected messages in commitlog/"
    with pytest.raises(NotAStoreError, match=refused):
        write_store(wrapped.root, data)
    with pytest.raises(NotAStoreError, match=refused):
        write_store(wrapped.root, data, mode="overwrite")
    with pytest.raises(NotAStoreError, match=refused):
        rebuild(wrapped.root)
    assert {path: path.read_bytes() for path in sorted(wrapped.root.rglob("*")) if path.is_file()} == before


def test_a_wrapping_is_a_value() -> None:
    one = Wrapping(48, 4, 24)
    assert pickle.loads(pickle.dumps(one)) == one != Wrapping(16, 4, 8)
    assert hash(one) == hash(Wrapping(48, 4, 24))
    for header, at_size, at_position in ((15, 4, 7), (48, 45, 24), (48, 4, 41), (48, -1, 24), (1 << 16, 4, 24)):
        with pytest.raises(ValueError, match=f"no header of {header} bytes"):
            Wrapping(header, at_size, at_position)
