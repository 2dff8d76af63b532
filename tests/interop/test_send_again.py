"""The cookbook's command sends dead letters with Apache's own Python client through a real proxy; a real broker has
them as their producer sent them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from support.pages import PAGES, ROOT

from interop.jars import Unavailable
from interop.ours import SMALL
from interop.proxies import jars, proxy_of
from interop.rocketmq import NEWEST, Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC = "Retried"


@pytest.fixture(scope="module")
def client_and_proxy(real: None) -> None:
    """Skips where Apache's client (rocketmq-python-client) or a proxy is not to be had."""
    if importlib.util.find_spec("rocketmq") is None:
        pytest.skip("rocketmq-python-client is not installed")
    try:
        jars(NEWEST)
    except Unavailable as why:
        if os.environ.get("RMQ_INTEROP"):
            pytest.fail(f"no real proxy: {why}", pytrace=False)
        pytest.skip(f"no real proxy: {why}")


def sent(root: Path, topic: str) -> list[dict[str, Any]]:
    """What applications wrote into the messages of a topic, as plain Python reads it."""
    rows = [row for row in reference.read_store(root) if row["topic"] == topic]
    return [
        {name: row[name] for name in ("body", "keys", "tags")} | {"number": row["properties"]["number"]} for row in rows
    ]


def test_dead_letters(client_and_proxy: None, tmp_path: Path) -> None:
    told = re.search(r"^python (examples/send_again.py .*)$", PAGES["cookbook.md"], re.MULTILINE)
    assert told is not None
    words = shlex.split(told[1])
    assert words[2] == "127.0.0.1:8081"
    store = tmp_path / "store"
    (store / "config").mkdir(parents=True)
    entry = {"topicName": TOPIC, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: entry}}))
    with Broker(NEWEST, store, tmp_path / "broker", SMALL) as broker, proxy_of(broker, tmp_path / "proxy") as words[2]:
        ran = subprocess.run(
            [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran
        assert ran.stdout.splitlines()[-1] == "2 sent"
    dead = sent(ROOT / "sample_store", words[3])
    assert len(dead) == 2
    assert sent(store, TOPIC) == dead
