"""What a copy brings along of config/: all of it, or an error; and of a part, what belongs to that part."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from support.nobody import READS_ALL
from support.writing import Row, write

import rmqstore_spark
from rmqstore_spark import DamagedStoreError, OptionError, Store

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
OFFSETS = {"Orders@g": {0: 4, 1: 2}, "Orders@late": {0: 1}, "Other@g": {0: 3}, "Old@g": {0: 7}}
CONFIG: dict[str, Any] = {
    "subscriptionGroup": {"subscriptionGroupTable": {"g": {"groupName": "g", "retryMaxTimes": 3}}},
    "consumerOffset": {"offsetTable": {name: {str(n): at for n, at in of.items()} for name, of in OFFSETS.items()}},
    "delayOffset": {"offsetTable": {"1": 3}},
    "messageRequestMode": {"messageRequestModeMap": {"Orders": {"g": {"topic": "Orders"}}}},
    "consumerFilter": {"filterDataByTopic": {"Orders": {"topic": "Orders"}}},
    "topicQueueMapping": {"topicQueueMappingInfoMap": {"Orders": {"bname": "b"}, "Other": {}}, "dataVersion": {}},
    "consumerOrderInfo": {"table": {"Orders@g": {"0": {}}, "Other@g": {"0": {}}}},
}
CONFIG_FROM = ["topics", "subscriptionGroup", "consumerOffset", "delayOffset"]


def row(topic: str, queue_id: int, number: int) -> Row:
    time = (1_700_000_000_000 + number) * 1000
    found: Row = {"topic": topic, "queueId": queue_id, "storeTimestamp": time, "msgId": f"{topic}-{number}"}
    found |= {"body": b"x", "keys": f"k{number}", "tags": f"t{number % 3}"}
    if topic == SCHEDULE:
        found["properties"] = {"REAL_TOPIC": "Orders", "REAL_QID": "0", "DELAY": "1"}
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    topics = [("Orders", 0), ("Orders", 1), ("Other", 0), (SCHEDULE, 0)]
    rows = [row(*topics[number % 4], number) for number in range(20)]
    write(
        root, [each for each in rows if each["topic"] != SCHEDULE], [each for each in rows if each["topic"] == SCHEDULE]
    )
    for name, value in CONFIG.items():
        (root / "config" / f"{name}.json").write_text(json.dumps(value))
    return root


def config(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "config" / f"{name}.json").read_text())
    return found


# ---- files that are damaged


def cut(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(1, path.stat().st_size)])


def emptied(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def zeroed(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def not_text(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes().replace(b"Orders", b"Ord\xe5rs").replace(b'"1"', b'"\xe5"'))
    path.write_bytes(path.read_bytes().replace(b"groupName", b"groupN\xe5me"))


def other_shape(path: Path, rng: random.Random) -> None:
    found = json.loads(path.read_text())
    member = next(name for name, value in found.items() if name != "dataVersion" and isinstance(value, dict))
    path.write_text(json.dumps({member: 5}))


def other_entries(path: Path, rng: random.Random) -> None:
    found = json.loads(path.read_text())
    member = next(name for name, value in found.items() if name != "dataVersion" and isinstance(value, dict))
    path.write_text(json.dumps({member: {**found[member], "Another@g": "x"}}))


def a_directory(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def a_link(path: Path, rng: random.Random) -> None:
    """To a file elsewhere: it would be read into the new store."""
    path.rename(path.parents[2] / "secret.json")
    path.symlink_to(path.parents[2] / "secret.json")


def a_link_to_nowhere(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to("gone")


def forbidden(path: Path, rng: random.Random) -> None:
    path.chmod(0)


Harm = Callable[[Path, random.Random], None]
HARMS: list[Harm] = [cut, emptied, zeroed, not_text, other_shape, other_entries]
HARMS += [a_directory, a_link, a_link_to_nowhere]
HARMS += [] if READS_ALL else [forbidden]  # as root: tests/repo/test_as_nobody.py


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", ["topics", *CONFIG])
def test_a_damaged_file(tmp_path: Path, source: Path, rng: random.Random, harm: Harm, name: str) -> None:
    """Refused by a copy; told of by a salvage, which goes on without what is in it."""
    path = source / "config" / f"{name}.json"
    harm(path, rng)
    target = tmp_path / "target"
    with pytest.raises(DamagedStoreError, match=rf"config/{name}\.json.*would lack what is in {name}\.json.*salvage"):
        Store(source).copy(target)
    assert not target.exists()
    made = Store(source).salvage(target)
    lost = [(row["problem"], row["file"]) for row in made.lost.to_pylist()]
    assert (made.messages, lost) == (20, [("brokenConfig", str(path))])
    assert len(reference.read_store(target)) == 20
    files = {path.stem for path in (target / "config").iterdir()}
    others = {*CONFIG, "topics"} - {name}
    assert others <= files
    assert all(config(target, each).items() >= CONFIG[each].items() for each in others - {"topics", "consumerOffset"})
    if "consumerOffset" in others:
        assert config(target, "consumerOffset")["offsetTable"].keys() == OFFSETS.keys()
    if name not in ("topics", "consumerOffset"):
        assert name not in files
    elif name == "consumerOffset":
        assert config(target, name)["offsetTable"] == {}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", CONFIG_FROM)
def test_config_from(tmp_path: Path, source: Path, rng: random.Random, harm: Harm, name: str) -> None:
    harm(source / "config" / f"{name}.json", rng)
    rows = Store(source).messages(["topic", "queueId", "queueOffset", "body"], subscribe="Orders").read_all()
    with pytest.raises(OptionError, match=rf"'configFrom': .*config/{name}\.json"):
        rmqstore_spark.write_store(tmp_path / "target", rows, configFrom=str(source))
    assert not (tmp_path / "target" / "commitlog").exists()


def test_a_backup_counts(tmp_path: Path, source: Path, rng: random.Random) -> None:
    """As for a broker."""
    for name in ("topics", *CONFIG):
        path = source / "config" / f"{name}.json"
        shutil.copy(path, f"{path}.bak")
        emptied(path, rng)
    assert Store(source).copy(tmp_path / "target").lost.num_rows == 0
    assert config(tmp_path / "target", "subscriptionGroup") == CONFIG["subscriptionGroup"]
    assert config(tmp_path / "target", "consumerOffset")["offsetTable"].keys() == OFFSETS.keys()


def test_a_config_that_is_a_link(tmp_path: Path, source: Path) -> None:
    (source / "config").rename(tmp_path / "elsewhere")
    (source / "config").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedStoreError, match="source/config: expected a directory, found a link"):
        Store(source).copy(tmp_path / "target")


@pytest.mark.parametrize("name", ["consumerOffset", "delayOffset"])
def test_one_of_several(tmp_path: Path, source: Path, rng: random.Random, name: str) -> None:
    """What waits in a store, these files say: it would come twice."""
    other = tmp_path / "other"
    write(other, [row("Orders", 0, 90)])
    cut(source / "config" / f"{name}.json", rng)
    with pytest.raises(DamagedStoreError, match=f"would lack what is in {name}"):
        Store([other, source]).copy(tmp_path / "target")
    made = Store([other, source]).salvage(tmp_path / "target")
    assert "brokenConfig" in made.lost["problem"].to_pylist()


# ---- a part of a store

PARTS: list[dict[str, Any]] = [
    {"startingOffsets": "group:g"},
    {"startingOffsets": '{"Orders": {"0": 1, "1": 3}}', "subscribe": "Orders"},
    {"endingOffsets": '{"Orders": {"0": 2, "1": 2}}', "subscribe": "Orders"},
    {"startingTimestamp": 1_700_000_000_012},
    {"endingTimestamp": 1_700_000_000_002},
    {"subscribe": "Orders"},
    {"subscribePattern": "O.*"},
    {"assign": '{"Orders": [1]}'},
    {"key": "k4"},
    {"tags": "t1"},
    {"msgId": "Orders-4"},
]


@pytest.mark.parametrize("given", PARTS)
def test_a_part(tmp_path: Path, source: Path, given: dict[str, Any]) -> None:
    """Only topics with messages come along, with the progress in them; no group and no delay level is further than the
    copy."""
    expected = Store(source).messages(["msgId"], **given).read_all()["msgId"].to_pylist()
    target = tmp_path / "target"
    assert Store(source).copy(target, **given).messages == len(expected) < 20
    rows = reference.read_store(target)
    assert [each["msgId"] for each in rows] == expected
    topics = {str(each["topic"]) for each in rows}
    assert set(config(target, "topics")["topicConfigTable"]) == topics
    ends = {(each["topic"], each["queueId"]): int(str(each["queueOffset"])) + 1 for each in rows}
    wanted = {
        name: {str(n): min(at, ends.get((name.partition("@")[0], n), 0)) for n, at in of.items()}
        for name, of in OFFSETS.items()
        if name.partition("@")[0] in topics
    }
    assert config(target, "consumerOffset")["offsetTable"] == wanted
    assert config(target, "delayOffset")["offsetTable"] == {"1": min(3, ends.get((SCHEDULE, 0), 0))}
    orders = CONFIG["consumerOrderInfo"]["table"]
    assert set(config(target, "consumerOrderInfo")["table"]) == {n for n in orders if n.partition("@")[0] in topics}
    mapped = CONFIG["topicQueueMapping"]["topicQueueMappingInfoMap"]
    path = target / "config" / "topicQueueMapping.json"
    assert path.exists() == bool(topics & mapped.keys())
    if path.exists():
        kept = {"topicQueueMappingInfoMap": {topic: mapped[topic] for topic in mapped if topic in topics}}
        assert json.loads(path.read_text()) == {**CONFIG["topicQueueMapping"], **kept}


def test_static_topics_of_several(tmp_path: Path, source: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Their queues get other numbers."""
    write(tmp_path / "other", [row("Orders", 0, 90)])
    Store([tmp_path / "other", source]).copy(tmp_path / "target")
    assert not (tmp_path / "target" / "config" / "topicQueueMapping.json").exists()
    assert [text for text in caplog.messages if f"{source}: static topics" in text]


# ---- readers


def test_where_a_group_stands_is_not_known(source: Path, tmp_path: Path, rng: random.Random) -> None:
    """Also where another store knows the group, or the rest of the file does."""
    other = tmp_path / "other"
    write(other, [row("Orders", 0, 90)])
    (other / "config" / "consumerOffset.json").write_text('{"offsetTable": {"Orders@g": {"0": 4, "1": "2"}}}')
    for paths in ([other], [source, other]):
        with pytest.raises(OptionError, match=r"consumer group 'g' stands is not known: .*other/config/consumerOffset"):
            Store(paths).messages(startingOffsets="group:g", subscribe="Orders").read_all()


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("topics", "topics"),
        ("groups", "subscriptionGroup"),
        ("groups", "consumerOffset"),
        ("offsets", "consumerOffset"),
        ("delayed", "delayOffset"),
        ("inflight", "consumerOrderInfo"),
    ],
)
def test_tables_say_so(
    source: Path, rng: random.Random, caplog: pytest.LogCaptureFixture, table: str, name: str
) -> None:
    cut(source / "config" / f"{name}.json", rng)
    Store(source).table(table)
    assert any(f"{name}.json: expected JSON" in text and f"table '{table}'" in text for text in caplog.messages)
