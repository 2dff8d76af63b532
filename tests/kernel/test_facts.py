"""The kernel's facts are the oracle's, its CRC-32 is zlib's, and it goes along with threads. Scanning and decoding have
files of their own."""

from __future__ import annotations

import random
import re
import sys
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import reference
from support.kernels import decode, encode_log, find, rows_of, scan_units

import native_io
from native_io import Decoder, Dispatcher, Filter, Status, crc32, crc32_between
from rmqstore_spark import columns
from rmqstore_spark.store.format import message
from rmqstore_spark.store.format.units import BatchBuilder

CRC32_H = (Path(__file__).parents[2] / "native_io" / "crc32.h").read_text()
MIB = 1 << 20
SIGNS = {"PLUS": 32, "MINUS": -32}


# ---- the same facts in several places


def test_format_is_what_the_oracle_knows() -> None:
    unit = reference.encode_unit(body_crc=1, queue_id=2, flag=3, queue_offset=4, physical_offset=5, born_timestamp=7)
    fields = ("BODY_CRC", "QUEUE_ID", "FLAG", "QUEUE_OFFSET", "PHYSICAL_OFFSET", "SYSFLAG", "BORN_TIMESTAMP")
    at = [native_io.FORMAT[f"AT_{field}"] for field in fields]
    ends = [*at[1:], native_io.FORMAT["AT_BORN_HOST"]]
    assert [int.from_bytes(unit[i:end], "big") for i, end in zip(at, ends, strict=True)] == [1, 2, 3, 4, 5, 0, 7]
    for name in ("MAGIC_V1", "MAGIC_V2", "MAGIC_BLANK", "BLANK_SIZE"):
        assert native_io.FORMAT[name] == getattr(reference, name)
    flags = (reference.COMPRESSED, reference.BORN_HOST_V6, reference.STORE_HOST_V6)
    names = ("COMPRESSED", "BORNHOST_V6", "STOREHOST_V6")
    assert tuple(native_io.FORMAT[f"SYSFLAG_{name}"] for name in names) == flags
    assert native_io.FORMAT["SMALLEST_UNIT"] == len(reference.encode_unit(topic=""))


def test_columns_are_those_of_the_table() -> None:
    assert list(native_io.COLUMNS) == columns.DEFAULT_COLUMNS == list(reference.COLUMNS)


def test_every_status_that_is_wrong_has_its_words() -> None:
    right = {Status.OK, Status.LIMIT, Status.FULL, Status.CONTRADICTED}  # what an accelerator says is no damage
    for status in Status:
        if status in right:
            with pytest.raises(AssertionError):
                message.failed_check(status, 11, 22)
        else:
            assert "22" in message.failed_check(status, 11, 22) or "16" in message.failed_check(status, 11, 22)
    # A walk stops with its own position where an entry is what it says it is, but does not follow.
    assert "expected" not in message.failed_check(Status.NO_ENTRY, 22, 22)


# ---- CRC-32


@pytest.mark.parametrize("bits", [512, 128, 0])
def test_crc32_is_zlibs_for_every_length_and_alignment(bits: int, rng: random.Random) -> None:
    data = np.frombuffer(rng.randbytes(800), np.uint8).copy()
    for size in range(700):
        for start in range(16 if size < 200 else 3):
            part = data[start : start + size]
            assert crc32(part, bits=bits) == zlib.crc32(part.tobytes())


@pytest.mark.parametrize("bits", [512, 128, 0])
def test_crc32_of_single_bits(bits: int) -> None:
    """CRC-32 is linear: right for every single bit of a length, right for all data of that length."""
    for size in (15, 16, 17, 63, 64, 65, 127, 128, 200, 255, 256, 300, 512, 583):
        for bit in range(8 * size):
            data = (1 << bit).to_bytes(size, "little")
            assert crc32(data, bits=bits) == zlib.crc32(data)


@pytest.mark.parametrize("bits", [512, 128, 0])
def test_crc32_of_much(bits: int, rng: random.Random) -> None:
    for data in (bytes(MIB), b"\xff" * MIB, rng.randbytes(MIB + 13)):
        assert crc32(data, bits=bits) == zlib.crc32(data)


def test_crc32_of_parts(rng: random.Random) -> None:
    """What was before, and what comes last by what all is."""
    data = rng.randbytes(100_000)
    for _ in range(200):
        begin, end = sorted(rng.choices(range(len(data) + 1), k=2))
        before, all_ = zlib.crc32(data[:begin]), zlib.crc32(data[:end])
        assert crc32(data[begin:end], before=before) == all_
        assert crc32_between(before, all_, end - begin) == zlib.crc32(data[begin:end])


@pytest.mark.parametrize("size", [1 << 20, (1 << 31) - 1, 3_000_000_000, (1 << 32) - 1])
def test_crc32_of_the_last_bytes_of_very_many(size: int) -> None:
    """x^8 for each byte, modulo P."""
    power, factor = 1, 0x100
    for bit in range(size.bit_length()):
        if size >> bit & 1:
            power = _product(power, factor)
        factor = _product(factor, factor)
    assert crc32_between(1 << 31, 0, size) == _reflect(power, 32)  # 1 << 31 is the polynomial 1


def _product(one: int, other: int) -> int:
    """Of two polynomials, modulo P."""
    product = 0
    for bit in reversed(range(32)):
        product <<= 1
        product ^= (product >> 32) * 0x104C11DB7
        product ^= one * (other >> bit & 1)
    return product


def _reflected_power(k: int) -> int:
    """x^k mod P, bit-reflected in 32 bits and shifted left by one. Polynomials are ints, bit i is x^i."""
    remainder = 1
    for _ in range(k):
        remainder <<= 1
        if remainder >> 32:
            remainder ^= 0x104C11DB7
    return _reflect(remainder, 32) << 1


def _reflect(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def _quotient(dividend: int, divisor: int) -> int:
    quotient = 0
    for shift in range(dividend.bit_length() - divisor.bit_length(), -1, -1):
        if dividend >> shift + divisor.bit_length() - 1 & 1:
            dividend ^= divisor << shift
            quotient |= 1 << shift
    return quotient


def test_the_folding_constants_derived_anew() -> None:
    defined = {name: int(value, 16) for name, value in re.findall(r"#define RMQ_(\w+) (0x[0-9a-fA-F]+)u", CRC32_H)}
    assert _reflect(defined.pop("CRC32_POLYNOMIAL"), 32) | 1 << 32 == 0x104C11DB7
    assert defined.pop("P") == _reflect(0x104C11DB7, 33)
    assert defined.pop("MU") == _reflect(_quotient(1 << 64, 0x104C11DB7), 33)
    distances = {f"{bits}_{sign}_32": bits + by for bits in (128, 256, 384, 512, 2048) for sign, by in SIGNS.items()}
    assert defined == {f"X_{name}": _reflected_power(k) for name, k in (distances | {"64": 64}).items()}


# ---- threads


@pytest.fixture(scope="module")
def big_unit() -> np.ndarray[Any, Any]:
    unit = reference.encode_unit(body=bytes(64 * MIB), properties={"TAGS": "a"})
    return np.frombuffer(bytearray(unit + bytes(8)), np.uint8)


def filtered_scan(window: np.ndarray[Any, Any]) -> object:
    wanted = Filter(store_timestamp=(-(1 << 63), (1 << 63) - 1), commit_log_offset=(0, 1 << 62), judge=None)
    return wanted.scan(
        window,
        base=0,
        position=0,
        stop=len(window) - 8,
        segment_end=1 << 30,
        verify_crc=True,
        positions=np.zeros(9, np.int64),
    )


@pytest.mark.parametrize(
    "work",
    [
        lambda window: crc32(window, bits=0),
        lambda window: scan_units(window),
        lambda window: find(window[1:]),
        lambda window: Decoder(["body"]).append(window, np.zeros(1, np.int64), base=0),
        lambda window: filtered_scan(window),
        lambda window: Dispatcher().dispatch(
            window, base=0, position=0, stop=len(window) - 8, segment_end=1 << 30, verify_crc=True, most=9
        ),
        lambda window: Dispatcher().place(window[:-8], position=0, segment_end=1 << 30, store_timestamp=1),
    ],
    ids=["crc32", "scan", "find_unit", "append", "Filter.scan", "dispatch", "place"],
)
def test_the_gil_is_released(work: Callable[[Any], object], big_unit: np.ndarray[Any, Any]) -> None:
    """No thread is ever asked to give up the GIL here, so this one gets it only when the kernel lets go of it."""
    seen = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        for _ in range(10):
            begun = threading.Lock()
            done: list[bool] = []
            begun.acquire()

            def run(begun: Any = begun, done: list[bool] = done) -> None:
                begun.release()
                work(big_unit)
                done.append(True)

            worker = threading.Thread(target=run)
            worker.start()
            begun.acquire()
            seen.append(not done)
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert any(seen)


def test_threads_with_decoders_of_their_own(rng: random.Random) -> None:
    def work(seed: int) -> bool:
        rng = random.Random(seed)
        log, positions = encode_log(
            ({"body": rng.randbytes(rng.randrange(3000)), "properties": {"i": str(i)}} for i in range(300)), seed
        )
        window = np.frombuffer(log + bytes(8), np.uint8)
        for _ in range(20):
            assert scan_units(window, seed, stop=seed + len(log)).positions == positions.tolist()
        rows = decode(window, positions, native_io.COLUMNS, seed)
        return rows == [reference.decode_unit(log[at - seed :], at) for at in positions.tolist()]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, (rng.randrange(1 << 40) for _ in range(12))))


def test_threads_with_one_decoder(rng: random.Random) -> None:
    """A thread that comes in between is sent away; what was accepted is all there, and nothing else is."""
    log, positions = encode_log({"topic": "é" * 30, "body": rng.randbytes(2000)} for _ in range(300))
    builder = BatchBuilder(["commitLogOffset", "topic", "body"])
    expected = positions.tolist()
    batches = []
    accepted, refused = [], []

    def work(_: int) -> None:
        for i in range(60):
            try:
                builder.append(log, positions, base=0)
                accepted.append(i)
                if i % 5 == 0:
                    batches.append(builder.finish())
            except RuntimeError as error:
                refused.append(str(error))
            assert min(builder.decoder.rows, builder.decoder.nbytes) >= 0

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert {*refused} == {"this Decoder is in use by another thread, or failed earlier"}
    batches.append(builder.finish())
    rows = [row for batch in batches for row in rows_of(batch)]
    assert [row["commitLogOffset"] for row in rows] == expected * len(accepted)
    assert {row["topic"] for row in rows} == {"é" * 30}
