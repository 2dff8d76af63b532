"""Anything in the place of anything: each reader and writer gives the right rows or one clear line, and never waits."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle.stores import StoreBuilder
from support.nobody import READS_ALL

import rmqstore_spark
from rmqstore_spark import RmqStoreError, Store

MESSAGES, SEGMENT = 60, 8192
SECONDS = 120  # only what hangs takes as long


def fifo(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    """Its name may be longer than a socket's can be."""
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


def directory(path: Path) -> None:
    path.mkdir()
    (path / "within").touch()


def link_to_nowhere(path: Path) -> None:
    path.symlink_to("gone")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def noise(path: Path) -> None:
    path.write_bytes(b"hello")


def forbidden(path: Path) -> None:
    path.touch(0)


def with_newline(path: Path) -> None:
    """Beside what is there."""
    path.with_name(path.name + "\nx").write_bytes(b"hello")


def not_text(path: Path) -> None:
    Path(os.fsdecode(os.fsencode(path) + b"\xff")).write_bytes(b"hello")


Odd = Callable[[Path], None]
ODD: list[Odd] = [fifo, a_socket, directory, link_to_nowhere, link_to_itself, noise]
ODD += [] if READS_ALL else [forbidden]  # as root: tests/repo/test_as_nobody.py
BESIDE: list[Odd] = [with_newline, not_text]
# Without these a store can be read as well, but not more of them than the log can make anew.
ACCELERATORS = {
    "a queue file": f"consumequeue/A/0/{100:020d}",
    "the last queue file": f"consumequeue/A/0/{300:020d}",
    "a queue": "consumequeue/A/0",
    "a topic": "consumequeue/A",
    "consumequeue": "consumequeue",
    "batchconsumequeue": "batchconsumequeue",
    "an index file": "index/20231114221320001",
    "the first index file": "index/20231114221320000",
    "index": "index",
    "checkpoint": "checkpoint",
    "abort": "abort",
    "lock": "lock",
}
CONFIGS = {name: f"config/{name}.json" for name in ("topics", "consumerOffset", "subscriptionGroup", "consumerFilter")}
CONFIGS["config"] = "config"
SEGMENTS = {"the first segment": f"commitlog/{0:020d}", "the last segment": f"commitlog/{SEGMENT:020d}"}
SEGMENTS["commitlog"] = "commitlog"
PLACES = {**ACCELERATORS, **CONFIGS, **SEGMENTS}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "store"
    store = StoreBuilder(root, segment_size=SEGMENT, queue_file_size=100, index=True, index_items=31)
    for number in range(MESSAGES):
        store.append("AB"[number % 2], b"%060d" % number, number // 2 % 2, msg_id=f"ID{number}", keys=f"k{number}")
    store.close()
    assert store.end < 2 * SEGMENT
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"A@g": {"0": 3}}}))
    (root / "config" / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": {"g": {}}}))
    return root


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    def stop(number: int, frame: types.FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put(odd: Odd, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    if odd not in BESIDE:
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
    odd(path)


def tried(action: Callable[[], object]) -> object:
    """What it gives, or its error, which is one line."""
    try:
        return action()
    except RmqStoreError as why:
        found = why
    assert "\n" not in str(found)
    return found


def are_asked(store: Store, target: Path) -> dict[str, object]:
    """What each way of reading gives."""
    for name in ("topics", "queues", "offsets", "consumequeue", "indexfiles", "index"):
        tried(functools.partial(store.table, name))
    tried(lambda: store.history("k7"))
    tried(lambda: repr(store))
    return {
        "read": tried(lambda: store.messages().read_all().num_rows),
        "check": tried(lambda: store.check().to_pylist()),
        "salvage": tried(lambda: store.salvage(target / "salvaged")),
        "copy": tried(lambda: store.copy(target / "copied").messages),
    }


def is_named(place: str, odd: Odd) -> bool:
    """Is it something that check has to name? Not what any store may have, or a broker makes anew."""
    if odd is directory and place in ("index", "config", "consumequeue", "batchconsumequeue", "a topic"):
        return False
    return odd not in BESIDE and not (odd in (noise, forbidden) and place in ("checkpoint", "abort", "lock"))


@pytest.mark.parametrize("odd", [*ODD, *BESIDE])
@pytest.mark.parametrize("place", [*ACCELERATORS, *CONFIGS])
def test_readers(tmp_path: Path, sound: Path, place: str, odd: Odd) -> None:
    """What only helps is done without, and named by check; of config/ a salvage says what is lost."""
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    path = root / PLACES[place]
    put(odd, path)
    found = are_asked(Store(root), tmp_path)
    assert found["read"] == MESSAGES
    salvaged: Any = found["salvage"]
    assert salvaged.messages == MESSAGES
    is_config = place in CONFIGS and odd not in BESIDE and not (place == "config" and odd is directory)
    assert set(salvaged.lost["problem"].to_pylist()) == ({"brokenConfig"} if is_config else set())
    assert isinstance(found["copy"], RmqStoreError) if is_config else found["copy"] == MESSAGES
    if is_named(place, odd):
        checked: Any = found["check"]
        told = {row["problem"] for row in checked if row["file"] is not None and row["file"].startswith(str(path))}
        assert told - {"topicWithoutQueue"}, checked


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", SEGMENTS)
def test_readers_of_a_segment(tmp_path: Path, sound: Path, place: str, odd: Odd) -> None:
    """Nothing else has its messages: what cannot be a segment is refused in one line, by all."""
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    put(odd, root / PLACES[place])
    store: Any = tried(lambda: Store(root))
    if isinstance(store, RmqStoreError):
        assert str(root / PLACES[place]) in str(store)
        return
    for answer in are_asked(store, tmp_path).values():
        assert not isinstance(answer, RmqStoreError) or str(root / "commitlog") in str(answer)


@pytest.mark.slow
@pytest.mark.parametrize("odd", [*ODD, *BESIDE])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["rebuild", "append", "overwrite"])
def test_writers(tmp_path: Path, sound: Path, how: str, place: str, odd: Odd) -> None:
    """They refuse it by name, or the store has the messages afterwards."""
    rows = pa.table({"topic": ["A"], "body": ["x"]})
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    put(odd, root / PLACES[place])
    if how == "rebuild":
        done, count = tried(lambda: rmqstore_spark.rebuild(root)), MESSAGES
    elif how == "append":
        done, count = tried(lambda: rmqstore_spark.write_store(root, rows)), MESSAGES + 1
    else:
        done, count = tried(lambda: rmqstore_spark.write_store(root, rows, mode="overwrite")), 1
    if isinstance(done, RmqStoreError):
        assert str(root) in str(done)
    elif place not in SEGMENTS or odd in BESIDE or how == "overwrite":
        assert Store(root).messages().read_all().num_rows == count
