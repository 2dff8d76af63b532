"""Random stores whose log is damaged in one place or several, and what of it has to come: what the plain reference
says is whole.

The log may have been cut and gone on (so that old units and queue units are left behind its end), may not begin at 0,
and queues may be lost: of deleted topics, single ones, all.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle import reference, stores
from oracle.aged_stores import BATCHES, make_batches

Row = dict[str, Any]

_PAGE = 4096


@dataclass
class DamagedLog:
    """A closed store with damage.

    Attributes:
        rows: its whole messages, in the order of the log.
        lost: the live messages that are not whole, ascending.
        is_damaged: whether anything live is not what it was, blanks included; what no check covers does not count.
        is_told: whether an error has to say that something is damaged; None where nothing in the store can tell.
        is_unsure: nothing can tell what is left over from a cut log from what is live.
        story: what happened to it.
    """

    store: stores.StoreBuilder
    rows: list[Row] = field(default_factory=list)
    lost: list[stores.Stored] = field(default_factory=list)
    is_damaged: bool = False
    is_told: bool | None = False
    is_unsure: bool = False
    story: list[str] = field(default_factory=list)


def damaged_log(root: Path, rng: random.Random, least: int = 0, batches: bool = False) -> DamagedLog:
    """A store with `least` damages or more. With `batches` one of its topics has batches, in BatchCQs.

    No two histories may make the same bytes: what a cut log goes on with is a minute newer than what was cut off.
    """
    segment_size = rng.choice((1024, 4096, 4096, 16_384))
    store = stores.StoreBuilder(
        root, segment_size, rng.choice((200, 1000, 20_000)), start=rng.choice((0, 0, 3)) * segment_size
    )
    found = DamagedLog(store)
    largest = rng.choice((40, 200, 600))
    topics = (*_TOPICS, BATCHES, BATCHES) if batches else _TOPICS
    for _ in range(rng.randrange(1, 60)):
        _append(store, rng, largest, topics)
    kept = 0  # messages that came before the last cut
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        if len(store.messages) > 2:
            newest = store.messages[-1].store_timestamp
            store.forget_last(rng.randrange(1, min(30, len(store.messages))))
            kept = len(store.messages)
            store.now = newest + 60_000
            store.append("New", b"n" * rng.randrange(700, 800))
            for _ in range(rng.randrange(12)):
                _append(store, rng, largest, topics)
            found.story.append(f"cut at message {kept}")
    store.close(clean=rng.random() < 0.6)
    is_plain = len(list(reference.read_units(root))) == len(store.messages)  # else an old one begins just at the end
    if batches:
        make_batches(store)
    _lose_queues(found, rng)
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 5))) if not least else range(rng.randrange(least, least + 3)):
        rng.choice(_DAMAGES)(found, rng)
    _judge(found, kept)
    found.is_unsure |= not is_plain
    return found


_TOPICS = ("T0", "T1", "Gone0", "Gone1", "Light")


def _append(store: stores.StoreBuilder, rng: random.Random, largest: int, topics: Sequence[str]) -> None:
    topic = rng.choice(topics)
    if topic == BATCHES and rng.random() < 0.8:
        _append_batch(store, rng, largest)
        return
    store.append(
        topic,
        rng.randbytes(rng.choice((0, 20, rng.randrange(largest)))),
        rng.randrange(2),
        tags=rng.choice((None, "TagA")),
        sys_flag=reference.PREPARED if rng.random() < 0.1 else 0,
        store_timestamp=store.now + rng.choice((0, 1, 1, 1000)),
    )


def _append_batch(store: stores.StoreBuilder, rng: random.Random, largest: int) -> None:
    count, queue_id = rng.choice((1, 2, 3, 5)), rng.randrange(2)
    inner = [
        reference.Inner(rng.randbytes(rng.randrange(largest // count)), b"UNIQ_KEY\x01%d\x02" % number)
        for number in range(count)
    ]
    store.append(
        BATCHES,
        reference.encode_batch(inner),
        queue_id,
        sys_flag=reference.BATCH,
        messages=count,
        properties={"INNER_BASE": str(store.next_offset(BATCHES, queue_id)), "INNER_NUM": str(count)},
        store_timestamp=store.now + rng.choice((0, 1, 1, 1000)),
    )


def _lose_queues(found: DamagedLog, rng: random.Random) -> None:
    chance = rng.random()
    if chance < 0.15:
        found.store.drop_queues()
        shutil.rmtree(found.store.root / "batchconsumequeue", ignore_errors=True)
        found.story.append("no queues")
        return
    for path in sorted(found.store.root.glob("*consumequeue/*/*")):
        if (path.parent.name.startswith("Gone") and chance < 0.6) or rng.random() < 0.1:
            shutil.rmtree(path)
            found.story.append(f"without {path.parent.name}/{path.name}")


# ---- damages


def _change(found: DamagedLog, at: int, data: bytes, what: str) -> None:
    path = found.store.segment(at)
    with path.open("r+b") as file:
        file.seek(at % found.store.segment_size)
        file.write(data[: found.store.segment_size - at % found.store.segment_size])
    found.story.append(f"{what} at {at}, {len(data)} bytes")


def _somewhere(found: DamagedLog, rng: random.Random) -> stores.Stored:
    """A message; often one of the last."""
    messages = found.store.messages
    return rng.choice(messages[-3:] if rng.random() < 0.3 else messages)


def _flip(found: DamagedLog, rng: random.Random) -> None:
    """A bit that a check covers: of a size, magic, CRC, offset or body."""
    message = _somewhere(found, rng)
    unit = _bytes_of(found, message)
    body = int.from_bytes(unit[84:88], "big", signed=True)
    inside = rng.choice((*range(8), *range(28, 36), *range(84, 88), *range(88, min(88 + max(body, 0), len(unit)))))
    _change(found, message.position + inside, bytes([unit[inside] ^ 1 << rng.randrange(8)]), "a bit")


def _stretch(found: DamagedLog, rng: random.Random) -> tuple[int, int]:
    message = _somewhere(found, rng)
    at = message.position + rng.choice((0, 0, rng.randrange(message.size)))
    return at, rng.choice((message.size, rng.randrange(1, 2000), rng.randrange(1, 300)))


def _zeros(found: DamagedLog, rng: random.Random) -> None:
    at, size = _stretch(found, rng)
    size = min(size, found.store.end - at)
    _change(found, at, bytes(size), "zeros")


def _noise(found: DamagedLog, rng: random.Random) -> None:
    at, size = _stretch(found, rng)
    _change(found, at, rng.randbytes(min(size, found.store.end - at)), "noise")


def _zero_page(found: DamagedLog, rng: random.Random) -> None:
    """A page of the disk, or what of it is in the log."""
    page = rng.choice((512, _PAGE))
    at = max(_somewhere(found, rng).position // page * page, found.store.start)
    _change(found, at, bytes(min(page, found.store.end - at)), "a zero page")


def _zero_message(found: DamagedLog, rng: random.Random) -> None:
    message = _somewhere(found, rng)
    _change(found, message.position, bytes(message.size), "a zero message")


_DAMAGES: tuple[Callable[[DamagedLog, random.Random], None], ...] = (
    _flip,
    _flip,
    _zeros,
    _noise,
    _zero_page,
    _zero_message,
)


# ---- what has to come of it


def _bytes_of(found: DamagedLog, message: stores.Stored) -> bytes:
    begin = message.position % found.store.segment_size
    with found.store.segment(message.position).open("rb") as file:
        file.seek(begin)
        return file.read(message.size)


def _is_whole(found: DamagedLog, message: stores.Stored) -> bool:
    left = found.store.segment_size - message.position % found.store.segment_size
    try:
        return reference.check_unit(_bytes_of(found, message), message.position, left) == message.size
    except reference.Corrupt:
        return False


def _judge(found: DamagedLog, kept: int) -> None:
    store = found.store
    whole = [message for message in store.messages if _is_whole(found, message)]
    found.rows = [
        {name: value for name, value in row.items() if name != "batchIndex"}
        for message in whole
        for row in reference.rows_of_unit(_bytes_of(found, message), message.position)
    ]
    found.lost = [message for message in store.messages if message not in whole]
    found.is_damaged = bool(found.lost) or not all(map(_has_blank, _ended(store)))
    last = store.messages.index(whole[-1]) if whole else -1
    # What is left over is older than any message that came after it was cut off. Without one nothing can tell; nor
    # where the blank before it is lost, or the time of a damaged message is not what it was.
    is_cut = kept > 0
    is_sure = (
        last >= kept and all(map(_has_blank, _ended(store))) and all(_has_time(found, each) for each in found.lost)
    )
    found.is_unsure = is_cut and not is_sure
    after = store.messages[last + 1 :]
    if not found.is_damaged:
        found.is_told = False
    elif len(after) == len(found.lost) and all(map(_has_blank, _ended(store, before=whole[-1].end if whole else 0))):
        found.is_told = True if after and _is_proved(found, after) else None
    else:
        found.is_told = True


def _ended(store: stores.StoreBuilder, before: int | None = None) -> list[tuple[Path, int]]:
    """The segments that ended with a blank, each with where that is; of those that begin before an offset."""
    found = []
    size = store.segment_size
    for one, other in zip(store.messages, store.messages[1:], strict=False):
        if one.position // size != other.position // size and (before is None or one.end < before):
            found.append((store.segment(one.position), one.end % size))
    return found


def _has_blank(place: tuple[Path, int]) -> bool:
    path, at = place
    data = path.read_bytes()
    return reference.is_blank(data[at : at + reference.BLANK_SIZE], len(data) - at)


def _has_time(found: DamagedLog, message: stores.Stored) -> bool:
    return int.from_bytes(_bytes_of(found, message)[56:64]) in (0, message.store_timestamp)


def _is_proved(found: DamagedLog, after: list[stores.Stored]) -> bool:
    """Do the queues prove that there were messages after the last whole one: the first of them, of which something is
    left, or one that is whole but for its body?"""
    first = after[0]
    unit = _bytes_of(found, first)
    return _is_queued(found, first) and unit[:28] == _head_of(found, first) and any(unit)


def _head_of(found: DamagedLog, message: stores.Stored) -> bytes:
    """What its first fields would be, but for the CRC and the flag."""
    unit = _bytes_of(found, message)
    fields = (message.size, unit[4:8], unit[8:12], message.queue_id, unit[16:20], message.queue_offset)
    size, magic, crc, queue_id, flag, offset = fields
    return b"".join((size.to_bytes(4, "big"), magic, crc, queue_id.to_bytes(4, "big"), flag, offset.to_bytes(8, "big")))


def _is_queued(found: DamagedLog, message: stores.Stored) -> bool:
    """Does a file of its queue have it?"""
    if not message.queued:
        return False
    if message.topic == BATCHES:
        files = (found.store.root / "batchconsumequeue" / BATCHES / str(message.queue_id)).glob("*")
        return any(message.position.to_bytes(8, "big") in path.read_bytes() for path in files)
    units = found.store.queue_file_size // reference.QUEUE_UNIT_SIZE
    directory = found.store.queue_directory(message.topic, message.queue_id)
    path = directory / f"{message.queue_offset // units * found.store.queue_file_size:020d}"
    return path.exists()
