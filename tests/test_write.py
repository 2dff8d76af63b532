"""Stores that we write, held against the plain-Python reference: every byte that follows from the messages."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import golden
import pytest
import reading
import reference
import stores
import writing
from writing import Row, assert_whole, write

from rmqstore_spark.errors import OptionError
from rmqstore_spark.store.sizes import Sizes
from rmqstore_spark.store.write import indexfile, topics

# What a copy keeps of a message. Its places are new, and a broker's own checksum is gone.
KEPT = ("topic", "queueId", "tags", "keys", "msgId", "body", "flag", "bornTimestamp", "bornHost", "storeTimestamp")
KEPT += ("storeHost", "reconsumeTimes", "preparedTransactionOffset")
COMPRESSION = 0x701


def kept(rows: list[Row]) -> list[Row]:
    copies = []
    for row in rows:
        properties = {name: value for name, value in row["properties"].items() if name != "__CRC32#"}
        copies.append({**{name: row[name] for name in KEPT}, "properties": properties, "sysFlag": row["sysFlag"]})
    return copies


def plain(rows: list[Row]) -> list[Row]:
    """As rows are once their bodies are not compressed any more."""
    return [{**row, "sysFlag": row["sysFlag"] & ~COMPRESSION} for row in rows]


def some_rows(rng: random.Random, count: int, first: int = 0) -> list[Row]:
    return [
        {
            "topic": rng.choice(("TopicA", "Topic_B", "%RETRY%group")),
            "queueId": rng.randrange(3),
            "tags": rng.choice((None, *stores.TAGS)),
            "keys": rng.choice((None, "", " ".join(rng.choices(stores.WORDS[:8], k=3)))),
            "msgId": rng.choice((None, f"id{first + i}")),
            "body": rng.randbytes(rng.choice((0, 1, 100, 1000))),
            "properties": {f"p{j}": rng.choice(stores.WORDS[:6]) for j in range(rng.randrange(4))},
            "sysFlag": rng.choice((0, 0, 0, reference.PREPARED, reference.COMMIT, reference.ROLLBACK)),
            "storeTimestamp": (stores.FIRST_TIMESTAMP + (first + i) * 700) * 1000,
            "bornHost": rng.choice((None, "10.1.2.3:99", "[fd00::7]:1")),
            "storeHost": rng.choice((None, "10.1.2.4:10911", "[fd00::8]:10911")),
        }
        for i in range(count)
    ]


def split(rows: list[Row], rng: random.Random, pieces: int) -> list[list[Row]]:
    cuts = sorted(rng.randrange(len(rows) + 1) for _ in range(pieces - 1))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def random_sizes(rng: random.Random) -> Sizes:
    return Sizes(
        segment=rng.choice((2048, 4096, 10_000, 65536)),
        queue_file=rng.choice((20, 40, 200, 6000)),
        slots=rng.choice((1, 3, 20, 500)),
        items=rng.choice((2, 3, 17, 1000)),
    )


# ---- what is written


def test_sizes_of_index_files_are_read_off_them(tmp_path: Path, rng: random.Random) -> None:
    slots, items = rng.randrange(50, 500), rng.randrange(100, 2000)
    write(tmp_path, some_rows(rng, 60), sizes=Sizes(1 << 20, 200, slots, items))
    assert indexfile.geometry(str(tmp_path / "index"), None, None) == (slots, items)
    with pytest.raises(OptionError, match=f"expected {slots}, as this store has it, found 7; leave it away"):
        write(tmp_path, some_rows(rng, 1), sizes=Sizes(slots=7))


@pytest.mark.parametrize("example", range(15))
def test_random_rows_in_many_steps(tmp_path: Path, rng: random.Random, example: int) -> None:
    """Random sizes of files; appended in steps, the same bytes come out as from one write."""
    sizes, rows = random_sizes(rng), some_rows(rng, rng.randrange(1, 150))
    once, steps = tmp_path / "once", tmp_path / "steps"
    write(once, *split(rows, rng, 3), sizes=sizes)
    found = assert_whole(once, sizes)
    assert found == reading.read(once)
    expected = [{name: row[name] for name in ("topic", "queueId", "tags", "msgId", "body")} for row in rows]
    assert [{name: row[name] for name in expected[0]} for row in found] == expected

    for piece in split(rows, rng, rng.randrange(1, 6)):
        # Those of an index file with a handful of entries may be read off it in more than one way.
        given = rng.choice((sizes, Sizes(slots=sizes.slots, items=sizes.items)))
        given = given if any(steps.glob("consumequeue/*/*/*")) else sizes
        write(steps, *split(piece, rng, 2), sizes=given)
    assert_whole(steps, sizes)
    for part in ("commitlog", "consumequeue"):
        assert writing.files(steps / part, "**/*") == writing.files(once / part, "**/*")


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_copy_of_a_golden_store(tmp_path: Path, version: str) -> None:
    source = golden.unpack(version, tmp_path / "source")
    rows = [row for row in reading.read(source) if not row["sysFlag"] & 0x80]
    sizes = Sizes(1 << 22, 6000, 500, 2000)
    write(tmp_path / "copy", rows[:100], rows[100:], sizes=sizes, autoMessageVersionOnTopicLen="true")
    copy = assert_whole(tmp_path / "copy", sizes)
    assert kept(copy) == plain(kept(rows))
    queues: dict[tuple[str, int], int] = defaultdict(int)
    for row in copy:
        if row["sysFlag"] & reference.TRANSACTION_BITS in (0, reference.COMMIT):
            queue = row["topic"], row["queueId"]
            assert row["queueOffset"] == queues[queue]
            queues[queue] += 1


def test_copy_of_bodies_as_they_are_stored(tmp_path: Path, rng: random.Random) -> None:
    stores.random_store(tmp_path / "source", rng, unusual_times=False)
    as_stored = reading.read(tmp_path / "source", decompress=False)
    options = {"decompress": "false", "autoMessageVersionOnTopicLen": "true"}
    write(tmp_path / "copy", as_stored, **options)
    copy = reading.read(tmp_path / "copy", decompress=False)
    assert kept(copy) == kept(as_stored)
    assert reading.read(tmp_path / "copy") == assert_whole(tmp_path / "copy")


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_append_to_a_golden_store(tmp_path: Path, rng: random.Random, version: str) -> None:
    """Half-filled segments, queues and index files go on; what was there stays as it was."""
    root = golden.unpack(version, tmp_path / "store")
    before = reference.read_store(root)
    queues = dict(golden.load_truth(version).bounds)
    index = sorted((root / "index").iterdir())
    topics_before = topics.load(str(root))["topicConfigTable"]
    write(root, some_rows(rng, 40), sizes=Sizes())
    after = reference.read_store(root)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 40
    assert reading.read(root) == after
    # Dense queues, and every unit in them.
    offsets = {queue: end for queue, (_, end) in queues.items()}
    units = {(t, q, offset): unit for t, q, offset, unit in reference.read_queues(root)}
    for row in after[len(before) :]:
        if row["sysFlag"] & reference.TRANSACTION_BITS in (0, reference.COMMIT):
            queue = row["topic"], row["queueId"]
            assert row["queueOffset"] == offsets.get(queue, 0)
            offsets[queue] = row["queueOffset"] + 1
            unit = units.pop((*queue, row["queueOffset"]))
            assert (unit.physical_offset, unit.size) == (row["commitLogOffset"], row["storeSize"])
    # The index holds what it would hold had the broker gone on.
    slots, items = 500, 2000
    entries: list[tuple[int, int, int]] = []
    for at, data in reference.read_units(root):
        unit_ = reference.parse_unit(data, at)
        entries += [(reference.index_hash(key), at, unit_.store_timestamp) for key in reference.index_keys(unit_)]
    files = sorted((root / "index").iterdir())
    assert files[: len(index)] == index
    expected = reference.build_index(entries, slots, items)
    if [file.encode()[40:] for file in reference.build_index(entries[: -_new_entries(root, before)], slots, items)] == [
        path.read_bytes()[40:] for path in index
    ]:
        assert [path.read_bytes()[40:] for path in files] == [file.encode()[40:] for file in expected]
    table = topics.load(str(root))["topicConfigTable"]
    for name, config in topics_before.items():
        raised = max(config["readQueueNums"], table[name]["readQueueNums"])
        assert table[name] == {**config, "readQueueNums": raised}


def _new_entries(root: Path, before: list[Row]) -> int:
    units = [reference.parse_unit(data, at) for at, data in reference.read_units(root)]
    return sum(len(reference.index_keys(unit)) for unit in units[len(before) :])
