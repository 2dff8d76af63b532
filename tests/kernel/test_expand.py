"""The kernel decompresses bodies as zlib, liblz4 and libzstd do, and leaves alone what these refuse or what is odd."""

from __future__ import annotations

import ctypes
import random
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracle import reference
from support.kernels import encode_log

from native_io import Decoder, Status
from rmqstore_spark.store.format.bodies import zstd_functions
from rmqstore_spark.store.format.units import BatchBuilder, Budget

ZLIB, LZ4, ZSTD, ZLIB_TOO = (reference.COMPRESSED | number << 8 for number in range(4))
MIB = 1 << 20
LARGEST = 16 * MIB  # that the kernel decompresses

Answer = bytes | None  # a body; None: left as it is stored


def expanded(bodies: Iterable[bytes], flag: int) -> list[Answer]:
    """The kernel's answers for bodies: those of one batch, which it appends and scans, which must agree."""
    stored = list(bodies)
    log, positions = encode_log({"body": body, "sys_flag": flag} for body in stored)
    builder = BatchBuilder(["body"], Budget(1 << 30, 1 << 30), expands=True)
    builder.append(log, positions, base=0)
    answers = _answers(builder, stored)
    where: dict[str, Any] = {"base": 0, "position": 0, "stop": len(log), "segment_end": (1 << 63) - 1}
    walked = builder.decoder.scan(log, **where, verify_crc=True, most=len(stored) + 1)
    assert walked[:2] == (len(stored), len(log))
    assert _answers(builder, stored) == answers
    return answers


def _answers(builder: BatchBuilder, stored: list[bytes]) -> list[Answer]:
    left = set(builder.decoder.unexpanded)
    assert builder.decoder.compressed == len(stored)
    bodies = builder.finish().column("body").to_pylist()
    assert all(bodies[row] == stored[row] for row in left)
    return [None if row in left else body for row, body in enumerate(bodies)]


def oracle(body: bytes, flag: int) -> Answer:
    """The body, as libraries have it; None where they refuse it."""
    if flag == ZSTD:
        return _zstd_stream(body)
    try:
        return reference.decompress_body(body, flag)
    except ValueError:
        return None


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer."""

    _fields_ = (("at", ctypes.c_char_p), ("size", ctypes.c_size_t), ("done", ctypes.c_size_t))


def _zstd_stream(body: bytes) -> Answer:
    """A body that is a stream, as the kernel's library has it. What is wrong with a frame that has no checksum is seen
    by some versions and not by others, and Arrow has a version of its own."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    stream = ctypes.c_void_p(library.ZSTD_createDStream())
    source, found = _Buffer(body, len(body), 0), bytearray()
    try:
        while True:
            room = ctypes.create_string_buffer(MIB)
            to = _Buffer(ctypes.cast(room, ctypes.c_char_p), MIB, 0)
            more = library.ZSTD_decompressStream(stream, ctypes.byref(to), ctypes.byref(source))
            found += room.raw[: to.done]
            if more == 0:
                return bytes(found) if source.done == len(body) else None
            if more > 1 << 60 or (to.done < MIB and source.done == len(body)):
                return None  # an error, or cut
    finally:
        library.ZSTD_freeDStream(stream)


def agrees(bodies: list[bytes], flag: int) -> int:
    """Hold the kernel's answers against the oracle's. How many are bodies."""
    answers = expanded(bodies, flag)
    for body, answer in zip(bodies, answers, strict=True):
        assert answer is None or answer == oracle(body, flag), body.hex()
    return sum(answer is not None for answer in answers)


# ---- what producers send


def _texts(rng: random.Random) -> Iterator[bytes]:
    """Bodies of many kinds and sizes."""
    yield from (b"", b"a", b"ab" * 3, bytes(5), b"x" * 100_000, bytes(range(256)) * 300)
    words = [rng.randbytes(rng.randrange(1, 12)) for _ in range(60)]
    for size in (1, 7, 30, 100, 257, 1000, 5000, 20_000, 70_000, 300_000):
        yield rng.randbytes(size)
        yield b"".join(rng.choices(words, k=size // 6 + 1))[:size]
        yield "".join(rng.choices('0123456789,{}":abcdef', k=size)).encode()
        yield bytes(rng.choices(b"ab", [50, 1], k=size))
        piece = rng.randbytes(rng.randrange(1, 40))
        yield (piece * (size // len(piece) + 1))[:size]
        yield rng.randbytes(size // 2) * 2
        # Codes of very different lengths.
        yield bytes(rng.choices(range(40), [1.7**-n for n in range(40)], k=size))


def _zlib(body: bytes, level: int, window: int, memory: int, strategy: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, window, memory, strategy)
    return packer.compress(body) + packer.flush()


def test_zlib_streams_of_all_kinds(rng: random.Random) -> None:
    strategies = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED)
    texts = list(_texts(rng))
    for flag in (ZLIB, ZLIB_TOO):
        for strategy in strategies:
            levels = [(rng.randrange(10), rng.randrange(9, 16), rng.randrange(1, 10)) for _ in texts]
            stored = [_zlib(text, *how, strategy) for text, how in zip(texts, levels, strict=True)]
            assert expanded(stored, flag) == texts
    assert expanded([zlib.compress(text, 5) for text in texts], ZLIB) == texts


def test_zlib_streams_in_pieces_and_with_something_behind(rng: random.Random) -> None:
    """Blocks of all kinds one after the other, with empty ones; what follows a stream is not looked at, as by Java."""
    texts, stored = [], []
    for _ in range(60):
        packer = zlib.compressobj(rng.randrange(10), zlib.DEFLATED, 15, rng.randrange(1, 10))
        parts = [rng.randbytes(rng.randrange(3000)) * rng.randrange(1, 4) for _ in range(rng.randrange(1, 6))]
        flushes = (zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_PARTIAL_FLUSH, zlib.Z_BLOCK)
        packed = b"".join(packer.compress(part) + packer.flush(rng.choice(flushes)) for part in parts)
        texts.append(b"".join(parts))
        stored.append(packed + packer.flush() + rng.randbytes(rng.choice((0, 0, 1, 40))))
    assert expanded(stored, ZLIB) == texts


def _lz4(blocks: list[bytes], *, linked: bool, largest: int, sums: bool, sized: bool, checked: bool) -> bytes:
    """A frame of these blocks' plain bytes; those that begin alike are compressed."""
    flags = 0x40 | (not linked) << 5 | sums << 4 | sized << 3 | checked << 2
    text = b"".join(blocks)
    frame = _lz4_head(flags, largest, struct.pack("<Q", len(text)) if sized else b"")
    for block in blocks:
        packed = bytes(pa.compress(block, codec="lz4_raw", asbytes=True))
        size = len(packed)
        if size >= len(block):
            packed, size = block, len(block) | 1 << 31
        frame += struct.pack("<I", size) + packed + (struct.pack("<I", xxh32(packed)) if sums else b"")
    return frame + bytes(4) + (struct.pack("<I", xxh32(text)) if checked else b"")


def _lz4_head(flags: int, largest: int, size: bytes = b"") -> bytes:
    """A frame before its blocks."""
    told = bytes((flags, largest << 4)) + size
    return struct.pack("<I", 0x184D2204) + told + bytes((xxh32(told) >> 8 & 0xFF,))


def xxh32(data: bytes) -> int:
    """xxHash, 32 bits, seed 0: as its specification has it."""
    first, second, third, fourth, fifth = 2654435761, 2246822519, 3266489917, 668265263, 374761393

    def rotated(value: int, by: int) -> int:
        value &= 0xFFFFFFFF
        return (value << by | value >> (32 - by)) & 0xFFFFFFFF

    at, total = 0, fifth
    if len(data) >= 16:
        lanes = [first + second, second, 0, -first]
        while at + 16 <= len(data):
            words = struct.unpack_from("<4I", data, at)
            lanes = [rotated(lane + word * second, 13) * first for lane, word in zip(lanes, words, strict=True)]
            at += 16
        total = sum(rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    total += len(data)
    while at + 4 <= len(data):
        total = rotated(total + struct.unpack_from("<I", data, at)[0] * third, 17) * fourth
        at += 4
    for byte in data[at:]:
        total = rotated(total + byte * fifth, 11) * first
    total &= 0xFFFFFFFF
    total = (total ^ total >> 15) * second & 0xFFFFFFFF
    total = (total ^ total >> 13) * third & 0xFFFFFFFF
    return total ^ total >> 16


def test_xxh32_of_the_oracle() -> None:
    """Its own test vectors."""
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"a") == 0x550D7456
    assert xxh32(b"Nobody inspects the spammish repetition") == 0xE2293B2F


def test_lz4_frames_of_all_kinds(rng: random.Random) -> None:
    texts = [text for text in _texts(rng) if text]
    assert expanded([reference.compress_body(text, LZ4) for text in texts], LZ4) == texts
    stored = []
    for text in texts:
        cuts = sorted(rng.sample(range(len(text)), min(rng.randrange(4), len(text) - 1)))
        blocks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if b > a]
        kinds = [rng.random() < 0.5 for _ in range(4)]
        largest = rng.randrange(4, 8) if max(map(len, blocks)) <= 64 * 1024 else 6
        stored.append(_lz4(blocks, linked=kinds[0], largest=largest, sums=kinds[1], sized=kinds[2], checked=kinds[3]))
    assert [oracle(frame, LZ4) for frame in stored] == texts
    assert expanded(stored, LZ4) == texts


def test_lz4_blocks_of_any_sequences(rng: random.Random) -> None:
    """Literals, matches and distances on both sides of what a token holds and of what is copied at a time."""
    frames, texts = [], []
    for _ in range(300):
        block, text = b"", b""
        for _ in range(rng.randrange(1, 40)):
            literals = rng.randbytes(rng.choice((0, 1, 7, 8, 13, 14, 15, 16, 17)) or (not text))
            text += literals
            distance, match = rng.choice((1, 2, 7, 8, 9, 15, 16, 17, 40)), rng.choice((4, 8, 16, 17, 18, 19, 20, 33))
            distance = min(distance, len(text)) if rng.random() < 0.999 else len(text) + 1
            if distance <= len(text):
                for _ in range(match):
                    text += text[-distance : len(text) - distance + 1]
            block += _lz4_sequence(literals, match) + struct.pack("<H", distance) + _lz4_rest(match - 4)
        last = rng.randbytes(rng.choice((12, 15, 40)))
        block += _lz4_sequence(last, 4)
        frames.append(_lz4_head(0x60, 4) + struct.pack("<I", len(block)) + block + bytes(4))
        texts.append(text + last)
    answers = [oracle(frame, LZ4) for frame in frames]
    assert expanded(frames, LZ4) == answers
    assert sum(answer == text for answer, text in zip(answers, texts, strict=True)) > 200
    assert None in answers


def _lz4_sequence(literals: bytes, match: int) -> bytes:
    """A block's sequence as far as its literals go."""
    token = min(len(literals), 15) << 4 | min(match - 4, 15)
    return bytes((token,)) + _lz4_rest(len(literals)) + literals


def _lz4_rest(length: int) -> bytes:
    """What of a length is not in the token."""
    return bytes((length - 15,)) if length >= 15 else b""


def test_an_lz4_match_may_reach_into_the_block_before_only_if_they_are_linked() -> None:
    begin, literals = b"0123456789abcdef", b"tail-tail-tail"
    match = bytes((0x00 | 4,)) + struct.pack("<H", 16) + bytes((len(literals) << 4,)) + literals  # 8 bytes, 16 back
    for linked, expected in ((True, begin + begin[:8] + literals), (False, None)):
        frame = _lz4_head(0x40 | (not linked) << 5, 4)
        frame += struct.pack("<I", len(begin) | 1 << 31) + begin + struct.pack("<I", len(match)) + match + bytes(4)
        assert expanded([frame], LZ4) == [expected] == [oracle(frame, LZ4)]


needs_zstd = pytest.mark.skipif(not all(zstd_functions()), reason="the system has no libzstd")


@needs_zstd
def test_zstd_frames(rng: random.Random) -> None:
    texts = list(_texts(rng))
    for level in (1, 3, 9):
        stored = [pa.Codec("zstd", level).compress(text, asbytes=True) for text in texts]  # with their sizes
        assert expanded(stored, ZSTD) == texts
    assert expanded([reference.compress_body(text, ZSTD) for text in texts], ZSTD) == texts


def test_zstd_without_a_library() -> None:
    body = reference.compress_body(b"text " * 100, ZSTD)
    log, positions = encode_log([{"body": body, "sys_flag": ZSTD}])
    for zstd in ((0, 0, 0), (1, 1, 0)):  # nothing, or not all of it, which is not called
        decoder = Decoder(["body"], expand=MIB, zstd=zstd)
        decoder.append(log, positions, base=0)
        assert decoder.unexpanded == [0]


# ---- what is not what it should be


def _broken(stored: bytes, rng: random.Random) -> bytes:
    """The body with something else in it."""
    data = bytearray(stored)
    at = rng.randrange(len(data))
    match rng.randrange(7):
        case 0:
            data[at] ^= 1 << rng.randrange(8)
        case 1:
            data[at] = rng.randrange(256)
        case 2:
            del data[at:]
        case 3:
            del data[at : at + rng.randrange(1, 4)]
        case 4:
            data[at:at] = rng.randbytes(rng.randrange(1, 4))
        case 5:
            data += rng.choice((bytes(1), rng.randbytes(5), stored, stored[:at]))
        case 6:
            data[at : at + 8] = rng.choice((bytes(8), b"\xff" * 8))
    return bytes(data)


@pytest.mark.parametrize("flag", [ZLIB, LZ4, pytest.param(ZSTD, marks=needs_zstd)])
def test_broken_bodies(rng: random.Random, flag: int) -> None:
    texts = [text for text in _texts(rng) if 0 < len(text) < 6000]
    stored = [reference.compress_body(text, flag) for text in texts]
    if flag == LZ4:
        stored += [
            _lz4([text[:40], text[40:]], linked=True, largest=4, sums=True, sized=True, checked=True)
            for text in texts
            if len(text) > 40
        ]
    broken = [_broken(rng.choice(stored), rng) for _ in range(3000)]
    broken += [packed[:at] for packed in stored[:12] for at in range(len(packed))]
    assert agrees([body for body in broken if body], flag) > 10  # what stands behind a stream, and the like


def test_broken_blocks_of_zlib_streams_whose_checksum_fits(rng: random.Random) -> None:
    """The checksum would hide most of what the blocks could do."""
    texts = [text for text in _texts(rng) if 0 < len(text) < 3000]
    streams: list[bytes] = []
    while len(streams) < 4000:
        strategy = rng.choice((zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY))
        blocks = _broken(_zlib(rng.choice(texts), rng.randrange(10), 15, 8, strategy)[2:-4], rng)
        reader = zlib.decompressobj(-15)
        try:
            text = reader.decompress(blocks, MIB)
        except zlib.error:
            text = b""
        end = len(blocks) - len(reader.unused_data) if reader.eof else len(blocks)
        streams.append(b"\x78\x9c" + blocks[:end] + struct.pack(">I", zlib.adler32(text)))
    sound = sum(oracle(stream, ZLIB) is not None for stream in streams)
    assert agrees(streams, ZLIB) == sound > 100


def _bits(*fields: tuple[int, int]) -> bytes:
    """Numbers, each with its bits, the lowest first."""
    value = at = 0
    for number, count in fields:
        value |= number << at
        at += count
    return value.to_bytes(at // 8 + 1, "little")


def _lengths(symbols: list[int], distances: list[int]) -> list[tuple[int, int]]:
    """The beginning of a block with codes of these lengths, each of which has a code of four bits."""
    of_lengths = [0, 0, 0] + [4] * 16  # for 16, 17, 18, and then 0 to 15 in some order
    head = [(1, 1), (2, 2), (len(symbols) - 257, 5), (len(distances) - 1, 5), (15, 4), *((n, 3) for n in of_lengths)]
    return head + [(int(f"{length:04b}"[::-1], 2), 4) for length in symbols + distances]


ODD_CODES = {
    "no end of the block": (([1, 1] + [0] * 255, [1, 1]), (0, 0)),
    "too many codes": (([1, 1, 1] + [0] * 253 + [1], [1, 1]), (0, 0)),
    "too few codes": (([2, 2] + [0] * 254 + [2], [1, 1]), (0, 0)),
    "one code": (([0] * 256 + [1], [0]), (0, 1)),
    "one code, and the other one": (([0] * 256 + [1], [0]), (1, 1)),
    "one distance": (([1] + [0] * 255 + [1], [1]), (2, 2)),
    "too many distances": (([1] + [0] * 255 + [1], [1, 1, 1]), (2, 2)),
    "too few distances": (([1] + [0] * 255 + [1], [2, 2, 2]), (2, 2)),
    "one long distance": (([1] + [0] * 255 + [1], [5]), (2, 2)),
    "no distance, and a match": (([2, 0] + [0] * 254 + [2, 1], [0]), (0b01, 1)),
    "no distance": (([1] + [0] * 255 + [1], [0]), (2, 2)),
    "symbol 286": (([1] + [0] * 255 + [2] + [0] * 29 + [2], [1, 1]), (0, 0)),
    "codes of fifteen bits": ((list(range(1, 16)) + [0] * 241 + [15], [1, 1]), (0x7FFF << 1, 16)),
    "distances of fifteen bits": (([1] + [0] * 255 + [1], [*range(1, 16), 15]), (2, 2)),
}


@pytest.mark.parametrize("name", ODD_CODES)
def test_odd_codes(name: str) -> None:
    """Sets of codes that no compressor makes: zlib accepts some of them, and the kernel the same ones."""
    lengths, data = ODD_CODES[name]
    blocks = _bits(*_lengths(*lengths), data, (0, 8))
    reader = zlib.decompressobj(-15)
    try:
        text = reader.decompress(blocks)
    except zlib.error:
        text = b""
    stream = b"\x78\x9c" + blocks[: len(blocks) - len(reader.unused_data)] + struct.pack(">I", zlib.adler32(text))
    assert expanded([stream], ZLIB) == [oracle(stream, ZLIB)]


def test_headers_of_zlib_streams() -> None:
    """Of all headers, those that zlib accepts, and no other one; a dictionary is none of a message's."""
    behind = zlib.compress(b"text" * 10)[2:]
    streams = [bytes((first, second)) + behind for first in range(256) for second in range(256)]
    assert expanded(streams, ZLIB) == [oracle(stream, ZLIB) for stream in streams]


def test_types_that_are_none() -> None:
    body = zlib.compress(b"text" * 10)
    for number in range(4, 8):
        assert expanded([body], reference.COMPRESSED | number << 8) == [None]
    for flag in (LZ4, ZSTD):
        assert expanded([body], flag) == [None]


# ---- sizes


@pytest.mark.parametrize("flag", [ZLIB, LZ4, pytest.param(ZSTD, marks=needs_zstd)])
def test_bombs_are_left_alone(flag: int) -> None:
    most = LARGEST if flag != ZSTD else 512 * 1024  # the window of what makes these
    large, bomb, small = expanded([_packed(bytes(size), flag) for size in (most - 1000, most + 1000, 100)], flag)
    assert (len(large or b""), bomb, small) == (most - 1000, None, bytes(100))
    tiny = _packed(bytes(64 * MIB), flag)
    assert expanded([tiny], flag) == [None]


def _packed(text: bytes, flag: int) -> bytes:
    return zlib.compress(text) if flag == ZLIB else reference.compress_body(text, flag)


@pytest.mark.parametrize("expand", [1, 1000, 50_000])
def test_a_walk_ends_when_bodies_are_enough(expand: int) -> None:
    texts = [b"%06d" % number * 1000 for number in range(40)]
    log, _ = encode_log({"body": zlib.compress(text), "sys_flag": ZLIB} for text in texts)
    decoder = Decoder(["body"], expand=expand)
    position, found = 0, []
    while position < len(log):
        where: dict[str, Any] = {"base": 0, "position": position, "stop": len(log), "segment_end": (1 << 63) - 1}
        walked = decoder.scan(log, **where, verify_crc=True, most=1000)
        bodies = _bodies(decoder)
        assert sum(map(len, bodies[:-1])) < expand <= sum(map(len, bodies)) or walked.at == len(log)
        assert walked.status in (Status.FULL, Status.LIMIT, Status.MORE)
        assert walked.units == len(bodies)
        position = walked.at
        found += bodies
    assert found == texts


def _bodies(decoder: Decoder) -> list[bytes]:
    rows = pa.RecordBatch._import_from_c_capsule(
        pa.schema({"body": pa.binary()}).__arrow_c_schema__(), decoder.finish()
    )
    return rows.column("body").to_pylist()  # type: ignore[no-any-return]


def test_many_large_bodies_at_once_do_not_fill_the_memory() -> None:
    """Positions of units may be many, and are decoded in one call: what is too much stays as it is stored."""
    body = zlib.compress(bytes(8 * MIB))
    log, positions = encode_log({"body": body, "sys_flag": ZLIB} for _ in range(40))
    decoder = Decoder(["body"], expand=MIB)
    decoder.append(log, positions, base=0)
    assert decoder.unexpanded == list(range(3, 40))
    assert decoder.nbytes < 32 * MIB
    sizes = list(map(len, _bodies(decoder)))
    assert sizes == [8 * MIB] * 3 + [len(body)] * 37
    assert decoder.unexpanded == []


def test_without_expand_bodies_stay_as_stored() -> None:
    body = zlib.compress(b"text" * 10)
    log, positions = encode_log([{"body": body, "sys_flag": ZLIB}])
    decoder = Decoder(["body"])
    decoder.append(log, positions, base=0)
    assert (decoder.unexpanded, decoder.compressed, _bodies(decoder)) == ([], 1, [body])


@pytest.mark.parametrize(("expand", "zstd"), [(-1, (0,) * 3), (1 << 31, (0,) * 3), (1, (0,) * 2), (1, (0,) * 4)])
def test_hostile_arguments(expand: int, zstd: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expand must be from 0 to 2 GiB"):
        Decoder(["body"], expand=expand, zstd=zstd)


def test_other_rows_are_as_they_were(rng: random.Random) -> None:
    """Plain bodies, empty ones and compressed ones, with all that is decoded beside them."""
    flags = [rng.choice((0, ZLIB, LZ4)) for _ in range(200)]
    texts = [rng.choice((b"", b"plain", b"text" * rng.randrange(400))) for _ in flags]
    stored = [_packed(text, flag) if flag and text else text for text, flag in zip(texts, flags, strict=True)]
    log, positions = encode_log(
        {"body": body, "sys_flag": flag, "properties": {"KEYS": f"k{row}"}}
        for row, (body, flag) in enumerate(zip(stored, flags, strict=True))
    )
    builder = BatchBuilder(["body", "sysFlag", "keys", "commitLogOffset"], Budget(1 << 30, 1 << 30), expands=True)
    builder.append(log, np.asarray(positions), base=0)
    assert builder.decoder.unexpanded == []
    assert builder.finish().to_pydict() == {
        "body": texts,
        "sysFlag": flags,
        "keys": [f"k{row}" for row in range(200)],
        "commitLogOffset": positions.tolist(),
    }
