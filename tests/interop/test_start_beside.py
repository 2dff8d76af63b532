"""A real broker is started on a store while a write of ours is at work there: it refuses, as we hold the lock, but by
then it has recovered the store. All that either has acknowledged is there in the end, and in its queue. Not so index
files: where the broker has made them anew, ours come beside them, and `check` tells of what is there twice."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from support import writing

import rmqstore_spark
from interop.child import ChildError
from interop.each import EACH_AT_NIGHT
from interop.ours import SMALL, rows, small_store
from interop.rocketmq import NEWEST, Broker
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.fs import calls

pytestmark = pytest.mark.interop

SIZES = Sizes(SMALL.segment, SMALL.queue_file, SMALL.index_slots, SMALL.index_items)
GROUP = "Group"


def _keys(root: Path) -> list[str]:
    return [row["msgId"] for row in reference.read_store(root)]


def _acts(new: list[writing.Row]) -> dict[str, Callable[[Path], object]]:
    return {
        "in place": lambda root: writing.write(root, new[:5], sizes=SIZES),
        "by exchange": lambda root: writing.write(root, new, sizes=SIZES),
        "rebuild": rmqstore_spark.rebuild,
        "set offsets": lambda root: rmqstore_spark.Store(root).set_offsets({GROUP: "latest"}),
    }


def _is_seen(call: Any, path: str) -> bool:
    """Is it a change that a broker may see?"""
    return ".rmqstore-spark/" not in path and call.__name__ in ("_pwrite", "rename_at", "exchange", "unlink_at")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("act", ["in place", "by exchange", "rebuild", "set offsets"])
@pytest.mark.parametrize("version", EACH_AT_NIGHT)
def test_a_broker_that_starts_meanwhile(
    real: None, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, version: str, act: str
) -> None:
    before = tmp_path / "before"
    small_store(before, rng, 60)
    offsets = before / "config" / "consumerOffset.json"
    offsets.write_text(json.dumps({"offsetTable": {f"TopicA@{GROUP}": {"0": 0}}}))
    none, new, real_do = _keys(before), rows(rng, 200), calls.do
    ours = (
        [row["msgId"] for row in (new[:5] if act == "in place" else new)] if act in ("in place", "by exchange") else []
    )
    seen: list[str] = []

    def counted(call: Any, path: str, *arguments: Any) -> Any:
        answer = real_do(call, path, *arguments)
        if _is_seen(call, path):
            seen.append(path)
        return answer

    monkeypatch.setattr(calls, "do", counted)
    shutil.copytree(before, tmp_path / "tried")
    _acts(new)[act](tmp_path / "tried")
    moments = sorted(rng.sample(range(1, len(seen) + 1), min(len(seen), 2 if version == NEWEST else 1)))
    for moment in moments:
        root = tmp_path / f"store-{moment}"
        shutil.copytree(before, root)
        seen.clear()

        def paused(call: Any, path: str, *arguments: Any, root: Path = root, moment: int = moment) -> Any:
            answer = counted(call, path, *arguments)
            if _is_seen(call, path) and len(seen) == moment:
                with (
                    pytest.raises(ChildError),
                    Broker(version, root, tmp_path / f"refused-{moment}", SMALL) as broker,
                ):
                    broker.client()
            return answer

        monkeypatch.setattr(calls, "do", paused)
        told = None
        try:
            _acts(new)[act](root)
        except RmqStoreError as why:
            told = str(why)
        assert len(seen) >= moment
        written = [*none, *([] if told and "all messages are written" not in told else ours)]
        with Broker(version, root, tmp_path / f"home-{moment}", SMALL) as broker:
            acks = broker.client().run("send", "TopicA", 0, 5, "beside")
            assert [ack["status"] for ack in acks] == ["SEND_OK"] * 5
        found = _keys(root)
        where = f"{act}, {version}, after {moment} of {len(seen)} changes, told {told}"
        assert found[: len(written)] == written, where
        assert found[len(written) :] == [ack["msgId"] for ack in acks], where
        if act == "set offsets" and told is None:
            text = (root / "config" / "consumerOffset.json").read_text()  # a broker's has numbers as names
            offset = re.search(rf'"TopicA@{GROUP}"\s*:\s*{{\s*"?0"?\s*:\s*(\d+)', text)
            assert offset is not None, where
            assert int(offset[1]) > 0, where
        monkeypatch.setattr(calls, "do", counted)
        writing.write(root, rows(rng, 3), sizes=SIZES)
        wrong = [row for row in rmqstore_spark.Store(root).check().to_pylist() if row["severity"] == "error"]
        assert [row for row in wrong if row["area"] != "index"] == [], where
