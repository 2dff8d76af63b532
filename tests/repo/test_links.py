"""Links between the pages lead somewhere: to a file of the repository, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks" / "README.md"])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]*)\)")


def anchors(text: str) -> set[str]:
    """What links to a page's headings name: the same on the website and where Markdown is shown as it is."""
    found = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE))
    notebooks = {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert named == pages | notebooks | {"index.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"}
