"""A list of very many keys gives each key once, in few rounds of pages, whatever the keys are."""

from __future__ import annotations

import bisect
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support.s3_server import Server

from rmqstore_spark.store.io.remote.objects import connect
from rmqstore_spark.store.io.remote.paged_list import PAGE, PagedList, UnorderedError
from rmqstore_spark.store.io.storage import Storage, location

FILE = f"{0:020}"


def listed(keys: Iterable[str]) -> tuple[list[str], int, int]:
    """The keys that are listed, with how many rounds and pages."""
    there, some, found = sorted(keys), PagedList("s"), []
    rounds = requests = 0
    while some.parts:
        rounds, requests = rounds + 1, requests + len(some.parts)
        starts = [0 if part.after is None else bisect.bisect_right(there, part.after) for part in some.parts]
        pages = [there[start : start + PAGE] for start in starts]
        for page, count in zip(pages, some.take(pages), strict=True):
            found += page[:count]
    return found, rounds, requests


def _segments(count: int, size: int) -> list[str]:
    return [f"s/commitlog/{number * size:020}" for number in range(count)]


def _queues(topics: Iterable[str], queues: int) -> list[str]:
    return [f"s/consumequeue/{topic}/{queue}/{FILE}" for topic in topics for queue in range(queues)]


FEW = [*_segments(4, 1 << 30), *_queues(map("Topic{}".format, range(20)), 5), "s/abort", "s/config/topics.json"]
WORDS = ("order", "payment", "%RETRY%group-", "log_", "SMS-", "audit.")


@pytest.mark.parametrize(
    ("more", "most"),
    [
        ([], 1),
        (_segments(1000, 1 << 30), 2),
        (_segments(5000, 1 << 30), 2),
        (_segments(20_000, 1 << 16), 5),
        (_queues((f"T{number:05}" for number in range(1000)), 5), 2),
        (_queues(map("T{}".format, range(20_000)), 5), 5),
        (_queues((f"{WORDS[n % 6]}{WORDS[n // 6 % 6]}{n}" for n in range(20_000)), 5), 10),
        (_queues(["T"], 20_000), 5),
    ],
    ids=["few", "1,000 segments", "5,000", "20,000 small", "5,000 queues", "100,000", "many names", "one topic"],
)
def test_few_rounds(more: list[str], most: int) -> None:
    """Far fewer than there are pages, and not so many guesses that they cost more than they save."""
    found, rounds, requests = listed({*FEW, *more})
    pages = -(-len(found) // PAGE)
    print(rounds, requests, pages)
    assert sorted(found) == sorted({*FEW, *more})
    assert rounds <= most
    assert requests <= 100 + 12 * pages


def test_any_keys(rng: random.Random) -> None:
    for _ in range(40):
        letters = rng.choice(("ab/", "a/0", "0123456789/", "%aZ~/é主"))
        keys = {
            "s/" + "".join(rng.choice(letters) for _ in range(rng.randrange(1, 12)))
            for _ in range(rng.randrange(1, 6000))
        }
        found, _, _ = listed(keys)
        assert len(found) == len(keys)
        assert set(found) == keys


def test_a_server_that_lists_in_another_order_is_noticed() -> None:
    with pytest.raises(UnorderedError):
        PagedList("s").take([["s/b", "s/a"]])
    some = PagedList("s")
    some.take([_segments(PAGE, 1)])
    with pytest.raises(UnorderedError):
        some.take([["s/a"]] * len(some.parts))


@pytest.mark.parametrize("knows_where", [True, False])
def test_each_object_once(knows_where: bool, tmp_path: Path, rng: random.Random) -> None:
    """By way of S3, with names that are hard to guess; also where a server lists from the first object on, whatever it
    was asked for."""
    names = {"".join(rng.choice("%-._|~{9Zzé主") for _ in range(rng.randrange(1, 5))) for _ in range(60)} - {".", ".."}
    keys = [f"s/consumequeue/{topic}/{queue}/{FILE}" for topic in names for queue in range(1500 // len(names))]
    for key in keys:
        path = tmp_path / key
        os.makedirs(path.parent)
        path.touch()
    with Server(tmp_path) as server:
        server.stop_listing()
        server.knows_start_after = knows_where
        given: dict[str, Any] = server.options
        bucket = connect(location("s3://stores"), "s3://stores", Storage(given))
        found = [entry.key for entry in bucket.below("s")]
        assert sorted(found) == sorted(keys)
        asked = [path for _, path, _ in server.asked]
        assert any("start-after" in path for path in asked)
        assert any("continuation-token" in path for path in asked) is not knows_where
        assert len(list(bucket.below("s", 1100))) == 1100
