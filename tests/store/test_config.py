"""The broker's config files are hints, understood as fastjson writes them; missing, odd or hostile ones say nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from oracle import golden, stores

from rmqstore_spark import DamagedStoreError, Store, write_store
from rmqstore_spark.jobs.findings import Findings
from rmqstore_spark.jobs.verdict import verdict
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures import config as config_module
from rmqstore_spark.store.structures.config import load, topic_entries, topic_queues
from rmqstore_spark.store.structures.consumer_offsets import consumed


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path / "config"


def read(text: str | bytes, path: Path) -> object:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(str(path), Files())


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_real_stores(version: str, tmp_path: Path) -> None:
    root = golden.unpack(version, tmp_path / "store")
    files = Files()
    queues = topic_queues(topic_entries(str(root), files))
    assert queues.items() >= {("SCHEDULE_TOPIC_XXXX", 18), ("Batches", 2), ("SELF_TEST_TOPIC", 1)}
    topics = {topic for topic, _ in golden.load_truth(version).bounds}
    assert {topic for topic in topics if topic[0] not in "%rR"} <= set(queues)  # some system topics are not in it
    for topic, queue_id in golden.load_truth(version).bounds:
        assert topic not in queues or queue_id < queues[topic]
    assert consumed(str(root), files).topics >= {"Retried", "RMQ_SYS_TRANS_HALF_TOPIC"}
    assert all("@" not in topic for topic in consumed(str(root), files).topics)
    assert files.bytes > 1000
    for path in (root / "config").glob("*.json"):
        assert load(str(path), files) is not None, path


def test_built_store(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)
    store.append("TopicA", queue_id=3)
    store.append("TopicB")
    store.close()
    assert topic_queues(topic_entries(str(tmp_path), Files())) == {"TopicA": 4, "TopicB": 1}
    assert consumed(str(tmp_path), Files()).topics == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ('{\n\t"offsetTable":{\n\t\t"T@G":{0:12,1:-9\n\t\t}\n\t}\n}', {"offsetTable": {"T@G": {"0": 12, "1": -9}}}),
        ("{0:1,-2 :3,\n\t4\t:[5,6]}", {"0": 1, "-2": 3, "4": [5, 6]}),
        ('{"0":1}', {"0": 1}),
        # What only looks like such a key.
        ('{"a":"{0:1,2:3}","b":"\\"{7:8}"}', {"a": "{0:1,2:3}", "b": '"{7:8}'}),
        ('{"a\\\\":1,2:"x:3:y"}', {"a\\": 1, "2": "x:3:y"}),
        ('{"中文":"\\u4e2d"}', {"中文": "中"}),
        ('{"a":{"$ref":"$.b"}}', {"a": {"$ref": "$.b"}}),
    ],
)
def test_what_fastjson_writes(text: str, expected: object, tmp_path: Path) -> None:
    assert read(text, tmp_path / "x.json") == expected


NOT_OBJECTS: list[str | bytes] = [
    *("", " ", "[]", "1", "null", '"text"', "{", '{"a":', '{"a":1,}', "{1}", "{1:}", "{a:1}", '{"a":1}x', "\0" * 100),
    *('{"a":"no end', '{"a":"\\"', '"' * 1001, '{"a":"' + '\\"' * 50_000, "1" * 5000, "{" + "1" * 5000 + ":1}x"),
    *(
        '{"a":' + "9" * 5000 + "}",
        "1" * 1_000_000,
        "[" * 100_000,
        '{"a":' * 100_000,
        "{1:" * 100_000,
        "1 " * 50_000 + ":",
    ),
    *(b"\xff\xfe{", b'{"a":\xff}'),
]


@pytest.mark.parametrize("text", NOT_OBJECTS, ids=range(len(NOT_OBJECTS)))
def test_hostile_text_is_none(text: str | bytes, tmp_path: Path) -> None:
    assert read(text, tmp_path / "x.json") is None


def test_text_that_is_not_utf8_spoils_only_itself(tmp_path: Path) -> None:
    assert read(b'{"\xff":1,"b":2}', tmp_path / "x.json") == {"\N{REPLACEMENT CHARACTER}": 1, "b": 2}


def test_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    files = Files()
    assert load(str(path), files) is None
    assert files.bytes == 0


def test_backup(tmp_path: Path) -> None:
    path, backup = tmp_path / "x.json", tmp_path / "x.json.bak"
    assert load(str(path), Files()) is None
    backup.write_text("{1:2}")
    assert load(str(path), Files()) == {"1": 2}
    for broken in ("", '{"a":', "[]"):
        assert read(broken, path) == {"1": 2}
    assert read("{3:4}", path) == {"3": 4}
    path.unlink()
    path.mkdir()
    assert load(str(path), Files()) == {"1": 2}
    path.rmdir()
    os.mkfifo(path)
    assert load(str(path), Files()) == {"1": 2}


def test_no_backup_of_a_file_that_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be whole, and its backup is older."""
    path, backup = tmp_path / "x.json", tmp_path / "x.json.bak"
    path.write_text(json.dumps({str(number): number for number in range(50)}))
    backup.write_text("{1:2}")
    for name in ("_MOST_MEMBERS", "_MOST_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(config_module, name, 40)
            assert load(str(path), Files()) is None
    assert f"{path}: expected at most" in caplog.text
    assert len(load(str(path), Files()) or {}) == 50


def test_check_of_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may take it: check says that it was not looked at, and names no command that refuses it."""
    write_store(tmp_path / "store", pa.table({"topic": ["T"], "body": ["x"]}))
    config = tmp_path / "store" / "config"
    topics = {f"T{number}": {"topicName": f"T{number}"} for number in range(50)}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    monkeypatch.setattr(config_module, "_MOST_MEMBERS", 60)
    store = Store(tmp_path / "store")
    rows = [row for row in store.check().to_pylist() if row["area"] == "config" or row["problem"] == "notLookedAt"]
    assert [row["problem"] for row in rows] == ["notLookedAt"]
    assert "move it away" in rows[0]["advice"]
    answer = verdict(Findings.of(rows), str(tmp_path / "store"))
    assert (answer.text.startswith("Cannot tell"), answer.is_good, answer.commands) == (True, False, [])
    with pytest.raises(DamagedStoreError, match="mend it by hand"):
        store.rebuild_config()
    (config / "topics.json").unlink()
    assert "T" in store.rebuild_config()["entry"].to_pylist()


def test_queues_of_topics(config: Path) -> None:
    table = {
        "both": {"readQueueNums": 4, "writeQueueNums": 8},
        "more to read": {"readQueueNums": 8, "writeQueueNums": 4},
        "none": {"readQueueNums": 0, "writeQueueNums": 0},
        "one named": {"readQueueNums": 20},
        "none named": {"topicName": "none named"},
        "wrong types": {"readQueueNums": "8", "writeQueueNums": True},
        "one wrong": {"readQueueNums": [8], "writeQueueNums": 3},
        "out of range": {"readQueueNums": -1, "writeQueueNums": 1 << 31},
        "no object": 5,
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    expected = {"both": 8, "more to read": 8, "none": 0, "one named": 20, "none named": 16}
    expected |= {"wrong types": 16, "one wrong": 3, "out of range": 16}
    assert topic_queues(topic_entries(str(config.parent), Files())) == expected


def test_topics_with_offsets(config: Path) -> None:
    table = '{"T@G":{0:1},"T@H":{},"%RETRY%G@G":{0:0},"U@":5,"@G":{0:1},"no group":{0:1},7:{0:1}}'
    (config / "consumerOffset.json").write_text(f'{{"offsetTable":{table}}}')
    assert consumed(str(config.parent), Files()).topics == {"T", "%RETRY%G", "U"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"topicConfigTable":[1],"offsetTable":"x"}', '{"a":{"b":1}}'])
def test_other_shapes_name_nothing(text: str, config: Path) -> None:
    for name in ("topics.json", "consumerOffset.json"):
        (config / name).write_text(text)
    assert topic_queues(topic_entries(str(config.parent), Files())) == {}
    assert consumed(str(config.parent), Files()).topics == set()


def test_no_config(tmp_path: Path) -> None:
    assert topic_queues(topic_entries(str(tmp_path), Files())) == {}
    assert consumed(str(tmp_path), Files()).topics == set()
