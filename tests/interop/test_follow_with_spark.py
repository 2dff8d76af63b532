"""A query of Spark's own copies to Parquet each message once that a producer writes at full speed, while the broker is
stopped, killed and deletes expired segments, and the query is stopped and its driver killed. A short run sends less, as
what is sent costs the other tests their cores, and is compared by the plain reference."""

from __future__ import annotations

import os
import random
import shutil
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from oracle import truth
from support import reading
from support.stream_copy import StreamCopy, rows_of

from interop.expiring import EXPIRED, ExpiringBroker
from interop.rocketmq import NEWEST, VERSIONS, Broker, Sizes, usually

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

LONG = float(os.environ.get("RMQ_FOLLOW_SECONDS", "0"))  # of writing in a long run, at least
PHASE = 150.0 if LONG else 3.0  # of these, before a stop or a kill
ENDINGS = ["kill", "stop"] * max(1, round(LONG / PHASE / 2))  # of the broker
SIZES = Sizes(64 << 20, 20 * 30_000, 100_000, 400_000) if LONG else Sizes(1 << 20)
PAUSE = 0 if LONG else 20  # milliseconds after a message, of each of three threads
PATIENCE = 600.0  # seconds: what takes longer does not come


@pytest.mark.nightly  # tests/interop/test_follow.py, tests/spark/test_stream.py
@pytest.mark.parametrize("version", VERSIONS if LONG else usually(NEWEST))
def test_copied_to_parquet(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """Every acknowledged message is a row of the copy, none is there twice or torn, and they are what a batch read
    gives and what RocketMQ itself finds. That is so for the whole log: `kept` has a link to each deleted segment. A
    second query, which stopped after the first batch, ends with an error: what it has not read was deleted."""
    root, kept, acks = tmp_path / "store", tmp_path / "kept", tmp_path / "acks"
    (kept / "commitlog").mkdir(parents=True)
    count: Counter[str] = Counter()
    behind: int | None = None  # where the second query is
    with ExpiringBroker(version, root, tmp_path / "home", SIZES) as broker, StreamCopy(root, tmp_path / "copy") as copy:
        for number, ending in enumerate(ENDINGS):
            if number:
                broker.start()
            client = broker.client()
            if not number:
                client.run("create", "Stream", 4)
                copy.start()
            begun, end = time.monotonic(), time.monotonic() + PHASE + PATIENCE
            told, commits = len(client.seen), copy.commits()
            client.begin("stream", "Stream", int(1000 * (PHASE + PATIENCE)), rng.randrange(1 << 31), acks, PAUSE)
            planned = ["stop", "kill"] if LONG else ["kill" if number else "stop"]  # for the query
            moments = sorted((begun + rng.uniform(0, PHASE), what) for what in planned)
            while (
                moments
                or time.monotonic() < begun + PHASE
                or copy.commits() == commits
                or (number == len(ENDINGS) - 1 and (behind is None or broker.segments()[0] <= behind))
                or broker.is_expiring()
            ):
                assert time.monotonic() < end
                copy.check()
                if moments and time.monotonic() >= moments[0][0]:
                    what = moments.pop(0)[1]
                    if what == "kill":
                        copy.kill()
                        copy.start()
                    else:
                        copy.restart()
                    count[f"{what} of the query"] += 1
                    commits = copy.commits()
                if behind is None and copy.commits():
                    behind = copy.fall_behind()
                position = copy.position()
                if position and not broker.is_expiring() and position >= broker.next_start():
                    keep(broker.segments()[:EXPIRED], root, kept)
                    broker.expire()
                time.sleep(0.05)
            assert len(client.seen) == told, client.seen[-1]
            broker.kill() if ending == "kill" else broker.stop()
            count[f"{ending} of the broker"] += 1
        count["batches"] = copy.commits()
        files = copy.finish()
        assert "their segments were deleted before they were read" in copy.late()
    left = broker.segments()
    count["deleted segments"] = left[0] // SIZES.segment
    keep(left, root, kept)
    shutil.copytree(root, kept, ignore=shutil.ignore_patterns("commitlog"), dirs_exist_ok=True)
    dump = tmp_path / "dump.jsonl"
    Broker(version, kept, tmp_path / "home", SIZES).dump(dump, "log")
    count["acknowledged"], count["rows"] = compared(files, kept, dump, acks)
    print(f"{version}: {dict(count)}")


def compared(files: list[Path], store: Path, dump: Path, acks: Path) -> tuple[int, int]:
    """How many messages were acknowledged, and are in the store: all in the files, too, in the same order."""
    acknowledged = np.sort(np.fromfile(acks, [("position", ">i8"), ("crc", ">i8")]))
    waiting, count = iter(acknowledged.tolist()), 0
    ack = next(waiting, None)
    bodies = (row["body"] for row in reading.read_by_tasks(store, columns=["body"], decompress=False))
    read = zip(rows_of(files), reading.read_by_tasks(store), bodies, truth.units(dump), strict=True)
    for copied, row, stored, unit in read:
        assert copied == row
        assert truth.as_units([row], [{**row, "body": stored}]) == [unit]
        count += 1
        if ack == (row["commitLogOffset"], zlib.crc32(row["body"])):
            ack = next(waiting, None)
    assert ack is None
    return len(acknowledged), count


def keep(starts: list[int], root: Path, kept: Path) -> None:
    """Links to segments, where there are none yet."""
    for start in starts:
        name = f"commitlog/{start:020}"
        if not (kept / name).exists():
            os.link(root / name, kept / name)
