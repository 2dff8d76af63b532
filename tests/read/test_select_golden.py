"""Selections in stores that real brokers wrote find what RocketMQ itself finds there: by key, and by time."""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from oracle import golden, reference, truth
from support import reading

from rmqstore_spark.read.pieces.task import Indexed, Queued
from rmqstore_spark.store.format import clock

COLUMNS = ["topic", "queueId", "queueOffset", "keys", "msgId", "commitLogOffset", "storeTimestamp"]
# Before 5.1.1 RocketMQ answers with the message nearest in time, be it older, and with any of several of one time
# (docs/format.md, What differs between versions). There the full scan is right. (Its choice
# of file does no harm: each queue has one.)
NEAREST = "4.9.7"
FEW, MANY = 40, 120  # an answer takes some milliseconds, and there are some 400 questions to each store

Row = dict[str, Any]
Question = TypeVar("Question")


@dataclass
class Golden:
    """A store, what RocketMQ says of it, and all its rows as the reference reads them."""

    store: Path
    truth: truth.Truth
    rows: list[Row]

    def read(self, forced: bool, **options: object) -> tuple[list[Row], set[type]]:
        """The rows of a selection in log order, and which kinds of pieces were read."""
        understood = reading.options_of(self.store, **options)
        tasks = reading.forced_plan(understood, reading.new_files(reading.FREE if forced else None)).tasks
        rows = [row for task in tasks for row in reading.read_one(task, understood, COLUMNS)]
        kinds = {type(piece) for task in tasks for piece in task.ranges}
        return sorted(rows, key=lambda row: row["commitLogOffset"]), kinds


@pytest.fixture(scope="module", params=golden.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def store(version: str, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    root = golden.unpack(version, tmp_path_factory.mktemp(version) / "store")
    rows = [{name: row[name] for name in COLUMNS} for row in reference.read_store(root)]
    return Golden(root, golden.load_truth(version), rows)


@pytest.fixture(params=["real prices", pytest.param("forced", marks=pytest.mark.slow)])
def forced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether accelerators are taken wherever they can be; in stores so small a scan is cheaper."""
    if request.param == "real prices":
        return False
    # A store is written in less than the minute by which clocks may go back; with that, times would narrow nothing.
    # These brokers' clocks did not go back.
    monkeypatch.setattr(clock, "CLOCK_SLACK", 0)
    return True


# ---- by key


def test_every_key_that_rocketmq_finds(store: Golden, forced: bool, rng: random.Random) -> None:
    by_position = {row["commitLogOffset"]: row for row in store.rows}
    keys = some(store.truth.keys, MANY if forced else FEW, rng)
    kinds: set[type] = set()
    agreed = 0
    for topic, key in keys:
        found, used = store.read(forced, key=key, subscribe=topic)
        kinds |= used
        assert found == [row for row in store.rows if row["topic"] == topic and has_key(row, key)], (topic, key)
        for position in store.truth.keys[topic, key]:
            if by_position[position] in found:
                agreed += 1
            else:
                assert collides(by_position[position], topic, key)
    assert agreed >= len(keys)
    assert Indexed in kinds or not forced


def test_keys_in_any_topic(store: Golden, forced: bool, rng: random.Random) -> None:
    kinds: set[type] = set()
    for topic, key in some(store.truth.keys, FEW, rng):
        found, used = store.read(forced, key=key)
        kinds |= used
        assert found == [row for row in store.rows if has_key(row, key)], (topic, key)
        assert not {*store.truth.keys[topic, key]}.isdisjoint(row["commitLogOffset"] for row in found)
    assert Indexed in kinds or not forced


def has_key(row: Row, key: str) -> bool:
    return key in keys_of(row)


def keys_of(row: Row) -> list[str]:
    """What a broker puts into the index for a message (docs/format.md, IndexFile)."""
    return [key for key in [row["msgId"], *(row["keys"] or "").split(" ")] if key]


def collides(row: Row, topic: str, key: str) -> bool:
    """Is the message one that RocketMQ finds only because it never looks further than to the hash?"""
    hashes = {reference.index_hash(row["topic"], other) for other in keys_of(row)}
    return (row["topic"] != topic or not has_key(row, key)) and reference.index_hash(topic, key) in hashes


# ---- by time


def test_every_time_that_rocketmq_looks_for(version: str, store: Golden, forced: bool, rng: random.Random) -> None:
    """The first message from a time on is the one that RocketMQ says; where there is none, it says the queue's end."""
    kinds: set[type] = set()
    wrong = []
    for topic, queue_id, time in some(store.truth.times, MANY if forced else FEW, rng):
        found, used = store.read(forced, assign=json.dumps({topic: [queue_id]}), startingTimestamp=time)
        kinds |= used
        queue = [row for row in store.rows if (row["topic"], row["queueId"]) == (topic, queue_id)]
        assert found == [row for row in queue if row["storeTimestamp"] >= 1000 * time], (topic, queue_id, time)
        offset = min((row["queueOffset"] for row in found), default=store.truth.bounds[topic, queue_id][1])
        said = store.truth.times[topic, queue_id, time]
        if offset != said:
            wrong.append((topic, queue_id, time, said))
            assert version == NEAREST, wrong
            assert is_nearest(queue, time, said), wrong
    assert bool(wrong) == (version == NEAREST)
    assert Queued in kinds or not forced


def is_nearest(queue: list[Row], time: int, queue_offset: int) -> bool:
    """Is none of a queue's messages nearer to a time than the one of a queue offset?"""
    distances = {row["queueOffset"]: abs(row["storeTimestamp"] - 1000 * time) for row in queue}
    return bool(distances[queue_offset] == min(distances.values()))


def some(questions: Collection[Question], count: int, rng: random.Random) -> list[Question]:
    assert len(questions) > 300
    return rng.sample(list(questions), count)
