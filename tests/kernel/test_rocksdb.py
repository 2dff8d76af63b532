"""RocksDB in the kernel: checksums, logs, blocks and batches of any bytes; the newest entries, as a dict has them."""

from __future__ import annotations

import random
import struct

import numpy as np
import pyarrow as pa
import pytest

from native_io import (
    CRC32C_CHECKSUM,
    NOT_IN_ORDER,
    UNKNOWN_RECORD,
    XXH3_CHECKSUM,
    Batches,
    NotSoundError,
    Run,
    Tombstones,
    check_blocks,
    crc32c,
    expand_lz4,
    lz4_size,
    masked_crc32c,
    read_blocks,
    read_index,
    read_pairs,
    table_checksum,
    take_newest,
    take_records,
    xxh3,
)

Entry = tuple[bytes, int, int, bytes]  # key, sequence number, type, value


def varint(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def block(entries: list[tuple[bytes, bytes]], restart: int = 16) -> bytes:
    """A block of a table, with shared prefixes and restart points."""
    data, restarts, before = b"", [], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % restart:
            while shared < min(len(before), len(key)) and before[shared] == key[shared]:
                shared += 1
        else:
            restarts.append(len(data))
        data += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return data + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def run_of(entries: list[Entry]) -> Run:
    ordered = sorted(entries, key=lambda entry: (entry[0], -entry[1]))
    pairs = [(key + struct.pack("<Q", number << 8 | kind), value) for key, number, kind, value in ordered]
    data = block(pairs)
    return read_blocks(data, np.array([0], np.int64), np.array([len(data)], np.int64))


def piece(kind: int, record: bytes, number: int | None = None) -> bytes:
    """A piece of a log; with a number, of one that is used again."""
    content = bytes([kind]) + (b"" if number is None else struct.pack("<I", number)) + record
    return struct.pack("<IH", masked_crc32c(content), len(record)) + content


def log_of(records: list[bytes]) -> bytes:
    """A log in one block."""
    return b"".join(piece(1, record) for record in records)


def test_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the catalogue of CRCs
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


def test_crc32c_is_the_same_without_the_instruction(rng: random.Random) -> None:
    data = rng.randbytes(400)
    for start in range(9):
        for stop in range(start, 400, 7):
            assert crc32c(data[start:stop]) == crc32c(data[start:stop], portable=True)


def test_xxh3() -> None:
    """Of xxHash 0.8: (7 i) mod 251 as bytes, as many as the number before."""
    known = {
        0: 0x2D06800538D394C2,
        1: 0xC44BDFF4074EECDB,
        3: 0xC3489259E968AD9E,
        4: 0xD3D60C1519014E89,
        8: 0xB88DEE77F6BF6980,
        9: 0x03688DCAD730D826,
        16: 0x9DA23836ADF2BE1E,
        17: 0xF34C3C9CF5A112D1,
        64: 0xFAECD52EFFBB854F,
        65: 0xFD2B8A4F15D954D0,
        96: 0x8F8A0C940D32E958,
        97: 0x92B3A831FEBF71AC,
        128: 0x4C659B745F435148,
        129: 0xB85222B83902B6E5,
        143: 0xDBBF853F67ACEB7E,
        240: 0xD6DFBF67B0675B54,
        241: 0xC614C8C3575348C1,
        1024: 0xF22EF3DC84FF47EA,
        1025: 0x43F869A83769A435,
        1088: 0x40D71F037CD0C530,
        2049: 0x4583128AFA3A2985,
        5000: 0xCE29A19460EE1BFC,
    }
    for size, hashed in known.items():
        assert xxh3(bytes(7 * i % 251 for i in range(size))) == hashed, size


@pytest.mark.parametrize("size", [0, 1, 14, 15, 16, 300, 70_000])
def test_lz4_size(size: int, rng: random.Random) -> None:
    for alphabet in (1, 3, 256):
        data = bytes(rng.randrange(alphabet) for _ in range(size))
        packed = pa.Codec("lz4_raw").compress(data, asbytes=True)
        assert lz4_size(packed) == size
        for cut in range(0, len(packed), 1 + len(packed) // 50):
            assert lz4_size(packed[:cut]) < size or size == 0
        for _ in range(50):
            lz4_size(rng.randbytes(rng.randrange(60)))


def test_log(rng: random.Random) -> None:
    records = [rng.randbytes(rng.randrange(60)) for _ in range(20)]
    data = bytearray(log_of(records))
    ends, status, position = take_records(data)
    assert (status, position) == ("end", len(log_of(records)))
    starts = [0, *ends.tolist()]
    assert [bytes(data[start:end]) for start, end in zip(starts, ends.tolist(), strict=False)] == records


def test_log_that_is_cut_anywhere_is_torn_and_one_that_is_changed_is_damaged(rng: random.Random) -> None:
    records = [rng.randbytes(rng.randrange(1, 30)) for _ in range(5)]
    whole = log_of(records)
    bounds = [len(log_of(records[:count])) for count in range(6)]
    for cut in range(len(whole)):
        ends, status, position = take_records(bytearray(whole[:cut]))
        known = max(count for count in range(6) if bounds[count] <= cut)
        assert len(ends) == known
        assert status == ("end" if cut == bounds[known] else "torn")
        assert position == (cut if status == "end" else bounds[known])
        # Space that was prepared is behind it.
        zeroed = take_records(bytearray(whole[:cut] + bytes(50)))
        assert len(zeroed[0]) >= known
        for bit in range(8):
            changed = bytearray(whole)
            changed[cut] ^= 1 << bit
            ends, status, _ = take_records(changed)
            is_last = cut >= bounds[4]
            assert status == "damaged" or (is_last and status == "torn" and len(ends) == 4), (cut, bit)


def test_a_log_used_again_ends_where_another_begins() -> None:
    data = bytearray(piece(5, b"one", 7) + piece(5, b"two", 7) + piece(5, b"old", 3))
    ends, status, _ = take_records(data, number=7)
    assert (bytes(data[: ends[-1]]), status) == (b"onetwo", "end")


ONE, TWO = piece(1, b"one"), piece(1, b"two")
# Up to the last five bytes of a block, which are too few for a header.
BLOCK = piece(1, bytes(32768 - 5 - 7)) + bytes(5)


@pytest.mark.parametrize(
    ("log", "records", "status", "position"),
    [
        (piece(2, b"a") + piece(3, b"b") + piece(4, b"c") + ONE, [b"abc", b"one"], "end", None),
        (ONE + piece(2, b"a") + piece(3, b"b"), [b"one"], "torn", len(ONE)),
        (ONE + piece(2, b"a") + bytes(90), [b"one"], "torn", len(ONE)),
        (ONE + bytes(90) + TWO, [b"one"], "damaged", len(ONE)),
        (piece(2, b"a") + ONE, [], "damaged", 8),
        (ONE + piece(4, b"a"), [b"one"], "damaged", len(ONE)),
        (ONE + piece(0x82, b"passed over") + TWO, [b"one", b"two"], "end", None),
        (ONE + piece(9, b"\7") + TWO, [b"one"], "unknown", len(ONE)),
        (ONE + piece(0, b"no type") + TWO, [b"one"], "unknown", len(ONE)),
        (BLOCK + TWO, [bytes(32768 - 5 - 7), b"two"], "end", None),
        (BLOCK[:-8] + TWO, [], "damaged", 0),
        (ONE + TWO[:-1] + bytes(32768) + TWO, [b"one"], "damaged", len(ONE)),
        (ONE + TWO[:5] + b"\xff" + TWO[6:], [b"one"], "damaged", len(ONE)),
        (piece(6, b"a", 7) + piece(8, b"b", 7) + piece(5, b"old", 3), [b"ab"], "end", 24),
        (piece(6, b"a", 7) + piece(8, b"old", 3), [], "torn", 0),
    ],
)
def test_pieces_of_a_log(log: bytes, records: list[bytes], status: str, position: int | None) -> None:
    data = bytearray(log)
    ends, *found = take_records(data, number=7)
    starts = [0, *ends.tolist()]
    assert [bytes(data[start:end]) for start, end in zip(starts, ends.tolist(), strict=False)] == records
    assert found == [status, len(log) if position is None else position]


def test_block_of_any_bytes(rng: random.Random) -> None:
    entries = [(b"topic%05d" % n + bytes(8), b"v" * rng.randrange(5)) for n in range(60)]
    whole = block(entries)
    keys, key_starts, starts, ends = read_pairs(whole, internal=True)
    assert keys.tobytes() == b"".join(key for key, _ in entries)
    assert key_starts.tolist()[-1] == len(keys)
    assert [whole[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)] == [value for _, value in entries]
    for _ in range(4000):
        changed = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3))):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        data = bytes(changed[: rng.choice((len(changed), rng.randrange(len(changed))))])
        for read in (read_pairs, read_index):
            for internal in (False, True):
                try:
                    found = (
                        read(data, internal=internal)
                        if read is read_pairs
                        else read_index(data, internal=internal, delta=rng.random() < 0.5)
                    )
                except NotSoundError:
                    continue
                assert len(found[0]) <= 128 * (len(data) + 64)
                if read is read_pairs:
                    assert (found[2] <= found[3]).all()
                    assert not len(found[3]) or found[3].max() <= len(data)


@pytest.mark.parametrize(
    ("entries", "restarts", "fault"),
    [
        (b"", struct.pack("<I", 1 << 31), "restart points"),  # a hash index without its size
        (b"", struct.pack("<HI", 9, 1 << 31), "restart points"),  # and one that is larger than the block
        (b"\x80", struct.pack("<I", 0), "an entry within"),
        (b"\0\x80", struct.pack("<I", 0), "an entry within"),
        (b"\0\1\x80", struct.pack("<I", 0), "an entry within"),
        (b"\xff\xff\xff\xff\x7f\0\0", struct.pack("<I", 0), "an entry within"),  # more than 32 bits
        (b"\1\0\0", struct.pack("<I", 0), "shares no more"),
    ],
)
def test_blocks_that_are_not_sound(entries: bytes, restarts: bytes, fault: str) -> None:
    with pytest.raises(NotSoundError, match=fault):
        read_pairs(entries + restarts, internal=False)


HUGE = varint((1 << 61) + 1)


@pytest.mark.parametrize(
    ("first", "following"),
    [
        (HUGE + varint(1), b""),
        (varint(1) + HUGE, b""),
        (varint(1), b""),
        (b"\xff" * 10 + b"\x7f", b""),  # a number without an end
        (varint(5) + varint(5), varint(2 * 6 - 1)),  # smaller than nothing
        (varint(5) + varint(5), varint(1 << 62)),
        (varint((1 << 61) - 1) + varint((1 << 61) - 1), varint(2)),
        (varint(5) + varint(5), b"\x80"),
    ],
)
@pytest.mark.parametrize("delta", [False, True])
def test_handles_that_are_not_sound(first: bytes, following: bytes, delta: bool) -> None:
    data = b"\0\1" + first if delta else b"\0\1" + varint(len(first)) + b"k" + first
    if delta:
        data = b"\0\1k" + first + (b"\1\0" + following if following else b"")
    elif following:
        data = b"\0\1" + varint(len(first) + 1) + b"k" + first + b"\0"  # more than a handle
    with pytest.raises(NotSoundError, match="the handle of a block"):
        read_index(data + struct.pack("<I", 0), internal=False, delta=delta)


def test_handles_follow_on_those_before() -> None:
    data = b"\0\1k" + varint(100) + varint(50) + b"\1\1l" + varint(2 * 7) + b"\2\0" + varint(2 * 9 - 1)
    _, _, starts, ends = read_index(data + struct.pack("<I", 0), internal=False, delta=True)
    assert (starts.tolist(), ends.tolist()) == ([100, 155, 217], [150, 212, 265])


def test_order_of_entries(rng: random.Random) -> None:
    """Users' keys ascend; of the same one the newest entry comes first."""
    for _ in range(500):
        entries = [(rng.randbytes(rng.randrange(3)), rng.randrange(3)) for _ in range(rng.randrange(1, 5))]
        ordered = sorted(set(entries), key=lambda entry: (entry[0], -entry[1]))
        entries = ordered if rng.random() < 0.5 else entries
        split = rng.randrange(len(entries) + 1)
        parts = [
            [(key + struct.pack("<Q", n << 8 | 1), b"") for key, n in part]
            for part in (entries[:split], entries[split:])
        ]
        blocks = [block(part) for part in parts]
        bounds = np.cumsum([0, *map(len, blocks)])
        if entries == ordered:
            assert len(read_blocks(b"".join(blocks), bounds[:-1], bounds[1:])) == len(entries)
            continue
        with pytest.raises(NotSoundError, match="keys in order") as why:
            read_blocks(b"".join(blocks), bounds[:-1], bounds[1:])
        assert 0 <= why.value.position <= len(blocks[why.value.part])


def test_blocks_of_lz4(rng: random.Random) -> None:
    """As many of the first blocks as are sound are what pyarrow makes of them, and within the limits."""
    for _ in range(200):
        plain = [bytes(rng.choices(b"abc", k=rng.randrange(1, 300))) for _ in range(rng.randrange(6))]
        are_packed = np.array([rng.random() < 0.8 for _ in plain], np.bool_)
        codec = pa.Codec("lz4_raw")
        stored = [
            varint(len(one)) + codec.compress(one, asbytes=True) if packed else one
            for one, packed in zip(plain, are_packed, strict=True)
        ]
        sound = len(stored)
        if stored and rng.random() < 0.5 and are_packed[bad := rng.randrange(len(stored))]:
            stored[bad], sound = varint(len(plain[bad]) + 1) + stored[bad][len(varint(len(plain[bad]))) :], bad
        data, bounds = b"".join(stored), np.cumsum([0, *map(len, stored)])
        found, ends = expand_lz4(data, bounds[:-1], bounds[1:], are_packed, room=500, most=10_000, gain=256)
        assert ends.tolist() == np.cumsum([0, *map(len, plain)])[: len(ends)].tolist()
        assert len(ends) - 1 == sound or (len(ends) - 1 < sound and ends[-1] >= 500)
        assert found.tobytes() == b"".join(plain[: len(ends) - 1])
    with pytest.raises(ValueError, match="not in the data"):
        expand_lz4(b"abc", np.array([1]), np.array([4]), np.array([True]), room=1, most=1, gain=1)
    ten = varint(10) + pa.Codec("lz4_raw").compress(bytes(10), asbytes=True)
    starts, ends, packed = np.array([0]), np.array([len(ten)]), np.array([True])
    for most, gain, blocks in ((10, 256, 1), (9, 256, 0), (10, 0, 0)):
        assert len(expand_lz4(ten, starts, ends, packed, room=100, most=most, gain=gain)[1]) == 1 + blocks


def test_keys_may_not_be_longer_than_their_block_allows() -> None:
    data = varint(0) + varint(50_000) + varint(0) + b"k" * 50_000
    data += (varint(50_000) + varint(0) + varint(0)) * 20_000
    with pytest.raises(NotSoundError, match="in proportion"):
        read_pairs(data + struct.pack("<II", 0, 1), internal=False)


def test_checked_blocks() -> None:
    content = b"some bytes" + bytes([7])
    data = b"##" + content + struct.pack("<I", masked_crc32c(content)) + b"##"
    starts, ends = np.array([2], np.int64), np.array([2 + len(content) - 1], np.int64)
    kinds, bad = check_blocks(data, starts, ends, kind=CRC32C_CHECKSUM, offset=0, context=0)
    assert (kinds.tolist(), bad) == ([7], -1)
    assert check_blocks(data[1:], starts, ends, kind=CRC32C_CHECKSUM, offset=0, context=0)[1] == 0
    assert check_blocks(data, starts, ends, kind=CRC32C_CHECKSUM, offset=0, context=1)[1] == 0
    assert check_blocks(data, starts, ends + 100, kind=CRC32C_CHECKSUM, offset=0, context=0)[1] == 0
    assert check_blocks(data, starts - 100, ends, kind=CRC32C_CHECKSUM, offset=0, context=0)[1] == 0
    assert check_blocks(data, starts, ends, kind=XXH3_CHECKSUM, offset=0, context=0)[1] == 0
    assert table_checksum(b"", kind=XXH3_CHECKSUM, offset=0, context=0) == 0
    for context in (0, 9):
        checksum = table_checksum(content, kind=XXH3_CHECKSUM, offset=102, context=context)
        data = b"##" + content + struct.pack("<I", checksum) + b"##"
        for offset, wrong in ((100, -1), (101, 0 if context else -1)):
            found = check_blocks(data, starts, ends, kind=XXH3_CHECKSUM, offset=offset, context=context)
            assert found[1] == wrong


def taken(runs: list[Run], tombstones: Tombstones) -> dict[bytes, bytes]:
    """All that runs have, as the newest entries say."""
    found: dict[bytes, bytes] = {}
    runs = [run for run in runs if len(run)]
    last = None
    while runs:
        (keys, key_starts, values, value_starts), last, stopped, unknown = take_newest(runs, tombstones, last)
        assert unknown == -1
        for number in range(len(key_starts) - 1):
            key = keys[key_starts[number] : key_starts[number + 1]].tobytes()
            assert not found or key > max(found)
            found[key] = values[value_starts[number] : value_starts[number + 1]].tobytes()
        assert not len(runs[stopped])
        del runs[stopped]
    return found


def test_newest_are_those_of_a_dict(rng: random.Random) -> None:
    for _ in range(300):
        keys = [rng.randbytes(rng.randrange(3)) for _ in range(rng.randrange(1, 30))]
        bounds = sorted({rng.randbytes(1) for _ in range(rng.choice((0, 2, 6)))})
        ranges = [(a, b, rng.randrange(100)) for a, b in zip(bounds[::2], bounds[1::2], strict=False)]
        runs: list[list[Entry]] = [[] for _ in range(rng.randrange(1, 12))]
        expected: dict[bytes, bytes | None] = {}
        for number in range(100):
            key, kind, value = rng.choice(keys), rng.choice((0, 1, 1, 7)), rng.randbytes(rng.randrange(4))
            runs[rng.randrange(len(runs))].append((key, number, kind, value))
            is_deleted = any(start <= key < stop and number < newest for start, stop, newest in ranges)
            expected[key] = None if is_deleted or kind != 1 else value
        found = taken([run_of(run) for run in runs], Tombstones(ranges))
        assert found == {key: value for key, value in expected.items() if value is not None}


@pytest.mark.parametrize("kind", [2, 3, 0x11, 0x16, 0xFF])
def test_other_types_stop_the_walk(kind: int) -> None:
    runs = [run_of([(b"a", 1, 1, b"v"), (b"b", 2, kind, b"")]), run_of([(b"c", 3, 1, b"w")])]
    (_, key_starts, _, _), last, stopped, unknown = take_newest(runs, Tombstones(), None)
    assert (len(key_starts), last, stopped, unknown) == (2, b"a", 0, kind)


def test_keys_that_come_too_late() -> None:
    run = run_of([(b"b", 1, 1, b"v")])
    assert take_newest([run], Tombstones(), b"c")[2:] == (0, NOT_IN_ORDER)


def test_all_entries_of_a_key() -> None:
    run = run_of([(b"a", 1, 1, b"v"), (b"a", 3, 2, b"x"), (b"a", 2, 0, b""), (b"b", 4, 1, b"w")])
    assert run.first_key()[:-8] == b"a"
    assert run.take_versions(b"") == []
    assert run.take_versions(b"a") == [(3, 2, b"x"), (2, 0, b""), (1, 1, b"v")]
    assert (run.first_key()[:-8], run.take_versions(b"a"), len(run)) == (b"b", [], 1)
    assert run.take_versions(b"b") == [(4, 1, b"w")]
    with pytest.raises(ValueError, match="no entry is left"):
        run.first_key()


def test_parts_of_a_run() -> None:
    run = run_of([(bytes([65 + n]), n, 1, b"") for n in range(10)])
    run.begin_at(b"C")
    assert run.stop_at(b"F")
    assert not run.stop_at(b"F")
    assert taken([run], Tombstones()) == {b"C": b"", b"D": b"", b"E": b""}


def batch(sequence: int, records: list[bytes]) -> bytes:
    return struct.pack("<QI", sequence, len(records)) + b"".join(records)


def put(key: bytes, value: bytes, family: int = 0) -> bytes:
    head = bytes([5]) + varint(family) if family else bytes([1])
    return head + varint(len(key)) + key + varint(len(value)) + value


def test_batches(rng: random.Random) -> None:
    records = [put(b"a", b"1"), put(b"b", b"2", 3), put(b"a", b"3"), b"\x0f\x01c\x01d", b"\x00\x01z"]
    whole = batch(10, records)
    ends = np.array([len(whole)], np.int64)
    batches = Batches(whole, ends)
    assert len(batches) == 5
    assert batches.range_deletions(0) == [(b"c", b"d", 13)]
    assert taken([batches.run(0)], Tombstones()) == {b"a": b"3"}
    assert taken([batches.run(3)], Tombstones()) == {b"b": b"2"}
    for _ in range(4000):
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] = rng.choice((0, 1, 5, 0xE, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            batches = Batches(bytes(changed), ends)
        except NotSoundError:
            continue
        for family in (0, 3):
            assert len(batches.run(family)) + len(batches.range_deletions(family)) <= 5


def test_records_of_other_types_are_told_apart() -> None:
    for kind in (9, 0x11, 0x16, 0x7F):
        whole = batch(1, [put(b"a", b"1"), bytes([kind]) + b"\x01k\x01v"])
        with pytest.raises(NotSoundError) as why:
            Batches(whole, np.array([len(whole)], np.int64))
        assert (why.value.expected, whole[why.value.position]) == (UNKNOWN_RECORD, kind)


def deletion(kind: int, key: bytes) -> bytes:
    """Of a type with a column family."""
    return bytes([kind]) + varint(3) + varint(len(key)) + key


def test_batches_of_all_types() -> None:
    """Records of no key and of logs do not count; each of the others has the next sequence number."""
    merge, log_data = b"\x02\x01m\x01+", b"\x03\x04text"
    ranged = b"\x0e\x03\x01d\x01f"
    records = [b"\x0d", put(b"abc", b"1", 3), log_data, deletion(4, b"ab"), deletion(8, b"b"), put(b"ab", b"2", 3)]
    whole = batch(10, [*records, ranged, merge, b"\x07\x01s", b"\x06\x03\x01m\x00"])
    whole = struct.pack("<QI", 10, 8) + whole[12:]
    batches = Batches(whole, np.array([len(whole)], np.int64))
    run = batches.run(3)
    assert [run.take_versions(key) for key in (b"ab", b"abc", b"b", b"m")] == [
        [(13, 1, b"2"), (11, 0, b"")],
        [(10, 1, b"1")],
        [(12, 7, b"")],
        [(17, 2, b"")],
    ]
    plain = batches.run(0)
    assert [plain.take_versions(key) for key in (b"m", b"s")] == [[(15, 2, b"+")], [(16, 7, b"")]]
    assert (batches.range_deletions(3), batches.range_deletions(0), len(batches)) == ([(b"d", b"f", 14)], [], 8)


@pytest.mark.parametrize(
    ("whole", "fault", "position"),
    [
        (batch(1, [])[:-1], "sequence number and count", 0),
        (batch(1, [put(b"a", b"")] * 2)[:-4], "as many records", 12),
        (struct.pack("<QI", 1, 1) + 2 * put(b"a", b""), "as many records", 16),
        (batch(1, [b"\x05\x80"]), "a record within", 12),
        (batch(1, [b"\x05\xff\xff\xff\xff\x7f\x01a\x00"]), "a record within", 12),  # a family of more than 32 bits
        (batch(1, [b"\x01\x05a"]), "a record within", 12),
        (batch(1, [b"\x01\x01a\x02v"]), "a record within", 12),
    ],
)
def test_batches_that_are_not_sound(whole: bytes, fault: str, position: int) -> None:
    with pytest.raises(NotSoundError, match=fault) as why:
        Batches(whole, np.array([len(whole)], np.int64))
    assert why.value.position == position


def test_what_is_not_in_the_data() -> None:
    with pytest.raises(ValueError, match="not in the data"):
        Batches(b"", np.array([1], np.int64))
    with pytest.raises(ValueError, match="not in the data"):
        read_blocks(b"", np.array([0], np.int64), np.array([1], np.int64))
