"""Random and broken units, read by the kernel, by the plain reference and by RocketMQ's own classes: who takes what.

PYTHONPATH=.:tests .venv/bin/python -m interop.decoded --units 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import random
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from oracle import reference, truth
from support.kernels import decode

from interop.rocketmq import NEWEST, Broker
from native_io import COLUMNS, Status, scan

SLOT = 4096  # bytes from the start of a unit to the end of its segment
ROUND = 2000  # units
I16, I32, I64 = 1 << 15, 1 << 31, 1 << 63

_NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "REAL_TOPIC", "ä", "a", "CLUSTER", "__CRC32#", "INNER_NUM")
_VALUES = ("A", "TagA", "1", "k1 k2  k3", "true", "\ufffd", "x\1y", "0A0B0C0D000018B4AAC20000000000010A0B", " ")
_TOPICS = (b"T", b"TopicA", b"%RETRY%g", b"SCHEDULE_TOPIC_XXXX", "é".encode(), b"\xff\xc3", b"x" * 127)
_BYTES = (b"\1", b"\2", b"\1\2", b"", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"a\1", b"\1b", b"a\1b")


class Judged(NamedTuple):
    """What each says of some bytes.

    Attributes:
        kernel: its status; OK where it takes them for a unit.
        reference: whether the reference does.
        broker: the size of the unit that a broker finds which recovers its log; -1: none.
        client: whether a consumer gets a message.
        size: totalSize as stored.
    """

    kernel: Status
    reference: bool
    broker: int
    client: bool
    size: int


# ---- units


def _properties(rng: random.Random) -> bytes:
    pairs = [f"{rng.choice(_NAMES)}\1{rng.choice(_VALUES)}".encode() for _ in range(rng.randrange(5))]
    if rng.random() < 0.2:
        pairs.insert(rng.randrange(len(pairs) + 1), rng.choice(_BYTES))
    return b"\2".join(pairs) + rng.choice((b"", b"\2"))


def _number(rng: random.Random, limit: int) -> int:
    return rng.choice((-limit, -1, 0, 1, 2, 255, limit - 1, rng.randrange(-limit, limit)))


def _fields(rng: random.Random, position: int) -> dict[str, Any]:
    body = rng.choice((b"", b"hello", rng.randbytes(rng.randrange(60)), b"x" * 300))
    sys_flag = rng.choice((0, 0, 0x10, 0x20, 0x30, 4, 8, 0xC, 0x40, 0xC0)) | rng.choice((0, 0, 0, 0x800))
    if rng.random() < 0.2:
        sys_flag |= reference.COMPRESSED | rng.choice((0, 1, 2, 3)) << 8
        body = reference.compress_body(body, sys_flag) if rng.random() < 0.8 else body
    fields: dict[str, Any] = {
        "topic": rng.choice(_TOPICS),
        "body": body,
        "properties": _properties(rng),
        "sys_flag": sys_flag,
        "physical_offset": position,
        "version": rng.choice((None, None, 2)),
    }
    if rng.random() < 0.3:
        fields |= {"queue_id": _number(rng, I32), "queue_offset": _number(rng, I64), "flag": _number(rng, I32)}
        fields |= {"reconsume_times": _number(rng, I32), "prepared_transaction_offset": _number(rng, I64)}
        times = (0, 1, -1, I64 // 1000 - 1, 1_700_000_000_000)
        fields |= {"born_timestamp": rng.choice(times), "store_timestamp": rng.choice(times)}
    if rng.random() < 0.1:
        for name, bit in (("born_host", reference.BORN_HOST_V6), ("store_host", reference.STORE_HOST_V6)):
            fields[name] = rng.randbytes(16 if sys_flag & bit else 4) + struct.pack(">i", rng.choice((0, 1, 65535)))
        if rng.random() < 0.2:
            fields["born_host"] = fields["born_host"][:-4] + struct.pack(">i", _number(rng, I32))
    return fields


_LIES = ("total_size", "magic", "body_crc", "body_length", "topic_length", "properties_length", "physical_offset")


def _lie(rng: random.Random, name: str, position: int, fields: dict[str, Any]) -> int:
    match name:
        case "magic":
            return rng.choice((reference.MAGIC_V1, reference.MAGIC_V2, reference.MAGIC_BLANK, 0, _number(rng, I32)))
        case "topic_length":
            limit = I16 if fields["version"] == 2 or len(fields["topic"]) > 127 else 128
            return rng.choice((-limit, -1, 0, 1, 5, limit - 1))
        case "properties_length":
            return rng.choice((-I16, -1, 0, 1, 5, len(fields["properties"]) + 1, I16 - 1))
        case "physical_offset":
            return rng.choice((position + 1, position - 1, _number(rng, I64)))
        case "total_size":
            return rng.choice((_number(rng, I32), rng.randrange(0, 700), SLOT - 8, SLOT - 7, SLOT))
        case _:
            return rng.choice((_number(rng, I32), rng.randrange(-5, 700)))


def broken(rng: random.Random, position: int) -> bytes:
    """A unit, mostly with something wrong."""
    fields = _fields(rng, position)
    kind = rng.random()
    if kind < 0.35:
        return reference.encode_unit(**fields)
    if kind < 0.65:
        for name in rng.choices(_LIES, k=rng.choice((1, 1, 1, 2))):
            fields[name] = _lie(rng, name, position, fields)
        return reference.encode_unit(**fields)
    unit = bytearray(reference.encode_unit(**fields))
    if kind < 0.80:
        for _ in range(rng.choice((1, 1, 2, 8))):
            unit[rng.randrange(len(unit))] ^= 1 << rng.randrange(8)
    elif kind < 0.90:
        at, size = rng.randrange(len(unit)), rng.randrange(1, 9)
        unit[at : at + size] = rng.randbytes(rng.choice((0, size, size + 1)))
        unit[:4] = struct.pack(">i", len(unit)) if rng.random() < 0.8 else unit[:4]
    elif kind < 0.95:
        del unit[rng.randrange(len(unit)) :]
    else:
        unit = bytearray(rng.randbytes(rng.randrange(400)))
    return bytes(unit)


# ---- readers


class RocketMQ:
    """A JVM with its classes, which stays up."""

    def __init__(self, home: Path, version: str = NEWEST) -> None:
        broker = Broker(version, home / "store", home)
        self._process = broker.decoder()

    def __enter__(self) -> RocketMQ:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def ask(self, units: list[bytes]) -> Iterator[tuple[int, dict[str, Any] | None]]:
        """The size that its broker finds (-1: no unit), and what its client decodes, if anything."""
        stdin, stdout = self._process.popen.stdin, self._process.popen.stdout
        assert stdin
        assert stdout
        stdin.write(struct.pack(">i", len(units)) + b"".join(struct.pack(">i", len(unit)) + unit for unit in units))
        stdin.flush()
        for _ in units:
            size, _, found = stdout.readline().partition(b"\t")
            if not found:
                raise ChildProcessError(self._process.tail())
            yield int(size), json.loads(found) if found.strip() else None


def kernel(window: memoryview, position: int) -> Status:
    positions = np.empty(8, np.int64)
    count, _, status, *_ = scan(
        window, base=0, position=position, stop=position + SLOT, segment_end=position + SLOT, verify_crc=True,
        positions=positions,
    )  # fmt: skip
    return Status.OK if count else status


def _is_unit(data: memoryview, position: int) -> bool:
    try:
        reference.check_unit(data, position, SLOT)
    except reference.Corrupt:
        return False
    return True


def _as_client(row: dict[str, Any]) -> dict[str, Any]:
    """Our row in the form of RocketMQ's classes."""
    body = row["body"]
    plain = {name: row[name] for name in row if name not in ("body", "bornTimestamp", "storeTimestamp")}
    return {**plain, "storedBody": truth.sha256(body), "storedBodyLength": len(body)}


def _host(text: str) -> str:
    address, _, port = text.rpartition(":")
    found = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    found = getattr(found, "ipv4_mapped", None) or found
    return f"{found}:{port}"


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The columns that differ."""
    return [
        name
        for name, value in _as_client(ours).items()
        if (_host(value) if name in ("bornHost", "storeHost") else value)
        != (_host(theirs[name]) if name in ("bornHost", "storeHost") else theirs[name])
    ]


def judged(theirs: RocketMQ, rng: random.Random, count: int) -> Iterator[tuple[bytes, Judged, list[str]]]:
    """Of each of a round of units what all say, and in which columns those who take it differ."""
    units = [broken(rng, at * SLOT) for at in range(count)]
    window = bytearray(count * SLOT)
    for at, unit in enumerate(units):
        window[at * SLOT : at * SLOT + len(unit)] = unit
    view = memoryview(window)
    shown = [max(len(unit) + 16, min(int.from_bytes(unit[:4], "big"), SLOT)) for unit in units]
    answers = list(theirs.ask([bytes(view[at * SLOT : at * SLOT + size]) for at, size in enumerate(shown)]))
    said = [kernel(view, at * SLOT) for at in range(count)]
    ours = np.array([at * SLOT for at in range(count) if said[at] is Status.OK], np.int64)
    rows = dict(zip(ours.tolist(), decode(view, ours, COLUMNS), strict=True))
    for at, (unit, (broker, client)) in enumerate(zip(units, answers, strict=True)):
        position = at * SLOT
        data = view[position : position + SLOT]
        sizes = int.from_bytes(unit[:4].ljust(4, b"\0"), "big", signed=True)
        found = Judged(said[at], _is_unit(data, position), broker, client is not None, sizes)
        row = rows.get(position)
        differ = [] if row is None else [f"reference {name}" for name in _unlike_reference(row, data, position)]
        if row is not None and client is not None:
            differ += differences(row, client)
        yield unit, found, differ


def _unlike_reference(row: dict[str, Any], data: memoryview, position: int) -> list[str]:
    expected = reference.decode_unit(data, position, decompress=False)
    return [name for name, value in row.items() if expected[name] != value]


# What only RocketMQ's broker takes for a unit that follows another one; see docs/format.md.
_TAKEN = {Status.BAD_PHYSICAL_OFFSET, Status.BAD_BODY_LENGTH, Status.BAD_PROPERTIES_LENGTH}
_TEXTS = {"topic", "properties", "tags", "keys", "msgId"}


def kind_of(unit: bytes, found: Judged, differ: list[str]) -> str:
    """The kind of difference, as docs/format.md has them; "all agree" for none, "?..." for one that is not there."""
    takes, is_whole = found.kernel is Status.OK, found.broker == found.size > 0
    if found.reference != takes:
        return f"? reference: {found.reference}, kernel: {found.kernel.name}"
    if not takes:
        if is_whole:
            return f"{found.kernel.name}: the broker takes it" if found.kernel in _TAKEN else f"? {found.kernel.name}"
        return f"{found.kernel.name}: the client takes it" if found.client else "all agree"
    row = reference.parse_unit(unit.ljust(found.size, b"\0"), 0)
    if not is_whole:
        delay = reference.parse_properties(row.properties).get("DELAY", "0")
        is_odd = row.topic == b"SCHEDULE_TOPIC_XXXX" and not delay.isdecimal()
        return "DELAY is no number: the broker does not take it" if is_odd else "? the broker does not take it"
    if not found.client:
        ports = (int.from_bytes(host[-4:], "big", signed=True) for host in (row.born_host, row.store_host))
        is_odd = not all(0 <= port < 1 << 16 for port in ports)
        return "a port is none: the client does not take it" if is_odd else "? the client does not take it"
    if not differ:
        return "all agree"
    is_text = set(differ) <= _TEXTS and b"\xed" in unit
    return "UTF-8 of a surrogate: one U+FFFD or three" if is_text else f"? {differ}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument("--seed", default="1")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    samples: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as home, RocketMQ(Path(home)) as theirs:
        for number in range(-(-given.units // ROUND)):
            for unit, found, differ in judged(theirs, random.Random(f"{given.seed} {number}"), ROUND):
                kind = kind_of(unit, found, differ)
                counts[kind] += 1
                samples.setdefault(kind, unit.hex())
    for kind, count in counts.most_common():
        print(f"{count:9,}  {kind}" + (f"  {samples[kind]}" if kind.startswith("?") else ""))


if __name__ == "__main__":
    main()
