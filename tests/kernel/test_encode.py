"""The kernel's Encoder writes the units that the oracle writes, by every rule of RocketMQ, from Arrow arrays of any
make."""

from __future__ import annotations

import itertools
import pickle
import random
import struct
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracle import golden, random_stores, reference
from support.kernels import ENCODE_SCHEMA, batch_of, message

from native_io import Dispatcher, EncodeError, Encoder

Row = Mapping[str, Any]
I32, I64 = 1 << 31, 1 << 63
MAX_BODY = 4 << 20
MOST = 32767


def _encode(rows: Sequence[Row] | pa.RecordBatch | pa.StructArray, allow_v2: bool = True) -> list[bytes]:
    batch: Any = batch_of(rows) if isinstance(rows, (list, tuple)) else rows
    units, sizes = Encoder(allow_v2=allow_v2).encode(batch)
    assert units.readonly
    assert units.nbytes == int(sizes.sum())
    assert sizes.dtype == np.int32
    ends = np.cumsum(sizes).tolist()
    return [bytes(units[end - size : end]) for size, end in zip(sizes.tolist(), ends, strict=True)]


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _expected(row: Row) -> bytes:
    """The unit, by the words of the contract in plain Python."""
    columns = {b"TAGS": row["tags"], b"KEYS": row["keys"], b"UNIQ_KEY": row["msgId"]}
    given = row["properties"] or {}
    pairs = [(_bytes(name), value) for name, value in (given.items() if isinstance(given, Mapping) else given)]
    written, seen = b"", set()
    for name, value in [*pairs, *columns.items()]:
        if columns.get(name) is not None:
            if name in seen:
                continue
            seen.add(name)
            value = columns[name]
        if value and name != b"__CRC32#":
            written += name + b"\x01" + _bytes(value) + b"\x02"
    v6 = reference.BORN_HOST_V6 | reference.STORE_HOST_V6
    hosts = (len(row["bornHost"]) == 20) * reference.BORN_HOST_V6 | (
        len(row["storeHost"]) == 20
    ) * reference.STORE_HOST_V6
    return reference.encode_unit(
        topic=row["topic"],
        body=row["body"],
        properties=written,
        queue_id=row["queueId"],
        flag=row["flag"],
        sys_flag=row["sysFlag"] & ~v6 | hosts,
        born_timestamp=row["bornTimestamp"],
        born_host=row["bornHost"],
        store_timestamp=row["storeTimestamp"],
        store_host=row["storeHost"],
        reconsume_times=row["reconsumeTimes"],
        prepared_transaction_offset=row["preparedTransactionOffset"],
    )


def _text(rng: random.Random, most: int = 70) -> bytes:
    if rng.random() < 0.2:
        return rng.choice((*random_stores.BAD_UTF8, *(word.encode() for word in random_stores.WORDS)))
    return bytes(rng.choices(b"abcXYZ 019\xc3\xa9\xff\x00\x03", k=rng.choice((0, 1, rng.randrange(most), 31, 32, 33))))


def _random_message(rng: random.Random) -> dict[str, Any]:
    names = [b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"__CRC32#", b"TAGT", b"UNIQ_KEZ", b"CLUSTER", b"e\xcc\x81"]
    names += [_text(rng) or b"x" for _ in range(4)]
    pairs = [
        (name, rng.choice((None, _text(rng), _text(rng), _text(rng) + b"\x01" + _text(rng))))
        for name in rng.choices(names, k=rng.choice((0, 1, 3, 8, 12)))
    ]

    def host() -> bytes:
        return rng.randbytes(rng.choice((8, 8, 8, 20)))

    def column() -> bytes | None:
        return _text(rng) if rng.random() < 0.6 else None

    return message(
        topic=rng.choice(random_stores.TOPICS),
        queueId=rng.choice((0, 1, I32 - 2)),
        tags=column(),
        keys=column(),
        msgId=column(),
        properties=rng.choice((None, pairs, pairs, pairs)),
        body=rng.randbytes(rng.choice((0, 1, 15, 16, 64, rng.randrange(3000)))),
        flag=rng.choice((0, -1, -I32, I32 - 1)),
        sysFlag=rng.choice((0, 1, 0x301, 4, 8, 12, 0x10, 0x20, 0x30, 0x2, 0x700)),
        bornTimestamp=rng.choice((0, -1, -I64, I64 - 1, 1_700_000_000_000)),
        bornHost=host(),
        storeTimestamp=rng.choice((1, I64 - 1, 1_700_000_000_000)),
        storeHost=host(),
        reconsumeTimes=rng.choice((0, 1, -I32, I32 - 1)),
        preparedTransactionOffset=rng.choice((0, -1, I64 - 1)),
    )


# ---- equal to the oracle


@pytest.mark.slow
def test_random_rows(rng: random.Random) -> None:
    rows = [_random_message(rng) for _ in range(5000)]
    for row, unit in zip(rows, _encode(rows), strict=True):
        assert unit == _expected(row), row
        reference.check_unit(unit, 0, len(unit) + reference.BLANK_SIZE)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 63, 64, 65])
def test_any_number_of_rows(count: int, rng: random.Random) -> None:
    rows = [_random_message(rng) for _ in range(count)]
    assert _encode(rows) == [_expected(row) for row in rows]


def test_slices(rng: random.Random) -> None:
    rows = [_random_message(rng) for _ in range(300)]
    whole = batch_of(rows)
    for _ in range(200):
        start = rng.randrange(301)
        stop = rng.randrange(start, 301)
        expected = [_expected(row) for row in rows[start:stop]]
        part = whole.slice(start, stop - start)
        assert _encode(part) == expected
        # Here the struct is sliced, not its columns, so the offset stands elsewhere; and then both are.
        assert _encode(whole.to_struct_array().slice(start, stop - start)) == expected
        inner = rng.randrange(stop - start + 1)
        assert _encode(part.to_struct_array().slice(inner)) == expected[inner:]


def test_entries_of_a_map_may_be_slices_too(rng: random.Random) -> None:
    rows = [message(properties={f"name{i}": f"value{i}", "x": "y"}) for i in range(20)]
    batch = batch_of(rows)
    maps = batch.column("properties")
    names = pa.concat_arrays([pa.array(["before"]), maps.keys])[1:]
    values = pa.concat_arrays([pa.array(["a", "b", "c"]), maps.items])[3:]
    offsets = pa.array(range(0, 42, 2), pa.int32())
    batch = batch.set_column(5, ENCODE_SCHEMA.field(5), pa.MapArray.from_arrays(offsets, names, values))
    assert _encode(batch) == [_expected(row) for row in rows]
    assert _encode(batch.slice(7, 5)) == [_expected(row) for row in rows[7:12]]


def test_bitmaps_without_a_null() -> None:
    """A slice keeps the bitmap of the whole, and Arrow may not have counted its nulls."""
    rows = [message(tags="a", keys="b", msgId="c", properties={"d": "e"})] * 9
    columns = []
    for field, column in zip(ENCODE_SCHEMA, batch_of(rows).columns, strict=True):
        columns.append(pa.concat_arrays([pa.nulls(3, field.type), column])[3:])
    assert _encode(pa.RecordBatch.from_arrays(columns, schema=ENCODE_SCHEMA)) == [_expected(row) for row in rows]


def test_all_strings_at_the_very_end_of_their_buffers() -> None:
    """Where 32 bytes cannot be read at a time. Under AddressSanitizer a byte too many is an error."""
    for size in range(1, 40):
        text = "t" * size
        rows = [message(topic=text, tags=text, keys=text, msgId=text, body=text.encode(), properties={text: text})]
        columns = []
        for field, column in zip(ENCODE_SCHEMA, batch_of(rows).columns, strict=True):
            if field.type in (pa.string(), pa.binary()):
                buffers = column.buffers()
                exact = pa.py_buffer(np.frombuffer(buffers[2], np.uint8).copy())
                column = pa.Array.from_buffers(field.type, 1, [None, buffers[1], exact])
            columns.append(column)
        batch = pa.RecordBatch.from_arrays(columns, schema=ENCODE_SCHEMA)
        assert _encode(batch) == [_expected(rows[0])]


# ---- copies of real stores


@pytest.fixture(params=[*golden.VERSIONS, "rocketmq-5.3.4-features", "rocketmq-5.3.4-propcrc"])
def real_store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name = str(request.param)
    return golden.unpack(name, tmp_path / name) if name in golden.VERSIONS else golden.DIRECTORY.parent / name


def _row_of(unit: bytes) -> dict[str, Any]:
    """What a DataFrame read from the store has, as the writer hands it on."""
    stored = reference.parse_unit(unit, 0)
    row = reference.decode_unit(unit, 0, decompress=False)
    return message(
        **{name: row[name] for name in ("topic", "queueId", "tags", "keys", "msgId", "properties", "body", "flag")},
        sysFlag=row["sysFlag"],
        bornTimestamp=stored.born_timestamp,
        bornHost=stored.born_host,
        storeTimestamp=stored.store_timestamp,
        storeHost=stored.store_host,
        reconsumeTimes=row["reconsumeTimes"],
        preparedTransactionOffset=row["preparedTransactionOffset"],
    )


def test_copies_of_real_stores(real_store: Path) -> None:
    units = [unit for _, unit in reference.read_units(real_store)]
    assert units
    for unit, copy in zip(units, _encode([_row_of(unit) for unit in units]), strict=True):
        reference.check_unit(copy, 0, len(copy) + reference.BLANK_SIZE)
        before, after = reference.decode_unit(unit, 0), reference.decode_unit(copy, 0)
        before["properties"].pop("__CRC32#", None)
        derived = dict.fromkeys(("queueOffset", "commitLogOffset", "offsetMsgId", "storeSize"))
        assert {**after, **derived} == {**before, **derived}


@pytest.mark.parametrize(("version", "least"), [("5.3.0", 130), ("5.5.0", 305)])
def test_a_copy_is_the_broker_s_log_byte_for_byte(version: str, least: int, tmp_path: Path) -> None:
    """Brokers since 5.2.0 write the property string as we do, until a producer's batch brings a name twice (5.3.0). The
    positions in the log and in the queues are found anew."""
    store = golden.unpack(version, tmp_path / "store")
    units = [unit for _, unit in itertools.takewhile(_has_no_name_twice, reference.read_units(store))]
    assert len(units) >= least
    encoded, _ = Encoder(allow_v2=True).encode(batch_of([_row_of(unit) for unit in units]))
    staged, dispatcher, at, copied = bytearray(encoded), Dispatcher(), 0, 0
    segments = [(int(file.name), file.read_bytes()) for file in reference.segment_files(store)]
    assert len(segments) > 1
    for start, log in segments:
        begin = at
        count, reached, *_ = dispatcher.place(
            memoryview(staged)[at:], position=start, segment_end=start + len(log), store_timestamp=1
        )
        at += reached - start
        assert staged[begin:at] == log[: at - begin]
        copied += count
    assert (copied, at) == (len(units), len(staged))


def _has_no_name_twice(stored: tuple[int, bytes]) -> bool:
    properties = reference.parse_unit(stored[1], stored[0]).properties
    return reference.encode_properties(reference.parse_properties(properties)) == properties


# ---- refused


def _refused(column: str, reason: str, allow_v2: bool = False, **changes: Any) -> None:
    rows = [message(), message(tags="x"), message(**changes), message(queueId=-5)]
    encoder = Encoder(allow_v2=allow_v2)
    with pytest.raises(EncodeError) as caught:
        encoder.encode(batch_of(rows))
    error = caught.value
    assert (error.row, error.column, error.reason) == (2, column, reason)
    assert str(error) == f"row 2, column {column!r}: {reason}"
    units, _ = encoder.encode(batch_of(rows[:2]))  # it can be used on
    assert bytes(units) == b"".join(map(_expected, rows[:2]))


def test_topics() -> None:
    letters = "letters, digits and any of % | _ -"
    _refused("topic", "expected 1 to 127 bytes, found 0", topic="")
    _refused("topic", "expected 1 to 127 bytes, found 128", topic="t" * 128)
    _refused("topic", "expected 1 to 255 bytes, found 256", topic="t" * 256, allow_v2=True)
    _refused("topic", "expected 1 to 255 bytes, found 0", topic="", allow_v2=True)
    good = "%|azAZ09_-"
    for code in range(128):
        topic = f"a{chr(code)}b"
        if chr(code) in good or chr(code).isalnum():
            assert _encode([message(topic=topic)]) == [_expected(message(topic=topic))]
        else:
            _refused("topic", f"expected {letters}, found {topic!r}", topic=topic)
    _refused("topic", f"expected {letters}, found 'Zürich'", topic="Zürich")
    _refused("topic", f"expected {letters}, found '\\\\xff'", topic=b"\xff")
    _refused("topic", f"expected {letters}, found '{'t' * 80}'... (101 bytes)", topic="t" * 100 + ".")
    for size in (1, 126, 127):
        assert _encode([message(topic="t" * size)], allow_v2=False) == [_expected(message(topic="t" * size))]
    for size in (127, 128, 254, 255):
        assert _encode([message(topic="t" * size)]) == [_expected(message(topic="t" * size))]


def test_a_good_topic_does_not_vouch_for_the_next() -> None:
    for other in ("Topic.", "TopicAA.", "T", ""):
        rows = [message(topic="TopicA"), message(topic=other)]
        if other == "T":
            assert _encode(rows) == [_expected(row) for row in rows]
        else:
            with pytest.raises(EncodeError, match="row 1, column 'topic'"):
                Encoder(allow_v2=False).encode(batch_of(rows))


def test_numbers() -> None:
    for queue_id in (-1, -I32, I32 - 1):
        _refused("queueId", f"expected 0 to {I32 - 2}, found {queue_id}", queueId=queue_id)
    for time in (0, -1, -I64):
        _refused("storeTimestamp", f"expected a time after 1970, found {time}", storeTimestamp=time)
    reason = "expected no inner batch (0x80), which a ConsumeQueue cannot hold, found {}"
    for flag in (0x80, 0xC0, 0x81):
        _refused("sysFlag", reason.format(flag), sysFlag=flag)


def test_light_queues() -> None:
    """A broker numbers a message in each light queue; nothing else does, so who asks for that is refused by name. Where
    the property is only left from before, it means nothing."""
    _refused(
        "topic",
        "expected a topic, and not a light queue (LMQ), which has messages of topics, found '%LMQ%a'",
        topic="%LMQ%a",
    )
    expected = (
        "no light queue (LMQ) in INNER_MULTI_DISPATCH, where only a broker numbers messages; leave the property out"
    )
    for names in ("%LMQ%a", "a,%LMQ%a", "%LMQ%$parent$lite,", ",,%LMQ%"):
        properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": "0,0"}
        _refused("properties", f"expected {expected}, found {names!r}", properties=properties)
        for other in ({"topic": "%RETRY%g"}, {"topic": "SCHEDULE_TOPIC_XXXX"}, {"topic": "rmq_sys_a"}, {"sysFlag": 4}):
            row = message(properties=properties, **other)
            assert _encode([row]) == [_expected(row)]
    for name, value in (
        ("INNER_MULTI_DISPATCH", "a,LMQ%b,%LMQ"),
        ("INNER_MULTI_DISPATCH", ""),
        ("INNER_MULTI_DISPATCX", "%LMQ%a"),
    ):
        row = message(properties={name: value})
        assert _encode([row]) == [_expected(row)]


def test_bodies() -> None:
    _refused(
        "body", f"expected {MAX_BODY} bytes at most (maxMessageSize), found {MAX_BODY + 1}", body=bytes(MAX_BODY + 1)
    )
    row = message(body=b"x" * MAX_BODY)
    assert _encode([row]) == [_expected(row)]


@pytest.mark.parametrize("column", ["bornHost", "storeHost"])
def test_hosts(column: str) -> None:
    for size in (*range(8), *range(9, 20), 21, 100):
        reason = f"expected 8 or 20 bytes (address, 4 bytes of port), found {size}"
        change: dict[str, Any] = {column: bytes(size)}
        _refused(column, reason, **change)


@pytest.mark.parametrize("column", ENCODE_SCHEMA.names)
def test_nulls(column: str) -> None:
    null: dict[str, Any] = {column: None}
    if column in ("tags", "keys", "msgId", "properties"):
        assert _encode([message(**null)]) == [_expected(message(**null))]
    elif column == "storeTimestamp":  # Dispatcher.place writes it
        rows = [message(), message(**null), message()]
        assert _encode(rows) == [_expected({**row, column: row[column] or 0}) for row in rows]
        assert _encode(rows[1:2]) == [_expected(message(storeTimestamp=0))]
    else:
        _refused(column, "expected a value, found null", **null)


def test_a_row_that_is_null() -> None:
    rows = batch_of([message(), message(), message()]).to_struct_array()
    nulls = pa.StructArray.from_arrays(rows.flatten(), fields=list(ENCODE_SCHEMA), mask=pa.array([False, False, True]))
    assert _encode(nulls[:2]) == [_expected(message())] * 2
    with pytest.raises(EncodeError, match="row 2, column 'topic': expected a value, found null"):
        _encode(nulls)


def test_properties() -> None:
    name, value = "expected a name without the bytes 0x01 and 0x02", "expected a value without the byte 0x02"
    for bad in ("a\1", "\2", "a\1\2b", "\1"):
        for content in ("x", "", "a\1b"):
            _refused("properties", f"{name}, found {bad!r}", properties={"good": "g", bad: content})
            _refused("properties", f"{name}, found {bad!r}", properties=[("good", ""), (bad, content), ("a", "b")])
        _refused("properties", f"{name}, found {bad!r}", properties=[(bad, None)])
    for bad in ("\2", "a\2", "\2b", "a\1\2"):
        _refused("properties", f"{value}, found {bad!r}", properties={"a": "b", "good": bad})
        for column, property_name in (("tags", "TAGS"), ("keys", "KEYS"), ("msgId", "UNIQ_KEY")):
            change: dict[str, Any] = {column: bad}
            _refused(column, f"{value}, found {bad!r}", **change)
            _refused("properties", f"{value}, found {bad!r}", properties={property_name: bad})
            replaced = message(**{column: "x"}, properties={property_name: bad, "with": "a\1b", "__CRC32#": bad})
            assert _encode([replaced]) == [_expected(replaced)]
    for nameless in ("x", "", None):
        _refused("properties", "expected a name of 1 byte or more, found 0", properties=[("a", "b"), ("", nameless)])
    for row in (
        message(tags="", properties={"TAGS": "removed", "a": "\1"}),
        message(tags="x", properties=[("TAGS", "1"), ("TAGS", "2"), ("a", "b"), ("a", "c")]),
        message(keys="\1", properties={"a": "\1b\1"}),
        message(properties=[("a", None), ("b", "")]),
    ):
        assert _encode([row]) == [_expected(row)]


def test_the_length_of_properties() -> None:
    reason = f"expected {MOST} bytes at most in all properties as they are stored, found {{}}"
    for over in (1, 2, 5000):
        _refused("properties", reason.format(MOST + over), properties={"n": "x" * (MOST + over - 3)})
        _refused("properties", reason.format(MOST + over), tags="x" * (MOST + over - 6))
    many = {f"{i:04d}": "1234" for i in range(MOST // 10 + 1)}
    _refused("properties", reason.format(10 * len(many)), properties=many)
    for row in (message(properties={"n": "x" * (MOST - 3)}), message(keys="k" * (MOST - 6))):
        assert _encode([row]) == [_expected(row)]
        assert reference.parse_unit(_encode([row])[0], 0).properties.endswith(b"\2")


def test_a_delay_that_a_broker_could_not_read() -> None:
    """It would take the unit, and so all behind it, for damaged."""
    topic = reference.SCHEDULE_TOPIC
    for delay in ("", "3", "+3", "-3", "0", "007", str(I32 - 1), str(-I32), "99"):
        row = message(topic=topic, properties={"DELAY": delay})
        assert _encode([row]) == [_expected(row)]
    for delay in ("x", "3 ", " 3", "+", "-", "3.0", str(I32), str(-I32 - 1), "9" * 40, "0x1"):
        reason = f"expected a whole number as DELAY of a message in {topic}, found {delay!r}"
        _refused("properties", reason, topic=topic, properties={"a": "b", "DELAY": delay})
        row = message(topic="TopicA", properties={"DELAY": delay})
        assert _encode([row]) == [_expected(row)]


def test_an_error_travels() -> None:
    """From a worker to the driver."""
    error = pickle.loads(pickle.dumps(EncodeError(7, "body", "why")))
    assert (type(error), error.row, error.column, error.reason) == (EncodeError, 7, "body", "why")
    assert isinstance(error, ValueError)


# ---- arrays that are not what they should be


def test_other_columns() -> None:
    good = batch_of([message()])
    for wrong in (good.drop_columns(["body"]), good.select([]), good.append_column("x", pa.array([1]))):
        with pytest.raises(TypeError, match="expected a struct of the columns topic, queueId, tags"):
            _encode(wrong)
    with pytest.raises(TypeError, match="expected a struct"):
        _encode(pa.array([1, 2]))
    wrong = "column 0: expected 'topic' of Arrow format 'u', found 'preparedTransactionOffset' of format 'l'"
    with pytest.raises(TypeError, match=wrong):
        _encode(good.select(list(reversed(ENCODE_SCHEMA.names))))
    others = {
        "topic": (pa.binary(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())),
        "queueId": (pa.int64(), pa.uint32(), pa.int16(), pa.float32()),
        "body": (pa.string(), pa.large_binary(), pa.binary_view(), pa.binary(3)),
        "storeTimestamp": (pa.timestamp("ms"), pa.int32(), pa.uint64()),
        "properties": (
            pa.map_(pa.string(), pa.binary()),
            pa.map_(pa.binary(), pa.string()),
            pa.map_(pa.string(), pa.int32()),
            pa.list_(pa.string()),
            pa.string(),
        ),
    }
    for name, types in others.items():
        at = ENCODE_SCHEMA.get_field_index(name)
        for type_ in types:
            with pytest.raises(TypeError, match=f"column {at}: expected '{name}' of Arrow format"):
                _encode(good.set_column(at, pa.field(name, type_), pa.nulls(1, type_)))
    with pytest.raises(AttributeError):
        Encoder(allow_v2=False).encode([message()])  # type: ignore[arg-type]


class _Liar:
    """Makes arrays whose offsets are these as soon as it is asked to lie: pyarrow looks at arrays that it makes."""

    def __init__(self, offsets: Sequence[int]) -> None:
        self._offsets = np.array(offsets, np.int32)
        self._there = np.zeros_like(self._offsets)

    def array(self, type_: pa.DataType, *children: pa.Array) -> pa.Array:
        buffers = [None, pa.py_buffer(self._there)] + ([] if children else [pa.py_buffer(bytes(16))])
        return pa.Array.from_buffers(type_, len(self._there) - 1, buffers, children=list(children))

    def lie(self) -> None:
        self._there[:] = self._offsets


@pytest.mark.parametrize("offsets", [[0, 5, 3], [0, -1, 2], [-3, 0, 2], [5, 4, 9], [0, 1, -I32]])
def test_offsets_that_lie(offsets: list[int]) -> None:
    good = batch_of([message(properties={"a": "b"})] * 2)
    at = ENCODE_SCHEMA.get_field_index("properties")
    maps = ENCODE_SCHEMA.field(at)
    texts = pa.array(["x"] * 10)

    def refused(liar: _Liar, at: int, column: pa.Array) -> None:
        batch = good.set_column(at, ENCODE_SCHEMA.field(at), column)
        liar.lie()
        with pytest.raises(ValueError, match="the array does not keep to Arrow's layout"):
            _encode(batch)

    for i, field in enumerate(ENCODE_SCHEMA):
        if field.type in (pa.string(), pa.binary()):
            liar = _Liar(offsets)
            refused(liar, i, liar.array(field.type))
    for first in (True, False):
        liar = _Liar(offsets)
        pair = [liar.array(pa.string()), texts[:2]]
        refused(liar, at, pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), *(pair if first else pair[::-1])))
    entries = pa.StructArray.from_arrays([texts, texts], names=["key", "value"])
    for lies in (offsets, [0, 1, 11]):
        liar = _Liar(lies)
        refused(liar, at, liar.array(maps.type, entries))


# ---- whose memory it is


def test_units_outlive_the_encoder_and_the_next_batch(rng: random.Random) -> None:
    encoder = Encoder(allow_v2=True)
    kept = []
    for _ in range(50):
        rows = [_random_message(rng) for _ in range(rng.randrange(20))]
        kept.append((encoder.encode(batch_of(rows))[0], b"".join(map(_expected, rows))))
        if rng.random() < 0.5:
            kept.pop(rng.randrange(len(kept)))
    del encoder
    for units, expected in kept:
        assert units == expected


def test_the_batch_is_not_changed(rng: random.Random) -> None:
    batch = batch_of([_random_message(rng) for _ in range(100)])
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer]
    before = [buffer.to_pybytes() for buffer in buffers]
    _encode(batch)
    assert [buffer.to_pybytes() for buffer in buffers] == before


def test_one_thread_at_a_time() -> None:
    """A second one gets an error or its own turn, never other bytes."""
    encoder = Encoder(allow_v2=False)
    row = message(body=b"x" * 1000, properties={"a": "b"})
    batch, expected = batch_of([row] * 2000), _expected(row) * 2000
    outcomes: list[bool] = []

    def work() -> None:
        for _ in range(20):
            try:
                outcomes.append(encoder.encode(batch)[0] == expected)
            except RuntimeError as error:
                assert "in use by another thread" in str(error)  # noqa: PT017

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes
    assert all(outcomes)


def test_what_is_derived() -> None:
    (unit,) = _encode([message(body=b"hello", sysFlag=0x30)])
    stored = reference.parse_unit(unit, 0)
    assert (stored.body_crc, stored.sys_flag, stored.queue_offset, stored.physical_offset) == (907060870, 0, 0, 0)
    assert struct.unpack(">i", unit[:4]) == (len(unit),)
