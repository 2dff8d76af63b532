"""Paths and lists of queues that are no usual ones, by the words of their rule; found by `make mutants`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore_spark import OptionError
from rmqstore_spark.store.format.light_queues import DISPATCH, OFFSETS, light_queues
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.layout import local_path


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/stores/a", "/stores/a"),
        ("stores/a", "stores/a"),
        ("file:///stores/a%20b", "/stores/a b"),
        ("file://localhost/stores/a", "/stores/a"),
        ("c:/stores", "c:/stores"),  # a directory called "c:"
        ("ab:stores", "ab:stores"),  # a name with a colon
        ("ab:/stores", None),
        ("ftp://host/stores", None),
        ("file://other/stores", None),
        ("~nobody-is-called-so/stores", None),
    ],
)
def test_what_is_a_path_here(path: str, found: str | None) -> None:
    if found is not None:
        assert local_path(path, Files()) == found
        return
    with pytest.raises(OptionError):
        local_path(path, Files())


def test_what_is_there_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ftp:" / "host").mkdir(parents=True)
    (tmp_path / "~nobody-is-called-so").mkdir()
    assert local_path("ftp://host", Files()) == "ftp://host"
    assert local_path("~nobody-is-called-so", Files()) == "~nobody-is-called-so"


MOST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("names", "offsets", "found"),
    [
        ("%LMQ%a", "7", {"%LMQ%a": 7}),
        ("%LMQ%a,%LMQ%b", "7,0", {"%LMQ%a": 7, "%LMQ%b": 0}),
        ("%LMQ%a,,,", "7,", {"%LMQ%a": 7}),  # Java's split() drops empty ones at the end
        ("%LMQ%a,%LMQ%b", "7", {}),
        ("%LMQ%a", "7,8", {}),
        ("a,%LMQ%b", "7,8", {"%LMQ%b": 8}),
        ("%LMQ%a/x,%LMQ%b", "7,8", {"%LMQ%b": 8}),
        ("a/x", "7", {}),
        ("%LMQ%a,%LMQ%b", f"{MOST},{MOST + 1}", {"%LMQ%a": MOST}),
        ("%LMQ%a,%LMQ%b", "-1,8", {"%LMQ%b": 8}),
        ("%LMQ%a,%LMQ%b", "\u0663,8", {"%LMQ%b": 8}),  # a digit, but none of ours
        (None, "7", {}),
        ("%LMQ%a", None, {}),
    ],
)
def test_light_queues_of_a_message(names: str | None, offsets: str | None, found: dict[str, int]) -> None:
    given = {name: value for name, value in ((DISPATCH, names), (OFFSETS, offsets)) if value is not None}
    assert light_queues("T", 0, given) == found
    assert light_queues("T", 8, given) == found  # committed
    assert light_queues("T", 4, given) == light_queues("T", 12, given) == {}  # half, rolled back
    for topic in ("%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"):
        assert light_queues(topic, 0, given) == {}
