"""A topic in `subscribe` that nothing knows: an error where it is sure that the log has no message of it, else a
warning; and what can be read of it is read."""

from __future__ import annotations

import json
import logging
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import aged_stores, damage, golden, reference, stores
from support.reading import make_plan, options_of, read

from rmqstore_spark import OptionError
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.query.selection import Selection, Texts
from rmqstore_spark.read.plan import unqueued
from rmqstore_spark.read.plan.planner import plan

TOPICS = ("Orders", "Returns", "%RETRY%group")


def make_store(root: Path, count: int = 200, **options: Any) -> stores.StoreBuilder:
    """Several segments, each with a blank at its end."""
    store = stores.StoreBuilder(root, 4096, 400, **options)
    for number in range(count):
        store.append(TOPICS[number % 3], bytes(number % 50), number % 2, keys=f"k{number}")
    store.close()
    return store


def refusal(*roots: Path, **options: object) -> str:
    with pytest.raises(OptionError) as error:
        make_plan(*roots, **options)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return found


def forget(root: Path, topic: str) -> None:
    """What a broker does when a topic is deleted."""
    shutil.rmtree(root / "consumequeue" / topic, ignore_errors=True)
    shutil.rmtree(root / "batchconsumequeue" / topic, ignore_errors=True)
    path = root / "config" / "topics.json"
    config = json.loads(path.read_text())
    config["topicConfigTable"].pop(topic, None)
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("orders", "unknown topic 'orders'. Did you mean 'Orders'? The store has 'Orders', 'Returns', '%RETRY%group'"),
        ("Orders,Retruns", "unknown topic 'Retruns'. Did you mean 'Returns'? The store has 'Orders', 'Returns', "),
        ("Orders\n.", r"unknown topic 'Orders\n.'. Did you mean 'Orders'? The store has "),
        ("xyzzy", "unknown topic 'xyzzy'. The store has 'Orders', 'Returns', '%RETRY%group'"),
    ],
)
def test_the_nearest_is_named(text: str, message: str, tmp_path: Path) -> None:
    make_store(tmp_path)
    assert refusal(tmp_path, subscribe=text).startswith(message)


@pytest.mark.parametrize("name", ["key", "msgId", "startingTimestamp", "endingTimestamp", "tags"])
def test_whatever_else_is_selected(name: str, tmp_path: Path) -> None:
    """An hour without messages is no reason for an error, nor one with messages for none."""
    make_store(tmp_path, index=True)
    options = {name: "5" if name.endswith("Timestamp") else "k7"}
    assert refusal(tmp_path, subscribe="order", **options) == refusal(tmp_path, subscribe="order")
    before = read(tmp_path, subscribe="Returns", **options)
    forget(tmp_path, "Returns")
    assert read(tmp_path, subscribe="Returns", **options) == before


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_stores_of_real_brokers(version: str, tmp_path: Path) -> None:
    root = golden.unpack(version, tmp_path / "store")
    assert refusal(root, subscribe="batches").startswith("unknown topic 'batches'. Did you mean 'Batches'? The store ")


def test_one_store_of_several_may_know_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_store(tmp_path / "a")
    other = stores.StoreBuilder(tmp_path / "b")
    other.append("Elsewhere")
    other.close()
    for topic, count in (("Orders", 67), ("Elsewhere", 1)):
        assert len(read(tmp_path / "*", subscribe=topic)) == count
    assert refusal(tmp_path / "a", tmp_path / "b", subscribe="elswhere").startswith(
        "unknown topic 'elswhere'. Did you mean 'Elsewhere'? The store has 'Elsewhere', 'Orders', "
    )
    assert warnings(caplog) == []
    other.drop_queues()  # now there can be anything in it
    assert read(tmp_path / "*", subscribe="elswhere") == []
    assert [text[:26] for text in warnings(caplog)] == ["unknown topic 'elswhere'. "]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("topics.json", {"topicConfigTable": {"Planned": {"readQueueNums": 4}}}),
        ("consumerOffset.json", {"offsetTable": {"Planned@group": {"0": 1}}}),
    ],
)
def test_a_topic_without_messages(name: str, content: object, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_store(tmp_path)
    (tmp_path / "config" / name).write_text(json.dumps(content))
    assert read(tmp_path, subscribe="Planned") == []
    assert warnings(caplog) == []
    assert "Did you mean 'Planned'?" in refusal(tmp_path, subscribe="planed")


@pytest.mark.parametrize("topic", TOPICS)
def test_a_deleted_topic_is_read(topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = make_store(tmp_path)
    before = read(tmp_path, subscribe=topic)
    assert len(before) > 60
    forget(tmp_path, topic)
    assert read(tmp_path, subscribe=topic) == before
    (text,) = warnings(caplog)
    assert text.startswith(f"unknown topic {topic!r}. ")
    assert text.endswith("; searching the log for messages that may be left")
    assert read(tmp_path, subscribe="order") == []  # a scan alone can tell
    assert "order" in warnings(caplog)[0]
    store.drop_queues()
    assert read(tmp_path, subscribe=topic) == before


@pytest.mark.parametrize("position", [0, 50, 100, 199])
def test_a_single_message_of_a_deleted_topic(position: int, tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, 4096, 400)
    for number in range(200):
        store.append("Gone" if number == position else "Orders")
    store.close()
    forget(tmp_path, "Gone")
    assert [row["commitLogOffset"] for row in read(tmp_path, subscribe="Gone")] == [store.messages[position].position]
    assert read(tmp_path, subscribe="gone") == []


@pytest.mark.parametrize("where", [0, -1])
def test_a_queue_that_begins_or_ends_with_anothers_message(where: int, tmp_path: Path) -> None:
    """All messages are of one size: the units cover the log."""
    store = stores.StoreBuilder(tmp_path, 1 << 20, 4000)
    store.start_queue("Aaaa", 0, 1)
    topics = ["Gone", *["Aaaa", "Bbbb"] * 20] if where == 0 else [*["Aaaa", "Bbbb"] * 20, "Gone"]
    for topic in topics:
        store.append(topic)
    store.close()
    (queue,), (gone,) = (store.queue_directory(topic, 0).iterdir() for topic in ("Aaaa", "Gone"))
    units = bytearray(queue.read_bytes())
    at = 0 if where == 0 else 21 * 20
    assert units[at + 8 : at + 20] in (bytes(12), reference.encode_queue_unit(0, 0x7FFFFFFF, 0)[8:])  # not in use
    units[at : at + 20] = gone.read_bytes()[:20]
    queue.write_bytes(units)
    forget(tmp_path, "Gone")
    assert [row["topic"] for row in read(tmp_path, subscribe="Gone")] == ["Gone"]


def test_old_units_of_a_truncated_queue(tmp_path: Path) -> None:
    """The last of them confirm old messages behind the blank, those before them cover what was written instead."""
    store = stores.StoreBuilder(tmp_path, 4096, 4000)
    store.append("Aaaa")
    for _ in range(4088 // store.end - 1):
        store.append("Aaaa")
    store.append("Bbbb", bytes(3000))
    assert store.messages[-1].position == 4096
    store.forget_last(7)
    for topic in ("Gone", "Gone", "Gone"):
        store.append(topic)
    store.append("Bbbb", bytes(3000))
    store.close()
    assert store.messages[-1].position == 4096
    forget(tmp_path, "Gone")
    assert len(read(tmp_path, subscribe="Gone")) == 3


def test_where_nothing_is_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stores.StoreBuilder(tmp_path).close()
    assert read(tmp_path, subscribe="Orders") == []
    assert warnings(caplog) == [
        "unknown topic 'Orders'. The store has none; searching the log for messages that may be left"
    ]


@pytest.mark.parametrize("name", ["_MOST_UNITS", "_MOST_STRETCHES"])
def test_it_is_not_found_out_at_any_price(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_store(tmp_path)
    monkeypatch.setattr(unqueued, name, 20)
    monkeypatch.setattr(unqueued, "coverage", None)  # nothing is read for it
    assert read(tmp_path, subscribe="order") == []
    assert warnings(caplog)[0].startswith("unknown topic 'order'. Did you mean 'Orders'? ")


def test_a_filter_may_ask_for_any_topic(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_store(tmp_path)
    pushed = Selection(topic=Texts(frozenset(["order"])))
    for subscribed in ({}, {"subscribe": "Orders"}):
        options = options_of(tmp_path, **subscribed)
        plan(replace(options, selection=options.selection.narrowed(pushed)))
    assert warnings(caplog) == []
    options = options_of(tmp_path, subscribe="order")
    with pytest.raises(OptionError, match="unknown topic 'order'"):
        plan(replace(options, selection=options.selection.narrowed(Selection(topic=Texts(frozenset(["Orders"]))))))


@pytest.mark.slow
def test_rows_never_become_an_error() -> None:
    """Whatever the accelerators look like, and whichever topic was deleted."""
    outcomes = {"error": 0, "rows": 0, "nothing": 0}

    @settings(max_examples=60)
    @given(st.integers(0, (1 << 32) - 1), st.lists(st.sampled_from(sorted(damage.DAMAGES)), max_size=2))
    def check(seed: int, damages: list[str]) -> None:
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            _, is_cut = aged_stores.aged_store(root, rng)
            for name in damages:
                damage.DAMAGES[name](root, rng)
            for topic in rng.sample((*aged_stores.TOPICS, aged_stores.HALF), rng.choice((0, 0, 1, 2))):
                forget(root, topic)
            (root / "config" / "topics.json").unlink()
            try:
                there = [row["topic"] for row in read(root)]
            except DamagedStoreError:
                assert is_cut
                return
            for topic in (*aged_stores.TOPICS, aged_stores.HALF, "Nowhere"):
                try:
                    count = len(read(root, subscribe=topic))
                except OptionError:
                    count = 0
                    outcomes["error"] += 1
                else:
                    outcomes["rows" if count else "nothing"] += 1
                assert count == there.count(topic)

    check()
    assert min(outcomes.values()) > 20, outcomes


@pytest.mark.parametrize("lost", ["queue", "topic"])
def test_a_queue_that_is_gone_may_be_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: str) -> None:
    """Its messages are in the log: to name it is no mistake, as long as nothing proves that. A queue that never was is
    refused where the others are whole."""
    store = stores.StoreBuilder(tmp_path, 8192)
    for number in range(60):
        store.append("AB"[number % 2], b"%060d" % number, number // 2 % 2)
    store.close()
    with pytest.raises(OptionError, match="topic 'A' has no queue 2"):
        read(tmp_path, assign='{"A": [2]}')
    (tmp_path / "config" / "topics.json").unlink()
    shutil.rmtree(tmp_path / "consumequeue" / "A" / ("0" if lost == "queue" else "."))
    for asked in ({"assign": '{"A": [0]}'}, {"startingOffsets": '{"A": {"0": 0}}', "subscribe": "A"}):
        found = [row for row in read(tmp_path, **asked) if row["queueId"] == 0]
        assert [row["queueOffset"] for row in found] == list(range(15))
        assert "searching the log for messages that may be left" in caplog.text
        caplog.clear()
    assert read(tmp_path, assign='{"A": [2]}') == []
