"""What a shell is told that completes a command's words: as tests/cli/test_command.py asks a process, in this one."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from rmqstore_spark.cli.commands import Rmqstore


@pytest.fixture
def logs_again() -> Iterator[None]:
    """A process that completes words says nothing else."""
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def with_groups(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("completed") / "store"
    shutil.copytree(store, copy)
    (copy / "config").mkdir(exist_ok=True)
    offsets = {"Orders0@done": {"0": 1}, "Orders0@slow": {"0": 1}}
    (copy / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return copy


def _completed(words: list[str]) -> list[tuple[str, str]]:
    """The kind and the value of each completion of the last word."""
    *before, last = words
    found = BashComplete(Rmqstore(), {}, "rmqstore", "_RMQSTORE_COMPLETE").get_completions(before, last)
    return [(item.type, item.value) for item in found]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["messages", "{store}", "--subscribe", "Or"], ["Orders0", "Orders1", "Orders2"]),
        (["messages", "{store}", "--startingOffsets", "group:d"], ["group:done"]),
        (["messages", "{store}", "--startingOffsets", ""], ["earliest", "latest", "group:"]),
        (["messages", "{store}", "--columns", "topic,queueO"], ["topic,queueOffset"]),
        (["messages", "{store}", "--partition-by", "topic,ho"], ["topic,hour"]),
        (["lag", "{store}", "--group", ""], ["done", "slow"]),
        (["lag", "{store}", "--sort", "gro"], ["group"]),
        (["queues", "{store}", "--columns", "topic,min"], ["topic,minOffset"]),
        (["history", "{store}", "one", "--columns", "event,de"], ["event,details"]),
        (["usage", "{store}", "--by", "topic,ho"], ["topic,hour"]),
        (["set-offsets", "{store}", "--group-offset", "slow=l"], ["slow=latest"]),
        (["set-offsets", "{store}", "--group-offset", "s"], ["slow="]),
        (["messages", "{store}/nowhere", "--subscribe", "O"], []),
        (["mess"], ["messages"]),
    ],
)
def test_names(words: list[str], completed: list[str], with_groups: Path, logs_again: None) -> None:
    words = [word.format(store=with_groups) for word in words]
    assert _completed(words) == [("plain", value) for value in completed]


@pytest.mark.parametrize(("words", "kind"), [(["show", "/da"], "dir"), (["import", "/data/store", "or"], "file")])
def test_what_lies_on_disks_is_left_to_the_shell(words: list[str], kind: str) -> None:
    assert _completed(words) == [(kind, words[-1])]
