"""Tables and columns of what users know under other names: epochs of masters, and queues of static topics."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from oracle.stores import StoreBuilder
from support import flavours, reading

from rmqstore_spark import Store, write_store
from rmqstore_spark.store.structures import epochs
from rmqstore_spark.store.structures.static_topics import static_parts


def _epoch_file(lines: str, count: int | None = None, crc: int | None = None) -> str:
    right = zlib.crc32(lines.encode()) & 0x7FFFFFFF
    return f"{lines.count(chr(10)) if count is None else count}\n{right if crc is None else crc}\n{lines}"


def _rows(root: Path) -> list[tuple[Any, ...]]:
    table = Store(root).epochs(["epoch", "startOffset", "endOffset"])
    return [tuple(row.values()) for row in table.to_pylist()]


def test_the_file_that_rocketmq_wrote(tmp_path: Path) -> None:
    root = flavours.unpack_store("epoch", tmp_path)
    found = epochs.epochs_of(str(root), reading.new_files())
    assert found.epochs == [(1, 0), (2, 1000), (5, 4096)]
    assert not found.wrong


def test_a_log_that_was_cut_where_an_epoch_begins(tmp_path: Path) -> None:
    """A slave cuts its log to where the new master's epoch begins, and the old units stay behind it."""
    store = StoreBuilder(tmp_path, segment_size=4096)
    positions = [store.append("TopicA", b"x" * 100, keys=f"k{number}") for number in range(30)]
    cut = store.forget_last(12)
    assert cut == positions[18]
    new = store.append("TopicA", b"y" * 120, keys="new")
    store.close()
    (tmp_path / epochs.NAME).write_text(_epoch_file(f"1-0\n2-{positions[10]}\n4-{new}\n7-{1 << 40}\n"))
    rows = reading.read(tmp_path, columns=["keys"])
    assert [row["keys"] for row in rows] == [*(f"k{number}" for number in range(18)), "new"]
    assert _rows(tmp_path) == [(1, 0, positions[10]), (2, positions[10], new), (4, new, 1 << 40), (7, 1 << 40, None)]
    times = Store(tmp_path).epochs(["firstStoreTimestamp"])["firstStoreTimestamp"].to_pylist()
    assert [time is None for time in times] == [False, False, False, True]
    (tmp_path / epochs.NAME).write_text(_epoch_file(f"1-0\n4-{new}\n"))
    assert _rows(tmp_path)[-1] == (4, new, store.end)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2\n",
        _epoch_file("1-0\n2-9\n", count=3),
        _epoch_file("1-0\n2-9\n", crc=5),
        _epoch_file("1-0\n2-x\n"),
        _epoch_file("2-0\n1-9\n"),
        _epoch_file("1-9\n2-9\n"),
        _epoch_file("1-" + "9" * 400 + "\n"),
        "9" * 5000 + "\n1\n",
        "\udc80\n1\n1-0\n",
    ],
)
def test_a_backup_is_taken_where_the_file_is_not_right(text: str, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path)
    store.append("TopicA")
    store.close()
    (tmp_path / f"{epochs.NAME}.bak").write_text(_epoch_file("3-0\n"))
    (tmp_path / epochs.NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert _rows(tmp_path) == [(3, 0, store.end)]
    (tmp_path / epochs.NAME).write_text(_epoch_file("4-0\n", crc=0))
    assert _rows(tmp_path) == [(4, 0, store.end)]
    (tmp_path / epochs.NAME).unlink()
    (tmp_path / f"{epochs.NAME}.bak").unlink()
    assert _rows(tmp_path) == []


def test_a_broken_epoch_file_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the table, which reads the backup then, and by `check`."""
    store = StoreBuilder(tmp_path)
    store.append("TopicA")
    store.close()
    path = tmp_path / epochs.NAME
    path.write_text(_epoch_file("1-0\n", crc=7))
    (tmp_path / f"{epochs.NAME}.bak").write_text(_epoch_file("1-0\n"))
    assert _rows(tmp_path) == [(1, 0, store.end)]
    assert f"{path}: CRC 7, computed " in caplog.text
    assert caplog.messages[-1].endswith(f"; {path}.bak is read instead")
    found = [row for row in Store(tmp_path).check().to_pylist() if row["problem"] == "brokenEpochs"]
    assert [(row["severity"], row["file"]) for row in found] == [("warning", str(path))]


def test_every_flipped_bit_of_an_epoch_file_is_seen(tmp_path: Path) -> None:
    sound = _epoch_file("1-0\n2-1000\n5-4096\n").encode()
    path = tmp_path / epochs.NAME
    for at in range(8 * len(sound)):
        data = bytearray(sound)
        data[at // 8] ^= 1 << at % 8
        path.write_bytes(data)
        found = epochs.epochs_of(str(tmp_path), reading.new_files())
        assert not found.epochs or bytes(data).split(b"\n")[1] == b"0", at
        assert found.epochs or found.wrong


# ---- static topics


def _mapping(parts: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {"topicQueueMappingInfoMap": {"St": {"bname": "here", "topic": "St", "hostedQueues": parts}}}


def _part(queue_id: int, logic: int, start: int, end: int = -1, broker: str = "here", gen: int = 0) -> dict[str, Any]:
    numbers = {"gen": gen, "queueId": queue_id, "logicOffset": logic, "startOffset": start, "endOffset": end}
    return {"bname": broker, **numbers}


@pytest.fixture
def static_store(tmp_path: Path) -> Path:
    """Logic queue 7 was elsewhere, then in queue 0 here, then in queue 2 here; queue 3 has no logic offsets yet."""
    store = StoreBuilder(tmp_path)
    for number in range(40):
        store.append(("St", "Other")[number % 5 == 4], queue_id=number % 4, keys=f"k{number}")
    store.close()
    parts = {
        "7": [_part(1, 0, 0, 100, "there"), _part(0, 100, 2, 6, gen=1), _part(2, 104, 0, gen=2)],
        "9": [_part(3, -1, 0)],
    }
    path = tmp_path / "config" / "topicQueueMapping.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(_mapping(parts)).replace('"7"', "7").replace('"9"', "9"))
    return tmp_path


def test_messages_have_the_offsets_that_consumers_count(static_store: Path) -> None:
    names = ["topic", "queueId", "queueOffset", "logicQueueId", "logicOffset"]
    rows = [tuple(row.values()) for row in reading.read(static_store, columns=names)]
    assert len(rows) == 40
    for topic, queue_id, offset, logic_queue_id, logic_offset in rows:
        expected: tuple[int | None, int | None] = (None, None)
        if topic == "St" and queue_id == 0 and 2 <= offset < 6:
            expected = 7, 100 + offset - 2
        elif topic == "St" and queue_id == 2:
            expected = 7, 104 + offset
        assert (logic_queue_id, logic_offset) == expected
    (only,) = reading.read(static_store, columns=["logicOffset"], key="k2")
    assert only == {"logicOffset": 104}


def test_the_table_of_logic_queues(static_store: Path) -> None:
    table = Store(static_store).logicqueues().to_pylist()
    count = dict.fromkeys(range(4), 0)
    for row in reading.read(static_store, subscribe="St", columns=["queueId"]):
        count[row["queueId"]] += 1
    assert [tuple(row.values()) for row in table] == [
        ("St", 7, 0, "there", False, 1, 0, 0, 100, None, None),
        ("St", 7, 1, "here", True, 0, 100, 2, 6, 100, 104),
        ("St", 7, 2, "here", True, 2, 104, 0, None, 104, 104 + count[2]),
        ("St", 9, 0, "here", True, 3, None, 0, None, None, None),
    ]
    assert Store(static_store).logicqueues(subscribe="Other").num_rows == 0


def test_logic_queues_of_a_topic_with_batches(tmp_path: Path) -> None:
    root = flavours.unpack_store("batchcq", tmp_path)
    mapping = _mapping({"0": [_part(0, 100, 2)], "1": [_part(1, 0, 0, 5)]})
    mapping["topicQueueMappingInfoMap"]["Bq"] = mapping["topicQueueMappingInfoMap"].pop("St")
    (root / "config" / "topicQueueMapping.json").write_text(json.dumps(mapping))
    rows = Store(root).logicqueues(["queueId", "minLogicOffset", "maxLogicOffset"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(0, 100, 112), (1, 0, 5)]
    messages = reading.read(root, subscribe="Bq", columns=["logicQueueId", "logicOffset"])
    for queue_id, least, end in ((0, 100, 112), (1, 0, 5)):
        offsets = [row["logicOffset"] for row in messages if row["logicQueueId"] == queue_id]
        assert sorted(offsets) == list(range(least, end))


def test_the_mapping_that_a_broker_wrote(tmp_path: Path) -> None:
    root = flavours.unpack_store("retry", tmp_path)
    rows = Store(root).logicqueues(["topic", "logicQueueId", "queueId", "logicOffset", "maxLogicOffset"]).to_pylist()
    assert [tuple(row.values())[:4] for row in rows] == [("St", number, number, 0) for number in range(3)]
    messages = reading.read(root, subscribe="St", columns=["queueId", "queueOffset", "logicQueueId", "logicOffset"])
    assert messages
    assert [(row["queueId"], row["queueOffset"]) for row in messages] == [
        (row["logicQueueId"], row["logicOffset"]) for row in messages
    ]
    assert sum(row["maxLogicOffset"] or 0 for row in rows) == len(messages)


def test_check_judges_groups_by_the_queues_of_the_broker(static_store: Path) -> None:
    """Of a logic queue only by the last part where the group has an offset: that is what a broker asks for."""
    in_0, in_2 = (len(reading.read(static_store, assign=f'{{"St": [{number}]}}')) for number in (0, 2))

    def found(offsets: dict[int, int]) -> list[tuple[str, int]]:
        table = {"offsetTable": {"St@g": {str(number): offset for number, offset in offsets.items()}}}
        (static_store / "config" / "consumerOffset.json").write_text(json.dumps(table))
        rows = Store(static_store).check().to_pylist()
        return [(row["problem"], row["queueId"]) for row in rows if row["area"] == "offsets"]

    assert found({0: in_0, 2: in_2}) == []
    assert found({2: in_2 + 1}) == [("offsetAheadOfQueue", 2)]
    assert found({2: 104 + in_2}) == [("offsetAheadOfQueue", 2)]  # no logic offset is stored
    assert found({0: in_0 + 1}) == [("offsetAheadOfQueue", 0)]
    assert found({0: in_0 + 1, 2: in_2}) == []  # passed
    assert found({9: 5}) == [("offsetWithoutQueue", 9)]  # of no logic queue


@pytest.mark.parametrize("has_backup", [True, False])
def test_check_tells_of_a_broken_mapping(static_store: Path, has_backup: bool) -> None:
    path = static_store / "config" / "topicQueueMapping.json"
    if has_backup:
        path.with_name(f"{path.name}.bak").write_bytes(path.read_bytes())
    path.write_text(path.read_text()[:-9])
    found = [row for row in Store(static_store).check().to_pylist() if row["file"] == str(path)]
    assert [row["problem"] for row in found] == ["oldConfig" if has_backup else "brokenConfig"]
    assert "rebuild" not in found[0]["advice"]  # which makes no mapping


def test_config_from_says_that_logic_queues_stay(
    static_store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (static_store / "config" / "topics.json").write_text('{"topicConfigTable":{"St":{"readQueueNums":4}}}')
    for topic, is_told in ("St", True), ("Other", False):
        caplog.clear()
        rows = Store(static_store).messages(subscribe=topic).read_all()
        write_store(tmp_path / f"of {topic}", rows, configFrom=str(static_store))
        assert ("does not have their logic queues" in caplog.text) == is_told
        assert not (tmp_path / f"of {topic}" / "config" / "topicQueueMapping.json").exists()


def test_a_hostile_mapping_gives_no_error(static_store: Path, rng: random.Random) -> None:
    path = static_store / "config" / "topicQueueMapping.json"
    values: list[Any] = [None, -5, 1 << 70, "x", [], {}, 1.5, True, (1 << 63) - 1]
    sound = _mapping({"7": [_part(0, 100, 2, 6), _part(2, 104, 0)]})
    for _ in range(20):
        table = json.loads(json.dumps(sound))
        mapping = table["topicQueueMappingInfoMap"]["St"]
        place = rng.choice((mapping, mapping["hostedQueues"], mapping["hostedQueues"]["7"][0]))
        place[rng.choice([*place, "x"])] = rng.choice(values)
        path.write_text(json.dumps(table))
        Store(static_store).logicqueues()
        assert len(reading.read(static_store, columns=["logicOffset"])) == 40
    path.write_text("{")
    assert static_parts(str(static_store), reading.new_files()) == []


def test_the_reference_agrees_on_what_is_stored(static_store: Path) -> None:
    assert reference.read_store(static_store) == reading.read(static_store)
