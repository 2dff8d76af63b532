"""Numbers at the very bounds of what the writer takes; found by `make mutants`, which moved them."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import stat
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from oracle import reference
from oracle.stores import StoreBuilder
from support import writing

from rmqstore_spark import RmqStoreError, Store
from rmqstore_spark.write.build.queuefiles import QueueWriter
from rmqstore_spark.write.build.stretch import InPlaceAppend
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.modes import Modes

BLANK = 8  # bytes
MOST = 32 << 20
SEGMENT = {"segment": 4096, "segment_size": 1 << 26, "head": "0" * 2 * BLANK, "digest": "a" * 64}
END = 4096 + (1 << 26)


@pytest.mark.parametrize(
    ("given", "is_understood"),
    [
        ({"start": 4096, "size": 91}, True),  # the first of its segment
        ({"start": 4095, "size": 91}, False),
        ({"segment": 0, "start": 0, "size": 91}, True),
        ({"segment": 0, "start": -1, "size": 91}, False),
        ({"start": 5000, "size": BLANK + 1}, True),
        ({"start": 5000, "size": BLANK}, False),
        ({"start": 5000, "size": MOST}, True),
        ({"start": 5000, "size": MOST + 1}, False),
        ({"start": END - BLANK - 91, "size": 91}, True),  # just leaves room for a blank
        ({"start": END - BLANK - 90, "size": 91}, False),
        ({"start": 5000, "size": 91, "segment_size": 1 << 62}, False),
        ({"segment": 1 << 62, "start": (1 << 62) + 4096, "size": 91}, False),
        ({"start": 5000, "size": 91.0}, False),
        ({"start": 5000, "size": 91, "head": "0" * (2 * BLANK - 1)}, False),
        ({"start": 5000, "size": 91, "head": "g" * 2 * BLANK}, False),
        ({"start": 5000, "size": 91, "digest": "A" * 64}, False),
        ({"start": 5000, "size": 91, "more": 1}, False),
    ],
)
def test_a_journal_that_a_writer_makes(given: dict[str, object], is_understood: bool) -> None:
    found = InPlaceAppend.understood(SEGMENT | given)
    assert (found is not None) == is_understood
    if found is not None:
        assert (found.start, found.size) == (given["start"], given["size"])
        assert found.position == found.start - int(str(given.get("segment", 4096)))
        assert int.from_bytes(found.blank[:4], "big") == (1 << 26) - found.position


class _Directories:
    """As many directories as are asked for, all with one mode."""

    path = "/store"

    def __init__(self) -> None:
        self.itself = self._status(0o750)
        self.looks = 0

    @staticmethod
    def _status(bits: int) -> os.stat_result:
        return os.stat_result((stat.S_IFDIR | bits, *([0] * 9)))

    def find(self, path: str) -> os.stat_result | None:
        return None if path.endswith("new") else self._status(0o750)

    def names(self, path: str) -> Sequence[str]:
        self.looks += 1
        return []


def test_modes_are_remembered_of_the_last_directories_only() -> None:
    places = _Directories()
    modes = Modes(places, "/made")
    for number in range(3000):
        assert modes.of(f"/store/{number}/new", False).bits == 0o640
    assert 0 < len(modes._known) <= 1000
    looks = places.looks
    assert modes.of("/store/2999/new", False) == modes.of("/store/2998/new", False)
    assert places.looks == looks  # known
    modes.of("/store/1/new", False)
    assert places.looks > looks  # forgotten


ROWS = [{"topic": "T", "queueId": number % 2, "body": b"b" * 50, "msgId": str(number)} for number in range(9)]


def _appends(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)
    writing.write(target, ROWS)


def _copies(source: Path, target: Path) -> None:
    Store(source).copy(target)


@pytest.mark.parametrize("write", [_appends, _copies])
def test_a_disk_with_just_enough_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, Path], None]
) -> None:
    """What the error wants is what it takes, to the byte; and at least the messages."""
    writing.write(tmp_path / "store", ROWS)
    free = [0]
    monkeypatch.setattr(disk.Tree, "free_bytes", lambda tree: free[0])
    with pytest.raises(RmqStoreError, match=r"too full: expected (at least )?[\d,]+ bytes") as told:
        write(tmp_path / "store", tmp_path / "none")
    wanted = int(re.findall(r"([\d,]+) bytes", str(told.value))[0].replace(",", ""))
    places = [row["commitLogOffset"] for row in reference.read_store(tmp_path / "store")]
    units = len(ROWS) * (places[1] - places[0])  # all are alike
    queues = 20 * len(ROWS) if write is _appends else 0  # a copy counts its messages alone
    assert units + queues <= wanted < 2 * (units + queues)
    free[0] = wanted - 1
    with pytest.raises(RmqStoreError, match="too full"):
        write(tmp_path / "store", tmp_path / "less")
    free[0] = wanted
    write(tmp_path / "store", tmp_path / "enough")
    assert len(reference.read_store(tmp_path / "enough")) == len(ROWS) * (2 if write is _appends else 1)


@pytest.mark.parametrize("more", [0, 1])
def test_no_more_messages_are_lost_than_had_space(more: int, tmp_path: Path) -> None:
    """In all queues together: who says more than that is not believed."""
    segment, nbytes = 4096, 10_000
    most = (nbytes + segment) // 91
    with disk.Tree(str(tmp_path)) as tree:
        writer = QueueWriter(tree, None, str(tmp_path / "new"), 2000, {}, {})
        for number, position in enumerate((0, 91, 5000)):
            writer.put(("T", number), 0, memoryview(struct.pack(">qiq", position, 91, 0)))
        writer.go_on_at({("T", 0): 1 + most - 10, ("T", 1): 1 + 10 + more}, segment, nbytes)
        assert writer.ends == {("T", 0): 1 + most - 10, ("T", 1): 1 if more else 11, ("T", 2): 1}


@pytest.mark.parametrize(
    ("count", "is_understood"),
    [("0", True), ("8", True), ("1.5", False), ('"8"', False), ("true", False), ("null", False), ("-1", False)],
)
def test_a_topic_with_an_odd_number_of_queues(
    count: str, is_understood: bool, tmp_path: Path, rng: random.Random
) -> None:
    """Nothing is written to such a store, as it is not known which queues a broker would read."""
    store = StoreBuilder(tmp_path)
    store.append("T")
    store.close()
    path = tmp_path / "config" / "topics.json"
    path.write_text(f'{{"topicConfigTable":{{"T":{{"topicName":"T","readQueueNums":{count}}}}}}}')
    with (
        contextlib.nullcontext()
        if is_understood
        else pytest.raises(RmqStoreError, match="topic T: expected a number of queues as readQueueNums")
    ):
        writing.write(tmp_path, writing.some_rows(rng, 3))
    assert len(reference.read_store(tmp_path)) == (4 if is_understood else 1)
