"""What is done with a store that somebody has prepared."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import rmqstore_spark
from rmqstore_spark import RmqStoreError, Store
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.commit import Settings, check
from rmqstore_spark.write.stage.job_directory import prepare
from support import reading, writing
from support.prepared import entries

Action = Callable[[Path], object]


def append(root: Path) -> None:
    check(str(root), Settings(Sizes()))  # as Spark has it done first
    writing.write(root, [{"topic": "TopicA", "queueId": 0, "keys": "k", "body": b"appended"}], sizes=Sizes())


def overwrite(root: Path) -> None:
    check(str(root), Settings(writing.SMALL, overwrite=True))
    writing.write(root, [{"topic": "TopicA", "queueId": 0, "keys": "k", "body": b"instead"}], overwrite=True)


def copy(root: Path) -> None:
    copied(root, lambda target: Store(root).copy(target))


def salvage(root: Path) -> None:
    copied(root, lambda target: Store(root).salvage(target))


def copied(root: Path, make: Callable[[Path], object]) -> None:
    """A copy of a store, beside it: whole, or not there at all. It is deleted, and the store stays as it was."""
    target, before, told = root.with_name("copied"), entries(root), None
    try:
        make(target)
    except RmqStoreError as error:
        told = error
    if told is None:
        assert messages(target) == messages(root)
    else:
        assert not os.path.lexists(target) or not list(target.iterdir()), told
    assert entries(root) == before
    shutil.rmtree(target, ignore_errors=True)
    if told is not None:
        raise told


ACTIONS: dict[str, Action] = {
    "append": append,
    "overwrite": overwrite,
    "rebuild": rmqstore_spark.rebuild,
    "check": lambda root: check(str(root), Settings(Sizes())),
    "prepare": lambda root: prepare(str(root), "job"),
    "read": reading.read,
    "select": lambda root: reading.read(root, key="k3", subscribe="TopicA"),
    "copy": copy,
    "salvage": salvage,
}


def messages(root: Path) -> list[bytes]:
    return [row["body"] for row in reading.read(root)]
