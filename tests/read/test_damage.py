"""Damaged stores: never a crash, a hang, a wrong row or a silently missing one; and errors that say all in one line."""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import pytest
from oracle import random_stores, reference, stores
from support import reading
from support.reading import read, sound_and_corrupt

from rmqstore_spark.errors import DamagedStoreError, DeletedMeanwhileError, RmqStoreError

Row = dict[str, Any]
SIZE = 400  # of a segment


def _builder(root: Path, messages: int = 8, segment_size: int = SIZE) -> stores.StoreBuilder:
    """Three segments: bodies empty and not, with and without properties, one half message that is in no queue."""
    store = stores.StoreBuilder(root, segment_size=segment_size)
    for i in range(messages):
        store.append(
            topic=f"T{i % 2}",
            body=b"body %d " % i * (i % 4),
            queue_id=i % 3 // 2,
            tags="Tag" if i % 3 else None,
            sys_flag=reference.PREPARED if i == 4 else 0,
        )
    store.close()
    return store


def _segments(root: Path) -> list[Path]:
    return reference.segment_files(root)


def _assert_error(error: BaseException, path: Path | str | None = None, position: int | None = None) -> None:
    """One line: which file, where in it, expected, found, and what to do."""
    text = str(error)
    assert re.fullmatch(
        r"/\S+: position \d+ \(commitLogOffset \d+\): .*(expected|should|ends|reaches).*; \d+ bytes cannot be read; "
        r"mode=DROPMALFORMED reads the rest, mode=PERMISSIVE shows the place in column 'corrupt'",
        text,
    ), text
    if path is not None:
        assert text.startswith(f"{path}: ")
    if position is not None:
        assert f": position {position} (" in text


def _fails(root: Path, **options: Any) -> BaseException:
    with pytest.raises(RmqStoreError) as error:
        read(root, **options)
    assert "\n" not in str(error.value)
    return error.value


# ---- every byte, every bit


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("with_queues", [True, False])
def test_cut_at_every_byte(tmp_path: Path, with_queues: bool) -> None:
    store = _builder(tmp_path)
    if not with_queues:
        store.drop_queues()
    rows = reference.read_store(tmp_path)
    assert len(_segments(tmp_path)) == 3
    for cut in reversed(range(3 * SIZE)):  # from the end, so that every cut is a truncation of the one before
        path = store.segment(cut)
        os.truncate(path, cut % SIZE)
        expected = [row for row in rows if row["commitLogOffset"] + row["storeSize"] <= cut]
        sound, corrupt = sound_and_corrupt(read(tmp_path, mode="PERMISSIVE"))
        assert sound == expected, cut
        if cut % SIZE == 0:  # a broker that was killed leaves an empty file
            assert corrupt == []
            assert read(tmp_path) == expected
            path.unlink()
            assert read(tmp_path) == expected
        else:
            assert corrupt, cut
            _assert_error(_fails(tmp_path), path)
        if cut % 5 == 0:
            assert read(tmp_path, mode="DROPMALFORMED") == expected
            assert read(tmp_path, mode="DROPMALFORMED", maxPartitionBytes=1) == expected


def _bits(size: int, plain: Container[int], run: int) -> list[int]:
    """Every bit of so many bytes; but of plain ones two, and all of them in runs 0 to 3."""
    return [bit for bit in range(size * 8) if bit // 8 not in plain or bit % 4 == (bit // 8 + run) % 4]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("segment", [1, 2])
def test_flip_every_bit(tmp_path: Path, segment: int, with_queues: bool) -> None:
    run = 2 * (segment - 1) + with_queues
    store = _builder(tmp_path)
    if not with_queues:
        store.drop_queues()
    units = list(reference.read_units(tmp_path))
    rows = [reference.decode_unit(unit, at) for at, unit in units]
    path = _segments(tmp_path)[segment]
    whole = path.read_bytes()
    begin = segment * SIZE
    inside = [n for n, (at, _) in enumerate(units) if begin <= at < begin + SIZE]
    # Nothing but its queue can prove that the very last message was there.
    whole_until = units[inside.pop()][0] if segment == 2 and not with_queues else begin + SIZE
    covered = 0
    for n in inside:
        at, unit = units[n]
        body_end = 88 + int.from_bytes(unit[84:88])
        for bit in _bits(len(unit), {*range(8, 36), *range(40, 84), *range(88, body_end)}, run):
            flipped = bytearray(unit)
            flipped[bit // 8] ^= 1 << bit % 8
            _overwrite(path, at - begin, bytes(flipped))
            _assert_flip(tmp_path, path, rows, n, bytes(flipped), begin + SIZE - at, bit)
        _overwrite(path, at - begin, unit)
        covered += len(unit)
    assert path.read_bytes() == whole
    # What is left: the blank of 8 bytes and what lies behind it, or the zeros behind the end.
    rest = units[inside[-1]][0] - begin + len(units[inside[-1]][1])
    for bit in _bits(whole_until - begin, range(rest + reference.BLANK_SIZE, SIZE), run):
        if bit < rest * 8:
            continue
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        _overwrite(path, 0, bytes(flipped))
        sound, corrupt = sound_and_corrupt(read(tmp_path, mode="PERMISSIVE"))
        assert sound == rows, bit
        in_blank = segment < 2 and bit // 8 < covered + reference.BLANK_SIZE
        assert len(corrupt) == in_blank
        if bit % 5 == 0:
            if in_blank:
                _assert_error(_fails(tmp_path), path, covered)
            else:
                assert read(tmp_path) == rows


def _assert_flip(root: Path, path: Path, rows: list[Row], n: int, flipped: bytes, left: int, bit: int) -> None:
    """The reference says what has become of message `n`: another row, one without a body, or none."""
    at = rows[n]["commitLogOffset"]
    others = rows[:n] + rows[n + 1 :]
    try:
        reference.check_unit(flipped, at, left)
        expected = reference.decode_unit(flipped, at)
    except reference.Corrupt:
        expected = None
    names = [*reading.DEFAULT_COLUMNS, "file", "corrupt"]
    sound, corrupt = sound_and_corrupt(read(root, mode="PERMISSIVE", columns=names))
    files = [row.pop("file") for row in sound]
    if expected is not None:
        assert sound == [*rows[:n], expected, *rows[n + 1 :]], (n, bit)
        assert corrupt == [], (n, bit)
        changed = {name for name in expected if expected[name] != rows[n][name]}
        assert len(changed) <= 3, (n, bit)  # storeHost is in offsetMsgId; a property may also be `tags`
    else:
        assert sound == others, (n, bit)
        assert [(row["commitLogOffset"], row["file"]) for row in corrupt] == [(at, str(path))], (n, bit)
        assert corrupt[0]["corrupt"]
    assert len(files) == len(sound)
    if bit % 5 == 0:
        if expected is not None:
            assert read(root) == sound
        else:
            assert read(root, mode="DROPMALFORMED") == others
            _assert_error(_fails(root), path, at % SIZE)


def _overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


# ---- lies


LIES: list[dict[str, Any]] = [
    *({"total_size": value} for value in (-1, 0, 1, 90, 91, 200, 1 << 20, (1 << 31) - 1, -(1 << 31))),
    *({"body_length": value} for value in (-1, 0, 1, 30, 1000, (1 << 31) - 1, -(1 << 31))),
    *({"topic_length": value} for value in (-1, 0, 1, 127, -128)),
    *({"properties_length": value} for value in (-1, 0, 1, 32767, -32768)),
    *({"version": 2, "topic_length": value} for value in (-1, 0, 1, 32767, -32768)),
    *({"physical_offset": value} for value in (-1, 0, 1, (1 << 63) - 1, -(1 << 63))),
    *({"magic": value} for value in (0, -1, 0xDAA320A8 - (1 << 32))),
    {"body_crc": 1},
]


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.slow
def test_lies_in_a_unit(tmp_path: Path, with_queues: bool) -> None:
    for number, lie in enumerate(LIES):
        root = tmp_path / str(number)
        store = stores.StoreBuilder(root, segment_size=1024)
        for i in range(20):
            if i == 9:  # 8 is the first of the second segment, or near it
                honest = len(
                    reference.encode_unit(topic="TT", body=b"some body", properties=b"a\1b", version=lie.get("version"))
                )
                bad = store.append(topic="TT", body=b"some body", properties=b"a\1b", **lie)
                store.messages[-1] = store.messages[-1]._replace(size=honest)
            else:
                store.append(topic="TT", body=b"some body %d" % i, properties=b"a\1b")
        store.close()
        if not with_queues:
            store.drop_queues()
        error = _fails(root)
        _assert_error(error, store.segment(bad), bad % 1024)
        sound, corrupt = sound_and_corrupt(read(root, mode="PERMISSIVE"))
        assert [row["body"] for row in sound] == [b"some body %d" % i for i in range(20) if i != 9], lie
        assert [row["commitLogOffset"] for row in corrupt] == [bad]
        assert read(root, mode="DROPMALFORMED", maxPartitionBytes=100) == [
            {name: row[name] for name in reading.DEFAULT_COLUMNS} for row in sound
        ]
        shutil.rmtree(root)


def test_reason_names_expected_and_found(tmp_path: Path) -> None:
    reasons: tuple[tuple[dict[str, Any], str], ...] = (
        ({"total_size": 5}, "totalSize is too small: expected at least 91, found 5"),
        ({"total_size": 1 << 20}, r"totalSize reaches past the segment's end: expected at most \d+, found 1048576"),
        (
            {"magic": reference.MAGIC_BLANK},
            r"a blank that does not reach the segment's end: expected \d+ bytes, found \d+",
        ),
        ({"magic": 7}, "no message here: expected magic 0xDAA320A7 or 0xDAA320AB, found 0x00000007"),
        ({"physical_offset": 5}, r"physicalOffset differs from the position: expected \d+, found 5"),
        ({"body_length": -1}, r"bodyLength is impossible: expected 0 to \d+, found -1"),
        ({"topic_length": -1}, r"topicLength is impossible: expected 0 to \d+, found -1"),
        ({"properties_length": -1}, r"propertiesLength is impossible: expected 0 to \d+, found -1"),
        ({"properties_length": 9}, r"the parts do not add up to totalSize: expected \d+, found \d+"),
        ({"body_crc": 1}, r"bodyCRC differs from the body: expected 1, computed \d+"),
    )
    for lie, reason in reasons:
        store = stores.StoreBuilder(tmp_path / "store")
        store.append(body=b"x")
        store.append(body=b"x", **lie)
        store.append(body=b"x")
        store.close()
        assert re.search(reason, str(_fails(tmp_path / "store")))
        shutil.rmtree(tmp_path / "store")


@pytest.mark.slow
@pytest.mark.parametrize("with_queues", [True, False])
def test_noise(tmp_path: Path, rng: random.Random, with_queues: bool) -> None:
    """Regions of random bytes, zeros or copies: what is left are true rows, and what is lost is told."""
    for number in range(12):
        root = tmp_path / str(number)
        store = random_stores.random_store(root, rng, messages=60, segment_size=4096)
        if not with_queues:
            store.drop_queues()
        rows = reference.read_store(root)
        path = rng.choice(_segments(root)[:-1])
        data = bytearray(path.read_bytes())
        at, size = rng.randrange(4096), rng.choice((4, 50, 300, 2000))
        size = min(size, 4096 - at)
        other = rng.randrange(4096 - size)
        data[at : at + size] = rng.choice((rng.randbytes(size), bytes(size), data[other : other + size]))
        path.write_bytes(data)
        for partition in (1, 1000, 1 << 30):
            sound, corrupt = sound_and_corrupt(read(root, mode="PERMISSIVE", maxPartitionBytes=partition))
            begin = int(path.name)
            for row in rows:
                before = row["commitLogOffset"] + row["storeSize"] <= begin + at
                assert row in sound or not (before or row["commitLogOffset"] >= begin + 4096)
            found = {row["commitLogOffset"] for row in sound}
            positions = {row["commitLogOffset"] for row in rows}
            assert found <= positions
            assert found == positions or corrupt


# ---- files


@pytest.mark.parametrize("which", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [0, 5, 300, SIZE - 1, SIZE + 1, 3 * SIZE])
def test_file_of_another_size(tmp_path: Path, which: int, size: int) -> None:
    _builder(tmp_path, messages=11)
    rows = reference.read_store(tmp_path)
    path = _segments(tmp_path)[which]
    assert len(_segments(tmp_path)) == 4
    os.truncate(path, size)
    begin = int(path.name)
    end = begin + min(size, SIZE)
    expected = [
        row
        for row in rows
        if row["commitLogOffset"] + row["storeSize"] <= end or row["commitLogOffset"] >= begin + SIZE
    ]
    sound, corrupt = sound_and_corrupt(read(tmp_path, mode="PERMISSIVE"))
    assert sound == expected
    if which == 3 and size == 0:
        assert corrupt == []
        return
    assert any("perhaps by a copy that did not finish" in row["corrupt"] for row in corrupt)
    error = _fails(tmp_path)
    _assert_error(error, path, min(size, SIZE))
    assert f"expected a file of {SIZE} bytes like its neighbours, found {size}" in str(error)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("size", [300, 2 * SIZE - 100])
def test_two_files_of_different_size(tmp_path: Path, which: int, size: int) -> None:
    """No majority: the names tell, of which size the files should be."""
    _builder(tmp_path, messages=6)
    paths = _segments(tmp_path)
    assert len(paths) == 2
    os.truncate(paths[which], size)
    assert f"expected a file of {SIZE} bytes like its neighbours, found {size}" in str(_fails(tmp_path))


def test_stray_files_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _builder(tmp_path)
    rows = reference.read_store(tmp_path)
    commitlog = tmp_path / "commitlog"
    strays = ["_SUCCESS", ".00000000000000000000.crc", "0000", "000000000000000000000", "00000000000000000512.tmp"]
    for name in strays:
        (commitlog / name).write_bytes(b"stray")
    (commitlog / "00000000000000009999").mkdir()
    (commitlog / "lost+found").mkdir()
    with caplog.at_level(logging.WARNING):
        assert read(tmp_path) == rows
    for name in (*strays, "00000000000000009999", "lost+found"):
        assert f"{commitlog / name}: not a commitlog file, ignored" in caplog.text


def test_gap_between_segments(tmp_path: Path) -> None:
    _builder(tmp_path, messages=20)
    rows = reference.read_store(tmp_path)
    paths = _segments(tmp_path)
    paths[2].unlink()
    expected = [row for row in rows if not 2 * SIZE <= row["commitLogOffset"] < 3 * SIZE]
    error = _fails(tmp_path)
    _assert_error(error, paths[3], 0)
    assert f"expected a file {2 * SIZE:020d} after {paths[1]}, found {3 * SIZE:020d}" in str(error)
    sound, corrupt = sound_and_corrupt(read(tmp_path, mode="PERMISSIVE"))
    assert sound == expected
    assert [row["commitLogOffset"] for row in corrupt] == [2 * SIZE]
    assert read(tmp_path, mode="DROPMALFORMED") == expected


@pytest.mark.parametrize("with_queues", [True, False])
def test_a_file_that_ends_within_its_last_message(tmp_path: Path, with_queues: bool) -> None:
    """A few places of test_cut_at_every_byte: that message is told, and the others are read."""
    store = _builder(tmp_path, segment_size=2000)
    if not with_queues:
        store.drop_queues()
    (path,) = _segments(tmp_path)
    rows, last, data = reference.read_store(tmp_path), store.messages[-1], path.read_bytes()
    for size in (1, 8, 27, 60, last.size // 2, last.size - 1):
        path.write_bytes(data[: last.position + size])
        _assert_error(_fails(tmp_path), path, last.position)
        assert read(tmp_path, mode="DROPMALFORMED") == rows[:-1]
    path.write_bytes(data[: last.end])  # only the space for a blank is missing
    assert read(tmp_path, mode="DROPMALFORMED") == rows


def test_a_segment_of_zeros_before_one_with_a_broken_beginning(tmp_path: Path) -> None:
    """The messages behind them prove that the log goes on, though no segment after the zeros begins with one."""
    store = _builder(tmp_path, messages=20)
    rows = reference.read_store(tmp_path)
    paths = _segments(tmp_path)
    assert len(paths) > 4
    paths[-2].write_bytes(bytes(SIZE))
    first, *others = (each for each in store.messages if each.position >= int(paths[-1].name))
    assert others
    data = bytearray(paths[-1].read_bytes())
    data[4:8] = bytes(4)
    paths[-1].write_bytes(data)
    expected = [row for row in rows if not int(paths[-2].name) <= row["commitLogOffset"] <= first.position]
    _assert_error(_fails(tmp_path), paths[-2], 0)
    assert read(tmp_path, mode="DROPMALFORMED") == expected


@pytest.mark.parametrize("mode", reading.MODES)
def test_overlapping_segments(tmp_path: Path, mode: str) -> None:
    """Two stores in one directory: nothing can be made of that."""
    _builder(tmp_path)
    path = tmp_path / "commitlog" / f"{SIZE + 100:020d}"
    path.write_bytes(bytes(SIZE))
    with pytest.raises(
        DamagedStoreError, match="these files are not of one commitlog; put each store into a directory"
    ):
        read(tmp_path, mode=mode)


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_file_with_the_content_of_another(tmp_path: Path, which: int, with_queues: bool) -> None:
    """Whole units, but not of these offsets: brokers reuse files, and people rename them."""
    store = _builder(tmp_path)
    rows = reference.read_store(tmp_path)
    paths = _segments(tmp_path)
    paths[which].write_bytes(paths[(which + 1) % 3].read_bytes())
    if not with_queues:
        store.drop_queues()
    kept = [row for row in rows if row["commitLogOffset"] // SIZE != which]
    for mode in ("DROPMALFORMED", "PERMISSIVE"):
        sound, corrupt = sound_and_corrupt(read(tmp_path, columns=[*reading.DEFAULT_COLUMNS, "corrupt"], mode=mode))
        assert sound == kept
        assert mode == "DROPMALFORMED" or which == 2 or corrupt
    if which == 2 and not with_queues:
        assert read(tmp_path) == kept  # nothing of this offset was ever written, as far as one can see
    else:
        error = _fails(tmp_path)
        _assert_error(error, paths[which], 0)
        assert "physicalOffset differs from the position" in str(error)


@pytest.mark.parametrize("mode", reading.MODES)
def test_file_deleted_between_planning_and_reading(tmp_path: Path, mode: str) -> None:
    _builder(tmp_path)
    options = reading.options_of(tmp_path, mode=mode)
    planned = reading.plan(options)
    path = _segments(tmp_path)[0]
    path.unlink()
    with pytest.raises(DeletedMeanwhileError, match=f"{path}: the file is gone; a broker deletes expired segments"):
        _read_all(planned, options)


def _read_all(planned: reading.Plan, options: reading.ReadOptions) -> list[Row]:
    return [row for task in planned.tasks for row in reading.read_one(task, options)]


def test_file_cut_between_planning_and_reading(tmp_path: Path) -> None:
    _builder(tmp_path)
    rows = reference.read_store(tmp_path)
    options = reading.options_of(tmp_path)
    planned = reading.plan(options)
    path = _segments(tmp_path)[1]
    os.truncate(path, 200)
    with pytest.raises(DamagedStoreError, match="the file ends inside a message"):
        _read_all(planned, options)
    options = reading.options_of(tmp_path, mode="DROPMALFORMED")
    assert _read_all(planned, options) == [
        row for row in rows if not SIZE + 200 < row["commitLogOffset"] + row["storeSize"] <= 2 * SIZE
    ]


# ---- claims


HUGE = """
import resource, sys
from support.reading import read
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for mode in ("DROPMALFORMED", "PERMISSIVE"):
    rows = read(sys.argv[1], columns=["commitLogOffset"], mode=mode)
print(len(rows), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.slow
def test_huge_claims_take_no_memory(tmp_path: Path, with_queues: bool) -> None:
    """Units that claim almost all of a sparse segment of 1 GiB."""
    segment = 1 << 30
    store = stores.StoreBuilder(tmp_path, segment_size=segment)
    lies = 0
    for i in range(40):
        room = segment - store.end - 8
        if i % 4 == 3:
            lies += 1
            store.append(body=b"lie", total_size=room - i)
        elif i % 4 == 1:
            lies += 1
            store.append(body=b"lie", total_size=room, body_length=room - 97)
        else:
            store.append(body=b"true")
    store.append(body=b"the last one is true")
    store.close()
    if not with_queues:
        store.drop_queues()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    result = subprocess.run(
        [sys.executable, "-c", HUGE, str(tmp_path)], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == 0, result.stderr
    rows, kilobytes = map(int, result.stdout.split())
    assert rows == 41
    assert kilobytes < 64 * 1024


# ---- bodies that hold what looks like units


def _crafted_store(root: Path, segment_size: int = 4096) -> tuple[stores.StoreBuilder, list[int]]:
    """Every third body holds three whole units at just the offsets where they lie, with plausible and other fields."""
    store = stores.StoreBuilder(root, segment_size=segment_size, queue_file_size=2000)
    outer = []
    for i in range(24):
        if i % 3 == 1:
            left = segment_size - store.end % segment_size
            if left < 700:
                store.append(body=b"f" * (left - 200))
                store.append(body=b"next segment" * 20)
            outer.append(store.end)
            at = store.end + 88
            body = b""
            for claim in (
                {"topic": "Nope"},
                {"topic": "T", "queue_offset": i},
                {"topic": "T", "queue_offset": 1000, "sys_flag": reference.PREPARED},
            ):
                body += reference.encode_unit(
                    physical_offset=at + len(body), body=b"crafted", store_timestamp=store.now + 5, **claim
                )
            assert store.append(topic="T", body=body) == outer[-1]
        else:
            store.append(topic="T", body=b"honest %d" % i)
    store.close()
    return store, outer


@pytest.mark.parametrize("with_queues", [True, False])
def test_crafted_bodies(tmp_path: Path, with_queues: bool) -> None:
    store, _ = _crafted_store(tmp_path)
    if not with_queues:
        store.drop_queues()
    rows = reference.read_store(tmp_path)
    assert not any(row["body"] == b"crafted" for row in rows)
    for size in (*range(1, 600, 37), 1000, 3000, 1 << 30):
        assert read(tmp_path, maxPartitionBytes=size) == rows


@pytest.mark.slow
def test_crafted_bodies_in_damaged_messages(tmp_path: Path) -> None:
    """ConsumeQueue tells the true messages."""
    store, outer = _crafted_store(tmp_path)
    rows = reference.read_store(tmp_path)
    sizes = {message.position: message.size for message in store.messages}
    for at in (outer[0], outer[3], outer[-1]):
        path = store.segment(at)
        whole = path.read_bytes()
        others = [row for row in rows if row["commitLogOffset"] != at]
        # Lengths, magic, offset, sysFlag; body; what is behind it.
        tail = sizes[at] - 1
        for inside, bit in (
            (0, 6),
            (1, 1),
            (2, 0),
            (3, 3),
            (4, 1),
            (7, 7),
            (28, 0),
            (35, 2),
            (39, 4),
            (86, 0),
            (87, 5),
            (90, 1),
            (tail, 0),
        ):
            data = bytearray(whole)
            data[at % 4096 + inside] ^= 1 << bit
            path.write_bytes(data)
            for size in (1, 1 << 30):
                assert read(tmp_path, mode="DROPMALFORMED", maxPartitionBytes=size) == others, (inside, bit)
            _assert_error(_fails(tmp_path), path, at % 4096)
        path.write_bytes(whole)


# ---- accelerators that lie


def _noise(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size))


def _some_noise(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(10):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)


def _truncated(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def _missing(path: Path, rng: random.Random) -> None:
    path.unlink()


def _zeros(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _units_changed(change: Callable[[random.Random, list[reference.QueueUnit]], list[reference.QueueUnit]]) -> Any:
    def lie(path: Path, rng: random.Random) -> None:
        data = path.read_bytes()
        units = [reference.decode_queue_unit(data[at : at + 20]) for at in range(0, len(data), 20)]
        used = [unit for unit in units if unit.size > 0]
        lies = change(rng, used) + units[len(used) :]
        path.write_bytes(b"".join(reference.encode_queue_unit(*unit) for unit in lies))

    return lie


def _moved(rng: random.Random, units: list[reference.QueueUnit]) -> list[reference.QueueUnit]:
    return [unit._replace(physical_offset=max(0, unit.physical_offset + rng.randrange(-90, 400))) for unit in units]


def _into_bodies(rng: random.Random, units: list[reference.QueueUnit]) -> list[reference.QueueUnit]:
    return [unit._replace(physical_offset=unit.physical_offset + 88) for unit in units]


def _resized(rng: random.Random, units: list[reference.QueueUnit]) -> list[reference.QueueUnit]:
    return [unit._replace(size=rng.choice((1, 91, unit.size + 1, unit.size * 2, (1 << 31) - 1))) for unit in units]


LYING_QUEUES: dict[str, Any] = {
    "noise": _noise,
    "some noise": _some_noise,
    "truncated": _truncated,
    "missing": _missing,
    "zeros": _zeros,
    "moved": _units_changed(_moved),
    "into bodies": _units_changed(_into_bodies),
    "resized": _units_changed(_resized),
    "reversed": _units_changed(lambda rng, units: units[::-1]),
    "all the same": _units_changed(lambda rng, units: [units[0]] * len(units)),
    "shuffled": _units_changed(lambda rng, units: rng.sample(units, len(units))),
    "far away": _units_changed(lambda rng, units: [unit._replace(physical_offset=1 << 62) for unit in units]),
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lie", LYING_QUEUES)
@pytest.mark.slow
def test_lying_queues(tmp_path: Path, rng: random.Random, lie: str, clean: bool) -> None:
    """A read gets slower, never different."""
    for number in range(3):
        root = tmp_path / str(number)
        store = _crafted_store(root)[0]
        random_stores.append_random(store, rng)
        store.close(clean)
        rows = reference.read_store(root)
        for path in (root / "consumequeue").glob("*/*/*"):
            if rng.random() < 0.8:
                LYING_QUEUES[lie](path, rng)
        for size in (1, 300, 2000, 1 << 30):
            assert read(root, maxPartitionBytes=size) == rows, size
            assert read(root, maxPartitionBytes=size, mode="DROPMALFORMED") == rows, size


@pytest.mark.parametrize("behind", ["a little", "far"])
def test_damage_where_the_queues_are_behind(tmp_path: Path, behind: str) -> None:
    """After a crash the ConsumeQueues may lack the last messages: they are read on behind damage all the same."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 17, queue_file_size=20_000)
    for i in range(600):
        store.append(body=b"body %d" % i)
    store.close()
    (queue,) = (tmp_path / "consumequeue" / "TopicA" / "0").iterdir()
    known = 590 if behind == "a little" else 100
    _overwrite(queue, known * 20, bytes((600 - known) * 20))
    rows = reference.read_store(tmp_path)
    damaged = rows[595 if behind == "a little" else 200]
    segment = store.segment(damaged["commitLogOffset"])
    _overwrite(segment, damaged["commitLogOffset"] - int(segment.name), b"\0\0\0\1")
    rows.remove(damaged)
    assert read(tmp_path, mode="DROPMALFORMED") == rows


def test_queue_directories_of_all_kinds(tmp_path: Path) -> None:
    _builder(tmp_path)
    rows = reference.read_store(tmp_path)
    queues = tmp_path / "consumequeue"
    (queues / "_SUCCESS").write_bytes(b"stray")
    (queues / "T0" / "stray").write_bytes(b"stray")
    (queues / "T0" / "x").mkdir()
    (queues / "T0" / "99999999999999999999").mkdir()
    (queues / "T0" / "5").mkdir()
    (queues / "T0" / "0" / "stray").write_bytes(b"stray")
    (queues / "T0" / "0" / ("9" * 20)).write_bytes(b"x" * 19)
    (queues / "T0" / "0" / ("8" * 20)).mkdir()
    (queues / "Empty").mkdir()
    for size in (1, 300, 1 << 30):
        assert read(tmp_path, maxPartitionBytes=size) == rows
    shutil.rmtree(queues)
    queues.write_bytes(b"a file")
    assert read(tmp_path) == rows


def test_damage_says_so_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = _builder(tmp_path)
    message = store.messages[5]
    _overwrite(store.segment(message.position), message.position % SIZE + 4, b"\0\0\0\0")
    with caplog.at_level(logging.WARNING):
        read(tmp_path, mode="DROPMALFORMED")
    assert f"position {message.position % SIZE} (commitLogOffset {message.position})" in caplog.text
    assert f"{message.size} bytes cannot be read; what comes after is read" in caplog.text
    assert "DROPMALFORMED" not in caplog.text  # that mode is on


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("kind", ["sound", "lost", "a directory"])
def test_a_lost_end_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, abort: bool) -> None:
    """By the checkpoint; in a store without a clean shutdown only where it is more than a copy made meanwhile lacks."""
    store = stores.StoreBuilder(tmp_path, segment_size=16_384)
    for _ in range(60):
        store.append(body=bytes(100))
    newest = store.now
    store.append(body=bytes(15_000), store_timestamp=newest + 100_000)
    store.close(clean=not abort)
    (tmp_path / "commitlog" / f"{2 * 16_384:020d}").unlink(missing_ok=True)  # a spare one
    path = store.segment(store.messages[-1].position)
    if kind != "sound":
        path.unlink()
    if kind == "a directory":
        path.mkdir()
    for timestamp in (newest + 1, store.now):
        (tmp_path / "checkpoint").write_bytes(struct.pack(">qqq", timestamp, timestamp, 0).ljust(4096, b"\0"))
        caplog.clear()
        assert len(reading.read(tmp_path)) == 61 - (kind != "sound")
        told = [text for text in caplog.messages if "checkpoint" in text]
        is_sure = timestamp == store.now or not abort
        assert len(told) == (kind != "sound" and is_sure), told
        assert sum("not a commitlog file" in text for text in caplog.messages) == (kind == "a directory")
