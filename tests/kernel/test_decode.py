"""The kernel's Decoder gives the rows and columns that the oracle gives, and refuses hostile arguments."""

from __future__ import annotations

import itertools
import mmap
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracle import random_stores, reference
from support.kernels import Positions, decode, encode_log, rows_of, scan_units

from native_io import COLUMNS, Decoder
from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.store.format.units import BatchBuilder

I32, I64 = 1 << 31, 1 << 63
V6 = reference.BORN_HOST_V6 | reference.STORE_HOST_V6

Rows = list[dict[str, Any]]


def _random_log(directory: Path, rng: random.Random, messages: int) -> tuple[bytes, Positions, Rows]:
    """One segment of everything the format allows, its units, and the oracle's rows."""
    store = random_stores.random_store(directory, rng, messages, segment_size=4 << 20)
    log = store.segment(0).read_bytes()[: store.end]
    positions = np.array([stored.position for stored in store.messages], np.int64)
    view = memoryview(log)
    return log, positions, [reference.decode_unit(view[at:], at, decompress=False) for at in positions.tolist()]


def _only(rows: Rows, names: tuple[str, ...]) -> Rows:
    return [{name: row[name] for name in names} for row in rows]


# ---- equal to the oracle


@pytest.mark.slow
def test_every_column_of_random_units(tmp_path: Path, rng: random.Random) -> None:
    log, positions, expected = _random_log(tmp_path, rng, 4000)
    rows = decode(log, positions, COLUMNS)
    for name in COLUMNS:
        assert [row[name] for row in rows] == [row[name] for row in expected], name
    assert len(rows) == len(expected) == 4000


def test_every_column_alone_and_every_pair(tmp_path: Path, rng: random.Random) -> None:
    log, positions, expected = _random_log(tmp_path, rng, 40)
    for names in [*itertools.combinations(COLUMNS, 1), *itertools.permutations(COLUMNS, 2)]:
        assert decode(log, positions, names) == _only(expected, names)


def test_any_columns_in_any_order_in_any_pieces(tmp_path: Path, rng: random.Random) -> None:
    """Several appends a batch, several batches a decoder, some of them empty; positions in any order, and repeated."""
    log, positions, expected = _random_log(tmp_path, rng, 500)
    for _ in range(60):
        names = tuple(rng.sample(COLUMNS, rng.randrange(1, len(COLUMNS) + 1)))
        builder = BatchBuilder(list(names))
        for _ in range(rng.randrange(1, 5)):
            chosen: list[int] = []
            for _ in range(rng.randrange(4)):
                part = rng.choices(range(500), k=rng.choice((0, 1, 7, 8, 9, 100)))
                builder.append(log, positions[part], base=0)
                chosen += part
                assert builder.decoder.rows == len(chosen)
            batch = builder.finish()
            assert batch.schema == arrow_schema(list(names))
            assert rows_of(batch) == _only([expected[i] for i in chosen], names)
            assert builder.decoder.rows == builder.decoder.compressed == 0


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9])
def test_no_columns(rows: int) -> None:
    log, positions = encode_log([{}] * rows)
    builder = BatchBuilder([])
    builder.append(log, positions, base=0)
    assert builder.decoder.rows == rows
    batch = builder.finish()
    batch.validate(full=True)
    assert (batch.num_rows, batch.num_columns) == (rows, 0)
    assert builder.decoder.rows == 0


def test_no_rows() -> None:
    builder = BatchBuilder(list(COLUMNS))
    for window in (b"", bytes(100), reference.encode_unit()):
        for _ in range(2):
            batch = builder.finish()
            batch.validate(full=True)
            assert (batch.num_rows, batch.schema.names) == (0, list(COLUMNS))
            assert [batch.column(i).to_pylist() for i in range(len(COLUMNS))] == [[]] * len(COLUMNS)
        builder.append(window, np.empty(0, np.int64), base=0)
    builder.append(reference.encode_unit(), np.zeros(1, np.int64), base=0)
    assert len(rows_of(builder.finish())) == 1


@pytest.mark.parametrize("base", [0, 1, 1 << 40, I64 - 1 - 2000])
def test_base(base: int) -> None:
    log, positions = encode_log([{"body": b"x" * i} for i in range(10)], base)
    rows = decode(log, positions, ["commitLogOffset", "offsetMsgId", "body"], base)
    assert [row["commitLogOffset"] for row in rows] == positions.tolist()
    assert [row["body"] for row in rows] == [b"x" * i for i in range(10)]
    assert rows[0]["offsetMsgId"] == f"0A00000200002A9F{base:016X}"


def test_all_numbers_reach_to_their_ends() -> None:
    i32, i64 = (-I32, -1, 0, 1, I32 - 1, 0x01020304), (-I64, -1, 0, 1, I64 - 1, 0x0102030405060708)
    numbers = [
        {"queue_id": a, "flag": b, "reconsume_times": c, "queue_offset": d, "prepared_transaction_offset": e}
        for a, b, c in itertools.permutations(i32, 3)
        for d, e in [(i64[(a + b) % 6], i64[(b + c) % 6])]
    ]
    log, positions = encode_log([{**fields, "body_crc": fields["flag"]} for fields in numbers])
    names = ["queueId", "flag", "reconsumeTimes", "queueOffset", "preparedTransactionOffset", "bodyCRC"]
    assert [list(row.values()) for row in decode(log, positions, names)] == [
        [*fields.values(), fields["flag"]] for fields in numbers
    ]


def test_any_sys_flag(rng: random.Random) -> None:
    flags = [*(1 << bit for bit in range(31)), -I32, -1, I32 - 1, 0, *(rng.randrange(-I32, I32) for _ in range(300))]
    log, positions = encode_log({"sys_flag": flag, "body": b"abc"} for flag in flags)
    builder = BatchBuilder(list(COLUMNS))
    builder.append(log, positions, base=0)
    assert builder.decoder.compressed == sum(flag & 1 for flag in flags)
    rows = rows_of(builder.finish())
    assert rows == [reference.decode_unit(log[at:], at, decompress=False) for at in positions.tolist()]


def test_compressed_rows_are_counted_only_with_their_bodies() -> None:
    log, positions = encode_log([{"sys_flag": 1, "body": b"a"}])
    decoder = Decoder(["sysFlag"])
    decoder.append(log, positions, base=0)
    assert decoder.compressed == 0


# ---- times


def test_times_that_do_not_fit_are_null(rng: random.Random) -> None:
    last = reference.microseconds(random_stores.LATEST)
    assert last is not None
    assert reference.microseconds(random_stores.LATEST + 1) is None
    times = [*random_stores.UNUSUAL_TIMES, *(rng.randrange(-I64, I64) for _ in range(100)), 1_700_000_000_000]
    # Nulls first, last, in the middle, next to each other, none at all, and only.
    for n in (0, 1, 7, 8, 9, 16, 17, 65):
        for _ in range(20):
            born, stored = rng.choices(times, k=n), rng.choices(times, k=n)
            log, positions = encode_log(
                {"born_timestamp": a, "store_timestamp": b} for a, b in zip(born, stored, strict=True)
            )
            rows = decode(log, positions, ["bornTimestamp", "storeTimestamp"])
            assert [row["bornTimestamp"] for row in rows] == [reference.microseconds(time) for time in born]
            assert [row["storeTimestamp"] for row in rows] == [reference.microseconds(time) for time in stored]


@pytest.mark.parametrize("rows", [1, 8, 9, 64, 65])
def test_one_null_anywhere(rows: int) -> None:
    """Also behind it, where the bitmap is filled up only at the end, and in the next batch, which has none."""
    builder = BatchBuilder(["bornTimestamp", "tags"])
    for null in range(rows):
        log, positions = encode_log(
            {"born_timestamp": I64 - 1} if i == null else {"properties": b"TAGS\1x"} for i in range(rows)
        )
        builder.append(log, positions, base=0)
        batch = builder.finish()
        assert [column.null_count for column in batch.columns] == [1, 1]
        assert [row["tags"] for row in rows_of(batch)] == [None if i == null else "x" for i in range(rows)]
    log, positions = encode_log([{"properties": b"TAGS\1x"}] * rows)
    builder.append(log, positions, base=0)
    assert [column.null_count for column in builder.finish().columns] == [0, 0]


# ---- hosts


def test_hosts(rng: random.Random) -> None:
    ports = (0, 1, 9, 10, 10911, 65535, 65536, -1, -I32, I32 - 1)
    v4 = [bytes(rng.choice((0, 1, 9, 10, 99, 100, 255, rng.randrange(256))) for _ in range(4)) for _ in range(200)]
    v6 = [bytes(rng.choice((0, 0, 0, 255, rng.randrange(256))) for _ in range(16)) for _ in range(300)]
    v6 += [bytes(10) + b"\xff\xff" + address for address in v4[:20]] + [bytes(12) + address for address in v4[:20]]
    hosts = [address + struct.pack(">i", rng.choice(ports)) for address in v4 + v6]
    hosts += [bytes(8), bytes(20), b"\xff" * 8, b"\xff" * 20, *(bytes(16) + struct.pack(">i", port) for port in ports)]
    hosts += [reference.host_bytes(text) for text in random_stores.HOSTS_V6]
    hosts = [rng.choice(hosts) if i % 3 else hosts[i // 3] for i in range(3 * len(hosts))]
    pairs = [pair for host in hosts for pair in [(host, rng.choice(hosts))] * rng.choice((1, 1, 3))]
    log, positions = encode_log(
        {
            "born_host": born,
            "store_host": store,
            "sys_flag": (reference.BORN_HOST_V6 if len(born) == 20 else 0)
            | (reference.STORE_HOST_V6 if len(store) == 20 else 0),
        }
        for born, store in pairs
    )
    for names in (["bornHost", "storeHost", "offsetMsgId"], ["offsetMsgId"], ["storeHost"], ["bornHost"]):
        rows = decode(log, positions, names)
        expected = [reference.decode_unit(log[at:], at) for at in positions.tolist()]
        assert rows == _only(expected, tuple(names))


def test_hosts_that_differ_in_one_bit() -> None:
    """The last host is remembered: the next one must not be taken for it."""
    for size, flag in ((8, 0), (20, V6)):
        hosts = [bytes(size)]
        for bit in range(8 * size):
            hosts += [(1 << bit).to_bytes(size, "big"), bytes(size)]
        log, positions = encode_log({"born_host": host, "store_host": host, "sys_flag": flag} for host in hosts)
        rows = decode(log, positions, ["bornHost", "storeHost", "offsetMsgId"])
        assert [row["bornHost"] for row in rows] == [reference.host_text(host) for host in hosts]
        assert [row["storeHost"] for row in rows] == [reference.host_text(host) for host in hosts]
        assert [row["offsetMsgId"][: 2 * size] for row in rows] == [host.hex().upper() for host in hosts]


# ---- texts


@pytest.mark.parametrize("slack", [0, 1, 31, 32, 33, 100])
def test_texts_of_every_length(slack: int) -> None:
    """Short ones are copied 32 bytes at a time where the window reaches far enough."""
    units: list[dict[str, Any]] = [
        {
            "topic": b"t" * n,
            "body": b"b" * (100 - n),
            "properties": b"TAGS\1" + b"v" * n + b"\2KEYS\1" + b"k" * (n // 2),
        }
        for n in range(101)
    ]
    for unit in units:
        log, positions = encode_log([unit])
        window = np.frombuffer(log + b"\xff" * slack, np.uint8).copy()
        builder = BatchBuilder(list(COLUMNS))
        builder.append(window, positions, base=0)
        assert not builder.decoder.non_ascii
        assert rows_of(builder.finish()) == [reference.decode_unit(log, 0)]
    log, positions = encode_log(units)
    expected = [reference.decode_unit(log[at:], at) for at in positions.tolist()]
    assert decode(log + b"\xff" * slack, positions, COLUMNS) == expected
    assert decode(log + b"\xff" * slack, positions[::-1].copy(), COLUMNS) == expected[::-1]


def test_topics(rng: random.Random) -> None:
    topics = ["", "é" * 63, "t" * 127, "t" * 128, "t" * 32000, "中文", "\0", "\1\2"]
    log, positions = encode_log({"topic": topic, "version": 2} for topic in topics)
    assert [row["topic"] for row in decode(log, positions, ["topic"])] == topics


@pytest.mark.parametrize("bad", random_stores.BAD_UTF8)
def test_text_that_is_not_utf8(bad: bytes) -> None:
    properties = [
        *(b"TAGS\1%s\2KEYS\1x\2UNIQ_KEY\1y" % bad, b"TAGS\1x\2KEYS\1%s\2" % bad, b"UNIQ_KEY\1%s" % bad),
        *(b"%s\1a" % bad, b"a\1%s" % bad, b"a\1b\1%s" % bad, b"%s\1x\2other\1%s" % (bad, bad), b"TAGS%s\1x" % bad),
    ]
    fields: list[dict[str, Any]] = [{"properties": one} for one in properties]
    fields += [{"topic": bad}, {"topic": b"a" + bad + b"b"}, {"body": bad}, {"topic": bad, "properties": properties[0]}]
    for units in [[unit] for unit in fields] + [fields]:
        log, positions = encode_log(units)
        expected = [reference.decode_unit(log[at:], at) for at in positions.tolist()]
        assert decode(log, positions, COLUMNS) == expected
        for name in ("topic", "tags", "keys", "msgId", "properties", "body"):
            assert decode(log, positions, [name]) == _only(expected, (name,))


def test_bad_text_together_with_nulls_and_nothing() -> None:
    log, positions = encode_log([{}, {"properties": b"TAGS\1\xff"}, {}, {"properties": b"KEYS\1a\2b\1c"}, {}])
    expected = [reference.decode_unit(log[at:], at) for at in positions.tolist()]
    assert decode(log, positions, COLUMNS) == expected


def test_non_ascii() -> None:
    """It must be true where text may be wrong; a body is no text, and what nobody asked for does not count."""
    for names, fields, expected in (
        (["topic"], {"topic": "é"}, True),
        (["body"], {"topic": "é", "body": b"\xff", "properties": {"é": "é"}}, False),
        (["topic", "body"], {"body": b"\xff", "properties": {"é": "é"}}, False),
        (["properties"], {"properties": {"a": "é"}}, True),
        (["tags"], {"properties": {"TAGS": "é"}}, True),
        (["keys", "topic"], {"properties": {"KEYS": "é"}}, True),
        (["msgId"], {"properties": {"UNIQ_KEY": "é"}}, True),
    ):
        decoder = Decoder(names)
        log, positions = encode_log([fields])
        decoder.append(log, positions, base=0)
        assert decoder.non_ascii is expected
        decoder.finish()
        assert not decoder.non_ascii
        log, positions = encode_log([{"topic": "plain", "body": b"plain", "properties": {"TAGS": "plain"}}])
        decoder.append(log, positions, base=0)
        assert not decoder.non_ascii


def test_nbytes_is_the_size_of_the_batch() -> None:
    """But for what Arrow counts as well: the one offset more than there are rows, and the validity bitmap."""
    log, positions = encode_log(
        {"topic": "t" * i, "body": b"b" * i, "properties": b"TAGS\1x\2a\1b"} for i in range(100)
    )
    for names in ([name] for name in COLUMNS):
        builder = BatchBuilder(names)
        builder.append(log, positions, base=0)
        nbytes = builder.decoder.nbytes
        assert nbytes <= sum(column.nbytes for column in builder.finish().columns) <= nbytes + 12 + 13
        assert builder.decoder.nbytes == 0


# ---- arguments


@pytest.mark.parametrize("names", [["nope"], ["topic", "topic"], ["file"], [None], [1], "topic", [b"topic"]])
def test_columns_that_there_are_not(names: Any) -> None:
    with pytest.raises(ValueError, match="different names"):
        Decoder(names)


def test_columns_are_kept_as_asked_for() -> None:
    assert Decoder(["body", "topic"]).columns == ("body", "topic")
    assert Decoder(iter(COLUMNS[::-1])).columns == COLUMNS[::-1]  # type: ignore[arg-type]
    for wrong in (None, 5):
        with pytest.raises(TypeError):
            Decoder(wrong)  # type: ignore[arg-type]


UNIT = reference.encode_unit(body=b"hello", physical_offset=1000)
END = 1000 + len(UNIT)
HOSTILE = [
    *(
        (UNIT, 1000, at)
        for at in (999, 1001, 1004, END - 1, END, END + 1, 0, -1, -I64, -I64 + 1000, I64 - 1, I64 - 1000)
    ),
    *((b"", 1000, at) for at in (999, 1000, 1001, 0, I64 - 1, -I64)),
    *((UNIT, -I64, at) for at in (-I64, -I64 + 1, -1, 0, 1, 1000, I64 - 1)),
    *((UNIT, -1, at) for at in (-1, 0, 1000, I64 - 2, I64 - 1)),
    *((UNIT, I64 - 1, at) for at in (I64 - 1, I64 - 2, 0, -1, -I64, 1000)),
    *((UNIT, 0, at) for at in (0, 1000)),
    *((UNIT, 1001, at) for at in (1000, 1001)),
]


@pytest.mark.parametrize(("window", "base", "position"), HOSTILE, ids=lambda value: str(value)[:20])
def test_append_at_a_place_without_a_unit(window: bytes, base: int, position: int) -> None:
    """And the decoder stays shut: its columns may differ in length now."""
    for before in (0, 3):
        decoder = Decoder(COLUMNS)
        decoder.append(UNIT, np.full(before, 1000, np.int64), base=1000)
        with pytest.raises(ValueError, match=f"no message unit at {position}"):
            decoder.append(window, np.array([position, 1000], np.int64), base=base)
        uses: tuple[Callable[[Decoder], object], ...] = (
            lambda decoder: decoder.append(UNIT, np.array([1000]), base=1000),
            lambda decoder: decoder.append(UNIT, np.empty(0, np.int64), base=1000),
            lambda decoder: decoder.finish(),
            lambda decoder: decoder.non_ascii,
        )
        for use in uses:
            with pytest.raises(RuntimeError, match="failed earlier"):
                use(decoder)
        assert (decoder.rows, decoder.columns) == (before, COLUMNS)


def test_append_to_every_byte_and_of_every_cut() -> None:
    log, positions = encode_log([{"body": b"hello", "properties": {"TAGS": "x"}}] * 3, 1000)
    for at in range(1000, 1000 + len(log) + 1):
        decoder = Decoder(COLUMNS)
        if at in positions:
            decoder.append(log, np.array([at]), base=1000)
        else:
            with pytest.raises(ValueError, match="no message unit"):
                decoder.append(log, np.array([at]), base=1000)
    for cut in range(len(UNIT)):
        with pytest.raises(ValueError, match="no message unit at 1000"):
            Decoder(["body"]).append(UNIT[:cut], np.array([1000]), base=1000)


def test_append_does_not_check_the_crc() -> None:
    assert decode(reference.encode_unit(body=b"x", body_crc=1), np.zeros(1, np.int64), ["body"]) == [{"body": b"x"}]


def test_arguments_of_the_wrong_kind() -> None:
    decoder = Decoder(COLUMNS)
    at = np.array([1000])
    windows: tuple[Any, ...] = (None, "text", [1], memoryview(UNIT)[::2], np.zeros(10, np.int64))
    for window in windows:
        with pytest.raises((TypeError, ValueError, BufferError)):
            decoder.append(window, at, base=1000)
    wrong: tuple[Any, ...] = (None, [1000], at.astype(np.int32), at.astype(np.float64), at.reshape(1, 1))
    for positions in (*wrong, np.arange(9)[::2]):
        with pytest.raises((TypeError, ValueError, BufferError)):
            decoder.append(UNIT, positions, base=1000)
    with pytest.raises(OverflowError):
        decoder.append(UNIT, at, base=I64)
    decoder.append(UNIT, at, base=1000)  # none of this came as far as the columns
    assert decoder.rows == 1


def _mapped(data: bytes) -> mmap.mmap:
    mapped = mmap.mmap(-1, len(data))
    mapped[:] = data
    return mapped


@pytest.mark.parametrize("offset", range(9))
@pytest.mark.parametrize(
    "kind",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: memoryview(bytearray(data)),
        _mapped,
        lambda data: np.frombuffer(data, np.uint8),
        lambda data: np.frombuffer(data, np.uint8).copy(),
        pa.py_buffer,
    ],
    ids=["bytes", "bytearray", "readonly", "writable", "mmap", "numpy readonly", "numpy", "arrow"],
)
def test_windows_of_all_kinds_and_alignments(kind: Callable[[bytes], Any], offset: int) -> None:
    log, positions = encode_log([{"body": b"x" * i, "properties": {"k" * (i + 1): "v"}} for i in range(9)])
    whole = memoryview(kind(b"\xda" * offset + log + bytes(8)))
    window = whole[offset:].cast("B")
    assert scan_units(window).positions == positions.tolist()
    assert decode(window, positions, COLUMNS) == [reference.decode_unit(log[at:], at) for at in positions.tolist()]
    positions.flags.writeable = False
    assert len(decode(window, positions, ["body"])) == 9


def test_a_window_may_be_changed_or_dropped_after_append() -> None:
    window = bytearray(reference.encode_unit(topic="old", body=b"old", properties={"TAGS": "old"}))
    builder = BatchBuilder(["topic", "body", "tags"])
    builder.append(window, np.zeros(1, np.int64), base=0)
    window[:] = bytes(len(window))
    window.clear()
    assert rows_of(builder.finish()) == [{"topic": "old", "body": b"old", "tags": "old"}]
