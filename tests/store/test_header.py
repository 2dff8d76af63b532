"""A unit's header, as planning reads it, says what the columns that the kernel decodes say."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from oracle import reference

from rmqstore_spark.store.format.units import BatchBuilder, Run

COLUMNS = ["topic", "queueId", "queueOffset", "sysFlag", "storeTimestamp", "commitLogOffset", "storeSize"]
MOST = (1 << 63) - 1
TIMES = [0, 1, -1, 1_700_000_000_000, MOST // 1000, MOST // 1000 + 1, -(MOST // 1000) - 1, -(MOST // 1000) - 2, MOST]


def some_units(rng: random.Random) -> list[bytes]:
    flags = [0, reference.BORN_HOST_V6, reference.STORE_HOST_V6, reference.BORN_HOST_V6 | reference.STORE_HOST_V6]
    topics = [b"T", b"", b"Topic" * 25, "\u4e2d\u6587".encode(), b"bad \xff\xed\xa0\x80 bytes", b"x" * 200, b"x" * 1000]
    units: list[bytes] = []
    for _ in range(60):
        topic = rng.choice(topics)
        units.append(
            reference.encode_unit(
                topic=topic,
                body=rng.randbytes(rng.choice((0, 1, 500))),
                properties=rng.choice(({}, {"KEYS": "k"})),
                queue_id=rng.choice((0, 7, -5, (1 << 31) - 1)),
                queue_offset=rng.choice((0, 1 << 40, -1)),
                sys_flag=rng.choice(flags) | rng.choice((0, reference.PREPARED, reference.COMMIT)),
                store_timestamp=rng.choice(TIMES),
                version=2 if len(topic) > 127 else rng.choice((1, 2)),
                physical_offset=sum(len(unit) for unit in units),
            )
        )
    return units


@pytest.mark.parametrize("by_place", [False, True])
def test_header(rng: random.Random, by_place: bool) -> None:
    units = some_units(rng)
    log = b"".join(units)
    positions = np.cumsum([0, *(len(unit) for unit in units[:-1])], dtype=np.int64)
    run = Run(memoryview(log), 0, positions)
    builder = BatchBuilder(COLUMNS)
    run.add_to(builder)
    columns = builder.finish().columns
    columns[4] = columns[4].cast(pa.int64())
    expected = list(zip(*(column.to_pylist() for column in columns), strict=True))
    if by_place:  # picked units lie elsewhere than where they stand in the log
        run = Run(memoryview(b"..." + log), 0, positions, positions + 3)
    found = [
        (h.topic, h.queue_id, h.queue_offset, h.sys_flag, h.store_timestamp, h.position, h.size) for h in run.headers()
    ]
    assert found == expected
    assert {header.is_queued for header in run.headers()} == {False, True}
