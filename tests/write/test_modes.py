"""Who may read a store, may read what is written to it, and nobody else: also while it is being made."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support import writing
from support.killing import SIZES, rows
from support.writing import write

import rmqstore_spark
from rmqstore_spark import Store
from rmqstore_spark.write.build import stretch
from rmqstore_spark.write.fs import calls

# What a killed write may leave, and nobody else may look into.
BEING_MADE = ("commit", "staging-", "exchange-", "aside-")


@pytest.fixture(params=[0o022, 0o077, 0o002], ids="umask {:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def append(root: Path, **options: Any) -> None:
    """To queues that are there, and to new ones of new topics."""
    new = [*rows(40, "Old", 1000), *rows(9, "New", 2000)]
    writing.write(root, new, sizes=SIZES, **options)


def append_a_copy(root: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stretch, "fits", lambda *_: False)
        append(root)


def append_once(root: Path) -> None:
    row = pa.table({"topic": ["Old"], "body": [b"new"]})
    rmqstore_spark.write_store(root, row, txnAppId="a", txnVersion=1)


ACTIONS: dict[str, Callable[[Path], object]] = {
    "append": append,
    "append a copy": append_a_copy,
    "append once": append_once,
    "append without index": lambda root: append(root, index=False),
    "overwrite": lambda root: append(root, overwrite=True),
    "rebuild": rmqstore_spark.rebuild,
}


def modes(root: Path) -> dict[str, tuple[str, str]]:
    """Of all in a directory, itself included: what it is, and its mode."""
    found = {}
    for path in (root, *root.rglob("*")):
        kind = "directory" if path.is_dir() else "file"
        found[str(path.relative_to(root))] = (kind, f"{stat.S_IMODE(path.stat().st_mode):03o}")
    return found


def set_modes(root: Path, of_directory: int, of_file: int) -> None:
    for path in (root, *root.rglob("*")):
        path.chmod(of_directory if path.is_dir() else of_file)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(("of_directory", "of_file"), [(0o700, 0o600), (0o750, 0o640), (0o2775, 0o664), (0o755, 0o600)])
def test_modes_stay(tmp_path: Path, umask: int, action: str, of_directory: int, of_file: int) -> None:
    root = tmp_path / "store"
    write(root, rows(40, "Old"), sizes=SIZES)
    set_modes(root, of_directory, of_file)
    before = set(modes(root))
    ACTIONS[action](root)
    found = modes(root)
    assert set(found) > before or action in ("overwrite", "rebuild")
    assert {mode for kind, mode in found.values() if kind == "directory"} == {f"{of_directory:03o}"}
    assert {mode for kind, mode in found.values() if kind == "file"} == {f"{of_file:03o}"}


def test_each_directory_has_its_own(tmp_path: Path) -> None:
    """What stands beside a new file says who may read it, not what another directory has."""
    root = tmp_path / "store"
    write(root, rows(40, "Old"), sizes=SIZES)
    set_modes(root, 0o755, 0o644)
    set_modes(root / "commitlog", 0o700, 0o600)
    set_modes(root / "index", 0o750, 0o640)
    (root / "config" / "topics.json").chmod(0o660)
    append(root)
    found = modes(root)
    assert found["config/topics.json"][1] == "660"
    assert {mode for name, mode in found.items() if name.startswith("commitlog/")} == {("file", "600")}
    assert {mode for name, mode in found.items() if name.startswith("index/")} == {("file", "640")}
    assert {mode for name, mode in found.items() if name.startswith("consumequeue/New")} >= {("file", "644")}


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750])
def test_a_new_store_is_for_whom_its_directory_is(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(mode)
    write(root, rows(40, "New"), sizes=SIZES)
    assert set(modes(root).values()) == {("directory", f"{mode:03o}"), ("file", f"{mode & 0o666:03o}")}


@pytest.mark.parametrize("how", ["copy", "salvage"])
@pytest.mark.parametrize("of_directory", [0o700, 0o755])
def test_a_copy_is_for_whom_its_source_is(tmp_path: Path, how: str, of_directory: int) -> None:
    """Where it makes its directory; else for whom that is."""
    source, private = tmp_path / "source", tmp_path / "private"
    write(source, rows(40, "Old"), sizes=SIZES)
    set_modes(source, of_directory, 0o600)
    private.mkdir(0o700)
    for target in (tmp_path / "copy", private):
        getattr(Store(source), how)(target)
        assert set(modes(target).values()) == {("directory", "700"), ("file", "600")}
    set_modes(source, 0o755, 0o644)
    getattr(Store(source), how)(tmp_path / "open")
    assert set(modes(tmp_path / "open").values()) == {("directory", "755"), ("file", "644")}


@pytest.mark.parametrize("action", [*ACTIONS, "copy"])
def test_what_is_being_made_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """Looked at after every change: a store of modes 0755 and 0644 is no reason to show what does not count yet."""
    root = tmp_path / "store"
    write(root, rows(40, "Old"), sizes=SIZES)
    seen = set[str]()
    real = calls.do

    def watched(call: Callable[..., Any], path: str, *arguments: Any) -> Any:
        done = real(call, path, *arguments)
        beside = [each for each in tmp_path.iterdir() if each.name.startswith(".")]
        within = [each for each in tmp_path.glob("*/.rmqstore-spark/*") if each.name.startswith(BEING_MADE)]
        if call.__name__ == "fchmod":
            made.add(path)  # which is now whole, and next in the store's place; then the old one has its name
        for each in beside + within:
            seen.add(each.name)
            assert str(each) in made or stat.S_IMODE(each.lstat().st_mode) == 0o700, (call.__name__, path, each)
        return done

    made = set[str]()
    monkeypatch.setattr(calls, "do", watched)
    if action == "copy":
        Store(root).copy(tmp_path / "copy")
    else:
        ACTIONS[action](root)
    assert seen
