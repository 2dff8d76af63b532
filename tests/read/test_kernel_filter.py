"""The kernel's filter of a Selection selects the units whose rows the oracle selects."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np
from oracle import reference
from oracle.selected import has_wanted_values
from support.kernels import encode_log, random_label_units

from native_io import Status
from rmqstore_spark.query.selection import EVERYTHING, Numbers, Selection
from rmqstore_spark.read.pieces.kernel_filter import kernel_filter

Row = dict[str, Any]
NUMBERS = {"queue_offset": "queueOffset", "commit_log_offset": "commitLogOffset", "store_timestamp": "storeTimestamp"}
TEXTS = {"tags": "tags", "keys": "keys", "msg_id": "msgId", "offset_msg_id": "offsetMsgId"}
KINDS = (*NUMBERS, *TEXTS, "words", "ids")


def _selection(kind: str, rows: list[Row], rng: random.Random) -> Selection:
    count = rng.choice((1, 1, 3, 10))
    values: Any
    if kind in NUMBERS:
        numbers = [row[NUMBERS[kind]] for row in rows if row[NUMBERS[kind]] is not None] or [0]
        scale = 1000 if kind == "store_timestamp" else 1
        null = (1 << 63) // 1000 + 1  # a time in milliseconds that its column cannot hold
        values = Numbers.of(*(rng.choice((rng.choice(numbers) // scale, null)) for _ in range(count)))
    else:
        columns = {"words": ["keys", "msgId"], "ids": ["msgId", "offsetMsgId"]}.get(kind) or [TEXTS[kind]]
        texts = [row[column] for row in rows for column in columns if row[column] is not None] or ["none"]
        if kind == "words":
            texts += [word for text in texts for word in text.split(" ") if word]
        if kind == "ids":
            texts += [text.lower() for text in texts]
            texts += [text.replace("FF", "\N{LATIN SMALL LIGATURE FF}") for text in texts if "FF" in text]
        values = frozenset(rng.choices(texts, k=1 if kind in ("words", "ids") else count))
    return Selection(**{kind: values})


def test_the_kernel_selects_what_the_oracle_does(rng: random.Random) -> None:
    seen: Counter[str] = Counter()
    for _ in range(60):
        log, positions = encode_log(random_label_units(rng, rng.choice((1, 5, 40))))
        rows = [reference.decode_unit(log[at:], at) for at in positions.tolist()]
        for _ in range(30):
            kinds = rng.sample(KINDS, rng.choice((1, 1, 2, 3)))
            selection = EVERYTHING
            for kind in [*kinds, *rng.choices(kinds, k=rng.choice((0, 0, 1)))]:
                selection = selection.narrowed(_selection(kind, rows, rng))
            found = np.empty(len(rows) + 1, np.int64)
            window: dict[str, Any] = {"base": 0, "position": 0, "stop": len(log), "segment_end": len(log) + 8}
            count, _, status, *_ = kernel_filter(selection).scan(log, **window, verify_crc=True, positions=found)
            assert status is Status.LIMIT
            expected = [row["commitLogOffset"] for row in rows if has_wanted_values(selection, row)]
            assert found[:count].tolist() == expected, selection
            if 0 < len(expected) < len(rows):
                seen.update(kinds)
    assert min(seen[kind] for kind in KINDS) > 5, seen


def test_every_part_of_a_selection_is_tried() -> None:
    """But those that are about queues, which are asked by their name (tests/kernel/test_select.py; light ones:
    tests/read/test_light_queues.py), what a batch counts as (tests/kernel/test_batches.py), and what only options ask
    for (tests/read/test_contents.py)."""
    others = {"topic", "assigned", "queue_id", "offsets", "light", "explodes", "properties", "sql92", "body"}
    missing = {field.name for field in fields(Selection)} ^ {*KINDS, *others}
    assert not missing, f"{missing}: in KINDS, or in `others` with a test of its own"
