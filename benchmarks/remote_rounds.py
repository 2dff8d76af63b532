"""Section `remote`: how many rounds of requests that wait for each other whole stores take, and how they grow.

No time is measured: requests are answered together whenever nothing else is waited for (tests/support/remote.py).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from generate import Store
from measure import MIB, Row, Stores

TESTS = Path(__file__).resolve().parents[1] / "tests"
SEGMENT = 8 * MIB
TOPICS = 8  # with 8 queues each; the larger store has 8 times as many of them, and of segments
GOALS = {"check": "", "consumequeue": ""}  # read bytes that need many rounds by themselves
GOAL = 12  # rounds; of `segments` it is that, and one for each 256 objects, of which there are two a segment
AT_ONCE = 256  # requests: more at a time bring nothing (docs/remote.md)


def rounds_rows(stores: Stores) -> Iterator[Row]:
    """For each work the rounds in the larger store, and the exponent of their growth."""
    sys.path.insert(0, str(TESTS))
    from support.remote import InRounds
    from support.remote_work import WORK, plan_of

    works = WORK | {"plan of a scan, 8 pieces a segment": plan_of(maxPartitionBytes=str(SEGMENT // 8))}

    sizes = [
        with_group(stores.of(1024, total_bytes=4 * times * SEGMENT, segment=SEGMENT, topics=TOPICS * times))
        for times in (1, 8)
    ]
    for name, work in works.items():
        rounds, nbytes, requests = [], 0, 0
        for store in sizes:
            with InRounds() as storage:
                work(storage.uri(store.root))
            rounds.append(storage.rounds)
            nbytes, requests = storage.nbytes, len(storage.asked)
        exponent = math.log(rounds[1] / rounds[0]) / math.log(8)
        counted = {"with an eighth": float(rounds[0]), "exponent": exponent}
        counted |= {"requests": float(requests), "MB": nbytes / 1e6}
        what = f"remote {name}, {sizes[1].segments} segments, {8 * TOPICS * 8} queues"
        goal = f"<= {GOAL + (2 * sizes[1].segments // AT_ONCE if name == 'segments' else 0)}"
        yield Row(what, float(rounds[1]), "rounds", None, GOALS.get(name, goal), counted)


def with_group(store: Store) -> Store:
    """The same store, with a consumer group that has consumed some of each queue."""
    queues = sorted((store.root / "consumequeue").glob("*/*"))
    offsets: dict[str, dict[str, int]] = {}
    for queue in queues:
        offsets.setdefault(f"{queue.parent.name}@group", {})[queue.name] = 3
    config = store.root / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return store
