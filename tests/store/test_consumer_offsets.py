"""Consumers' offsets are those that a plain parser finds in the file, in whatever pieces it is read."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.stores import StoreBuilder

from native_io import EntriesStatus, NameNumbers, take_entries
from rmqstore_spark import DamagedStoreError, Store, temporary
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures import config as config_module
from rmqstore_spark.store.structures import consumer_offsets
from rmqstore_spark.store.structures.config import OFFSETS
from rmqstore_spark.store.structures.consumer_offsets import ConsumerOffsets, consumed

Plain = tuple[set[str], dict[tuple[str, str], dict[int, int]]]


def plain(text: str) -> Plain:
    """Topics and offsets by Python's json; none where it cannot parse the text."""
    try:
        table = json.loads(re.sub(r"(?<=[{,\s])(-?\d+)(?=\s*:)", r'"\1"', text))
    except ValueError:
        return set(), {}
    entries = table.get("offsetTable") if isinstance(table, dict) else None
    topics, found = set(), {}
    for name, queues in (entries if isinstance(entries, dict) else {}).items():
        topic, at, group = name.partition("@")
        if topic and at:
            topics.add(topic)
        queues = queues if isinstance(queues, dict) else {}
        numbers = {
            int(number): offset
            for number, offset in queues.items()
            if re.fullmatch("0|[1-9][0-9]*", number) and int(number) < 1 << 31
            if type(offset) is int and 0 <= offset < 1 << 63
        }
        if topic and group and numbers:
            found[group, topic] = numbers
    return topics, found


def written(rng: random.Random, is_odd: bool) -> str:
    """A file as some broker might write it, or as none does."""
    blank = rng.choice(("", " ", "\n\t\t", "\r\n"))

    def number() -> str:
        return str(rng.choice((0, 1, 7, rng.randrange(1 << 31), (1 << 31) - 1)))

    def offset() -> str:
        return str(rng.choice((0, -1, rng.randrange(100), rng.randrange(1 << 59))))

    def entry() -> str:
        name = rng.choice(("T", "U", "%RETRY%g", "é", "", "a@b", r"\"q", r"\u00e4")) + rng.choice(
            ("@G", "@H", "@", "", "@G@x")
        )
        quote = rng.choice(("", '"'))
        queues = (f"{quote}{number()}{quote}{blank}:{blank}{offset()}" for _ in range(rng.randrange(5)))
        return f'"{name}"{blank}:{blank}{{{(blank + "," + blank).join(queues)}{blank}}}'

    entries = ",".join(entry() for _ in range(rng.randrange(30)))
    version = f'"dataVersion":{{"counter":{{"value":1}},"stateVersion":0,"timestamp":{rng.randrange(1 << 40)}}}'
    parts = [
        f'"offsetTable":{blank}{{{blank}{entries}{blank}}}',
        *rng.choice(([], [version], ['"offsetTable":{"T@G":{0:1}}'])),
    ]
    rng.shuffle(parts)
    text = f"{{{blank}{','.join(parts)}{blank}}}{blank}"
    if is_odd:
        at = rng.randrange(len(text))
        text = rng.choice((text[:at], text[:at] + rng.choice('{}",:0-.ex[') + text[at + rng.randrange(2) :]))
    return text


def as_plain(root: Path) -> Plain:
    found = consumed(str(root), Files())
    return found.topics, {name: dict(queues) for name, queues in found.offsets.items()}


def test_random_files(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").mkdir()
    streamed = 0
    for number in range(600):
        monkeypatch.setattr(consumer_offsets, "_AT_ONCE", rng.choice((1, 7, 60, 1 << 20)))
        monkeypatch.setattr(consumer_offsets, "ROWS_AT_ONCE", rng.choice((1, 5, 1 << 16)))
        monkeypatch.setattr(temporary, "IN_MEMORY", rng.choice((0, 100, 8 << 20)))
        text = written(rng, is_odd=number % 2 == 1)
        path = tmp_path / "config" / "consumerOffset.json"
        path.write_text(text)
        assert as_plain(tmp_path) == plain(text), text
        streamed += consumer_offsets._streamed(str(path), Files())[0] is not None
    assert streamed > 150


def test_sound_files_are_those_that_can_be_parsed(tmp_path: Path, rng: random.Random) -> None:
    """What `check` does not parse once more has the form that it would find."""
    (tmp_path / "config").mkdir()
    path, kinds = tmp_path / "config" / "consumerOffset.json", set()
    for n in range(150):
        text = written(rng, is_odd=n % 3 == 0).encode()
        if n % 5 == 0:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + bytes([rng.choice([0xFF, 0xC3, ord("é"), ord("{")])]) + text[at:]
        path.write_bytes(text)
        is_sound = path.name in consumed(str(tmp_path), Files()).sound
        assert not is_sound or config_module.why_unread(str(tmp_path), path.name, Files()) is None, text
        kinds.add(is_sound)
    assert kinds == {True, False}
    path.rename(path.with_name(path.name + ".bak"))
    path.with_name(path.name + ".bak").write_text('{"offsetTable":{"T@G":{0:1}}}')
    assert consumed(str(tmp_path), Files()).sound == frozenset()


@pytest.mark.parametrize("most", [0, 200, temporary.IN_MEMORY])
def test_rows_are_in_order(rng: random.Random, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(temporary, "IN_MEMORY", most)
    names = [(f"g{rng.randrange(9)}", f"t{rng.randrange(9)}") for _ in range(50)]
    table = {name: {rng.randrange(50): rng.randrange(50) for _ in range(rng.randrange(9))} for name in names}
    offsets = ConsumerOffsets.of(table)
    assert dict(offsets) == {name: queues for name, queues in sorted(table.items()) if queues}
    rows = [(topic, each) for _, topic, here in offsets.stretches() for each in offsets.queue_ids[here].tolist()]
    assert rows == [(topic, each) for (_, topic), queues in sorted(table.items()) for each in sorted(queues)]
    queues = rng.sample(sorted(set(rows)), len(set(rows)) // 2) + [("t0", 99)] * 2
    queues += queues[:2]
    last = {queue: at for at, queue in enumerate(queues)}
    every = slice(0, len(rows))
    assert offsets.index_in(queues)(every).tolist() == [last.get(row, -1) for row in rows]
    assert offsets.index_in([])(every).tolist() == [-1] * len(rows)
    assert [found for piece in offsets.pieces(at_once=3) for found in offsets.index_in(queues)(piece)] == [
        last.get(row, -1) for row in rows
    ]
    topics = {f"t{number}" for number in range(4)}
    assert dict(offsets.only(topics)) == {name: of for name, of in offsets.items() if name[1] in topics}
    monkeypatch.setattr(consumer_offsets, "ROWS_AT_ONCE", 3)  # so that pieces end within a name
    some = offsets.where(lambda piece: offsets.offsets[piece] % 2 == 1)
    odd = {name: {at: each for at, each in of.items() if each % 2} for name, of in offsets.items()}
    assert dict(some) == {name: of for name, of in odd.items() if of}
    assert [*some] == sorted(some)
    for topic, queue_id in {*rows, ("t0", 1000), ("other", 0)}:
        found = {of[queue_id] for (_, each), of in offsets.items() if each == topic and queue_id in of}
        assert offsets.of_queue(topic, queue_id) == found
    assert [(group, [*offsets.names[where]]) for group, where in offsets.names.of_groups()] == [
        (group, [name for name in sorted(offsets) if name[0] == group]) for group in sorted({g for g, _ in offsets})
    ]
    assert ("g0", "other") not in offsets
    assert offsets.get(("other", "t0")) is None


def test_two_million_offsets(tmp_path: Path) -> None:
    """More than what is parsed of any other file in config/."""
    (tmp_path / "config").mkdir()
    (tmp_path / "commitlog").mkdir()
    queues = ",".join(f"{number}:{number}" for number in range(1000))
    with (tmp_path / "config" / "consumerOffset.json").open("w") as file:
        file.write('{"offsetTable":{')
        file.write(",".join(f'"T@G{group:04d}":{{{queues}}}' for group in range(2001)))
        file.write("}}")
    rows = Store(tmp_path).offsets(columns=["group", "queueId", "consumerOffset"])
    assert rows.num_rows == 2_001_000
    assert rows.column("queueId").equals(rows.column("consumerOffset").cast("int32"))
    assert Store(tmp_path).groups().num_rows == 2001


def test_what_is_refused_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "_MOST_BYTES", 100)
    (tmp_path / "config").mkdir()
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text(text := '{"offsetTable":{"T@G":{0:1},"T@H":{0:0.5}}}' + 100 * " ")
    why = f"consumerOffset.json, position {text.index(chr(34) + 'T@H')}: expected consumers' offsets as a broker writes"
    for table in ("offsets", "groups"):
        with pytest.raises(DamagedStoreError, match=why):
            Store(tmp_path).table(table)
    with pytest.raises(DamagedStoreError, match=why):
        Store(tmp_path).offsets(subscribe="T")
    path.with_name("consumerOffset.json.bak").write_text('{"offsetTable":{"T@G":{0:1}}}')
    assert Store(tmp_path).offsets().num_rows == 1
    path.write_text('{"offsetTable":{' + ",".join(f'"T@G{group}":{{0:1}}' for group in range(100)) + "}}")
    assert Store(tmp_path).offsets().num_rows == 100
    assert not {"brokenConfig", "oldConfig"} & set(Store(tmp_path).check().column("problem").to_pylist())
    path.write_text(text)
    path.with_name("consumerOffset.json.bak").unlink()
    assert "brokenConfig" in Store(tmp_path).check().column("problem").to_pylist()


@pytest.mark.parametrize(
    "change", [("names", (1, 3)), ("names", (0, 2)), ("counts", (2,)), ("queues", (1, 4)), ("queues", (2, 0))]
)
def test_arrays_have_to_fit(change: tuple[str, tuple[int, ...]]) -> None:
    arrays: dict[str, Any] = {"names": (1, 2), "counts": (1,), "queues": (2, 4)} | dict([change])
    with pytest.raises(ValueError, match="expected"):
        take_entries(b"}", is_begun=False, **{name: np.empty(shape, np.int64) for name, shape in arrays.items()})


def test_no_more_than_there_is_room_for() -> None:
    names, counts, queues = np.empty((1, 2), np.int64), np.empty(1, np.int64), np.empty((2, 2), np.int64)
    text = b'"a":{0:1,1:2},"b":{2:3}}'
    assert take_entries(text, is_begun=False, names=names, counts=counts, queues=queues) == (
        EntriesStatus.MORE,
        14,
        1,
        2,
    )
    assert take_entries(text, is_begun=False, names=names, counts=counts, queues=queues[:, :1].copy())[1:] == (0, 0, 0)


@pytest.mark.parametrize(
    ("entry", "status", "queues"),
    [
        ('"a":{0:1 \t\r\n}}', EntriesStatus.END, [(0, 1)]),
        ('"a":{"0":-0,1:-7}}', EntriesStatus.END, [(0, 0), (1, -1)]),
        ('"\\"":{}}', EntriesStatus.END, []),
        ('"a":{0:1,', EntriesStatus.MORE, []),
        ('"a":{0:', EntriesStatus.MORE, []),
        ('"a":{0:-', EntriesStatus.MORE, []),
        ('"a":{"0', EntriesStatus.MORE, []),
        ('"a\\', EntriesStatus.MORE, []),
        ('"a":{0:1\v}}', EntriesStatus.ODD, []),
        ('"a":{0:1\f}}', EntriesStatus.ODD, []),
        ('"a":{:1}}', EntriesStatus.ODD, []),
        ('"a":{00:1}}', EntriesStatus.ODD, []),
        ('"a":{0:01}}', EntriesStatus.ODD, []),
        ('"a":{0:--1}}', EntriesStatus.ODD, []),
        ('"a":{"0:1}}', EntriesStatus.ODD, []),
        ('"a":{0;1}}', EntriesStatus.ODD, []),
        ('"a":{2147483647:1}}', EntriesStatus.END, [(2147483647, 1)]),
        ('"a":{2147483648:1}}', EntriesStatus.ODD, []),
        ('"a":{0:1000000000000000000000}}', EntriesStatus.ODD, []),
        ('"a\n":{0:1}}', EntriesStatus.ODD, []),
        ('"a":{0:1};', EntriesStatus.ODD, []),
        ('"a";{0:1}}', EntriesStatus.ODD, []),
        ('"a":[0:1}}', EntriesStatus.ODD, []),
        ("a:{0:1}}", EntriesStatus.ODD, []),
    ],
)
def test_one_entry(entry: str, status: EntriesStatus, queues: list[tuple[int, int]]) -> None:
    """What is odd is left to a parser of JSON, with all that was found in the entry."""
    names, counts, found = np.empty((1, 2), np.int64), np.empty(1, np.int64), np.empty((2, 4), np.int64)
    arguments: dict[str, Any] = {"is_begun": False, "names": names, "counts": counts, "queues": found}
    is_end = status is EntriesStatus.END
    expected = (status, len(entry) if is_end else 0, int(is_end), len(queues))
    assert take_entries(entry.encode(), **arguments) == expected
    assert [tuple(each) for each in found[:, : len(queues)].T.tolist()] == queues


@pytest.mark.parametrize("of_groups", [OFFSETS[:1], OFFSETS[1:]])
def test_a_file_too_large_to_be_parsed_is_no_broken_one(
    of_groups: tuple[str], tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command does with it what it does with a small one, or refuses; none takes its backup instead."""
    builder = StoreBuilder(tmp_path / "store")
    for _ in range(5):
        builder.append("T")
    builder.close()
    config = builder.root / "config"
    groups = rng.sample(range(30), 30)
    entries = ",".join(f'"T{group % 2 or ""}@G{group}":{{1:{group},0:{group // 2 % 9 - 1}}}' for group in groups)
    for name in OFFSETS:
        (config / name).write_text(f'{{"offsetTable":{{{entries if name in of_groups else ""}}}}}')
        (config / f"{name}.bak").write_text('{"offsetTable":{"T@Old":{0:1}}}')
    os.utime(config / of_groups[0], (2_000_000_000, 2_000_000_000))

    def told(new: str) -> tuple[list[dict[str, Any]], str, list[dict[str, Any]]]:
        store = Store(builder.root)
        rows = store.check().to_pylist()
        assert {row["problem"] for row in rows} >= {"offsetAheadOfQueue", "offsetBehindQueue", "offsetWithoutQueue"}
        store.copy(tmp_path / new)
        copied = (tmp_path / new / "config" / of_groups[0]).read_text()
        return rows, copied, store.rebuild_config(dry_run=True).to_pylist()

    few, copied, kept = told("few")
    monkeypatch.setattr(config_module, "_MOST_MEMBERS", 40)
    many, copied_of_many, kept_of_many = told("many")
    assert many == few
    assert json.loads(copied_of_many) == json.loads(copied)
    assert kept_of_many == kept
    before = {path.name: path.read_bytes() for path in config.iterdir()}
    Store(builder.root).rebuild_config()
    with pytest.raises(DamagedStoreError, match="too large to be changed here"):
        Store(builder.root).set_offsets({f"G{groups[0]}": "earliest"})
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {f"T{n}": {} for n in range(50)}}))
    before["topics.json"] = (config / "topics.json").read_bytes()
    with pytest.raises(DamagedStoreError, match="whether it is broken is not known"):
        Store(builder.root).rebuild_config()
    assert {name: before[name] for name in before if "ffset" in name or name == "topics.json"}.items() <= {
        path.name: path.read_bytes() for path in config.iterdir()
    }.items()


def test_names_are_numbered_as_they_come(rng: random.Random) -> None:
    known, texts = NameNumbers(), tuple[list[str], list[str]](([], []))
    for _ in range(20):
        names = [rng.choice(("T", "U", "", f"T{rng.randrange(3000)}")) for _ in range(rng.randrange(200))]
        names = [name + rng.choice(("@G", "@", "", "@a@b", f"@{rng.randrange(3000)}")) for name in names]
        text = "".join(f'"{name}"' for name in names)
        sizes = np.array([len(name) for name in names], np.int64)
        ends = np.cumsum(sizes + 2) - 1
        bounds = np.stack([ends - sizes, ends], axis=1)
        numbers = np.full((3, len(names)), 77, np.int32)
        for every, new in zip(texts, known.number(text.encode(), bounds, numbers), strict=True):
            every.extend(new)
        rows = zip(*numbers.tolist(), strict=True)
        found = [(texts[0][topic], "@" if has_at else "", texts[1][group]) for topic, group, has_at in rows]
        assert found == [name.partition("@") for name in names]
    assert all(len(set(every)) == len(every) for every in texts)


@pytest.mark.parametrize("bounds", [[[0, 4]], [[2, 1]], [[-1, 1]], [[0, 2], [1, 3]]])
def test_names_outside_of_their_text(bounds: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="is not in the text"):
        NameNumbers().number(b'T@G"', np.array(bounds), np.zeros((3, len(bounds)), np.int32))
    with pytest.raises(ValueError, match="as many columns"):
        NameNumbers().number(b'T@G"', np.array([[0, 3]]), np.zeros((3, 2), np.int32))


def test_more_names_than_the_kernel_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins anew with its numbers; what they stand for stays."""
    monkeypatch.setattr(consumer_offsets, "_MOST_NUMBERED", 5)
    monkeypatch.setattr(consumer_offsets, "_AT_ONCE", 200)
    entries = {f"T{number * 7 % 30}@G{number % 11}": {0: number} for number in range(200)}
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": entries}))
    found = consumed(str(tmp_path), Files())
    names = [name.split("@") for name in entries]
    assert dict(found.offsets) == {(g, t): q for (t, g), q in zip(names, entries.values(), strict=True)}
    assert found.topics == {topic for topic, _ in names}
