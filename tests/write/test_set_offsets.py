"""Groups go on where set_offsets puts them, and nothing else of a store changes; also when it is killed."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracle import light, reference
from support import flavours, writing
from support.command import run
from support.killing import SIZES, STOPS, Killed, Stopper, assert_goes_on, open_files, state, stopped_at_every_change

import rmqstore_spark
from rmqstore_spark import DamagedStoreError, NotAStoreError, OptionError, RmqStoreError, StorageError, Store
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.lock import StoreLock
from rmqstore_spark.write.fs.walk import Walk

FIRST = 1_700_000_000_000
FILE = Path("config") / "consumerOffset.json"


def rows(count: int, topic: str = "Orders") -> list[writing.Row]:
    return [
        {
            "topic": topic,
            "queueId": n % 2,
            "msgId": f"{topic}-{n}",
            "body": b"x" * 40,
            "storeTimestamp": 1000 * (FIRST + n),
        }
        for n in range(count)
    ]


def consumed(root: Path, table: dict[str, dict[str, int]], **others: Any) -> None:
    (root / FILE).write_text(json.dumps({"offsetTable": table, **others}))


def offsets(root: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads((root / FILE).read_text())["offsetTable"]
    return found


@pytest.fixture
def root(home: Path) -> Path:
    """20 messages in each queue of Orders, a millisecond apart; 5 in Others; a group in both, one in Others alone."""
    writing.write(home / "store", rows(40), rows(10, "Others"), sizes=SIZES)
    table = {
        "Orders@billing": {"0": 7},
        "Others@billing": {"0": 1, "1": 2},
        "%RETRY%billing@billing": {"0": 3},
        "Others@audit": {"0": 4},
    }
    consumed(home / "store", table, dataVersion={"counter": 4, "stateVersion": 1, "timestamp": 5}, other={"a": 1})
    return home / "store"


def test_a_time(root: Path, rng: random.Random) -> None:
    """The first message that is not before it, in each queue of the group's topics, as a scan finds it."""
    before = state(root)
    for time in [FIRST - 1, FIRST, FIRST + 40, *(FIRST + rng.randrange(40) for _ in range(4))]:
        told = Store(root).set_offsets({"billing": time}).to_pylist()
        expected = {
            f"{topic}@billing": {
                str(q): sum(
                    row["queueId"] == q and row["topic"] == topic and row["storeTimestamp"] < time * 1000
                    for row in reference.read_store(root)
                )
                for q in (0, 1)
            }
            for topic in ("Orders", "Others")
        }
        assert offsets(root) == {"%RETRY%billing@billing": {"0": 3}, "Others@audit": {"0": 4}, **expected}
        assert {f"{row['topic']}@{row['group']}": None for row in told} == dict.fromkeys(expected)
        assert {(row["topic"], str(row["queueId"])): row["newOffset"] for row in told} == {
            (name.partition("@")[0], q): at for name, queues in expected.items() for q, at in queues.items()
        }
    after = json.loads((root / FILE).read_text())
    assert after["other"] == {"a": 1}
    assert (after["dataVersion"]["counter"], after["dataVersion"]["stateVersion"]) == (11, 1)
    assert {**before, str(FILE): b""} == {**state(root), str(FILE): b""}


def test_what_is_between(root: Path) -> None:
    """Messages that come again, and those that are skipped; what was not known is null. A dry run changes nothing."""
    before = state(root)
    shown = Store(root).set_offsets({"billing": {"Orders": {0: 3, 1: -1}, "Others": {"0": -2, "1": 4}}}, dry_run=True)
    assert state(root) == before
    assert [tuple(row.values()) for row in shown.to_pylist()] == [
        ("billing", "Orders", 0, 7, 3, 0, 20, 4, 0),
        ("billing", "Orders", 1, None, 20, 0, 20, None, None),
        ("billing", "Others", 0, 1, 0, 0, 5, 1, 0),
        ("billing", "Others", 1, 2, 4, 0, 5, 0, 2),
    ]
    assert Store(root).set_offsets({"billing": shown_places(shown.to_pylist())}).equals(shown)
    assert offsets(root)["Orders@billing"] == {"0": 3, "1": 20}
    assert Store(root).set_offsets({"fresh": {"Orders": {0: 5}}}).num_rows == 1  # a group that has had no offset
    assert offsets(root)["Orders@fresh"] == {"0": 5}


def shown_places(rows: list[dict[str, Any]]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        found.setdefault(row["topic"], {})[row["queueId"]] = row["newOffset"]
    return found


def test_expired_messages(root: Path) -> None:
    """Earliest is the first message that is left; messages that have expired do not come again."""
    segments = sorted((root / "commitlog").iterdir())
    for segment in segments[:2]:
        segment.unlink()
    least = {row["queueId"]: row["minOffset"] for row in Store(root).queues(subscribe="Orders").to_pylist()}
    told = {row["queueId"]: row for row in Store(root).set_offsets({"billing": "earliest"}).to_pylist()[:2]}
    assert {q: row["newOffset"] for q, row in told.items()} == least
    assert least[0] > 7
    assert (told[0]["again"], told[0]["skipped"]) == (0, 0)
    with pytest.raises(OptionError, match=rf"expected an offset from {least[0]}, of the first .* found {least[0] - 1}"):
        Store(root).set_offsets({"billing": {"Orders": {0: least[0] - 1}}})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"biling": "latest"}, "no store has an offset of consumer group 'biling'. Did you mean 'billing'?"),
        ({"billing": "lates"}, "expected for group 'billing' earliest, latest, a time"),
        ({"billing": {"Order": {0: 1}}}, "the store has no topic 'Order'. Did you mean 'Orders'?"),
        ({"billing": {"Orders": {2: 1}}}, "queue 2 of topic 'Orders': the store has no such queue; the topic has 0, 1"),
        ({"billing": {"Orders": {0: 21}}}, "to 20, the end, found 21"),
        ({}, "option 'groupOffset': expected"),
        ("billing", "option 'groupOffset': expected GROUP=PLACE"),
        ("billing=group:audit", "expected for group 'billing'"),
        ({"billing": {"Orders": {0: -3}}}, "0 of topic 'Orders' an offset, or -2 (earliest) or -1 (latest))"),
        ('{"billing": "latest", "billing": "earliest"}', "each name once"),
        (5, "option 'groupOffset': expected a mapping"),
    ],
)
def test_what_is_not_there(root: Path, given: Any, told: str) -> None:
    before = state(root)
    with pytest.raises(OptionError) as why:
        Store(root).set_offsets(given)
    assert told in str(why.value)
    assert "group:NAME" not in str(why.value), "no place of a group, but of reads"
    assert "\n" not in str(why.value)
    assert state(root) == before


def test_a_number_of_queues_that_is_damaged(root: Path) -> None:
    """Each queue of a topic gets an offset; for so many no memory suffices."""
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text())
    table["topicConfigTable"]["Orders"]["readQueueNums"] = 2**31 - 1
    path.write_text(json.dumps(table))
    before = state(root)
    with pytest.raises(DamagedStoreError, match="topic 'Orders': expected at most 65,536 queues, found 2,147,483,647"):
        Store(root).set_offsets({"billing": "latest"})
    assert state(root) == before


def test_a_broker_runs(root: Path) -> None:
    with Tree(str(root)) as tree, StoreLock(tree), pytest.raises(RmqStoreError, match="lock: locked"):
        Store(root).set_offsets({"billing": "latest"})


def test_a_crashed_brokers_store(root: Path) -> None:
    """Where groups go on does not depend on what the next start of the broker recovers."""
    (root / "abort").touch()
    Store(root).set_offsets({"billing": "latest"})
    assert (root / "abort").exists()
    assert offsets(root)["Orders@billing"] == {"0": 20, "1": 20}


@pytest.mark.parametrize(
    ("is_light", "seconds", "changed"),
    [(True, 100, (9, 1)), (False, -100, (1, 9)), (True, 9, (5, 6)), (False, 9, (6, 5)), (True, -9, (5, 5))],
)
def test_two_files_of_offsets(
    root: Path, tmp_path: Path, is_light: bool, seconds: int, changed: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Those that were written last count, everywhere, which is told; where both were written about the same time, those
    whose dataVersion is later. A damaged file is not replaced by one without the other groups.

    Args:
        seconds: from the time of the one to that of the file of a broker with enableLmq.
        changed: when their dataVersions changed.
    """
    both = root / FILE, root / "config" / "lmqConsumerOffset.json"
    places = {"Orders@billing": {"0": 6}}, {"Orders@billing": {"0": 9}, "Others@lone": {"1": 1}}
    for path, table, time, at in zip(both, places, (FIRST, FIRST + 1000 * seconds), changed, strict=True):
        path.write_text(json.dumps({"dataVersion": {"timestamp": at}, "offsetTable": table}))
        os.utime(path, (time // 1000, time // 1000))
    path, other = both[::-1] if is_light else both
    table, old = json.loads(path.read_text())["offsetTable"], other.read_bytes()
    found: dict[str, dict[str, int]] = {}
    for row in Store(root).offsets().to_pylist():
        found.setdefault(f"{row['topic']}@{row['group']}", {})[str(row["queueId"])] = row["consumerOffset"]
    assert found == table
    told = [record.getMessage() for record in caplog.records if "enableLmq" in record.getMessage()]
    assert [text.split(": ")[0] for text in told] == [str(path)]
    assert other.name in told[0]
    (row,) = (row for row in Store(root).check().to_pylist() if row["problem"] == "otherOffsets")
    assert (row["severity"], row["file"]) == ("info", str(other))
    assert path.name in row["expected"]
    Store(root).copy(tmp_path / "copy")
    assert json.loads((tmp_path / "copy" / "config" / path.name).read_text()) == {"offsetTable": table}
    assert not (tmp_path / "copy" / "config" / other.name).exists()
    rows = Store(root).messages(columns=["topic", "queueId", "queueOffset", "body"]).read_all()
    rmqstore_spark.write_store(tmp_path / "written", rows, configFrom=root)
    assert json.loads((tmp_path / "written" / "config" / path.name).read_text()) == {"offsetTable": table}
    Store(root).set_offsets({"billing": {"Orders": {0: 3}}})
    assert json.loads(path.read_text())["offsetTable"] == {**table, "Orders@billing": {"0": 3}}
    assert other.read_bytes() == old
    path.write_text("{")
    os.utime(path, (FIRST, FIRST))
    with pytest.raises(RmqStoreError, match=path.name):
        Store(root).set_offsets({"fresh": {"Orders": {0: 5}}})


def test_light_queues(home: Path) -> None:
    """A light queue has an offset as any other queue has, by its name, by a word and by a time; a group that is named
    like one has one offset in a topic, whatever the queue."""
    root = home / "lights"
    rng = random.Random(5)
    _, logged = light.made_store(root, rng, 60, odd=0)
    entries = {"%LMQ%a@billing": {"0": 1}, "TopicA@billing": {"0": 1, "1": 1}, "TopicA@%LMQ%g": {"0": 1}}
    light_offsets = {"%LMQ%b@%LMQ%g": 2, "TopicA@%LMQ%g": 3, "%LMQ%gone@%LMQ%g": 4}
    path = root / "config" / "lmqConsumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    del entries["TopicA@%LMQ%g"]
    path.write_text(json.dumps({"lmqOffsetTable": light_offsets, "offsetTable": entries}))

    def kept() -> dict[str, Any]:
        table = json.loads(path.read_text())
        return {**table["offsetTable"], **table["lmqOffsetTable"]}

    ends = {name: 1 + max(light.light_queues(row).get(name, -1) for row in logged) for name in ("%LMQ%a", "%LMQ%b")}
    queued = [row for row in logged if row["topic"] == "TopicA" and row["sysFlag"] in (0, reference.COMMIT)]
    of_queues = [1 + max(row["queueOffset"] for row in queued if row["queueId"] == n) for n in range(2)]
    told = Store(root).set_offsets({"billing": "latest", "%LMQ%g": "latest"}).to_pylist()
    assert {(row["group"], row["topic"], row["queueId"]): row["newOffset"] for row in told} == {
        ("billing", "%LMQ%a", 0): ends["%LMQ%a"],
        ("billing", "TopicA", 0): of_queues[0],
        ("billing", "TopicA", 1): of_queues[1],
        ("%LMQ%g", "%LMQ%b", 0): ends["%LMQ%b"],
        ("%LMQ%g", "TopicA", 0): of_queues[0],
    }
    assert kept() == {
        "%LMQ%a@billing": {"0": ends["%LMQ%a"]},
        "TopicA@billing": {"0": of_queues[0], "1": of_queues[1]},
        **light_offsets,
        "%LMQ%b@%LMQ%g": ends["%LMQ%b"],
        "TopicA@%LMQ%g": of_queues[0],
    }
    Store(root).set_offsets(
        {"billing": {"%LMQ%b": {0: 2}}, "%LMQ%g": {"%LMQ%a": {0: 3}}, "%LMQ%new": {"TopicA": {0: 1}}}
    )
    assert kept().items() >= {"%LMQ%a@%LMQ%g": 3, "TopicA@%LMQ%new": 1}.items()
    assert kept()["%LMQ%b@billing"] == {"0": 2}
    middle = logged[30]["storeTimestamp"]
    before = sum("%LMQ%b" in light.light_queues(row) for row in logged if row["storeTimestamp"] < middle)
    (row,) = (
        row
        for row in Store(root).set_offsets({"%LMQ%g": middle // 1000}, dry_run=True).to_pylist()
        if row["topic"] == "%LMQ%b"
    )
    assert row["newOffset"] == before
    for wrong, why in (
        ({"billing": {"%LMQ%a": {1: 1}}}, "queue 1 of topic '%LMQ%a': the store has no such queue; the topic has 0"),
        ({"billing": {"%LMQ%c": {0: 1}}}, "the store has no topic '%LMQ%c'"),
        ({"%LMQ%g": {"TopicA": {1: 1}}}, "has one offset of such a group in a topic"),
        ({"billing": {"%LMQ%a": {0: ends["%LMQ%a"] + 1}}}, f"to {ends['%LMQ%a']}, the end"),
    ):
        with pytest.raises(OptionError, match=re.escape(why)):
            Store(root).set_offsets(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rocksdb-all", "rocksdb-all-v2", "rocksdb-metadata"])
def test_offsets_in_rocksdb(tmp_path: Path, name: str) -> None:
    """Refused by name; a copy has them in a file, with the group where it is put, as a dry run says."""
    source, _ = flavours.unpack(name, tmp_path)
    row = next(row for row in Store(source).offsets().to_pylist() if not row["topic"].startswith(("%", "rmq", "RMQ")))
    group = row["group"]
    before = state(source)
    with pytest.raises(NotAStoreError, match=r"RocksDB: expected them in files.*copy"):
        Store(source).set_offsets({group: "earliest"})
    ran = run("set-offsets", source, "--group-offset", f"{group}=earliest", "--dry-run", "--format", "json")
    assert ran.err.endswith("would be set in a copy, which rmqstore copy makes with the same --group-offset\n")
    assert state(source) == before
    Store(source).copy(tmp_path / "copy", groupOffset={group: "earliest"})
    made = offsets(tmp_path / "copy")
    shown = [json.loads(line) for line in ran.out.splitlines()]
    assert shown
    assert all(made[f"{each['topic']}@{group}"][str(each["queueId"])] == each["newOffset"] for each in shown)
    Store(tmp_path / "copy").set_offsets({group: "earliest"})
    found = offsets(tmp_path / "copy")[f"{row['topic']}@{group}"]
    assert found[str(row["queueId"])] == row["minOffset"]


def test_only_the_backup_is_left(root: Path) -> None:
    """As for a broker its offsets count; the others come along."""
    (root / FILE).rename(root / f"{FILE}.bak")
    Store(root).set_offsets({"audit": "latest"})
    assert offsets(root)["Others@audit"] == {"0": 5, "1": 5}
    assert offsets(root)["Orders@billing"] == {"0": 7}


@pytest.mark.parametrize("asked", ["names", "status"])
def test_a_disk_that_fails(root: Path, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be looked at is not taken for a queue without messages."""
    real = getattr(Walk, asked)

    def failing(walk: Walk, path: str) -> Any:
        if "/consumequeue/Orders/0" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(walk, path)

    before = state(root)
    monkeypatch.setattr(Walk, asked, failing)
    with pytest.raises(StorageError, match=r"consumequeue/Orders/0.*cannot be read: Input/output error"):
        Store(root).set_offsets({"billing": "latest"})
    assert state(root) == before


def test_a_directory_whose_status_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fstat

    def failing(fd: int) -> os.stat_result:
        if os.path.samestat(found := real(fd), root.stat()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return found

    before = state(root)
    monkeypatch.setattr("rmqstore_spark.write.fs.walk.os.fstat", failing)
    with pytest.raises(RmqStoreError, match=f"{root}: .*Input/output error"):
        Store(root).set_offsets({"billing": "latest"})
    monkeypatch.undo()
    assert state(root) == before


@pytest.mark.parametrize("error", STOPS)
def test_stopped_at_every_change(root: Path, stop: Stopper, error: type[BaseException]) -> None:
    """The old file or the new one, whole, whatever change on disk it was stopped at; and the next write goes on."""
    before, other = state(root), root.with_name("other")
    outcomes = []

    def begin() -> Any:
        shutil.copytree(root, other)
        return lambda: Store(other).set_offsets({"billing": "latest"})

    for each in stopped_at_every_change(stop, begin, error):
        found = state(other)
        is_new = found != before
        outcomes.append(is_new)
        assert {**found, str(FILE): b"", "lock": b""} == {**before, str(FILE): b"", "lock": b""}
        assert offsets(other)["Orders@billing"] == ({"0": 20, "1": 20} if is_new else {"0": 7})
        assert offsets(other)["Others@audit"] == {"0": 4}
        if error is not Killed:
            assert open_files(other) == []
            assert is_new or each.told is not None
        assert_goes_on(other)
        assert not list(other.glob(".rmqstore-spark/commit*"))
        shutil.rmtree(other)
    assert outcomes == sorted(outcomes)
    assert outcomes.count(False) > 5
    assert outcomes.count(True) > 2


def test_a_copy(root: Path, tmp_path: Path) -> None:
    """The same places in a copy, of one store and of several; the sources stay as they are."""
    before = state(root)
    Store(root).copy(tmp_path / "one", groupOffset={"billing": FIRST + 11, "fresh": {"Orders": {0: 5}}})
    assert state(root) == before
    assert offsets(tmp_path / "one")["Orders@billing"] == {"0": 6, "1": 5}
    assert offsets(tmp_path / "one")["Orders@fresh"] == {"0": 5}
    assert offsets(tmp_path / "one")["Others@audit"] == {"0": 4}
    second = tmp_path / "second"
    writing.write(second, rows(10), sizes=SIZES, storeHost="10.0.0.2:10911")
    consumed(second, {"Orders@billing": {"0": 1}})
    Store([root, second]).copy(tmp_path / "both", groupOffset={"billing": FIRST + 6, "audit": "latest"})
    found = offsets(tmp_path / "both")
    assert found["Orders@billing"] == {"0": 3, "1": 3, "2": 3, "3": 3}
    assert found["Others@audit"] == {"0": 5, "1": 5}
    with pytest.raises(OptionError, match="queues get other numbers"):
        Store([root, second]).copy(tmp_path / "none", groupOffset={"billing": {"Orders": {0: 5}}})
    with pytest.raises(OptionError, match="no store has an offset of consumer group 'nobody'"):
        Store([root, second]).copy(tmp_path / "none", groupOffset={"nobody": "latest"})
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_at_a_terminal(root: Path, tmp_path: Path) -> None:
    before = state(root)
    ran = run("set-offsets", root, "--group-offset", f"billing={FIRST}", "--dry-run", "--format", "json")
    assert (ran.code, ran.err) == (0, "nothing was changed: 4 queues would be set\n")
    assert [json.loads(line)["newOffset"] for line in ran.out.splitlines()] == [0, 0, 0, 0]
    assert state(root) == before
    place = tmp_path / "place.json"
    place.write_text('{"Orders": {"0": 9}}')
    ran = run("set-offsets", root, "--group-offset", f"billing=@{place}", "--group-offset", "audit=latest")
    assert (ran.code, ran.err) == (0, "3 queues set\n")
    assert offsets(root)["Orders@billing"] == {"0": 9}
    assert offsets(root)["Others@audit"] == {"0": 5, "1": 5}
    for wrong in ([], ["--group-offset", "billing=@/nowhere"], ["--group-offset", "billing"]):
        ran = run("set-offsets", root, *wrong)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    ran = run("copy", root, tmp_path / "copy", "--group-offset", "billing=latest")
    assert ran.code == 0
    assert offsets(tmp_path / "copy")["Orders@billing"] == {"0": 20, "1": 20}
