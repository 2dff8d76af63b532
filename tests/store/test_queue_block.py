"""What units of queues stand for, against the plain reference: of random ones, of either kind of queue."""

from __future__ import annotations

import random

import numpy as np
import pytest
from oracle import reference

from native_io import QUEUE_COLUMNS, UnitKind, comes_before, last_used_unit, queue_units
from rmqstore_spark.store.format.queue_block import PRE_BLANK, QueueBlock, QueueUnit, lost_unit

KINDS = {
    "nothing": UnitKind.NOTHING,
    "pre-blank": UnitKind.PRE_BLANK,
    "lost": UnitKind.LOST,
    "message": UnitKind.MESSAGE,
}
_POSITIONS = (0, 0, 1, 700, -1, -(1 << 63), (1 << 63) - 1, (1 << 63) - 9, (1 << 63) - 10, 1 << 40)
_SIZES = (0, 1, 8, 9, 9, 10, 150, -1, -(1 << 31), (1 << 31) - 1, (1 << 31) - 1)
_BASES, _COUNTS = (0, 5, -1, (1 << 63) - 1, (1 << 63) - 2), (1, 1, 3, 0, -1, 32767)


def random_unit(rng: random.Random, is_batch: bool) -> bytes:
    """One at the limits of what a broker takes for a unit; or zeros, or noise."""
    size = reference.BATCH_UNIT_SIZE if is_batch else reference.QUEUE_UNIT_SIZE
    if rng.random() < 0.2:
        return rng.choice((bytes(size), rng.randbytes(size)))
    fields = rng.choice(_POSITIONS), rng.choice(_SIZES), rng.choice((0, 7, -5, rng.randrange(-(1 << 63), 1 << 63)))
    if not is_batch:
        return reference.encode_queue_unit(*fields)
    return reference.encode_batch_unit(*fields, rng.randrange(1 << 41), rng.choice(_BASES), rng.choice(_COUNTS))


@pytest.mark.parametrize("is_batch", [False, True])
def test_as_the_reference(is_batch: bool, rng: random.Random) -> None:
    size = reference.BATCH_UNIT_SIZE if is_batch else reference.QUEUE_UNIT_SIZE
    seen = set()
    for _ in range(300):
        raw = [random_unit(rng, is_batch) for _ in range(rng.randrange(30))]
        first = rng.randrange(1 << 40)
        block = QueueBlock.of(b"".join(raw) + b"x" * rng.randrange(size), first, is_batch)
        assert len(block) == len(raw)
        expected = [reference.read_queue_unit(data, first + at) for at, data in enumerate(raw)]
        for number, (unit, right) in enumerate(zip(block, expected, strict=True), first):
            assert unit.fields == right[:3]
            assert (unit.queue_offset, unit.messages, unit.kind) == (
                right.queue_offset,
                right.messages,
                KINDS[right.kind],
            )
            assert (unit.number, unit.is_message) == (number, right.kind == "message")
        assert [QueueUnit.of(unit, number, size) for number, unit in enumerate(raw, first)] == list(block)
        assert QueueUnit.of(b"x" * rng.randrange(size), first, size) is None
        used = [at for at, right in enumerate(expected) if right.kind != "nothing"]
        assert last_used_unit(b"".join(raw) + b"x" * rng.randrange(size), unit_size=size) == max(used, default=-1)
        assert block.store_times.tolist() == [right.store_timestamp for right in expected]
        position = rng.choice(_POSITIONS)
        before = [u.kind == "pre-blank" or (u.kind != "nothing" and u.physical_offset < position) for u in expected]
        for index in range(len(raw) + 2):
            assert block.first_from(position, index) == next(
                (n for n in range(index, len(raw)) if not before[n]), len(raw)
            )
        assert [comes_before(unit, position, unit_size=size) for unit in raw] == before
        seen |= {right.kind for right in expected}
    assert seen == set(KINDS)


def test_what_the_writer_puts_into_queues_is_what_a_reader_sees() -> None:
    """And to a broker that starts both are units, as ConsumeQueue.recover takes them."""
    pre_blank, lost, nothing = QueueBlock.of(PRE_BLANK + lost_unit(4096) + bytes(20))
    assert [unit.kind for unit in (pre_blank, lost, nothing)] == [UnitKind.PRE_BLANK, UnitKind.LOST, UnitKind.NOTHING]
    assert (lost.position, lost.size) == (4096 - 8, 9)
    assert reference.read_queue_unit(lost_unit(4096), 0).kind == "lost"
    assert reference.encode_queue_unit(*reference.PRE_BLANK) == PRE_BLANK


def test_some_of_a_block_and_blocks_joined(rng: random.Random) -> None:
    data = b"".join(random_unit(rng, is_batch=False) for _ in range(50))
    block = QueueBlock.of(data, 7)
    parts = [block.only(slice(0, 20)), block.only(np.arange(20, 33)), block.only(np.arange(50) >= 33)]
    assert list(QueueBlock.joined(parts)) == list(block)
    assert list(QueueBlock.joined([])) == []


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="unit_size 21: there is none"):
        queue_units(bytes(42), 0, unit_size=21)
    with pytest.raises(ValueError, match="unit_size 21: there is none"):
        comes_before(bytes(42), 0, unit_size=21)
    assert not comes_before(b"", 1, unit_size=20)
    assert not comes_before(reference.encode_queue_unit(0, 9, 0)[:-1], 1, unit_size=20)
    columns, kinds = queue_units(b"", 0, unit_size=20)
    assert (columns.shape, kinds.shape) == ((len(QUEUE_COLUMNS), 0), (0,))
