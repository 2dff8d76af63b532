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


@pytest.mark.parametrize(("option", "command"), [("decompress", "import"), ("mode", "import"), ("format", "import")])
def test_an_option_that_means_something_else_to_one_command_stands_with_that_command(option: str, command: str) -> None:
    page = (ROOT / "docs/command-line.md").read_text()
    usual, own = page.split(f"\n### {command}\n")[0], page.split(f"\n### {command}\n")[1].split("\n### ")[0]
    table, of_messages = usual.split("\n## Commands\n")[0], reference.option_help("messages", option)
    assert of_messages in table
    assert f"* `--{option}`: {reference.option_help(command, option)}\n" in own
