"""Selections: whatever the accelerators look like, the rows are those of the full scan filtered.

Known limits, which are not tested against: topics that are known nowhere (no ConsumeQueue, not in topics.json or
consumerOffset.json) in a lookup by key or msgId without topic; ROLLBACK messages with keys, which no index has; a
queueOffset used twice in a queue that is named with bounded offsets; a wrong tagsCode in an otherwise sound
ConsumeQueue; a zeroed index slot, or an item unlinked in a sound chain; messages written after a truncation and before
the log was as long as it had been, which are in no index; clock steps back of more than CLOCK_SLACK inside a piece of
the log whose ends do not show them.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import reading
import reference
import selecting
from hypothesis import given, settings
from hypothesis import strategies as st
from selecting import Row, Wanted

from rmqstore_spark import access, wanted
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.options import ReadOptions
from rmqstore_spark.planner import plan

COLUMNS = ["topic", "queueId", "queueOffset", "tags", "keys", "msgId", "offsetMsgId", "commitLogOffset"]
COLUMNS += ["storeTimestamp", "bodyCRC"]
EXAMPLES = 250


@dataclass
class Paths:
    """How often each way was taken: pieces by class, and how many of them gave rows; contradictions."""

    pieces: Counter[str] = field(default_factory=Counter)
    fruitful: Counter[str] = field(default_factory=Counter)
    contradictions: int = 0


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Paths:
    found = Paths()

    def warning(text: str, *args: object) -> None:
        assert text.startswith("%s; reading")
        found.contradictions += 1

    monkeypatch.setattr(wanted.log, "warning", warning)
    return found


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Accelerators are taken wherever they can be; searching in time and reading ahead begin with few messages."""
    monkeypatch.setattr(access, "_REQUEST", 0)
    monkeypatch.setattr(access, "_SEARCH", 0)
    monkeypatch.setattr(access, "UNIT_SIZE", 0)
    monkeypatch.setattr(access, "_MATCHING", 1 << 40)
    monkeypatch.setattr(wanted, "_WORTH_NARROWING", 2)
    return monkeypatch


def _read(options: ReadOptions, paths: Paths | None = None) -> list[Row]:
    rows = []
    for task in plan(options).tasks:
        if paths is None:
            rows += reading.read_one(task, options, COLUMNS)
            continue
        for piece in task.ranges:
            found = reading.read_one(replace(task, ranges=(piece,)), options, COLUMNS)
            paths.pieces[type(piece).__name__] += 1
            paths.fruitful[type(piece).__name__] += bool(found)
            rows += found
    return sorted(rows, key=lambda row: row["commitLogOffset"])


def _options(root: Path, rng: random.Random, parts: list[Wanted]) -> ReadOptions:
    given = {name: value for part in parts for name, value in part.options.items()}
    size = rng.choice(({}, {"minPartitions": "7"}, {"maxPartitionBytes": "1000"}, {"maxPartitionBytes": "5000"}))
    options = reading.options_of(root, **given, **size)
    selection = options.selection
    for part in parts:
        if part.pushed is not None:
            selection = selection.narrowed(part.pushed)
    return replace(options, selection=selection)


def _check(seed: int, damages: list[str], kinds: list[list[str]], is_pushed: list[bool], paths: Paths) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        store, is_cut = selecting.random_store(root, rng)
        for name in damages:
            selecting.DAMAGES[name](root, rng)
        try:
            rows = _read(reading.options_of(root))
        except DamagedStoreError:  # where a truncated log ends cannot be told when its queues lie as well
            assert is_cut
            return
        assert is_cut or rows == [_narrow(row) for row in reference.read_store(root)]
        for names, pushed in zip(kinds, is_pushed, strict=False):
            if pushed:
                parts = [selecting.by_filter(rng, rows, name) for name in names]
            else:
                parts = selecting.by_options(rng, rows, store, names)
            options = _options(root, rng, parts)
            expected = [row for row in rows if all(part.predicate(row) for part in parts)]
            found = _read(options, paths)
            assert found == expected, (options, _explain(found, expected))


def _narrow(row: Row) -> Row:
    return {name: row[name] for name in COLUMNS}


def _explain(found: list[Row], expected: list[Row]) -> str:
    missing = [row for row in expected if row not in found]
    more = [row for row in found if row not in expected]
    return f"{len(found)} rows found, {len(expected)} expected; missing: {missing[:3]}; too many: {more[:3]}"


damages_of = st.lists(st.sampled_from(sorted(selecting.DAMAGES)), max_size=2)
seeds = st.integers(0, (1 << 32) - 1)


def _some(kinds: tuple[str, ...]) -> st.SearchStrategy[list[list[str]]]:
    return st.lists(st.lists(st.sampled_from(kinds), min_size=1, max_size=3, unique=True), min_size=3, max_size=6)


@pytest.mark.parametrize("pushed", [False, True], ids=["options", "filters"])
@pytest.mark.parametrize("prices", ["real", "none"])
def test_rows_are_those_of_the_filtered_full_scan(
    prices: str, pushed: bool, paths: Paths, request: pytest.FixtureRequest
) -> None:
    if prices == "none":
        request.getfixturevalue("forced")
    kinds = selecting.PUSHED_KINDS if pushed else selecting.OPTION_KINDS

    @settings(max_examples=EXAMPLES)
    @given(seeds, damages_of, _some(kinds))
    def check(seed: int, damages: list[str], some: list[list[str]]) -> None:
        _check(seed, damages, some, [pushed] * len(some), paths)

    check()
    if prices == "none":
        assert paths.fruitful["Scan"] > 100
        assert paths.fruitful["Queued"] > 100
        assert paths.fruitful["Indexed"] > 20
        assert paths.contradictions > 20
