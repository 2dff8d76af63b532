"""What README and docs/ have from the code is what the code says (tools/reference.py writes it)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import reference

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", reference.PARTS)
def test_page_is_the_codes(name: str) -> None:
    text = (ROOT / name).read_text()
    for part in reference.PARTS[name]:
        assert len(reference.part(part).findall(text)) == 1, part
    assert text == reference.page(name), "call `make reference`"


def test_no_page_has_a_part_that_nothing_writes() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        found = re.findall(r"<!-- ([\w-]+): made by", path.read_text())
        assert found == list(reference.PARTS.get(str(path.relative_to(ROOT)), {})), path.name


@pytest.mark.parametrize("path", reference.FILES, ids=lambda path: path.name)
def test_file_is_the_codes(path: Path) -> None:
    assert (ROOT / path).read_text() == reference.FILES[path](), "call `make reference`"
