"""Databases that a broker's own RocksDB made, with its options and others: the reader has what that library has."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from interop import rocketmq
from interop.jars import compiled
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.rocksdb.database import Database

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long, pytest.mark.usefixtures("real")]

SOURCE = Path(__file__).parent / "java_rocksdb" / "Databases.java"
COUNT = 30


def test_the_reader_has_what_the_library_has(tmp_path: Path, rng: random.Random) -> None:
    """All compressions, checksums, merge operands, deleted ranges, several column families, tables and logs."""
    first = rng.randrange(1 << 30)
    make(tmp_path, first, first + COUNT)
    for directory in sorted(tmp_path.iterdir()):
        found = {
            name: {
                key.hex(): value.hex()
                for entries in Database.open(str(directory), Files()).scan(name)
                for key, value in entries.pairs()
            }
            for name in ("default", "offset", "popState")
        }
        assert found == json.loads((directory / "content.json").read_text()), directory.name


def make(directory: Path, first: int, after: int) -> None:
    """The databases of some seeds, each with a content.json."""
    runtime = rocketmq.runtime("5.5.0")
    classes = compiled(runtime.archives.parent, [SOURCE], runtime.broker)
    command = [runtime.java, "-Xmx256m", "-cp", f"{classes}:{runtime.broker}", "Databases"]
    subprocess.run([*command, str(directory), str(first), str(after)], check=True, capture_output=True, timeout=200)
