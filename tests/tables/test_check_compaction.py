"""check looks at compaction logs and at the units that lead a consumer along them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracle import compaction
from oracle.compaction import LogWriter, Value
from oracle.stores import StoreBuilder

from rmqstore_spark import Store

FILE_SIZE = 2048
UNIT_SIZE = 46


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a compacted topic: a file that a pass has written, a gap, two full files, one that goes on."""
    builder = StoreBuilder(tmp_path / "store", segment_size=1 << 16)
    values = [compaction.append(builder, "A", 0, f"key{n % 7}", b"x" * (n % 50 + 1)) for n in range(60)]
    builder.close()
    compaction.configure(builder.root, ["A"])
    writer = LogWriter(builder.root, "A", 0, FILE_SIZE)
    start = writer.write_all(compaction.compact(values[:30]), 0)
    writer.write_all(values[30:], start + 3 * FILE_SIZE)
    return builder.root


def found(root: Path) -> list[dict[str, Any]]:
    return [row for row in Store(root).check().to_pylist() if row["severity"] != "info"]


def log_files(root: Path) -> list[Path]:
    return sorted((root / "compaction" / "compactionLog" / "A" / "0").iterdir())


def queue_files(root: Path) -> list[Path]:
    return sorted((root / "compaction" / "compactionCq" / "A" / "0").iterdir())


def test_gaps_are_no_fault(root: Path) -> None:
    assert found(root) == []
    starts = [int(path.name) for path in log_files(root)]
    assert starts[1] - starts[0] > FILE_SIZE


def test_every_flipped_bit_of_a_unit_is_told(root: Path, rng: random.Random) -> None:
    path = rng.choice(queue_files(root))
    sound = path.read_bytes()
    used = len(sound[: sound.rindex(b"\xff") + 1]) // UNIT_SIZE * UNIT_SIZE + UNIT_SIZE
    for at in rng.sample(range(used), 40):
        if at % UNIT_SIZE >= UNIT_SIZE - 8:  # nobody reads these
            continue
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << rng.randrange(8)]) + sound[at + 1 :])
        rows = found(root)
        assert {row["problem"] for row in rows} == {"wrongCompactionQueue"}, at
        assert {row["file"] for row in rows} == {str(path)}
        assert at // UNIT_SIZE * UNIT_SIZE in {row["filePosition"] for row in rows}
    path.write_bytes(sound)
    assert found(root) == []


def test_missing_queue_file(root: Path) -> None:
    path = queue_files(root)[1]
    path.unlink()
    (row,) = found(root)
    messages = sum(Path(m["file"]).name == path.name for m in compaction.read_log(root, "A", 0))
    assert (row["problem"], row["file"], row["found"], row["count"]) == (
        "wrongCompactionQueue",
        str(path),
        "no file",
        messages,
    )


def test_queue_that_ends_early(root: Path) -> None:
    path = queue_files(root)[-1]
    data = path.read_bytes()
    used = data.rindex(b"\xff\xff\xff\xff") // UNIT_SIZE * UNIT_SIZE
    path.write_bytes(data[:used].ljust(len(data), b"\0"))
    (row,) = found(root)
    assert (row["problem"], row["found"], row["count"]) == ("wrongCompactionQueue", "none", 1)
    assert row["queueOffset"] == 59
    (root / "abort").touch()  # of a broker that was killed: it writes the unit after the message
    assert "wrongCompactionQueue" not in {row["problem"] for row in found(root)}


def test_damaged_message(root: Path) -> None:
    path = log_files(root)[1]
    data = bytearray(path.read_bytes())
    (first, second, *_) = [m for m in compaction.read_log(root, "A", 0) if m["file"] == str(path)]
    data[first["storeSize"] - 1 - len(b"KEYS\x01key2\x02\x00\x0d")] ^= 1  # in the body or the topic
    data[second["storeSize"] + 20] ^= 0  # nothing
    data[88] ^= 4  # in the body's first byte
    path.write_bytes(data)
    rows = found(root)
    assert {row["problem"] for row in rows} == {"damagedCompactionLog"}
    assert [(row["file"], row["topic"], row["queueId"], row["commitLogOffset"]) for row in rows] == [
        (str(path), "A", 0, None)
    ]
    assert rows[0]["filePosition"] == 0


def test_message_of_another_queue(root: Path) -> None:
    writer = LogWriter(root, "A", 0, FILE_SIZE)
    start = int(log_files(root)[-1].name) + FILE_SIZE
    writer.begin_file(start)
    writer.write(Value(0, 60, "k", b"b", 1_700_000_000_100), topic="B")
    writer.write(Value(3, 61, "k", b"b", 1_700_000_000_101))
    writer._flush()
    (row,) = found(root)
    assert (row["problem"], row["filePosition"], row["count"]) == ("foreignInQueueLog", 0, 2)
    assert row["found"] == "one of topic 'B', queue 0"


def test_queue_offsets_that_go_back(root: Path) -> None:
    """A file of an older state."""
    last = log_files(root)[-1]
    start = int(last.name) + FILE_SIZE
    writer = LogWriter(root, "A", 0, FILE_SIZE)
    writer.write_all([Value(0, 12, "k", b"b", 1_700_000_000_100)], start)
    (row,) = found(root)
    assert (row["problem"], row["queueOffset"], row["expected"]) == ("unorderedQueueLog", 12, "a queueOffset after 59")


def test_logs_that_overlap(root: Path) -> None:
    last = log_files(root)[-1]
    shutil.copy(last, last.with_name(f"{int(last.name) + 100:020d}"))
    with pytest.raises(Exception, match="not of one log"):
        Store(root).messages(compacted=True)
    (row,) = [row for row in found(root) if row["problem"] == "damagedCompactionLog"]
    assert "not of one log" in row["found"]
