"""Draws docs/show.svg: what `rmqstore show sample_store` prints at a terminal. `make reference` runs it.

tests/repo/test_reference.py fails where the picture is not what the command prints.
"""

import contextlib
import dataclasses
import io
import os
from html import escape
from pathlib import Path
from unittest import mock

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from rmqstore_spark.cli.reading import stores_of
from rmqstore_spark.cli.show import show_summary
from rmqstore_spark.jobs.summary import summarize

ROOT = Path(__file__).resolve().parents[1]
PICTURE = Path("docs/show.svg")

_COLUMNS = 88
_CELL, _LINE, _MARGIN, _SIZE = 8, 18, 18, 13
_TITLE_BAR = 30
_BARS = "▁▂▃▄▅▆▇█"
_COLORS = {1: "#ff7b72", 3: "#e3b341", 6: "#56d4dd"}  # red, yellow, cyan, by a terminal's numbers
_PLAIN, _DIM, _BRIGHT = "#d0d7de", "#8b949e", "#ffffff"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown() -> str:
    """What the command prints at a terminal, with the codes for colours; the store by its name only."""
    (store,) = stores_of([str(ROOT / "sample_store")], {})
    summary = dataclasses.replace(summarize(store), root="sample_store")
    out = _Terminal()
    terminal = {"COLUMNS": str(_COLUMNS), "LINES": "50", "TERM": "xterm-256color"}
    with mock.patch.dict(os.environ, terminal), contextlib.redirect_stdout(out):
        os.environ.pop("NO_COLOR", None)
        show_summary(summary)
    return out.getvalue()


def draw(text: str) -> str:
    """The picture of what a terminal shows.

    Args:
        text: with ANSI codes.
    """
    plain = Console(width=_COLUMNS, color_system="truecolor", file=io.StringIO())
    lines = plain.render_lines(Text.from_ansi(text), pad=False)
    prompt = [Segment("$ ", Style(dim=True)), Segment("rmqstore show sample_store", Style(bold=True))]
    lines = [prompt, [], *lines]
    width = _COLUMNS * _CELL + 2 * _MARGIN
    height = _TITLE_BAR + len(lines) * _LINE + _MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<!-- Made by tools/screenshot.py from the code: make reference -->",
        "<title>What rmqstore show prints of sample_store</title>",
        f"<style>text {{ font: {_SIZE}px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace }}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>',
    ]
    for number, color in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        out.append(f'<circle cx="{_MARGIN + 6 + 18 * number}" cy="16" r="5" fill="{color}"/>')
    for number, line in enumerate(lines):
        out += _line(line, _TITLE_BAR + number * _LINE)
    return "\n".join([*out, "</svg>", ""])


def _line(segments: list[Segment], top: int) -> list[str]:
    drawn = []
    at = 0
    for text, style, _ in segments:
        cells = cell_len(text)
        color = _color(style)
        if set(text.strip()) & set(_BARS):
            drawn += [_bar(letter, at + number, top, color) for number, letter in enumerate(text) if letter in _BARS]
        elif set(text.strip()) == {"─"}:
            y = top + _LINE // 2
            drawn.append(f'<path d="M{_x(at)} {y} H{_x(at + cells)}" stroke="{_DIM}"/>')
        else:
            drawn += _words(text, at, top, color, bool(style and style.bold))
        at += cells
    return drawn


def _words(text: str, at: int, top: int, color: str, is_bold: bool) -> list[str]:
    """Text, cut where there is much space: each piece has its width, whatever font shows it."""
    drawn = []
    weight = ' font-weight="bold"' if is_bold else ""
    for piece in text.split("  "):
        word = piece.strip()
        if word:
            x = _x(at + cell_len(piece) - cell_len(piece.lstrip()))
            length = cell_len(word) * _CELL
            place = f'x="{x}" y="{top + 13}" textLength="{length}" lengthAdjust="spacingAndGlyphs"'
            drawn.append(f'<text {place} fill="{color}"{weight}>{escape(word)}</text>')
        at += cell_len(piece) + 2
    return drawn


def _bar(letter: str, at: int, top: int, color: str) -> str:
    height = 2 * (_BARS.index(letter) + 1)
    return f'<rect x="{_x(at)}" y="{top + 17 - height}" width="{_CELL - 1}" height="{height}" fill="{color}"/>'


def _x(column: int) -> int:
    return _MARGIN + column * _CELL


def _color(style: Style | None) -> str:
    if style is None:
        return _PLAIN
    if style.color is not None and style.color.number in _COLORS:
        return _COLORS[style.color.number]
    return _DIM if style.dim else _BRIGHT if style.bold else _PLAIN
