"""config/ made anew: from backups, else from what offsets, queues and the log say, against what brokers had written;
also when it is killed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from support import flavours, writing
from support.command import run
from support.killing import SIZES, STOPS, Killed, Stopper, assert_goes_on, open_files, state, stopped_at_every_change

from rmqstore_spark import NotAStoreError, RmqStoreError, Store
from rmqstore_spark.store.structures.config import MEMBERS, parse
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.lock import StoreLock

SAMPLE = Path(__file__).parents[2] / "sample_store"
FILES = list(MEMBERS)


def rows(topic: str, queues: int) -> list[writing.Row]:
    return [{"topic": topic, "queueId": n % queues, "msgId": f"{topic}-{n}", "body": b"x" * 40} for n in range(20)]


def put(root: Path, name: str, member: dict[str, Any], **others: Any) -> None:
    (root / "config" / name).write_text(json.dumps({MEMBERS[name.removesuffix(".bak")]: member, **others}))


def config(root: Path, name: str) -> dict[str, Any]:
    return parse((root / "config" / name).read_text())


def entries(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = config(root, name)[MEMBERS[name]]
    return found


def told(found: Any, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in found.to_pylist()]


@pytest.fixture
def root(home: Path) -> Path:
    """Topics with two queues and with three, a group with offsets, one with a retry topic."""
    root = home / "store"
    writing.write(root, rows("Orders", 2), rows("Others", 3), rows("%RETRY%shipping", 1), sizes=SIZES)
    put(root, "consumerOffset.json", {"Orders@billing": {"0": 7}})
    put(root, "subscriptionGroup.json", {"billing": {"groupName": "billing", "retryMaxTimes": 3}}, more={"a": 1})
    return root


@pytest.fixture
def sample(home: Path) -> Path:
    shutil.copytree(SAMPLE, home / "sample")
    return home / "sample"


def spoil(root: Path, name: str, rng: random.Random) -> str | None:
    """Something that no broker reads in the place of a file; returns the kind of what is kept of it."""
    path = root / "config" / name
    kind = rng.choice(["cut", "noise", "empty", "directory", "none", "list", "shape"])
    data = path.read_bytes() if path.exists() else b'{"a": 1}'
    path.unlink(missing_ok=True)
    if kind == "directory":
        path.mkdir()
        (path / "x").write_text("x")
    elif kind != "none":
        texts = {"cut": data[: len(data) - 5], "noise": rng.randbytes(30), "empty": b"", "list": b"[1]"}
        path.write_bytes(texts.get(kind, json.dumps({MEMBERS[name]: 5}).encode()))
    return None if kind == "none" else kind


@pytest.mark.parametrize("name", FILES)
def test_a_backup(sample: Path, rng: random.Random, name: str) -> None:
    """Its contents are the new file's; what was in the file's place is kept, and all else stays as it is."""
    for _ in range(3):
        root = sample.with_name("store")
        shutil.copytree(sample, root)
        good = {MEMBERS[name]: {}} if not (root / "config" / name).exists() else config(root, name)
        (root / "config" / f"{name}.bak").write_text(json.dumps(good))
        kind = spoil(root, name, rng)
        before = state(root)
        assert Store(root).rebuild_config(dry_run=True).num_rows
        assert state(root) == before
        found = Store(root).rebuild_config()
        assert (name, None, "backup") in told(found, "file", "entry", "source")
        assert "nowhere" not in found.column("source").to_pylist()
        made = config(root, name)
        made.get("dataVersion", {}).clear()
        good.get("dataVersion", {}).clear()
        assert made == good
        aside = root / "config" / f"{name}.broken"
        assert (kind is None, kind == "directory") == (not aside.exists(), aside.is_dir())
        after = {path: data for path, data in state(root).items() if ".broken" not in path}
        beside = f"config/{name}/x"
        assert {**before, f"config/{name}": b"", "lock": b"", beside: b""} == {
            **after,
            f"config/{name}": b"",
            "lock": b"",
            beside: b"",
        }
        assert {row[1] for row in told(Store(root).rebuild_config(), "entry", "source")} == {"file"}  # nothing to do
        assert not [row for row in Store(root).check().to_pylist() if row["severity"] != "info"]
        shutil.rmtree(root)


def test_nothing_is_left(sample: Path, rng: random.Random) -> None:
    """Against what the broker itself had written: topics with queues, groups with offsets, and how far delayed messages
    were delivered. Only the numbers of queues that had no message are unknown."""
    for name in FILES:
        if name != "consumerOffset.json":
            (sample / "config" / f"{name}.bak").unlink(missing_ok=True)
            spoil(sample, name, rng)
    found = Store(sample).rebuild_config()
    before, after = (entries(root, "topics.json") for root in (SAMPLE, sample))
    queues: dict[str, int] = {}
    for unit in (reference.parse_unit(data, at) for at, data in reference.read_units(SAMPLE)):
        queues[unit.topic.decode()] = max(queues.get(unit.topic.decode(), 0), unit.queue_id + 1)
    own = ("SCHEDULE", "RMQ_SYS", "rmq_sys", "TRANS_CHECK")
    assert {name: entry["readQueueNums"] for name, entry in after.items()} == {
        name: count for name, count in queues.items() if not name.startswith(own)
    }
    assert {*after} <= {*before}
    groups = {name.partition("@")[2] for name in entries(SAMPLE, "consumerOffset.json")}
    assert {*entries(sample, "subscriptionGroup.json")} == {g for g in groups if not g.startswith("CID_RMQ_SYS")}
    assert entries(sample, "delayOffset.json") == entries(SAMPLE, "delayOffset.json")
    assert ("topics.json", None, "nowhere") in told(found, "file", "entry", "source")
    assert not [row for row in Store(sample).check().to_pylist() if row["severity"] != "info"]


def test_a_lost_file_that_nothing_tells_of(root: Path) -> None:
    """Groups begin anew, each of which is named; those that retry topics name, too."""
    (root / "config" / "consumerOffset.json").write_text("{")
    found = Store(root).rebuild_config()
    assert entries(root, "consumerOffset.json") == {}
    lost = [row for row in told(found, "file", "entry", "source") if row[2] == "nowhere"]
    assert lost == [("consumerOffset.json", entry, "nowhere") for entry in (None, "billing", "shipping")]
    assert entries(root, "subscriptionGroup.json") == {"billing": {"groupName": "billing", "retryMaxTimes": 3}}
    (root / "config" / "subscriptionGroup.json").unlink()
    found = Store(root).rebuild_config()
    assert [*entries(root, "subscriptionGroup.json")] == ["shipping"]
    assert ("subscriptionGroup.json", "shipping", "retries") in told(found, "file", "entry", "source")


def test_groups_of_retry_topics(home: Path) -> None:
    """A pop retry topic is of the group that is known, or that a plus tells; a DLQ tells, too."""
    root = home / "store"
    names = ["Orders", "%RETRY%a_b", "%RETRY%pop_Orders", "%DLQ%pop", "%DLQ%dead"]
    writing.write(root, *(rows(name, 1) for name in names), sizes=SIZES)
    put(root, "topics.json", {**entries(root, "topics.json"), "%RETRY%new+Orders": {}})
    Store(root).rebuild_config()
    assert sorted(entries(root, "subscriptionGroup.json")) == ["a_b", "dead", "new", "pop"]


def test_vanished_topics(root: Path) -> None:
    """A topic with queues gets its entry, one with too few queues more; one that only the log has was deleted."""
    before = config(root, "topics.json")
    table = before["topicConfigTable"]
    del table["Others"]
    del table["%RETRY%shipping"]
    shutil.rmtree(root / "consumequeue" / "%RETRY%shipping")
    table["Orders"] |= {"readQueueNums": 1, "perm": 4, "attributes": {"message.type": "FIFO"}}
    table["Empty"] = {"readQueueNums": 3}
    (root / "config" / "topics.json").write_text(json.dumps(before))
    found = Store(root).rebuild_config()
    after = config(root, "topics.json")
    assert after["topicConfigTable"]["Orders"] == {**table["Orders"], "readQueueNums": 2}
    assert (after["topicConfigTable"].keys(), after["topicConfigTable"]["Others"]["readQueueNums"]) == (
        {"Orders", "Others", "Empty"},
        3,
    )
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    assert [row[:2] for row in told(found, "entry", "source") if row[0]] == [("Orders", "queues"), ("Others", "queues")]
    assert not (root / "config" / "topics.json.broken").exists()


def test_from_the_log(root: Path) -> None:
    """Where queues are gone as well."""
    expected = {name: entry["readQueueNums"] for name, entry in entries(root, "topics.json").items()}
    shutil.rmtree(root / "consumequeue")
    (root / "config" / "topics.json").unlink()
    found = Store(root).rebuild_config()
    assert {name: entry["readQueueNums"] for name, entry in entries(root, "topics.json").items()} == expected
    assert {row[1] for row in told(found, "entry", "source") if row[0] in expected} == {"log"}
    assert not [row for row in told(found, "details") if "damaged" in row[0]]


def test_a_damaged_log(root: Path) -> None:
    """Is told, as topics may be missing."""
    shutil.rmtree(root / "consumequeue")
    (root / "config" / "topics.json").unlink()
    segment = sorted((root / "commitlog").iterdir())[0]
    data = bytearray(segment.read_bytes())
    data[4:8] = b"\0\0\0\1"
    segment.write_bytes(bytes(data))
    found = Store(root).rebuild_config()
    assert [row for row in told(found, "source", "details") if row[0] == "nowhere" and segment.name in row[1]]
    assert {"Orders", "Others"} <= {*entries(root, "topics.json")}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "attribute"), [("batchcq", "queue.type"), ("compaction2", "cleanup.policy")])
def test_attributes_that_queues_tell(tmp_path: Path, name: str, attribute: str) -> None:
    """Of the golden stores of brokers: those without which a broker would not start, or not serve a topic."""
    root, _ = flavours.unpack(name, tmp_path)

    def attributes() -> dict[str, str | None]:
        table = entries(root, "topics.json")
        have = {row["topic"] for row in Store(root).topics().to_pylist() if row["messages"]}
        return {topic: table[topic].get("attributes", {}).get(attribute) for topic in table if topic in have}

    before = attributes()
    assert {value for value in before.values() if value} & {"BatchCQ", "COMPACTION"}
    for file in (root / "config").glob("topics.json*"):
        file.unlink()
    Store(root).rebuild_config()
    after = attributes()
    assert {t: v for t, v in before.items() if v in ("BatchCQ", "COMPACTION")} == {t: v for t, v in after.items() if v}


@pytest.mark.parametrize("name", ["rocksdb-all", "rocksdb-metadata"])
@pytest.mark.slow
def test_config_in_rocksdb(tmp_path: Path, name: str) -> None:
    root, _ = flavours.unpack(name, tmp_path)
    before = state(root)
    for is_tried in (True, False):
        with pytest.raises(NotAStoreError, match=r"RocksDB: expected them in files.*copy"):
            Store(root).rebuild_config(dry_run=is_tried)
    assert state(root) == before


def test_what_is_refused(root: Path) -> None:
    """A broker that runs, and links."""
    with Tree(str(root)) as tree, StoreLock(tree), pytest.raises(RmqStoreError, match="lock: locked"):
        Store(root).rebuild_config()
    (root / "config" / "topics.json").rename(root / "secret")
    (root / "config" / "topics.json").symlink_to(root / "secret")
    before = (root / "secret").read_bytes()
    with pytest.raises(RmqStoreError, match=r"config/topics\.json: expected a file of the store's own, found a"):
        Store(root).rebuild_config()
    assert (root / "secret").read_bytes() == before
    assert (root / "config" / "topics.json").is_symlink()


def test_numbers_that_no_broker_reads(root: Path) -> None:
    """In entries of topics.json: they are counted again."""
    table = config(root, "topics.json")
    table["topicConfigTable"]["Orders"]["readQueueNums"] = "two"
    (root / "config" / "topics.json").write_text(json.dumps(table))
    Store(root).rebuild_config()
    assert entries(root, "topics.json")["Orders"]["readQueueNums"] == 2


def test_a_second_broken_file_is_kept_as_well(root: Path) -> None:
    for text in ("{", "[", "}"):
        (root / "config" / "topics.json").write_text(text)
        Store(root).rebuild_config()
    kept = sorted((root / "config").glob("topics.json.broken*"))
    assert [path.name for path in kept] == ["topics.json.broken", "topics.json.broken-2", "topics.json.broken-3"]
    assert [path.read_text() for path in kept] == ["{", "[", "}"]


@pytest.mark.parametrize("error", STOPS)
def test_stopped_at_every_change(root: Path, stop: Stopper, error: type[BaseException]) -> None:
    """Each file is the old one or the new one, whole; nothing broken is lost; and once more makes all of it."""
    (root / "config" / "topics.json").write_text("{")
    (root / "config" / "subscriptionGroup.json").unlink()
    (root / "config" / "subscriptionGroup.json").mkdir()
    put(root, "delayOffset.json.bak", {"3": 5})
    before, other = state(root), root.with_name("other")
    names = ["topics.json", "subscriptionGroup.json", "delayOffset.json"]
    outcomes = []

    def begin() -> Any:
        shutil.copytree(root, other)
        return lambda: Store(other).rebuild_config()

    for each in stopped_at_every_change(stop, begin, error):
        found = state(other)
        new = [name for name in names if (other / "config" / name).is_file() and is_new(other, name)]
        outcomes.append(len(new))
        mine = {f"config/{name}{end}" for name in names for end in ("", ".broken")} | {"lock"}
        assert {k: v for k, v in found.items() if k not in mine} == {k: v for k, v in before.items() if k not in mine}
        is_kept = (other / "config" / "topics.json.broken").exists()
        assert is_kept or (other / "config" / "topics.json").read_text() == "{"
        if error is not Killed:
            assert open_files(other) == []
            assert len(new) == len(names) or each.told is not None
        Store(other).rebuild_config()
        assert all(is_new(other, name) for name in names)
        assert (other / "config" / "topics.json.broken").read_text() == "{"
        assert (other / "config" / "subscriptionGroup.json.broken").is_dir()
        assert len([*(other / "config").glob("*.broken*")]) == 2
        assert_goes_on(other)
        assert not list(other.glob(".rmqstore-spark/commit*"))
        shutil.rmtree(other)
    assert outcomes == sorted(outcomes)
    assert {*outcomes} == {0, 1, 2, 3}


def is_new(root: Path, name: str) -> bool:
    expected = {"topics.json": {"Orders", "Others", "%RETRY%shipping"}, "delayOffset.json": {"3"}}
    try:
        return {*entries(root, name)} == expected.get(name, {"billing", "shipping"})
    except ValueError:
        return False


@pytest.mark.slow
def test_at_a_terminal(root: Path) -> None:
    """With the line that a check names."""
    (root / "config" / "topics.json").write_text("{")
    checked = run("check", root)
    assert checked.code == 1
    assert f"rmqstore rebuild {root} --config" in checked.out.splitlines()
    before = state(root)
    ran = run("rebuild", root, "--config", "--dry-run")
    assert (ran.code, ran.err) == (1, "nothing was changed\n")
    assert state(root) == before
    ran = run("rebuild", root, "--config", "--format", "json")
    assert (ran.code, ran.err) == (1, "")  # what topics were configured to be is not known
    assert {json.loads(line)["entry"] for line in ran.out.splitlines()} >= {"Orders", "Others"}
    assert run("check", root).code == 0
    ran = run("rebuild", root, "--config", "--format", "json")
    assert ran.code == 0
    for wrong in (["--dry-run"], ["--format", "json"], ["--config", "--maxIndexNum", "8"]):
        ran = run("rebuild", root, *wrong)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
