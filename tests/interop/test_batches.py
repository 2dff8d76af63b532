"""Batches that a real broker keeps whole: rows are what its consumer gets, and keys are found in every one."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, truth
from support import reading

from interop import rocketmq
from interop.rocketmq import Broker, Client, Sizes
from rmqstore_spark import Store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

COUNT = 5  # batches of 1 to 5 messages, as many single messages, and as many from each of 4 threads
MESSAGES = 15 + 5 + 20


@pytest.fixture(scope="module")
def made(real: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The store of a broker that was stopped, and what its consumer, of group `group`, got: all."""
    home = tmp_path_factory.mktemp("made")
    with Broker(rocketmq.NEWEST, home / "store", home / "home", Sizes()) as broker:
        client = broker.client()
        sent = client.run("batched", "Batched", COUNT)
        received = client.run("consume", "Batched", "group", MESSAGES, 500)
        broker.stop()
    assert [record["status"] for record in sent] == ["SEND_OK"] * 20
    return home / "store", received


def test_rows_are_what_a_consumer_gets(made: tuple[Path, list[dict[str, Any]]]) -> None:
    root, received = made
    rows = reading.read(root, subscribe="Batched", columns=[*reading.DEFAULT_COLUMNS, "batchIndex"])
    names = ("queueOffset", "queueId", "commitLogOffset", "flag", "reconsumeTimes", "preparedTransactionOffset")
    by_offset = {message["queueOffset"]: message for message in received}
    assert len(received) == len(by_offset) == len(rows) == MESSAGES
    for row in rows:
        message = by_offset[row["queueOffset"]]
        assert [row[name] for name in names] == [message[name] for name in names]
        assert (row["bornTimestamp"], row["storeTimestamp"]) == (
            message["bornTimestamp"] * 1000,
            message["storeTimestamp"] * 1000,
        )
        assert truth.sha256(row["body"]) == message["body"]
        assert row["properties"].items() <= message["properties"].items()  # a consumer adds some of its own
    assert [row["queueOffset"] for row in rows] == list(range(MESSAGES))
    units = reading.read(root, subscribe="Batched", explodeBatches=False)
    assert len(units) < MESSAGES - 10  # autoBatch has made some, too
    assert reference.read_store(root) == reading.read(root)
    for row in rows:
        (found,) = reading.read(root, key=row["keys"], columns=["queueOffset"], prices=reading.FREE)
        assert found["queueOffset"] == row["queueOffset"]


def _pulled(client: Client, start: int, stop: int) -> list[int]:
    """The queue offsets from a start on that a consumer gets; of a batch it gets those before the start, too."""
    answers = client.run("pull", "Batched", 0, start, stop)
    found = [answer["queueOffset"] for answer in answers if answer["kind"] != "missed"]
    assert found == sorted(set(found))
    return [offset for offset in found if offset >= start]


@pytest.mark.parametrize(
    "how", ["rebuilt", *(pytest.param(how, marks=pytest.mark.nightly) for how in ("copied", "copied in part"))]
)
def test_a_broker_goes_on(
    made: tuple[Path, list[dict[str, Any]]], tmp_path: Path, rng: random.Random, how: str
) -> None:
    """Wherever a consumer begins, it gets what is there from that place on; a group goes on where it was; and new
    messages come after the old ones, also after a crash."""
    source, _ = made
    root, offsets = tmp_path / "store", list(range(MESSAGES))
    if how == "rebuilt":
        shutil.copytree(source, root)
        for directory in ("batchconsumequeue", "consumequeue", "index"):
            shutil.rmtree(root / directory)
        (root / "abort").touch()
        Store(root).rebuild(mappedFileSizeConsumeQueue=Sizes().queue_file, maxHashSlotNum=500, maxIndexNum=2000)
        before, after = (list(each.glob("batchconsumequeue/Batched/0/*")) for each in (source, root))
        assert [path.read_bytes() for path in after] == [path.read_bytes() for path in before]
    elif how == "copied":
        Store(source).copy(root)
    else:  # "single-0" to "single-4" are tagged so, and some batches have no other message
        Store(source).copy(root, subscribe="Batched", tags="tag-8")
        offsets = [row["queueOffset"] for row in reading.read(root, subscribe="Batched")]
        assert set(range(offsets[-1])) - set(offsets)
    end = offsets[-1] + 1
    with Broker(rocketmq.NEWEST, root, tmp_path / "home", Sizes()) as broker:
        client = broker.client()
        (bounds,) = client.run("bounds", "Batched", 0)
        assert (bounds["min"], bounds["max"]) == (offsets[0], end)
        for start in [0, *rng.sample(range(end), 12)]:
            assert _pulled(client, start, end) == [offset for offset in offsets if offset >= start], start
        sent = client.run("send", "Batched", 0, 3, "after")
        assert [ack["queueOffset"] for ack in sent] == [end, end + 1, end + 2]
        offsets += [end, end + 1, end + 2]
        received = client.run("consume", "Batched", "group", 3, 1000)
        assert [message["queueOffset"] for message in received] == [end, end + 1, end + 2]
        broker.kill()
    with Broker(rocketmq.NEWEST, root, tmp_path / "home2", Sizes()) as broker:
        assert _pulled(broker.client(), 0, end + 3) == offsets
