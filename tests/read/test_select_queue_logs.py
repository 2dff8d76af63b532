"""Selections in logs of single queues: a tiered store, alone and beside its broker's store, and compaction logs. The
rows are those of the full scan, filtered."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from oracle import compaction, tiered
from oracle.aged_stores import TAGS, TOPICS, WORDS
from oracle.compaction import LogWriter, Value
from oracle.stores import StoreBuilder
from support import reading, selecting

from rmqstore_spark.errors import OptionError

COLUMNS = ["topic", "queueId", "queueOffset", "tags", "keys", "msgId", "offsetMsgId", "commitLogOffset"]
COLUMNS += ["storeTimestamp", "bodyCRC", "batchIndex"]
STORES, SELECTIONS = 4, 25

Row = dict[str, Any]


def made(root: Path, rng: random.Random) -> StoreBuilder:
    builder = StoreBuilder(root, segment_size=8192)
    for number in range(160):
        builder.append(
            rng.choice(TOPICS),
            f"body-{number}".encode() * rng.randint(1, 8),
            queue_id=rng.randrange(3),
            tags=rng.choice([None, *TAGS]),
            keys=" ".join(rng.sample(WORDS, rng.randrange(3))) or None,
            msg_id=f"{number:032X}",
        )
    builder.close()
    return builder


def as_counted(rows: list[Row]) -> Counter[str]:
    return Counter(map(repr, rows))


def compare(roots: Path, rng: random.Random, builder: StoreBuilder, kinds: tuple[str, ...], **own: Any) -> int:
    """Random selections; how many of them gave rows."""
    everything = reading.read(roots, columns=COLUMNS, **own)
    fruitful = 0
    for _ in range(SELECTIONS):
        wanted = selecting.by_options(rng, everything, builder, rng.sample(kinds, rng.randint(1, 3)))
        options = {name: text for part in wanted for name, text in part.options.items()}
        expected = [row for row in everything if all(part.predicate(row) for part in wanted)]
        if "subscribe" in options and not {row["topic"] for row in everything} >= set(options["subscribe"].split(",")):
            with contextlib.suppress(OptionError):  # a topic that no queue has
                assert as_counted(reading.read(roots, columns=COLUMNS, **options, **own)) == as_counted(expected)
            continue
        rows = reading.read(roots, columns=COLUMNS, **options, **own)
        assert as_counted(rows) == as_counted(expected), options
        fruitful += bool(rows)
    return fruitful


def test_a_tier_alone_and_beside_its_store(tmp_path: Path, rng: random.Random) -> None:
    fruitful = 0
    for number in range(STORES):
        root, tier = tmp_path / f"store{number}", tmp_path / f"tier{number}"
        builder = made(root, rng)
        tiered.bring(tier, root, rng, codas=rng.random() < 0.5)
        fruitful += compare(tier, rng, builder, selecting.OPTION_KINDS)
        builder.expire(rng.randint(1, 2))
        fruitful += compare(root, rng, builder, selecting.OPTION_KINDS, tiered=str(tier))
    assert fruitful > STORES * SELECTIONS / 4


def test_last_values(tmp_path: Path, rng: random.Random) -> None:
    fruitful = 0
    for number in range(STORES):
        root = tmp_path / f"{number}"
        builder = StoreBuilder(root, segment_size=8192)
        values: dict[tuple[str, int], list[Value]] = {}
        for at in range(160):
            topic, queue_id = rng.choice(TOPICS[:2]), rng.randrange(2)
            body = b"" if rng.random() < 0.1 else f"value-{at}".encode() * 5
            value = compaction.append(builder, topic, queue_id, rng.choice(WORDS), body)
            values.setdefault((topic, queue_id), []).append(value)
        builder.close()
        compaction.configure(root, TOPICS[:2])
        for queue, sent in values.items():
            seen = rng.randint(1, len(sent) - 1)
            writer = LogWriter(root, *queue, 2048)
            writer.write_all(sent[seen:], writer.write_all(compaction.compact(sent[:seen]), 0))
        builder.expire(rng.randint(1, 2))
        kinds = ("offsets", "key", "msgId", "time", "tags")
        fruitful += compare(root, rng, builder, kinds, compacted=True)
    assert fruitful > STORES * SELECTIONS / 8


def test_each_offset_of_a_queue_that_has_several_files(tmp_path: Path) -> None:
    """Also those between which a file begins or ends."""
    builder = StoreBuilder(tmp_path / "store")
    for number in range(12):
        builder.append("T", b"%d" % number)
    builder.close()
    for (topic, queue_id), units in tiered.queue_units(builder.root).items():
        writer = tiered.TierWriter(tmp_path / "tier", topic, queue_id)
        for at in range(0, len(units), 4):
            writer.write_segment(units[at : at + 4])
    for first in range(12):
        for last in range(first, 12):
            span = {"startingOffsets": {"T": {"0": first}}, "endingOffsets": {"T": {"0": last + 1}}}
            rows = reading.read(tmp_path / "tier", **{name: json.dumps(place) for name, place in span.items()})
            assert [row["queueOffset"] for row in rows] == [*range(first, last + 1)]
