"""A look-up in object storage waits for few requests one after the other, however many there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle.index import index_hash, read_index
from support import reading, remote

from rmqstore_spark import write_store
from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.run.batches import ReadSettings, read_task

DELAY = 0.1  # seconds of a request: far more than the work between two of them takes
TRIES = 3  # where something else kept this machine busy meanwhile
MOST = 8  # rounds of requests, and one more for each link of the longest chain
MESSAGES = 9000
HOT = 400  # one message in how many has the key `hot`
SLOTS = 5_000_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine index files over eight segments, the last one half empty."""
    root = tmp_path_factory.mktemp("rounds") / "store"
    numbers = range(MESSAGES)
    table = pa.table(
        {
            "topic": [f"Topic{number % 3}" for number in numbers],
            "queueId": pa.array([number % 4 for number in numbers], pa.int32()),
            "body": [b"x" * (300 + number % 200) for number in numbers],
            "keys": [f"hot k{number}" if number % HOT == 7 else f"k{number}" for number in numbers],
        }
    )
    write_store(root, table, mappedFileSizeCommitLog=1 << 19, maxHashSlotNum=SLOTS, maxIndexNum=MESSAGES // 4)
    return root


def look_up(store: Path, slow: remote.Slow, given: dict[str, str]) -> list[dict[str, Any]]:
    options = reading.options_of(store, **given)
    planned = plan(options, slow.files)
    assert [access.name for _, access in planned.accesses] == ["index"]
    settings = ReadSettings.of(options, arrow_schema(["keys", "commitLogOffset"]))
    return [row for task in planned.tasks for batch in read_task(task, settings) for row in batch.to_pylist()]


def longest_chain(store: Path, topics: list[str], key: str) -> int:
    """Of the look-ups of a key, in slots that no other key has."""
    hashes = {index_hash(topic, key) for topic in topics}
    files = (read_index(path.read_bytes(), SLOTS) for path in (store / "index").iterdir())
    return max(sum(item.key_hash == each for item in items) for items in files for each in hashes)


@pytest.mark.parametrize("topics", [["Topic1"], ["Topic0", "Topic1", "Topic2"]], ids=len)
@pytest.mark.parametrize("key", ["k4000", "hot"])
def test_rounds_of_a_look_up(store: Path, topics: list[str], key: str) -> None:
    given = {"key": key, "subscribe": ",".join(topics)} if len(topics) == 1 else {"key": key}
    expected = reading.read(store, columns=["keys", "commitLogOffset"], **given)
    most = MOST + longest_chain(store, topics, key)
    for _ in range(TRIES):
        slow = remote.Slow(DELAY)
        assert look_up(store, slow, given) == expected
        print(f"{key}: {slow.rounds()} rounds, {len(slow.begun)} requests")
        if slow.rounds() <= most:
            return
    pytest.fail(f"{slow.rounds()} rounds at least, {most} at most were expected")
