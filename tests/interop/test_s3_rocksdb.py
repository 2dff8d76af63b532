"""Queues and consumers' offsets in RocksDB on a real S3 server: the same answers, and of the databases only what they
need, counted on the wire."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from oracle import rocksdb
from oracle.stores import StoreBuilder
from support.backends import Backend

from interop import buckets
from interop.jars import Unavailable
from interop.relay import Relay, Traffic, relay
from rmqstore_spark import Store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC = "T0007"
# The most requests, and bytes, of a database of queues and of one of consumers' offsets, for one topic.
REQUESTS, NBYTES = 40, 200_000
ASK: dict[str, Callable[[Store], pa.Table]] = {
    "queues": lambda store: store.queues(subscribe=TOPIC),
    "offsets": lambda store: store.offsets(subscribe=TOPIC),
    "messages": lambda store: store.messages(columns="topic,queueOffset,commitLogOffset", subscribe=TOPIC).read_all(),
    "a group's": lambda store: store.messages(
        columns="topic,queueOffset,commitLogOffset", subscribe=TOPIC, startingOffsets="group:G"
    ).read_all(),
    "all": lambda store: store.offsets(),
}


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[tuple[Backend, Relay]]:
    try:
        buckets.PROGRAMS["s3"]()
    except Unavailable as why:
        pytest.skip(str(why))
    with buckets.s3(tmp_path) as running, relay(running.options["aws_endpoint_url"]) as counting:
        yield running, counting


def make(root: Path, topics: int, rng: random.Random) -> Path:
    """A store with 20 messages in a queue of each topic, of which a group has consumed ten."""
    store = StoreBuilder(root, 1 << 20)
    for number in range(20 * topics):
        store.append(f"T{number % topics:04}", b"")
    store.close()
    rocksdb.put_queues(root, rng)
    offsets = [(f"T{topic:04}@G".encode(), json.dumps({"offsetTable": {"0": 10}}).encode()) for topic in range(topics)]
    rocksdb.write(root / "config" / "consumerOffsets", [{"default": offsets}], {}, in_block=64)
    return root


@pytest.mark.parametrize("topics", [20, 200])
def test_answers_and_what_is_fetched(
    topics: int, bucket: tuple[Backend, Relay], tmp_path: Path, rng: random.Random
) -> None:
    backend, counting = bucket
    root = make(tmp_path / "store", topics, rng)
    uri = backend.upload(root, "store")
    here, there = Store(root), Store(uri, **{**backend.options, "aws_endpoint_url": counting.url})  # type: ignore[arg-type]
    size = sum(path.stat().st_size for path in root.rglob("*.sst"))
    for name, ask in ASK.items():
        counting.take()
        found = ask(there)
        asked = of_databases(counting.take())
        places = [column for column in ("file", "sizeOnDisk") if column in found.column_names]
        assert found.num_rows
        assert found.drop_columns(places) == ask(here).drop_columns(places), name
        assert 0 < asked.requests <= REQUESTS, (name, asked)
        assert asked.nbytes <= NBYTES + 4 * size, (name, asked, size)
        assert asked.requests <= 16 or name != "queues", asked


def of_databases(asked: dict[str, Traffic]) -> Traffic:
    some = [each for path, each in asked.items() if path.endswith((".sst", ".log", "CURRENT")) or "MANIFEST" in path]
    return Traffic(sum(each.requests for each in some), sum(each.nbytes for each in some))
