"""What the kernel's tests share: bytes of a commitlog that lie in no file, and the kernel's answers in plain Python."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from oracle import reference

from native_io import ENCODE_COLUMNS, Status, find_unit, scan
from rmqstore_spark.store.format.units import BatchBuilder

Positions = npt.NDArray[np.int64]

I64 = 1 << 63

_TEXT, _I32, _I64 = pa.string(), pa.int32(), pa.int64()
ENCODE_SCHEMA = pa.schema(
    {
        "topic": _TEXT,
        "queueId": _I32,
        "tags": _TEXT,
        "keys": _TEXT,
        "msgId": _TEXT,
        "properties": pa.map_(_TEXT, _TEXT),
        "body": pa.binary(),
        "flag": _I32,
        "sysFlag": _I32,
        "bornTimestamp": _I64,
        "bornHost": pa.binary(),
        "storeTimestamp": _I64,
        "storeHost": pa.binary(),
        "reconsumeTimes": _I32,
        "preparedTransactionOffset": _I64,
    }
)
assert tuple(ENCODE_SCHEMA.names) == ENCODE_COLUMNS


def encode_log(units: Iterable[Mapping[str, Any]], base: int = 0) -> tuple[bytes, Positions]:
    """Units one behind the other from physical offset `base` on, by the arguments of reference.encode_unit."""
    log = bytearray()
    positions = []
    for fields in units:
        positions.append(base + len(log))
        log += reference.encode_unit(**{"physical_offset": base + len(log), **fields})
    return bytes(log), np.array(positions, np.int64)


_LABELS = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAG", b"a", b"")
_WORDS = (
    b"a",
    b"b",
    b"ab",
    b"A",
    b"",
    b"",
    b"order",
    b"\xff",
    b"\xef\xbf\xbd",
    b"\xc3",
    b"\xc3\xa4",
    b"\xe2\x82",
    b"\1",
)


def random_label_units(rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Units with few values of each field, and TAGS, KEYS and UNIQ_KEY in all states: none, twice, broken, no UTF-8."""

    def pair() -> bytes:
        words = b" ".join(rng.choices(_WORDS, k=rng.choice((1, 1, 1, 2, 4))))
        return rng.choice(_LABELS) + rng.choice((b"\1", b"\1", b"\1", b"\1", b"\1", b"", b"\1\1", b"\2")) + words

    for _ in range(count):
        yield {
            "queue_offset": rng.choice((-I64, -1, 0, 1, 2, 256, I64 - 1)),
            "store_timestamp": rng.choice((-I64, -1, 0, 1, 1_700_000_000_000, I64 // 1000, I64 // 1000 + 1, I64 - 1)),
            "sys_flag": rng.choice((0, 0x10, 0x20, 0x30)),
            "body": rng.randbytes(rng.choice((0, 3, 200))),
            "properties": b"\2".join(pair() for _ in range(rng.choice((0, 1, 2, 4, 8, 30)))),
        }


class Scanned(NamedTuple):
    positions: list[int]
    position: int
    status: Status
    expected: int
    found: int


def scan_units(
    window: Any,
    base: int = 0,
    position: int | None = None,
    stop: int | None = None,
    segment_end: int | None = None,
    verify_crc: bool = True,
    capacity: int = 1000,
) -> Scanned:
    """scan(), by default from the window's first byte to its last one, where the segment ends as well."""
    end = base + memoryview(window).nbytes
    segment_end = end if segment_end is None else segment_end
    positions = np.full(capacity, -1, np.int64)
    count, reached, status, expected, found = scan(
        window,
        base=base,
        position=base if position is None else position,
        stop=segment_end if stop is None else stop,
        segment_end=segment_end,
        verify_crc=verify_crc,
        positions=positions,
    )
    assert (positions[count:] == -1).all()
    return Scanned(positions[:count].tolist(), reached, status, expected, found)


def find(
    window: Any, base: int = 0, position: int | None = None, stop: int | None = None, verify_crc: bool = True
) -> tuple[int, Status, int]:
    """find_unit(), by default in the whole window, which ends where the segment does."""
    end = base + memoryview(window).nbytes
    walked = find_unit(
        window,
        base=base,
        position=base if position is None else position,
        stop=end if stop is None else stop,
        segment_end=end,
        verify_crc=verify_crc,
    )
    assert walked.units == (walked.status is Status.OK)
    return walked.at, walked.status, walked.expected


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """A batch as reference.decode_unit gives it, once Arrow has checked all of it."""
    batch.validate(full=True)
    columns = {name: _values(batch.column(name)) for name in batch.schema.names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(array: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_map(array.type):
        maps = [dict(entries) for entries in array.to_pylist()]
        assert sum(map(len, maps)) == len(array.items), "a name twice in one map"
        return maps
    return array.to_pylist()  # type: ignore[no-any-return]


def decode(window: Any, positions: Positions, names: Sequence[str], base: int = 0) -> list[dict[str, Any]]:
    """These units as rows, through one batch; in both ways there are, which must agree."""
    builder = BatchBuilder(list(names))
    builder.append(window, positions, base=base)
    rows = rows_of(builder.finish())
    view = memoryview(window).cast("B")
    for start, count, stop in _chains(view, positions.tolist(), base):
        where: dict[str, Any] = {
            "base": base,
            "position": start,
            "stop": stop,
            "segment_end": (1 << 63) - 1,
            "verify_crc": False,
        }
        assert builder.decoder.scan(view, **where, most=count)[:2] == (count, stop)
    assert rows_of(builder.finish()) == rows
    return rows


def _chains(window: memoryview, positions: list[int], base: int) -> Iterator[tuple[int, int, int]]:
    """(start, number of units, end) of each row of units that follow each other without a gap."""
    start = count = stop = 0
    for at in positions:
        if count and at != stop:
            yield start, count, stop
            count = 0
        start = start if count else at
        stop = at + int.from_bytes(window[at - base :][:4], "big")
        count += 1
    if count:
        yield start, count, stop


def message(**changes: Any) -> dict[str, Any]:
    """A row for Encoder; text may be given as bytes that are not UTF-8."""
    row: dict[str, Any] = {field.name: b"" if pa.types.is_binary(field.type) else 0 for field in ENCODE_SCHEMA}
    row |= dict.fromkeys(("tags", "keys", "msgId", "properties"))
    row |= {"topic": "TopicA", "bornTimestamp": 1_700_000_000_000, "storeTimestamp": 1_700_000_000_001}
    row |= {"bornHost": reference.host_bytes("10.0.0.1:50000"), "storeHost": reference.host_bytes("10.0.0.2:10911")}
    assert changes.keys() <= row.keys()
    return {**row, **changes}


def batch_of(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Rows as an Encoder wants them. A map may be given as a list of pairs, so that it holds a name twice."""
    arrays = []
    for field in ENCODE_SCHEMA:
        values = [row[field.name] for row in rows]
        if pa.types.is_map(field.type):
            arrays.append(_maps(values))
        else:
            arrays.append(_texts(values) if field.type == _TEXT else pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=ENCODE_SCHEMA)


def _texts(values: Sequence[str | bytes | None]) -> pa.Array:
    """As binary first: Spark's strings may hold any bytes, and Arrow does not look."""
    return pa.array(values, pa.binary()).view(_TEXT)


def _maps(maps: Sequence[Any]) -> pa.Array:
    pairs = [list(entries.items() if isinstance(entries, Mapping) else entries or []) for entries in maps]
    ends = np.cumsum([0, *map(len, pairs)]).tolist()
    offsets = [None if entries is None else end for entries, end in zip(maps, ends, strict=False)] + ends[-1:]
    names = _texts([name for entries in pairs for name, _ in entries])
    return pa.MapArray.from_arrays(pa.array(offsets, _I32), names, _texts([v for entries in pairs for _, v in entries]))


def run_python(code: str) -> tuple[str, str]:
    """Its stdout and stderr, in a process of its own that can import what tests can."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return answer.stdout, answer.stderr
