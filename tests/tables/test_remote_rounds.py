"""However many segments and queues a store in object storage has, what is asked of it waits for few requests."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support import remote, remote_work

from rmqstore_spark import write_store

SEGMENTS, QUEUES = 20, 80
SEGMENT = 1 << 17
BODY = 700
QUEUES_OF_TOPIC = 8


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rounds") / "store"
    numbers = range(SEGMENTS * SEGMENT // (BODY + 300))
    table = pa.table(
        {
            "topic": [f"Topic{number % QUEUES // QUEUES_OF_TOPIC}" for number in numbers],
            "queueId": pa.array([number % QUEUES % QUEUES_OF_TOPIC for number in numbers], pa.int32()),
            "body": [b"x" * BODY for _ in numbers],
            "keys": [f"k{number}" for number in numbers],
        }
    )
    write_store(root, table, mappedFileSizeCommitLog=SEGMENT)
    offsets = {
        f"Topic{topic}@group": dict.fromkeys(map(str, range(QUEUES_OF_TOPIC)), 3)
        for topic in range(QUEUES // QUEUES_OF_TOPIC)
    }
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return root


# The most rounds, listing and opening the store included.
MOST = {
    "plan of a scan": 5,
    "topics": 8,
    "offsets": 8,
    "segments": 9,
    "consumequeue": 12,
    "show": 9,
    "an unknown topic's error": 11,
    "offsets at a time": 9,
    "stream from a group": 12,
    "stream from a time": 8,
    "delayed": 8,
    "check": 24,
}


@pytest.mark.parametrize("name", MOST)
def test_rounds(store: Path, name: str) -> None:
    """The answers are those of a store on a disk."""
    work = remote_work.WORK[name]
    expected = repr(work(str(store)))
    with remote.InRounds() as storage:
        uri = storage.uri(store)
        found = repr(work(uri)).replace(uri, str(store))
        print(f"{name}: {storage.rounds} rounds, {storage.lists} lists, {len(storage.asked)} requests")
    assert found == expected
    assert storage.rounds <= MOST[name]


def test_delayed_reads_the_log_once(store: Path) -> None:
    """No queue tells where messages of its topics are, so all of the log is read for them."""
    with remote.InRounds() as storage:
        remote_work.WORK["delayed"](storage.uri(store))
    assert storage.nbytes < 1.6 * SEGMENTS * SEGMENT
