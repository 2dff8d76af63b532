"""While a broker deletes expired segments, a read or a stream gives what is left, or an error that says so."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from pathlib import Path

import pytest
from oracle import reference, stores
from support import reading
from support.following import Query

from rmqstore_spark import DataLossError, DeletedMeanwhileError
from rmqstore_spark.store.io.files import Files


class Expiring(Files):
    """The files of a broker that deletes segments just before a request.

    Attributes:
        doomed: the segments.
        left: requests until then.
    """

    doomed: list[Path]
    left = -1

    def _request(self) -> None:
        if self.left == 0:
            for path in self.doomed:
                path.unlink()
        self.left -= 1

    def names(self, path: str) -> list[str]:
        self._request()
        return super().names(path)

    def status(self, path: str) -> os.stat_result:
        self._request()
        return super().status(path)

    def exists(self, path: str) -> bool:
        self._request()
        return super().exists(path)

    def open(self, path: str) -> int:
        self._request()
        return super().open(path)


def add(store: stores.StoreBuilder, count: int) -> None:
    for _ in range(count):
        number = len(store.messages)
        store.append(f"T{number % 3}", b"b" * (number % 7 * 100), queue_id=number % 2)
    store.flush()


def built(root: Path) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, segment_size=4096)
    add(store, 30)
    return store


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


@pytest.mark.parametrize("restart", [False, True])
def test_of_what_a_stream_has_passed(tmp_path: Path, restart: bool) -> None:
    """It does not notice, whatever it is about to look at."""
    for number in itertools.count():
        store = built(tmp_path / f"{number}")
        files = Expiring()
        query = Query(store.root, startingOffsets="earliest", columns=["commitLogOffset"])
        query.files = files
        query.restart()
        query.run()
        add(store, 3)
        if restart:
            query.restart()
        files.doomed, files.left = segments(store.root)[:2], number
        query.run()
        assert [row["commitLogOffset"] for row in query.rows] == [message.position for message in store.messages]
        if files.left >= 0:
            break
    assert number > 10


@pytest.mark.parametrize("fails", ["true", "false"])
def test_of_what_a_stream_is_about_to_read(tmp_path: Path, fails: str) -> None:
    """It says that messages are gone, or goes on after them; never that anything is damaged."""
    outcomes = Counter[str]()
    for number in itertools.count():
        store = built(tmp_path / f"{number}")
        files = Expiring()
        query = Query(store.root, startingOffsets="earliest", failOnDataLoss=fails, columns=["commitLogOffset"])
        query.files = files
        query.restart()
        begin = int(segments(store.root)[2].name)
        files.doomed, files.left = segments(store.root)[:2], number
        try:
            query.run()
            outcomes["read"] += 1
        except (DataLossError, DeletedMeanwhileError) as why:
            outcomes[type(why).__name__] += 1
            query.restart()
            if fails == "false":
                if len(query.offsets) > 1:  # the batch that failed is planned once more
                    query.rows += query.rows_between(-2, -1)
                query.run()
        found = [row["commitLogOffset"] for row in query.rows]
        positions = [message.position for message in store.messages]
        assert set(found) <= set(positions)
        assert len(set(found)) == len(found)
        if fails == "false" or outcomes["read"] == sum(outcomes.values()):
            assert {at for at in positions if at >= begin} <= set(found)
        if files.left >= 0:
            break
    assert number > 10
    assert outcomes["read"] > 2
    assert outcomes["DeletedMeanwhileError"] > 0


def test_while_a_read_begins(tmp_path: Path) -> None:
    """Segments that were listed and are gone when they are looked at are no damage: the log begins later."""
    for number in range(4):
        store = built(tmp_path / f"{number}")
        files = Expiring()
        files.doomed, files.left = segments(store.root)[:2], number
        rows = reading.read(store.root, files=files)
        assert rows == reference.read_store(store.root)
        assert files.left < 0
