"""The log ends where it does: in clean, killed, truncated and reused, torn and live stores."""

from __future__ import annotations

import fcntl
import multiprocessing
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, stores
from support import reading
from support.patience import HANG
from support.reading import read

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store import claims, log_end
from rmqstore_spark.store.format.message import Head
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue

Row = dict[str, Any]


def _builder(root: Path, count: int = 30, **arguments: Any) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, **{"segment_size": 2048, **arguments})
    for i in range(count):
        _append(store, i)
    return store


def _append(store: stores.StoreBuilder, i: int, **fields: Any) -> int:
    return store.append(topic=f"T{i % 2}", body=b"b%d" % i * (i % 9), queue_id=i % 3 // 2, tags="TagA", **fields)


def _assert_reads(root: Path, expected: list[Row]) -> None:
    """In every mode, and split as finely as possible: these rows, and no damage."""
    for mode in reading.MODES:
        for size in (1, 1 << 30):
            sound, corrupt = reading.sound_and_corrupt(
                read(root, columns=[*reading.DEFAULT_COLUMNS, "corrupt"], mode=mode, maxPartitionBytes=size)
            )
            assert corrupt == []
            assert sound == expected


# ---- truncated and reused: the old messages and their queue units stay on disk behind the new end


@pytest.mark.slow
def test_log_truncated_and_reused_at_random(tmp_path: Path, rng: random.Random) -> None:
    for number in range(40):
        root = tmp_path / str(number)
        store = stores.StoreBuilder(root, segment_size=rng.choice((2048, 4096)))
        clock = 0
        for count in (rng.randrange(2, 40), rng.randrange(6), rng.randrange(6)):
            for _ in range(count):
                store.append(
                    topic=f"T{rng.randrange(3)}",
                    queue_id=rng.randrange(2),
                    body=b"x" * rng.choice((rng.randrange(50), rng.randrange(1200))),
                    sys_flag=rng.choice((0, 0, 0, reference.PREPARED)),
                )
            clock = max(clock, store.now) + 60_000  # the builder's own clock goes back with the log
            if len(store.messages) > 1:
                store.forget_last(rng.randrange(1, len(store.messages)))
                store.now = clock
        store.append(body=b"the last one")
        store.close(clean=rng.random() < 0.5)
        if rng.random() < 0.4:
            store.drop_queues()
        expected = reference.read_store(root)
        if len(expected) == len(store.messages):  # else an old message starts exactly at the end
            _assert_reads(root, expected)
        shutil.rmtree(root)


def test_half_messages_prove_that_the_log_goes_on(tmp_path: Path) -> None:
    """They are in no queue, and their queueOffset is 0 and says nothing of others."""
    for name, flags in (("only half messages follow", (0, 0, 4, 4)), ("one came before", (4, 0, 0))):
        store = stores.StoreBuilder(tmp_path / name)
        for number, flag in enumerate(flags):
            store.append(topic="T" if flag or number == len(flags) - 1 else "Other", body=b"b", sys_flag=flag)
        store.close()
        store.drop_queues()
        expected = reference.read_store(tmp_path / name)
        path = store.segment(0)
        data = bytearray(path.read_bytes())
        data[store.messages[1].position + 4] ^= 1
        path.write_bytes(data)
        with pytest.raises(DamagedStoreError, match=f"commitLogOffset {store.messages[1].position}"):
            read(tmp_path / name)
        assert read(tmp_path / name, mode="DROPMALFORMED") == expected[:1] + expected[2:]


def test_old_message_that_begins_in_the_last_bytes(tmp_path: Path) -> None:
    """The zero bytes at the end of the last message can be the first of an old one, which its queue still knows."""
    store = stores.StoreBuilder(tmp_path)
    store.append(topic="Old")
    for _ in range(4):
        store.append(topic="T", body=b"b" * 20)
    old = store.append(topic="Old", body=b"x" * 300)
    store.append(topic="T", body=b"b" * 20)
    store.forget_last(4)
    store.now += 60_000
    store.append(topic="T", body=b"b" * (old - store.end - len(reference.encode_unit(topic="T")) + 2))
    assert store.end == old + 2  # it ends with a propertiesLength of 0
    for clean in (True, False):
        store.close(clean)
        _assert_reads(tmp_path, reference.read_store(tmp_path))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("forgotten", [1, 2, 3, 7, 25])
@pytest.mark.slow
def test_remains_of_a_truncated_log(tmp_path: Path, forgotten: int, with_queues: bool, clean: bool) -> None:
    for number, added in enumerate((1, 2, 5)):
        root = tmp_path / str(number)
        store = _builder(root)
        old = {message.position for message in store.messages[-forgotten:]}
        store.forget_last(forgotten)
        store.now += 60_000  # a restart takes longer than that
        for i in range(added):
            store.append(topic="T0", body=b"new" * (4 + 7 * i), tags="TagB")
        if store.end in old:
            continue  # an old message that starts exactly at the new end is as good as a live one, to a broker as well
        store.close(clean)
        if not with_queues:
            store.drop_queues()
        expected = reference.read_store(root)
        assert len(expected) == 30 - forgotten + added
        _assert_reads(root, expected)


def _assert_lost(root: Path, kept: list[Row]) -> None:
    """These rows, and that more was there is said."""
    with pytest.raises(DamagedStoreError):
        read(root)
    assert read(root, mode="DROPMALFORMED") == kept
    sound, corrupt = reading.sound_and_corrupt(read(root, mode="PERMISSIVE"))
    assert sound == kept
    assert corrupt


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("added", [1, 2, 5])
@pytest.mark.parametrize("field", ["body", "bodyCRC", "topicLength", "propertiesLength"])
def test_damage_right_after_a_truncation(
    tmp_path: Path, field: str, added: int, with_queues: bool, clean: bool
) -> None:
    """The first new message is damaged. The old ones after the new end are newer than all that is whole before it; but
    they are older than it."""
    store = _builder(tmp_path, segment_size=8192)
    store.forget_last(9)
    store.now += 60_000
    first = store.append(topic="T0", body=b"new" * 5, tags="TagB")
    for i in range(1, added):
        store.append(topic="T0", body=b"new" * (4 + 7 * i), tags="TagB")
    store.close(clean)
    if not with_queues:
        store.drop_queues()
    expected = reference.read_store(tmp_path)
    assert len(expected) == 21 + added
    path = store.segment(first)
    data = bytearray(path.read_bytes())
    inside = {"body": 90, "bodyCRC": 9, "topicLength": 88 + 15, "propertiesLength": 88 + 15 + 3}[field]
    data[first - int(path.name) + inside] ^= 0x55
    path.write_bytes(data)
    kept = [row for row in expected if row["commitLogOffset"] != first]
    if clean or added > 1 or with_queues:
        _assert_lost(tmp_path, kept)
        return
    for mode in ("DROPMALFORMED", "PERMISSIVE"):
        assert (
            reading.sound_and_corrupt(read(tmp_path, columns=[*reading.DEFAULT_COLUMNS, "corrupt"], mode=mode))[0]
            == kept
        )


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("sizes", [(300, 100), (100, 100), (20, 400)])
def test_an_old_unit_of_a_queue_reaches_over_a_later_message(
    tmp_path: Path, sizes: tuple[int, int], clean: bool
) -> None:
    """The first new message is in no queue, and of its head nothing is left. An old unit points there, and to its old
    end, where the old log goes on."""
    store = stores.StoreBuilder(tmp_path, segment_size=8192, queue_file_size=2000)
    for number in range(12):
        store.append(topic="A", body=b"a" * (600 if number > 5 else 10))
    store.forget_last(6)
    store.now += 60_000
    lost = store.append(topic="A", body=b"x" * sizes[0], sys_flag=reference.PREPARED)
    store.append(topic="B", body=b"y" * sizes[1])
    store.close(clean)
    kept = [row for row in reference.read_store(tmp_path) if row["commitLogOffset"] != lost]
    data = bytearray(store.segment(lost).read_bytes())
    data[lost : lost + 88] = bytes(88)
    store.segment(lost).write_bytes(data)
    _assert_lost(tmp_path, kept)


def test_what_nothing_can_tell_from_a_truncation(tmp_path: Path) -> None:
    """Two histories, the same bytes: in one the last messages are live, in the other left over. What tells them apart
    is the message before them, and that is lost. They are taken for live: to leave out a live message is worse."""
    for name in ("live", "truncated"):
        store = _builder(tmp_path / name, 6, segment_size=8192)
        if name == "live":
            lost = store.append(topic="T1", body=b"lost")
        else:
            store.append(topic="T1", body=b"ever")
        for i in range(2):
            store.append(topic="T0", body=b"last", store_timestamp=1_800_000_000_000 + i)
        if name == "truncated":
            store.forget_last(3)
            store.append(topic="T1", body=b"lost", store_timestamp=1_900_000_000_000)
        store.close(clean=False)
        (tmp_path / name / "checkpoint").unlink()  # its times are those of the last flush: any, after a crash
        path = store.segment(lost)
        data = bytearray(path.read_bytes())
        size = store.messages[-1].size if name == "truncated" else store.messages[-3].size
        data[lost : lost + size] = b"\xff" * size
        path.write_bytes(data)
    live, truncated = tmp_path / "live", tmp_path / "truncated"
    names = sorted(path.relative_to(live) for path in live.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(truncated) for path in truncated.rglob("*") if path.is_file())
    assert all((live / name).read_bytes() == (truncated / name).read_bytes() for name in names)
    for root in (live, truncated):
        with pytest.raises(DamagedStoreError):
            read(root)
        assert [row["topic"] for row in read(root, mode="DROPMALFORMED")][-2:] == ["T0", "T0"]


@pytest.mark.parametrize("with_queues", [True, False])
def test_remains_behind_a_blank(tmp_path: Path, with_queues: bool) -> None:
    """A truncated log goes on with a message that does not fit into what is left of the segment: the blank hides old
    messages, which their queues still know."""
    store = stores.StoreBuilder(tmp_path, segment_size=4096, queue_file_size=2000)
    for i in range(62):
        store.append(topic=f"T{i % 2}", body=b"b" * 20, msg_id=f"U{i}")
    cut = next(n for n, message in enumerate(store.messages) if message.position > 4096 + 2500)
    store.forget_last(len(store.messages) - cut)
    store.now += 60_000
    store.append(topic="T0", body=b"n" * 100)
    blank = store.end
    for _ in range(3):
        store.append(topic="T0", body=b"n" * 1500)
    store.close()
    if not with_queues:
        store.drop_queues()
    segment = (tmp_path / "commitlog" / f"{4096:020d}").read_bytes()
    assert reference.is_blank(segment[blank - 4096 :][:8], 8192 - blank)
    assert b"UNIQ_KEY" in segment[blank - 4096 :]
    expected = reference.read_store(tmp_path)
    _assert_reads(tmp_path, expected)
    for size in (100, 500, 1500, 3000):
        assert read(tmp_path, maxPartitionBytes=size) == expected

    # The same with damage before the blank: what lies behind it stays hidden.
    last = max(row["commitLogOffset"] for row in expected if row["commitLogOffset"] < blank)
    path = tmp_path / "commitlog" / f"{4096:020d}"
    for at in (last, last + 4, last + 30, blank, blank + 4):
        damaged = bytearray(segment)
        damaged[at - 4096] ^= 0x55
        path.write_bytes(damaged)
        with pytest.raises(DamagedStoreError, match=f"commitLogOffset {min(at, last if at < blank else blank)}"):
            read(tmp_path)
        left = [row for row in expected if at >= blank or row["commitLogOffset"] != last]
        for size in (1, 1 << 30):
            assert read(tmp_path, mode="DROPMALFORMED", maxPartitionBytes=size) == left


@pytest.mark.parametrize("with_queues", [True, False])
def test_killed_store(tmp_path: Path, with_queues: bool, rng: random.Random) -> None:
    store = _builder(tmp_path, rng.randrange(5, 60))
    store.close(clean=False)
    if not with_queues:
        store.drop_queues()
    _assert_reads(tmp_path, reference.read_store(tmp_path))


# ---- the last message is torn


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", [0, 1, 4])
@pytest.mark.parametrize("before", [0, 3, 12])
def test_torn_last_message_is_absent(tmp_path: Path, before: int, forgotten: int) -> None:
    """A broker that was killed, or is at it right now: every cut of the last message, with nothing behind it or with
    the remains of older ones."""
    store = _builder(tmp_path, before + forgotten, segment_size=4096)
    if forgotten:
        store.forget_last(forgotten)
        store.now += 60_000
    if forgotten > 1:
        store.append(body=b"the first one after the restart")
        before += 1
    store.flush()
    expected = reference.read_store(tmp_path)[:before]
    background = store.segment(store.end).read_bytes() if before or forgotten else bytes(4096)
    at = store.append(topic="Torn", body=b"torn body " * 10, keys="a key", queue_id=7)
    store.close(clean=False)
    path = store.segment(at)
    whole = path.read_bytes()
    size = store.messages[-1].size
    shutil.rmtree(tmp_path / "consumequeue" / "Torn")  # dispatched only when it is whole
    inside = at % 4096
    # With one forgotten, its queue unit points exactly here: until its head is overwritten, it could just as well be
    # that message, damaged.
    for cut in range(20 if forgotten == 1 else 0, size):
        path.write_bytes(whole[: inside + cut] + background[inside + cut :])
        if cut >= size - len("KEYS=a key "):  # no check covers the properties' text: a broker would take it as it is
            expected = reference.read_store(tmp_path)
            assert len(expected) == before + 1
        for mode in ("FAILFAST", "PERMISSIVE") if cut % 9 else reading.MODES:
            assert read(tmp_path, columns=reading.DEFAULT_COLUMNS, mode=mode) == expected, cut
    path.write_bytes(whole)
    assert len(read(tmp_path)) == before + 1


@pytest.mark.parametrize("has_unit", [True, False])
def test_properties_of_the_last_message_torn_at_a_page(tmp_path: Path, has_unit: bool) -> None:
    """No check covers them: without their page it would be a message of other keys. As one of nothing but zeros, it is
    not there yet."""
    builder = stores.StoreBuilder(tmp_path, 1 << 16)
    while True:
        at = builder.append("A", b"x" * 100, 0, "tag", "k" * 150)
        end = at + builder.messages[-1].size
        page = end // log_end.PAGE * log_end.PAGE
        if at < page < end - 5 and end - page < 120:
            break
    builder.close(clean=False)
    path = builder.segment(at)
    whole = path.read_bytes()
    rows = read(tmp_path)
    if not has_unit:
        shutil.rmtree(tmp_path / "consumequeue")
    path.write_bytes(whole[:page].ljust(len(whole), b"\0"))
    assert read(tmp_path) == rows[:-1]
    path.write_bytes(whole[: page + 1].ljust(len(whole), b"\0"))  # what a copier does not leave
    assert len(read(tmp_path)) == len(rows)


@pytest.mark.slow
def test_last_message_with_a_wrong_crc(tmp_path: Path) -> None:
    """A torn message of a killed broker, unless a ConsumeQueue knows it: then it was whole once."""
    store = _builder(tmp_path, 10)
    store.append(topic="Torn", body=b"torn body " * 10)
    store.close(clean=False)
    path = store.segment(store.end)
    expected = reference.read_store(tmp_path)[:-1]
    data = path.read_bytes()
    path.write_bytes(data.replace(b"torn body ", b"torn BODY ", 1))
    with pytest.raises(DamagedStoreError, match="bodyCRC differs"):
        read(tmp_path)
    assert read(tmp_path, mode="DROPMALFORMED") == expected
    shutil.rmtree(tmp_path / "consumequeue" / "Torn")
    _assert_reads(tmp_path, expected)
    store.drop_queues()
    _assert_reads(tmp_path, expected)


# ---- a bit of the last message is flipped


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
def test_flipped_bit_in_the_last_message(tmp_path: Path, clean: bool) -> None:
    """Its ConsumeQueue tells: it is never silently missing."""
    store = _builder(tmp_path, 5)
    at = store.append(topic="Flip", body=b"body")
    store.close(clean)
    expected = reference.read_store(tmp_path)
    path = store.segment(at)
    whole = path.read_bytes()
    last = store.messages[-1]
    # The oracle's unit has a topic of 6 bytes and one of 4 for properties; this one has 4 and none.
    fields = (field for name, field in reference.UNPROTECTED.items() if name not in ("topic", "properties"))
    unprotected = {n for field in fields for n in field}
    at_topic = 84 + 4 + 4 + 1
    unprotected |= set(range(at_topic, at_topic + 4))
    _assert_flips_are_told(tmp_path, path, whole, last, expected, unprotected)


def _assert_flips_are_told(
    root: Path, path: Path, whole: bytes, last: stores.Stored, expected: list[Row], unprotected: set[int]
) -> None:
    begin = last.position - int(path.name)
    for bit in range(last.size * 8):
        flipped = bytearray(whole)
        flipped[begin + bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        host_bit = bit // 8 == 39 and bit % 8 in (4, 5)
        if bit // 8 in unprotected and not host_bit:
            compressed = bit // 8 == 39 and bit % 8 == 0
            if compressed:
                with pytest.raises(DamagedStoreError, match="should be zlib-compressed"):
                    read(root)
                continue
            rows = read(root)
            assert rows[:-1] == expected[:-1], bit
            changed = {name for name in expected[-1] if rows[-1][name] != expected[-1][name]}
            assert 1 <= len(changed) <= 2, bit  # storeHost is in offsetMsgId too
        else:
            with pytest.raises(DamagedStoreError):
                read(root)
            assert read(root, mode="DROPMALFORMED") == expected[:-1], bit


# ---- where ConsumeQueue and log disagree at the end


def test_queues_copied_later_than_the_log(tmp_path: Path) -> None:
    """They point to where there are only zeros, or no segment: the messages never came here."""
    store = _builder(tmp_path, 60)
    store.close()
    expected = reference.read_store(tmp_path)
    kept = [row for row in expected if row["commitLogOffset"] < store.messages[40].position]
    path = store.segment(store.messages[40].position)
    inside = store.messages[40].position % 2048
    path.write_bytes(path.read_bytes()[:inside] + bytes(2048 - inside))
    for segment in reference.segment_files(tmp_path):
        if segment.name > path.name:
            segment.unlink()
    _assert_reads(tmp_path, kept)


def test_zeros_for_a_queue_unit_before_bytes_that_no_queue_knows(tmp_path: Path) -> None:
    """The last message never came here: what stands behind it is no message of any queue, and proves nothing."""
    store = _builder(tmp_path)
    store.close()
    expected = reference.read_store(tmp_path)
    last = store.messages[-1]
    path = store.segment(last.position)
    data = bytearray(path.read_bytes())
    begin, end = last.position % 2048, last.end % 2048
    assert begin < end < 2000
    data[begin:end] = bytes(end - begin)
    data[end : end + 8] = b"\x7f" * 8
    path.write_bytes(data)
    _assert_reads(tmp_path, expected[:-1])


@pytest.mark.parametrize("checkpoint", [None, b"", b"short", bytes(4096), b"\x7f" * 24, b"\xff" * 4096])
def test_checkpoint_is_only_a_hint(tmp_path: Path, checkpoint: bytes | None) -> None:
    store = _builder(tmp_path)
    store.close()
    if checkpoint is None:
        (tmp_path / "checkpoint").unlink()
    else:
        (tmp_path / "checkpoint").write_bytes(checkpoint)
    _assert_reads(tmp_path, reference.read_store(tmp_path))


def test_end_is_found_from_the_queues(tmp_path: Path) -> None:
    """A clean store with queues is not walked through."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 24, queue_file_size=20_000)
    for i in range(2000):
        store.append(topic=f"T{i % 2}", body=b"x" * 2000)
    store.close()
    assert reading.make_plan(tmp_path).files.bytes < 64 * 1024
    (tmp_path / "checkpoint").unlink()
    assert reading.make_plan(tmp_path).files.bytes > 2000 * 2000


# ---- live


def test_the_end_costs_no_more_with_more_queues(tmp_path: Path) -> None:
    """Clean or killed: where only zeros follow, no queue can know of a lost message."""
    for clean in (True, False):
        requests = []
        for queues in (10, 400):
            root = tmp_path / f"{clean}-{queues}"
            store = stores.StoreBuilder(root, segment_size=1 << 20, queue_file_size=200)
            for number in range(800):
                store.append(topic=f"T{number % queues:03d}", body=b"x" * 100)
            store.close(clean)
            requests.append(reading.make_plan(root).files.requests)
        assert requests[1] <= requests[0] + 2, clean


def test_queues_are_asked_once_about_a_damaged_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no queue, nothing tells where it ends, and its time is later than those of the messages behind it."""
    store = stores.StoreBuilder(tmp_path)
    for number in range(20):
        store.append(topic=f"T{number}")
    half = store.append(topic="T0", body=b"x" * 100, sys_flag=reference.PREPARED)
    for number in range(20):
        store.append(topic=f"T{number}")
    store.close(clean=False)
    path = store.segment(half)
    data = bytearray(path.read_bytes())
    at = half - int(path.name)
    data[at : at + 4] = b"\xff" * 4  # totalSize
    data[at + 84 : at + 88] = b"\xff" * 4  # bodyLength
    data[at + 56 : at + 64] = (store.now + 1_000_000).to_bytes(8)  # storeTimestamp
    path.write_bytes(data)
    asked: list[tuple[str, int]] = []
    claim = claims.ClaimSearch._of_queue

    def counting(self: claims.ClaimSearch, queue: Queue, position: int, head: Head) -> claims.Claim | None:
        asked.append((queue.topic, position))
        return claim(self, queue, position, head)

    monkeypatch.setattr(claims.ClaimSearch, "_of_queue", counting)
    assert Snapshot.find(str(tmp_path), Files()).end > half
    assert asked == [(f"T{number}", half) for number in sorted(range(20), key=str)]


@pytest.mark.slow
def test_a_lost_message_among_many_queues(tmp_path: Path) -> None:
    """What is left after the end is no unit, and one queue of many points there."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 20, queue_file_size=200)
    for number in range(800):
        store.append(topic=f"T{number % 200:03d}", body=b"x" * 100)
    store.close()
    expected = reference.read_store(tmp_path)
    last = store.messages[-1]
    path = store.segment(last.position)
    data = bytearray(path.read_bytes())
    for garbage in (b"\x01" + bytes(last.size - 1), bytes(last.size - 1) + b"\x01"):
        data[last.position : last.position + last.size] = garbage
        path.write_bytes(data)
        _assert_lost(tmp_path, expected[:-1])
    data[last.position : last.position + last.size] = bytes(last.size)
    path.write_bytes(data)
    _assert_reads(tmp_path, expected[:-1])


def _broker(root: str, seed: int, count: int, finished: Any) -> None:
    """Appends as a broker does: the unit, in three steps; then it is finished; some time later its queue unit."""
    rng = random.Random(seed)
    segment_size = 4096
    end = 0
    offsets: dict[int, int] = {}
    commitlog = Path(root) / "commitlog"
    undispatched: list[tuple[int, int, bytes]] = []

    def put(path: Path, at: int, data: bytes, size: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(size)
        with path.open("r+b", buffering=0) as file:
            file.seek(at)
            file.write(data)

    for start in (0, segment_size):  # a broker has the next segment ready before it needs it
        put(commitlog / f"{start:020d}", 0, b"", segment_size)
    for number in range(count):
        queue = number % 2
        offset = offsets.get(queue, 0)
        offsets[queue] = offset + 1
        body = rng.randbytes(rng.randrange(300))

        def unit(
            position: int, queue: int = queue, offset: int = offset, body: bytes = body, now: int = number
        ) -> bytes:
            return reference.encode_unit(
                topic="Live", body=body, queue_id=queue, queue_offset=offset, physical_offset=position,
                properties={"UNIQ_KEY": str(now)}, store_timestamp=stores.FIRST_TIMESTAMP + now,
            )  # fmt: skip

        left = segment_size - end % segment_size
        if len(unit(end)) + 8 > left:
            put(
                commitlog / f"{end - end % segment_size:020d}",
                end % segment_size,
                reference.encode_blank(left),
                segment_size,
            )
            end += left
            put(commitlog / f"{end + segment_size:020d}", 0, b"", segment_size)
        data = unit(end)
        path = commitlog / f"{end - end % segment_size:020d}"
        first, second = sorted(rng.sample(range(4, len(data)), 2))
        for a, b in ((0, first), (first, second), (second, len(data))):
            put(path, end % segment_size + a, data[a:b], segment_size)
            if rng.random() < 0.3:
                time.sleep(0.001)
        undispatched.append((queue, offset, reference.encode_queue_unit(end, len(data), 0)))
        end += len(data)
        finished.value = number + 1
        if rng.random() < 0.5:
            for queue_id, n, entry in undispatched:
                put(Path(root) / "consumequeue" / "Live" / str(queue_id) / ("0" * 20), n * 20, entry, 20_000)
            undispatched.clear()


@pytest.mark.slow
def test_live_store(tmp_path: Path, rng: random.Random) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "abort").write_text("4711")
    context = multiprocessing.get_context("fork")
    finished = context.Value("q", 0)
    broker = context.Process(target=_broker, args=(str(tmp_path), rng.randrange(1 << 30), 600, finished))
    broker.start()
    reads = 0
    try:
        while broker.is_alive() or reads == 0:
            least = finished.value
            mode = rng.choice(reading.MODES)
            options = reading.options_of(tmp_path, mode=mode, maxPartitionBytes=rng.choice((500, 3000, 1 << 30)))
            planned = reading.plan(options)
            names = [*reading.DEFAULT_COLUMNS, "corrupt"]
            rows = [row for task in planned.tasks for row in reading.read_one(task, options, names)]
            assert reading.sound_and_corrupt(rows)[1] == []
            ids = [int(row["msgId"]) for row in rows]
            assert ids == list(range(len(ids)))
            assert len(ids) >= least
            reads += 1
    finally:
        broker.join()
    assert broker.exitcode == 0
    assert reads > 5
    assert read(tmp_path) == reference.read_store(tmp_path)
    assert len(read(tmp_path)) == 600


def test_a_message_that_is_finished_while_planning_waits(tmp_path: Path) -> None:
    """Planning sees the last message's head before its tail, and waits a moment for the rest."""
    store = _builder(tmp_path, 3)
    at = store.append(topic="Live", body=b"live body " * 5)
    store.close(clean=False)
    path = store.segment(at)
    whole = path.read_bytes()
    torn = bytearray(whole)
    torn[at + 100 : at + 110] = bytes(10)  # pages of a mapped file may show up in any order
    path.write_bytes(torn)
    shutil.rmtree(tmp_path / "consumequeue" / "Live")

    context = multiprocessing.get_context("fork")
    started = context.Event()

    def finish() -> None:
        started.set()
        time.sleep(0.03)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(whole[at : at + 200])

    writer = context.Process(target=finish)
    writer.start()
    started.wait()
    rows = read(tmp_path)
    writer.join()
    assert rows == reference.read_store(tmp_path)
    assert len(rows) == 4


def test_a_last_message_without_proof_waits_for_it(tmp_path: Path) -> None:
    """While a broker holds the store's lock, nothing tells a message whose properties are half written from a whole
    one, but a unit of its queue or a later message."""
    store = _builder(tmp_path, 5)
    store.append(topic="Live", body=b"live", keys="a key")
    store.close(clean=False)
    (tmp_path / "lock").write_bytes(b"lock")
    whole = reference.read_store(tmp_path)
    assert len(whole) == 6
    context = multiprocessing.get_context("fork")
    locked, done = context.Event(), context.Event()

    def hold() -> None:
        with (tmp_path / "lock").open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)  # as Java locks it, for the process
            locked.set()
            done.wait()

    broker = context.Process(target=hold)
    broker.start()
    try:
        assert locked.wait(HANG)
        assert read(tmp_path) == whole  # its queue knows it
        queue = tmp_path / "consumequeue" / "Live"
        queue.rename(tmp_path / "away")
        assert read(tmp_path) == whole[:-1]
        (tmp_path / "away").rename(queue)
        assert read(tmp_path) == whole
        store.append(topic="Later", body=b"later")
        store.flush()
        shutil.rmtree(queue)
        assert read(tmp_path)[:6] == whole
    finally:
        done.set()
        broker.join()
    shutil.rmtree(tmp_path / "consumequeue")
    assert len(read(tmp_path)) == 7  # nobody writes here any more


def test_snapshot(tmp_path: Path) -> None:
    """What is appended after planning is not read."""
    store = _builder(tmp_path, 20)
    store.flush()
    expected = reference.read_store(tmp_path)
    options = reading.options_of(tmp_path)
    planned = reading.plan(options)
    for i in range(40):
        _append(store, i)
    store.flush()
    assert [row for task in planned.tasks for row in reading.read_one(task, options)] == expected
    assert len(read(tmp_path)) == 60
