"""What a queue's log in a tiered store says of single places."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from oracle import tiered
from oracle.tiered import TierWriter

from rmqstore_spark.store.brought import BROUGHT_AT_ONCE
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.tiered import tiered_logs
from rmqstore_spark.store.tiered_log import TieredLog


@pytest.fixture
def units(tmp_path: Path, rng: random.Random) -> list[bytes]:
    tiered.local_store(tmp_path / "store", rng, 60)
    return max(tiered.queue_units(tmp_path / "store").values(), key=len)


def _log(tier: Path) -> TieredLog:
    (layout,) = tiered_logs(str(tier), Files())
    return TieredLog(layout, Files())


def test_a_message_whose_body_is_damaged_is_not_whole(tmp_path: Path, units: list[bytes]) -> None:
    writer = TierWriter(tmp_path / "tier", "A", 0)
    path = writer.write_segment(units)
    starts = [sum(map(len, units[:number])) for number in range(len(units))]
    assert all(_log(tmp_path / "tier").whole_at(start) is not None for start in starts)
    data = bytearray(path.read_bytes())
    data[starts[2] + 90] ^= 1  # in its body
    path.write_bytes(data)
    whole = [_log(tmp_path / "tier").whole_at(start) is not None for start in starts]
    assert whole == [number != 2 for number in range(len(units))]
    assert _log(tmp_path / "tier").whole_at(writer.next) is None


@pytest.mark.parametrize("crosses", [False, True])
def test_messages_are_looked_for_before_units_that_lead_into_each_other(
    tmp_path: Path, units: list[bytes], crosses: bool
) -> None:
    """A broker that was killed brings messages again: behind those with higher queue offsets."""
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units)
    writer.next += 2 * BROUGHT_AT_ONCE  # as if so much had expired
    start, count = writer.next, len(units)
    for path in (*writer.log.iterdir(), *writer.queue.iterdir()):
        path.unlink()
    writer.write_segment(units)
    (path,) = writer.queue.iterdir()
    if crosses:
        data = path.read_bytes()
        path.write_bytes(data[:20] + data[40:60] + data[20:40] + data[60:])
    first = _log(tmp_path / "tier").first_of(start, 0, count - 2)
    assert first == (start - BROUGHT_AT_ONCE if crosses else start)
