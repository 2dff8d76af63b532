"""The list of changes that need no test is about changes that there are."""

from __future__ import annotations

from mutants.changes import ROOT, mutants
from mutants.run import excused, excuses


def test_each_excuse_is_of_a_change() -> None:
    known = excuses()
    assert {why.split(":")[0] for why in known.values()} <= {"equal", "speed", "words"}
    paths = sorted({path for path, *_ in known})
    found = excused([mutant for path in paths for mutant in mutants(ROOT / path)])
    lines = {path: (ROOT / path).read_text().splitlines() for path in paths}
    met = {(mutant.path, lines[mutant.path][mutant.line - 1].strip(), mutant.what) for mutant in found}
    assert known.keys() - met == set()
