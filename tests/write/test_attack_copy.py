"""Copies of a store with any config, and copies to where somebody has been first: the source and all else stays as it
is, errors are one line, and no half of a copy is left. What else may stand in a source, test_attack.py has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attacking import ACTIONS, messages
from support.prepared import WRITERS, Ground, fifo

from rmqstore_spark import Store

CONFIG = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "lmqConsumerOffset.json")
TEXTS = [
    "\x00",
    "[" * 100_000,
    '{"topicConfigTable":7,"subscriptionGroupTable":7,"offsetTable":7}',
    '{"topicConfigTable":{"../../victim":{}},"subscriptionGroupTable":{"../x\\n":{}},"offsetTable":{"../../victim@G":{"0":1}}}',
    '{"offsetTable":{"TopicA@G":{"0":-5,"1":99999999999999999999,"x":1,"7":"many"}}}',
    '{"offsetTable":{"TopicA@\\u001b[31m\\n":{"0":1e999}}}',
]
COPIES = {"copy": Store.copy, "salvage": Store.salvage}


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize("name", CONFIG)
def test_a_source_with_any_config(ground: Ground, name: str, text: str) -> None:
    """Groups come along: what says where they are may be anything."""
    (ground.root / "config").mkdir(exist_ok=True)
    (ground.root / "config" / name).write_text(text)
    for action in COPIES:
        ground.attempt(lambda action=action: ACTIONS[action](ground.root), WRITERS[0])  # type: ignore[misc]


def link_to_victim(target: Path, ground: Ground) -> None:
    target.symlink_to(ground.victim)


def linked_parts(target: Path, ground: Ground) -> None:
    target.mkdir()
    for name in ("commitlog", "consumequeue", "config", ".rmqstore-spark"):
        (target / name).symlink_to(ground.victim)


def dangling(target: Path, ground: Ground) -> None:
    target.symlink_to(ground.home / "none")


def planted_journal(target: Path, ground: Ground) -> None:
    (target / ".rmqstore-spark" / "commit" / "new").mkdir(parents=True)
    journal = '{"version":1,"made":{"commitlog":1},"had_topics":true,"has_topics":true}'
    (target / ".rmqstore-spark" / "commit" / "journal").write_text(journal)


def another_store(target: Path, ground: Ground) -> None:
    shutil.copytree(ground.root, target)


@pytest.mark.parametrize("action", COPIES)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "plant", [link_to_victim, linked_parts, dangling, planted_journal, another_store, lambda target, _: fifo(target)]
)
def test_a_target_where_somebody_has_been(
    ground: Ground, plant: Callable[[Path, Ground], None], writer: str, action: str
) -> None:
    """What is there stays, unless it is nothing."""
    source, target = ground.root, ground.home / "target"
    plant(target, ground)
    before = {str(path): path.lstat().st_ino for path in target.rglob("*")}
    ground.root = target  # all else stays as it is, the source too
    told = ground.attempt(lambda: COPIES[action](Store(source), target), writer)
    if plant is planted_journal and told is None:  # nothing but a workshop of nobody's: the copy begins anew
        assert messages(target) == messages(source)
        return
    assert told is not None
    assert {str(path): path.lstat().st_ino for path in target.rglob("*")} == before
