"""Writes that are tried again: each version of an application is written once, wherever a writer is killed."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle import reference
from support import writing
from support.killing import SIZES, Stopper, rows, stopped_at_every_change
from support.writing import write

import rmqstore_spark
from rmqstore_spark.errors import OptionError, RmqStoreError
from rmqstore_spark.query.option_values import WriteId
from rmqstore_spark.query.options import parse_write_options
from rmqstore_spark.store.structures import checkpoint
from rmqstore_spark.write.commit import Settings, commit

FILE = Path(".rmqstore-spark", "transactions.json")


def ids(root: Path) -> list[str]:
    return [row["msgId"] for row in reference.read_store(root)]


def put(root: Path, rows: list[writing.Row], application: str, version: int, overwrite: bool = False) -> None:
    _, staged = writing.stage_rows(root, [rows])
    commit(str(root), staged, Settings(SIZES, overwrite=overwrite, write_id=WriteId(application, version)))


def known(root: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((root / FILE).read_text())["transactions"]
    return found


def test_a_version_is_written_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    put(tmp_path, rows(2, "A"), "one", 3)
    put(tmp_path, rows(2, "B"), "two", 0)
    for version in (0, 2, 3):
        put(tmp_path, rows(5, "Again"), "one", version)
    assert caplog.text.count("skipped: written before: txnAppId one, txnVersion ") == 3
    write(tmp_path, rows(1, "Plain"), sizes=SIZES)
    put(tmp_path, rows(1, "C"), "one", 7)
    assert ids(tmp_path) == ["A-0", "A-1", "B-0", "B-1", "Plain-0", "C-0"]
    assert known(tmp_path) == {"one": 7, "two": 0}


def test_a_store_that_is_replaced_remembers(tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, rows(2, "A"), "one", 1)
    put(root, rows(2, "B"), "two", 1, overwrite=True)
    assert known(root) == {"one": 1, "two": 1}
    put(root, rows(2, "Again"), "two", 1, overwrite=True)
    write(root, rows(3, "C"), sizes=SIZES, overwrite=True)
    put(root, rows(2, "Again"), "one", 1)
    assert ids(root) == ["C-0", "C-1", "C-2"]


def test_a_store_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    """`rm -r store/*` leaves the names that begin with a dot."""
    put(tmp_path, rows(2, "A"), "one", 5)
    for path in tmp_path.iterdir():
        if not path.name.startswith("."):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    put(tmp_path, rows(1, "B"), "one", 1)
    assert ids(tmp_path) == ["B-0"]
    assert known(tmp_path) == {"one": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no JSON"),
        ('{"format": 2, "transactions": {}}', "expected format 1, found 2"),
        ('{"format": true, "transactions": {}}', "expected format 1, found True"),
        ('{"format": 1, "transactions": []}', "expected an object as transactions"),
        ('{"format": 1, "transactions": {"one": true}}', "application 'one': expected a version, found True"),
        ('{"format": 1, "transactions": {"one": 9223372036854775808}}', "expected a version"),
    ],
)
def test_what_is_remembered_is_data(tmp_path: Path, text: str, expected: str) -> None:
    put(tmp_path, rows(2, "A"), "one", 1)
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RmqStoreError) as error:
        put(tmp_path, rows(2, "B"), "one", 2)
    assert str(error.value).startswith(f"{tmp_path / FILE}: cannot be understood: ")
    if text:
        assert expected in str(error.value)
    assert ids(tmp_path) == ["A-0", "A-1"]


def test_what_is_remembered_is_no_link(tmp_path: Path) -> None:
    root, secret = tmp_path / "store", tmp_path / "secret"
    put(root, rows(2, "A"), "one", 1)
    secret.write_text("mine")
    (root / FILE).unlink()
    (root / FILE).symlink_to(secret)
    with pytest.raises(RmqStoreError, match=r"transactions\.json: expected a file of the store's own, found a link"):
        put(root, rows(2, "B"), "one", 2)
    assert secret.read_text() == "mine"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"txnAppId": "a"}, "expected 'txnVersion' as well, found none"),
        ({"txnVersion": "1"}, "expected 'txnAppId' as well, found none"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "option 'txnVersion': expected a whole number of at least 0"),
        ({"txnAppId": "", "txnVersion": "1"}, "option 'txnAppId': expected a name"),
    ],
)
def test_options(given: dict[str, str], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        parse_write_options({"path": "/x", **given})
    assert parse_write_options({"path": "/x"}).write_id is None
    assert parse_write_options({"path": "/x", "txnAppId": "a", "txnVersion": "7"}).write_id == WriteId("a", 7)


def a_broker_comes(root: Path) -> None:
    """One that recovers the store and stops. What it does to queues, rebuild() does: it begins with our own cleaning
    up, which finds a checkpoint then."""
    (root / "checkpoint").write_bytes(checkpoint.encode(0, 0, 0))
    (root / "abort").unlink(missing_ok=True)
    rmqstore_spark.rebuild(root)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["new", "append", "append, broker", "overwrite"])
def test_killed_anywhere_and_tried_again(home: Path, stop: Stopper, how: str) -> None:
    """Anywhere from shortly before the journal on: where nothing was to be undone, test_kill.py knows it already."""
    before, root = home / "before", home / "store"
    overwrite, old = how == "overwrite", [] if how == "new" else [f"Old-{i}" for i in range(3)]
    if old:
        put(before, rows(3, "Old"), "one", 1)
    new = rows(3, "New", 1000)
    expected = [*([] if overwrite else old), *(row["msgId"] for row in new)]

    def begin() -> Callable[[], object]:
        if old:
            shutil.copytree(before, root)
        _, staged = writing.stage_rows(root, [new])
        return lambda: commit(str(root), staged, Settings(SIZES, overwrite=overwrite, write_id=WriteId("one", 2)))

    outcomes = []
    for _ in itertools.islice(stopped_at_every_change(stop, begin, backwards=True), 40):
        outcomes.append(ids(root) == expected if (root / "commitlog").exists() else False)
        if "broker" in how:
            a_broker_comes(root)
        for _ in range(2):
            put(root, new, "one", 2, overwrite)
            assert ids(root) == expected
            assert known(root) == {"one": 2}
        shutil.rmtree(root)
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {True, False}
