"""Pieces of HTML and SVG for a notebook's page. Texts are escaped, no script and no style sheet is among them, and
colors are the page's own and one that is seen on white and on black."""

from collections.abc import Iterable, Sequence
from html import escape

from rmqstore_spark.errors import one_line

ACCENT = "#3b82c4"
_WIDTH, _HEIGHT = 4, 14  # pixels of a bar
_LEFT, _RIGHT = "text-align:left;white-space:pre-wrap;max-width:40em", "text-align:right;white-space:nowrap"
_LONG = 40  # characters, of which a line has at least half


def text(value: str) -> str:
    """A text of anyone's, in one line."""
    return escape(one_line(value))


def cell(html: str, is_number: bool = False) -> str:
    """A cell of a table.

    Args:
        is_number: whether it is a number or a time, which stand below each other and are in one line.
    """
    style = _RIGHT if is_number else f"{_LEFT};min-width:{_LONG // 2}em" if len(html) > _LONG else _LEFT
    return f"<td style='vertical-align:top;{style}'>{html}</td>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table.

    Args:
        heads: the names of its columns.
        rows: of cells (`cell`).
    """
    head = "".join(f"<th style='text-align:left'>{text(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def bars(numbers: Sequence[float], title: str) -> str:
    """A bar for each number, the largest as high as a line; each above 0 can be seen.

    Args:
        title: what a reader is told who points at them, or hears the page.
    """
    most = max(numbers, default=0)
    drawn = "".join(
        f"<rect x='{at * _WIDTH}' y='{_HEIGHT - height}' width='{_WIDTH - 1}' height='{height}'/>"
        for at, number in enumerate(numbers)
        if (height := _height(number, most))
    )
    width = len(numbers) * _WIDTH
    return (
        f"<svg width='{width}' height='{_HEIGHT}' viewBox='0 0 {width} {_HEIGHT}' fill='{ACCENT}' role='img'>"
        f"<title>{text(title)}</title>{drawn}</svg>"
    )


def _height(number: float, most: float) -> int:
    return 0 if number <= 0 else max(1, round(number / most * _HEIGHT))
