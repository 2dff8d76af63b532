"""What happened to a message, drawn: a line down the page with a dot for each event. The longer it took to the next
one, the longer is the line between them."""

import math
from itertools import pairwise

import pyarrow as pa

from rmqstore_spark.amounts import duration_text
from rmqstore_spark.jobs.history import SCHEMA
from rmqstore_spark.notebook.markup import ACCENT, text
from rmqstore_spark.times import time_texts

_LEAST, _MOST = 20, 56  # pixels between two events
_TIMES, _LINE, _WORDS = 172, 258, 276  # x of the ends of times, of the line, of the words
_BAD = {"dead", "rolled back", "given up", "waiting"}
_BAD_COLOR = "#d9534f"


def is_history(rows: pa.Table) -> bool:
    """Is it a table of `Store.history`?"""
    return set(SCHEMA.names) <= set(rows.column_names) and rows.num_rows > 0


def timeline(rows: pa.Table) -> str:
    """The events of a history as SVG; those without a time come last, at equal distances."""
    times = rows.column("timestamp").cast(pa.int64()).to_pylist()
    texts = time_texts(rows.column("timestamp"))
    gaps = [None if None in pair else pair[1] - pair[0] for pair in pairwise(times)]
    height, drawn = 14, []
    for number, row in enumerate(rows.select(["event", "topic", "group", "details"]).to_pylist()):
        if number:
            gap = gaps[number - 1]
            below = height + _pixels(gap)
            drawn.append(
                f"<line x1='{_LINE}' y1='{height}' x2='{_LINE}' y2='{below}' stroke='currentColor' opacity='.4'/>"
            )
            if gap is not None and gap >= 1000:
                drawn.append(_words(_LINE - 8, (height + below) / 2, f"+ {duration_text(gap // 1000)}", "end", ".6"))
            height = below
        color = _BAD_COLOR if row["event"] in _BAD else ACCENT
        drawn.append(f"<circle cx='{_LINE}' cy='{height}' r='5' fill='{color}'/>")
        drawn.append(_words(_TIMES, height, (texts[number] or "").replace("T", " "), "end"))
        where = " ".join(filter(None, (row["topic"], row["group"] and f"({row['group']})")))
        drawn.append(_words(_WORDS, height, f"{row['event']}  {where}", "start"))
    size = f"width='100%' height='{height + 14}'"
    return (
        f"<svg {size} role='img' font-family='monospace' font-size='12' fill='currentColor'>"
        f"<title>What happened, in order of time</title>{''.join(drawn)}</svg>"
    )


def _pixels(microseconds: int | None) -> int:
    """The length of the line for so long a time: one step more for ten times as long."""
    seconds = 0 if microseconds is None else max(0, microseconds) / 1e6
    return min(_MOST, _LEAST + round(9 * math.log10(1 + 100 * seconds)))


def _words(x: float, y: float, said: str, anchor: str, opacity: str = "1") -> str:
    place = f"x='{x}' y='{y}' text-anchor='{anchor}' dominant-baseline='middle'"
    return f"<text {place} opacity='{opacity}' xml:space='preserve'>{text(said)}</text>"
