"""Draws screens: what commands print at a terminal, for README and docs/. `make reference` runs it.

tests/repo/test_reference.py fails where a picture is not what its command prints. The screens are so narrow that they
can be read on a phone.
"""

import contextlib
import io
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from unittest import mock

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from rmqstore_spark.cli import findings, shares, show
from rmqstore_spark.cli.commands import Rmqstore
from rmqstore_spark.errors import one_line
from rmqstore_spark.jobs.growth import Growth, growth

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Screen:
    """A picture.

    Attributes:
        command: what is typed; sample_store is there, and `crashed`, which is a damaged copy of it.
        title: what the picture shows, for those who do not see it.
        columns: of the terminal.
    """

    command: str
    title: str
    columns: int = 52


SCREENS = {
    Path("docs/show.svg"): Screen("rmqstore show sample_store", "What rmqstore show prints of sample_store"),
    Path("docs/lag.svg"): Screen("rmqstore lag sample_store", "What rmqstore lag prints of sample_store"),
    Path("docs/usage.svg"): Screen(
        "rmqstore usage sample_store -n 8", "What rmqstore usage prints of sample_store: bars for topics", columns=60
    ),
    Path("docs/check.svg"): Screen("rmqstore check crashed", "What rmqstore check prints of a damaged store"),
    Path("docs/salvage.svg"): Screen(
        "rmqstore salvage crashed saved", "What rmqstore salvage prints: the messages that are lost"
    ),
}

_CELL, _LINE, _MARGIN, _SIZE = 8, 18, 12, 13
_TITLE_BAR = 30
_BARS, _PARTS = "▁▂▃▄▅▆▇█", "▏▎▍▌▋▊▉"
_COLORS = {1: "#ff7b72", 2: "#7ee787", 3: "#e3b341", 6: "#56d4dd"}  # red, yellow, cyan, by a terminal's numbers
_PLAIN, _DIM, _BRIGHT = "#d0d7de", "#8b949e", "#ffffff"


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class _Errors(io.StringIO):
    """Standard error, which is shown where standard output is, but has no progress bars."""

    def __init__(self, out: io.StringIO) -> None:
        super().__init__()
        self._out = out

    def write(self, text: str) -> int:
        return self._out.write(text)


@contextlib.contextmanager
def _stores() -> Iterator[str]:
    """A directory with the stores, which is the current one."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        home = os.path.realpath(name)
        for store in ("sample_store", "crashed"):
            shutil.copytree(ROOT / "sample_store", Path(home, store))
        Path(home, "crashed", "abort").touch()
        with min(Path(home, "crashed", "commitlog").iterdir()).open("r+b") as log:
            log.seek(20_000)
            log.write(bytes(900))
        os.chdir(home)
        try:
            yield home
        finally:
            os.chdir(before)


def _without_disk(found: Growth | None) -> Growth | None:
    return None if found is None else replace(found, free=None)


def shown(screen: Screen) -> str:
    """What a command prints at a terminal, with the codes for colours; stores by their names only."""
    out = _Terminal()
    terminal = {"COLUMNS": str(screen.columns), "LINES": "50", "TERM": "xterm-256color"}
    words = shlex.split(screen.command)[1:]
    with _stores() as home, mock.patch.dict(os.environ, terminal), contextlib.ExitStack() as during:
        os.environ.pop("NO_COLOR", None)
        for module in (findings, show):  # before lines are broken
            named = mock.patch.object(module, "one_line", lambda text: one_line(str(text).replace(f"{home}/", "")))
            during.enter_context(named)
        # How much is free is said of the machine that draws, and would differ each time.
        during.enter_context(mock.patch.object(shares, "growth", lambda store: _without_disk(growth(store))))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(_Errors(out)):
            Rmqstore().main(words, "rmqstore", standalone_mode=False)
        return out.getvalue()


def picture(path: Path) -> str:
    """The picture at a path."""
    return draw(SCREENS[path], shown(SCREENS[path]))


def draw(screen: Screen, text: str) -> str:
    """The picture of what a terminal shows.

    Args:
        text: with ANSI codes.
    """
    plain = Console(width=screen.columns, color_system="truecolor", file=io.StringIO())
    typed = plain.render_lines(Text(f"$ {screen.command}"), pad=False)
    prompt = [[Segment("$ ", Style(dim=True)), Segment(screen.command[: screen.columns - 2], Style(bold=True))]]
    if len(typed) > 1:
        prompt = [[Segment("".join(part.text for part in line), Style(bold=True))] for line in typed]
    lines = [*prompt, [], *plain.render_lines(Text.from_ansi(text), pad=False)]
    width = screen.columns * _CELL + 2 * _MARGIN
    height = _TITLE_BAR + len(lines) * _LINE + _MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<!-- Made by tools/screenshot.py from the code: make reference -->",
        f"<title>{escape(screen.title)}</title>",
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
        bars = {number: letter for number, letter in enumerate(text) if letter in _BARS + _PARTS}
        if bars:
            drawn += [_bar(letter, at + number, top, color) for number, letter in bars.items()]
            words = "".join(" " if number in bars else letter for number, letter in enumerate(text))
            drawn += _words(words, at, top, color, bool(style and style.bold))
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
    if letter in _PARTS:  # of a bar that lies
        width = _CELL * (_PARTS.index(letter) + 1) // 8
        return f'<rect x="{_x(at)}" y="{top + 1}" width="{width}" height="16" fill="{color}"/>'
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
