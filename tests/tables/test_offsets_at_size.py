"""The table `offsets` reads what is asked for once, however many groups ask for it."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.stores import StoreBuilder

from rmqstore_spark import Store, temporary
from rmqstore_spark.jobs.summary import GROUPS_TIMED, summarize
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures import config as config_module
from rmqstore_spark.store.structures import consumer_offsets
from rmqstore_spark.tables import offsets
from rmqstore_spark.tables.offsets import Progress, Some, consumed
from rmqstore_spark.tables.queues import queue_facts

QUEUES, MESSAGES = 12, 1200


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The reads so far."""
    found = [0]
    count = Files.count

    def counted(self: Files, requests: int, nbytes: int) -> None:
        found[0] += requests
        count(self, requests, nbytes)

    monkeypatch.setattr(Files, "count", counted)
    return found


def built(root: Path, rng: random.Random, body: bytes = b"x", segment_size: int = 16 * 1024) -> list[list[int]]:
    """A store: the store times (ms) of the messages in each of its queues."""
    store = StoreBuilder(root, segment_size=segment_size, queue_file_size=200_000)
    times: list[list[int]] = [[] for _ in range(QUEUES)]
    for _ in range(MESSAGES):
        queue_id = rng.randrange(QUEUES)
        store.append("T", body, queue_id=queue_id)
        times[queue_id].append(store.now)
    store.close()
    return times


def consume(root: Path, groups: int, times: list[list[int]]) -> None:
    """Each group has consumed a few messages, and some groups as many as others."""
    table = {
        f"T@G{group:03d}": {queue_id: min(1 + group % 5, len(some)) for queue_id, some in enumerate(times)}
        for group in range(groups)
    }
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def test_a_message_is_read_once(tmp_path: Path, rng: random.Random, requests: list[int]) -> None:
    times = built(tmp_path, rng)
    costs = {}
    for groups in (5, 100):
        consume(tmp_path, groups, times)
        before = requests[0]
        rows = Store(tmp_path).offsets().to_pylist()
        costs[groups] = requests[0] - before
        assert len(rows) == groups * QUEUES
        for row in rows:
            of_queue = times[row["queueId"]]
            at = of_queue[row["consumerOffset"] - 1]
            assert row["lastConsumedTimestamp"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
            assert row["lagMillis"] == (of_queue[-1] - at if row["lag"] else 0)
            assert row["lag"] == len(of_queue) - row["consumerOffset"]
    assert costs[100] == costs[5]


def test_columns_that_are_not_asked_for_cost_nothing(tmp_path: Path, rng: random.Random, requests: list[int]) -> None:
    times = built(tmp_path, rng, bytes(6000), 1 << 20)  # so large that no read has two messages
    consume(tmp_path, 5, times)
    whole = Store(tmp_path).offsets()
    costs = []
    for names in (
        ["group", "topic", "queueId", "consumerOffset"],
        ["lag", "expired"],
        ["lagMillis"],
        whole.column_names,
    ):
        before = requests[0]
        assert Store(tmp_path).offsets(columns=names).equals(whole.select(names))
        costs.append(requests[0] - before)
    assert costs[0] < costs[1] < costs[2] == costs[3]


def test_summary_times_the_groups_that_lag_most(tmp_path: Path, rng: random.Random) -> None:
    """The others have their lag in messages alone."""
    times = built(tmp_path, rng)
    consume(tmp_path, 3 * GROUPS_TIMED, times)
    groups = summarize(Snapshot.find(str(tmp_path), Files())).groups
    rows = Store(tmp_path).offsets().to_pylist()
    for at, group in enumerate(groups):
        own = [row for row in rows if row["group"] == group.group]
        assert (group.topics, group.lag) == (["T"], sum(row["lag"] for row in own))
        assert group.lag_millis == (max(row["lagMillis"] for row in own) if at < GROUPS_TIMED else None)


def test_lags_of_many_groups_are_worked_out_together(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = built(tmp_path, rng)
    asked: list[slice] = []
    of = Progress.of

    def noted(self: Progress, rows: slice) -> Some:
        asked.append(rows)
        return of(self, rows)

    monkeypatch.setattr(Progress, "of", noted)
    counts = []
    for groups in (GROUPS_TIMED, 10 * GROUPS_TIMED):
        consume(tmp_path, groups, times)
        asked.clear()
        assert len(summarize(Snapshot.find(str(tmp_path), Files())).groups) == groups
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_lags_that_fit_no_int64(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of groups that do not end with a piece of the rows; the first row is of none of those that are asked about."""
    consume(tmp_path, 5, built(tmp_path, rng))
    store = Snapshot.find(str(tmp_path), Files())
    facts = replace(queue_facts(store), end=np.full(QUEUES, (1 << 63) - 1))
    progress = Progress(store, rows := consumed(store), facts)
    parts = [slice(1, QUEUES), *(slice(group * QUEUES, (group + 1) * QUEUES) for group in range(1, 5))]
    expected = [sum((1 << 63) - 1 - offset for offset in rows.offsets[part].tolist()) for part in parts]
    for at_once in (7, 1000):
        monkeypatch.setattr(consumer_offsets, "ROWS_AT_ONCE", at_once)
        assert progress.lags(parts) == expected
    assert progress.lags([]) == []


@pytest.mark.parametrize("is_lacking", [False, True])
def test_many_rows_wait_in_files(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, is_lacking: bool
) -> None:
    """They are the same, in whatever pieces they are worked out."""
    times = built(tmp_path, rng)
    consume(tmp_path, 60, times)
    if is_lacking:
        shutil.rmtree(tmp_path / "consumequeue" / "T" / "3")

    def told() -> list[Any]:
        store = Store(tmp_path)
        tables = store.offsets(), store.offsets(assign={"T": [2, 3, 5]}), store.groups(), store.queues(), store.topics()
        summary = summarize(Snapshot.find(str(tmp_path), Files()))
        return [*(table.to_pylist() for table in (*tables, store.check())), summary.groups, summary.topics]

    expected = told()
    monkeypatch.setattr(temporary, "IN_MEMORY", 100)
    monkeypatch.setattr(consumer_offsets, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(offsets, "_TIMED_AT_ONCE", 100)
    assert told() == expected


def test_summary_parses_no_file_of_config_twice(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the files is a part of it: offsets are only read as a stream, and other files parsed once for what
    is in them, and once for what is wrong."""
    consume(tmp_path, 5, built(tmp_path, rng))
    found: list[str] = []
    read_text = config_module.read_text

    def noted(path: str, files: Files, errors: str) -> str:
        found.append(Path(path).name)
        return read_text(path, files, errors)

    monkeypatch.setattr(config_module, "read_text", noted)
    assert summarize(Snapshot.find(str(tmp_path), Files())).notable == []
    assert "consumerOffset.json" not in found
    assert max(map(found.count, found)) <= 4
