"""The oracle is what RocketMQ's own code wrote, and the store builder is what the oracle says."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from oracle import random_stores, reference, stores
from oracle.reference import Corrupt, check_unit, decode_unit, encode_unit

DATA = Path(__file__).parents[1] / "data"
PLAIN_STORES = ("rocketmq-4.9.4", "rocketmq-5.3.0", "rocketmq-5.3.3")
ALL_STORES = (*PLAIN_STORES, "rocketmq-5.3.4-features", "rocketmq-5.3.4-propcrc")
WITHOUT_TRAILING_SEPARATOR = ("rocketmq-4.9.4",)

Row = Mapping[str, Any]


# ---- stores that RocketMQ wrote


@pytest.mark.parametrize("name", PLAIN_STORES)
def test_plain_store(name: str) -> None:
    rows = reference.read_store(DATA / name)
    assert len(rows) == 60
    for i, row in enumerate(rows):
        assert tuple(row) == reference.COLUMNS
        assert (row["topic"], row["queueId"], row["queueOffset"]) == ("TopicA", i % 2, i // 2)
        assert row["body"] == bytes([ord("a") + i % 26]) * (100 + i)
        assert row["keys"] == f"k{i} kk{i % 3}"
        assert row["tags"] == ("TagA" if i % 2 == 0 else None)
        assert len(row["msgId"]) == 56
        tag = {"TAGS": "TagA"} if i % 2 == 0 else {}
        assert row["properties"] == {"KEYS": row["keys"], "UNIQ_KEY": row["msgId"], "i": str(i), **tag}
        assert row["offsetMsgId"] == f"7F00000100002A9F{row['commitLogOffset']:016X}"
        assert (row["bornHost"], row["storeHost"]) == ("10.1.2.3:5678", "127.0.0.1:10911")
        assert (row["flag"], row["sysFlag"], row["reconsumeTimes"], row["preparedTransactionOffset"]) == (0, 0, 0, 0)
        assert row["bodyCRC"] == zlib.crc32(row["body"]) & 0x7FFFFFFF
    times = [row["storeTimestamp"] for row in rows]
    assert times == sorted(times)
    # The first bytes of the checkpoint hold the store times of the last message flushed and the last one queued.
    assert times[-1] == struct.unpack_from(">q", (DATA / name / "checkpoint").read_bytes(), 8)[0] * 1000


@pytest.mark.parametrize("name", PLAIN_STORES)
def test_plain_store_has_two_blanks(name: str) -> None:
    segments = reference.segment_files(DATA / name)
    assert [int(file.name) for file in segments] == [0, 8192, 16384]
    ends = []
    for file in segments:
        position, unit = list(reference.read_segment(file.read_bytes(), int(file.name), last=True))[-1]
        end = position + len(unit) - int(file.name)
        ends.append(reference.is_blank(file.read_bytes()[end : end + 8], 8192 - end))
    assert ends == [True, True, False]


@pytest.mark.parametrize(
    ("name", "size", "end"), [("rocketmq-4.9.4", 288, b"TagA"), ("rocketmq-5.3.3", 289, b"TagA\x02")]
)
def test_first_unit_is_the_documented_one(name: str, size: int, end: bytes) -> None:
    position, unit = next(reference.read_units(DATA / name))
    row = decode_unit(unit, position)
    assert (position, len(unit), row["storeSize"], row["bodyCRC"]) == (0, size, size, 795900516)
    assert row["body"] == b"a" * 100
    assert list(row["properties"]) == ["KEYS", "i", "UNIQ_KEY", "TAGS"]
    assert unit.endswith(end)


def test_feature_store() -> None:
    rows = {row["properties"]["i"]: row for row in reference.read_store(DATA / "rocketmq-5.3.4-features")}
    assert list(rows) == [str(i) for i in range(1, 12)]
    assert [row["sysFlag"] for row in rows.values()] == [0x10, 0x20, 0, 0x4, 0xC, 0x8, 0, 0, 0, 0, 0]
    assert [row["queueOffset"] for row in rows.values()] == [0, 1, 0, 0, 0, 2, 3, 4, 5, 6, 0]
    assert [row["body"] for row in rows.values()] == [b"" if c == "i" else c.encode() * 10 for c in "bcdefghijkl"]

    assert rows["1"]["bornHost"] == "[2001:db8::1]:1"
    assert rows["1"]["storeHost"] == "127.0.0.1:10911"
    assert rows["2"]["bornHost"] == "10.1.2.3:5678"
    assert rows["2"]["storeHost"] == "[2001:db8::2]:2"
    assert rows["2"]["offsetMsgId"] == "20010DB8000000000000000000000002" + "00000002" + "00000000000000D0"
    assert rows["3"]["topic"] == "t" * 200  # magic V2
    assert rows["4"]["preparedTransactionOffset"] == 777
    assert rows["7"]["keys"] == " a  b "
    assert rows["7"]["offsetMsgId"] == "7F00000100002A9F0000000000000574"
    assert (rows["8"]["body"], rows["8"]["bodyCRC"], rows["8"]["tags"]) == (b"", 0, None)
    assert rows["9"]["tags"] == "\U0001f600中"
    assert set(rows["10"]["properties"]) == {"KEYS", "i", "UNIQ_KEY", "TAGS"}  # x with an empty value is on disk only
    assert (rows["11"]["topic"], rows["11"]["queueId"]) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert rows["11"]["properties"]["DELAY"] == "3"
    assert rows["11"]["storeTimestamp"] == 1795211722192 * 1000

    magics = {unit[4:8].hex() for _, unit in reference.read_units(DATA / "rocketmq-5.3.4-features")}
    assert magics == {"daa320a7", "daa320ab"}
    stored = dict(reference.read_units(DATA / "rocketmq-5.3.4-features"))[rows["10"]["commitLogOffset"]]
    assert b"\x02x\x01\x02" in stored


def test_property_crc_store() -> None:
    units = list(reference.read_units(DATA / "rocketmq-5.3.4-propcrc"))
    assert [decode_unit(unit, position)["queueOffset"] for position, unit in units] == [0, 0, 1, 1]
    for position, unit in units:
        digits = decode_unit(unit, position)["properties"]["__CRC32#"]
        assert int(digits[::-1]) == zlib.crc32(unit[:-20]) & 0x7FFFFFFF
    assert decode_unit(units[0][1], 0)["properties"]["__CRC32#"] == "1511231870"


@pytest.mark.parametrize("name", ALL_STORES)
def test_queues_of_the_real_stores_agree(name: str) -> None:
    _assert_queues_agree(DATA / name, reference.read_store(DATA / name))


def test_delayed_message_is_queued_with_its_time_of_delivery() -> None:
    units = {topic: unit for topic, _, _, unit in reference.read_queues(DATA / "rocketmq-5.3.4-features")}
    assert units["SCHEDULE_TOPIC_XXXX"].tags_code == 1795211732192
    assert reference.tags_code("SCHEDULE_TOPIC_XXXX", {"DELAY": "3"}, 1795211722192) == 1795211732192
    assert reference.tags_code("SCHEDULE_TOPIC_XXXX", {"DELAY": "99"}, 0) == 7_200_000
    assert reference.tags_code("SCHEDULE_TOPIC_XXXX", {"DELAY": "0", "TAGS": "TagA"}, 0) == 2598919
    assert reference.tags_code("TopicA", {"DELAY": "3", "TAGS": "TagA"}, 0) == 2598919


@pytest.mark.parametrize("name", PLAIN_STORES)
def test_hash_agrees_with_the_real_index(name: str) -> None:
    # | header of 40, its last 4 indexCount | 100 slots of 4 | items of 20: 4 keyHash, 8 position, ... |   no item 0
    indexed = set()
    for file in (DATA / name / "index").iterdir():
        data = file.read_bytes()
        for item in range(1, struct.unpack_from(">i", data, 36)[0]):
            indexed.add(struct.unpack_from(">iq", data, 40 + 4 * 100 + 20 * item))
    expected = set()
    for row in reference.read_store(DATA / name):
        for key in (row["msgId"], *row["keys"].split(" ")):
            expected.add((abs(reference.java_hash(f"TopicA#{key}")), row["commitLogOffset"]))
    assert indexed == expected


@pytest.mark.parametrize("name", ALL_STORES)
def test_encoding_a_row_gives_the_real_unit(name: str) -> None:
    for position, unit in reference.read_units(DATA / name):
        row = decode_unit(unit, position)
        properties = {name: value for name, value in row["properties"].items() if name != "__CRC32#"}
        if row["keys"] == "emptyval":  # the parser drops a property that is stored
            properties = {"KEYS": "emptyval", "x": "", **properties}
        encoded = encode_unit(
            topic=row["topic"],
            body=row["body"],
            properties=properties,
            queue_id=row["queueId"],
            queue_offset=row["queueOffset"],
            physical_offset=row["commitLogOffset"],
            flag=row["flag"],
            sys_flag=row["sysFlag"],
            born_timestamp=row["bornTimestamp"] // 1000,
            born_host=row["bornHost"],
            store_timestamp=row["storeTimestamp"] // 1000,
            store_host=row["storeHost"],
            reconsume_times=row["reconsumeTimes"],
            prepared_transaction_offset=row["preparedTransactionOffset"],
            trailing_separator=name not in WITHOUT_TRAILING_SEPARATOR,
            property_crc="__CRC32#" in row["properties"],
        )
        assert encoded == unit


def _assert_queues_agree(
    root: Path, rows: list[dict[str, Any]], commitlogs: Sequence[str | Path] | None = None
) -> None:
    """Every message of type NOT or COMMIT has its unit, and there is no other unit."""
    expected = {}
    for row, (position, data) in zip(rows, reference.read_units(root, commitlogs), strict=True):
        if row["sysFlag"] & 0xC in (0, 0x8):
            place = (row["topic"], row["queueId"], row["queueOffset"])
            assert place not in expected
            properties = reference.java_properties(reference.parse_unit(data, position).properties)
            code = reference.tags_code(row["topic"], properties, row["storeTimestamp"] // 1000)
            expected[place] = (row["commitLogOffset"], row["storeSize"], code)
    assert {(topic, queue, offset): unit for topic, queue, offset, unit in reference.read_queues(root)} == expected


# ---- small things, one by one


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TagA", 2598919),
        ("TopicA#k0", -1903240650),
        ("", 0),
        ("polygenelubricants", -2147483648),
        ("中文", 646394),
        ("\U0001f600", 1772899),
    ],
)
def test_java_hash(text: str, value: int) -> None:
    assert reference.java_hash(text) == value


def test_body_crc() -> None:
    assert reference.body_crc(b"hello") == 907060870
    assert reference.body_crc(b"a" * 100) == 795900516
    assert reference.body_crc(b"") == 0


@pytest.mark.parametrize(
    ("stored", "parsed"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01b\x02\x02\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01\x02c\x01d", {"c": "d"}),
        (b"\x01b\x02c\x01d", {"c": "d"}),
        (b"\x01b\x01c\x02", {}),
        (b"a\x02c\x01d", {"c": "d"}),
        (b"a\x01\x01", {"a": "\x01"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x011\x02b\x012\x02a\x013\x02", {"a": "3", "b": "2"}),
        (b"a\x011\x02a\x01\x02", {"a": "1"}),
        ("ä\x01中\x02".encode(), {"ä": "中"}),
        (b"\xff\x01\xe4\xb8\x02", {"\ufffd": "\ufffd"}),
        (b"\xc3\x01x\x02\xfe\x01y", {"\ufffd": "y"}),
        (b"a\x01\0", {"a": "\0"}),
    ],
)
def test_parse_properties(stored: bytes, parsed: dict[str, str]) -> None:
    assert reference.parse_properties(stored) == parsed


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (0, 0),
        (-1, -1000),
        (9223372036854775, 9223372036854775000),
        (9223372036854776, None),
        (-9223372036854775, -9223372036854775000),
        (-9223372036854776, None),
        (-(1 << 63), None),
    ],
)
def test_microseconds(milliseconds: int, expected: int | None) -> None:
    assert reference.microseconds(milliseconds) == expected
    assert decode_unit(encode_unit(born_timestamp=milliseconds), 0)["bornTimestamp"] == expected


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("127.0.0.1:10911", "7f00000100002a9f"),
        ("10.1.2.3:-1", "0a010203ffffffff"),
        ("[::1]:65536", "00000000000000000000000000000001" + "00010000"),
        ("[2001:db8::1:0:0:1]:0", "20010db8000000000001000000000001" + "00000000"),
    ],
)
def test_hosts(text: str, stored: str) -> None:
    assert reference.host_bytes(text).hex() == stored
    assert reference.host_text(bytes.fromhex(stored)) == text


def test_queue_unit() -> None:
    data = bytes.fromhex("0000000000000121" + "00000118" + "ffffffff80000000")
    assert reference.decode_queue_unit(data) == (0x121, 0x118, -2147483648)
    assert reference.encode_queue_unit(0x121, 0x118, -2147483648) == data


# ---- bodies

PLAIN = b"hello hello hello " * 50
ZLIB = zlib.compress(PLAIN)


def _lz4(body: bytes) -> bytes:
    return reference.compress_body(body, 0x101)


def _zstd(body: bytes) -> bytes:
    return reference.compress_body(body, 0x201)


@pytest.mark.parametrize(
    ("stored", "sys_flag", "body"),
    [
        (ZLIB, 0x0, ZLIB),
        (ZLIB, 0x700, ZLIB),  # the type says nothing without bit 0
        (ZLIB, 0x1, PLAIN),
        (ZLIB, 0x301, PLAIN),
        (ZLIB + b"trailing", 0x301, PLAIN),
        (_lz4(PLAIN), 0x101, PLAIN),
        (_lz4(PLAIN) + _lz4(b"more"), 0x101, PLAIN + b"more"),
        (_zstd(PLAIN), 0x201, PLAIN),
        (_zstd(PLAIN) + _zstd(b"more"), 0x201, PLAIN + b"more"),
        (zlib.compress(b""), 0x1, b""),
        (_lz4(b""), 0x101, b""),
        (_zstd(b""), 0x201, b""),
        (b"", 0x1, b""),
        (b"", 0x501, b""),
    ],
)
def test_compressed_body(stored: bytes, sys_flag: int, body: bytes) -> None:
    unit = encode_unit(body=stored, sys_flag=sys_flag)
    assert decode_unit(unit, 0)["body"] == body
    assert decode_unit(unit, 0, decompress=False)["body"] == stored
    assert decode_unit(unit, 0)["sysFlag"] == sys_flag


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_compressed_body_that_is_none(number: int) -> None:
    stream = reference.compress_body(PLAIN, number << 8)
    for stored in (b"plain text", stream[:-1], stream[:5], bytes([stream[0] ^ 1]) + stream[1:]):
        with pytest.raises(Corrupt, match="at 17"):
            decode_unit(encode_unit(body=stored, sys_flag=1 | number << 8, physical_offset=17), 17)


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_undefined_compression_type(number: int) -> None:
    unit = encode_unit(body=ZLIB, sys_flag=1 | number << 8)
    with pytest.raises(Corrupt, match=f"compression type {number}"):
        decode_unit(unit, 0)
    assert decode_unit(unit, 0, decompress=False)["body"] == ZLIB


def test_compressed_as_java_reads_and_writes_it() -> None:
    assert _lz4(PLAIN)[:4].hex() == "04224d18"
    assert _lz4(PLAIN)[4] & 0x20  # independent blocks: a Java consumer reads no others
    assert _zstd(PLAIN)[:4].hex() == "28b52ffd"
    assert _zstd(PLAIN)[4] & 0xE0 == 0  # no content size in the header, as from a stream
    assert reference.compress_body(PLAIN, 0x301)[0] == 0x78


# ---- checking units


@pytest.mark.parametrize("sys_flag", [0x0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize("version", [1, 2])
def test_sizes(version: int, sys_flag: int) -> None:
    empty = encode_unit(topic="", version=version, sys_flag=sys_flag)
    assert len(empty) == 88 + 2 + version + 12 * sys_flag.bit_count()
    unit = encode_unit(topic="T" * 10, body=b"b" * 20, properties=b"p" * 30, version=version, sys_flag=sys_flag)
    assert len(unit) == len(empty) + 60
    assert check_unit(unit, 0, len(unit) + 8) == len(unit)


def test_version_follows_the_length_of_the_topic() -> None:
    assert encode_unit(topic="T" * 127)[4:8].hex() == "daa320a7"
    assert encode_unit(topic="T" * 128)[4:8].hex() == "daa320ab"


def test_host_must_go_with_its_bit() -> None:
    with pytest.raises(ValueError, match="host bits"):
        encode_unit(born_host="[::1]:1")
    with pytest.raises(ValueError, match="host bits"):
        encode_unit(store_host="127.0.0.1:1", sys_flag=0x20)


SOUND: dict[str, Any] = {"topic": "TopicA", "body": b"body", "properties": {"a": "b"}, "physical_offset": 1000}
SOUND_SIZE = len(encode_unit(**SOUND))


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"total_size": -1}, "totalSize is -1"),
        ({"total_size": 0}, "totalSize is 0"),
        ({"total_size": 7}, "magic runs past the end"),
        ({"total_size": 8}, "bodyCRC runs past the end"),
        ({"total_size": SOUND_SIZE - 1}, "properties runs past the end"),
        ({"total_size": SOUND_SIZE + 1}, "the parts add up to"),
        ({"total_size": 1993}, "no room for the blank"),
        ({"total_size": 2001}, "the segment has 2000 left"),
        ({"total_size": (1 << 31) - 1}, "the segment has 2000 left"),
        ({"magic": 0}, "magic is 00000000"),
        ({"magic": reference.MAGIC_BLANK}, "magic is CBD43194"),
        ({"magic": reference.MAGIC_V2}, "topic runs past the end"),
        ({"physical_offset": 0}, "physicalOffset is 0"),
        ({"physical_offset": 1000 + (1 << 32)}, "physicalOffset is"),
        ({"body_crc": 0}, "bodyCRC is 0"),
        ({"body_crc": reference.body_crc(b"body") - (1 << 31)}, "bodyCRC is -"),
        ({"body_length": -1}, "body length is negative"),
        ({"body_length": 3}, "topic runs past the end"),
        ({"body_length": (1 << 31) - 1}, "body runs past the end"),
        ({"topic_length": -1}, "topic length is negative"),
        ({"topic_length": 5}, "properties runs past the end"),
        ({"topic_length": 127}, "topic runs past the end"),
        ({"properties_length": -1}, "properties length is negative"),
        ({"properties_length": 0}, "the parts add up to"),
        ({"properties_length": 32767}, "properties runs past the end"),
        ({"born_host": bytes(20)}, "the parts add up to"),  # 12 bytes more than the flag says
        (
            {"sys_flag": 0x30, "born_host": bytes(8), "store_host": bytes(8)},
            "preparedTransactionOffset runs past the end",
        ),
    ],
)
def test_lies(lie: dict[str, Any], reason: str) -> None:
    data = encode_unit(**{**SOUND, **lie}).ljust(2000, b"\0")
    with pytest.raises(Corrupt, match=reason) as caught:
        check_unit(data, 1000, 2000)
    assert caught.value.position == 1000


def test_sound_unit() -> None:
    unit = encode_unit(**SOUND)
    assert check_unit(unit.ljust(2000, b"\0"), 1000, 2000) == SOUND_SIZE
    assert check_unit(unit, 1000, SOUND_SIZE + 8) == SOUND_SIZE
    with pytest.raises(Corrupt, match="no room for the blank"):
        check_unit(unit, 1000, SOUND_SIZE + 7)
    with pytest.raises(Corrupt, match="physicalOffset is 1000"):
        check_unit(unit, 999, 2000)
    wrong_crc = encode_unit(**SOUND, body_crc=1)
    assert check_unit(wrong_crc, 1000, 2000, verify_crc=False) == SOUND_SIZE
    # The CRC of an empty body is not looked at.
    empty = encode_unit(**{**SOUND, "body": b"", "body_crc": 99})
    assert check_unit(empty, 1000, 2000) == len(empty)


def test_every_cut_is_noticed() -> None:
    unit = encode_unit(**SOUND)
    for size in range(len(unit)):
        with pytest.raises(Corrupt):
            check_unit(unit[:size], 1000, 2000)


def test_every_flipped_bit_is_noticed_or_in_an_unprotected_field() -> None:
    unit = encode_unit(**SOUND)
    assert len(unit) == 105
    unprotected = {at for field in reference.UNPROTECTED.values() for at in field}
    for bit in range(len(unit) * 8):
        flipped = bytearray(unit)
        flipped[bit // 8] ^= 1 << bit % 8
        host_bit = bit // 8 == 39 and bit % 8 in (4, 5)
        if bit // 8 in unprotected and not host_bit:
            assert check_unit(bytes(flipped), 1000, 2000) == len(unit)
        else:
            with pytest.raises(Corrupt):
                check_unit(bytes(flipped), 1000, 2000)


# ---- segments


def _segment(*units: bytes, size: int = 1000) -> bytes:
    return b"".join(units).ljust(size, b"\0")


def test_segment_ends_with_its_blank_whatever_follows() -> None:
    unit = encode_unit(physical_offset=5000)
    left = 1000 - len(unit)
    stale = encode_unit(physical_offset=5000 + len(unit) + 8)
    data = _segment(unit, reference.encode_blank(left), stale)
    assert list(reference.read_segment(data, 5000, last=False)) == [(5000, unit)]
    assert list(reference.read_segment(data, 5000, last=True)) == [(5000, unit)]


@pytest.mark.parametrize("wrong", [-1, 1, 8])
def test_blank_of_another_size_is_damage(wrong: int) -> None:
    unit = encode_unit()
    data = _segment(unit, reference.encode_blank(1000 - len(unit) + wrong))
    assert list(reference.read_segment(data, 0, last=True)) == [(0, unit)]
    with pytest.raises(Corrupt, match=f"at {len(unit)}"):
        list(reference.read_segment(data, 0, last=False))


def test_end_of_the_last_segment() -> None:
    unit = encode_unit()
    for rest in (
        b"",
        b"\xff" * 50,
        encode_unit(physical_offset=1),
        encode_unit(physical_offset=len(unit), body_crc=5, body=b"x"),
    ):
        data = _segment(unit, rest)
        assert list(reference.read_segment(data, 0, last=True)) == [(0, unit)]
        with pytest.raises(Corrupt, match=f"at {len(unit)}"):
            list(reference.read_segment(data, 0, last=False))


# ---- the builder


def _builder(root: Path, count: int = 100, **arguments: Any) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, **arguments)
    for i in range(count):
        _append(store, i)
    return store


def _append(store: stores.StoreBuilder, i: int) -> int:
    tags = "TagA" if i % 2 else None
    return store.append(
        topic=f"Topic{i % 3}", body=b"x" * (i * 7 % 300), queue_id=i % 2, tags=tags, keys=f"k{i}", msg_id=f"U{i}"
    )


def _assert_holds(store: stores.StoreBuilder, rows: list[dict[str, Any]]) -> None:
    assert [
        (
            row["commitLogOffset"],
            row["storeSize"],
            row["topic"],
            row["queueId"],
            row["queueOffset"],
            row["storeTimestamp"],
        )
        for row in rows
    ] == [(m.position, m.size, m.topic, m.queue_id, m.queue_offset, m.store_timestamp * 1000) for m in store.messages]


def test_builder(tmp_path: Path) -> None:
    store = _builder(tmp_path)
    store.close()
    rows = reference.read_store(tmp_path)
    assert len(rows) == 100
    _assert_holds(store, rows)
    _assert_queues_agree(tmp_path, rows)
    assert [(row["msgId"], row["keys"]) for row in rows] == [(f"U{i}", f"k{i}") for i in range(100)]
    assert [row["tags"] for row in rows] == [None, "TagA"] * 50
    assert [row["body"] for row in rows] == [b"x" * (i * 7 % 300) for i in range(100)]

    segments = sorted((tmp_path / "commitlog").iterdir())
    assert [file.name for file in segments] == [f"{8192 * n:020d}" for n in range(len(segments))]
    assert len(segments) == 1 + rows[-1]["commitLogOffset"] // 8192 > 2
    assert {file.stat().st_size for file in segments} == {8192}
    queue_files = sorted((tmp_path / "consumequeue" / "Topic0" / "0").iterdir())
    assert [(file.name, file.stat().st_size) for file in queue_files] == [("0" * 20, 200), (f"{200:020d}", 200)]
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert not (tmp_path / "abort").exists()
    checkpoint = (tmp_path / "checkpoint").read_bytes()
    last = rows[-1]["storeTimestamp"] // 1000
    assert (len(checkpoint), struct.unpack_from(">qqq", checkpoint)) == (4096, (last, last, 0))


def test_blank_rule(tmp_path: Path) -> None:
    """8 bytes left are enough for a blank, 7 are not: the unit goes to the next segment."""
    for name, left in (("fits", 8), ("does not", 7)):
        store = stores.StoreBuilder(tmp_path / name, segment_size=1024)
        overhead = len(encode_unit())
        first = store.append(body=b"x" * 200)
        store.append(body=b"x" * (1024 - store.end - overhead - left))
        store.append()
        store.close()
        positions = [row["commitLogOffset"] for row in reference.read_store(tmp_path / name)]
        assert positions == ([first, 200 + overhead, 1024] if left == 8 else [first, 1024, store.messages[2].position])
        blank = 1016 if left == 8 else 200 + overhead
        data = (tmp_path / name / "commitlog" / ("0" * 20)).read_bytes()
        assert data[blank : blank + 8] == struct.pack(">iI", 1024 - blank, 0xCBD43194)


def test_crashed_store(tmp_path: Path) -> None:
    store = _builder(tmp_path)
    store.close(clean=False)
    assert (tmp_path / "abort").exists()
    spare = sorted((tmp_path / "commitlog").iterdir())[-1]
    assert spare.read_bytes() == bytes(8192)
    assert int(spare.name) > store.end
    _assert_holds(store, reference.read_store(tmp_path))
    store.close(clean=False, abort=False)
    assert not (tmp_path / "abort").exists()
    assert spare.exists()


def test_running_store(tmp_path: Path) -> None:
    store = _builder(tmp_path, 20)
    assert reference.read_store(tmp_path) == []
    store.flush()
    _assert_holds(store, reference.read_store(tmp_path))
    assert (tmp_path / "abort").exists()
    assert not (tmp_path / "checkpoint").exists()
    store.close()
    for i in range(80):
        _append(store, i)
    store.close()
    rows = reference.read_store(tmp_path)
    assert len(rows) == 100
    _assert_holds(store, rows)
    _assert_queues_agree(tmp_path, rows)


@pytest.mark.parametrize("clean", [True, False])
def test_empty_store(tmp_path: Path, clean: bool) -> None:
    stores.StoreBuilder(tmp_path).close(clean)
    assert reference.read_store(tmp_path) == []


def test_several_directories_and_a_later_start(tmp_path: Path) -> None:
    directories = [tmp_path / "disk-a", tmp_path / "disk-b", tmp_path / "disk-c"]
    store = _builder(tmp_path / "store", commitlogs=list(reversed(directories)), start=8192 * 10)
    store.close(clean=False)
    rows = reference.read_store(tmp_path / "store", commitlogs=directories)
    _assert_holds(store, rows)
    _assert_queues_agree(tmp_path / "store", rows, directories)
    assert rows[0]["commitLogOffset"] == 8192 * 10
    names = {file.name: directories.index(file.parent) for file in reference.segment_files("", directories)}
    assert len(names) > 3
    assert all(int(name) // 8192 % 3 == directory for name, directory in names.items())
    assert not (tmp_path / "store" / "commitlog").exists()


def test_without_queues(tmp_path: Path) -> None:
    store = _builder(tmp_path / "never", consume_queue=False)
    store.close()
    assert not (tmp_path / "never" / "consumequeue").exists()
    assert len(reference.read_store(tmp_path / "never")) == 100
    dropped = _builder(tmp_path / "dropped")
    dropped.close()
    dropped.drop_queues()
    assert list(reference.read_queues(tmp_path / "dropped")) == []


def test_queue_that_does_not_start_at_zero(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, start=8192)
    store.start_queue("TopicA", 0, 13)
    for _ in range(10):
        store.append()
    store.close()
    rows = reference.read_store(tmp_path)
    assert [row["queueOffset"] for row in rows] == list(range(13, 23))
    _assert_queues_agree(tmp_path, rows)
    files = sorted((tmp_path / "consumequeue" / "TopicA" / "0").iterdir())
    assert [int(file.name) for file in files] == [200, 400]
    assert files[0].read_bytes()[:60] == bytes.fromhex("0000000000000000" + "7fffffff" + "0000000000000000") * 3


@pytest.mark.parametrize("count", [1, 3, 50])
def test_forgotten_messages_leave_stale_bytes(tmp_path: Path, count: int) -> None:
    store = _builder(tmp_path)
    gone = store.messages[-count:]
    cut = store.forget_last(count)
    assert (cut, store.end, len(store.messages)) == (gone[0].position, gone[0].position, 100 - count)
    kept = list(store.messages)
    store.append("Topic0", body=b"new" * 7)
    store.close()
    rows = reference.read_store(tmp_path)
    _assert_holds(store, rows)
    assert [message.position for message in kept] == [row["commitLogOffset"] for row in rows[:-1]]
    assert rows[-1]["body"] == b"new" * 7

    units = {(topic, queue, offset): unit for topic, queue, offset, unit in reference.read_queues(tmp_path)}
    for message in store.messages:
        assert units.pop((message.topic, message.queue_id, message.queue_offset))[:2] == (
            message.position,
            message.size,
        )
    assert all(unit.physical_offset >= cut for unit in units.values())  # the stale ones
    if count == 3:
        assert sorted(unit.physical_offset for unit in units.values()) == [message.position for message in gone]
        tail = store.segment(store.end).read_bytes()[store.end % 8192 :]
        assert tail.strip(b"\0") != b""
    # Queue offsets are dense again.
    for i in range(100):
        _append(store, i * 3)
    store.close()
    rows = reference.read_store(tmp_path)
    _assert_holds(store, rows)
    offsets = [row["queueOffset"] for row in rows if (row["topic"], row["queueId"]) == ("Topic0", 0)]
    assert offsets == list(range(len(offsets)))


def test_expired_segments(tmp_path: Path) -> None:
    store = _builder(tmp_path)
    store.expire(1)
    store.close()
    rows = reference.read_store(tmp_path)
    _assert_holds(store, rows)
    assert 0 < len(rows) < 100
    assert rows[0]["commitLogOffset"] == 8192
    assert any(unit.physical_offset < 8192 for *_, unit in reference.read_queues(tmp_path))


def test_damage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    _builder(tmp_path).close()
    path = tmp_path / "commitlog" / f"{8192:020d}"
    sound = path.read_bytes()
    for at in (0, 4, 8, 28):
        damaged = bytearray(sound)
        damaged[at] ^= 0x40
        path.write_bytes(damaged)
        with pytest.raises(Corrupt, match="at 8192"):
            reference.read_store(tmp_path)
    path.unlink()
    with pytest.raises(Corrupt, match="segment before ends at 8192"):
        reference.read_store(tmp_path)


def test_lies_reach_the_store(tmp_path: Path) -> None:
    store = _builder(tmp_path, 5)
    lie = store.append(body=b"body", body_crc=1)
    store.append()
    store.close()
    rows = reference.read_store(tmp_path)
    assert len(rows) == 5
    assert rows[-1]["commitLogOffset"] + rows[-1]["storeSize"] == lie


# ---- random stores


@pytest.mark.parametrize("seed", range(5))
def test_random_store(tmp_path: Path, seed: int) -> None:
    store = random_stores.random_store(tmp_path, random.Random(seed), messages=300, clean=bool(seed % 2))
    rows = reference.read_store(tmp_path)
    assert len(rows) == 300
    _assert_holds(store, rows)
    _assert_queues_agree(tmp_path, rows)


def test_random_store_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        random_stores.random_store(tmp_path / name, random.Random(7))
    one, two = (
        {file.relative_to(root): file for file in root.rglob("*")} for root in (tmp_path / "one", tmp_path / "two")
    )
    assert one.keys() == two.keys()
    assert len(one) > 10
    assert all(file.is_dir() or file.read_bytes() == two[name].read_bytes() for name, file in one.items())


def test_random_store_holds_everything(tmp_path: Path) -> None:
    random_stores.random_store(tmp_path, random.Random(1), messages=1000)
    units = [reference.parse_unit(unit, position) for position, unit in reference.read_units(tmp_path)]
    rows = reference.read_store(tmp_path)
    assert {unit.magic for unit in units} == {reference.MAGIC_V1, reference.MAGIC_V2}
    assert {unit.sys_flag & 0x30 for unit in units} == {0, 0x10, 0x20, 0x30}
    assert {unit.sys_flag & 0xC for unit in units} == {0, 0x4, 0x8, 0xC}
    assert {unit.sys_flag & 0x701 for unit in units} == {0, 0x1, 0x101, 0x201, 0x301, 0x300, 0x700}
    assert any(unit.properties == b"" for unit in units)
    assert any(unit.properties and not unit.properties.endswith(b"\x02") for unit in units)
    assert any(b"\x01\x02" in unit.properties for unit in units)
    assert any(b"__CRC32#" in unit.properties for unit in units)
    assert any("\x01" in value for row in rows for value in row["properties"].values())
    assert any("\ufffd" in text for row in rows for pair in row["properties"].items() for text in pair)
    assert any(not unit.properties.isascii() for unit in units)
    assert any(_has_duplicate_name(unit.properties) for unit in units)
    assert any(row["body"] == b"" for row in rows)
    assert any(row["bornTimestamp"] is None for row in rows)
    assert {row[name] is None for name in ("tags", "keys", "msgId") for row in rows} == {True, False}


def _has_duplicate_name(properties: bytes) -> bool:
    names = [name for name, _, value in (segment.partition(b"\x01") for segment in properties.split(b"\x02")) if value]
    return len(names) > len(set(names))
