"""With option configFrom a new store has the other one's topics and groups, and groups go on where they were."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from oracle import golden, reference
from support import writing
from support.writing import Row, stage_rows, write

from rmqstore_spark import NotAStoreError, OptionError, Store, write_store
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.store.structures import config as config_module
from rmqstore_spark.store.structures.config import OFFSETS

SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 200,
    "maxHashSlotNum": 20,
    "maxIndexNum": 50,
}
GROUPS = {"subscriptionGroupTable": {"G": {"groupName": "G", "retryMaxTimes": 5}}}


def configure(root: Path, name: str, value: Any) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / f"{name}.json").write_text(json.dumps(value))


def config(root: Path, name: str) -> Any:
    return json.loads((root / "config" / f"{name}.json").read_text())


def row(number: int, topic: str = "Orders", queue_id: int = 0) -> Row:
    return {"topic": topic, "queueId": queue_id, "msgId": f"{topic}-{number}", "body": b"%d" % number}


@pytest.fixture
def source(tmp_path: Path, rng: random.Random) -> Path:
    """A store of which groups have consumed all, some or nothing, and one whose next message has expired."""
    root = tmp_path / "source"
    rows = [row(number, f"Orders{rng.randrange(2)}", rng.randrange(3)) for number in range(300)]
    write(root, rows)
    choices = {"G": range(60), "None": [0], "All": [1000], "Some": [0, 1, 7, 30]}
    places = {
        f"Orders{topic}@{group}": {str(queue_id): rng.choice(offsets) for queue_id in range(3)}
        for topic in range(2)
        for group, offsets in choices.items()
    }
    configure(root, "consumerOffset", {"offsetTable": {**places, "Gone@G": {"0": 3}}})
    configure(root, "subscriptionGroup", GROUPS)
    table = config(root, "topics")
    table["topicConfigTable"]["Orders0"] |= {"perm": 4, "writeQueueNums": 8}
    table["topicConfigTable"]["Empty"] = {"topicName": "Empty", "readQueueNums": 3}
    configure(root, "topics", table)
    return root


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_too_large_to_be_parsed(
    source: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come along as those of a small file; what cannot be understood is refused with advice that helps."""
    of_source = source / "config" / OFFSETS[0]
    of_source.rename(of_source.with_name(name))
    rows = Store(source).messages().read_all()

    def copied(new: str) -> Any:
        write_store(tmp_path / new, rows, configFrom=str(source))
        return config(tmp_path / new, name.removesuffix(".json"))

    few = copied("few")
    assert few["offsetTable"]
    of_source.with_name(f"{name}.bak").write_text('{"offsetTable":{"Orders0@Old":{0:1}}}')
    monkeypatch.setattr(config_module, "_MOST_MEMBERS", 12)
    (source / "config" / "topics.json").write_text('{"topicConfigTable":{"Orders0":{"perm":6}}}')
    (source / "config" / "subscriptionGroup.json").unlink()
    assert copied("many") == few
    of_source.with_name(name).write_text(of_source.with_name(name).read_text().replace("{", "[", 3))
    with pytest.raises(OptionError, match=rf"{name}.* remove the option, and give the new store what"):
        copied("broken")


def left(root: Path, group: str) -> list[str]:
    """What a group has not consumed, in order of the log."""
    found = Store(root).messages(["msgId"], startingOffsets=f"group:{group}").read_all()
    return [text for text in found.column("msgId").to_pylist() if text is not None]


def assert_groups_go_on(source: Path, target: Path, written: set[str]) -> None:
    for group in ("G", "None", "All", "Some"):
        assert left(target, group) == [name for name in left(source, group) if name in written]


def test_whole_store(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    store = Store(source)
    assert write_store(target, store.messages(), configFrom=source, **SIZES) == 300
    assert_groups_go_on(source, target, {f"Orders{topic}-{n}" for topic in range(2) for n in range(300)})
    assert config(target, "subscriptionGroup") == GROUPS
    topics = config(target, "topics")["topicConfigTable"]
    assert (topics["Orders0"]["perm"], topics["Orders0"]["writeQueueNums"]) == (4, 8)
    assert set(topics) == {"Orders0", "Orders1"}
    ends = {(row["topic"], row["queueId"]): row["maxOffset"] for row in Store(target).queues().to_pylist()}
    offsets = {(r["group"], r["topic"], r["queueId"]): r["consumerOffset"] for r in Store(target).offsets().to_pylist()}
    assert all(offsets["All", *queue] == end for queue, end in ends.items())
    assert {row["problem"] for row in Store(target).check().to_pylist()} <= {"longRecovery"}


def test_some_rows_by_several_tasks(source: Path, tmp_path: Path, rng: random.Random) -> None:
    """Of a store whose first messages have expired."""
    first = reference.segment_files(source)[0]
    first.unlink()
    rows = Store(source).messages(["topic", "queueId", "queueOffset", "msgId", "body"]).read_all().to_pylist()
    assert rows[0]["queueOffset"] > 0
    rows = [each for each in rows if rng.random() < 0.7]
    cuts = sorted(rng.sample(range(len(rows)), 3))
    parts = [rows[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    target = tmp_path / "target"
    job, staged = stage_rows(target, parts, configFrom=source)
    job.commit(staged)
    job.abandon()
    assert_groups_go_on(source, target, {row["msgId"] for row in rows})
    assert [row["msgId"] for row in reference.read_store(target)] == [row["msgId"] for row in rows]


def test_overwrite(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    write(target, [row(number, "Old") for number in range(9)])
    configure(target, "consumerOffset", {"offsetTable": {"Orders0@G": {"0": 77}, "Old@G": {"0": 5}}})
    before = writing.files(target, "**/*")
    with pytest.raises(
        OptionError, match=r"target: option 'configFrom' needs a new store, and this one has consumer offsets already"
    ):
        Store(target).write(Store(source).messages(), configFrom=source)
    assert writing.files(target, "**/*") == before
    Store(target).write(Store(source).messages(subscribe="Orders1"), "overwrite", configFrom=source, **SIZES)
    assert set(config(target, "consumerOffset")["offsetTable"]) == {
        f"Orders1@{group}" for group in ("G", "None", "All", "Some")
    }
    assert set(config(target, "topics")["topicConfigTable"]) == {"Orders1"}


def test_delay_levels(tmp_path: Path) -> None:
    """A level's messages that were delivered are not delivered again."""
    source, target = tmp_path / "source", tmp_path / "target"
    rows = [row(number, SCHEDULE_TOPIC, number % 3) for number in range(30)]
    write(source, rows)
    configure(source, "delayOffset", {"offsetTable": {"1": 4, "2": 10, "7": 0}})
    found = Store(source).messages(["topic", "queueId", "queueOffset", "body"]).read_all()
    odd = found.filter(pc.equal(pc.bit_wise_and(found.column("queueOffset"), 1), 1))
    write_store(target, odd, configFrom=source, **SIZES)
    assert config(target, "delayOffset")["offsetTable"] == {"1": 2, "2": 5, "7": 0}


@pytest.mark.parametrize("version", golden.VERSIONS[-1:])
def test_a_brokers_store(version: str, tmp_path: Path) -> None:
    source, target = golden.unpack(version, tmp_path), tmp_path / "target"
    store = Store(source)
    topics = [row["topic"] for row in store.topics().to_pylist() if row["kind"] == "user" and row["messages"]]
    write_store(target, store.messages(subscribe=",".join(topics)), configFrom=source)
    known = {(row["group"], row["topic"]) for row in store.offsets().to_pylist() if row["topic"] in topics}
    offsets = Store(target).offsets().to_pylist()
    assert {(row["group"], row["topic"]) for row in offsets} == known
    lags = {(row["group"], row["topic"], row["queueId"]): row["lag"] for row in store.offsets().to_pylist()}
    assert all(row["lag"] == lags[row["group"], row["topic"], row["queueId"]] for row in offsets)


# ---- what cannot be


@pytest.mark.parametrize("name", ["topic", "queueId", "queueOffset"])
def test_columns_that_are_needed(source: Path, tmp_path: Path, name: str) -> None:
    names = [each for each in ("topic", "queueId", "queueOffset", "body") if each != name]
    rows = Store(source).messages(names).read_all()
    with pytest.raises(OptionError, match=f"column '{name}': expected it as our reader gives it, found none"):
        write_store(tmp_path / "target", rows, configFrom=source, topic="T")
    assert not (tmp_path / "target").exists()


def test_rows_in_another_order(source: Path, tmp_path: Path) -> None:
    rows = Store(source).messages().read_all()
    mixed = pa.concat_tables([rows.slice(150), rows.slice(0, 150)])
    told = r"queue [012] of topic 'Orders[01]': expected the rows of each queue in the order of their queueOffsets"
    for table in (mixed, pa.concat_tables([rows, rows])):
        with pytest.raises(OptionError, match=told):
            write_store(tmp_path / "target", table, configFrom=source)
        assert not (tmp_path / "target").exists()
    at, *_ = (n for n, each in enumerate(rows.to_pylist()) if each["queueOffset"] > 5)
    of_queue = [row for row in rows.to_pylist() if (row["topic"], row["queueId"]) == _queue(rows, at)]
    one_batch = pa.Table.from_pylist([*of_queue[:5], of_queue[3], *of_queue[5:]], rows.schema).combine_chunks()
    firsts = [row["queueOffset"] for row in of_queue[:5]]
    with pytest.raises(OptionError, match=f"as one store has them, found {firsts[3]} after {firsts[4]}; write what"):
        write_store(tmp_path / "target", one_batch, configFrom=source)


def _queue(rows: pa.Table, at: int) -> tuple[str, int]:
    return rows.column("topic")[at].as_py(), rows.column("queueId")[at].as_py()


def test_tasks_in_another_order(source: Path, tmp_path: Path) -> None:
    rows = Store(source).messages(["topic", "queueId", "queueOffset", "body"]).read_all().to_pylist()
    job, staged = stage_rows(tmp_path / "target", [rows[100:], rows[:100]], configFrom=source)
    with pytest.raises(OptionError, match="expected the rows of each queue in the order"):
        job.commit(staged)
    job.abandon()
    assert not (tmp_path / "target" / "commitlog").exists()


@pytest.mark.parametrize(
    "topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_C"]
)
def test_topics_that_name_messages(source: Path, tmp_path: Path, topic: str) -> None:
    rows = pa.table({"topic": [topic], "queueId": pa.array([0], pa.int32()), "queueOffset": [0], "body": [b"x"]})
    with pytest.raises(OptionError, match=f"topic '{topic}' is the broker's own"):
        write_store(tmp_path / "target", rows, configFrom=source)
    assert not (tmp_path / "target").exists()


def test_what_is_no_brokers_store(source: Path, tmp_path: Path) -> None:
    rows, target = Store(source).messages().read_all(), tmp_path / "target"
    with pytest.raises(NotAStoreError):
        write_store(target, rows, configFrom=tmp_path / "nothing")
    without_config = tmp_path / "without"
    write(without_config, [row(0)])
    shutil.rmtree(without_config / "config")
    with pytest.raises(OptionError, match=r"topics\.json: expected the broker's topics, found none"):
        write_store(target, rows, configFrom=without_config)
    assert not target.exists()
