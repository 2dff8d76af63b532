"""Claims of queues on damaged messages: the same whether each queue is searched or all of them have been read, and in
proportion to the messages, not to messages times queues."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from machine.trials import store_of
from oracle.stores import StoreBuilder

from rmqstore_spark.store import claims
from rmqstore_spark.store.claims import Claim, ClaimSearch
from rmqstore_spark.store.format.message import HEAD_SIZE, Head
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot

STORES = 5
BLOCK = 2048  # units that are read at once
SEARCHES = 1500  # in each store, and each takes half a millisecond


def found_at(root: Path, positions: list[int], head: bool = True) -> list[list[Claim]]:
    """What all queues claim of each physical offset.

    Args:
        head: whether the log still has the heads of messages, which lead to their units.
    """
    store = Snapshot.find(str(root), Files())
    made = ClaimSearch(store.queues, store.segments, store.files)
    found = []
    for position in positions:
        segment = next((each for each in store.segments if each.start <= position < each.end), None)
        data = b""
        if segment is not None and head:
            with store.reader(segment) as reader:
                data = reader.read(position, HEAD_SIZE)
        found.append(list(made.at(position, Head.of(data.ljust(HEAD_SIZE, b"\0")))))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("batches", [False, True])
def test_read_or_searched(rng: random.Random, monkeypatch: pytest.MonkeyPatch, batches: bool) -> None:
    """On stores that were damaged, cut, killed and written on: also where queues have units of a log that was."""
    tables = claims_found = 0
    for _ in range(STORES):
        with store_of(rng.randrange(1 << 40), batches=batches) as past:
            begun = [message.position for message in (*past.messages, *past.stale)]
            queues = len(Snapshot.find(str(past.root), Files()).queues.every)
            positions = [at + step for at in begun for step in (0, 0, 1)]
            positions = rng.sample(positions, min(len(positions), SEARCHES // max(queues, 1)))
            searched = found_at(past.root, positions)
            with monkeypatch.context() as patch:
                patch.setattr(ClaimSearch, "_is_worth_reading", lambda _: True)
                assert found_at(past.root, positions) == searched, past.told()
                tables += 1
            claims_found += sum(map(len, searched))
    assert claims_found > tables


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["swapped", "blank", "unused", "first"])
@pytest.mark.parametrize("count", [40, BLOCK + 100])
def test_a_queue_that_is_odd_is_searched(
    count: int, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    """Its units do not ascend, or something else is among them."""
    store = StoreBuilder(tmp_path, 1 << 19, 20 * 2300)
    for _ in range(count):
        store.append("Orders", queue_id=0)
    store.close()
    positions = [message.position for message in store.messages]
    (path,) = (tmp_path / "consumequeue" / "Orders" / "0").iterdir()
    whole = path.read_bytes()
    for number in [count // 2, min(BLOCK, count) - 1, *rng.sample(range(1, count - 1), 10)]:
        units = [whole[at : at + 20] for at in range(0, len(whole), 20)]
        if odd == "swapped":
            units[number - 1 : number + 1] = units[number], units[number - 1]
        elif odd == "first":
            units[number] = units[0]
        else:
            units[number] = struct.pack(">qiq", 0, 0x7FFFFFFF, 0) if odd == "blank" else bytes(20)
        path.write_bytes(b"".join(units))
        asked = [*positions[max(number - 1, 0) : number + 2], *rng.sample(positions, 9)]
        with monkeypatch.context() as patch:
            patch.setattr(ClaimSearch, "_is_worth_reading", lambda _: True)
            read = found_at(tmp_path, asked, head=False)
        assert read == found_at(tmp_path, asked, head=False), number


def test_queues_are_read_once_where_much_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StoreBuilder(tmp_path, segment_size=1 << 20)
    for number in range(400):
        store.append("Orders", queue_id=number % 20)
    store.close()
    log = tmp_path / "commitlog" / "0".zfill(20)
    with log.open("r+b") as file:
        for message in store.messages:
            file.seek(message.position + 84)
            file.write(b"yyyy")  # bodyLength
    searches = 0
    search = ClaimSearch._of_queue

    def counting(*given: object) -> Claim | None:
        nonlocal searches
        searches += 1
        return search(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(ClaimSearch, "_of_queue", counting)
    found = Snapshot.find(str(tmp_path), Files())
    assert found.end == store.end
    assert searches <= 2 * claims._FEW * 20 < 400
