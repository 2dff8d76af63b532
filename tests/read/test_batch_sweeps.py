"""A small store with a batch, cut at every byte and with every bit flipped: rows are right, or damage is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from oracle.stores import StoreBuilder
from support import reading

COLUMNS = [*reading.DEFAULT_COLUMNS, "batchIndex", "corrupt"]


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    """A message, a batch of two and a message, in the queues that a topic without BatchCQ would have."""
    built = StoreBuilder(tmp_path, segment_size=2048)
    built.append("A", b"one", tags="t")
    inner = [
        reference.Inner(b"first", b"UNIQ_KEY\x01a\x02TAGS\x01t\x02"),
        reference.Inner(b"", b"UNIQ_KEY\x01b\x02", 7),
    ]
    built.append(
        "B",
        reference.encode_batch(inner),
        sys_flag=reference.BATCH,
        messages=2,
        properties=b"INNER_BASE\x010\x02INNER_NUM\x012\x02",
    )
    built.append("A", b"last")
    built.close()
    return built


def _expected(data: bytes, store: StoreBuilder) -> tuple[list[dict[str, Any]], bool]:
    """The rows of the units that pass every check, and whether one before the last does not."""
    rows: list[dict[str, Any]] = []
    is_damaged = False
    for message in store.messages:
        unit = data[message.position : message.position + message.size]
        try:
            if reference.check_unit(unit, message.position, store.segment_size - message.position) != message.size:
                raise reference.Corrupt("another size", message.position)
            rows += reference.rows_of_unit(unit, message.position)
        except reference.Corrupt:
            is_damaged |= message is not store.messages[-1]
    return rows, is_damaged


def _read(store: StoreBuilder) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    sound, corrupt = reading.sound_and_corrupt(reading.read(store.root, columns=COLUMNS, mode="PERMISSIVE"))
    return [{name: row[name] for name in row if name != "corrupt"} for row in sound], corrupt


@pytest.mark.slow
@pytest.mark.long
def test_every_flipped_bit(store: StoreBuilder) -> None:
    path = store.segment(0)
    data = path.read_bytes()
    told = 0
    for at in range(store.messages[-1].position + store.messages[-1].size):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            path.write_bytes(changed)
            rows, is_damaged = _expected(bytes(changed), store)
            sound, corrupt = _read(store)
            assert sound == rows, (at, bit)
            assert corrupt or not is_damaged, (at, bit)
            told += bool(corrupt)
    assert told > 1000


def test_cut_at_every_byte(store: StoreBuilder) -> None:
    """Bytes that are missing, as in a copy that was not finished, or zeros, as after a crash."""
    path = store.segment(0)
    data = path.read_bytes()
    for end in range(store.messages[-1].position + store.messages[-1].size):
        path.write_bytes(data[:end])
        assert _read(store)[0] == _expected(data[:end], store)[0], end
        padded = data[:end].ljust(len(data), b"\0")
        path.write_bytes(padded)
        assert _read(store)[0] == _expected(padded, store)[0], end  # no checksum covers properties
