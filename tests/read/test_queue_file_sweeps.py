"""Files of light queues (LMQ) and of those of batches (BatchCQ), cut and with bits flipped: rows are those of the log,
whatever a file says, and `check` tells of it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle import light, reference
from oracle.stores import StoreBuilder
from support import reading

import rmqstore_spark

ALL_BITS = bool(os.environ.get("RMQ_ALL_BITS"))  # every bit, not one of some bytes
STEP = 1 if ALL_BITS else 9
COLUMNS = ["topic", "queueOffset", "body"]


def light_queue(root: Path) -> tuple[Path, str, int]:
    """A light queue's file, its name, and how many bytes are in use."""
    store = StoreBuilder(root, segment_size=4096, queue_file_size=200)
    for number in range(5):
        properties = {light.DISPATCH: "%LMQ%a", light.OFFSETS: str(number)}
        store.append("A", f"body-{number}".encode(), properties=properties)
    store.close()
    light.put_queues(store, reference.read_store(root))
    return store.queue_directory("%LMQ%a", 0) / f"{0:020d}", "%LMQ%a", 5 * 20


def queue_of_batches(root: Path) -> tuple[Path, str, int]:
    """The same of a topic with batches, whose queue `rebuild` makes."""
    store = StoreBuilder(root, segment_size=4096, queue_file_size=200)
    for number in range(3):
        inner = [reference.Inner(b"%d" % n, b"UNIQ_KEY\x01%d\x02" % n) for n in (2 * number, 2 * number + 1)]
        store.append(
            "B",
            reference.encode_batch(inner),
            sys_flag=reference.BATCH,
            messages=2,
            properties=b"INNER_BASE\x01%d\x02INNER_NUM\x012\x02" % (2 * number),
        )
    store.close()
    topic = {
        "topicName": "B",
        "attributes": {"queue.type": "BatchCQ"},
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
    }
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"B": topic}}))
    rmqstore_spark.rebuild(root)
    (path,) = (root / "batchconsumequeue" / "B" / "0").iterdir()
    return path, "B", 3 * 46


@pytest.mark.parametrize("make", [light_queue, queue_of_batches])
def test_rows_are_those_of_the_log(
    tmp_path: Path, rng: random.Random, make: Callable[[Path], tuple[Path, str, int]]
) -> None:
    path, name, used = make(tmp_path)
    size = os.stat(path).st_size
    head = path.read_bytes()[: used + 46]
    store = rmqstore_spark.Store(tmp_path)

    def rows() -> list[reading.Row]:
        return reading.read(tmp_path, columns=COLUMNS, subscribe=name, prices=reading.FREE)

    def told() -> bool:
        return any(row["severity"] != "info" for row in store.check().to_pylist())

    def ends() -> list[tuple[int, int]]:
        return [(row["maxOffset"], row["messages"]) for row in store.queues(subscribe=name).to_pylist()]

    expected, right_ends = rows(), ends()
    assert len(expected) in (5, 6)
    assert not told()
    # Nobody looks at the last two fields of a unit of batches, no broker either. A tagsCode of a light queue with its
    # highest bit is an address in consumequeue_ext/, where nothing is: any tag passes.
    is_batch = name == "B"
    unlooked = set(range(38, 46)) if is_batch else set()
    seen, unit = 0, 46 if is_batch else 20
    for at in range(rng.randrange(STEP), used, STEP):
        flips = [1 << bit for bit in (range(8) if ALL_BITS else [rng.randrange(8)])]
        for changed in (
            *(head[:at] + bytes([head[at] ^ flip]) + head[at + 1 :] for flip in flips),
            head[:at].ljust(len(head), b"\0"),
        ):
            with path.open("r+b") as file:
                file.write(changed)
            assert rows() == expected, at
            differ = [byte for byte in range(used) if changed[byte] != head[byte]]
            is_address = not is_batch and [(at % unit, changed[at] ^ head[at])] == [(12, 0x80)]
            wrong = set() if is_address else {byte % unit for byte in differ}
            seen += (found := told())
            assert found or wrong <= unlooked, at
            count = int.from_bytes(changed[at - at % unit + 36 :][:2], signed=True)
            if not found or (is_batch and at % unit in (36, 37) and changed[at + 1 :] == head[at + 1 :] and count > 0):
                assert ends() == right_ends, at
    assert seen > used // STEP // 2
    assert size == os.stat(path).st_size
