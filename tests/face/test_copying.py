"""Copies and salvages: each message with its queue offset, each group in its place, and nothing half done."""

from __future__ import annotations

import itertools
import json
import logging
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import golden, reference, stores
from oracle.java import java_hash
from support import writing
from support.writing import SMALL, Row, write

import rmqstore_spark
from rmqstore_spark import DamagedStoreError, NotAStoreError, OptionError, RmqStoreError, Store

PLACES = {"commitLogOffset", "offsetMsgId"}  # what is new in a copy
SALVAGE = "`rmqstore salvage` makes a new store of what is whole"


def without_places(rows: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in PLACES} for row in rows]


def configure(root: Path, name: str, value: dict[str, Any]) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / f"{name}.json").write_text(json.dumps(value))


def config(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "config" / f"{name}.json").read_text())
    return found


def bounds(root: Path) -> dict[tuple[str, int], tuple[int, int]]:
    names = ["topic", "queueId", "minOffset", "maxOffset"]
    rows = Store(root).queues(names).to_pylist()
    return {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in rows}


def problems(root: Path) -> set[str]:
    return set(Store(root).check().column("problem").to_pylist()) - {"longRecovery", "abort"}


def row(queue_id: int, number: int, topic: str = "Orders") -> Row:
    return {"topic": topic, "queueId": queue_id, "msgId": f"{topic}-{number}", "body": b"%d" % number * 40} | {
        "storeTimestamp": (1_700_000_000_000 + number) * 1000
    }


# ---- one store


@pytest.mark.parametrize("given", [{"columns": ["body"]}, {"mode": "DROPMALFORMED"}, {"trust": "queues"}])
def test_options_that_make_no_sense(tmp_path: Path, given: dict[str, Any]) -> None:
    write(tmp_path / "source", [row(0, 1)], sizes=SMALL)
    with pytest.raises(OptionError, match=f"option '{next(iter(given))}' is not for copies"):
        Store(tmp_path / "source").copy(tmp_path / "target", **given)


def test_a_queue_as_large_as_no_broker_makes_them(tmp_path: Path) -> None:
    """A hole in a file, and a name that tells of many expired messages, cost their owner nothing; nor must they us."""
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [row(0, number) for number in range(3)], sizes=SMALL)
    shutil.rmtree(source / "consumequeue")
    queue = source / "consumequeue" / "Hole" / "0"
    queue.mkdir(parents=True)
    with (queue / f"{20 << 37:020d}").open("wb") as file:
        file.truncate(20 << 37)
    assert Store(source).copy(target).messages == 3
    sizes = {path.stat().st_size for path in (target / "consumequeue").rglob("0*") if path.is_file()}
    assert sizes == {6_000_000}


@pytest.mark.parametrize("others", [0, 1])
def test_a_time_in_no_calendar(tmp_path: Path, others: int) -> None:
    """A broker with a broken clock, or noise: the message comes along as it is."""
    roots = []
    for number in range(1 + others):
        roots.append(tmp_path / f"source{number}")
        store = stores.StoreBuilder(roots[-1], segment_size=2048)
        for time in (1_700_000_000_000, 10**16, 1_700_000_000_001):
            store.append(topic=f"T{number}", body=b"%d" % time, store_timestamp=time)
        store.close()
    assert Store(roots).copy(tmp_path / "target").messages == 3 * len(roots)
    found = [row["body"] for row in reference.read_store(tmp_path / "target") if row["topic"] == "T0"]
    assert found == [b"1700000000000", b"10000000000000000", b"1700000000001"]


def test_whole_store(tmp_path: Path, rng: random.Random) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, writing.some_rows(rng, 400))
    made = Store(source).copy(target)
    assert (made.messages, made.lost.num_rows) == (400, 0)
    assert repr(made) == "Copied(messages=400, lost=<0 rows>)"  # not the whole table
    writing.assert_whole(target)
    assert without_places(reference.read_store(target)) == without_places(reference.read_store(source))
    assert problems(target) == set()


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_a_brokers_store(tmp_path: Path, version: str) -> None:
    """Every queue begins and ends as it did, all offsets stand, and a checksum of a whole unit is right."""
    source, target = golden.unpack(version, tmp_path / "source"), tmp_path / "target"
    delayed = Store(source).delayed()
    Store(source).copy(target)
    left_behind = {"rmq_sys_wheel_timer"} if "timer" in delayed.column("kind").to_pylist() else set()
    expected = [row for row in reference.read_store(source) if row["topic"] not in left_behind]
    found = reference.read_store(target)
    timed = [row for row in found if row["topic"] in left_behind]
    found = [row for row in found if row["topic"] not in left_behind]
    assert [row["queueOffset"] for row in timed] == list(range(len(timed)))
    waiting = [row["msgId"] for row in delayed.to_pylist() if (row["kind"], row["state"]) == ("timer", "pending")]
    assert [row["msgId"] for row in timed if "rmq_sys_REVIVE" not in row["properties"]["REAL_TOPIC"]] == waiting
    assert bool(waiting) == bool(left_behind)
    for ours in (expected, found):
        for each in ours:
            each["properties"].pop("__CRC32#", None)
    # A committed message names the physical offset of its half message, where that is there.
    places = {old["commitLogOffset"]: new["commitLogOffset"] for old, new in zip(expected, found, strict=True)}
    halves = {row["commitLogOffset"] for row in expected if row["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"}
    for each in expected:
        if each["preparedTransactionOffset"] in halves and each["sysFlag"] & 0xC == 8:
            each["preparedTransactionOffset"] = places[each["preparedTransactionOffset"]]
    assert without_places(found) == without_places(expected)
    states = ["state", "transactionId", "keys"]
    assert Store(target).transactions(states) == Store(source).transactions(states)
    assert {queue: at for queue, at in bounds(target).items() if queue[0] not in left_behind} == {
        queue: at for queue, at in bounds(source).items() if queue[0] not in left_behind
    }
    offsets = ["group", "topic", "queueId", "consumerOffset"]
    assert Store(target).offsets(offsets) == Store(source).offsets(offsets)
    kept = ["topic", "readQueueNums", "writeQueueNums", "perm", "order"]
    theirs = {row["topic"]: row for row in Store(source).topics(kept).to_pylist() if row["readQueueNums"] is not None}
    ours_of = {row["topic"]: row for row in Store(target).topics(kept).to_pylist()}
    assert {name: ours_of[name] for name in theirs} == theirs
    assert problems(target) <= problems(source)
    groups = ["group", "retryMaxTimes"]
    assert Store(target).groups(groups) == Store(source).groups(groups)


def test_checksums_of_whole_units(tmp_path: Path) -> None:
    """`__CRC32#` covers the physical offset, too."""
    source, target = Path(__file__).parents[1] / "data" / "rocketmq-5.3.4-propcrc", tmp_path / "target"
    assert Store(source).copy(target).messages == 4
    for position, unit in reference.read_units(target):
        digits = reference.decode_unit(unit, position)["properties"]["__CRC32#"]
        assert int(digits[::-1]) == zlib.crc32(unit[:-20]) & 0x7FFFFFFF


@pytest.mark.parametrize("host", ["10.1.2.3:7777", "[2001:db8::1]:10911"])
def test_a_new_store_host(tmp_path: Path, host: str, rng: random.Random) -> None:
    """Nothing else of a message changes, byte for byte; ids lead to it. An address of another length does not fit."""
    six = host.startswith("[")
    own = ["[2001:db8::7]:1", "[::1]:2"] if six else ["10.0.0.1:10911", "10.0.0.2:10911"]
    born = ["10.9.9.9:5", "[fe80::1]:6"]
    rows = [{**row(n % 2, n), "storeHost": rng.choice(own), "bornHost": rng.choice(born)} for n in range(60)]
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, rows, sizes=SMALL)
    Store(source).copy(target, storeHost=host)

    def facts(root: Path) -> list[Any]:
        found = []
        for position, unit in reference.read_units(root):
            each = reference.decode_unit(unit, position)
            assert (each.pop("storeHost") == host) == (root == target)
            found.append(
                {name: value for name, value in each.items() if name not in ("commitLogOffset", "offsetMsgId")}
            )
        return found

    assert facts(target) == facts(source)
    assert problems(target) == set()
    for each in Store(target).messages(["offsetMsgId", "body"]).read_all().to_pylist()[::7]:
        assert Store(target).get(each["offsetMsgId"]).to_pylist()[0]["body"] == each["body"]
    if six:
        with pytest.raises(OptionError, match=r"'storeHost': expected an IPv6 address, as the message at"):
            Store(source).copy(tmp_path / "other", storeHost="10.1.2.3:7")
        assert not (tmp_path / "other").exists()


def test_a_new_store_host_of_checksums_of_whole_units(tmp_path: Path) -> None:
    source, target = Path(__file__).parents[1] / "data" / "rocketmq-5.3.4-propcrc", tmp_path / "target"
    Store(source).copy(target, storeHost="10.1.2.3:7777")
    for position, unit in reference.read_units(target):
        digits = reference.decode_unit(unit, position)["properties"]["__CRC32#"]
        assert int(digits[::-1]) == zlib.crc32(unit[:-20]) & 0x7FFFFFFF


def test_queues_begin_where_they_did(tmp_path: Path) -> None:
    """After messages have expired: also one of which no message is left goes on where it was, and its group with it."""
    source, first, second = tmp_path / "source", tmp_path / "first", tmp_path / "second"
    sizes = SMALL
    write(source, [row(0, n, "Old") for n in range(25)], [row(n % 2, n) for n in range(200)], sizes=sizes)
    configure(source, "consumerOffset", {"offsetTable": {"Old@g": {"0": 25}, "Orders@g": {"0": 70, "1": 40}}})
    for segment in sorted((source / "commitlog").iterdir())[:2]:
        segment.unlink()
    Store(source).copy(first)
    Store(first).copy(second)
    before = bounds(source)
    assert before["Old", 0] == (25, 25)
    assert 0 < before["Orders", 0][0] < 70
    for copied in (first, second):
        assert bounds(copied) == before
        assert config(copied, "consumerOffset")["offsetTable"] == {
            "Old@g": {"0": 25},
            "Orders@g": {"0": 70, "1": 40},
        }
        assert problems(copied) == set()
        write(copied, [row(0, 900, "Old"), row(1, 901)], sizes=sizes)
        newest = {row["msgId"]: row["queueOffset"] for row in reference.read_store(copied)}
        assert (newest["Old-900"], newest["Orders-901"]) == (25, 100)


def test_a_group_that_was_further_goes_on_at_the_end(tmp_path: Path) -> None:
    """Else it would leave out what is sent next."""
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [row(0, n) for n in range(30)])
    configure(source, "consumerOffset", {"offsetTable": {"Orders@g": {"0": 25}, "Orders@behind": {"0": 3}}})
    made = Store(source).copy(target, endingTimestamp=1_700_000_000_010)
    assert made.messages == 10
    assert config(target, "consumerOffset")["offsetTable"] == {"Orders@g": {"0": 10}, "Orders@behind": {"0": 3}}


def test_some_topics(tmp_path: Path, rng: random.Random) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, writing.some_rows(rng, 300))
    Store(source).copy(target, subscribe="TopicA")
    expected = [row for row in reference.read_store(source) if row["topic"] == "TopicA"]
    assert without_places(reference.read_store(target)) == without_places(expected)
    assert problems(target) == set()


@pytest.mark.parametrize(
    ("directory", "error", "why"),
    [
        ("source/inside", OptionError, "expected a directory outside"),
        ("source", OptionError, "expected a directory outside"),
        ("other", NotAStoreError, "expected no directory or an empty one, as a copy is a new store, found 'mine'"),
    ],
)
def test_refused(tmp_path: Path, directory: str, error: type[RmqStoreError], why: str) -> None:
    write(tmp_path / "source", [row(0, 1)])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=why):
        Store(tmp_path / "source").copy(tmp_path / directory)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_topic_that_was_made_anew(tmp_path: Path) -> None:
    """Its queue offsets come twice: no broker could serve them."""
    source, other = tmp_path / "source", tmp_path / "other"
    write(source, [row(0, n) for n in range(5)])
    shutil.rmtree(source / "consumequeue" / "Orders")
    write(other, [row(0, 7)])
    rmqstore_spark.rebuild(source)
    data = bytearray(next((source / "commitlog").iterdir()).read_bytes())
    units = list(reference.read_units(source))
    at = units[3][0]
    data[at + 20 : at + 28] = bytes(8)  # queueOffset 3 becomes 0
    next((source / "commitlog").iterdir()).write_bytes(data)
    with pytest.raises(DamagedStoreError, match="queueOffset 3 or a later one, found 0: its topic was deleted"):
        Store(source).copy(tmp_path / "target")
    assert not (tmp_path / "target").exists()


# ---- salvage


def damage(root: Path, rng: random.Random, count: int) -> None:
    for segment in rng.sample(sorted((root / "commitlog").iterdir())[1:-1], count):
        data = bytearray(segment.read_bytes())
        at, size = rng.randrange(3000), rng.randrange(10, 5000)
        data[at : at + size] = rng.randbytes(size)
        segment.write_bytes(data)


@pytest.mark.parametrize(("at", "bit"), [(14, 0), (15, 0), (20, 3), (24, 1), (26, 2), (27, 1), (27, 5)])
def test_salvage_of_a_message_in_a_wrong_place(tmp_path: Path, rng: random.Random, at: int, bit: int) -> None:
    """One bit of its queueId or queueOffset is flipped, which no checksum covers: it alone is lost."""
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [row(number % 2, number) for number in range(200)], sizes=SMALL)
    units = list(reference.read_units(source))
    position, _ = units[rng.randrange(len(units))]
    segment = next(path for path in reference.segment_files(source) if 0 <= position - int(path.name) < 8192)
    data = bytearray(segment.read_bytes())
    data[position - int(segment.name) + at] ^= 1 << bit
    segment.write_bytes(data)
    made = Store(source).salvage(target)
    assert made.messages == 199
    lost = {(row["problem"], row["commitLogOffset"], row["count"]) for row in made.lost.to_pylist()}
    assert ("damagedUnit", position, None) in lost
    assert len(lost) <= 2
    assert len(reference.read_store(target)) == 199


@pytest.mark.parametrize("queues", ["a unit", "all"])
@pytest.mark.parametrize(("at", "bit"), [(15, 0), (20, 3), (24, 1), (27, 1), (27, 5)])
def test_salvage_where_the_queue_is_damaged_too(tmp_path: Path, at: int, bit: int, queues: str) -> None:
    """The same where the message's own unit of the queue, or all of the queues, are lost: the message is told of, and
    consumers pass over it."""
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [row(number % 2, number) for number in range(200)], sizes=SMALL)
    position, _ = list(reference.read_units(source))[101]
    change(source, position + at, lambda data: bytes([data[0] ^ 1 << bit]))
    if queues == "all":
        shutil.rmtree(source / "consumequeue")
    else:
        where = 20 * 50
        path = source / "consumequeue" / "Orders" / "1" / f"{where // 200 * 200:020d}"
        with path.open("r+b") as file:
            file.seek(where % 200)
            file.write(b"\1" * 20)
    made = Store(source).salvage(target)
    assert made.messages == 199
    lost = [(row["problem"], row["commitLogOffset"], row["queueOffset"], row["count"]) for row in made.lost.to_pylist()]
    assert lost == [("damagedUnit", position, None, None), ("lostMessages", None, 50, 1)]
    assert [unit["queueOffset"] for unit in reference.read_store(target)] == [n // 2 for n in range(200) if n != 101]


@pytest.mark.parametrize("what", ["body", "head"])
@pytest.mark.parametrize("is_last", [False, True])
def test_salvage_of_queues_last_messages(tmp_path: Path, what: str, is_last: bool) -> None:
    """A queue goes on where it did, if another queue has a message that comes later: in the new store, in a copy of
    that, and after a rebuild. Else it is told that its queue offsets are given out again."""
    source, target, again = (tmp_path / name for name in ("source", "target", "again"))
    write(source, [row(number % 3, number) for number in range(90)], sizes=SMALL)
    units = [position for position, _ in reference.read_units(source)]
    at, byte = {"body": (100, b"?"), "head": (4, b"\0")}[what]
    for number in 84, 87, 85, 88, *([89] if is_last else []):  # two of queue 0, two of 1, the last one of queue 2
        change(source, units[number] + at, lambda _: byte)
    configure(source, "consumerOffset", {"offsetTable": {"Orders@g": {"0": 30, "1": 30, "2": 30}}})
    made = Store(source).salvage(target)
    lost = {0: (28, 2), 1: (28, 2)} | ({2: (29, 1)} if is_last else {})
    told = {gap["queueId"]: gap for gap in made.lost.to_pylist() if gap["problem"] == "lostMessages"}
    assert {queue_id: (gap["queueOffset"], gap["count"]) for queue_id, gap in told.items()} == lost
    assert {queue_id for queue_id, gap in told.items() if "goes on with these" in gap["advice"]} == lost.keys() & {2}
    ends = [30, 30, 29 if is_last else 30]
    assert config(target, "consumerOffset")["offsetTable"]["Orders@g"] == {str(n): end for n, end in enumerate(ends)}
    expected = {("Orders", queue_id): (0, end) for queue_id, end in enumerate(ends)}
    Store(target).copy(again)
    assert (bounds(target), bounds(again)) == (expected, expected)
    rmqstore_spark.rebuild(str(target))
    assert bounds(target) == expected
    write(target, [row(queue_id, 100) for queue_id in range(3)], sizes=SMALL)
    assert [unit["queueOffset"] for unit in reference.read_store(target)][-3:] == ends
    assert problems(target) | problems(again) == set()


def change(root: Path, position: int, how: Callable[[bytes], bytes], size: int = 1) -> None:
    """Change bytes of the log."""
    segment = max(path for path in reference.segment_files(root) if int(path.name) <= position)
    data = bytearray(segment.read_bytes())
    at = position - int(segment.name)
    data[at : at + size] = how(bytes(data[at : at + size]))
    segment.write_bytes(data)


def test_salvage_of_a_body_that_cannot_be_decompressed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its checksum is right, but its flag is wrong: readers and consumers would stop at it. It is told of once, however
    often the store is gone through."""
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [row(0, number) for number in range(100)], sizes=SMALL)
    units = [position for position, _ in reference.read_units(source)]
    change(source, units[40] + 39, lambda data: bytes([data[0] | 1]))  # sysFlag: compressed by zlib
    change(source, units[61] + 38, lambda _: bytes([1, 1]), 2)  # by LZ4
    caplog.set_level(logging.WARNING)
    made = Store(source).salvage(target)
    assert made.messages == 98
    lost = [(row["problem"], row["commitLogOffset"], row["queueOffset"]) for row in made.lost.to_pylist()]
    expected = [("damagedUnit", units[at], None) for at in (40, 61)]
    assert lost == [*expected, *(("lostMessages", None, at) for at in (40, 61))]
    bodies = Store(source).messages(["body"], mode="DROPMALFORMED").read_all()
    assert Store(target).messages(["body"]).read_all().equals(bodies)
    for at in (40, 61):
        assert sum(f"commitLogOffset {units[at]}" in text for text in caplog.messages) == 2  # here and in `messages`


def test_salvage(tmp_path: Path, rng: random.Random) -> None:
    """What is whole comes along with its queue offset; between two messages of a queue there is a unit for each that is
    lost, in a segment before that of the next one; and it is told which ones are."""
    source, damaged, target = (tmp_path / name for name in ("source", "damaged", "target"))
    write(source, *([{**each, "sysFlag": 0} for each in writing.some_rows(rng, 200, 200 * n)] for n in range(3)))
    shutil.copytree(source, damaged)
    damage(damaged, rng, 6)
    with pytest.raises(DamagedStoreError, match=SALVAGE):
        Store(damaged).copy(target)
    assert not target.exists()
    made = Store(damaged).salvage(target)
    whole = Store(damaged).messages(["topic", "queueId", "queueOffset"], mode="DROPMALFORMED").read_all().to_pylist()
    found = [(row["topic"], row["queueId"], row["queueOffset"]) for row in reference.read_store(target)]
    assert found == [(row["topic"], row["queueId"], row["queueOffset"]) for row in whole]
    assert made.messages == len(found)
    told = {
        (gap["topic"], gap["queueId"], offset)
        for gap in made.lost.to_pylist()
        if gap["problem"] == "lostMessages"
        for offset in range(gap["queueOffset"], gap["queueOffset"] + gap["count"])
    }
    all_of_it = {(row["topic"], row["queueId"], row["queueOffset"]) for row in reference.read_store(source)}
    assert told == all_of_it - set(found)
    assert told
    assert problems(target) <= {"queueGap"}
    size = SMALL.segment or 0
    for topic, queue_id in {each[:2] for each in found}:
        units = [unit for *queue, _, unit in reference.read_queues(target) if queue == [topic, queue_id]]
        positions = [unit.physical_offset for unit in units]
        assert positions == sorted(positions)
        for unit, following in itertools.pairwise(units):
            if unit.size == 9:
                assert unit.physical_offset % size == size - 8
                assert following.size == 9 or following.physical_offset > unit.physical_offset
    # The reader takes both ways to the same rows, and our writer goes on.
    topic = found[0][0]
    assert Store(target).messages(["queueOffset"], subscribe=topic).read_all().num_rows == sum(
        each[0] == topic for each in found
    )
    rows = Store(target).messages(["topic", "queueId", "queueOffset"], trust="queues").read_all()
    assert sorted(tuple(each.values()) for each in rows.to_pylist()) == sorted(found)
    queues = writing.files(target / "consumequeue", "*/*/*")
    shutil.rmtree(target / "consumequeue")
    Store(target).rebuild(mappedFileSizeConsumeQueue=SMALL.queue_file)
    rebuilt = writing.files(target / "consumequeue", "*/*/*")
    offsets = [each[:3] for each in reference.read_queues(target)]
    assert rebuilt.keys() == queues.keys()
    Store(target).copy(tmp_path / "again")
    assert [each[:3] for each in reference.read_queues(tmp_path / "again")] == offsets
    assert problems(target) <= {"queueGap"}
    assert without_places(reference.read_store(tmp_path / "again")) == without_places(reference.read_store(target))


def test_names_that_no_queue_can_have(tmp_path: Path) -> None:
    """A broker's store has none; a hostile one may."""
    source = tmp_path / "source"
    builder = stores.StoreBuilder(source)
    for topic, queue_id in (("Good", 0), ("Evil\x1b", 0), ("Good", -1), ("Good", 0)):
        builder.append(topic=topic, queue_id=queue_id, body=b"x")
    builder.close()
    with pytest.raises(RmqStoreError, match=r"topic 'Evil.x1b', queue 0: expected a name that a queue"):
        Store(source).copy(tmp_path / "copy")
    made = Store(source).salvage(tmp_path / "target")
    assert made.messages == 2
    assert "expected a name" in made.lost.column("found").to_pylist()[0]
    assert {path.name for path in tmp_path.iterdir()} == {"source", "target"}


# ---- several into one


def test_several_into_one(tmp_path: Path, rng: random.Random) -> None:
    """Each queue of the new store is one of an old store's; groups go on in each."""
    offsets = {}
    expected: dict[tuple[str, int], list[str]] = {}
    for number, queues in enumerate((2, 3, 1)):
        root = tmp_path / f"store-{number}"
        rows = [row(rng.randrange(queues), 1000 * number + n) for n in range(60)]
        write(root, rows)
        before = sum((2, 3, 1)[:number])
        for queue_id in range(queues):
            mine = [each["msgId"] for each in rows if each["queueId"] == queue_id]
            expected["Orders", before + queue_id] = mine
            offsets[str(before + queue_id)] = len(mine) // 2
        configure(
            root,
            "consumerOffset",
            {"offsetTable": {"Orders@g": {str(q): offsets[str(before + q)] for q in range(queues)}}},
        )
        configure(root, "subscriptionGroup", {"subscriptionGroupTable": {f"g{number}": {"groupName": f"g{number}"}}})
    target = tmp_path / "target"
    assert Store([tmp_path / f"store-{n}" for n in range(3)]).copy(target).messages == 180
    found: dict[tuple[str, int], list[str]] = {queue: [] for queue in expected}
    rows = reference.read_store(target)
    for each in rows:
        assert each["queueOffset"] == len(found[each["topic"], each["queueId"]])
        found[each["topic"], each["queueId"]].append(each["msgId"])
    assert found == expected
    assert [each["storeTimestamp"] for each in rows] == sorted(each["storeTimestamp"] for each in rows)
    assert config(target, "consumerOffset")["offsetTable"]["Orders@g"] == offsets
    assert set(config(target, "subscriptionGroup")["subscriptionGroupTable"]) == {"g0", "g1", "g2"}
    entry = config(target, "topics")["topicConfigTable"]["Orders"]
    assert (entry["readQueueNums"], entry["writeQueueNums"]) == (6, 6)
    assert problems(target) == set()


@pytest.mark.parametrize("how", ["as it is", "grown", "without queues", "by us", "expired"])
def test_two_copies_of_one_broker(tmp_path: Path, how: str) -> None:
    """Their messages would come twice."""
    source, other = tmp_path / "source", tmp_path / "other"
    write(source, [row(n % 2, n) for n in range(150)])
    if how == "by us":
        Store(source).copy(other)
    else:
        shutil.copytree(source, other)
    if how == "grown":
        write(other, [row(n % 2, n) for n in range(150, 300)])
    if how == "without queues":
        shutil.rmtree(other / "consumequeue")
    if how == "expired":
        min((other / "commitlog").iterdir()).unlink()
    for pair in ([source, other], [other, source]):
        with pytest.raises(OptionError, match=r"two copies of one .* their messages would come twice"):
            Store(pair).copy(tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_two_damaged_copies_become_one(tmp_path: Path, rng: random.Random) -> None:
    """What is whole in one of them is in the new store; the groups' places are those of the newest."""
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, *([{**each, "sysFlag": 0} for each in writing.some_rows(rng, 150, 150 * n)] for n in range(2)))
    configure(source, "consumerOffset", {"offsetTable": {"TopicA@g": {"0": 7}}})
    copies = [tmp_path / "one", tmp_path / "other"]
    for copied in copies:
        shutil.copytree(source, copied)
    segments = sorted(path.name for path in (source / "commitlog").iterdir())[1:-1]
    size, units = SMALL.segment or 0, [position for position, _ in reference.read_units(source)]
    for number, name in enumerate(segments):
        hurt = copies[number % 2] / "commitlog" / name
        data = bytearray(hurt.read_bytes())
        at = rng.choice([position for position in units if position // size == int(name) // size]) % size
        data[at : at + 2000] = rng.randbytes(2000)
        hurt.write_bytes(data[:size])
    with pytest.raises(DamagedStoreError, match=SALVAGE):
        Store(copies[0]).copy(target)
    with pytest.raises(OptionError, match="deduplicate=true"):
        Store(copies).salvage(target)
    assert not target.exists()
    whole = reference.read_store(source)
    made = Store(copies).copy(target, deduplicate=True)
    assert (made.messages, made.lost.num_rows) == (len(whole), 0)
    assert without_places(reference.read_store(target)) == without_places(whole)
    assert bounds(target) == bounds(source)
    assert config(target, "consumerOffset") == config(source, "consumerOffset")
    Store(source).copy(tmp_path / "whole")
    assert problems(target) == problems(tmp_path / "whole")
    # What is lost in both, a salvage leaves out; and another broker's store does not come with it.
    for copied in copies:
        (copied / "commitlog" / segments[1]).unlink()
    kept = [row for row in whole if row["commitLogOffset"] // size != int(segments[1]) // size]
    made = Store(copies).salvage(tmp_path / "salvaged", deduplicate=True)
    assert without_places(reference.read_store(tmp_path / "salvaged")) == without_places(kept)
    assert made.lost.num_rows
    write(tmp_path / "stranger", [row(0, 1)])
    with pytest.raises(OptionError, match="merges replicas of one store, and these are of 2 stores"):
        Store([*copies, tmp_path / "stranger"]).salvage(tmp_path / "both", deduplicate=True)


def test_bodies_of_two_copies(tmp_path: Path) -> None:
    """One that cannot be decompressed is taken from the other copy. What neither has, stops a copy."""
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [row(0, number) for number in range(100)], sizes=SMALL)
    units = [position for position, _ in reference.read_units(source)]
    whole = without_places(reference.read_store(source))
    copies = [tmp_path / "one", tmp_path / "other"]
    for copied, number in zip(copies, (40, 61), strict=True):
        shutil.copytree(source, copied)
        change(copied, units[number] + 39, lambda data: bytes([data[0] | 1]))  # sysFlag: compressed by zlib
    Store(copies).copy(target, deduplicate=True)
    assert without_places(reference.read_store(target)) == whole
    for copied in copies:
        change(copied, units[80] + 39, lambda data: bytes([data[0] | 1]))
    with pytest.raises(DamagedStoreError, match=f"commitLogOffset {units[80]}.*{SALVAGE}"):
        Store(copies).copy(tmp_path / "copy", deduplicate=True)
    made = Store(copies).salvage(tmp_path / "salvaged", deduplicate=True)
    assert [(row["problem"], row["commitLogOffset"], row["queueOffset"]) for row in made.lost.to_pylist()] == [
        ("damagedUnit", units[80], None),
        ("lostMessages", None, 80),
    ]
    assert without_places(reference.read_store(tmp_path / "salvaged")) == whole[:80] + whole[81:]


def test_timed_messages_of_copies(tmp_path: Path) -> None:
    """The newest alone tells which of them wait."""
    pair = []
    for name in ("one", "other"):
        builder = stores.StoreBuilder(tmp_path / name)
        for number in range(4):
            builder.append("rmq_sys_wheel_timer", b"t%d" % number)
        pair.append(builder)
    pair[1].append("Orders", b"later")
    for builder in pair:
        builder.close()
    segment = pair[1].segment(0)
    data = bytearray(segment.read_bytes())
    data[8:80] = bytes(72)
    segment.write_bytes(data)
    roots = [builder.root for builder in pair]
    with pytest.raises(DamagedStoreError, match="other/commitlog"):
        Store(roots).copy(tmp_path / "target", deduplicate=True)
    with pytest.raises(RmqStoreError, match=r"missing or damaged in .*/other, whose log ends last: nothing tells"):
        Store(roots).salvage(tmp_path / "target", deduplicate=True)
    assert not (tmp_path / "target").exists()


def test_delayed_messages_of_several(tmp_path: Path) -> None:
    """Only those that wait still, in the order of their times: a broker begins with them at the beginning."""
    schedule = "SCHEDULE_TOPIC_XXXX"
    for number in range(2):
        root = tmp_path / f"store-{number}"
        rows = [
            {**row(1, 10 * n + number, schedule), "properties": {"REAL_TOPIC": "Orders", "REAL_QID": "0", "DELAY": "2"}}
            for n in range(6)
        ]
        write(root, rows)
        configure(root, "delayOffset", {"offsetTable": {"2": 4 - number}})
    target = tmp_path / "target"
    Store([tmp_path / "store-0", tmp_path / "store-1"]).copy(target)
    rows = reference.read_store(target)
    assert [(row["queueOffset"], row["msgId"]) for row in rows] == list(
        enumerate(f"{schedule}-{n}" for n in (31, 40, 41, 50, 51))
    )
    assert not (target / "config" / "delayOffset.json").exists()


@pytest.mark.parametrize("how", ["copy", "copy of several", "rebuild"])
def test_delayed_messages_stay_due_at_their_times(tmp_path: Path, how: str) -> None:
    """Though their broker's messageDelayLevel is not the default, which nothing but their queues tells."""
    schedule, root = "SCHEDULE_TOPIC_XXXX", tmp_path / "store"
    delayed = {"REAL_TOPIC": "Orders", "DELAY": "2"}
    rows = [{**row(1, n, schedule), "properties": delayed if n < 6 else {"TAGS": "none"}} for n in range(7)]
    write(root, rows, sizes=SMALL)
    (queue,) = (root / "consumequeue" / schedule / "1").iterdir()
    units = bytearray(queue.read_bytes())
    hour = [1_700_000_000_000 + number + 3_600_000 for number in range(6)]
    for number, due in enumerate(hour):
        units[20 * number + 12 : 20 * number + 20] = struct.pack(">q", due if number != 5 else due + (1 << 30))
    queue.write_bytes(units)
    made = root
    if how == "rebuild":
        rmqstore_spark.rebuild(root)
    else:
        write(tmp_path / "other", [row(0, 8, "Others")], sizes=SMALL)
        sources = [tmp_path / "other", root] if how == "copy of several" else [root]
        made = tmp_path / "target"
        Store(sources).copy(made)
    found = Store(made).consumequeue(["tagsCode"], subscribe=schedule).column("tagsCode").to_pylist()
    assert found == [*hour, java_hash("none")]


def test_lost_has_the_columns_of_check(tmp_path: Path) -> None:
    write(tmp_path / "source", [row(0, 1)])
    made = Store(tmp_path / "source").salvage(tmp_path / "target")
    assert isinstance(made.lost, pa.Table)
    assert made.lost.schema == Store(tmp_path / "source").check().schema


@pytest.mark.parametrize("name", ["commitlog", f"commitlog/{0:020d}", f"commitlog/{8192:020d}"])
@pytest.mark.parametrize("how", ["copy", "salvage"])
def test_no_link_is_followed_into_a_copy(tmp_path: Path, how: str, name: str) -> None:
    """It may lead to another store's messages, which who reads the copy may not see."""
    store = stores.StoreBuilder(tmp_path / "store", segment_size=8192)
    for number in range(80):
        store.append(body=b"%0100d" % number)
    store.close()
    path, private = tmp_path / "store" / name, tmp_path / "private"
    path.rename(private)
    path.symlink_to(private)
    with pytest.raises(DamagedStoreError, match=rf"{path}: expected no link"):
        getattr(Store(tmp_path / "store"), how)(tmp_path / "target")
    assert not (tmp_path / "target").exists()
    if name == "commitlog":
        named = Store(tmp_path / "store", storePathCommitLog=str(private))
        assert getattr(named, how)(tmp_path / "target").messages == 80


def test_messages_that_were_not_selected_are_not_called_lost_by_their_producer(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [row(0, number) for number in (1, 2, 13, 4)], sizes=SMALL)
    made = Store(source).copy(target, bodyContains="1")
    told = [(gap["problem"], gap["queueOffset"], gap["advice"]) for gap in made.lost.to_pylist()]
    assert [each[:2] for each in told] == [("lostMessages", 1)]
    assert all("did not select" in advice and "producer" not in advice for *_, advice in told)
