"""Messages of light queues (LMQ): those that the full scan shows, whatever the queues look like."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import aged_stores, damage, light, reference
from oracle.stores import StoreBuilder
from support import flavours, reading

import rmqstore_spark
from rmqstore_spark.errors import OptionError

COLUMNS = [*reading.DEFAULT_COLUMNS, "multiDispatch"]
Row = dict[str, Any]


def _of(rows: list[Row], name: str, least: int = 0, most: int = 1 << 62) -> list[Row]:
    return [row for row in rows if least <= light.light_queues(row).get(name, -1) <= most]


@settings(max_examples=40)
@given(st.integers(0, 1 << 32), st.lists(st.sampled_from(sorted(damage.DAMAGES)), max_size=2))
def test_selected_are_those_of_the_full_scan(seed: int, damages: list[str]) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        light.made_store(root, rng, 60)
        for name in damages:
            damage.DAMAGES[name](root, rng)
        rows = reading.read(root, columns=COLUMNS)
        assert [dict(row["multiDispatch"] or ()) for row in rows] == list(map(light.light_queues, rows))
        name, other = rng.sample(light.NAMES[:3], 2)
        assert reading.read(root, columns=COLUMNS, subscribe=name) == _of(rows, name)
        both = [row for row in rows if light.light_queues(row).keys() & {name, other}]
        assert reading.read(root, columns=COLUMNS, subscribe=f"{name},{other}", prices=reading.FREE) == both
        least, most = rng.randrange(20), rng.randrange(20)
        offsets = {"startingOffsets": {name: {"0": least}}, "endingOffsets": {name: {"0": max(least, most)}}}
        found = reading.read(
            root, columns=COLUMNS, assign=json.dumps({name: [0]}), **{k: json.dumps(v) for k, v in offsets.items()}
        )
        assert found == _of(rows, name, least, max(least, most) - 1)
        tag = rng.choice("xyz")
        tagged = [row for row in _of(rows, name) if row["tags"] == tag]
        assert reading.read(root, columns=COLUMNS, subscribe=name, tags=tag, prices=reading.FREE) == tagged
        key = rng.choice(rows)["keys"] if rows else "none"
        keyed = [row for row in _of(rows, name) if row["keys"] == key]
        assert reading.read(root, columns=COLUMNS, subscribe=name, key=key or "none", prices=reading.FREE) == keyed


@settings(max_examples=20)
@given(st.integers(0, 1 << 32))
def test_trusted_queues_give_the_same(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        light.made_store(root, rng, 100, odd=0)
        rows = reading.read(root, columns=COLUMNS)
        for names in (light.NAMES[:1], light.NAMES[1:3]):
            options = {"subscribe": ",".join(names), "trust": "queues", "prices": reading.FREE}
            found = reading.read(root, columns=COLUMNS, **options)
            assert found == [row for row in rows if light.light_queues(row).keys() & set(names)]
        tagged = [row for row in _of(rows, light.NAMES[0]) if row["tags"] == "x"]
        options = {"subscribe": light.NAMES[0], "tags": "x", "trust": "queues", "prices": reading.FREE}
        assert reading.read(root, columns=COLUMNS, **options) == tagged


@pytest.mark.parametrize(
    ("consumed", "options", "expected"),
    [
        (["%LMQ%a"], {}, ["%LMQ%a"]),
        (["%LMQ%a", "TopicA"], {}, ["TopicA"]),  # with a warning
        (["%LMQ%a", "TopicA"], {"subscribe": "%LMQ%a"}, ["%LMQ%a"]),
        (["%LMQ%a", "%LMQ%b"], {"subscribe": "%LMQ%b"}, ["%LMQ%b"]),
        (["%LMQ%a"], {"tags": "x"}, ["%LMQ%a"]),
    ],
)
def test_what_a_group_has_not_consumed(
    consumed: list[str], options: dict[str, str], expected: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a group with offsets of light queues alone, these; of another its topics, unless light queues are named."""
    _, rows = light.made_store(tmp_path, random.Random(7), 60, odd=0)
    (tmp_path / "config").mkdir(exist_ok=True)
    offsets = {f"{name}@group": {"0": 2, "1": 2} if name == "TopicA" else {"0": 2} for name in consumed}
    (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    found = reading.read(tmp_path, columns=["commitLogOffset"], startingOffsets="group:group", **options)
    wanted = [row for row in rows if any(_is_left(row, name) for name in expected)]
    wanted = [row for row in wanted if options.get("tags") in (None, row["tags"])]
    assert [row["commitLogOffset"] for row in found] == [row["commitLogOffset"] for row in wanted]
    assert wanted
    assert ("also consumes light queue" in caplog.text) == (expected == ["TopicA"])


def _is_left(row: Row, name: str) -> bool:
    if name.startswith("%LMQ%"):
        return light.light_queues(row).get(name, -1) >= 2
    return bool(row["topic"] == name and row["queueOffset"] >= 2)


def test_explain_says_why_the_queue_is_not_read(tmp_path: Path) -> None:
    light.made_store(tmp_path, random.Random(1), 300, odd=0)
    plan = reading.make_plan(tmp_path, subscribe="%LMQ%a", prices=reading.FREE)
    ((_, access),) = plan.accesses
    assert access.name == "scan"
    assert "nothing proves that a light queue has all of its messages" in access.unused[0]
    plan = reading.make_plan(tmp_path, subscribe="%LMQ%a", prices=reading.FREE, trust="queues")
    assert [access.name for _, access in plan.accesses] == ["consumequeue"]


def test_tables_know_light_queues(tmp_path: Path) -> None:
    _, rows = light.made_store(tmp_path, random.Random(2), 200, odd=0)
    store = rmqstore_spark.Store(tmp_path)
    there = {row["topic"]: row for row in store.queues().to_pylist() if row["queueType"] == "lmq"}
    assert there.keys() == set(light.NAMES[:3])
    for name, row in there.items():
        offsets = [light.light_queues(each)[name] for each in _of(rows, name)]
        assert (row["minOffset"], row["maxOffset"], row["messages"]) == (0, max(offsets) + 1, len(offsets))
        assert row["lastCommitLogOffset"] == _of(rows, name)[-1]["commitLogOffset"]
    assert [row for row in store.check().to_pylist() if "%LMQ%" in (row["topic"] or "")] == []


def _units(store: StoreBuilder, name: str) -> bytes:
    files = sorted(store.queue_directory(name, 0).iterdir())
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def test_check_sees_each_wrong_unit(tmp_path: Path) -> None:
    store, _ = light.made_store(tmp_path, random.Random(3), 200, odd=0)
    path = store.queue_directory("%LMQ%a", 0) / f"{0:020d}"
    sound = path.read_bytes()

    def found(data: bytes) -> list[tuple[str, int]]:
        path.write_bytes(data)
        rows = rmqstore_spark.Store(tmp_path).check().to_pylist()
        return [(row["problem"], row["queueOffset"]) for row in rows if row["topic"] == "%LMQ%a"]

    assert found(sound) == []
    swapped = sound[:40] + sound[60:80] + sound[40:60] + sound[80:]
    assert found(swapped) == [("wrongQueueUnit", 2), ("wrongQueueUnit", 3)]
    assert ("missingQueueUnit", 4) in found(sound[:80] + bytes(20) + sound[100:])


def test_a_rebuild_makes_them_anew(tmp_path: Path) -> None:
    store, rows = light.made_store(tmp_path, random.Random(4), 200, odd=0)
    before = {name: _units(store, name) for name in light.NAMES[:3]}
    for file in store.queue_directory("%LMQ%b", 0).iterdir():
        file.unlink()
    assert rmqstore_spark.rebuild(tmp_path) == sum(row["sysFlag"] & 0xC in (0, reference.COMMIT) for row in rows)
    assert {name: _units(store, name) for name in light.NAMES[:3]} == before
    topics = json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert not [name for name in topics if name.startswith("%LMQ%")]


def test_a_copy_keeps_them(tmp_path: Path) -> None:
    store, rows = light.made_store(tmp_path / "a", random.Random(6), 200, odd=0)
    assert store.root == tmp_path / "a"
    source = rmqstore_spark.Store(tmp_path / "a")
    source.copy(str(tmp_path / "whole"))
    assert _ends(tmp_path / "whole") == _ends(tmp_path / "a")
    for name in light.NAMES[:3]:
        wanted = [row["keys"] for row in _of(rows, name)]
        found = reading.read(tmp_path / "whole", columns=["keys"], subscribe=name, trust="queues", prices=reading.FREE)
        assert [row["keys"] for row in found] == wanted
    source.copy(str(tmp_path / "one"), subscribe="%LMQ%a")
    assert _ends(tmp_path / "one")["%LMQ%a"] == _ends(tmp_path / "a")["%LMQ%a"]
    copied = reading.read(tmp_path / "one", columns=["keys"])
    assert [row["keys"] for row in copied] == [row["keys"] for row in _of(rows, "%LMQ%a")]
    for name in ("whole", "one"):
        problems = {row["problem"] for row in rmqstore_spark.Store(tmp_path / name).check().to_pylist()}
        assert problems <= {"longRecovery"}
        topics = json.loads((tmp_path / name / "config" / "topics.json").read_text())["topicConfigTable"]
        assert not [topic for topic in topics if topic.startswith("%LMQ%")]


def _with_groups(root: Path) -> None:
    """Offsets as a broker with enableLmq writes them: apart those of groups that are named like light queues."""
    offsets = {
        "offsetTable": {"%LMQ%a@g": {"0": 3}, "TopicA@g": {"0": 1, "1": 2}},
        "lmqOffsetTable": {"%LMQ%a@%LMQ%client": 2, "%LMQ%b@%LMQ%client": 1, "TopicA@%LMQ%client": 1},
    }
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "lmqConsumerOffset.json").write_text(json.dumps(offsets))


def test_groups_that_are_named_like_light_queues(tmp_path: Path) -> None:
    _, rows = light.made_store(tmp_path, random.Random(7), 60, odd=0)
    _with_groups(tmp_path)
    source = rmqstore_spark.Store(tmp_path)
    assert source.groups()["group"].to_pylist() == ["%LMQ%client", "g"]
    own = [row for row in source.offsets().to_pylist() if row["group"] == "%LMQ%client"]
    assert [(row["topic"], row["queueId"], row["consumerOffset"]) for row in own] == [
        ("%LMQ%a", 0, 2),
        ("%LMQ%b", 0, 1),
        ("TopicA", 0, 1),
    ]
    assert own[0]["lag"] == len(_of(rows, "%LMQ%a")) - 2
    found = reading.read(tmp_path, columns=["commitLogOffset"], subscribe="%LMQ%a", startingOffsets="group:%LMQ%client")
    assert [row["commitLogOffset"] for row in found] == [r["commitLogOffset"] for r in _of(rows, "%LMQ%a", 2)]
    problems = [(row["problem"], row["topic"]) for row in source.check().to_pylist()]
    assert ("offsetAheadOfQueue", "%LMQ%b") not in problems
    path = tmp_path / "config" / "lmqConsumerOffset.json"
    path.write_text(path.read_text().replace('%LMQ%b@%LMQ%client": 1', '%LMQ%b@%LMQ%client": 999'))
    problems = [(row["problem"], row["topic"]) for row in rmqstore_spark.Store(tmp_path).check().to_pylist()]
    assert ("offsetAheadOfQueue", "%LMQ%b") in problems


def test_where_a_broker_with_light_queues_looks_for_offsets(tmp_path: Path) -> None:
    """In a file of their own, and in no other: copies and set_offsets put them there."""
    light.made_store(tmp_path / "a", random.Random(7), 60, odd=0)
    _with_groups(tmp_path / "a")
    source, config = rmqstore_spark.Store(tmp_path / "a"), Path("config", "lmqConsumerOffset.json")
    source.copy(tmp_path / "whole")
    assert json.loads((tmp_path / "whole" / config).read_text()) == json.loads((tmp_path / "a" / config).read_text())
    assert not (tmp_path / "whole" / "config" / "consumerOffset.json").exists()
    assert rmqstore_spark.Store(tmp_path / "whole").offsets() == source.offsets()
    source.copy(tmp_path / "one", subscribe="TopicA", groupOffset={"%LMQ%client": {"TopicA": {0: 0}}})
    copied = json.loads((tmp_path / "one" / config).read_text())
    assert copied["offsetTable"]["TopicA@g"] == {"0": 1, "1": 2}
    assert copied["lmqOffsetTable"]["TopicA@%LMQ%client"] == 0
    source.set_offsets({"%LMQ%client": {"TopicA": {0: 0}}})
    changed = json.loads((tmp_path / "a" / config).read_text())
    assert changed["lmqOffsetTable"] == {"%LMQ%a@%LMQ%client": 2, "%LMQ%b@%LMQ%client": 1, "TopicA@%LMQ%client": 0}
    assert changed["offsetTable"] == {"%LMQ%a@g": {"0": 3}, "TopicA@g": {"0": 1, "1": 2}}


def test_a_write_makes_none(tmp_path: Path) -> None:
    """Only a broker numbers messages in light queues: it is refused by name; others leave them as they are."""
    light.made_store(tmp_path, random.Random(8), 100, odd=0)
    before = {path: path.read_bytes() for path in (tmp_path / "consumequeue").glob("%LMQ%*/0/*")}
    rows = rmqstore_spark.Store(tmp_path).messages(["topic", "body", "properties"]).read_all()
    with pytest.raises(
        rmqstore_spark.RmqStoreError, match=r"no light queue .LMQ. in INNER_MULTI_DISPATCH.*found '%LMQ%"
    ):
        rmqstore_spark.write_store(tmp_path, rows, mode="append")
    plain = rows.append_column("keys", pa.repeat("new", len(rows))).drop_columns("properties")
    wanted = pc.invert(pc.match_substring_regex(plain.column("topic"), "^(rmq_sys|RMQ_SYS|%RETRY|SCHEDULE)"))
    assert rmqstore_spark.write_store(tmp_path, plain.filter(wanted), mode="append") == pc.sum(wanted).as_py()
    assert {path: path.read_bytes() for path in (tmp_path / "consumequeue").glob("%LMQ%*/0/*")} == before
    new = reading.read(tmp_path, key="new", columns=["multiDispatch"])
    assert new
    assert {row["multiDispatch"] for row in new} == {None}
    assert [row for row in rmqstore_spark.Store(tmp_path).check().to_pylist() if "%LMQ%" in (row["topic"] or "")] == []


def _ends(root: Path) -> dict[str, tuple[int, int]]:
    rows = rmqstore_spark.Store(root).queues().to_pylist()
    return {row["topic"]: (row["minOffset"], row["maxOffset"]) for row in rows if row["queueType"] == "lmq"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"subscribe": "%LMQ%a,TopicA"}, "read them one after the other"),
        ({"assign": '{"%LMQ%a": [1]}'}, "has no queue 1"),
        ({"subscribe": "%LMQ%a", "startingOffsets": '{"%LMQ%b": {"0": 1}}'}, "leaves out"),
    ],
)
def test_wrong_options(options: dict[str, str], why: str, tmp_path: Path) -> None:
    light.made_store(tmp_path, random.Random(5), 10)
    with pytest.raises(OptionError, match=why):
        reading.read(tmp_path, **options)


@pytest.mark.parametrize("name", ["combined", "rocksdb-all"])
def test_light_queues_in_rocksdb(name: str, tmp_path: Path) -> None:
    root, _ = flavours.unpack(name, tmp_path)
    (row,) = reading.read(root, subscribe="%LMQ%b", columns=["keys", "queueOffset", "multiDispatch"])
    assert row == {"keys": "lmq0", "queueOffset": 5, "multiDispatch": {"%LMQ%a": 0, "%LMQ%b": 0}}
    assert reading.read(root, subscribe="%LMQ%b", columns=list(row), trust="queues", prices=reading.FREE) == [row]


def test_a_key_beside_batches(tmp_path: Path) -> None:
    """An index has the keys of messages in light queues; beside it queues of batches are looked at, which are none."""
    rng = random.Random(487)
    found = 0
    for number in range(4):
        store, _ = aged_stores.aged_store(root := tmp_path / str(number), rng, batches=True)
        positions = {message.position for message in store.light}
        rows = reading.read(root, columns=COLUMNS)
        words = {row["commitLogOffset"]: (row["keys"] or "").split(" ") for row in rows}
        for key in sorted({word for some in words.values() for word in some if word})[:20]:
            chosen = {position for position in positions if key in words[position]}
            expected = [row for row in rows if row["commitLogOffset"] in chosen]
            options = {"subscribe": aged_stores.LMQ, "key": key, "prices": reading.FREE}
            assert reading.read(root, columns=COLUMNS, **options) == expected
            found += len(expected)
    assert found
