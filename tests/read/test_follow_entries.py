"""A stream of a DLedger node's log gives each message once, while the node is at an entry, and takes entries back that
were not read yet."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from oracle import batches
from oracle.dledger import HEADER, NAME, DLedgerStoreBuilder
from oracle.stores import StoreBuilder
from support.following import Query

from rmqstore_spark.errors import DataLossError


def positions(query: Query) -> list[int]:
    return [row["commitLogOffset"] for row in query.rows]


def add(store: DLedgerStoreBuilder, count: int, size: int = 40) -> None:
    for _ in range(count):
        store.append("T", b"%d " % store.index + b"x" * size, tags="A")
    store.flush()


def term(store: DLedgerStoreBuilder, number: int) -> None:
    """Another node becomes the leader."""
    store.term = number
    path = store.root / NAME / "currterm"
    path.write_text(f"voteLeader=n1\ncurrTerm={number}\n")
    os.utime(path, ns=(number * 10**9, number * 10**9))  # a disk's clock may be coarse


def test_a_message_that_is_not_whole_yet(tmp_path: Path, rng: random.Random) -> None:
    """However much of its entry is there: the stream goes on with all of it."""
    store = DLedgerStoreBuilder(tmp_path, 4096)
    add(store, 3)
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    for _ in range(12):
        store.holding = True  # a broker puts a message into its queue when it is whole
        add(store, 1, rng.randrange(20, 400))
        at = store.messages[-1].position - HEADER.size
        with store.segment(at).open("r+b") as file:
            file.seek(at % store.segment_size)
            whole = file.read(store.end - HEADER.size - at)
            file.seek(at % store.segment_size)
            file.write(whole[: rng.randrange(1, HEADER.size + 100)].ljust(len(whole), b"\0"))
        for _ in range(3):
            assert query.run() == []
            query.clock.pass_(5)
        with store.segment(at).open("r+b") as file:
            file.seek(at % store.segment_size)
            file.write(whole)
        store.holding = False
        add(store, rng.randrange(12), rng.randrange(400))
        query.run()
        if rng.random() < 0.5:
            query.restart()
    query.run()
    assert positions(query) == [message.position for message in store.messages]


def test_a_place_of_an_older_version(tmp_path: Path) -> None:
    """It stands behind the header of an entry whose message was not whole."""
    store = DLedgerStoreBuilder(tmp_path)
    add(store, 3)
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    ((root, place),) = query.at.stores.items()
    behind = replace(query.at, stores={root: replace(place, position=place.position + HEADER.size)})
    query.offsets.append(json.dumps(behind.as_json()))
    add(store, 5, 900)
    query.run()
    assert positions(query) == [message.position for message in store.messages]


@pytest.mark.parametrize("again", [1, 2, 5])
@pytest.mark.parametrize("is_idle", [False, True])
def test_what_a_cut_has_left_over(tmp_path: Path, again: int, is_idle: bool) -> None:
    """Entries of an older term, whole, and just where the log ends: they are no messages of it."""
    store = DLedgerStoreBuilder(tmp_path)
    add(store, 4)
    store.holding = True  # they are in no queue: a node may have to take them back
    add(store, 9)
    store.cut(4)
    term(store, 1)
    add(store, again)
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    for _ in range(3):
        query.clock.pass_(5)
        if is_idle:
            query.restart()
        query.run()
    assert positions(query) == [message.position for message in store.messages]
    add(store, 9, size=77)
    query.clock.pass_(5)
    query.run()
    assert positions(query) == [message.position for message in store.messages]


def test_entries_are_taken_back_before_they_are_read(tmp_path: Path) -> None:
    """By a node that goes on running: what was last before may still be there, but no longer belongs to the log."""
    store = DLedgerStoreBuilder(tmp_path)
    add(store, 2)
    store.holding = True
    add(store, 12)
    query = Query(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    query.trigger()
    store.cut(6)
    term(store, 1)
    add(store, 2, size=55)
    query.run()
    assert positions(query) == [message.position for message in store.messages]


def test_entries_are_taken_back_after_they_were_read(tmp_path: Path) -> None:
    store = DLedgerStoreBuilder(tmp_path)
    add(store, 2)
    store.holding = True
    add(store, 12)
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    store.cut(6)
    term(store, 1)
    add(store, 2, size=55)
    query.clock.pass_(5)
    with pytest.raises(DataLossError, match="it was truncated and written again"):
        query.run()


def test_from_behind_a_batch(tmp_path: Path) -> None:
    """The next message of a queue without units is the one after all messages of its last batch."""
    store = StoreBuilder(tmp_path, 8192)
    store.append("Bq", b"one")
    inner = [batches.Inner(b"%d" % number, b"") for number in range(3)]
    store.append("Bq", batches.encode_batch(inner), sys_flag=batches.BATCH, messages=3)
    store.flush()
    store.drop_queues()
    query = Query(tmp_path, startingOffsets='{"Bq": {"0": -1}}')
    query.start()
    query.run()
    assert query.rows == []
    assert [place.starts for place in query.at.stores.values()] == [{("Bq", 0): 4}]
