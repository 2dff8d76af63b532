"""`check` finds nothing wrong in the store of a real broker: while it is written to, in copies made meanwhile, and
after a kill."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from interop.rocketmq import NEWEST, Broker, Sizes, usually
from rmqstore_spark import DamagedStoreError, Store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long, pytest.mark.usefixtures("real")]

SIZES = Sizes(segment=16 << 20, queue_file=2000 * 20, index_slots=5000, index_items=20_000)
SECONDS = float(os.environ.get("RMQ_CHECK_SECONDS", "5"))  # of writing
# A running broker has `abort`, which its copies say; what is only said is no fault.
OVERTAKEN = {"unwrittenPages", "unwrittenEnd"}
SAID = {"brokerRuns", "abort", "aheadOfEnd", "notDispatched"}


def problems(root: Path, original: Path | None = None) -> Counter[str]:
    """What is said of a store; nothing is wrong with it.

    Args:
        original: what it is a copy of. Who copies a log that grows may overtake its writer: then the copy has zeros
            where the store has a message, and later messages after them, once for each time that the copier was held
            up at the log's end; that is told as what it is.
    """
    rows = Store(str(root)).check().to_pylist()
    found = [row for row in rows if row["severity"] != "info" and row["problem"] not in ("abort", "lostMessages")]
    overtaken = [row for row in found if original is not None and row["problem"] in OVERTAKEN]
    assert found == overtaken, found[:3]
    if original is not None and overtaken:
        for row in overtaken:
            assert_overtaken(row, original)
        with pytest.raises(DamagedStoreError):
            sum(batch.num_rows for batch in Store(str(root)).messages())
    return Counter(row["problem"] for row in rows)


def assert_overtaken(row: dict[str, Any], original: Path) -> None:
    """The copy lacks something there that the store has, and nothing of it is other than zero."""
    with open(row["file"], "rb") as copy, (original / "commitlog" / Path(row["file"]).name).open("rb") as file:
        copy.seek(row["filePosition"])
        file.seek(row["filePosition"])
        found, whole = copy.read(row["count"]), file.read(row["count"])
    differing = {one for one, other in zip(found, whole, strict=True) if one != other}
    assert differing == {0}, row


@pytest.mark.parametrize("version", usually(NEWEST))
def test_a_healthy_store_under_load(version: str, tmp_path: Path, rng: random.Random) -> None:
    """Nothing is wrong with it at any moment, in any copy of it, and when it was killed; at last it was stopped."""
    root, count = tmp_path / "store", 0
    with Broker(version, root, tmp_path / "home", SIZES) as broker:
        client = broker.client()
        client.run("create", "Stream", 8)
        client.begin("stream", "Stream", int(1000 * SECONDS) + 600_000, rng.randrange(1 << 31))
        end, said = time.monotonic() + SECONDS, Counter[str]()
        while time.monotonic() < end or count < 3:
            said += problems(root)
            copy = tmp_path / f"copy{count}"
            subprocess.run(["cp", "-a", root, copy], check=True)
            said += problems(copy, root)
            shutil.rmtree(copy)
            count += 1
        acknowledged = sum(record["kind"] == "ack" for record in client.seen)
        broker.kill()
        said += problems(root)
        broker.start()
        broker.stop()
    print(f"{version}: {acknowledged:,} messages in {SECONDS} s, {count} rounds: {dict(said)}")
    assert "brokerRuns" in said
    assert "abort" in said
    assert set(problems(root)) & SAID == set()
