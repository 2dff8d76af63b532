"""What is done with a store that somebody has prepared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import rmqstore_spark
from rmqstore_spark.store.sizes import Sizes
from rmqstore_spark.write.commit import Settings, check
from rmqstore_spark.write.job_directory import prepare
from support import reading, writing

Action = Callable[[Path], object]


def append(root: Path) -> None:
    check(str(root), Settings(Sizes()))  # as Spark has it done first
    writing.write(root, [{"topic": "TopicA", "queueId": 0, "keys": "k", "body": b"appended"}], sizes=Sizes())


def overwrite(root: Path) -> None:
    check(str(root), Settings(writing.SMALL, overwrite=True))
    writing.write(root, [{"topic": "TopicA", "queueId": 0, "keys": "k", "body": b"instead"}], overwrite=True)


ACTIONS: dict[str, Action] = {
    "append": append,
    "overwrite": overwrite,
    "rebuild": rmqstore_spark.rebuild,
    "check": lambda root: check(str(root), Settings(Sizes())),
    "prepare": lambda root: prepare(str(root), "job"),
    "read": reading.read,
    "select": lambda root: reading.read(root, key="k3", subscribe="TopicA"),
}


def messages(root: Path) -> list[bytes]:
    return [row["body"] for row in reading.read(root)]
