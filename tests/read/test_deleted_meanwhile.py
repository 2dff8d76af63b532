"""A broker deletes what has expired just when a call looks at it: that is no damage. Tables, look-ups and positions go
on from the new beginning, and a scan whose rows are gone says so, with an error of its own kind."""

from __future__ import annotations

import functools
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, stores
from support.deleting import Deleting, built, expire, moments

from rmqstore_spark import DamagedStoreError, DeletedMeanwhileError, Store
from rmqstore_spark.read.plan import again
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.tables.registry import TABLES

KEY = "order-5"  # of a message that stays


@pytest.fixture
def deleting(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> Deleting:
    return Deleting(monkeypatch, rng)


def rows(found: Any) -> list[str]:
    return [repr(row) for row in found.to_pylist()]


def _table(name: str, store: Store) -> list[str]:
    return rows(store.table(name))


TABLE_CALLS: dict[str, Callable[[Store], list[str]]] = {
    name: functools.partial(_table, name) for name in TABLES if name != "check"
}
CALLS: dict[str, Callable[[Store], list[str]]] = {
    **TABLE_CALLS,
    "history": lambda store: rows(store.history(KEY)),
    "get": lambda store: rows(store.get("n33")),
    "key": lambda store: rows(store.messages(key=KEY, subscribe="Orders").read_all()),
    "offsets_at": lambda store: [store.offsets_at(stores.FIRST_TIMESTAMP + 1)],
    "offsets_of": lambda store: [store.offsets_of("G")],
    "glance": lambda store: repr(store).splitlines()[1:],
}


def expired(tmp_path: Path) -> Path:
    root = built(tmp_path / "expired")
    expire(root)
    return root


def named(found: list[str], root: Path) -> list[str]:
    return [row.replace(str(root), "ROOT") for row in found]


QUICK = ("groups", "checkpoint", "indexfiles", "offsets_of")  # the others take seconds


@pytest.mark.parametrize(
    "call",
    [call if call in QUICK else pytest.param(call, marks=[pytest.mark.slow, pytest.mark.long]) for call in CALLS],
)
def test_what_is_left_comes(tmp_path: Path, deleting: Deleting, call: str) -> None:
    """Of each row what was so before, or what is after it; and of those that are there before and after, each."""
    ask = CALLS[call]
    before = named(ask(Store(built(tmp_path / "before"))), tmp_path / "before")
    after = named(ask(Store(expired(tmp_path))), tmp_path / "expired")
    for root in moments(tmp_path, deleting):
        found = named(ask(Store(root)), root)
        assert set(found) <= {*before, *after}
        assert set(found) >= {*before} & {*after}
        assert len(after) <= len(found) <= len(before)


def test_a_scan_says_that_its_rows_are_gone(tmp_path: Path, deleting: Deleting) -> None:
    before = reference.read_store(built(tmp_path / "before"))
    after = reference.read_store(expired(tmp_path))
    columns = ["commitLogOffset", "body"]
    outcomes = Counter[str]()
    for root in moments(tmp_path, deleting):
        text = ""
        try:
            found = Store(root).messages(columns).read_all().to_pylist()
        except DeletedMeanwhileError as why:
            text = str(why)
        if text:
            outcomes["told"] += 1
            assert text.startswith(f"{root}/commitlog/")
            assert "the file is gone; a broker deletes expired segments while it runs" in text
        else:
            same = [[{name: row[name] for name in columns} for row in some] for some in (before, after)]
            assert found in same
            outcomes["before" if found == same[0] else "after"] += 1
    assert set(outcomes) == {"told", "before", "after"}


@pytest.mark.parametrize("call", CALLS)
def test_while_more_and_more_is_deleted(tmp_path: Path, deleting: Deleting, rng: random.Random, call: str) -> None:
    """One segment after the other, some looks apart, and up to the last ones."""
    ask = CALLS[call]
    whole = built(tmp_path / "whole")
    for number in range(4):
        root = tmp_path / f"{number}"
        shutil.copytree(whole, root, copy_function=os.link)
        deleting.root, deleting.left, deleting.often = root, rng.randrange(10), rng.randrange(40, 80)
        found = named(ask(Store(root)), root)
        deleting.root = None
        assert set(found) >= set(named(ask(Store(root)), root)) & set(named(ask(Store(whole)), whole))


@pytest.mark.slow
def test_no_check_takes_it_for_damage(tmp_path: Path, deleting: Deleting) -> None:
    for root in moments(tmp_path, deleting, step=9):
        (root / "abort").touch()  # it runs
        found = [row for row in Store(root).check().to_pylist() if row["severity"] == "error"]
        assert found == []


def test_a_link_to_nothing_was_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "nothing")
    with pytest.raises(DamagedStoreError, match=f"{path}: expected a file, found a dangling link"):
        Files().open(str(path))
    assert not issubclass(DeletedMeanwhileError, DamagedStoreError)
    with pytest.raises(DeletedMeanwhileError):
        Files().open(str(tmp_path / "nothing"))


def test_the_last_of_several_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "_PAUSES", (0.0, 0.0))
    for failures in (0, 1, 2, 3):
        answers = iter([*[DeletedMeanwhileError("deleted")] * failures, "rows"])

        def make(answers: Iterator[Any] = answers) -> str:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return str(answer)

        if failures <= 2:
            assert again.again(make) == "rows"
        else:
            with pytest.raises(DeletedMeanwhileError):
                again.again(make)
