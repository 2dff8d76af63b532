"""A copy of a store with compaction topics: consumers of the copy are served as those of the store."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from oracle import compaction
from oracle.compaction import LogWriter, Value
from oracle.stores import StoreBuilder
from support import flavours

from rmqstore_spark import DamagedStoreError, NotAStoreError, OptionError, Store

FILE_SIZE = 2048
COLUMNS = ["topic", "queueId", "queueOffset", "keys", "body", "storeTimestamp"]
QUEUES = (("A", 0), ("A", 1), ("B", 0))


def made(root: Path, rng: random.Random, lag: int = 0, name: bytes = b"plain") -> StoreBuilder:
    """A store whose broker has compacted a part of its topics A and B.

    Args:
        lag: so many messages of each queue are not in its compaction log yet.
        name: bodies of the plain messages.
    """
    builder = StoreBuilder(root, segment_size=8192)
    values: dict[tuple[str, int], list[Value]] = {queue: [] for queue in QUEUES}
    for number in range(150):
        builder.append("Plain", name, keys="plain")
        queue = rng.choice(QUEUES)
        body = b"" if rng.random() < 0.2 else f"value-{number}".encode() * rng.randint(1, 9)
        values[queue].append(compaction.append(builder, *queue, rng.choice("abcdefgh"), body))
    for _ in range(80):
        builder.append("Plain", name, keys="plain")
    builder.close()
    compaction.configure(root, ["A", "B"])
    for queue in QUEUES:
        there = values[queue][: len(values[queue]) - lag]
        seen = rng.randint(1, len(there) - 1)
        writer = LogWriter(root, *queue, FILE_SIZE)
        start = writer.write_all(compaction.compact(there[:seen]), 0) + rng.randrange(3) * FILE_SIZE
        writer.write_all(there[seen:], start)
    table = {"empty": False, "queueOffsetMap": {"A_0": 5, "A_1": 3, "B_0": 7, "Other_0": 1}}
    (root / "compaction" / "position-checkpoint").write_text(json.dumps(table))
    return builder


def last_values(root: Path) -> list[dict[str, Any]]:
    rows = Store(root).messages(COLUMNS, compacted=True).read_all().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def files_of(root: Path) -> dict[str, bytes]:
    """Those of compaction/, but the checkpoint."""
    found = (root / "compaction").rglob("*")
    return {str(path.relative_to(root)): path.read_bytes() for path in found if path.is_file() and path.name.isdigit()}


def checkpoint(root: Path) -> dict[str, int]:
    table: dict[str, int] = json.loads((root / "compaction" / "position-checkpoint").read_text())["queueOffsetMap"]
    return table


@pytest.mark.parametrize("expired", [0, 2])
def test_consumers_are_served_as_before(tmp_path: Path, rng: random.Random, expired: int) -> None:
    root, copy = tmp_path / "store", tmp_path / "copy"
    builder = made(root, rng)
    if expired:
        builder.expire(expired)
    (root / "compaction" / "compactionLog" / "A" / "0" / "compacting").mkdir()
    (root / "compaction" / "compactionLog" / "A" / "0" / "compacting" / f"{0:020d}").write_bytes(b"half done")
    Store(root).copy(copy)
    assert last_values(copy) == last_values(root) != []
    of_copy = files_of(copy)
    of_store = {path: data for path, data in files_of(root).items() if "compacting" not in path}
    assert of_copy == of_store
    assert checkpoint(copy) == {name: offset for name, offset in checkpoint(root).items() if name != "Other_0"}
    for queue in QUEUES:  # what a consumer gets
        found, given = ([(r["queueOffset"], r["body"]) for r in compaction.read_log(at, *queue)] for at in (copy, root))
        assert found == given
    assert [row for row in Store(copy).check().to_pylist() if row["severity"] != "info"] == []
    attributes = json.loads((copy / "config" / "topics.json").read_text())["topicConfigTable"]["A"]["attributes"]
    assert attributes == {"cleanup.policy": "COMPACTION"}


def test_some_topics(tmp_path: Path, rng: random.Random) -> None:
    made(tmp_path / "store", rng)
    store = Store(tmp_path / "store")
    store.copy(tmp_path / "a", subscribe="A,Plain")
    assert {path.split("/")[2] for path in files_of(tmp_path / "a")} == {"A"}
    assert checkpoint(tmp_path / "a") == {"A_0": 5, "A_1": 3}
    assert last_values(tmp_path / "a") == [row for row in last_values(tmp_path / "store") if row["topic"] == "A"]
    store.copy(tmp_path / "plain", subscribe="Plain", key="plain")
    assert not (tmp_path / "plain" / "compaction").exists()


def test_queue_that_is_left_in_the_compaction_log_alone(tmp_path: Path, rng: random.Random) -> None:
    """The copy's queue goes on after it: a broker takes no message with an offset that the log had."""
    builder = made(tmp_path / "store", rng)
    builder.expire(len(list((tmp_path / "store" / "commitlog").iterdir())) - 1)
    builder.drop_queues()
    assert {row["topic"] for row in Store(tmp_path / "store").messages(["topic"]).read_all().to_pylist()} == {"Plain"}
    values = last_values(tmp_path / "store")
    Store(tmp_path / "store").copy(tmp_path / "copy")
    assert last_values(tmp_path / "copy") == values
    ends = {(q["topic"], q["queueId"]): q["maxOffset"] for q in Store(tmp_path / "copy").queues().to_pylist()}
    for queue in QUEUES:
        assert ends[queue] == max(row["queueOffset"] for row in compaction.read_log(tmp_path / "store", *queue)) + 1


def test_what_cannot_be_right_is_refused(tmp_path: Path, rng: random.Random) -> None:
    made(tmp_path / "store", rng)
    store, copy = Store(tmp_path / "store"), tmp_path / "copy"
    for options in ({"key": "a"}, {"startingTimestamp": 1}, {"assign": {"A": [0]}}, {"endingOffsets": {"A": {0: 9}}}):
        with pytest.raises(OptionError, match="topic 'A' has a compaction log, which is copied as a whole"):
            store.copy(copy, **options)
    made(tmp_path / "other", rng, name=b"another")
    with pytest.raises(OptionError, match="which only one store can have"):
        Store([tmp_path / "store", tmp_path / "other"]).copy(copy)
    made(tmp_path / "late", rng, lag=2)
    with pytest.raises(NotAStoreError, match="its compaction log lacks 2 messages"):
        Store(tmp_path / "late").copy(copy)
    assert not copy.exists()
    Store(tmp_path / "late").copy(copy, subscribe="Plain")


def test_damage(tmp_path: Path, rng: random.Random) -> None:
    made(tmp_path / "store", rng)
    path = min((tmp_path / "store" / "compaction" / "compactionLog" / "B" / "0").iterdir())
    data = bytearray(path.read_bytes())
    data[4] ^= 1
    path.write_bytes(data)
    for make in (Store(tmp_path / "store").copy, Store(tmp_path / "store").salvage):
        with pytest.raises(DamagedStoreError, match="damagedCompactionLog"):
            make(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    Store(tmp_path / "store").copy(tmp_path / "copy", subscribe="A")


def test_checkpoint_that_cannot_be_read(tmp_path: Path, rng: random.Random) -> None:
    made(tmp_path / "store", rng)
    for number, text in enumerate(("", "[1]", '{"queueOffsetMap": 3}', '{"queueOffsetMap": {"A_0": "x"}}', "{" * 9999)):
        (tmp_path / "store" / "compaction" / "position-checkpoint").write_text(text)
        Store(tmp_path / "store").copy(tmp_path / f"{number}")
        assert checkpoint(tmp_path / f"{number}") == {}


def test_real_log(tmp_path: Path) -> None:
    root, _ = flavours.unpack("compaction2", tmp_path)
    Store(root).copy(tmp_path / "copy")
    assert files_of(tmp_path / "copy") == files_of(root)
    assert last_values(tmp_path / "copy") == last_values(root)
