"""explain() says what the plan is: the way that is taken, what it reads, and what could not be used and why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from oracle import stores
from support.reading import FREE, make_plan

import rmqstore_spark
from rmqstore_spark import OptionError
from rmqstore_spark.amounts import size_text
from rmqstore_spark.read import explain
from rmqstore_spark.read.explain import batch_summary, explanation, summary
from rmqstore_spark.read.follow.stream_offset import StoreOffset, StreamOffset
from rmqstore_spark.read.pieces.task import Indexed, Queued, Scanned
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two topics, each in one queue, in several segments; so small a store that only free requests are worth it."""
    builder = stores.StoreBuilder(tmp_path, segment_size=8192, index=True)
    for i in range(100):
        builder.append(topic=f"Topic{i % 2}", keys=f"key{i}", body=b"x" * 200, store_timestamp=1_700_000_000_000 + i)
    builder.close()
    return tmp_path


def explained(path: Path, **options: object) -> str:
    return explanation(str(path), options, Files(FREE))


def test_everything_is_scanned(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(store)
    planned = make_plan(store)
    assert f"store {store}: {len(list((store / 'commitlog').iterdir()))} commitlog files" in text
    assert "access: scan: nothing else is cheaper" in text
    assert f"partitions: {len(planned.tasks)};" in text
    assert "not used" not in text
    assert "each is to have at most about 4.0 MiB of the log" in text
    assert "each is to have at most about 5.0 KiB of the log" in explained(store, maxPartitionBytes=5120)
    rmqstore_spark.explain(str(store))
    assert capsys.readouterr().out.startswith(text.split("  access")[0])


@pytest.mark.parametrize(
    ("options", "name", "kind"),
    [
        ({"key": "key7"}, "index", Indexed),
        ({"subscribe": "Topic1"}, "consumequeue", Queued),
        ({"verifyCrc": False}, "scan", Scanned),
    ],
)
def test_it_names_the_way_that_is_taken(store: Path, options: dict[str, object], name: str, kind: type) -> None:
    assert f"\n  access: {name}: " in explained(store, **options)
    pieces = [piece for task in make_plan(store, prices=FREE, **options).tasks for piece in task.ranges]
    assert any(isinstance(piece, kind) for piece in pieces)


def test_it_says_what_could_not_be_used(store: Path) -> None:
    files = sorted((store / "index").iterdir())
    for file in files:
        file.write_bytes(file.read_bytes()[:50])
    text = explained(store, key="key7")
    assert "access: scan" in text
    assert all(f"not used: index: {file}: " in text for file in files)
    shutil.rmtree(store / "consumequeue")
    text = explained(store, subscribe="Topic1")
    assert "not used: ConsumeQueues: there are none with a message in them" in text


def test_nothing_can_be_wanted(store: Path) -> None:
    text = explained(store, endingTimestamp=1_600_000_000_000)
    assert "access: scan: nothing in the log can be selected\n  reads:  nothing; about 0 bytes in all" in text
    assert "partitions: 0;" in text


def test_several_stores(store: Path, small_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rmqstore_spark.explain([str(store), str(small_store)], subscribe="Topic1")
    text = capsys.readouterr().out
    assert text.count("\n  access: ") == 2
    assert f"store {small_store}: " in text


def test_errors_are_the_reads(store: Path) -> None:
    with pytest.raises(OptionError, match=r"unknown topic 'Tropic1'\. Did you mean 'Topic1'"):
        rmqstore_spark.explain(str(store), assign='{"Tropic1": [0]}')
    with pytest.raises(OptionError, match="topic 'Topic1' has no queue 5; it has 0"):
        rmqstore_spark.explain(str(store), startingOffsets='{"Topic1": {"5": 1}}')


def test_a_batch_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stream: the stores that went on, in the order of their names, and how far."""
    before = {"/b": 100, "/a": 0, "/gone": 5, "/same": 7}
    after = {"/b": 300, "/a": 2048, "/new": 9, "/same": 7}
    start, end = (StreamOffset({root: StoreOffset(at) for root, at in places.items()}) for places in (before, after))
    moved = ["/a to commitLogOffset 2048: 2.0 KiB of the log", "/b to commitLogOffset 300: 200 bytes of the log"]
    expected = ["0 tasks", *moved]
    assert list(batch_summary(start, end, [])) == expected
    monkeypatch.setattr(explain, "_MOST_STORES", 1)
    assert list(batch_summary(start, end, [])) == [*expected[:2], "and 1 more store"]


def test_a_plan_in_a_line(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to the messages, and how much is read of how much, as explain() says it at length."""
    planned = make_plan(store, prices=FREE, subscribe="Topic1")
    ((_, access),) = planned.accesses
    read = size_text(sum(size for _, size in access.pieces))
    log = size_text(Snapshot.find(str(store), Files()).log.size)
    assert list(summary(planned)) == ["1 task", f"{store} by consumequeue: about {read} of {log}"]
    monkeypatch.setattr(explain, "_MOST_STORES", 0)
    assert list(summary(planned))[1:] == ["and 1 more store"]
