"""Batches of BatchCQ topics: a row for each message, in a store of a real broker and where something is wrong."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import reference
from oracle.stores import StoreBuilder
from support import flavours, reading
from support.following import Query

import rmqstore_spark
from rmqstore_spark.errors import BadRowError, DamagedStoreError
from rmqstore_spark.read.pieces.task import Indexed
from rmqstore_spark.read.plan.planner import plan

COLUMNS = ["topic", "queueId", "queueOffset", "msgId", "tags", "keys", "body", "batchIndex"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    return flavours.unpack("batchcq", tmp_path_factory.mktemp("real"))


def _batch(store: StoreBuilder, names: list[str], topic: str = "Batches", body: bytes | None = None) -> int:
    inner = [
        reference.Inner(name.encode(), f"UNIQ_KEY\x01{name}\x02KEYS\x01k{name}\x02TAGS\x01t{name}\x02".encode())
        for name in names
    ]
    return store.append(
        topic,
        reference.encode_batch(inner) if body is None else body,
        sys_flag=0xC0,
        messages=len(names),
        msg_id="BATCH",
    )


def test_rows_are_what_the_consumer_of_a_real_broker_got(real: tuple[Path, list[dict[str, Any]]]) -> None:
    root, seen = real
    consumed = [event for event in seen if event["event"] == "consumed" and event["topic"] == "Bq"]
    rows = [row for row in reading.read(root, columns=COLUMNS) if row["topic"] == "Bq"]

    def names(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["queueId"], row["queueOffset"], row["msgId"], row["keys"]

    assert sorted(map(names, rows)) == sorted(map(names, consumed))
    assert len(rows) == 29
    assert Counter(row["batchIndex"] is not None for row in rows) == {True: 23, False: 6}
    queues = rmqstore_spark.Store(str(root)).queues(columns="topic,queueId,messages").to_pylist()
    for queue in queues:
        if queue["topic"] == "Bq":
            assert queue["messages"] == sum(row["queueId"] == queue["queueId"] for row in rows)


def test_rows_are_those_of_the_reference(real: tuple[Path, list[dict[str, Any]]]) -> None:
    root, _ = real
    assert reading.read(root) == reference.read_store(root)
    assert reading.read(root, explodeBatches=False) == reference.read_store(root, explode=False)


@pytest.mark.parametrize("prices", [None, reading.FREE], ids=["real", "none"])
def test_each_message_by_each_of_its_names(prices: Any, real: tuple[Path, list[dict[str, Any]]]) -> None:
    root, _ = real
    rows = reading.read(root, columns=COLUMNS)
    for row in rows:
        place = {row["topic"]: {str(row["queueId"]): row["queueOffset"]}}
        ends = {row["topic"]: {str(row["queueId"]): row["queueOffset"] + 1}}
        word = (row["keys"] or "nothing").split()[0]
        ways: list[tuple[dict[str, Any], Any]] = [
            ({"msgId": row["msgId"]}, lambda each: each["msgId"] == row["msgId"]),  # noqa: B023
            ({"key": word}, lambda each: word in (each["keys"] or "").split()),  # noqa: B023
            ({"key": word, "subscribe": "Bq"}, lambda each: each["topic"] == "Bq" and word in each["keys"].split()),  # noqa: B023
            ({"tags": row["tags"]}, lambda each: each["tags"] == row["tags"]),  # noqa: B023
            (
                {
                    "assign": json.dumps({row["topic"]: [row["queueId"]]}),
                    "startingOffsets": json.dumps(place),
                    "endingOffsets": json.dumps(ends),
                },
                lambda each: each == row,  # noqa: B023
            ),
        ]
        for options, is_wanted in ways:
            expected = [each for each in rows if is_wanted(each)]
            assert reading.read(root, columns=COLUMNS, prices=prices, **options) == expected, options


def test_a_key_is_looked_up_in_index_and_queues(tmp_path: Path) -> None:
    """The index has no key of a batch's messages: the batches are looked at beside it, and nothing else."""
    store = StoreBuilder(tmp_path, 1 << 22, 100_000, index=True, index_slots=1000, index_items=10_000)
    for number in range(3000):
        store.append("TopicA", b"x" * 500, keys=f"k{number}", msg_id=f"A{number}")
        if number % 500 == 0:
            _batch(store, [f"{number}-{i}" for i in range(3)])
    store.close()
    _to_batch_queues(store)
    for name, count in (("k1000-1", 1), ("k7", 1), ("nowhere", 0)):
        planned = reading.make_plan(tmp_path, key=name)
        ((_, access),) = planned.accesses
        assert access.name == "index", access
        assert "it does not have the messages of batches: 6 units" in access.why
        assert sum(size for _, size in access.pieces) < store.end // 10
        assert any(isinstance(piece, Indexed) for piece, _ in access.pieces)
        assert len(reading.read(tmp_path, key=name)) == count
    ((_, plain),) = reading.make_plan(tmp_path, key="k7", subscribe="TopicA").accesses
    assert "batches" not in plain.why


def _to_batch_queues(store: StoreBuilder, topic: str = "Batches") -> None:
    """Moves the queues of a topic to where a broker has those of batches."""
    for directory in (store.root / "consumequeue" / topic).iterdir():
        units = b""
        base = 0
        for message in store.messages:
            if (message.topic, str(message.queue_id)) == (topic, directory.name):
                units += reference.encode_batch_unit(
                    message.position, message.size, 0, message.store_timestamp, message.queue_offset, message.messages
                )
                base += message.messages
        target = store.root / "batchconsumequeue" / topic / directory.name
        target.mkdir(parents=True)
        (target / f"{0:020d}").write_bytes(units.ljust(46_000, b"\0"))
        (directory / f"{0:020d}").unlink()
        directory.rmdir()
    (store.root / "consumequeue" / topic).rmdir()


@pytest.mark.parametrize("selected", [{}, {"subscribe": "Batches"}, {"key": "kb"}])
def test_a_body_that_is_no_batch_is_damage(selected: dict[str, str], tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path)
    _batch(store, ["a"])
    good = reference.encode_batch([reference.Inner(b"one", b""), reference.Inner(b"two", b"")])
    at = _batch(store, ["x", "y"], body=good[:-3] + b"\xff" * 3)
    _batch(store, ["b"])
    store.close()
    with pytest.raises(DamagedStoreError, match=f"{at}.*no batch, as sysFlag 0xC0 says.*expected.*found"):
        reading.read(tmp_path, **selected)
    expected = [row["body"] for row in reference.read_store(tmp_path, explode=False) if row["commitLogOffset"] != at]
    wanted = [b"b"] if "key" in selected else [b"a", b"b"]
    assert [row["body"] for row in reading.read(tmp_path, mode="DROPMALFORMED", **selected)] == wanted
    sound, corrupt = reading.sound_and_corrupt(reading.read(tmp_path, mode="PERMISSIVE", **selected))
    assert [row["body"] for row in sound] == wanted
    assert [row["commitLogOffset"] for row in corrupt] == [at]
    assert len(reading.read(tmp_path, explodeBatches=False)) == len(expected) + 1


def test_every_flipped_byte_is_told(tmp_path: Path) -> None:
    """With its bodyCRC nothing in a batch's body can change unseen, whatever is asked for."""
    store = StoreBuilder(tmp_path)
    at = _batch(store, ["a", "b"])
    store.append("TopicA", b"after")
    store.close()
    path = store.segment(at)
    data = path.read_bytes()
    unit = reference.parse_unit(data[: store.messages[0].size], at)
    begin = data.index(unit.body)
    for position in range(begin, begin + len(unit.body)):
        changed = bytearray(data)
        changed[position] ^= 0x01
        path.write_bytes(changed)
        for options in ({}, {"key": "ka"}, {"tags": "tb"}):
            with pytest.raises(DamagedStoreError, match="bodyCRC"):
                reading.read(tmp_path, **options)


def test_a_compressed_batch_stays_a_unit(tmp_path: Path) -> None:
    """No client makes one."""
    store = StoreBuilder(tmp_path)
    body = reference.encode_batch([reference.Inner(b"one", b"")])
    store.append("Batches", reference.compress_body(body, 0x301), sys_flag=0xC0 | 0x301)
    store.close()
    assert reading.read(tmp_path) == reference.read_store(tmp_path)
    assert [row["body"] for row in reading.read(tmp_path)] == [body]


def test_many_messages_in_a_batch(tmp_path: Path, rng: random.Random) -> None:
    """More than Spark gets at once; the read is the same however it is selected."""
    store = StoreBuilder(tmp_path, 1 << 21)
    names = [f"{number}" for number in range(20_000)]
    _batch(store, names)
    _batch(store, ["last"])
    store.close()
    batches = rmqstore_spark.Store(str(tmp_path)).messages(columns="msgId,queueOffset,batchIndex")
    table = batches.read_all()
    assert table.column("msgId").to_pylist() == [*names, "last"]
    assert table.column("queueOffset").to_pylist() == list(range(20_001))
    assert table.column("batchIndex").to_pylist() == [*range(20_000), 0]
    assert [row["msgId"] for row in reading.read(tmp_path, subscribe="Batches", columns=["msgId"])] == [*names, "last"]
    name = rng.choice(names)
    assert [row["msgId"] for row in reading.read(tmp_path, key=f"k{name}")] == [name]


def test_written_rows_are_messages_of_their_own(real: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    root, _ = real
    store = rmqstore_spark.Store(str(root))
    rmqstore_spark.write_store(str(tmp_path / "new"), store.messages())
    before, after = reading.read(root), reading.read(tmp_path / "new")
    kept = ["topic", "queueId", "queueOffset", "tags", "keys", "msgId", "body", "flag", "storeTimestamp"]
    assert [[row[name] for name in kept] for row in after] == [[row[name] for name in kept] for row in before]
    assert not any(row["sysFlag"] & 0xC0 for row in after)
    with pytest.raises(BadRowError, match="expected no inner batch"):
        rmqstore_spark.write_store(str(tmp_path / "refused"), store.messages(explodeBatches=False))
    units = store.messages(explodeBatches=False, columns="topic,body,sysFlag").read_all()
    with pytest.raises(BadRowError, match="expected no inner batch"):
        rmqstore_spark.write_store(str(tmp_path / "refused"), units)


def test_an_append_to_batches_is_refused_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said of queues that the topic lacks: it has others."""
    root, _ = flavours.unpack("batchcq", tmp_path)
    rows = pa.Table.from_pylist([{"topic": "Bq", "queueId": 0, "body": b"x"}])
    with pytest.raises(rmqstore_spark.RmqStoreError, match=r"topic Bq has queue\.type BatchCQ: expected SimpleCQ"):
        rmqstore_spark.write_store(root, rows, mode="append")
    assert not caplog.records


def _of_batches(root: Path, rng: random.Random) -> StoreBuilder:
    """A topic with batches and single messages in BatchCQs, among messages of another topic."""
    store = StoreBuilder(root, 1 << 18, 100_000)
    for number in range(400):
        store.append("TopicA", b"x" * 300, msg_id=f"A{number}")
        if number % 2:
            _batch(store, [f"{number}-{i}" for i in range(rng.choice((1, 2, 5)))])
        if number % 5 == 0:
            store.append("Batches", b"alone", msg_id=f"S{number}", keys="k")
    store.close()
    _to_batch_queues(store)
    return store


def _between(least: int, most: int) -> dict[str, str]:
    ends = {"startingOffsets": least, "endingOffsets": most + 1}
    return {"assign": '{"Batches": [0]}'} | {
        name: json.dumps({"Batches": {"0": value}}) for name, value in ends.items()
    }


@pytest.mark.parametrize("explodes", [True, False])
def test_queue_offsets_of_batches(explodes: bool, tmp_path: Path, rng: random.Random) -> None:
    """Only the batches with these messages are read, wherever the offsets begin and end."""
    _of_batches(tmp_path, rng)
    rows = [row for row in reading.read(tmp_path, explodeBatches=explodes) if row["topic"] == "Batches"]
    end = max(row["queueOffset"] for row in rows) + 1
    for least in (0, 1, *rng.sample(range(end), 20), end - 1):
        most = rng.choice((least, least + 1, least + 7, least + 300))
        expected = [row for row in rows if least <= row["queueOffset"] <= most]
        options: dict[str, Any] = {**_between(least, most), "explodeBatches": explodes}
        assert reading.read(tmp_path, **options) == expected, (least, most)
        if least > 100 and most < end - 20 and most < least + 10:
            ((_, access),) = reading.make_plan(tmp_path, **options).accesses
            assert sum(piece.stop - piece.start for piece, _ in access.pieces) < 12_000, (least, most)


@pytest.mark.parametrize("count", [1, 9, 300])
def test_the_end_of_a_queue_whose_last_unit_has_a_wrong_count(count: int, tmp_path: Path) -> None:
    """The log knows how many messages a batch has."""
    store = StoreBuilder(tmp_path)
    for base, names in ((0, ["a", "b"]), (2, ["c", "d", "e"])):
        properties = f"INNER_BASE\x01{base}\x02INNER_NUM\x01{len(names)}\x02".encode()
        inner = [reference.Inner(name.encode(), b"") for name in names]
        body = reference.encode_batch(inner)
        store.append("Batches", body, sys_flag=0xC0, messages=len(names), properties=properties)
    store.close()
    _to_batch_queues(store)
    (path,) = (tmp_path / "batchconsumequeue" / "Batches" / "0").iterdir()
    data = bytearray(path.read_bytes())
    data[46 + 36 : 46 + 38] = struct.pack(">h", count)
    path.write_bytes(data)
    (row,) = rmqstore_spark.Store(tmp_path).queues(subscribe="Batches").to_pylist()
    assert row["maxOffset"] == 5


def test_a_stream_begins_with_the_batch_that_has_its_first_message(tmp_path: Path, rng: random.Random) -> None:
    store = _of_batches(tmp_path, rng)
    rows = [row for row in reading.read(tmp_path) if row["topic"] == "Batches"]
    for first in (*rng.sample(rows[1:], 5), rows[-1]):
        start = first["queueOffset"]
        query = Query(tmp_path, subscribe="Batches", startingOffsets=json.dumps({"Batches": {"0": start}}))
        query.start()
        assert query.at.stores[str(tmp_path)].position == first["commitLogOffset"]
        query.run()
        assert query.rows == [row for row in rows if row["queueOffset"] >= start]
    (units,) = (tmp_path / "batchconsumequeue" / "Batches" / "0").iterdir()
    data = bytearray(units.read_bytes())
    count = sum(message.topic == "Batches" for message in store.messages)
    for number in range(count):  # each unit says that it begins with one message more
        at = 46 * number + 28
        data[at : at + 8] = struct.pack(">q", struct.unpack_from(">q", data, at)[0] + 1)
    units.write_bytes(data)
    query = Query(
        tmp_path, subscribe="Batches", startingOffsets=json.dumps({"Batches": {"0": rows[70]["queueOffset"]}})
    )
    query.run()
    assert query.rows == rows[70:]


def test_queue_offsets_where_a_unit_of_the_queue_lies(tmp_path: Path, rng: random.Random) -> None:
    """Whatever bit of a unit is wrong: rows come from the log."""
    _of_batches(tmp_path, rng)
    rows = [row for row in reading.read(tmp_path, columns=COLUMNS) if row["topic"] == "Batches"]
    path = tmp_path / "batchconsumequeue" / "Batches" / "0" / f"{0:020d}"
    data = path.read_bytes()
    count = next(at for at in range(0, len(data), 46) if not any(data[at : at + 46])) // 46
    middle = int.from_bytes(data[46 * (count // 2) + 28 :][:8], "big")
    end = rows[-1]["queueOffset"] + 1
    for least in (middle, end - 1):
        expected = [row for row in rows if least <= row["queueOffset"] <= least + 1]
        near = count // 2 if least == middle else count - 2
        for unit in range(near - 1, min(near + 3, count)):
            for bit in rng.sample([*range(12 * 8), *range(28 * 8, 38 * 8)], 40):
                changed = bytearray(data)
                changed[46 * unit + bit // 8] ^= 1 << bit % 8
                path.write_bytes(changed)
                assert reading.read(tmp_path, columns=COLUMNS, **_between(least, least + 1)) == expected, (unit, bit)


def test_a_key_costs_one_read_of_the_batches(tmp_path: Path) -> None:
    """Batches that are larger than a first look at a message are read whole, many at a time, and once."""
    store = StoreBuilder(tmp_path, 1 << 22, 100_000, index=True, index_slots=1000, index_items=10_000)
    for number in range(300):
        store.append("TopicA", b"x" * 3000, keys=f"k{number}", msg_id=f"A{number}")
        if number % 3 == 0:
            inner = [reference.Inner(b"y" * 900, f"UNIQ_KEY\x01{number}-{i}\x02".encode()) for i in range(3)]
            store.append("Batches", reference.encode_batch(inner), sys_flag=0xC0, messages=3, msg_id=f"B{number}")
    store.close()
    _to_batch_queues(store)
    for wanted in ("30-1", "A7", "B60"):
        options = reading.options_of(tmp_path, msgId=wanted)
        files = reading.new_files()
        planned = plan(options, files)
        assert planned.accesses[0][1].name == "index"
        before = files.requests
        rows = [row for task in planned.tasks for row in reading.read_one(task, options)]
        assert [row["msgId"] for row in rows] == ([] if wanted[0] == "B" else [wanted])
        assert files.requests - before < 150, wanted


def test_what_it_costs_to_plan_a_look_up_of_a_key(tmp_path: Path) -> None:
    """All queues are proved, also where an index begins some messages after the log: none is searched for its first
    unit behind them, nor for the offsets of which all are selected."""
    store = StoreBuilder(tmp_path, 1 << 24, 100_000, index=True, index_slots=1000, index_items=10_000)
    store.append("Batches", b"", msg_id=None)  # in no index
    for number in range(1600):
        store.append("Batches", b"y", queue_id=number % 8, msg_id=f"M{number}")
        store.append("TopicA", b"x" * 8000, msg_id=f"A{number}")
    store.close()
    _to_batch_queues(store)
    files = reading.new_files()
    ((_, access),) = plan(reading.options_of(tmp_path, subscribe="Batches", msgId="M7"), files).accesses
    assert access.name == "index"
    assert files.requests < 110  # 12 or so for each of the queues


def test_where_units_begin_is_asked_of_queues_of_batches(tmp_path: Path, rng: random.Random) -> None:
    """A store of batches alone is cut into partitions without a walk through it."""
    store = StoreBuilder(tmp_path, 1 << 21, 100_000)
    for number in range(300):
        inner = [reference.Inner(rng.randbytes(900), b"")] * 5
        store.append("Batches", reference.encode_batch(inner), sys_flag=0xC0, messages=5, msg_id=f"B{number}")
    store.close()
    _to_batch_queues(store)
    files = reading.new_files()
    planned = plan(reading.options_of(tmp_path, maxPartitionBytes=200_000), files)
    assert len(planned.tasks) > 4
    assert files.bytes < store.end // 4
    rows = reading.read(tmp_path, maxPartitionBytes=200_000, columns=["queueOffset"])
    assert [row["queueOffset"] for row in rows] == list(range(1500))
