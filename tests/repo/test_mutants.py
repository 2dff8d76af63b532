"""The list of changes that need no test gives a reason of each."""

from __future__ import annotations

from mutants.changes import ROOT
from mutants.excuses import excuses


def test_each_excuse_has_a_reason() -> None:
    for (path, text, what), why in excuses().items():
        assert (ROOT / path).exists()
        assert text
        assert what
        assert why.split(": ")[0] in ("equal", "speed", "words")
