"""A copy of a tiered store, alone and beside its broker's own store: each message once, with its queue offset, and the
groups' places."""

from __future__ import annotations

import itertools
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, tiered
from oracle.aged_stores import BATCHES, make_batches
from oracle.stores import StoreBuilder
from oracle.tiered import TierWriter, local_store
from support.reading import read

from rmqstore_spark import DamagedStoreError, OptionError, RmqStoreError, Store

Facts = tuple[Any, ...]


def facts(rows: list[dict[str, Any]]) -> list[Facts]:
    names = ("topic", "queueId", "queueOffset", "storeTimestamp", "keys", "tags", "body", "bornTimestamp", "msgId")
    return sorted(tuple(row[name] for name in names) for row in rows)


def in_log(root: Path) -> list[dict[str, Any]]:
    """The messages of a store, read by the oracle."""
    rows: list[dict[str, Any]] = reference.read_store(root)
    return rows


def of_tier(tier: Path) -> list[dict[str, Any]]:
    return list(tiered.read_tier(tier))


def check_sound(copy: Path) -> None:
    """Nothing is wrong with a copy, and queues and index agree with its log."""
    assert [row for row in Store(copy).check().to_pylist() if row["severity"] != "info"] == []


def test_a_tier_alone(tmp_path: Path, rng: random.Random) -> None:
    for trial in range(3):
        root, tier, copy = (tmp_path / f"{name}{trial}" for name in ("store", "tier", "copy"))
        local_store(root, rng)
        tiered.bring(tier, root, rng, codas=rng.random() < 0.5)
        copied = Store(tier).copy(copy)
        assert copied.lost.num_rows == 0
        assert facts(in_log(copy)) == facts(of_tier(tier)) == facts(in_log(root))
        assert copied.messages == len(in_log(copy))
        check_sound(copy)
        times = [row["storeTimestamp"] for row in in_log(copy)]
        assert times == sorted(times)


@pytest.mark.parametrize("queues", ["there", "lost"])
def test_beside_its_store(tmp_path: Path, rng: random.Random, queues: str) -> None:
    for trial in range(3):
        root, tier, copy = (tmp_path / f"{name}{trial}" for name in ("store", "tier", "copy"))
        builder = local_store(root, rng)
        everything = in_log(root)
        tiered.bring(tier, root, rng)
        builder.expire(rng.randint(1, 2))
        if queues == "lost":
            builder.drop_queues()
        offsets = {"offsetTable": {"A@g": {"0": 3, "1": 1 << 40, "2": 0}}}
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
        copied = Store(root).copy(copy, tiered=tier)
        assert copied.messages == len(everything)
        assert copied.lost.num_rows == 0
        assert facts(in_log(copy)) == facts(everything)
        check_sound(copy)
        ends = {(q["topic"], q["queueId"]): q["maxOffset"] for q in Store(copy).queues().to_pylist()}
        table = json.loads((copy / "config" / "consumerOffset.json").read_text())["offsetTable"]
        assert table == {"A@g": {"0": 3, "1": ends["A", 1], "2": 0}}
        of_queue: dict[tuple[str, int], list[int]] = {}
        for row in in_log(copy):
            of_queue.setdefault((row["topic"], row["queueId"]), []).append(row["queueOffset"])
        assert all(offsets == sorted(offsets) for offsets in of_queue.values())


def test_an_older_store_than_its_tier(tmp_path: Path, rng: random.Random) -> None:
    builder = local_store(tmp_path / "store", rng)
    everything = in_log(tmp_path / "store")
    tiered.bring(tmp_path / "tier", tmp_path / "store", rng)
    builder.forget_last(40)
    builder.close()
    builder.expire(1)
    Store(tmp_path / "store").copy(tmp_path / "copy", tiered=tmp_path / "tier")
    assert facts(in_log(tmp_path / "copy")) == facts(everything)
    check_sound(tmp_path / "copy")


def test_selected_messages(tmp_path: Path, rng: random.Random) -> None:
    builder = local_store(tmp_path / "store", rng)
    everything = in_log(tmp_path / "store")
    tiered.bring(tmp_path / "tier", tmp_path / "store", rng)
    builder.expire(1)
    for number, source in enumerate((tmp_path / "tier", tmp_path / "store")):
        beside: Any = {"tiered": tmp_path / "tier"} if source.name == "store" else {}
        copy = tmp_path / f"copy{number}"
        Store(source).copy(copy, subscribe="A", **beside)
        assert facts(in_log(copy)) == facts([row for row in everything if row["topic"] == "A"])
        check_sound(copy)
        least = rng.randint(1, 8)
        copied = Store(source).copy(tmp_path / f"late{number}", startingOffsets={"A": {1: least}}, **beside)
        wanted = [r for r in everything if (r["topic"], r["queueId"]) != ("A", 1) or r["queueOffset"] >= least]
        assert facts(in_log(tmp_path / f"late{number}")) == facts(wanted)
        assert copied.messages == len(wanted)


def test_messages_that_a_killed_broker_brought_again(tmp_path: Path, rng: random.Random) -> None:
    """Some of them stand before others with lower queue offsets: the copy has them in order."""
    local_store(tmp_path / "store", rng, 200)
    units = tiered.queue_units(tmp_path / "store")["A", 0][:12]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units, lag=8)
    writer.write_segment(units[4:9], lag=rng.randint(0, 4))
    copied = Store(tmp_path / "tier").copy(tmp_path / "copy")
    assert copied.messages == 12
    assert [row["queueOffset"] for row in in_log(tmp_path / "copy")] == [*range(12)]
    everything = [row for row in in_log(tmp_path / "store") if (row["topic"], row["queueId"]) == ("A", 0)]
    assert facts(in_log(tmp_path / "copy")) == facts(everything[:12])
    check_sound(tmp_path / "copy")


def test_queue_offsets_that_do_not_ascend(tmp_path: Path, rng: random.Random) -> None:
    """A damaged one: what is told is not the cause that it would have in a commitlog."""
    local_store(tmp_path / "store", rng, 200)
    units = tiered.queue_units(tmp_path / "store")["A", 0][:6]
    path = TierWriter(tmp_path / "tier", "A", 0).write_segment(units)
    data = bytearray(path.read_bytes())
    place = sum(map(len, units[:2]))
    data[place + 27] = 99  # the last byte of its queueOffset
    path.write_bytes(data)
    told = rf"{path.name}: position {place + len(units[2])}: .*after 99, found 3: one of these numbers is damaged, or"
    with pytest.raises(DamagedStoreError, match=told):
        Store(tmp_path / "tier").copy(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_many_queues(tmp_path: Path, rng: random.Random) -> None:
    """More than there may be files open."""
    builder = StoreBuilder(tmp_path / "store")
    for number in range(400):
        builder.append("Wide", f"{number}".encode(), queue_id=rng.randrange(150))
    builder.close()
    tiered.bring(tmp_path / "tier", tmp_path / "store", rng)
    Store(tmp_path / "tier").copy(tmp_path / "copy")
    assert facts(in_log(tmp_path / "copy")) == facts(in_log(tmp_path / "store"))


def test_what_is_damaged_is_refused(tmp_path: Path, rng: random.Random) -> None:
    local_store(tmp_path / "store", rng)
    files = tiered.bring(tmp_path / "tier", tmp_path / "store", rng)
    path = files["A", 0][0]
    sound = path.read_bytes()
    for at in rng.sample(range(len(sound)), 10):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << rng.randrange(8)]) + sound[at + 1 :])
        copy = tmp_path / f"copy{at}"
        try:
            copied = Store(tmp_path / "tier").copy(copy)
        except RmqStoreError:
            assert not copy.exists()
            continue
        # No checksum covers such a field as bornTimestamp: the copy has what lies there.
        is_same = facts(in_log(copy)) == facts(of_tier(tmp_path / "tier")) and not copied.lost.num_rows
        assert is_same or Store(tmp_path / "tier").check().num_rows, at
    path.write_bytes(sound)
    max(files.values(), key=len)[1].unlink()
    with pytest.raises(DamagedStoreError, match="a hole in the log of this queue"):
        Store(tmp_path / "tier").copy(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_refusals(tmp_path: Path, rng: random.Random) -> None:
    local_store(tmp_path / "store", rng, 40)
    tiered.bring(tmp_path / "tier", tmp_path / "store", rng)
    with pytest.raises(OptionError, match="copied, and not salvaged"):
        Store(tmp_path / "tier").salvage(tmp_path / "copy")
    with pytest.raises(OptionError, match="expected a directory outside"):
        Store(tmp_path / "tier").copy(tmp_path / "tier" / "copy")
    with pytest.raises(OptionError, match="cannot be given together"):
        Store(tmp_path / "store").copy(tmp_path / "copy", tiered=tmp_path / "tier", deduplicate=True)
    TierWriter(tmp_path / "tier", "A", 0, broker="other")
    with pytest.raises(OptionError, match="several brokers"):
        Store(tmp_path / "tier").copy(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def _batches(root: Path, rng: random.Random, segment_size: int = 64 * 1024) -> StoreBuilder:
    """A store with a BatchCQ topic, which begins with single messages, and a simple one."""
    store = StoreBuilder(root, segment_size=segment_size)
    for number in range(60):
        topic, queue_id = rng.choice(("Plain", BATCHES, BATCHES)), rng.randrange(2)
        base = store.next_offset(topic, queue_id)
        if topic == "Plain" or number < 5 or rng.random() < 0.3:
            store.append(topic, f"{number}".encode() * 40, queue_id=queue_id, keys=f"k{number}", msg_id=f"ID{number}")
            continue
        inner = [
            reference.Inner(b"inner" * 9, f"UNIQ_KEY\x01I{number}-{at}\x02KEYS\x01k{number}-{at}".encode())
            for at in range(rng.choice((1, 2, 5)))
        ]
        properties = f"INNER_BASE\x01{base}\x02INNER_NUM\x01{len(inner)}\x02".encode()
        body = reference.encode_batch(inner)
        flags = reference.BATCH
        store.append(BATCHES, body, queue_id=queue_id, properties=properties, sys_flag=flags, messages=len(inner))
    store.close()
    return store


def _brought(tier: Path, root: Path) -> None:
    """All of a store's messages in a tier, a batch once for each of its messages."""
    for queue, units in tiered.queue_units(root).items():
        copies = [unit for unit in units for _ in reference.rows_of_unit(unit, struct.unpack_from(">q", unit, 28)[0])]
        writer = TierWriter(tier, *queue)
        starts = itertools.accumulate(map(len, copies), initial=0)
        claims = [struct.pack(">qiq", start, len(copy), 0) for start, copy in zip(starts, copies, strict=False)]
        (writer.queue / tiered.name_of(0)).write_bytes(b"".join(claims))
        writer.write_segment(copies, lag=len(copies))


@pytest.mark.slow
def test_batches(tmp_path: Path, rng: random.Random) -> None:
    """Of a tier alone a topic with a batch becomes a BatchCQ topic, and beside a store it stays one."""
    columns = ["topic", "queueId", "queueOffset", "batchIndex", "msgId", "keys", "body", "properties"]
    for number in range(3):
        root, tier, copy = (tmp_path / f"{name}{number}" for name in ("store", "tier", "copy"))
        store = _batches(root, rng, 4096)
        _brought(tier, root)
        make_batches(store)
        expected = sorted(map(repr, read(root, columns=columns)))
        assert Store(tier).copy(copy).messages == len(expected)
        assert sorted(map(repr, read(copy, columns=columns))) == expected
        check_sound(copy)
        store.expire(2)
        Store(root).copy(tmp_path / f"both{number}", tiered=tier)
        for made in (copy, tmp_path / f"both{number}"):
            assert sorted(map(repr, read(made, columns=columns))) == expected
            topics = json.loads((made / "config" / "topics.json").read_text())["topicConfigTable"]
            assert topics[BATCHES]["attributes"] == {"queue.type": "BatchCQ"}
            assert not topics["Plain"].get("attributes")
            assert {path.name for path in (made / "batchconsumequeue").iterdir()} == {BATCHES}
            assert {path.name for path in (made / "consumequeue").iterdir()} == {"Plain"}
            ends = [(q["topic"], q["queueId"], q["maxOffset"]) for q in Store(made).queues().to_pylist()]
            assert ends == [(topic, queue_id, store.next_offset(topic, queue_id)) for topic, queue_id, _ in ends]
            check_sound(made)
    Store(tier).copy(tmp_path / "plain", subscribe="Plain")
    assert not (tmp_path / "plain" / "batchconsumequeue").exists()


def test_batches_of_a_topic_that_the_store_has_in_another_form(tmp_path: Path, rng: random.Random) -> None:
    store = _batches(tmp_path / "store", rng)
    _brought(tmp_path / "tier", tmp_path / "store")
    other = StoreBuilder(tmp_path / "other")
    other.append("Plain", b"x", queue_offset=store.next_offset("Plain", 0))
    other.append(BATCHES, b"x", queue_offset=store.next_offset(BATCHES, 0))
    other.close()
    with pytest.raises(OptionError, match=r"simple queues: expected BatchCQs as in .* the tiered store; leave"):
        Store(tmp_path / "other").copy(tmp_path / "copy", tiered=tmp_path / "tier")
    assert not (tmp_path / "copy").exists()
