"""Commands that give row by row need no more memory for four times the messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from oracle import stores

pytestmark = [pytest.mark.slow, pytest.mark.long]

COUNT, BODY = 16_000, 4000  # messages of the smaller store, and bytes of each body
MOST = 48 << 20  # bytes more; the bodies of the other messages alone are four times as many


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    found = []
    for count in (COUNT, 4 * COUNT):
        builder = stores.StoreBuilder(tmp_path_factory.mktemp("memory") / "store", segment_size=16 << 20)
        for number in range(count):
            builder.append(topic=f"T{number % 7}", queue_id=number % 4, body=b"x" * BODY)
        builder.close()
        found.append(builder.root)
    return found


def peak(*words: str) -> int:
    """Bytes of the memory that a command had at most."""
    process = subprocess.Popen([sys.executable, "-m", "rmqstore_spark", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return 1024 * used.ru_maxrss


@pytest.mark.parametrize(
    "words",
    [("messages", "--format", "json"), ("messages", "--format", "arrow", "--as-original"), ("usage", "--by", "hour")],
)
def test_flat(pair: list[Path], words: tuple[str, ...]) -> None:
    few, many = (peak(words[0], str(root), *words[1:]) for root in pair)
    assert many - few < MOST
