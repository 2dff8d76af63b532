"""Draws docs/speed.svg, and makes README's and docs/performance.md's tables, from benchmarks/measured.json.

tools/reference.py calls it. tests/repo/test_reference.py fails where picture or tables are not what the file says.
"""

import json
import math
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = Path("docs/speed.svg")

_WIDTH, _LEFT, _RIGHT = 540, 20, 520
_TOP, _LINE = 48, 66
_SLOWEST, _FASTEST = 0.3, 40.0  # the ends of the axis
_TICKS = (0.5, 1, 2, 5, 10, 20)
_STYLE = """<style>
  .card { fill: #ffffff; stroke: #c3c8d0 } .ticks { stroke: #dde1e6 } .one { stroke: #1b1f24 }
  text { fill: #1b1f24; font: 14px system-ui, 'DejaVu Sans', sans-serif } .peer { fill: #4b5563; font-size: 13px }
  .ratio { font-weight: bold } .faster { fill: #2e8b57 } .slower { fill: #c2571a }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d } .ticks { stroke: #30363d } .one { stroke: #e6edf3 }
    text { fill: #e6edf3 } .peer { fill: #9da7b3 }
  }
</style>"""


@dataclass(frozen=True)
class Figure:
    """How many times as fast as a peer something is.

    Attributes:
        area: `reading`, `selecting` or `writing`.
        what: what was measured.
        peer: what it is compared with.
        low: the worst run.
        high: the best one.
        front: whether README shows it.
    """

    area: str
    what: str
    peer: str
    low: float
    high: float
    front: bool

    @property
    def ratio(self) -> str:
        """For people."""
        low, high = f"{self.low:g}", f"{self.high:g}"
        return f"{low} x" if low == high else f"{low} to {high} x"


def read() -> list[Figure]:
    """All figures."""
    rows = json.loads((ROOT / "benchmarks" / "measured.json").read_text())["rows"]
    return [Figure(**row) for row in rows]


def front_table(figures: list[Figure]) -> str:
    """What README shows."""
    return _table([figure for figure in figures if figure.front])


def area_table(figures: list[Figure], area: str) -> str:
    """All of an area."""
    return _table([figure for figure in figures if figure.area == area])


def _table(figures: list[Figure]) -> str:
    rows = [f"| {figure.what} | {figure.ratio} | {figure.peer} |" for figure in figures]
    return "\n".join(["| | times as fast as | this |", "|---|---|---|", *rows])


def draw(figures: list[Figure]) -> str:
    """The picture: a bar for each, on a logarithmic axis, from 1 (as fast as its peer) to the ratio."""
    height = _TOP + _LINE * len(figures) + 8
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">',
        "<!-- Made by tools/figures.py from benchmarks/measured.json: make reference -->",
        "<title>How many times as fast as its peer each is</title>",
        _STYLE,
        f'<rect class="card" width="{_WIDTH}" height="{height}" rx="8"/>',
    ]
    for tick in _TICKS:
        label = "as fast" if tick == 1 else f"{tick:g} x"
        out.append(f'<text class="peer" x="{_at(tick)}" y="28" text-anchor="middle">{label}</text>')
    for number, figure in enumerate(figures):
        out += _drawn(figure, _TOP + _LINE * number)
    return "\n".join([*out, "</svg>", ""])


def _drawn(figure: Figure, top: int) -> list[str]:
    what, peer = (escape(text.replace("`", "")) for text in (figure.what, figure.peer))
    one, end = _at(1), _at(math.sqrt(figure.low * figure.high))
    kind = "faster" if end >= one else "slower"
    bar = f'x="{min(one, end)}" y="{top + 36}" width="{abs(end - one)}" height="14" rx="2"'
    ticks = "".join(f"M{_at(tick)} {top + 34} v18 " for tick in _TICKS)
    return [
        f'<text x="{_LEFT}" y="{top + 12}">{what}: <tspan class="ratio">{figure.ratio}</tspan></text>',
        f'<text class="peer" x="{_LEFT}" y="{top + 28}">as fast as {peer}</text>',
        f'<path class="ticks" d="{ticks.strip()}"/>',
        f'<rect class="{kind}" {bar}/>',
        f'<path class="one" d="M{one} {top + 34} v18"/>',
    ]


def _at(ratio: float) -> int:
    share = math.log(ratio / _SLOWEST) / math.log(_FASTEST / _SLOWEST)
    return round(_LEFT + share * (_RIGHT - _LEFT))
