"""A copy without some messages: nobody finds anything of them there, in rows or in bytes; the rest is where it was."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from support import writing
from support.command import run
from support.killing import SIZES

import rmqstore_spark
from rmqstore_spark import OptionError, Store
from rmqstore_spark.store.format.sizes import Sizes

FIRST = 1_700_000_000_000
Test = Callable[[dict[str, Any]], bool]


def kept(source: Path, is_gone: Test) -> list[dict[str, Any]]:
    """What is to be in the copy, by the plain reference, with places in queues."""
    return [places(row) for row in reference.read_store(source) if not is_gone(row)]


def places(row: dict[str, Any]) -> dict[str, Any]:
    new = ("commitLogOffset", "offsetMsgId", "preparedTransactionOffset")
    return {name: value for name, value in row.items() if name not in new}


def found(target: Path) -> list[dict[str, Any]]:
    return [places(row) for row in reference.read_store(target)]


def bytes_with(root: Path, sought: bytes) -> list[str]:
    """The files of a store with these bytes."""
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and sought in path.read_bytes()
    )


@pytest.fixture
def source(home: Path, rng: random.Random) -> Path:
    """300 messages in three topics; every tenth is of a person, and so are the last ones of all queues but one."""
    rows = []
    for n in range(300):
        topic, queue_id = rng.choice(["Orders", "Mails", "Logs"]), rng.randrange(2)
        last = n >= 290 and (topic, queue_id) != ("Logs", 1)
        is_hers = n % 10 == 3 or last
        rows.append(
            {
                "topic": topic,
                "queueId": queue_id,
                "keys": f"order-{n} customer-4711" if is_hers else f"order-{n} customer-47111",
                "msgId": f"ID{n:030d}",
                "properties": {"owner": "alice@example.org" if is_hers else "bob"},
                "body": b"%d " % n * rng.randrange(1, 60),
                "storeTimestamp": (FIRST + n) * 1000,
            }
        )
    rows.append(
        {
            **rows[0],
            "topic": "Logs",
            "queueId": 1,
            "keys": "the last",
            "msgId": "L" * 32,
            "properties": {"owner": "bob"},
        }
    )
    writing.write(home / "source", rows, sizes=SIZES)
    table = {f"{topic}@{topic}-group": {"0": 5, "1": 7} for topic in ("Orders", "Mails", "Logs")}
    (home / "source" / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    return home / "source"


def is_hers(row: dict[str, Any]) -> bool:
    return "customer-4711" in (row["keys"] or "").split(" ")


def has_owner(row: dict[str, Any]) -> bool:
    return bool(row["properties"].get("owner") == "alice@example.org")


@pytest.mark.parametrize(
    ("options", "is_gone", "sought"),
    [
        ({"excludeKey": "customer-4711"}, is_hers, b"customer-4711\x02"),
        ({"excludeProperty": "owner=alice@example.org"}, has_owner, b"alice@example.org"),
        (
            {"excludeMsgId": [f"ID{n:030d}" for n in (0, 3, 299)]},
            lambda row: row["msgId"] in {f"ID{n:030d}" for n in (0, 3, 299)},
            b"ID%030d" % 299,
        ),
        ({"excludeTopic": "Mails"}, lambda row: row["topic"] == "Mails", b"Mails"),
        (
            {"excludeTopic": "Mails", "excludeKey": "order-7"},
            lambda row: row["topic"] == "Mails" or "order-7" in row["keys"].split(" "),
            b"order-7 ",
        ),
    ],
)
def test_nothing_is_left(source: Path, home: Path, options: dict[str, Any], is_gone: Test, sought: bytes) -> None:
    """The rest is as it was, with its queue offsets; queues go on where they did."""
    made = Store(source).copy(home / "copy", **options)
    expected = kept(source, is_gone)
    assert found(home / "copy") == expected
    assert made.messages == len(expected)
    assert bytes_with(source, sought)
    assert bytes_with(home / "copy", sought) == []
    gone = [row for row in reference.read_store(source) if is_gone(row)]
    told = made.excluded.to_pylist()
    assert (sum(row["messages"] for row in told), sum(row["bytes"] for row in told)) >= (
        len(gone),
        sum(r["storeSize"] for r in gone),
    )
    assert [row["found"] for row in told] == [0] * len(told)
    assert made.lost.num_rows == 0
    errors = [row for row in Store(home / "copy").check().to_pylist() if row["severity"] != "info"]
    assert errors == []
    ends = {
        (r["topic"], r["queueId"]): r["maxOffset"]
        for r in Store(source).queues().to_pylist()
        if r["topic"] not in options.get("excludeTopic", "")
    }
    assert {(r["topic"], r["queueId"]): r["maxOffset"] for r in Store(home / "copy").queues().to_pylist()} == ends
    rmqstore_spark.rebuild(home / "copy", mappedFileSizeConsumeQueue=SIZES.queue_file)
    assert {(r["topic"], r["queueId"]): r["maxOffset"] for r in Store(home / "copy").queues().to_pylist()} == ends
    assert found(home / "copy") == expected


def test_a_topic_leaves_no_trace(source: Path, home: Path) -> None:
    """Neither its queues, nor its entries in config/; the others' stay."""
    Store(source).copy(
        home / "copy", excludeTopic="Mails", groupOffset={"Mails-group": "latest", "Logs-group": "earliest"}
    )
    assert not (home / "copy" / "consumequeue" / "Mails").exists()
    offsets = json.loads((home / "copy" / "config" / "consumerOffset.json").read_text())["offsetTable"]
    assert offsets == {"Orders@Orders-group": {"0": 5, "1": 7}, "Logs@Logs-group": {"0": 0, "1": 0}}
    topics = json.loads((home / "copy" / "config" / "topics.json").read_text())["topicConfigTable"]
    assert set(topics) == {"Orders", "Logs"}


def whole_copy(home: Path) -> Path:
    """Of a real broker's store, without the timed messages that were delivered."""
    Store(Path(__file__).parents[2] / "sample_store").copy(home / "whole")
    return home / "whole"


@pytest.mark.parametrize("key", ["retried-0", "level-1"])
def test_all_forms_of_a_message(tmp_path: Path, key: str) -> None:
    """Of a real broker's store: where it waited, was retried or died, and its trace, are messages with its key, too."""
    source = whole_copy(tmp_path)
    made = Store(source).copy(tmp_path / "copy", excludeKey=key)
    gone = [row for row in reference.read_store(source) if key in (row["keys"] or "").split(" ")]
    assert len({row["topic"] for row in gone}) > 1
    assert found(tmp_path / "copy") == kept(source, lambda row: key in (row["keys"] or "").split(" "))
    assert Store(tmp_path / "copy").history(key).num_rows == 0
    assert made.excluded.column("messages").to_pylist() == [len(gone)]


def test_a_topic_where_its_messages_wait(tmp_path: Path) -> None:
    """In the broker's topics of delayed, retried and dead messages; what else waits there stays."""
    source = whole_copy(tmp_path)
    for topic in ("Delayed", "Retried"):
        target = tmp_path / topic
        Store(source).copy(target, excludeTopic=topic)
        rows = Store(source).messages(["topic", "realTopic", "msgId", "queueId", "queueOffset"]).read_all().to_pylist()
        left = [row for row in rows if topic not in (row["topic"], row["realTopic"])]
        assert 0 < len(left) < sum(row["topic"] != topic for row in rows)
        assert Store(target).messages(list(rows[0])).read_all().to_pylist() == left


@pytest.mark.slow
def test_what_other_messages_say(home: Path) -> None:
    """Bytes of what was left out that other messages have are told, compressed ones as well, and where."""
    rows = [
        {"topic": "T", "queueId": 0, "keys": keys, "body": body, "storeTimestamp": (FIRST + n) * 1000}
        for n, (keys, body) in enumerate(
            [("alice", b"1"), ("x", b"to alice, and alice"), ("alice b", b"alice"), ("y", b"")]
        )
    ]
    writing.write(home / "source", rows, sizes=SIZES)
    (told,) = Store(home / "source").copy(home / "copy", excludeKey="alice").excluded.to_pylist()
    assert (told["messages"], told["found"], told["inBodies"], told["inBytes"]) == (2, 0, 1, 2)
    path, _, position = told["firstPlace"].partition(", position ")
    assert Path(path).read_bytes()[int(position) :].startswith(b"alice, and alice")
    ran = run("copy", home / "source", home / "other", "--exclude-key", "alice", "--exclude-key", "nobody")
    assert ran.code == 0
    assert "excludeKey 'alice': 2 messages left out" in ran.err
    assert (
        "the copy has none of them; 1 other message with its text in the body; its text is still at 2 places" in ran.err
    )
    assert (
        "excludeKey 'nobody': no message of the store has it, so it left nothing out; its text is nowhere in the copy"
        in ran.err
    )


def test_the_last_message_of_all(home: Path) -> None:
    """Where nothing comes after it in another queue, its queue offset is given out again, and that is told."""
    rows = [
        {"topic": "T", "queueId": 0, "keys": f"k{n}", "body": b"x", "storeTimestamp": (FIRST + n) * 1000}
        for n in range(5)
    ]
    writing.write(home / "source", rows, sizes=SIZES)
    table = {"T@g": {"0": 5}}
    (home / "source" / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    made = Store(home / "source").copy(home / "copy", excludeKey="k4")
    (told,) = made.lost.to_pylist()
    assert (told["problem"], told["queueOffset"], told["count"]) == ("lostMessages", 4, 1)
    assert json.loads((home / "copy" / "config" / "consumerOffset.json").read_text())["offsetTable"] == {
        "T@g": {"0": 4}
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"excludeTopic": "Mail"}, "option 'excludeTopic': no store has topic 'Mail'. Did you mean 'Mails'?"),
        ({"excludeKey": ""}, "option 'excludeKey': expected a text that is not empty"),
        ({"excludeKey": []}, "option 'excludeKey': expected a text, or several"),
        ({"excludeProperty": "owner"}, "option 'excludeProperty': expected"),
        ({"excludekeys": "a"}, "unknown option 'excludekeys'. Did you mean 'excludeKey'?"),
    ],
)
def test_wrong_options(source: Path, home: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError) as why:
        Store(source).copy(home / "copy", **options)
    assert str(why.value).startswith(told)
    assert not (home / "copy").exists()


def test_several_stores_and_a_salvage(source: Path, home: Path) -> None:
    """Each source without the messages; damage is told as without exclusions, and what was left out is no loss."""
    other = home / "other"
    rows = [
        {
            "topic": "Orders",
            "queueId": 0,
            "keys": f"customer-{4710 + n % 3}",
            "body": b"o",
            "storeTimestamp": (FIRST + n) * 1000,
        }
        for n in range(9)
    ]
    writing.write(other, rows, sizes=SIZES, storeHost="10.0.0.2:10911")
    made = Store([source, other]).copy(home / "both", excludeKey="customer-4711")
    both = [*reference.read_store(source), *reference.read_store(other)]
    assert made.messages == sum(not is_hers(row) for row in both)
    assert not any(map(is_hers, reference.read_store(home / "both")))
    segment = sorted((source / "commitlog").iterdir())[1]
    data = bytearray(segment.read_bytes())
    data[300:700] = bytes(400)
    segment.write_bytes(data)
    plain = Store(source).salvage(home / "plain")
    made = Store(source).salvage(home / "salvaged", excludeKey="customer-4711")
    assert found(home / "salvaged") == kept(home / "plain", is_hers)
    again = [row for row in made.lost.to_pylist() if row["advice"].startswith("these messages are the last")]
    assert len(again) <= 1  # the queue with the last message of all that is left
    assert made.lost.num_rows - len(again) <= plain.lost.num_rows
    assert "damagedUnit" in made.lost.column("problem").to_pylist()


def test_many_gaps_in_large_segments(home: Path) -> None:
    """Each begins a segment of 1 GiB, which is a hole but for a message or two: nobody reads the holes."""
    rows = [
        {
            "topic": "T",
            "queueId": 0,
            "keys": "alice" if n % 2 else "bob",
            "body": b"x",
            "storeTimestamp": (FIRST + n) * 1000,
        }
        for n in range(41)
    ]
    writing.write(home / "source", rows, sizes=Sizes(segment=1 << 30, queue_file=200, slots=20, items=50))
    begun = time.process_time()
    (told,) = Store(home / "source").copy(home / "copy", excludeKey="alice").excluded.to_pylist()
    assert time.process_time() - begun < 8  # seconds; to look for bytes in 20 GiB of zeros takes longer
    assert (told["messages"], told["found"], told["inBytes"]) == (20, 0, 0)
    assert len(list((home / "copy" / "commitlog").iterdir())) == 21
