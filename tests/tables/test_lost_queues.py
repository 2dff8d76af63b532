"""Stores that lost some of their queue files: what tables say of queues is what the log holds, and they agree."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from oracle import stores

from rmqstore_spark import Store
from rmqstore_spark.tables import unqueued

Name = tuple[str, int]


def build(root: Path, rng: random.Random, count: int) -> stores.StoreBuilder:
    """A closed store of a few queues, each with a group's offset in it."""
    store = stores.StoreBuilder(root, segment_size=rng.choice((2048, 1 << 16)), queue_file_size=rng.choice((60, 2000)))
    for _ in range(count):
        store.append(rng.choice("ABC"), b"x" * rng.randrange(200), rng.randrange(3), tags="t")
    if rng.random() < 0.3 and store.end > store.segment_size:
        store.expire(1)
    store.close()
    if rng.random() < 0.3:
        (root / "config" / "topics.json").unlink()
    offsets: dict[str, dict[int, int]] = defaultdict(dict)
    for topic, queue_id in {(message.topic, message.queue_id) for message in store.messages}:
        offsets[f"{topic}@G"][queue_id] = rng.randrange(12)
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return store


def lose(store: stores.StoreBuilder, rng: random.Random) -> None:
    """Some queues, each in a way of its own; their last files, where a broker's would be."""
    for directory in sorted((store.root / "consumequeue").glob("*/*")):
        files = sorted(directory.iterdir())
        how = rng.choice(("nothing", "nothing", "directory", "files", "empty", "zeros", "last"))
        if how == "directory":
            shutil.rmtree(directory)
            if not list(directory.parent.iterdir()):
                directory.parent.rmdir()
        for path in files if how == "files" else files[-1:] if how == "last" and len(files) > 1 else []:
            path.unlink()
        for path in files if how in ("empty", "zeros") else []:
            size = path.stat().st_size
            path.write_bytes(b"" if how == "empty" else bytes(size))


def held(store: stores.StoreBuilder) -> dict[Name, list[stores.Stored]]:
    """The messages of the log, by queue."""
    found: dict[Name, list[stores.Stored]] = defaultdict(list)
    for message in store.messages:
        found[message.topic, message.queue_id].append(message)
    return found


def check(store: stores.StoreBuilder) -> None:
    opened, queues = Store(store.root), held(store)
    rows: dict[Name, dict[str, Any]] = {(row["topic"], row["queueId"]): row for row in opened.queues().to_pylist()}
    said = {
        name: (row["minOffset"], row["maxOffset"], row["firstCommitLogOffset"], row["lastCommitLogOffset"])
        for name, row in rows.items()
        if row["messages"]
    }
    assert said == {
        name: (some[0].queue_offset, some[-1].queue_offset + 1, some[0].position, some[-1].position)
        for name, some in queues.items()
    }
    counts = {row["topic"]: row["messages"] for row in opened.topics().to_pylist() if row["messages"]}
    assert counts == {t: sum(len(some) for (u, _), some in queues.items() if u == t) for t, _ in queues}
    for row in opened.offsets().to_pylist():
        some = queues[row["topic"], row["queueId"]]
        offset, first, end = row["consumerOffset"], some[0].queue_offset, some[-1].queue_offset + 1
        assert (row["minOffset"], row["maxOffset"], row["lag"]) == (first, end, end - max(offset, first))
        consumed = {message.queue_offset: message.store_timestamp for message in some}.get(offset - 1)
        time = row["lastConsumedTimestamp"]
        assert (None if time is None else round(time.timestamp() * 1000)) == consumed
        since = some[0].store_timestamp if consumed is None else consumed
        assert row["lagMillis"] == (some[-1].store_timestamp - since if row["lag"] > 0 else 0)
    time = store.messages[len(store.messages) // 2].store_timestamp
    at = {
        (topic, int(queue_id)): offset
        for topic, some in json.loads(opened.offsets_at(time)).items()
        for queue_id, offset in some.items()
    }
    for name, some in queues.items():
        later = [message.queue_offset for message in some if message.store_timestamp >= time]
        assert at[name] == (later[0] if later else some[-1].queue_offset + 1)


@pytest.mark.parametrize("count", [15, pytest.param(60, marks=pytest.mark.slow)])
def test_any_of_them(tmp_path: Path, rng: random.Random, count: int) -> None:
    for number in range(count):
        store = build(tmp_path / str(number), rng, rng.randrange(1, 80))
        lose(store, rng)
        check(store)
        shutil.rmtree(store.root)


@pytest.mark.parametrize("lost", ["all", "all but empty directories", "one", "one but its directory"])
def test_what_the_log_says(tmp_path: Path, lost: str) -> None:
    store = stores.StoreBuilder(tmp_path)
    for number in range(20):
        store.append("AB"[number % 2], store_timestamp=stores.FIRST_TIMESTAMP + 1000 * number)
    store.close()
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable": {"A@G": {0: 9}, "B@G": {0: 8}}}')
    for directory in (
        (tmp_path / "consumequeue").glob("*/*") if lost.startswith("all") else [store.queue_directory("A", 0)]
    ):
        shutil.rmtree(directory if "director" in lost else directory.parent)
        if "director" in lost:
            directory.mkdir()
    check(store)


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_consumers_offset_is_the_sign_of_a_lost_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """Among more queues than are looked at without a sign."""
    monkeypatch.setattr(unqueued, "_MOST_STRETCHES", 0)
    store = stores.StoreBuilder(tmp_path)
    for topic in "AABA":
        store.append(topic)
    store.close()
    shutil.rmtree(store.queue_directory("B", 0).parent)
    (tmp_path / "config" / "consumerOffset.json").write_text(f'{{"offsetTable": {{"B@G": {{0: {offset}}}}}}}')
    messages = {row["topic"]: row["messages"] for row in Store(tmp_path).queues().to_pylist() if row["messages"]}
    assert messages == ({"A": 3, "B": 1} if offset else {"A": 3})


def test_a_deleted_topic_is_no_lost_queue(tmp_path: Path) -> None:
    """Nothing names it any more; so its messages are in no table of queues, whatever else was lost."""
    store = stores.StoreBuilder(tmp_path)
    for number in range(20):
        store.append("ABC"[number % 3])
    store.close()
    shutil.rmtree(tmp_path / "consumequeue" / "C")
    path = tmp_path / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"]["C"]
    path.write_text(json.dumps(table))
    for lost in ("", "A"):
        if lost:
            shutil.rmtree(tmp_path / "consumequeue" / lost)
        rows = Store(tmp_path).queues().to_pylist()
        assert [(row["topic"], row["messages"]) for row in rows] == [("A", 7), ("B", 7)]
        assert [row["topic"] for row in Store(tmp_path).topics().to_pylist()] == ["A", "B"]
