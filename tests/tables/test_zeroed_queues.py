"""Queue files with zeros in them, as of a disk that has lost blocks: tables say what is left, in object storage too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from oracle import reference, stores
from support import remote

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.remote.files import PRICES, RemoteFiles
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.queues import queue_facts

UNIT = reference.QUEUE_UNIT_SIZE
MESSAGES = 8000


@pytest.mark.parametrize("file_units", [300_000, 1000])
def test_queues_end_behind_zeros(tmp_path: Path, rng: random.Random, file_units: int) -> None:
    builder = stores.StoreBuilder(tmp_path, segment_size=1 << 19, queue_file_size=UNIT * file_units)
    for _ in range(MESSAGES):
        builder.append("T", b"x" * 10)
    if rng.random() < 0.5:
        builder.expire(1)
    builder.close()
    begin = builder.messages[0].queue_offset
    files = sorted(builder.queue_directory("T", 0).iterdir())
    whole = {path: path.read_bytes().rstrip(b"\0") for path in files}
    for _ in range(8):
        start = rng.choice((begin, rng.randrange(begin, MESSAGES - 1)))
        stop = min(start + rng.choice((1, 50, 500, 3000, MESSAGES)), MESSAGES - 1)
        for path, data in whole.items():
            first = int(path.name) // UNIT
            zeros = range(max(0, start - first), min(len(data) // UNIT + 1, stop - first))
            with path.open("r+b") as file:
                file.write(data)
                if zeros:
                    file.seek(UNIT * zeros.start)
                    file.write(bytes(UNIT * len(zeros)))
        for store_files in (Files(), RemoteFiles(PRICES, bucket=remote.bucket)):
            facts = queue_facts(Snapshot.find(str(tmp_path), store_files))
            assert facts.end.tolist() == [MESSAGES], (start, stop, store_files)
            # Where zeros hide the rest of the queue, the log is asked: it has what they stand in the place of.
            assert facts.least[0] in ({begin} if start > begin else {begin, stop}), (start, stop, store_files)
