"""The power is cut right after the commit point: what a write has waited for is on disk then, and nothing else.

A file system in a file (a loop device) is copied at that moment: in its file is what it has handed to its disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import compaction
from oracle.stores import StoreBuilder
from support import reading, writing

import rmqstore_spark
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.build import patch
from rmqstore_spark.write.fs import calls, disk

CODE = """
import subprocess, sys
sys.path[:0] = sys.argv[3:]
from pathlib import Path
import rmqstore_spark
from oracle import reference
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.fs import calls, disk
from support import reading, writing

home, action = Path(sys.argv[1]), sys.argv[2]
sizes = Sizes(segment=1 << 18, queue_file=400, slots=100, items=4000)
rows = [{"topic": f"T{n // 8}", "queueId": n % 8, "body": b"%d" % n} for n in range(1000)]
disk._MANY_TO_SYNC = 500 if "at once" in action else 1 << 30
root = home / "disk" / "store"
root.parent.mkdir()
# By itself the system brings nothing to disk before the cut.
subprocess.run(["mount", "-o", "loop,commit=300", home / "image", root.parent], check=True)
if "append" in action or "rebuild" in action:
    writing.write(root, rows, sizes=sizes)
    subprocess.run(["sync", "--file-system", root], check=True)  # not of other tests' disks: they rely on it

class Cut(BaseException):
    pass

def until_the_commit_point(call, path, *arguments, real=calls.do, counts=[], heads=[]):
    answer = real(call, path, *arguments)
    name = getattr(call, "__name__", "")
    if name in ("exchange", "rename_at") and path in (str(root / "commitlog"), str(root / "consumequeue")):
        counts.append(path)
    if name == "_pwrite" and len(arguments[0]) == 8 and path.startswith(str(root / "commitlog")):
        heads.append(bytes(arguments[0]))
        counts.extend(heads[1:])  # the first is the blank before which the log ends until then
    if counts and name == "fsync" and path == str(root):
        raise Cut
    return answer

calls.do, real = until_the_commit_point, calls.do
if "nothing" in action:
    disk.Tree.sync_all = lambda self, count: count > 500
try:
    rmqstore_spark.rebuild(root) if "rebuild" in action else writing.write(root, rows, sizes=sizes)
    sys.exit("it was never cut")
except Cut:
    calls.do = real
subprocess.run(["cp", "--sparse=always", home / "image", home / "image after"], check=True)
after = home / "after"
after.mkdir()
subprocess.run(["mount", "-o", "loop", home / "image after", after], check=True)
root = after / "store"
assert len(reading.read(root)) == (2000 if "append" in action else 1000)
try:
    writing.write(root, rows[:1], sizes=sizes)  # which finishes what was cut
except rmqstore_spark.RmqStoreError as error:
    sys.exit(f"not finished: {error}")
units = [reference.parse_unit(data, at) for at, data in reference.read_units(root)]
queued = {(t, q, o): unit.physical_offset for t, q, o, unit in reference.read_queues(root)}
if queued != {(u.topic.decode(), u.queue_id, u.queue_offset): u.physical_offset for u in units}:
    sys.exit("not all queued")
print(len(units), "messages")
"""


_CHANGES_A_FILE = {"_pwrite", "in place", "_copy", "ftruncate", "utime", "fchmod"}
_TAKES_A_NAME = {"unlink_at", "remove_directory_at", "remove_if_empty_at"}
_MOVES = {"rename_at", "exchange"}
_NAMES = {"open_at", "open_new_at", "make_directory_at", "link_at"} | _TAKES_A_NAME | _MOVES


class Unsynced:
    """Which files and directories of a store have changes that nobody has waited for, call by call.

    Attributes:
        paths: them.
        early: what was not synced when something that needs it was made to count.
        steps: how many calls made something count.
        fails_at: which of them fails.
    """

    def __init__(self, root: Path, do: Any) -> None:
        self._do, self._root = do, str(root)
        self._workshop, self._made = f"{root}/.rmqstore-spark", f"{root}/.rmqstore-spark/commit"
        self._journal = f"{self._made}/journal"
        self._beside = f"{root.parent}/.{root.name}.rmqstore-spark-new"
        self._is_published = False
        self.paths: set[str] = set()
        self.early: set[str] = set()
        self.steps = self.fails_at = 0

    @property
    def of_store(self) -> set[str]:
        """Those of the store, but for what is made beside its files."""
        return {path for path in self.paths if path.startswith(self._root) and not path.startswith(self._workshop)}

    def do(self, call: Any, path: str, *arguments: Any) -> Any:
        name, above = getattr(call, "__name__", ""), os.path.dirname(path)
        source = f"{os.readlink(f'/proc/self/fd/{arguments[0]}')}/{arguments[1]}" if name in _MOVES else ""
        is_header = path.startswith(f"{self._root}/index/") and name == "_pwrite" and arguments[1] == 0
        if is_header or (name == "_pwrite" and path.startswith(f"{self._root}/commitlog/")):
            name = "in place"
        if name in _TAKES_A_NAME and not os.path.lexists(path):
            name = "nothing"
        self._judge(name, path, source)
        answer = self._do(call, path, *arguments)
        if name in _CHANGES_A_FILE and os.path.basename(path) != "lock":  # which says nothing
            self.paths.add(path)
        elif name in _TAKES_A_NAME:
            self.paths = {each for each in self.paths if each != path and not each.startswith(f"{path}/")}
        elif name in _MOVES:
            self.paths = {each.replace(source, path) for each in self.paths}
        elif name == "fsync":
            self.paths.discard(path)
        elif name == "sync_all":  # which does not tell of a journal that was given up, before Linux 5.17
            self.paths = {path}
        is_said_later = above == self._root and name not in _MOVES | _TAKES_A_NAME  # a lock, and config/
        is_moved_soon = above == self._made and path != self._journal
        if name in _NAMES and path != self._workshop and not (is_said_later or is_moved_soon):
            self.paths.add(above)
        if source and not source.startswith(self._workshop):
            self.paths.add(os.path.dirname(source))
        if name in _MOVES and path in {f"{self._root}/commitlog", f"{self._root}/consumequeue", self._root}:
            self._is_published = True
        elif name in {"fsync", "sync_all"} and path in {self._root, os.path.dirname(self._root)}:
            self._is_published = False
        return answer

    def _judge(self, name: str, path: str, source: str) -> None:
        is_out = name == "in place" or (name in _MOVES and not path.startswith(self._workshop))
        is_one_of_a_row = path in {f"{self._root}/{name}" for name in ("abort", "checkpoint", "commitlog")}
        if is_out and path == self._root:  # a whole store for another one
            needed = {each for each in self.paths if each.startswith(source)}
        elif is_out:  # and the journal before
            needed = {each for each in self.paths if each.startswith(self._made)} - {f"{self._made}/new"}
            needed |= {self._workshop if os.path.lexists(self._journal) else path, path} & self.paths
            needed |= self.of_store if is_one_of_a_row else set()
            if self._is_published and path.startswith((f"{self._root}/consumequeue/", f"{self._root}/index/")):
                needed.add(self._root)  # else there may be units of messages that are not there
        elif name in _MOVES and path == self._journal:
            needed = {each for each in self.paths if each.startswith(self._made)}
        elif name in _TAKES_A_NAME and path.startswith(f"{self._made}/") and path != self._journal:
            needed = {self._made} & self.paths  # nobody will need the way back
        elif name in _TAKES_A_NAME and is_one_of_a_row:
            needed = self.of_store
        elif name in _TAKES_A_NAME and path.startswith(f"{self._beside}/"):  # the store that was
            needed = {os.path.dirname(self._root)} if self._is_published else set()
        else:
            return
        self.early |= needed
        self.steps += 1
        if self.steps == self.fails_at:
            raise RmqStoreError("a disk that is full")


@pytest.fixture
def unsynced(home: Path, monkeypatch: pytest.MonkeyPatch) -> Unsynced:
    unsynced = Unsynced(home / "store", calls.do)
    monkeypatch.setattr(calls, "do", unsynced.do)
    return unsynced


def _synced(unsynced: Unsynced, action: Callable[[], object]) -> int:
    unsynced.steps = 0
    with contextlib.suppress(RmqStoreError):
        action()
    assert unsynced.early == set()
    assert unsynced.of_store == set()
    return unsynced.steps


ROWS = [{"topic": "T", "queueId": n % 2, "body": b"%d" % n, "keys": "k"} for n in range(60)]


@pytest.mark.parametrize("most", [1 << 30, 1], ids=["one by one", "at once"])
@pytest.mark.parametrize("segment", [4096, 1 << 18], ids=["files", "in place"])
def test_what_counts_was_synced(
    home: Path, segment: int, most: int, unsynced: Unsynced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is moved to where it counts was synced before, as were the journal of it, and what undoes it."""
    root, sizes = home / "store", Sizes(segment=segment, queue_file=400, slots=100, items=4000)
    monkeypatch.setattr(disk, "_MANY_TO_SYNC", most)

    def append() -> None:
        writing.write(root, ROWS, sizes=sizes)

    for unsynced.fails_at in range(1, 6):  # of a new store nothing is left
        _synced(unsynced, append)
    unsynced.fails_at = 0
    for action in append, append, lambda: rmqstore_spark.rebuild(root):
        _synced(unsynced, action)
    _synced(unsynced, lambda: writing.write(root, ROWS, sizes=sizes, overwrite=True))
    _synced(unsynced, append)
    # The next attempt finishes what is left, or takes it back.
    for unsynced.fails_at in range(1 if segment == 4096 else 2, 25, 2) if most > 1 else ():
        assert _synced(unsynced, append) >= unsynced.fails_at
    assert len(reading.read(root)) % 60 == 0


def test_an_index_file_that_got_another_name_is_copied(
    home: Path, unsynced: Unsynced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a backup of hard links, made while the messages are written: its file stays as it was."""
    sizes, backup = Sizes(segment=1 << 18, queue_file=400, slots=100, items=4000), home / "backup"
    writing.write(home / "store", ROWS, sizes=sizes)

    def apply(tree: disk.Tree, changes: str, path: str, spare: str, real: Any = patch.apply) -> None:
        os.link(path, backup)
        real(tree, changes, path, spare)

    monkeypatch.setattr(patch, "apply", apply)
    before = next((home / "store" / "index").iterdir()).read_bytes()
    _synced(unsynced, lambda: writing.write(home / "store", ROWS, sizes=sizes))
    assert backup.read_bytes() == before
    assert len(reading.read(home / "store", key="k")) == 120


def test_offsets_that_were_set_are_synced(home: Path, unsynced: Unsynced) -> None:
    writing.write(home / "store", ROWS, sizes=Sizes(segment=4096, queue_file=400, slots=100, items=4000))
    path = home / "store" / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable": {"T@g": {"0": 1}}}')
    _synced(unsynced, lambda: rmqstore_spark.Store(home / "store").set_offsets({"g": "latest"}))
    assert json.loads(path.read_text())["offsetTable"] == {"T@g": {"0": 30, "1": 30}}
    assert unsynced.steps


def test_a_copy_is_synced_with_what_a_broker_has_compacted(home: Path, unsynced: Unsynced) -> None:
    builder = StoreBuilder(home / "other", segment_size=8192)
    values = [compaction.append(builder, "T", 0, key, b"v") for key in "abc"]
    builder.close()
    compaction.configure(home / "other", ["T"])
    compaction.LogWriter(home / "other", "T", 0, 2048).write_all(values, 0)
    rmqstore_spark.Store(home / "other").copy(home / "store")
    assert unsynced.early == unsynced.of_store == set()
    assert len(list((home / "store" / "compaction" / "compactionLog").rglob("0*"))) > 0


@pytest.mark.parametrize("segment", [4096, 1 << 18], ids=["files", "in place"])
def test_a_commit_of_a_stream_is_synced(
    home: Path, segment: int, unsynced: Unsynced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its version, before the journal goes that would bring it: without one the batch would be written again."""
    root, sizes = home / "store", Sizes(segment=segment, queue_file=400, slots=100, items=4000)
    workshop, journals = f"{root}/.rmqstore-spark", list[set[str]]()

    def do(call: Any, path: str, *arguments: Any) -> Any:
        if call.__name__ == "unlink_at" and path == f"{workshop}/commit/journal" and os.path.lexists(path):
            journals.append({workshop, f"{workshop}/transactions.json"} & unsynced.paths)
        return unsynced.do(call, path, *arguments)

    def commit(version: int) -> Callable[[], None]:
        return lambda: writing.write(root, ROWS, sizes=sizes, txnAppId="app", txnVersion=str(version))

    monkeypatch.setattr(calls, "do", do)
    for version in range(3):
        _synced(unsynced, commit(version))
    assert journals == [set()] * 3
    # What fails half way is finished, or taken back, by the next attempt of the same batch.
    for unsynced.fails_at in range(2, 20, 3):
        _synced(unsynced, commit(3))
    unsynced.fails_at = 0
    _synced(unsynced, commit(3))
    assert {*map(len, journals)} == {0}
    assert len(reading.read(root)) == 240


def test_a_salvage_is_synced(home: Path, unsynced: Unsynced) -> None:
    """Nothing of it is in its place before all of it is on disk."""
    builder = StoreBuilder(home / "other", segment_size=8192)
    for number in range(60):
        builder.append(body=b"%d" % number, keys="k")
    builder.close()
    path = home / "other" / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"\0\0\0\x01" + b"7", b"\0\0\0\x01" + b"8"))
    steps = _synced(unsynced, lambda: rmqstore_spark.Store(home / "other").salvage(home / "store"))
    assert steps > 0
    assert len(reading.read(home / "store")) >= 58


def test_a_configuration_that_was_made_anew_is_synced(home: Path, unsynced: Unsynced) -> None:
    root = home / "store"
    writing.write(root, ROWS, sizes=Sizes(segment=4096, queue_file=400, slots=100, items=4000))
    (root / "config" / "topics.json").unlink()
    assert _synced(unsynced, lambda: rmqstore_spark.Store(root).rebuild_config()) > 0
    assert "T" in json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("how", ["one by one", "at once"])
@pytest.mark.parametrize("action", ["new", "append", "rebuild"])
def test_what_is_published_is_on_disk(tmp_path: Path, action: str, how: str) -> None:
    told = cut(tmp_path, f"{action}, {how}")
    assert told.returncode == 0, told.stderr
    assert told.stdout == ("2001 messages\n" if action == "append" else "1001 messages\n")


@pytest.mark.slow
def test_else_it_would_not_be(tmp_path: Path) -> None:
    """The tests above can fail: a write that waits for nothing leaves queues without content. Which of them come
    to disk by chance decides whether the next write finds it, or only we do. All of them do where the system writes
    out what lies in memory just then, as others fill it: so this may be tried again."""
    tried = []
    for attempt in ("first", "second", "third", "fourth", "fifth"):
        (home := tmp_path / attempt).mkdir()
        tried.append(cut(home, "new, nothing"))
        if tried[-1].returncode:
            break
        (home / "image").unlink()
        (home / "image after").unlink()
    assert "not finished" in tried[-1].stderr or "not all queued" in tried[-1].stderr, tried


def cut(home: Path, action: str) -> subprocess.CompletedProcess[str]:
    image = home / "image"
    image.touch()
    os.truncate(image, 300 << 20)
    try:
        made = subprocess.run(["mkfs.ext4", "-q", "-F", image], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        command = ["unshare", "--mount", sys.executable, "-c", CODE, str(home), action, *sys.path]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as why:
        pytest.skip(f"no file system in a file here: {why}")
    for reason in ("unshare failed", "unshare: ", "mount: "):
        if reason in told.stderr:
            pytest.skip(f"no file system in a file here: {told.stderr.strip().splitlines()[0]}")
    return told
