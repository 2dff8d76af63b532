"""check of copies that overtook the broker which wrote the store: what they lack is told, in one row for each place."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from oracle.overtaken import PAGE, Copier
from oracle.stores import StoreBuilder, Stored
from support.reading import read
from support.tables import rows_of

from rmqstore_spark.tables.check.table import CHECK

COPIES = 40  # of each store


def grown(root: Path, rng: random.Random) -> StoreBuilder:
    """A store of some log files; segments, queue files and messages are larger and smaller than pages."""
    builder = StoreBuilder(root, rng.choice((16_384, 65_536)), rng.choice((200, 8000, 20_480)))
    sizes = rng.choice(((10, 20, 100), (10, 200, 200, 2000, 6000)))
    now = 1_700_000_000_000
    for _ in range(rng.choice((200, 400, 800))):
        now += rng.choice((0, 1, 1, 50))
        body = rng.choice((rng.randbytes, bytes))(rng.choice(sizes))
        builder.append(rng.choice("AB"), body, rng.randrange(2), rng.choice((None, "t")), store_timestamp=now)
    builder.close(clean=False)
    return builder


def logs(builder: StoreBuilder, copy: Path) -> Iterator[dict[int, bytes]]:
    """The log files of a store and of its copy, by where they start."""
    for root in (builder.root, copy):
        yield {int(path.name): path.read_bytes() for path in reference.segment_files(root)}


def is_overtaken(builder: StoreBuilder, copy: Path) -> bool:
    """Has a copy anything of the log behind a byte that it lacks?"""
    final, found = logs(builder, copy)
    pairs = (
        (start + at, pair) for start in found for at, pair in enumerate(zip(final[start], found[start], strict=True))
    )
    lacking = [position for position, (one, other) in pairs if one != other]
    return bool(lacking) and min(lacking) < max(start + len(data.rstrip(b"\0")) for start, data in found.items())


def split(builder: StoreBuilder, copy: Path) -> tuple[list[Stored], list[Stored], int]:
    """Which messages a copy has whole, which it lacks before the last of these, and where that one ends."""
    final, found = logs(builder, copy)

    def is_whole(message: Stored) -> bool:
        start = message.position - message.position % builder.segment_size
        there = slice(message.position - start, message.end - start)
        return start in found and found[start][there] == final[start][there]

    whole = [message for message in builder.messages if is_whole(message)]
    end = max((message.end for message in whole), default=0)
    return whole, [message for message in builder.messages if message.end < end and not is_whole(message)], end


def faults(copy: Path) -> list[dict[str, Any]]:
    rows = rows_of(CHECK, copy)
    return [row for row in rows if row["severity"] != "info" and row["problem"] != "abort"]


def holds(row: dict[str, Any], message: Stored) -> bool:
    start = row["commitLogOffset"]
    return bool(start <= message.position and message.end <= start + row["count"])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_a_copy_that_overtook_the_broker(number: int, tmp_path: Path, rng: random.Random) -> None:
    builder = grown(tmp_path / "store", rng)
    for at in range(COPIES):
        begun, lag = rng.randrange(min(20_000, builder.end), builder.end + 1), rng.choice((0, 0, 500, 5000))
        copy = Copier(builder, rng, begun, lag).copy(tmp_path / f"copy{at}")
        whole, lost, end = split(builder, copy)
        rows = faults(copy)
        found = [row for row in rows if row["problem"] != "lostMessages"]
        kinds = {row["problem"] for row in found}
        assert {row["commitLogOffset"] for row in rows if row not in found} <= {message.position for message in lost}
        assert kinds <= {"unwrittenPages", "unwrittenEnd"}, found
        assert all(any(holds(row, message) for row in found) for message in lost)
        assert not any(holds(row, message) for row in found for message in whole)
        assert all(row["commitLogOffset"] >= end for row in found if row["problem"] == "unwrittenEnd")
        assert not lost or "unwrittenPages" in kinds
        assert "unwrittenPages" not in kinds or is_overtaken(builder, copy)
        assert [row["commitLogOffset"] for row in read(copy, mode="DROPMALFORMED")] == [m.position for m in whole]
        (copy / "abort").unlink()  # then it is what no broker leaves
        assert {row["problem"] for row in faults(copy) if row["area"] == "log"} <= {"damagedUnit"}
        shutil.rmtree(copy)


def one_page(root: Path, hurt: int) -> tuple[StoreBuilder, Path]:
    """A store of messages of 6,000 bytes, of which a broker wrote each, and its log file; which one is of interest."""
    builder = StoreBuilder(root, 1 << 16)
    for _ in range(hurt + 4):
        builder.append("A", bytes(range(1, 201)) * 30)
    builder.close(clean=False)
    (path,) = [path for path in reference.segment_files(root) if path.name == f"{0:020d}"]
    return builder, path


@pytest.mark.parametrize("hurt", [0, 1, 2, 3])
@pytest.mark.parametrize("length", [1, 40, 2000])
def test_other_damage_is_none_that_a_copier_makes(length: int, hurt: int, tmp_path: Path, rng: random.Random) -> None:
    """Zeros that do not reach to a page's beginning, and anything else at all."""
    builder, path = one_page(tmp_path, hurt)
    message, data = builder.messages[hurt], bytearray(path.read_bytes())
    inside = [
        at for at in range(message.position + 150, message.end - 150 - length) if at // PAGE == (at + length) // PAGE
    ]
    at = rng.choice(inside)
    data[at : at + length] = (
        bytes(length) if rng.random() < 0.5 else bytes(255 - each for each in data[at : at + length])
    )
    path.write_bytes(data)
    row, lost = faults(tmp_path)
    assert (row["problem"], row["severity"], row["commitLogOffset"]) == ("damagedUnit", "error", message.position)
    assert (lost["problem"], lost["queueOffset"], lost["count"]) == ("lostMessages", hurt, 1)


def test_a_page_of_zeros_is_no_copiers_while_a_broker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder, path = one_page(tmp_path, 2)
    page = -(-builder.messages[2].position // PAGE) * PAGE
    data = path.read_bytes()
    path.write_bytes(data[:page] + bytes(PAGE) + data[page + PAGE :])
    row, _ = faults(tmp_path)
    assert (row["problem"], row["severity"]) == ("unwrittenPages", "error")
    monkeypatch.setattr("rmqstore_spark.store.io.files.Files.is_locked", lambda self, path: True)
    assert [row["problem"] for row in faults(tmp_path)] == ["damagedUnit", "lostMessages"]


@pytest.mark.parametrize("files_behind", range(5))
def test_a_hole_in_a_queue_that_a_broker_makes_anew(
    files_behind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in the last three files, as a broker that starts ends the queue there; one that runs does not."""
    builder = StoreBuilder(tmp_path, 1 << 16)
    for _ in range(50):
        builder.append("A", bytes(50))
    builder.close(clean=False)
    path = builder.queue_directory("A", 0) / f"{200 * (4 - files_behind):020d}"
    data = path.read_bytes()
    path.write_bytes(data[:60] + bytes(40) + data[100:])
    found = [(row["problem"], row["queueOffset"], row["count"]) for row in faults(tmp_path)]
    first = 10 * (4 - files_behind) + 3
    missing = [("missingQueueUnit", first, 2)]
    assert found == ([] if files_behind < 3 else missing)
    (late,) = [row["count"] for row in rows_of(CHECK, tmp_path) if row["problem"] == "notDispatched"] or [0]
    assert late == (2 if files_behind < 3 else 0)
    monkeypatch.setattr("rmqstore_spark.store.io.files.Files.is_locked", lambda self, path: True)
    assert [(row["problem"], row["queueOffset"], row["count"]) for row in faults(tmp_path)] == missing
