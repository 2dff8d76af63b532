"""assert_broker_accepts, on which other tests rely, accepts real stores, and refuses one that is a little broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from oracle import golden, reference
from support import reading

from interop import older, rocketmq
from interop.accept import assert_broker_accepts
from interop.child import ChildError
from interop.rocketmq import NEWEST, OLDEST
from interop.scenario import Written
from rmqstore_spark import write_store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

Accepted = Callable[[tuple[str, str]], None]
StoreOf = Callable[[str], Written]


@pytest.mark.parametrize("accepted_pair", [(OLDEST, NEWEST)], ids="{0[0]}-{0[1]}".format)
def test_a_broker_accepts_the_store_of_another(accepted: Accepted, accepted_pair: tuple[str, str]) -> None:
    """And its own: test_writing.py, where we have appended to it."""
    accepted(accepted_pair)


def broken_queue(root: Path) -> None:
    """Without its last unit."""
    (file,) = (root / "consumequeue" / "Plain" / "0").iterdir()
    data = bytearray(file.read_bytes())
    used = len(bytes(data).rstrip(b"\0")) + reference.QUEUE_UNIT_SIZE - 1
    at = used // reference.QUEUE_UNIT_SIZE * reference.QUEUE_UNIT_SIZE - reference.QUEUE_UNIT_SIZE
    data[at : at + reference.QUEUE_UNIT_SIZE] = bytes(reference.QUEUE_UNIT_SIZE)
    file.write_bytes(data)


def broken_index(root: Path) -> None:
    """Its oldest file is missing."""
    min((root / "index").iterdir()).unlink()


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        pytest.param(broken_queue, "queue 0 of Plain: (max offset|offsets)", marks=pytest.mark.nightly),
        (broken_index, "not found"),
    ],
)
def test_a_broker_does_not_accept_a_broken_store(
    store_of: StoreOf, broken: Callable[[Path], None], complaint: str, tmp_path: Path
) -> None:
    store = rocketmq.copy_store(store_of(NEWEST).root, tmp_path / "store")
    expected = reference.read_store(store)
    broken(store)
    with pytest.raises(AssertionError, match=complaint):
        assert_broker_accepts(store, tmp_path / "home", [NEWEST], expected=expected)


def test_an_old_broker_does_not_accept_what_it_does_not_know(store_of: StoreOf, tmp_path: Path) -> None:
    """V2 units, for topics of over 127 bytes: it takes the first for the end of the log."""
    with pytest.raises((AssertionError, ChildError)):
        assert_broker_accepts(store_of(NEWEST).root, tmp_path, [OLDEST])


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("version", older.VERSIONS)
def test_the_newest_broker_on_an_old_store(version: str, tmp_path: Path) -> None:
    """It serves what we read in a store of 4.0 to 4.8, and what we have written behind that."""
    root = golden.unpack(version, tmp_path / "store", golden.OLD)
    rows = [{"topic": "Orders", "queueId": at, "body": b"new", "keys": f"new-{at}"} for at in (0, 1)]
    write_store(root, pa.Table.from_pylist(rows), mode="append")
    expected = reading.read(root)
    assert [row["keys"] for row in expected[-2:]] == ["new-0", "new-1"]
    assert_broker_accepts(root, tmp_path / "home", [NEWEST], sizes=older.SIZES, expected=expected, restart=False)
