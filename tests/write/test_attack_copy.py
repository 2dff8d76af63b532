"""Copies of a store that somebody has prepared, and copies to where somebody has been first: the source and all else
stays as it is, errors are one line, and no half of a copy is left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attacking import messages
from support.prepared import LINKS, PLACES, WRITERS, Ground, directory, fifo

import rmqstore_spark

CONFIG = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "lmqConsumerOffset.json")
TEXTS = [
    "\x00",
    "[" * 100_000,
    '{"topicConfigTable":7,"subscriptionGroupTable":7,"offsetTable":7}',
    '{"topicConfigTable":{"../../victim":{}},"subscriptionGroupTable":{"../x\\n":{}},"offsetTable":{"../../victim@G":{"0":1}}}',
    '{"offsetTable":{"TopicA@G":{"0":-5,"1":99999999999999999999,"x":1,"7":"many"}}}',
    '{"offsetTable":{"TopicA@\\u001b[31m\\n":{"0":1e999}}}',
]
COPIES: dict[str, Callable[[Path, Path], object]] = {
    "copy": lambda source, target: rmqstore_spark.Store(source).copy(target),
    "salvage": lambda source, target: rmqstore_spark.Store(source).salvage(target),
}


@pytest.fixture(params=COPIES)
def copy(request: pytest.FixtureRequest) -> Callable[[Path, Path], object]:
    return COPIES[request.param]


def attempt(ground: Ground, copy: Callable[[Path, Path], object], writer: str, target: Path) -> str | None:
    """What a copy says: None where it goes well; an error of ours in one line else. All but its target stays."""
    source, ground.root = ground.root, target
    try:
        return ground.attempt(lambda: copy(source, target), writer)
    finally:
        ground.root = source


def assert_whole_or_nothing(ground: Ground, target: Path, told: str | None, expected: list[bytes]) -> None:
    if told is None:
        assert messages(target) == expected
    else:
        assert not os.path.lexists(target) or not list(target.iterdir()), told


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", LINKS)
def test_a_source_with_links(ground: Ground, copy: Callable[[Path, Path], object], place: str, writer: str) -> None:
    expected = messages(ground.root)
    LINKS[place](ground)
    target = ground.home / "target"
    told = attempt(ground, copy, writer, target)
    assert_whole_or_nothing(ground, target, told, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [fifo, directory])
@pytest.mark.parametrize("place", [*PLACES[1:], "config/consumerOffset.json", "config/delayOffset.json"])
def test_a_source_with_what_is_no_regular_file(
    ground: Ground, copy: Callable[[Path, Path], object], place: str, kind: Callable[[Path], None]
) -> None:
    expected = messages(ground.root)
    ground.put(place, kind)
    target = ground.home / "target"
    told = attempt(ground, copy, WRITERS[0], target)
    assert_whole_or_nothing(ground, target, told, expected)


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize("name", CONFIG)
def test_a_source_with_any_config(ground: Ground, copy: Callable[[Path, Path], object], name: str, text: str) -> None:
    """Groups come along: what says where they are may be anything."""
    expected = messages(ground.root)
    (ground.root / "config").mkdir(exist_ok=True)
    (ground.root / "config" / name).write_text(text)
    target = ground.home / "target"
    told = attempt(ground, copy, WRITERS[0], target)
    assert_whole_or_nothing(ground, target, told, expected)


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


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "plant", [link_to_victim, linked_parts, dangling, planted_journal, another_store, lambda target, _: fifo(target)]
)
def test_a_target_where_somebody_has_been(
    ground: Ground,
    copy: Callable[[Path, Path], object],
    plant: Callable[[Path, Ground], None],
    writer: str,
) -> None:
    """What is there stays, unless it is nothing."""
    target = ground.home / "target"
    plant(target, ground)
    before = {str(path): path.lstat().st_ino for path in target.rglob("*")}
    told = attempt(ground, copy, writer, target)
    if plant is planted_journal and told is None:  # nothing but a workshop of nobody's: the copy begins anew
        assert messages(target) == messages(ground.root)
        return
    assert told is not None
    assert {str(path): path.lstat().st_ino for path in target.rglob("*")} == before
