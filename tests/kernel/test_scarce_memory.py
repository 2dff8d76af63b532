"""Whichever request of the kernel's for memory is refused: a MemoryError, and nothing is done by half."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from oracle import reference
from oracle.stores import StoreBuilder
from support.patience import HANG

TESTS = Path(__file__).resolve().parents[1]
SANITIZED = bool(os.environ.get("RMQ_SANITIZED"))


@pytest.mark.slow
@pytest.mark.skipif(SANITIZED, reason="a sanitizer has a malloc of its own")
def test_no_memory_for_any_request(tmp_path: Path) -> None:
    library, source = tmp_path / "scarce_memory.so", TESTS / "support" / "scarce_memory.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    store = StoreBuilder(tmp_path / "store", 1 << 18, index=True)
    for number in range(24):
        tags, keys = "TagA" if number % 4 else "TagB", f"key k{number}"
        store.append(f"Topic{number % 3}", b"body %d" % number, number % 2, tags, keys, f"{number:032X}")
    # Of each text more than what there is room for so far; a compressed body; light queues;
    # times and hosts that no column can have.
    store.append("T" * 120, bytes(70_000), 0, "t" * 9000, "k" * 9000, "U" * 9000)
    lights = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,1"}
    store.append(body=zlib.compress(bytes(300_000)), sys_flag=reference.COMPRESSED, properties={"p" * 9000: "v" * 9000})
    store.append(body=b"lights", properties=lights)
    store.append(body=b"times", born_timestamp=(1 << 63) - 1, store_timestamp=1 << 61, tags="TagA", keys="key")
    store.append(body=b"IPv6", born_host="[2001:db8::1]:1", store_host="[2001:db8::2]:2")
    store.close()
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    run = subprocess.run(
        [sys.executable, "-m", "support.scarce_reads", str(store.root)],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    *wrong, counts = run.stdout.splitlines() or [run.stderr]
    assert wrong == []
    assert counts.endswith(" told"), counts
    refused, told = map(int, re.findall(r"\d+", counts))
    # Where there is no room for a decompressed body, Python decompresses it: the answer is the same.
    assert 500 < told <= refused < told + 20
