"""Table `usage` for people: sizes, shares as bars, and how the log grows."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import click
import pyarrow as pa

from rmqstore_spark.amounts import duration_text, size_text
from rmqstore_spark.cli.screen import RIGHT, SPACE, WHOLE, cell, console, print_indented, shortened, width_before
from rmqstore_spark.errors import one_line
from rmqstore_spark.jobs.growth import DAY, growth
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.times import time_texts

_WIDTH, _LEAST_WIDTH = 20, 4  # cells of the longest bar
_LEAST_NAME = 8  # cells
_EIGHTHS = " ▏▎▍▌▋▊▉"
_CHARACTERS = {"hour": len("2026-11-21 14:00"), "day": len("2026-11-21")}
_YEARS = 100 * 365 * DAY  # ms: what takes longer has no date


@dataclass(frozen=True)
class Totals:
    """What all rows of the table have together.

    Attributes:
        rows, nbytes: sums.
        most: the bytes of the largest row.
        sources: where the numbers are from.
    """

    rows: int = 0
    nbytes: int = 0
    most: int = 0
    sources: frozenset[str] = frozenset()

    @classmethod
    def of(cls, batches: Iterator[pa.RecordBatch]) -> "Totals":
        """Those of some rows."""
        found = cls()
        for batch in batches:
            sizes = batch.column("bytes").to_pylist()
            sources = found.sources.union(batch.column("source").unique().to_pylist())
            found = cls(found.rows + len(sizes), found.nbytes + sum(sizes), max([found.most, *sizes]), sources)
        return found


def with_shares(found: pa.Table, totals: Totals, by: str, width: int) -> pa.Table:
    """The columns that a terminal shows: those that `by` names, sizes (the rows are sorted by them), messages, and a
    bar for each row.

    Args:
        found: the rows that are shown.
        totals: of all rows.
        by: the option's text.
        width: the cells of a line. What the others leave is for the bars.
    """
    nbytes = found.column("bytes").to_pylist()
    shown = found.select([name.strip() for name in by.split(",")])
    for name in _CHARACTERS.keys() & set(shown.column_names):
        shown = _with_short_times(shown, name)
    sizes = pa.array(map(size_text, nbytes), pa.string())
    shown = _with_room(shown, width - max(map(len, sizes.to_pylist())))
    shown = shown.append_column(pa.field("size", pa.string(), metadata=RIGHT), sizes)
    shown = shown.append_column("messages", found.column("messages"))
    room = width - width_before(shown, width) - len("100.0 % ")
    cells = min(_WIDTH, room) if room >= _LEAST_WIDTH else 0
    shares = [f"{each / totals.nbytes * 100:5.1f} % {bar(each / totals.most, cells)}".rstrip() for each in nbytes]
    return shown.append_column(pa.field("share", pa.string(), metadata=WHOLE), pa.array(shares, pa.string()))


def _with_room(shown: pa.Table, width: int) -> pa.Table:
    """The table with names as short as they have to be, so that what stands behind them is shown at a narrow terminal.

    Args:
        width: the cells of a line that are there for the table.
    """
    names = [field.name for field in shown.schema if pa.types.is_string(field.type) and not field.metadata]
    if not names or width_before(shown, width) <= width:
        return shown
    others = shown.drop_columns(names)
    room = width - (width_before(others, width) if others.num_columns else 0)
    least = max(_LEAST_NAME, room // len(names) - SPACE)
    for name in names:
        texts = [None if text is None else shortened(cell(text), least) for text in shown[name].to_pylist()]
        shown = shown.set_column(shown.column_names.index(name), name, pa.array(texts, pa.string()))
    return shown


def _with_short_times(shown: pa.Table, name: str) -> pa.Table:
    """The table with the times of a column as texts that end where the rest is zero."""
    texts = pa.array([text and text.replace("T", " ")[: _CHARACTERS[name]] for text in time_texts(shown[name])])
    field = pa.field(name, pa.string(), metadata=WHOLE)
    return shown.set_column(shown.column_names.index(name), field, texts.cast(pa.string()))


def say_source(totals: Totals) -> None:
    """Say where the numbers are from."""
    click.echo(f"added up from the {' and the '.join(sorted(totals.sources))}")


def bar(part: float, width: int = _WIDTH) -> str:
    """A bar for a number from 0 to 1, of at most so many cells; every number above 0 has a visible one."""
    if not width:
        return ""
    if "utf" not in (sys.stdout.encoding or "").lower():
        return "#" * max(part > 0, round(part * width))
    cells, eighths = divmod(max(part > 0, round(part * width * 8)), 8)
    return "█" * cells + (_EIGHTHS[eighths] if eighths else "")


def show_growth(store: Snapshot, is_named: bool) -> None:
    """Say how fast the log of a store grows, and when its disk is full.

    Args:
        is_named: whether to say which store it is.
    """
    found = growth(store)
    name = f"{store.root}: " if is_named else ""
    if found is None:
        click.echo(one_line(f"{name}store times do not tell how fast the log grows"))
        return
    told = f"the log grew by {size_text(found.nbytes)} in {duration_text(found.millis)}"
    told += f": {size_text(found.per_day)} a day" if found.is_telling else ", which is too short to tell a rate"
    until = found.until_full
    if found.is_telling and found.free is not None and until is not None:
        told += f"; {size_text(found.free)} are free on its disk, which is full"
        told += f" in {duration_text(until)}" if until < _YEARS else " in more than 100 years"
        if until < _YEARS:
            told += f" ({datetime.now(UTC) + timedelta(milliseconds=until):%Y-%m-%d %H:%M} UTC)"
        told += " at that rate, if nothing expires"
    print_indented(console(), one_line(name + told), indent=0)
