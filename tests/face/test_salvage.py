"""A salvage of a store with one odd field that no checksum covers: it goes on, with that message or without it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from oracle import reference, stores

import rmqstore_spark
from rmqstore_spark.errors import NotAStoreError

# Where fields are that nothing protects: queueId, flag, queueOffset; from sysFlag to preparedTransactionOffset.
FIELDS = (*range(8, 28), *range(36, 84))
ALWAYS = ((27, 0), (27, 1), (26, 4), (22, 0), (20, 7), (12, 7), (39, 7))


def _store(root: Path, with_queues: bool) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, segment_size=4096)
    for number in range(12):
        store.append(f"T{number % 2}", b"body %d" % number, number % 3 // 2, tags="TagA", msg_id=f"ID{number}")
    store.close()
    if not with_queues:
        store.drop_queues()
    return store


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("which", [0, 4, 10, 11])
def test_one_flipped_bit(tmp_path: Path, which: int, with_queues: bool, rng: random.Random) -> None:
    """The first message of a queue, one in the middle, and the last ones."""
    store = _store(tmp_path / "store", with_queues)
    rows = {row["msgId"]: row for row in reference.read_store(tmp_path / "store")}
    message = store.messages[which]
    path = store.segment(0)
    data = path.read_bytes()
    at_random = [(inside, bit) for inside in FIELDS for bit in range(8)]
    for inside, bit in (*ALWAYS, *rng.sample(at_random, 2)):
        flipped = bytearray(data)
        flipped[message.position + inside] ^= 1 << bit
        path.write_bytes(flipped)
        result = rmqstore_spark.Store(str(tmp_path / "store")).salvage(str(tmp_path / "new"))
        found = {row["msgId"]: row for row in reference.read_store(tmp_path / "new")}
        assert result.messages == len(found)
        own = found.pop(f"ID{which}", None)
        assert found.keys() == rows.keys() - {f"ID{which}"}, (inside, bit)
        for name, row in found.items():
            assert [row[each] for each in ("topic", "queueId", "queueOffset", "body")] == [
                rows[name][each] for each in ("topic", "queueId", "queueOffset", "body")
            ]
        is_torn = which == 11 and not with_queues and (inside, bit) in ((39, 4), (39, 5))  # the log just seems to end
        assert own is not None or result.lost.num_rows or is_torn, (inside, bit)
        shutil.rmtree(tmp_path / "new")


def test_a_batch_topic_is_refused(tmp_path: Path) -> None:
    """Where a topic has queues of batches, sysFlag 0x80 is no flipped bit."""
    store = _store(tmp_path / "store", True)
    store.append("T0", b"batch", sys_flag=0x80)
    store.close()
    (tmp_path / "store" / "batchconsumequeue" / "T0" / "0").mkdir(parents=True)
    with pytest.raises(NotAStoreError, match="BatchCQ topic"):
        rmqstore_spark.Store(str(tmp_path / "store")).salvage(str(tmp_path / "new"))


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_one_offset_among_many_messages(tmp_path: Path, where: str) -> None:
    """More than are looked at together: the odd one is the last of these, or the first of the next."""
    store = stores.StoreBuilder(tmp_path / "store", segment_size=1 << 23)
    for number in range(16_500):
        store.append("T", queue_id=number % 2)
    store.close()
    store.drop_queues()
    which = {"first": 1, "middle": 16_383, "last": 16_499}[where]
    path = store.segment(0)
    data = bytearray(path.read_bytes())
    data[store.messages[which].position + 25] ^= 1  # 65,536 more
    path.write_bytes(data)
    result = rmqstore_spark.Store(str(tmp_path / "store")).salvage(str(tmp_path / "new"))
    assert result.messages == 16_499
    assert store.messages[which].position in result.lost["commitLogOffset"].to_pylist()
