"""Table usage has what a plain reader adds up, whether queues or the log tell; and says which."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from oracle import reference, stores
from oracle.aged_stores import aged_store, make_batches
from support import reading
from support.command import run
from support.flavours import unpack_store

from rmqstore_spark import DamagedStoreError, OptionError, Store, temporary
from rmqstore_spark.jobs import growth as job
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables import usage
from rmqstore_spark.tables.usage import USAGE, usage_of

HOUR = 3600 * 1_000_000
TIMES = {"hour": HOUR, "day": 24 * HOUR}


def expected(rows: list[dict[str, Any]], by: tuple[str, ...]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Messages and bytes of each group; a batch takes its bytes once."""
    messages: Counter[tuple[Any, ...]] = Counter()
    nbytes: Counter[tuple[Any, ...]] = Counter()
    seen: set[int] = set()
    for row in rows:
        group = tuple(_told(row, name) for name in by)
        messages[group] += 1
        if row["commitLogOffset"] not in seen:
            nbytes[group] += row["storeSize"]
        seen.add(row["commitLogOffset"])
    return {group: (messages[group], nbytes[group]) for group in messages}


def _read(root: Path) -> list[dict[str, Any]]:
    names = ["topic", "queueId", "tags", "bornHost", "storeHost", "storeTimestamp", "storeSize", "commitLogOffset"]
    read = Store(root).messages(columns=names).read_all()
    at = names.index("storeTimestamp")
    return read.set_column(at, names[at], read.column(at).cast("int64")).to_pylist()  # type: ignore[no-any-return]


def _told(row: dict[str, Any], name: str) -> Any:
    if name in TIMES:
        return row["storeTimestamp"] // TIMES[name] * TIMES[name]
    return row[{"tag": "tags"}.get(name, name)]


def found(root: Path, by: tuple[str, ...], **options: Any) -> tuple[dict[tuple[Any, ...], tuple[int, int]], set[str]]:
    rows = Store(root).usage(by=list(by), **options).to_pylist()
    assert all(row[name] is None for row in rows for name in {*USAGE.schema.names[:7]} - {*by})
    values = [tuple(_micros(row[name]) for name in by) for row in rows]
    assert len(set(values)) == len(rows)
    sums = [(row["messages"], row["bytes"]) for row in rows]
    times, others = ([name for name in by if (name in TIMES) is is_time] for is_time in (True, False))
    order = [([r[t] for t in times], -r["bytes"], [(r[o] is None, r[o] or "") for o in others]) for r in rows]
    assert order == sorted(order)
    return dict(zip(values, sums, strict=True)), {row["source"] for row in rows}


def _micros(value: Any) -> Any:
    return value if value is None or isinstance(value, int | str) else round(value.timestamp()) * 1_000_000


WAYS = [("topic",), ("topic", "queueId"), ("queueId",), ("topic", "hour"), ("day", "tag"), ("bornHost", "storeHost")]


@pytest.mark.parametrize("number", range(6))
def test_as_the_plain_reader(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Stores with a past: cut, with messages in no queue, queues that are lost or lag, batches. Many groups wait in
    files."""
    monkeypatch.setattr(usage, "_MANY", rng.choice((1, 3, 100_000)))
    monkeypatch.setattr(temporary, "IN_MEMORY", rng.choice((100, 8 << 20)))
    builder, is_cut = aged_store(tmp_path / "store", rng, batches=number == 5)
    if number == 5:
        make_batches(builder)
    is_batched = any((builder.root / "batchconsumequeue").glob("*/*/*"))
    queues = sorted((builder.root / "consumequeue").glob("*/*"))
    if number in (1, 2):
        for queue in rng.sample(queues, len(queues) // 3):
            shutil.rmtree(queue)
    if number == 3:
        builder.drop_queues()
    rows = list(reference.read_store(builder.root))
    if is_cut:  # where old units cannot be told from live ones, a full read decides, or is an error
        try:
            rows = _read(builder.root)
        except DamagedStoreError:
            with pytest.raises(DamagedStoreError):
                found(builder.root, ("day",))
            return
    for by in WAYS:
        sums, source = found(builder.root, by)
        assert sums == expected(rows, by)
        if rows and (number == 3 or not {*by} <= {"topic", "queueId"} or is_batched):
            assert source == {"log"}
    topics = sorted({row["topic"] for row in rows})
    for some in filter(None, (topics[:1], topics[1:3])):
        wanted = [row for row in rows if row["topic"] in some]
        for by in WAYS[:4]:
            sums, _ = found(builder.root, by, subscribe=",".join(some))
            assert sums == expected(wanted, by)
    if not rows:
        return
    time = rows[len(rows) // 2]["storeTimestamp"] // 1000
    sums, _ = found(builder.root, ("topic",), startingTimestamp=time)
    assert sums == expected([row for row in rows if row["storeTimestamp"] >= time * 1000], ("topic",))


def test_light_queues(tmp_path: Path) -> None:
    root = unpack_store("system", tmp_path)
    for name in ("%LMQ%a", "%LMQ%b"):
        rows = Store(root).messages(["topic", "storeSize"], subscribe=name).read_all().to_pylist()
        assert len(rows) == 1
        assert found(root, ("topic",), subscribe=name) == ({(rows[0]["topic"],): (1, rows[0]["storeSize"])}, {"log"})
        assert not Store(root).usage(assign={name: [0]}, endingOffsets={name: {0: 0}}).num_rows


def test_which_it_is(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path, segment_size=4096)
    for number in range(100):
        builder.append(topic=f"T{number % 3}", queue_id=0, body=b"x" * 100)
    builder.close()
    assert found(tmp_path, ("topic",))[1] == {"queues"}
    builder = stores.StoreBuilder(tmp_path / "gaps", segment_size=4096)
    for number in range(100):
        builder.append(topic=f"T{number % 3}", queue_id=0, sys_flag=reference.PREPARED if number == 50 else 0)
    builder.close()
    sums, source = found(builder.root, ("topic",))
    assert source == {"queues and log"}
    assert {topic: messages for (topic,), (messages, _) in sums.items()} == {"T0": 34, "T1": 33, "T2": 33}


@pytest.mark.parametrize("lies", [False, True])
def test_queues_are_walked_along_once(tmp_path: Path, lies: bool) -> None:
    """Only where they know messages of a part of the log that they do not prove, they are walked along once more."""
    builder = stores.StoreBuilder(tmp_path, segment_size=16384)
    for number in range(400):
        builder.append(topic="Once" if number == 3 else f"T{number % 40}", queue_id=0, body=b"x" * 100)
    builder.close()
    if lies:  # a directory under another name
        shutil.copytree(tmp_path / "consumequeue" / "Once", tmp_path / "consumequeue" / "Twice")
    options, files = reading.options_of(tmp_path, by="topic"), reading.new_files()
    used = usage_of(Snapshot.find(str(tmp_path), files), options, ["topic"])
    assert used is not None
    assert used[1] == ("queues and log" if lies else "queues")
    sums = {row["topic"]: (row["messages"], row["bytes"]) for row in used[0].to_pylist()}
    assert sums == {topic: of for (topic,), of in expected(list(reference.read_store(tmp_path)), ("topic",)).items()}
    assert (files.requests < 2 * 40) is not lies  # a request for each queue


def test_damage(tmp_path: Path) -> None:
    """By topic a damaged message counts as its queue says; where the log is read, the mode decides."""
    builder = stores.StoreBuilder(tmp_path, segment_size=4096)
    for _ in range(60):
        builder.append(topic="T", queue_id=0, body=b"x" * 100)
    builder.close()
    broken = builder.messages[7]
    path = builder.segment(broken.position)
    data = bytearray(path.read_bytes())
    at = broken.position % 4096
    data[at + 4 : at + 8] = b"\0\0\0\0"
    path.write_bytes(data)
    assert found(tmp_path, ("topic",)) == ({("T",): (60, sum(each.size for each in builder.messages))}, {"queues"})
    with pytest.raises(DamagedStoreError):
        found(tmp_path, ("hour",))
    (sums,) = found(tmp_path, ("topic", "hour"), mode="PERMISSIVE")[0].values()
    assert sums[0] == 59
    builder.segment(4096).unlink()
    with pytest.raises(DamagedStoreError, match="a gap in the commitlog"):
        found(tmp_path, ("topic",))
    ran = run("usage", str(tmp_path))
    assert (ran.code, "a gap in the commitlog" in ran.err, ran.out.startswith("topic ")) == (3, True, True)


@pytest.mark.parametrize("by", ["", "topic,topic", "tags", "topic,"])
def test_wrong_words(tmp_path: Path, by: str) -> None:
    with pytest.raises(OptionError, match=r"option 'by': expected some of topic, queueId, .*, found "):
        reading.options_of(tmp_path, by=by)


def test_names_that_are_not_there(store: Path) -> None:
    """What usage adds up are messages: a topic that no store has is refused as there, not an empty result."""
    for arguments, meant in (
        (["--by", "topic,topci"], "found 'topic,topci'"),
        (["--by", "topci"], "(Did you mean 'topic'?), found 'topci'"),
        (["--topic", "Larg"], "unknown topic 'Larg'. Did you mean 'Large'"),
        (["--assign", '{"Larg": [0]}'], "unknown topic 'Larg'. Did you mean 'Large'"),
    ):
        told = [run(command, str(store), *arguments) for command in ("usage", "messages") if "--by" not in arguments]
        told = told or [run("usage", str(store), *arguments)]
        for ran in told:
            assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
            assert meant in ran.err


def test_by_is_for_usage(store: Path) -> None:
    with pytest.raises(OptionError, match="option 'by' is for table 'usage'"):
        Store(store).messages(by="topic")
    with pytest.raises(OptionError, match="option 'by' does not go with table 'topics'"):
        Store(store).topics(by="topic")


# ---- at a terminal


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = stores.StoreBuilder(tmp_path_factory.mktemp("usage") / "store", segment_size=8192)
    for number in range(100):
        time = stores.FIRST_TIMESTAMP + number * 3_600_000
        builder.append(topic="Large" if number % 10 else "Evil\x1b[31m", body=b"x" * 50, store_timestamp=time)
    builder.close()
    return builder.root


def test_the_command(store: Path) -> None:
    told = run("usage", str(store)).out.splitlines()
    assert told[0].split() == ["topic", "size", "messages", "share"]
    assert told[2].split()[:4] == ["Large", "12.8", "KiB", "90"]
    assert "█" * 20 in told[2]
    assert r"Evil\x1b[31m" in told[3]
    assert "▏" not in told[2]
    assert told[4] == "added up from the queues"
    assert told[5].startswith("the log grew by ")
    assert " a day; " in told[5]
    assert run("usage", str(store), "--sort", "bytes").out.splitlines()[3:1:-1] == told[2:4]
    assert run("usage", str(store), "--limit", "1").out.splitlines()[2].split() == told[2].split()
    rows = [
        json.loads(line) for line in run("usage", str(store), "--by", "topic,day", "--format", "json").out.splitlines()
    ]
    assert sum(row["messages"] for row in rows) == 100
    assert [row["day"] for row in rows] == sorted(row["day"] for row in rows)


def test_growth(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last day, from where a segment begins; and the time that the free space lasts."""
    snapshot = Snapshot.find(str(store), reading.new_files())
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=1000, f_frsize=1000))
    rows = list(reference.read_store(store))
    last = rows[-1]["storeTimestamp"]
    firsts = {row["commitLogOffset"] // 8192: row for row in reversed(rows)}
    first = max(
        (r for r in firsts.values() if r["storeTimestamp"] <= last - 24 * HOUR), key=lambda r: r["commitLogOffset"]
    )
    end = rows[-1]["commitLogOffset"] + rows[-1]["storeSize"]
    found = job.growth(snapshot)
    assert found is not None
    assert (found.nbytes, found.millis) == (end - first["commitLogOffset"], (last - first["storeTimestamp"]) // 1000)
    assert found.per_day == pytest.approx(found.nbytes / found.millis * 86_400_000)
    assert found.until_full == int(1_000_000 * found.millis / found.nbytes)


def test_growth_of_a_moment(tmp_path: Path) -> None:
    """What came in less than ten seconds tells nothing of a day."""
    for millis, told in ((45, ", which is too short to tell a rate\n"), (10_000, " a day; ")):
        builder = stores.StoreBuilder(tmp_path / str(millis))
        for passed in (0, millis):
            builder.append(store_timestamp=stores.FIRST_TIMESTAMP + passed)
        builder.close()
        (line,) = run("usage", str(builder.root)).out.splitlines(keepends=True)[-1:]
        assert told in line
        assert ("full" in line) == (millis == 10_000)


def test_growth_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert job.growth(Snapshot.find(str(tmp_path), reading.new_files())) is None
    ran = run("usage", str(tmp_path))
    told = "a row is a topic with messages in the log, or what option `by` names"
    assert ran.out == "store times do not tell how fast the log grows\n"
    assert ran.err == f"nothing found in {tmp_path}: {told}\n"


def test_show_has_exact_bytes(store: Path) -> None:
    (shown,) = map(json.loads, run("show", str(store), "--format", "json").out.splitlines())
    wanted = {
        topic: nbytes for (topic,), (_, nbytes) in expected(list(reference.read_store(store)), ("topic",)).items()
    }
    assert {topic["topic"]: topic["bytes"] for topic in shown["topics"]} == wanted
    assert " bytes " in run("show", str(store)).out
