"""The mutants that may live: what excused.txt says of them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from mutants.changes import ROOT

_EXCUSED = Path(__file__).with_name("excused.txt")


class _Changed(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def what(self) -> str: ...


_Mutant = TypeVar("_Mutant", bound=_Changed)


def excuses() -> dict[tuple[str, str, str], str]:
    """What excused.txt says: by path, line, and what becomes of what, the reason."""
    blocks = [block.splitlines() for block in _EXCUSED.read_text().split("\n\n")[1:]]
    return {(path, text, what): why for path, text, what, why in blocks}


def excused(mutants: Sequence[_Mutant]) -> dict[_Mutant, str]:
    """The mutants that need no test, each with the first word of the reason."""
    reasons = excuses()
    found = ((mutant, reasons.get(_said(mutant))) for mutant in mutants)
    return {mutant: reason.partition(":")[0] for mutant, reason in found if reason is not None}


def outlived(mutants: Iterable[_Changed], below: str) -> list[str]:
    """A line for each excuse of files below a directory that is for no mutant of these."""
    left = excuses().keys() - set(map(_said, mutants))
    return [
        f"excused.txt: {path} has no {what} in {text}" for path, text, what in sorted(left) if path.startswith(below)
    ]


def _said(mutant: _Changed) -> tuple[str, str, str]:
    """How excused.txt names it."""
    return mutant.path, _lines(mutant.path)[mutant.line - 1].strip(), mutant.what


@functools.cache
def _lines(path: str) -> list[str]:
    return (ROOT / path).read_text().splitlines()
