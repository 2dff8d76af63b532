"""The newest message of each key, held against a plain loop over all messages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from rmqstore_spark import temporary
from rmqstore_spark.columns import BYTES, INT, LONG, TEXT
from rmqstore_spark.read.plan import newest
from rmqstore_spark.read.plan.newest import COLUMNS, Newest, chosen

TYPES = dict(zip(COLUMNS, (TEXT, INT, LONG, TEXT, INT, LONG, BYTES), strict=True))
PREPARED, ROLLED_BACK = 4, 12  # sysFlag
# White space for Java (Character.isWhitespace), and what is none for it.
BLANK = [None, "", " ", "\t \n", "\u2003", "\x1c"]
KEYS = ["a", "b", " a", "a ", "\xa0", "\x85", "\u2007", "\u202f", "\u20ac", "\x7f", "\U0001f600", "a b"]

Row = dict[str, Any]


def some_rows(rng: random.Random, count: int) -> list[Row]:
    return [
        {
            "topic": rng.choice("AB"),
            "queueId": rng.choice([0, 1, 2, -1]),
            "queueOffset": rng.randrange(30),
            "keys": rng.choice([*KEYS, *KEYS, *BLANK]),
            "sysFlag": rng.choice([0, 0, 0, 8, PREPARED, ROLLED_BACK]),
            "commitLogOffset": number,
            "body": rng.choice([b"", b"x", b"xy"]),
        }
        for number in range(count)
    ]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    arrays = [pa.array([row[name] for row in rows], TYPES[name]) for name in COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, names=COLUMNS)


def expected(own: list[list[Row]], compacted: list[list[Row]]) -> list[list[int]]:
    known: dict[tuple[str, int, str], tuple[int, int, Row]] = {}
    in_commitlog: set[tuple[str, int, int]] = set()
    for piece, rows in enumerate([*own, *compacted]):
        for row in rows:
            queue, offset, key = (row["topic"], row["queueId"]), row["queueOffset"], row["keys"]
            if row["sysFlag"] in (PREPARED, ROLLED_BACK):
                continue
            if piece < len(own):
                in_commitlog.add((*queue, offset))
            elif (*queue, offset) in in_commitlog:
                continue
            if key in BLANK:
                continue
            other = known.get((*queue, key))
            if piece < len(own) or other is None or other[0] < offset:
                known[*queue, key] = offset, piece, row
    found: list[list[int]] = [[] for _ in (*own, *compacted)]
    for _, piece, row in known.values():
        if row["body"]:
            found[piece].append(row["commitLogOffset"])
    return [sorted(each) for each in found]


@pytest.mark.parametrize("most", [1, 2000, temporary.IN_MEMORY])
def test_newest(rng: random.Random, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(newest, "_MOST", most)
    monkeypatch.setattr(temporary, "IN_MEMORY", most)
    for _ in range(10 if most == 1 else 30):
        own, compacted = ([some_rows(rng, rng.randrange(60)) for _ in range(rng.randrange(4))] for _ in range(2))
        pieces = len(own) + len(compacted)
        found = chosen(added(own, compacted, rng), pieces)
        assert [each.tolist() for each in found] == expected(own, compacted)


def added(own: list[list[Row]], compacted: list[list[Row]], rng: random.Random) -> Iterator[pa.RecordBatch]:
    found = Newest()
    for piece, rows in enumerate([*own, *compacted]):
        add = found.add_commitlog if piece < len(own) else found.add_compaction_log
        cut = rng.randint(0, len(rows))  # a piece comes in several batches
        for some in (rows[:cut], rows[cut:]):
            yield from add(batch_of(some), piece)
    yield from found.rest()
