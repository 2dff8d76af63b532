"""What was made comes into a store name by name, and nothing else moves; with directories that are only listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rmqstore_spark.write.publish.moves import Move, Names, moves

TOPS = ("consumequeue", "index")
FIRST, SECOND, THIRD = (f"{start:020d}" for start in (0, 6000, 12000))
INDEX, LATER = "20240101000000000", "20240102000000000"


class Listed:
    """Nested dicts as directories; None is a file."""

    def __init__(self, top: dict[str, Any]) -> None:
        self._top = top

    def _find(self, names: Names) -> Any:
        found: Any = self._top
        for name in names:
            found = found.get(name, ...) if isinstance(found, dict) else ...
        return found

    def has(self, names: Names) -> bool:
        return self._find(names) is not ...

    def is_directory(self, names: Names) -> bool:
        return isinstance(self._find(names), dict)

    def names(self, names: Names) -> Sequence[str]:
        return list(self._find(names))


def told(new: dict[str, Any], store: dict[str, Any], tops: Sequence[str] = TOPS) -> list[str]:
    """The moves of files, and of directories that go as a whole."""

    def word(move: Move) -> str:
        return f"{'put' if move.comes else 'delete'} {'/'.join(move.names)}"

    return [word(move) for move in moves(Listed(new), Listed(store), tops) if move.comes or not move.is_directory]


def test_a_new_directory_goes_as_a_whole() -> None:
    new = {"consumequeue": {"New": {"0": {FIRST: None}}, "Old": {"1": {FIRST: None}, "0": {FIRST: None}}}}
    store = {"consumequeue": {"Old": {"0": {FIRST: None}}}}
    assert told(new, {}) == ["put consumequeue"]
    assert told(new, store) == ["put consumequeue/New", f"put consumequeue/Old/0/{FIRST}", "put consumequeue/Old/1"]


def test_files_after_the_last_new_one_go_first() -> None:
    """The last one first: at no time is there a hole in a queue."""
    new = {"consumequeue": {"T": {"0": {FIRST: None}}}}
    store = {"consumequeue": {"T": {"0": {SECOND: None, FIRST: None, THIRD: None, "notes.txt": None}}}}
    queue = "consumequeue/T/0"
    assert told(new, store) == [f"delete {queue}/{THIRD}", f"delete {queue}/{SECOND}", f"put {queue}/{FIRST}"]


def test_no_file_goes_where_none_comes() -> None:
    new: dict[str, Any] = {"consumequeue": {"T": {"0": {}}}, "index": {}}
    store = {"consumequeue": {"T": {"0": {FIRST: None}}}, "index": {INDEX: None}}
    assert told(new, store) == []


def test_index_files_in_their_order() -> None:
    new, store = {"index": {LATER: None, INDEX: None}}, {"index": {INDEX: None}}
    assert told(new, store) == [f"put index/{INDEX}", f"put index/{LATER}"]


@pytest.mark.parametrize("tops", [TOPS, ()])
def test_what_has_been_done_is_not_among_them(tops: Sequence[str]) -> None:
    store = {"consumequeue": {"T": {"0": {FIRST: None}}}, "index": {INDEX: None}}
    assert told({"consumequeue": {"T": {"0": {}}}}, store, tops) == []
    assert told({}, store, tops) == []


@pytest.mark.parametrize(
    "strange",
    [
        {"consumequeue": {"T": None}},
        {"consumequeue": {"T": {"x": {FIRST: None}}}},
        {"consumequeue": {"T": {"0": None}}},
        {"consumequeue": {"T": {"0": {FIRST: {}}}}},
        {"consumequeue": {"T": {"0": {"notes.txt": None}}}},
        {"index": {INDEX: {}}},
        {"index": {"notes.txt": None}},
        {"commitlog": {FIRST: None}},
    ],
)
def test_nothing_else_moves(strange: dict[str, Any]) -> None:
    """What lies in the directory of a change may have been put there."""
    store: dict[str, Any] = {"consumequeue": {"T": {"0": {SECOND: None}}}, "index": {}, "commitlog": {}}
    assert told(strange, store) == []
