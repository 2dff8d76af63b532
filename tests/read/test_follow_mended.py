"""Streams of logs whose damage is mended, or was what the stream had read last: the rest comes once, and what does not
come is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracle.stores import StoreBuilder, Stored
from support.following import Query

from rmqstore_spark.errors import DamagedStoreError, DataLossError

COLUMNS = ["commitLogOffset", "body"]
MODES = ["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    store = StoreBuilder(tmp_path, 4096)
    _add(store, 20)
    return store


def _add(store: StoreBuilder, count: int) -> None:
    for number in range(count):
        store.append(topic=f"T{number % 2}", body=b"%d " % len(store.messages) + b"x" * 50)
    store.flush()


def _query(store: StoreBuilder, **options: Any) -> Query:
    return Query(store.root, columns=COLUMNS, startingOffsets="earliest", **options)


def _positions(rows: list[dict[str, Any]]) -> list[int]:
    return [row["commitLogOffset"] for row in rows]


def _zero(store: StoreBuilder, message: Stored) -> None:
    path = store.segment(message.position)
    data = bytearray(path.read_bytes())
    at = message.position % store.segment_size
    data[at : at + message.size] = bytes(message.size)
    path.write_bytes(data)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["in a segment", "at a segment's start"])
def test_a_batch_that_met_a_cut_file(store: StoreBuilder, mode: str, where: str) -> None:
    """It ended inside the message that the file ends in. Once the file has its rest again, the batch has the message,
    and the stream goes on after it."""
    query = _query(store, mode="FAILFAST")
    query.trigger()
    _add(store, 5)
    while where == "at a segment's start" and store.messages[-1].position % store.segment_size:
        _add(store, 1)
    path, last = store.segment(store.end), store.messages[-1]
    whole = path.read_bytes()
    path.write_bytes(whole[: last.position % store.segment_size + 100])
    query.restart()
    with pytest.raises(DamagedStoreError, match="the file ends inside a message"):
        query.trigger()
    path.write_bytes(whole)
    _add(store, 3)
    query.restart(mode=mode)
    query.rows += query.rows_between(-2, -1)
    query.run()
    assert _positions(query.rows) == [message.position for message in store.messages]


def test_damage_that_was_left_out_is_mended(store: StoreBuilder) -> None:
    """The message has been told lost: it does not come later, and is no damage in the next batch."""
    query = _query(store, mode="DROPMALFORMED", failOnDataLoss=True)
    path, last = store.segment(store.end), store.messages[-1]
    whole = path.read_bytes()
    path.write_bytes(whole[: last.position % store.segment_size + 100])
    query.run()
    path.write_bytes(whole)
    _add(store, 3)
    query.restart(mode="FAILFAST")
    query.run()
    assert _positions(query.rows) == [message.position for message in store.messages if message != last]


def test_a_cut_file_is_mended_where_a_message_has_zeros(store: StoreBuilder) -> None:
    """The place that was read up to is in the queueOffset of a message, 0: that is not the end of the log."""
    query = _query(store, mode="DROPMALFORMED")
    query.trigger()
    store.append(topic="New", body=b"the queue's first message")
    store.flush()
    path, first = store.segment(store.end), store.messages[-1]
    whole = path.read_bytes()
    path.write_bytes(whole[: first.position % store.segment_size + 22])
    query.clock.pass_(5)
    query.run()
    path.write_bytes(whole)
    _add(store, 3)
    query.clock.pass_(5)
    query.run()
    assert _positions(query.rows) == [message.position for message in store.messages if message != first]


@pytest.mark.parametrize("mode", MODES)
def test_the_last_message_that_was_read_is_damaged(
    store: StoreBuilder, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The error says that it may be damage; without failOnDataLoss whatever comes after that message is read."""
    query = _query(store, mode=mode)
    query.trigger()
    read = store.messages[-1]
    _add(store, 30)
    _zero(store, read)
    query.clock.pass_(5)
    with pytest.raises(DataLossError, match=r"it is damaged there \(once that is mended, start the query again\)"):
        query.run()
    query.restart(failOnDataLoss=False)
    query.run()
    assert _positions(query.rows) == [message.position for message in store.messages]
    assert "left out" not in caplog.text


def test_damage_before_the_end_of_a_lost_batch(store: StoreBuilder) -> None:
    """What is whole between that damage and the end is read."""
    query = _query(store, mode="DROPMALFORMED", failOnDataLoss=False, maxOffsetsPerTrigger=10)

    def damage() -> None:
        _zero(store, store.messages[2])
        _zero(store, store.messages[9])

    query.trigger(before_reading=damage)
    query.restart()
    query.run()
    expected = [message.position for number, message in enumerate(store.messages) if number not in (2, 9)]
    assert _positions(query.rows) == expected


def test_the_segment_that_was_read_last_is_missing(store: StoreBuilder) -> None:
    """The segments after it are read."""
    _add(store, 30)
    query = _query(store, mode="DROPMALFORMED", failOnDataLoss=False, maxOffsetsPerTrigger=40)
    query.trigger()
    (at,) = (place.position for place in query.at.stores.values())
    missing = store.segment(at)
    _add(store, 40)
    missing.unlink()
    query.restart()
    query.run()
    after = int(missing.name) + store.segment_size
    assert _positions(query.rows) == [m.position for m in store.messages if m.position < at or m.position >= after]


def test_a_log_that_became_shorter(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    """The stream says where it goes back to."""
    query = _query(store, failOnDataLoss=False)
    query.trigger()
    end = store.end
    cut = store.forget_last(3)
    _zero(store, Stored(cut, end - cut, "", 0, 0, 0, True))
    query.clock.pass_(5)
    query.restart()
    query.run()
    assert f"goes back to commitLogOffset {cut}, where the log ends now: should messages that were read up to " in (
        caplog.text
    )


def test_a_store_that_is_away_while_a_batch_is_planned(
    store: StoreBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What that batch leaves out is told; the rest comes when the store is back."""
    query, away = _query(store, failOnDataLoss=False, maxOffsetsPerTrigger=8), tmp_path.with_name("away")
    assert query.trigger(before_reading=lambda: tmp_path.rename(away)) == []
    (at,) = (place.position for place in query.at.stores.values())
    assert f"{tmp_path}: this batch leaves out commitLogOffsets 0 to {at - 1}" in caplog.text
    away.rename(tmp_path)
    query.restart()
    query.run()
    assert _positions(query.rows) == [message.position for message in store.messages if message.position >= at]
