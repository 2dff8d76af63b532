"""Damage to messages of the log, known by construction."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from oracle import reference

from machine.past import Damage, Message, Past


def damage(past: Past, rng: random.Random, count: int) -> None:
    """So many times, in any places; those at the log's ends, and of one queue, more often than others."""
    for _ in range(count):
        whole = [m for m in past.messages if not any(d.start <= m.position < d.stop for d in past.damages)]
        if len(whole) < 2:
            return
        message = _chosen(past, whole, rng)
        name = rng.choice(sorted(KINDS))
        before = past.path_of(message.position).read_bytes()
        done = KINDS[name](past, message, rng)
        if done is not None and _is_seen(past, done):
            past.damages.append(done)
            past.events.append(f"{done.how} at {done.start} to {done.stop}")
        else:
            past.path_of(message.position).write_bytes(before)
    past.damages.sort()


def _is_seen(past: Past, done: Damage) -> bool:
    """Is no message there a unit any more? No checksum covers the head and the properties, so a change there alone
    makes another row."""
    for m in past.messages:
        if done.start <= m.position < done.stop:
            left = past.segment_of(m.position) + past.segment_size - m.position
            try:
                reference.check_unit(past.stored(m), m.position, left)
            except reference.Corrupt:
                continue
            return False
    return True


def _chosen(past: Past, whole: list[Message], rng: random.Random) -> Message:
    if past.damages and rng.random() < 0.4:  # another one of the same queue
        first = next(m for m in past.messages if m.end > past.damages[0].start)
        same = [m for m in whole if m.queue == first.queue]
        if same:
            return rng.choice(same)
    return rng.choice((whole[-1], whole[0], *[rng.choice(whole)] * 4))


def overwrite(past: Past, position: int, data: bytes) -> None:
    with past.path_of(position).open("r+b") as file:
        file.seek(position % past.segment_size)
        file.write(data)


def _body(past: Past, m: Message, rng: random.Random) -> Damage | None:
    """A flipped bit in the body: only the CRC tells."""
    data = past.stored(m)
    at, size = _body_place(data)
    if not size:
        return None
    at += rng.randrange(size)
    overwrite(past, m.position + at, bytes([data[at] ^ 1 << rng.randrange(8)]))
    return Damage(m.position, m.end, "body", keeps_head=True)


def _body_place(data: bytes) -> tuple[int, int]:
    (flags,) = struct.unpack_from(">i", data, 36)
    at = 48 + (20 if flags & 0x10 else 8) + 8 + (20 if flags & 0x20 else 8) + 12
    return at + 4, struct.unpack_from(">i", data, at)[0]


def _field(name: str, at: int, form: str, values: tuple[int, ...]) -> Callable[..., Damage | None]:
    """Another number in a field that is checked."""

    def change(past: Past, m: Message, rng: random.Random) -> Damage | None:
        value = rng.choice(values)
        new = struct.pack(form, value)
        if past.stored(m)[at : at + len(new)] == new:
            return None
        overwrite(past, m.position + at, new)
        return Damage(m.position, m.end, f"{name} {value}", keeps_head=name == "totalSize")

    return change


def _lengths(past: Past, m: Message, rng: random.Random) -> Damage:
    at = _body_place(past.stored(m))[0] - 4
    overwrite(past, m.position + at, struct.pack(">i", rng.choice((-1, 1 << 20, m.size, 7777))))
    return Damage(m.position, m.end, "bodyLength", keeps_head=True)


def _zeros(past: Past, m: Message, rng: random.Random) -> Damage:
    overwrite(past, m.position, bytes(m.size))
    return Damage(m.position, m.end, "zeros", keeps_head=False, is_zero=True)


def _zero_head(past: Past, m: Message, rng: random.Random) -> Damage:
    overwrite(past, m.position, bytes(rng.choice((8, 20, 64, 88))))
    return Damage(m.position, m.end, "zero head", keeps_head=False)


def _noise(past: Past, m: Message, rng: random.Random) -> Damage:
    overwrite(past, m.position, rng.randbytes(rng.choice((8, m.size, m.size))))
    return Damage(m.position, m.end, "noise", keeps_head=False)


def _stretch(past: Past, m: Message, rng: random.Random) -> Damage | None:
    """Zeros or noise from the middle of a message to the middle of a later one in its segment, as a bad sector is."""
    here = [each for each in past.messages if past.segment_of(each.position) == past.segment_of(m.position)]
    number = here.index(m)
    last = here[min(len(here) - 1, number + rng.randrange(1, 4))]
    start, stop = m.position + rng.randrange(m.size // 2), last.position + rng.randrange(8, last.size)
    start, stop = sorted((start, max(stop, start + 8)))
    stop = min(stop, last.end)
    is_zero = rng.random() < 0.5
    before = past.stored(m)
    keeps_head = start - m.position >= _body_place(before)[0]
    if not keeps_head and start - m.position >= 56:
        return None  # whether its time can still be read is not for this model to say
    overwrite(past, start, bytes(stop - start) if is_zero else rng.randbytes(stop - start))
    if past.stored(m) == before:
        return None
    return Damage(m.position, last.end, "a stretch", keeps_head, is_zero=is_zero and start == m.position)


def _blank(past: Past, m: Message, rng: random.Random) -> Damage | None:
    """The 8 bytes that close a segment; no message is touched."""
    here = [each for each in past.messages if past.segment_of(each.position) == past.segment_of(m.position)]
    at = here[-1].end
    if past.segment_of(at) == past.segment_of(past.messages[-1].position) or at % past.segment_size == 0:
        return None
    if any(d.start <= at <= d.stop for d in past.damages):
        return None
    overwrite(past, at + rng.choice((0, 4)), rng.choice((bytes(4), rng.randbytes(4))))
    return Damage(at, past.segment_of(at) + past.segment_size, "blank", keeps_head=False, is_blank=True)


KINDS: dict[str, Callable[[Past, Message, random.Random], Damage | None]] = {
    "body": _body,
    "magic": _field("magic", 4, ">i", (0, 7, -1)),
    "size": _field("totalSize", 0, ">i", (0, -1, 90, 91, 200, 1 << 20)),
    "physical offset": _field("physicalOffset", 28, ">q", (0, -1, 5, 1 << 40)),
    "lengths": _lengths,
    "zeros": _zeros,
    "zero head": _zero_head,
    "noise": _noise,
    "stretch": _stretch,
    "blank": _blank,
}
