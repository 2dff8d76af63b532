"""README and the pages of docs/, and the examples in them.

A block is Python, Python with a session of Spark, or commands. Where `<!-- output -->` and a block follow, it prints
just that. A block that says `needs-s3` gets a server on loopback.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rmqstore_spark import write_store
from support.s3_server import Server

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.name: path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}


@dataclass(frozen=True)
class Block:
    """An example.

    Attributes:
        kind: what follows the three backticks.
        text: what is in it.
        output: what it is to print; None: that is left open.
    """

    kind: str
    text: str
    output: str | None


def blocks(page: str, kind: str | None = None) -> list[Block]:
    """The blocks of a page.

    Args:
        page: its name.
        kind: only those of this kind.
    """
    pattern = r"^```([^\n]*)\n(.*?)^```$(?:\n<!-- output -->\n```\n(.*?)^```$)?"
    found = [Block(*parts.groups()) for parts in re.finditer(pattern, PAGES[page], re.DOTALL | re.MULTILINE)]
    return [block for block in found if kind in (None, block.kind)]


def pages_with(kind: str) -> list[str]:
    """The names of the pages with such blocks."""
    found = [page for page in PAGES if blocks(page, kind)]
    assert found
    return found


def make_kitchen(path: Path) -> None:
    """Make the stores that examples read."""
    for name in ("sample_store", "copy_of_sample_store"):
        shutil.copytree(ROOT / "sample_store", path / name)
    write_store(path / "other_store", pa.table({"topic": ["Plain"] * 5, "body": ["x"] * 5}))
    bodies = ['{"number": 1, "state": "paid"}', '{"number": 2, "state": "shipped"}']
    write_store(path / "json_store", pa.table({"topic": ["Paid"] * 2, "body": bodies}))


@contextlib.contextmanager
def bucket(path: Path) -> Iterator[Server]:
    """A server with sample_store as `broker` in its bucket, made in this directory."""
    (path / "bucket").mkdir()
    shutil.copytree(ROOT / "sample_store", path / "bucket" / "broker")
    with Server(path / "bucket") as running:
        yield running


def run_block(block: Block, names: dict[str, object]) -> None:
    """Run a block of Python; it prints what the page shows, if that shows anything."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block.text, names)
    if block.output is not None:
        assert printed.getvalue().strip() == block.output.strip()
