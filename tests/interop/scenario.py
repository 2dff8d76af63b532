"""A store with messages of every kind, as a broker and its clients made it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle import truth

from interop import rocketmq
from interop.rocketmq import NEWEST, Broker, Sizes

Record = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """A store after a clean stop, what its producers were told, and what RocketMQ finds in it."""

    version: str
    root: Path
    sizes: Sizes
    acks: list[Record]
    truth: truth.Truth
    dump: Path


def write(version: str, directory: Path, sizes: Sizes, *, seed: int, plain: int, largest: int) -> Written:
    """
    Args:
        directory: an empty one.
        plain: how many messages there are beside those of special kinds.
        largest: bytes of the largest body; 0: 20000.
    """
    root = directory / "store"
    (root / "config").mkdir(parents=True)
    pop_group, abilities = "", ["empty"]
    if not version.startswith("4."):
        # Where this group fails its messages go to %RETRY%<group>_<topic>. Over 127 bytes that makes V2 units, which
        # older brokers cannot read; so only the newest writes such.
        pop_group, abilities = "pop-group" + "-" * (110 if version == NEWEST else 0), ["timer"]
        _serve_by_pop(root, "Popped", pop_group)
    with Broker(version, root, directory / "home", sizes, archives=True) as broker:
        acks = broker.client().run("scenario", seed, plain, largest, pop_group, *abilities)
    dump = dump_of(version, root, directory / "dump", sizes)
    return Written(version, root, sizes, acks, truth.load(dump), dump)


def _serve_by_pop(root: Path, topic: str, group: str) -> None:
    """What an administrator's command leaves in the broker's configuration."""
    mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
    table = {"messageRequestModeMap": {topic: {group: mode}}}
    (root / "config" / "messageRequestMode.json").write_text(json.dumps(table))


def dump_of(version: str, root: Path, directory: Path, sizes: Sizes) -> Path:
    """RocketMQ's dump of a store, which stays as it is."""
    copy = rocketmq.copy_store(root, directory / "store")
    out = directory / "dump.jsonl"
    Broker(version, copy, directory / "home", sizes).dump(out)
    return out
