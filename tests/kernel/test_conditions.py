"""The conditions of the kernel's Filter select the units whose columns have one of the values, and no others."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest
from oracle import reference
from support.kernels import Positions, decode, encode_log, random_label_units

from native_io import Filter, Status

BASE = 1 << 40
I64 = 1 << 63
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
NUMBERS = ("queueOffset", "commitLogOffset", "storeTimestamp")
TEXTS = ("offsetMsgId", "tags", "keys", "msgId")

Condition = Mapping[str, Collection[Any]]
Row = dict[str, Any]


def rows_in(log: bytes, positions: Positions) -> list[Row]:
    """The columns, with storeTimestamp as the milliseconds of the unit; the kernel decodes them as the oracle does."""
    rows = [reference.decode_unit(log[at - BASE :], at) for at in positions.tolist()]
    names = ("queueOffset", "commitLogOffset", *TEXTS)
    assert decode(log, positions, names, BASE) == [{name: row[name] for name in names} for row in rows]
    times = [reference.parse_unit(log[at - BASE :], at).store_timestamp for at in positions.tolist()]
    return [{**row, "storeTimestamp": time} for row, time in zip(rows, times, strict=True)]


def holds(condition: Condition, row: Row) -> bool:
    def has(name: str, values: Collection[Any]) -> bool:
        if name == "word":
            return any(word and word in values for word in (row["keys"] or "").split(" "))
        return row[name] is not None and row[name] in values

    return any(has(name, values) for name, values in condition.items())


def chosen(log: bytes, positions: Positions, conditions: list[Condition]) -> list[int]:
    """Which units are selected, by a scan and by claims, which must agree; each twice, as a filter is used again."""
    everything = (-I64, I64 - 1)
    wanted = Filter(store_timestamp=everything, commit_log_offset=everything, judge=None, conditions=conditions)
    found, end = np.empty(len(positions) + 1, np.int64), BASE + len(log)
    where: dict[str, Any] = {"segment_end": end + 8, "verify_crc": True}
    answers: list[list[int]] = []
    for _ in range(2):
        count, *rest = wanted.scan(log, base=BASE, position=BASE, stop=end, positions=found, **where)
        assert rest == [end, Status.LIMIT, 0, 0]
        answers.append(np.searchsorted(positions, found[:count]).tolist())
        claims: dict[str, Any] = {"positions": positions, "window_offsets": positions - BASE, "sizes": None}
        claims |= {"lengths": end - positions, "queue_offsets": None, "chosen": found}
        count, *rest = wanted.pick(log, **claims, **where)
        assert rest == [len(positions), Status.LIMIT, 0, 0]
        answers.append(found[:count].tolist())
    assert answers == [answers[0]] * 4
    return answers[0]


def check(log: bytes, positions: Positions, rows: list[Row], conditions: list[Condition]) -> list[int]:
    expected = [i for i, row in enumerate(rows) if all(holds(condition, row) for condition in conditions)]
    assert chosen(log, positions, conditions) == expected, conditions
    return expected


def _near(value: str, rng: random.Random) -> str:
    """A text that is nearly this one."""
    at = rng.randrange(len(value) + 1)
    return rng.choice(
        (
            value[:at],
            value[at:],
            value[:at] + rng.choice(("\0", "a", " ", REPLACEMENT, "\U0010ffff")) + value[at:],
            value.lower(),
            value.upper(),
            " " + value,
            "",
        )
    )


def _random_values(name: str, rows: list[Row], rng: random.Random) -> list[Any]:
    there: list[Any]
    if name == "word":
        there = [word for row in rows for word in (row["keys"] or "").split(" ")]
    else:
        there = [row[name] for row in rows if row[name] is not None] or ["none"]
    count = rng.choice((0, 1, 1, 2, 5, 40))
    if name in NUMBERS:
        steps = (0, 0, 0, 1, -1, 1 << 32, -(1 << 40))
        near = [rng.choice(there) + rng.choice(steps) for _ in range(count)]
        return [min(max(value, -I64), I64 - 1) for value in near]
    return [value if rng.random() < 0.7 else _near(value, rng) for value in rng.choices(there, k=count)]


def _random_condition(rows: list[Row], rng: random.Random) -> Condition:
    names = rng.sample((*NUMBERS, *TEXTS, "word"), rng.choice((1, 1, 1, 2, 3)))
    return {name: _random_values(name, rows, rng) for name in names}


def test_any_conditions_of_any_units(rng: random.Random) -> None:
    seen: Counter[str] = Counter()
    for _ in range(60):
        log, positions = encode_log(random_label_units(rng, rng.choice((1, 5, 40))), BASE)
        rows = rows_in(log, positions)
        for _ in range(25):
            conditions = [_random_condition(rows, rng) for _ in range(rng.choice((1, 1, 2, 3)))]
            found = check(log, positions, rows, conditions)
            if 0 < len(found) < len(rows) and len(conditions) == 1 and len(conditions[0]) == 1:
                seen.update([*conditions[0]])
                values = [value for values in conditions[0].values() for value in values]
                seen[REPLACEMENT] += any(REPLACEMENT in str(value) for value in values)
    assert min(seen[name] for name in (*NUMBERS, *TEXTS, "word", REPLACEMENT)) > 5, seen


# ---- properties

NAMES = {"tags": b"TAGS", "keys": b"KEYS", "msgId": b"UNIQ_KEY"}


@pytest.mark.parametrize("column", NAMES)
def test_pairs_that_are_whole_or_broken(column: str) -> None:
    """All texts of up to five of these pieces: names once, twice and nearly right; no value, no end, no beginning."""
    name = NAMES[column]
    pieces = (name, b"\1", b"\2", b"v", b"w")
    texts = [b"".join(some) for size in range(6) for some in itertools.product(pieces, repeat=size)]
    texts += [before + name + b"\1v" for before in (b"x", b"\1", b"x\1", b"x\2", b"\0", name[:-1], name + b"\2")]
    texts += [near + b"\1v" for near in (name.lower(), name[:-1], name + b"x", name + b" ", b" " + name, name[1:])]
    texts += [name + b"\1v" + after for after in (b"\2", b"\2\1", b"\1", b"\2" + name + b"\1", b"\2" + name + b"\1w")]
    texts += [b"a\1b\2" * count + name + b"\1v" + b"\2a\1b" * count for count in (1, 20, 3000)]
    log, positions = encode_log(({"topic": "", "properties": text} for text in texts), BASE)
    rows = rows_in(log, positions)
    for values in (["v"], ["w"], ["v", "w"], ["vw"], ["v\1w", "\1v"], ["", "\1"]):
        check(log, positions, rows, [{column: values}])


def test_nothing_after_the_end_is_seen() -> None:
    for name, after in itertools.product(NAMES.values(), (b"v", b"\1v", b"\2", b"\2" + b"KEYS\1v")):
        column = next(column for column, other in NAMES.items() if other == name)
        whole = name + b"\1v"
        for size in range(len(whole) + 1):
            unit = reference.encode_unit(physical_offset=BASE, properties=whole[:size]) + after
            everything = (-I64, I64 - 1)
            wanted = Filter(
                store_timestamp=everything,
                commit_log_offset=everything,
                judge=None,
                conditions=[{column: ["v", "vv", "v\1v"]}],
            )
            found = np.empty(1, np.int64)
            stop = BASE + len(unit) - len(after)
            where: dict[str, Any] = {
                "base": BASE,
                "position": BASE,
                "stop": stop,
                "segment_end": stop + 8,
                "verify_crc": True,
            }
            count, *_ = wanted.scan(unit, positions=found, **where)
            assert count == (size == len(whole))


# ---- words


def test_words_are_what_single_spaces_separate() -> None:
    texts = ["".join(some) for size in range(7) for some in itertools.product(("a", "b", " "), repeat=size)]
    texts += ["a\tb", "a\u00a0b", "a\nb", "a\u2003b", "a\1b", "a\0b"]
    log, positions = encode_log(({"topic": "", "properties": {"KEYS": text}} for text in texts if text), BASE)
    rows = rows_in(log, positions)
    for values in (["a"], ["ab"], ["a", "bb"], [""], [" "], ["a b"], ["a\tb"], ["a\u00a0b"], ["aaaaaaa"]):
        found = check(log, positions, rows, [{"word": values}])
        assert bool(found) == (values[0] not in ("", " ", "a b", "aaaaaaa"))


# ---- text that is no UTF-8

# The first and last byte of each kind that UTF-8 tells apart.
BORDERS = bytes([0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE])
BORDERS += bytes([0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF])


def test_bytes_are_compared_as_they_are_shown(rng: random.Random) -> None:
    raw = [bytes(some) for size in (1, 2, 3) for some in itertools.product(BORDERS, repeat=size)]
    raw = rng.sample(raw, 6000) + [bytes(rng.choices(BORDERS, k=rng.randrange(4, 9))) for _ in range(4000)]
    raw += [text + b"\xef\xbf\xbd" for text in raw[:500]]
    log, positions = encode_log(({"topic": "", "properties": b"TAGS\1" + text} for text in raw), BASE)
    shown = [text.decode("utf-8", "replace") for text in raw]
    assert [row["tags"] for row in decode(log, positions, ["tags"], BASE)] == shown
    for _ in range(12):
        values = set(rng.sample(shown, rng.choice((1, 100, 3000))))
        expected = [i for i, text in enumerate(shown) if text in values]
        assert chosen(log, positions, [{"tags": values}]) == expected
    valid = [text for text in shown if REPLACEMENT not in text]  # then nothing has to be looked at twice
    assert chosen(log, positions, [{"tags": valid}]) == [i for i, text in enumerate(shown) if text in set(valid)]


def test_texts_of_all_lengths_as_they_are_shown() -> None:
    """Up to three times as long as the bytes, and no longer than what is wanted."""
    sizes = [1, 2, 9, 10, 11, 300, 32767 - 5]
    log, positions = encode_log(({"topic": "", "properties": b"TAGS\1" + b"\xff" * size} for size in sizes), BASE)
    for i, size in enumerate(sizes):
        assert chosen(log, positions, [{"tags": [REPLACEMENT * size]}]) == [i]
        assert chosen(log, positions, [{"tags": [REPLACEMENT * size + "a"]}]) == []


# ---- ids


def test_an_offset_msg_id_is_upper_case_hex_of_its_own_size() -> None:
    log, positions = encode_log([{"sys_flag": flag} for flag in (0, 0x20, 0, 0x20)], BASE)
    ids = [row["offsetMsgId"] for row in rows_in(log, positions)]
    assert [len(name) for name in ids] == [32, 56, 32, 56]
    for i, name in enumerate(ids):
        assert chosen(log, positions, [{"offsetMsgId": [name]}]) == [i]
        spaced, wide = f"{name[:2]} {name[2:]}", name.replace("0", "\N{FULLWIDTH DIGIT ZERO}")
        for no_id in (name.lower(), name[:-1], name + "0", name[2:], "00" + name, spaced, wide, f"{name}\n", ""):
            assert chosen(log, positions, [{"offsetMsgId": [no_id]}]) == []
    assert chosen(log, positions, [{"offsetMsgId": ids}]) == [0, 1, 2, 3]


# ---- many values, no values, wrong ones


def test_many_values(rng: random.Random) -> None:
    numbers = list({rng.randrange(-I64, I64) for _ in range(300)})
    log, positions = encode_log(
        ({"queue_offset": number, "properties": {"KEYS": str(number)}} for number in numbers), BASE
    )
    for count in (*range(10), 63, 64, 65, 150, 300):
        some = set(rng.sample(numbers, count)) | {rng.randrange(-I64, I64) for _ in range(count)}
        expected = [i for i, number in enumerate(numbers) if number in some]
        assert chosen(log, positions, [{"queueOffset": some}]) == expected
        assert chosen(log, positions, [{"keys": [str(number) for number in some] * 2}]) == expected


def test_no_values_select_nothing() -> None:
    log, positions = encode_log([{"properties": {"TAGS": "a", "KEYS": "b", "UNIQ_KEY": "c"}}, {}], BASE)
    for name in (*NUMBERS, *TEXTS, "word"):
        assert chosen(log, positions, [{name: []}]) == []
        assert chosen(log, positions, [{name: []}, {"tags": ["a"]}]) == []
        assert chosen(log, positions, [{"tags": ["a"], name: []}]) == ([] if name == "tags" else [0])
    assert chosen(log, positions, []) == [0, 1]


WRONG: list[tuple[Any, type[Exception]]] = [
    ([{}], ValueError),
    ([{"topic": ["a"]}], ValueError),
    ([{"tags": ["a"]}, {"tag": ["a"], "keys": ["a"]}], ValueError),
    ([{"tags": [b"a"]}], TypeError),
    ([{"tags": [1]}], TypeError),
    ([{"tags": None}], TypeError),
    ([{"tags": [None]}], TypeError),
    ([{"tags": ["\ud800"]}], UnicodeEncodeError),
    ([{"offsetMsgId": [1]}], TypeError),
    ([{"queueOffset": ["1"]}], TypeError),
    ([{"queueOffset": [1.0]}], TypeError),
    ([{"queueOffset": [I64]}], OverflowError),
    ([{"storeTimestamp": [-I64 - 1]}], OverflowError),
    (["tags"], ValueError),
    (5, TypeError),
]


@pytest.mark.parametrize(("conditions", "error"), WRONG)
def test_conditions_of_the_wrong_kind(conditions: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Filter(store_timestamp=(0, 1), commit_log_offset=(0, 1), judge=None, conditions=conditions)


@pytest.mark.parametrize(
    ("properties", "values"),
    [
        (b"a\x011\x02b\x012\x02", [b"1", b"2"]),
        (b"a\x011\x02b\x012", [b"1", b"2"]),  # the last one is not ended
        (b"a\x011\x02a\x013\x02", [b"3", None]),  # the last one of a name counts
        (b"ab\x011\x02\x02b\x01\x02a\x02", [None, None]),
        (b"", [None, None]),
    ],
)
def test_values_that_a_judge_is_told(properties: bytes, values: list[bytes | None]) -> None:
    told: list[list[bytes | None]] = []

    def judge(found: tuple[bytes | None, ...]) -> bool:
        told.append(list(found))
        return True

    log = reference.encode_unit(properties=properties)
    chosen = Filter(conditions=[{"properties": ["a", "b"]}], properties_judge=judge)
    walked = chosen.scan(
        log,
        base=0,
        position=0,
        stop=len(log),
        segment_end=len(log) + 8,
        verify_crc=True,
        positions=np.empty(1, np.int64),
    )
    assert (walked.units, told) == (1, [values])
